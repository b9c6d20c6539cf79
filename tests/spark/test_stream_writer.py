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
from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from tests.patience import PATIENCE_S, PROMPTLY_S, eventually
from tests.spark.publishing import publish
from tidegate.job import JobError
from tidegate.server import BackgroundServer
from tidegate.spark import (
    CheckpointMismatch,
    EvaluatedQuery,
    ResultStreamWriter,
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
    """A writer for counts in windows, in two steps, with a checkpoint."""

    def writer(query: str = COUNT, **arguments: Any) -> ResultStreamWriter:
        prepared = stream(spark, query, inputs={"i": str(log)}, max_events_per_step=500, **arguments)
        return prepared.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)

    return writer


def total(rows: DataFrame) -> tuple[int, int]:
    found = rows.selectExpr("count(*)", "sum(n)").collect()[0]
    return found[0], found[1]


# -- sinks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", [pytest.param("process", marks=pytest.mark.soak), "spark"])
def test_files_have_each_row_once_and_a_restart_adds_nothing(
    spark: SparkSession, counting: Counting, tmp_path: Path, placement: str
) -> None:
    for _ in range(2):
        query = counting(placement=placement).format("parquet").start(str(tmp_path / "out"))
        assert query.awaitTermination(3 * PATIENCE_S)
    assert query.notices[-1].endswith("to compute them again, choose another checkpointLocation")
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
    assert {path.name for path in out.iterdir() if path.is_dir()} == {"device=press", "_spark_metadata"}


def test_a_function_gets_batches_that_count_from_0(counting: Counting) -> None:
    seen: list[tuple[int, int]] = []
    counting().foreachBatch(lambda rows, batch: seen.append((batch, total(rows)[1]))).start().awaitTermination(
        3 * PATIENCE_S
    )
    assert [batch for batch, _ in seen] == list(range(len(seen)))
    assert sum(events for _, events in seen) == EVENTS


def test_a_function_that_fails_ends_the_query_and_gets_the_same_batch_again(counting: Counting) -> None:
    seen: list[tuple[int, list[Any]]] = []

    def take(rows: DataFrame, batch: int) -> None:
        seen.append((batch, rows.collect()))
        if len(seen) == 1:
            raise ConnectionError("the database is down")

    query = counting(placement="process").foreachBatch(take).start()
    with pytest.raises(StreamingQueryException, match="ConnectionError: the database is down"):
        query.awaitTermination(3 * PATIENCE_S)
    assert "the database is down" in str(query.exception())
    counting(placement="process").foreachBatch(take).start().awaitTermination(3 * PATIENCE_S)
    assert [batch for batch, _ in seen[:2]] == [0, 0]
    assert seen[0] == seen[1]
    rows = [row for batch, rows in dict(seen).items() for row in rows]
    assert (len(rows), sum(row["n"] for row in rows)) == (WINDOWS, EVENTS)


def test_a_function_is_called_with_each_row(counting: Counting, tmp_path: Path) -> None:
    out = tmp_path / "rows"

    def keep(row: Any) -> None:
        with out.open("a") as file:
            file.write(f"{row.n}\n")

    counting(placement="process").foreach(keep).start().awaitTermination(3 * PATIENCE_S)
    assert sum(map(int, out.read_text().split())) == EVENTS


def test_a_table_is_created_and_appended_to(spark: SparkSession, counting: Counting) -> None:
    query = counting().toTable("counted", format="parquet", partitionBy="device")
    query.awaitTermination(3 * PATIENCE_S)
    assert total(spark.table("counted")) == (WINDOWS, EVENTS)
    assert spark.catalog.listColumns("counted")[-1].isPartition
    spark.sql("DROP TABLE counted")


class Heard(StreamingQueryListener):
    """What a listener of Spark hears of queries, by their names."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int]] = []
        self.ended: list[str | None] = []

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is kept of it."""

    def onQueryProgress(self, event: Any) -> None:
        self.rows.append((event.progress.name, event.progress.numInputRows))

    def onQueryIdle(self, event: Any) -> None:
        """Nothing is kept of it."""

    def onQueryTerminated(self, event: Any) -> None:
        self.ended.append(event.exception)


def test_it_is_a_query_of_spark_with_sparks_progress_listeners_and_list(
    spark: SparkSession, hub: BackgroundServer
) -> None:
    heard = Heard()
    spark.streams.addListener(heard)
    spark.streams.resetTerminated()
    query = (
        stream(
            spark,
            "SELECT n INTO counts FROM i",
            inputs={"i": {"connectionString": hub.connection_string, "eventHub": "of-spark"}},
            schema="n bigint",
            placement="process",
        )
        .format("memory")
        .queryName("of_spark")
        .start()
    )
    try:
        assert isinstance(query, StreamingQuery)
        assert [one.name for one in spark.streams.active] == ["of_spark"]
        assert spark.streams.get(query.id).runId == query.runId
        publish(hub.connection_string, "of-spark", [{"n": n} for n in range(5)])
        eventually(lambda: spark.table("of_spark").count() == 5)
        query.processAllAvailable()
        eventually(lambda: sum(rows for name, rows in heard.rows if name == "of_spark") == 5)
        progress = query.lastProgress
        assert isinstance(progress, StreamingQueryProgress)
        # PySpark 4.0 and 4.1 show it as Python, and not as JSON.
        assert json.loads(str(progress.sources[0].endOffset).replace("'", '"'))["steps"] >= 1
        assert sum(one.numInputRows for one in query.recentProgress) == 5
        assert sum(report["numInputRows"] for report in query.evaluation) == 5
        assert query.watermark is not None
        assert query.watermark in query._repr_html_()
        assert spark.streams.awaitAnyTermination(1) is False
    finally:
        # Spark's own object, not that of `stream`.
        for one in spark.streams.active:
            one.stop()
    assert query.awaitTermination(PATIENCE_S)
    eventually(lambda: heard.ended == [None])
    spark.streams.removeListener(heard)
    spark.streams.resetTerminated()


def test_memory_and_the_console_keep_nothing(spark: SparkSession, log: Path) -> None:
    query = stream(spark, COUNT, inputs={"i": str(log)}, placement="process").format("memory").queryName("kept").start()
    query.processAllAvailable()
    assert total(spark.table("kept")) == (WINDOWS, EVENTS)
    assert query.awaitTermination(PATIENCE_S), "a recorded log has an end"
    shown = stream(spark, COUNT, inputs={"i": str(log)}, placement="process").format("console").trigger(once=True)
    assert shown.start(numRows=1).awaitTermination(3 * PATIENCE_S)


def test_several_outputs_go_to_several_places(spark: SparkSession, counting: Counting, tmp_path: Path) -> None:
    fast: list[int] = []
    writer = counting(TWO, schema={"fast": "device string, speed int"})
    writer.output("fast").foreachBatch(lambda rows, step: fast.append(rows.count()))
    query = writer.output("COUNTS").format("json").start(str(tmp_path / "counts"))
    query.awaitTermination(3 * PATIENCE_S)
    assert total(spark.read.json(str(tmp_path / "counts"))) == (WINDOWS, EVENTS)
    assert sum(fast) == 99
    assert [*query.outputs] == ["counts", "fast"]
    assert query is query.outputs["counts"]
    again = counting(TWO, schema={"fast": "device string, speed int"})
    again.output("fast").foreachBatch(lambda rows, step: fast.append(rows.count()))
    assert again.output("counts").format("json").start(str(tmp_path / "counts")).awaitTermination(3 * PATIENCE_S)
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
    found: list[tuple[int, int]] = []

    def take(rows: DataFrame, step: int) -> None:
        row = rows.selectExpr("count(*)", "sum(n)").collect()[0]
        found.append((row[0], row[1]))

    writer = stream(
        spark, query, inputs={"i": str(many)}, placement="spark", schema="n bigint, text string, again string"
    )
    writer.foreachBatch(take).trigger(availableNow=True).start().awaitTermination(3 * PATIENCE_S)
    assert found == [(60_000, sum(range(60_000)))]


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
    with pytest.raises(JobError, match="another query runs with the checkpoint"):
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


def stopped_within_s(query: EvaluatedQuery) -> float:
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

    checkpoint = {"checkpointLocation": str(tmp_path / "y")}
    of_spark = tmp_path / "of-spark"
    (of_spark / "offsets").mkdir(parents=True)
    mistakes: list[tuple[str, Callable[[], Any]]] = [
        ("only 'append' is possible", lambda: writer().outputMode("complete")),
        ("checkpointLocation is missing", lambda: writer().format("parquet").start(str(tmp_path / "x"))),
        ("'path' is not specified", lambda: writer(placement="process").format("csv").start(**checkpoint)),
        ("belongs to a query of Structured Streaming", lambda: writer().start("x", checkpointLocation=str(of_spark))),
        ("mounted, got dbfs:/x; as a mounted folder, this one is /dbfs/x",
         lambda: writer().start("x", checkpointLocation="dbfs:/x")),
        ("queryName must be specified for memory sink", lambda: writer().format("memory").start()),
        ("expected a time such as '10 seconds'", lambda: writer().trigger(processingTime="soon")),
        ("continuous", lambda: writer().trigger(continuous="1 second")),
        ("one of processingTime", lambda: writer().trigger()),
        ("placement is 'spark', 'auto' or 'process'", lambda: writer(placement="cloud")),
        ("select one with .output\\('counts'\\)", lambda: writer(TWO).format("parquet")),
        ("output 'fast' has no format", lambda: writer(TWO).output("counts").foreachBatch(print).start()),
        ("no output 'slow'; it has counts, fast", lambda: writer(TWO).output("slow")),
        ("expected a function", lambda: writer().foreachBatch("x")),
        ("inputs\\['i'\\]: the DataFrame has no arrival time.*tidegate.spark.reference",
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
    with pytest.raises(UnknownFormat, match=r"no format 'delta' to write to; add its package \(spark.jars.packages\)"):
        counting().format("delta").start(str(tmp_path / "out"))


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


def test_a_changed_query_writes_what_the_old_one_has_left_with_its_own_columns(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    found: list[tuple[int, int]] = []

    def writer(type_: str, **arguments: Any) -> ResultStreamWriter:
        schema = f"window_end timestamp, device string, n {type_}"
        prepared = stream(spark, COUNT, inputs={"i": str(log)}, schema=schema, placement="process", **arguments)
        return prepared.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)

    with pytest.raises(StreamingQueryFailed, match=r"^ZeroDivisionError: of the user") as raised:
        writer("string").foreachBatch(fails).start().awaitTermination(3 * PATIENCE_S)
    assert raised.value.code == "USER_CODE_FAILED"
    with pytest.raises(CheckpointMismatch, match=r"n string, and are .*n bigint"):
        writer("bigint").foreachBatch(fails).start()
    changed = writer("bigint", accept_changes=True)
    changed.foreachBatch(lambda rows, batch: found.append(total(rows))).start().awaitTermination(3 * PATIENCE_S)
    assert found == [(WINDOWS, EVENTS)]


def fails(rows: DataFrame, step: int) -> None:
    raise ZeroDivisionError("of the user")


def test_events_that_are_mostly_not_used_are_warned_about(spark: SparkSession, log: Path) -> None:
    heard: list[str] = []
    query = "SELECT device INTO devices FROM i TIMESTAMP BY device"
    arguments: dict[str, Any] = {"placement": "process", "on_notice": heard.append}
    with pytest.raises(JobError, match=r"the query has no results yet, and does not determine .*: declare them"):
        stream(spark, query, inputs={"i": str(log)}, **arguments).foreachBatch(print).trigger(once=True).start()
    heard.clear()
    writer = stream(spark, query, inputs={"i": str(log)}, schema="device string", **arguments)
    running = writer.foreachBatch(lambda rows, step: None).trigger(availableNow=True).start()
    running.awaitTermination(3 * PATIENCE_S)
    (said,) = heard
    assert said.startswith("input 'i': 1,000 of 1,000 events (100 %) were adjusted or rejected: InvalidInputTimeStamp")
    assert running.notices == [said]
