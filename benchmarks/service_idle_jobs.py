"""What a service with ten idle jobs costs, and what a job costs before its first event. Linux only.

`python -m benchmarks.service_idle_jobs [JOBS]` prints memory (PSS, which shares what is shared) and processor time.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer
from tidegate.service import JobDocument, Jobs, JobState
from tidegate.service.processes import usage_of

QUERY = "SELECT k, COUNT(*) AS n INTO o FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 5)"
WATCHED_S = 20


def memory_mib(pid: int) -> tuple[float, float]:
    """Return a process's proportional share of memory and what is its own alone, in MiB."""
    kib = {"Pss": 0, "Private_Clean": 0, "Private_Dirty": 0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in kib:
            kib[name] += int(rest.split()[0])
    return kib["Pss"] / 1024, (kib["Private_Clean"] + kib["Private_Dirty"]) / 1024


def cpu_s(pid: int) -> float:
    """Return the processor time of a process."""
    usage = usage_of(pid)
    return 0.0 if usage is None else usage.cpu_s


def parent_of(pid: int) -> int:
    """Return the process that forked this one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def main(count: int) -> None:
    """Start the jobs one after the other, then watch them."""
    os.environ.setdefault("TIDEGATE_PLACEMENT", "process")
    folder = Path(tempfile.mkdtemp())
    config = NamespaceConfig(name="n", event_hubs=(EventHubConfig(name="eh", partition_count=4),))
    with BackgroundServer(config, folder / "hub") as server, Jobs(folder / "service") as jobs:
        before_mib, _ = memory_mib(os.getpid())
        section = {"type": "eventhub", "connection_string": server.connection_string, "event_hub": "eh"}
        started = []
        for number in range(count):
            output = {"type": "file", "path": str(folder / f"{number}.jsonl")}
            definition = {"query": QUERY, "inputs": {"i": section}, "outputs": {"o": output}}
            jobs.create(f"job-{number}", JobDocument(definition))
            began = time.monotonic()
            jobs.start(f"job-{number}")
            job = jobs.wait(f"job-{number}", {JobState.RUNNING, JobState.FAILED}, 120)
            assert job.process is not None, job.reason
            started.append((time.monotonic() - began, cpu_s(job.process)))
        pids = [job.process for job in jobs.summaries() if job.process is not None]
        nursery = parent_of(pids[0])
        time.sleep(15)
        watched = {pid: cpu_s(pid) for pid in (*pids, nursery, os.getpid())}
        time.sleep(WATCHED_S)
        used = {pid: cpu_s(pid) - before for pid, before in watched.items()}
        shares, own = zip(*map(memory_mib, pids), strict=True)
        nursery_mib, _ = memory_mib(nursery)
        print(f"first job Running after {started[0][0]:.2f} s, later ones after {started[-1][0]:.2f} s")
        print(f"processor time of a process until Running: {max(cpu for _, cpu in started):.2f} s")
        print(f"memory of a process alone: {max(own):.1f} MiB; its share of all: {max(shares):.1f} MiB")
        print(f"memory of {count} processes and their parent: {sum(shares) + nursery_mib:.0f} MiB")
        hub, (after_mib, _) = os.getpid(), memory_mib(os.getpid())
        print(f"memory of hub and service, in one process: {before_mib:.0f} MiB before, {after_mib:.0f} after")
        print(f"processor, {count} idle jobs: {100 * sum(used[pid] for pid in pids) / WATCHED_S:.1f} % of a core")
        print(
            f"their parent {100 * used[nursery] / WATCHED_S:.1f} %, hub and service {100 * used[hub] / WATCHED_S:.1f} %"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
