"""Static types: what is known of values from the query alone, and which mistakes are certain.

Types belong to values, so most columns are ANY, for which nothing is refused. Implicit conversions happen at run time:
between bigint, float and bit, from text that is a number to a number, and from ISO 8601 text to a datetime.
https://learn.microsoft.com/stream-analytics-query/data-types-azure-stream-analytics
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from typing import assert_never

from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import ArgumentKind

# The only length is "nvarchar(max)".
NAMES: dict[str, Type] = {
    "bigint": Type.BIGINT,
    "float": Type.FLOAT,
    "nvarchar": Type.NVARCHAR,
    "datetime": Type.DATETIME,
    "bit": Type.BIT,
    "record": Type.RECORD,
    "array": Type.ARRAY,
}

# Types of T-SQL, and what to write instead.
INSTEAD = {
    **dict.fromkeys(("int", "integer", "smallint", "tinyint", "long"), "bigint"),
    **dict.fromkeys(("real", "double", "decimal", "numeric", "money"), "float"),
    **dict.fromkeys(("varchar", "char", "nchar", "text", "ntext", "string"), "nvarchar(max)"),
    **dict.fromkeys(("date", "time", "datetime2", "datetimeoffset", "timestamp", "smalldatetime"), "datetime"),
    **dict.fromkeys(("bool", "boolean"), "bit"),
}

NUMERIC = frozenset([Type.BIGINT, Type.FLOAT, Type.BIT])
"""The types that are calculated with, and compared with each other by value."""
_NESTED = frozenset([Type.RECORD, Type.ARRAY])

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*\Z")
_ISO_8601 = re.compile(
    r"\s*(\d{4})-(\d{2})-(\d{2})"
    r"(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?\s*(?:[Zz]|[+-](\d{2}):?(\d{2})?)?)?\s*\Z"
)


def is_number_text(text: str) -> bool:
    """Return whether a text converts to float."""
    return bool(_NUMBER.match(text))


def is_datetime_text(text: str) -> bool:
    """Return whether a text is an existing date and time in ISO 8601."""
    match = _ISO_8601.match(text)
    if not match:
        return False
    year, month, day, *rest = (int(part or 0) for part in match.groups())
    hour, minute, second, offset_hours, offset_minutes = rest
    try:
        date(year, month, day)
    except ValueError:
        return False
    return hour < 24 and minute < 60 and second < 60 and offset_hours <= 14 and offset_minutes < 60


def of_literal(value: int | float | str | bool | None) -> Type:
    """Return the type of a constant; ANY of NULL."""
    match value:
        case bool():
            return Type.BIT
        case int():
            return Type.BIGINT
        case float():
            return Type.FLOAT
        case str():
            return Type.NVARCHAR
    return Type.ANY


def refusal(kind: ArgumentKind, type_: Type, literal: object) -> str | None:
    """Return why a value can never be an argument of this kind; None if it may be.

    Args:
        kind: of the argument.
        type_: of the value, ANY if only the data tell.
        literal: the value if it is constant.
    """
    if type_ is Type.ANY:
        return None
    text = literal if isinstance(literal, str) else None
    match kind:
        case ArgumentKind.NUMBER | ArgumentKind.INTEGER if type_ is Type.NVARCHAR:
            return None if text is None or is_number_text(text) else f"the text '{_short(text)}' is not a number"
        case ArgumentKind.NUMBER | ArgumentKind.INTEGER:
            return None if type_ in NUMERIC else f"{_a(type_)} is not a number"
        case ArgumentKind.DATETIME if type_ is Type.NVARCHAR:
            usable = text is None or is_datetime_text(text)
            return None if usable else f"the text '{_short(str(text))}' is not a date in ISO 8601"
        case ArgumentKind.DATETIME:
            return None if type_ is Type.DATETIME else f"{_a(type_)} is not a datetime"
        case ArgumentKind.TEXT | ArgumentKind.NAME | ArgumentKind.JSON:
            return f"{_a(type_)} is not text" if type_ in _NESTED else None
        case ArgumentKind.GEOGRAPHY:
            return None if type_ in (Type.RECORD, Type.NVARCHAR) else f"{_a(type_)} is not a geography"
        case ArgumentKind.ORDERED:
            return f"{_a(type_)} has no order" if type_ in _NESTED else None
        case ArgumentKind.RECORD:
            return None if type_ is Type.RECORD else f"{_a(type_)} is not a record"
        case ArgumentKind.ARRAY:
            return None if type_ is Type.ARRAY else f"{_a(type_)} is not an array"
        case (
            ArgumentKind.ANY
            | ArgumentKind.AS_TEXT
            | ArgumentKind.CONDITION
            | ArgumentKind.COUNT
            | ArgumentKind.FRACTION
            | ArgumentKind.UNIT
            | ArgumentKind.PART
            | ArgumentKind.SOURCE
            | ArgumentKind.PROPERTY
        ):
            return None
        case _:
            assert_never(kind)


def cast_refusal(from_: Type, to: Type, literal: object) -> str | None:
    """Return why a CAST fails for every row; None if it may succeed. For TRY_CAST this is not an error."""
    if from_ is to or from_ is Type.ANY:
        return None
    if from_ in _NESTED and to is not Type.NVARCHAR:
        return f"{_a(from_)} does not convert to {to.value}"
    if to in _NESTED and from_ is not Type.NVARCHAR:
        return f"{_a(from_)} does not convert to {to.value}"
    if isinstance(literal, str):
        if to in (Type.BIGINT, Type.FLOAT) and not is_number_text(literal):
            return f"the text '{_short(literal)}' is not a number"
        if to is Type.DATETIME and not is_datetime_text(literal):
            return f"the text '{_short(literal)}' is not a date in ISO 8601"
    if from_ is Type.DATETIME and to in (Type.BIGINT, Type.FLOAT, Type.BIT):
        return f"{_a(from_)} does not convert to {to.value}"
    return None


def comparison_refusal(left: Type, right: Type) -> str | None:
    """Return why two values can never be compared; None if they can be."""
    if (left in _NESTED) != (right in _NESTED) and Type.ANY not in (left, right):
        return f"{_a(left)} and {_a(right)} cannot be compared"
    if Type.DATETIME in (left, right) and (left in NUMERIC or right in NUMERIC):
        return f"{_a(left)} and {_a(right)} cannot be compared"
    return None


def comparison_doubt(type_: Type, constant: object) -> tuple[str, str] | None:
    """Return why comparing values of a type with a constant fails for every row, and what to write, or None."""
    if not isinstance(constant, str):
        return None
    compared = f"{_a(type_)} is compared with the text '{_short(constant)}', which is no"
    if type_ is Type.DATETIME and not is_datetime_text(constant):
        return f"{compared} time", "write '2026-01-31T12:00:00Z'"
    if type_ in NUMERIC and not is_number_text(constant):
        if type_ is not Type.BIT:
            return f"{compared} number", "compare it with 1"
        if constant.strip().lower() not in ("true", "false"):
            return f"{compared} bit", "compare it with 1 or 0"
    return None


def union_refusal(left: Type, right: Type) -> bool:
    """Return whether the types of two columns can never be combined in a UNION."""
    return comparison_refusal(left, right) is not None or {left, right} == _NESTED


def arithmetic(sign: str, left: Type, right: Type) -> tuple[Type, str | None]:
    """Return the type of `left sign right`, and why it can never be computed, or None."""
    for type_ in (left, right):
        if type_ is Type.DATETIME:
            return Type.ANY, "dates are not calculated with signs"
        if type_ in _NESTED:
            return Type.ANY, f"{_a(type_)} is not a number"
    if sign == "+" and left is right is Type.NVARCHAR:
        return Type.NVARCHAR, None
    if Type.FLOAT in (left, right) and left in NUMERIC and right in NUMERIC and sign in "+-*/":
        return Type.FLOAT, None
    if left is right is Type.BIGINT:
        return Type.BIGINT, None
    return Type.ANY, None


def highest(types: Sequence[Type]) -> Type:
    """Return the type of the highest precedence: float, bigint, bit. Types that are not numbers have no precedence."""
    if types and set(types) <= NUMERIC:
        return next(type_ for type_ in (Type.FLOAT, Type.BIGINT, Type.BIT) if type_ in types)
    return common(types)


def common(types: Sequence[Type]) -> Type:
    """Return the type that all have, else ANY."""
    return types[0] if types and all(type_ is types[0] for type_ in types) else Type.ANY


def _a(type_: Type) -> str:
    return f"an {type_.value}" if type_ is Type.ARRAY else f"a {type_.value}"


def _short(text: str) -> str:
    return text if len(text) <= 30 else text[:27] + "…"
