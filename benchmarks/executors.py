"""Two executors of one core against one: `python -m benchmarks.executors [EVENTS] [FORM…]`.

Each form runs over the same backlog on a standalone cluster of one worker and of two, turn about. Throughput is events
by the time that the steps took, from `job run --progress`, so that the start of Spark does not count. Processor time is
that of the executors with their Python workers, and of the driver. TURNS is how often each is run (3).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.job_driver_share import FORMS, PARTITIONS, fill, job_file, look
from tests.spark.standalone import Standalone, standalone
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.ordering import format_time
from tidegate.server import BackgroundServer

TURNS = int(os.environ.get("TURNS", "3"))
OUTPUT = 'type = "file"\npath = "results.jsonl"\n'


def run(folder: Path, cluster: Standalone, form: str, connection_string: str, until: int) -> tuple[float, float]:
    """Run a job, and return how many events it read a second, and how many processor seconds a million events took."""
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text(job_file(connection_string, form, OUTPUT), encoding="utf-8")
    reports = folder / "progress.jsonl"
    command = [sys.executable, "-m", "tidegate", "job", "run", str(folder / "job.toml"), "--master", cluster.url]
    command += ["--placement", "spark", "--until-caught-up", "--until", format_time(until), "--progress", str(reports)]
    seen: dict[int, tuple[str, float]] = {}
    for worker in cluster.workers:
        look(worker.pid, seen)
    before = sum(seconds for _, seconds in seen.values())
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        for root in (process, *cluster.workers):
            look(root.pid, seen)
        time.sleep(0.05)
    if process.returncode:
        assert process.stderr is not None
        raise SystemExit(process.stderr.read())
    steps = [json.loads(line) for line in reports.read_text(encoding="utf-8").splitlines()]
    events = sum(step["numInputRows"] for step in steps)
    took_s = sum(step["durationMs"]["triggerExecution"] for step in steps) / 1000
    used_s = sum(seconds for _, seconds in seen.values()) - before
    return events / took_s, used_s * 1e6 / events


def main() -> None:
    """Print a line for each form."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    forms = sys.argv[2:] or list(FORMS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = NamespaceConfig(name="bench", event_hubs=(EventHubConfig(name="log", partition_count=PARTITIONS),))
        for workers in (1, 2):
            (folder / f"cluster-{workers}").mkdir()
        with (
            BackgroundServer(config, folder / "hub") as server,
            standalone(folder / "cluster-1", 1) as one,
            standalone(folder / "cluster-2", 2) as two,
        ):
            start = time.time_ns() // 100 - 36_000_000_000
            fill(server, "log", events, start)
            source = f"{server.connection_string};EntityPath=log"
            print(f"{events:,} events, medians of {TURNS}; events a second of the steps, processor s a million events")
            for form in forms:
                began = time.perf_counter()
                found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
                for turn in range(TURNS):
                    for workers, cluster in ((1, one), (2, two)):
                        place = folder / f"{form}-{turn}-{workers}"
                        found[workers].append(run(place, cluster, form, source, start + 35_000_000_000))
                (rate, used_s), (rate_of_two, used_of_two_s) = (
                    tuple(map(statistics.median, zip(*found[workers], strict=True))) for workers in found
                )
                print(
                    f"{form:<12} one {rate:>9,.0f}/s {used_s:>6.1f} s, two {rate_of_two:>9,.0f}/s "
                    f"{used_of_two_s:>6.1f} s: {rate_of_two / rate:.2f} times the throughput, "
                    f"{used_of_two_s / used_s:.2f} times the processor time ({time.perf_counter() - began:.0f} s)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
