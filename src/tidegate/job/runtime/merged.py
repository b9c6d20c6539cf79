"""All partitions of an input merged into one timeline: the rule of the articles of 2017, as a named option.

Those articles sort the events of all partitions by their enqueued time and scan them once (2017 "Azure Stream Analytics
event order handling"); later articles give each partition a watermark. Here the events of all partitions are ordered by
arrival, then by partition and sequence number, and stamped by one scan.

An event can be scanned once every partition has passed its arrival, because until then another partition might get an
event that precedes it. So a step reads all events that arrived before a *bound*. The order does not depend on which
step reads an event. An event's arrival is here the latest one of its partition, ticks included, so that it never
decreases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tidegate.connectors.inputs.ticks import reached_in
from tidegate.connectors.model.events import InputLog, Int64Array, PartitionEnd, last_arrival
from tidegate.engine import TaskSide
from tidegate.job.runtime.batch import Batch, BoolArray, RangeResult, Task, batches, selected_stamps
from tidegate.job.runtime.emission import AnyCarry
from tidegate.ordering import (
    DROPPED,
    END_OF_TIME,
    NO_TIME,
    Carry,
    Policy,
    Stamps,
    running_arrival,
    scan,
    scan_arrival,
    scan_substreams,
)

# On the driver --------------------------------------------------------------------------------------------------------


def bound_of(
    log: InputLog,
    ends: Mapping[str, PartitionEnd],
    positions: Mapping[str, int],
    reached: Mapping[str, int],
    most_events: int,
) -> int:
    """Return the arrival (ticks) before which a step reads events; END_OF_TIME if the logs have ended.

    Args:
        log: the input.
        ends, positions, reached: by partition, the end of its log, the next sequence number, and the latest arrival
            before that.
        most_events: how many events a step reads, unless more have arrived at the same time.
    """
    bound = known_before(log, ends, reached)
    stops = stops_of(log, ends, bound)
    waiting = {partition: stop - positions[partition] for partition, stop in stops.items()}
    total = sum(waiting.values())
    if total <= most_events:
        return bound
    longest = max(sorted(waiting), key=lambda partition: waiting[partition])
    first = positions[longest]
    last = first + min(max(1, waiting[longest] * most_events // total), waiting[longest]) - 1
    # A tick before the last event may be later than its arrival; below that tick nothing would be read at all.
    ticked = max(reached.get(longest, NO_TIME), reached_in(log.range(longest, first, last + 1)))
    nearer = min(bound, max(last_arrival(log, longest, ends[longest].begin, last + 1), ticked) + 1)
    return bound if stops_of(log, ends, nearer) == stops else nearer


def known_before(log: InputLog, ends: Mapping[str, PartitionEnd], reached: Mapping[str, int] | None = None) -> int:
    """Return the arrival (ticks) before which all events are in the log; END_OF_TIME if it has ended.

    Args:
        ends: the ends of its partitions.
        reached: by partition, the latest arrival of events that were read.
    """
    latest = reached or {}
    return min(
        (max(latest.get(partition, NO_TIME), _known(log, partition, end)) for partition, end in ends.items()),
        default=END_OF_TIME,
    )


def stops_of(log: InputLog, ends: Mapping[str, PartitionEnd], bound: int) -> dict[str, int]:
    """Return, by partition, the sequence number after the last event that arrived before a bound."""
    return {partition: _stop(log, partition, end, bound) for partition, end in ends.items()}


def _stop(log: InputLog, partition: str, end: PartitionEnd, bound: int) -> int:
    return end.end if bound == END_OF_TIME else min(log.first_at(partition, bound), end.end)


def _known(log: InputLog, partition: str, end: PartitionEnd) -> int:
    """Return the arrival lower bound of events that are not in the log yet."""
    if end.complete:
        return END_OF_TIME
    if end.arrival_lower_bound is not None:
        return end.arrival_lower_bound
    return last_arrival(log, partition, end.begin, end.end)


# In the task ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """A batch of one partition.

    Attributes:
        result: of the batch's range.
        stop: events from this sequence number on are left to a later step.
        order: int64[n], the arrival by which each row is ordered.
    """

    result: RangeResult
    batch: Batch
    stop: int
    order: Int64Array


def run_merged(task: Task, engine: TaskSide, policy: Policy) -> list[RangeResult]:
    """Stamp the events of all ranges, which belong to one input, in one scan, and evaluate them.

    Raises:
        InputError: a range cannot be read.
    """
    if not task.ranges:
        return []
    carry = task.ranges[0].carry
    results = []
    parts: list[_Part] = []
    for task_range in task.ranges:
        result = RangeResult(task_range.input, task_range.partition, carry, task_range.log_range.start)
        result.reached = task_range.reached
        results.append(result)
        for events in task_range.log_range.read_events(task.batch_events):
            arrivals = running_arrival(events.arrivals, max(result.reached, events.reached))
            count = int(np.searchsorted(arrivals, task.before))
            if count:
                result.reached = int(arrivals[count - 1])
                result.stop = int(events.sequence_numbers[count - 1]) + 1
                first = 0
                for batch in batches(task_range, events, engine):
                    of_rows = arrivals[first + batch.rows.decoded.events]
                    parts.append(_Part(result, batch, result.stop, of_rows))
                    first += len(batch.events.sequence_numbers)
            if count < len(arrivals):
                break
    carry = _scan(parts, carry, policy, trace=task.trace)
    if task.before < END_OF_TIME:
        carry = carry.advance(task.before)
    for result in results:
        result.carry = carry.advance(max((one.reached for one in results), default=NO_TIME))
    return results


def _scan(parts: Sequence[_Part], carry: AnyCarry, policy: Policy, *, trace: bool) -> AnyCarry:
    """Stamp the rows of all parts in the order of their arrival."""
    if not parts:
        return carry
    taken = [np.flatnonzero(part.batch.rows.sequence_numbers < part.stop) for part in parts]
    owner = np.repeat(np.arange(len(parts)), [len(rows) for rows in taken])
    order = np.concatenate([part.order[rows] for part, rows in zip(parts, taken, strict=True)])
    partitions = np.array([int(part.result.partition) for part in parts])[owner]
    # Rows of one partition are in order already, which a stable sort keeps.
    merged = np.lexsort((partitions, order))
    stamps, carry = _stamped(_Rows.of(parts, taken, carry).take(merged), order[merged], carry, policy)
    places = np.empty_like(merged)
    places[merged] = np.arange(len(merged))
    for number, (part, rows) in enumerate(zip(parts, taken, strict=True)):
        own = selected_stamps(stamps, places[owner == number])
        own = _among(own, rows, len(part.batch))
        part.batch.finish(part.result, own, part.order, timeline="", stop=part.stop, trace=trace)
    return carry


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of all parts.

    Attributes:
        arrivals: int64[n], ticks.
        times, valid: int64[n], bool[n]; the event times and whether they are valid; None if arrivals are the times.
        codes: int64[n], the substream of each; None without substreams.
    """

    arrivals: Int64Array
    times: Int64Array | None
    valid: BoolArray | None
    codes: Int64Array | None

    @classmethod
    def of(cls, parts: Sequence[_Part], taken: Sequence[Int64Array], carry: AnyCarry) -> _Rows:
        batches = [part.batch.rows for part in parts]
        timed = [one.times for one in batches if one.times is not None]
        return cls(
            _joined([one.arrivals for one in batches], taken),
            _joined([times for times, _ in timed], taken) if timed else None,
            np.concatenate([valid[rows] for (_, valid), rows in zip(timed, taken, strict=True)]) if timed else None,
            None if isinstance(carry, Carry) else _joined([one.batch.substream_codes(carry) for one in parts], taken),
        )

    def take(self, rows: Int64Array) -> _Rows:
        return _Rows(
            self.arrivals[rows],
            None if self.times is None else self.times[rows],
            None if self.valid is None else self.valid[rows],
            None if self.codes is None else self.codes[rows],
        )


def _joined(columns: Sequence[Int64Array], taken: Sequence[Int64Array]) -> Int64Array:
    return np.concatenate([column[rows] for column, rows in zip(columns, taken, strict=True)])


def _stamped(rows: _Rows, reached: Int64Array, carry: AnyCarry, policy: Policy) -> tuple[Stamps, AnyCarry]:
    """Stamp rows in one scan; where a tick was later than a row's arrival, the carry advances before the row."""
    if not len(reached):
        return Stamps.empty(0), carry
    ticked = np.flatnonzero(rows.arrivals < reached).tolist()
    bounds = [0, *(place for place in ticked if place), len(reached)]
    pieces = []
    for begin, end in pairwise(bounds):
        carry = carry.advance(int(reached[begin]))
        piece = rows.take(np.arange(begin, end))
        stamps: Stamps
        if piece.times is None:
            assert isinstance(carry, Carry)
            stamps, carry = scan_arrival(piece.arrivals, carry)
        elif isinstance(carry, Carry):
            stamps, carry = scan(piece.times, piece.arrivals, carry, policy, piece.valid)
        else:
            assert piece.codes is not None
            stamps, carry = scan_substreams(
                piece.times, piece.arrivals, piece.codes, carry, policy, piece.valid, forget=end == len(reached)
            )
        pieces.append(stamps)
    return Stamps.concat(pieces), carry


def _among(stamps: Stamps, rows: Int64Array, count: int) -> Stamps:
    """Spread the stamps of some rows over ``count`` rows; the others count as dropped and have no time."""
    if len(rows) == count:
        return stamps
    every = Stamps.empty(count)
    every.fate[:], every.reasons[:] = DROPPED, 0
    for name in ("system_timestamp", "watermark_event", "watermark"):
        getattr(every, name)[:] = NO_TIME
    for name in ("system_timestamp", "fate", "reasons", "watermark_event", "watermark"):
        getattr(every, name)[rows] = getattr(stamps, name)
    return every
