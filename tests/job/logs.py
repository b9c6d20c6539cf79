"""What the tests of a job share: random logs, a hub that reveals one bit by bit, and tasks that travel as on Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.job.random_queries import KEYS
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog, RecordedRange
from tidegate.connectors.model.events import InputLog, PartitionEnd
from tidegate.engine import CATALOG, Program
from tidegate.job import Job
from tidegate.job.run.run import Placements
from tidegate.job.runtime.placement import DriverPlacement, Placement, StateLost
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.job.runtime.task import RangeResult, Task
from tidegate.ordering import END_OF_TIME, TICKS_PER_SECOND, Policy, format_time, parse_time
from tidegate.sql import compile_query

EPOCH = parse_time("2026-01-01T00:00:00Z")


def prepared(sql: str) -> Program:
    """A query, compiled and prepared."""
    return Program.prepare(compile_query(sql, catalog=CATALOG))


class TravellingTasks(DriverPlacement):
    """Runs tasks here and now, in reverse, as nothing may depend on their order; they travel as they do in Spark."""

    def results(self, tasks: Sequence[Task]) -> list[RangeResult]:
        """The results of tasks that were pickled; they are pickled too."""
        travelled: list[Task] = pickle.loads(pickle.dumps([*reversed(tasks)]))
        results: list[RangeResult] = pickle.loads(pickle.dumps(super().results(travelled)))
        return results


def travelling(job: Job) -> Placements:
    """Where a job's run has such tasks."""
    return Placements(lambda program: TravellingTasks(program, job.policy))


class RevealedLog:
    """A recorded log as a live hub would show it: what has arrived by `clock` (ticks), and the promise with it."""

    def __init__(self, log: RecordedLog) -> None:
        self._log = log
        self.clock = 0
        self.complete = False

    def ends(self) -> dict[str, PartitionEnd]:
        """Return the state of each partition at the current clock."""
        every = self._log.ends()
        if self.complete:
            return every
        return {
            partition: replace(
                end, end=self._log.first_at(partition, self.clock), arrival_lower_bound=self.clock, complete=False
            )
            for partition, end in every.items()
        }

    def first_at(self, partition: str, arrival: int) -> int:
        """As the log has it, but nothing beyond the clock."""
        return min(self._log.first_at(partition, arrival), self.ends()[partition].end)

    def range(self, partition: str, start: int, end: int) -> RecordedRange:
        """As the log has it."""
        return self._log.range(partition, start, end)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class Cuts:
    """One way to run a job: when it looks, how much it takes, and where it is restarted."""

    clocks: list[int]
    max_events_per_step: int
    batch_events: int
    parallelism: int
    restart_after: frozenset[int]


def outputs_of_one_step(program: Program, policy: Policy, logs: dict[str, RecordedLog]) -> dict[str, bytes]:
    """The whole log in one step: what every other way must come to."""
    stepper = Stepper(program, policy, _as_inputs(logs), TravellingTasks(program, policy))
    step = stepper.step()
    assert step.complete
    return {rows.output: rows.to_json_lines() for rows in step.rows}


def outputs_in_cuts(
    program: Program,
    policy: Policy,
    logs: dict[str, RecordedLog],
    cuts: Cuts,
    placement: Callable[[], Placement] | None = None,
) -> dict[str, bytes]:
    """The log as it grows, in small steps, by one run after another."""
    revealed = {name: RevealedLog(log) for name, log in logs.items()}
    outputs: dict[str, bytes] = {}

    def start(before: Stepper | None) -> Stepper:
        return Stepper(
            program,
            policy,
            _as_inputs(revealed),
            TravellingTasks(program, policy) if placement is None else placement(),
            None if before is None else before.progress,
            StepSettings(cuts.max_events_per_step, cuts.batch_events, cuts.parallelism),
        )

    stepper = start(None)
    number = 0
    for clock in [*sorted(cuts.clocks), None]:
        for log in revealed.values():
            log.clock, log.complete = clock or END_OF_TIME - 1, clock is None
        caught_up = False
        while not caught_up:
            try:
                step = stepper.step()
            except StateLost:
                # A cluster may move a shard; a run then goes on from its progress.
                stepper = start(stepper)
                continue
            caught_up = step.caught_up
            for rows in step.rows:
                outputs[rows.output] = outputs.get(rows.output, b"") + rows.to_json_lines()
            if number in cuts.restart_after:
                stepper = start(stepper)
                caught_up = False
            number += 1
    return outputs


def _as_inputs(logs: dict[str, Any]) -> dict[str, InputLog]:
    return dict(logs)


# -- random logs -------------------------------------------------------------------------------------------------------

_HALF = TICKS_PER_SECOND // 2
# Most events are near their arrival; some are just at, one tick beside, or far beyond a tolerance.
_LATENESS = st.one_of(
    st.integers(-2, 12).map(lambda halves: halves * _HALF),
    st.sampled_from([10 * TICKS_PER_SECOND + tick for tick in (-1, 0, 1)]),
    st.sampled_from([-300 * TICKS_PER_SECOND + tick for tick in (-1, 0, 1)]),
    st.sampled_from([3600 * TICKS_PER_SECOND, -3600 * TICKS_PER_SECOND]),
)
_GAPS = st.one_of(
    st.just(0), st.integers(0, 4).map(lambda halves: halves * _HALF), st.sampled_from([1, 20 * TICKS_PER_SECOND])
)
_VALUES = st.one_of(
    st.integers(-5, 5), st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1e-7, 2.5]), st.none(), st.booleans(), st.just("7")
)


@st.composite
def _events(draw: st.DrawFn, partitions: int) -> list[RecordedEvent]:
    keys = draw(st.sampled_from(KEYS))
    events = []
    clock = EPOCH
    for _ in range(draw(st.integers(0, 25))):
        clock += draw(_GAPS)
        partition = str(draw(st.integers(0, partitions - 1)))
        kind = draw(st.sampled_from(["event"] * 12 + ["malformed", "no time", "bad time", "no key", "array"]))
        body: Any = {
            "t": format_time(clock - draw(_LATENESS)),
            "k": draw(st.sampled_from(keys)),
            "v": draw(_VALUES),
        }
        if kind == "no time":
            del body["t"]
        elif kind == "bad time":
            body["t"] = "not a time"
        elif kind == "no key":
            body["k"] = None
        elif kind == "array":
            body = [body, {**body, "v": 1}]
        encoded = b"{broken" if kind == "malformed" else json.dumps(body).encode()
        events.append(RecordedEvent(partition, clock, encoded))
    return events


@st.composite
def logs(draw: st.DrawFn) -> RecordedLog:
    """A log of one to three partitions: early, late, out of order, malformed and idle stretches, ties to the tick."""
    return RecordedLog(draw(_events(draw(st.integers(1, 3)))))


policies = st.builds(
    lambda early, late, out_of_order, action: Policy.seconds(
        early=early, late=late, out_of_order=out_of_order, action=action
    ),
    early=st.sampled_from([300, 300, 2, 0, None]),
    late=st.sampled_from([10, 5, 0, 3600, -1]),
    out_of_order=st.sampled_from([0, 1, 2, 30]),
    action=st.sampled_from(["adjust", "drop"]),
)

cuts = st.builds(
    Cuts,
    clocks=st.lists(st.integers(0, 80).map(lambda halves: EPOCH + halves * _HALF), max_size=6),
    max_events_per_step=st.integers(1, 12),
    batch_events=st.integers(1, 6),
    parallelism=st.integers(1, 3),
    restart_after=st.frozensets(st.integers(0, 12), max_size=4),
)
