"""Bad SQL is a diagnostic, never a traceback: queries made by the grammar, queries with their tokens shuffled, and
plain noise."""

import json
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import example_count
from tests.sql.compiling import compile_query
from tests.sql.examples import examples
from tidegate.sql import QueryError
from tidegate.sql.plan.explain import explain
from tidegate.sql.plan.nodes import Query

CASES = Path(__file__).parent.parent / "cases"
QUERIES = [json.loads(path.read_text(encoding="utf-8"))["query"] for path in sorted(CASES.glob("*.json"))]
QUERIES += [example.sql for name in ("plans", "refusals") for example in examples(name)]
TOKENS = [re.findall(r"\w+|'[^']*'|\s+|.", query) for query in QUERIES]
POOL = sorted({token for tokens in TOKENS for token in tokens})


def compiles_or_says_why(sql: str) -> Query | None:
    """The plan; None when it was refused with diagnostics that lie inside the text."""
    try:
        query = compile_query(sql)
    except QueryError as error:
        check_diagnostics(error, sql)
        return None
    assert explain(query)
    assert explain(compile_query(sql)) == explain(query)
    assert explain(pickle.loads(pickle.dumps(query))) == explain(query)
    return query


def check_diagnostics(error: QueryError, sql: str) -> None:
    assert error.diagnostics
    lines = re.split(r"\r\n|\r|\n", sql)
    for diagnostic in error.diagnostics:
        assert 1 <= diagnostic.line <= len(lines)
        assert 1 <= diagnostic.column <= len(lines[diagnostic.line - 1]) + 1
        assert diagnostic.length >= 1
        assert diagnostic.message
        assert "^" in diagnostic.render(sql)
    assert error.render(sql)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    tokens = list(draw(st.sampled_from(TOKENS)))
    for _ in range(draw(st.integers(1, 6))):
        index = draw(st.integers(0, len(tokens)))
        match draw(st.integers(0, 3)):
            case 0:
                del tokens[index : index + 1]
            case 1:
                tokens.insert(index, draw(st.sampled_from(POOL)))
            case 2:
                tokens[index : index + 1] = [draw(st.sampled_from(POOL))]
            case _:
                start = draw(st.integers(0, len(tokens)))
                tokens[index:index] = tokens[start : start + draw(st.integers(1, 20))]
    return "".join(tokens)


NAMES = st.sampled_from(["a", "b", "i", "s", "time", "count", "[group]", "i.x", "s.y", "i.a.b", "System.Timestamp()"])
UNITS = st.sampled_from(["second", "mi", "hh", "day", "month", "fortnight", "a"])
NUMBERS = st.one_of(st.integers(-2, 200), st.sampled_from([0.5, 1e300, 2**63, -(2**63)])).map(str)
TEXTS = st.sampled_from(["'x'", "''", "'2020-01-01'", "'it''s'", "N'ü'"])


def _extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    call = st.sampled_from(["UPPER", "SUM", "COUNT", "LAG", "udf.f", "uda.g", "DATEDIFF", "COALESCE", "TopOne", "Nope"])
    over = st.sampled_from(
        ["", " OVER (LIMIT DURATION(second, 5))", " OVER (ORDER BY a)", " OVER (PARTITION BY a WHEN b = 1)"]
    )
    return st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["+", "-", "*", "/", "%", "&", "|", "^"]), inner),
        st.builds("({})".format, inner),
        st.builds("-{}".format, inner),
        st.builds("{}({}){}".format, call, inner, over),
        st.builds("{}({}, {}){}".format, call, inner, inner, over),
        st.builds("DATEADD({}, {}, {})".format, UNITS, inner, inner),
        st.builds("CASE WHEN {} = {} THEN {} END".format, inner, inner, inner),
        st.builds("CAST({} AS {})".format, inner, st.sampled_from(["bigint", "datetime", "record", "int"])),
    )


VALUES = st.recursive(st.one_of(NAMES, NUMBERS, TEXTS, st.just("*"), st.just("NULL")), _extend, max_leaves=6)
CONDITIONS = st.one_of(
    st.builds("{} {} {}".format, VALUES, st.sampled_from(["=", "<>", "<", "!>"]), VALUES),
    st.builds("{} IS NOT NULL AND NOT {} IN ({}, 2)".format, VALUES, VALUES, VALUES),
    st.builds("DATEDIFF({}, i, s) BETWEEN {} AND {}".format, UNITS, NUMBERS, NUMBERS),
    st.builds("{} LIKE {} OR {} BETWEEN 1 AND {}".format, VALUES, TEXTS, VALUES, VALUES),
)
WINDOWS = st.one_of(
    st.builds("TumblingWindow({}, {})".format, UNITS, NUMBERS),
    st.builds("HoppingWindow({}, {}, {})".format, UNITS, NUMBERS, NUMBERS),
    st.builds("SessionWindow({}, {}, {}) OVER (PARTITION BY {})".format, UNITS, NUMBERS, NUMBERS, NAMES),
    st.builds(
        "Windows(Window('a', SlidingWindow({}, {})), Window('b', Tumbling(Duration(hour, {}))))".format,
        UNITS,
        NUMBERS,
        NUMBERS,
    ),
)


@st.composite
def made(draw: st.DrawFn) -> str:
    def select(into: str) -> str:
        items = ", ".join(
            draw(st.lists(st.builds("{} AS c{}".format, VALUES, st.integers(0, 5)), min_size=1, max_size=3))
        )
        source = draw(
            st.sampled_from(
                ["i", "i TIMESTAMP BY time OVER a", "s", "s AS i", "i TIMESTAMP BY DATEADD(ms, a, '1970-01-01')"]
            )
        )
        text = f"SELECT {items} {into} FROM {source}"
        if draw(st.booleans()):
            text += f" {draw(st.sampled_from(['JOIN', 'LEFT JOIN']))} s ON {draw(CONDITIONS)} AND {draw(CONDITIONS)}"
        if draw(st.booleans()):
            text += f" CROSS APPLY GetArrayElements({draw(VALUES)}) AS v"
        if draw(st.booleans()):
            text += f" WHERE {draw(CONDITIONS)}"
        if draw(st.booleans()):
            text += f" GROUP BY {draw(VALUES)}, {draw(WINDOWS)}"
            text += f" HAVING {draw(CONDITIONS)}" if draw(st.booleans()) else ""
        return text

    steps = "WITH s AS (" + select("") + ") " if draw(st.booleans()) else ""
    union = " UNION " + select("") if draw(st.booleans()) else ""
    return steps + select("INTO o") + union


@given(mutated())
@settings(max_examples=example_count(300))
def test_a_mutated_query(sql: str) -> None:
    compiles_or_says_why(sql)


@given(made())
@settings(max_examples=example_count(300))
def test_a_query_made_by_the_grammar(sql: str) -> None:
    compiles_or_says_why(sql)


@given(st.text())
@settings(max_examples=example_count(200))
def test_noise(sql: str) -> None:
    compiles_or_says_why(sql)


@given(st.lists(st.sampled_from(POOL), max_size=40).map(" ".join))
@settings(max_examples=example_count(200))
def test_words_in_any_order(sql: str) -> None:
    compiles_or_says_why(sql)


@pytest.mark.slow
def test_depth_and_length_have_limits_that_are_said() -> None:
    for sql in (
        "SELECT " + "(" * 5_000 + "1" + ")" * 5_000 + " AS a FROM i",
        "SELECT x FROM i WHERE " + "NOT " * 5_000 + "x = 1",
        "SELECT " + "ABS(" * 5_000 + "x" + ")" * 5_000 + " AS a FROM i",
        "SELECT " + "+".join("x" * 5_000) + " AS a FROM i",
        "SELECT UPPER(x)" + ".y" * 5_000 + " AS a FROM i",
        "SELECT " + "CASE WHEN x = 1 THEN " * 500 + "1" + " END" * 500 + " AS a FROM i",
        "SELECT x FROM " + "(SELECT x FROM " * 500 + "i" + ") AS d" * 500,
        "(" * 5_000 + "SELECT x FROM i" + ")" * 5_000,
        "SELECT " + "9" * 10_000 + " AS a FROM i",
        "WITH s0 AS (SELECT * FROM i)"
        + "".join(f", s{n + 1} AS (SELECT * FROM s{n})" for n in range(600))
        + " SELECT * FROM s600",
        "SELECT a.x FROM i a " + " ".join(f"JOIN i b{n} ON DATEDIFF(second, a, b{n}) = 0" for n in range(600)),
    ):
        assert compiles_or_says_why(sql) is None


@pytest.mark.slow
def test_long_is_not_deep() -> None:
    for sql in (
        "SELECT x FROM i WHERE " + " AND ".join(["x = 1"] * 2_000),
        "SELECT x FROM i WHERE x IN (" + ", ".join(["1"] * 5_000) + ")",
        "SELECT " + " + ".join(["x"] * 150) + " AS a FROM i GROUP BY x, TumblingWindow(second, 1)",
        "WITH s0 AS (SELECT * FROM i)"
        + "".join(f", s{n + 1} AS (SELECT * FROM s{n})" for n in range(60))
        + " SELECT * FROM s60",
        " UNION ".join(["SELECT x FROM i"] * 300),
        "SELECT a.x FROM i a " + " ".join(f"JOIN i b{n} ON DATEDIFF(second, a, b{n}) = 0" for n in range(100)),
    ):
        assert compiles_or_says_why(sql) is not None
