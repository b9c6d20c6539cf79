"""Calls of registered functions are counted wherever they happen: in tasks, and on the driver after a window."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.job.logs import TravellingTasks
from tests.job.run.test_prometheus import samples
from tests.job.runtime.test_watermark_blockers import at
from tests.job.sharded import ShardsHere
from tests.sql.compiling import compile_query
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.engine import Program
from tidegate.job import Stepper
from tidegate.job.run.prometheus import JobCollector, render
from tidegate.job.runtime.placement import Placement
from tidegate.job.runtime.step import StepSettings
from tidegate.ordering import Policy

POLICY = Policy.seconds(late=5)
METRICS = ("Function Requests", "Failed Function Requests", "Function Events")
PROMETHEUS = tuple(f"tidegate_job_{name.lower().replace(' ', '_')}_total" for name in METRICS)


class Total:
    """Adds numbers below 100."""

    def __init__(self) -> None:
        self.total = 0

    def accumulate(self, value: int) -> None:
        if value >= 100:
            raise ValueError(value)
        self.total += value

    def compute_result(self) -> int:
        return self.total


class MergedTotal(Total):
    """Adds numbers below 100, and partial sums."""

    def merge(self, other: MergedTotal) -> None:
        self.total += other.total


def half(number: int) -> object:
    """Return half of a number below 100, for others something that is not a value."""
    return number / 2 if number < 100 else object()


class Halves:
    """Halves columns of numbers below 100."""

    vectorized = True

    def __call__(self, numbers: pa.Array) -> pa.Array:
        if pc.max(numbers).as_py() >= 100:
            raise ValueError("too large")
        return pc.divide(pc.cast(numbers, pa.float64()), 2)


FUNCTIONS = {
    "udf.half": half,
    "udf.one": lambda: 1,
    "udf.halves": Halves(),
    "udf.time": lambda number: f"2026-01-01T00:00:{number:02}Z",
    "uda.total": Total,
    "uda.merged": MergedTotal,
}
WINDOW = "GROUP BY k, TumblingWindow(second, 10)"


def log_of(*rows: tuple[str, int]) -> RecordedLog:
    """Return a log with a second between its events."""
    return RecordedLog(
        [RecordedEvent("0", at(n), json.dumps({"k": k, "v": v}).encode()) for n, (k, v) in enumerate(rows, start=1)]
    )


def stepper_of(select: str, log: RecordedLog, max_events_per_step: int = 100) -> Stepper:
    program = Program.prepare(compile_query(f"SELECT {select}"), functions=FUNCTIONS)
    return Stepper(
        program, POLICY, {"i": log}, TravellingTasks(program, POLICY), settings=StepSettings(max_events_per_step)
    )


@pytest.mark.parametrize(
    ("select", "calls", "in_tasks"),
    [
        # Of the values 1, 1, 2 and 500, two that are equal need one call.
        ("udf.half(v) AS x INTO out FROM i", (3, 1, 4), (3, 1, 4)),
        # A row whose argument fails is not passed.
        ("udf.half(1 / (v - 1)) AS x INTO out FROM i", (2, 0, 2), (2, 0, 2)),
        ("udf.one() AS x INTO out FROM i", (1, 0, 4), (1, 0, 4)),
        # All four; then each half of what fails: [1, 1], [2, 500], [2], [500].
        ("udf.halves(v) AS x INTO out FROM i", (5, 3, 4), (5, 3, 4)),
        ("v INTO out FROM i TIMESTAMP BY udf.time(v)", (3, 0, 4), (3, 0, 4)),
        (f"udf.half(COUNT(*)) AS x INTO out FROM i {WINDOW}", (1, 0, 2), (0, 0, 0)),
        # A call for each row, and one for the result of group a; b has failed by then.
        (f"uda.total(v) AS x INTO out FROM i {WINDOW}", (5, 1, 4), (0, 0, 0)),
        (f"uda.merged(v) AS x INTO out FROM i {WINDOW}", (5, 1, 4), (4, 1, 4)),
    ],
)
def test_calls_are_counted_in_tasks_and_after_windows(
    select: str, calls: tuple[int, ...], in_tasks: tuple[int, ...]
) -> None:
    stepper = stepper_of(select, log_of(("a", 1), ("a", 1), ("b", 2), ("b", 500)))
    collector, counted, complete = JobCollector("here"), Counter[str](), False
    while not complete:
        step = stepper.step()
        complete = step.complete
        counted.update(step.counters)
        collector.see(step, {}, {})
    assert tuple(counted[name] for name in METRICS) == calls
    told = samples(render(collector).decode())
    assert tuple(told[name, "i", "0"] for name in PROMETHEUS) == in_tasks
    after = tuple(whole - part for whole, part in zip(calls, in_tasks, strict=True))
    assert tuple(told.get((name, "", ""), 0) for name in PROMETHEUS) == after


def test_merging_partial_results_is_a_call_and_passes_no_rows() -> None:
    stepper = stepper_of(f"uda.merged(v) AS x INTO out FROM i {WINDOW}", log_of(("a", 1), ("a", 2)), 1)
    counted, complete = Counter[str](), False
    while not complete:
        step = stepper.step()
        complete = step.complete
        counted.update(step.counters)
    # accumulate twice, merge twice into a new object, compute_result once.
    assert tuple(counted[name] for name in METRICS) == (5, 0, 2)


def test_a_query_without_functions_counts_no_calls() -> None:
    step = stepper_of("v INTO out FROM i", log_of(("a", 1))).step()
    assert not set(METRICS) & set(step.counters)


@pytest.mark.slow
def test_aggregates_that_merge_do_so_in_shards_too() -> None:
    query = f"SELECT k, uda.merged(v) AS total INTO out FROM i {WINDOW}"
    program = Program.prepare(compile_query(query), functions=FUNCTIONS)
    log = RecordedLog(
        [RecordedEvent(str(n % 3), at(n), json.dumps({"k": "ab"[n % 2], "v": n}).encode()) for n in range(1, 40)]
    )

    def results(placement: Placement) -> list[bytes]:
        stepper = Stepper(program, POLICY, {"i": log}, placement, settings=StepSettings(7))
        found, complete = [], False
        while not complete:
            step = stepper.step()
            found += [rows.to_json_lines() for rows in step.rows if len(rows)]
            complete = step.complete
        return found

    expected = results(TravellingTasks(program, POLICY))
    assert expected
    assert results(ShardsHere(program, POLICY, 2, 0)) == expected
