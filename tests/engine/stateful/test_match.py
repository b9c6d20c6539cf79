"""MATCH_RECOGNIZE, against a search that tries one way after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.streams import SECOND, START, Events, program, run, run_log
from tidegate.ordering import Policy
from tidegate.sql.plan.patterns import Either, Name, Pattern, Repeat, Sequence, lengths_of, names_in

LIMIT = 3 * SECOND


@dataclass
class Attempt:
    """A match so far: its rows with their names."""

    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def of(self, name: str) -> list[Any]:
        return [row["v"] for (_, row), own in zip(self.rows, self.names, strict=True) if own == name]


def greatest(values: list[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def more(one: Any, other: Any) -> bool:
    return one is not None and other is not None and one > other


def passes(name: str, so_far: Attempt) -> bool:
    """A AS A.v > 0, B AS B.v > Last(A.v), C AS Max(C.v) > First(C.v) + 1 or one C alone; D is not defined."""
    value = so_far.rows[-1][1]["v"]
    match name:
        case "A":
            return more(value, 0)
        case "B":
            return bool(so_far.of("A")) and more(value, so_far.of("A")[-1])
        case "C":
            first = so_far.of("C")[0]
            return value is None or (first is not None and more(greatest(so_far.of("C")), first - 1))
    return True


DEFINITIONS = "A AS A.v > 0, B AS B.v > Last(A.v), C AS C.v IS NULL OR Max(C.v) > First(C.v) - 1"
Continue = Callable[[Attempt, int], Attempt | None]


def attempts(pattern: Pattern, log: list[tuple[int, dict[str, Any]]], began: int) -> Attempt | None:
    """The preferred match that begins at a row, by backtracking."""

    def walk(part: Pattern, so_far: Attempt, place: int, then: Continue) -> Attempt | None:
        match part:
            case Name(name=name):
                if place == len(log) or log[place][0] - log[began][0] >= LIMIT:
                    return None
                longer = Attempt([*so_far.rows, log[place]], [*so_far.names, name])
                return then(longer, place + 1) if passes(name, longer) else None
            case Sequence(parts=parts):
                if not parts:
                    return then(so_far, place)
                rest = Sequence(parts[1:])
                return walk(parts[0], so_far, place, lambda longer, at: walk(rest, longer, at, then))
            case Either(options=options):
                found = (walk(option, so_far, place, then) for option in options)
                return next((each for each in found if each is not None), None)
            case Repeat(part=inner, least=least, most=most):
                again = Repeat(inner, max(least - 1, 0), None if most is None else most - 1)

                def once_more(longer: Attempt, at: int) -> Attempt | None:
                    # Going round without an event leads nowhere new.
                    return None if at == place and least == 0 else walk(again, longer, at, then)

                found_more = None if most == 0 else walk(inner, so_far, place, once_more)
                return then(so_far, place) if found_more is None and least == 0 else found_more

    return walk(pattern, Attempt(), began, lambda found, _: found if found.rows else None)


def by_the_rule(pattern: Pattern, log: list[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    for key in {row["k"] for _, row in log}:
        own = [event for event in log if event[1]["k"] == key]
        for began in range(len(own)):
            found = attempts(pattern, own, began)
            if found is not None:
                measures = {
                    "began": found.rows[0][1]["n"],
                    "top": greatest(found.of("A")),
                    "c": found.of("C")[0] if found.of("C") else None,
                    "names": found.names,
                }
                yield found.rows[-1][0], measures


NAMES = st.sampled_from(["A", "B", "C", "D"]).map(Name)


def _extend(inner: st.SearchStrategy[Pattern]) -> st.SearchStrategy[Pattern]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    counts = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None)])
    return st.one_of(
        several.map(Sequence), several.map(Either), st.builds(lambda part, count: Repeat(part, *count), inner, counts)
    )


PATTERNS = st.recursive(NAMES, _extend, max_leaves=5)


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, dict[str, Any]]]:
    events, now = [], START
    for number, gap in enumerate(draw(st.lists(st.sampled_from([0, 1, SECOND // 2, SECOND, LIMIT]), max_size=9))):
        now += gap
        value = draw(st.one_of(st.none(), st.integers(-1, 3)))
        events.append((now, {"k": draw(st.sampled_from("xy")), "v": value, "n": number}))
    return events


def query_of(pattern: Pattern) -> str:
    """The pattern as a query. All names are measured, so that all definitions may name them."""
    names = set(names_in(pattern))
    definitions = DEFINITIONS.split(", ")
    defined = [each for each in definitions if each[0] in names and ("A" in names or not each.startswith("B"))]
    define = f"DEFINE {', '.join(defined)}" if defined else ""
    top = "Max(A.v)" if "A" in names else "Max(v) - Max(v) - v"
    c = "First(C.v)" if "C" in names else "First(v)"
    return (
        "SELECT began, top, c, names INTO out FROM a MATCH_RECOGNIZE (PARTITION BY k LIMIT DURATION(second, 3) "
        f"MEASURES First(n) AS began, {top} AS top, {c} AS c, Classifier() AS names "
        f"AFTER MATCH SKIP TO NEXT ROW PATTERN ({pattern}) {define}) AS m"
    )


@given(PATTERNS, logs())
def test_matches_follow_the_rule(pattern: Pattern, log: list[tuple[int, dict[str, Any]]]) -> None:
    names = set(names_in(pattern))
    if "B" in names and "A" not in names:
        pattern = Either((pattern, Name("A")))
        names.add("A")
    events = Events.of([row for _, row in log], [time for time, _ in log])
    rows = run_log(program(query_of(pattern)), {("a", "0"): events}, Policy.none()).get("out", [])
    asked = ["began", "names", *(["top"] if "A" in names else []), *(["c"] if "C" in names else [])]
    expected = [(time, {name: row[name] for name in asked}) for time, row in by_the_rule(pattern, log)]
    found = [(time, {name: row[name] for name in asked}) for time, row in rows]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert [(time, row["began"]) for time, row in rows] == sorted((time, row["began"]) for time, row in rows)


@given(PATTERNS)
def test_a_pattern_is_read_as_it_is_written(pattern: Pattern) -> None:
    definition = program(query_of(Sequence((pattern, Name("A"))))).query.outputs[0].relation
    while hasattr(definition, "source"):
        if hasattr(definition, "pattern"):
            assert str(definition.pattern) == str(Sequence((pattern, Name("A"))))
        definition = definition.source


@pytest.mark.parametrize(
    ("pattern", "lengths"),
    [("A", (1, 1)), ("A B?", (1, 2)), ("(A | B C){2}", (2, 4)), ("A*", (0, None)), ("(A | B C D) .", (2, 4))],
)
def test_the_lengths_of_a_pattern(pattern: str, lengths: tuple[int, int | None]) -> None:
    sql = f"SELECT * FROM a MATCH_RECOGNIZE (LIMIT DURATION(second, 1) MEASURES Last(v) AS v PATTERN ({pattern})) AS m"
    relation = program(sql).query.outputs[0].relation
    assert lengths_of(relation.source.pattern) == lengths


OPERATIONS = [
    (1, "Entering Pin", "Success", 0),
    (2, "Opening Money Slot", "Success", 7),
    (2, "Closing Money Slot", "Success", 11),
    (1, "Entering Withdraw Quantity", "Success", 8),
    (1, "Opening Money Slot", "Warning", 14),
    (1, "Printing Bank Balance", "Warning", 19),
]


def test_two_warnings_of_a_cash_machine_in_a_row() -> None:
    """The example of the query patterns article, its misprints mended. A match begins at each of the four events."""
    sql = """SELECT * FROM input TIMESTAMP BY time OVER ATM_id MATCH_RECOGNIZE (
        LIMIT DURATION(minute, 1) PARTITION BY ATM_id
        MEASURES First(Warning.ATM_id) AS ATM_id, First(Warning.Operation_Id) AS First_Warning_Operation_id,
            First(Warning.Time) AS Warning_Time
        AFTER MATCH SKIP TO NEXT ROW PATTERN (Success* Warning{2,})
        DEFINE Success AS Success.Return_Code = 'Success', Warning AS Warning.Return_Code <> 'Success'
    ) AS patternMatch"""
    events = [
        {"ATM_id": machine, "Operation_Id": operation, "Return_Code": code, "time": f"2017-01-26T00:10:{second:02}Z"}
        for machine, operation, code, second in OPERATIONS
    ]
    warning = {
        "ATM_id": 1,
        "First_Warning_Operation_id": "Opening Money Slot",
        "Warning_Time": "2017-01-26T00:10:14Z",
    }
    of = program(sql)
    log = {("input", "0"): Events.of(events, [START + number for number in range(len(events))])}
    assert [row for _, row in run_log(of, log, Policy.none())["output"]] == [warning] * 3


def test_a_match_of_a_known_length_is_known_with_its_last_row() -> None:
    of = program(
        "SELECT * FROM a MATCH_RECOGNIZE (LIMIT DURATION(hour, 1) MEASURES Last(v) AS v PATTERN (A B | B A)) AS m"
    )
    assert of.complete_before(START) == START
    longer = program(
        "SELECT * FROM a MATCH_RECOGNIZE (LIMIT DURATION(hour, 1) MEASURES Last(v) AS v PATTERN (A B*)) AS m"
    )
    assert longer.complete_before(START) == START - 3600 * SECOND


def test_an_empty_match_is_none() -> None:
    sql = (
        "SELECT * FROM a MATCH_RECOGNIZE (LIMIT DURATION(second, 9) MEASURES Classifier() AS c PATTERN (A*) "
        "DEFINE A AS v > 0) AS m"
    )
    assert run(sql, [{"v": 0}, {"v": 1}, {"v": 2}, {"v": 0}]) == [{"c": ["A", "A"]}, {"c": ["A"]}]


def test_a_definition_that_fails_does_not_match_and_is_counted() -> None:
    sql = (
        "SELECT * INTO out FROM a MATCH_RECOGNIZE (LIMIT DURATION(second, 9) MEASURES First(v) AS v PATTERN (A) "
        "DEFINE A AS CAST(v AS bigint) > 0) AS m"
    )
    assert run(sql, [{"v": "x"}, {"v": 1}]) == [{"v": 1}]


def test_a_match_is_a_source_like_any_other() -> None:
    sql = (
        "WITH m AS (SELECT first, last, System.Timestamp() AS at FROM a MATCH_RECOGNIZE ("
        "LIMIT DURATION(second, 9) PARTITION BY k MEASURES First(v) AS first, Last(v) AS last PATTERN (A B) "
        "DEFINE B AS B.v > A.v) AS t WHERE last < 9) "
        "SELECT COUNT(*) AS n, MAX(last) AS top INTO out FROM m GROUP BY TumblingWindow(minute, 1)"
    )
    rows = [{"k": k, "v": v} for k, v in (("x", 1), ("y", 5), ("x", 3), ("y", 4), ("y", 6), ("x", 12))]
    assert run(sql, rows) == [{"n": 2, "top": 6}]
