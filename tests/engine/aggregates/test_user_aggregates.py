"""Registered aggregates: what comes out over every kind of window is what the object itself gives over the rows."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.program.test_program import EVENTS, GAPS, Steps, partition_of
from tests.engine.streams import START, Events, program, run, run_log, task
from tests.sql.compiling import compile_query
from tidegate.engine import UnsupportedQuery
from tidegate.ordering import Policy
from tidegate.sql import QueryError


class Joined:
    """Texts of the values in order, with the seconds of their times: order and times show."""

    def init(self) -> None:
        self.parts: list[str] = []

    def accumulate(self, value: Any, timestamp: str) -> None:
        self.parts.append(f"{value}@{timestamp[17:21]}")

    def compute_result(self) -> str:
        return " ".join(self.parts)


class _Largest:
    """Takes up another; told of no time."""

    def __init__(self) -> None:
        self.largest: float | None = None

    def accumulate(self, value: Any) -> None:
        if isinstance(value, int | float) and (self.largest is None or self.height(value) > self.height(self.largest)):
            self.largest = value

    @staticmethod
    def height(value: float) -> tuple[float, bool]:
        """1 and 1.0 are equal, so that one of them must be chosen whatever the order."""
        return value, isinstance(value, float)

    def merge(self, other: _Largest) -> None:
        if other.largest is not None:
            self.accumulate(other.largest)

    def found(self) -> float | None:
        return self.largest


# As the service spells it.
Largest = type("Largest", (_Largest,), {"computeResult": _Largest.found})


class Picky(_Largest):
    def accumulate(self, value: Any) -> None:
        super().accumulate(value + 0)

    def compute_result(self) -> float | None:
        return self.largest


class WeightedMean:
    """The documents' example of a time-weighted average, over records."""

    def init(self) -> None:
        self.value = self.weight = 0.0

    def accumulate(self, value: dict[str, float], timestamp: str) -> None:
        self.value += value["level"] * value["weight"]
        self.weight += value["weight"]

    def compute_result(self) -> float:
        return self.value / self.weight if self.value else 0


FUNCTIONS = {"uda.Joined": Joined, "uda.Largest": Largest, "uda.TWA": WeightedMean}
AGGREGATES = "uda.joined(v) AS j, uda.largest(v) AS l, MAX(v) AS m, COUNT(*) AS n, Collect(v) AS c"
QUERIES = [
    f"SELECT k, {AGGREGATES} INTO out FROM a GROUP BY k, {window}"
    for window in (
        "TumblingWindow(second, 3)",
        "HoppingWindow(second, 4, 2)",
        "SlidingWindow(second, 2)",
        "SessionWindow(second, 2, 5)",
        "System.Timestamp()",
        "Windows(TumblingWindow(second, 2), SlidingWindow(second, 1))",
    )
] + [
    "SELECT k, uda.joined(v) OVER (PARTITION BY k LIMIT DURATION(second, 3)) AS j, "
    "uda.largest(v) OVER (PARTITION BY k LIMIT DURATION(second, 3) WHEN v > 0) AS l, "
    "Collect(v) OVER (PARTITION BY k LIMIT DURATION(second, 3)) AS c INTO out FROM a"
]
NUMBERS = st.fixed_dictionaries({"k": st.sampled_from(["x", "y"]), "v": st.none() | st.integers(-9, 9)})


@pytest.mark.parametrize("sql", QUERIES)
@settings(max_examples=settings().max_examples // 5)
@given(rows=st.lists(st.tuples(GAPS, NUMBERS), max_size=12))
def test_an_aggregate_is_what_its_object_gives_over_the_rows_in_order(sql: str, rows: list[tuple[int, Any]]) -> None:
    of = program(sql, functions=FUNCTIONS)
    for _, row in run_log(of, {("a", "0"): partition_of(rows)}, Policy.none()).get("out", []):
        said = [part.partition("@")[0] for part in row["j"].split(" ") if part]
        assert said == [str(value) for value in row["c"]]
        seconds = [part.partition("@")[2] for part in row["j"].split(" ") if part]
        assert seconds == sorted(seconds)
        if "m" in row:
            assert row["l"] == row["m"]
        else:
            assert row["l"] == max((value for value in row["c"] if value is not None and value > 0), default=None)


@pytest.mark.parametrize("sql", QUERIES)
@settings(max_examples=settings().max_examples // 5)
@given(rows=st.lists(st.tuples(GAPS, EVENTS), max_size=10), seed=st.integers(0, 2**32))
def test_any_cut_gives_the_same_bytes(sql: str, rows: list[tuple[int, Any]], seed: int) -> None:
    of = program(sql, functions=FUNCTIONS)
    log = {("a", "0"): partition_of(rows[::2]), ("a", "1"): partition_of(rows[1::2])}
    assert Steps(of, log, Random(seed)).run() == Steps(of, log, Random(seed + 1)).run()


def test_the_documents_time_weighted_average() -> None:
    sql = (
        "WITH value AS (SELECT NoiseLevelDB AS level, DurationSecond AS weight FROM a TIMESTAMP BY EntryTime) "
        "SELECT System.Timestamp AS ts, uda.TWA(value) AS NoseDoseTWA FROM value GROUP BY TumblingWindow(minute, 5)"
    )
    rows = [("05:01", 80, 22.0), ("05:02", 81, 37.8), ("05:02", 85, 26.3), ("05:06", 99, 23.0)]
    events = [
        {"EntryTime": f"2017-06-10T{time}:00-07:00", "NoiseLevelDB": level, "DurationSecond": seconds}
        for time, level, seconds in rows
    ]
    first = (80 * 22.0 + 81 * 37.8 + 85 * 26.3) / (22.0 + 37.8 + 26.3)
    of = program(sql, functions=FUNCTIONS)
    log = {("a", "0"): Events.of(events, [START + number for number in range(4)])}
    found = [row["NoseDoseTWA"] for _, row in run_log(of, log, Policy.none())["output"]]
    assert found == [pytest.approx(first), 99.0]


def test_what_merges_is_kept_in_the_place_of_rows() -> None:
    sql = "SELECT uda.largest(v) AS l INTO out FROM a GROUP BY TumblingWindow(day, 1)"
    of = program(sql, functions=FUNCTIONS)
    rows = [(1, {"v": number}) for number in range(5_000)]
    partial, _ = task(of, "a", "0", partition_of(rows), Policy.none(), of.new_carry("a"))
    assert len(pickle.dumps(partial)) < 2_000


def test_an_aggregate_that_raises_loses_its_group_and_no_other() -> None:
    sql = "SELECT k, uda.picky(v) AS l INTO out FROM a GROUP BY k, TumblingWindow(minute, 1)"
    of = program(sql, functions={"uda.picky": Picky})
    assert run(of, [{"k": "x", "v": 1}, {"k": "y", "v": "text"}, {"k": "x", "v": 3}]) == [{"k": "x", "l": 3}]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (object, "uda.f has no method accumulate(value, timestamp)"),
        (type("F", (), {"accumulate": lambda self, value: None}), "uda.f has no method compute_result()"),
        (lambda: 1 / 0, "uda.f cannot be made: ZeroDivisionError: division by zero"),
        (7, "uda.f is not a function"),
    ],
)
def test_what_is_no_aggregate_is_refused(made: Any, message: str) -> None:
    with pytest.raises(UnsupportedQuery) as refused:
        program("SELECT uda.f(v) AS a INTO out FROM a GROUP BY TumblingWindow(second, 1)", functions={"uda.f": made})
    assert str(refused.value) == message


def test_an_aggregate_must_be_registered() -> None:
    with pytest.raises(UnsupportedQuery, match=r"the aggregate uda\.f is not registered"):
        program("SELECT uda.f(v) AS a INTO out FROM a GROUP BY TumblingWindow(second, 1)")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT uda.Meadian(v) AS a FROM i GROUP BY System.Timestamp()", "there is no function uda.meadian"),
        ("SELECT uda.median(v, 1) AS a FROM i GROUP BY System.Timestamp()", "uda.median takes 1 argument, not 2"),
        ("SELECT uda.median() AS a FROM i GROUP BY System.Timestamp()", "uda.median takes 1 argument, not 0"),
        ("SELECT uda.median(*) AS a FROM i GROUP BY System.Timestamp()", "uda.median takes a value, not *"),
        (
            "SELECT uda.median(DISTINCT v) AS a FROM i GROUP BY System.Timestamp()",
            "uda.median cannot have DISTINCT here",
        ),
        ("SELECT v FROM i WHERE uda.median(v) > 1", "uda.median is an aggregate: it is not allowed in WHERE"),
        (
            "SELECT uda.median(v) AS a FROM i",
            "uda.median(v) aggregates, but there is no GROUP BY with a window",
        ),
        ("SELECT udf.half(v) OVER (PARTITION BY v) AS a FROM i", "udf.half takes no OVER and no DISTINCT"),
    ],
)
def test_calls_that_cannot_be(sql: str, message: str) -> None:
    with pytest.raises(QueryError) as refused:
        compile_query(sql, functions=["uda.median", "udf.half"])
    assert message in [diagnostic.message for diagnostic in refused.value.diagnostics]


class Columns:
    """A function of columns, which counts its calls."""

    vectorized = True

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, one: pa.Array, other: pa.Array) -> Any:
        self.calls += 1
        return pc.add(one, other)


def with_columns(function: Any, rows: list[dict[str, Any]]) -> list[Any]:
    of = program("SELECT udf.f(x, y) AS f INTO out FROM a", functions={"udf.f": function})
    return [row["f"] for row in run(of, rows)]


def test_a_function_of_columns_is_called_once_for_a_batch() -> None:
    function = Columns()
    assert with_columns(function, [{"x": n, "y": n} for n in range(50)]) == [2 * n for n in range(50)]
    assert function.calls == 1


def test_a_function_of_columns_sees_one_type_at_a_time() -> None:
    rows = [{"x": 1, "y": 2}, {"x": 1.5, "y": 2}, {"x": None, "y": 2}, {"x": 2, "y": 0.5}]
    assert with_columns(Columns(), rows) == [3, 3.5, None, 2.5]


def test_rows_that_a_function_of_columns_cannot_work_on_fail_alone() -> None:
    rows = [{"x": 1, "y": 2}, {"x": "a", "y": 2}, {"x": 3, "y": 4}]
    assert with_columns(Columns(), rows) == [3, 7]

    class Picky(Columns):
        def __call__(self, one: pa.Array, other: pa.Array) -> Any:
            assert 3 not in one.to_pylist()
            return one

    assert with_columns(Picky(), [{"x": n, "y": 0} for n in range(6)]) == [0, 1, 2, 4, 5]


def test_a_function_of_columns_that_gives_too_few_values_is_asked_for_each_row() -> None:
    class Short(Columns):
        def __call__(self, one: pa.Array, other: pa.Array) -> Any:
            return [1]

    assert with_columns(Short(), [{"x": 1, "y": 2}, {"x": 3, "y": 4}]) == [1, 1]
