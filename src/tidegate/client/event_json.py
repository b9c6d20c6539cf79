"""Events as JSON, in the form that recorded logs have, and their properties with the types that they were sent with.

JSON has text, true and false, null, whole numbers (AMQP's long) and numbers with a fraction (double). A value of any
other type is an object that names it: ``{"type": "timestamp", "value": "2026-01-31T12:00:00.120Z"}``. A property can
hold no map, so no value looks like that by chance; other values that are not scalar have such objects, too.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tidegate.amqp.encoding.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from tidegate.client.event import Delivery, decode

_NUMBERS: dict[str, type[int]] = {
    "ubyte": Ubyte,
    "ushort": Ushort,
    "uint": Uint,
    "ulong": Ulong,
    "byte": Byte,
    "short": Short,
    "int": Int,
}
_BITS = {"ubyte": 8, "ushort": 16, "uint": 32, "ulong": 64, "byte": 8, "short": 16, "int": 32, "long": 64}
_BOOLEANS = {True: True, False: False, "true": True, "false": False}
_TEXTS: dict[str, type[str]] = {"char": Char, "symbol": Symbol}
_FLOATS: dict[str, type[float]] = {"double": float, "float": Float}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES = {kind: name for named in (_NUMBERS, _TEXTS, _FLOATS) for name, kind in named.items()}
_MILLISECOND = timedelta(milliseconds=1)


def event_json(partition: str, delivery: Delivery) -> dict[str, Any]:
    """Return an event of a hub as a line of a recorded log. Raises DecodeError."""
    body, details = decode(delivery.payload)
    content = {"body": body.decode("utf-8", errors="replace")}
    if content["body"].encode() != body:
        content["bodyBase64"] = b64encode(body).decode("ascii")
    return {
        "partition": partition,
        "sequenceNumber": delivery.sequence_number,
        "offset": delivery.offset,
        "enqueuedTime": _time_text(Timestamp(delivery.enqueued_time_ms)),
        "partitionKey": details.partition_key,
        "publisher": details.publisher,
        "properties": {name: to_json(value) for name, value in (details.values or {}).items()},
        "systemProperties": details.system_properties,
        **content,
    }


def to_json(value: Any) -> Any:
    """Return a decoded AMQP value as JSON, from which `from_json` makes the same value."""
    kind = type(value)
    if value is None or kind in (str, bool, int) or (kind is float and math.isfinite(value)):
        return value
    if kind in (Float, float):
        return _typed(_NAMES[kind], float(value) if math.isfinite(value) else repr(float(value)))
    if kind in _NAMES:
        return _typed(_NAMES[kind], int(value) if isinstance(value, int) else str(value))
    match value:
        case Timestamp():
            return _typed("timestamp", _time_text(value))
        case UUID():
            return _typed("uuid", str(value))
        case bytes() | bytearray() | memoryview():
            return _typed("binary", b64encode(value).decode("ascii"))
        case Decimal():
            return _typed("decimal", b64encode(value.encoded).decode("ascii"))
        case Described():
            return {**_typed("described", to_json(value.value)), "descriptor": to_json(value.descriptor)}
        case Array():
            whole = _typed("array", list(map(to_json, value.items)))
            return {**whole, "code": value.code, "descriptor": to_json(value.descriptor)}
        case list() | tuple():
            return _typed("list", list(map(to_json, value)))
        case Mapping():
            return _typed("map", [[to_json(key), to_json(item)] for key, item in value.items()])
    return str(value)


def from_json(value: Any) -> Any:
    """Return the AMQP value that JSON stands for.

    Raises:
        ValueError: it is none; the message says what is expected.
    """
    if isinstance(value, list):
        raise ValueError('a property is no array; write {"type": "list", "value": […]}')
    if not isinstance(value, dict):
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise ValueError(f'{value} is no long; write it with a fraction, or {{"type": "ulong", "value": …}}')
        return value
    kind = value.get("type")
    try:
        return _of_type(kind, value)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(kind, str) and kind in TYPES:
            raise ValueError(f"{value.get('value')!r} is no {kind}") from error
        raise ValueError(f"{kind!r} is no type of a property; types are {', '.join(TYPES)}") from error


TYPES = (
    *_NUMBERS,
    *_FLOATS,
    *_TEXTS,
    *("long", "string", "boolean", "timestamp", "uuid", "binary", "decimal", "described", "array", "list", "map"),
)
"""The names of types in JSON."""


def _of_type(kind: Any, given: Mapping[str, Any]) -> Any:
    content = given["value"]
    if kind in _BITS:
        return _NUMBERS.get(kind, int)(_whole(kind, content))
    if kind in _FLOATS:
        return _FLOATS[kind](content)
    if kind == "char" and len(content) != 1:
        raise ValueError(content)
    if kind in _TEXTS:
        return _TEXTS[kind](content)
    match kind:
        case "string":
            return str(content)
        case "boolean":
            return _BOOLEANS[content.lower() if isinstance(content, str) else content]
        case "timestamp":
            return Timestamp(content) if isinstance(content, int) else _time(content)
        case "uuid":
            return UUID(content)
        case "binary":
            return b64decode(content, validate=True)
        case "decimal":
            return Decimal(b64decode(content, validate=True))
        case "described":
            return Described(from_json(given["descriptor"]), from_json(content))
        case "array":
            return Array(int(given["code"]), list(map(from_json, content)), from_json(given.get("descriptor")))
        case "list":
            return list(map(from_json, content))
        case "map":
            return {from_json(key): from_json(item) for key, item in content}
    raise KeyError(kind)


def _whole(kind: str, content: Any) -> int:
    """Return a whole number that a type can hold. Raises ValueError."""
    number, bits = int(content), _BITS[kind]
    least, end = (0, 1 << bits) if kind.startswith("u") else (-(1 << bits - 1), 1 << bits - 1)
    if not least <= number < end or (isinstance(content, float) and content != number):
        raise ValueError(content)
    return number


def _typed(kind: str, value: Any) -> dict[str, Any]:
    return {"type": kind, "value": value}


def _time_text(value: Timestamp) -> str | int:
    """Return a time in ISO 8601, or its milliseconds if it is beyond the years 1 to 9999."""
    try:
        time = _EPOCH + timedelta(milliseconds=int(value))
    except OverflowError:
        return int(value)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(text: str) -> Timestamp:
    time = datetime.fromisoformat(text)
    return Timestamp(((time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND)
