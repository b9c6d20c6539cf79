"""Groups: the pending appends that are written together, joined into entries of one arrival time.

The threads of a `Committer` write and sync. A log with appends to store submits itself once. Appends that arrive during
a sync are stored together by the next one, so groups grow with the disk's latency, and a lone append never waits for
others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import NamedTuple

from tidegate.kafka.records import RecordBatch
from tidegate.log.entry import EntryView, JoinedEvents, encode_batch_entry, encode_entry
from tidegate.log.errors import LogError

_ENTRY_PAYLOAD_BYTES = 1 << 18  # appends are joined up to this size; a larger one is an entry of its own
_GROUP_BYTES = 8 << 20
_NOTHING = memoryview(b"")


@dataclass(slots=True)
class Appended:
    """Where a durable append was stored. Its offsets are 4 apart: first_offset, first_offset + 4, …"""

    first_sequence_number: int
    count: int
    first_offset: int
    last_offset: int
    enqueued_time_ms: int


OnDurable = Callable[[Appended | LogError], None]


class Append(NamedTuple):
    """Events to be stored atomically, and the callback to notify. A record batch is stored in place of events."""

    events: Sequence[bytes | memoryview] | JoinedEvents
    on_durable: OnDurable
    batch: RecordBatch | None = None

    @property
    def size(self) -> int:
        """The bytes of the events."""
        if self.batch is not None:
            return len(self.batch.data)
        if isinstance(self.events, JoinedEvents):
            return self.events.size
        return sum(map(len, self.events))

    @property
    def event_count(self) -> int:
        """How many events there are."""
        return len(self.events) if self.batch is None else self.batch.count


@dataclass(slots=True)
class CommitGroup:
    """Encoded entries, and the callbacks to call when they are durable."""

    buffers: list[bytes]
    entries: list[EntryView]
    results: list[tuple[OnDurable, Appended]]
    end_position: int
    next_sequence_number: int


def first_group(appends: Sequence[Append]) -> list[list[Append]]:
    """Return the pending appends to store together, at least one, in runs that become one entry each.

    An append is never split, because entries are stored whole or not at all. A record batch is an entry of its own.
    """
    runs: list[list[Append]] = [[]]
    run_bytes = group_bytes = 0
    for append in appends:
        size = append.size
        run_bytes, group_bytes = run_bytes + size, group_bytes + size
        if group_bytes > _GROUP_BYTES and runs[0]:
            break
        is_alone = append.batch is not None or (runs[-1] and runs[-1][-1].batch is not None)
        if (is_alone or run_bytes > _ENTRY_PAYLOAD_BYTES) and runs[-1]:
            runs.append([])
            run_bytes = size
        runs[-1].append(append)
    return runs


def encode_group(runs: Sequence[Sequence[Append]], sequence_number: int, time_ms: int, position: int) -> CommitGroup:
    """Return the appends as entries that begin at `position`. Everything before that position is synced.

    Raises ValueError if a run is too large for one entry.
    """
    group = CommitGroup([], [], [], position, sequence_number)
    synced = position
    for joined in runs:
        count = sum(append.event_count for append in joined)
        batch = joined[0].batch
        if batch is None:
            prefix, body = encode_entry(_events(joined), sequence_number, time_ms, position, synced)
        else:
            prefix, body = encode_batch_entry(batch, sequence_number, time_ms, position, synced)
        length = len(prefix) + len(body)
        group.entries.append(
            EntryView(sequence_number, time_ms, position, count, _NOTHING, _NOTHING, length, synced, batch is not None)
        )
        group.buffers.extend((prefix, body))
        offset = position
        for append in joined:
            last = offset + 4 * (append.event_count - 1)
            group.results.append(
                (append.on_durable, Appended(sequence_number, append.event_count, offset, last, time_ms))
            )
            sequence_number, offset = sequence_number + append.event_count, last + 4
        position += length
    group.end_position, group.next_sequence_number = position, sequence_number
    return group


def _events(run: Sequence[Append]) -> Sequence[bytes | memoryview] | JoinedEvents:
    """Return what becomes one entry."""
    if len(run) == 1:
        return run[0].events
    events: list[bytes | memoryview] = []
    for append in run:
        if isinstance(append.events, JoinedEvents):
            return JoinedEvents.of([each.events for each in run])
        events.extend(append.events)
    return events


_logger = logging.getLogger(__name__)


class Committer:
    """A small thread pool that runs submitted work in order. One committer serves all logs of a process."""

    def __init__(self, threads: int = 4) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"log-committer-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` soon in one of the threads."""
        self._queue.put(work)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception:
                # a fault in one log must not stop the others
                _logger.exception("a commit failed unexpectedly")

    def close(self) -> None:
        """Finish the submitted work and stop the threads. Close the logs first."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
