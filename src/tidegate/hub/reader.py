"""One receiving link on one partition in one consumer group."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidegate.hub.access import Access, Grant
from tidegate.hub.access_rules import Right
from tidegate.hub.addresses import ReceiveSource
from tidegate.hub.errors import InternalError
from tidegate.hub.event_hub import EventHub
from tidegate.hub.partition import Partition, ReaderSlot, ReaderSlots
from tidegate.log import EventBatch, LogDamaged, LogError

_logger = logging.getLogger(__name__)


class Reader:
    """Reads from `next_sequence_number`, which the caller may set. Created by `Namespace.open_reader`."""

    def __init__(
        self,
        event_hub: EventHub,
        partition: Partition,
        first_sequence_number: int,
        slots: ReaderSlots,
        slot: ReaderSlot,
        source: ReceiveSource,
        access: Access,
        grant: Grant,
    ) -> None:
        """Use `Namespace.open_reader`."""
        self._event_hub = event_hub
        self._source = source
        self.partition = partition
        self.expires_at_s = grant.expires_at_s
        self._slots = slots
        self._slot = slot
        self.next_sequence_number = first_sequence_number
        self._access = access
        self._grant = grant

    @property
    def next_sequence_number(self) -> int:
        """The event to read next."""
        return self._next_sequence_number

    @next_sequence_number.setter
    def next_sequence_number(self, sequence_number: int) -> None:
        self._next_sequence_number = self._slot.next_sequence_number = sequence_number

    def renew(self, grants: Sequence[Grant], now_s: float) -> int | None:
        """Return when the link expires with these grants, in seconds since 1970, None for never.

        Raises Unauthorized when none covers it.
        """
        self._grant = self._access.authorize(grants, Right.LISTEN, self._source.path, now_s)
        self.expires_at_s = self._grant.expires_at_s
        return self.expires_at_s

    def check(self) -> None:
        """Check that the source, and the key and right behind the grant, still exist; its expiry is not looked at.

        Raises NotFound, Unauthorized.
        """
        self._event_hub.check_is_there()
        self._event_hub.consumer_group(self._source.consumer_group)
        self._access.authorize([self._grant], Right.LISTEN, self._source.path, 0)

    def read_batches(self, *, max_events: int, max_bytes: int) -> list[EventBatch]:
        """Return the next durable events, [] if there are none, and advance past them.

        Damaged events are logged and skipped: the gap shows in the sequence numbers. Raises
        NotFound when the hub was deleted, InternalError.
        """
        while True:
            try:
                batches = self.partition.log.read_batches(
                    self.next_sequence_number, max_bytes=max_bytes, max_events=max_events
                )
            except LogDamaged as damage:
                where = f"{self.partition.hub_name}/{self.partition.partition_id}"
                _logger.error("%s: skipping damaged events: %s", where, damage)
                self.next_sequence_number = damage.resume_sequence_number
                continue
            except LogError as error:
                self._event_hub.check_is_there()
                raise InternalError(f"the events cannot be read: {error}") from error
            if batches:
                last = batches[-1]
                self.next_sequence_number = last.base_sequence_number + len(last.events)
            return batches

    def close(self) -> None:
        """Close the link. Idempotent."""
        self._slots.vacate(self._slot)
