"""Partitions that are merged into one timeline: in a query over history as in a job, in little memory."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.job.equality import EPOCH, drawn
from tests.job.logs import TravellingTasks, prepared
from tests.profiles import scaled
from tests.spark.queries.history_here import (
    Rows,
    check_a_random_history,
    lines_of,
    rows_of_history,
    rows_of_job,
    rows_of_parcels,
)
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.connectors.model.events import Events, InputLog, PartitionEnd
from tidegate.engine import JSON, Program
from tidegate.engine.sharding.payloads import Sharding
from tidegate.job.runtime.step import Progress, Stepper
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_MICROSECOND, TICKS_PER_SECOND, Policy, format_time
from tidegate.spark import rejected, sql
from tidegate.spark.queries import merged_timelines
from tidegate.spark.queries.arguments import QueryArguments, job_of
from tidegate.spark.queries.frame_events import RowLayout
from tidegate.spark.queries.frame_runs import SortedRows
from tidegate.spark.queries.history import Bounds, parcels_of
from tidegate.spark.queries.merged_timelines import ORDER, ArrivalsStage, MergedStage, PartitionRun, runs_of_logs
from tidegate.spark.queries.parcels import Parcel, parcels_in
from tidegate.spark.queries.sampling import HeldLog
from tidegate.spark.queries.shared_query import QueryOnShards, SharedProgram

Partitions = dict[str, pa.Table]


def partitions_of(log: InputLog, dice: random.Random) -> Partitions:
    """Return the events as rows of a DataFrame, whose clock is set back by less than a second now and then."""
    found = {}
    for partition, end in log.ends().items():
        (events,) = log.range(partition, 0, end.end).read_events(1000)
        back = [dice.choice([0, 0, 0, 900_000]) for _ in events.arrivals]
        found[partition] = pa.table(
            {
                "arrival": pa.array(events.arrivals // TICKS_PER_MICROSECOND - back, pa.timestamp("us")),
                "number": pa.array(events.sequence_numbers * 2, pa.int64()),
                "body": pa.array(list(events.bodies), pa.binary()),
            }
        )
    return found


def layout_of(name: str) -> RowLayout:
    return RowLayout(
        name, None, numbered=True, details=(), format=JSON, added_columns=(), ordered=True, order=("number",)
    )


def held_log(name: str, partitions: Partitions) -> HeldLog:
    return HeldLog({partition: layout_of(name).events(partition, rows, 0) for partition, rows in partitions.items()})


def rows_of_frames(
    program: Program,
    policy: Policy,
    inputs: dict[str, Partitions],
    dice: random.Random,
    start: int = NO_TIME,
    until: int | None = None,
) -> Rows:
    """Return what a query over DataFrames gives, whose partitions Spark would have sorted in tasks of any number."""
    own = program.sharded()
    bounds = Bounds.of(own, policy, None if start == NO_TIME else start, until)
    sharding = Sharding.of(own, dice.randint(1, 4), dice.getrandbits(64))
    query = QueryOnShards(SharedProgram.of(own), policy, sharding, bounds.start, bounds.until, dice.randint(1, 20))
    parcels: list[Parcel] = []
    for name, partitions in inputs.items():
        layout = layout_of(name)
        place = ArrivalsStage(SortedRows(layout, False, bounds.arrived_from, bounds.arrived_before))
        batches = [
            batch.append_column("partition", pa.array([partition] * len(batch)))
            for partition, rows in partitions.items()
            for batch in rows.to_batches(max_chunksize=dice.randint(1, 30))
        ]
        runs = [*place(iter(batches))]
        dice.shuffle(runs)
        ordered = pa.Table.from_batches(runs, runs[0].schema) if runs else pa.table({})
        ordered = ordered.sort_by([(column, "ascending") for column in ORDER]) if runs else ordered
        parcels += parcels_in(
            MergedStage(query, name, layout, parcels_of)(iter(ordered.to_batches(max_chunksize=dice.randint(1, 9))))
        )
    return rows_of_parcels(query, parcels)


def test_rows_of_a_dataframe_give_what_a_job_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(scaled(12)):
        dice = random.Random(seed)
        monkeypatch.setattr(merged_timelines, "_FEWEST_ROWS", 1)
        monkeypatch.setattr(merged_timelines, "_RUN_ROWS", dice.randint(1, 9))
        program, drawn_logs, policy = drawn(dice)
        policy = replace(policy, merged=True)
        inputs = {name: partitions_of(log, dice) for name, log in drawn_logs.items()}
        logs: dict[str, InputLog] = {name: held_log(name, rows) for name, rows in inputs.items()}
        assert rows_of_frames(program, policy, inputs, dice) == rows_of_job(program, policy, logs), f"seed {seed}"


def test_logs_of_any_start_and_end_give_what_a_job_gives() -> None:
    for seed in range(scaled(12)):
        check_a_random_history(seed, merged=True)


class OpenLog:
    """A log that has not ended, of which some partitions are known further than others."""

    def __init__(self, log: RecordedLog, known: dict[str, int | None]) -> None:
        self._log = log
        self._known = known

    def ends(self) -> dict[str, PartitionEnd]:
        return {
            partition: PartitionEnd(end.begin, end.end, self._known[partition])
            for partition, end in self._log.ends().items()
        }

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


def test_a_log_that_has_not_ended_is_read_as_far_as_all_partitions_are_known() -> None:
    program, policy = prepared("SELECT n, System.Timestamp() AS at INTO out FROM i"), Policy(merged=True)
    log = RecordedLog(
        RecordedEvent(str(number % 3), EPOCH + number * TICKS_PER_SECOND, b'{"n":%d}' % number) for number in range(30)
    )
    for known in (None, EPOCH + 20 * TICKS_PER_SECOND, EPOCH + 100 * TICKS_PER_SECOND):
        logs: dict[str, InputLog] = {"i": OpenLog(log, {"0": known, "1": None, "2": EPOCH + 40 * TICKS_PER_SECOND})}
        stepper = Stepper(program, policy, logs, TravellingTasks(program, policy))
        rows = lines_of([rows for _ in range(5) for rows in stepper.step().rows])
        assert rows_of_history(program, policy, logs, parcel_events=4) == rows
        assert 15 < len(rows["out"]) < 30


@pytest.mark.slow
@pytest.mark.parametrize("apart", [TICKS_PER_SECOND, 0], ids=["one by one", "all at once"])
def test_a_task_holds_runs_that_overlap_and_not_the_history(apart: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program, policy = prepared("SELECT COUNT(*) AS n INTO out FROM i GROUP BY TumblingWindow(second, 10)"), Policy()
    merging = replace(policy, merged=True)
    largest: list[int] = []
    take = merged_timelines.MergedRun._piece_before

    def watched(run: merged_timelines.MergedRun, events: PartitionRun, most_events: int) -> object:
        found = take(run, events, most_events)
        largest.append(run._held_count)
        return found

    monkeypatch.setattr(merged_timelines.MergedRun, "_piece_before", watched)

    def most_held(count: int) -> int:
        log = RecordedLog(RecordedEvent(str(n % 4), EPOCH + n // 4 * apart, b"{}") for n in range(count))
        logs: dict[str, InputLog] = {"i": log}
        largest.clear()
        found = rows_of_history(program, merging, logs, parcel_events=20, batch_events=12)
        assert found == rows_of_job(program, merging, logs)
        return max(largest)

    # Where all events arrive at once, partitions follow each other.
    assert most_held(2000) <= most_held(400) + 12 <= 100


def test_runs_are_sorted_by_arrival_and_partition_and_cut_where_not_all_is_known() -> None:
    def runs(before: int) -> Iterator[tuple[str, list[int]]]:
        log = RecordedLog(RecordedEvent(partition, at, b"") for at in (1, 3, 3, 5) for partition in ("10", "9"))
        ranges = [(partition, log.range(partition, 0, 4)) for partition in ("10", "9")]
        return ((run.partition, run.arrivals.tolist()) for run in runs_of_logs(ranges, before, 2))

    assert [*runs(100)] == [("9", [1, 3]), ("10", [1, 3]), ("9", [3, 5]), ("10", [3, 5])]
    assert [*runs(5)] == [("9", [1, 3]), ("10", [1, 3]), ("9", [3]), ("10", [3])]
    assert [*runs(1)] == []


def test_what_precedes_a_run_precedes_all_that_follow() -> None:
    def run(partition: str, *arrivals: int) -> PartitionRun:
        numbers = np.arange(len(arrivals), dtype=np.int64)
        times = np.array(arrivals, dtype=np.int64)
        return PartitionRun(partition, Events(numbers, times, [b""] * len(arrivals)), times)

    held = run("9", 1, 2, 2, 3)
    # By partition as a number, where arrivals tie.
    assert held.before(run("10", 2)) == 3
    assert held.before(run("8", 2)) == 1
    assert held.before(run("9", 3)) == 4


def test_a_clock_that_was_set_back_does_not_put_an_event_before_those_of_its_partition() -> None:
    layout = layout_of("i")
    first = EPOCH // TICKS_PER_MICROSECOND
    rows = pa.table(
        {
            "partition": ["0"] * 4,
            "arrival": pa.array([first, first - 900_000, first - 900_000, first + 1], pa.timestamp("us")),
            "number": [0, 1, 2, 3],
            "body": [b"{}"] * 4,
        }
    )
    place = ArrivalsStage(SortedRows(layout, in_runs=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merged_timelines, "_FEWEST_ROWS", 1)
        patch.setattr(merged_timelines, "_RUN_ROWS", 1)
        # A task gets them in batches, and each is a piece of its own.
        patch.setattr("tidegate.spark.queries.frame_runs.RUN_ROWS", 1)
        found = pa.Table.from_batches([*place(iter(rows.to_batches()))])
    assert found["arrival"].to_pylist() == [EPOCH, EPOCH, EPOCH, EPOCH + TICKS_PER_MICROSECOND]
    assert found["first"].to_pylist() == [0, 1, 2, 3]


# on Spark
# ------------------------------------------------------------------------------------------------------

# What a query selects has the same type in all results, whatever the events have.
_TYPED = "TRY_CAST(k AS nvarchar(max)) AS k, TRY_CAST(v AS float) AS v"
QUERIES_ON_SPARK = {
    f"SELECT System.Timestamp() AS at, {_TYPED} INTO o FROM i TIMESTAMP BY t WHERE k <> 'b'": "k string, v double",
    """SELECT System.Timestamp() AS at, COUNT(*) AS n, SUM(TRY_CAST(v AS float)) AS s INTO o
       FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 3)""": "n bigint, s double",
    """SELECT System.Timestamp() AS at, PartitionId AS p, COUNT(*) AS n INTO o
       FROM i TIMESTAMP BY t GROUP BY PartitionId, HoppingWindow(second, 5, 2)""": "p bigint, n bigint",
    """SELECT System.Timestamp() AS at, COUNT(*) AS n INTO o
       FROM i TIMESTAMP BY t OVER k GROUP BY k, SlidingWindow(second, 3)""": "n bigint",
    """SELECT System.Timestamp() AS at, COUNT(*) AS n INTO o
       FROM i TIMESTAMP BY t GROUP BY k, SessionWindow(second, 2, 5) OVER (PARTITION BY k)""": "n bigint",
    f"""SELECT System.Timestamp() AS at, {_TYPED},
        LAG(TRY_CAST(v AS float)) OVER (PARTITION BY k LIMIT DURATION(second, 6)) AS b INTO o
        FROM i TIMESTAMP BY t""": "k string, v double, b double",
    """SELECT System.Timestamp() AS at, TRY_CAST(i.v AS float) AS v, TRY_CAST(j.v AS float) AS w INTO o
       FROM i TIMESTAMP BY t JOIN j TIMESTAMP BY t
       ON i.k = j.k AND DATEDIFF(second, i, j) BETWEEN 0 AND 9""": "v double, w double",
    """WITH s AS (SELECT k, SUM(TRY_CAST(v AS float)) AS v FROM i TIMESTAMP BY t OVER k
                  GROUP BY k, TumblingWindow(second, 2))
       SELECT System.Timestamp() AS at, MAX(v) AS most, COUNT(*) AS n INTO o
       FROM s GROUP BY k, TumblingWindow(second, 6)""": "most double, n bigint",
}
"""With the columns that follow the time."""


def given_events(dice: random.Random) -> list[RecordedEvent]:
    """Return random events in the order of their arrivals, which a DataFrame can have: they are microseconds."""
    log = next(iter(drawn(dice).logs.values()))
    found = []
    for partition, end in log.ends().items():
        (events,) = log.range(partition, 0, end.end).read_events(1000)
        whole = events.arrivals // TICKS_PER_MICROSECOND * TICKS_PER_MICROSECOND
        found += [RecordedEvent(partition, *one) for one in zip(whole.tolist(), events.bodies, strict=True)]
    return sorted(found, key=lambda event: event.arrival)


def file_of(events: list[RecordedEvent], path: Path) -> Path:
    lines = [
        {"partition": event.partition, "arrival": format_time(event.arrival), "body": event.body.decode()}
        for event in events
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def frame_of(spark: SparkSession, events: list[RecordedEvent], dice: random.Random) -> DataFrame:
    """Return events as rows in any order."""
    rows: list[tuple[Any, ...]] = []
    for event in events:
        arrival = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=event.arrival // TICKS_PER_MICROSECOND)
        number = sum(row[0] == event.partition for row in rows)
        rows.append((event.partition, arrival, event.body, number))
    dice.shuffle(rows)
    frame = spark.createDataFrame(rows, "partition string, enqueuedTime timestamp, body binary, sequenceNumber bigint")
    return frame.repartition(dice.randint(1, 5))


def plain_rows(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows as sorted lines, with times in microseconds as Spark has them."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return (value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        return value

    return sorted(json.dumps({name: plain(value) for name, value in row.items()}, sort_keys=True) for row in rows)


@dataclass(frozen=True, slots=True)
class Example:
    """A query over random events, and what a job makes of them."""

    query: str
    ordering: dict[str, Any]
    events: dict[str, list[RecordedEvent]]
    bounds: dict[str, str]
    expected: list[str]


def example_of(dice: random.Random) -> Example:
    """Draw examples until it matters that partitions are merged."""
    while True:
        query = dice.choice([*QUERIES_ON_SPARK])
        ordering = {
            "late_arrival_tolerance_s": dice.choice([10, 5, 5, 0, 3600, -1]),
            "out_of_order_tolerance_s": dice.choice([0, 0, 1, 2, 30]),
            "early_arrival_tolerance_s": dice.choice([300, 300, 2, 0, False]),
            "action": dice.choice(["adjust", "drop"]),
        }
        events = {name: given_events(dice) for name in ("i", "j") if f" {name} TIMESTAMP BY" in query}
        start = dice.choice([NO_TIME, EPOCH + dice.randint(-5, 60) * TICKS_PER_SECOND])
        until = dice.choice([END_OF_TIME, EPOCH + dice.randint(61, 120) * TICKS_PER_SECOND])
        merged = {**ordering, "timelines": "merged by enqueued time"}
        expected, other = (job_results(query, events, policy, start, until) for policy in (merged, ordering))
        if expected != other:
            bounds = {"start": start, "until": until}
            given = {name: format_time(at) for name, at in bounds.items() if at not in (NO_TIME, END_OF_TIME)}
            return Example(query, merged, events, given, expected)


def job_results(
    query: str, events: dict[str, list[RecordedEvent]], ordering: dict[str, Any], start: int, until: int
) -> list[str]:
    job = job_of(QueryArguments(query, {}, [*events], ordering), "test")
    logs: dict[str, InputLog] = {name: RecordedLog(own) for name, own in events.items()}
    step = Stepper(job.program, job.policy, logs, TravellingTasks(job.program, job.policy), Progress(start)).step()
    found = [one for rows in step.rows for one in zip(rows.timestamps.tolist(), rows.to_dicts(), strict=True)]
    return plain_rows([{**row, "at": at // TICKS_PER_MICROSECOND} for at, row in found if at < until])


@pytest.mark.spark
@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(2, 2 + scaled(20)), marks=pytest.mark.soak)], ids=["some", "many"]
)
def test_a_session_gives_what_a_job_gives_for_random_events(spark: SparkSession, tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        check_on_spark(spark, tmp_path, seed)


def check_on_spark(spark: SparkSession, folder: Path, seed: int) -> Example:
    """Compare a query over logs, over DataFrames and over both with a job."""
    dice = random.Random(seed)
    example = example_of(dice)
    events = example.events
    frames = {name: frame_of(spark, own, dice) for name, own in events.items()}
    files = {name: file_of(own, folder / f"{seed}-{name}.jsonl") for name, own in events.items()}
    places: list[dict[str, Any]] = [frames, files]
    if len(events) > 1:
        places = [{name: dice.choice([frames, files])[name] for name in events}, dice.choice(places)]
    lost = []
    for inputs in places:
        found = sql(
            spark,
            example.query,
            inputs=inputs,
            event_ordering=example.ordering,
            schema=f"at timestamp, {QUERIES_ON_SPARK[example.query]}",
            shards=dice.randint(1, 4),
            **example.bounds,
        )
        assert plain_rows([row.asDict() for row in found.collect()]) == example.expected, f"seed {seed}"
        refused = rejected(spark, example.query, inputs=inputs, event_ordering=example.ordering, **example.bounds)
        lost.append(sorted(map(str, refused.select("input", "partition", "sequenceNumber", "reason").collect())))
    assert lost[0] == lost[1], f"seed {seed}"
    return example
