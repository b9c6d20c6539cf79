"""Lines of a hopping window: what is kept of one key in one pane, and which lines no window to come will ask for.

A line is in the windows from when it enters until it leaves; all lines stay equally long. So what a later line of the
same key has makes an earlier one useless wherever it would be chosen before it: of a least or greatest value the
earlier one that is not better, of the best n ranked rows those that n later ones are better than.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.engine.aggregates.states import Bags, Extremes, State
from tidegate.engine.values.grouping import sort_keys, sorted_rows
from tidegate.engine.values.vectors import BoolArray, Int64Array, Kind

MOST_RANKED = 32
"""Of more ranked rows than this all are kept: to find out which are useless takes a pass for each."""


@dataclass(slots=True)
class Lines:
    """Lines by the number of their key: which key, the pane's end, some of the states."""

    ids: Int64Array
    ends: Int64Array
    states: tuple[State, ...]

    def take(self, lines: Int64Array) -> Lines:
        """Some of the lines."""
        return Lines(self.ids[lines], self.ends[lines], tuple(state.take(lines) for state in self.states))

    @classmethod
    def concat(cls, parts: Sequence[Lines]) -> Lines:
        """The lines of several, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.ends for part in parts]),
            concat_states([part.states for part in parts]),
        )


def concat_states(parts: Sequence[tuple[State, ...]]) -> tuple[State, ...]:
    """The states of several, each kind one after the other."""
    return tuple(type(one).concat([part[index] for part in parts]) for index, one in enumerate(parts[0]))


def undominated(lines: Lines) -> Lines:
    """The lines without what no window to come will ask for; each has one state, of MIN, MAX or ranked rows."""
    if not len(lines.ids):
        return lines
    (state,) = lines.states
    return _best_rows(lines, state) if isinstance(state, Bags) else _best_values(lines)


def _best_values(lines: Lines) -> Lines:
    """The lines that are better than all later ones of their key."""
    lines = lines.take(sorted_rows([lines.ids, lines.ends]))
    (state,) = lines.states
    assert isinstance(state, Extremes)
    keys = sort_keys(state.values)
    ranks = np.unique(keys if state.largest else ~keys, return_inverse=True)[1]
    # A line without a value is never the best.
    ranks = np.where(state.values.kinds == Kind.NULL, -1, ranks)
    # Going backwards.
    kept = _records(lines.ids[::-1], ranks[::-1])[::-1] & (ranks >= 0)
    return lines.take(np.flatnonzero(kept))


def _records(ids: Int64Array, ranks: Int64Array) -> BoolArray:
    """bool[n]: which ranks are higher than all before them of the same key; keys stand together."""
    span = int(ranks.max(initial=0)) + 2
    # Each key begins above all that the keys before it reached.
    sequence = np.cumsum(np.append(True, ids[1:] != ids[:-1])) if len(ids) else ids
    heights = ranks + 1 + sequence * span
    before = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(heights)[:-1]) if len(ids) else heights
    records: BoolArray = heights > np.maximum(before, sequence * span - 1)
    return records


def _best_rows(lines: Lines, bags: Bags) -> Lines:
    """The rows that fewer than n later ones of their key are better than, in n passes: what is a record, going back
    from the latest, goes; of what remains the records again. What n passes leave has n better ones after it."""
    if bags.limit is None or bags.limit > MOST_RANKED:
        return lines
    line = bags.codes()
    ids, ends = lines.ids[line], lines.ends[line]
    ranks = np.empty(len(line), dtype=np.int64)
    columns = [
        ~sort_keys(column) if down else sort_keys(column)
        for column, down in zip(bags.columns, bags.descending, strict=True)
    ]
    ranks[sorted_rows([*columns, *bags.numbers])] = np.arange(len(line))[::-1]
    left = sorted_rows([ids, -ends, -ranks])
    kept = np.zeros(len(line), dtype=np.bool_)
    for _ in range(bags.limit):
        records = _records(ids[left], ranks[left])
        kept[left[records]] = True
        left = left[~records]
        if not len(left):
            return lines
    places = np.flatnonzero(kept)
    with_rows, sizes = np.unique(line[places], return_counts=True)
    rows = Bags(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        bags.values.take(places),
        bags.counts[places],
        tuple(column.take(places) for column in bags.columns),
        bags.descending,
        tuple(number[places] for number in bags.numbers),
        bags.limit,
    )
    return Lines(lines.ids[with_rows], lines.ends[with_rows], (rows,))
