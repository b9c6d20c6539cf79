"""A SELECT gives the same rows alone, beside any other, and as a step that another reads.

`make soak` tries more of them, and `make fuzz` others.
"""

from __future__ import annotations

from random import Random

from tests.engine.random_queries import Grammar, events
from tests.engine.streams import Events, task
from tests.engine.test_fuzz import FUNCTIONS, TABLES
from tests.profiles import scaled
from tidegate.engine import CATALOG, KeyedSide, Program, UnsupportedQuery
from tidegate.ordering import END_OF_TIME, NO_TIME, Policy
from tidegate.sql import QueryError, compile_query

QUERIES = scaled(60)

Log = dict[str, Events]


def prepared(sql: str) -> Program | None:
    """A query that can run, and whose rows leave in the order of time; None of any other."""
    try:
        query = compile_query(sql, catalog=CATALOG, functions=list(FUNCTIONS), reference_inputs=list(TABLES))
        of = Program.prepare(query, TABLES, FUNCTIONS)
    except (QueryError, UnsupportedQuery):
        return None
    return None if of.by_substream else of


def rows(of: Program, log: Log) -> list[tuple[int, bytes]]:
    """What the output o gets: times and lines, in an order of their own."""
    keyed = KeyedSide(of)
    for name in of.input_names:
        partial, _ = task(of, name, "0", log[of.source_of(name).lower()], Policy.none(), of.new_carry(name))
        keyed.absorb([partial])
    return sorted(
        row
        for result in keyed.emit(NO_TIME, END_OF_TIME)
        if result.output == "o"
        for row in zip(result.timestamps.tolist(), result.to_json_lines().splitlines(), strict=True)
    )


def check_beside(number: int) -> int:
    """Return how many queries a SELECT was compared in.

    Raises:
        AssertionError: its rows differ in one of them.
    """
    random = Random(number)
    grammar = Grammar(random)
    one = grammar.select(" INTO o")
    # Beside itself, too: everything it is built on is there twice then.
    other = grammar.select(" INTO p") if number % 3 else one.replace(" INTO o", " INTO p", 1)
    log = {"a": Events.of(events(random, 8)), "b": Events.of(events(random, 6))}
    if (of := prepared(one)) is None:
        return 0
    alone = rows(of, log)
    step = f"WITH step AS ({one.replace(' INTO o', '', 1)}) SELECT * INTO o FROM step"
    compared = 0
    for sql in (f"{one} {other}", f"{other} {one}", step):
        if (of := prepared(sql)) is not None:
            assert rows(of, log) == alone, f"{number}: {sql}"
            compared += 1
    return compared


def test_a_select_gives_the_same_alone_and_beside_others() -> None:
    assert sum(check_beside(number) for number in range(QUERIES))
