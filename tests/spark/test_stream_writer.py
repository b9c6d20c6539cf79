"""`tidegate.spark.stream` on a session: every kind of sink, several outputs, failures and mistakes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tests.patience import PATIENCE_S, PROMPTLY_S, eventually
from tidegate.job import JobError
from tidegate.spark import (
    CheckpointMismatch,
    ResultStreamWriter,
    StreamingQuery,
    StreamingQueryFailed,
    UnknownFormat,
    stream,
)

pytestmark = pytest.mark.spark

COUNT = """SELECT System.Timestamp() AS window_end, device, COUNT(*) AS n INTO counts
FROM i TIMESTAMP BY t GROUP BY device, TumblingWindow(second, 10)"""
TWO = f"""{COUNT};
SELECT device, speed INTO fast FROM i TIMESTAMP BY t WHERE speed > 900"""
EVENTS = 1_000
WINDOWS = 101


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded log of a thousand seconds: an event a second, and a device for all of them."""
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    with path.open("w") as file:
        for n in range(EVENTS):
            time = f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z"
            body = {"t": time, "device": "press", "speed": n}
            file.write(json.dumps({"partition": n % 2, "arrival": time, "body": body}) + "\n")
    return path


Counting = Callable[..., ResultStreamWriter]


@pytest.fixture
def counting(spark: SparkSession, log: Path, tmp_path: Path) -> Counting:
    """A writer for counts in windows, in four steps, with a checkpoint."""

    def writer(query: str = COUNT, **arguments: Any) -> ResultStreamWriter:
        prepared = stream(spark, query, inputs={"i": str(log)}, max_events_per_step=250, **arguments)
        return prepared.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)

    return writer


def total(rows: DataFrame) -> tuple[int, int]:
    found = rows.selectExpr("count(*)", "sum(n)").collect()[0]
    return found[0], found[1]


# -- sinks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["process", "spark"])
def test_files_have_each_row_once_and_a_restart_adds_nothing(
    spark: SparkSession, counting: Counting, tmp_path: Path, placement: str
) -> None:
    for _ in range(2):
        query = counting(placement=placement).format("parquet").start(str(tmp_path / "out"))
        assert query.awaitTermination(3 * PATIENCE_S)
    assert total(spark.read.parquet(str(tmp_path / "out"))) == (WINDOWS, EVENTS)
    schema = spark.read.parquet(str(tmp_path / "out")).schema.simpleString()
    assert schema == "struct<window_end:timestamp,device:string,n:bigint>"


def test_files_are_partitioned_and_formatted_by_options(
    spark: SparkSession, counting: Counting, tmp_path: Path
) -> None:
    out = tmp_path / "with a space"
    query = counting().partitionBy("device").start(str(out), format="csv", header=True)
    query.awaitTermination(3 * PATIENCE_S)
    assert total(spark.read.csv(str(out), header=True, inferSchema=True)) == (WINDOWS, EVENTS)
    assert [path.name for path in out.iterdir() if path.is_dir() and path.name != "_tidegate"] == ["device=press"]


def test_a_function_gets_steps_that_count_from_0(spark: SparkSession, counting: Counting) -> None:
    seen: list[tuple[int, int]] = []

    def take(rows: DataFrame, step: int) -> None:
        assert rows.sparkSession is spark
        seen.append((step, total(rows)[1]))

    counting().foreachBatch(take).start().awaitTermination(3 * PATIENCE_S)
    assert [step for step, _ in seen] == list(range(len(seen)))
    assert len(seen) >= 4
    assert sum(events for _, events in seen) == EVENTS


def test_a_function_that_fails_ends_the_query_and_gets_the_same_step_again(counting: Counting) -> None:
    seen: list[tuple[int, list[Any]]] = []

    def take(rows: DataFrame, step: int) -> None:
        seen.append((step, rows.collect()))
        if len(seen) == 2:
            raise ConnectionError("the database is down")

    query = counting().foreachBatch(take).start()
    with pytest.raises(StreamingQueryException, match="ConnectionError: the database is down"):
        query.awaitTermination(3 * PATIENCE_S)
    assert "the database is down" in str(query.exception())
    counting().foreachBatch(take).start().awaitTermination(3 * PATIENCE_S)
    assert [step for step, _ in seen[:4]] == [0, 1, 1, 2]
    assert seen[1] == seen[2]
    rows = [row for step, rows in dict(seen).items() for row in rows]
    assert (len(rows), sum(row["n"] for row in rows)) == (WINDOWS, EVENTS)


def test_a_table_is_created_and_appended_to(spark: SparkSession, counting: Counting) -> None:
    query = counting().toTable("counted", format="parquet", partitionBy="device")
    query.awaitTermination(3 * PATIENCE_S)
    assert total(spark.table("counted")) == (WINDOWS, EVENTS)
    assert spark.catalog.listColumns("counted")[-1].isPartition
    spark.sql("DROP TABLE counted")


def test_memory_the_console_and_progress(spark: SparkSession, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = stream(spark, COUNT, inputs={"i": str(log)}).format("memory").queryName("in_memory").start()
    query.processAllAvailable()
    assert total(spark.table("in_memory")) == (WINDOWS, EVENTS)
    progress = query.lastProgress
    assert isinstance(progress, StreamingQueryProgress)
    assert (progress.name, progress.batchId, progress.numInputRows) == ("in_memory", 0, EVENTS)
    assert progress.sink.numOutputRows == WINDOWS
    source = progress.sources[0]
    assert [json.loads(one) for one in (source.startOffset, source.endOffset, source.latestOffset)] == [
        {"0": 0, "1": 0},
        {"0": 500, "1": 500},
        {"0": 500, "1": 500},
    ]
    assert source.numInputRows == EVENTS
    assert progress.stateOperators == [], "Spark's counts of state stores are not those of shards"
    assert progress.observedMetrics["tidegate.state"]["bytes"] >= 0
    assert progress.sources[0].description == "Tidegate[recorded: i]"
    assert query.recentProgress == [progress]
    query.stop()
    shown = stream(spark, COUNT, inputs={"i": str(log)}).format("console").trigger(once=True).start(numRows=1)
    shown.awaitTermination(3 * PATIENCE_S)
    assert "Batch: 0" in capsys.readouterr().out


def test_several_outputs_go_to_several_places(spark: SparkSession, counting: Counting, tmp_path: Path) -> None:
    fast: list[int] = []
    writer = counting(TWO, schema={"fast": "device string, speed int"})
    writer.output("fast").foreachBatch(lambda rows, step: fast.append(rows.count()))
    query = writer.output("COUNTS").format("json").start(str(tmp_path / "counts"))
    query.awaitTermination(3 * PATIENCE_S)
    assert total(spark.read.json(str(tmp_path / "counts"))) == (WINDOWS, EVENTS)
    assert sum(fast) == 99


def test_one_of_several_outputs_can_be_enough(counting: Counting) -> None:
    fast: list[str] = []
    query = (
        counting(TWO, output="fast").foreachBatch(lambda rows, step: fast.append(rows.schema.simpleString())).start()
    )
    query.awaitTermination(3 * PATIENCE_S)
    # The query leaves the types open; these are of the first rows.
    assert set(fast) == {"struct<device:string,speed:bigint>"}


def test_many_rows_are_read_by_executors(spark: SparkSession, tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    with many.open("w") as file:
        for n in range(60_000):
            line = {"arrival": "2026-01-01T00:00:00Z", "partition": n % 2, "body": {"n": n, "text": f"{n:040d}"}}
            file.write(json.dumps(line) + "\n")
    query = "SELECT n, text, text AS again INTO out FROM i"
    found: list[tuple[int, int, bool]] = []

    def take(rows: DataFrame, step: int) -> None:
        plan = rows._jdf.queryExecution().toString()
        row = rows.selectExpr("count(*)", "sum(n)").collect()[0]
        found.append((row[0], row[1], "MapInArrow" in plan))

    writer = stream(
        spark, query, inputs={"i": str(many)}, placement="spark", schema="n bigint, text string, again string"
    )
    writer.foreachBatch(take).trigger(availableNow=True).start().awaitTermination(3 * PATIENCE_S)
    assert found == [(60_000, sum(range(60_000)), True)]


# -- stopping and mistakes ---------------------------------------------------------------------------------------------


def test_a_checkpoint_has_one_query_at_a_time_and_keeps_its_identity(
    spark: SparkSession, counting: Counting, tmp_path: Path
) -> None:
    config = f'{{"id": "{"0" * 8}-0000-4000-8000-{"0" * 12}"}}'
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text(config)
    blocking: list[int] = []

    def take(rows: DataFrame, step: int) -> None:
        blocking.append(step)
        if step == 0:
            eventually(lambda: len(blocking) > 1)

    first = counting().foreachBatch(take).start()
    eventually(lambda: blocking == [0])
    with pytest.raises(JobError, match="another process is running this job"):
        counting().foreachBatch(take).start()
    assert first.id == "00000000-0000-4000-8000-000000000000"
    blocking.append(-1)
    first.awaitTermination(3 * PATIENCE_S)
    again = counting().foreachBatch(take).start()
    assert (again.id, again.runId == first.runId) == (first.id, False)
    again.awaitTermination(3 * PATIENCE_S)
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"


@pytest.mark.parametrize("placement", ["process", "spark"])
def test_a_stop_interrupts_a_step(counting: Counting, placement: str) -> None:
    def slow(speed: int) -> int:
        time.sleep(0.5)
        return speed

    query = "SELECT udf.slow(speed) AS n INTO slow FROM i"
    writer = counting(query, functions={"slow": slow}, placement=placement, schema="n bigint")
    assert stopped_within_s(writer.foreachBatch(print).start()) < PROMPTLY_S


def test_a_stop_interrupts_what_a_function_runs_on_spark(counting: Counting) -> None:
    began = threading.Event()

    def write(rows: DataFrame, step: int) -> None:
        def forever(batches: Any) -> Any:
            time.sleep(2 * PATIENCE_S)
            yield from batches

        began.set()
        rows.mapInArrow(forever, rows.schema).collect()

    query = counting().foreachBatch(write).start()
    began.wait(PATIENCE_S)
    assert stopped_within_s(query) < PROMPTLY_S


def stopped_within_s(query: StreamingQuery) -> float:
    # Within its first step, or within its write.
    time.sleep(1)
    assert query.isActive, query.exception()
    began = time.monotonic()
    query.stop()
    assert query.exception() is None
    assert query.status["message"] == "Stopped"
    return time.monotonic() - began


def test_mistakes_are_one_line_that_says_what_to_do(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    def writer(query: str = COUNT, **arguments: Any) -> ResultStreamWriter:
        return stream(spark, query, inputs={"i": str(log)}, **arguments)

    of_spark = tmp_path / "of-spark"
    (of_spark / "offsets").mkdir(parents=True)
    mistakes: list[tuple[str, Callable[[], Any]]] = [
        ("only 'append' is possible", lambda: writer().outputMode("complete")),
        ("checkpointLocation is missing", lambda: writer().format("parquet").start(str(tmp_path / "x"))),
        ("needs a path", lambda: writer().option("checkpointLocation", str(tmp_path / "y")).format("csv").start()),
        ("belongs to a query of Structured Streaming", lambda: writer().start("x", checkpointLocation=str(of_spark))),
        ("mounted, got dbfs:/x; as a mounted folder, this one is /dbfs/x",
         lambda: writer().start("x", checkpointLocation="dbfs:/x")),
        ("'memory'.* needs queryName", lambda: writer().format("memory").start()),
        ("expected a time such as '10 seconds'", lambda: writer().trigger(processingTime="soon")),
        ("continuous", lambda: writer().trigger(continuous="1 second")),
        ("one of processingTime", lambda: writer().trigger()),
        ("placement is 'spark', 'auto' or 'process'", lambda: writer(placement="cloud")),
        ("select one with .output\\('counts'\\)", lambda: writer(TWO).format("parquet")),
        ("output 'fast' has no format", lambda: writer(TWO).output("counts").foreachBatch(print).start()),
        ("no output 'slow'; it has counts, fast", lambda: writer(TWO).output("slow")),
        ("expected a function", lambda: writer().foreachBatch("x")),
        ("inputs\\['i'\\] is a DataFrame.*tidegate.spark.sql takes the same query",
         lambda: stream(spark, COUNT, inputs={"i": spark.range(1)})),
        ("schema lacks device", lambda: writer(schema="window_end timestamp, n int").foreachBatch(print).start()),
    ]  # fmt: skip
    for message, mistake in mistakes:
        with pytest.raises(JobError, match=message) as raised:
            mistake()
        assert "\n" not in str(raised.value)


def test_a_format_that_spark_does_not_know_is_refused_by_the_start(counting: Counting, tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match="Spark has no format 'nonsense' to write to; check the name") as raised:
        counting().format("nonsense").start()
    assert raised.value.code == "FORMAT_UNKNOWN"
    with pytest.raises(UnknownFormat, match="did you mean 'parquet'"):
        counting().format("parket").start(str(tmp_path / "out"))


def test_a_checkpoint_of_another_query_is_refused_unless_its_owner_says_so(
    spark: SparkSession, counting: Counting, log: Path, tmp_path: Path
) -> None:
    counting().foreachBatch(lambda rows, step: None).start().awaitTermination(3 * PATIENCE_S)
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_text(log.read_text())
    others: list[tuple[str, ResultStreamWriter]] = [
        ("its query was '.*device, COUNT.*, and is '.*device, SUM", counting(COUNT.replace("COUNT(*)", "SUM(speed)"))),
        ("event ordering was .*, and is ", counting(event_ordering={"late_arrival_tolerance_s": 77})),
        ("columns of 'counts' were .*n bigint, and are .*n double",
         counting(schema="window_end timestamp, device string, n double")),
        ("input 'i' was recorded .path=.*events.jsonl., and is recorded .path=.*elsewhere.jsonl",
         stream(spark, COUNT, inputs={"i": str(elsewhere)}).option("checkpointLocation", str(tmp_path / "checkpoint"))),
    ]  # fmt: skip
    for message, other in others:
        with pytest.raises(CheckpointMismatch, match=message) as raised:
            other.foreachBatch(lambda rows, step: None).start()
        assert "pass accept_changes=True" in str(raised.value)
        assert "up to the end of its log" in str(raised.value)
    accepted = counting(schema="window_end timestamp, device string, n double", accept_changes=True)
    accepted.foreachBatch(lambda rows, step: None).start().awaitTermination(3 * PATIENCE_S)


def test_a_query_that_has_emitted_nothing_may_change(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    for schema in ("window_end timestamp, device string, n string", "window_end timestamp, device string, n bigint"):
        writer = stream(spark, COUNT, inputs={"i": str(log)}, schema=schema, placement="process")
        query = writer.foreachBatch(fails).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        with pytest.raises(StreamingQueryFailed, match=r"^ZeroDivisionError: of the user") as raised:
            query.awaitTermination(3 * PATIENCE_S)
        assert raised.value.code == "USER_CODE_FAILED"


def fails(rows: DataFrame, step: int) -> None:
    raise ZeroDivisionError("of the user")


def test_events_that_are_mostly_not_used_are_warned_about(spark: SparkSession, log: Path) -> None:
    heard: list[str] = []
    query = "SELECT device INTO devices FROM i TIMESTAMP BY device"
    writer = stream(spark, query, inputs={"i": str(log)}, placement="process", on_notice=heard.append)
    running = writer.foreachBatch(lambda rows, step: None).trigger(availableNow=True).start()
    running.awaitTermination(3 * PATIENCE_S)
    (said,) = heard
    assert said.startswith("input 'i': 1,000 of 1,000 events (100 %) were adjusted or rejected: InvalidInputTimeStamp")
    assert running.status["notices"] == [said]
