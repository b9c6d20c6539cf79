"""Arithmetic, comparison and logic over vectors, row by row.

An operation on NULL is NULL and on a failure that failure (the left one, if there are two). Bigints stay bigints and
overflow is a failure; with a float the result is float, and what is not finite is a failure. Texts compare without
case, by the code points of their small letters (the worked example of LAST in the query patterns finds 'Start' by
'start', as T-SQL does); text and a number compare as numbers, text and a bit as bits ('true' is 1), text and a datetime
as times, bigint and float as floats. AND and OR are three-valued, and do not look at a failure that cannot change
their result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tidegate.engine.values.conversions import texts_beside_bits, to_datetimes, to_numbers
from tidegate.engine.values.json_lines import texts_of
from tidegate.engine.values.vectors import TEXT, BoolArray, FloatArray, Int64Array, Kind, Reason, Texts, Vector

_SIGN = np.int64(-(2**63))


def strictly(result: Vector, args: Sequence[Vector]) -> Vector:
    """``result`` where no argument is NULL or a failure; else that."""
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


def arithmetic(name: str, left: Vector, right: Vector) -> Vector:
    """add, subtract, multiply, divide, divide_bigints or modulo."""
    if name == "add" and Kind.NVARCHAR in left.present() & right.present():
        both = (left.kinds == Kind.NVARCHAR) & (right.kinds == Kind.NVARCHAR)
        joined = Vector.of_texts(pc.binary_join_element_wise(left.text_values(), right.text_values(), _empty_text()))
        if both.all():
            return joined
        return Vector.choose((~both).astype(np.int64), [joined, _arithmetic(name, left, right)])
    return _arithmetic(name, left, right)


def _empty_text() -> Any:
    return pc.cast("", TEXT)


def _arithmetic(name: str, left: Vector, right: Vector) -> Vector:
    left, right = _number_beside(left, right), _number_beside(right, left)
    kinds = left.present() | right.present()
    if name == "divide":
        result = _float_arithmetic(name, as_floats(left), as_floats(right))
    elif kinds == {Kind.BIGINT}:
        return _BIGINT_OPERATIONS[name](left.int_values(), right.int_values())
    elif Kind.BIGINT not in left.present() & right.present():
        result = _float_arithmetic(name, as_floats(left), as_floats(right))
    else:
        whole = (left.kinds == Kind.BIGINT) & (right.kinds == Kind.BIGINT)
        # Rows of other kinds must not fail for what stands in the slots they do not use.
        of_bigints = _BIGINT_OPERATIONS[name](
            np.where(whole, left.int_values(), 0), np.where(whole, right.int_values(), 1)
        )
        of_floats = _float_arithmetic(name, as_floats(left), as_floats(right))
        result = Vector.choose((~whole).astype(np.int64), [of_bigints, of_floats])
    return strictly(result, (left, right))


def _number_beside(vector: Vector, other: Vector) -> Vector:
    """Values as numbers; text beside a NULL needs not be one: the result is NULL whatever it says."""
    numbers = to_numbers(vector)
    if Kind.ERROR not in numbers.present() or Kind.NULL not in other.present():
        return numbers
    spared = (other.kinds == Kind.NULL) & (vector.kinds != Kind.ERROR)
    return numbers.with_kinds(np.where(spared, np.uint8(Kind.NULL), numbers.kinds))


def as_floats(numbers: Vector) -> FloatArray:
    """Bigints and floats as float64[n]; zero elsewhere."""
    if numbers.uniform == Kind.FLOAT:
        return numbers.float_values()
    if numbers.uniform == Kind.BIGINT:
        return numbers.int_values().astype(np.float64)
    whole = numbers.kinds == Kind.BIGINT
    floats: FloatArray = np.where(whole, numbers.int_values(), 0).astype(np.float64)
    return np.where(numbers.kinds == Kind.FLOAT, numbers.float_values(), floats)


def finite_floats(values: FloatArray, *, zero_division: BoolArray | None = None) -> Vector:
    """Floats; an overflow where one is not finite."""
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


def _float_arithmetic(name: str, left: FloatArray, right: FloatArray) -> Vector:
    with np.errstate(all="ignore"):
        match name:
            case "add":
                return finite_floats(left + right)
            case "subtract":
                return finite_floats(left - right)
            case "multiply":
                return finite_floats(left * right)
            case "modulo":
                return finite_floats(np.fmod(left, right), zero_division=right == 0)
            case _:
                return finite_floats(left / right, zero_division=right == 0)


def _checked(values: Int64Array, wrong: BoolArray, reason: Reason = Reason.OVERFLOW) -> Vector:
    if not wrong.any():
        return Vector.bigints(values)
    return Vector(
        np.where(wrong, np.uint8(Kind.ERROR), np.uint8(Kind.BIGINT)), ints=np.where(wrong, np.int64(reason), values)
    )


def _add(left: Int64Array, right: Int64Array) -> Vector:
    result = left + right
    return _checked(result, ((left ^ result) & (right ^ result)) < 0)


def _subtract(left: Int64Array, right: Int64Array) -> Vector:
    result = left - right
    return _checked(result, ((left ^ right) & (left ^ result)) < 0)


def _multiply(left: Int64Array, right: Int64Array) -> Vector:
    with np.errstate(all="ignore"):
        result = left * right
    near = np.abs(left.astype(np.float64) * right.astype(np.float64)) >= 2.0**62
    if not near.any():
        return Vector.bigints(result)
    wrong = np.zeros(len(result), dtype=np.bool_)
    for place in np.flatnonzero(near).tolist():
        wrong[place] = not -(2**63) <= int(left[place]) * int(right[place]) < 2**63
    return _checked(result, wrong)


def _divide(left: Int64Array, right: Int64Array) -> Vector:
    zero, overflow = right == 0, (left == _SIGN) & (right == -1)
    safe = np.where(zero | overflow, 1, right)
    quotient = left // safe
    quotient += (quotient * safe != left) & ((left < 0) != (safe < 0))
    result = _checked(quotient, overflow)
    return _with_failures(result, zero, Reason.DIVIDE_BY_ZERO)


def _modulo(left: Int64Array, right: Int64Array) -> Vector:
    zero = right == 0
    result = Vector.bigints(np.fmod(left, np.where(zero | (right == -1), 1, right)))
    return _with_failures(result, zero, Reason.DIVIDE_BY_ZERO)


def _with_failures(vector: Vector, failed: BoolArray, reason: Reason) -> Vector:
    if not failed.any():
        return vector
    kinds = np.where(failed, np.uint8(Kind.ERROR), vector.kinds)
    return vector.with_kinds(kinds, ints=np.where(failed, np.int64(reason), vector.int_values()))


_BIGINT_OPERATIONS: dict[str, Callable[[Int64Array, Int64Array], Vector]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide_bigints": _divide,
    "modulo": _modulo,
}


def negate(vector: Vector) -> Vector:
    """The opposite number."""
    return arithmetic("subtract", Vector.bigints(np.zeros(len(vector), dtype=np.int64)), vector)


def bitwise(name: str, left: Vector, right: Vector) -> Vector:
    """bitwise_and, bitwise_or and bitwise_xor of bigints and bits: a bit where both are."""
    bits = (left.kinds == Kind.BIT) & (right.kinds == Kind.BIT)
    left, right = to_numbers(left), to_numbers(right)
    operation: Any = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}[name]
    result = Vector.bigints(operation(left.int_values(), right.int_values()))
    if bits.any():
        result = result.with_kinds(np.where(bits, np.uint8(Kind.BIT), result.kinds))
    fractions = (left.kinds == Kind.FLOAT) | (right.kinds == Kind.FLOAT)
    return strictly(_with_failures(result, fractions, Reason.OPERAND_TYPE), (left, right))


def bitwise_not(vector: Vector) -> Vector:
    """The other bit of a bit, all other bits of a bigint."""
    ones = Vector.bigints(np.full(len(vector), -1, dtype=np.int64))
    bits = vector.kinds == Kind.BIT
    if bits.any():
        ones = ones.with_kinds(
            np.where(bits, np.uint8(Kind.BIT), ones.kinds), ints=np.where(bits, np.int64(1), ones.int_values())
        )
    return bitwise("bitwise_xor", vector, ones)


# Comparison -----------------------------------------------------------------------------------------------------------

_NUMERIC = frozenset({Kind.BIGINT, Kind.FLOAT, Kind.BIT})


def compare(name: str, left: Vector, right: Vector) -> Vector:
    """equal, not_equal, less, less_or_equal, greater or greater_or_equal: bits."""
    kinds = left.uniform, right.uniform
    if None not in kinds and (family := _family(kinds[0], kinds[1])) is not None:
        return strictly(_compare_family(name, left, right, family), (left, right))
    result = Vector.nulls(len(left))
    pairs = left.kinds.astype(np.int64) * len(Kind) + right.kinds
    parts, places = [], []
    for pair in np.flatnonzero(np.bincount(pairs)).tolist():
        where = np.flatnonzero(pairs == pair)
        one, other = left.take(where), right.take(where)
        family = _family(*divmod(pair, len(Kind)))
        if family is None:
            parts.append(strictly(Vector.errors(Reason.OPERAND_TYPE, len(where)), (one, other)))
        else:
            parts.append(strictly(_compare_family(name, one, other, family), (one, other)))
        places.append(where)
    if not parts:
        return result
    back = np.empty(len(left), dtype=np.int64)
    back[np.concatenate(places)] = np.arange(len(left))
    return Vector.concat(parts).take(back)


def without_case(vector: Vector) -> Texts:
    """Texts as they are compared: in small letters."""
    lowered: Texts = pc.utf8_lower(vector.text_values())
    return lowered


def _family(left: int | None, right: int | None) -> str | None:
    """As what values of two kinds are compared."""
    kinds = {left, right}
    if kinds & {Kind.NULL, Kind.ERROR}:
        return "null"
    if kinds == {Kind.BIT, Kind.NVARCHAR}:
        return "bits"
    if kinds <= _NUMERIC or (kinds <= _NUMERIC | {Kind.NVARCHAR} and kinds & _NUMERIC):
        return "numbers"
    if kinds == {Kind.NVARCHAR}:
        return "texts"
    if kinds <= {Kind.DATETIME, Kind.NVARCHAR}:
        return "datetimes"
    return "objects" if kinds in ({Kind.RECORD}, {Kind.ARRAY}) else None


def _compare_family(name: str, left: Vector, right: Vector, family: str) -> Vector:
    match family:
        case "texts":
            compared: BoolArray = getattr(pc, name.replace("_or_equal", "_equal"))(
                without_case(left), without_case(right)
            ).to_numpy(zero_copy_only=False)
            return Vector.bits(compared)
        case "bits":
            one, other = (texts_beside_bits(each) if each.uniform == Kind.NVARCHAR else each for each in (left, right))
            return _compare_family(name, one, other, "numbers")
        case "numbers":
            one, other = to_numbers(left), to_numbers(right)
            if one.uniform == other.uniform == Kind.BIGINT:
                return Vector.bits(_UFUNCS[name](one.int_values(), other.int_values()))
            result = Vector.bits(_UFUNCS[name](as_floats(one), as_floats(other)))
            both_whole = (one.kinds == Kind.BIGINT) & (other.kinds == Kind.BIGINT)
            if both_whole.any():
                of_bigints = Vector.bits(_UFUNCS[name](one.int_values(), other.int_values()))
                result = Vector.choose(both_whole.astype(np.int64), [result, of_bigints])
            return strictly(result, (one, other))
        case "datetimes":
            one, other = to_datetimes(left), to_datetimes(right)
            return strictly(Vector.bits(_UFUNCS[name](one.int_values(), other.int_values())), (one, other))
        case "objects" if name in ("equal", "not_equal"):
            same = np.array([a == b for a, b in zip(texts_of(left), texts_of(right), strict=True)], dtype=np.bool_)
            return Vector.bits(same == (name == "equal"))
        case "objects":
            return Vector.errors(Reason.OPERAND_TYPE, len(left))
        case _:
            return Vector.nulls(len(left))


_UFUNCS: dict[str, Any] = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_or_equal": np.less_equal,
    "greater": np.greater,
    "greater_or_equal": np.greater_equal,
}


# Logic ----------------------------------------------------------------------------------------------------------------


def is_true(vector: Vector) -> BoolArray:
    """bool[n]: true, and neither NULL nor a failure."""
    true: BoolArray = (vector.kinds == Kind.BIT) & (vector.int_values() != 0)
    return true


def is_false(vector: Vector) -> BoolArray:
    """bool[n]: false, and neither NULL nor a failure."""
    false: BoolArray = (vector.kinds == Kind.BIT) & (vector.int_values() == 0)
    return false


def connect(name: str, conditions: Sequence[Vector]) -> Vector:
    """and, or: the deciding value if any condition has it, else a failure, else NULL, else the other value."""
    decides = is_false if name == "and" else is_true
    decided = np.zeros(len(conditions[0]), dtype=np.bool_)
    for condition in conditions:
        decided |= decides(condition)
    other = strictly(Vector.bits(np.full(len(decided), name == "and")), conditions)
    if not decided.any():
        return other
    deciding = Vector.bits(np.full(len(decided), name != "and"))
    return Vector.choose(decided.astype(np.int64), [other, deciding])


def negation(condition: Vector) -> Vector:
    """not."""
    return strictly(Vector.bits(is_false(condition)), (condition,))


def case(branches: Sequence[tuple[Vector, Vector]], otherwise: Vector) -> Vector:
    """CASE: the value of the first condition that is true; a failing condition before that is the result."""
    which = np.full(len(otherwise), len(branches) * 2, dtype=np.int64)
    for index in range(len(branches) - 1, -1, -1):
        condition = branches[index][0]
        which[is_true(condition)] = 2 * index
        which[condition.kinds == Kind.ERROR] = 2 * index + 1
    choices = [part for condition, value in branches for part in (value, condition)]
    return Vector.choose(which, [*choices, otherwise])


def coalesce(values: Sequence[Vector]) -> Vector:
    """The first value that is not NULL."""
    which = np.full(len(values[0]), len(values) - 1, dtype=np.int64)
    for index in range(len(values) - 2, -1, -1):
        which[values[index].kinds != Kind.NULL] = index
    return Vector.choose(which, values)
