"""When the results of a substream are emitted: each at its own watermark, in an order that no cut can change.

Theory. Let several timelines (one for each input and partition that may carry it) feed the substream k, and let a be
the latest arrival that all timelines of the job are known to have reached. The watermark of k at a is

    W(k, a) = max( min over its timelines of (largest time of k that arrived before a there - out of order), a - late )

A result of k at time T is complete as soon as W(k, a) > T. Its *emission arrival*, the arrival it waits for, is
therefore

    e(k, T) = min( max over its timelines of the arrival of the first event of k that brings M - out of order past T,
                   T + late )

and it is emitted once a > e. Emission arrivals follow from the log alone, so emitting results by emission arrival, then
by time, is the same order for every cut of the log into steps. As W(k, ·) only rises, e(k, ·) rises with T: within a
substream this is the order of time. Where a timeline has not had an event of k yet, T + late applies; without a late
tolerance such results wait forever.

Restarts. A result with e ≥ a has T ≥ a - late. So a run whose output start time is a - late finds every result that has
not been emitted, with the same emission arrival (`start` proves that every event which raises a largest time to that
time or beyond does so in both runs), and emits those with e ≥ a.

Only events that raise the largest time of their substream matter; they are *advances*. Those that arrived before a are
summed up in one watermark per substream: the state is one number per substream, and the cost of a step is proportional
to its advances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.ordering.key_index import Codes
from tidegate.ordering.substreams import stable_order
from tidegate.ordering.ticks import END_OF_TIME, NO_TIME, Times
from tidegate.ordering.timeline import DROPPED, Mask, Stamps, plus


@dataclass(frozen=True, eq=False)
class Advances:
    """n events that raised the largest time of their substream, in log order.

    Attributes:
        codes: int64[n], which substream.
        arrivals: int64[n], ticks; the latest arrival known on the timeline, that of the event included.
        watermarks: int64[n], ticks; largest time - out-of-order tolerance, after the event.
    """

    codes: Codes
    arrivals: Times
    watermarks: Times

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def of(cls, stamps: Stamps, latest: Times, codes: Codes) -> Advances:
        """Find the advances among stamped events.

        Args:
            stamps: the scan's verdict on each of n events.
            latest: int64[n], the latest arrival known after each event (`running_arrival`).
            codes: int64[n], the substream of each.
        """
        kept = np.flatnonzero((stamps.fate != DROPPED) & (stamps.watermark_event != NO_TIME))
        if not len(kept):
            return cls(*(np.empty(0, dtype=np.int64) for _ in range(3)))
        by_code = kept[stable_order(codes[kept])]
        ordered, marks = codes[by_code], stamps.watermark_event[by_code]
        rising = np.ones(len(by_code), dtype=np.bool_)
        rising[1:] = (ordered[1:] != ordered[:-1]) | (marks[1:] > marks[:-1])
        chosen = np.sort(by_code[rising])
        return cls(codes[chosen], latest[chosen], stamps.watermark_event[chosen])

    def take(self, places: Codes) -> Advances:
        """Return the advances at these places."""
        return Advances(self.codes[places], self.arrivals[places], self.watermarks[places])

    def renumbered(self, codes: Codes) -> Advances:
        """Return the same advances under other codes: ``codes[old]`` is the new code."""
        return Advances(codes[self.codes], self.arrivals, self.watermarks)

    @classmethod
    def concat(cls, parts: Sequence[Advances]) -> Advances:
        """Concatenate several runs of advances."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))


_COLUMNS = ("codes", "arrivals", "watermarks")
_NOBODY = np.empty(0, dtype=np.int64)


class Emission:
    """The watermarks of substreams by code, and the emission arrivals of their results.

    A substream is fed by some of the job's *slots*, one for each timeline.
    """

    def __init__(self, late_ticks: int | None) -> None:
        self._late_ticks = late_ticks
        self._known = 0
        self._watermarks: list[Times] = []
        self._joint = np.empty(0, dtype=np.int64)
        self._joint_before = np.empty(0, dtype=np.int64)
        self._pending: list[list[Advances]] = []
        self._passed: list[_Passed] = []
        self._touched = np.empty(0, dtype=np.int64)
        self._moved = np.empty(0, dtype=np.bool_)
        self.arrival = NO_TIME
        self.arrival_before = NO_TIME

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a state whose arrays may be mapped read-only; those that change in place become this object's own."""
        for name in ("_joint", "_joint_before", "_moved"):
            state[name] = np.array(state[name])
        state["_watermarks"] = [np.array(column) for column in state["_watermarks"]]
        self.__dict__.update(state)

    def add_substreams(self, codes: Codes, slots: int) -> None:
        """Add substreams that are new, or were forgotten; the first ``slots`` slots feed them."""
        while len(self._watermarks) < slots:
            self._watermarks.append(np.full(len(self._joint), END_OF_TIME))
            self._pending.append([])
            self._passed.append(_Passed.none())
        self._known = max(self._known, int(codes.max(initial=-1)) + 1)
        if self._known > len(self._joint):
            more = max(1024, 2 * self._known) - len(self._joint)
            self._joint, self._joint_before, *self._watermarks = (
                np.append(column, np.full(more, END_OF_TIME))
                for column in (self._joint, self._joint_before, *self._watermarks)
            )
            self._moved = np.append(self._moved, np.zeros(more, dtype=np.bool_))
        for slot, column in enumerate(self._watermarks):
            column[codes] = NO_TIME if slot < slots else END_OF_TIME
        self._joint[codes] = self._joint_before[codes] = NO_TIME

    def add_advances(self, slot: int, advances: Advances) -> None:
        """Add a timeline's next advances, in the order of its log."""
        if len(advances):
            self._pending[slot].append(advances)

    def advance(self, arrival: int) -> None:
        """Advance to an arrival (ticks) that all timelines have reached: all earlier events have been added.

        END_OF_TIME means that no event will follow.
        """
        self._joint_before[self._touched] = self._joint[self._touched]
        self._moved[self._touched] = False
        self.arrival_before, self.arrival = self.arrival, max(self.arrival, arrival)
        touched = []
        for slot, parts in enumerate(self._pending):
            self._passed[slot] = _Passed.none()
            if not parts:
                continue
            pending = Advances.concat(parts)
            if bool((pending.arrivals[1:] < pending.arrivals[:-1]).any()):
                # Partitions merged into one timeline are added one after the other.
                pending = pending.take(np.argsort(pending.arrivals, kind="stable"))
            ready = pending.arrivals < self.arrival
            later = np.flatnonzero(~ready)
            self._pending[slot] = [pending.take(later)] if len(later) else []
            if len(later) < len(pending):
                passed = _Passed.of(pending.take(np.flatnonzero(ready)), self._watermarks[slot])
                self._watermarks[slot][passed.codes] = passed.last()
                self._passed[slot] = passed
                touched.append(passed.codes)
        self._touched = touched[0] if len(touched) == 1 else np.unique(np.concatenate([_NOBODY, *touched]))
        self._moved[self._touched] = True
        if len(self._touched):
            self._joint[self._touched] = np.minimum.reduce([column[self._touched] for column in self._watermarks])

    def watermarks(self, codes: Codes) -> Times:
        """Return the watermark of each of these substreams: int64[n], ticks."""
        return np.maximum(self._joint[codes], self._floor(self.arrival))

    @property
    def floor(self) -> int:
        """The smallest watermark that any substream can have, in ticks."""
        return self._floor(self.arrival)

    def moved(self, codes: Codes) -> Mask:
        """Return bool[n]: whether the last `advance` passed events of each substream.

        The watermark of any other substream is unchanged, or the floor.
        """
        return self._moved[codes]

    def watermarks_before(self, codes: Codes) -> Times:
        """Return their watermarks before the last `advance`: int64[n], ticks."""
        return np.maximum(self._joint_before[codes], self._floor(self.arrival_before))

    def emission_arrivals(self, codes: Codes, times: Times) -> Times:
        """Return int64[n]: the emission arrivals of results that the last `advance` completed."""
        own = np.full(len(codes), NO_TIME)
        for watermarks, passed in zip(self._watermarks, self._passed, strict=True):
            np.maximum(own, passed.arrivals(codes, times, watermarks), out=own)
        return own if not len(own) else np.minimum(own, self.floor_arrivals(times))

    def floor_arrivals(self, times: Times) -> Times:
        """Return int64[n]: the emission arrivals of results that wait for the `floor`."""
        return np.full(len(times), END_OF_TIME) if self._late_ticks is None else plus(times, self._late_ticks)

    def forgettable(self) -> Codes:
        """Return the substreams at the watermark of one without events, with no advance pending."""
        floor = self._floor(self.arrival)
        behind = np.ones(self._known, dtype=np.bool_)
        for column in self._watermarks:
            behind &= (column[: self._known] < floor) | (column[: self._known] == END_OF_TIME)
        for parts in self._pending:
            for part in parts:
                behind[part.codes] = False
        return np.flatnonzero(behind)

    def _floor(self, arrival: int) -> int:
        if arrival == END_OF_TIME:
            return END_OF_TIME
        return NO_TIME if self._late_ticks is None else max(NO_TIME, arrival - self._late_ticks)


@dataclass(frozen=True, eq=False)
class _Passed:
    """The advances of one slot that the last `Emission.advance` passed, by substream.

    Attributes:
        codes: the substreams, ascending.
        starts, ends: the range of each in ``at`` and ``marks``.
        at: the arrivals of the advances, ticks.
        marks: the watermarks after them, ticks.
        before: the watermark of each substream before them, ticks.
    """

    codes: Codes
    starts: Codes
    ends: Codes
    at: Times
    marks: Times
    before: Times

    @classmethod
    def none(cls) -> _Passed:
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, nothing, nothing, nothing, nothing, nothing)

    @classmethod
    def of(cls, advances: Advances, watermarks: Times) -> _Passed:
        order = stable_order(advances.codes)
        every = advances.codes[order]
        starts = np.flatnonzero(np.append(True, every[1:] != every[:-1]))
        codes = every[starts]
        ends = np.append(starts[1:], len(every))
        return cls(codes, starts, ends, advances.arrivals[order], advances.watermarks[order], watermarks[codes])

    def last(self) -> Times:
        """Return the watermark of each of the substreams now; it never falls."""
        return np.maximum(self.before, self.marks[self.ends - 1])

    def arrivals(self, codes: Codes, times: Times, watermarks: Times) -> Times:
        """Return the arrival of the first event that brings each substream past each time; NO_TIME if passed before."""
        found = np.where(watermarks[codes] > times, np.int64(NO_TIME), np.int64(END_OF_TIME))
        if not len(self.codes):
            return found
        place_of = np.zeros(len(watermarks), dtype=np.int64)
        place_of[self.codes] = np.arange(len(self.codes))
        places = place_of[codes]
        here = np.flatnonzero((self.codes[places] == codes) & (found == NO_TIME) & (self.before[places] <= times))
        low, high = self.starts[places[here]].copy(), self.ends[places[here]].copy()
        wanted = times[here]
        while (searching := low < high).any():
            middle = np.where(searching, (low + high) // 2, low)
            past = self.marks[np.minimum(middle, len(self.marks) - 1)] > wanted
            high = np.where(searching & past, middle, high)
            low = np.where(searching & ~past, middle + 1, low)
        found[here] = self.at[low]
        return found
