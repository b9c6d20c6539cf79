"""The columns of events for Spark, made a batch at a time without touching single events.

An encoded event is a head (annotations and properties) and a body. Bodies are cut out of the buffer by Arrow. Heads are
mostly the same few bytes again and again, such as one for each partition key, so each distinct head is decoded once and
its columns are repeated.

The id, epoch and number by which a hub recognizes what an idempotent producer sends twice are between the two of them,
and no column has them: Kafka's readers do not see theirs either, which are in the heads of batches. The number differs
in each head of such a producer, so heads are compared without it.
"""

from __future__ import annotations

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
from tidegate.client.producer import PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQUENCE_NUMBER
from tidegate.connectors.model.messages import Messages, bodies, body_spans, details

_TEXT_MAP = pa.map_(pa.string(), pa.string())
_EMPTY_BODY = b"\x00Su\xa0\x00"
_REMEMBERED_HEADS = 10_000
_OF_PRODUCERS = {PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQUENCE_NUMBER}
# The annotation with the number that an idempotent producer gives an event: a symbol, and an int of four bytes.
_NUMBER = bytes((0xA3, len(PRODUCER_SEQUENCE_NUMBER))) + PRODUCER_SEQUENCE_NUMBER.encode() + b"q"
_NUMBER_BYTES = 4
_WORD_BYTES, _WHOLE_WORD = 8, np.uint64(2**64 - 1)
_MOST_PATTERNS = 4
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

    def _distinct_details(self) -> _DistinctDetails:
        if self._details is None:
            if self._regular:
                octets = np.frombuffer(self.messages.buffer, dtype=np.uint8)
                is_long = octets[self._body_start - _SHORT_BYTES] == _LONG_BODY
                head_end = self._body_start - np.where(is_long, _LONG_BYTES, _SHORT_BYTES)
                self._details = _DistinctDetails.of(_cut(self.messages.buffer, self._starts, head_end))
            else:
                count = len(self.messages.ends)
                every = [_without_producer(one) for one in details(self.messages)]
                self._details = _DistinctDetails(every, np.arange(count))
        return self._details


@dataclass(frozen=True, slots=True)
class _DistinctDetails:
    """The details of n heads.

    Attributes:
        distinct: those that differ in more than a producer's number.
        places: int64[n], which of them each head has.
    """

    distinct: list[Details]
    places: Int64Array

    @classmethod
    def of(cls, heads: pa.Array) -> _DistinctDetails:
        """Decode heads, each distinct one once.

        The events of one producer have all the same head but for the number, and are compared with the first of them,
        byte by byte at the same places.
        """
        count = len(heads)
        places = np.full(count, -1)
        distinct: list[Details] = []
        rows, rest = np.arange(count), heads
        while len(rows) and len(distinct) < _MOST_PATTERNS:
            head, number_at = _pattern(rest[0].as_py())
            alike = _rows_like(head, number_at, rest)
            found = rows[alike]
            if not distinct and 4 * len(found) < count:
                # There are many, such as one for each key.
                break
            places[found] = len(distinct)
            distinct.append(_details_of_head(head))
            rows = rows[~alike]
            rest = heads.take(pa.array(rows)) if len(rows) else rest
        if len(rows):
            others = cls._of_any(rest)
            places[rows] = others.places + len(distinct)
            distinct += others.distinct
        return cls(distinct, places)

    @classmethod
    def _of_any(cls, heads: pa.Array) -> _DistinctDetails:
        encoded = _without_numbers(heads).dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        if any(head.count(_NUMBER) == 1 and not _is_number_alone(head) for head in distinct):
            # The bytes are somewhere else, such as in a property's value.
            encoded = heads.dictionary_encode()
            distinct = encoded.dictionary.to_pylist()
        return cls([_details_of_head(head) for head in distinct], encoded.indices.to_numpy().astype(np.int64))

    def column(self, value: Callable[[Details], Any], kind: pa.DataType) -> pa.Array:
        """Return a column of a value of the details."""
        values = pa.array([value(one) for one in self.distinct], kind)
        return values.take(pa.array(self.places))


def _pattern(head: bytes) -> tuple[bytes, int | None]:
    """Return a head with 0 in place of the producer's number, and where that is; None if there is none."""
    at = head.find(_NUMBER) + len(_NUMBER)
    if at < len(_NUMBER) or at + _NUMBER_BYTES > len(head):
        return head, None
    zeroed = head[:at] + bytes(_NUMBER_BYTES) + head[at + _NUMBER_BYTES :]
    return (zeroed, at) if head.count(_NUMBER) == 1 and _is_number_alone(zeroed) else (head, None)


def _rows_like(head: bytes, number_at: int | None, heads: pa.Array) -> npt.NDArray[np.bool_]:
    """Return bool[n]: which heads are this one, whatever their producer's number is.

    Eight bytes of each head are compared at a time. Rows of single bytes would have to be reduced to one value each,
    which takes longer than comparing them.
    """
    size = len(head)
    alike: npt.NDArray[np.bool_] = np.diff(_offsets(heads)) == size
    if not size:
        return alike
    of_length = heads if alike.all() else heads.filter(pa.array(alike))
    octets = np.frombuffer(of_length.buffers()[2], dtype=np.uint8)[: len(of_length) * size].reshape(-1, size)
    if size < _WORD_BYTES:
        alike[alike] = (octets == np.frombuffer(head, dtype=np.uint8)).all(axis=1)
        return alike
    counted = bytearray(b"\xff" * size)
    if number_at is not None:
        counted[number_at : number_at + _NUMBER_BYTES] = bytes(_NUMBER_BYTES)
    same = np.ones(len(octets), dtype=np.bool_)
    last = size - _WORD_BYTES
    for place in (*range(0, last, _WORD_BYTES), last):
        words: npt.NDArray[np.uint64] = np.ndarray((len(octets),), "<u8", octets, place, (size,))
        expected, mask = (
            np.uint64(int.from_bytes(of[place : place + _WORD_BYTES], "little")) for of in (head, counted)
        )
        same &= (words if mask == _WHOLE_WORD else words & mask) == expected & mask
    alike[alike] = same
    return alike


def _offsets(texts: pa.Array) -> Int64Array:
    """int64[n + 1]: where each text, or each head, begins in its buffer, and where the last one ends."""
    return np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset :][: len(texts) + 1].astype(np.int64)


def _without_numbers(heads: pa.Array) -> pa.Array:
    """Return heads with 0 in place of a producer's number."""
    _, offsets_buffer, values = heads.buffers()
    offsets = _offsets(heads)
    content = b"" if values is None else memoryview(values)[: int(offsets[-1])]
    found = _ends_of(_NUMBER, content)
    rows = np.searchsorted(offsets, found, side="left") - 1
    inside = found + _NUMBER_BYTES <= offsets[rows + 1]
    once = np.bincount(rows, minlength=len(heads))[rows] == 1
    octets = np.frombuffer(content, dtype=np.uint8).copy()
    octets[found[inside & once][:, None] + np.arange(_NUMBER_BYTES)] = 0
    return pa.Array.from_buffers(pa.binary(), len(heads), [None, offsets_buffer, pa.py_buffer(octets)])


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
    "systemProperties": lambda batch: batch.of_details(lambda one: list(one.system_properties.items()), _TEXT_MAP),
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
    one = before + word + (1).to_bytes(_NUMBER_BYTES, "big") + after[_NUMBER_BYTES:]
    try:
        numbers = [_parsed(each).system_properties.get(PRODUCER_SEQUENCE_NUMBER) for each in (head, one)]
        return numbers == ["0", "1"] and _details_of_head(head) == _details_of_head(one)
    except DecodeError:
        # The bytes were a part of something else, which this has broken.
        return False


@lru_cache(_REMEMBERED_HEADS)
def _details_of_head(head: bytes) -> Details:
    return _without_producer(_parsed(head))


def _parsed(head: bytes) -> Details:
    return details_of(parse_message(head + _EMPTY_BODY))


def _without_producer(of: Details) -> Details:
    properties = {name: text for name, text in of.system_properties.items() if name not in _OF_PRODUCERS}
    return replace(of, system_properties=properties)


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
