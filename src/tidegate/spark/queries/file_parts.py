"""Files of Parquet in the order of their events: parts of timelines, each of which a task reads and evaluates.

Rows that come in any order have to be exchanged before a timeline can be read. Files mostly come in order: the footers
say which keys each row group has, and that few row groups overlap. Then the rows are divided into *parts*, so that
every row of a part is before every row of its partition in later parts, and no row is exchanged:

    numbers of parts ─ mapInArrow(SummaryStage) ─ repartition(part) ─ mapInArrow(PartStage) ─ parcels

A task stamps events by what is known of their timeline before them (`tidegate.ordering.ScanSummary`). So each part is
first summed up, for which its keys and event times are read, and not its other columns. Every part is then read with
the summaries of all others. Of one part or two, each task sums up the other itself, without an exchange: every summary
has one reader, and a stage takes longer than most summaries.

Mostly the ends of a part are its summary: if the last row groups have a later event of every timeline than the footers
allow for the others, only those are read, and the first ones for the first arrivals.

Keys are those of each partition. Two partitions may number their events differently, so row groups of one partition
are compared with each other, and those of several with all.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import Events, PartitionEnd
from tidegate.engine import Program, TaskSide
from tidegate.ordering import END_OF_TIME, NO_TIME, Carry, Policy, ScanSummary
from tidegate.spark.queries.arrival_order import ArrivalOrder, ArrivalSteps
from tidegate.spark.queries.frame_events import RowLayout
from tidegate.spark.queries.frame_runs import sorted_by_partition
from tidegate.spark.queries.parcels import Beginning, TimelineRun, arrow_schema, rows_of, rows_of_task
from tidegate.spark.queries.parquet_files import FileColumn, ParquetFiles, RowGroup, rows_of_group
from tidegate.spark.queries.shared_query import QueryOnShards
from tidegate.sql.plan import nodes as plan

# PySpark collects garbage after every task; what is imported here is not garbage and need not be looked at each time.
gc.freeze()

SUMMARIES = "part int, sender int, blob binary"

_ARROW = arrow_schema(SUMMARIES)
_PART_ROWS = 8_000_000
_CHUNK_ROWS = 262_144
_MOST_HELD_ROWS = 4_000_000
_MOST_HELD_BYTES = 256 << 20
_READ_AGAIN = 0.25
_FEW_ROWS, _FEW_GROUPS = 500_000, 64
_BATCH_ROWS = 65_536
_EVENTS_HELD = 1_048_576
_FEWEST_EVENTS = 1024
_MOST_PARTITIONS = 256
_TICKS_PER_MICROSECOND = 10


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of a row group that belong to a part.

    Attributes:
        after, upto: keys above the one and up to the other; None without a limit.
    """

    group: RowGroup
    after: int | None = None
    upto: int | None = None

    @property
    def low(self) -> int:
        """The smallest key that there may be."""
        return self.group.low if self.after is None else max(self.group.low, self.after + 1)

    @property
    def high(self) -> int:
        """The largest key that there may be."""
        return self.group.high if self.upto is None else min(self.group.high, self.upto)

    def rows(self, columns: Sequence[FileColumn], layout: RowLayout) -> pa.Table:
        """Read the rows.

        Raises:
            InputError: the file cannot be read, or its footer is wrong.
        """
        table = rows_of_group(self.group, columns)
        keys = layout.keys(table)
        low, high = int(keys.min()), int(keys.max())
        if low < self.group.low or high > self.group.high:
            raise self._wrong()
        self._check_times(table, columns)
        if low >= self.low and high <= self.high:
            return table
        return table.filter(pa.array((keys >= self.low) & (keys <= self.high)))

    def _check_times(self, table: pa.Table, columns: Sequence[FileColumn]) -> None:
        for column in columns:
            latest = self.group.latest.get(column.name)
            found = None if latest is None else pc.max(table.column(column.alias).cast(pa.int64())).as_py()
            if latest is not None and found is not None and found > latest:
                raise self._wrong()

    def _wrong(self) -> InputError:
        return InputError(
            f"{self.group.path}: the statistics in the footer are wrong: row group {self.group.number} has values "
            "beyond those that they name; write the file again, or read it by way of df.where('true')"
        )


Part = tuple[Share, ...]


def chunks_of(
    part: Part, columns: Sequence[FileColumn], layout: RowLayout, fewest_rows: int = _CHUNK_ROWS
) -> Iterator[pa.Table]:
    """Yield the rows of a part, some at a time: of each partition, those with smaller keys first.

    Args:
        fewest_rows: how many are yielded at a time, unless fewer can be.

    Raises:
        InputError: a file cannot be read.
    """
    held: list[pa.Table] = []
    for place, share in enumerate(part):
        rows = share.rows(columns, layout)
        held += [rows] if len(rows) else []
        following = part[place + 1] if place + 1 < len(part) else None
        last = following is None or following.group.partition != share.group.partition
        if not held or (not last and sum(map(len, held)) < fewest_rows):
            continue
        table, held = pa.concat_tables(held), []
        if following is not None and not last:
            ready = layout.keys(table) < following.low
            if not ready.all():
                mask = pa.array(ready)
                held = [table.filter(pc.invert(mask))]
                table = table.filter(mask)
        if len(table):
            yield table


def parts_of(groups: Sequence[RowGroup], tasks: int) -> tuple[Part, ...] | None:
    """Divide row groups into parts that can be read one after the other; None if they are not in order.

    Rows of one key stay together, because their content decides their order.

    Args:
        tasks: how many run at once.
    """
    if any(group.keys is None for group in groups):
        return None
    if any(group.partition is None for group in groups):
        groups = [replace(group, partition=None) for group in groups]
    ordered = sorted(groups, key=lambda one: (one.partition or 0, one.low, one.high, one.path, one.number))
    total = sum(group.rows for group in ordered)
    count = min(len(ordered), max(tasks, -(-total // _PART_ROWS)))
    homes, before = [], 0
    for group in ordered:
        homes.append((before + group.rows // 2) * count // total)
        before += group.rows
    firsts = {home: ordered[place] for place, home in reversed([*enumerate(homes)])}
    parts: dict[int, list[Share]] = {home: [] for home in sorted(firsts)}
    for group, home in zip(ordered, homes, strict=True):
        after = None
        for part in (one for one in parts if one >= home):
            following = next((firsts[one] for one in parts if one > part), None)
            upto = None
            if following is not None and following.partition == group.partition:
                edge = following.low - 1
                upto = edge if group.high > edge else None
            parts[part].append(Share(group, after, upto))
            if upto is None:
                break
            after = upto
    shares = [share for part in parts.values() for share in part]
    again = sum(share.group.rows for share in shares) - total
    few = total <= _FEW_ROWS and len(shares) <= _FEW_GROUPS
    if again > _READ_AGAIN * total and not few:
        return None
    found = tuple(
        tuple(sorted(part, key=lambda one: (one.group.partition or 0, one.low, one.high))) for part in parts.values()
    )
    return found if all(_fits(part) for part in found) else None


def _fits(part: Part) -> bool:
    """Return whether the rows that `chunks_of` holds at a time fit into memory."""
    held: list[Share] = []
    for share in part:
        partition = share.group.partition
        held = [one for one in held if one.group.partition == partition and one.high >= share.low]
        held.append(share)
        rows = sum(one.group.rows for one in held)
        if rows > _MOST_HELD_ROWS or sum(one.group.bytes for one in held) > _MOST_HELD_BYTES:
            return False
    return True


# what is known of each part
# ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimelineSummary:
    """What the events of a timeline in a part mean for those in later parts."""

    scan: ScanSummary = field(default_factory=ScanSummary)
    steps: ArrivalSteps = field(default_factory=ArrivalSteps)

    def then(self, later: TimelineSummary, policy: Policy) -> TimelineSummary:
        """Return the summary of these events and those that follow."""
        return TimelineSummary(self.scan.then(later.scan, policy), self.steps.after(later.steps))


Summaries = dict[str, TimelineSummary]
"""By partition."""


@dataclass(frozen=True, slots=True)
class Times:
    """What is read to sum up a part.

    Attributes:
        layout: of the columns; the first of its order decides.
        paths: fields to decode.
        bounded: the columns in the files of the events' times and arrivals, if nothing else decides; else None.
    """

    layout: RowLayout
    columns: tuple[FileColumn, ...]
    paths: tuple[tuple[str, ...], ...]
    bounded: tuple[str, str] | None = None

    def bounds(self, shares: Sequence[Share]) -> Iterator[tuple[int, ScanSummary]]:
        """Yield, for each share, what the keys and the summaries of it and of those before it do not exceed."""
        assert self.bounded is not None
        key = time = arrival = NO_TIME
        for share in shares:
            times = [share.group.latest.get(name) for name in self.bounded]
            in_ticks = [END_OF_TIME if one is None else one * _TICKS_PER_MICROSECOND for one in times]
            key, time, arrival = max(key, share.high), max(time, in_ticks[0]), max(arrival, in_ticks[1])
            yield key, ScanSummary(time, arrival, arrival)

    def partitions(self, shares: Sequence[Share]) -> frozenset[str] | None:
        """Return all partitions that there may be among the rows; None if the footers do not say, or say too many."""
        if all(column.alias != "partition" for column in self.columns):
            return frozenset({"0"})
        known = [share.group.partitions for share in shares]
        ranges = [one for one in known if one is not None]
        if len(ranges) < len(known) or any(last - first >= _MOST_PARTITIONS for first, last in ranges):
            return None
        return frozenset(str(one) for first, last in {*ranges} for one in range(first, last + 1))


@dataclass(frozen=True, slots=True)
class SummaryStage:
    """Sums up parts; its rows are numbers of parts."""

    query: QueryOnShards
    name: str
    times: Times
    parts: tuple[Part, ...]

    @property
    def __name__(self) -> str:
        """The name that Spark's plans and UI show."""
        return f"times_of_{self.times.layout.input}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows_of_task(self._rows(batches))

    def of_others(self, part: int) -> list[Summaries]:
        """Return the summary of each part, with nothing for this one, which does not need it.

        Raises:
            InputError: a file cannot be read.
        """
        return [{} if number == part else self._summaries(number) for number in range(len(self.parts))]

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = len(self.parts)
        for batch in batches:
            for part in batch.column(0).to_pylist():
                blob = pickle.dumps(self._summaries(part), protocol=5)
                columns = [range(count), [part] * count, [blob] * count]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(values, one.type) for values, one in zip(columns, _ARROW, strict=True)], schema=_ARROW
                )

    def _summaries(self, number: int) -> Summaries:
        part = self.parts[number]
        if self.times.bounded is None:
            return self._sum(part)
        found: Summaries = {}
        for _, shares in groupby(part, key=lambda share: share.group.partition):
            found |= self._of_ends(tuple(shares), begins=number == 0, ends=number + 1 == len(self.parts))
        return found

    def _of_ends(self, part: Part, *, begins: bool, ends: bool) -> Summaries:
        """Sum up a part by its ends, as far as others need it.

        Args:
            begins, ends: whether no part is before it, and none after it.
        """
        partitions = self.times.partitions(part)
        if partitions is None or len(part) == 1:
            return self._sum(part)
        last, unread = ({}, len(part)) if ends else self._tail(part, partitions)
        if not unread:
            return last
        first = {} if begins else self._sum(part, partitions)
        # Events out of order are counted by those who read them. For later parts, it is enough that there are as many
        # of the events between the ends as at the ends.
        rows = sum(share.group.rows for share in part)
        read = sum(one.steps.events for of_end in (first, last) for one in of_end.values())
        nothing = TimelineSummary()
        found = {}
        for name in dict.fromkeys((*first, *last)):
            scan = last.get(name, nothing).scan
            steps = first.get(name, nothing).steps.after(last.get(name, nothing).steps)
            events, back = (count * max(rows, read) // read for count in (steps.events, steps.back))
            found[name] = TimelineSummary(scan, replace(steps, events=events, back=back))
        return found

    def _tail(self, part: Part, partitions: frozenset[str]) -> tuple[Summaries, int]:
        """Sum up the rows from the end on that decide what later parts need, and return how many shares are not read.

        Args:
            partitions: all that there may be.
        """
        policy = own_policy(self.query.program.value(), self.name, self.query.policy)
        found: Summaries = {}
        stop = len(part)
        bounds = [*self.times.bounds(part)]
        for place in range(len(part) - 1, 0, -1):
            key, bound = bounds[place - 1]
            if key > part[place].low:
                continue  # rows of the shares before come after some of these
            found = _joined(self._sum(part[place:stop]), found, policy)
            stop = place
            if partitions <= found.keys() and all(one.scan.outweighs(bound, policy) for one in found.values()):
                return found, place
        return _joined(self._sum(part[:stop]), found, policy), 0

    def _sum(self, part: Part, enough: frozenset[str] | None = None) -> Summaries:
        """Sum up the rows of a part; of all if not only until there are some of ``enough`` partitions."""
        program, layout = self.query.program.value(), self.times.layout
        policy = own_policy(program, self.name, self.query.policy)
        side = TaskSide(program)
        found: Summaries = {}
        for chunk in chunks_of(part, self.times.columns, layout, _CHUNK_ROWS if enough is None else 1):
            for partition, rows, _ in sorted_by_partition(chunk, layout):
                before = found.get(partition, TimelineSummary())
                events = layout.events(partition, rows, 0)
                batch = side.decode_times(self.name, partition, events, self.times.paths)
                times, valid = (batch.arrivals, None) if batch.times is None else batch.times
                latest = np.maximum.accumulate(events.arrivals)
                scan = ScanSummary.of(times, batch.arrivals, policy, valid, latest[batch.decoded.events])
                scan = scan.then(ScanSummary(arrival=int(latest[-1])), policy)
                found[partition] = TimelineSummary(before.scan.then(scan, policy), before.steps.then(events.arrivals))
            if enough is not None and enough <= found.keys():
                break
        return found


def _joined(earlier: Summaries, later: Summaries, policy: Policy) -> Summaries:
    nothing = TimelineSummary()
    return {
        name: earlier.get(name, nothing).then(later.get(name, nothing), policy)
        for name in dict.fromkeys((*earlier, *later))
    }


def own_policy(program: Program, name: str, policy: Policy) -> Policy:
    """Return the policy by which an input is stamped: that of arrivals if they are the times."""
    return policy if program.has_event_time(name) else Policy.arrival_time()


# parts
# ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartStage:
    """Reads parts and evaluates their events; its rows are the summaries of all parts, for each part.

    Attributes:
        name: of the input in the program.
        summaries: sums up the other parts in each task, whose rows are then numbers of parts; None if rows bring that.
    """

    query: QueryOnShards
    name: str
    layout: RowLayout
    columns: tuple[FileColumn, ...]
    parts: tuple[Part, ...]
    summaries: SummaryStage | None = None

    @property
    def __name__(self) -> str:
        """The name that Spark's plans and UI show."""
        return f"parts_of_{self.layout.input}"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows_of_task(self._rows(batches))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        summaries: dict[int, dict[int, Summaries]] = {}
        for batch in batches:
            if self.summaries is not None:
                for part in batch.column(0).to_pylist():
                    yield from PartRun(self, part, self.summaries.of_others(part)).rows()
                continue
            for part, sender, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                summaries.setdefault(part, {})[sender] = pickle.loads(blob)
        for part, of_parts in sorted(summaries.items()):
            yield from PartRun(self, part, [of_parts[sender] for sender in range(len(self.parts))]).rows()


class PartRun:
    """One part, from its first event to its last."""

    def __init__(self, place: PartStage, part: int, summaries: Sequence[Mapping[str, TimelineSummary]]) -> None:
        self._place = place
        self._part = part
        self._summaries = summaries
        self._policy = own_policy(place.query.program.value(), place.name, place.query.policy)
        self._runs: dict[str, TimelineRun] = {}
        self._orders: dict[str, ArrivalOrder] = {}
        self._firsts: dict[str, int] = {}

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the parcels of all timelines, as rows."""
        place, layout = self._place, self._place.layout
        for chunk in chunks_of(place.parts[self._part], place.columns, layout):
            for partition, rows, _ in sorted_by_partition(chunk, layout):
                for first in range(0, len(rows), _BATCH_ROWS):
                    events = self._events(partition, rows.slice(first, _BATCH_ROWS))
                    yield from rows_of(self._runs[partition].take(events, self._most_events()))
        for partition, run in self._runs.items():
            yield from rows_of(run.finish(self._end(partition)))

    def _most_events(self) -> int:
        """Return how many events of a timeline to hold: few of each if there are many."""
        known = max(1, len(self._runs), *map(len, self._summaries))
        return min(max(_FEWEST_EVENTS, _EVENTS_HELD // known), self._place.query.parcel_events)

    def _events(self, partition: str, rows: pa.Table) -> Events:
        layout = self._place.layout
        if partition not in self._runs:
            self._begin(partition)
        events = layout.events(partition, rows, self._firsts[partition])
        if partition in self._orders:
            self._orders[partition].check(events)
        self._firsts[partition] += len(rows)
        return events

    def _begin(self, partition: str) -> None:
        earlier = [of_part[partition] for of_part in self._summaries[: self._part] if partition in of_part]
        carry, steps = Carry(), ArrivalSteps()
        for summary in earlier:
            carry, steps = summary.scan.after(carry, self._policy), steps.after(summary.steps)
        place = self._place
        beginning = Beginning(carry, carry.arrival, self._part << 32) if earlier else None
        self._runs[partition] = TimelineRun(place.query, (place.name, partition), beginning)
        self._firsts[partition] = steps.events
        if place.layout.ordered:
            self._orders[partition] = ArrivalOrder(place.layout.input, partition, steps)

    def _end(self, partition: str) -> PartitionEnd:
        later = (of_part[partition] for of_part in self._summaries[self._part + 1 :] if partition in of_part)
        following = next(later, None)
        if following is None:
            return PartitionEnd(0, 0, END_OF_TIME, complete=True)
        return PartitionEnd(0, 0, following.steps.first)


# which files
# ------------------------------------------------------------------------------------------------------


def stages_for(
    layout: RowLayout, files: ParquetFiles, query: QueryOnShards, name: str, tasks: int
) -> tuple[SummaryStage, PartStage] | None:
    """Return what sums up and reads the parts of files; None if they are not in order, or the query does not allow it.

    Args:
        name: of the input in the program.
        tasks: how many run at once.
    """
    program = query.program.value()
    mention = program.reading(name).mention
    # Rows that do not fit CREATE TABLE, or have a value that no type can represent, are found in all columns alone.
    if layout.fields is None or layout.order is None or mention.over or mention.declared is not None:
        return None
    need = program.need(name)
    by_time = program.need_of_time(name)
    if need.record or by_time.record or by_time.metadata:
        return None
    parts = parts_of(files.groups, tasks)
    if parts is None:
        return None
    alias_of = {column.lower(): f"field{place}" for place, column in enumerate(layout.fields)}
    paths = [
        path
        for low, path in need.paths.items()
        if low in by_time.paths or len(path) > 1 or alias_of.get(low[0]) in files.unproven
    ]
    fields = tuple(
        dict.fromkeys(column for path in paths for column in layout.fields if column.lower() == path[0].lower())
    )
    aliases = {alias_of[column.lower()]: f"field{place}" for place, column in enumerate(fields)}
    columns = tuple(
        replace(column, alias=aliases.get(column.alias, column.alias))
        for column in files.columns
        if column.alias in aliases or not column.is_field
    )
    narrow = replace(layout, fields=fields, details=(), order=layout.order[: 1 + layout.numbered])
    times = Times(narrow, columns, tuple(paths), _bounded(layout, files, mention.timestamp_by))
    return SummaryStage(query, name, times, parts), PartStage(query, name, layout, files.columns, parts)


def _bounded(layout: RowLayout, files: ParquetFiles, by: plan.Expr | None) -> tuple[str, str] | None:
    """Return `Times.bounded`. Events that are numbered as they come have to be counted."""
    if not layout.numbered or layout.fields is None:
        return None
    aliases = ["arrival"]
    if by is not None:
        name = by.path[0].lower() if isinstance(by, plan.Column) and len(by.path) == 1 else None
        aliases = [f"field{place}" for place, column in enumerate(layout.fields) if column.lower() == name]
    found = [column for column in files.columns if column.alias in aliases and pa.types.is_timestamp(column.type)]
    arrival = next(column.name for column in files.columns if column.alias == "arrival")
    return (found[0].name, arrival) if len(found) == 1 else None
