"""The events in the body of a request: one raw event, or a batch as JSON.

https://learn.microsoft.com/rest/api/eventhub/send-batch-events
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tidegate.amqp.encoding.errors import EncodeError
from tidegate.amqp.encoding.types import Symbol
from tidegate.amqp.messages.message import Message, Properties, encode_message
from tidegate.hub.errors import ArgumentError

BATCH_CONTENT_TYPE = "application/vnd.microsoft.servicebus.json"
# What HTTP itself needs; any other header of a single event's request is one of its user properties.
# fmt: off
_TRANSPORT_HEADERS = frozenset({
    "accept", "accept-encoding", "accept-language", "authorization", "brokerproperties",
    "cache-control", "connection", "content-length", "content-type", "date", "expect", "host",
    "origin", "pragma", "referer", "te", "traceparent", "tracestate", "transfer-encoding",
    "upgrade", "user-agent",
})
# fmt: on


def parse_publication(
    headers: Mapping[str, str], body: bytes, spelling: Mapping[str, str] = MappingProxyType({})
) -> tuple[list[bytes], str | None]:
    """The events of a request as encoded AMQP messages, and their partition key. Raises ArgumentError.

    The headers' names are in lower case; `spelling` says how they were sent.
    """
    content_type = headers.get("content-type", "")
    broker_properties = _json_object(headers.get("brokerproperties", "{}"), "BrokerProperties")
    key = _partition_key(broker_properties)
    if content_type.split(";")[0].strip().lower() != BATCH_CONTENT_TYPE:
        properties = {
            spelling.get(name, name): _header_value(value)
            for name, value in headers.items()
            if name not in _TRANSPORT_HEADERS
        }
        return [_encode(body, properties, key, content_type)], key
    try:
        entries = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"the batch is not JSON: {error}") from None
    if not isinstance(entries, list) or not entries:
        raise ArgumentError("a batch is a JSON array of at least one event")
    return _parse_batch(entries, key)


def _parse_batch(entries: list[Any], key: str | None) -> tuple[list[bytes], str | None]:
    keys = {key} - {None}
    parsed: list[tuple[bytes, dict[str, Any]]] = []
    for position, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("Body"), str):
            raise ArgumentError(f"event {position} of the batch has no Body that is a string")
        properties = _json_object(entry.get("UserProperties") or {}, f"UserProperties of event {position}")
        if not all(value is None or isinstance(value, str | int | float) for value in properties.values()):
            raise ArgumentError(f"UserProperties of event {position} may hold texts, numbers and booleans")
        own = _partition_key(_json_object(entry.get("BrokerProperties") or {}, f"BrokerProperties of event {position}"))
        keys |= {own} - {None}
        try:
            body = entry["Body"].encode()
        except UnicodeEncodeError:
            raise ArgumentError(f"the Body of event {position} of the batch holds half a character") from None
        parsed.append((body, properties))
    if len(keys) > 1:
        raise ArgumentError("all events of a batch must have the same partition key")
    shared = next(iter(keys), None)
    return [_encode(body, properties, shared, None) for body, properties in parsed], shared


def _encode(body: bytes, properties: dict[str, Any], key: str | None, content_type: str | None) -> bytes:
    message = Message(
        message_annotations={Symbol("x-opt-partition-key"): key} if key is not None else None,
        properties=Properties(content_type=Symbol(content_type)) if content_type else None,
        application_properties=properties or None,
        body_kind="data",
        body=[body],
    )
    try:
        return encode_message(message)
    except EncodeError as error:
        raise ArgumentError(f"a user property or the partition key has no AMQP encoding: {error}") from None


def _partition_key(broker_properties: dict[str, Any]) -> str | None:
    key = broker_properties.get("PartitionKey")
    if key is not None and not isinstance(key, str):
        raise ArgumentError("BrokerProperties: PartitionKey must be a string")
    return key


def _json_object(value: Any, name: str) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ArgumentError(f"{name} is not JSON") from None
    if not isinstance(value, dict):
        raise ArgumentError(f"{name} must be a JSON object")
    return value


def _header_value(text: str) -> str | int | float | bool:
    """Text is in double quotes, numbers and booleans are bare, as in the REST interface; anything else is text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str | int | float) else text
