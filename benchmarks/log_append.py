"""Appending to one partition's log: batches and single events pipelined, one at a time; with syncing and without.

It also measures reading back and opening. Medians of at least 5 runs; the two columns alternate within one run.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tidegate.log import Appended, Committer, LogClock, LogError, PartitionLog, SegmentReader

RUNS = 5
EVENT = b"x" * 200


@dataclass(frozen=True)
class Load:
    """`appends` appends of `count` events, at most `window` of them not yet acknowledged."""

    name: str
    appends: int
    count: int
    window: int


LOADS = (
    Load("batches of 100, 50 in flight", 10_000, 100, 50),
    Load("single events, 500 in flight", 200_000, 1, 500),
    Load("single events, one at a time", 3_000, 1, 1),
)


def append_all(log: PartitionLog, load: Load) -> float:
    """Events per second until the last is acknowledged."""
    events = [EVENT] * load.count
    window = threading.Semaphore(load.window)

    def acknowledge(answer: Appended | LogError) -> None:
        if isinstance(answer, LogError):
            raise answer
        window.release()

    started = time.perf_counter()
    for _ in range(load.appends):
        window.acquire()
        log.append(events, acknowledge)
    for _ in range(load.window):
        window.acquire()
    return load.appends * load.count / (time.perf_counter() - started)


def read_all(directory: Path) -> float:
    """Events per second of a reader in another process: entries, not single events."""
    started = time.perf_counter()
    events: int = sum(entry.count for entry in SegmentReader(directory).read_entries(0))
    return float(events) / (time.perf_counter() - started)


def main() -> None:
    """Print the table."""
    root = Path(tempfile.mkdtemp())
    clock, committer = LogClock(root / "clock"), Committer()
    print(f"{'events of 200 bytes, events/s':<34}{'durable':>12}{'not synced':>12}{'read back':>14}{'reopen ms':>11}")
    for load in LOADS:
        figures: dict[bool, list[float]] = {True: [], False: []}
        reads, opens = [], []
        for run in range(RUNS):
            for durable in (True, False):
                directory = root / f"{load.window}-{run}-{durable}"
                log = PartitionLog.open(directory, clock=clock, committer=committer, durable=durable)
                figures[durable].append(append_all(log, load))
                log.close()
            reads.append(read_all(directory))
            started = time.perf_counter()
            log = PartitionLog.open(directory, clock=clock, committer=committer)
            opens.append(1000 * (time.perf_counter() - started))
            log.close()
            shutil.rmtree(root / f"{load.window}-{run}-True")
            shutil.rmtree(root / f"{load.window}-{run}-False")
        durable_rate, volatile_rate = (statistics.median(figures[kind]) for kind in (True, False))
        row = f"{durable_rate:>12,.0f}{volatile_rate:>12,.0f}{statistics.median(reads):>14,.0f}"
        print(f"{load.name:<34}{row}{statistics.median(opens):>11.1f}")
    committer.close()
    clock.close()
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
