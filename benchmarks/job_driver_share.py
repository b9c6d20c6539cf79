"""Which processes a job on Spark uses the processors in: `python -m benchmarks.job_driver_share [EVENTS] [FORM…]`.

Each form is started as a user does, `tidegate job run --master`, over a backlog in a hub with 4 partitions. While it
runs, the processor time of its processes is read from /proc: the driver's Python, the JVM, and the Python workers. An
empty job, of a few thousand events, shows what starting costs; the driver's share is what it uses beyond that.

OUTPUT names what the results go to: `file` (JSON lines, the default), `csv`, `eventhub`, or for the form `rows`
`postgresql`, `deltalake` or `iceberg`. The database's and the hub's own processes are not counted.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.checkpoints.postgres import postgres
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.ordering import format_time
from tidegate.server import BackgroundServer

PARTITIONS = 4
BATCH = 1000
EMPTY = 4000
COLUMNS = 'columns = { k = "nvarchar(max)", n = "bigint", v = "float" }\n'
FORMS = {
    "tumbling": "SELECT k, COUNT(*) AS c, AVG(v) AS v INTO o FROM i TIMESTAMP BY t "
    "GROUP BY k, TumblingWindow(second, 10)",
    "tumbling-1M": "SELECT n, COUNT(*) AS c INTO o FROM i TIMESTAMP BY t GROUP BY n, TumblingWindow(minute, 10)",
    "hopping": "SELECT k, AVG(v) AS v INTO o FROM i TIMESTAMP BY t GROUP BY k, HoppingWindow(second, 60, 10)",
    "sliding": "SELECT k, COUNT(*) AS c INTO o FROM i TIMESTAMP BY t GROUP BY k, SlidingWindow(second, 1)",
    "session": "SELECT k, COUNT(*) AS c INTO o FROM i TIMESTAMP BY t GROUP BY k, "
    "SessionWindow(millisecond, 50, 1000) OVER (PARTITION BY k)",
    "lag": "SELECT k, v, LAG(v) OVER (PARTITION BY k LIMIT DURATION(minute, 1)) AS before INTO o FROM i TIMESTAMP BY t",
    "join": "SELECT l.k, l.v, r.v AS w INTO o FROM i l TIMESTAMP BY t JOIN i r TIMESTAMP BY t ON l.n = r.n "
    "AND DATEDIFF(second, l, r) BETWEEN 0 AND 5 WHERE r.v < 10",
    "match": "SELECT m.k, m.a, m.b INTO o FROM i TIMESTAMP BY t MATCH_RECOGNIZE (LIMIT DURATION(second, 1) "
    "PARTITION BY k MEASURES LAST(A.k) AS k, LAST(A.v) AS a, LAST(B.v) AS b AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) "
    "DEFINE A AS A.v > 90, B AS B.v < 10) AS m",
    "over": "SELECT k, COUNT(*) AS c INTO o FROM i TIMESTAMP BY t OVER k GROUP BY k, TumblingWindow(second, 10)",
    "rows": "SELECT k, v, n INTO o FROM i TIMESTAMP BY t",
    "chain": "WITH s AS (SELECT k, g, COUNT(*) AS c FROM i TIMESTAMP BY t GROUP BY k, g, TumblingWindow(second, 1)) "
    "SELECT g, MAX(c) AS c INTO o FROM s GROUP BY g, TumblingWindow(second, 10)",
    "early": "SELECT k, COUNT(*) AS c INTO o FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(minute, 5)",
    "global": "SELECT COUNT(*) AS c, COUNT(DISTINCT k) AS d, TopOne() OVER (ORDER BY v DESC) AS top INTO o "
    "FROM i TIMESTAMP BY t GROUP BY TumblingWindow(second, 10)",
}


@dataclass
class Used:
    """Processor seconds by kind of process, seconds on the clock, and how many results there were."""

    driver: float
    jvm: float
    workers: float
    took_s: float
    results: int

    @property
    def total(self) -> float:
        """All processor seconds."""
        return self.driver + self.jvm + self.workers


def fill(server: BackgroundServer, hub: str, events: int, start: int) -> None:
    """Publish an hour of a hundred keys from ``start`` (ticks); n is a number that few events share."""
    dice = random.Random(1)
    apart = 36_000_000_000 // max(events, 1)
    logs = [partition.log for partition in server.server.namespace.event_hub(hub).partitions]
    outstanding = threading.Semaphore(64)
    for first in range(0, events, BATCH):
        batch = []
        for number in range(first, min(first + BATCH, events)):
            event = {
                "t": format_time(start + number * apart - dice.randrange(20_000_000)),
                "k": f"device-{dice.randrange(100):03d}",
                "v": round(dice.random() * 120, 2),
                "n": dice.randrange(max(events // 3, 1)),
                "g": dice.randrange(12),
            }
            body = json.dumps(event).encode()
            batch.append(b"\x00\x53\x75\xa0" + bytes((len(body),)) + body)
        outstanding.acquire()
        logs[first // BATCH % PARTITIONS].append(batch, lambda outcome: outstanding.release())
    for _ in range(64):
        outstanding.acquire()


@contextmanager
def destination(kind: str, server: BackgroundServer) -> Iterator[Callable[[str], str]]:
    """Yield what returns the section of an output of a kind, for a run with a name."""
    match kind:
        case "file":
            yield lambda name: 'type = "file"\npath = "results"\n'
        case "csv":
            yield lambda name: 'type = "file"\npath = "results"\nformat = "csv"\n'
        case "postgresql":
            with postgres() as database:
                yield (
                    lambda name: f'type = "postgresql"\nconnection_string = "{database}"\ntable = "{name}"\n{COLUMNS}'
                )
        case "eventhub":
            yield (
                lambda name: (
                    f'type = "eventhub"\nconnection_string = "{server.connection_string}"\nevent_hub = "out-{name}"\n'
                )
            )
        case "deltalake":
            yield lambda name: f'type = "deltalake"\npath = "table"\n{COLUMNS}'
        case "iceberg":
            yield lambda name: f'type = "iceberg"\npath = "warehouse"\ntable = "a.t"\n{COLUMNS}'
        case _:
            raise SystemExit(f"OUTPUT={kind} is not file, csv, postgresql, eventhub, deltalake or iceberg")


def job_file(connection_string: str, form: str, output: str, name: str = "share") -> str:
    """Return the job file of a form; ``output`` is the section of its output.

    Args:
        name: the job's; a table notes the job that writes it, so jobs that share a database need names of their own.
    """
    early = '[early_results]\nperiod_s = 1\noutputs = { o = "e" }\n[outputs.e]\ntype = "file"\npath = "early.jsonl"\n'
    return (
        f'name = "{name}"\nquery = """{FORMS[form]}"""\n'
        "[event_ordering]\nlate_arrival_tolerance_s = 7200\nout_of_order_tolerance_s = 5\n"
        f'[inputs.i]\ntype = "eventhub"\nconnection_string = "{connection_string}"\n'
        f"[outputs.o]\n{output}" + (early if form.startswith("early") else "")
    )


def run(folder: Path, connection_string: str, form: str, master: str, until: int, output: str) -> Used:
    """Run a job over a hub, and return what its processes used; ``output`` is the section of the output."""
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text(job_file(connection_string, form, output, folder.name), encoding="utf-8")
    began = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "tidegate",
        "job",
        "run",
        str(folder / "job.toml"),
        "--master",
        master,
        "--until-caught-up",
    ]
    command += ["--placement", os.environ.get("PLACEMENT", "spark")]
    command += ["--until", format_time(until)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seen: dict[int, tuple[str, float]] = {}
    while process.poll() is None:
        look(process.pid, seen)
        time.sleep(0.05)
    took = time.perf_counter() - began
    if process.returncode:
        assert process.stderr is not None
        raise SystemExit(process.stderr.read())
    used = {kind: sum(s for of, s in seen.values() if of == kind) for kind in ("driver", "jvm", "worker")}
    (journal,) = folder.glob("*.state/journal.json")
    count = json.loads(journal.read_text())["outputs"]["o"]["rows"]
    return Used(used["driver"], used["jvm"], used["worker"], took, count)


def look(root: int, seen: dict[int, tuple[str, float]]) -> None:
    """Note the processor time of a process and all that stem from it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                name = (entry / "comm").read_text().strip()
            except OSError:
                continue
            process = int(entry.name)
            parents[process] = int(fields[1])
            kind = "driver" if process == root else "jvm" if name == "java" else "worker"
            seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            if process == root or descends(process, root, parents):
                seen[process] = (kind, seconds)


def descends(process: int, root: int, parents: dict[int, int]) -> bool:
    """Return whether a process stems from another one."""
    while process not in (0, root):
        if process not in parents:
            try:
                parents[process] = int(
                    (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except OSError:
                return False
        process = parents[process]
    return process == root


def main() -> None:
    """Print a line for each form."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 3_000_000
    forms = sys.argv[2:] or list(FORMS)
    master = os.environ.get("MASTER", "local[2]")
    kind = os.environ.get("OUTPUT", "file")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        names = ["empty", "log", "out-first", "out-empty", *(f"out-{form}" for form in forms)]
        hubs = tuple(EventHubConfig(name=name, partition_count=PARTITIONS) for name in names)
        with (
            BackgroundServer(NamespaceConfig(name="bench", event_hubs=hubs), folder / "hub") as server,
            destination(kind, server) as section,
        ):
            start = time.time_ns() // 100 - 36_000_000_000
            for name, count in (("empty", EMPTY), ("log", events)):
                fill(server, name, count, start)
            until = start + 35_000_000_000
            strings = {name: f"{server.connection_string};EntityPath={name}" for name in ("empty", "log")}

            def measured(name: str, log: str, form: str) -> Used:
                return run(folder / f"job-{name}", strings[log], form, master, until, section(name))

            # The first Spark of a machine reads its jars from the disk.
            measured("first", "empty", forms[0])
            empty = measured("empty", "empty", forms[0])
            print(
                f"{events:,} events to {kind}, {master}; "
                f"an empty job: driver {empty.driver:.1f} s, all {empty.total:.1f} s"
            )
            print(f"{'form':<12} {'driver':>8} {'JVM':>8} {'workers':>8} {'share':>7} {'took':>7} {'results':>10}")
            for form in forms:
                used = measured(form, "log", form)
                share = max(0.0, used.driver - empty.driver) / (used.total - empty.total)
                print(
                    f"{form:<12} {used.driver:>7.1f}s {used.jvm:>7.1f}s {used.workers:>7.1f}s {share:>7.1%} "
                    f"{used.took_s:>6.1f}s {used.results:>10,}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
