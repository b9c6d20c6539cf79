"""One receiving link on one partition in one consumer group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tidegate.hub.access import Access, Grant
from tidegate.hub.access_rules import Right
from tidegate.hub.addresses import ReceiveSource
from tidegate.hub.errors import InternalError
from tidegate.hub.event_hub import EventHub
from tidegate.hub.partition import Partition, ReaderSlot, ReaderSlots
from tidegate.hub.positions import Position, first_sequence_number
from tidegate.log import EventBatch, LogDamaged, LogError

_logger = logging.getLogger(__name__)


class Reader:
    """Reads from `next_sequence_number`, which the caller may set. Created by `Namespace.open_reader`.

    `read_cached` never waits, `read` can be awaited, and `read_batches` blocks.
    """

    def __init__(
        self,
        event_hub: EventHub,
        partition: Partition,
        first: int | Position,
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
        self._position = first if isinstance(first, Position) else None
        self._next_sequence_number = 0
        if isinstance(first, int):
            self.next_sequence_number = first
        self._access = access
        self._grant = grant

    @property
    def next_sequence_number(self) -> int:
        """The event to read next. Searches the log for it, unless `is_located`. Raises NotFound, InternalError."""
        position = self._position
        if position is not None:
            self._begin_at(position)
        return self._next_sequence_number

    @next_sequence_number.setter
    def next_sequence_number(self, sequence_number: int) -> None:
        self._next_sequence_number = self._slot.next_sequence_number = sequence_number
        self._position = None

    @property
    def is_located(self) -> bool:
        """Whether it is known where the reader begins; if not, `locate` finds out."""
        return self._position is None

    async def locate(self) -> None:
        """Find out where the reader begins. Raises NotFound, InternalError."""
        position = self._position
        if position is not None:
            await asyncio.to_thread(self._begin_at, position)

    def _begin_at(self, position: Position) -> None:
        try:
            self.next_sequence_number = first_sequence_number(position, self.partition.log)
        except LogError as error:
            raise self._failed(error) from error

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

    def confirm(self) -> None:
        """Check that the reader still has its partition before it gets events. Raises HubError."""
        if self._slot.confirm is not None:
            self._slot.confirm()

    def read_cached(self, *, max_events: int, max_bytes: int) -> list[EventBatch] | None:
        """Return the next durable events, or None if that may have to wait. Otherwise like `read_batches`."""
        log = self.partition.log
        while self._position is None:
            try:
                batches = log.read_cached(self._next_sequence_number, max_bytes=max_bytes, max_events=max_events)
            except LogError as error:
                self._skip(error)
                continue
            if batches:
                self._pass(batches)
            return batches
        return None

    async def read(self, *, max_events: int, max_bytes: int) -> list[EventBatch]:
        """Return the same as `read_batches`, without blocking the event loop."""
        await self.locate()
        log = self.partition.log
        while True:
            try:
                reading = log.start_read(self._next_sequence_number, max_bytes=max_bytes, max_events=max_events)
                batches = await asyncio.wrap_future(reading)
            except LogError as error:
                self._skip(error)
                continue
            self._pass(batches)
            return batches

    def read_batches(self, *, max_events: int, max_bytes: int) -> list[EventBatch]:
        """Return the next durable events, [] if there are none, and advance past them.

        Damaged events are logged and skipped: the gap shows in the sequence numbers. Raises
        NotFound when the hub was deleted, InternalError.
        """
        log = self.partition.log
        while True:
            try:
                batches = log.read_batches(self.next_sequence_number, max_bytes=max_bytes, max_events=max_events)
            except LogError as error:
                self._skip(error)
                continue
            self._pass(batches)
            return batches

    def _pass(self, batches: Sequence[EventBatch]) -> None:
        if batches:
            last = batches[-1]
            self.next_sequence_number = last.base_sequence_number + len(last.events)

    def _skip(self, error: LogError) -> None:
        """Skip damaged events. Raises NotFound, InternalError for any other failure."""
        if not isinstance(error, LogDamaged):
            raise self._failed(error) from error
        where = f"{self.partition.hub_name}/{self.partition.partition_id}"
        _logger.error("%s: skipping damaged events: %s", where, error)
        self.next_sequence_number = error.resume_sequence_number

    def _failed(self, error: LogError) -> InternalError:
        """Return the error to raise when the log cannot be read. Raises NotFound when the hub was deleted."""
        self._event_hub.check_is_there()
        return InternalError(f"the events cannot be read: {error}")

    def close(self) -> None:
        """Close the link. Idempotent."""
        self._slots.vacate(self._slot)
