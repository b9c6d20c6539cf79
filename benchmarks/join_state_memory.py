"""Memory of its own that a shard's step needs, beside the state that it keeps on disk: a join over an hour, wide rows.

    python -m benchmarks.join_state_memory [--events N] [--step N] [--bytes N]

Runs without Spark: one shard, whose state is saved and mapped again after each step, as on an executor. Peaks are
RssAnon, which leaves out the pages of mapped files, sampled during the step, less what the process had before the first
one. A shard whose memory depends on the rows of a step alone would have the same peak in every line.
"""

from __future__ import annotations

import argparse
import json
import pickle
import tempfile
import threading
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.engine_tumbling import Events
from tidegate.engine import CATALOG, KeyedSide, Program, Stamped, TaskSide
from tidegate.job.runtime.state_store import StateStore, StoredState
from tidegate.ordering import NO_TIME, TICKS_PER_SECOND, Carry, Policy, format_ticks, parse_time, scan
from tidegate.sql import compile_query

QUERY = (
    "SELECT l.k, l.payload AS a, r.payload AS b INTO results FROM events l TIMESTAMP BY t JOIN events r TIMESTAMP BY t "
    "ON l.k = r.k AND DATEDIFF(minute, l, r) BETWEEN 59 AND 60 WHERE l.v > 998 AND r.v > 998"
)
START = parse_time("2026-01-01T00:00:00Z")
MEGABYTE = 2**20


class Peak:
    """Samples RssAnon of this process while it is entered."""

    def __init__(self) -> None:
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Peak:
        self.bytes = anonymous_bytes()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        self.bytes = max(self.bytes, anonymous_bytes())

    def _sample(self) -> None:
        while not self._done.wait(0.002):
            self.bytes = max(self.bytes, anonymous_bytes())


def anonymous_bytes() -> int:
    """Return how much private memory of this process is resident."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no RssAnon; Linux 4.5 or newer is needed")


def step_events(first: int, count: int, gap: int, width: int) -> Events:
    """Return the events of a step, ``gap`` ticks apart."""
    rng = np.random.default_rng(first)
    numbers = np.arange(first, first + count)
    arrivals = START + numbers * gap
    times, keys, values = format_ticks(arrivals), rng.integers(0, 10_000, count), rng.integers(0, 1000, count)
    bodies = [
        json.dumps(
            {"t": times[row], "k": int(keys[row]), "v": int(values[row]), "payload": rng.bytes(width // 2).hex()}
        )
        for row in range(count)
    ]
    return Events(numbers, arrivals, [body.encode() for body in bodies])


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--step", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=1_000)
    arguments = parser.parse_args()
    gap = 3600 * TICKS_PER_SECOND // arguments.events
    program, policy = Program.prepare(compile_query(QUERY, catalog=CATALOG)), Policy.seconds(late=5)
    task, carry, released = TaskSide(program), Carry(), NO_TIME
    stored: StoredState | None = None
    table = Table(title=f"{arguments.events:,} events within the hour, {arguments.bytes:,} bytes each")
    for title in ("events", "state, MB", "peak of own memory, MB", "peak : state", "step, s"):
        table.add_column(title, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        store, version, before = StateStore(Path(folder)), 0, anonymous_bytes()
        for first in range(0, arguments.events, arguments.step):
            batch_events = step_events(first, min(arguments.step, arguments.events - first), gap, arguments.bytes)
            batch = task.decode("events", "0", batch_events)
            assert batch.times is not None
            stamps, carry = scan(batch.times[0], batch_events.arrivals, carry, policy, batch.times[1])
            partial = pickle.dumps(task.run(batch, Stamped(np.arange(len(stamps.fate)), stamps.system_timestamp)), 5)
            del batch, batch_events
            with Peak() as peak:
                began, keyed = perf_counter(), KeyedSide(program)
                if stored is not None:
                    stored = store.load("shard", version)
                    keyed.state = stored.value
                keyed.absorb([pickle.loads(partial)])
                complete = program.complete_before(int(stamps.watermark[-1]))
                keyed.emit(released, complete)
                version, released = version + 1, complete
                stored = store.save("shard", version, keyed.state, stored)
                seconds = perf_counter() - began
            own = peak.bytes - before
            figures = (f"{stored.bytes / MEGABYTE:,.0f}", f"{own / MEGABYTE:,.0f}", f"{own / stored.bytes:.2f}")
            table.add_row(f"{first + arguments.step:,}", *figures, f"{seconds:.2f}")
            del keyed
    Console().print(table)


if __name__ == "__main__":
    main()
