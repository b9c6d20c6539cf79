"""A backlog to Parquet: events a second of `tidegate.spark.stream`, compared with the query of Structured Streaming.

Two million events of about 150 bytes in 4 partitions, count and average by device in a tumbling window of 10 s.
Tidegate reads the hub's log; Spark reads the same bodies as text files, without any Python. Both write Parquet with the
same session, which is up, have a checkpoint, and read up to a million events in a step. The ratio is of medians in one
run of this script, whose sides take turns.

    python -m benchmarks.stream_to_parquet [EVENTS] [RUNS]
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from benchmarks._backlog import PARTITIONS, fill, spark_session
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer
from tidegate.spark import stream

OURS = "tidegate.spark.stream"
SPARK = "Structured Streaming, text files"
QUERY = """SELECT System.Timestamp() AS window_end, device, COUNT(*) AS n, AVG(speed) AS mean INTO results
FROM i TIMESTAMP BY entry_time GROUP BY device, TumblingWindow(second, 10)"""
SCHEMA = "window_end timestamp, device string, n bigint, mean double"


def ours(folder: Path, spark: SparkSession, connection_string: str) -> tuple[float, int]:
    """Seconds and result rows of Tidegate's query."""
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    query = (
        stream(
            spark,
            QUERY,
            inputs={"i": {"connectionString": connection_string, "eventHub": "backlog"}},
            event_ordering={"late_arrival_tolerance_s": 7200, "out_of_order_tolerance_s": 5},
            schema=SCHEMA,
        )
        .format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start(str(folder / "out"))
    )
    query.processAllAvailable()
    took = time.perf_counter() - began
    query.stop()
    return took, rows_in(folder / "out")


def structured_streaming(folder: Path, spark: SparkSession, texts: Path) -> tuple[float, int]:
    """Seconds and result rows of from_json, withWatermark and window."""
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    parsed = (
        spark.readStream.option("maxFilesPerTrigger", 4)
        .text(str(texts))
        .select(f.from_json("value", "device string, entry_time timestamp, speed double").alias("e"))
        .select("e.*")
    )
    query = (
        parsed.withWatermark("entry_time", "5 seconds")
        .groupBy(f.window("entry_time", "10 seconds"), "device")
        .agg(f.count("*").alias("n"), f.avg("speed").alias("mean"))
        .select(f.col("window.end").alias("window_end"), "device", "n", "mean")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    return time.perf_counter() - began, rows_in(folder / "out")


def rows_in(folder: Path) -> int:
    """How many rows the files of a folder have."""
    return int(ds.dataset(folder, format="parquet").count_rows())


def main(events: int = 2_000_000, runs: int = 5) -> None:
    """Fill a hub, run both in turn, and print the table."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = NamespaceConfig(name="bench", event_hubs=(EventHubConfig(name="backlog", partition_count=PARTITIONS),))
        with BackgroundServer(config, folder / "data") as server:
            mean = fill(server, events, folder / "texts")
            print(f"{events:,} events of {mean} bytes in {PARTITIONS} partitions, 2 cores, {runs} runs each")
            spark = spark_session()
            took_s: dict[str, list[float]] = {OURS: [], SPARK: []}
            # The first run of each warms up the JVM and is not counted.
            for run in range(runs + 1):
                results = {
                    OURS: ours(folder / "ours", spark, server.connection_string),
                    SPARK: structured_streaming(folder / "spark", spark, folder / "texts"),
                }
                for side, (seconds, rows) in results.items():
                    print(f"  run {run}, {side}: {seconds:.1f} s, {rows:,} rows{'' if run else ', not counted'}")
                    if run:
                        took_s[side].append(seconds)
            spark.stop()
    ours_s = statistics.median(took_s[OURS])
    print(f"\n{'':36}{'median s':>10}{'events/s':>12}{'ratio':>8}")
    for side, of_side in took_s.items():
        median = statistics.median(of_side)
        print(f"{side:36}{median:>10.1f}{events / median:>12,.0f}{median / ours_s:>8.2f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
