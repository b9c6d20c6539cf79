"""Expressions over vectors of mixed types, against an evaluator of one row's values written from the rules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.streams import run
from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.frames import Frame, NamedColumns
from tidegate.engine.values.datetimes import parse_datetime
from tidegate.engine.values.vectors import Datetime, Failure, Reason, Vector
from tidegate.sql.plan.nodes import Call, Column, Expr, Literal

COLUMNS = ("a", "b", "c")
CONVERSION, OVERFLOW = Failure(Reason.CONVERSION), Failure(Reason.OVERFLOW)
ZERO, TYPE = Failure(Reason.DIVIDE_BY_ZERO), Failure(Reason.OPERAND_TYPE)

VALUES = (
    st.none()
    | st.integers(-3, 3)
    | st.sampled_from([2**63 - 1, -(2**63), 2**31, 2**53 + 1])
    | st.sampled_from([0.0, -1.5, 1.0, 1e308, 5e-324])
    | st.sampled_from(["", "a", "B", "12", " -7 ", "1.5e3", "2026-01-01T00:00:00Z", "x1", "1e999"])
    | st.booleans()
    | st.sampled_from([0, parse_datetime("2026-01-01")]).map(lambda ticks: Datetime(ticks or 0))
    | st.lists(st.integers(0, 1), max_size=2)
    | st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=2)
)
LEAVES = st.sampled_from(COLUMNS).map(lambda name: Column("t", (name,))) | st.sampled_from(
    [Literal(None), Literal(1), Literal(2.5), Literal("12"), Literal("2026-01-01"), Literal(True)]
)
ARITHMETIC = ("add", "subtract", "multiply", "divide", "modulo")
COMPARISONS = ("equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal")


def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(lambda name, a, b: Call(name, (a, b)), st.sampled_from(ARITHMETIC), inner, inner),
        st.builds(lambda args: Call("coalesce", tuple(args)), st.lists(inner, min_size=2, max_size=3)),
        st.builds(lambda a, b: Call("nullif", (a, b)), inner, inner),
        st.builds(lambda c, a, b: Call("case", (c, a, b)), conditions(inner), inner, inner),
        st.builds(
            lambda c, d, a, b, e: Call("case", (c, a, d, b, e)), conditions(inner), conditions(inner), *[inner] * 3
        ),
        st.builds(lambda a: Call("negate", (a,)), inner),
    )


def conditions(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    plain = st.one_of(
        st.builds(lambda name, a, b: Call(name, (a, b)), st.sampled_from(COMPARISONS), inner, inner),
        st.builds(lambda name, a: Call(name, (a,)), st.sampled_from(("is_null", "is_not_null")), inner),
        st.builds(lambda args: Call("in", tuple(args)), st.lists(inner, min_size=2, max_size=4)),
        st.builds(lambda a, b, c: Call("between", (a, b, c)), inner, inner, inner),
    )
    return plain | st.builds(
        lambda name, parts: Call(name, tuple(parts)) if name != "not" else Call("not", (parts[0],)),
        st.sampled_from(("and", "or", "not")),
        st.lists(plain, min_size=2, max_size=3),
    )


EXPRESSIONS = st.recursive(LEAVES, grown, max_leaves=6)


# One row, from the rules ----------------------------------------------------------------------------------------------


def number(value: Any) -> Any:
    if isinstance(value, (Datetime, list, dict)):
        return TYPE
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return value
    try:
        whole = int(value)
        if -(2**63) <= whole < 2**63:
            return whole
    except ValueError:
        pass
    try:
        converted = float(value)
    except ValueError:
        return CONVERSION
    return converted if math.isfinite(converted) else OVERFLOW


LOOK = object()


def strict(*values: Any) -> Any:
    """What a strict operation gives without looking at values; LOOK if it must look."""
    for value in values:
        if isinstance(value, Failure):
            return value
    return None if None in [value if value is None else 0 for value in values] else LOOK


def arithmetic(name: str, left: Any, right: Any) -> Any:
    if name == "add" and isinstance(left, str) and isinstance(right, str):
        return left + right
    left, right = (value if isinstance(value, Failure) else number(value) for value in (left, right))
    given = strict(left, right)
    if given is not LOOK:
        return given
    if name in ("divide", "modulo") and right == 0:
        return ZERO
    whole = isinstance(left, int) and isinstance(right, int)
    try:
        match name:
            case "add":
                result = left + right if whole else float(left) + float(right)
            case "subtract":
                result = left - right if whole else float(left) - float(right)
            case "multiply":
                result = left * right if whole else float(left) * float(right)
            case "divide":
                return finite(float(left) / float(right))
            case _:
                result = int(math.copysign(abs(left) % abs(right), left)) if whole and abs(left) < 2**53 else None
                if result is None:
                    result = (abs(left) % abs(right)) * (1 if left >= 0 else -1) if whole else math.fmod(left, right)
    except OverflowError:
        return OVERFLOW
    if whole:
        return result if -(2**63) <= result < 2**63 else OVERFLOW
    return finite(result)


def finite(value: float) -> Any:
    return value + 0.0 if math.isfinite(value) else OVERFLOW


def compare(name: str, left: Any, right: Any) -> Any:
    given = strict(left, right)
    if given is not LOOK:
        return given
    kinds = {kind(left), kind(right)}
    if kinds == {"text"}:
        left, right = left.lower(), right.lower()
    elif kinds <= {"number", "text"}:
        left, right = number(left), number(right)
        if strict(left, right) is not LOOK:
            return strict(left, right)
    elif kinds <= {"datetime", "text"}:
        left, right = (parse_datetime(value) if isinstance(value, str) else int(value) for value in (left, right))
        if left is None or right is None:
            return CONVERSION
    elif kinds in ({"record"}, {"array"}) and name in ("equal", "not_equal"):
        return (left == right) == (name == "equal")
    else:
        return TYPE
    results = {"equal": left == right, "not_equal": left != right, "less": left < right, "greater": left > right}
    return results.get(name, (left <= right) if name == "less_or_equal" else (left >= right))


def kind(value: Any) -> str:
    if isinstance(value, Datetime):
        return "datetime"
    names: dict[type[Any], str] = {str: "text", dict: "record", list: "array"}
    return names.get(type(value), "number")


def connect(name: str, values: list[Any]) -> Any:
    decides = name == "or"
    if any(value is decides for value in values):
        return decides
    given = strict(*values)
    return not decides if given is LOOK else given


def of_highest_type(value: Any, args: list[Any]) -> Any:
    """Return the result of a CASE as the highest type of the numbers among its values."""
    precedence: list[type[Any]] = [bool, int, float]
    types = [precedence.index(type(one)) for one in (*args[1:-1:2], args[-1]) if type(one) in precedence]
    return precedence[max(types)](value) if type(value) in precedence else value


def slowly(expr: Expr, row: dict[str, Any]) -> Any:
    if isinstance(expr, Column):
        return row[expr.path[0]]
    if isinstance(expr, Literal):
        return expr.value
    assert isinstance(expr, Call)
    name, args = expr.function, [slowly(arg, row) for arg in expr.args]
    match name:
        case "coalesce":
            return next((value for value in args if value is not None), None)
        case "nullif":
            same = compare("equal", *args)
            return same if isinstance(same, Failure) else (None if same is True else args[0])
        case "negate":
            return arithmetic("subtract", 0, args[0])
        case "case":
            for condition, value in zip(args[:-1:2], args[1:-1:2], strict=True):
                if condition is True or isinstance(condition, Failure):
                    return of_highest_type(value, args) if condition is True else condition
            return of_highest_type(args[-1], args)
        case "is_null" | "is_not_null":
            return args[0] if isinstance(args[0], Failure) else (args[0] is None) == (name == "is_null")
        case "in":
            return connect("or", [compare("equal", args[0], option) for option in args[1:]])
        case "between":
            low, high = compare("greater_or_equal", args[0], args[1]), compare("less_or_equal", args[0], args[2])
            return connect("and", [low, high])
        case "and" | "or":
            return connect(name, args)
        case "not":
            given = strict(args[0])
            return not args[0] if given is LOOK else given
    return arithmetic(name, *args) if name in ARITHMETIC else compare(name, *args)


def frame_of(rows: list[tuple[Any, ...]]) -> Frame:
    columns = tuple(Vector.of([row[index] for row in rows]) for index in range(len(COLUMNS)))
    return Frame(np.zeros(len(rows), dtype=np.int64), {"t": NamedColumns(COLUMNS, columns)})


@given(EXPRESSIONS | conditions(LEAVES), st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=8))
def test_a_column_of_values_is_computed_as_each_value_is(expr: Expr, rows: list[tuple[Any, ...]]) -> None:
    expected = [slowly(expr, dict(zip(COLUMNS, row, strict=True))) for row in rows]
    assert repr(evaluate(expr, frame_of(rows)).to_list()) == repr(expected)
    for row, value in zip(rows, expected, strict=True):
        assert repr(evaluate(expr, frame_of([row])).to_list()) == repr([value])


# Whole queries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("CAST(2.9 AS bigint)", 2),
        ("CAST(-2.9 AS bigint)", -2),
        ("CAST(' 42 ' AS bigint)", 42),
        ("TRY_CAST('4.2' AS bigint)", None),
        ("TRY_CAST('NaN' AS float)", None),
        ("CAST('1e3' AS float)", 1000.0),
        ("CAST(8.0 AS nvarchar(max))", "8"),
        ("CAST(0.1 AS nvarchar(max))", "0.1"),
        ("CAST(1.5e300 AS nvarchar(max))", "1.5E+300"),
        ("CAST(CAST('2026-01-01' AS datetime) AS nvarchar(max))", "2026-01-01T00:00:00.0000000Z"),
        ("CAST(2 AS bit)", True),
        ("CAST(0.0 AS bit)", False),
        ("CAST(CAST(1 AS bit) AS float)", 1.0),
        ("TRY_CAST(r AS array)", None),
        ("TRY_CAST(r AS bigint)", None),
        ("CAST(r AS nvarchar(max))", '{"x":1,"y":"é"}'),
        ("CASE WHEN n > 5 THEN 1 WHEN n < 5 THEN 2 ELSE 3 END", 2),
        ("CASE n WHEN 4 THEN 'four' END", "four"),
        ("CASE WHEN n = 4 THEN 1 ELSE 2.5 END", 1.0),
        ("CASE WHEN n = 4 THEN n ELSE 2.5 END", 4.0),
        ("CASE n WHEN 4 THEN n WHEN 5 THEN f END", 4.0),
        ("CASE WHEN n = 4 THEN n ELSE CAST(missing AS float) END", 4.0),
        ("CASE WHEN n = 4 THEN CAST(1 AS bit) ELSE n END", 1),
        ("CASE WHEN n = 4 THEN n ELSE missing END", 4),
        ("CASE WHEN n = 4 THEN n ELSE 'many' END", 4),
        ("CASE WHEN n = 4 THEN 'four' ELSE 2.5 END", "four"),
        ("GetType(CASE WHEN n = 4 THEN 1 ELSE 2.5 END)", "float"),
        ("COALESCE(1, 2.5)", 1),
        ("NULLIF(1, 2.5)", 1),
        ("CAST(o AS nvarchar(max))", '{"z":{"b":1,"a":2.0},"y":[{"d":1,"c":null}]}'),
        ("CONCAT(o, '')", '{"z":{"b":1,"a":2.0},"y":[{"d":1,"c":null}]}'),
        ("CASE WHEN 9007199254740993 = 9007199254740992.0 THEN 1 ELSE 0 END", 0),
        ("CASE WHEN 9007199254740993 > 9007199254740992.0 THEN 1 ELSE 0 END", 1),
        ('CASE WHEN r = JSON_PARSE(\'{"Y":"É","x":1.0}\') THEN 1 ELSE 0 END', 1),
        ("COALESCE(missing, n)", 4),
        ("NULLIF(n, 4)", None),
        ("GetType(r)", "record"),
        ("GetType(n)", "bigint"),
        ("GetType(missing)", None),
        ("GetArrayElement(l, 1)", "two"),
        ("GetArrayElement(l, 9)", None),
        ("GetArrayLength(l)", 3),
        ("GetRecordPropertyValue(r, 'X')", 1),
        ("GetRecordPropertyValue(r, 'z')", None),
        ("JSON_PARSE('{\"a\":[1,2.0]}')", {"a": [1, 2.0]}),
        ("CASE WHEN s LIKE 'a%z_' THEN 1 ELSE 0 END", 1),
        ("CASE WHEN s LIKE '[b-d]%' THEN 1 ELSE 0 END", 0),
        ("CASE WHEN '50%' LIKE '50!%' ESCAPE '!' THEN 1 ELSE 0 END", 1),
        ("n / 8", 0.5),
        ("7 / 2", 3),
        ("LEN(s) / -2", -2),
        ("n & 6", 4),
        ("n | 3", 7),
        ("n ^ 5", 1),
        ("~n", -5),
        ("CASE WHEN CAST(1 AS bit) = 'TRUE' THEN 1 ELSE 0 END", 1),
        ("CASE WHEN 'false' < CAST(1 AS bit) THEN 1 ELSE 0 END", 1),
        ("CASE WHEN CAST(0 AS bit) = '0' THEN 1 ELSE 0 END", 1),
    ],
)
def test_conversions_and_conditions(expression: str, expected: Any) -> None:
    event = {"n": 4, "r": {"x": 1, "y": "é"}, "l": [1, "two", None], "s": "abcz!", "f": 1.5}
    event["o"] = {"z": {"b": 1, "a": 2.0}, "y": [{"d": 1, "c": None}]}
    (row,) = run(f"SELECT {expression} AS value INTO out FROM input", [event])
    assert repr(row["value"]) == repr(expected)


def test_numbers_may_have_very_many_digits() -> None:
    """More than Python itself reads."""
    zeros, long = "0" * 5000, "7" * 5000
    found = run(
        "SELECT TRY_CAST(v AS bigint) AS i, TRY_CAST(v AS float) AS f, TRY_CAST(v AS bit) AS b, "
        "TRY_CAST(v AS datetime) AS t, CASE WHEN GetType(v) = 'bigint' THEN v + 1 ELSE 0 END AS n "
        "INTO out FROM input",
        [{"v": f"-{zeros}12"}, {"v": long}, {"v": f"0.{zeros}1"}, {"v": f"2026-01-01T00:00:00.{zeros}1Z"}],
    )
    assert [row["i"] for row in found] == [-12, None, None, None]
    assert [row["f"] for row in found] == [-12.0, None, 0.0, None]
    assert [row["t"] for row in found] == [None, None, None, "2026-01-01T00:00:00.0000000Z"]
    assert run("SELECT v + 1 AS n INTO out FROM input", [{"v": long}, {"v": f"{zeros}9223372036854775806"}]) == [
        {"n": 2**63 - 1}
    ]


def test_a_row_that_fails_is_lost_alone_and_counted() -> None:
    events = [{"v": "1"}, {"v": "x"}, {"v": None}, {"v": "9e999"}]
    assert run("SELECT CAST(v AS float) AS v INTO out FROM input", events) == [{"v": 1.0}, {"v": None}]
