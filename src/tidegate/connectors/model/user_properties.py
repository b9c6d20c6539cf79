"""The properties that publishers give their events, as values of the query language.

A property keeps the type that it was sent with: whole numbers of any width are bigint, numbers with a fraction float,
a timestamp is a datetime, true and false are bit. What the language lacks becomes text: a UUID, a symbol, a character,
and bytes as everywhere else (decoded if they are UTF-8, otherwise in base 64).
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from tidegate.amqp.encoding.types import Array, Decimal, Described, Timestamp
from tidegate.client.event import Details
from tidegate.engine import Datetime
from tidegate.ordering import TICKS_PER_MILLISECOND
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS

_LARGEST_BIGINT = 2**63 - 1


def typed_properties(details: Details) -> dict[str, Any]:
    """Return the properties of an event by name; as text where the types that they were sent with are not known."""
    values: Mapping[str, Any] = details.properties if details.values is None else details.values
    return {name: value if type(value) is str else _value(value) for name, value in values.items()}


def _value(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case Timestamp():
            ticks = int(value) * TICKS_PER_MILLISECOND
            return Datetime(ticks) if FIRST_TICKS <= ticks <= LAST_TICKS else int(value)
        case int():
            return int(value) if value <= _LARGEST_BIGINT else float(value)
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case bytes() | bytearray() | memoryview():
            return _text(bytes(value))
        case Decimal():
            return b64encode(value.encoded).decode("ascii")
        case Described():
            return _value(value.value)
        case Array():
            return list(map(_value, value.items))
        case list() | tuple():
            return list(map(_value, value))
        case Mapping():
            return {str(name): _value(item) for name, item in value.items()}
    return str(value)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return b64encode(content).decode("ascii")
