"""A partition: its log, its readers, its idempotent producers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.hub.producers import ProducerTable
from tidegate.hub.reader_slots import ReaderSlots
from tidegate.hub.throughput import PartitionIngress
from tidegate.log import PartitionLog, check

if TYPE_CHECKING:
    from tidegate.hub.capture.partition_capture import CaptureWriter

_logger = logging.getLogger(__name__)


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

    def __init__(self, hub_name: str, partition_id: str, log: PartitionLog) -> None:
        self.hub_name = hub_name
        self.partition_id = partition_id
        self.log = log
        # set and cleared by the capture scheduler
        self.capture: CaptureWriter | None = None
        self.producers = ProducerTable(log)
        self.ingress = PartitionIngress()
        # acknowledged events found unreadable when the log was opened or checked
        self.damaged_events = sum(len(damage.sequence_numbers) for damage in log.recovery.damages)
        self._reader_slots: dict[str, ReaderSlots] = {}
        self._lock = threading.Lock()

    def reader_slots(self, consumer_group: str) -> ReaderSlots:
        """Return the reader slots of a consumer group."""
        with self._lock:
            return self._reader_slots.setdefault(consumer_group.lower(), ReaderSlots())

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
        for damage in check(self.log):
            if damage is not None:
                self.damaged_events += len(damage.sequence_numbers)
                _logger.error("%s/%s: %s", self.hub_name, self.partition_id, damage)
            yield

    def close(self) -> None:
        """Finish pending appends and close the log."""
        self.log.close()
        self.producers.close()
