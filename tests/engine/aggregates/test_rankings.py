"""TopOne and CollectTop rank rows, or a value of each, as their pages show."""

from __future__ import annotations

import pytest

from tests.engine.streams import run
from tests.sql.compiling import compile_query
from tidegate.connectors.outputs.shape import shape_of
from tidegate.sql import QueryError
from tidegate.sql.plan.nodes import Type

EVENTS = [{"k": "a", "x": 2, "y": 5}, {"k": "a", "x": 3, "y": 4}, {"k": "a", "x": 1, "y": 1}]
WINDOW = "INTO o FROM input GROUP BY k, TumblingWindow(day, 1)"


def test_a_value_of_the_ranked_rows() -> None:
    assert run(f"SELECT TopOne(x * y) OVER (ORDER BY x DESC) AS top {WINDOW}", EVENTS) == [{"top": 12}]
    assert run(f"SELECT CollectTop(2, x + y) OVER (ORDER BY x) AS top {WINDOW}", EVENTS) == [
        {"top": [{"rank": 1, "value": 2}, {"rank": 2, "value": 7}]}
    ]
    assert run(f"SELECT TopOne() OVER (ORDER BY x) AS top {WINDOW}", EVENTS) == [{"top": EVENTS[2]}]
    over = "SELECT TopOne(y) OVER (ORDER BY x LIMIT DURATION(hour, 1)) AS top INTO o FROM input"
    assert [row["top"] for row in run(over, EVENTS)] == [5, 5, 1]


def test_the_type_is_that_of_the_value() -> None:
    query = compile_query(f"SELECT TopOne() OVER (ORDER BY x) AS r, TopOne(UPPER(k)) OVER (ORDER BY x) AS t {WINDOW}")
    shape = shape_of(query.outputs[0].relation)
    assert shape is not None
    assert [column.type for column in shape] == [Type.RECORD, Type.NVARCHAR]


@pytest.mark.parametrize("select", ["k, COUNT(*) AS n", "CollectTop(5) OVER (ORDER BY x) AS top, k"])
def test_distinct_says_nothing_new_of_groups(select: str) -> None:
    rows = run(f"SELECT DISTINCT {select} {WINDOW}", EVENTS)
    assert rows == run(f"SELECT {select} {WINDOW}", EVENTS)


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT DISTINCT COUNT(*) AS n {WINDOW}",
        "SELECT DISTINCT k FROM input",
        "SELECT DISTINCT k FROM input GROUP BY k, Windows(TumblingWindow(day, 1), HoppingWindow(day, 2, 1))",
    ],
)
def test_distinct_is_refused_where_rows_may_be_equal(sql: str) -> None:
    with pytest.raises(QueryError, match="SELECT DISTINCT"):
        compile_query(sql)
