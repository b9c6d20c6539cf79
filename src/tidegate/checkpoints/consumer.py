"""A consumer that says what becomes of an event: handled at least once or at most once, tried again, put aside.

It is Microsoft's asynchronous client with what most programs around it write again: partitions are shared with other
consumers through a checkpoint store, and each is read in order. The two kinds of delivery are where the checkpoint
moves. *At least once*: behind the events that were handled; a crash hands some of them out again. *At most once*:
before they are handled, and only from where they begin, so that of two consumers that hold the same events (one of
them has lost the partition and does not know it yet) one handles them and the other finds the checkpoint moved; a
crash leaves some of them out.

An event whose handler keeps failing goes to the dead-letter hub, and its partition goes on behind it. While a handler
is tried again its partition waits, others do not. Without a dead-letter hub such an event ends the consumer (at least
once), or is logged (at most once).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from typing import Any, TypeAlias

from azure.eventhub import EventData
from azure.eventhub.aio import EventHubConsumerClient, EventHubProducerClient, PartitionContext

from tidegate.checkpoints.aio import DatabaseCheckpointStore
from tidegate.checkpoints.database import CheckpointDatabase
from tidegate.checkpoints.dead_letter import DeadLetterHub
from tidegate.checkpoints.errors import CheckpointError
from tidegate.checkpoints.retry import Retry

__all__ = ["Consumer", "Delivery", "EventFailed", "GiveUp", "Retry"]

_logger = logging.getLogger(__name__)
_ONCE = Retry(attempts=1)

Handler: TypeAlias = Callable[[PartitionContext, EventData], Awaitable[None] | None]


class Delivery(Enum):
    """What a crash may do to an event."""

    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"


class GiveUp(Exception):
    """Raised by a handler: trying this event again is useless."""


class EventFailed(Exception):
    """An event could not be handled and there is no dead-letter hub; the checkpoint is before it."""


class _Stopping(Exception):
    """The consumer is to end, in the middle of an event."""


class Consumer:
    """Reads an event hub and calls `handle` with each event, in the order of its partition.

    `handle(partition_context, event)` may be a coroutine function, or a plain one, which is called in a thread; it has
    handled the event when it returns. `store` is a SqliteCheckpointStore or PostgresCheckpointStore. A checkpoint is
    made after (or before) `batch_size` events at the most: as many are handed out again (or left out) by a crash.
    `client_options` go to EventHubConsumerClient, for instance `load_balancing_interval`.
    """

    def __init__(
        self,
        connection_string: str,
        handle: Handler,
        *,
        eventhub_name: str,
        store: CheckpointDatabase,
        consumer_group: str = "$Default",
        delivery: Delivery = Delivery.AT_LEAST_ONCE,
        retry: Retry | None = None,
        dead_letter_hub: str | None = None,
        batch_size: int = 100,
        starting_position: Any = "-1",
        **client_options: Any,
    ) -> None:
        """Raises ValueError for a retry in at-most-once mode: an attempt that failed may have done its work."""
        if delivery is Delivery.AT_MOST_ONCE and retry is not None and retry.attempts > 1:
            raise ValueError("at most once means one attempt: leave `retry` out, or handle at least once")
        self._connection_string = connection_string
        self._handle = handle
        self._eventhub_name = eventhub_name
        self._store = store
        self._consumer_group = consumer_group
        self._delivery = delivery
        self._retry = _ONCE if delivery is Delivery.AT_MOST_ONCE else (retry or Retry())
        self._dead_letter_hub = dead_letter_hub
        self._batch_size = batch_size
        self._starting_position = starting_position
        self._client_options = client_options
        self._dead_letters: DeadLetterHub | None = None
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped_early = False
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._at_work = 0

    def run_forever(self) -> None:
        """`run` for a program without an event loop of its own."""
        asyncio.run(self.run())

    def stop(self) -> None:
        """End `run` after the events in hand, with a checkpoint. From any thread; again is harmless."""
        with self._lock:
            self._stopped_early = True
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self) -> None:
        """Read until `stop`, once. Raises EventFailed, and what the client raises when it cannot begin."""
        with self._lock:
            self._loop = asyncio.get_running_loop()
            if self._stopped_early:
                self._stopping.set()
        client = EventHubConsumerClient.from_connection_string(
            self._connection_string,
            self._consumer_group,
            eventhub_name=self._eventhub_name,
            checkpoint_store=DatabaseCheckpointStore(self._store),
            **self._client_options,
        )
        producer: EventHubProducerClient | None = None
        if self._dead_letter_hub is not None:
            producer = EventHubProducerClient.from_connection_string(
                self._connection_string, eventhub_name=self._dead_letter_hub
            )
            self._dead_letters = DeadLetterHub(producer)
        receiving = asyncio.ensure_future(
            client.receive_batch(
                self._on_batch,
                on_error=self._on_error,
                max_batch_size=self._batch_size,
                starting_position=self._starting_position,
            )
        )
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((receiving, stopping), return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()
            while self._at_work:  # closing the client would cancel them
                await asyncio.sleep(0.01)
        finally:
            stopping.cancel()
            await client.close()
            if producer is not None:
                await producer.close()
        await receiving
        if self._failure is not None:
            raise self._failure

    # -- what the client calls

    async def _on_error(self, context: PartitionContext | None, error: Exception) -> None:
        """The client tries again by itself; nothing is lost by a connection."""
        if not self._stopping.is_set():
            place = "balancing" if context is None else f"{context.eventhub_name}/{context.partition_id}"
            _logger.warning("%s: %s", place, error)

    async def _on_batch(self, context: PartitionContext, events: list[EventData]) -> None:
        if not events or self._stopping.is_set():
            return
        self._at_work += 1
        try:
            if self._delivery is Delivery.AT_MOST_ONCE:
                await self._at_most_once(context, events)
            else:
                await self._at_least_once(context, events)
        except EventFailed as failure:
            self._failure = failure
            self._stopping.set()
        finally:
            self._at_work -= 1

    async def _at_least_once(self, context: PartitionContext, events: list[EventData]) -> None:
        handled: EventData | None = None
        try:
            for event in events:
                if self._stopping.is_set():
                    break
                await self._settle(context, event)
                handled = event
        except _Stopping:
            pass
        except EventFailed:
            await self._checkpoint(context, handled)
            raise
        await self._checkpoint(context, handled)

    async def _checkpoint(self, context: PartitionContext, event: EventData | None) -> None:
        if event is not None:
            try:
                await context.update_checkpoint(event)
            except CheckpointError as error:  # the next one will do; a crash until then hands more out again
                _logger.warning("%s/%s: no checkpoint: %s", context.eventhub_name, context.partition_id, error)

    async def _at_most_once(self, context: PartitionContext, events: list[EventData]) -> None:
        if not await self._take(context, events):
            return
        for event in events:
            try:
                await self._settle(context, event)
            except EventFailed as failure:
                _logger.error("%s", failure, exc_info=failure.__cause__)
            except _Stopping:
                _logger.error("%s is left out: the dead-letter hub did not take it", _name(context, event))

    async def _take(self, context: PartitionContext, events: list[EventData]) -> bool:
        """Whether the events are this consumer's to handle. When in doubt they are not."""
        first, last = events[0].sequence_number or 0, events[-1]
        checkpoint = {
            "fully_qualified_namespace": context.fully_qualified_namespace,
            "eventhub_name": context.eventhub_name,
            "consumer_group": context.consumer_group,
            "partition_id": context.partition_id,
            "offset": last.offset,
            "sequence_number": last.sequence_number,
        }
        place = f"{context.eventhub_name}/{context.partition_id}"
        for delay_s in self._retry.endless_delays():
            try:
                if await asyncio.to_thread(self._store.advance_checkpoint, checkpoint, first):
                    return True
                break
            except CheckpointError as error:
                _logger.warning("%s: events cannot be taken yet: %s", place, error)
            try:
                await self._wait(delay_s)
            except _Stopping:
                return False
        _logger.warning(
            "%s: events %s to %s are not handled here, the checkpoint is not before them any more: another consumer "
            "has them; or the hub was made anew, and the group's checkpoints have to be deleted (forget)",
            place,
            first,
            last.sequence_number,
        )
        return False

    # -- one event

    async def _settle(self, context: PartitionContext, event: EventData) -> None:
        """Handle an event, or put it aside. Raises EventFailed, _Stopping."""
        attempts = 0
        delays: Iterator[float] = self._retry.delays()
        while True:
            attempts += 1
            try:
                await self._call(context, event)
                return
            except GiveUp as error:
                failure: Exception = error
                break
            except Exception as error:
                failure = error
                delay_s = next(delays, None)
                if delay_s is None:
                    break
                _logger.info("%s: attempt %d failed: %r", _name(context, event), attempts, error)
                await self._wait(delay_s)
        if self._dead_letters is None:
            raise EventFailed(
                f"{_name(context, event)} could not be handled, and there is no dead-letter hub for it: {failure!r}"
            ) from failure
        await self._put_aside(self._dead_letters, context, event, failure, attempts)

    async def _call(self, context: PartitionContext, event: EventData) -> None:
        if inspect.iscoroutinefunction(self._handle):
            await self._handle(context, event)
            return
        result = await asyncio.to_thread(self._handle, context, event)
        if inspect.isawaitable(result):
            await result

    async def _put_aside(
        self,
        dead_letters: DeadLetterHub,
        context: PartitionContext,
        event: EventData,
        failure: Exception,
        attempts: int,
    ) -> None:
        """Until the dead-letter hub has it: the checkpoint must not move behind an event that is nowhere."""
        for delay_s in self._retry.endless_delays():
            try:
                await dead_letters.send(context, event, failure, attempts)
                _logger.warning(
                    "%s is in the dead-letter hub after %d attempts: %r", _name(context, event), attempts, failure
                )
                return
            except Exception as error:
                _logger.error("%s cannot be put into the dead-letter hub yet: %r", _name(context, event), error)
            await self._wait(delay_s)

    async def _wait(self, delay_s: float) -> None:
        """Raises _Stopping when the consumer is to end meanwhile."""
        try:
            await asyncio.wait_for(self._stopping.wait(), delay_s)
        except TimeoutError:
            return
        raise _Stopping


def _name(context: PartitionContext, event: EventData) -> str:
    return f"event {event.sequence_number} of {context.eventhub_name}/{context.partition_id}"
