"""System properties of AMQP messages, by the names of the service: where in a message each is, and what it may be.

Source: "Service Bus queues and topics output" for the names; "AMQP 1.0 in Azure Service Bus protocol guide", section
"Messages", for the places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.amqp import Properties
from tidegate.amqp.encoding.types import Symbol, Timestamp
from tidegate.connectors.outputs import values
from tidegate.engine.values.datetimes import parse_datetime
from tidegate.engine.values.vectors import Datetime

_TICKS_PER_MS = 10_000
_SPAN = re.compile(r"(?:(\d{1,8})\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,7}))?")
_LONGEST_TTL_MS = 2**32 - 1  # an unsigned 32-bit integer
_LONGEST_ID = 128


@dataclass(frozen=True, slots=True)
class SystemSections:
    """What system properties are in a message; None for what they do not set."""

    ttl_ms: int | None
    annotations: dict[Any, Any]
    properties: Properties | None


def _text(value: Any) -> str:
    return values.text(value)


def _id(value: Any) -> str:
    text = _text(value)
    if len(text) > _LONGEST_ID:
        raise ValueError(f"it has {len(text)} characters, and {_LONGEST_ID} are allowed")
    return text


def _symbol(value: Any) -> str:
    return Symbol(_text(value))


def _time_ms(value: Any) -> int:
    ticks = int(value) if isinstance(value, Datetime) else parse_datetime(value) if isinstance(value, str) else None
    if ticks is None:
        raise ValueError(f"expected a time, got a {values.type_name(value)}")
    return Timestamp(ticks // _TICKS_PER_MS)


def _span_ms(value: Any) -> int:
    """Return milliseconds of a number of seconds, or of text as .NET writes spans: [days.]hh:mm:ss[.fraction]."""
    if isinstance(value, (int, float)) and not isinstance(value, (bool, Datetime)):
        milliseconds = round(value * 1000)
    else:
        found = _SPAN.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise ValueError("expected a number of seconds, or text such as 01:30:00")
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
        fraction = int((found[5] or "").ljust(7, "0")) // _TICKS_PER_MS
        milliseconds = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction
    if not 0 < milliseconds <= _LONGEST_TTL_MS:
        raise ValueError("it is not between a millisecond and 49 days")
    return milliseconds


_PROPERTIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "messageid": ("message_id", _id),
    "correlationid": ("correlation_id", _text),
    "contenttype": ("content_type", _symbol),
    "label": ("subject", _text),
    "subject": ("subject", _text),
    "to": ("to", _text),
    "replyto": ("reply_to", _text),
    "replytosessionid": ("reply_to_group_id", _id),
    "sessionid": ("group_id", _id),
}
_ANNOTATIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "partitionkey": ("x-opt-partition-key", _id),
    "viapartitionkey": ("x-opt-via-partition-key", _id),
    "scheduledenqueuetimeutc": ("x-opt-scheduled-enqueue-time", _time_ms),
}
_TTL = "timetolive"

OF_EVENTS = (
    "MessageId",
    "CorrelationId",
    "ContentType",
    "Label",
    "Subject",
    "To",
    "ReplyTo",
    "ReplyToSessionId",
    "SessionId",
)
"""The system properties of an event that a column may set; case does not matter."""

OF_MESSAGES = (*OF_EVENTS, "PartitionKey", "ViaPartitionKey", "ScheduledEnqueueTimeUtc", "TimeToLive")
"""Those of a message of Service Bus."""


def check_names(columns: Mapping[str, str], names: Sequence[str]) -> None:
    """Raise ValueError unless every key is one of the system properties."""
    known = {name.lower() for name in names}
    wrong = next((name for name in columns if name.lower() not in known), None)
    if wrong is not None:
        raise ValueError(f"there is no system property '{wrong}'; expected one of {', '.join(names)}")


def system_sections(system: Mapping[str, Any] | None, message_id: str | None = None) -> SystemSections:
    """Return the sections for the values of system properties, by their names.

    Args:
        message_id: the id of a message whose columns do not give one.

    Raises:
        ValueError: a property cannot have the value; the message names the property.
    """
    properties: dict[str, Any] = {} if message_id is None else {"message_id": message_id}
    annotations: dict[Any, Any] = {}
    ttl_ms = None
    for name, value in (system or {}).items():
        try:
            lowered = name.lower()
            if lowered == _TTL:
                ttl_ms = _span_ms(value)
            elif lowered in _ANNOTATIONS:
                annotation, convert = _ANNOTATIONS[lowered]
                annotations[Symbol(annotation)] = convert(value)
            else:
                field, convert = _PROPERTIES[lowered]
                properties[field] = convert(value)
        except ValueError as error:
            raise ValueError(f"system property {name}: {error}") from error
    return SystemSections(ttl_ms, annotations, Properties(**properties) if properties else None)
