"""Events a second that one core stamps: a partition's timeline, and substreams from one to a million.

    python -m benchmarks.ordering_scan [--events N] [--repeat N]

Figures are medians of the repeats, after a run that is not counted, and of processor time: it is one thread, and what
else the machine does should not count.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from tidegate import ordering
from tidegate.ordering import Carry, Keys, Policy, SubstreamCarry
from tidegate.ordering.tuning import tune

TARGET_PARTITION, TARGET_SUBSTREAMS = 20e6, 5e6


def recorded(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Event times and arrivals of a partition of 10,000 events a second: a mean delay of 1 s, some of much more."""
    rng = np.random.default_rng(1)
    arrival = np.cumsum(rng.integers(0, 2_000, count)) + ordering.parse_time("2024-03-01T00:00:00Z")
    delay = rng.exponential(ordering.TICKS_PER_SECOND, count) * np.where(rng.random(count) < 0.01, 20, 1)
    return arrival - delay.astype(np.int64) + rng.integers(-1_000_000, 1_000_000, count), arrival


def seconds_of(work: Callable[[], object], repeat: int) -> float:
    work()
    times = []
    for _ in range(repeat):
        start = process_time()
        work()
        times.append(process_time() - start)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    count, repeat = arguments.events, arguments.repeat
    time, arrival = recorded(count)
    rows: list[tuple[str, float, float | None]] = []

    one_pass = 0.0
    for late, name in ((5, "5 s"), (1_728_000, "20 d")):
        for action in ("adjust", "drop"):
            policy = Policy.seconds(late=late, out_of_order=2, action=action)
            seconds = seconds_of(lambda policy=policy: ordering.scan(time, arrival, Carry(), policy), repeat)
            one_pass = one_pass or seconds
            rows.append((f"partition, late {name}, {action}", count / seconds, TARGET_PARTITION))

    for number in (1, 1_000, 1_000_000):
        carry = SubstreamCarry()
        codes = carry.keys.codes(Keys.of_words(np.arange(number, dtype=np.uint64)[:, None]))[
            np.random.default_rng(2).integers(0, number, count)
        ]
        for late, name in ((5, "5 s"), (1_728_000, "20 d")):
            policy = Policy.seconds(late=late, out_of_order=2)
            seconds = seconds_of(
                lambda codes=codes, carry=carry, policy=policy: ordering.scan_substreams(
                    time, arrival, codes, carry, policy
                ),
                repeat,
            )
            rows.append((f"{number:,} substreams, late {name}", count / seconds, TARGET_SUBSTREAMS))

    # The dictionary of keys, apart from the scan: a million device names looked up once each.
    names = Keys.of([b"device-%d" % number for number in range(1_000_000)])
    known = SubstreamCarry()
    known.keys.codes(names)
    rows.append(
        (
            "keys to codes, known, per distinct key",
            len(names) / seconds_of(lambda: known.keys.codes(names), repeat),
            None,
        )
    )

    candidates = [(late, order) for late in range(1, 11) for order in range(10)]
    tolerances = [(late * ordering.TICKS_PER_SECOND, order * ordering.TICKS_PER_SECOND) for late, order in candidates]
    seconds = seconds_of(lambda: tune(time, arrival, tolerances), repeat)
    rows.append(
        (f"tune, {len(candidates)} candidates ({seconds / one_pass:.1f} times one scan)", count / seconds, None)
    )

    table = Table(title=f"one core, {count:,} events, medians of {repeat}", title_justify="left")
    table.add_column("shape")
    for heading in ("million events/s", "target"):
        table.add_column(heading, justify="right")
    for shape, rate, target in rows:
        table.add_row(shape, f"{rate / 1e6:.1f}", "" if target is None else f"{target / 1e6:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
