"""Queries at random that combine what a fixed list would not: joins, groups, rows before and unions on the same key.

Every query reads one input with or without OVER, has one to four outputs, and builds steps on steps. Keys come from
palettes whose values are easily confused (`KEYS`), so that a part of the engine that tells two of them apart where
another does not is found by any cut.
"""

from __future__ import annotations

import random
from typing import Any

from tidegate.engine import CATALOG
from tidegate.sql import QueryError, compile_query

KEYS: tuple[tuple[Any, ...], ...] = (
    ("a", "b", "c", "d"),
    ("a", "A", "b", "B"),
    ("é", "e\u0301", "É", "E", "e"),
    (0, 0.0, -0.0, 1, 1.0, "1", True, "true"),
    ("x" * 300, "X" * 300, "x" * 299 + "y"),
    ({"x": 1, "y": 2}, {"y": 2, "x": 1}, {"x": 1.0, "y": 2}, [1, 2], [1, 2.0], [[1], 2]),
    ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.0000000Z", "2026-01-01", "", " "),
    ("a", "A", 1, 1.0, None, True, {"x": 1}, [1], "é", "e\u0301", 2**53, 2.0**53),
)
"""Palettes of keys."""


class _Generator:
    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._over = dice.choice(["", " OVER k", " OVER k", " OVER k"])
        self._steps: list[str] = []

    def query(self) -> str:
        outputs = [self._output(f"out{number}") for number in range(self._dice.choice([1, 2, 2, 3, 4]))]
        steps = f"WITH {', '.join(self._steps)} " if self._steps else ""
        return steps + "\n".join(outputs)

    def _output(self, name: str) -> str:
        make = self._dice.choice([self._rows, self._group, self._group, self._before, self._join, self._join])
        return make(f" INTO {name}")

    def _input(self, alias: str = "") -> str:
        return f"i {alias} TIMESTAMP BY t{self._over}"

    def _source(self, alias: str = "", depth: int = 0) -> str:
        """The input, or a step with columns k and v."""
        if depth > 1 or self._dice.random() < 0.5:
            return self._input(alias)
        name = f"s{len(self._steps) + 1}"
        make = self._dice.choice([self._rows, self._counts, self._lag, self._pairs, self._union])
        step = make("", depth + 1)
        name = f"s{len(self._steps) + 1}"
        self._steps.append(f"{name} AS ({step})")
        return f"{name} {alias}"

    # Of each row k and v -----------------------------------------------------------------------------------------

    def _rows(self, into: str, depth: int = 0) -> str:
        where = self._dice.choice(["", "", " WHERE v IS NOT NULL"])
        return f"SELECT System.Timestamp() AS ts, k, v{into} FROM {self._source(depth=depth)}{where}"

    def _counts(self, into: str, depth: int = 0) -> str:
        return f"SELECT k, COUNT(*) AS v{into} FROM {self._source(depth=depth)} GROUP BY k, {self._window()}"

    def _lag(self, into: str, depth: int = 0) -> str:
        limit = self._dice.randint(1, 8)
        return (
            f"SELECT k, LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, {limit})) AS v{into} "
            f"FROM {self._source(depth=depth)}"
        )

    def _pairs(self, into: str, depth: int = 0) -> str:
        return f"SELECT l.k AS k, r.v AS v{into} {self._joined(depth)}"

    def _union(self, into: str, depth: int = 0) -> str:
        return f"SELECT k, v{into} FROM {self._source(depth=depth)} UNION SELECT k, v FROM {self._source(depth=depth)}"

    # Outputs -----------------------------------------------------------------------------------------------------

    def _group(self, into: str) -> str:
        return (
            "SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, COLLECT(v) AS c, COUNT(DISTINCT v) AS d"
            f"{into} FROM {self._source()} GROUP BY k, {self._window()}"
        )

    def _before(self, into: str) -> str:
        by = "PARTITION BY k" if self._dice.random() < 0.8 else ""
        limit = f"LIMIT DURATION(second, {self._dice.randint(1, 8)})"
        return (
            f"SELECT System.Timestamp() AS ts, k, v, LAG(v, {self._dice.randint(1, 2)}) OVER ({by} {limit}) AS b, "
            f"LAST(v) OVER ({by} {limit} WHEN v IS NOT NULL) AS l, ISFIRST(second, 3) OVER ({by}) AS f, "
            f"COUNT(v) OVER ({by} {limit}) AS n{into} FROM {self._source()}"
        )

    def _join(self, into: str) -> str:
        return f"SELECT System.Timestamp() AS ts, l.k AS k, r.k AS rk, l.v AS v, r.v AS w{into} {self._joined(0)}"

    def _joined(self, depth: int) -> str:
        low = self._dice.randint(-2, 2)
        kind = self._dice.choice(["JOIN", "LEFT JOIN"])
        return (
            f"FROM {self._source('l', depth)} {kind} {self._source('r', depth)} "
            f"ON l.k = r.k AND DATEDIFF(second, l, r) BETWEEN {low} AND {low + self._dice.randint(0, 3)}"
        )

    def _window(self) -> str:
        return self._dice.choice(
            [
                "TumblingWindow(second, 3)",
                "HoppingWindow(second, 4, 2)",
                "SlidingWindow(second, 2)",
                "SessionWindow(second, 2, 5) OVER (PARTITION BY k)",
                "System.Timestamp()",
            ]
        )


def random_query(dice: random.Random) -> str:
    """Return a query over the input i, with columns t, k and v."""
    while True:
        sql = _Generator(dice).query()
        try:
            compile_query(sql, catalog=CATALOG)
        except QueryError:
            continue
        return sql
