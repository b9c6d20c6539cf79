"""Codes for the values that a join compares: values that may be equal have the same code.

Nearly always both sides of `left.key = right.key` have one type, and equal values have equal codes (texts regardless of
case). Where types differ, equality converts (`operators.compare`): a text that is a number equals that number, and so
may another, different text. Then all values that may be equal share a code, and each pair is compared again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.engine.values.conversions import parse_number, truth
from tidegate.engine.values.datetimes import parse_datetime
from tidegate.engine.values.grouping import group, unified
from tidegate.engine.values.json_lines import texts_of
from tidegate.engine.values.vectors import Failure, Int64Array, Kind, Vector


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """Codes of the keys of n left and m right rows, from one numbering; −1 is equal to nothing.

    Attributes:
        unsure: which of the keys must be compared again.
    """

    left: Int64Array
    right: Int64Array
    unsure: tuple[int, ...]

    @classmethod
    def of(cls, left: Sequence[Vector], right: Sequence[Vector], left_count: int, right_count: int) -> JoinKeys:
        """Return the codes of the keys; without keys, all rows are equal."""
        vectors, unsure = [], []
        null = np.zeros(left_count + right_count, dtype=np.bool_)
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            both = Vector.concat([one, other])
            null |= (both.kinds == Kind.NULL) | (both.kinds == Kind.ERROR)
            if len(both.present() - {Kind.NULL, Kind.ERROR}) > 1:
                unsure.append(index)
                both = _coarse(both)
            else:
                both = unified(both)
            vectors.append(both)
        codes = np.where(null, -1, group(left_count + right_count, vectors).codes)
        return cls(codes[:left_count], codes[left_count:], tuple(unsure))


def _coarse(values: Vector) -> Vector:
    """Return the same text for all values that may be equal once converted."""
    values = unified(values)
    texts = texts_of(values) if values.objects is not None else [""] * len(values)
    kinds = values.kinds.tolist()
    found = [class_of(*one) for one in zip(kinds, values.to_list(), texts, strict=True)]
    return Vector.of([f"{family} {value!r}" for family, value in found])


def class_of(kind: int, value: Any, json: str) -> tuple[str, Any]:
    """Return the class of the values that may equal this one: its family, and the value that stands for it there.

    Args:
        value: of a text, its small letters.
        json: of a record or array, its text.
    """
    if kind == Kind.NVARCHAR:
        if (bit := truth(value)) is not None:
            return _number(bit)
        number, ticks = parse_number(value), parse_datetime(value)
        if not isinstance(number, Failure):
            return _number(number)
        return ("text", value) if ticks is None else ("time", ticks)
    if kind in (Kind.BIGINT, Kind.FLOAT, Kind.BIT):
        return _number(value)
    return ("time", int(value)) if kind == Kind.DATETIME else (str(int(kind)), json)


def _number(value: float) -> tuple[str, float]:
    # The text '-0.0' equals 0.
    return "number", float(value) + 0.0
