"""Functions of numbers. A bigint stays a bigint where the result is whole by nature; what is out of range is a failure.

https://learn.microsoft.com/stream-analytics-query/mathematical-functions-azure-stream-analytics
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np

from tidegate.engine.expressions.operators import as_floats, finite_floats
from tidegate.engine.values.vectors import Failure, FloatArray, Int64Array, Kind, Reason, Vector

_OVERFLOW = Failure(Reason.OVERFLOW)
_OUT_OF_DOMAIN = Failure(Reason.OUT_OF_DOMAIN)
_SMALLEST = -(2**63)


def _keeping_kinds(numbers: Vector, ints: Int64Array, floats: FloatArray) -> Vector:
    return numbers.with_kinds(numbers.kinds, ints=ints, floats=floats + 0.0)


def absolute(numbers: Vector) -> Vector:
    """ABS."""
    ints = numbers.int_values()
    result = _keeping_kinds(numbers, np.abs(ints), np.abs(numbers.float_values()))
    wrong = (numbers.kinds == Kind.BIGINT) & (ints == _SMALLEST)
    if not wrong.any():
        return result
    kinds = np.where(wrong, np.uint8(Kind.ERROR), numbers.kinds)
    return result.with_kinds(kinds, ints=np.where(wrong, np.int64(Reason.OVERFLOW), result.int_values()))


def ceiling(numbers: Vector) -> Vector:
    """CEILING."""
    return _keeping_kinds(numbers, numbers.int_values(), np.ceil(numbers.float_values()))


def floor(numbers: Vector) -> Vector:
    """FLOOR."""
    return _keeping_kinds(numbers, numbers.int_values(), np.floor(numbers.float_values()))


def sign(numbers: Vector) -> Vector:
    """SIGN: −1, 0 or 1, of the argument's type."""
    return _keeping_kinds(numbers, np.sign(numbers.int_values()), np.sign(numbers.float_values()))


def exp(numbers: Vector) -> Vector:
    """EXP: float. One call a value: vectorised exponentials differ in their last bit with the length of the vector."""
    return Vector.of([_exp(value) for value in as_floats(numbers).tolist()])


def _exp(value: float) -> float | Failure:
    try:
        return math.exp(value)
    except OverflowError:
        return _OVERFLOW


def sqrt(numbers: Vector) -> Vector:
    """SQRT: float; a failure of a negative number."""
    values = as_floats(numbers)
    negative = values < 0
    result = finite_floats(np.sqrt(np.where(negative, 0.0, values)))
    if not negative.any():
        return result
    kinds = np.where(negative, np.uint8(Kind.ERROR), result.kinds)
    return result.with_kinds(kinds, ints=np.where(negative, np.int64(Reason.OUT_OF_DOMAIN), result.int_values()))


def square(numbers: Vector) -> Vector:
    """SQUARE: float."""
    values = as_floats(numbers)
    with np.errstate(over="ignore"):
        return finite_floats(values * values)


def power(base: int | float, exponent: int | float) -> int | float | Failure:
    """POWER: of the type of ``base``; a bigint's fraction is cut off."""
    try:
        if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
            if abs(base) > 1 and exponent > 63:
                return _OVERFLOW
            whole: int = base**exponent
            return whole
        result: float = math.pow(base, exponent)
    except OverflowError:
        return _OVERFLOW
    except ValueError:
        return _OUT_OF_DOMAIN
    if isinstance(base, int):
        return int(result) if abs(result) < 2.0**63 else _OVERFLOW
    return result


def round_half_away(number: int | float, digits: int) -> int | float | Failure:
    """ROUND: to a number of decimal places (negative: before the point), halves away from zero; keeps the type.

    A float is what its shortest decimal text says: ROUND(123.9995, 3) is 124.0.
    """
    if isinstance(number, int):
        if digits >= 0:
            return number
        unit: int = 10 ** min(-digits, 20)
        whole, rest = divmod(abs(number), unit)
        rounded = (whole + (2 * rest >= unit)) * unit
        return rounded if number >= 0 else -rounded
    if digits > 340:
        return number
    if digits < -310:
        return math.copysign(0.0, number)
    rounded_text = Decimal(repr(number)).quantize(Decimal(1).scaleb(-digits), context=_ROUNDING)
    result = float(rounded_text)
    return result if math.isfinite(result) else _OVERFLOW


_ROUNDING = Context(prec=1400, rounding=ROUND_HALF_UP, Emin=-999_999, Emax=999_999)
