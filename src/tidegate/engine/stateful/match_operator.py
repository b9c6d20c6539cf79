"""MATCH_RECOGNIZE over a stream: rows wait until every match that begins with them is known.

Definitions that depend on a row alone are evaluated in the task, once for each row; those that depend on earlier rows
of the match are evaluated for all threads of a search together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tidegate.engine.expressions.evaluation import evaluate, temporal_alias
from tidegate.engine.expressions.frames import Frame, NamedColumns
from tidegate.engine.expressions.relations import Failures
from tidegate.engine.functions.operators import is_true
from tidegate.engine.stateful.match import Automaton, Matches, Search, Slot, Test
from tidegate.engine.substreams.watermarks import Waiting, Watermark
from tidegate.engine.values.grouping import group, ordered_keys, unified
from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array, Kind, Vector
from tidegate.engine.windows.held_rows import kept, with_keys_of
from tidegate.ordering import END_OF_TIME
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.patterns import lengths_of
from tidegate.sql.plan.walking import parts_in

_FUNCTIONS = {"first": "first", "last": "last", "min": "least", "max": "greatest"}


@dataclass(slots=True)
class MatchState:
    """Rows that wait for the watermark, rows that an unknown match may begin with, and matches that wait.

    Attributes:
        count: how many rows have been numbered.
    """

    waiting: Waiting[Frame] = field(default_factory=Waiting)
    held: Waiting[Frame] = field(default_factory=Waiting)
    count: int = 0
    results: Waiting[Frame] = field(default_factory=Waiting)


class MatchOperator:
    """The matches of a source."""

    def __init__(self, relation: plan.Match) -> None:
        self.relation = relation
        self.sources = (relation.source,)
        least, most = lengths_of(relation.pattern)
        self._length = least if least == most else None
        self._limit = relation.limit_ticks
        self.tied = False
        # A match that may continue is not known yet: until it cannot, any of them may be the preferred one.
        self.delay_ticks = 0 if self._length is not None else self._limit
        self._automaton = Automaton.of(relation.pattern)
        self._alias = temporal_alias(relation.alias)
        self._alone = [each for each in relation.definitions if not _asks_for_rows_before(each[1])]
        self._together = [each for each in relation.definitions if _asks_for_rows_before(each[1])]
        self._classify = any(call.function == "classifier" for call in relation.calls)
        self._remembered = [(index, call.value) for index, call in enumerate(relation.calls) if call.value is not None]

    def new_state(self) -> MatchState:
        """Return an empty state."""
        return MatchState()

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Frame | None:
        """Return rows with their keys, the definitions that depend on them alone, and the values that calls need."""
        keys = tuple(evaluate(key, frame) for key in self.relation.partition_by)
        values = tuple(self._value(self.relation.calls[index], frame) for index, _ in self._remembered)
        fine = failures.without(frame, [*keys, *values])
        if fine is not None:
            places = np.flatnonzero(fine)
            frame = frame.take(places)
            keys, values = tuple(key.take(places) for key in keys), tuple(value.take(places) for value in values)
        tests = tuple(_passing(condition, frame, failures) for _, condition in self._alone)
        sources = frame.sources if self._together else {}
        held = Frame(frame.times, sources, keys, (*tests, *values), order=frame.order, ties=frame.ties)
        return held if len(held) else None

    def _value(self, call: plan.MatchCall, frame: Frame) -> Vector:
        """Return the value of a call; of a row that cannot be of its variable, NULL instead of a failure."""
        assert call.value is not None
        values = evaluate(call.value, frame)
        condition = next((condition for name, condition in self._alone if name == call.variable), None)
        if condition is None or Kind.ERROR not in values.present():
            return values
        return values.with_kinds(np.where(is_true(evaluate(condition, frame)), values.kinds, np.uint8(Kind.NULL)))

    def absorb(self, state: MatchState, side: int, payload: Frame) -> None:
        """Add rows to the state."""
        state.waiting.append(payload)

    def release_rows(self, state: MatchState, watermark: Watermark, failures: Failures) -> Frame | None:
        """Return the matches whose last row is before the watermark less `delay_ticks`, by that row, then by the first.

        There is one watermark for all rows: no substream's matches are complete before those of the others.
        """
        assert isinstance(watermark, int)
        new = state.waiting.take_before(watermark)
        if new is not None:
            new = new.in_shards_order() if self.tied else new.in_order()
            new = new.with_order((state.count + np.arange(len(new)),))
            state.count += len(new)
        held = self._take_changed(state, new, watermark)
        if held is not None:
            groups = group(len(held), [unified(key) for key in held.keys])
            sequences = Sequences.of(groups.codes, groups.count)
            known = self._known(held.times, sequences, watermark)
            for results in self._matches(held, sequences, np.flatnonzero(known), failures):
                state.results.append(results)
            waiting = np.zeros(len(held), dtype=np.bool_)
            waiting[sequences.rows[~known]] = True
            if (still := kept(held, waiting)) is not None:
                state.held.append(still)
        complete = watermark if watermark == END_OF_TIME else watermark - self.delay_ticks
        ready = state.results.take_before(complete)
        return None if ready is None else ready.in_order().without_order()

    def _take_changed(self, state: MatchState, new: Frame | None, watermark_ticks: int) -> Frame | None:
        """Hold new rows, and remove and return all rows of keys in which a match may have become known.

        A match of a fixed length may become known by a row that follows; any match does once its limit has passed.
        """
        if new is not None:
            state.held.append(new)
        due = state.held.choose(lambda part: self._is_due(part.table.times, watermark_ticks))
        changed = [rows for rows in (due, None if self._length is None else new) if rows is not None]
        return state.held.take_chosen(with_keys_of(state.held, lambda table: table.keys, changed)) if changed else None

    def _is_due(self, times: Int64Array, watermark_ticks: int) -> BoolArray:
        """Return bool[n]: whether all rows that a match from there may contain have arrived, however many follow."""
        if watermark_ticks == END_OF_TIME:
            return np.ones(len(times), dtype=np.bool_)
        due: BoolArray = times <= watermark_ticks - self._limit
        return due

    def _known(self, times: Int64Array, sequences: Sequences, watermark_ticks: int) -> BoolArray:
        """Return bool[places]: whether all rows that a match from there may contain have arrived."""
        known = self._is_due(times[sequences.rows], watermark_ticks)
        if watermark_ticks != END_OF_TIME and self._length is not None:
            # How many rows of the same key follow, this one included.
            last = np.arange(len(sequences)) + self._length - 1
            within = np.flatnonzero(last < len(sequences))
            known[within] |= sequences.keys[last[within]] == sequences.keys[within]
        return known

    def _matches(self, held: Frame, sequences: Sequences, places: Int64Array, failures: Failures) -> list[Frame]:
        if not len(places):
            return []
        tests: dict[str, Test] = {name: is_true(held.aggregates[index]) for index, (name, _) in enumerate(self._alone)}
        for name, condition in self._together:
            tests[name] = self._test(held, condition, failures)
        search = Search(self._automaton, tests, self._slots(held), sequences, held.times, self._limit)
        found = search.run(places, classify=self._classify)
        if not len(found.firsts):
            return []
        ends = Frame(
            held.times[found.lasts],
            order=tuple(column[found.firsts] for column in held.order),
            ties=tuple(column.take(found.firsts) for column in held.ties),
        )
        called = ends.with_sources({self._alias: self._called(held, found.memory, found)})
        measures = [evaluate(item.expr, called) for item in self.relation.measures]
        fine = failures.without(called, measures)
        names = tuple(item.name for item in self.relation.measures)
        results = called.with_sources({self.relation.alias.lower(): NamedColumns(names, tuple(measures))})
        return [results if fine is None else results.take(np.flatnonzero(fine))]

    def _test(self, held: Frame, condition: plan.Expr, failures: Failures) -> Test:
        """Return a definition as a test of rows and of what is remembered of earlier rows."""

        def test(rows: Int64Array, memory: Int64Array) -> BoolArray:
            frame = replace(held, keys=(), aggregates=(), order=()).take(rows)
            called = self._called(held, memory, None)
            frame = frame.with_sources({**frame.sources, self._alias: called})
            return is_true(_passing(condition, frame, failures))

        return test

    def _slots(self, held: Frame) -> list[Slot]:
        slots = []
        for place, (index, _) in enumerate(self._remembered):
            call = self.relation.calls[index]
            function = _FUNCTIONS[call.function]
            if function in ("least", "greatest"):
                values = held.aggregates[len(self._alone) + place]
                slots.append(Slot(function, call.variable, ordered_keys(values), values.kinds != Kind.NULL))
            else:
                slots.append(Slot(function, call.variable))
        return slots

    def _called(self, held: Frame, memory: Int64Array, found: Matches | None) -> NamedColumns:
        """Return the values of all calls; those of Classifier only for whole matches."""
        vectors: dict[int, Vector] = {}
        for place, (index, _) in enumerate(self._remembered):
            values = held.aggregates[len(self._alone) + place]
            rows = memory[:, place]
            vectors[index] = Vector.concat([values, Vector.nulls(1)]).take(np.where(rows < 0, len(values), rows))
        for index, call in enumerate(self.relation.calls):
            if call.function == "classifier":
                vectors[index] = Vector.nulls(len(memory)) if found is None else Vector.of(found.classifiers)
        numbers = sorted(vectors)
        return NamedColumns(tuple(map(str, numbers)), tuple(vectors[number] for number in numbers))


def _asks_for_rows_before(condition: plan.Expr) -> bool:
    return any(isinstance(part, plan.TemporalRef) for part in parts_in(condition))


def _passing(condition: plan.Expr, frame: Frame, failures: Failures) -> Vector:
    """Return which rows pass a condition; a row for which it fails is counted, and does not pass."""
    values = evaluate(condition, frame)
    fine = failures.without(frame, [values])
    return values if fine is None else values.with_kinds(np.where(fine, values.kinds, np.uint8(Kind.NULL)))
