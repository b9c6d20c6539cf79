"""History on Spark, compared with plain Spark SQL: `python -m benchmarks.spark_history [EVENTS] [RUNS] [PART …]`.

The parts, each a ratio of medians within one run, whose sides take turns; the first turn warms up and is not counted.
Processor time is that of all processes together, which a busy machine disturbs less.

- ``tumbling``, ``lag``: `tidegate.spark.sql` over a Parquet table of a hundred devices in four partitions, compared
  with the same window, and the same LAG over an hour, in Spark SQL, which knows neither late events nor watermarks.
- ``merged``: the tumbling window with all partitions merged into one timeline, compared with a timeline for each;
  rows are exchanged in both.
- ``cores``: the tumbling window on `local[1]`, compared with `local[2]`, with as many processors for all processes.
  With both processors, `local[1]` would keep more than one busy, as Java and Python work at the same time.
- ``write``: rows to a hub with ``df.write.format("eventhubs")``, in events a second.
- ``read``: all columns of those events, compared with the body alone.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from benchmarks._backlog import ProcessorTime, descendants, spark_session
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer
from tidegate.spark import events, sql

PARTITIONS = 4
FILES = 8
START_US = 1_767_225_600_000_000
POLICY = {"late_arrival_tolerance_s": 7200, "out_of_order_tolerance_s": 5}
TUMBLING = """SELECT System.Timestamp() AS window_end, device, COUNT(*) AS n, AVG(speed) AS mean INTO results
FROM i TIMESTAMP BY entry_time GROUP BY device, TumblingWindow(second, 10)"""
LAG = """SELECT device, speed - LAG(speed) OVER (PARTITION BY device LIMIT DURATION(hour, 1)) AS rise INTO results
FROM i TIMESTAMP BY entry_time"""
PARTS = ("tumbling", "lag", "merged", "cores", "write", "read")
_PROCESSORS = os.sched_getaffinity(0)

Side = Callable[[], object]


def make_table(folder: Path, count: int) -> None:
    """Write an hour of events, about in order of time, as files of Parquet."""
    dice = np.random.default_rng(1)
    folder.mkdir()
    devices = np.array([f"device-{number:03d}" for number in range(100)])
    for number in range(FILES):
        first, stop = count * number // FILES, count * (number + 1) // FILES
        n = np.arange(first, stop)
        received = START_US + n * (3_600_000_000 // count)
        time_type = pa.timestamp("us", "UTC")
        columns = {
            "camera": pa.array(n % PARTITIONS, pa.int32()),
            "number": pa.array(n // PARTITIONS, pa.int64()),
            "received": pa.array(received, time_type),
            "device": pa.array(devices[dice.integers(0, 100, len(n))]),
            "entry_time": pa.array(received - dice.integers(0, 2_000_000, len(n)), time_type),
            "speed": pa.array(np.round(dice.random(len(n)) * 120, 2)),
            "plate": pa.array([f"ABC-{one:07d}" for one in n.tolist()]),
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=250_000)


def ours(spark: SparkSession, folder: Path, query: str) -> DataFrame:
    """The results of a query."""
    return ours_of(spark.read.parquet(str(folder)), query)


def ours_of(frame: DataFrame, query: str, **ordering: str) -> DataFrame:
    """The results of a query over rows of the table."""
    given = events(frame, arrival="received", partition="camera", order="number")
    return sql(frame.sparkSession, query, inputs={"i": given}, event_ordering={**POLICY, **ordering})


def plain_tumbling(spark: SparkSession, folder: Path) -> DataFrame:
    """The tumbling window in Spark SQL."""
    grouped = spark.read.parquet(str(folder)).groupBy(f.window("entry_time", "10 seconds"), "device")
    return grouped.agg(f.count("*").alias("n"), f.avg("speed").alias("mean"))


def plain_lag(spark: SparkSession, folder: Path) -> DataFrame:
    """LAG in Spark SQL; a value that is older than an hour is NULL."""
    before = Window.partitionBy("device").orderBy("entry_time")
    rows = spark.read.parquet(str(folder)).select("device", "entry_time", "speed")
    rows = rows.withColumn("last", f.lag("speed").over(before)).withColumn("at", f.lag("entry_time").over(before))
    recent = f.col("at") >= f.col("entry_time") - f.expr("INTERVAL 1 HOUR")
    return rows.select("device", (f.col("speed") - f.when(recent, f.col("last"))).alias("rise"))


def run(frame: DataFrame) -> None:
    """Compute all rows of a DataFrame."""
    frame.write.format("noop").mode("overwrite").save()


def turns(sides: dict[str, Side], runs: int, used: ProcessorTime) -> dict[str, tuple[float, float]]:
    """Run the sides in turn, and return the median seconds and processor seconds of each."""
    took: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for turn in range(runs + 1):
        for side, work in sides.items():
            began, before = time.perf_counter(), used.seconds()
            work()
            seconds = time.perf_counter() - began, used.seconds() - before
            print(f"  run {turn}, {side}: {seconds[0]:.1f} s, {seconds[1]:.1f} s of processor time", flush=True)
            if turn:
                took[side].append(seconds)
    return {side: medians_of(of) for side, of in took.items()}


def medians_of(took: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the median of seconds, and that of processor seconds."""
    return statistics.median(seconds for seconds, _ in took), statistics.median(used_s for _, used_s in took)


def shown(name: str, medians: dict[str, tuple[float, float]]) -> None:
    """Print the ratio of the first side to the second."""
    (one, (seconds, processor_s)), (other, (other_s, other_processor_s)) = list(medians.items())[:2]
    print(
        f"{name}: {one} takes {seconds / other_s:.2f} times as long as {other}, "
        f"and {processor_s / other_processor_s:.2f} times its processor time\n",
        flush=True,
    )


def use_processors(count: int) -> None:
    """Confine all processes and their threads, and so those that they start, to the first processors."""
    processors = sorted(_PROCESSORS)[:count]
    for process in descendants():
        # Some may have ended since they were found.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for thread in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread.name), processors)


def rows_to_write(spark: SparkSession, count: int) -> DataFrame:
    """Rows with a body of about 100 bytes, without a key."""
    columns = "concat('device-', id % 100) AS device", "id AS number", "rand(1) * 120 AS speed", "'WA' AS state"
    return spark.range(0, count, 1, 2).selectExpr(*columns).selectExpr("to_json(struct(*)) AS body")


def hub_parts(folder: Path, count: int, runs: int, parts: list[str], used: ProcessorTime) -> None:
    """Write to a hub and read from it."""
    names = ("write", "read")
    hubs = tuple(EventHubConfig(name=name, partition_count=PARTITIONS) for name in names)
    with BackgroundServer(NamespaceConfig(name="bench", event_hubs=hubs), folder / "data") as server:
        spark = spark_session()

        def write(name: str, rows: DataFrame) -> None:
            address = f"{server.connection_string};EntityPath={name}"
            rows.write.format("eventhubs").mode("append").option("connectionString", address).save()

        def read(schema: str | None) -> None:
            reader = spark.read.format("eventhubs").option("eventsPerTask", max(1, count // 8))
            reader = reader if schema is None else reader.schema(schema)
            run(reader.option("connectionString", f"{server.connection_string};EntityPath=read").load())

        rows = rows_to_write(spark, count)
        if "write" in parts:
            medians = turns({"write": lambda: write("write", rows), "compute": lambda: run(rows)}, runs, used)
            seconds, processor_s = medians["write"]
            print(f"write: {count / seconds:,.0f} events/s; {count / processor_s:,.0f} a second of processor time\n")
        if "read" in parts:
            write("read", rows)
            shown("read", turns({"all columns": lambda: read(None), "body": lambda: read("body binary")}, runs, used))
        spark.stop()


def main(arguments: list[str]) -> int:
    """Run the parts that are named, or all."""
    count = int(arguments[0]) if arguments else 5_000_000
    runs = int(arguments[1]) if len(arguments) > 1 else 3
    parts = arguments[2:] or list(PARTS)
    used = ProcessorTime()
    with tempfile.TemporaryDirectory() as temporary:
        table = Path(temporary) / "table"
        if {"tumbling", "lag", "merged", "cores"} & {*parts}:
            make_table(table, count)
        if {"tumbling", "lag", "merged"} & {*parts}:
            spark = spark_session()
            plain = {"tumbling": (TUMBLING, plain_tumbling), "lag": (LAG, plain_lag)}
            for name, (query, of_spark) in plain.items():
                if name in parts:
                    sides: dict[str, Side] = {
                        "tidegate.spark.sql": lambda query=query: run(ours(spark, table, query)),
                        "Spark SQL": lambda of_spark=of_spark: run(of_spark(spark, table)),
                    }
                    shown(name, turns(sides, runs, used))
            if "merged" in parts:
                # With a filter, tasks do not read the files themselves.
                rows = spark.read.parquet(str(table)).where("speed >= 0")
                merged = {"timelines": "merged by enqueued time"}
                sides = {
                    "one timeline": lambda: run(ours_of(rows, TUMBLING, **merged)),
                    "a timeline for each partition": lambda: run(ours_of(rows, TUMBLING)),
                }
                shown("merged", turns(sides, runs, used))
            spark.stop()
        if "cores" in parts:
            # Spark has to start anew for another number of cores, so each turn warms up for itself.
            took: dict[str, list[tuple[float, float]]] = {}
            for _ in range(runs):
                for cores in (1, 2):
                    spark = spark_session(spark_master=f"local[{cores}]")
                    use_processors(cores)
                    side = f"{cores} of 2 cores"
                    found = turns({side: lambda spark=spark: run(ours(spark, table, TUMBLING))}, 1, used)
                    took.setdefault(side, []).append(found[side])
                    spark.stop()
            use_processors(len(_PROCESSORS))
            medians = {side: medians_of(of) for side, of in took.items()}
            shown("cores", medians)
        hub_count = min(count, 1_000_000)
        if {"write", "read"} & {*parts}:
            hub_parts(Path(temporary), hub_count, runs, parts, used)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    sys.exit(main(sys.argv[1:]))
