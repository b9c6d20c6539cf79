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

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate.connectors.model.encoded_rows import EncodedRows
from tidegate.connectors.model.events import InputLog, Int64Array, PartitionEnd
from tidegate.connectors.model.metrics import (
    BACKLOGGED_INPUT_EVENTS,
    RUNTIME_ERROR,
    RUNTIME_ERRORS,
    WATERMARK_DELAY,
    DataError,
    add,
    function_counts,
)
from tidegate.engine import EmissionRange, OperatorRows, Program, ResultRows, RuntimeErrors
from tidegate.job.runtime.emission import Completeness, Reached, StepOrder
from tidegate.job.runtime.placement import Placement
from tidegate.job.runtime.task import RangeResult, TraceRows
from tidegate.job.runtime.timelines import SealedTimelines, StepSettings, Timeline, Timelines
from tidegate.ordering import (
    END_OF_TIME,
    NO_TIME,
    TICKS_PER_SECOND,
    Carry,
    Policy,
    SubstreamCarry,
)

__all__ = [
    "Emitted",
    "Progress",
    "SealedStepper",
    "Step",
    "StepSettings",
    "Stepper",
    "Timeline",
    "TimelineState",
    "gauges",
]


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

    def includes(self, earlier: Progress) -> bool:
        """Return whether everything has been emitted that had been at an earlier progress."""
        emitted, before = self.emitted, earlier.emitted
        return (
            self.released >= earlier.released
            and all(at <= max(self.released, self.ahead.get(name, NO_TIME)) for name, at in earlier.ahead.items())
            and (
                before.before == NO_TIME
                or before.until <= self.released
                or (before.before <= emitted.before and before.until <= max(self.released, emitted.until))
            )
        )


@dataclass(frozen=True, slots=True)
class EmittedTo:
    """How far the keyed side of a run has emitted, and so what it has forgotten, or sent on to higher levels.

    Attributes:
        time: ticks; results before this time.
        arrival: ticks; where each substream has its own watermark, results with an emission arrival before this one.
    """

    time: int = NO_TIME
    arrival: int = NO_TIME

    def exceeds(self, other: EmittedTo) -> bool:
        """Return whether results have been emitted that had not been at the other."""
        return self.time > other.time or self.arrival > other.arrival


@dataclass(frozen=True, slots=True)
class SealedStepper:
    """The driver's side of a run after a step.

    Attributes:
        failed: the times of rows that failed on the keyed side, and whose results are not final.
        emitted_to: see `Stepper`.
    """

    timelines: SealedTimelines
    progress: Progress
    failed: Int64Array
    emitted_to: EmittedTo


@dataclass(frozen=True, slots=True)
class TimelineState:
    """A timeline after a step.

    Attributes:
        carry: the carry of its scan, the log's arrival lower bound included.
        watermark: ticks; END_OF_TIME if no event can follow.
        end: the end of the partition's log at the beginning of the step.
        backlog: how many events of the log have not been read.
        counters: what the step counted on it, by metric name.
        events: how many events the step read.
    """

    carry: Carry | SubstreamCarry
    watermark: int
    end: PartitionEnd
    backlog: int
    counters: Mapping[str, int]
    events: int = 0

    @property
    def position(self) -> int:
        """The sequence number to read next."""
        return self.end.end - self.backlog


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did.

    Attributes:
        rows: the results it emitted, by output, each in time order.
        state_bytes: how much the keyed side holds, if that is known.
        encoded: results that were encoded where they were computed, by output, each in time order.
        watermark: ticks; the slowest timeline's.
        events: how many events were read.
        backlog: how many events of the log have not been read.
        counters: what the step counted, by metric name.
        data_errors: samples of events that could not be used.
        data_error_counts: how many there were, by kind, input and partition.
        reasons: how many there were, by kind, input and reason.
        trace: the fate of each event, if the run is traced.
        timelines: each timeline after the step.
        caught_up: everything in the log at the beginning of the step has been read.
        complete: the log has ended and every result has been emitted.
        operator_rows: how many rows the operators took and released.
        operator_bytes: how much each operator holds, by number, as it was last measured.
    """

    rows: list[ResultRows]
    watermark: int
    events: int
    backlog: int
    counters: dict[str, int]
    data_errors: list[DataError] = field(default_factory=list)
    data_error_counts: dict[tuple[str, str, str], int] = field(default_factory=dict)
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    trace: list[TraceRows] = field(default_factory=list)
    timelines: dict[Timeline, TimelineState] = field(default_factory=dict)
    caught_up: bool = False
    complete: bool = False
    encoded: list[EncodedRows] = field(default_factory=list)
    state_bytes: int | None = None
    operator_rows: OperatorRows = field(default_factory=OperatorRows)
    operator_bytes: Mapping[int, int] = field(default_factory=dict)

    @property
    def result_count(self) -> int:
        """How many results it emitted."""
        return sum(map(len, self.rows)) + sum(map(len, self.encoded))


def gauges(step: Step, now: int) -> dict[str, float | None]:
    """Return the gauges after a step, by metric name; ``now`` in ticks. A delay of None means no watermark."""
    known = step.watermark not in (NO_TIME, END_OF_TIME)
    return {
        BACKLOGGED_INPUT_EVENTS: step.backlog,
        WATERMARK_DELAY: (now - step.watermark) / TICKS_PER_SECOND if known else None,
    }


class Stepper:
    """A run of one query over one set of logs, from one output start time.

    Attributes:
        emitted_to: how far the keyed side has emitted. That is less than ``released`` in a run that has begun again and
            has not got as far as the one before it.
        may_have_emitted: a seal that has emitted more is not what this run may continue from.
        until_arrival: ticks; see `StepOrder`.
        until: ticks; the time up to which the last step was to emit.
        known: the timelines of the last step.
    """

    def __init__(
        self,
        program: Program,
        policy: Policy,
        logs: Mapping[str, InputLog],
        placement: Placement,
        resume: Progress | None = None,
        settings: StepSettings | None = None,
    ) -> None:
        """Prepare a run; nothing is read yet.

        Args:
            program: the compiled query.
            policy: the event-ordering policy.
            logs: by the name the query uses.
            placement: where tasks and the keyed side run; it has no state yet.
            resume: what earlier runs have emitted; ``Progress(released=start)`` begins at an output start time.
            settings: how the run is cut into steps and tasks.
        """
        resume = resume or Progress()
        self.program = program
        self.policy = policy
        self._timelines = Timelines(program, policy, logs, resume.released, settings or StepSettings())
        self._placement = placement
        self._start = resume.released
        self._resumed = resume.emitted
        self._failed: list[Int64Array] = []
        self._preview: list[ResultRows] | None = None
        self.emitted_to = EmittedTo()
        self.may_have_emitted = EmittedTo(END_OF_TIME, END_OF_TIME)
        self.until_arrival = self.until = END_OF_TIME
        self.known: frozenset[Timeline] = frozenset()
        self.emitted = resume.emitted
        self.released = resume.released
        self.ahead = dict(resume.ahead)

    def step(
        self,
        until: int = END_OF_TIME,
        most_events: int | None = None,
        wants_preview: Callable[[], bool] = lambda: False,
    ) -> Step:
        """Read new events, and emit the results that are ready and before ``until`` (ticks).

        Args:
            most_events: how many to read at most; None: what the settings say.
            wants_preview: asked, in a step that reads to the ends of the logs, whether `preview` will follow.

        Raises:
            InputError: a log cannot be read.
        """
        timelines = self._timelines
        ends = timelines.find()
        ranges = timelines.plan(ends, most_events)
        tasks = timelines.tasks(ranges, ends)
        order = self._order(until, ends, timelines.idle(ranges, ends), ranges)
        reads_all = all(ranges.get(at, (0, timelines.positions[at]))[1] >= end.end for at, end in ends.items())
        order = replace(order, preview=reads_all and wants_preview())
        outcome = self._placement.run(tasks, order)
        results = sorted(outcome.results, key=lambda result: (result.input, result.partition))
        watermarks = timelines.record(ranges, ends, results)
        self.until, self.known = until, frozenset(ends)
        rows = outcome.rows
        failed = [error for error in outcome.errors if len(error.times)]
        self._note_emission(order, outcome.complete)
        self._preview = outcome.preview
        counters: dict[str, int] = {}
        for result in results:
            add(counters, result.counts)
        add(counters, {RUNTIME_ERRORS: self._settled_errors(outcome.errors), **function_counts(outcome.calls)})
        backlog = sum(end.end - timelines.positions[timeline] for timeline, end in ends.items())
        counters[BACKLOGGED_INPUT_EVENTS] = backlog
        return Step(
            rows=rows,
            watermark=outcome.complete.slowest,
            events=sum(timelines.positions[timeline] - begin for timeline, (begin, _) in ranges.items()),
            backlog=backlog,
            counters=counters,
            data_errors=[
                *(error for result in results for error in result.data_errors),
                *(_error_of_operators(error) for error in failed),
            ],
            data_error_counts=_by_partition(results, failed),
            reasons=_by_reason(results, failed),
            trace=[trace for result in results for trace in result.traces],
            timelines=self._states(ends, watermarks, results, ranges),
            caught_up=backlog == 0,
            complete=backlog == 0 and all(end.complete for end in ends.values()),
            encoded=outcome.encoded,
            state_bytes=outcome.state_bytes,
            operator_rows=OperatorRows.sum([outcome.operator_rows, *(result.rows for result in results)]),
            operator_bytes=outcome.operator_bytes,
        )

    def backlog(self) -> int:
        """Return how many events of the log the run has not read yet.

        Raises:
            InputError: a log cannot be reached.
        """
        return sum(end.end - self._timelines.positions[at] for at, end in self._timelines.find().items())

    def ends(self) -> dict[Timeline, PartitionEnd]:
        """Return where the logs end now.

        Raises:
            InputError: a log cannot be reached.
        """
        return self._timelines.find()

    @property
    def progress(self) -> Progress:
        """How far results have been emitted."""
        return Progress(self.released, dict(self.ahead), self.emitted)

    @property
    def positions(self) -> Mapping[Timeline, int]:
        """By timeline, the sequence number to read next."""
        return self._timelines.positions

    @property
    def log_ids(self) -> Mapping[Timeline, str]:
        """By timeline, the identity of its log, where it has one."""
        return self._timelines.log_ids

    def arrival_of(self, timeline: Timeline) -> int:
        """Return a lower bound on the arrivals that a timeline still has, in ticks."""
        return self._timelines.carries[timeline].arrival

    @property
    def looked_at(self) -> int:
        """Ticks: no row with a later time has been computed yet, by a task or here."""
        return max(self.released, self._timelines.latest_time, *self.ahead.values())

    @property
    def settled_at(self) -> int:
        """Ticks: when results before this time are complete, those of all events read so far have been emitted."""
        latest = self._timelines.latest_event_time
        return NO_TIME if latest == NO_TIME else latest + self.program.lookback_ticks + 1

    def preview(self) -> list[ResultRows]:
        """Return the results that would be emitted next if no further event came, without emitting them."""
        if self._preview is not None:
            return self._preview
        return self._placement.preview(self._order(END_OF_TIME, {}, {}, ()))

    def seal(self) -> SealedStepper:
        """Return what `restore` continues from, beside the state of the keyed side."""
        failed = np.concatenate(self._failed) if self._failed else np.empty(0, dtype=np.int64)
        return SealedStepper(self._timelines.seal(), self.progress, failed, self.emitted_to)

    def restore(self, sealed: SealedStepper) -> None:
        """Continue, before the first step, from where an earlier run had read to; its placement has that state.

        Results up to this run's own progress are dropped, as they are where the log is read again.
        """
        self._timelines.restore(sealed.timelines)
        self.emitted_to, self.known = sealed.emitted_to, frozenset(sealed.timelines.positions)
        waits = sealed.failed >= self.released
        self._failed = [sealed.failed[waits]] if waits.any() else []

    def spread(self, parallelism: int) -> None:
        """Continue with another number of tasks in a step, at most."""
        self._timelines.spread(parallelism)

    def use(self, program: Program) -> None:
        """Continue with another program of the same query, whose reference data differ."""
        self.program = program
        self._placement.use(program)

    def _order(
        self,
        until: int,
        ends: Mapping[Timeline, PartitionEnd],
        idle: Mapping[Timeline, Reached],
        read: Iterable[Timeline],
    ) -> StepOrder:
        known = sorted({(name, "") for name, _ in ends} if self.policy.merged else ends)
        reach = max(until, self._resumed.until) if self._resumed.before != NO_TIME else until
        emission = EmissionRange(self._start, reach, self._resumed.before, self._resumed.until)
        order = StepOrder(self.released, dict(self.ahead), until, emission, idle, frozenset(read), tuple(known))
        return replace(order, settled_at=self.settled_at, until_arrival=self.until_arrival)

    def _note_emission(self, order: StepOrder, complete: Completeness) -> None:
        """Note what has been emitted; outputs with a shorter delay than others get ahead of the slowest."""
        slowest, emitted = complete.slowest, self.emitted_to
        if slowest > order.released or order.ahead_at(slowest, self.program):
            emitted = replace(emitted, time=max(emitted.time, slowest))
        self.emitted_to = replace(emitted, arrival=max(emitted.arrival, complete.arrival))
        after, until = order.after(complete.slowest, self.program), order.emission.until_ticks
        self.released, self.ahead = max(self.released, after.released), {**self.ahead, **after.ahead}
        if not self.program.by_substream:
            return
        # Once every result before `until` has been emitted there is nothing to tell apart.
        before = max(complete.arrival, self.emitted.before)
        self.emitted = Emitted(before, until) if self.released < until else Emitted()

    def _settled_errors(self, errors: Sequence[RuntimeErrors]) -> int:
        """Return how many rows failed on the keyed side whose results are final, so that no restart repeats them.

        Where only its own events advance a substream, a restart begins at the output start time anyway.
        """
        self._failed += [error.times for error in errors]
        if not self._failed:
            return 0
        times = np.concatenate(self._failed)
        waits = times >= self.released
        if self.program.by_substream and self.policy.late_ticks is None:
            waits[:] = False
        self._failed = [times[waits]] if waits.any() else []
        return int(np.count_nonzero(~waits))

    def _states(
        self,
        ends: Mapping[Timeline, PartitionEnd],
        watermarks: Mapping[Timeline, int],
        results: Sequence[RangeResult],
        ranges: Mapping[Timeline, tuple[int, int]],
    ) -> dict[Timeline, TimelineState]:
        counted = {(result.input, result.partition): result.counts for result in results}
        return {
            timeline: TimelineState(
                self._timelines.carries[timeline],
                watermarks[timeline],
                end,
                end.end - self._timelines.positions[timeline],
                counted.get(timeline, {}),
                self._timelines.positions[timeline] - ranges[timeline][0] if timeline in ranges else 0,
            )
            for timeline, end in ends.items()
        }


def _error_of_operators(error: RuntimeErrors) -> DataError:
    """Return a sample of rows that failed after operators had combined events, so that they have no place in a log."""
    time = int(error.times.min())
    return DataError(RUNTIME_ERROR, "", "", 0, time, error.message, "", error.reason.message)


def _by_partition(results: Sequence[RangeResult], failed: Sequence[RuntimeErrors]) -> dict[tuple[str, str, str], int]:
    """Return how many data errors there were, by kind, input and partition."""
    counts = {
        (kind, result.input, result.partition): count
        for result in results
        for kind, count in result.data_error_counts.items()
    }
    return counts | ({(RUNTIME_ERROR, "", ""): sum(len(error.times) for error in failed)} if failed else {})


def _by_reason(results: Sequence[RangeResult], failed: Sequence[RuntimeErrors]) -> Counter[tuple[str, str, str]]:
    """Return how many data errors there were, by kind, input and reason."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for result in results:
        for (kind, reason), count in result.reasons.items():
            counts[kind, result.input, reason] += count
    for error in failed:
        counts[RUNTIME_ERROR, "", error.reason.message] += len(error.times)
    return counts
