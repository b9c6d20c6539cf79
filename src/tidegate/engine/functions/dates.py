"""Functions of datetimes.

DATEDIFF counts the boundaries of a unit that lie between two times, not the units that have passed; for second and
shorter units it counts from 0001-01-01, weeks begin on Sunday. DATEADD of months keeps the day, or takes the month's
last one. https://learn.microsoft.com/stream-analytics-query/date-and-time-functions-azure-stream-analytics
"""

from __future__ import annotations

from datetime import date

import numpy as np

from tidegate.engine.functions.declarations import FunctionGroup
from tidegate.engine.functions.operators import Arithmetic, arithmetic
from tidegate.engine.values.vectors import Datetime, Failure, Int64Array, Kind, Reason, Vector
from tidegate.ordering import (
    TICKS_PER_DAY,
    TICKS_PER_HOUR,
    TICKS_PER_MICROSECOND,
    TICKS_PER_MILLISECOND,
    TICKS_PER_MINUTE,
    TICKS_PER_SECOND,
)
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS
from tidegate.sql.plan.nodes import Type

_DATES = FunctionGroup("Date and time")

_TICKS = {
    "week": 7 * TICKS_PER_DAY,
    "weekday": TICKS_PER_DAY,
    "dayofyear": TICKS_PER_DAY,
    "day": TICKS_PER_DAY,
    "hour": TICKS_PER_HOUR,
    "minute": TICKS_PER_MINUTE,
    "second": TICKS_PER_SECOND,
    "millisecond": TICKS_PER_MILLISECOND,
    "microsecond": TICKS_PER_MICROSECOND,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_FIRST_DAY = FIRST_TICKS // TICKS_PER_DAY
_LAST_MONTH = 9999 * 12 - 1
_MONTH_NAMES = [date(2000, month, 1).strftime("%B") for month in range(1, 13)]
_DAY_NAMES = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
_SUNDAY_OFFSET = 1  # 0001-01-01 was a Monday, weeks begin on Sunday


def _days(ticks: Int64Array) -> Int64Array:
    """Return days since 0001-01-01."""
    return (ticks - FIRST_TICKS) // TICKS_PER_DAY


def _calendar(ticks: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return months since 0001-01, and the day of the month from 1."""
    days = (_days(ticks) + _FIRST_DAY).astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    return months.astype(np.int64) + 1969 * 12, (days - months).astype(np.int64) + 1


def _first_days(months: Int64Array) -> Int64Array:
    """Return the days from 1970-01-01 to the first of months since 0001-01."""
    firsts: Int64Array = (months - 1969 * 12).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return firsts


def _usable(times: Vector) -> Int64Array:
    """Return ticks; any valid time where there is none."""
    return np.where(times.kinds == Kind.DATETIME, times.int_values(), 0)


@_DATES.of_unit("DATEPART", "unit part, time datetime", Type.BIGINT, example=("DATEPART(iso_week, '2027-01-01')", "53"))
def part(unit: str, times: Vector) -> Vector:
    """Return a part of a time. Weekday 1 is Sunday; week 1 begins on January 1, week 2 on the next Sunday. A week of
    ISO 8601 (`iso_week`) begins on Monday; the first one has the year's first Thursday. The offset (`tz`) is 0.
    """
    ticks = _usable(times)
    return Vector.bigints(_part(unit, ticks))


@_DATES.by_columns("DAY", "time datetime", Type.BIGINT, example=("DAY('2026-02-28')", "28"))
def day(times: Vector) -> Vector:
    """Return the day of the month."""
    return part("day", times)


@_DATES.by_columns("MONTH", "time datetime", Type.BIGINT, example=("MONTH('2026-02-28')", "2"))
def month(times: Vector) -> Vector:
    """Return the month."""
    return part("month", times)


@_DATES.by_columns("YEAR", "time datetime", Type.BIGINT, example=("YEAR('2026-02-28')", "2026"))
def year(times: Vector) -> Vector:
    """Return the year."""
    return part("year", times)


def _part(unit: str, ticks: Int64Array) -> Int64Array:
    match unit:
        case "year":
            return _calendar(ticks)[0] // 12 + 1
        case "quarter":
            return _calendar(ticks)[0] % 12 // 3 + 1
        case "month":
            return _calendar(ticks)[0] % 12 + 1
        case "day":
            return _calendar(ticks)[1]
        case "dayofyear":
            return _day_of_year(ticks)
        case "week":
            first_weekday = (_days(ticks) - _day_of_year(ticks) + 1 + _SUNDAY_OFFSET) % 7
            return (_day_of_year(ticks) - 1 + first_weekday) // 7 + 1
        case "iso_week":
            # The week is that of its Thursday.
            thursday = ticks + (3 - _days(ticks) % 7) * TICKS_PER_DAY
            return (_day_of_year(thursday) - 1) // 7 + 1
        case "weekday":
            return (_days(ticks) + _SUNDAY_OFFSET) % 7 + 1
        case "hour":
            return (ticks - FIRST_TICKS) // TICKS_PER_HOUR % 24
        case "minute":
            return (ticks - FIRST_TICKS) // TICKS_PER_MINUTE % 60
        case "second":
            return (ticks - FIRST_TICKS) // TICKS_PER_SECOND % 60
        case "millisecond":
            return (ticks - FIRST_TICKS) // TICKS_PER_MILLISECOND % 1_000
        case "nanosecond":
            return (ticks - FIRST_TICKS) % TICKS_PER_SECOND * 100
        case "tzoffset":
            return np.zeros(len(ticks), dtype=np.int64)
        case _:
            return (ticks - FIRST_TICKS) // TICKS_PER_MICROSECOND % 1_000_000


def _day_of_year(ticks: Int64Array) -> Int64Array:
    months, _ = _calendar(ticks)
    return _days(ticks) + _FIRST_DAY - _first_days(months // 12 * 12) + 1


@_DATES.of_unit(
    "DATENAME", "unit part, time datetime", Type.NVARCHAR, example=("DATENAME(month, '2026-03-04')", '"March"')
)
def name(unit: str, times: Vector) -> Vector:
    """Return the name of the month or weekday, +00:00 for tz, for other parts the number of `DATEPART` as text."""
    if unit == "tzoffset":
        return Vector.constant("+00:00", len(times))
    numbers = _part(unit, _usable(times))
    if unit in ("month", "weekday"):
        names = Vector.of(_MONTH_NAMES if unit == "month" else _DAY_NAMES)
        return names.take(numbers - 1)
    return Vector.of([str(number) for number in numbers.tolist()])


@_DATES.of_unit(
    "DATEDIFF",
    "unit unit, start datetime, end datetime",
    Type.BIGINT,
    example=("DATEDIFF(year, '2025-12-31', '2026-01-01')", "1"),
)
def difference(unit: str, starts: Vector, ends: Vector) -> Vector:
    """Return how many boundaries of the unit lie between two times."""
    start, end = _usable(starts), _usable(ends)
    if unit in _MONTHS:
        size = _MONTHS[unit]
        return Vector.bigints(_calendar(end)[0] // size - _calendar(start)[0] // size)
    offset = _SUNDAY_OFFSET * TICKS_PER_DAY if unit == "week" else 0
    size = _TICKS[unit]
    return Vector.bigints((end - FIRST_TICKS + offset) // size - (start - FIRST_TICKS + offset) // size)


@_DATES.of_unit(
    "DATEADD",
    "unit unit, count integer, time datetime",
    Type.DATETIME,
    fails="the result lies outside of the years 1 to 9999",
    example=("DATEADD(month, 1, '2026-01-31')", '"2026-02-28T00:00:00.0000000Z"'),
)
def add(unit: str, numbers: Vector, times: Vector) -> Vector:
    """Return the time that many units later. Months keep the day, or take the last one of the month."""
    if unit in _MONTHS:
        return _add_months(arithmetic(Arithmetic.MULTIPLY, numbers, _same(_MONTHS[unit], numbers)), times)
    ticks = arithmetic(Arithmetic.MULTIPLY, numbers, _same(_TICKS[unit], numbers))
    sums = arithmetic(Arithmetic.ADD, ticks, Vector.bigints(_usable(times)))
    return _in_calendar(sums, sums.int_values())


def _same(number: int, like: Vector) -> Vector:
    return Vector.bigints(np.full(len(like), number, dtype=np.int64))


def _add_months(numbers: Vector, times: Vector) -> Vector:
    ticks = _usable(times)
    months, day = _calendar(ticks)
    counts = np.clip(numbers.int_values(), -200_000, 200_000)
    target = months + counts
    inside = np.clip(target, 0, _LAST_MONTH)
    first = _first_days(inside)
    length = _first_days(np.minimum(inside + 1, _LAST_MONTH + 1)) - first
    result = (first + np.minimum(day, length) - 1) * TICKS_PER_DAY + (ticks - FIRST_TICKS) % TICKS_PER_DAY
    beyond = np.where(target == inside, result, np.int64(-(2**63)))
    return _in_calendar(numbers, beyond)


def _in_calendar(numbers: Vector, ticks: Int64Array) -> Vector:
    """Return ``ticks`` as datetimes, where ``numbers`` are bigints."""
    wrong = (ticks < FIRST_TICKS) | (ticks > LAST_TICKS) | (numbers.kinds != Kind.BIGINT)
    return Vector.datetimes(ticks).failing(wrong, Reason.DATETIME_RANGE)


@_DATES.by_rows(
    "DATETIMEFROMPARTS",
    "year integer, month integer, day integer, hour integer, minute integer, second integer, millisecond integer",
    Type.DATETIME,
    fails="there is no such time",
    example=("DATETIMEFROMPARTS(2026, 2, 3, 4, 5, 6, 7)", '"2026-02-03T04:05:06.0070000Z"'),
)
def from_parts(
    year: int, month: int, day: int, hour: int, minute: int, second: int, millisecond: int
) -> Datetime | Failure:
    """Return the time with these parts."""
    wrong = Failure(Reason.OUT_OF_DOMAIN)
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= millisecond < 1000):
        return wrong
    try:
        days = date(year, month, day).toordinal() - 719_163
    except (ValueError, OverflowError):
        return wrong
    of_day = ((hour * 60 + minute) * 60 + second) * TICKS_PER_SECOND + millisecond * TICKS_PER_MILLISECOND
    return Datetime(days * TICKS_PER_DAY + of_day)
