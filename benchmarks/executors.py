"""Two executors against one: `python -m benchmarks.executors [EVENTS] [FORM…]`, as root.

Each form runs over the same backlog on a standalone cluster of one worker and of two, turn about. A worker, its
executor and its Python processes share CORES processors (0.5). On a machine with two, the driver and the hub then have
one to themselves, as they would in a cluster. Without that limit, one executor of "one core" keeps 1.7 busy, because
Java and Python work at the same time. The first third of the events warms Java up and does not count. Throughput is the
other events by the time that their steps took, from `job run --progress`. Processor time is that of the driver and of
the executors with their Python workers, meanwhile. The share of Java's compilers is shown separately: each executor
compiles the same code, however few events it gets, so two executors compile about twice as much until they are warm.
TURNS is how often each is run (3); a turn of a form takes two minutes, and five with nine million events.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.job_driver_share import FORMS, PARTITIONS, fill, job_file, look
from tests.patience import eventually
from tests.spark.standalone import Standalone, standalone
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.ordering import format_time
from tidegate.server import BackgroundServer

TURNS = int(os.environ.get("TURNS", "3"))
CORES = float(os.environ.get("CORES", "0.5"))
CONTROL_GROUPS = Path("/sys/fs/cgroup/cpu")
"""Those of Linux's first version of control groups."""
PERIOD_US = 20_000
OUTPUT = 'type = "file"\npath = "results.jsonl"\n'


def run(folder: Path, cluster: Standalone, form: str, connection_string: str, until: int) -> tuple[float, float, float]:
    """Run a job, and return how many events it read a second, and how many processor seconds a million events took.

    The last is what they took without Java's compilers.
    """
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text(job_file(connection_string, form, OUTPUT), encoding="utf-8")
    reports = folder / "progress.jsonl"
    command = [sys.executable, "-m", "tidegate", "job", "run", str(folder / "job.toml"), "--master", cluster.url]
    command += ["--placement", "spark", "--until-caught-up", "--until", format_time(until), "--progress", str(reports)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    times_s, used_s, compiling_s = watch(process, cluster)
    if process.returncode:
        assert process.stderr is not None
        raise SystemExit(process.stderr.read())
    steps = [json.loads(line) for line in reports.read_text(encoding="utf-8").splitlines()]
    counted = after_warm_up(steps)
    events = sum(step["numInputRows"] for step in counted)
    took_s = sum(step["durationMs"]["triggerExecution"] for step in counted) / 1000
    began_s = datetime.fromisoformat(counted[0]["timestamp"]).timestamp()
    ended_s = datetime.fromisoformat(counted[-1]["timestamp"]).timestamp()
    ended_s += counted[-1]["durationMs"]["triggerExecution"] / 1000
    all_s, compilers_s = (
        float(np.diff(np.interp([began_s, ended_s], times_s, each))[0]) for each in (used_s, compiling_s)
    )
    return events / took_s, all_s * 1e6 / events, (all_s - compilers_s) * 1e6 / events


def watch(process: subprocess.Popen[str], cluster: Standalone) -> tuple[list[float], list[float], list[float]]:
    """Wait for a process, and return times, and the processor seconds that it and the workers had used by then.

    The last are those of Java's compilers alone.
    """
    seen: dict[int, tuple[str, float]] = {}
    compilers: dict[Path, float] = {}
    times_s: list[float] = []
    used_s: list[float] = []
    compiling_s: list[float] = []
    while process.poll() is None:
        for root in (process, *cluster.workers):
            look(root.pid, seen)
        times_s.append(time.time())
        used_s.append(sum(seconds for _, seconds in seen.values()))
        for java in seen:
            compilers.update(compilers_of(java))
        compiling_s.append(sum(compilers.values()))
        time.sleep(0.2)
    return times_s, used_s, compiling_s


def compilers_of(process: int) -> dict[Path, float]:
    """Return the processor seconds of each thread in which a process of Java compiles."""
    found = {}
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            fields = (thread / "stat").read_text()
            if fields.partition("(")[2].startswith(("C1 ", "C2 ")):
                user, system = fields.rpartition(")")[2].split()[11:13]
                found[thread] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return found


def after_warm_up(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps after those with the first third of the events."""
    reached = list(accumulate(step["numInputRows"] for step in steps))
    counted = [step for step, before in zip(steps[1:], reached, strict=False) if before >= reached[-1] / 3]
    if not counted:
        raise SystemExit(f"{len(steps)} steps are too few, since the first third does not count; give more EVENTS")
    return counted


def is_empty(group: Path) -> bool:
    """Whether all processes of a control group have ended."""
    return not (group / "cgroup.procs").read_text()


@contextmanager
def limited_workers(cluster: Standalone, count: int) -> Iterator[None]:
    """Start workers, each in a control group of its own that limits the processor time of all that it starts."""
    groups = []
    try:
        for _ in range(count):
            cluster.start_worker()
        for worker in cluster.workers:
            group = CONTROL_GROUPS / f"tidegate-benchmark-{worker.pid}"
            group.mkdir()
            groups.append(group)
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(round(CORES * PERIOD_US)))
            (group / "cgroup.procs").write_text(str(worker.pid))
        yield
    finally:
        cluster.stop()
        for group in groups:
            eventually(partial(is_empty, group))
            group.rmdir()


def main() -> None:
    """Print a line for each form."""
    if not os.access(CONTROL_GROUPS, os.W_OK):
        raise SystemExit(f"{CONTROL_GROUPS}: cannot write; run this as root, with control groups of version 1")
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 3_000_000
    forms = sys.argv[2:] or list(FORMS)
    unknown = set(forms) - set(FORMS)
    if unknown:
        raise SystemExit(f"no form called {', '.join(sorted(unknown))}; there are {', '.join(FORMS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        config = NamespaceConfig(name="bench", event_hubs=(EventHubConfig(name="log", partition_count=PARTITIONS),))
        for workers in (1, 2):
            (folder / f"cluster-{workers}").mkdir()
        with (
            BackgroundServer(config, folder / "hub") as server,
            standalone(folder / "cluster-1", 0) as one,
            standalone(folder / "cluster-2", 0) as two,
            limited_workers(one, 1),
            limited_workers(two, 2),
        ):
            start = time.time_ns() // 100 - 36_000_000_000
            fill(server, "log", events, start)
            source = f"{server.connection_string};EntityPath=log"
            print(f"{events:,} events, medians of {TURNS}; events a second of the steps, processor s a million events")
            for form in forms:
                began = time.perf_counter()
                found: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
                for turn in range(TURNS):
                    for workers, cluster in ((1, one), (2, two)):
                        place = folder / f"{form}-{turn}-{workers}"
                        found[workers].append(run(place, cluster, form, source, start + 35_000_000_000))
                (rate, used_s, warm_s), (rate_of_two, used_of_two_s, warm_of_two_s) = (
                    tuple(map(statistics.median, zip(*found[workers], strict=True))) for workers in found
                )
                print(
                    f"{form:<12} one {rate:>9,.0f}/s {used_s:>6.1f} s, two {rate_of_two:>9,.0f}/s "
                    f"{used_of_two_s:>6.1f} s: {rate_of_two / rate:.2f} times the throughput, "
                    f"{used_of_two_s / used_s:.2f} times the processor time, {warm_of_two_s / warm_s:.2f} times it "
                    f"without Java's compilers ({time.perf_counter() - began:.0f} s)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
