"""API sketch, being filled in."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tidegate.log.clock import Clock
from tidegate.log.errors import LogError


class Appended(NamedTuple):
    """Where an append went; it is durable."""

    first_sequence_number: int
    count: int
    first_offset: int
    last_offset: int
    enqueued_time_ms: int


class EventBatch(NamedTuple):
    """Consecutive events of one arrival time: event i has sequence number base_sequence_number + i and offset offsets[i]."""

    base_sequence_number: int
    enqueued_time_ms: int
    offsets: Sequence[int]
    events: list[bytes]


class Promise(NamedTuple):
    """Every event with a sequence number >= next_sequence_number has an enqueued time >= promise_ms, whatever happens."""

    next_sequence_number: int
    promise_ms: int


class Recovery(NamedTuple):
    """What opening found in the last segment. truncated_bytes > 0: a torn tail was cut, `reason` says what was wrong with it."""

    entries: int
    events: int
    truncated_bytes: int
    reason: str


class PartitionLog:
    """One partition's commit log. All methods may be called from any thread."""

    recovery: Recovery

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        clock: Clock,
        committer: Committer,
        segment_bytes: int = 32 << 20,
        durable: bool = True,
        exclusive: bool = True,
    ) -> PartitionLog:
        """Open or create; recovers. exclusive=False: the caller already holds a DirectoryLock above.

        Raises DirectoryLocked, LogError."""

    def append(self, events: Sequence[bytes | memoryview], on_durable: Callable[[Appended | LogError], None]) -> None:
        """Store `events` (at least one) all or nothing. on_durable is called once, from a committer thread, after fdatasync.

        Takes about a microsecond, never waits for the disk. Raises ValueError for no events."""

    @property
    def begin_sequence_number(self) -> int: ...
    @property
    def next_sequence_number(self) -> int:
        """Of the next event to become durable; only events below it can be read."""
    @property
    def last_offset(self) -> int:
        """-1 if there never was an event. Kept when retention has deleted that event."""
    @property
    def last_enqueued_time_ms(self) -> int:
        """0 if there never was an event."""
    @property
    def is_empty(self) -> bool: ...

    def promise(self) -> Promise: ...

    def read(self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20) -> list[EventBatch]:
        """Durable events from sequence_number on; from begin_sequence_number if that is later; [] at the end.

        At least one event if there is one, however small max_bytes. Raises LogDamaged when the event at sequence_number is damaged
        (events before a damaged one are returned first)."""

    def sequence_after_offset(self, offset: int, *, inclusive: bool) -> int:
        """Sequence number of the first event with an offset > `offset` (>= when inclusive); next_sequence_number if none."""

    def sequence_at_time(self, enqueued_time_ms: int, *, inclusive: bool) -> int:
        """Sequence number of the first event enqueued after the time (at or after when inclusive); next_sequence_number if none."""

    def on_grow(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` from a committer thread whenever next_sequence_number moved, after the on_durable calls of the group.

        Returns the function that unsubscribes. Callbacks must be quick and must not raise (an exception is logged)."""

    def apply_retention(self, *, before_ms: int | None = None, max_bytes: int | None = None, keep_from: int | None = None) -> int:
        """Delete whole segments whose events were all enqueued before before_ms, or the oldest while the log is above max_bytes;
        never one holding sequence numbers >= keep_from. Returns how many events went."""

    def close(self) -> None:
        """Wait for what is under way, fail what waits, release the directory."""


class Committer:
    """The threads that write and sync. One for all logs of a process."""

    def __init__(self, threads: int = 4) -> None: ...
    def close(self) -> None: ...


class EntryView(NamedTuple):
    """One stored entry as it lies on disk: `count` events of one arrival time.

    numpy: ends = np.frombuffer(view.ends, '<u4') (end position of each event in payload); offset of event i = first_offset + 4 * i;
    payload: the events joined. The views keep the chunk they point into alive."""

    base_sequence_number: int
    enqueued_time_ms: int
    first_offset: int
    count: int
    ends: memoryview
    payload: memoryview


class SegmentReader:
    """Reads a partition's directory from any process while the hub appends.

    It sees what lies in the files: pass as to_sequence a next_sequence_number the hub gave out (an entry beyond it may not be durable
    yet and could still be taken back)."""

    def __init__(self, directory: str | os.PathLike[str]) -> None: ...
    def read(self, from_sequence: int, to_sequence: int | None = None):  # -> Iterator[EntryView]
        """Whole entries that hold any event in [from_sequence, to_sequence): the first and last may reach beyond. Raises LogDamaged."""
    def begin_sequence_number(self) -> int: ...
    def end_sequence_number(self) -> int:
        """After the last intact entry in the files."""
    def sequence_at_time(self, enqueued_time_ms: int) -> int:
        """First sequence number enqueued at or after the time."""


class DirectoryLock:
    """One process owns the directory: flock on its `lock` file, which names the owner's process id."""

    def __init__(self, directory: Path) -> None: ...
    def release(self) -> None: ...
