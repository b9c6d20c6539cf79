"""DataFrames as inputs of `tidegate.spark.stream`: the rows that `sql` gives, each once, whatever is repeated."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from tests.patience import PATIENCE_S, eventually
from tidegate.job import JobError
from tidegate.spark import ResultStreamWriter, StreamingQueryFailed, events, sql, stream
from tidegate.spark.streaming.frame_log import FrameLog

pytestmark = pytest.mark.spark

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
# Those that arrive together are ordered by their content, which a LAG over all of them shows.
QUERY = """SELECT System.Timestamp() AS at, device, v, LAG(v) OVER (LIMIT DURATION(minute, 1)) AS before
INTO rows FROM i TIMESTAMP BY t"""
SCHEMA = "at timestamp, device string, v bigint, before bigint"
EVENT_ORDERING = {"late_arrival_tolerance_s": 30, "out_of_order_tolerance_s": 10}
STREAMED = "device string, v bigint, t timestamp, arrival timestamp"


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Four hundred rows of two partitions in no order, of which many arrive together, and some late."""
    rows = [
        (
            f"d{n * 7919 % 5}",
            n,
            BEGIN + timedelta(seconds=n - (40 if n % 50 == 0 else 0)),
            BEGIN + timedelta(seconds=n // 3 * 3),
        )
        for n in sorted(range(400), key=lambda n: n * 7919 % 401)
    ]
    path = str(tmp_path_factory.mktemp("table") / "events")
    frame = spark.createDataFrame(rows, STREAMED).withColumn("part", functions.expr("v % 2"))
    frame.repartition(3).write.parquet(path)
    return spark.read.parquet(path)


def sorted_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=str)


Writing = Callable[..., ResultStreamWriter]


@pytest.fixture
def writing(spark: SparkSession, tmp_path: Path) -> Writing:
    """A writer of Parquet with a checkpoint."""

    def writer(
        inputs: dict[str, Any], query: str = QUERY, schema: str = SCHEMA, **arguments: Any
    ) -> ResultStreamWriter:
        arguments = {"event_ordering": EVENT_ORDERING, "placement": "process", **arguments}
        prepared = stream(spark, query, inputs=inputs, schema=schema, max_events_per_step=90, **arguments)
        return prepared.option("checkpointLocation", str(tmp_path / "checkpoint")).option("path", str(tmp_path / "out"))

    return writer


@pytest.mark.parametrize("placement", [pytest.param("process", marks=pytest.mark.soak), "spark"])
def test_a_dataframe_gives_the_rows_that_sql_gives_and_is_read_once(
    spark: SparkSession, table: DataFrame, writing: Writing, tmp_path: Path, placement: str
) -> None:
    given = {"i": events(table, arrival="arrival", partition="part")}
    expected = sorted_rows(sql(spark, QUERY, inputs=given, event_ordering=EVENT_ORDERING, schema=SCHEMA))
    assert len(expected) == 400
    assert writing(given, placement=placement).start(format="parquet").awaitTermination(3 * PATIENCE_S)
    assert sorted_rows(spark.read.parquet(str(tmp_path / "out"))) == expected
    # The rows that a restart reads are in the checkpoint, whatever the DataFrame has by then.
    again = {"i": events(table.where("v < 0"), arrival="arrival", partition="part")}
    assert writing(again, placement=placement).start(format="parquet").awaitTermination(3 * PATIENCE_S)
    assert sorted_rows(spark.read.parquet(str(tmp_path / "out"))) == expected


def test_a_dataframe_is_joined_to_a_log(spark: SparkSession, writing: Writing, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        "".join(
            json.dumps({"arrival": f"2026-01-01T00:00:{n:02d}Z", "body": {"device": f"d{n % 3}", "n": n}}) + "\n"
            for n in range(12)
        )
    )
    history = spark.createDataFrame(
        [(f"d{n}", n, BEGIN + timedelta(seconds=n)) for n in range(3)], "device string, v long, at timestamp"
    )
    query = """SELECT l.n, h.v INTO joined FROM log l JOIN history h
               ON l.device = h.device AND DATEDIFF(second, l, h) BETWEEN -20 AND 20"""
    inputs = {"log": str(log), "history": events(history, arrival="at")}
    assert writing(inputs, query, "n bigint, v bigint").start(format="parquet").awaitTermination(3 * PATIENCE_S)
    assert sorted_rows(spark.read.parquet(str(tmp_path / "out"))) == sorted(((n, n % 3) for n in range(12)), key=str)


def test_partitions_of_a_dataframe_are_merged_as_those_of_a_log(
    spark: SparkSession, table: DataFrame, writing: Writing, tmp_path: Path
) -> None:
    ordering = {**EVENT_ORDERING, "timelines": "merged by enqueued time"}
    numbered = table.withColumn("number", functions.expr("v div 2"))
    with (tmp_path / "log.jsonl").open("w") as file:
        for row in sorted(numbered.collect(), key=lambda row: row.v):
            body = {"device": row.device, "v": row.v, "t": row.t.astimezone(UTC).isoformat()}
            line = {"partition": row.part, "arrival": row.arrival.astimezone(UTC).isoformat(), "body": body}
            file.write(json.dumps(line) + "\n")
    found = []
    for place, given in enumerate(
        [events(numbered, arrival="arrival", partition="part", order="number"), str(tmp_path / "log.jsonl")]
    ):
        writer = writing({"i": given}, event_ordering=ordering)
        writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{place}"))
        writer.option("path", str(tmp_path / f"out-{place}"))
        assert writer.start(format="parquet").awaitTermination(3 * PATIENCE_S)
        found.append(sorted_rows(spark.read.parquet(str(tmp_path / f"out-{place}"))))
    assert len(found[0]) == 400
    assert found[0] == found[1]
    given = {"i": events(numbered.repartition(3), arrival="arrival", partition="part", order="number")}
    assert sorted_rows(sql(spark, QUERY, inputs=given, event_ordering=ordering, schema=SCHEMA)) == found[0]


@pytest.mark.soak
def test_an_empty_dataframe_has_no_results(spark: SparkSession, table: DataFrame, writing: Writing) -> None:
    seen: list[int] = []
    given = {"i": events(table.where("v < 0"), arrival="arrival", partition="part")}
    query = writing(given).foreachBatch(lambda rows, batch: seen.append(rows.count())).start()
    assert query.awaitTermination(3 * PATIENCE_S)
    assert sum(seen) == 0


def test_wrong_use_is_one_line_that_says_what_to_do(
    spark: SparkSession, table: DataFrame, writing: Writing, tmp_path: Path
) -> None:
    with pytest.raises(
        JobError, match=r"inputs\['i'\]: the DataFrame has no arrival time: it has .* expected a timestamp"
    ):
        writing({"i": table.drop("arrival")})
    with pytest.raises(JobError, match=r"reads 'v' of 'i', which the DataFrame does not have"):
        writing({"i": events(table.drop("v"), arrival="arrival")})
    wide = table.withColumn("v", functions.expr("NAMED_STRUCT('a', PARSE_JSON('1'))"))
    with pytest.raises(
        JobError, match=r"input 'i': column 'v' is struct<a:variant>, which the query language does not"
    ):
        writing({"i": events(wide, arrival="arrival")}).start(format="parquet")
    twice = table.select("*", functions.lit(1).alias("V"))
    with pytest.raises(JobError, match=r"input 'i': the DataFrame has 2 columns 'v', .*; rename or drop all but one"):
        writing({"i": events(twice, arrival="arrival")}).start(format="parquet")
    with pytest.raises(JobError, match=r"schema: results are not written as char or varchar; use string"):
        sql(spark, QUERY, inputs={"i": events(table, arrival="arrival")}, schema=SCHEMA.replace("string", "char(3)"))
    with pytest.raises(JobError, match=r"input 'i': .* rows have no arrival; leave them out"):
        writing(
            {"i": events(table.withColumn("arrival", functions.expr("IF(v = 7, NULL, arrival)")), arrival="arrival")}
        ).start(format="parquet")
    given = events(table, arrival="arrival", partition="part")
    shutil.rmtree(tmp_path / "checkpoint")
    assert writing({"i": given}).start(format="parquet").awaitTermination(3 * PATIENCE_S)
    other = events(table.withColumn("v", functions.expr("CAST(v AS int)")), arrival="arrival", partition="part")
    with pytest.raises(JobError, match=r"input 'i' was dataframe .*v bigint.*, and is dataframe .*v int"):
        writing({"i": other}).start(format="parquet")
    with pytest.raises(
        JobError, match="the DataFrame has other columns than the one that the checkpoint has the rows of"
    ):
        writing({"i": other}, accept_changes=True).start(format="parquet")


# -- streaming DataFrames ----------------------------------------------------------------------------------------------


@pytest.fixture
def incoming(spark: SparkSession, table: DataFrame, tmp_path: Path) -> Callable[[int, int], DataFrame]:
    """Adds the rows with v from one number up to another to a folder, and returns the stream of the folder."""
    folder = tmp_path / "incoming"
    folder.mkdir()

    def add(first: int, stop: int) -> DataFrame:
        rows = table.where(f"v >= {first} AND v < {stop}").drop("part")
        rows.coalesce(1).write.mode("append").parquet(str(folder))
        return spark.readStream.schema(STREAMED).parquet(str(folder))

    return add


def one_timeline(spark: SparkSession, table: DataFrame) -> list[tuple[Any, ...]]:
    given = {"i": events(table.drop("part"), arrival="arrival")}
    return sorted_rows(sql(spark, QUERY, inputs=given, event_ordering=EVENT_ORDERING, schema=SCHEMA))


@pytest.mark.soak
def test_batches_of_a_stream_give_the_rows_of_sql_over_runs_that_are_killed(
    spark: SparkSession,
    table: DataFrame,
    writing: Writing,
    incoming: Callable[[int, int], DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add = FrameLog.add

    def run() -> None:
        writer = writing({"i": events(frame, arrival="arrival")}).trigger(availableNow=True)
        assert writer.start(format="parquet").awaitTermination(3 * PATIENCE_S)

    def add_and_die(self: FrameLog, *arguments: Any, **more: Any) -> None:
        add(self, *arguments, **more)
        raise OSError("killed")

    def die(self: FrameLog, *arguments: Any, **more: Any) -> None:
        raise OSError("killed")

    # A process that is killed has written the batch, or not; Spark does not know, and repeats it.
    frame = incoming(0, 201)
    monkeypatch.setattr(FrameLog, "add", add_and_die)
    with pytest.raises(JobError, match=r"input 'i': the DataFrame cannot be read: .*killed"):
        run()
    # A timeline's last results wait for its clock, so the end comes with a row of a later time.
    incoming(201, 400)
    late = spark.createDataFrame([("end", -1, BEGIN + timedelta(hours=1), BEGIN + timedelta(hours=1))], STREAMED)
    late.coalesce(1).write.mode("append").parquet(str(tmp_path / "incoming"))
    monkeypatch.setattr(FrameLog, "add", die)
    with pytest.raises(JobError, match=r"input 'i': the DataFrame cannot be read: .*killed"):
        run()
    monkeypatch.setattr(FrameLog, "add", add)
    run()
    found = [row for row in sorted_rows(spark.read.parquet(str(tmp_path / "out"))) if row[1] != "end"]
    assert found == one_timeline(spark, table)


def test_a_stream_is_followed_and_its_failure_ends_the_query(
    spark: SparkSession, table: DataFrame, writing: Writing, incoming: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    seen: list[int] = []

    def failing(v: int) -> int:
        if v == 200:
            raise ValueError("no such thing")
        return v

    def take(rows: DataFrame, batch: int) -> None:
        seen.extend(row.v for row in rows.collect())

    checked = functions.udf(failing, "bigint")
    frame = incoming(0, 100)
    query = (
        writing({"i": events(frame.withColumn("v", checked("v")), arrival="arrival")})
        .queryName("followed")
        .foreachBatch(take)
        .start()
    )
    try:
        eventually(lambda: len(seen) > 40)
        assert {one.name for one in spark.streams.active} == {"followed", "followed_i"}
        incoming(100, 200)
        eventually(lambda: len(seen) > 140)
        incoming(200, 201)
        with pytest.raises(StreamingQueryFailed, match=r"input 'i': the DataFrame cannot be read: .*no such thing"):
            query.awaitTermination(3 * PATIENCE_S)
    finally:
        query.stop()
    assert not spark.streams.active
    assert len(seen) == len(set(seen))


def test_wrong_use_of_a_stream_is_one_line_that_says_what_to_do(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").load()
    frame = rate.selectExpr("'d' AS device", "value AS v", "timestamp AS t", "timestamp AS arrival")
    with pytest.raises(JobError, match="rows of a streaming DataFrame are one timeline"):
        events(frame, arrival="arrival", partition="v")
    with pytest.raises(JobError, match=r"inputs\['i'\]: the DataFrame is a stream, and history has an end"):
        sql(spark, QUERY, inputs={"i": events(frame, arrival="arrival")})
