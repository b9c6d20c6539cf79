"""Values as the service has them: what is one key, what is equal, and what is less.

One rule says what is the same, for a *key* (GROUP BY, PARTITION BY, OVER, DISTINCT) and for the operator `=`: numbers
and bits by value, text without case, records and arrays by what is in them. A key is shown under the first of the
spellings that its rows have (`first_spelling`).
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from fractions import Fraction
from typing import Any

TICKS_PER_SECOND = 10_000_000
_TICKS_BEFORE_1970 = 621_355_968_000_000_000

Value = Any
"""None, bool, int, float, str, dict or list."""


def key_of(value: Value) -> Hashable:
    """Return what tells a value from others as a key."""
    if isinstance(value, dict):
        return ("record", frozenset((name.lower(), key_of(inner)) for name, inner in value.items()))
    if isinstance(value, list):
        return ("array", tuple(key_of(inner) for inner in value))
    if isinstance(value, str):
        return ("text", value.lower())
    return ("null",) if value is None else ("number", Fraction(value))


def first_spelling(values: Iterable[Value]) -> Value:
    """Return the spelling under which a key is shown: 1 before 1.0 before true, text by its characters."""

    def order(value: Value) -> tuple[Any, ...]:
        if isinstance(value, str):
            return (value,)
        if isinstance(value, dict | list):
            return (json.dumps(value, ensure_ascii=False, separators=(",", ":")),)
        return ([int, float, bool, type(None)].index(type(value)),)

    return min(values, key=order)


def are_equal(left: Value, right: Value) -> bool:
    """Return whether `left = right` is true; NULL equals nothing.

    Values are of the kinds the generator compares: texts, numbers, and texts that are no numbers beside numbers.
    """
    if left is None or right is None:
        return False
    if isinstance(left, str) and isinstance(right, str):
        return left.lower() == right.lower()
    if isinstance(left, str) or isinstance(right, str):
        return False
    return Fraction(left) == Fraction(right)


def compare(operator: str, left: Value, right: Value) -> bool | None:
    """Return the truth of a comparison of two numbers or two texts; NULL where a side is NULL."""
    if left is None or right is None:
        return None
    if isinstance(left, str):
        left, right = left.lower(), right.lower()
    truths: dict[str, bool] = {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return truths[operator]


def since_year_1(ticks: int) -> int:
    """Return ticks since 0001-01-01, where windows begin to be counted, from ticks since 1970."""
    return ticks + _TICKS_BEFORE_1970


def since_1970(ticks: int) -> int:
    """Return the inverse of `since_year_1`."""
    return ticks - _TICKS_BEFORE_1970
