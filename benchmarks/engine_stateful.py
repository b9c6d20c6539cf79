"""Events a second that one core takes through queries that look back: sliding windows, sessions, LAG, joins.

    python -m benchmarks.engine_stateful [--events N] [--batch N] [--step N] [--devices N] [--repeat N]

The events are those of `engine_tumbling`, 10,000 a second. A step is what a job takes up between two releases. Figures
are medians of the repeats, after a run that is not counted; CPU time, so that what else runs does not count.
"""

from __future__ import annotations

import argparse
import pickle
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.engine_tumbling import Events, Stopwatch, recorded
from tidegate.engine import CATALOG, KeyedSide, Program, Stamped, TaskSide
from tidegate.ordering import DROPPED, END_OF_TIME, NO_TIME, Carry, Policy, scan
from tidegate.sql import compile_query

QUERIES = {
    "sliding window": "SELECT System.Timestamp() AS t, device_id, COUNT(*) AS n, AVG(speed) AS average INTO results "
    "FROM events TIMESTAMP BY entry_time GROUP BY device_id, SlidingWindow(second, 10)",
    "session": "SELECT System.Timestamp() AS t, device_id, COUNT(*) AS n, AVG(speed) AS average INTO results "
    "FROM events TIMESTAMP BY entry_time "
    "GROUP BY device_id, SessionWindow(millisecond, 100, 10000) OVER (PARTITION BY device_id)",
    "LAG": "SELECT device_id, speed, LAG(speed) OVER (PARTITION BY device_id LIMIT DURATION(minute, 1)) AS before "
    "INTO results FROM events TIMESTAMP BY entry_time",
    "AVG OVER": "SELECT device_id, AVG(speed) OVER (PARTITION BY device_id LIMIT DURATION(second, 10)) AS average "
    "INTO results FROM events TIMESTAMP BY entry_time",
    "self join": "SELECT l.device_id, l.speed, r.speed AS later INTO results FROM events l TIMESTAMP BY entry_time "
    "JOIN events r TIMESTAMP BY entry_time "
    "ON l.device_id = r.device_id AND DATEDIFF(millisecond, l, r) BETWEEN 1 AND 200",
}


def run(program: Program, batches: list[Events], step: int, watch: Stopwatch) -> int:
    """All events through a program; how many rows come out."""
    policy = Policy.seconds(early=300, late=5, out_of_order=1, action="adjust")
    engine = TaskSide(program)
    carry, keyed, released, rows_out, taken = Carry(), KeyedSide(program), NO_TIME, 0, 0
    watch.start()
    for events in batches:
        batch = engine.decode("events", "0", events)
        assert batch.times is not None
        stamps, carry = scan(batch.times[0], events.arrivals, carry, policy, batch.times[1])
        watch.lap("decode and stamp")
        selected = np.flatnonzero(stamps.fate != DROPPED)
        rows = Stamped(selected, stamps.system_timestamp[selected])
        partial = engine.run(batch, rows)
        watch.lap("task")
        partial = pickle.loads(pickle.dumps(partial, 5))
        watch.lap("send")
        keyed.absorb([partial])
        taken += len(events.bodies)
        if taken >= step or events is batches[-1]:
            watermark = END_OF_TIME if events is batches[-1] else int(stamps.watermark[-1])
            rows_out += sum(map(len, keyed.emit(released, program.complete_before(watermark))))
            released, taken = program.complete_before(watermark), 0
        watch.lap("release")
    return rows_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--step", type=int, default=250_000)
    parser.add_argument("--devices", type=int, default=1_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    count = arguments.events
    batches = recorded(count, arguments.devices, arguments.batch)
    table = Table(title=f"{count:,} events, {arguments.devices:,} devices, steps of {arguments.step:,}")
    for title in ("query", "rows", "events a second", "decode and stamp", "task", "send", "release"):
        table.add_column(title, justify="left" if title == "query" else "right")
    for name, sql in QUERIES.items():
        program = Program.prepare(compile_query(sql, catalog=CATALOG))
        watch = Stopwatch()
        rows = run(program, batches, arguments.step, watch)
        runs = []
        for _ in range(arguments.repeat):
            watch.spent = {}
            run(program, batches, arguments.step, watch)
            runs.append(watch.spent)
        total = median(sum(spent.values()) for spent in runs)
        parts = [median(spent[part] for spent in runs) for part in runs[0]]
        table.add_row(name, f"{rows:,}", f"{count / total:,.0f}", *(f"{part / count * 1e9:,.0f} ns" for part in parts))
    Console().print(table)


if __name__ == "__main__":
    main()
