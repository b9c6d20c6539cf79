"""A function is one declaration: a new one compiles, evaluates and is documented without any other change."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from scripts.reference import functions as documentation
from tests.engine.streams import run
from tests.sql.compiling import compile_query
from tidegate.connectors.outputs.shape import OutputColumn, shape_of
from tidegate.engine import CATALOG
from tidegate.engine.expressions.evaluation import SCALARS
from tidegate.engine.functions.declarations import FunctionGroup
from tidegate.engine.values.vectors import Failure, Reason
from tidegate.sql import QueryError
from tidegate.sql.plan.catalog import Form
from tidegate.sql.plan.nodes import Type

EXAMPLES = [each for each in CATALOG.scalars.values() if each.form is Form.CALL]


@pytest.fixture
def toy() -> Iterator[None]:
    group = FunctionGroup("Toys")

    @group.by_rows(
        "SPIN", "text text, [turns integer]", Type.NVARCHAR, fails="it gets dizzy", example=("SPIN('ab')", "1")
    )
    def spin(text: str, turns: int = 1) -> str | Failure:
        """Return the text turned around."""
        return Failure(Reason.OUT_OF_DOMAIN) if turns > 9 else text[turns:] + text[:turns]

    yield
    del SCALARS["spin"]


@pytest.mark.usefixtures("toy")
def test_a_new_function_needs_its_declaration_alone() -> None:
    events = [{"k": "abc"}, {"k": None}]
    assert run("SELECT Spin(k) AS s, SPIN(k, 2) AS t INTO o FROM input", events) == [
        {"s": "bca", "t": "cab"},
        {"s": None, "t": None},
    ]
    assert run("SELECT SPIN(k, 10) AS s INTO o FROM input", events) == [{"s": None}]
    query = compile_query("SELECT SPIN(k) AS s INTO o FROM i")
    assert shape_of(query.outputs[0].relation) == (OutputColumn("s", Type.NVARCHAR),)
    assert (
        "| `SPIN(text, [turns])` | `nvarchar(max)` | The text turned around. Fails if it gets dizzy. |"
        in documentation()
    )


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT SPIN() AS s FROM i", "SPIN takes 1 to 2 arguments, not 0"),
        ("SELECT SPIN(k, 'x') AS s FROM i", "the text 'x' is not a number"),
        ("SELECT DATEADD(day, 1, 1) AS s, SPINN(k) AS t FROM i", "there is no function SPINN"),
        ("SELECT 1 + CreatePoint(1, 2) AS s, ABS(SPIN(k)) & 1 AS t FROM i", "a record is not a number"),
    ],
)
def test_the_compiler_asks_the_declaration(sql: str, message: str) -> None:
    with pytest.raises(QueryError) as refused:
        compile_query(sql)
    assert message in [each.message for each in refused.value.diagnostics]


def test_what_is_declared_nowhere_does_not_compile() -> None:
    for name in ("SPIN", "like", "as_ordered", "add", "record"):
        with pytest.raises(QueryError):
            compile_query(f"SELECT [{name}](k) AS s FROM i")


def test_a_function_is_declared_once_and_with_an_example() -> None:
    declare = FunctionGroup("Toys").by_rows("UPPER", "text text", example=("UPPER('a')", '"A"'))
    with pytest.raises(ValueError, match="declared twice"):
        declare(str.upper)
    with pytest.raises(ValueError, match="without an example"):
        FunctionGroup("Toys").by_rows("SPIN", "text text")(str.upper)
    with pytest.raises(ValueError, match="not the arguments of a function"):
        FunctionGroup("Toys").by_rows("SPIN", "text", example=("SPIN('a')", '"a"'))(str.upper)


@pytest.mark.parametrize("function", EXAMPLES, ids=lambda function: function.spelling)
def test_the_documented_example_is_true(function: object) -> None:
    (row,) = run(f"SELECT {function.example.call} AS value INTO out FROM input", [{"a": 1}])
    assert json.dumps(row["value"], ensure_ascii=False, separators=(",", ":")) == function.example.result


@pytest.mark.parametrize("table", CATALOG.tables.values(), ids=lambda table: table.spelling)
def test_the_documented_example_of_a_table_function_is_true(table: object) -> None:
    sql = f"SELECT x.* INTO out FROM input CROSS APPLY {table.example.call} AS x"
    for name in (table.spelling, *table.aliases):
        assert run(sql.replace(table.spelling, name), [{"a": 1}]) == [json.loads(table.example.result)]


EVENTS = [{"v": value, "n": name} for value, name in ((2, "a"), (4, "b"), (9, "c"))]


@pytest.mark.parametrize("aggregate", CATALOG.aggregates.values(), ids=lambda aggregate: aggregate.spelling)
def test_the_documented_example_of_an_aggregate_is_true(aggregate: object) -> None:
    if aggregate.name == "uda":
        assert aggregate.example is None
        return
    call, result = aggregate.example
    (row,) = run(f"SELECT {call} AS value INTO out FROM input GROUP BY TumblingWindow(hour, 1)", EVENTS)
    assert json.dumps(row["value"], separators=(",", ":")) == result


@pytest.mark.parametrize("function", CATALOG.analytics.values(), ids=lambda function: function.spelling)
def test_the_documented_example_of_an_analytic_function_is_true(function: object) -> None:
    call, result = function.example
    rows = run(f"SELECT {call} AS value INTO out FROM input", EVENTS)
    assert json.dumps(rows[-1]["value"], separators=(",", ":")) == result
