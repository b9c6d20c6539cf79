"""A hopping window of 7 days against one of 10 minutes, both by 1 minute, and tumbling windows of 1 minute and 7 days.

    python -m benchmarks.engine_hopping [--events N] [--repeat N]

Nine days of events in order, of 20 devices; everything is decoded, stamped, aggregated and released by one core, whose
CPU time is what counts, so that other work on the machine does not. Both hopping queries give a row a minute and device
from the same events, one from 10 panes and the other from 10,080. "times" is to the first of its kind in the same run;
the sides take turns, figures are medians, after a run that is not counted.
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
from tidegate.ordering import DROPPED, NO_TIME, TICKS_PER_SECOND, Carry, Policy, format_ticks, scan
from tidegate.sql import compile_query

DAYS = 9
DEVICES = 20
BATCH = 20_000
SELECT = (
    "SELECT System.Timestamp() AS window_end, device_id, COUNT(*) AS n, AVG(speed) AS average, MAX(speed) AS top "
    "INTO results FROM events TIMESTAMP BY entry_time GROUP BY device_id, "
)
KINDS = {
    "hopping": {"10 minutes": "HoppingWindow(minute, 10, 1)", "7 days": "HoppingWindow(minute, 10080, 1)"},
    "tumbling": {"1 minute": "TumblingWindow(minute, 1)", "7 days": "TumblingWindow(day, 7)"},
}


def over_days(batches: list[Events]) -> list[Events]:
    """The same events, spread over the days."""
    count = sum(len(events.bodies) for events in batches)
    apart = DAYS * 86_400 * TICKS_PER_SECOND // count
    first = int(batches[0].arrivals[0])
    spread = []
    for events in batches:
        arrivals = first + events.sequence_numbers * apart
        times = format_ticks(arrivals - TICKS_PER_SECOND)
        bodies = [
            body[: body.index(b'"entry_time": "') + 15] + time.encode() + body[body.index(b'", "speed"') :]
            for body, time in zip(events.bodies, times, strict=True)
        ]
        spread.append(Events(events.sequence_numbers, arrivals, bodies))
    return spread


def run(program: Program, batches: list[Events], watch: Stopwatch) -> int:
    """All events through a program; how many rows come out."""
    policy = Policy.seconds(early=300, late=5, out_of_order=1, action="adjust")
    engine = TaskSide(program)
    carry, keyed, released, rows_out = Carry(), KeyedSide(program), NO_TIME, 0
    watch.start()
    for events in batches:
        batch = engine.decode("events", "0", events)
        assert batch.times is not None
        stamps, carry = scan(batch.times[0], events.arrivals, carry, policy, batch.times[1])
        selected = np.flatnonzero(stamps.fate != DROPPED)
        rows = Stamped(selected, stamps.system_timestamp[selected])
        keyed.absorb([pickle.loads(pickle.dumps(engine.run(batch, rows), 5))])
        complete = program.complete_before(int(stamps.watermark[-1]))
        rows_out += sum(map(len, keyed.emit(released, complete)))
        released = complete
    watch.lap("all")
    return rows_out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    batches = over_days(recorded(arguments.events, DEVICES, BATCH))
    table = Table(
        title=f"{arguments.events:,} events of {DEVICES} devices in {DAYS} days; medians of {arguments.repeat}"
    )
    for title in ("window", "rows", "events a second", "times"):
        table.add_column(title, justify="left" if title == "window" else "right")
    watch = Stopwatch()
    for kind, windows in KINDS.items():
        programs = {
            name: Program.prepare(compile_query(SELECT + window, catalog=CATALOG)) for name, window in windows.items()
        }
        rows: dict[str, int] = {}
        spent: dict[str, list[float]] = {name: [] for name in programs}
        for turn in range(arguments.repeat + 1):
            for name, program in programs.items():
                watch.spent = {}
                rows[name] = run(program, batches, watch)
                if turn:
                    spent[name].append(watch.spent["all"])
        first = next(iter(spent.values()))
        for name, seconds in spent.items():
            times = median(a / b for a, b in zip(seconds, first, strict=True))
            rate = arguments.events / median(seconds)
            table.add_row(f"{kind}, {name}", f"{rows[name]:,}", f"{rate:,.0f}", f"{times:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
