"""Proof by repetition: a stretch of a job is recomputed with other cuts and start times, and must give the same bytes.

A result is f(log, query, policy, output start time). So the log is frozen (with its ends at the start of the proof and
the hub's promise about what follows), and the stretch is computed in a single step. It is then computed repeatedly:
revealed bit by bit as by a live hub, in steps, batches and tasks of other sizes, and from later start times. Each of
those must give exactly the rest of the first output.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.connectors.model.events import InputLog, LogRange, PartitionEnd
from tidegate.engine import Program
from tidegate.job.analysis.replay_source import ReplaySource
from tidegate.job.runtime.data_error_tally import DataErrorTally
from tidegate.job.runtime.placement import DriverPlacement, Placement
from tidegate.job.runtime.step import Progress, Stepper, StepSettings, Timeline
from tidegate.ordering import END_OF_TIME, NO_TIME, Policy, format_time, short_time

Row = tuple[int, bytes]
"""The time of a result in ticks, and its line."""

_MOST_STEPS = 40
_MOST_CLOCKS = 5
_LONGEST_STEP_EVENTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way of computing the stretch.

    Attributes:
        start: output start time in ticks, NO_TIME for the log's beginning.
        clocks: ticks; at each, the log is read up to what had arrived by then, before it is read to its end.
    """

    start: int
    clocks: tuple[int, ...]
    max_events_per_step: int
    batch_events: int
    parallelism: int

    def describe(self) -> str:
        """Return the attempt in words."""
        start = "the beginning" if self.start == NO_TIME else short_time(self.start)
        return (
            f"from {start}, at most {self.max_events_per_step:,} events a step and {self.batch_events:,} a batch, "
            f"{self.parallelism} task{'s' if self.parallelism > 1 else ''}, read {len(self.clocks) + 1} time"
            f"{'s' if self.clocks else ''}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the object that `-o json` prints."""
        return {
            "start": None if self.start == NO_TIME else format_time(self.start),
            "clocks": [format_time(clock) for clock in self.clocks],
            "maxEventsPerStep": self.max_events_per_step,
            "batchEvents": self.batch_events,
            "parallelism": self.parallelism,
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """The first line that differs; None where an output ended before it. ``line`` counts from 1 in the output that the
    attempt should have given."""

    attempt: Attempt
    output: str
    line: int
    expected: str | None
    got: str | None


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of the repetitions.

    Attributes:
        events: the number of events in the stretch.
        rows: the number of its results.
        watermark: results before it have been emitted, ticks.
        attempts: those that were made; if there is a difference, it is in the last.
        data_errors: what the first of them could not use: the results are the same without it.
    """

    events: int
    rows: int
    output_bytes: int
    watermark: int
    attempts: tuple[Attempt, ...]
    difference: Difference | None
    data_errors: DataErrorTally = field(default_factory=DataErrorTally)


@dataclass(slots=True)
class _Computed:
    outputs: dict[str, list[Row]] = field(default_factory=dict)
    events: int = 0
    watermark: int = NO_TIME
    data_errors: DataErrorTally = field(default_factory=DataErrorTally)


def verify(
    source: ReplaySource,
    place: Callable[[Program, Policy], Placement] = DriverPlacement,
    *,
    start: int = NO_TIME,
    until: int = END_OF_TIME,
    starts: int = 3,
    cuts: int = 3,
    seed: int = 0,
    on_attempt: Callable[[int, Attempt, bool], None] = lambda number, attempt, same: None,
) -> Verification:
    """Compute a stretch in a single step and then in other ways, until one differs.

    Args:
        place: returns where a query runs under a policy; by default, in this process.
        start, until: the stretch holds the results with start ≤ time < until, in ticks.
        starts: the number of later start times to try.
        cuts: the number of other cuts from the beginning of the stretch to try.
        seed: of the random attempts; the same seed over the same log makes the same attempts.
        on_attempt: called after each attempt, with its number from 1 and whether its output was identical.

    Raises:
        InputError: a log cannot be read.
    """
    ends = source.ends()
    whole = Attempt(start, (), _LONGEST_STEP_EVENTS, 65_536, 2)
    first = _compute(source, place, ends, whole, until)
    made: list[Attempt] = []
    difference = None
    for number, attempt in enumerate(_attempts(first, start, starts, cuts, random.Random(seed)), start=1):
        again = _compute(source, place, ends, attempt, until)
        made.append(attempt)
        difference = _first_difference(attempt, first, again)
        on_attempt(number, attempt, difference is None)
        if difference is not None:
            break
    rows = [line for output in first.outputs.values() for _, line in output]
    size = sum(map(len, rows))
    return Verification(first.events, len(rows), size, first.watermark, tuple(made), difference, first.data_errors)


def _attempts(first: _Computed, start: int, starts: int, cuts: int, dice: random.Random) -> Iterator[Attempt]:
    times = sorted({time for rows in first.outputs.values() for time, _ in rows})
    for number in range(cuts + starts):
        begin = start
        if number >= cuts and times:
            # At a result's time, a tick beside it, or anywhere between two: mistakes show at the bounds.
            begin = max(start, dice.choice(times) + dice.choice((0, 0, 1, -1, dice.randrange(-(10**7), 10**7))))
        clocks = [dice.randint(times[0], times[-1]) for _ in range(dice.randint(0, _MOST_CLOCKS))] if times else []
        yield Attempt(
            start=begin,
            clocks=tuple(sorted(clocks)),
            max_events_per_step=max(1, first.events // dice.randint(1, _MOST_STEPS)),
            batch_events=dice.choice((1_000, 8_192, 65_536, max(1, first.events // dice.randint(1, 200)))),
            parallelism=dice.randint(1, 4),
        )


def _compute(
    source: ReplaySource,
    place: Callable[[Program, Policy], Placement],
    ends: Mapping[Timeline, PartitionEnd],
    attempt: Attempt,
    until: int,
) -> _Computed:
    logs = {name: _HeldLog(name, log, ends) for name, log in source.logs.items()}
    stepper = Stepper(
        source.program,
        source.policy,
        logs,
        place(source.program, source.policy),
        Progress(attempt.start),
        StepSettings(attempt.max_events_per_step, attempt.batch_events, attempt.parallelism),
    )
    computed = _Computed({name: [] for name in source.program.output_names})
    for clock in (*attempt.clocks, None):
        for log in logs.values():
            log.clock = clock
        caught_up = False
        while not caught_up:
            step = stepper.step(until)
            caught_up = step.caught_up
            computed.events += step.events
            computed.data_errors.take(step)
            computed.watermark = step.watermark
            for rows in step.rows:
                lines = rows.to_json_lines().splitlines(keepends=True)
                computed.outputs[rows.output] += zip(rows.timestamps.tolist(), lines, strict=True)
    return computed


def _first_difference(attempt: Attempt, first: _Computed, again: _Computed) -> Difference | None:
    for output, rows in first.outputs.items():
        expected = [row for row in rows if row[0] >= attempt.start]
        got = again.outputs[output]
        if expected == got:
            continue
        shared = min(len(expected), len(got))
        place = next((i for i in range(shared) if expected[i] != got[i]), shared)
        return Difference(attempt, output, place + 1, _line(expected, place), _line(got, place))
    return None


def _line(rows: Sequence[Row], place: int) -> str | None:
    return rows[place][1].decode().rstrip("\n") if place < len(rows) else None


class _HeldLog:
    """A log frozen when the proof began or, with ``clock`` (ticks), as it was at that time.

    No event then arrives before the clock, so the log may promise that.
    """

    def __init__(self, name: str, log: InputLog, ends: Mapping[Timeline, PartitionEnd]) -> None:
        self._log = log
        self._ends = {partition: end for (of, partition), end in ends.items() if of == name}
        self.clock: int | None = None

    def ends(self) -> dict[str, PartitionEnd]:
        clock = self.clock
        if clock is None:
            return dict(self._ends)
        shown = {}
        for partition, end in self._ends.items():
            stop = min(max(self._log.first_at(partition, clock), end.begin), end.end)
            shown[partition] = (
                replace(end, end=stop, arrival_lower_bound=clock, complete=False) if stop < end.end else end
            )
        return shown

    def first_at(self, partition: str, arrival: int) -> int:
        return min(self._log.first_at(partition, arrival), self.ends()[partition].end)

    def range(self, partition: str, start: int, end: int) -> LogRange:
        return self._log.range(partition, start, end)

    def close(self) -> None:
        """Do nothing: the owner closes the log."""
