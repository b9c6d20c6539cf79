"""Types that a section declares for arguments and results, and the conversions to them."""

from __future__ import annotations

import json
import math
from typing import Any, Literal, TypeAlias, assert_never

from tidegate.engine.values.datetimes import parse_datetime
from tidegate.engine.values.vectors import Datetime

DeclaredType: TypeAlias = Literal["any", "bigint", "float", "nvarchar(max)", "bit", "datetime", "record", "array"]
_TRUTHS = {"true": True, "false": False, "1": True, "0": False}


def to_declared(value: Any, type_: DeclaredType) -> Any:
    """Return a value, as JSON has it, as a value of a type; None stays None.

    Raises:
        ValueError: it is not one.
    """
    if value is None:
        return None
    match type_:
        case "any":
            return value
        case "bigint":
            return _whole(value)
        case "float":
            if isinstance(value, str | int | float) and math.isfinite(number := float(value)):
                return number
        case "nvarchar(max)":
            return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        case "bit":
            truth = _TRUTHS.get(str(value).lower()) if isinstance(value, str | bool | int) else None
            if truth is not None:
                return truth
        case "datetime":
            ticks = parse_datetime(value) if isinstance(value, str) else None
            if ticks is not None:
                return Datetime(ticks)
        case "record":
            if isinstance(value, dict):
                return value
        case "array":
            if isinstance(value, list):
                return value
        case _:
            assert_never(type_)
    raise _not_one(value, type_)


def _whole(value: Any) -> int:
    number = float(value) if isinstance(value, str) and not value.strip().lstrip("+-").isdecimal() else value
    if isinstance(number, float) and not number.is_integer():
        raise _not_one(value, "bigint")
    if isinstance(number, str | int | float) and -(2**63) <= (whole := int(number)) < 2**63:
        return whole
    raise _not_one(value, "bigint")


def _not_one(value: Any, type_: str) -> ValueError:
    shown = json.dumps(value)
    return ValueError(f"expected {type_}, got {shown if len(shown) <= 60 else f'{shown[:60]}…'}")
