"""Sliding and session windows and LAG: a job compared with the same logic in transformWithState, by a Spark user.

    python -m benchmarks.job_vs_transform_with_state [EVENTS] [RUNS]

The backlog of job_backlog: an hour of a hundred devices, up to two seconds out of order. The job reads it from the
hub. Spark reads the same bodies as text files, a million events a trigger, without any Python, and hands them to a
StatefulProcessor by device (transformWithStateInPandas, event time, RocksDB). The processors are written for speed as
far as the interface allows: all events of a device in a trigger are handled together by numpy, not singly; those that
the watermark has not passed wait in a ListState with a timer. The filters keep the results few, so that the
computation is measured and not the writing. The rows of both are counted and should be nearly as many (ties within a
microsecond, and the last seconds before the end, may differ). For sessions, Spark's own session_window is measured
too. Ratios are of medians; the sides take turns. The processor time of all processes of this benchmark is printed
next to the time, because other work on the machine disturbs it less.

Spark's workers need protobuf for transformWithState, and Tidegate does not: it is installed once among the benchmarks'
other files, where only the workers of this benchmark find it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import ListState, StatefulProcessor, StatefulProcessorHandle

from benchmarks._backlog import FILE_EVENTS, PARTITIONS, ProcessorTime, fill, job_session, ours
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer

BUILD = Path(__file__).parent.parent / "build"
EVENTS_OF_A_TRIGGER = 1_000_000
DEVICES = 100
WINDOW_US = 10_000_000
LONG_SESSION = 40
LAG_US = 60_000_000
LAG_DIFFERENCE = 115
INPUT = "FROM i TIMESTAMP BY entry_time"
LAG = f"""SELECT System.Timestamp() AS t, device, speed INTO results {INPUT}
WHERE speed - LAG(speed) OVER (PARTITION BY device LIMIT DURATION(minute, 1)) > {LAG_DIFFERENCE}"""
OURS = "Tidegate job"
STATES = {
    "spark_sql_streaming_stateStore_providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
OUTPUT = "device string, t bigint, n bigint, mean double"


def sliding(at_least: int) -> str:
    return f"""SELECT System.Timestamp() AS t, device, COUNT(*) AS n, AVG(speed) AS mean INTO results {INPUT}
GROUP BY device, SlidingWindow(second, {WINDOW_US // 1_000_000}) HAVING COUNT(*) > {at_least}"""


def session(timeout_ms: int) -> str:
    return f"""SELECT System.Timestamp() AS t, device, COUNT(*) AS n, AVG(speed) AS mean INTO results {INPUT}
GROUP BY device, SessionWindow(millisecond, {timeout_ms}, 600000) OVER (PARTITION BY device)
HAVING COUNT(*) > {LONG_SESSION}"""


class InOrder(StatefulProcessor):
    """Holds events back until the watermark has passed them, then handles them in order of time.

    Its state: the events that wait, and those that are still looked back on; both as (microseconds, speed).
    """

    look_back: ListState
    waiting: ListState

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.waiting = handle.getListState("waiting", "t bigint, speed double")
        self.look_back = handle.getListState("look_back", "t bigint, speed double")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        parts = [(part["t"].to_numpy(), part["speed"].to_numpy()) for part in rows]
        yield from self._advance(key, parts, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        yield from self._advance(key, [], timerValues)

    def close(self) -> None:
        """Nothing is held outside the state."""

    def _advance(self, key: Any, parts: list[tuple[Any, Any]], timer_values: Any) -> Iterator[pd.DataFrame]:
        passed_ms = timer_values.getCurrentWatermarkInMs()
        times, speeds = _joined([_read(self.waiting), *parts])
        order = np.argsort(times, kind="stable")
        times, speeds = times[order], speeds[order]
        until = int(np.searchsorted(times, 1000 * passed_ms, side="right"))
        _write(self.waiting, times[until:], speeds[until:])
        due_ms = list(self.handle.listTimers())
        for old in due_ms:
            self.handle.deleteTimer(old)
        if until < len(times):
            self.handle.registerTimer(int(times[until] // 1000) + 1)
        earlier, earlier_speeds = _read(self.look_back)
        found = self.rows(
            np.concatenate([earlier, times[:until]]),
            np.concatenate([earlier_speeds, speeds[:until]]),
            len(earlier),
            1000 * passed_ms,
        )
        if len(found[0]):
            yield pd.DataFrame({"device": key[0], "t": found[0], "n": found[1], "mean": found[2]})

    def rows(self, times: Any, speeds: Any, earlier: int, passed: int) -> tuple[Any, Any, Any]:
        """The results of events in order, the first `earlier` of which had been handled before."""
        raise AssertionError("each query has its own")


class Sliding(InOrder):
    """Count and average of the last ten seconds whenever an event comes into them or leaves them."""

    def __init__(self, at_least: int) -> None:
        self.at_least = at_least

    def rows(self, times: Any, speeds: Any, earlier: int, passed: int) -> tuple[Any, Any, Any]:
        sums = np.concatenate([[0.0], np.cumsum(speeds)])
        leaving = times + WINDOW_US
        done = 0 if not earlier else times[earlier - 1]
        moments = np.unique(np.concatenate([times[earlier:], leaving[(leaving <= passed) & (leaving > done)]]))
        first = np.searchsorted(times, moments - WINDOW_US, side="right")
        last = np.searchsorted(times, moments, side="right")
        count = last - first
        many = count > self.at_least
        keep = int(np.searchsorted(times, (times[-1] if len(times) else 0) - WINDOW_US, side="right"))
        _write(self.look_back, times[keep:], speeds[keep:])
        return moments[many], count[many], (sums[last] - sums[first])[many] / count[many]


class Session(InOrder):
    """Count and average of events that follow one another within the timeout."""

    def __init__(self, timeout_us: int) -> None:
        self.timeout_us = timeout_us

    def rows(self, times: Any, speeds: Any, earlier: int, passed: int) -> tuple[Any, Any, Any]:
        begins = np.concatenate([[0], np.flatnonzero(np.diff(times) > self.timeout_us) + 1, [len(times)]])
        if not len(times):
            return times, times, speeds
        closed = len(begins) - 1 if times[-1] + self.timeout_us < passed else len(begins) - 2
        keep = begins[closed]
        _write(self.look_back, times[keep:], speeds[keep:])
        counts = np.diff(begins)[:closed]
        sums = np.add.reduceat(speeds, begins[:-1])[:closed]
        many = counts > LONG_SESSION
        ends = (times[begins[1:] - 1] + self.timeout_us)[:closed]
        return ends[many], counts[many], sums[many] / counts[many]


class Lag(InOrder):
    """Events whose speed is far above that of the device's event before."""

    def rows(self, times: Any, speeds: Any, earlier: int, passed: int) -> tuple[Any, Any, Any]:
        _write(self.look_back, times[-1:], speeds[-1:])
        jumped = (np.diff(speeds) > LAG_DIFFERENCE) & (np.diff(times) <= LAG_US)
        found = times[1:][jumped]
        return found, np.ones(len(found), dtype=np.int64), speeds[1:][jumped]


def _read(state: ListState) -> tuple[Any, Any]:
    rows = list(state.get()) if state.exists() else []
    return np.array([row[0] for row in rows], dtype=np.int64), np.array([row[1] for row in rows], dtype=np.float64)


def _write(state: ListState, times: Any, speeds: Any) -> None:
    if len(times):
        state.put(list(zip(times.tolist(), speeds.tolist(), strict=True)))
    elif state.exists():
        state.clear()


def _joined(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    times, speeds = zip(*parts, strict=True)
    return np.concatenate(times), np.concatenate(speeds)


def parsed(spark: SparkSession, files: Path) -> DataFrame:
    """The events with a watermark, a million a trigger."""
    texts = spark.readStream.option("maxFilesPerTrigger", EVENTS_OF_A_TRIGGER // FILE_EVENTS).text(str(files))
    events = texts.select(f.from_json("value", "device string, entry_time timestamp, speed double").alias("e"))
    return events.select("e.*").withWatermark("entry_time", "5 seconds")


def by_processor(processor: StatefulProcessor) -> Callable[[DataFrame], DataFrame]:
    """The user's query."""

    def query(events: DataFrame) -> DataFrame:
        timed = events.select("device", "entry_time", "speed", f.unix_micros("entry_time").alias("t"))
        return timed.groupBy("device").transformWithStateInPandas(processor, OUTPUT, "Append", "EventTime")

    return query


def by_session_window(timeout_ms: int) -> Callable[[DataFrame], DataFrame]:
    """Spark's own."""

    def query(events: DataFrame) -> DataFrame:
        grouped = events.groupBy("device", f.session_window("entry_time", f"{timeout_ms} milliseconds"))
        counted = grouped.agg(f.count("*").alias("n"), f.avg("speed").alias("mean"))
        return counted.where(f"n > {LONG_SESSION}")

    return query


def spark_run(folder: Path, rows: DataFrame) -> tuple[float, int]:
    """Seconds and result rows."""
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    writer = rows.writeStream.outputMode("append").format("json").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    took = time.perf_counter() - began
    return took, sum(len(part.read_bytes().splitlines()) for part in (folder / "out").glob("*.json"))


def with_protobuf() -> None:
    """Let Spark's workers, which inherit the environment, find protobuf."""
    folder = BUILD / "protobuf"
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "protobuf>=6.33,<7"]
        subprocess.run(command, check=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def main(events: int = 5_000_000, runs: int = 5) -> None:
    """Fill a hub, run all in turn, and print the table."""
    with_protobuf()
    per_second = events / DEVICES / 3600
    timeout_ms = int(2000 / per_second)
    per_window = per_second * WINDOW_US / 1_000_000
    at_least = int(per_window + 3.2 * per_window**0.5)
    queries: dict[str, tuple[str, dict[str, Callable[[DataFrame], DataFrame]]]] = {
        "sliding": (sliding(at_least), {"transformWithState": by_processor(Sliding(at_least))}),
        "session": (
            session(timeout_ms),
            {
                "transformWithState": by_processor(Session(1000 * timeout_ms)),
                "session_window": by_session_window(timeout_ms),
            },
        ),
        "LAG": (LAG, {"transformWithState": by_processor(Lag())}),
    }
    figures: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = NamespaceConfig(name="bench", event_hubs=(EventHubConfig(name="backlog", partition_count=PARTITIONS),))
        with BackgroundServer(config, folder / "data") as server, job_session(**STATES) as spark:
            mean = fill(server, events, folder / "texts")
            print(
                f"{events:,} events of {mean} bytes in {PARTITIONS} partitions, 2 cores, {runs} runs each", flush=True
            )
            processor = ProcessorTime()
            # The first run of each warms up the JVM and is not counted.
            for run in range(runs + 1):
                for name, (sql, theirs) in queries.items():
                    sides: dict[str, Callable[[], tuple[float, int]]] = {
                        OURS: lambda sql=sql: ours(folder / "job", server.connection_string, spark, sql)[:2]
                    }
                    for side, query in theirs.items():
                        sides[side] = lambda query=query: spark_run(
                            folder / "spark", query(parsed(spark, folder / "texts"))
                        )
                    for side, work in sides.items():
                        used = processor.seconds()
                        took, rows = work()
                        used = processor.seconds() - used
                        print(f"  run {run}, {name}, {side}: {took:.1f} s, {used:.1f} s CPU, {rows:,} rows", flush=True)
                        if run:
                            figures.setdefault((name, side), []).append((took, used))
    table(events, figures)


def table(events: int, figures: dict[tuple[str, str], list[tuple[float, float]]]) -> None:
    """Medians, and how many times those of the job they are."""
    print(f"\n{'':32}{'median s':>10}{'events/s':>12}{'times':>8}{'CPU s':>10}{'times':>8}")
    medians = {key: [statistics.median(column) for column in zip(*runs, strict=True)] for key, runs in figures.items()}
    for (name, side), (took, used) in medians.items():
        ours_s, ours_cpu = medians[name, OURS]
        print(
            f"{name + ', ' + side:32}{took:>10.1f}{events / took:>12,.0f}{took / ours_s:>8.2f}"
            f"{used:>10.1f}{used / ours_cpu:>8.2f}"
        )


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
