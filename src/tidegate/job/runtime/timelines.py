"""The timelines of a run: which events of each have been read, and what its scan carries.

A step reads a *range* of each timeline, an input's partition. How a backlog is cut into ranges, and ranges into tasks,
changes no result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import InputLog, PartitionEnd
from tidegate.engine import Program
from tidegate.job.runtime.emission import Reached, reached
from tidegate.job.runtime.merged import bound_of, stops_of
from tidegate.job.runtime.task import RangeResult, RangeTask, Task
from tidegate.ordering import (
    END_OF_TIME,
    NO_TIME,
    Carry,
    Policy,
    SubstreamCarry,
    read_from,
)

Timeline = tuple[str, str]
"""An input's name and one of its partitions."""

Ranges = Mapping[Timeline, tuple[int, int]]
"""Sequence numbers to read of each timeline, as (first, stop)."""


MOST_EVENTS_PER_STEP = 1_000_000
_MOST_EVENTS_PER_TASK = 500_000
_LEAST_EVENTS_PER_STEP = 1_000
_FIRST_EVENTS_WITH_FUNCTIONS = 50_000
_STEP_S = 2.0
_GROWTH, _SHRINKAGE = 4, 16
_EVENTS_OF_SCHEDULING = 2_000
"""Spark's driver takes about as long to schedule a task as a task takes for this many events."""
_TASKS_AT_EASE = 8
"""So many tasks are scheduled in a few milliseconds."""
LOG_REPLACED = "the log was replaced by another one: its data were moved or deleted, or the input names another source"


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

    max_events_per_step: int = MOST_EVENTS_PER_STEP
    batch_events: int = 65_536
    parallelism: int = 2
    counted: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    trace: bool = False


def first_to_read(
    log: InputLog, partition: str, end: PartitionEnd, start: int, program: Program, policy: Policy
) -> int:
    """Return the sequence number from which a partition must be read for output from ``start`` (ticks) on.

    Raises:
        InputError: the log cannot be reached.
    """
    arrival = None if start == NO_TIME else read_from(start, program.lookback_ticks, policy)
    return end.begin if arrival is None else max(log.first_at(partition, arrival), end.begin)


def tasks_of(events: int, most: int) -> int:
    """Return how many tasks a step of so many events is cut into, at most ``most``.

    Tasks run at the same time, but the driver schedules them one after the other. With n tasks it is busy for n·s and
    each of them for events·e/n; the sum is least at n = √(events·e/s).
    """
    return max(1, min(most, max(_TASKS_AT_EASE, math.isqrt(events // _EVENTS_OF_SCHEDULING))))


class StepPace:
    """How much of a backlog the next step reads: what takes about two seconds, and a core's memory has room for.

    A step costs some tenths of a second however few events it has. But results leave only after a step, and one that is
    interrupted is taken again from its beginning. Queries differ a thousandfold in what an event costs, and clusters
    in how many cores they have, so the size follows from what the step before took. It changes by limited factors: a
    step may have been slow for another reason, as the first is.
    """

    def __init__(self, said: int | None = None, *, calls_functions: bool = False) -> None:
        """Begin with a step of usual size.

        Args:
            said: the most events of any step, if the user has said.
            calls_functions: whether the query calls functions of the user's, which may take any time.
        """
        self._said = said
        self._most = _FIRST_EVENTS_WITH_FUNCTIONS if calls_functions else MOST_EVENTS_PER_STEP

    @property
    def most_events(self) -> int:
        """The most events of the next step."""
        return self._said or self._most

    def note(self, events: int, seconds: float, parallelism: Callable[[], int]) -> None:
        """Note what a step took; one that read all there was says nothing.

        Args:
            parallelism: returns how many tasks a step has at most. Spark is asked for it, so small steps do without.
        """
        if self._said is not None or 2 * events < self._most:
            return
        factor = min(_GROWTH, max(1 / _SHRINKAGE, _STEP_S / max(seconds, 1e-3)))
        room = max(MOST_EVENTS_PER_STEP, parallelism() * _MOST_EVENTS_PER_TASK)
        self._most = min(room, max(_LEAST_EVENTS_PER_STEP, round(self._most * factor)))


@dataclass(frozen=True, slots=True)
class SealedTimelines:
    """The timelines of a run after a step; see `Timelines`."""

    positions: dict[Timeline, int]
    carries: dict[Timeline, Carry | SubstreamCarry]
    bounds: dict[str, int]
    arrivals: dict[Timeline, int]


class Timelines:
    """The timelines of a run.

    Attributes:
        positions: by timeline, the sequence number to read next.
        carries: by timeline, the carry of its scan.
        log_ids: by timeline, the identity of its log, where it has one.
    """

    def __init__(
        self, program: Program, policy: Policy, logs: Mapping[str, InputLog], start: int, settings: StepSettings
    ) -> None:
        """Begin without timelines; `find` adds them. ``start``: the output start time in ticks."""
        self.positions: dict[Timeline, int] = {}
        self.carries: dict[Timeline, Carry | SubstreamCarry] = {}
        self.log_ids: dict[Timeline, str] = {}
        self._program = program
        self._policy = policy
        self._logs = logs
        self._start = start
        self._settings = settings
        self._bounds: dict[str, int] = {}
        self._arrivals: dict[Timeline, int] = {}

    def find(self) -> dict[Timeline, PartitionEnd]:
        """Look up the ends of all logs, and add timelines that are new.

        Raises:
            InputError: a log cannot be reached, or is another one than before.
        """
        ends = {(name, partition): end for name, log in self._logs.items() for partition, end in log.ends().items()}
        for timeline, end in ends.items():
            if timeline not in self.positions:
                self._add(timeline, end)
            if end.log_id is not None and self.log_ids.setdefault(timeline, end.log_id) != end.log_id:
                raise InputError(f"input {timeline[0]}, partition {timeline[1]}: {LOG_REPLACED}")
        return ends

    def _add(self, timeline: Timeline, end: PartitionEnd) -> None:
        """Add a timeline, to be read from where the output start time requires."""
        name, partition = timeline
        self.positions[timeline] = first_to_read(
            self._logs[name], partition, end, self._start, self._program, self._policy
        )
        self.carries[timeline] = self._program.new_carry(name)

    def seal(self) -> SealedTimelines:
        """Return what `restore` continues from."""
        return SealedTimelines(dict(self.positions), dict(self.carries), dict(self._bounds), dict(self._arrivals))

    def restore(self, sealed: SealedTimelines) -> None:
        """Continue from the timelines of an earlier run, which may still read on."""
        self.positions = dict(sealed.positions)
        self.carries = {
            at: carry.renewed() if isinstance(carry, SubstreamCarry) else carry for at, carry in sealed.carries.items()
        }
        self._bounds, self._arrivals = dict(sealed.bounds), dict(sealed.arrivals)

    def spread(self, parallelism: int) -> None:
        """Continue with another number of tasks in a step, at most."""
        self._settings = replace(self._settings, parallelism=parallelism)

    # Before the tasks -------------------------------------------------------------------------------------------------

    def plan(self, ends: Mapping[Timeline, PartitionEnd], most_events: int | None = None) -> Ranges:
        """Choose what the next step reads; ``most_events`` in place of what the settings say."""
        most = most_events or self._settings.max_events_per_step
        return self._plan_merged(ends, most) if self._policy.merged else self._plan(ends, most)

    def _plan(self, ends: Mapping[Timeline, PartitionEnd], most_events: int) -> Ranges:
        """Read a share of each partition's backlog.

        Shares are proportional to the backlogs, so that all partitions reach their ends together and the results of
        one do not pile up waiting for another.
        """
        waiting = {
            timeline: end.end - self.positions[timeline]
            for timeline, end in ends.items()
            if end.end > self.positions[timeline]
        }
        total = sum(waiting.values())
        share = min(1.0, most_events / total) if total else 1.0
        return {
            timeline: (begin := self.positions[timeline], begin + min(count, max(1, round(count * share))))
            for timeline, count in waiting.items()
        }

    def _plan_merged(self, ends: Mapping[Timeline, PartitionEnd], most_events: int) -> Ranges:
        """Read what arrived before a bound, of all partitions of an input."""
        ranges = {}
        for name, log in self._logs.items():
            own = {partition: end for (of, partition), end in ends.items() if of == name}
            positions = {partition: self.positions[name, partition] for partition in own}
            arrivals = {partition: self._arrivals.get((name, partition), NO_TIME) for partition in own}
            bound = bound_of(log, own, positions, arrivals, max(1, most_events // len(self._logs)))
            self._bounds[name] = max(bound, self._bounds.get(name, NO_TIME))
            for partition, stop in stops_of(log, own, self._bounds[name]).items():
                if stop > positions[partition]:
                    ranges[name, partition] = (positions[partition], stop)
        return ranges

    def tasks(self, ranges: Ranges, ends: Mapping[Timeline, PartitionEnd]) -> list[Task]:
        """Pack ranges into tasks that can run at once, the longest first."""
        if not ranges:
            return []
        batch_events, trace = self._settings.batch_events, self._settings.trace
        if self._policy.merged:
            return [
                Task(own, batch_events, trace, self._bounds[name])
                for name in self._logs
                if (own := [self._range(at, *ranges[at], ends[at]) for at in ranges if at[0] == name])
            ]
        events = sum(stop - begin for begin, stop in ranges.values())
        count = min(tasks_of(events, self._settings.parallelism), len(ranges))
        tasks = [Task([], batch_events, trace) for _ in range(count)]
        loads = [0] * len(tasks)
        for timeline, (begin, stop) in sorted(ranges.items(), key=lambda item: item[1][0] - item[1][1]):
            lightest = loads.index(min(loads))
            loads[lightest] += stop - begin
            tasks[lightest].ranges.append(self._range(timeline, begin, stop, ends[timeline]))
        return tasks

    def _range(self, timeline: Timeline, begin: int, stop: int, end: PartitionEnd) -> RangeTask:
        name, partition = timeline
        return RangeTask(
            input=name,
            partition=partition,
            log_range=self._logs[name].range(partition, begin, stop),
            carry=self.carries[timeline],
            count_from=self._settings.counted.get(name, {}).get(partition, 0),
            end=end,
            reached=self._arrivals.get(timeline, NO_TIME),
        )

    # After the tasks --------------------------------------------------------------------------------------------------

    def record(
        self, ranges: Ranges, ends: Mapping[Timeline, PartitionEnd], results: Sequence[RangeResult]
    ) -> dict[Timeline, int]:
        """Record what tasks have read, and return the watermark of each timeline in ticks."""
        if self._policy.merged:
            self._record_merged(ranges, ends, results)
        else:
            for result in results:
                self.carries[result.input, result.partition] = result.carry
            for timeline, (_, stop) in ranges.items():
                self.positions[timeline] = stop
        return {timeline: self._reached(timeline, end).watermark for timeline, end in ends.items()}

    def _record_merged(
        self, ranges: Ranges, ends: Mapping[Timeline, PartitionEnd], results: Sequence[RangeResult]
    ) -> None:
        """Record how far each partition was read, and the one carry of each input."""
        for timeline, (_, stop) in ranges.items():
            self.positions[timeline] = stop
        carries = {}
        for result in results:
            timeline = (result.input, result.partition)
            assert result.stop is not None
            self.positions[timeline], self._arrivals[timeline] = result.stop, result.reached
            carries[result.input] = result.carry
        for name, partition in ends:
            carry = carries.get(name, self.carries[name, partition])
            bound = self._bounds[name]
            self.carries[name, partition] = carry if bound == END_OF_TIME else carry.advance(bound)

    def _reached(self, timeline: Timeline, end: PartitionEnd) -> Reached:
        """Return how far a timeline has come; once all its events are read, its arrival lower bound counts."""
        name, _ = timeline
        carry, position = self.carries[timeline], self.positions[timeline]
        self.carries[timeline], found = reached(carry, position, end, name, self._program, self._policy)
        return found

    def idle(self, ranges: Ranges, ends: Mapping[Timeline, PartitionEnd]) -> dict[Timeline, Reached]:
        """Return how far the timelines have come that a step does not read.

        Merged partitions are one timeline, which is read if any of them is.
        """
        read = {name for name, _ in ranges} if self._policy.merged else set()
        for name, partition in ends if self._policy.merged else ():
            # Nothing arrives before the bound any more, whether or not there was an event to read.
            if name not in read and self._bounds[name] != END_OF_TIME:
                self.carries[name, partition] = self.carries[name, partition].advance(self._bounds[name])
        return {at: self._reached(at, end) for at, end in ends.items() if at not in ranges and at[0] not in read}

    @property
    def latest_event_time(self) -> int:
        """Ticks: the largest System.Timestamp of an event read so far; NO_TIME before the first."""
        times = [
            int(carry.max_times.max(initial=NO_TIME)) if isinstance(carry, SubstreamCarry) else carry.max_time
            for carry in self.carries.values()
        ]
        return max(times, default=NO_TIME)

    @property
    def latest_time(self) -> int:
        """Ticks: no event read so far has a later System.Timestamp."""
        times = [
            max(carry.arrival, int(carry.max_times.max(initial=NO_TIME)))
            if isinstance(carry, SubstreamCarry)
            else max(carry.arrival, carry.max_time)
            for carry in self.carries.values()
        ]
        return max(times, default=NO_TIME)
