"""Distinct values inside hopping windows, as stretches of hops.

Theory. A value of a key is in a window if one of its lines is. All lines are inside for the same number of hops, so the
lines of a value leave in the order in which they enter, and the hops at which the value is inside form stretches: a
stretch begins where a line enters while no other is inside, and ends where the last of the lines leaves that entered
during the stretch. COUNT(DISTINCT v) is the number of open stretches, SUM(DISTINCT v) the sum of their values: a value
is added where its stretch begins and subtracted where it ends, so the cost of a hop does not depend on the number of
lines inside. For an open stretch only the hop is kept at which it will end if no other line enters.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tidegate.engine.aggregates.states.ordered import DistinctValues, Multisets
from tidegate.engine.aggregates.states.state import AdditiveState
from tidegate.engine.values.grouping import group, sorted_rows
from tidegate.engine.values.vectors import Int64Array, Vector


@dataclass(slots=True)
class OpenStretches:
    """Open stretches: the key, the hop at which each ends if no other line enters, and the value."""

    ids: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    until: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    values: Vector = field(default_factory=lambda: Vector.nulls(0))


@dataclass(frozen=True, slots=True)
class ValueChanges:
    """Values that enter (``sign`` 1) or leave (−1) at hops."""

    ids: Int64Array
    hops: Int64Array
    values: Vector
    sign: Int64Array


def extended(
    held: OpenStretches, ids: Int64Array, enters: Int64Array, leaves: Int64Array, sets: Multisets
) -> tuple[OpenStretches, ValueChanges]:
    """Extend stretches by lines with sets of values, and begin those of values that are not inside.

    Args:
        held: the open stretches.
        ids: the key of each line.
        enters, leaves: the hops of each line, at the same distance for all.
        sets: the values of each line.

    Returns:
        The open stretches, and the values that enter.
    """
    line = sets.codes()
    all_ids = np.concatenate([held.ids, ids[line]])
    values = Vector.concat([held.values, sets.values]) if len(held.ids) else sets.values
    # Held values entered before all that enter now.
    begins = np.concatenate([np.full(len(held.ids), np.iinfo(np.int64).min), enters[line]])
    ends = np.concatenate([held.until, leaves[line]])
    if not len(all_ids):
        return held, ValueChanges(all_ids, all_ids, values, all_ids)
    codes = group(len(all_ids), (values,), (all_ids,)).codes
    order = sorted_rows([codes, begins, ends])
    codes, begins, ends = codes[order], begins[order], ends[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (codes[1:] != codes[:-1]) | (begins[1:] > ends[:-1])
    places = np.flatnonzero(first)
    lasts = np.append(places[1:], len(order)) - 1
    rows = order[places]
    stretches = OpenStretches(all_ids[rows], ends[lasts], values.take(rows))
    new = np.flatnonzero(begins[places] > np.iinfo(np.int64).min)
    begun = ValueChanges(
        stretches.ids[new], begins[places[new]], stretches.values.take(new), np.ones(len(new), dtype=np.int64)
    )
    return stretches, begun


def ended(stretches: OpenStretches, lasts: Int64Array) -> tuple[OpenStretches, ValueChanges]:
    """Return the stretches that continue after the last hop of their key, and the values that leave until then."""
    over = stretches.until <= lasts
    gone, on = np.flatnonzero(over), np.flatnonzero(~over)
    changes = ValueChanges(
        stretches.ids[gone],
        stretches.until[gone],
        stretches.values.take(gone),
        np.full(len(gone), -1, dtype=np.int64),
    )
    return OpenStretches(stretches.ids[on], stretches.until[on], stretches.values.take(on)), changes


def totals_of(changes: ValueChanges, values: DistinctValues) -> AdditiveState:
    """Return what changes add to a total over distinct values; negative where values leave."""
    count = len(changes.ids)
    state = values.of_values(np.arange(count), count, changes.values)
    assert isinstance(state, AdditiveState)
    return state.negated() if count and changes.sign[0] < 0 else state
