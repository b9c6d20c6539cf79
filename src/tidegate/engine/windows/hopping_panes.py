"""Hopping windows: each merges the panes inside it, and is brought forward from hop to hop.

Theory. A line (a pane's aggregates for one key) is in the windows that end at W with end ≤ W < end + size. So it
enters at the first hop that is not before its end, and leaves at the first that is not before its end + size. Additive
states (counts, exact sums, moments) are kept as a running total for each key: a line is added when it enters and
subtracted when it leaves, which exact sums allow. The cost of a release therefore depends on the lines that entered and
left and on the results, and not on the length of the window (Tangwongsan et al., "General Incremental Sliding-Window
Aggregation", 2015, https://doi.org/10.14778/2752939.2752940).

Additive states over distinct values are running totals, too, which change as values enter and leave the window
(`value_stretches`). A minimum, a maximum or a ranking cannot be subtracted. But a line that later lines of the same key
surpass is useless to all later windows, because every window that contains it contains the later ones; only the other
lines are kept, and looked up by ranges. All other states (Collect, percentiles) are merged again from all lines of each
window.

The state has a line for each key and pane of the last ``size``.

Useless lines. All lines stay inside for the same time, so a window that contains a line contains all later lines of its
key that have entered. A later line therefore makes an earlier one useless that it surpasses: of minima and maxima the
earlier one if it is not better, of the best n rows those that n later ones surpass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.engine.aggregates.states.ordered import DistinctValues, Extremes, Multisets
from tidegate.engine.aggregates.states.state import (
    AdditiveState,
    Counts,
    DominatedState,
    Hops,
    State,
    Summary,
    concat_states,
)
from tidegate.engine.substreams.watermarks import Watermark, each, until
from tidegate.engine.values.grouping import codes_of, group, ranges, sorted_rows, unified
from tidegate.engine.values.vectors import Int64Array, Vector
from tidegate.engine.windows.kind import Panes
from tidegate.engine.windows.pane_tables import PaneTable, concat_substreams
from tidegate.engine.windows.value_stretches import OpenStretches, ValueChanges, ended, extended, totals_of
from tidegate.ordering import END_OF_TIME
from tidegate.ordering.ticks import FIRST_TICKS

_MOST_PARTS = 32


@dataclass(slots=True)
class Lines:
    """Lines: the number of the key, the end of the pane, and some of the states."""

    ids: Int64Array
    ends: Int64Array
    states: tuple[State, ...]

    def take(self, lines: Int64Array) -> Lines:
        """Return some of the lines."""
        return Lines(self.ids[lines], self.ends[lines], tuple(state.take(lines) for state in self.states))

    @classmethod
    def concat(cls, parts: Sequence[Lines]) -> Lines:
        """Return the lines of several parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.ends for part in parts]),
            concat_states([part.states for part in parts]),
        )


def undominated(lines: Lines) -> Lines:
    """Return the lines that a later window may still need; each has one state."""
    if not len(lines.ids):
        return lines
    (state,) = lines.states
    assert isinstance(state, DominatedState)
    places, states = state.undominated(lines.ids, lines.ends)
    return Lines(lines.ids[places], lines.ends[places], (states,))


@dataclass(slots=True)
class KnownKeys:
    """The keys that have a line inside a window.

    Attributes:
        vectors: their values.
        ids: int64[k], their numbers, ascending.
        hops: int64[k], the number of the last hop emitted for each.
        substreams: int64[k], the substream of each where results are emitted by substream.
    """

    vectors: tuple[Vector, ...] = ()
    ids: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    hops: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    substreams: Int64Array | None = None


@dataclass(slots=True)
class HoppingState:
    """The state of one hopping window.

    Attributes:
        stretches: for each total over distinct values, the values inside, as stretches.
        bests: for each minimum, maximum and ranking, the lines inside that may still be the best.
        pending: complete lines that have not entered a window yet.
        known: the keys that have a line inside.
        next_id: the number of the next new key.
        totals: for each known key the number of lines inside, then their additive states, then those of their distinct
            values.
        inside: the lines inside, with their additive states, by the release in which they entered.
        others: all lines inside, with the states that are rebuilt for each window.
        spellings: of keys that are spelled in several ways, all lines inside, with the spelling of each.
    """

    stretches: list[OpenStretches]
    bests: list[Lines | None]
    pending: PaneTable | None = None
    known: KnownKeys = field(default_factory=KnownKeys)
    next_id: int = 0
    totals: tuple[State, ...] = ()
    inside: deque[Lines] = field(default_factory=deque)
    others: Lines | None = None
    spellings: Lines | None = None


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows of a release: the key, the hop and the totals of each."""

    ids: Int64Array
    hops: Int64Array
    totals: tuple[State, ...]


@dataclass(frozen=True, slots=True)
class _Limits:
    """Which hops the watermark has passed: the same for all rows, or others for each substream."""

    origin: int
    hop: int
    watermark: Watermark

    def hops_of(self, substreams: Int64Array | None) -> int | Int64Array:
        if isinstance(self.watermark, int):
            return -((self.origin - self.watermark) // self.hop) - 1
        nobody = np.empty(0, dtype=np.int64)
        reached = np.maximum(until(self.watermark, nobody if substreams is None else substreams), FIRST_TICKS)
        lasts: Int64Array = -((self.origin - reached) // self.hop) - 1
        return lasts


@dataclass(frozen=True, slots=True)
class _Hops:
    """The last hop of each key, by the key's number, ascending."""

    ids: Int64Array
    lasts: Int64Array

    def hops_of(self, ids: Int64Array) -> Int64Array:
        return self.lasts[np.searchsorted(self.ids, ids)]


class HoppingPanes:
    """Assembles hopping windows from tables of panes."""

    def __init__(self, panes: Panes, summaries: Sequence[Summary]) -> None:
        self._size = panes.size_ticks
        self._pane = panes.pane_ticks
        self._hop = panes.pane_ticks * panes.panes_a_hop
        self._origin = FIRST_TICKS + panes.offset_ticks
        by_hops: dict[Hops, list[int]] = {hops: [] for hops in Hops}
        for index, summary in enumerate(summaries):
            by_hops[summary.hops].append(index)
        self._additive, self._distinct = by_hops[Hops.ADDED], by_hops[Hops.DISTINCT]
        self._best, self._other = by_hops[Hops.UNDOMINATED], by_hops[Hops.REBUILT]
        self._sets = [one for one in summaries if isinstance(one, DistinctValues) and one.hops is Hops.DISTINCT]
        # The summaries of the totals that follow the number of lines.
        self._adds = [*(summaries[index] for index in self._additive), *(one.inner for one in self._sets if one.inner)]

    def new_state(self) -> HoppingState:
        """Return an empty state."""
        return HoppingState([OpenStretches() for _ in self._distinct], [None] * len(self._best))

    def release_panes(
        self, state: HoppingState, table: PaneTable | None, from_ticks: int, watermark: Watermark
    ) -> PaneTable | None:
        """Return the windows that end before the watermark, one line for each window and key; None if there are none.

        Args:
            table: the lines that have become complete.
            from_ticks: windows that end earlier may be left out.
        """
        tables = [one for one in (state.pending, table) if one is not None]
        state.pending = PaneTable.concat(tables) if tables else None
        limits = self._limits(state, watermark)
        if limits is None:
            return None
        entering = self._take_ready(state, limits)
        moving = limits.hops_of(state.known.substreams) > state.known.hops
        if entering is None and not np.any(moving):
            return None
        keys, ids, substreams, lines = _numbered(state, entering)
        lasts = each(limits.hops_of(substreams), len(ids))
        if lines is not None and entering is not None:
            state.spellings = _spellings(state, keys, ids, entering, lines)
            state.inside.append(_some(lines, self._additive, counted=True))
            for number, index in enumerate(self._best):
                state.bests[number] = _joined(state.bests[number], _some(lines, [index]))
            if self._other:
                state.others = _joined(state.others, _some(lines, self._other))
        leaving = self._take_leaving(state, ids, lasts)
        now = _Hops(ids, lasts)
        changes = [self._changes(state, number, index, lines, now) for number, index in enumerate(self._distinct)]
        windows = self._windows(state, lines, leaving, changes, np.flatnonzero(moving), now, from_ticks)
        result = self._table(state, keys, ids, substreams, windows) if len(windows.ids) else None
        self._bring_forward(state, keys, ids, substreams, lasts)
        return result

    # Hops -------------------------------------------------------------------------------------------------------------

    def _hops(self, times: Int64Array) -> Int64Array:
        """Return the number of the first hop that is not before each time."""
        hops: Int64Array = -((self._origin - times) // self._hop)
        return hops

    def _limits(self, state: HoppingState, watermark: Watermark) -> _Limits | None:
        """Return the last hop before the watermark; at the end of time, the first one at which no line is inside."""
        if not isinstance(watermark, int) and watermark.emission.arrival == END_OF_TIME:
            watermark = END_OF_TIME
        if isinstance(watermark, int):
            watermark = max(watermark, FIRST_TICKS)
        if watermark != END_OF_TIME:
            return _Limits(self._origin, self._hop, watermark)
        ends = [int(lines.ends.max()) for lines in state.inside if len(lines.ends)]
        if state.pending is not None:
            ends.append(int(state.pending.ends.max()))
        return _Limits(self._origin, self._hop, max(ends) + self._size + self._hop) if ends else None

    def _take_ready(self, state: HoppingState, limits: _Limits) -> PaneTable | None:
        """Remove and return the pending lines that enter until the last hop."""
        pending = state.pending
        if pending is None:
            return None
        ready = self._hops(pending.ends) <= limits.hops_of(pending.substreams)
        state.pending = None if ready.all() else pending.take(np.flatnonzero(~ready))
        return pending.take(np.flatnonzero(ready)) if ready.any() else None

    def _take_leaving(self, state: HoppingState, ids: Int64Array, lasts: Int64Array) -> list[Lines]:
        """Remove and return the lines inside that leave until the last hop of their key."""
        leaving: list[Lines] = []
        staying: deque[Lines] = deque()
        alike = not len(lasts) or int(lasts.min()) == int(lasts.max())
        while state.inside:
            lines = state.inside.popleft()
            gone = self._hops(lines.ends + self._size) <= (
                lasts[0] if alike else lasts[np.searchsorted(ids, lines.ids)]
            )
            if gone.any():
                leaving.append(lines.take(np.flatnonzero(gone)))
            if gone.all():
                continue
            staying.append(lines if not gone.any() else lines.take(np.flatnonzero(~gone)))
            if alike and state.known.substreams is None:
                # Lines are in the order of the hops at which they entered, so the rest leaves no sooner.
                break
        state.inside = staying + state.inside
        if state.known.substreams is not None and len(state.inside) > _MOST_PARTS:
            state.inside = deque([Lines.concat(list(state.inside))])
        return leaving

    def _changes(
        self, state: HoppingState, number: int, index: int, entering: Lines | None, now: _Hops
    ) -> tuple[ValueChanges, ...]:
        """Return the values that enter and leave until the last hop of their key."""
        stretches = state.stretches[number]
        changes: list[ValueChanges] = []
        if entering is not None:
            sets = entering.states[index]
            assert isinstance(sets, Multisets)
            leaves = self._hops(entering.ends + self._size)
            stretches, begun = extended(stretches, entering.ids, self._hops(entering.ends), leaves, sets)
            changes.append(begun)
        state.stretches[number], ceased = ended(stretches, now.hops_of(stretches.ids))
        return (*changes, ceased)

    # Windows ----------------------------------------------------------------------------------------------------------

    def _windows(
        self,
        state: HoppingState,
        entering: Lines | None,
        leaving: list[Lines],
        changes: list[tuple[ValueChanges, ...]],
        moving: Int64Array,
        now: _Hops,
        from_ticks: int,
    ) -> _Windows:
        """Bring the running totals forward to the last hop of each key, and return those of every window on the way."""
        parts = []
        if len(moving):
            totals = tuple(one.take(moving) for one in state.totals)
            parts.append((state.known.ids[moving], state.known.hops[moving], totals))
        if entering is not None:
            added = _some(entering, self._additive, counted=True).states
            parts.append((entering.ids, self._hops(entering.ends), self._widened(added)))
        for lines in leaving:
            gone = self._widened(tuple(map(_negated, lines.states)))
            parts.append((lines.ids, self._hops(lines.ends + self._size), gone))
        for number, of_one in enumerate(changes):
            parts += [(one.ids, one.hops, self._of_changes(number, one)) for one in of_one if len(one.ids)]
        ids, hops = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
        order = sorted_rows([ids, hops])
        ids, hops = ids[order], hops[order]
        places = np.flatnonzero(np.append((ids[1:] != ids[:-1]) | (hops[1:] != hops[:-1]), True))
        begins = np.searchsorted(ids, ids[places])
        states = concat_states([part[2] for part in parts])
        totals = tuple(one.take(order).merge_ranges(begins, places + 1) for one in states)
        ids, hops = ids[places], hops[places]

        ends_key = np.append(ids[1:] != ids[:-1], True)
        last = now.hops_of(ids)
        stops = np.where(ends_key, last + 1, np.append(hops[1:], 0))
        first = -((self._origin - from_ticks) // self._hop)
        # The totals that a key had before were emitted at its last hop already.
        known = np.isin(ids, state.known.ids[moving]) & np.append(True, ids[1:] != ids[:-1])
        since = np.maximum(hops + known, first)
        occupied = _counts(totals) > 0
        spans = np.where(occupied, np.maximum(stops - since, 0), 0)
        rows = np.repeat(np.arange(len(ids)), spans)
        kept = np.flatnonzero(ends_key & occupied)
        self._keep(state, moving, ids[kept], last[kept], tuple(_trimmed(one.take(kept)) for one in totals))
        return _Windows(ids[rows], ranges(since, spans), tuple(one.take(rows) for one in totals))

    def _widened(self, states: tuple[State, ...]) -> tuple[State, ...]:
        """Return the totals of lines, with empty ones for distinct values."""
        counts = states[0]
        assert isinstance(counts, Counts)
        return (*states, *(summary.nothing(len(counts.counts)) for summary in self._adds[len(self._additive) :]))

    def _of_changes(self, number: int, changes: ValueChanges) -> tuple[State, ...]:
        """Return the totals of values that enter or leave."""
        place = len(self._additive) + number
        return (
            Counts(np.zeros(len(changes.ids), dtype=np.int64)),
            *(
                totals_of(changes, self._sets[number]) if index == place else summary.nothing(len(changes.ids))
                for index, summary in enumerate(self._adds)
            ),
        )

    @staticmethod
    def _keep(
        state: HoppingState, moving: Int64Array, ids: Int64Array, hops: Int64Array, totals: tuple[State, ...]
    ) -> None:
        """Replace the totals of the keys ``moving`` by those that were brought forward."""
        if len(moving) < len(state.known.ids):
            still = np.setdiff1d(np.arange(len(state.known.ids)), moving, assume_unique=True)
            ids = np.concatenate([state.known.ids[still], ids])
            order = np.argsort(ids)
            ids, hops = ids[order], np.concatenate([state.known.hops[still], hops])[order]
            both = concat_states([tuple(one.take(still) for one in state.totals), totals])
            totals = tuple(one.take(order) for one in both)
        state.known.ids, state.known.hops, state.totals = ids, hops, totals

    def _table(
        self,
        state: HoppingState,
        keys: tuple[Vector, ...],
        ids: Int64Array,
        substreams: Int64Array | None,
        windows: _Windows,
    ) -> PaneTable:
        """Return the windows with all their states."""
        ends = windows.hops * self._hop + self._origin
        states = dict(zip((*self._additive, *self._distinct), windows.totals[1:], strict=True))
        for index, lines in zip(self._best, state.bests, strict=True):
            states[index] = self._looked_up(lines, windows.ids, ends)[0]
        if self._other:
            states.update(zip(self._other, self._looked_up(state.others, windows.ids, ends), strict=True))
        places = np.searchsorted(ids, windows.ids)
        return PaneTable(
            ends,
            self._spelled(state, tuple(key.take(places) for key in keys), windows.ids, ends),
            tuple(states[index] for index in range(len(states))),
            None if substreams is None else substreams[places],
        )

    def _spelled(
        self, state: HoppingState, keys: tuple[Vector, ...], ids: Int64Array, ends: Int64Array
    ) -> tuple[Vector, ...]:
        """Return the keys of windows, each under the first of the spellings that the window contains."""
        if state.spellings is None:
            return keys
        several = np.flatnonzero(np.isin(ids, state.spellings.ids))
        places = np.arange(len(ids))
        places[several] = len(ids) + np.arange(len(several))
        found = self._looked_up(state.spellings, ids[several], ends[several])
        return tuple(
            Vector.concat([key, one.values]).take(places)
            for key, one in zip(keys, found, strict=True)
            if isinstance(one, Extremes)
        )

    def _looked_up(self, lines: Lines | None, ids: Int64Array, ends: Int64Array) -> tuple[State, ...]:
        """Return the merged lines of each window."""
        assert lines is not None
        if not len(lines.ids):
            nowhere = np.zeros(len(ids), dtype=np.int64)
            return tuple(one.merge_ranges(nowhere, nowhere) for one in lines.states)
        lines = lines.take(sorted_rows([lines.ids, lines.ends]))
        # Panes are counted from the first one, so that key and pane form one ascending number.
        first = int(lines.ends.min())
        numbers = (lines.ends - first) // self._pane
        stride = int(numbers.max()) + 2
        places = lines.ids * stride + numbers
        oldest = np.clip((ends - self._size - first) // self._pane + 1, 0, stride - 1)
        newest = np.clip((ends - first) // self._pane + 1, 0, stride - 1)
        lows = np.searchsorted(places, ids * stride + oldest)
        highs = np.searchsorted(places, ids * stride + newest)
        return tuple(one.merge_ranges(lows, highs) for one in lines.states)

    def _bring_forward(
        self,
        state: HoppingState,
        keys: tuple[Vector, ...],
        ids: Int64Array,
        substreams: Int64Array | None,
        lasts: Int64Array,
    ) -> None:
        """Remove what no window after the last hop of its key contains."""
        places = np.searchsorted(ids, state.known.ids)
        state.known.vectors = tuple(key.take(places) for key in keys)
        state.known.substreams = None if substreams is None else substreams[places]
        now = _Hops(ids, lasts)
        for number, lines in enumerate(state.bests):
            staying = self._staying(lines, now)
            state.bests[number] = None if staying is None else undominated(staying)
        state.others = self._staying(state.others, now)
        spellings = self._staying(state.spellings, now)
        state.spellings = spellings if spellings is not None and len(spellings.ids) else None

    def _staying(self, lines: Lines | None, now: _Hops) -> Lines | None:
        if lines is None:
            return None
        stays = self._hops(lines.ends + self._size) > now.hops_of(lines.ids) + 1
        return lines.take(np.flatnonzero(stays))


def _numbered(
    state: HoppingState, entering: PaneTable | None
) -> tuple[tuple[Vector, ...], Int64Array, Int64Array | None, Lines | None]:
    """Number the keys of ``entering``.

    Returns:
        All keys, their numbers, ascending, their substreams, and ``entering`` by the numbers of its keys.
    """
    if entering is None:
        return state.known.vectors, state.known.ids, state.known.substreams, None
    known = len(state.known.ids)
    keys, substreams = entering.keys, entering.substreams
    if known:
        keys = tuple(Vector.concat([one, other]) for one, other in zip(state.known.vectors, keys, strict=True))
        substreams = concat_substreams([state.known.substreams, substreams])
    numbers = () if substreams is None else (substreams,)
    groups = group(known + len(entering), () if entering.keyed else [unified(key) for key in keys], numbers)
    new = groups.firsts >= known
    id_of_code = np.empty(groups.count, dtype=np.int64)
    id_of_code[~new] = state.known.ids[groups.firsts[~new]]
    id_of_code[new] = state.next_id + np.arange(int(new.sum()))
    state.next_id += int(new.sum())
    order = np.argsort(id_of_code)
    firsts = groups.firsts[order]
    lines = Lines(id_of_code[groups.codes[known:]], entering.ends, entering.states)
    return (
        tuple(key.take(firsts) for key in keys),
        id_of_code[order],
        None if substreams is None else substreams[firsts],
        lines,
    )


def _spellings(
    state: HoppingState, keys: tuple[Vector, ...], ids: Int64Array, entering: PaneTable, lines: Lines
) -> Lines | None:
    """Return the lines of keys that are spelled in several ways, those of ``entering`` included.

    Args:
        keys, ids: all keys, each under one of its spellings, and their numbers.
        lines: ``entering`` by the numbers of its keys.
    """
    places = np.searchsorted(ids, lines.ids)
    differs = np.zeros(len(entering), dtype=np.bool_)
    for key, own in zip(keys, entering.keys, strict=True):
        both = Vector.concat([key.take(places), own])
        if unified(both) is not both:
            codes, _ = codes_of(both)
            differs |= codes[: len(own)] != codes[len(own) :]
    held = state.spellings
    known = np.empty(0, dtype=np.int64) if held is None else np.unique(held.ids)
    several = np.union1d(known, lines.ids[differs])
    if not len(several):
        return None
    parts = [] if held is None else [held]
    for one in state.inside:
        # Until now, these keys had one spelling.
        mine = np.flatnonzero(np.isin(one.ids, several) & ~np.isin(one.ids, known))
        parts.append(_under(one, mine, tuple(key.take(np.searchsorted(ids, one.ids[mine])) for key in keys)))
    mine = np.flatnonzero(np.isin(lines.ids, several))
    parts.append(_under(lines, mine, tuple(own.take(mine) for own in entering.keys)))
    return Lines.concat(parts)


def _under(lines: Lines, places: Int64Array, keys: tuple[Vector, ...]) -> Lines:
    return Lines(lines.ids[places], lines.ends[places], tuple(Extremes(key, largest=False) for key in keys))


def _some(lines: Lines, which: Sequence[int], *, counted: bool = False) -> Lines:
    """Return the lines with some of their states; ``counted``: with a count of 1 before them."""
    ones = (Counts(np.ones(len(lines.ids), dtype=np.int64)),) if counted else ()
    return Lines(lines.ids, lines.ends, (*ones, *(lines.states[index] for index in which)))


def _joined(lines: Lines | None, new: Lines) -> Lines:
    return new if lines is None else Lines.concat([lines, new])


def _counts(totals: tuple[State, ...]) -> Int64Array:
    counts = totals[0]
    assert isinstance(counts, Counts)
    return counts.counts


def _negated(state: State) -> State:
    assert isinstance(state, AdditiveState)
    return state.negated()


def _trimmed(state: State) -> State:
    assert isinstance(state, AdditiveState)
    return state.trimmed()
