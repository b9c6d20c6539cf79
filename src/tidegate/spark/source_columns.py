"""The columns of events for Spark, made a batch at a time without touching single events.

An encoded event is a head (annotations and properties) and a body. Bodies are cut out of the buffer by Arrow. Heads are
mostly the same few bytes again and again, such as one for each partition key, so each distinct head is decoded once and
its columns are repeated. The heads of an idempotent producer differ in the number of the event; they are compared
without it, and the number is put back into the column.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.amqp import DecodeError, parse_message
from tidegate.client.event import Details, details_of
from tidegate.client.producer import PRODUCER_SEQUENCE_NUMBER
from tidegate.connectors.model.messages import Messages, bodies, body_spans, details

_TEXT_MAP = pa.map_(pa.string(), pa.string())
_EMPTY_BODY = b"\x00Su\xa0\x00"
_REMEMBERED_HEADS = 10_000
# For a hundred bytes of names, four times 16,384 of them are 7 MB.
_REMEMBERED_NAMES, _NAMES_AT_ONCE = 4, 4_096
# The annotation with the number that an idempotent producer gives an event: a symbol, and an int of four bytes.
_NUMBER = bytes((0xA3, len(PRODUCER_SEQUENCE_NUMBER))) + PRODUCER_SEQUENCE_NUMBER.encode() + b"q"
_NUMBER_BYTES = 4
_WORD_BYTES, _WHOLE_WORD = 8, np.uint64(2**64 - 1)
_NO_NUMBER = np.int64(-(2**63))
_MOST_PATTERNS = 4
_MOST_RUNS = 16
# Before a body of up to 255 bytes are 00 53 75 a0 and a byte of size, before a longer one 00 53 75 b0 and four.
_LONG_BODY, _SHORT_BYTES, _LONG_BYTES = 0xB0, 5, 8

Int64Array = npt.NDArray[np.int64]
Column = Callable[["_Batch"], pa.Array]


class _Batch:
    """One batch, cut into heads and bodies."""

    def __init__(self, messages: Messages, partition: str) -> None:
        self.messages = messages
        self.partition = partition
        starts = np.concatenate((np.zeros(1, dtype=np.int64), messages.ends[:-1]))
        body_start, body_end = body_spans(messages.buffer, starts, messages.ends)
        self._regular = bool((body_start >= 0).all())
        self._starts, self._body_start, self._body_end = starts, body_start, body_end
        self._details: _DistinctDetails | None = None

    def bodies(self) -> pa.Array:
        """Return the bodies."""
        if not self._regular:
            return pa.array(bodies(self.messages.buffer, self.messages.ends), pa.binary())
        return _cut(self.messages.buffer, self._body_start, self._body_end)

    def of_details(self, value: Callable[[Details], Any], kind: pa.DataType) -> pa.Array:
        """Return a column of what the heads say."""
        return self._distinct_details().column(value, kind)

    def system_properties(self) -> pa.Array:
        """Return the annotations other than the broker's, and AMQP's own properties."""
        return self._distinct_details().system_properties()

    def _distinct_details(self) -> _DistinctDetails:
        if self._details is None:
            if self._regular:
                octets = np.frombuffer(self.messages.buffer, dtype=np.uint8)
                is_long = octets[self._body_start - _SHORT_BYTES] == _LONG_BODY
                head_end = self._body_start - np.where(is_long, _LONG_BYTES, _SHORT_BYTES)
                self._details = _DistinctDetails.of(_cut(self.messages.buffer, self._starts, head_end))
            else:
                count = len(self.messages.ends)
                self._details = _DistinctDetails(details(self.messages), np.arange(count), np.full(count, _NO_NUMBER))
        return self._details


@dataclass(frozen=True, slots=True)
class _DistinctDetails:
    """The details of n heads.

    Attributes:
        distinct: those that differ in more than a producer's number.
        places: int64[n], which of them each head has.
        numbers: int64[n], the producer's numbers that are not in ``distinct``; `_NO_NUMBER` for none.
    """

    distinct: list[Details]
    places: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]

    @classmethod
    def of(cls, heads: pa.Array) -> _DistinctDetails:
        """Decode heads, each distinct one once.

        The events of one producer have all the same head but for the number, and are compared with the first of them,
        byte by byte at the same places.
        """
        count = len(heads)
        places, numbers = np.full(count, -1), np.full(count, _NO_NUMBER)
        distinct: list[Details] = []
        rows, rest = np.arange(count), heads
        while len(rows) and len(distinct) < _MOST_PATTERNS:
            head, number_at = _pattern(rest[0].as_py())
            octets, of_length = _of_length(len(head), rest)
            alike = _rows_like(head, number_at, octets)
            if len(octets) == count and alike.all():
                # One producer has published all of them.
                found_numbers = numbers if number_at is None else _numbers_at(octets, number_at)
                return cls([_details_of_head(head)], np.zeros(count, dtype=np.int64), found_numbers)
            found = rows[of_length][alike]
            if not distinct and 4 * len(found) < count:
                # There are many, such as one for each key.
                break
            places[found] = len(distinct)
            distinct.append(_details_of_head(head))
            if number_at is not None:
                numbers[found] = _numbers_at(octets[alike], number_at)
            rows = rows[places[rows] < 0]
            rest = heads.take(pa.array(rows)) if len(rows) else rest
        if len(rows):
            others = cls._of_any(rest)
            places[rows], numbers[rows] = others.places + len(distinct), others.numbers
            distinct += others.distinct
        return cls(distinct, places, numbers)

    @classmethod
    def _of_any(cls, heads: pa.Array) -> _DistinctDetails:
        unnumbered, numbers = _without_numbers(heads)
        encoded = unnumbered.dictionary_encode()
        places = encoded.indices.to_numpy().astype(np.int64)
        distinct = encoded.dictionary.to_pylist()
        numbered = np.zeros(len(distinct), dtype=np.bool_)
        numbered[places[numbers != _NO_NUMBER]] = True
        if any(numbered[place] and not _is_number_alone(head) for place, head in enumerate(distinct)):
            # The bytes were somewhere else, such as in a property's value.
            encoded, numbers = heads.dictionary_encode(), np.full(len(heads), _NO_NUMBER)
            places, distinct = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()
        return cls([_details_of_head(head) for head in distinct], places, numbers)

    def column(self, value: Callable[[Details], Any], kind: pa.DataType) -> pa.Array:
        """Return a column of a value of the details, without numbers."""
        values = [value(one) for one in self.distinct]
        if not any(values) and pa.types.is_map(kind):
            nothing = pa.array([], pa.string())
            return pa.MapArray.from_arrays(np.zeros(len(self.places) + 1, dtype=np.int32), nothing, nothing)
        if all(one is None for one in values):
            return pa.nulls(len(self.places), kind)
        if len(values) == 1 and pa.types.is_map(kind):
            return _repeated_map(dict(values[0]), len(self.places))
        return pa.array(values, kind).take(pa.array(self.places))

    def system_properties(self) -> pa.Array:
        """Return the column of system properties, with the producer's numbers."""
        numbered = np.flatnonzero(self.numbers != _NO_NUMBER)
        if not len(numbered):
            return self.column(lambda one: list(one.system_properties.items()), _TEXT_MAP)
        texts = pa.array(self.numbers).cast(pa.string())
        # A run has one head, and numbers with as many digits.
        digits = np.diff(_offsets(texts))
        changes = np.flatnonzero((np.diff(self.places) != 0) | (np.diff(digits) != 0)) + 1
        if len(changes) < _MOST_RUNS:
            return self._system_properties_of_runs([0, *changes.tolist(), len(self.numbers)], texts)
        column = pa.array([list(one.system_properties.items()) for one in self.distinct], _TEXT_MAP)
        offsets_of_distinct = column.offsets.to_numpy()
        counts = np.diff(offsets_of_distinct)[self.places]
        offsets = np.zeros(len(counts) + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        entries = np.arange(offsets[-1], dtype=np.int32)
        entries += np.repeat(offsets_of_distinct[self.places] - offsets[:-1], counts)
        items = entries.copy()
        number_at = np.array([_place_of_number(one) for one in self.distinct], dtype=np.int32)
        places_of_numbers = offsets[numbered] + number_at[self.places[numbered]]
        items[places_of_numbers] = len(column.items) + np.arange(len(numbered), dtype=np.int32)
        every = pa.concat_arrays([column.items, texts.take(pa.array(numbered))])
        return pa.MapArray.from_arrays(offsets, column.keys.take(pa.array(entries)), every.take(pa.array(items)))

    def _system_properties_of_runs(self, bounds: list[int], texts: pa.Array) -> pa.Array:
        """Return the same column for runs of events, each with one head and with numbers of the same length."""
        runs = []
        for first, stop in itertools.pairwise(bounds):
            entries = self.distinct[self.places[first]].system_properties
            of_run = None if self.numbers[first] == _NO_NUMBER else texts[first:stop]
            runs.append((entries, stop - first, of_run))
        names = tuple(runs[0][0])
        if all(tuple(entries) == names for entries, _, _ in runs):
            # Runs of several producers differ in values only.
            return _maps_of(names, len(self.numbers), pa.concat_arrays([_repeated_values(*run) for run in runs]))
        return pa.concat_arrays([_repeated_map(*run) for run in runs])


def _repeated_map(entries: dict[str, str], count: int, numbers: pa.Array | None = None) -> pa.Array:
    """Return the same entries ``count`` times, as an array of maps; `_repeated_values` says what the values are."""
    return _maps_of(tuple(entries), count, _repeated_values(entries, count, numbers))


def _repeated_values(entries: dict[str, str], count: int, numbers: pa.Array | None) -> pa.Array:
    """Return the values of the same entries ``count`` times.

    Args:
        entries: names and values.
        count: how often.
        numbers: texts of one length, the producer's number of each; None if ``entries`` has the only one.
    """
    values = [value.encode() for value in entries.values()]
    if numbers is None:
        return _repeated_texts(values, count, np.frombuffer(b"".join(values) * count, dtype=np.uint8))
    of_numbers = _offsets(numbers)
    digits = int(of_numbers[1] - of_numbers[0])
    place = list(entries).index(PRODUCER_SEQUENCE_NUMBER)
    values[place] = bytes(digits)
    octets = np.frombuffer(bytearray(b"".join(values) * count), dtype=np.uint8).reshape(count, -1)
    at = sum(map(len, values[:place]))
    text = np.frombuffer(numbers.buffers()[2], dtype=np.uint8)[of_numbers[0] : of_numbers[-1]]
    octets[:, at : at + digits] = text.reshape(count, digits)
    return _repeated_texts(values, count, octets)


def _maps_of(names: tuple[str, ...], count: int, values: pa.Array) -> pa.Array:
    """Return ``count`` maps with the same names, given the values of all of them."""
    keys = _repeated_names(names, count + -count % _NAMES_AT_ONCE)[: count * len(names)]
    return pa.MapArray.from_arrays(pa.array(len(names) * np.arange(count + 1, dtype=np.int32)), keys, values)


@lru_cache(_REMEMBERED_NAMES)
def _repeated_names(names: tuple[str, ...], count: int) -> pa.Array:
    """Return the names of ``count`` maps, which are the same in most batches."""
    encoded = [name.encode() for name in names]
    return _repeated_texts(encoded, count, np.frombuffer(b"".join(encoded) * count, dtype=np.uint8))


def _repeated_texts(texts: list[bytes], count: int, octets: npt.NDArray[np.uint8]) -> pa.Array:
    """Return an array of texts with the lengths of ``texts``, ``count`` times over, whose bytes are given."""
    starts = [0, *itertools.accumulate(len(text) for text in texts)]
    size = starts.pop()
    offsets = np.empty(count * len(texts) + 1, dtype=np.int32)
    for place, start in enumerate(starts):
        offsets[place : count * len(texts) : len(texts)] = start + size * np.arange(count, dtype=np.int32)
    offsets[-1] = octets.size
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(octets)])


def _numbers_at(octets: npt.NDArray[np.uint8], number_at: int) -> npt.NDArray[np.int64]:
    """Return the producer's number of each head, all of the same length."""
    return octets[:, number_at : number_at + _NUMBER_BYTES].copy().view(">i4")[:, 0].astype(np.int64)


def _place_of_number(of: Details) -> int:
    """Return which of the system properties is the producer's number; 0 if none is."""
    names = list(of.system_properties)
    return names.index(PRODUCER_SEQUENCE_NUMBER) if PRODUCER_SEQUENCE_NUMBER in names else 0


def _pattern(head: bytes) -> tuple[bytes, int | None]:
    """Return a head with 0 in place of the producer's number, and where that is; None if there is none."""
    at = head.find(_NUMBER) + len(_NUMBER)
    if at < len(_NUMBER) or at + _NUMBER_BYTES > len(head):
        return head, None
    zeroed = head[:at] + bytes(_NUMBER_BYTES) + head[at + _NUMBER_BYTES :]
    return (zeroed, at) if head.count(_NUMBER) == 1 and _is_number_alone(zeroed) else (head, None)


def _of_length(size: int, heads: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Return uint8[k, size], the heads that are so long, and bool[n], which they are."""
    of_length = np.diff(_offsets(heads)) == size
    some = heads if of_length.all() else heads.filter(pa.array(of_length))
    content = some.buffers()[2] if size else None
    octets = np.frombuffer(b"" if content is None else content, dtype=np.uint8)[: len(some) * size]
    return octets.reshape(len(some), size), of_length


def _rows_like(head: bytes, number_at: int | None, octets: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return bool[k]: which heads of the same length are this one, whatever their producer's number is.

    Eight bytes of each head are compared at a time. Rows of single bytes would have to be reduced to one value each,
    which takes longer than comparing them.
    """
    counted = bytearray(b"\xff" * len(head))
    if number_at is not None:
        counted[number_at : number_at + _NUMBER_BYTES] = bytes(_NUMBER_BYTES)
    every: npt.NDArray[np.bool_] = np.ones(len(octets), dtype=np.bool_)
    if len(head) < _WORD_BYTES:
        every &= (octets == np.frombuffer(head, dtype=np.uint8)).all(axis=1)
        return every
    last = len(head) - _WORD_BYTES
    for place in (*range(0, last, _WORD_BYTES), last):
        words: npt.NDArray[np.uint64] = np.ndarray((len(octets),), "<u8", octets, place, (len(head),))
        expected, mask = (
            np.uint64(int.from_bytes(of[place : place + _WORD_BYTES], "little")) for of in (head, counted)
        )
        every &= (words if mask == _WHOLE_WORD else words & mask) == expected & mask
    return every


def _offsets(texts: pa.Array) -> Int64Array:
    """int64[n + 1]: where each text, or each head, begins in its buffer, and where the last one ends."""
    return np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset :][: len(texts) + 1].astype(np.int64)


def _without_numbers(heads: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return heads with 0 in place of a producer's number, and the numbers; `_NO_NUMBER` for heads without one."""
    numbers = np.full(len(heads), _NO_NUMBER)
    _, offsets_buffer, values = heads.buffers()
    offsets = _offsets(heads)
    content = b"" if values is None else memoryview(values)[: int(offsets[-1])]
    found = _ends_of(_NUMBER, content)
    rows = np.searchsorted(offsets, found, side="left") - 1
    inside = found + _NUMBER_BYTES <= offsets[rows + 1]
    once = np.bincount(rows, minlength=len(heads))[rows] == 1
    found, rows = found[inside & once], rows[inside & once]
    octets = np.frombuffer(content, dtype=np.uint8).copy()
    each = found[:, None] + np.arange(_NUMBER_BYTES)
    numbers[rows] = octets[each].copy().view(">i4")[:, 0]
    octets[each] = 0
    buffers = [None, offsets_buffer, pa.py_buffer(octets)]
    return pa.Array.from_buffers(pa.binary(), len(heads), buffers), numbers


def _ends_of(word: bytes, content: bytes | memoryview) -> npt.NDArray[np.int64]:
    """Return where each occurrence of a word of eight bytes or more ends.

    Words of eight bytes are compared at once, and only the first ones everywhere.
    """
    if len(content) < len(word):
        return np.empty(0, dtype=np.int64)
    words: npt.NDArray[np.uint64] = np.ndarray((len(content) - 7,), dtype="<u8", buffer=content, strides=(1,))
    ends = len(content) - len(word) + 1
    found = np.flatnonzero(words[:ends] == int.from_bytes(word[:8], "little"))
    for place in (*range(8, len(word) - 8, 8), len(word) - 8):
        found = found[words[found + place] == int.from_bytes(word[place : place + 8], "little")]
    return found + len(word)


def _texts_of(positions: list[str] | npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(positions).cast(pa.string())


_COLUMNS: dict[str, Column] = {
    "body": _Batch.bodies,
    "partition": lambda batch: pa.repeat(pa.scalar(batch.partition), len(batch.messages.ends)),
    "offset": lambda batch: _texts_of(batch.messages.positions),
    "sequenceNumber": lambda batch: pa.array(batch.messages.sequence_numbers),
    "enqueuedTime": lambda batch: pa.array(batch.messages.enqueued_times_ms * 1000, pa.timestamp("us", tz="UTC")),
    "publisher": lambda batch: batch.of_details(lambda one: one.publisher, pa.string()),
    "partitionKey": lambda batch: batch.of_details(lambda one: one.partition_key, pa.string()),
    "properties": lambda batch: batch.of_details(lambda one: list(one.properties.items()), _TEXT_MAP),
    "systemProperties": _Batch.system_properties,
}
"""How each column of the source is made."""


def record_batch(messages: Messages, partition: str, columns: Sequence[str]) -> pa.RecordBatch:
    """Return some columns of consecutive messages of a partition."""
    batch = _Batch(messages, partition)
    return pa.record_batch([_COLUMNS[name](batch) for name in columns], names=list(columns))


@lru_cache(_REMEMBERED_HEADS)
def _is_number_alone(head: bytes) -> bool:
    """Return whether a head says that its producer's number is 0, and nothing else follows from the number."""
    before, word, after = head.partition(_NUMBER)
    if not word:
        return False
    one = before + word + (1).to_bytes(_NUMBER_BYTES, "big") + after[_NUMBER_BYTES:]
    try:
        zero, other = _details_of_head(head), _details_of_head(one)
    except DecodeError:
        # The bytes were a part of something else, which this has broken.
        return False
    name = PRODUCER_SEQUENCE_NUMBER
    return zero.system_properties.get(name) == "0" and other == replace(
        zero, system_properties={**zero.system_properties, name: "1"}
    )


@lru_cache(_REMEMBERED_HEADS)
def _details_of_head(head: bytes) -> Details:
    return details_of(parse_message(head + _EMPTY_BODY))


def _cut(buffer: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> pa.Array:
    """Return the pieces of a buffer between each start and end, which ascend.

    Pieces and the gaps between them are an Arrow array without copying; taking every second element copies the pieces.
    """
    offsets = np.empty(2 * len(starts), dtype=np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    both = pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(buffer)]
    )
    pieces = both.take(pa.array(np.arange(0, len(offsets) - 1, 2, dtype=np.int64)))
    return pc.cast(pieces, pa.binary())
