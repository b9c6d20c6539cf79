"""What the plan of a query says about how far it is spread, and that it is what runs."""

from __future__ import annotations

import pytest

from tests.job.logs import prepared
from tidegate.engine.sharding.keys import spread_of, unspread


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT COUNT(*) AS c INTO o FROM i GROUP BY k, TumblingWindow(second, 1)", "in parallel by i.k"),
        ("SELECT COUNT(*) AS c INTO o FROM i GROUP BY TumblingWindow(second, 1)", "in parallel by window"),
        (
            "SELECT COUNT(*) AS c INTO o FROM i GROUP BY SlidingWindow(second, 1)",
            "in one shard; to spread it, add a key to GROUP BY, or use a tumbling window, of which tasks send only "
            "totals",
        ),
        (
            "SELECT LAG(v) OVER (LIMIT DURATION(second, 5)) AS b INTO o FROM i",
            "in one shard; to spread it, give every call PARTITION BY with a key that they share",
        ),
        (
            "SELECT COUNT(*) AS c INTO o FROM i TIMESTAMP BY t OVER k GROUP BY k, TumblingWindow(second, 1)",
            "in parallel by the keys of OVER",
        ),
    ],
)
def test_an_operator_alone(sql: str, said: str) -> None:
    assert list(spread_of(prepared(sql).query).values()) == [said]


def test_an_exchange_is_named() -> None:
    step = "SELECT k, MIN(g) AS g FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 1)"
    sql = f"WITH s AS ({step}) SELECT g, COUNT(*) AS c INTO o FROM s GROUP BY g, TumblingWindow(second, 5)"
    assert sorted(spread_of(prepared(sql).query).values()) == [
        "in parallel by i.k",
        "in parallel by s.g, after an exchange",
    ]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT k, LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 5)) AS b INTO o FROM i", []),
        ("SELECT COUNT(*) AS c INTO o FROM i GROUP BY TumblingWindow(second, 1)", []),
        (
            "SELECT LAG(v) OVER (LIMIT DURATION(second, 5)) AS b, LAST(v) OVER (LIMIT DURATION(second, 5)) AS l "
            "INTO o FROM i",
            [
                "LAG and LAST run in one shard of Spark, so on one core; to spread it, give every call PARTITION BY "
                "with a key that they share"
            ],
        ),
        (
            "SELECT COUNT(*) AS c INTO o FROM i GROUP BY SlidingWindow(second, 5)",
            [
                "the window sliding(5 s) runs in one shard of Spark, so on one core; to spread it, add a key to "
                "GROUP BY, or use a tumbling window, of which tasks send only totals"
            ],
        ),
    ],
)
def test_what_one_shard_computes_alone_is_said(sql: str, said: list[str]) -> None:
    assert unspread(prepared(sql).query) == said
