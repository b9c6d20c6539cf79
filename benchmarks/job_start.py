"""How long `tidegate job run` takes to its first result on the disk, and to its first on Spark. Linux only.

A publisher sends 1,000 events a second before the command begins and all the while; windows of a second end all the
time. The command is a new process, as a person runs it. Its first steps are in the process, until Spark is up, or in a
child if the job has a function of the user's. Processor time is that of the command and of all it starts; where the
machine has other work, it says what the seconds do not.

    python -m benchmarks.job_start [RUNS]
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.job_live import PARTITIONS, PUBLISHER
from benchmarks.service_shared_spark import below, processor_s
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer

PATIENCE_S = 120
PLAIN = "device"
WITH_FUNCTION = "udf.same(device)"
FUNCTION = '[functions.same]\nmodule = "same.py"\n'


class Start(NamedTuple):
    """Seconds from the command to the first result, and to the first on Spark, with the processor time until then."""

    first_s: float
    first_cpu_s: float
    spark_s: float
    spark_cpu_s: float


def job_file(folder: Path, connection_string: str, key: str) -> Path:
    """Write a job, and return its path."""
    folder.mkdir()
    (folder / "same.py").write_text("def same(text):\n    return text\n", encoding="utf-8")
    path = folder / "job.toml"
    path.write_text(
        f'name = "start"\nquery = """SELECT System.Timestamp() AS window_end, {key} AS device, COUNT(*) AS n\n'
        f'INTO results FROM i TIMESTAMP BY entry_time GROUP BY {key}, TumblingWindow(second, 1)"""\n'
        "[event_ordering]\nlate_arrival_tolerance_s = 5\n"
        f'[inputs.i]\ntype = "eventhub"\nconnection_string = "{connection_string};EntityPath=live"\n'
        '[outputs.results]\ntype = "file"\npath = "results.jsonl"\n' + (FUNCTION if key == WITH_FUNCTION else ""),
        encoding="utf-8",
    )
    return path


def started(path: Path) -> Start:
    """Run the command until it has a result of Spark."""
    began = time.monotonic()
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "TIDEGATE_PLACEMENT": "spark"}
    errors = path.with_name("errors.txt")
    with errors.open("wb") as file:
        command = [sys.executable, "-m", "tidegate", "job", "run", str(path), "--start", "now"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=file)
    results, status = path.with_name("results.jsonl"), path.with_name("start.state") / "status.json"
    first: tuple[float, float] | None = None
    lines_before_spark: int | None = None
    try:
        while True:
            assert process.poll() is None, errors.read_text()
            assert time.monotonic() - began < PATIENCE_S, errors.read_text()
            lines = results.read_bytes().count(b"\n") if results.exists() else 0
            now = time.monotonic() - began, processor_of(process.pid)
            if first is None and lines:
                first = now
            if lines_before_spark is None and is_on_spark(status):
                lines_before_spark = lines if first is not None and first != now else 0
            elif lines_before_spark is not None and lines > lines_before_spark:
                assert first is not None
                return Start(*first, *now)
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def processor_of(pid: int) -> float:
    """Return the processor time of a process and of those that it started, in seconds."""
    return sum(map(processor_s, (pid, *below(pid))))


def is_on_spark(status: Path) -> bool:
    """Return whether a job is on Spark."""
    try:
        return bool(json.loads(status.read_bytes())["placement"]["where"] == "spark")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def main(runs: int = 3) -> None:
    """Measure both jobs in turns, and print the medians."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = NamespaceConfig(name="bench", event_hubs=(EventHubConfig(name="live", partition_count=PARTITIONS),))
        with BackgroundServer(config, folder / "data") as server:
            arguments = [sys.executable, "-c", PUBLISHER, server.connection_string, "3600", "1000"]
            publisher = subprocess.Popen(arguments)
            try:
                time.sleep(5)
                found: dict[str, list[Start]] = {PLAIN: [], WITH_FUNCTION: []}
                for run in range(runs):
                    for key, starts in found.items():
                        path = job_file(folder / f"{key}-{run}", server.connection_string, key)
                        starts.append(started(path))
                        print(f"  {key}: {starts[-1]}, load {os.getloadavg()[0]:.1f}", flush=True)
            finally:
                publisher.kill()
    print(f"{'from the command to the first result, s':44}{'on disk':>9}{'cpu':>7}{'on Spark':>10}{'cpu':>7}")
    for key, starts in found.items():
        medians = [statistics.median(values) for values in zip(*starts, strict=True)]
        name = "with a function of the user's" if key == WITH_FUNCTION else "begins in the process"
        print(f"{name:44}{medians[0]:>9.1f}{medians[1]:>7.1f}{medians[2]:>10.1f}{medians[3]:>7.1f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
