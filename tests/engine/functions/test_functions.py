"""Scalar functions: examples from the documents and from the rules, through whole queries."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.streams import Events, program, run, task
from tidegate.engine.expressions.evaluation import SCALARS
from tidegate.engine.functions.dates import add, difference, name, part
from tidegate.engine.functions.declarations import OverColumns
from tidegate.engine.functions.logic import like
from tidegate.engine.values.vectors import Datetime, Failure, Reason, Vector
from tidegate.ordering import TICKS_PER_DAY, Carry, Policy, parse_time
from tidegate.sql.plan.catalog import Form


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("LEN('abc  ')", 3),
        ("LEN('  é')", 3),
        ("LEN('')", 0),
        ("LOWER('ÀB')", "àb"),
        ("UPPER('àb')", "ÀB"),
        ("UPPER('straße')", "STRAßE"),
        ("UPPER('Maẞe')", "MAẞE"),
        ("UPPER('')", ""),
        ("LTRIM('  a ')", "a "),
        ("RTRIM(' a  ')", " a"),
        ("TRIM('  a ')", "a"),
        ("REVERSE('abc')", "cba"),
        ("CHARINDEX('b', 'abcb')", 2),
        ("CHARINDEX('b', 'abcb', 3)", 4),
        ("CHARINDEX('x', 'abc')", 0),
        ("CHARINDEX('a', 'abc', -5)", 1),
        ("CONCAT('a', NULL, 1)", "a1"),
        ("CONCAT_WS('-', 'a', NULL, 'b')", "a-b"),
        *[
            ("CONCAT(missing, missing)", ""),
            ("LEFT('abc', 2)", "ab"),
            ("RIGHT('abc', 2)", "bc"),
            ("RIGHT('abc', 9)", "abc"),
        ],
        ("SUBSTRING('abcdef', 2, 3)", "bcd"),
        ("SUBSTRING('abcdef', 0, 3)", "ab"),
        ("SUBSTRING('abc', 9, 3)", ""),
        *[
            ("STUFF('abcdef', 2, 3, 'ijklmn')", "aijklmnef"),
            ("STUFF('abc', 9, 1, 'x')", ""),
            ("REPLICATE('ab', 3)", "ababab"),
        ],
        *[
            ("REPLACE('abcde', 'cd', 'xx')", "abxxe"),
            ("REPLACE('abcde', '', 'xxx')", "abcde"),
            ("REPLACE('a', missing, 'x')", None),
        ],
        *[
            ("TRANSLATE('2*[3+4]', '[]', '()')", "2*(3+4)"),
            ("UNICODE('é')", 233),
            ("UNICODE('')", None),
            ("NCHAR(233)", "é"),
            ("NCHAR(1114112)", None),
            ("NULL + 'a'", None),
            ("CAST(0.00001 AS nvarchar(max))", "1E-05"),
            ("CAST(0.00012 AS nvarchar(max))", "0.00012"),
            ("JSON_PARSE('{')", None),
            ("JSON_PARSE(5)", None),
            ("CAST(1 AS bit) ^ CAST(0 AS bit)", True),
            ("~ CAST(1 AS bit)", False),
            ("CAST(1 AS bit) & 3", 1),
            ("'a' * NULL", None),
            ("TRIM(' \t\u3000a\u00a0\n')", "a"),
        ],
        *[
            ("SPACE(3)", "   "),
            ("PATINDEX('%100%', 'ABC1001')", 4),
            ("PATINDEX('A%', 'ABC')", 1),
            ("PATINDEX('%C', 'ABC')", 3),
        ],
        ("PATINDEX('B', 'ABC')", 0),
        ("REGEXMATCH('DXE 529', '[0-9][0-9][0-9]')", 5),
        ("REGEXMATCH('abc', 'B')", 2),
        *[
            ("REGEXMATCH('abc', '(')", 0),
            ("ABS(-3)", 3),
            ("ABS(-2.5)", 2.5),
            ("CEILING(1.2)", 2.0),
            ("CEILING(-0.5)", 0.0),
        ],
        *[
            ("FLOOR(-1.2)", -2.0),
            ("FLOOR(7)", 7),
            ("SIGN(-4)", -1),
            ("SIGN(2.5)", 1.0),
            ("SQUARE(3)", 9.0),
            ("SQRT(9)", 3.0),
        ],
        ("EXP(0)", 1.0),
        ("POWER(2, 10)", 1024),
        ("POWER(2.0, 3)", 8.0),
        ("POWER(2, -1)", 0),
        ("ROUND(2.5, 0)", 3.0),
        ("ROUND(-2.5, 0)", -3.0),
        ("ROUND(1250, -2)", 1300),
        ("ROUND(123.9995, 3)", 124.0),
        ("LEN(123)", 3),
        *[
            ("DATEADD(month, 1, '2026-01-31')", "2026-02-28T00:00:00.0000000Z"),
            ("DAY('2026-02-28')", 28),
            ("YEAR(t)", 2026),
        ],
        ("MONTH(t)", 3),
        ("DATEPART(weekday, '2026-01-04')", 1),
        ("DATEPART(week, '2026-01-04')", 2),
        ("DATEPART(iso_week, '2026-01-04')", 1),
        ("DATEPART(isowk, '2026-01-05')", 2),
        ("DATEPART(isoww, '2027-01-03')", 53),
        ("DATEPART(tz, t)", 0),
        ("DATEPART(ns, '2026-01-04T00:00:00.1234567Z')", 123456700),
        ("DATENAME(tzoffset, t)", "+00:00"),
        ("DATENAME(iso_week, '0001-01-01')", "1"),
        ("DATEPART(iso_week, '9999-12-31T23:59:59.9999999Z')", 52),
        ("DATENAME(weekday, t)", "Wednesday"),
        ("DATENAME(month, t)", "March"),
        ("DATENAME(hour, t)", "23"),
        ("DATEDIFF(year, '2025-12-31', '2026-01-01')", 1),
        ("DATEDIFF(week, '2026-01-03', '2026-01-04')", 1),
        *[
            ("DATEDIFF(minute, '2026-01-01T00:00:59Z', '2026-01-01T00:15:58Z')", 15),
            ("DATEDIFF(day, t, '2026-03-01')", -3),
        ],
        ("DATETIMEFROMPARTS(2026, 2, 3, 4, 5, 6, 7)", "2026-02-03T04:05:06.0070000Z"),
        (".5 + -.25e1", -2.0),
        ("DATEDIFF(millisecond, CAST('1970-01-01' AS datetime), t)", 1772668799999),
    ],
)
def test_a_call_gives(call: str, expected: Any) -> None:
    (row,) = run(f"SELECT {call} AS value INTO out FROM input", [{"t": "2026-03-04T23:59:59.9999999Z"}])
    assert repr(row["value"]) == repr(expected)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        *[
            ("SQRT(v)", Reason.OUT_OF_DOMAIN),
            ("POWER(v, 0.5)", Reason.OUT_OF_DOMAIN),
            ("LEFT('a', v)", Reason.OUT_OF_DOMAIN),
        ],
        *[
            ("EXP(v * -1000)", Reason.OVERFLOW),
            ("POWER(v - 9, 99)", Reason.OVERFLOW),
            ("1 / (v + 1)", Reason.DIVIDE_BY_ZERO),
        ],
        ("ABS(v + 1 - 9223372036854775807 - 1)", Reason.OVERFLOW),
        ("DATEADD(year, v * 9999, '2026-01-01')", Reason.DATETIME_RANGE),
        ("v % 0", Reason.DIVIDE_BY_ZERO),
        *[
            ("DATEADD(day, v * 800000, '2026-01-01')", Reason.DATETIME_RANGE),
            ("GetArrayLength(v)", Reason.OPERAND_TYPE),
        ],
        *[
            ("DATETIMEFROMPARTS(2026, 2, 30, 0, 0, 0, 0)", Reason.OUT_OF_DOMAIN),
        ],
        ("TRANSLATE('a', 'ab', 'x')", Reason.OUT_OF_DOMAIN),
        ("REPLICATE('aaaa', 99999999)", Reason.LIMIT),
    ],
)
def test_a_call_fails(call: str, reason: Reason) -> None:
    of = program(f"SELECT {call} AS value INTO out FROM input")
    partial, _ = task(of, "input", "0", Events.of([{"v": -1}]), Policy.none(), Carry())
    assert [error.reason for error in partial.errors] == [reason]
    assert partial.errors[0].rows.tolist() == [0]


def test_null_makes_null() -> None:
    strict = [each for each in SCALARS.values() if each.form is Form.CALL and each.nulls]
    assert len(strict) > 40
    for function in strict:
        if isinstance(function.implementation, OverColumns):
            arguments = [Vector.nulls(2)] * function.signature.least
            assert function.implementation.apply(arguments).to_list() == [None, None], function.spelling


TICKS = st.integers(parse_time("0001-01-03T00:00:00Z"), parse_time("9999-12-28T00:00:00Z"))
MONTH_UNITS = {"month": 1, "quarter": 3, "year": 12}
UNITS = {
    **{"day": TICKS_PER_DAY, "hour": TICKS_PER_DAY // 24, "minute": TICKS_PER_DAY // 1440, "second": 10_000_000},
    **{"millisecond": 10_000, "microsecond": 10},
}
FIRST = datetime(1, 1, 1)


def moment(ticks: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(microseconds=ticks // 10)


def datetimes(values: list[int]) -> Vector:
    return Vector.of([Datetime(value) for value in values])


@given(st.lists(TICKS, min_size=1))
def test_parts_are_those_of_the_calendar(values: list[int]) -> None:
    parts = {unit: part(unit, datetimes(values)).to_list() for unit in ("year", "quarter", "month", "day", "dayofyear")}
    parts |= {
        unit: part(unit, datetimes(values)).to_list()
        for unit in ("week", "weekday", "iso_week", "hour", "minute", "second")
    }
    weekdays = name("weekday", datetimes(values)).to_list()
    for place, value in enumerate(values):
        at = moment(value)
        first_of_year = date(at.year, 1, 1)
        # Sundays begin weeks: count those after January 1, up to the day.
        days = [first_of_year + timedelta(days=day) for day in range(1, (at.date() - first_of_year).days + 1)]
        assert {unit: column[place] for unit, column in parts.items()} == {
            "year": at.year,
            "quarter": (at.month - 1) // 3 + 1,
            "month": at.month,
            "day": at.day,
            "dayofyear": at.timetuple().tm_yday,
            "week": 1 + sum(day.isoweekday() == 7 for day in days),
            "weekday": at.isoweekday() % 7 + 1,
            "iso_week": at.isocalendar().week,
            "hour": at.hour,
            "minute": at.minute,
            "second": at.second,
        }
        assert weekdays[place] == at.strftime("%A")


@given(TICKS, TICKS)
def test_datediff_counts_boundaries(start: int, end: int) -> None:
    for unit, size in UNITS.items():
        expected = (end // size) - (start // size)
        assert difference(unit, datetimes([start]), datetimes([end])).to_list() == [expected]
    for unit, months in MONTH_UNITS.items():
        first, second = ((at.year * 12 + at.month - 1) // months for at in (moment(start), moment(end)))
        assert difference(unit, datetimes([start]), datetimes([end])).to_list() == [second - first]


@given(TICKS, st.integers(-5000, 5000))
def test_dateadd(ticks: int, count: int) -> None:
    for unit, size in UNITS.items():
        (value,) = add(unit, Vector.of([count]), datetimes([ticks])).to_list()
        assert value == ticks + count * size or value == Failure(Reason.DATETIME_RANGE)
    at = moment(ticks)
    for unit, months in MONTH_UNITS.items():
        (value,) = add(unit, Vector.of([count]), datetimes([ticks])).to_list()
        index = at.year * 12 + at.month - 1 + count * months
        if not 12 <= index < 120_000:
            assert value == Failure(Reason.DATETIME_RANGE)
            continue
        year, month = index // 12, index % 12 + 1
        after = date(year + month // 12, month % 12 + 1, 1) if index < 119_999 else None
        last = 31 if after is None else (after - timedelta(days=1)).day
        assert moment(value) == at.replace(year=year, month=month, day=min(at.day, last))
        assert value % 10 == ticks % 10


@given(st.text(alphabet="ab%_[]^-!", max_size=6), st.text(alphabet="ab%_[]^-!", max_size=6))
def test_no_pattern_raises(text: str, pattern: str) -> None:
    assert like(text, pattern) in (True, False)
    assert like(text, "%") is True
    assert like(text, "".join(f"!{character}" for character in text), "!") is True
