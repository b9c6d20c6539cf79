"""The operators of expressions, and the functions that decide by conditions and NULL.

Plans have operators by names of their own ("add", "between"), where queries have signs and words.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tidegate.engine.functions import operators
from tidegate.engine.functions.declarations import FunctionGroup
from tidegate.engine.functions.like_patterns import is_costly, like_pattern
from tidegate.engine.functions.operators import Arithmetic, Bitwise, Comparison, Connective
from tidegate.engine.values import conversions
from tidegate.engine.values.json_lines import dicts
from tidegate.engine.values.vectors import Failure, Kind, Reason, Vector, object_array
from tidegate.sql.plan.catalog import (
    AS_ORDERED,
    WIDENED,
    Form,
    arithmetic_type,
    choice_type,
    common_type,
    first_type,
    number_type,
)
from tidegate.sql.plan.nodes import Type

_OPERATOR = FunctionGroup("Operators")
_NULL = FunctionGroup("NULL")

_SIGNS = {
    Arithmetic.ADD: "+",
    Arithmetic.SUBTRACT: "-",
    Arithmetic.MULTIPLY: "*",
    Arithmetic.DIVIDE: "/",
    Arithmetic.DIVIDE_BIGINTS: "/",
    Arithmetic.MODULO: "%",
}
for _arithmetic, _sign in _SIGNS.items():
    _OPERATOR.by_whole_columns(
        _arithmetic.value, "left number, right number", rule=arithmetic_type(_sign), form=Form.OPERATOR
    )(partial(operators.arithmetic, _arithmetic))
for _bitwise in Bitwise:
    _OPERATOR.by_whole_columns(_bitwise.value, "left number, right number", form=Form.OPERATOR)(
        partial(operators.bitwise, _bitwise)
    )
for _comparison in Comparison:
    _OPERATOR.by_whole_columns(_comparison.value, "left any, right any", form=Form.OPERATOR)(
        partial(operators.compare, _comparison)
    )

_OPERATOR.by_whole_columns("matches", "operand any, option any", form=Form.OPERATOR)(operators.matches)


@_OPERATOR.by_whole_columns("and", "first condition, second condition…", form=Form.OPERATOR)
def every(*conditions: Vector) -> Vector:
    """Return whether all conditions are true."""
    return operators.connect(Connective.AND, conditions)


@_OPERATOR.by_whole_columns("or", "first condition, second condition…", form=Form.OPERATOR)
def either(*conditions: Vector) -> Vector:
    """Return whether one of the conditions is true."""
    return operators.connect(Connective.OR, conditions)


_OPERATOR.by_whole_columns("not", "condition condition", form=Form.OPERATOR)(operators.negation)
_OPERATOR.by_whole_columns("negate", "number number", rule=number_type, form=Form.OPERATOR)(operators.negate)
_OPERATOR.by_whole_columns("bitwise_not", "number number", form=Form.OPERATOR)(operators.bitwise_not)


@_OPERATOR.by_whole_columns("is_null", "value any", form=Form.OPERATOR)
def is_null(value: Vector) -> Vector:
    """Return whether a value is NULL."""
    return operators.strictly(Vector.bits(value.kinds == Kind.NULL), [_without_nulls(value)])


@_OPERATOR.by_whole_columns("is_not_null", "value any", form=Form.OPERATOR)
def is_not_null(value: Vector) -> Vector:
    """Return whether a value is anything but NULL."""
    return operators.strictly(Vector.bits(value.kinds != Kind.NULL), [_without_nulls(value)])


def _without_nulls(vector: Vector) -> Vector:
    """Return a vector in which only the failures matter."""
    return vector.with_kinds(np.where(vector.kinds == Kind.NULL, np.uint8(Kind.BIGINT), vector.kinds))


@_OPERATOR.by_whole_columns("in", "value any, option any…", form=Form.OPERATOR)
def is_one_of(value: Vector, *options: Vector) -> Vector:
    """Return whether a value equals one of the options."""
    return operators.connect(Connective.OR, [operators.compare(Comparison.EQUAL, value, option) for option in options])


@_OPERATOR.by_whole_columns("between", "value any, low any, high any", form=Form.OPERATOR)
def between(value: Vector, low: Vector, high: Vector) -> Vector:
    """Return whether a value is at least ``low`` and at most ``high``."""
    at_least = operators.compare(Comparison.GREATER_OR_EQUAL, value, low)
    return operators.connect(Connective.AND, [at_least, operators.compare(Comparison.LESS_OR_EQUAL, value, high)])


@_OPERATOR.by_rows(
    "like",
    "text text, pattern text, [escape text]",
    form=Form.OPERATOR,
    fails="the pattern ends with its escape character, is longer than 8,000 characters, or takes too long on the text",
)
def like(text: str, pattern: str, escape: str | None = None) -> bool | Failure:
    """Return whether all of a text fits a pattern. Case counts."""
    if is_costly(pattern, text):
        return Failure(Reason.LIMIT)
    expression = like_pattern(pattern, escape)
    return Failure(Reason.OUT_OF_DOMAIN) if expression is None else expression.matches(text)


@_OPERATOR.by_whole_columns(
    "case", "condition condition, value any, otherwise any…", rule=choice_type, form=Form.OPERATOR
)
def case(*args: Vector) -> Vector:
    """Return the value of the first condition that is true, else the last argument."""
    return operators.case(list(zip(args[:-1:2], args[1:-1:2], strict=True)), args[-1])


_OPERATOR.by_whole_columns(WIDENED, "value any", form=Form.INTERNAL)(operators.widened)


@_OPERATOR.by_whole_columns("record", "name text, value any…", Type.RECORD, form=Form.INTERNAL)
def record(*args: Vector) -> Vector:
    """Return records with these names and values."""
    count = len(args[0])
    names = [str(name.to_list()[0]) if count else None for name in args[::2]]
    kinds = np.full(count, Kind.RECORD, dtype=np.uint8)
    return Vector(kinds, objects=object_array(dicts(names, args[1::2], count, plainly=False)))


@_OPERATOR.by_whole_columns(AS_ORDERED, "value any", form=Form.INTERNAL)
def as_ordered(value: Vector) -> Vector:
    """Return text as the datetime or number that it is; a failure for other text, and for records and arrays."""
    return conversions.as_ordered(value)


@_NULL.by_whole_columns(
    "COALESCE",
    "first any, second any, [more any]…",
    rule=common_type,
    nulls="all arguments are NULL",
    example=("COALESCE(NULL, 2, 3)", "2"),
)
def coalesce(*values: Vector) -> Vector:
    """Return the first value that is not NULL."""
    return operators.coalesce(values)


@_NULL.by_whole_columns(
    "NULLIF",
    "value any, other any",
    rule=first_type,
    nulls="value is NULL, or both are equal",
    example=("NULLIF(2, 3)", "2"),
)
def nullif(value: Vector, other: Vector) -> Vector:
    """Return the value, unless it equals the other one."""
    same = operators.compare(Comparison.EQUAL, value, other)
    failed = same.kinds == Kind.ERROR
    which = np.where(failed, 2, operators.is_true(same)).astype(np.int64)
    return Vector.choose(which, [value, Vector.nulls(len(which)), same])
