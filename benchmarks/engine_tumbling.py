"""Events a second that one core decodes, stamps and aggregates by tumbling windows, and what each part takes.

    python -m benchmarks.engine_tumbling [--events N] [--batch N] [--devices N] [--repeat N]

Events are JSON of about 150 bytes, in one partition. Figures are medians of the repeats, after a run that is not
counted.
"""

from __future__ import annotations

import argparse
import json
import pickle
from dataclasses import dataclass, field
from statistics import median
from time import process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from tidegate.engine import CATALOG, JSON, Format, KeyedSide, Program, Stamped, TaskSide
from tidegate.ordering import (
    DROPPED,
    NO_TIME,
    TICKS_PER_MILLISECOND,
    TICKS_PER_SECOND,
    Carry,
    Policy,
    format_ticks,
    parse_time,
    scan,
)
from tidegate.sql import compile_query

QUERY = (
    "SELECT System.Timestamp() AS window_end, device_id, COUNT(*) AS n, AVG(speed) AS average INTO results "
    "FROM events TIMESTAMP BY entry_time GROUP BY device_id, TumblingWindow(second, 5)"
)
TARGET = 1e6


@dataclass
class Events:
    """A run of a partition, as a job hands it to the engine."""

    sequence_numbers: np.ndarray
    arrivals: np.ndarray
    bodies: list[bytes]
    offsets: list[str] = field(default_factory=list)
    publishers: list[str] = field(default_factory=list)
    partition_keys: list[str] = field(default_factory=list)
    format: Format = JSON
    added_columns: tuple[str, ...] = ()
    set_aside: tuple[int, ...] = ()


def recorded(count: int, devices: int, batch: int) -> list[Events]:
    """10,000 events a second, each up to a second old."""
    rng = np.random.default_rng(1)
    arrivals = np.arange(count) * (TICKS_PER_MILLISECOND // 10) + parse_time("2026-01-01T00:00:00Z")
    times = format_ticks(arrivals - rng.integers(0, TICKS_PER_SECOND, count))
    device, speed = rng.integers(0, devices, count).tolist(), np.round(rng.uniform(20, 130, count), 2).tolist()
    bodies = [
        json.dumps(
            {
                "device_id": f"device-{device[place]:05d}",
                "entry_time": times[place],
                "speed": speed[place],
                "lane": place % 4,
                "plate": f"ABC-{place % 9999:04d}",
                "firmware": "1.20.3-b",
            }
        ).encode()
        for place in range(count)
    ]
    return [
        Events(
            np.arange(start, min(start + batch, count)), arrivals[start : start + batch], bodies[start : start + batch]
        )
        for start in range(0, count, batch)
    ]


class Stopwatch:
    """CPU time by part, so that what else runs on the machine does not count."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._since = 0.0

    def start(self) -> None:
        self._since = process_time()

    def lap(self, name: str) -> None:
        now = process_time()
        self.spent[name] = self.spent.get(name, 0.0) + now - self._since
        self._since = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--devices", type=int, default=1_000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    count = arguments.events
    batches = recorded(count, arguments.devices, arguments.batch)
    program = Program.prepare(compile_query(QUERY, catalog=CATALOG))
    policy = Policy.seconds(early=300, late=5, out_of_order=1, action="adjust")
    engine = TaskSide(program)
    watch = Stopwatch()

    def run() -> None:
        carry, keyed = Carry(), KeyedSide(program)
        watch.start()
        for events in batches:
            batch = engine.decode("events", "0", events)
            assert batch.times is not None
            watch.lap("decode")
            stamps, carry = scan(batch.times[0], events.arrivals, carry, policy, batch.times[1])
            watch.lap("scan")
            selected = np.flatnonzero(stamps.fate != DROPPED)
            rows = Stamped(selected, stamps.system_timestamp[selected])
            partial = engine.run(batch, rows)
            watch.lap("aggregate")
            partial = pickle.loads(pickle.dumps(partial, 5))
            watch.lap("send")
            keyed.absorb([partial])
            watch.lap("absorb")
            keyed.emit(NO_TIME, int(stamps.watermark[-1]))
            watch.lap("release")

    run()
    runs = []
    for _ in range(arguments.repeat):
        watch.spent = {}
        run()
        runs.append(watch.spent)
    table = Table(title=f"{count:,} events, {len(batches[0].bodies[0])} bytes, {arguments.devices:,} devices")
    table.add_column("part")
    table.add_column("ns an event", justify="right")
    for name in runs[0]:
        table.add_row(name, f"{median(one[name] for one in runs) / count * 1e9:,.0f}")
    in_task = median(sum(one[name] for name in ("decode", "scan", "aggregate", "send")) for one in runs)
    total = median(sum(one.values()) for one in runs)
    table.add_row("in the task", f"{in_task / count * 1e9:,.0f}")
    table.add_row("all", f"{total / count * 1e9:,.0f}")
    console = Console()
    console.print(table)
    console.print(
        f"in the task {count / in_task:,.0f} events/s, all {count / total:,.0f} events/s (target {TARGET:,.0f})"
    )


if __name__ == "__main__":
    main()
