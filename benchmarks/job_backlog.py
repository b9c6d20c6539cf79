"""A backlog: events a second of a job, beside the Structured Streaming query a Spark user would write over the same
log.

Five million events of about 150 bytes in 4 partitions, tumbling count and average by device. The query is run once
through our own source, and once over the same bodies as text files, which Spark reads without any Python. Both read
the same hub, on the same cores, after their session is up; each run starts at the log's beginning. The ratio is of
medians in one run of this script. Memory is the peak of the job's Python processes and of the JVM, after a third of
the backlog and at its end.

    python -m benchmarks.job_backlog [EVENTS] [RUNS]
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.job import StepReport, load_job, run_job
from tidegate.ordering import format_time
from tidegate.server import BackgroundServer
from tidegate.spark import SparkRunner

PARTITIONS = 4
BATCH = 1000
SPARK_ON_HUB = "Structured Streaming, our source"
SPARK_ON_FILES = "Structured Streaming, text files"
SQL = """SELECT System.Timestamp() AS window_end, device, COUNT(*) AS n, AVG(speed) AS mean INTO results
FROM i TIMESTAMP BY entry_time GROUP BY device, TumblingWindow(second, 10)"""


def fill(server: BackgroundServer, events: int, files: Path) -> int:
    """Publish an hour of devices in order of time, and write it to text files; the mean size of a body in bytes."""
    dice = random.Random(1)
    start = time.time_ns() // 100 - 36_000_000_000
    apart = 36_000_000_000 // events
    logs = [partition.log for partition in server.server.namespace.event_hub("backlog").partitions]
    outstanding = threading.Semaphore(64)
    files.mkdir()
    texts = [(files / f"{partition}.txt").open("wb") for partition in range(PARTITIONS)]
    size = 0
    for first in range(0, events, BATCH):
        batch = []
        for n in range(first, min(first + BATCH, events)):
            body = json.dumps(
                {
                    "device": f"device-{dice.randrange(100):03d}",
                    "entry_time": format_time(start + n * apart - dice.randrange(20_000_000)),
                    "speed": round(dice.random() * 120, 2),
                    "booth": dice.randrange(12),
                    "plate": f"ABC-{n:07d}",
                    "state": "WA",
                }
            ).encode()
            size += len(body)
            batch.append(b"\x00\x53\x75\xa0" + bytes((len(body),)) + body)
            texts[first // BATCH % PARTITIONS].write(body + b"\n")
        outstanding.acquire()
        logs[first // BATCH % PARTITIONS].append(batch, lambda outcome: outstanding.release())
    for _ in range(64):
        outstanding.acquire()
    for text in texts:
        text.close()
    return size // events


def ours(folder: Path, connection_string: str, spark: SparkSession) -> tuple[float, int, list[int]]:
    """Seconds, result rows, and memory in MB after each step of a job over the whole backlog."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = folder / "job.toml"
    path.write_text(
        f'name = "backlog"\nquery = """{SQL}"""\n'
        "[event_ordering]\nlate_arrival_tolerance_s = 7200\nout_of_order_tolerance_s = 5\n"
        f'[inputs.i]\ntype = "eventhub"\nconnection_string = "{connection_string};EntityPath=backlog"\n'
        '[outputs.results]\ntype = "file"\npath = "results.jsonl"\n',
        encoding="utf-8",
    )
    job = load_job(path)
    memory: list[int] = []
    caught_up = False

    def on_step(report: StepReport) -> None:
        nonlocal caught_up
        memory.append(resident_mb())
        caught_up = report.step.caught_up

    began = time.perf_counter()
    run_job(
        job,
        SparkRunner(spark.sparkContext, job.program, job.policy),
        parallelism=spark.sparkContext.defaultParallelism,
        on_step=on_step,
        should_stop=lambda: caught_up,
    )
    took = time.perf_counter() - began
    return took, len((folder / "results.jsonl").read_bytes().splitlines()), memory


def from_hub(connection_string: str, spark: SparkSession) -> DataFrame:
    """The bodies as texts, through our source."""
    return (
        spark.readStream.format("eventhubs")
        .option("connectionString", connection_string + ";EntityPath=backlog")
        .option("maxEventsPerTrigger", 1_000_000)
        .load()
        .select(f.col("body").cast("string").alias("value"))
    )


def structured_streaming(folder: Path, texts: DataFrame) -> tuple[float, int]:
    """Seconds and result rows of from_json, withWatermark and window."""
    shutil.rmtree(folder, ignore_errors=True)
    schema = "device string, entry_time timestamp, speed double"
    parsed = texts.select(f.from_json("value", schema).alias("e")).select("e.*")
    counted = (
        parsed.withWatermark("entry_time", "5 seconds")
        .groupBy(f.window("entry_time", "10 seconds"), "device")
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


def resident_mb() -> int:
    """Resident memory of this process and all its descendants (JVM, Python workers)."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    total, waiting = 0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        waiting.extend(children.get(process, ()))
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * resource.getpagesize() >> 20


def main(events: int = 5_000_000, runs: int = 5) -> None:
    """Fill a hub, run both in turn, and print the table."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = NamespaceConfig(name="bench", event_hubs=(EventHubConfig(name="backlog", partition_count=PARTITIONS),))
        with BackgroundServer(config, folder / "data") as server:
            mean = fill(server, events, folder / "texts")
            print(f"{events:,} events of {mean} bytes in {PARTITIONS} partitions, 2 cores, {runs} runs each")
            spark = (
                SparkSession.builder.master("local[2]")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.sql.shuffle.partitions", "2")
                .getOrCreate()
            )
            spark.sparkContext.setLogLevel("ERROR")
            took_s: dict[str, list[float]] = {"Tidegate job": [], SPARK_ON_HUB: [], SPARK_ON_FILES: []}
            memory: list[int] = []
            # The first run of each warms up the JVM and is not counted.
            for run in range(runs + 1):
                job_s, rows, memory = ours(folder / "job", server.connection_string, spark)
                hub_s, hub_rows = structured_streaming(folder / "spark", from_hub(server.connection_string, spark))
                files = spark.readStream.text(str(folder / "texts"))
                files_s, files_rows = structured_streaming(folder / "spark", files)
                print(f"  run {run}: {job_s:.1f} s, {hub_s:.1f} s, {files_s:.1f} s", end=" ", flush=True)
                print(f"({rows:,}, {hub_rows:,}, {files_rows:,} rows){'' if run else ' not counted'}", flush=True)
                if run:
                    for name, seconds in zip(took_s, (job_s, hub_s, files_s), strict=True):
                        took_s[name].append(seconds)
            spark.stop()
    table(events, took_s, memory)


def table(events: int, took_s: dict[str, list[float]], memory: list[int]) -> None:
    """The figures."""
    medians = {name: statistics.median(seconds) for name, seconds in took_s.items()}
    ours_s = medians["Tidegate job"]
    print(f"\n{'':34}{'median s':>10}{'events/s':>12}{'ratio':>8}")
    for name, seconds in medians.items():
        print(f"{name:34}{seconds:>10.1f}{events / seconds:>12,.0f}{seconds / ours_s:>8.2f}")
    if memory:
        print(f"memory of all processes, MB: after a third {memory[len(memory) // 3]:,}, at the end {memory[-1]:,}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
