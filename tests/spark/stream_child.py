"""Counts events with `tidegate.spark.stream`: `python -m tests.spark.stream_child SINK TARGET LOG CHECKPOINT [DEATH]`.

Prints a line when the query runs, and ends with the log. With PYSPARK_GATEWAY_PORT it uses the Spark of another
process, so that a driver's end costs seconds.

A LOG that is a folder is read by a streaming DataFrame, a file of Parquet a batch. DEATH is then how the process kills
itself: `within` or `between` batches of the DataFrame, the second of this life; with `never` it follows the folder
until somebody else kills it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import deltalake
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from tidegate.spark import EvaluatedQuery, ResultStreamWriter, events, stream
from tidegate.spark.streaming.frame_log import FrameLog, Segment

QUERY = """SELECT System.Timestamp() AS window_end, device, COUNT(*) AS n, SUM(x) AS total INTO counts
FROM i TIMESTAMP BY t GROUP BY device, TumblingWindow(second, 10)"""
SCHEMA = "window_end timestamp, device string, n bigint, total bigint"
EVENTS_PER_STEP = 100
COLUMNS = "t timestamp, device string, x bigint, arrival timestamp"


def session() -> SparkSession:
    """A session of one's own, or of the Java process that the environment names."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false").set("spark.log.level", "ERROR")
        return SparkSession.builder.config(conf=conf).getOrCreate()
    gateway = launch_gateway()
    jvm: Any = gateway.jvm
    context = jvm.org.apache.spark.SparkContext.getOrCreate()
    return SparkSession(SparkContext(gateway=gateway, jsc=jvm.JavaSparkContext(context)))


def append_to_delta(table: str) -> Any:
    """A function for foreachBatch that appends a step to a Delta table unless it is there."""

    def append(rows: DataFrame, step: int) -> None:
        exists = deltalake.DeltaTable.is_deltatable(table)
        written = deltalake.DeltaTable(table).transaction_version("counts") if exists else None
        if written is not None and written >= step:
            return
        properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("counts", step)])
        content = rows.withColumn("step", lit(step)).toArrow()
        deltalake.write_deltalake(table, content, mode="append", commit_properties=properties)

    return append


def started(writer: ResultStreamWriter, sink: str, target: str) -> EvaluatedQuery:
    """The query, with a sink of a kind."""
    match sink:
        case "parquet":
            return writer.start(target, format="parquet")
        case "delta":
            return writer.start(target, format="delta")
        case "foreachBatch":
            return writer.foreachBatch(append_to_delta(target)).start()
        case "jdbc":
            return writer.start(format="jdbc", url=target, dbtable="counts", driver="org.postgresql.Driver")
    raise ValueError(f"parquet, delta, foreachBatch or jdbc, got {sink}")


def die(death: str) -> None:
    """Let this process kill itself with the second batch of a DataFrame, before or after it is in the log."""
    add, batches = FrameLog.add, count(1)

    def add_and_die(self: FrameLog, batch: int, segments: Iterable[Segment], *, complete: bool) -> None:
        is_last = next(batches) == 2
        if is_last and death == "within":
            os.killpg(os.getpgid(0), signal.SIGKILL)
        add(self, batch, segments, complete=complete)
        if is_last and death == "between":
            os.killpg(os.getpgid(0), signal.SIGKILL)

    mock.patch.object(FrameLog, "add", add_and_die).start()


if __name__ == "__main__":
    _, sink, target, log, checkpoint, *deaths = sys.argv
    spark = session()
    given: Any = log
    if Path(log).is_dir():
        frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(log)
        given = events(frame, arrival="arrival")
    for death in deaths:
        die(death)
    writer = stream(
        spark, QUERY, inputs={"i": given}, schema=SCHEMA, max_events_per_step=EVENTS_PER_STEP, placement="process"
    )
    writer = writer.option("checkpointLocation", Path(checkpoint).as_uri())
    query = started(writer if deaths else writer.trigger(availableNow=True), sink, target)
    print("running", flush=True)
    try:
        query.awaitTermination()
    except Py4JError:
        sys.exit(1)
