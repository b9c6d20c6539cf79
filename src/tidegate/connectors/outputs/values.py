"""Conversion of values to the types of a table's columns.

The rule is that of the service's own outputs: a lossless conversion is made, and one that would lose something or has
no counterpart is a TypeConversionError (query reference, "Data Types"). A bigint in a column of floats becomes that
float, however large. Every value has a text: numbers and truth values as in JSON, times with seven digits and Z,
records and arrays as JSON. There is one exception: PostgreSQL counts in microseconds, so its timestamps lack the
seventh digit of a time, which most producers write and few mean; a column of text keeps it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from tidegate.engine.values.datetimes import parse_datetime
from tidegate.engine.values.json_lines import plain
from tidegate.engine.values.vectors import Datetime, Kind, Vector
from tidegate.ordering import TICKS_PER_DAY, format_time

_TICKS_PER_MICROSECOND = 10

Converter = Callable[[Any], Any]
"""Converts a value that is not NULL to one that the database accepts. Raises ValueError with a message for people."""

_UNCHANGED: WeakKeyDictionary[Converter, frozenset[Kind]] = WeakKeyDictionary()
"""The kinds of values that a converter returns unchanged, whatever they are."""

_encode = msgspec.json.Encoder(enc_hook=format_time).encode


def json_text(value: Any) -> str:
    """Return a value as compact JSON."""
    return _encode(value).decode()


def converted(convert: Converter, vector: Vector) -> list[Any]:
    """Return a column with each value converted and NULL as None.

    Raises:
        ValueError: a value has no counterpart; which one remains open.
    """
    if vector.uniform in _UNCHANGED.get(convert, ()):
        return vector.to_list()
    if vector.uniform == Kind.DATETIME:
        # Results share few times: those of their windows.
        times, places = np.unique(vector.int_values(), return_inverse=True)
        texts = [convert(Datetime(time)) for time in times.tolist()]
        return [texts[place] for place in places.tolist()]
    return [None if value is None else convert(value) for value in vector.to_list()]


def _keeping(convert: Converter, *kinds: Kind) -> Converter:
    _UNCHANGED[convert] = frozenset(kinds)
    return convert


def type_name(value: Any) -> str:
    """Return the type of a value, by its name in the query language."""
    return _TYPE_NAMES[type(value)]


_TYPE_NAMES: dict[type, str] = {
    type(None): "NULL",
    int: "bigint",
    float: "float",
    str: "nvarchar(max)",
    Datetime: "datetime",
    bool: "bit",
    dict: "record",
    list: "array",
}


def _mismatch(value: Any, column: str) -> ValueError:
    return ValueError(f"a {type_name(value)} does not go into a column of type {column}")


def whole(column: str, bits: int) -> Converter:
    """Return a converter to whole numbers of so many bits."""
    most = 1 << (bits - 1)

    def convert(value: Any) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) not in (int, bool):
            reason = " without losing its fraction" if type(value) is float else ""
            raise ValueError(f"{_mismatch(value, column)}{reason}")
        if not -most <= value < most:
            raise ValueError(f"{value} is out of range for {column}")
        return int(value)

    return _keeping(convert, Kind.BIGINT) if bits == 64 else convert


def floating(column: str) -> Converter:
    """Return a converter to floats of 64 bits."""

    def convert(value: Any) -> float:
        if type(value) not in (int, float):
            raise _mismatch(value, column)
        return float(value)

    return _keeping(convert, Kind.FLOAT)


def number(column: str) -> Converter:
    """Return a converter to numbers with all the digits of a value."""

    def convert(value: Any) -> int | float:
        if type(value) not in (int, float):
            raise _mismatch(value, column)
        number: int | float = value
        return number

    return _keeping(convert, Kind.BIGINT, Kind.FLOAT)


def text(value: Any) -> str:
    """Return any value as text."""
    if type(value) is str:
        return value
    if type(value) is Datetime:
        return format_time(value)
    return json_text(plain(value))


def truth(column: str) -> Converter:
    """Return a converter to truth values, which also accepts 1 and 0, as below compatibility level 1.2."""

    def convert(value: Any) -> bool:
        if type(value) is bool or (type(value) is int and value in (0, 1)):
            return bool(value)
        raise _mismatch(value, column)

    return convert


def ticks(value: Any, column: str) -> int:
    """Return a time, or a text that is one, in ticks. Raises ValueError."""
    if type(value) is Datetime:
        return int(value)
    parsed = parse_datetime(value) if type(value) is str else None
    if parsed is None:
        raise (ValueError(f"the text {value[:40]!r} is not a time") if type(value) is str else _mismatch(value, column))
    return parsed


def time_text(column: str) -> Converter:
    """Return a converter to times as text with seven digits and Z; it accepts text in ISO 8601 too."""
    return lambda value: format_time(ticks(value, column))


def microseconds(column: str) -> Converter:
    """Return a converter to times for a column that counts in microseconds."""

    def convert(value: Any) -> str:
        time = ticks(value, column)
        return format_time(time - time % _TICKS_PER_MICROSECOND)

    return convert


def clock_time(column: str, digits: int) -> Converter:
    """Return a converter to times as ``2026-01-01T12:00:00.123``, in UTC, with so many digits of a second."""
    step = 10 ** (7 - digits)

    def convert(value: Any) -> str:
        time = ticks(value, column)
        text = format_time(time - time % step).removesuffix("Z")
        return text[: len(text) - 7 + digits] if digits else text[:19]

    return convert


def day(column: str) -> Converter:
    """Days."""

    def convert(value: Any) -> str:
        time = ticks(value, column)
        if time % TICKS_PER_DAY:
            raise ValueError(f"{format_time(time)} is not a whole day, as {column} has them")
        return format_time(time)[:10]

    return convert


def identifier(column: str) -> Converter:
    """UUIDs."""

    def convert(value: Any) -> str:
        if type(value) is not str:
            raise _mismatch(value, column)
        try:
            return str(uuid.UUID(value))
        except ValueError as error:
            raise ValueError(f"the text {value[:40]!r} is not a UUID") from error

    return convert


def nested(value: Any) -> str:
    """Return any value as JSON."""
    return json_text(plain(value))


def stored(value: Any) -> Any:
    """Return a value as SQLite stores it in an untyped column: times as text, truth values as 0 or 1, JSON as text."""
    if type(value) in (int, float, str):
        return value
    return int(value) if type(value) is bool else text(value)


_keeping(text, Kind.NVARCHAR)
_keeping(stored, Kind.BIGINT, Kind.FLOAT, Kind.NVARCHAR)
