"""From one type to another: implicitly, where an operation needs a type, and by CAST and TRY_CAST.

Implicitly a bit stands for the number 0 or 1, text that is a number for that number (bigint if it is whole and fits,
else float), and ISO 8601 text for a datetime; whatever is not text stands for what CAST would write. CAST to bigint
cuts off the fraction; a value that has no counterpart in the other type is a failure, which TRY_CAST turns into NULL
(query reference, "Data Types", "CAST", "TRY_CAST").
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from tidegate.engine.values.budget import may_hold_too_many, repeated
from tidegate.engine.values.datetimes import datetime_texts, parse_datetimes
from tidegate.engine.values.json_lines import key_texts_of, shared_objects
from tidegate.engine.values.vectors import Failure, Kind, Reason, Vector
from tidegate.sql.plan.nodes import Type

# Python refuses to read very long digits, so that those without which a number is as large are left aside.
_INTEGER = re.compile(r"\s*([+-]?)0*([0-9]+)\s*", re.ASCII)
_MOST_DIGITS = 19
_FLOAT = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
_TRUTH = {"true": True, "false": False, "1": True, "0": False}

_CONVERSION = Failure(Reason.CONVERSION)
_OVERFLOW = Failure(Reason.OVERFLOW)


def of_distinct(vector: Vector, function: Callable[[Any], Any]) -> Vector:
    """Apply a function to texts, once for each distinct one; ``vector`` is all text."""
    encoded = vector.text_values().dictionary_encode()
    results = Vector.of([function(text) for text in encoded.dictionary.to_pylist()])
    return results.take(encoded.indices.to_numpy().astype(np.int64))


def by_kind(vector: Vector, convert: Callable[[Vector, int], Vector]) -> Vector:
    """Convert the values of each kind on their own; NULL and failures are unchanged."""
    uniform = vector.uniform
    if uniform is not None:
        return vector if uniform in (Kind.NULL, Kind.ERROR) else convert(vector, uniform)
    parts: list[Vector] = []
    places = []
    for kind in sorted(vector.present()):
        where = np.flatnonzero(vector.kinds == kind)
        part = vector.take(where)
        parts.append(part if kind in (Kind.NULL, Kind.ERROR) else convert(part, kind))
        places.append(where)
    return Vector.scattered(parts, places, len(vector))


def to_numbers(vector: Vector) -> Vector:
    """Convert values to bigint or float."""
    if vector.present() <= _NUMBERS:
        return vector
    return by_kind(vector, _number)


def _number(vector: Vector, kind: int) -> Vector:
    match kind:
        case Kind.BIGINT | Kind.FLOAT:
            return vector
        case Kind.BIT:
            return Vector.bigints(vector.int_values())
        case Kind.NVARCHAR:
            return of_distinct(vector, parse_number)
        case _:
            return Vector.errors(Reason.OPERAND_TYPE, len(vector))


def texts_beside_bits(vector: Vector) -> Vector:
    """Convert texts to numbers to compare bits with: true and false, too."""
    return of_distinct(vector, lambda text: int(bit) if (bit := truth(text)) is not None else parse_number(text))


def truth(text: str) -> bool | None:
    """Return the bit that a text stands for; None if it is none."""
    return _TRUTH.get(text.strip().lower())


def parse_number(text: str) -> int | float | Failure:
    """Parse text as a number."""
    whole = _parse_integer(text)
    return parse_float(text) if isinstance(whole, Failure) else whole


def _parse_integer(text: str) -> int | Failure:
    """Parse text as a bigint."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return _CONVERSION
    sign, digits = match.groups()
    if len(digits) > _MOST_DIGITS:
        return _OVERFLOW
    number = -int(digits) if sign == "-" else int(digits)
    return number if -(2**63) <= number < 2**63 else _OVERFLOW


def parse_float(text: str) -> float | Failure:
    """Parse text as a float."""
    if not _FLOAT.fullmatch(text):
        return _CONVERSION
    number = float(text)
    return number if isfinite(number) else _OVERFLOW


def to_integers(vector: Vector) -> Vector:
    """Convert values to bigint, cutting off fractions."""
    numbers = to_numbers(vector)
    return numbers if Kind.FLOAT not in numbers.present() else by_kind(numbers, _to_bigint)


def to_datetimes(vector: Vector) -> Vector:
    """Convert values to datetime."""
    if vector.present() <= _DATETIMES:
        return vector
    return by_kind(vector, _datetime)


def _datetime(vector: Vector, kind: int) -> Vector:
    match kind:
        case Kind.DATETIME:
            return vector
        case Kind.NVARCHAR:
            ticks, valid = parse_datetimes(vector.text_values())
            return Vector.datetimes(ticks).failing(~valid, Reason.CONVERSION)
        case _:
            return Vector.errors(Reason.OPERAND_TYPE, len(vector))


def as_ordered(vector: Vector) -> Vector:
    """Convert text that was not cast to what it is ordered by, a datetime or a number.

    Other text, records and arrays have no order: they are failures ("Type mismatches will result in errors", MAX page).
    """
    if not vector.present() & {Kind.NVARCHAR, Kind.RECORD, Kind.ARRAY}:
        return vector
    ticks, valid = parse_datetimes(vector.text_values())
    if valid.any():
        kinds = np.where(valid, np.uint8(Kind.DATETIME), vector.kinds)
        vector = vector.with_kinds(kinds, ints=np.where(valid, ticks, vector.int_values()))
    return by_kind(vector, _ordered)


def _ordered(vector: Vector, kind: int) -> Vector:
    if kind in (Kind.RECORD, Kind.ARRAY):
        return Vector.errors(Reason.NOT_COMPARABLE, len(vector))
    if kind != Kind.NVARCHAR:
        return vector
    numbers = of_distinct(vector, parse_number)
    return numbers.failing(numbers.kinds == Kind.ERROR, Reason.NOT_COMPARABLE)


def to_texts(vector: Vector) -> Vector:
    """Convert values to text, as CAST writes them."""
    if vector.present() <= _TEXTS:
        return vector
    return by_kind(vector, _to_text)


def float_text(value: float) -> str:
    """Return the shortest text that reads back as the same float: ``8``, ``0.1``, ``1E+16``, ``1E-05``."""
    if value == 0:
        return "0"
    digits, _, exponent_text = f"{value!r}".partition("e")
    sign, digits = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
    whole, _, fraction = digits.partition(".")
    fraction = "" if fraction == "0" else fraction
    exponent = int(exponent_text or 0) + len(whole) - 1
    significant = whole + fraction
    if whole == "0":
        stripped = fraction.lstrip("0")
        exponent = -(len(fraction) - len(stripped)) - 1
        significant = stripped
    significant = significant.rstrip("0") or "0"
    if -5 < exponent < 15:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{significant}"
        padded = significant.ljust(exponent + 1, "0")
        rest = padded[exponent + 1 :]
        return f"{sign}{padded[: exponent + 1]}.{rest}" if rest else f"{sign}{padded[: exponent + 1]}"
    mantissa = significant[0] + (f".{significant[1:]}" if len(significant) > 1 else "")
    return f"{sign}{mantissa}E{'+' if exponent >= 0 else '-'}{abs(exponent):02d}"


def cast(vector: Vector, type_: Type, *, safe: bool) -> Vector:
    """Evaluate CAST, or TRY_CAST if ``safe``."""
    converted = by_kind(vector, _CASTS[type_])
    if not safe or Kind.ERROR not in converted.present():
        return converted
    # What failed before the cast is not the cast's failure.
    new = (converted.kinds == Kind.ERROR) & (vector.kinds != Kind.ERROR)
    return converted.with_kinds(np.where(new, np.uint8(Kind.NULL), converted.kinds))


def _to_bigint(vector: Vector, kind: int) -> Vector:
    match kind:
        case Kind.BIGINT:
            return vector
        case Kind.BIT:
            return Vector.bigints(vector.int_values())
        case Kind.FLOAT:
            values = np.trunc(vector.float_values())
            fits = (values >= -(2.0**63)) & (values < 2.0**63)
            return Vector.bigints(np.where(fits, values, 0.0).astype(np.int64)).failing(~fits, Reason.OVERFLOW)
        case Kind.NVARCHAR:
            return of_distinct(vector, _parse_integer)
        case _:
            return Vector.errors(Reason.CONVERSION, len(vector))


def _to_float(vector: Vector, kind: int) -> Vector:
    match kind:
        case Kind.FLOAT:
            return vector
        case Kind.BIGINT | Kind.BIT:
            return Vector.of_floats(vector.int_values().astype(np.float64))
        case Kind.NVARCHAR:
            return of_distinct(vector, parse_float)
        case _:
            return Vector.errors(Reason.CONVERSION, len(vector))


def _to_text(vector: Vector, kind: int) -> Vector:
    match kind:
        case Kind.NVARCHAR:
            return vector
        case Kind.BIGINT:
            return Vector.of([str(value) for value in vector.int_values().tolist()])
        case Kind.FLOAT:
            return Vector.of([float_text(value) for value in vector.float_values().tolist()])
        case Kind.DATETIME:
            return Vector.of_texts(datetime_texts(vector.int_values()))
        case Kind.BIT:
            return Vector.of(["true" if value else "false" for value in vector.int_values().tolist()])
        case _:
            firsts, codes = shared_objects(vector)
            return repeated(Vector.of(key_texts_of(vector.take(firsts))), codes)


def _to_datetime(vector: Vector, kind: int) -> Vector:
    if kind in (Kind.DATETIME, Kind.NVARCHAR):
        return _datetime(vector, kind)
    return Vector.errors(Reason.CONVERSION, len(vector))


def _to_bit(vector: Vector, kind: int) -> Vector:
    match kind:
        case Kind.BIT:
            return vector
        case Kind.BIGINT:
            return Vector.bits(vector.int_values() != 0)
        case Kind.FLOAT:
            return Vector.bits(vector.float_values() != 0)
        case Kind.NVARCHAR:
            return of_distinct(vector, lambda text: _CONVERSION if (bit := truth(text)) is None else bit)
        case _:
            return Vector.errors(Reason.CONVERSION, len(vector))


def _to_nested(type_: type) -> Callable[[Vector, int], Vector]:
    wanted = Kind.RECORD if type_ is dict else Kind.ARRAY

    def convert(vector: Vector, kind: int) -> Vector:
        if kind == wanted:
            return vector
        if kind == Kind.NVARCHAR:
            return of_distinct(vector, lambda text: _nested(text, type_))
        return Vector.errors(Reason.CONVERSION, len(vector))

    return convert


def _nested(text: str, type_: type) -> Any:
    value = parse_json(text)
    return value if isinstance(value, (type_, Failure)) else _CONVERSION


def parse_json(text: str) -> Any:
    """Return the value that a JSON text is, or a failure if it is none or holds too many values."""
    if may_hold_too_many(text):
        return Failure(Reason.LIMIT)
    try:
        value: Any = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        return _CONVERSION
    return value


def _unchanged(vector: Vector, kind: int) -> Vector:
    return vector


_NUMBERS = frozenset({Kind.NULL, Kind.BIGINT, Kind.FLOAT, Kind.ERROR})
_DATETIMES = frozenset({Kind.NULL, Kind.DATETIME, Kind.ERROR})
_TEXTS = frozenset({Kind.NULL, Kind.NVARCHAR, Kind.ERROR})

_CASTS: dict[Type, Callable[[Vector, int], Vector]] = {
    Type.BIGINT: _to_bigint,
    Type.FLOAT: _to_float,
    Type.NVARCHAR: _to_text,
    Type.DATETIME: _to_datetime,
    Type.BIT: _to_bit,
    Type.RECORD: _to_nested(dict),
    Type.ARRAY: _to_nested(list),
    Type.ANY: _unchanged,
}
