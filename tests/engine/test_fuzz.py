"""No query gives a traceback, neither when it is compiled, nor when it is prepared, nor when it runs over any events.

`make soak` tries more of them, and `make fuzz` others.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tests.engine.random_queries import TABLE, Grammar, events, mutated
from tests.engine.streams import SECOND, START, Events, task
from tests.profiles import scaled
from tidegate.engine import CATALOG, KeyedSide, Program, TableVersion, UnsupportedQuery
from tidegate.ordering import END_OF_TIME, NO_TIME, Policy
from tidegate.sql import QueryError, compile_query

QUERIES = max(60, scaled(60))
PARTS = 4


class Last:
    """An aggregate."""

    def __init__(self) -> None:
        self.value: Any = None

    def accumulate(self, value: Any, timestamp: str) -> None:
        self.value = value

    def compute_result(self) -> Any:
        return self.value


FUNCTIONS = {"udf.f": lambda value: [value], "uda.g": Last}
TABLES = {"table": [TableVersion(tuple(json.dumps(row).encode() for row in TABLE))]}


def tried(number: int) -> str:
    """What became of a query: refused, unsupported, or how many rows it gave."""
    random = Random(number)
    sql = Grammar(random).query() if number % 3 else mutated(random)
    try:
        query = compile_query(
            sql,
            catalog=CATALOG,
            functions=list(FUNCTIONS),
            reference_inputs=list(TABLES),
            compatibility_level=random.choice(["1.0", "1.1", "1.2", "1.2"]),
        )
    except QueryError as error:
        return "refused" if error.render(sql) else "refused without a word"
    try:
        of = Program.prepare(query, TABLES, FUNCTIONS)
    except UnsupportedQuery as unsupported:
        return "unsupported" if str(unsupported) else "unsupported without a word"
    return str(rows_of(of, random))


def rows_of(of: Program, random: Random) -> int:
    """How many rows a program gives over events by chance, released in two steps."""
    policy = Policy(5 * 60 * SECOND, 5 * SECOND, SECOND)
    keyed = KeyedSide(of, policy.late_ticks)
    carries = {name: of.new_carry(name) for name in of.input_names}
    rows = 0
    for part in range(2):
        for name in of.input_names:
            arrivals = [START + (part * 6 + number) * SECOND for number in range(6)]
            partial, carries[name] = task(of, name, "0", Events.of(events(random, 6), arrivals), policy, carries[name])
            keyed.absorb([partial])
        if not of.by_substream:
            watermark = END_OF_TIME if part else of.complete_before(START + 2 * SECOND)
            released = NO_TIME if not part else of.complete_before(START + 2 * SECOND)
            results = keyed.emit(released, watermark)
            rows += sum(map(len, results))
            assert all(result.to_json_lines() for result in results)
    return rows


def check_query(number: int) -> str:
    """Return what became of a query.

    Raises:
        AssertionError: it gave a traceback, or was refused without a reason.
    """
    try:
        outcome = tried(number)
    except Exception as error:
        raise AssertionError(f"query {number} gives {type(error).__name__}: {error}") from error
    assert not outcome.endswith("word"), f"query {number} is {outcome}"
    return outcome


@pytest.mark.parametrize("part", range(PARTS))
def test_no_query_gives_a_traceback(part: int) -> None:
    outcomes = {check_query(number) for number in range(part * QUERIES // PARTS, (part + 1) * QUERIES // PARTS)}
    # Some are right, and give rows.
    assert outcomes - {"refused", "unsupported", "0"}
