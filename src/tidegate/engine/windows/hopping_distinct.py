"""Distinct values in hopping windows: what adds up over them, brought forward from hop to hop.

Theory. A value of a key is in a window if one of its lines is. Each line is inside from the hop it enters at until the
hop it leaves at, all equally long; so in the order of their panes a value's lines enter and leave one after the other,
and the hops at which the value is inside are stretches: one begins where a line enters and none is inside, and ends
where the last line leaves that entered before the stretch was over. COUNT(DISTINCT v) is how many stretches are on, and
SUM(DISTINCT v) what their values come to: a value is added where its stretch begins and taken away where it ends. What
a hop costs does not depend on how many lines are inside. Of a stretch that is on, the hop at which it will end so far
is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tidegate.engine.aggregates.states.multisets import DistinctValues, Multisets
from tidegate.engine.aggregates.states.state import AdditiveState
from tidegate.engine.values.grouping import group, sorted_rows
from tidegate.engine.values.vectors import Int64Array, Vector


@dataclass(slots=True)
class Stretches:
    """Values that are inside: of which key, until which hop, which value."""

    ids: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    until: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    values: Vector = field(default_factory=lambda: Vector.nulls(0))


@dataclass(frozen=True, slots=True)
class Changes:
    """Values that begin (``sign`` 1) or cease (−1) to be inside at hops."""

    ids: Int64Array
    hops: Int64Array
    values: Vector
    sign: Int64Array


def advanced(
    held: Stretches, ids: Int64Array, enters: Int64Array, leaves: Int64Array, sets: Multisets
) -> tuple[Stretches, Changes]:
    """Take up lines with sets of values: the stretches with all that are still on, and the values that begin.

    ``enters`` and ``leaves``: the hops of each line, at the same distance for all.
    """
    line = sets.codes()
    all_ids = np.concatenate([held.ids, ids[line]])
    values = Vector.concat([held.values, sets.values]) if len(held.ids) else sets.values
    # What is held has entered before everything that enters now.
    begins = np.concatenate([np.full(len(held.ids), np.iinfo(np.int64).min), enters[line]])
    ends = np.concatenate([held.until, leaves[line]])
    if not len(all_ids):
        return held, Changes(all_ids, all_ids, values, all_ids)
    codes = group(len(all_ids), (values,), (all_ids,)).codes
    order = sorted_rows([codes, begins, ends])
    codes, begins, ends = codes[order], begins[order], ends[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (codes[1:] != codes[:-1]) | (begins[1:] > ends[:-1])
    places = np.flatnonzero(first)
    lasts = np.append(places[1:], len(order)) - 1
    rows = order[places]
    stretches = Stretches(all_ids[rows], ends[lasts], values.take(rows))
    new = np.flatnonzero(begins[places] > np.iinfo(np.int64).min)
    begun = Changes(
        stretches.ids[new], begins[places[new]], stretches.values.take(new), np.ones(len(new), dtype=np.int64)
    )
    return stretches, begun


def ended(stretches: Stretches, lasts: Int64Array) -> tuple[Stretches, Changes]:
    """The stretches that go on after the last hop of their key, and the values that cease until then."""
    over = stretches.until <= lasts
    gone, on = np.flatnonzero(over), np.flatnonzero(~over)
    changes = Changes(
        stretches.ids[gone],
        stretches.until[gone],
        stretches.values.take(gone),
        np.full(len(gone), -1, dtype=np.int64),
    )
    return Stretches(stretches.ids[on], stretches.until[on], stretches.values.take(on)), changes


def totals_of(changes: Changes, values: DistinctValues) -> AdditiveState:
    """Return what changes add to a total over distinct values; it is negative where values cease."""
    count = len(changes.ids)
    state = values.of_values(np.arange(count), count, changes.values)
    assert isinstance(state, AdditiveState)
    return state.negated() if count and changes.sign[0] < 0 else state
