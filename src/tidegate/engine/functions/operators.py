"""Arithmetic, comparison and logic over vectors, row by row.

An operation on NULL is NULL and on a failure that failure (the left one, if there are two). Bigints stay bigints and
overflow is a failure; with a float the result is float, and what is not finite is a failure. Texts compare without
case, by the code points of their small letters (the worked example of LAST in the query patterns finds 'Start' by
'start', as T-SQL does); text and a number compare as numbers, text and a bit as bits ('true' is 1), text and a datetime
as times, bigint and float by value, exactly. AND and OR are three-valued, and do not look at a failure that cannot
change their result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, assert_never

import numpy as np
import pyarrow.compute as pc

from tidegate.engine.values.conversions import texts_beside_bits, to_datetimes, to_numbers
from tidegate.engine.values.grouping import unified, without_case
from tidegate.engine.values.json_lines import texts_of
from tidegate.engine.values.vectors import TEXT, BoolArray, FloatArray, Int64Array, Kind, Reason, Vector

_SMALLEST = np.int64(-(2**63))


class Arithmetic(Enum):
    """An operation on two numbers, by its name in plans."""

    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"
    DIVIDE = "divide"
    DIVIDE_BIGINTS = "divide_bigints"
    MODULO = "modulo"


class Bitwise(Enum):
    """An operation on the bits of two numbers, by its name in plans."""

    AND = "bitwise_and"
    OR = "bitwise_or"
    XOR = "bitwise_xor"


class Comparison(Enum):
    """A comparison, by its name in plans."""

    EQUAL = "equal"
    NOT_EQUAL = "not_equal"
    LESS = "less"
    LESS_OR_EQUAL = "less_or_equal"
    GREATER = "greater"
    GREATER_OR_EQUAL = "greater_or_equal"


class Connective(Enum):
    """A word that joins conditions, by its name in plans."""

    AND = "and"
    OR = "or"


def strictly(result: Vector, args: Sequence[Vector]) -> Vector:
    """Return ``result`` where no argument is NULL or a failure; else that."""
    touched = [arg for arg in args if arg.present() & {Kind.NULL, Kind.ERROR}]
    if not touched:
        return result
    kinds, ints = result.kinds.copy(), result.int_values().copy()
    for arg in touched:
        kinds[arg.kinds == Kind.NULL] = Kind.NULL
    for arg in reversed(touched):
        failed = arg.kinds == Kind.ERROR
        if failed.any():
            kinds[failed] = Kind.ERROR
            ints[failed] = arg.int_values()[failed]
    return result.with_kinds(kinds, ints=ints)


# Arithmetic -----------------------------------------------------------------------------------------------------------


def arithmetic(operation: Arithmetic, left: Vector, right: Vector) -> Vector:
    """Return the numbers, or with ADD the joined texts, of each pair of values."""
    if operation is Arithmetic.ADD and Kind.NVARCHAR in left.present() & right.present():
        both = (left.kinds == Kind.NVARCHAR) & (right.kinds == Kind.NVARCHAR)
        joined = Vector.of_texts(pc.binary_join_element_wise(left.text_values(), right.text_values(), _empty_text()))
        if both.all():
            return joined
        return Vector.choose((~both).astype(np.int64), [joined, _arithmetic(operation, left, right)])
    return _arithmetic(operation, left, right)


def _empty_text() -> Any:
    return pc.cast("", TEXT)


def _arithmetic(operation: Arithmetic, left: Vector, right: Vector) -> Vector:
    left, right = _number_beside(left, right), _number_beside(right, left)
    kinds = left.present() | right.present()
    if operation is Arithmetic.DIVIDE:
        result = _float_arithmetic(operation, as_floats(left), as_floats(right))
    elif kinds == {Kind.BIGINT}:
        return _BIGINT_OPERATIONS[operation](left.int_values(), right.int_values())
    elif Kind.BIGINT not in left.present() & right.present():
        result = _float_arithmetic(operation, as_floats(left), as_floats(right))
    else:
        whole = (left.kinds == Kind.BIGINT) & (right.kinds == Kind.BIGINT)
        # Rows of other kinds must not fail because of the contents of slots they do not use.
        of_bigints = _BIGINT_OPERATIONS[operation](
            np.where(whole, left.int_values(), 0), np.where(whole, right.int_values(), 1)
        )
        of_floats = _float_arithmetic(operation, as_floats(left), as_floats(right))
        result = Vector.choose((~whole).astype(np.int64), [of_bigints, of_floats])
    return strictly(result, (left, right))


def _number_beside(vector: Vector, other: Vector) -> Vector:
    """Return values as numbers; text beside a NULL need not be one: the result is NULL whatever it says."""
    numbers = to_numbers(vector)
    if Kind.ERROR not in numbers.present() or Kind.NULL not in other.present():
        return numbers
    spared = (other.kinds == Kind.NULL) & (vector.kinds != Kind.ERROR)
    return numbers.with_kinds(np.where(spared, np.uint8(Kind.NULL), numbers.kinds))


def as_floats(numbers: Vector) -> FloatArray:
    """Return bigints and floats as float64[n]; zero elsewhere."""
    if numbers.uniform == Kind.FLOAT:
        return numbers.float_values()
    if numbers.uniform == Kind.BIGINT:
        return numbers.int_values().astype(np.float64)
    whole = numbers.kinds == Kind.BIGINT
    floats: FloatArray = np.where(whole, numbers.int_values(), 0).astype(np.float64)
    return np.where(numbers.kinds == Kind.FLOAT, numbers.float_values(), floats)


def finite_floats(values: FloatArray, *, zero_division: BoolArray | None = None) -> Vector:
    """Return floats; an overflow where one is not finite."""
    finite = np.isfinite(values)
    if finite.all():
        return Vector.of_floats(values)
    reasons = np.full(len(values), int(Reason.OVERFLOW), dtype=np.int64)
    if zero_division is not None:
        reasons[zero_division] = Reason.DIVIDE_BY_ZERO
    return Vector(
        np.where(finite, np.uint8(Kind.FLOAT), np.uint8(Kind.ERROR)),
        floats=np.where(finite, values, 0.0) + 0.0,
        ints=reasons,
    )


def _float_arithmetic(operation: Arithmetic, left: FloatArray, right: FloatArray) -> Vector:
    with np.errstate(all="ignore"):
        match operation:
            case Arithmetic.ADD:
                return finite_floats(left + right)
            case Arithmetic.SUBTRACT:
                return finite_floats(left - right)
            case Arithmetic.MULTIPLY:
                return finite_floats(left * right)
            case Arithmetic.MODULO:
                return finite_floats(np.fmod(left, right), zero_division=right == 0)
            case Arithmetic.DIVIDE | Arithmetic.DIVIDE_BIGINTS:
                return finite_floats(left / right, zero_division=right == 0)
            case _:
                assert_never(operation)


def _add(left: Int64Array, right: Int64Array) -> Vector:
    result = left + right
    return Vector.bigints(result).failing(((left ^ result) & (right ^ result)) < 0, Reason.OVERFLOW)


def _subtract(left: Int64Array, right: Int64Array) -> Vector:
    result = left - right
    return Vector.bigints(result).failing(((left ^ right) & (left ^ result)) < 0, Reason.OVERFLOW)


def _multiply(left: Int64Array, right: Int64Array) -> Vector:
    with np.errstate(all="ignore"):
        result = left * right
    near = np.abs(left.astype(np.float64) * right.astype(np.float64)) >= 2.0**62
    if not near.any():
        return Vector.bigints(result)
    wrong = np.zeros(len(result), dtype=np.bool_)
    for place in np.flatnonzero(near).tolist():
        wrong[place] = not -(2**63) <= int(left[place]) * int(right[place]) < 2**63
    return Vector.bigints(result).failing(wrong, Reason.OVERFLOW)


def _divide(left: Int64Array, right: Int64Array) -> Vector:
    zero, overflow = right == 0, (left == _SMALLEST) & (right == -1)
    safe = np.where(zero | overflow, 1, right)
    quotient = left // safe
    quotient += (quotient * safe != left) & ((left < 0) != (safe < 0))
    return Vector.bigints(quotient).failing(overflow, Reason.OVERFLOW).failing(zero, Reason.DIVIDE_BY_ZERO)


def _modulo(left: Int64Array, right: Int64Array) -> Vector:
    zero = right == 0
    result = Vector.bigints(np.fmod(left, np.where(zero | (right == -1), 1, right)))
    return result.failing(zero, Reason.DIVIDE_BY_ZERO)


_BIGINT_OPERATIONS: dict[Arithmetic, Callable[[Int64Array, Int64Array], Vector]] = {
    Arithmetic.ADD: _add,
    Arithmetic.SUBTRACT: _subtract,
    Arithmetic.MULTIPLY: _multiply,
    Arithmetic.DIVIDE_BIGINTS: _divide,
    Arithmetic.MODULO: _modulo,
}


def negate(vector: Vector) -> Vector:
    """Return the opposite numbers."""
    return arithmetic(Arithmetic.SUBTRACT, Vector.bigints(np.zeros(len(vector), dtype=np.int64)), vector)


def bitwise(operation: Bitwise, left: Vector, right: Vector) -> Vector:
    """Return the bits of bigints and bits combined: a bit where both values are bits."""
    bits = (left.kinds == Kind.BIT) & (right.kinds == Kind.BIT)
    left, right = to_numbers(left), to_numbers(right)
    result = Vector.bigints(_BITWISE_UFUNCS[operation](left.int_values(), right.int_values()))
    if bits.any():
        result = result.with_kinds(np.where(bits, np.uint8(Kind.BIT), result.kinds))
    fractions = (left.kinds == Kind.FLOAT) | (right.kinds == Kind.FLOAT)
    return strictly(result.failing(fractions, Reason.OPERAND_TYPE), (left, right))


_BITWISE_UFUNCS: dict[Bitwise, Any] = {
    Bitwise.AND: np.bitwise_and,
    Bitwise.OR: np.bitwise_or,
    Bitwise.XOR: np.bitwise_xor,
}


def bitwise_not(vector: Vector) -> Vector:
    """Return the other bit of a bit, and a bigint with all bits inverted."""
    ones = Vector.bigints(np.full(len(vector), -1, dtype=np.int64))
    bits = vector.kinds == Kind.BIT
    if bits.any():
        ones = ones.with_kinds(
            np.where(bits, np.uint8(Kind.BIT), ones.kinds), ints=np.where(bits, np.int64(1), ones.int_values())
        )
    return bitwise(Bitwise.XOR, vector, ones)


# Comparison -----------------------------------------------------------------------------------------------------------

_NUMERIC = frozenset({Kind.BIGINT, Kind.FLOAT, Kind.BIT})


_PRECEDENCE = np.zeros(len(Kind), dtype=np.int64)
_PRECEDENCE[[Kind.BIT, Kind.BIGINT, Kind.FLOAT]] = (1, 2, 3)
"""By kind: which of two types of numbers is the type of an expression that may be either."""


class _Family(Enum):
    """As what two values are compared."""

    NULL = auto()
    BITS = auto()
    NUMBERS = auto()
    TEXTS = auto()
    DATETIMES = auto()
    OBJECTS = auto()


def compare(comparison: Comparison, left: Vector, right: Vector) -> Vector:
    """Return a bit for each pair of values: whether the comparison holds."""
    kinds = left.uniform, right.uniform
    if None not in kinds and (family := _family(kinds[0], kinds[1])) is not None:
        return strictly(_compare_family(comparison, left, right, family), (left, right))
    pairs = left.kinds.astype(np.int64) * len(Kind) + right.kinds
    parts, places = [], []
    for pair in np.flatnonzero(np.bincount(pairs)).tolist():
        where = np.flatnonzero(pairs == pair)
        one, other = left.take(where), right.take(where)
        family = _family(*divmod(pair, len(Kind)))
        if family is None:
            parts.append(strictly(Vector.errors(Reason.OPERAND_TYPE, len(where)), (one, other)))
        else:
            parts.append(strictly(_compare_family(comparison, one, other, family), (one, other)))
        places.append(where)
    return Vector.scattered(parts, places, len(left))


def matches(operand: Vector, option: Vector) -> Vector:
    """Return whether the operand of a CASE equals an option; values that cannot be compared do not.

    "The types of the when_expressions do not necessarily have to match" (CASE page).
    """
    equal = compare(Comparison.EQUAL, operand, option)
    unlike = (equal.kinds == Kind.ERROR) & (operand.kinds != Kind.ERROR) & (option.kinds != Kind.ERROR)
    if not unlike.any():
        return equal
    return Vector.choose(unlike.astype(np.int64), [equal, Vector.bits(np.zeros(len(equal), dtype=np.bool_))])


def _family(left: int | None, right: int | None) -> _Family | None:
    """Return as what values of two kinds are compared; None if they cannot be."""
    kinds = {left, right}
    if kinds & {Kind.NULL, Kind.ERROR}:
        return _Family.NULL
    if kinds == {Kind.BIT, Kind.NVARCHAR}:
        return _Family.BITS
    if kinds <= _NUMERIC or (kinds <= _NUMERIC | {Kind.NVARCHAR} and kinds & _NUMERIC):
        return _Family.NUMBERS
    if kinds == {Kind.NVARCHAR}:
        return _Family.TEXTS
    if kinds <= {Kind.DATETIME, Kind.NVARCHAR}:
        return _Family.DATETIMES
    return _Family.OBJECTS if kinds in ({Kind.RECORD}, {Kind.ARRAY}) else None


def _compare_family(comparison: Comparison, left: Vector, right: Vector, family: _Family) -> Vector:
    match family:
        case _Family.TEXTS:
            compared = _TEXT_COMPARISONS[comparison](
                without_case(left.text_values()), without_case(right.text_values())
            )
            return Vector.bits(compared.to_numpy(zero_copy_only=False))
        case _Family.BITS:
            one, other = (texts_beside_bits(each) if each.uniform == Kind.NVARCHAR else each for each in (left, right))
            return _compare_family(comparison, one, other, _Family.NUMBERS)
        case _Family.NUMBERS:
            one, other = to_numbers(left), to_numbers(right)
            if one.uniform == other.uniform == Kind.BIGINT:
                return Vector.bits(_UFUNCS[comparison](one.int_values(), other.int_values()))
            return strictly(Vector.bits(_compare_numbers(comparison, one, other)), (one, other))
        case _Family.DATETIMES:
            one, other = to_datetimes(left), to_datetimes(right)
            return strictly(Vector.bits(_UFUNCS[comparison](one.int_values(), other.int_values())), (one, other))
        case _Family.OBJECTS if comparison in (Comparison.EQUAL, Comparison.NOT_EQUAL):
            texts = zip(texts_of(unified(left)), texts_of(unified(right)), strict=True)
            same = np.array([one == other for one, other in texts], dtype=np.bool_)
            return Vector.bits(same == (comparison is Comparison.EQUAL))
        case _Family.OBJECTS:
            return Vector.errors(Reason.OPERAND_TYPE, len(left))
        case _Family.NULL:
            return Vector.nulls(len(left))
        case _:
            assert_never(family)


def _compare_numbers(comparison: Comparison, left: Vector, right: Vector) -> BoolArray:
    """Compare bigints and floats by value, exactly."""
    one, other = as_floats(left), as_floats(right)
    result: BoolArray = _UFUNCS[comparison](one, other)
    # Only a bigint beyond 2^53 can be rounded to a float that it does not equal.
    close = np.flatnonzero(
        (one == other) & (np.abs(one) >= 2.0**53) & ((left.kinds == Kind.BIGINT) | (right.kinds == Kind.BIGINT))
    )
    for row, a, b in zip(close.tolist(), left.take(close).to_list(), right.take(close).to_list(), strict=True):
        if a is not None and b is not None:
            result[row] = _EXACTLY[comparison](a, b)
    return result


_EXACTLY: dict[Comparison, Callable[[Any, Any], bool]] = {
    Comparison.EQUAL: operator.eq,
    Comparison.NOT_EQUAL: operator.ne,
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
}
_UFUNCS: dict[Comparison, Any] = {
    Comparison.EQUAL: np.equal,
    Comparison.NOT_EQUAL: np.not_equal,
    Comparison.LESS: np.less,
    Comparison.LESS_OR_EQUAL: np.less_equal,
    Comparison.GREATER: np.greater,
    Comparison.GREATER_OR_EQUAL: np.greater_equal,
}
_TEXT_COMPARISONS: dict[Comparison, Any] = {
    Comparison.EQUAL: pc.equal,
    Comparison.NOT_EQUAL: pc.not_equal,
    Comparison.LESS: pc.less,
    Comparison.LESS_OR_EQUAL: pc.less_equal,
    Comparison.GREATER: pc.greater,
    Comparison.GREATER_OR_EQUAL: pc.greater_equal,
}


# Logic ----------------------------------------------------------------------------------------------------------------


def is_true(vector: Vector) -> BoolArray:
    """Return bool[n]: which are true, and neither NULL nor a failure."""
    true: BoolArray = (vector.kinds == Kind.BIT) & (vector.int_values() != 0)
    return true


def is_false(vector: Vector) -> BoolArray:
    """Return bool[n]: which are false, and neither NULL nor a failure."""
    false: BoolArray = (vector.kinds == Kind.BIT) & (vector.int_values() == 0)
    return false


def connect(connective: Connective, conditions: Sequence[Vector]) -> Vector:
    """Return the deciding value if any condition has it, else a failure, else NULL, else the other value."""
    every = connective is Connective.AND
    decides = is_false if every else is_true
    decided = np.zeros(len(conditions[0]), dtype=np.bool_)
    for condition in conditions:
        decided |= decides(condition)
    other = strictly(Vector.bits(np.full(len(decided), every)), conditions)
    if not decided.any():
        return other
    deciding = Vector.bits(np.full(len(decided), not every))
    return Vector.choose(decided.astype(np.int64), [other, deciding])


def negation(condition: Vector) -> Vector:
    """Return the opposite of each condition."""
    return strictly(Vector.bits(is_false(condition)), (condition,))


def case(branches: Sequence[tuple[Vector, Vector]], otherwise: Vector) -> Vector:
    """Return the value of the first condition that is true; a failing condition before that is the result."""
    which = np.full(len(otherwise), len(branches) * 2, dtype=np.int64)
    for index in range(len(branches) - 1, -1, -1):
        condition = branches[index][0]
        which[is_true(condition)] = 2 * index
        which[condition.kinds == Kind.ERROR] = 2 * index + 1
    choices = [part for condition, value in branches for part in (value, condition)]
    result = Vector.choose(which, [*choices, otherwise])
    return _of_highest_type(result, [*(value for _, value in branches), otherwise])


def _of_highest_type(result: Vector, values: Sequence[Vector]) -> Vector:
    """Return numbers as the highest type of the numbers among a row's values (CASE page, "Return type")."""
    present = frozenset[int]().union(*(value.present() for value in values)) & _NUMERIC
    if len(present) < 2:
        return result
    highest = np.zeros(len(result), dtype=np.int64)
    for value in values:
        np.maximum(highest, _PRECEDENCE[value.kinds], out=highest)
    wider = (_PRECEDENCE[result.kinds] > 0) & (_PRECEDENCE[result.kinds] < highest)
    if not wider.any():
        return result
    as_float = wider & (highest == _PRECEDENCE[Kind.FLOAT])
    return Vector(
        np.where(as_float, np.uint8(Kind.FLOAT), np.where(wider, np.uint8(Kind.BIGINT), result.kinds)),
        ints=result.ints,
        floats=np.where(as_float, result.int_values().astype(np.float64), result.float_values()),
        texts=result.texts,
        objects=result.objects,
    )


def widened(values: Vector) -> Vector:
    """Return bigints and bits as floats, anything else as it is."""
    whole = (values.kinds == Kind.BIGINT) | (values.kinds == Kind.BIT)
    if not whole.any():
        return values
    return values.with_kinds(
        np.where(whole, np.uint8(Kind.FLOAT), values.kinds),
        floats=np.where(whole, values.int_values().astype(np.float64), values.float_values()),
    )


def coalesce(values: Sequence[Vector]) -> Vector:
    """Return the first value that is not NULL."""
    which = np.full(len(values[0]), len(values) - 1, dtype=np.int64)
    for index in range(len(values) - 2, -1, -1):
        which[values[index].kinds != Kind.NULL] = index
    return Vector.choose(which, values)
