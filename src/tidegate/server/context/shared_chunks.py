"""Annotated events that readers of one partition share, so that only the first of them reads and annotates."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.hub.namespace import Partition


@dataclass(frozen=True, slots=True)
class Chunk:
    """Annotated events of one read, ready for transfers; the next read starts at `next_sequence_number`."""

    events: Sequence[bytes]
    size: int
    next_sequence_number: int


class SharedChunks:
    """A least-recently-used cache of chunks by partition and first sequence number."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._size = 0
        self._chunks: OrderedDict[tuple[Partition, int], Chunk] = OrderedDict()

    def get(self, partition: Partition, sequence_number: int) -> Chunk | None:
        """Return the chunk that starts there, if it is cached."""
        chunk = self._chunks.get((partition, sequence_number))
        if chunk is not None:
            self._chunks.move_to_end((partition, sequence_number))
        return chunk

    def put(self, partition: Partition, sequence_number: int, chunk: Chunk) -> None:
        """Cache a chunk, evicting the least recently used ones to make room."""
        former = self._chunks.pop((partition, sequence_number), None)
        self._size += chunk.size - (former.size if former else 0)
        self._chunks[partition, sequence_number] = chunk
        while self._size > self._capacity_bytes:
            _, oldest = self._chunks.popitem(last=False)
            self._size -= oldest.size
