"""The step: output = f(log, query, policy, output start time), computed in pieces.

A step reads new events from the log, stamps them, evaluates them, merges the watermarks of all timelines and emits
every result below the slowest watermark. How much one step reads changes when a row is emitted, never the row:

- stamping passes its carry from step to step, timeline by timeline, so it is one scan however it is cut;
- partial results merge in any order and any grouping to the same value;
- a result is emitted when the watermark has passed its time, and a watermark passes a time only when nothing at or
  before that time can come from any timeline;
- with TIMESTAMP BY … OVER each substream's results are emitted at its own watermark, in the order of their emission
  arrivals (`tidegate.ordering.emission`), which follow from the log as well.

A `Stepper` holds nothing that a new one, started at the same output time, would not find again in the log: events
that arrived before start − look-back − early window cannot matter to it (`ordering.read_from` has the proof).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.engine import EmissionRange, KeyedSide, Program, ResultRows
from tidegate.job.model.events import InputLog, Int64Array, PartitionEnd
from tidegate.job.model.metrics import (
    BACKLOGGED_INPUT_EVENTS,
    RUNTIME_ERRORS,
    WATERMARK_DELAY,
    DataError,
    add,
    function_counts,
)
from tidegate.job.runtime.task import RangeResult, Task, TraceRows
from tidegate.job.runtime.timelines import StepSettings, Timeline, Timelines
from tidegate.ordering import (
    END_OF_TIME,
    NO_TIME,
    TICKS_PER_SECOND,
    Carry,
    Policy,
    SubstreamCarry,
    merge,
)

__all__ = [
    "Emitted",
    "Progress",
    "Runner",
    "Step",
    "StepSettings",
    "Stepper",
    "Timeline",
    "TimelineState",
    "gauges",
]

Runner = Callable[[Sequence[Task]], Sequence[Sequence[RangeResult]]]
"""Runs tasks anywhere, and returns their results in any order."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """Which results of a job by substream have been emitted although a later start would compute them again.

    Attributes:
        before, until: those with an emission arrival before the one and a time before the other; in ticks.
    """

    before: int = NO_TIME
    until: int = END_OF_TIME


@dataclass(frozen=True, slots=True)
class Progress:
    """How far results have been emitted, and so where a run resumes. The default is the log's beginning.

    Attributes:
        released: ticks; every earlier result has been emitted. It is the output start time of a run that resumes here.
        ahead: by output, up to which time (ticks) results have been emitted, where that is beyond ``released``.
        emitted: which results from ``released`` on have been emitted, by substream.
    """

    released: int = NO_TIME
    ahead: Mapping[str, int] = field(default_factory=dict)
    emitted: Emitted = Emitted()


@dataclass(frozen=True, slots=True)
class TimelineState:
    """A timeline after a step.

    Attributes:
        carry: the carry of its scan, the log's arrival lower bound included.
        watermark: ticks; END_OF_TIME if no event can follow.
        end: the end of the partition's log at the beginning of the step.
        backlog: how many events of the log have not been read.
        counters: what the step counted on it, by metric name.
    """

    carry: Carry | SubstreamCarry
    watermark: int
    end: PartitionEnd
    backlog: int
    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did.

    Attributes:
        rows: the results it emitted, by output, each in time order.
        watermark: ticks; the slowest timeline's.
        events: how many events were read.
        backlog: how many events of the log have not been read.
        counters: what the step counted, by metric name.
        data_errors: samples of events that could not be used.
        data_error_counts: how many there were, by kind, input and partition.
        trace: the fate of each event, if the run is traced.
        timelines: each timeline after the step.
        caught_up: everything in the log at the beginning of the step has been read.
        complete: the log has ended and every result has been emitted.
    """

    rows: list[ResultRows]
    watermark: int
    events: int
    backlog: int
    counters: dict[str, int]
    data_errors: list[DataError] = field(default_factory=list)
    data_error_counts: dict[tuple[str, str, str], int] = field(default_factory=dict)
    trace: list[TraceRows] = field(default_factory=list)
    timelines: dict[Timeline, TimelineState] = field(default_factory=dict)
    caught_up: bool = False
    complete: bool = False


def gauges(step: Step, now: int) -> dict[str, float | None]:
    """Return the gauges after a step, by metric name; ``now`` in ticks. A delay of None means no watermark."""
    known = step.watermark not in (NO_TIME, END_OF_TIME)
    return {
        BACKLOGGED_INPUT_EVENTS: step.backlog,
        WATERMARK_DELAY: (now - step.watermark) / TICKS_PER_SECOND if known else None,
    }


class Stepper:
    """A run of one query over one set of logs, from one output start time."""

    def __init__(
        self,
        program: Program,
        policy: Policy,
        logs: Mapping[str, InputLog],
        runner: Runner,
        resume: Progress | None = None,
        settings: StepSettings | None = None,
    ) -> None:
        """Prepare a run; nothing is read yet.

        Args:
            program: the compiled query.
            policy: the event-ordering policy.
            logs: by the name the query uses.
            runner: runs the tasks of a step.
            resume: what earlier runs have emitted; ``Progress(released=start)`` begins at an output start time.
            settings: how the run is cut into steps and tasks.
        """
        resume = resume or Progress()
        self._program = program
        self._policy = policy
        self._runner = runner
        self._timelines = Timelines(program, policy, logs, resume.released, settings or StepSettings())
        self._keyed = KeyedSide(program, policy.late_ticks)
        self._start = resume.released
        self._resumed = resume.emitted
        self._failed: list[Int64Array] = []
        self.emitted = resume.emitted
        self.released = resume.released
        self.ahead = dict(resume.ahead)

    def step(self, until: int = END_OF_TIME) -> Step:
        """Read new events, and emit the results that are ready and before ``until`` (ticks).

        Raises:
            InputError: a log cannot be read.
        """
        timelines = self._timelines
        ends = timelines.find()
        self._keyed.know_timelines(sorted({(name, "") for name, _ in ends} if self._policy.merged else ends))
        ranges = timelines.plan(ends)
        results = [result for task in self._runner(timelines.tasks(ranges)) for result in task]
        watermarks = timelines.record(ranges, ends, results)
        results.sort(key=lambda result: (result.input, result.partition))
        for result in results:
            self._keyed.absorb(result.partials)

        # Without a timeline, as in an empty recording, there is nothing to wait for.
        slowest = min(self._program.complete_before(merge([*watermarks.values()] or [END_OF_TIME])), until)
        if self._program.by_substream:
            rows = self._emit_by_substream(timelines.reached(ends), slowest, until)
        else:
            rows = self._emit(slowest, until)
        counters: dict[str, int] = {}
        for result in results:
            add(counters, result.counts)
        add(counters, {RUNTIME_ERRORS: self._settled_errors(), **function_counts(self._keyed.take_calls())})
        backlog = sum(end.end - timelines.positions[timeline] for timeline, end in ends.items())
        counters[BACKLOGGED_INPUT_EVENTS] = backlog
        return Step(
            rows=rows,
            watermark=slowest,
            events=sum(timelines.positions[timeline] - begin for timeline, (begin, _) in ranges.items()),
            backlog=backlog,
            counters=counters,
            data_errors=[error for result in results for error in result.data_errors],
            data_error_counts={
                (kind, result.input, result.partition): count
                for result in results
                for kind, count in result.data_error_counts.items()
            },
            trace=[trace for result in results for trace in result.traces],
            timelines=self._states(ends, watermarks, results),
            caught_up=backlog == 0,
            complete=backlog == 0 and all(end.complete for end in ends.values()),
        )

    @property
    def progress(self) -> Progress:
        """How far results have been emitted."""
        return Progress(self.released, dict(self.ahead), self.emitted)

    @property
    def positions(self) -> Mapping[Timeline, int]:
        """By timeline, the sequence number to read next."""
        return self._timelines.positions

    @property
    def looked_at(self) -> int:
        """Ticks: no row with a later time has been computed yet, by a task or here."""
        return max(self.released, self._timelines.latest_time)

    def preview(self) -> list[ResultRows]:
        """Return the results that would be emitted next if no further event came, without emitting them."""
        return self._keyed.preview(self.released, self.ahead)

    def use(self, program: Program, runner: Runner) -> None:
        """Continue with another program of the same query, whose reference data differ from a later time on."""
        self._program = program
        self._keyed.use(program)
        self._runner = runner

    def _emit(self, slowest: int, until: int) -> list[ResultRows]:
        """Emit complete results; outputs with a shorter delay than others get ahead of ``slowest``."""
        ahead = {
            name: reached
            for name, reached in self._program.outputs_ahead(slowest, until).items()
            if reached > max(self.released, self.ahead.get(name, NO_TIME))
        }
        if slowest <= self.released and not ahead:
            return []
        rows = self._keyed.emit(self.released, slowest, self.ahead, until)
        self.ahead |= ahead
        self.released = max(self.released, slowest)
        return rows

    def _emit_by_substream(self, reached: int, slowest: int, until: int) -> list[ResultRows]:
        """Emit the results of each substream that no later event can change."""
        until = max(until, self._resumed.until) if self._resumed.before != NO_TIME else until
        emission = EmissionRange(self._start, until, self._resumed.before, self._resumed.until)
        rows = self._keyed.emit_by_substream(reached, emission)
        self.released = max(self.released, slowest)
        # Once every result before `until` has been emitted there is nothing to tell apart.
        self.emitted = Emitted(max(reached, self.emitted.before), until) if self.released < until else Emitted()
        return rows

    def _settled_errors(self) -> int:
        """Return how many rows failed on the keyed side whose results are final, so that no restart repeats them.

        Where only its own events advance a substream, a restart begins at the output start time anyway.
        """
        self._failed += [error.times for error in self._keyed.take_errors()]
        if not self._failed:
            return 0
        times = np.concatenate(self._failed)
        waits = times >= self.released
        if self._program.by_substream and self._policy.late_ticks is None:
            waits[:] = False
        self._failed = [times[waits]] if waits.any() else []
        return int(np.count_nonzero(~waits))

    def _states(
        self, ends: Mapping[Timeline, PartitionEnd], watermarks: Mapping[Timeline, int], results: Sequence[RangeResult]
    ) -> dict[Timeline, TimelineState]:
        counted = {(result.input, result.partition): result.counts for result in results}
        return {
            timeline: TimelineState(
                self._timelines.carries[timeline],
                watermarks[timeline],
                end,
                end.end - self._timelines.positions[timeline],
                counted.get(timeline, {}),
            )
            for timeline, end in ends.items()
        }
