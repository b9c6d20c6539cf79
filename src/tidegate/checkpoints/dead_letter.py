"""A dead-letter hub: a separate event hub for events that could not be handled.

An event is published there unchanged, with the reason added to its application properties. Service Bus has such queues
built in; the two property names that its users know are used here too.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from azure.eventhub import EventData
from azure.eventhub.aio import EventHubProducerClient, PartitionContext
from azure.eventhub.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

_logger = logging.getLogger(__name__)
_LONGEST_DESCRIPTION = 1024
_OF_THE_HUB = frozenset(
    ("x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time", "x-opt-partition-key", "x-opt-publisher")
)


class DeadLetterHub:
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
