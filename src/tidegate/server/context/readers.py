"""What the readers of one server share: wake-ups, chunks that were read once, and turns under a throughput limit."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tidegate.hub.namespace import Partition
from tidegate.hub.throughput import EGRESS_EVENTS, Throughput
from tidegate.server.context.completions import Completions


class Arrivals:
    """Wakes the links of a partition when it has grown, with one subscription per partition for all its readers."""

    def __init__(self, completions: Completions) -> None:
        self._completions = completions
        self._waiting: dict[Partition, dict[Callable[[], None], None]] = {}
        self._unsubscribe: dict[Partition, Callable[[], None]] = {}

    def watch(self, partition: Partition, action: Callable[[], None]) -> None:
        """Call `action` on the event loop after every growth, until unwatch()."""
        actions = self._waiting.setdefault(partition, {})
        actions[action] = None
        if partition not in self._unsubscribe:
            self._unsubscribe[partition] = partition.log.on_grow(
                partial(self._completions.report, self._grown, partition)
            )

    def unwatch(self, partition: Partition, action: Callable[[], None]) -> None:
        """Undo watch()."""
        actions = self._waiting.get(partition, {})
        actions.pop(action, None)
        if not actions and partition in self._unsubscribe:
            self._unsubscribe.pop(partition)()
            del self._waiting[partition]

    def _grown(self, partition: Partition) -> None:
        for action in list(self._waiting.get(partition, ())):
            self._completions.afterwards(action)


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


TURNS_PER_S = 8


class EgressGate:
    """Lets readers through one after the other, each for about a chunk, in the order in which they came."""

    def __init__(self, throughput: Throughput, loop: asyncio.AbstractEventLoop) -> None:
        self._throughput = throughput
        self._loop = loop
        self._waiting: dict[Callable[[], None], None] = {}
        self._admitted: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_limiting(self) -> bool:
        """False: readers are given as much as they take."""
        return self._throughput.units is not None

    @property
    def turn_events(self) -> int:
        """The most that a reader may send in its turn, so that a chunk of tiny events is not many seconds' worth."""
        return max(1, EGRESS_EVENTS * (self._throughput.units or 0) // TURNS_PER_S)

    def may_send(self, reader: Callable[[], None]) -> bool:
        """Whether a reader may send now; if not, it is called when its turn has come."""
        if reader is self._admitted or (not self._waiting and self._throughput.egress_wait_s() == 0):
            return True
        self._waiting[reader] = None
        self._arm()
        return False

    def sent(self, size: int, count: int) -> None:
        """A reader has sent so much."""
        self._throughput.spend_egress(size, count)

    def forget(self, reader: Callable[[], None]) -> None:
        """The reader is gone."""
        self._waiting.pop(reader, None)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._throughput.egress_wait_s(), self._due)

    def _due(self) -> None:
        self._timer = None
        while self._waiting and self._throughput.egress_wait_s() == 0:
            reader = next(iter(self._waiting))
            del self._waiting[reader]
            self._admitted = reader
            try:
                reader()
            finally:
                self._admitted = None
        if self._waiting:
            self._arm()
