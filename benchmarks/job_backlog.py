"""A backlog: events a second of a job, compared with the Structured Streaming query that a Spark user would write
over the same log.

Five million events of about 150 bytes in 4 partitions, count and average by device, in a tumbling window of 10 s and in
one of 10 s that hops by 1 s. The query is run with Tidegate's source (tumbling only), and over the same bodies as text
files, which Spark reads without any Python. Both read on the same cores, after their session is up; each run starts at
the log's beginning. The ratio is of medians in one run of this script, whose sides take turns. Memory is the peak of
the job's Python processes and of the JVM, after a third of the backlog and at its end.

    python -m benchmarks.job_backlog [EVENTS] [RUNS]
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks._backlog import PARTITIONS, fill, job_session, ours
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer

OURS = "Tidegate job"
SPARK_ON_HUB = "Structured Streaming, our source"
SPARK_ON_FILES = "Structured Streaming, text files"
SELECT = """SELECT System.Timestamp() AS window_end, device, COUNT(*) AS n, AVG(speed) AS mean INTO results
FROM i TIMESTAMP BY entry_time GROUP BY device, """
TUMBLING, HOPPING = SELECT + "TumblingWindow(second, 10)", SELECT + "HoppingWindow(second, 10, 1)"


def from_hub(connection_string: str, spark: SparkSession) -> DataFrame:
    """The bodies as texts, through our source."""
    return (
        spark.readStream.format("eventhubs")
        .option("connectionString", connection_string + ";EntityPath=backlog")
        .option("maxEventsPerTrigger", 1_000_000)
        .load()
        .select(f.col("body").cast("string").alias("value"))
    )


def structured_streaming(folder: Path, texts: DataFrame, window: Column) -> tuple[float, int]:
    """Seconds and result rows of from_json, withWatermark and window."""
    shutil.rmtree(folder, ignore_errors=True)
    schema = "device string, entry_time timestamp, speed double"
    parsed = texts.select(f.from_json("value", schema).alias("e")).select("e.*")
    counted = (
        parsed.withWatermark("entry_time", "5 seconds")
        .groupBy(window, "device")
        .agg(f.count("*").alias("n"), f.avg("speed").alias("mean"))
    )
    began = time.perf_counter()
    query = (
        counted.writeStream.outputMode("append")
        .format("json")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took = time.perf_counter() - began
    rows = sum(len(part.read_bytes().splitlines()) for part in (folder / "out").glob("*.json"))
    return took, rows


def main(events: int = 5_000_000, runs: int = 5) -> None:
    """Fill a hub, run all in turn, and print the table."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = NamespaceConfig(name="bench", event_hubs=(EventHubConfig(name="backlog", partition_count=PARTITIONS),))
        with BackgroundServer(config, folder / "data") as server, job_session() as spark:
            mean = fill(server, events, folder / "texts")
            print(f"{events:,} events of {mean} bytes in {PARTITIONS} partitions, 2 cores, {runs} runs each")
            hub, files = from_hub(server.connection_string, spark), spark.readStream.text(str(folder / "texts"))
            tumbling, hopping = f.window("entry_time", "10 seconds"), f.window("entry_time", "10 seconds", "1 second")
            took_s: dict[str, dict[str, list[float]]] = {}
            memory: list[int] = []
            # The first run of each warms up the JVM and is not counted.
            for run in range(runs + 1):
                for name, sql, window in (("tumbling", TUMBLING, tumbling), ("hopping", HOPPING, hopping)):
                    job_s, rows, memory = ours(folder / "job", server.connection_string, spark, sql)
                    results = {OURS: (job_s, rows)}
                    if window is tumbling:
                        results[SPARK_ON_HUB] = structured_streaming(folder / "spark", hub, window)
                    results[SPARK_ON_FILES] = structured_streaming(folder / "spark", files, window)
                    print(f"  run {run}, {name}: ", end="")
                    print(", ".join(f"{seconds:.1f} s" for seconds, _ in results.values()), end=" ")
                    counts = ", ".join(f"{count:,}" for _, count in results.values())
                    print(f"({counts} rows){'' if run else ' not counted'}", flush=True)
                    for side, (seconds, _) in results.items() if run else ():
                        took_s.setdefault(name, {}).setdefault(side, []).append(seconds)
    table(events, took_s, memory)


def table(events: int, took_s: dict[str, dict[str, list[float]]], memory: list[int]) -> None:
    """The figures."""
    print(f"\n{'':44}{'median s':>10}{'events/s':>12}{'ratio':>8}")
    for window, sides in took_s.items():
        ours_s = statistics.median(sides[OURS])
        for side, seconds in sides.items():
            median = statistics.median(seconds)
            print(f"{window + ', ' + side:44}{median:>10.1f}{events / median:>12,.0f}{median / ours_s:>8.2f}")
    if memory:
        print(f"memory of all processes, MB: after a third {memory[len(memory) // 3]:,}, at the end {memory[-1]:,}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
