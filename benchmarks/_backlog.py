"""A backlog for jobs and for Spark: in a hub and as text files, and a job over all of it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.connectors.model.encoded_rows import Encoder
from tidegate.engine import Program
from tidegate.job import StepReport, load_job
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.job.run.opening import open_run
from tidegate.job.run.run import Placements, RunHooks, RunSettings, run_steps
from tidegate.ordering import Policy, format_time
from tidegate.server import BackgroundServer
from tidegate.spark.calls import StepThread
from tidegate.spark.executors import shards_for
from tidegate.spark.placement import PlacementSettings, SparkPlacement
from tidegate.spark.session import spark_context

PARTITIONS = 4
BATCH = 1000
FILE_EVENTS = 250_000


def fill(server: BackgroundServer, events: int, files: Path) -> int:
    """Publish an hour of a hundred devices about in order of time, and write it to text files; a body's mean size."""
    dice = random.Random(1)
    start = time.time_ns() // 100 - 36_000_000_000
    apart = 36_000_000_000 // events
    logs = [partition.log for partition in server.server.namespace.event_hub("backlog").partitions]
    outstanding = threading.Semaphore(64)
    files.mkdir()
    text = (files / "0000000000.txt").open("wb")
    size = 0
    for first in range(0, events, BATCH):
        if first % FILE_EVENTS == 0 and first:
            text.close()
            text = (files / f"{first:010d}.txt").open("wb")
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
            text.write(body + b"\n")
        outstanding.acquire()
        logs[first // BATCH % PARTITIONS].append(batch, lambda outcome: outstanding.release())
    for _ in range(64):
        outstanding.acquire()
    text.close()
    return size // events


def on_spark(
    spark: SparkSession, program: Program, policy: Policy, folder: Path, encoders: Mapping[str, Encoder] | None = None
) -> SparkPlacement:
    """Where a job runs on a session, as `tidegate job run` places it."""
    shards = shards_for(spark.sparkContext.defaultParallelism)
    return SparkPlacement(spark, program, policy, PlacementSettings(shards, folder, encoders or {}), StepThread())


def ours(
    folder: Path, connection_string: str, spark: SparkSession, sql: str, hub: str = "backlog"
) -> tuple[float, int, list[int]]:
    """Seconds, result rows, and memory in MB after each step of a job over the whole backlog."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = folder / "job.toml"
    path.write_text(
        f'name = "backlog"\nquery = """{sql}"""\n'
        "[event_ordering]\nlate_arrival_tolerance_s = 7200\nout_of_order_tolerance_s = 5\n"
        f'[inputs.i]\ntype = "eventhub"\nconnection_string = "{connection_string};EntityPath={hub}"\n'
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
    with open_run(job) as opened:
        placements = Placements(lambda program: on_spark(spark, program, job.policy, opened.folder, opened.encoders))
        settings = RunSettings(parallelism=spark.sparkContext.defaultParallelism)
        run_steps(opened, placements, settings, RunHooks(on_step, should_stop=lambda: caught_up))
    took = time.perf_counter() - began
    return took, len((folder / "results.jsonl").read_bytes().splitlines()), memory


def descendants() -> list[int]:
    """This process and all that stem from it (JVM, Python workers)."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [os.getpid()]
    while waiting:
        process = waiting.pop()
        waiting.extend(children.get(process, ()))
        found.append(process)
    return found


def resident_mb() -> int:
    """Resident memory of all of them."""
    total = 0
    for process in descendants():
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * resource.getpagesize() >> 20


class ProcessorTime(threading.Thread):
    """What all of them use of the processors: a measure that a busy machine disturbs little.

    It looks every so often, because what a process has used is forgotten with it.
    """

    def __init__(self, every_s: float = 0.1, without: frozenset[int] = frozenset()) -> None:
        """Begin to look. `without`: processes that do not count."""
        super().__init__(daemon=True)
        self._without = without
        self._every_s = every_s
        self._seen: dict[int, int] = {}
        self._lock = threading.Lock()
        self.start()

    def run(self) -> None:
        while True:
            self.seconds()
            time.sleep(self._every_s)

    def seconds(self) -> float:
        """Until now."""
        with self._lock:
            for process in descendants():
                if process in self._without:
                    continue
                try:
                    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                self._seen[process] = int(fields[11]) + int(fields[12])
            return sum(self._seen.values()) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def job_session(**conf: str) -> Iterator[SparkSession]:
    """On two cores, as `tidegate job run` starts Spark; for both sides."""
    settings = {"spark.sql.shuffle.partitions": "2"} | {name.replace("_", "."): value for name, value in conf.items()}
    with spark_context(SparkSettings(master="local[2]", conf=settings), "benchmark") as context:
        yield SparkSession(context)


def spark_session(**settings: str) -> SparkSession:
    """On two cores, as a user of `tidegate.spark` starts Spark; for both sides."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", "2")
    for name, value in settings.items():
        builder = builder.config(name.replace("_", "."), value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
