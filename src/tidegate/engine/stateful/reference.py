"""Reference data: tables that streams are joined with.
https://learn.microsoft.com/stream-analytics-query/reference-data-join-azure-stream-analytics

A table is a series of snapshots, each effective from a time until that of the next. A row is joined with the snapshots
effective at its System.Timestamp, so that the result depends on the row and the tables alone, whenever it is computed.
Relations over reference data alone (a step that filters a table) are computed once for each combination of snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.engine.decoding.decoded import Wanted
from tidegate.engine.decoding.formats import JSON, Format, decoder_of
from tidegate.engine.expressions.evaluation import evaluate
from tidegate.engine.expressions.frames import Columns, FieldColumns, Frame, MissingColumns
from tidegate.engine.expressions.relations import Evaluation, Failures, columns_of
from tidegate.engine.functions.operators import Comparison, compare, is_true
from tidegate.engine.stateful.joins import JoinKeys, keys_of_side, meet_always
from tidegate.engine.values.vectors import Int64Array, Vector
from tidegate.ordering import NO_TIME
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import relations_in

_MOST_PAIRS = 2**20


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The content of a table from a time on.

    Attributes:
        bodies: JSON objects, or any other bodies that events may have.
        effective_ticks: from when it is effective; NO_TIME for a table that never changes.
        format: the format of the bodies.
    """

    bodies: tuple[bytes, ...]
    effective_ticks: int = NO_TIME
    format: Format = JSON


class ReferenceTables:
    """The reference data of a query, and joins with it."""

    def __init__(
        self,
        tables: Mapping[str, Sequence[TableVersion]],
        mentions: Sequence[plan.Input],
        wanted: Callable[[str], Wanted],
    ) -> None:
        """
        Args:
            tables: by input name in lower case.
            mentions: the mentions of reference data in the query.
            wanted: what the query needs of an input.
        """
        self._tables: dict[str, list[tuple[int, FieldColumns, int]]] = {}
        for name in {mention.name.lower() for mention in mentions}:
            for snapshot in sorted(tables.get(name, ()), key=lambda one: one.effective_ticks):
                decoded = decoder_of(wanted(name), snapshot.format).decode(list(snapshot.bodies))
                columns = FieldColumns(decoded.fields, decoded.records)
                self._tables.setdefault(name, []).append((snapshot.effective_ticks, columns, len(decoded)))
        changes = {ticks for table in self._tables.values() for ticks, _, _ in table}
        self._epochs: Int64Array = np.array(sorted(changes | {NO_TIME}), dtype=np.int64)
        self._frames: dict[tuple[int, int], Frame | None] = {}

    def join(self, relation: plan.Join, left: Frame, failures: Failures) -> Frame | None:
        """Return the rows of a join with reference data, in the order of the left rows; None if there are none."""
        fine = failures.without(left, keys_of_side(relation, 0, left))
        if fine is not None:
            left = left.take(np.flatnonzero(fine))
        epochs = np.searchsorted(self._epochs, left.times, side="right") - 1
        present = np.flatnonzero(np.bincount(epochs)).tolist() if len(left) else []
        if len(present) == 1:
            return self._join_at(relation, left, present[0], failures)
        parts = []
        for epoch in present:
            rows = np.flatnonzero(epochs == epoch)
            numbered = left.take(rows).with_order((*left.take(rows).order, rows))
            part = self._join_at(relation, numbered, epoch, failures)
            if part is not None:
                parts.append(part)
        if not parts:
            return None
        depth = len(left.order)
        joined = Frame.concat(parts)
        joined = joined.take(np.argsort(joined.order[depth], kind="stable"))
        return joined.with_order((*joined.order[:depth], *joined.order[depth + 1 :]) if depth else ())

    def _join_at(self, relation: plan.Join, left: Frame, epoch: int, failures: Failures) -> Frame | None:
        """Return the join with the tables of one epoch."""
        right = self._frame(relation.right, epoch)
        if right is None:
            left_rows = right_rows = np.empty(0, dtype=np.int64)
        else:
            left_rows, right_rows = self._pairs(relation, left, right, failures)
        parts = []
        if right is not None and len(left_rows):
            parts.append(_beside(left, left_rows, right.take(right_rows).sources, right_rows))
        if relation.kind is plan.JoinKind.LEFT:
            alone = np.setdiff1d(np.arange(len(left)), left_rows)
            if len(alone):
                missing = {
                    alias: MissingColumns(names, len(alone)) for alias, names in columns_of(relation.right).items()
                }
                parts.append(_beside(left, alone, missing, np.full(len(alone), -1)))
                left_rows = np.concatenate([left_rows, alone])
        if not parts:
            return None
        joined = Frame.concat(parts)
        return joined if len(parts) == 1 else joined.take(np.argsort(left_rows, kind="stable"))

    @staticmethod
    def _pairs(relation: plan.Join, left: Frame, right: Frame, failures: Failures) -> tuple[Int64Array, Int64Array]:
        """Return the left and right rows with equal keys for which the rest of ON is true."""
        ours = [evaluate(one, left) for one, _ in relation.keys]
        theirs = [evaluate(other, right) for _, other in relation.keys]
        keys = JoinKeys.of(ours, theirs, len(left), len(right))
        found = meet_always(keys.left, keys.right)
        lefts, rights = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for begin, end in found.stretches(_MOST_PAIRS):
            left_rows, right_rows = found.pairs(begin, end)
            for index in keys.unsure:
                same = is_true(compare(Comparison.EQUAL, ours[index].take(left_rows), theirs[index].take(right_rows)))
                left_rows, right_rows = left_rows[same], right_rows[same]
            if relation.residual is not None:
                pairs = _beside(left, left_rows, right.take(right_rows).sources, right_rows)
                condition = evaluate(relation.residual, pairs)
                failures.without(pairs, [condition])
                true = is_true(condition)
                left_rows, right_rows = left_rows[true], right_rows[true]
            lefts.append(left_rows)
            rights.append(right_rows)
        return np.concatenate(lefts), np.concatenate(rights)

    def _frame(self, relation: plan.Relation, epoch: int) -> Frame | None:
        """Return the rows of a relation over reference data alone in an epoch."""
        place = (id(relation), epoch)
        if place not in self._frames:
            ticks = int(self._epochs[epoch])
            mentions = (below for below in relations_in(relation) if isinstance(below, plan.Input))
            given = {id(mention): self._rows(mention, ticks) for mention in mentions}
            self._frames[place] = Evaluation(given, Failures(), self).frame(relation)
        return self._frames[place]

    def _rows(self, mention: plan.Input, ticks: int) -> Frame | None:
        effective = [one for one in self._tables.get(mention.name.lower(), ()) if one[0] <= ticks]
        if not effective or not effective[-1][2]:
            return None
        _, columns, count = effective[-1]
        return Frame(np.full(count, NO_TIME), {mention.alias.lower(): columns})


def _beside(left: Frame, left_rows: Int64Array, sources: Mapping[str, Columns], right_rows: Int64Array) -> Frame:
    """Return left rows with columns beside them; the right rows order those of the same left row."""
    rows = left.take(left_rows)
    return Frame(
        rows.times,
        {**rows.sources, **sources},
        side_times=rows.side_times,
        order=(*rows.order, right_rows) if rows.order else (),
        ties=(*rows.ties, Vector.bigints(right_rows)) if rows.ties else (),
        rows=rows.rows,
        substreams=rows.substreams,
    )
