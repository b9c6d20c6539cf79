"""The meaning of a query over a whole log, from the rules alone.

Rules: docs/reference/query.md and the pages it cites. One order holds wherever rows of one time are told apart:
(System.Timestamp, arrival, partition, sequence number). Slow on purpose: windows are looked at instant by instant and
joins pair by pair.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tests.oracle.queries import (
    Aggregate,
    AsText,
    Before,
    Both,
    Column,
    Comparison,
    Condition,
    Expression,
    Group,
    Input,
    IsNull,
    Join,
    Match,
    Plus,
    Query,
    ReferenceJoin,
    Relation,
    Select,
    Source,
    Timestamp,
    Union,
    Window,
)
from tests.oracle.values import (
    TICKS_PER_SECOND,
    Value,
    are_equal,
    compare,
    first_spelling,
    key_of,
    since_1970,
    since_year_1,
)
from tests.ordering.oracle import Partition
from tidegate.ordering import Policy


@dataclass(frozen=True)
class Event:
    """One event of an input as it arrived; ``time`` None where the body has none that can be read."""

    partition: int
    sequence_number: int
    arrival: int
    time: int | None
    body: dict[str, Value]


@dataclass(frozen=True)
class Row:
    """A row at a time (ticks since 1970); `place` orders rows of one time, and is empty where nothing defines it."""

    time: int
    place: tuple[int, ...]
    values: Mapping[str, Value]

    @property
    def order(self) -> tuple[int, tuple[int, ...]]:
        return self.time, self.place


Rows = list[Row]


@dataclass
class Evaluation:
    """A query, its inputs, and what has been computed of it."""

    policy: Policy
    events: Mapping[str, Sequence[Event]]
    names: Sequence[Mapping[str, Value]]
    steps: dict[str, Rows]
    inputs: dict[Input, Rows]
    metrics: Counter[str]

    def rows_of(self, source: Source) -> Rows:
        if not isinstance(source, Input):
            return self.steps[source.name]
        if source not in self.inputs:
            self.inputs[source] = self._stamped(source)
        return self.inputs[source]

    def _stamped(self, source: Input) -> Rows:
        """Return the events that the policy lets pass, at their System.Timestamp; arrival time knows no policy."""
        partitions: dict[int, Partition] = {}
        rows = []
        for event in self.events[source.name]:
            values = {"k": None, "v": None, "s": None, "c": None, **event.body, "PartitionId": event.partition}
            place = (event.arrival, event.partition, event.sequence_number)
            if not source.by_time:
                rows.append(Row(event.arrival, place, values))
                continue
            timeline = partitions.setdefault(event.partition, Partition(self.policy))
            keys = [values[name] for name in source.over]
            key = None if None in keys else tuple(key_of(one) for one in keys)
            verdict = timeline.event(event.time, event.arrival, key)
            self.metrics.update(verdict.reasons)
            if verdict.system_timestamp is not None:
                rows.append(Row(verdict.system_timestamp, place, values))
        return sorted(rows, key=lambda row: row.order)


def evaluate(
    query: Query, events: Mapping[str, Sequence[Event]], names: Sequence[Mapping[str, Value]], policy: Policy
) -> tuple[dict[str, Rows], Counter[str]]:
    """Return the rows of each output, in no defined order, and how many events each rule of the policy touched."""
    evaluation = Evaluation(policy, events, names, {}, {}, Counter())
    for name, relation in query.steps:
        evaluation.steps[name] = sorted(_relation(evaluation, relation), key=lambda row: row.order)
    return {name: _relation(evaluation, relation) for name, relation in query.outputs}, evaluation.metrics


def _relation(evaluation: Evaluation, relation: Relation) -> Rows:
    match relation:
        case Select():
            return _select(evaluation.rows_of(relation.source), relation)
        case Group():
            return _group(evaluation.rows_of(relation.source), relation)
        case Join():
            return _join(evaluation.rows_of(relation.left), evaluation.rows_of(relation.right), relation)
        case ReferenceJoin():
            return _reference_join(evaluation.rows_of(relation.source), evaluation.names, relation)
        case Union():
            both = [*evaluation.rows_of(relation.left), *evaluation.rows_of(relation.right)]
            return [Row(row.time, (), {"k": row.values["k"], "v": row.values["v"]}) for row in both]
        case Match():
            return _match(evaluation.rows_of(relation.source), relation)


# Expressions -----------------------------------------------------------------------------------------------------


def holds(condition: Condition | None, values: Mapping[str, Value]) -> bool:
    """Return whether a condition is true: what is NULL is not."""
    return condition is None or _truth(condition, values) is True


def _truth(condition: Condition, values: Mapping[str, Value]) -> bool | None:
    match condition:
        case Comparison(column, operator, constant):
            return compare(operator, values[column], constant)
        case IsNull(column, negated):
            return (values[column] is None) != negated
        case Both(operator, left, right):
            truths = _truth(left, values), _truth(right, values)
            decisive = operator == "OR"
            if decisive in truths:
                return decisive
            return None if None in truths else not decisive


def _value(expression: Expression, rows: Rows, index: int) -> Value:
    row = rows[index]
    match expression:
        case Column(name):
            return row.values[name]
        case Timestamp():
            return Time(row.time)
        case Plus(column, constant):
            return None if row.values[column] is None else row.values[column] + constant
        case AsText(name):
            return row.values[name]
        case Before():
            return _before(expression, rows, index)


@dataclass(frozen=True)
class Time:
    """A datetime of the query, in ticks since 1970."""

    ticks: int


def _before(call: Before, rows: Rows, index: int) -> Value:
    row = rows[index]
    own = _keys(call.partition_by, row)
    span = call.seconds * TICKS_PER_SECOND
    if call.function == "ISFIRST":
        interval = (since_year_1(row.time) - 1) // span
        earlier = [
            other
            for other in rows[:index]
            if _keys(call.partition_by, other) == own and (since_year_1(other.time) - 1) // span == interval
        ]
        return int(holds(call.when, row.values) and not any(holds(call.when, other.values) for other in earlier))
    limit = row.time - span
    recent = [
        other
        for other in rows[: index + 1]
        if _keys(call.partition_by, other) == own and other.time > limit and holds(call.when, other.values)
    ]
    match call.function:
        case "LAG":
            before = [other for other in recent if other is not row]
            return before[-call.offset].values[call.column] if len(before) >= call.offset else None
        case "LAST":
            return recent[-1].values[call.column] if recent else None
    return _aggregate(Aggregate(call.function, call.column, as_text=call.as_text), recent)


def _keys(names: Sequence[str], row: Row) -> tuple[Any, ...]:
    return tuple(key_of(row.values[name]) for name in names)


# Relations -------------------------------------------------------------------------------------------------------


def _select(rows: Rows, select: Select) -> Rows:
    return [
        Row(row.time, row.place, {name: _value(expression, rows, index) for name, expression in select.items})
        for index, row in enumerate(rows)
        if holds(select.where, row.values)
    ]


def _group(rows: Rows, group: Group) -> Rows:
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        if holds(group.where, row.values):
            groups.setdefault(_keys(group.keys, row), []).append(row)
    results = []
    for members in groups.values():
        for window in group.windows:
            for end, inside in WINDOWS[window.kind](members, window):
                if group.having is not None and len(inside) < group.having:
                    continue
                values = {name: first_spelling(row.values[name] for row in inside) for name in group.keys}
                values |= {name: _aggregate(aggregate, inside) for name, aggregate in group.aggregates}
                if window.id is not None:
                    values["w"] = window.id
                results.append(Row(end, (), values))
    return results


def _join(left: Rows, right: Rows, join: Join) -> Rows:
    results = []
    for one in left:
        met = [
            other
            for other in right
            if all(are_equal(one.values[key], other.values[key]) for key in join.keys)
            and join.low <= _seconds_between(one.time, other.time) <= join.high
        ]
        pairs = [(max(one.time, other.time), other.values) for other in met]
        if join.is_left and not met:
            pairs = [(max(one.time, one.time + join.high * TICKS_PER_SECOND), {"k": None, "v": None})]
        results += [
            Row(time, (), {"k": one.values["k"], "v": one.values["v"], "rk": other["k"], "w": other["v"]})
            for time, other in pairs
            if not join.only_unmatched or other["v"] is None
        ]
    return results


def _seconds_between(start: int, end: int) -> int:
    """Return DATEDIFF(second, start, end): how many full seconds are crossed."""
    return since_year_1(end) // TICKS_PER_SECOND - since_year_1(start) // TICKS_PER_SECOND


def _reference_join(rows: Rows, names: Sequence[Mapping[str, Value]], join: ReferenceJoin) -> Rows:
    results = []
    for row in rows:
        labels = [name["label"] for name in names if are_equal(row.values["k"], name["k"])]
        for label in labels or ([None] if join.is_left else []):
            results.append(Row(row.time, (), {"k": row.values["k"], "v": row.values["v"], "label": label}))
    return results


def _match(rows: Rows, match: Match) -> Rows:
    results = []
    sequences: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        sequences.setdefault(_keys(match.partition_by, row), []).append(row)
    for sequence in sequences.values():
        for start in range(len(sequence)):
            found = _longest(sequence, start, match)
            if found:
                values: dict[str, Value] = {}
                for name, _ in match.pattern:
                    own = [row for row, whose in found if whose == name]
                    values[f"f{name}"] = own[0].values["v"] if own else None
                    values[f"l{name}"] = own[-1].values["v"] if own else None
                results.append(Row(found[-1][0].time, (), values))
    return results


def _longest(sequence: Rows, start: int, match: Match) -> list[tuple[Row, str]]:
    """Return the preferred match that begins at a row: one repetition more before one fewer."""
    define = dict(match.define)
    limit = sequence[start].time + match.seconds * TICKS_PER_SECOND

    def fits(index: int, name: str) -> bool:
        within = index < len(sequence) and sequence[index].time < limit
        return within and holds(define.get(name), sequence[index].values)

    def search(index: int, part: int, repeated: int) -> list[tuple[Row, str]] | None:
        if part == len(match.pattern):
            return []
        name, quantifier = match.pattern[part]
        if fits(index, name) and (repeated == 0 or quantifier in ("*", "+")):
            rest = search(index + 1, part, repeated + 1)
            if rest is not None:
                return [(sequence[index], name), *rest]
        return search(index, part + 1, 0) if repeated or quantifier in ("*", "?") else None

    return search(start, 0, 0) or []


# Windows ---------------------------------------------------------------------------------------------------------


def _tumbling(rows: Rows, window: Window) -> Iterator[tuple[int, Rows]]:
    return _hopping(rows, Window("hopping", window.size, window.size, window.offset))


def _hopping(rows: Rows, window: Window) -> Iterator[tuple[int, Rows]]:
    """A window ends at every multiple of the hop (plus offset) and holds what is in (end − size, end]."""
    size, hop, offset = (seconds * TICKS_PER_SECOND for seconds in (window.size, window.hop, window.offset))
    ends = set()
    for row in rows:
        end = -(-(since_year_1(row.time) - offset) // hop) * hop + offset
        while end - size < since_year_1(row.time):
            ends.add(since_1970(end))
            end += hop
    for end in sorted(ends):
        yield end, [row for row in rows if end - size < row.time <= end]


def _sliding(rows: Rows, window: Window) -> Iterator[tuple[int, Rows]]:
    """A window (instant − size, instant] at every instant at which a row enters or leaves, unless it is empty."""
    size = window.size * TICKS_PER_SECOND
    for instant in sorted({row.time for row in rows} | {row.time + size for row in rows}):
        inside = [row for row in rows if instant - size < row.time <= instant]
        if inside:
            yield instant, inside


def _session(rows: Rows, window: Window) -> Iterator[tuple[int, Rows]]:
    """A session ends a timeout after its last row, or at a multiple of the longest duration, if it is that old."""
    timeout, longest = window.size * TICKS_PER_SECOND, window.hop * TICKS_PER_SECOND
    opened = last = rows[0].time
    members: Rows = []
    waiting = list(rows)
    while True:
        check = since_1970(-(-since_year_1(opened + longest) // longest) * longest)
        ends = min(check, last + timeout)
        # Rows at the instant of the end come first: at just the timeout a row extends its session.
        if waiting and waiting[0].time <= ends:
            row = waiting.pop(0)
            last = row.time
            members.append(row)
            continue
        if members:
            yield ends, members
        members = []
        if ends == last + timeout:
            if not waiting:
                return
            opened = last = waiting[0].time
        else:
            opened = check


def _snapshot(rows: Rows, _: Window) -> Iterator[tuple[int, Rows]]:
    for time in sorted({row.time for row in rows}):
        yield time, [row for row in rows if row.time == time]


WINDOWS: dict[str, Callable[[Rows, Window], Iterator[tuple[int, Rows]]]] = {
    "tumbling": _tumbling,
    "hopping": _hopping,
    "sliding": _sliding,
    "session": _session,
    "snapshot": _snapshot,
}

# Aggregates ------------------------------------------------------------------------------------------------------


def _aggregate(aggregate: Aggregate, rows: Rows) -> Value:
    if aggregate.order:
        return _ranked(aggregate, rows)
    if aggregate.column == "*":
        return len(rows)
    values = [row.values[aggregate.column] for row in rows]
    if aggregate.function in ("MIN", "MAX") and not aggregate.as_text:
        values = [json.loads(value.lstrip("0") or "0") if isinstance(value, str) else value for value in values]
    if aggregate.function == "COLLECT":
        return values
    values = [value for value in values if value is not None]
    floats = any(isinstance(value, float) for value in values)
    if aggregate.distinct:
        values = list({key_of(value): value for value in values}.values())
    if aggregate.function == "COUNT":
        return len(values)
    if not values:
        return None
    match aggregate.function:
        case "SUM":
            total = sum(Fraction(value) for value in values)
            return float(total) if floats else int(total)
        case "AVG":
            return float(sum(Fraction(value) for value in values) / len(values))
        case "MIN":
            return min(values, key=_place)
        case "MAX":
            return max(values, key=_place)
    return _spread(aggregate.function, [Fraction(value) for value in values])


def _place(value: Value) -> tuple[Any, ...]:
    """Return the place of a value among others: text without case first, and a bigint before an equal float."""
    return (value.lower(), value) if isinstance(value, str) else (value, isinstance(value, float))


def _spread(function: str, values: Sequence[Fraction]) -> Value:
    """Return VAR or STDEV, of a sample or (with P) of the population."""
    degrees = len(values) if function.endswith("P") else len(values) - 1
    if degrees < 1:
        return None
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / degrees
    return float(variance) if function.startswith("VAR") else math.sqrt(variance)


def _ranked(aggregate: Aggregate, rows: Rows) -> Value:
    """Return the row that TopOne finds first, or CollectTop's rows; NULL is the smallest, ties keep the order."""
    ordered = list(rows)
    for name, descending in reversed(aggregate.order):
        ordered.sort(key=lambda row: (row.values[name] is not None, row.values[name] or 0), reverse=descending)
    if aggregate.function == "TopOne":
        return dict(ordered[0].values)
    return [{"rank": rank, "value": dict(row.values)} for rank, row in enumerate(ordered[: aggregate.limit], start=1)]
