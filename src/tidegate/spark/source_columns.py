"""The columns of events for Spark, made a batch at a time without touching single events.

An encoded event is a head (annotations and properties) and a body. Bodies are cut out of the buffer by Arrow. Heads are
mostly the same few bytes again and again, such as one for each partition key, so each distinct head is decoded once and
its columns are repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.amqp import parse_message
from tidegate.client.event import Details, details_of
from tidegate.connectors.model.messages import Messages, bodies, body_spans, details

_TEXT_MAP = pa.map_(pa.string(), pa.string())
_EMPTY_BODY = b"\x00Su\xa0\x00"
_REMEMBERED_HEADS = 10_000
# Before a body of up to 255 bytes are 00 53 75 a0 and a byte of size, before a longer one 00 53 75 b0 and four.
_LONG_BODY, _SHORT_BYTES, _LONG_BYTES = 0xB0, 5, 8

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
        self._details: tuple[list[Details], pa.Array] | None = None

    def bodies(self) -> pa.Array:
        """Return the bodies."""
        if not self._regular:
            return pa.array(bodies(self.messages.buffer, self.messages.ends), pa.binary())
        return _cut(self.messages.buffer, self._body_start, self._body_end)

    def of_details(self, value: Callable[[Details], Any], kind: pa.DataType) -> pa.Array:
        """Return a column of what the heads say."""
        if self._details is None:
            self._details = self._distinct_details()
        distinct, places = self._details
        return pa.array([value(one) for one in distinct], kind).take(places)

    def _distinct_details(self) -> tuple[list[Details], pa.Array]:
        """Return the details of each distinct head, and for each event which of them it has."""
        if not self._regular:
            return details(self.messages), pa.array(np.arange(len(self.messages.ends)))
        octets = np.frombuffer(self.messages.buffer, dtype=np.uint8)
        descriptor = np.where(octets[self._body_start - _SHORT_BYTES] == _LONG_BODY, _LONG_BYTES, _SHORT_BYTES)
        heads = _cut(self.messages.buffer, self._starts, self._body_start - descriptor).dictionary_encode()
        return [_details_of_head(head) for head in heads.dictionary.to_pylist()], heads.indices


COLUMNS: dict[str, tuple[str, Column]] = {
    "body": ("binary", _Batch.bodies),
    "partition": ("string", lambda batch: pa.repeat(pa.scalar(batch.partition), len(batch.messages.ends))),
    "offset": ("string", lambda batch: pa.array(batch.messages.offsets, pa.string())),
    "sequenceNumber": ("bigint", lambda batch: pa.array(batch.messages.sequence_numbers)),
    "enqueuedTime": (
        "timestamp",
        lambda batch: pa.array(batch.messages.enqueued_times_ms * 1000, pa.timestamp("us", tz="UTC")),
    ),
    "publisher": ("string", lambda batch: batch.of_details(lambda one: one.publisher, pa.string())),
    "partitionKey": ("string", lambda batch: batch.of_details(lambda one: one.partition_key, pa.string())),
    "properties": (
        "map<string,string>",
        lambda batch: batch.of_details(lambda one: list(one.properties.items()), _TEXT_MAP),
    ),
    "systemProperties": (
        "map<string,string>",
        lambda batch: batch.of_details(lambda one: list(one.system_properties.items()), _TEXT_MAP),
    ),
}
"""Spark's type of each column of the source, and how it is made."""


def record_batch(messages: Messages, partition: str, columns: Sequence[str]) -> pa.RecordBatch:
    """Return some columns of consecutive messages of a partition."""
    batch = _Batch(messages, partition)
    return pa.record_batch([COLUMNS[name][1](batch) for name in columns], names=list(columns))


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
