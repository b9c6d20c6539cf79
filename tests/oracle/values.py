"""Values as the service has them: what is one key, what is equal, and what is less.

Two notions of sameness exist side by side, and mixing them up is the defect this module is here to find. A *key* (GROUP
BY, PARTITION BY, OVER, DISTINCT) is a value with its type: `a` and `A` are two keys, as are 1 and 1.0. The operator `=`
compares text without case and numbers of both types by value.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

TICKS_PER_SECOND = 10_000_000
_TICKS_BEFORE_1970 = 621_355_968_000_000_000

Value = Any
"""None, bool, int, float, str, dict or list."""


def key_of(value: Value) -> Hashable:
    """Return what tells a value from others as a key; −0.0 and 0.0 are equal numbers, and so one key."""
    if isinstance(value, dict | list):
        return ("json", json.dumps(value, ensure_ascii=False))
    if isinstance(value, float) and value == 0:
        value = 0.0
    return (type(value).__name__, value)


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
