"""By which keys the operators of a query are divided, and which rows go through an exchange."""

from __future__ import annotations

import pytest

from tests.job.logs import prepared
from tidegate.engine.sharding.keys import Division
from tidegate.engine.sharding.payloads import Sharding

STEP = "SELECT k, g, COUNT(*) AS c FROM i TIMESTAMP BY t GROUP BY k, g, TumblingWindow(second, 1)"


def divided(sql: str) -> list[tuple[int, Division, tuple[int, ...], tuple[bool, ...]]]:
    placed = Sharding.of(prepared(sql).sharded(), 4).placements
    return [(one.level, one.division, one.keys, one.exchanged) for one in placed]


@pytest.mark.parametrize(
    ("sql", "division"),
    [
        ("SELECT k FROM i", Division.ROWS),
        ("SELECT COUNT(*) AS c FROM i GROUP BY k, TumblingWindow(second, 1)", Division.KEYS),
        ("SELECT COUNT(*) AS c FROM i GROUP BY TumblingWindow(second, 1)", Division.PANES),
        ("SELECT TopOne() OVER (ORDER BY v) AS c FROM i GROUP BY TumblingWindow(second, 1)", Division.PANES),
        ("SELECT COUNT(*) AS c FROM i GROUP BY HoppingWindow(second, 2, 1)", Division.NONE),
        ("SELECT COUNT(*) AS c FROM i GROUP BY SlidingWindow(second, 1)", Division.NONE),
        ("SELECT COUNT(*) AS c FROM i GROUP BY k, SlidingWindow(second, 1)", Division.KEYS),
        ("SELECT COUNT(*) AS c FROM i GROUP BY k, SessionWindow(second, 1, 5)", Division.NONE),
        ("SELECT COUNT(*) AS c FROM i GROUP BY k, SessionWindow(second, 1, 5) OVER (PARTITION BY k)", Division.KEYS),
        ("SELECT LAG(v) OVER (LIMIT DURATION(second, 5)) AS b FROM i", Division.NONE),
        ("SELECT LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 5)) AS b FROM i", Division.KEYS),
        (
            "SELECT LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 5)) AS b, "
            "LAG(v) OVER (PARTITION BY g LIMIT DURATION(second, 5)) AS c FROM i",
            Division.NONE,
        ),
        (
            "SELECT COUNT(*) AS c FROM i TIMESTAMP BY t OVER k GROUP BY k, TumblingWindow(second, 1)",
            Division.SUBSTREAMS,
        ),
    ],
)
def test_an_operator_alone(sql: str, division: Division) -> None:
    ((level, found, _, _),) = divided(sql.replace(" FROM", " INTO o FROM", 1))
    assert (level, found) == (0, division)


def test_an_operator_below_is_narrowed_to_the_keys_of_the_one_above() -> None:
    sql = f"WITH s AS ({STEP}) SELECT k, MAX(c) AS c INTO o FROM s GROUP BY k, TumblingWindow(second, 5)"
    assert divided(sql) == [(0, Division.KEYS, (0,), (False,)), (0, Division.KEYS, (0,), (False,))]


def test_a_renamed_key_is_followed() -> None:
    step = "SELECT k AS name, COUNT(*) AS c FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 1)"
    sql = f"WITH s AS ({step}), z AS (SELECT name AS n, c FROM s WHERE c > 1) "
    sql += "SELECT n, MAX(c) AS c INTO o FROM z GROUP BY n, TumblingWindow(second, 5)"
    assert [level for level, _, _, _ in divided(sql)] == [0, 0]


def test_another_key_goes_through_an_exchange() -> None:
    step = "SELECT k, MIN(g) AS g, COUNT(*) AS c FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 1)"
    sql = f"WITH s AS ({step}) SELECT g, MAX(c) AS c INTO o FROM s GROUP BY g, TumblingWindow(second, 5)"
    assert divided(sql) == [(0, Division.KEYS, (0,), (False,)), (1, Division.KEYS, (0,), (True,))]


def test_two_readers_with_different_keys_do_not_both_stay() -> None:
    sql = f"WITH s AS ({STEP}) SELECT k, MAX(c) AS c INTO a FROM s GROUP BY k, TumblingWindow(second, 5) "
    sql += "SELECT g, MAX(c) AS c INTO b FROM s GROUP BY g, TumblingWindow(second, 5)"
    levels = [level for level, _, _, _ in divided(sql)]
    assert sorted(levels) == [0, 0, 1]


def test_a_join_is_divided_by_its_equalities() -> None:
    sql = "SELECT l.v INTO o FROM i l JOIN j r ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN 0 AND 5"
    assert divided(sql) == [(0, Division.KEYS, (0,), (False, False))]
    assert Sharding.of(prepared(sql).sharded(), 2).wide
