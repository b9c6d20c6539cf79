"""A partition: its log, its readers, its idempotent producers."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.hub.producers import ProducerTable
from tidegate.hub.readers import Seats
from tidegate.log import PartitionLog

if TYPE_CHECKING:
    from tidegate.hub.capture import CaptureWriter


@dataclass(frozen=True, slots=True)
class PartitionProperties:
    """What $management tells of a partition. One that never had an event: sequence number -1, offset "-1", time 0."""

    name: str
    partition_id: str
    begin_sequence_number: int
    last_enqueued_sequence_number: int
    last_enqueued_offset: str
    last_enqueued_time_ms: int
    is_empty: bool


class Partition:
    """One partition of an event hub. `log.on_grow` wakes who waits for events."""

    def __init__(self, hub_name: str, partition_id: str, log: PartitionLog) -> None:
        self.hub_name = hub_name
        self.partition_id = partition_id
        self.log = log
        # set and taken away by `captures`
        self.capture: CaptureWriter | None = None
        self.producers = ProducerTable(log)
        self._seats: dict[str, Seats] = {}
        self._lock = threading.Lock()

    def seats(self, consumer_group: str) -> Seats:
        """The readers in a consumer group."""
        with self._lock:
            return self._seats.setdefault(consumer_group.lower(), Seats())

    def properties(self) -> PartitionProperties:
        """As $management tells them."""
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

    def close(self) -> None:
        """Finish what is under way."""
        self.log.close()
        self.producers.close()
