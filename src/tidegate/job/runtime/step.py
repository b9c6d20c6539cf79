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

from tidegate.engine import EmissionRange, Program, ResultRows
from tidegate.job.model.events import InputLog, Int64Array, PartitionEnd
from tidegate.job.model.metrics import BACKLOGGED_INPUT_EVENTS, RUNTIME_ERRORS, WATERMARK_DELAY, DataError, add
from tidegate.job.runtime.merged import bound_of, stops_of
from tidegate.job.runtime.task import RangeResult, RangeTask, Task, TraceRows
from tidegate.ordering import (
    END_OF_TIME,
    NO_TIME,
    TICKS_PER_SECOND,
    Carry,
    Policy,
    SubstreamCarry,
    arrival_floor,
    merge,
    read_from,
    watermark,
)

Timeline = tuple[str, str]
"""An input's name and a partition of it."""

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
class StepSettings:
    """How a run is cut into steps and tasks, and what is counted. Nothing here changes a result.

    Attributes:
        max_events_per_step: how much of a backlog one step reads, over all partitions.
        batch_events: how many events a task holds as columns at a time.
        parallelism: how many tasks a step has at most.
        counted: by input and partition, the sequence number up to which an earlier run has counted events.
        trace: whether to report the fate of every event.
    """

    max_events_per_step: int = 1_000_000
    batch_events: int = 65_536
    parallelism: int = 2
    counted: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    trace: bool = False


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
        settings = settings or StepSettings()
        self._program = program
        self._policy = policy
        self._logs = logs
        self._runner = runner
        self._counted = {name: dict(partitions) for name, partitions in settings.counted.items()}
        self._max_events = settings.max_events_per_step
        self._batch_events = settings.batch_events
        self._parallelism = settings.parallelism
        self._trace = settings.trace
        self._state = program.new_state(policy.late_ticks)
        self._start = resume.released
        self._resumed = resume.emitted
        self.emitted = resume.emitted
        self.released = resume.released
        self.ahead = dict(resume.ahead)
        self.positions: dict[Timeline, int] = {}
        self._carries: dict[Timeline, Carry | SubstreamCarry] = {}
        self._bounds: dict[str, int] = {}
        self._failed: list[Int64Array] = []
        self._arrivals: dict[Timeline, int] = {}

    def step(self, until: int = END_OF_TIME) -> Step:
        """Read new events, and emit the results that are ready and before ``until`` (ticks).

        Raises:
            InputError: a log cannot be read.
        """
        ends = {(name, partition): end for name, log in self._logs.items() for partition, end in log.ends().items()}
        for timeline, end in ends.items():
            if timeline not in self.positions:
                self._begin(timeline, end)
        if self._state.substreams is not None:
            self._state.substreams.know({(name, "") for name, _ in ends} if self._policy.merged else ends)
        ranges = self._plan_merged(ends) if self._policy.merged else self._plan(ends)
        results = [result for task in self._runner(self._tasks(ranges)) for result in task]

        counters: dict[str, int] = {}
        data_error_counts: dict[tuple[str, str, str], int] = {}
        for result in sorted(results, key=lambda result: (result.input, result.partition)):
            self._carries[result.input, result.partition] = result.carry
            self._program.absorb(self._state, result.partials)
            add(counters, result.counts)
            for kind, count in result.data_error_counts.items():
                data_error_counts[kind, result.input, result.partition] = count
        for timeline, (_, stop) in ranges.items():
            self.positions[timeline] = stop
        if self._policy.merged:
            self._take_merged(ends, results)

        # Without a timeline, as in an empty recording, there is nothing to wait for.
        watermarks = {timeline: self._watermark(timeline, end) for timeline, end in ends.items()}
        slowest = min(self._program.complete_before(merge([*watermarks.values()] or [END_OF_TIME])), until)
        if self._program.by_substream:
            rows = self._release_substreams(ends, slowest, until)
        else:
            rows = self._release(slowest, until)
        add(counters, {RUNTIME_ERRORS: self._settled_errors()})
        backlog = sum(end.end - self.positions[timeline] for timeline, end in ends.items())
        counters[BACKLOGGED_INPUT_EVENTS] = backlog
        return Step(
            rows=rows,
            watermark=slowest,
            events=sum(self.positions[timeline] - begin for timeline, (begin, _) in ranges.items()),
            backlog=backlog,
            counters=counters,
            data_errors=[error for result in results for error in result.data_errors],
            data_error_counts=data_error_counts,
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
    def looked_at(self) -> int:
        """Ticks: no row with a later time has been computed yet, by a task or here."""
        times = [
            max(carry.arrival, int(carry.max_times.max(initial=NO_TIME)))
            if isinstance(carry, SubstreamCarry)
            else max(carry.arrival, carry.max_time)
            for carry in self._carries.values()
        ]
        return max([self.released, *times])

    def preview(self) -> list[ResultRows]:
        """Return the results that would be emitted next if no further event came, without emitting them."""
        return self._program.preview(self._state, self.released, self.ahead)

    def use(self, program: Program, runner: Runner) -> None:
        """Continue with another program of the same query, whose reference data differ from a later time on."""
        self._program = program
        self._runner = runner

    def _release(self, slowest: int, until: int) -> list[ResultRows]:
        """Emit complete results; outputs with a shorter delay than others are ahead of ``slowest``."""
        ahead = {
            name: reached
            for name, reached in self._program.ahead(slowest, until).items()
            if reached > max(self.released, self.ahead.get(name, NO_TIME))
        }
        if slowest <= self.released and not ahead:
            return []
        rows = self._program.release(self._state, self.released, slowest, self.ahead, until)
        self.ahead |= ahead
        self.released = max(self.released, slowest)
        return rows

    def _settled_errors(self) -> int:
        """Return how many rows failed on the driver whose results are final, so that no restart repeats the failure.

        Where only its own events advance a substream, a restart begins at the output start time anyway.
        """
        self._failed += [error.times for error in self._state.take_errors()]
        if not self._failed:
            return 0
        times = np.concatenate(self._failed)
        waits = times >= self.released
        if self._program.by_substream and self._policy.late_ticks is None:
            waits[:] = False
        self._failed = [times[waits]] if waits.any() else []
        return int(np.count_nonzero(~waits))

    def _release_substreams(self, ends: Mapping[Timeline, PartitionEnd], slowest: int, until: int) -> list[ResultRows]:
        """Emit the results of each substream that no later event can change."""
        reached = min((self._reached(timeline, end) for timeline, end in ends.items()), default=END_OF_TIME)
        until = max(until, self._resumed.until) if self._resumed.before != NO_TIME else until
        emission = EmissionRange(self._start, until, self._resumed.before, self._resumed.until)
        rows = self._program.release_substreams(self._state, reached, emission)
        self.released = max(self.released, slowest)
        # Once every result before `until` has been emitted there is nothing to tell apart.
        self.emitted = Emitted(max(reached, self.emitted.before), until) if self.released < until else Emitted()
        return rows

    def _reached(self, timeline: Timeline, end: PartitionEnd) -> int:
        """Return the arrival lower bound of a timeline's later events."""
        if end.complete and self.positions[timeline] >= end.end:
            return END_OF_TIME
        return self._carries[timeline].arrival

    def _states(
        self, ends: Mapping[Timeline, PartitionEnd], watermarks: Mapping[Timeline, int], results: Sequence[RangeResult]
    ) -> dict[Timeline, TimelineState]:
        counted = {(result.input, result.partition): result.counts for result in results}
        return {
            timeline: TimelineState(
                self._carries[timeline],
                watermarks[timeline],
                end,
                end.end - self.positions[timeline],
                counted.get(timeline, {}),
            )
            for timeline, end in ends.items()
        }

    def _begin(self, timeline: Timeline, end: PartitionEnd) -> None:
        """Set where a timeline has to be read from for the output start time."""
        name, partition = timeline
        arrival = None if self._start == NO_TIME else read_from(self._start, self._program.lookback_ticks, self._policy)
        position = end.begin if arrival is None else self._logs[name].first_at(partition, arrival)
        self.positions[timeline] = max(position, end.begin)
        self._carries[timeline] = self._program.new_carry(name)

    def _plan(self, ends: Mapping[Timeline, PartitionEnd]) -> dict[Timeline, tuple[int, int]]:
        """The sequence numbers each timeline reads now, as (first, stop).

        A backlog is taken in proportion to what each partition has left, so that all of them come to its end together
        and no partition's results pile up waiting for another's.
        """
        waiting = {
            timeline: end.end - self.positions[timeline]
            for timeline, end in ends.items()
            if end.end > self.positions[timeline]
        }
        total = sum(waiting.values())
        share = min(1.0, self._max_events / total) if total else 1.0
        return {
            timeline: (begin := self.positions[timeline], begin + min(count, max(1, round(count * share))))
            for timeline, count in waiting.items()
        }

    def _plan_merged(self, ends: Mapping[Timeline, PartitionEnd]) -> dict[Timeline, tuple[int, int]]:
        """The same where the partitions of an input are one timeline: of all of them what arrived before a bound."""
        ranges = {}
        for name, log in self._logs.items():
            own = {partition: end for (of, partition), end in ends.items() if of == name}
            positions = {partition: self.positions[name, partition] for partition in own}
            arrivals = {partition: self._arrivals.get((name, partition), NO_TIME) for partition in own}
            bound = bound_of(log, own, positions, arrivals, max(1, self._max_events // len(self._logs)))
            self._bounds[name] = max(bound, self._bounds.get(name, NO_TIME))
            for partition, stop in stops_of(log, own, self._bounds[name]).items():
                if stop > positions[partition]:
                    ranges[name, partition] = (positions[partition], stop)
        return ranges

    def _take_merged(self, ends: Mapping[Timeline, PartitionEnd], results: Sequence[RangeResult]) -> None:
        """Where each partition was read to, and the one carry of each input."""
        carries = {}
        for result in results:
            timeline = (result.input, result.partition)
            assert result.stop is not None
            self.positions[timeline], self._arrivals[timeline] = result.stop, result.reached
            carries[result.input] = result.carry
        for name, partition in ends:
            carry = carries.get(name, self._carries[name, partition])
            bound = self._bounds[name]
            self._carries[name, partition] = carry if bound == END_OF_TIME else carry.advance(bound)

    def _tasks(self, ranges: Mapping[Timeline, tuple[int, int]]) -> list[Task]:
        """The ranges, packed into as many tasks as can run at once, the longest first."""
        if not ranges:
            return []
        if self._policy.merged:
            return [
                Task(own, self._batch_events, self._trace, self._bounds[name])
                for name in self._logs
                if (own := [self._range(at, *ranges[at]) for at in ranges if at[0] == name])
            ]
        tasks = [Task([], self._batch_events, self._trace) for _ in range(min(self._parallelism, len(ranges)))]
        loads = [0] * len(tasks)
        for timeline, (begin, stop) in sorted(ranges.items(), key=lambda item: item[1][0] - item[1][1]):
            lightest = loads.index(min(loads))
            loads[lightest] += stop - begin
            tasks[lightest].ranges.append(self._range(timeline, begin, stop))
        return tasks

    def _range(self, timeline: Timeline, begin: int, stop: int) -> RangeTask:
        name, partition = timeline
        return RangeTask(
            input=name,
            partition=partition,
            log_range=self._logs[name].range(partition, begin, stop),
            carry=self._carries[timeline],
            count_from=self._counted.get(name, {}).get(partition, 0),
            reached=self._arrivals.get(timeline, NO_TIME),
        )

    def _watermark(self, timeline: Timeline, end: PartitionEnd) -> int:
        """How far one timeline is, by its events and, once they are all read, by the log's word about what follows."""
        carry = self._carries[timeline]
        if self.positions[timeline] >= end.end:
            if end.complete:
                return END_OF_TIME
            if end.arrival_lower_bound is not None and not self._policy.merged:
                carry = self._carries[timeline] = carry.advance(end.arrival_lower_bound)
        if isinstance(carry, SubstreamCarry):
            # A substream not seen yet may begin anywhere the late tolerance allows.
            return arrival_floor(carry.arrival, self._policy)
        return watermark(carry, self._policy if self._program.has_event_time(timeline[0]) else Policy.arrival_time())
