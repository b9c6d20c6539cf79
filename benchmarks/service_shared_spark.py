"""What jobs of the service on Spark cost: all on the one that they share, or each with a Java process. Linux only.

`python -m benchmarks.service_shared_spark [JOBS [ALONE]]` starts 10 jobs that share a Spark, then 3 that do not,
and prints their memory (PSS, which shares what is shared), the time from start to the first step, and the processor
time that idle jobs take, with that of the hub and the service.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer
from tidegate.service import JobDocument, Jobs, JobState, ServiceSettings, SharedSparkSettings

QUERY = "SELECT k, COUNT(*) AS n INTO o FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 5)"
SETTLE_S, WATCHED_S = 10, 20
PATIENCE_S = 600
SHARED = {"placement": "spark"}
ALONE = {"placement": "spark", "conf": {"spark.driver.memory": "1g"}}


def below(pid: int) -> Iterator[int]:
    """Yield the processes that stem from one."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in path.read_text().split()]
        except OSError:
            continue  # the thread has ended
        for child in children:
            yield child
            yield from below(child)


def pss_mib(pid: int) -> float:
    """Return a process's proportional share of memory, in MiB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def memory() -> tuple[float, float, int]:
    """Return the memory of all processes below this one, how much of it Java has, in MiB, and how many Javas."""
    total, java, javas = 0.0, 0.0, 0
    for pid in below(os.getpid()):
        share = pss_mib(pid)
        total += share
        if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
            java += share
            javas += 1
    return total, java, javas


def measure(folder: Path, source: Mapping[str, Any], spark: Mapping[str, Any], count: int) -> None:
    """Start jobs one after the other, then say what all take."""
    settings = ServiceSettings(spark=SharedSparkSettings(cores=2))
    with Jobs(folder, settings) as jobs:
        waited = []
        for number in range(count):
            output = {"type": "file", "path": str(folder / f"{number}.jsonl")}
            definition = {"query": QUERY, "inputs": {"i": source}, "outputs": {"o": output}, "spark": spark}
            jobs.create(f"job-{number}", JobDocument(definition))
            began = time.monotonic()
            jobs.start(f"job-{number}")
            job = jobs.wait(f"job-{number}", {JobState.RUNNING, JobState.FAILED}, PATIENCE_S)
            assert job.state is JobState.RUNNING, job.reason
            waited.append(time.monotonic() - began)
        time.sleep(SETTLE_S)
        total, java, javas = memory()
        print(f"  Java processes: {javas}")
        print(f"  memory of all processes: {total:,.0f} MiB, of which Java has {java:,.0f}")
        later = f", later ones after {statistics.median(waited[1:]):.1f} s" if count > 1 else ""
        print(f"  first job Running after {waited[0]:.1f} s{later}", flush=True)
        shares = idle_shares()
        here = shares.pop(os.getpid(), 0.0)
        each = sum(shares.values()) / count
        print(
            f"  idle, of a core: {each:.1f} % a job with its share of Spark; hub and service {here:.1f} %", flush=True
        )


def idle_shares() -> dict[int, float]:
    """Return what each process takes of a core while nothing happens, in percent."""
    before = {pid: processor_s(pid) for pid in (os.getpid(), *below(os.getpid()))}
    time.sleep(WATCHED_S)
    return {pid: 100 * max(0.0, processor_s(pid) - since) / WATCHED_S for pid, since in before.items()}


def processor_s(pid: int) -> float:
    """Return the processor time of a process in seconds; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(shared: int, alone: int) -> None:
    """Measure both."""
    folder = Path(tempfile.mkdtemp())
    config = NamespaceConfig(name="n", event_hubs=(EventHubConfig(name="eh", partition_count=2),))
    with BackgroundServer(config, folder / "hub") as server:
        source = {"type": "eventhub", "connection_string": server.connection_string, "event_hub": "eh"}
        print(f"{shared} jobs that share a Spark")
        measure(folder / "shared", source, SHARED, shared)
        print(f"{alone} jobs with a Spark each")
        measure(folder / "alone", source, ALONE, alone)


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [10, 3][len(given) :]))
