"""`tidegate.spark.sql` in a session as a user has it: the rows that a job gives, and errors before anything runs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession, functions

import tidegate.spark as tidegate_spark
from tests.job.logs import TravellingTasks
from tests.patience import eventually
from tests.spark.publishing import publish
from tidegate.connectors.inputs.recorded import RecordedLog
from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.events import InputLog
from tidegate.job.runtime.step import Stepper
from tidegate.ordering import format_time
from tidegate.server import BackgroundServer
from tidegate.spark.queries.arguments import QueryArguments, job_of, time_of
from tidegate.spark.queries.history import Bounds, timelines_of

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ORDERING = {"late_arrival_tolerance_s": 20, "out_of_order_tolerance_s": 3}
BODIES = "body string, enqueuedTime timestamp, partition string, sequenceNumber bigint, properties map<string,string>"
TWO_LEVELS = """
WITH sums AS (
    SELECT booth, lane, SUM(v) AS v FROM input TIMESTAMP BY t GROUP BY booth, lane, TumblingWindow(second, 10)
)
SELECT System.Timestamp() AS t, booth, MAX(v) AS most, COUNT(*) AS lanes INTO result FROM sums
GROUP BY booth, TumblingWindow(second, 30)
"""


def readings(count: int = 400) -> list[dict[str, Any]]:
    """Readings with early, late and out-of-order ones, and a broken one."""
    found = []
    for number in range(count):
        arrival = NOON + timedelta(milliseconds=400 * number)
        lateness = timedelta(seconds=(number * 7) % 11 - 2 + (40 if number % 50 == 0 else 0))
        body = {"t": (arrival - lateness).isoformat(), "booth": "ab"[number % 2], "lane": number % 5, "v": number * 0.5}
        found.append({"partition": number % 3, "arrival": arrival, "body": body})
    found[7]["body"] = "{broken"
    return found


def text(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body)


def frame_of(spark: SparkSession, given: Sequence[dict[str, Any]]) -> DataFrame:
    """Return them as the `eventhubs` source would, in any order."""
    rows = [
        (text(one["body"]), one["arrival"], str(one["partition"]), number // 3, {"place": "ab"[number % 2]})
        for number, one in enumerate(given)
    ]
    return spark.createDataFrame(rows[::-1], BODIES).repartition(5)


def recorded(path: Path, given: Sequence[dict[str, Any]]) -> Path:
    lines = [json.dumps({**one, "arrival": one["arrival"].isoformat(), "body": text(one["body"])}) for one in given]
    path.write_text("\n".join(lines))
    return path


def rows_of_job(query: str, logs: dict[str, InputLog], ordering: dict[str, Any]) -> list[dict[str, Any]]:
    job = job_of(QueryArguments(query, {}, [*logs], ordering), "test")
    step = Stepper(job.program, job.policy, logs, TravellingTasks(job.program, job.policy)).step()
    return ordered([row for rows in step.rows for row in rows.to_dicts()])


def ordered(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    """Return rows with times as a job writes them."""
    return ordered([{name: plain(value) for name, value in row.asDict().items()} for row in frame.collect()])


def plain(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    since = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return format_time((since // timedelta(microseconds=1)) * 10)


def test_a_dataframe_and_a_recorded_log_give_what_a_job_gives(spark: SparkSession, tmp_path: Path) -> None:
    given = readings()
    path = recorded(tmp_path / "log.jsonl", given)
    expected = rows_of_job(TWO_LEVELS, {"input": RecordedLog.from_file(path)}, ORDERING)
    assert len(expected) > 10
    before = spark.conf.getAll
    of_frame = tidegate_spark.sql(
        spark, TWO_LEVELS, inputs={"input": frame_of(spark, given)}, event_ordering=ORDERING, shards=3
    )
    of_log = tidegate_spark.sql(spark, TWO_LEVELS, inputs={"input": path}, event_ordering=ORDERING)
    assert of_frame.dtypes == [("t", "timestamp"), ("booth", "string"), ("most", "double"), ("lanes", "bigint")]
    assert collected(of_frame) == collected(of_log) == expected
    assert spark.conf.getAll == before


@pytest.mark.parametrize(
    "query",
    [
        TWO_LEVELS.replace("BY t GROUP", "BY t OVER booth GROUP"),
        pytest.param(
            "SELECT System.Timestamp() AS t, booth, v, LAG(v) OVER (PARTITION BY booth LIMIT DURATION(minute, 1)) AS b "
            "INTO result FROM input TIMESTAMP BY t OVER booth",
            marks=pytest.mark.soak,
        ),
    ],
    ids=["windows", "LAG"],
)
def test_timelines_of_substreams_give_what_a_job_gives(spark: SparkSession, tmp_path: Path, query: str) -> None:
    given = readings()
    path = recorded(tmp_path / "log.jsonl", given)
    log = RecordedLog.from_file(path)
    expected = rows_of_job(query, {"input": log}, ORDERING)
    without = re.sub(r"TIMESTAMP BY t OVER \w+", "TIMESTAMP BY t", query)
    assert without != query
    assert expected != rows_of_job(without, {"input": log}, ORDERING), "the substreams make a difference"
    of_frame = tidegate_spark.sql(
        spark, query, inputs={"input": frame_of(spark, given)}, event_ordering=ORDERING, shards=3
    )
    of_log = tidegate_spark.sql(spark, query, inputs={"input": path}, event_ordering=ORDERING, shards=2)
    assert collected(of_frame) == collected(of_log) == expected


@pytest.mark.parametrize(
    "query",
    [
        TWO_LEVELS,
        pytest.param(TWO_LEVELS.replace("BY t GROUP", "BY t OVER booth GROUP"), marks=pytest.mark.soak),
        pytest.param(
            "SELECT System.Timestamp() AS t, lane, v, LAG(v) OVER (PARTITION BY lane LIMIT DURATION(minute, 1)) AS b "
            "INTO result FROM input TIMESTAMP BY t",
            marks=pytest.mark.soak,
        ),
    ],
    ids=["windows", "substreams", "LAG"],
)
def test_merged_partitions_give_what_a_job_gives(spark: SparkSession, tmp_path: Path, query: str) -> None:
    given = readings()
    path = recorded(tmp_path / "log.jsonl", given)
    log = RecordedLog.from_file(path)
    merged = {**ORDERING, "timelines": "merged by enqueued time"}
    expected = rows_of_job(query, {"input": log}, merged)
    assert expected != rows_of_job(query, {"input": log}, ORDERING), "the order of partitions makes a difference"
    frame = frame_of(spark, given)
    by_position = tidegate_spark.events(frame)
    by_spark = tidegate_spark.events(frame, order=functions.expr("CAST(sequenceNumber AS decimal(20, 0))"))
    for input_, shards in ((by_position, 3), (by_spark, 1), (path, 2)):
        found = tidegate_spark.sql(spark, query, inputs={"input": input_}, event_ordering=merged, shards=shards)
        assert collected(found) == expected
    dropping = {**merged, "action": "drop"}
    lost = [
        tidegate_spark.rejected(spark, query, inputs={"input": one}, event_ordering=dropping)
        .select("partition", "sequenceNumber", "reason", "body")
        .collect()
        for one in (frame, path)
    ]
    assert sorted(map(tuple, lost[0])) == sorted(map(tuple, lost[1]))
    assert len(lost[0]) > 10


def test_columns_are_fields_with_their_types(spark: SparkSession, tmp_path: Path) -> None:
    given = [one for one in readings() if not isinstance(one["body"], str)]
    whole = [{**one, "body": {**one["body"], "v": int(one["body"]["v"] * 2)}} for one in given]
    expected = rows_of_job(TWO_LEVELS, {"input": RecordedLog.from_file(recorded(tmp_path / "log", whole))}, ORDERING)
    rows = [
        (one["arrival"], one["partition"], datetime.fromisoformat(one["body"]["t"]), *list(one["body"].values())[1:])
        for one in whole
    ]
    typed = spark.createDataFrame(rows, "arrived timestamp, place int, t timestamp, booth string, lane int, v bigint")
    input_ = tidegate_spark.events(typed.repartition(4), arrival="arrived", partition="place")
    schema = "t timestamp, booth string, most bigint, lanes int"
    found = tidegate_spark.sql(spark, TWO_LEVELS, inputs={"input": input_}, event_ordering=ORDERING, schema=schema)
    assert collected(found) == expected


def test_spark_moves_and_sorts_runs_unless_only_it_can_sort_the_rows(spark: SparkSession) -> None:
    frame = frame_of(spark, readings(90))

    def found(**order: Any) -> tuple[str, list[dict[str, Any]]]:
        given = tidegate_spark.events(frame, **order)
        result = tidegate_spark.sql(spark, TWO_LEVELS, inputs={"input": given}, event_ordering=ORDERING, shards=2)
        query: Any = result._jdf
        return query.queryExecution().executedPlan().toString(), collected(result)

    plan, rows = found()
    # One exchange for the runs and one for the shards, each into as many tasks as can work at once.
    assert re.findall(r"Exchange hashpartitioning\(.*, (\d+)\), REPARTITION_BY_NUM", plan) == ["2", "2"]
    assert "Sort [partition" in plan
    assert "first#" in plan
    own_order, sorted_by_spark = found(order=functions.expr("CAST(sequenceNumber AS decimal(20, 0))"))
    assert "first#" not in own_order
    assert rows == sorted_by_spark


def test_rows_that_share_a_position_are_in_the_order_of_arrival_and_content(spark: SparkSession) -> None:
    rows = [(NOON + timedelta(seconds=n // 4), n // 8, f"v{n * 7 % 40:02}") for n in range(40)]
    ordered = [value for _, _, value in sorted(rows)]
    query = "SELECT v, LAG(v) OVER (LIMIT DURATION(hour, 1)) AS before INTO result FROM input"
    expected = {(value, before) for value, before in zip(ordered, [None, *ordered], strict=False)}
    for given in (rows, rows[::-1]):
        frame = spark.createDataFrame(given, "arrived timestamp, place bigint, v string").repartition(3)
        for order in ("place", functions.expr("CAST(place AS decimal(20, 0))")):
            input_ = tidegate_spark.events(frame, arrival="arrived", order=order)
            found = tidegate_spark.sql(spark, query, inputs={"input": input_}, event_ordering=ORDERING, shards=1)
            assert {(row["v"], row["before"]) for row in found.collect()} == expected


def test_a_join_of_a_dataframe_with_a_log_from_a_start_time_to_another(spark: SparkSession, tmp_path: Path) -> None:
    given = readings(200)
    path = recorded(tmp_path / "log.jsonl", given)
    query = """
    SELECT System.Timestamp() AS at, a.lane, GetMetadataPropertyValue(a, '[User].[place]') AS place,
        GetMetadataPropertyValue(a, 'EventHub.SequenceNumber') AS number, r.v
    INTO result FROM l AS a JOIN r ON a.lane = r.lane AND DATEDIFF(second, a, r) BETWEEN 0 AND 1
    """
    log = RecordedLog.from_file(path)
    every = rows_of_job(
        query.replace("GetMetadataPropertyValue(a, '[User].[place]')", "a.booth"), {"l": log, "r": log}, {}
    )
    start, until = NOON + timedelta(seconds=20), NOON + timedelta(seconds=40)
    wanted = [row for row in every if plain(start) <= row["at"] < plain(until)]
    assert 0 < len(wanted) < len(every)
    found = collected(
        tidegate_spark.sql(
            spark, query, inputs={"l": frame_of(spark, given), "r": path}, start=start, until=plain(until)
        )
    )
    # The broken body has no booth, and no lane to be joined by.
    assert found == ordered(wanted)


def test_files_of_capture_are_events(spark: SparkSession) -> None:
    member = "struct<member0:bigint,member1:double,member2:string,member3:binary>"
    schema = (
        "SequenceNumber bigint, Offset string, EnqueuedTimeUtc string, "
        f"SystemProperties map<string,{member}>, Properties map<string,{member}>, Body binary"
    )
    exact = int(NOON.timestamp() * 1000) + 250
    rows = [
        (1, "8", "1/31/2026 12:00:00 PM", {"x-opt-enqueued-time": (exact, None, None, None)}, {}, b'{"a":1}'),
        (2, "16", "1/31/2026 12:00:01 PM", {}, {"p": (None, None, "text", None)}, b'{"a":2}'),
    ]
    captured = spark.createDataFrame(rows, schema)
    query = """
    SELECT a, System.Timestamp() AS t, GetMetadataPropertyValue(input, 'User.p') AS p,
        GetMetadataPropertyValue(input, 'EventHub.Offset') AS o INTO result FROM input
    """
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        found = collected(tidegate_spark.sql(spark, query, inputs={"input": captured}))
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert found == [
        {"a": 1, "t": "2026-01-31T12:00:00.2500000Z", "p": None, "o": "8"},
        {"a": 2, "t": "2026-01-31T12:00:01.0000000Z", "p": "text", "o": "16"},
    ]


def test_a_star_has_the_columns_of_the_sample_and_nothing_is_dropped(spark: SparkSession) -> None:
    given = [{"partition": 0, "arrival": NOON, "body": {"a": number}} for number in range(1200)]
    frame = frame_of(spark, given)
    found = tidegate_spark.sql(spark, "SELECT * INTO result FROM input", inputs={"input": frame})
    assert found.columns == ["a", "EventProcessedUtcTime", "PartitionId", "EventEnqueuedUtcTime"]
    assert found.count() == 1200
    query = "SELECT a INTO result FROM input"
    bare = tidegate_spark.events(frame, system_columns=False)
    later = tidegate_spark.sql(spark, query, inputs={"input": bare}, schema="a tinyint")
    with pytest.raises(PythonException) as raised:
        later.collect()
    last = [line for line in str(raised.value).splitlines() if "Error: " in line][-1]
    assert "OutputError: output 'result', column 'a': 128 is out of range for tinyint; got 128" in last
    assert "Traceback" not in str(raised.value)
    assert "File " not in str(raised.value)
    dropping = tidegate_spark.sql(spark, query, inputs={"input": bare}, schema="a tinyint", output_error_policy="drop")
    assert dropping.count() == 128


def test_rejected_events_are_a_dataframe_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    given = readings()
    dropping = {**ORDERING, "action": "drop"}
    inputs = [frame_of(spark, given), recorded(tmp_path / "log.jsonl", given)]
    of_frame, of_log = (
        tidegate_spark.rejected(spark, TWO_LEVELS, inputs={"input": one}, event_ordering=dropping) for one in inputs
    )
    columns = ("partition", "reason", "body", "enqueuedTime")
    found = sorted(map(tuple, of_frame.select(*columns).collect()))
    assert found == sorted(map(tuple, of_log.select(*columns).collect()))
    counts = Counter(reason for _, reason, _, _ in found)
    assert counts["InputDeserializerError.InvalidData"] == 1
    assert counts["LateInputEvent"] == 8
    assert counts["OutOfOrderEvent"] > 10
    (broken,) = of_frame.where("reason LIKE 'Input%'").collect()
    assert (broken["body"], broken["partition"], broken["sequenceNumber"]) == (b"{broken", "1", 2)
    assert broken["enqueuedTime"] == given[7]["arrival"].astimezone().replace(tzinfo=None)


def test_a_live_hub_gives_what_a_job_would_have_written_by_now(spark: SparkSession, hub: BackgroundServer) -> None:
    for partition in "012":
        publish(hub.connection_string, "history", [{"n": n} for n in range(100)], partition_id=partition)
    inputs = {"i": {"connectionString": hub.connection_string, "eventHub": "history"}}

    def numbers() -> list[int]:
        rows = tidegate_spark.sql(spark, "SELECT n INTO o FROM i", inputs=inputs, schema="n bigint").collect()
        return sorted(row.n for row in rows)

    # The hub's clock passes the last events in a moment.
    eventually(lambda: numbers() == sorted([*range(100)] * 3))


def test_wrong_arguments_are_refused_before_anything_runs(spark: SparkSession) -> None:
    frame = frame_of(spark, readings(8))

    def refusal(query: str = "SELECT a INTO result FROM input", **given: Any) -> str:
        with pytest.raises(JobError) as raised:
            tidegate_spark.sql(spark, query, **{"inputs": {"input": frame}, **given})
        return str(raised.value)

    assert refusal(inputs={"input": frame.drop("enqueuedTime")}) == (
        "tidegate.spark.sql: inputs['input']: the DataFrame has no arrival time: it has body string, partition string, "
        "sequenceNumber bigint, properties map<string,string>, expected a timestamp 'enqueuedTime'; pass "
        "tidegate.spark.events(df, arrival='COLUMN') with the time at which the broker got each event, or "
        "tidegate.spark.reference(df) if it is a table that the query joins"
    )
    wrong = frame.withColumn("enqueuedTime", functions.lit(1))
    assert "events(arrival='enqueuedTime') is int, expected timestamp" in refusal(inputs={"input": wrong})
    with pytest.raises(JobError, match=r"events\(order='place'\) is string, expected a number or a timestamp; cast it"):
        tidegate_spark.events(spark.sql("SELECT now() AS enqueuedTime, '9' AS place"), order="place")
    assert "did you mean inptu?" in refusal(inputs={"inptu": frame})
    assert "say which one: output='result'" in refusal("SELECT a INTO result FROM input; SELECT a INTO b FROM input")
    assert "start is a time such as" in refusal(start="yesterday")
    assert "schema is not a list of columns" in refusal(schema="a bignt")
    assert "shards is a number, 1 or more" in refusal(shards=0)
    assert "until is 2026-01-01T00:00:00.0000000Z, and start is 2026-01-02" in refusal(
        start="2026-01-02", until="2026-01-01"
    )
    assert "inputs is a dict of inputs" in refusal(inputs=frame)
    number = tidegate_spark.events(frame.drop("body"), arrival="enqueuedTime")
    by_number = (
        "SELECT COUNT(*) AS n INTO result FROM input TIMESTAMP BY sequenceNumber GROUP BY TumblingWindow(second, 1)"
    )
    assert "TIMESTAMP BY sequenceNumber: the column of inputs['input']" in refusal(by_number, inputs={"input": number})
    assert "needs schema=" in refusal(output_error_policy="drop")
    typed = tidegate_spark.events(frame.withColumnRenamed("body", "speed"), arrival="enqueuedTime")
    assert "reads 'sped' of 'input'" in refusal("SELECT sped INTO result FROM input", inputs={"input": typed})
    rate = spark.readStream.format("rate").load()
    assert "inputs['input']: the DataFrame is a stream" in refusal(inputs={"input": rate})
    with pytest.raises(JobError, match="did you mean 'enqueuedTime'"):
        tidegate_spark.events(frame, arrival="enqueudTime")
    with pytest.raises(JobError, match="expected string or binary"):
        tidegate_spark.events(frame, body="properties")


@pytest.mark.parametrize(
    ("start", "until", "read"), [(None, "2026-01-31", 0), ("2026-02-01", None, 0), (None, "2026-01-31T12:00:30", 40)]
)
def test_a_time_without_events_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, start: str | None, until: str | None, read: int
) -> None:
    log = RecordedLog.from_file(recorded(tmp_path / "log.jsonl", readings(400)))
    job = job_of(QueryArguments(TWO_LEVELS, {}, ["input"], ORDERING), "test")
    bounds = Bounds.of(job.program, job.policy, time_of("start", start, "test"), time_of("until", until, "test"))
    timelines = timelines_of({"input": log}, bounds, job.policy)
    assert (sum(one.end - one.start for each in timelines for _, one in each.ranges) > read) == bool(read)
    assert ("input 'input': none of its 400 events arrived when" in caplog.text) == (not read)


def test_jobs_and_steps_have_names_in_the_ui(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    context.setJobDescription("of the user")
    try:
        found: Any = tidegate_spark.sql(
            spark,
            "SELECT v, COUNT(*) AS n INTO result FROM input GROUP BY v, TumblingWindow(second, 10)",
            inputs={"input": frame_of(spark, readings(20))},
            event_ordering=ORDERING,
        )
        assert context.getLocalProperty("spark.job.description") == "of the user"
    finally:
        context.setLocalProperty("spark.job.description", None)
    plan = str(found._jdf.queryExecution().toString())
    assert all(f"MapInArrow {name}(" in plan for name in ("rows_of_input", "events_of_input", "shards_of_result"))

    def described() -> bool:
        jobs = context._jsc.sc().statusStore().jobsList(None)
        said = [str(jobs.apply(at).description()) for at in range(jobs.size())]
        return any("tidegate.spark.sql: first events of input, for the types of result" in one for one in said)

    eventually(described)
