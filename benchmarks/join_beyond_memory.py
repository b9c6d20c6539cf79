"""A join over an hour of events whose state is several times the memory of all its processes together.

    python -m benchmarks.join_beyond_memory [--events N] [--step N] [--bytes N] [--heap MEGABYTES]

A hub holds 80 minutes of events with a payload. Each event is joined with those of its key an hour later, so an hour of
payloads is always held. The job runs as a user starts it, `tidegate job run` with ``local[2]``; Spark's driver and
executors share one Java process, whose heap is limited. While it runs, the private memory of the job's processes
(RssAnon and RssShmem: what must be in memory) is sampled, and the size of the states on the disk. Pages of mapped files
are not counted, since the system drops them whenever it likes. At the end every row of the result is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.job_driver_share import descends
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.ordering import TICKS_PER_SECOND, format_time
from tidegate.server import BackgroundServer

MINUTE = 60 * TICKS_PER_SECOND
HOUR = 60 * MINUTE
LENGTH = 80 * MINUTE
PARTITIONS = 2
KEYS = 10_000
BATCH = 100
MEGABYTE = 2**20
PREFIX = 12
JOB = f"""
name = "wide"
query = \"\"\"
SELECT l.n AS one, r.n AS other, SUBSTRING(l.payload, 1, {PREFIX}) AS a, SUBSTRING(r.payload, 1, {PREFIX}) AS b
INTO results FROM events l TIMESTAMP BY t JOIN events r TIMESTAMP BY t
ON l.k = r.k AND DATEDIFF(minute, l, r) BETWEEN 60 AND 60\"\"\"

[event_ordering]
late_arrival_tolerance_s = 7200
out_of_order_tolerance_s = 0

[inputs.events]
type = "eventhub"
connection_string = "CONNECTION;EntityPath=log"

[outputs.results]
type = "file"
path = "results.jsonl"
"""


def payload(number: int, width: int) -> str:
    """Return the payload of an event; it begins with the event's number."""
    return f"{number:0{PREFIX}d}" + os.urandom(width // 2).hex()[: max(width - PREFIX, 0)]


def fill(server: BackgroundServer, events: int, width: int, start: int) -> None:
    """Publish events from ``start`` (ticks), spread evenly over `LENGTH`, and one in each partition that ends it."""
    logs = [partition.log for partition in server.server.namespace.event_hub("log").partitions]
    outstanding = threading.Semaphore(16)

    def publish(partition: int, rows: list[dict[str, object]]) -> None:
        bodies = [json.dumps(row).encode() for row in rows]
        batch = [b"\x00\x53\x75\xb0" + len(body).to_bytes(4, "big") + body for body in bodies]
        outstanding.acquire()
        logs[partition].append(batch, lambda outcome: outstanding.release())

    for first in range(0, events, BATCH):
        rows: list[dict[str, object]] = []
        for number in range(first, min(first + BATCH, events)):
            moment = format_time(start + number * LENGTH // events)
            rows.append({"t": moment, "k": number % KEYS, "n": number, "payload": payload(number, width)})
        publish(first // BATCH % PARTITIONS, rows)
    for partition in range(PARTITIONS):
        publish(partition, [{"t": format_time(start + LENGTH + 2 * MINUTE), "k": -1, "n": -1, "payload": ""}])
    for _ in range(16):
        outstanding.acquire()


def expected(events: int, start: int) -> Counter[tuple[int, int, str, str]]:
    """Return the rows that the rule asks for, one event at a time."""
    by_minute: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for number in range(events):
        by_minute[(start + number * LENGTH // events) // MINUTE, number % KEYS].append(number)
    return Counter(
        (one, other, f"{one:0{PREFIX}d}", f"{other:0{PREFIX}d}")
        for (minute, key), numbers in by_minute.items()
        for other in by_minute.get((minute + 60, key), ())
        for one in numbers
    )


def private_bytes(process: int) -> int:
    """Return the memory of a process that no file stands behind."""
    total = 0
    for line in (Path("/proc") / str(process) / "status").read_text(encoding="ascii").splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            total += int(line.split()[1]) * 1024
    return total


def memory(root: int) -> dict[str, int]:
    """Return the private memory of a process and all that stem from it, by kind."""
    found: dict[str, int] = defaultdict(int)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if descends(int(entry.name), root, {}):
                    name = (entry / "comm").read_text().strip()
                    kind = "driver" if int(entry.name) == root else "java" if name == "java" else "workers"
                    found[kind] += private_bytes(int(entry.name))
            except OSError:
                continue
    return found


def folder_bytes(folder: Path) -> int:
    """Return the size of the states below Spark's local folder."""
    total = 0
    for parent, _, names in os.walk(folder):  # which passes over a folder that is deleted meanwhile
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size if name.endswith(".chunk") else 0
            except OSError:
                continue
    return total


def main() -> None:
    """Run the job once, and print what it needed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--step", type=int, default=5_000)
    parser.add_argument("--bytes", type=int, default=10_000)
    parser.add_argument("--heap", type=int, default=512, help="of Spark's Java process, in megabytes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        local = folder / "local"
        local.mkdir()
        hubs = (EventHubConfig(name="log", partition_count=PARTITIONS),)
        with BackgroundServer(NamespaceConfig(name="bench", event_hubs=hubs), folder / "hub") as server:
            start = (time.time_ns() // 100 - 3 * HOUR // 2) // MINUTE * MINUTE
            fill(server, arguments.events, arguments.bytes, start)
            (folder / "job.toml").write_text(JOB.replace("CONNECTION", server.connection_string), encoding="utf-8")
            command = [sys.executable, "-m", "tidegate", "job", "run", str(folder / "job.toml"), "--placement", "spark"]
            command += ["--master", "local[2]", "--until-caught-up", "--max-events-per-step", str(arguments.step)]
            command += ["--spark-conf", f"spark.driver.memory={arguments.heap}m"]
            command += ["--until", format_time(start + LENGTH + MINUTE)]
            began = time.perf_counter()
            environment = {**os.environ, "SPARK_LOCAL_DIRS": str(local)}
            job = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
            )
            peaks: dict[str, int] = defaultdict(int)
            while job.poll() is None:
                now = memory(job.pid)
                for kind, size in (*now.items(), ("together", sum(now.values())), ("state", folder_bytes(local))):
                    peaks[kind] = max(peaks[kind], size)
                time.sleep(0.2)
            took = time.perf_counter() - began
            if job.returncode:
                assert job.stderr is not None
                raise SystemExit(job.stderr.read())
        rows = [json.loads(line) for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]
        same = Counter((row["one"], row["other"], row["a"], row["b"]) for row in rows) == expected(
            arguments.events, start
        )
    print(f"{arguments.events:,} events of {arguments.bytes:,} bytes, steps of {arguments.step:,}: {took:,.0f} s")
    for kind in ("state", "driver", "java", "workers", "together"):
        print(f"{kind:<10} {peaks[kind] / MEGABYTE:>8,.0f} MB")
    print(f"state : memory of all processes together {peaks['state'] / peaks['together']:.1f}")
    print(f"{len(rows):,} rows, {'as expected' if same else 'NOT AS EXPECTED'}")


if __name__ == "__main__":
    main()
