"""Takes the messages of record batches apart with a few passes over all of them.

What gateways append are records without a key, with one timestamp and the header `amqp` at their end
(`tidegate.store.kafka.records`). The header's bytes separate the records; from their lengths follows where everything
in front of a value lies, and all of it is compared with what it must be. A batch that differs anywhere, such as one in
which a message contains the header's bytes, is left to the decoder that takes one record after the other. Values are
copied into a buffer of their own, and no object is made for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.kafka.compression import Compression
from tidegate.kafka.records import HEADER_BYTES, RecordBatch

_ENDING = b"\x02\x08amqp\x01"
_LEAST_BYTES = 6  # in front of the ending: lengths of record and value, attributes, time, place, no key
_MOST_RECORDS = 1 << 19
_LONGEST_RECORD = 1 << 20

Int64Array = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]


class PackedValues(Sequence[bytes]):
    """Values one behind the other in a buffer.

    Attributes:
        buffer: The values.
        ends: int64[n], where each ends in it.
    """

    __slots__ = ("buffer", "ends")

    def __init__(self, buffer: memoryview, ends: Int64Array) -> None:
        self.buffer = buffer
        self.ends = ends

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> PackedValues: ...

    def __getitem__(self, index: int | slice) -> bytes | PackedValues:
        if isinstance(index, slice):
            first, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("values are sliced one after the other")
            return self._part(first, max(first, stop))
        at = range(len(self))[index]
        return bytes(self._part(at, at + 1).buffer)

    def _part(self, first: int, stop: int) -> PackedValues:
        begin = int(self.ends[first - 1]) if first else 0
        end = int(self.ends[stop - 1]) if stop > first else begin
        return PackedValues(self.buffer[begin:end], self.ends[first:stop] - begin)


def message_values(batches: Sequence[RecordBatch]) -> list[PackedValues | None]:
    """Return the values of each batch of messages, None for any other batch."""
    candidates = [place for place, batch in enumerate(batches) if _may_be_messages(batch)]
    found: list[PackedValues | None] = [None] * len(batches)
    together = _values([batches[place] for place in candidates]) if candidates else None
    at = 0
    for place in candidates:
        count = batches[place].count
        found[place] = _values([batches[place]]) if together is None else together[at : at + count]
        at += count
    return found


def _may_be_messages(batch: RecordBatch) -> bool:
    return (
        batch.compression == Compression.NONE
        and not batch.is_control
        and 0 < batch.count <= _MOST_RECORDS
        and batch.last_offset_delta == batch.count - 1
        and bytes(batch.data[-len(_ENDING) :]) == _ENDING
    )


def _values(batches: Sequence[RecordBatch]) -> PackedValues | None:
    """Return the values of all batches, None if a record of any is not a plain message."""
    body = _whole(batches)
    octets = np.frombuffer(body, dtype=np.uint8)
    counts = np.array([batch.count for batch in batches], dtype=np.int64)
    count = int(counts.sum())
    ends = _endings(octets)
    if len(ends) != count:
        return None
    lasts = np.cumsum(counts)
    batch_ends = np.cumsum([len(batch.data) for batch in batches])
    if not np.array_equal(ends[lasts - 1], batch_ends):
        return None  # a record reaches from one batch into the next
    starts = np.empty_like(ends)
    starts[1:] = ends[:-1]
    starts[lasts - counts] = np.concatenate(([0], batch_ends[:-1])) + HEADER_BYTES
    sizes = ends - starts - len(_ENDING)
    if int(sizes.min()) < _LEAST_BYTES or int(sizes.max()) >= _LONGEST_RECORD:
        return None
    length, at = _numbers(octets, starts)
    fits = at + length == ends
    fits &= (octets[at] == 0) & (octets[at + 1] == 0)  # no attributes, the time of the batch
    place, at = _numbers(octets, at + 2)
    fits &= place == np.arange(count) - np.repeat(lasts - counts, counts)
    fits &= octets[at] == 1  # no key
    length, at = _numbers(octets, at + 1)
    fits &= at + length == starts + sizes
    if not fits.all():
        return None
    return _packed(body, at, starts + sizes)


def _whole(batches: Sequence[RecordBatch]) -> bytes | memoryview:
    """Return the bytes of all batches, without a copy if they are one stretch of what was fetched."""
    first, last = (np.frombuffer(batches[at].data, dtype=np.uint8) for at in (0, -1))
    size = sum(len(batch.data) for batch in batches)
    fetched = batches[0].data.obj
    if all(batch.data.obj is fetched for batch in batches):
        whole = np.frombuffer(memoryview(fetched), dtype=np.uint8)
        begin = _address(first) - _address(whole)
        if begin + size <= len(whole) and _address(last) + len(last) == _address(first) + size:
            return whole.data[begin : begin + size]
    return b"".join(batch.data for batch in batches)


def _address(octets: Octets) -> int:
    return int(octets.__array_interface__["data"][0])


def _endings(octets: Octets) -> Int64Array:
    """Return where the bytes of the ending end, which cannot overlap with themselves."""
    found = np.flatnonzero(octets == _ENDING[-1])
    found = found[found >= len(_ENDING) - 1]
    for back in range(1, len(_ENDING)):
        found = found[octets[found - back] == _ENDING[-1 - back]]
    return found + 1


def _packed(body: bytes | memoryview, starts: Int64Array, ends: Int64Array) -> PackedValues:
    """Copy stretches of the body into one buffer. Arrow does: every second of its items is a value."""
    bounds = np.empty(2 * len(starts), dtype=np.int64)
    bounds[::2], bounds[1::2] = starts, ends
    items = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(body)]
    )
    taken = items.take(pa.array(np.arange(0, len(bounds), 2)))
    _, offsets, values = taken.buffers()
    return PackedValues(
        memoryview(b"" if values is None else values), np.frombuffer(offsets, dtype=np.int64)[1 : len(starts) + 1]
    )


def _numbers(octets: Octets, at: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the variable-length numbers at some places, -1 for a negative or long one, and where each ends."""
    last = len(octets) - 1
    first, second, third = (octets[np.minimum(at + ahead, last)].astype(np.int64) for ahead in range(3))
    has_second = first >= 0x80
    has_third = has_second & (second >= 0x80)
    number = (first & 0x7F) | np.where(has_second, (second & 0x7F) << 7, 0) | np.where(has_third, third << 14, 0)
    wrong = (number & 1 == 1) | (has_third & (third >= 0x80))
    return np.where(wrong, -1, number >> 1), np.minimum(at + 1 + has_second + has_third, last)
