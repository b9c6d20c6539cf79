"""A steady job with TIMESTAMP BY … OVER device: time per event, from one substream to a million, and with a late
tolerance of 5 seconds to 20 days.

One partition of 10,000 events a second is stepped through 50,000 events at a time, in this process and without Spark.
What is measured begins when every device has been heard of, and so has everything there is to hold. Figures are
medians over the steps measured, of processor time, and each ratio is of one run:

- to *one substream* and 5 seconds, which is what the bar is about. Not all of that is the substreams': a million
  devices also have other groups, and a window or a change of each; a batch of 50,000 events has 50,000 groups
  instead of one, and a tumbling window gives a row for nearly every event where one device gives none.
- to *one timeline* with the same events, the same groups and the same results: the query without OVER. What is left
  is what it costs to tell the substreams apart.

    python -m benchmarks.job_substreams [MOST_SUBSTREAMS] [QUERY …]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from tidegate.connectors.model.events import Events, Int64Array, PartitionEnd
from tidegate.engine import CATALOG, Program
from tidegate.job.runtime.step import Stepper
from tidegate.job.runtime.task import run_task
from tidegate.ordering import TICKS_PER_SECOND, Policy, format_ticks, parse_time
from tidegate.sql import compile_query

STEP_EVENTS = 50_000
MEASURED_STEPS = 12
TICKS_APART = TICKS_PER_SECOND // 10_000
DAYS = 20 * 86_400
OVER = " OVER k"
FROM = f"FROM i TIMESTAMP BY t{OVER}"
QUERIES = {
    "rows": f"SELECT System.Timestamp() AS ts, k, v INTO out {FROM}",
    "tumbling": f"SELECT System.Timestamp() AS e, k, COUNT(*) AS n, AVG(v) AS mean INTO out {FROM} "
    "GROUP BY k, TumblingWindow(second, 10)",
    "hopping": f"SELECT System.Timestamp() AS e, k, COUNT(*) AS n, MAX(v) AS top INTO out {FROM} "
    "GROUP BY k, HoppingWindow(second, 20, 10)",
    "lag": f"SELECT k, v - LAG(v) OVER (PARTITION BY k LIMIT DURATION(minute, 5)) AS rise INTO out {FROM}",
}


@dataclass(frozen=True)
class MadeRange:
    """Events of the log from ``start`` on."""

    start: int
    arrivals: Int64Array
    bodies: list[bytes]

    @property
    def end(self) -> int:
        return self.start + len(self.bodies)

    def read_events(self, batch_events: int) -> Iterator[Events]:
        for first in range(0, len(self.bodies), batch_events):
            arrivals = self.arrivals[first : first + batch_events]
            numbers = np.arange(len(arrivals)) + self.start + first
            yield Events(numbers, arrivals, self.bodies[first : first + batch_events])


class MadeLog:
    """A log in memory, shown up to ``shown``: every device once, in any order, and then at random."""

    def __init__(self, substreams: int, steps: int) -> None:
        dice = np.random.default_rng(1)
        count = -(-substreams // STEP_EVENTS) * STEP_EVENTS + steps * STEP_EVENTS
        devices = np.concatenate([dice.permutation(substreams), dice.integers(0, substreams, count - substreams)])
        self.arrivals = parse_time("2026-01-01T00:00:00Z") + TICKS_APART * np.arange(count)
        times = format_ticks(self.arrivals - dice.integers(0, TICKS_PER_SECOND, count))
        self.bodies = [
            b'{"t":"%s","k":"device-%07d","v":%d}' % (when.encode(), device, device % 1000)
            for when, device in zip(times, devices.tolist(), strict=True)
        ]
        self.shown = 0

    def ends(self) -> dict[str, PartitionEnd]:
        return {"0": PartitionEnd(0, self.shown, int(self.arrivals[min(self.shown, len(self.arrivals) - 1)]))}

    def first_at(self, partition: str, arrival: int) -> int:
        return int(np.searchsorted(self.arrivals, arrival))

    def range(self, partition: str, start: int, end: int) -> MadeRange:
        return MadeRange(start, self.arrivals[start:end], self.bodies[start:end])

    def close(self) -> None:
        pass


def microseconds_per_event(sql: str, log: MadeLog, late_s: int) -> float:
    """Of the steps after every device has been heard of."""
    program = Program.prepare(compile_query(sql, catalog=CATALOG))
    policy = Policy.seconds(late=late_s)
    log.shown = 0
    stepper = Stepper(program, policy, {"i": log}, lambda tasks: [run_task(task, program, policy) for task in tasks])
    taken = []
    while log.shown < len(log.bodies):
        log.shown += STEP_EVENTS
        begin = time.process_time()
        step = stepper.step()
        for rows in step.rows:
            rows.to_json_lines()
        taken.append((time.process_time() - begin) / STEP_EVENTS * 1e6)
    return statistics.median(taken[-MEASURED_STEPS:])


def main(arguments: Sequence[str]) -> int:
    """Print a table; 1 if a bar is missed."""
    most = int(arguments[0]) if arguments else 1_000_000
    table = Table("query", "substreams", "late tolerance", "µs per event", "to one substream", "to one timeline")
    worst = 0.0
    for name in arguments[1:] or QUERIES:
        first = None
        for substreams in dict.fromkeys((1, 1000, most)):
            log = MadeLog(substreams, MEASURED_STEPS + 8)
            alone = microseconds_per_event(QUERIES[name].replace(FROM, FROM.removesuffix(OVER)), log, 5)
            for late_s in (5, DAYS):
                cost = microseconds_per_event(QUERIES[name], log, late_s)
                first = first or cost
                worst = max(worst, cost / first)
                late = "5 s" if late_s == 5 else "20 d"
                ratios = f"{cost / first:.2f}", f"{cost / alone:.2f}"
                table.add_row(name, f"{substreams:,}", late, f"{cost:.2f}", *ratios)
    Console().print(table)
    print(f"worst ratio to one substream {worst:.2f}, to be at most 2")
    return int(worst > 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
