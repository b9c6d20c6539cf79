"""A consumer that decides what happens to each event: handled at least or at most once, retried, dead-lettered.

It wraps Microsoft's asynchronous client and adds what most programs around it need. Partitions are shared with other
consumers through a checkpoint store, and each is read in order.

The two kinds of delivery differ in when the checkpoint moves. *At least once*: after events have been handled, so a
crash delivers some of them again. *At most once*: before they are handled, and only if the checkpoint is still where
the events begin. Two consumers can hold the same events for a moment, when one of them has lost the partition and
does not know it yet; the first moves the checkpoint and handles them, the second finds it moved. A crash loses some
events.

While a handler is retried, its partition waits; other partitions do not. An event whose handler keeps failing goes to
the dead-letter hub, and its partition continues with the next event. Without a dead-letter hub, such an event stops
the consumer (at least once) or is logged (at most once).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, TypeAlias

from azure.eventhub import EventData
from azure.eventhub.aio import EventHubConsumerClient, EventHubProducerClient, PartitionContext
from azure.eventhub.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from tidegate.checkpoints.aio import DatabaseCheckpointStore
from tidegate.checkpoints.database import CheckpointDatabase, CheckpointError
from tidegate.retrying import BackOff

__all__ = ["Consumer", "ConsumerSettings", "Delivery", "EventFailed", "GiveUp", "Retry"]

_logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[PartitionContext, EventData], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Retry:
    """`attempts` in total; the delays between them double from `first_delay_s` to `longest_delay_s`.

    Each delay is shortened by a random part of up to half, so that consumers that failed together do not retry
    together.
    """

    attempts: int = 5
    first_delay_s: float = 0.2
    longest_delay_s: float = 30.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {self.attempts}")
        if not 0 <= self.first_delay_s <= self.longest_delay_s:
            raise ValueError("first_delay_s must be between 0 and longest_delay_s")

    def delays(self) -> Iterator[float]:
        """Yield the delay before the second attempt, the third, and so on."""
        for number in range(self.attempts - 1):
            yield self._delay(number)

    def endless_delays(self) -> Iterator[float]:
        """Yield delays without end."""
        number = 0
        while True:
            yield self._delay(number)
            number += 1

    def _delay(self, number: int) -> float:
        longest = BackOff(self.first_delay_s, self.longest_delay_s).after(number + 1)
        return longest * random.uniform(0.5, 1.0)


_ONCE = Retry(attempts=1)


class Delivery(Enum):
    """Whether a crash may repeat events or lose them."""

    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"


class GiveUp(Exception):
    """Raised by a handler to say that retrying this event is useless."""


class EventFailed(Exception):
    """An event could not be handled and there is no dead-letter hub; the checkpoint is before it."""


class _Stopping(Exception):
    """The consumer is stopping while an event is being handled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a consumer reads and handles events; every setting has a default.

    Attributes:
        consumer_group: the group it reads in, and whose checkpoints it keeps.
        delivery: whether a crash may repeat events or lose them.
        retry: how often a failing handler is called again; None stands for `Retry()`, or a single attempt at most once.
        dead_letter_hub: the event hub, in the same namespace, for events that could not be handled.
        batch_size: events between two checkpoints, at most; a crash repeats (or loses) no more than that per partition.
        starting_position: where to read a partition that has no checkpoint, as EventHubConsumerClient takes it.
        client_options: further options of EventHubConsumerClient, such as `load_balancing_interval`.

    Raises:
        ValueError: for retries with at-most-once delivery, where a failed attempt may already have done its work.
    """

    consumer_group: str = "$Default"
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    retry: Retry | None = None
    dead_letter_hub: str | None = None
    batch_size: int = 100
    starting_position: Any = "-1"
    client_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.delivery is Delivery.AT_MOST_ONCE and self.retry is not None and self.retry.attempts > 1:
            raise ValueError("at most once means one attempt: leave `retry` out, or handle at least once")


class Consumer:
    """Reads an event hub and calls `handle` with each event, in order within a partition.

    `handle(partition_context, event)` may be a coroutine function or a plain function, which is called in a thread. An
    event counts as handled when it returns. `store` is a SqliteCheckpointStore or a PostgresCheckpointStore.
    """

    def __init__(
        self,
        connection_string: str,
        handle: Handler,
        *,
        eventhub_name: str,
        store: CheckpointDatabase,
        settings: ConsumerSettings | None = None,
    ) -> None:
        settings = settings or ConsumerSettings()
        self._connection_string = connection_string
        self._handle = handle
        self._eventhub_name = eventhub_name
        self._store = store
        self._settings = settings
        self._retry = _ONCE if settings.delivery is Delivery.AT_MOST_ONCE else (settings.retry or Retry())
        self._dead_letters: _DeadLetterHub | None = None
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped_early = False
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._at_work = 0

    def run_forever(self) -> None:
        """Call `run` in a new event loop, for programs that have none."""
        asyncio.run(self.run())

    def stop(self) -> None:
        """End `run` after the event being handled, with a checkpoint. May be called from any thread, and repeatedly."""
        with self._lock:
            self._stopped_early = True
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self) -> None:
        """Read until `stop`. May be called once.

        Raises:
            EventFailed: an event could not be handled, and there is no dead-letter hub.
            azure.eventhub.exceptions.EventHubError: the client cannot start.
        """
        with self._lock:
            self._loop = asyncio.get_running_loop()
            if self._stopped_early:
                self._stopping.set()
        client = EventHubConsumerClient.from_connection_string(
            self._connection_string,
            self._settings.consumer_group,
            eventhub_name=self._eventhub_name,
            checkpoint_store=DatabaseCheckpointStore(self._store),
            **self._settings.client_options,
        )
        producer: EventHubProducerClient | None = None
        if self._settings.dead_letter_hub is not None:
            producer = EventHubProducerClient.from_connection_string(
                self._connection_string, eventhub_name=self._settings.dead_letter_hub
            )
            self._dead_letters = _DeadLetterHub(producer)
        receiving = asyncio.ensure_future(
            client.receive_batch(
                self._on_batch,
                on_error=self._on_error,
                max_batch_size=self._settings.batch_size,
                starting_position=self._settings.starting_position,
            )
        )
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((receiving, stopping), return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()
            while self._at_work:  # closing the client would cancel the handlers
                await asyncio.sleep(0.01)
        finally:
            stopping.cancel()
            await client.close()
            if producer is not None:
                await producer.close()
        await receiving
        if self._failure is not None:
            raise self._failure

    # -- callbacks of the client

    async def _on_error(self, context: PartitionContext | None, error: Exception) -> None:
        """Log the error; the client reconnects by itself and loses nothing."""
        if not self._stopping.is_set():
            place = "balancing" if context is None else f"{context.eventhub_name}/{context.partition_id}"
            _logger.warning("%s: %s", place, error)

    async def _on_batch(self, context: PartitionContext, events: list[EventData]) -> None:
        if not events or self._stopping.is_set():
            return
        self._at_work += 1
        try:
            if self._settings.delivery is Delivery.AT_MOST_ONCE:
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
            except CheckpointError as error:  # the next one makes up for it; a crash before then repeats more events
                _logger.warning("%s/%s: no checkpoint: %s", context.eventhub_name, context.partition_id, error)

    async def _at_most_once(self, context: PartitionContext, events: list[EventData]) -> None:
        if not await self._claim(context, events):
            return
        for event in events:
            try:
                await self._settle(context, event)
            except EventFailed as failure:
                _logger.error("%s", failure, exc_info=failure.__cause__)
            except _Stopping:
                _logger.error("%s is left out: the dead-letter hub did not take it", _name(context, event))

    async def _claim(self, context: PartitionContext, events: list[EventData]) -> bool:
        """Claim the events by moving the checkpoint past them; return whether this consumer may handle them.

        When in doubt it may not.
        """
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
        """Handle an event, or send it to the dead-letter hub. Raises EventFailed, _Stopping."""
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
        await self._dead_letter(self._dead_letters, context, event, failure, attempts)

    async def _call(self, context: PartitionContext, event: EventData) -> None:
        if inspect.iscoroutinefunction(self._handle):
            await self._handle(context, event)
            return
        result = await asyncio.to_thread(self._handle, context, event)
        if inspect.isawaitable(result):
            await result

    async def _dead_letter(
        self,
        dead_letters: _DeadLetterHub,
        context: PartitionContext,
        event: EventData,
        failure: Exception,
        attempts: int,
    ) -> None:
        """Retry until the dead-letter hub has the event; until then the checkpoint must not move past it."""
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
        """Wait; raise _Stopping if the consumer is stopped meanwhile."""
        try:
            async with asyncio.timeout(delay_s):
                await self._stopping.wait()
        except TimeoutError:
            return
        raise _Stopping


def _name(context: PartitionContext, event: EventData) -> str:
    return f"event {event.sequence_number} of {context.eventhub_name}/{context.partition_id}"


_LONGEST_DESCRIPTION = 1024
_OF_THE_HUB = frozenset(
    ("x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time", "x-opt-partition-key", "x-opt-publisher")
)


class _DeadLetterHub:
    """Publishes to a dead-letter hub. `producer` is open; its owner closes it."""

    def __init__(self, producer: EventHubProducerClient) -> None:
        self._producer = producer

    async def send(self, context: PartitionContext, event: EventData, error: BaseException, attempts: int) -> None:
        """Publish the event and why it failed. Raises the client's error if the hub refuses it.

        An event that is too large once the reason is added is published without its body, but still says where it
        came from.
        """
        reason = _reason(context, event, error, attempts)
        key = _text(event.partition_key)
        batch = await self._producer.create_batch(partition_key=key)
        try:
            batch.add(_with_properties(event, reason))
        except ValueError:
            _logger.error(
                "event %s of %s/%s is too large for the dead-letter hub and goes there without its body",
                event.sequence_number,
                context.eventhub_name,
                context.partition_id,
            )
            bodiless = EventData(b"")
            bodiless.properties = {**reason, "tidegate-body-left-out": True}
            batch.add(bodiless)
        await self._producer.send_batch(batch)


def _reason(context: PartitionContext, event: EventData, error: BaseException, attempts: int) -> dict[str | bytes, Any]:
    enqueued: datetime | None = event.enqueued_time
    return {
        "DeadLetterReason": type(error).__name__,
        "DeadLetterErrorDescription": str(error)[:_LONGEST_DESCRIPTION],
        "tidegate-attempts": attempts,
        "tidegate-source-hub": context.eventhub_name,
        "tidegate-source-consumer-group": context.consumer_group,
        "tidegate-source-partition": context.partition_id,
        "tidegate-source-sequence-number": event.sequence_number,
        "tidegate-source-offset": event.offset,
        "tidegate-source-enqueued-time": enqueued.isoformat() if enqueued else None,
    }


def _with_properties(event: EventData, reason: dict[str | bytes, Any]) -> AmqpAnnotatedMessage:
    """Return the event with all that its publisher put into it, and the reason."""
    message = event.raw_amqp_message
    body: dict[str, Any]
    if message.body_type == AmqpMessageBodyType.DATA:
        body = {"data_body": [bytes(section) for section in message.body]}
    elif message.body_type == AmqpMessageBodyType.SEQUENCE:
        body = {"sequence_body": _plain(list(message.body))}
    else:
        body = {"value_body": _plain(message.body)}
    annotations = {name: value for name, value in _plain(message.annotations or {}).items() if name not in _OF_THE_HUB}
    if annotations:
        body["annotations"] = annotations
    if message.properties is not None:
        body["properties"] = {
            name: value for name, value in _plain(dict(message.properties)).items() if value is not None
        }
    return AmqpAnnotatedMessage(
        application_properties={**_plain(message.application_properties or {}), **reason}, **body
    )


def _plain(value: Any) -> Any:
    """Turn bytes that are UTF-8 back into text, because Microsoft's client delivers text as bytes."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _text(value) if isinstance(value, bytes) else value


def _text(value: Any) -> Any:
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value
