"""The readers of a partition in one consumer group, and which of them evict others.

The rules of owner levels (epochs): https://learn.microsoft.com/azure/event-hubs/event-hubs-event-processor-host#epoch
A reader with an owner level reads alone. It evicts readers without one and readers with a lower or equal level; while a
reader with a higher level is attached, no other is admitted. Up to five readers without an owner level share a group.

A job on the hub's machine reads the segments themselves. It attaches no link and takes no slot. It reports its position
whenever it asks for the end of the log, and counts as a reader as long as it does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.hub.errors import HubError, LinkStolen, QuotaExceeded

MAX_READERS = 5
MAX_JOBS = 1000
_GONE_AFTER_S = 20.0


@dataclass(eq=False, slots=True)
class ReaderSlot:
    """One reader's slot. `on_stolen` is called once if another reader evicts it."""

    epoch: int | None
    name: str
    on_stolen: Callable[[HubError], None]
    next_sequence_number: int | None = None
    """The event that the reader gets next; None until it has begun to read."""


@dataclass(frozen=True, slots=True)
class ReadingJob:
    """A job that reads the segments themselves; it gets the event `next_sequence_number` next."""

    name: str
    next_sequence_number: int
    seen_at_s: float


class ReaderSlots:
    """The slots of one partition in one consumer group. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: list[ReaderSlot] = []
        self._left_at: int | None = None
        self._jobs: dict[str, ReadingJob] = {}

    @property
    def jobs(self) -> tuple[ReadingJob, ...]:
        """The jobs that read the segments themselves, by name."""
        oldest_s = time.monotonic() - _GONE_AFTER_S
        with self._lock:
            return tuple(job for _, job in sorted(self._jobs.items()) if job.seen_at_s >= oldest_s)

    def note_job(self, name: str, next_sequence_number: int) -> None:
        """Note how far a job has come that reads the segments themselves."""
        with self._lock:
            self._jobs.pop(name, None)
            self._jobs[name] = ReadingJob(name, next_sequence_number, time.monotonic())
            if len(self._jobs) > MAX_JOBS:
                del self._jobs[next(iter(self._jobs))]  # the one that was silent the longest

    @property
    def readers(self) -> tuple[ReaderSlot, ...]:
        """The attached readers."""
        with self._lock:
            return tuple(self._slots)

    @property
    def left_at(self) -> int | None:
        """The event that the reader which detached last would have got next, None if none has since the start."""
        return self._left_at

    def __len__(self) -> int:
        return len(self._slots)

    def occupy(self, epoch: int | None, name: str, on_stolen: Callable[[HubError], None]) -> ReaderSlot:
        """Admit a reader and evict those its owner level displaces. Raises LinkStolen, QuotaExceeded."""
        newcomer = ReaderSlot(epoch, name, on_stolen)
        with self._lock:
            highest = max((slot.epoch for slot in self._slots if slot.epoch is not None), default=None)
            evicted: list[ReaderSlot] = []
            if epoch is None:
                if highest is not None:
                    raise LinkStolen(
                        f"a reader with owner level {highest} has this partition; one without a level cannot join it"
                    )
                if len(self._slots) >= MAX_READERS:
                    raise QuotaExceeded(
                        f"a partition has at most {MAX_READERS} readers without an owner level in a consumer group"
                    )
            else:
                if highest is not None and highest > epoch:
                    raise LinkStolen(f"a reader with the higher owner level {highest} has this partition")
                evicted, self._slots = self._slots, []
            self._slots.append(newcomer)
        for slot in evicted:
            slot.on_stolen(LinkStolen(f"a reader with owner level {epoch} has taken this partition"))
        return newcomer

    def vacate(self, slot: ReaderSlot) -> None:
        """Free a slot. Calling it again does nothing."""
        with self._lock:
            if slot.next_sequence_number is not None:
                self._left_at = slot.next_sequence_number
            if slot in self._slots:
                self._slots.remove(slot)
