"""Takes the messages of record batches apart with a few passes over all of them.

What gateways append are records without a key, with one timestamp and the header `amqp` at their end
(`tidegate.store.kafka.records`). The header's bytes separate the records; from their lengths follows where everything
in front of a value lies, and all of it is compared with what it must be. A batch that differs anywhere, such as one in
which a message contains the header's bytes, is left to the decoder that takes one record after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidegate.kafka.compression import Compression
from tidegate.kafka.records import HEADER_BYTES, RecordBatch

_ENDING = b"\x02\x08amqp\x01"
_LEAST_BYTES = 6  # in front of the ending: lengths of record and value, attributes, time, place, no key
_MOST_RECORDS = 1 << 19
_LONGEST_RECORD = 1 << 20

Int64Array = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]


def message_values(batches: Sequence[RecordBatch]) -> list[list[bytes] | None]:
    """Return the values of each batch of messages, None for any other batch."""
    candidates = [place for place, batch in enumerate(batches) if _may_be_messages(batch)]
    found: list[list[bytes] | None] = [None] * len(batches)
    together = _values([batches[place] for place in candidates]) if candidates else None
    for place in candidates:
        count = batches[place].count
        if together is None:
            found[place] = _values([batches[place]])
        else:
            found[place], together = together[:count], together[count:]
    return found


def _may_be_messages(batch: RecordBatch) -> bool:
    return (
        batch.compression == Compression.NONE
        and not batch.is_control
        and 0 < batch.count <= _MOST_RECORDS
        and batch.last_offset_delta == batch.count - 1
        and bytes(batch.data[-len(_ENDING) :]) == _ENDING
    )


def _values(batches: Sequence[RecordBatch]) -> list[bytes] | None:
    """Return the values of all batches, None if a record of any is not a plain message."""
    body = b"".join(batch.data[HEADER_BYTES:] for batch in batches)
    parts = body.split(_ENDING)
    counts = np.array([batch.count for batch in batches], dtype=np.int64)
    count = int(counts.sum())
    if len(parts) != count + 1 or parts.pop():
        return None
    sizes = np.fromiter(map(len, parts), dtype=np.int64, count=count)
    if int(sizes.min()) < _LEAST_BYTES or int(sizes.max()) >= _LONGEST_RECORD:
        return None
    ends = np.cumsum(sizes + len(_ENDING))
    lasts = np.cumsum(counts)
    if not np.array_equal(ends[lasts - 1], np.cumsum([len(batch.data) - HEADER_BYTES for batch in batches])):
        return None  # a record reaches from one batch into the next
    starts = ends - sizes - len(_ENDING)
    octets = np.frombuffer(body, dtype=np.uint8)
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
    return [part[first:] for part, first in zip(parts, (at - starts).tolist(), strict=True)]


def _numbers(octets: Octets, at: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the variable-length numbers at some places, -1 for a negative or long one, and where each ends."""
    last = len(octets) - 1
    first, second, third = (octets[np.minimum(at + ahead, last)].astype(np.int64) for ahead in range(3))
    has_second = first >= 0x80
    has_third = has_second & (second >= 0x80)
    number = (first & 0x7F) | np.where(has_second, (second & 0x7F) << 7, 0) | np.where(has_third, third << 14, 0)
    wrong = (number & 1 == 1) | (has_third & (third >= 0x80))
    return np.where(wrong, -1, number >> 1), np.minimum(at + 1 + has_second + has_third, last)
