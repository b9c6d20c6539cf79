"""Decoded events: the body as bytes, properties and annotations as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidegate.amqp import Message, parse_message

PARTITION_KEY, PUBLISHER = "x-opt-partition-key", "x-opt-publisher"
_BROKER_ANNOTATIONS = frozenset(("x-opt-sequence-number", "x-opt-offset", "x-opt-enqueued-time"))
# The fields of AMQP's properties under the names that Microsoft's clients use; times are milliseconds since 1970.
_PROPERTIES = {
    field: field.removesuffix("_ms").replace("_", "-")
    for field in (
        "message_id",
        "user_id",
        "to",
        "subject",
        "reply_to",
        "correlation_id",
        "content_type",
        "content_encoding",
        "absolute_expiry_time_ms",
        "creation_time_ms",
        "group_id",
        "group_sequence",
        "reply_to_group_id",
    )
}


class Delivery(NamedTuple):
    """One event as a hub delivers it: the hub's annotations, and the encoded message."""

    sequence_number: int
    offset: str
    enqueued_time_ms: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Details:
    """A message's properties and annotations as text.

    ``values`` are the publisher's properties with the types that they were sent with; None if those are not known.
    """

    publisher: str | None
    partition_key: str | None
    properties: dict[str, str]
    system_properties: dict[str, str]
    values: Mapping[str, Any] | None = None


NO_DETAILS = Details(None, None, {}, {})
"""The details of a message that consists only of a body."""


def details_of(message: Message) -> Details:
    """Return a decoded message's properties and annotations as text."""
    annotations = {str(name): value for name, value in (message.message_annotations or {}).items()}
    publisher, key = annotations.get(PUBLISHER), annotations.get(PARTITION_KEY)
    system = {name: _text(value) for name, value in annotations.items() if name not in _BROKER_ANNOTATIONS}
    for field, name in _PROPERTIES.items():
        value = None if message.properties is None else getattr(message.properties, field)
        if value is not None:
            system.setdefault(name, _text(value))
    return details_with(
        None if publisher is None else _text(publisher),
        None if key is None else _text(key),
        {_text(name): value for name, value in (message.application_properties or {}).items()},
        system,
    )


def details_with(
    publisher: str | None, partition_key: str | None, values: Mapping[str, Any], system_properties: dict[str, str]
) -> Details:
    """Return details, given the publisher's properties with their types."""
    texts = {name: _text(value) for name, value in values.items() if value is not None}
    return Details(publisher, partition_key, texts, system_properties, values)


def body_of(message: Message) -> bytes:
    """Return a decoded message's body: data sections joined, text or bytes unchanged, anything else as JSON."""
    value = message.body
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (list, tuple)) and all(isinstance(part, (bytes, memoryview)) for part in value):
        return b"".join(value)
    return json.dumps(value, default=str).encode()


def decode(payload: bytes) -> tuple[bytes, Details]:
    """Return the body and the details of an encoded message. Raises DecodeError."""
    message = parse_message(payload)
    return body_of(message), details_of(message)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).decode("utf-8", errors="replace")
    return str(value)
