"""A partition: its log, its readers, its idempotent producers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.hub.errors import HubError, LinkStolen, QuotaExceeded
from tidegate.hub.producers import Producers
from tidegate.hub.throughput import PartitionIngress
from tidegate.log import PartitionStore

if TYPE_CHECKING:
    from tidegate.hub.capture.partition_capture import CaptureWriter

_logger = logging.getLogger(__name__)

MAX_READERS = 5
MAX_JOBS = 1000
_GONE_AFTER_S = 20.0


@dataclass(eq=False, slots=True)
class ReaderSlot:
    """One reader's slot.

    Attributes:
        on_stolen: Called once if another reader evicts it.
        confirm: Raises HubError when others may have the partition; None if the reader has it until it is evicted.
    """

    epoch: int | None
    name: str
    on_stolen: Callable[[HubError], None]
    next_sequence_number: int | None = None
    """The event that the reader gets next; None until it has begun to read."""
    confirm: Callable[[], None] | None = None


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

    def add(self, epoch: int | None, name: str, on_stolen: Callable[[HubError], None]) -> ReaderSlot:
        """Add a reader that was admitted elsewhere."""
        newcomer = ReaderSlot(epoch, name, on_stolen)
        with self._lock:
            self._slots.append(newcomer)
        return newcomer

    def vacate(self, slot: ReaderSlot) -> None:
        """Free a slot. Calling it again does nothing."""
        with self._lock:
            if slot.next_sequence_number is not None:
                self._left_at = slot.next_sequence_number
            if slot in self._slots:
                self._slots.remove(slot)


@dataclass(frozen=True, slots=True)
class PartitionProperties:
    """What $management reports about a partition. Before its first event: sequence number -1, offset "-1", time 0."""

    name: str
    partition_id: str
    begin_sequence_number: int
    last_enqueued_sequence_number: int
    last_enqueued_offset: str
    last_enqueued_time_ms: int
    is_empty: bool


class Partition:
    """One partition of an event hub. `log.on_grow` wakes waiting readers."""

    def __init__(
        self,
        hub_name: str,
        partition_id: str,
        log: PartitionStore,
        producers: Producers,
        new_slots: Callable[[str], ReaderSlots] = lambda group: ReaderSlots(),
    ) -> None:
        """Serve a log.

        Args:
            hub_name: The event hub's name.
            partition_id: The partition's id.
            log: Where its events are.
            producers: Its idempotent producers.
            new_slots: Returns the reader slots of a consumer group.
        """
        self.hub_name = hub_name
        self.partition_id = partition_id
        self.log = log
        # set and cleared by the capture scheduler
        self.capture: CaptureWriter | None = None
        self.producers = producers
        self._new_slots = new_slots
        self.ingress = PartitionIngress()
        # acknowledged events found unreadable when the log was opened or checked
        self.damaged_events = sum(len(damage.sequence_numbers) for damage in log.damages)
        self._reader_slots: dict[str, ReaderSlots] = {}
        self._lock = threading.Lock()

    def reader_slots(self, consumer_group: str) -> ReaderSlots:
        """Return the reader slots of a consumer group."""
        with self._lock:
            group = consumer_group.lower()
            if group not in self._reader_slots:
                self._reader_slots[group] = self._new_slots(group)
            return self._reader_slots[group]

    def properties(self) -> PartitionProperties:
        """Return what $management reports."""
        log = self.log
        last = log.next_sequence_number - 1
        return PartitionProperties(
            name=self.hub_name,
            partition_id=self.partition_id,
            begin_sequence_number=-1 if last < 0 else log.begin_sequence_number,
            last_enqueued_sequence_number=last,
            last_enqueued_offset=str(log.last_offset),
            last_enqueued_time_ms=log.last_enqueued_time_ms,
            is_empty=log.is_empty,
        )

    def check(self) -> Iterator[None]:
        """Check the events that opening did not read, in pieces; count and log damage. Raises LogError."""
        for damage in self.log.check():
            if damage is not None:
                self.damaged_events += len(damage.sequence_numbers)
                _logger.error("%s/%s: %s", self.hub_name, self.partition_id, damage)
            yield

    def close(self) -> None:
        """Finish pending appends and close the log."""
        self.log.close()
        self.producers.close()
