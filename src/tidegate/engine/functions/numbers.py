"""Functions of numbers. A bigint stays a bigint where the result is whole by nature; what is out of range is a failure.

https://learn.microsoft.com/stream-analytics-query/mathematical-functions-azure-stream-analytics
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np

from tidegate.engine.functions.declarations import FunctionGroup
from tidegate.engine.functions.operators import as_floats, finite_floats
from tidegate.engine.values.vectors import Failure, FloatArray, Int64Array, Kind, Reason, Vector
from tidegate.sql.plan.catalog import number_type
from tidegate.sql.plan.nodes import Type

_NUMBERS = FunctionGroup("Mathematics")

_OVERFLOW = Failure(Reason.OVERFLOW)
_OUT_OF_DOMAIN = Failure(Reason.OUT_OF_DOMAIN)
_SMALLEST = -(2**63)


def _keeping_kinds(numbers: Vector, ints: Int64Array, floats: FloatArray) -> Vector:
    return numbers.with_kinds(numbers.kinds, ints=ints, floats=floats + 0.0)


@_NUMBERS.by_columns(
    "ABS", "number number", rule=number_type, fails="the result is no bigint", example=("ABS(-3)", "3")
)
def absolute(numbers: Vector) -> Vector:
    """Return the absolute value, of the type of the argument."""
    ints = numbers.int_values()
    result = _keeping_kinds(numbers, np.abs(ints), np.abs(numbers.float_values()))
    return result.failing((numbers.kinds == Kind.BIGINT) & (ints == _SMALLEST), Reason.OVERFLOW)


@_NUMBERS.by_columns("CEILING", "number number", rule=number_type, example=("CEILING(1.2)", "2.0"))
def ceiling(numbers: Vector) -> Vector:
    """Return the smallest whole number that is not less, of the type of the argument."""
    return _keeping_kinds(numbers, numbers.int_values(), np.ceil(numbers.float_values()))


@_NUMBERS.by_columns("FLOOR", "number number", rule=number_type, example=("FLOOR(-1.2)", "-2.0"))
def floor(numbers: Vector) -> Vector:
    """Return the largest whole number that is not greater, of the type of the argument."""
    return _keeping_kinds(numbers, numbers.int_values(), np.floor(numbers.float_values()))


@_NUMBERS.by_columns("SIGN", "number number", rule=number_type, example=("SIGN(-4)", "-1"))
def sign(numbers: Vector) -> Vector:
    """Return -1, 0 or 1, of the type of the argument."""
    return _keeping_kinds(numbers, np.sign(numbers.int_values()), np.sign(numbers.float_values()))


@_NUMBERS.by_columns("EXP", "number number", Type.FLOAT, fails="the result is no float", example=("EXP(0)", "1.0"))
def exp(numbers: Vector) -> Vector:
    """Return e to the power of the argument.

    One call a value: vectorised exponentials differ in their last bit with the length of the vector.
    """
    return Vector.of([_exp(value) for value in as_floats(numbers).tolist()])


def _exp(value: float) -> float | Failure:
    try:
        return math.exp(value)
    except OverflowError:
        return _OVERFLOW


@_NUMBERS.by_columns("SQRT", "number number", Type.FLOAT, fails="the number is negative", example=("SQRT(9)", "3.0"))
def sqrt(numbers: Vector) -> Vector:
    """Return the square root."""
    values = as_floats(numbers)
    negative = values < 0
    return finite_floats(np.sqrt(np.where(negative, 0.0, values))).failing(negative, Reason.OUT_OF_DOMAIN)


@_NUMBERS.by_columns(
    "SQUARE", "number number", Type.FLOAT, fails="the result is no float", example=("SQUARE(3)", "9.0")
)
def square(numbers: Vector) -> Vector:
    """Return the square."""
    values = as_floats(numbers)
    with np.errstate(over="ignore"):
        return finite_floats(values * values)


@_NUMBERS.by_rows(
    "POWER",
    "base number, exponent number",
    fails="the result is out of range, or no real number",
    example=("POWER(2, 10)", "1024"),
)
def power(base: int | float, exponent: int | float) -> int | float | Failure:
    """Return a power, of the type of the base; of a bigint the fraction is cut off."""
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


@_NUMBERS.by_rows(
    "ROUND",
    "number number, digits integer",
    rule=number_type,
    fails="the result is out of range",
    example=("ROUND(2.5, 0)", "3.0"),
)
def round_half_away(number: int | float, digits: int) -> int | float | Failure:
    """Return a number rounded to decimal places (before the point if negative), halves away from zero.

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
