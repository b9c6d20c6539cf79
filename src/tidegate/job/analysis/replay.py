"""Reads a stretch of a log again and returns for each event the job's own verdict, computed by the same task.

Where to begin: let an event have arrived at a, the one before it on its partition at A. From events with arrival of at
least A - late - early on, a scan comes to the same verdict as one from the log's beginning: by the theorem of
`ordering.start`, with S - L = A - late, every largest time seen is the same in both or below A - late in both; and one
that is below A - late decides nothing, neither a stamp (the late rule stamps at a - late or later) nor a watermark
(which is A - late already). Without a late tolerance, or without the early rule, only the log's beginning will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.events import PartitionEnd
from tidegate.job.analysis.replay_source import ReplaySource
from tidegate.job.runtime.step import Timeline, TimelineState
from tidegate.job.runtime.task import AnyCarry, RangeResult, RangeTask, Task, run_task
from tidegate.job.runtime.watermark_blockers import WatermarkReport, watermark_report
from tidegate.ordering import END_OF_TIME, SubstreamCarry, arrival_floor, read_from, watermark

CHUNK_EVENTS = 262_144
BATCH_EVENTS = 65_536


@dataclass(frozen=True, slots=True)
class ReplayState:
    """The state of a timeline before an event.

    ``whole``: retention has removed nothing that could matter.
    """

    carry: AnyCarry
    whole: bool


def check_event(source: ReplaySource, timeline: Timeline, number: int) -> None:
    """Check that there is an event with a sequence number.

    Raises:
        JobError: the log has no such event, or no longer has it.
    """
    name, partition = timeline
    end = source.logs[name].ends()[partition]
    if not end.begin <= number < end.end:
        there = f"it has {end.begin} to {end.end - 1}" if end.end > end.begin else "it is empty"
        raise JobError(f"input {name}, partition {partition}: there is no event {number}; {there}")


def state_before(source: ReplaySource, timeline: Timeline, number: int) -> ReplayState:
    """Return the state of a timeline before the event ``number``, reading back as far as necessary.

    Raises:
        InputError: the log cannot be read.
    """
    _check_partitions(source)
    name, partition = timeline
    log = source.logs[name]
    begin, end = _begin_before(source, timeline, number), log.ends()[partition]
    carry = source.program.new_carry(name)
    for result in replayed(source, timeline, begin, number, carry, trace=False):
        carry = result.carry
    return ReplayState(carry, whole=begin > end.begin or end.begin == 0)


def fresh_look(source: ReplaySource) -> WatermarkReport:
    """Report what would hold results back if a job had read everything in the log now.

    Raises:
        InputError: a log cannot be read.
    """
    states = {}
    carries = {
        (timeline, end.end): state_before(source, timeline, end.end).carry for timeline, end in source.ends().items()
    }
    # A hub that has not been polled for a while reports its state as of the last poll, and updates it a moment later.
    later = source.ends()
    for (timeline, read), carry in carries.items():
        end = later[timeline]
        policy = source.policy_of(timeline[0])
        if end.arrival_lower_bound is not None and end.end == read and not end.complete:
            carry = carry.advance(end.arrival_lower_bound)
        if end.complete:
            reached = END_OF_TIME
        elif isinstance(carry, SubstreamCarry):
            reached = arrival_floor(carry.arrival, policy)
        else:
            reached = watermark(carry, policy)
        states[timeline] = TimelineState(carry, reached, end, 0, {})
    return watermark_report(states, source.program, source.policy)


def _begin_before(source: ReplaySource, timeline: Timeline, number: int) -> int:
    name, partition = timeline
    log = source.logs[name]
    oldest = log.ends()[partition].begin
    policy = source.policy_of(name)
    if number <= oldest:
        return number
    before = int(next(iter(log.range(partition, number - 1, number).read_events(1))).arrivals[0])
    arrival = None if policy.late_ticks is None else read_from(before - policy.late_ticks, 0, policy)
    return oldest if arrival is None else min(max(oldest, log.first_at(partition, arrival)), number - 1)


def replayed(
    source: ReplaySource, timeline: Timeline, first: int, stop: int, carry: AnyCarry, *, trace: bool = True
) -> Iterator[RangeResult]:
    """Stamp and evaluate the events ``first`` ≤ sequence number < ``stop``, in batches.

    Raises:
        InputError: the log cannot be read.
    """
    name, partition = timeline
    for begin in range(first, stop, CHUNK_EVENTS):
        log_range = source.logs[name].range(partition, begin, min(begin + CHUNK_EVENTS, stop))
        task = Task([RangeTask(name, partition, log_range, carry, count_from=begin)], BATCH_EVENTS, trace)
        (result,) = run_task(task, source.program, source.policy)
        carry = result.carry
        yield result


def stretch(
    source: ReplaySource, from_ticks: int | None = None, to_ticks: int | None = None
) -> dict[Timeline, tuple[int, int]]:
    """Return the sequence numbers (first, stop) that arrived in ``from_ticks`` ≤ arrival < ``to_ticks``, by timeline.

    Raises:
        InputError: a log cannot be reached.
    """
    _check_partitions(source)

    def place(timeline: Timeline, end: PartitionEnd, arrival: int | None, otherwise: int) -> int:
        name, partition = timeline
        number = otherwise if arrival is None else source.logs[name].first_at(partition, arrival)
        return min(max(number, end.begin), end.end)

    return {
        timeline: (place(timeline, end, from_ticks, end.begin), place(timeline, end, to_ticks, end.end))
        for timeline, end in source.ends().items()
    }


def _check_partitions(source: ReplaySource) -> None:
    if source.policy.merged:
        raise JobError(
            "the partitions of this job are one timeline (event_ordering: timelines), and this looks at each by "
            "itself; job verify, test and run take them together"
        )
