"""Session windows: from a row until none has followed for the timeout, or until the session is too long.
https://learn.microsoft.com/stream-analytics-query/session-window-azure-stream-analytics

Theory. A *run* of a key is a stretch of its rows in which no two neighbours are further apart than the timeout; it
ends at E = its last time + timeout. A session opens with a run, at o, and is checked at the multiples of the maximum
duration, counted from 0001-01-01: at a check c with c − o ≥ max it ends, and if the run continues, the next session
opens there, at c. The first such check is c₁, the first multiple that is not before o + max. From then on a session
ends at every multiple, because the session that opened at the one before is exactly max old. So a row at t belongs to
the session that ends at

    min(E, c₁ if t ≤ c₁ else the first multiple of max that is not before t)

and no loop over sessions is needed. A stretch between checks without rows has no result. A row at exactly
last + timeout extends the run, and one at exactly c belongs to the session that ends there: bounds are (start, end].

Look-back. A session depends on when its run opened, and a run may last for ever. But only c₁ depends on that. Compare
the rows from X on, alone, with the same rows after any other history. If the current run had its last row before X and
continues with the row f, then f < X + timeout, and the run without history opens at f; else both runs open at the same
row. The run with history is cut at every multiple from some c₁ ≤ c′ on, the one without from c′ = the first multiple
not before f + max, and c′ < X + timeout + 2 max. From c′ on both are cut alike; if they end earlier, they end at the
same E ≤ c′, and the next run is the same in both. So sessions that end after c′ are the same, and L = timeout + 2 max
(a plan asks for one max more).

Forgetting. At W all sessions that end before W have been emitted, and their rows can go. Of a run that has not ended
(E ≥ W) two times must be kept, that of its last row and that at which its last session opened; they are kept with the
last row, whether or not a later session contains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.engine.expressions.frames import Frame
from tidegate.engine.expressions.relations import Failures
from tidegate.engine.substreams.watermarks import Part, Waiting, Watermark, until
from tidegate.engine.values.grouping import group, spelled, unified
from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array
from tidegate.engine.windows.held_rows import GroupRows, most_change, with_keys_of
from tidegate.engine.windows.kind import RowWindow, ceil_to
from tidegate.ordering import format_duration, short_time
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS, NO_TIME
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import duration, expression
from tidegate.sql.plan.nodes import Length


@dataclass(frozen=True, slots=True)
class RowSessions:
    """The session of each of n rows, and what must be kept of them.

    Attributes:
        ends: int64[n], where the session of each row ends, as far as is known; an end before ``until`` is final.
        open_last: bool[n], whether a row is the last one of a run that has not ended at ``until``.
        opened: int64[n], for rows of a run that has not ended, when the session open at ``until`` opened.
    """

    ends: Int64Array
    open_last: BoolArray
    opened: Int64Array


def sessions(
    times: Int64Array,
    sequences: Sequences,
    timeout_ticks: int,
    max_ticks: int,
    opened: Int64Array,
    until: int | Int64Array,
) -> RowSessions:
    """Return the sessions of rows, given all rows before ``until``.

    Args:
        times: int64[n], ascending inside each sequence.
        sequences: the rows by PARTITION BY; every row is in one.
        opened: int64[n], `RowSessions.opened` of a row that was kept; NO_TIME for new ones.
        until: one for all rows, or int64[n], the same for all rows of a sequence.
    """
    at, known = times[sequences.rows], opened[sequences.rows]
    begins = sequences.first.copy()
    begins[1:] |= np.diff(at) > timeout_ticks
    starts = np.flatnonzero(begins)
    run = np.cumsum(begins) - 1
    lengths = np.diff(np.append(starts, len(at)))
    finals = starts + lengths - 1

    run_opened = np.where(known[starts] != NO_TIME, known[starts], at[starts])
    run_over = np.minimum(at[finals] + timeout_ticks, LAST_TICKS)
    first_cut = ceil_to(run_opened + max_ticks, max_ticks)
    cuts = np.maximum(ceil_to(at, max_ticks), first_cut[run])
    ends = np.minimum(cuts, run_over[run])

    reached = until if isinstance(until, int) else until[sequences.rows[starts]]
    latest_check = (np.clip(reached, FIRST_TICKS, LAST_TICKS) - 1 - FIRST_TICKS) // max_ticks * max_ticks + FIRST_TICKS
    run_open = run_over >= reached
    session_opened = np.where(first_cut <= latest_check, latest_check, run_opened)
    open_last = np.zeros(len(at), dtype=np.bool_)
    open_last[finals[run_open]] = True
    return RowSessions(
        sequences.by_row(ends),
        sequences.by_row(open_last.astype(np.int64)).astype(np.bool_),
        sequences.by_row(session_opened[run]),
    )


@dataclass(frozen=True, slots=True)
class SessionRows:
    """Rows of open sessions.

    Attributes:
        opened: int64[n], when the session of each row opened; NO_TIME for a new row.
        counted: bool[n], whether a later session contains the row; else it is only kept for its time.
        due: int64[n], the row takes part in nothing before the watermark has passed this time, unless others follow it.
    """

    frame: Frame
    opened: Int64Array
    counted: BoolArray
    due: Int64Array

    @classmethod
    def of(cls, frame: Frame) -> SessionRows:
        """Return new rows."""
        count = len(frame)
        none = np.full(count, NO_TIME, dtype=np.int64)
        return cls(frame, none, np.ones(count, dtype=np.bool_), none)

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def times(self) -> Int64Array:
        return self.frame.times

    @property
    def substreams(self) -> Int64Array | None:
        return self.frame.substreams

    def take(self, rows: Int64Array) -> SessionRows:
        """Return these rows, in this order."""
        return SessionRows(self.frame.take(rows), self.opened[rows], self.counted[rows], self.due[rows])

    @classmethod
    def concat(cls, tables: Sequence[SessionRows]) -> SessionRows:
        """Concatenate rows."""
        if len(tables) == 1:
            return tables[0]
        return cls(
            Frame.concat([table.frame for table in tables]),
            np.concatenate([table.opened for table in tables]),
            np.concatenate([table.counted for table in tables]),
            np.concatenate([table.due for table in tables]),
        )


@dataclass(slots=True)
class OpenSessions:
    """Rows that wait for the watermark, and rows of open sessions."""

    waiting: Waiting[Frame] = field(default_factory=Waiting)
    held: Waiting[SessionRows] = field(default_factory=Waiting)


class SessionOperator:
    """An aggregate over a session window."""

    def __init__(self, relation: plan.Aggregate, window: Session, window_id: str | None) -> None:
        self.relation = relation
        self.sources = (relation.source,)
        self.delay_ticks = 0
        self._window = window
        self._rows = GroupRows(relation, window_id, window.partition_by)

    def new_state(self) -> OpenSessions:
        """Return an empty state."""
        return OpenSessions()

    def reduce(self, side: int, frame: Frame, failures: Failures) -> Frame | None:
        """Return the keys and arguments of each row."""
        return self._rows.reduce(frame, failures)

    def absorb(self, state: OpenSessions, side: int, payload: Frame) -> None:
        """Add rows."""
        state.waiting.append(payload)

    def release_rows(self, state: OpenSessions, watermark: Watermark, failures: Failures) -> Frame | None:
        """Return the results of all sessions that end before the watermark, by time, key and partition."""
        new = state.waiting.take_before(watermark)
        rows = self._take_changed(state, None if new is None else new.in_order().without_order(), watermark)
        if rows is None:
            return None
        held, opened, counted = rows.frame, rows.opened, rows.counted
        reached = until(watermark, held.substreams)
        partitions = self._rows.partitions(held)
        parts = group(len(held), [unified(key) for key in partitions])
        sequences = Sequences.of(parts.codes, parts.count)
        timeout = self._window.timeout_ticks
        found = sessions(held.times, sequences, timeout, self._window.max_ticks, opened, reached)
        over = found.ends < reached
        counted_later = counted & ~over
        out = np.flatnonzero(counted & over)
        due = np.where(counted_later, found.ends, np.minimum(held.times + timeout, LAST_TICKS))
        still = np.flatnonzero(counted_later | found.open_last)
        state.held.append(SessionRows(held, found.opened, counted_later, due).take(still))
        return self._fold(held, out, found.ends[out], parts.codes[out])

    def _take_changed(self, state: OpenSessions, new: Frame | None, watermark: Watermark) -> SessionRows | None:
        """Remove and return the rows of partitions in which something ends or that have new rows, these included."""

        def is_due(part: Part[SessionRows]) -> BoolArray:
            due: BoolArray = part.table.due < until(watermark, part.table.substreams)
            return due

        added = None if new is None else SessionRows.of(new)
        # Where new rows change most keys, what is due need not be looked for.
        due = None if added is not None and most_change(state.held, len(added)) else state.held.choose(is_due)
        changed = [rows for rows in (due, added) if rows is not None]
        if not changed:
            return None
        held = state.held.take_chosen(
            with_keys_of(state.held, lambda table: self._rows.partitions(table.frame), changed)
        )
        there = [rows for rows in (held, added) if rows is not None]
        return SessionRows.concat(there) if there else None

    def _fold(self, held: Frame, out: Int64Array, ends: Int64Array, partition: Int64Array) -> Frame | None:
        """Return a result for each session and key."""
        keys = [key.take(out) for key in self._rows.keys(held)]
        groups = group(len(out), [unified(key) for key in keys], (ends, partition))
        aggregation = self._rows.aggregation
        states = aggregation.fold(groups.codes, groups.count, self._rows.evaluated(held).take(out))
        firsts = groups.firsts
        partitions = [spelled(key.take(out), groups) for key in self._rows.partitions(held)]
        substreams = None if held.substreams is None else held.substreams[out[firsts]]
        return self._rows.results(
            ends[firsts], [spelled(key, groups) for key in keys], aggregation.finish(states), partitions, substreams
        )


@dataclass(frozen=True, slots=True)
class Session(RowWindow):
    """Ends ``timeout_ticks`` after its last event, or at a multiple of ``max_ticks`` once it is that old.

    There is one sequence of sessions for each value of PARTITION BY.
    """

    names = ("SessionWindow", "Session")
    lengths = (Length("Timeout"), Length("MaxDuration", "maximum duration"))
    example = "SessionWindow(second, 5, 60)"
    description = "Events that follow each other within a timeout, up to a maximum duration."
    partitions = True
    word = "session"

    timeout_ticks: int
    max_ticks: int

    @property
    def lookback_ticks(self) -> int:
        # A session depends on where earlier sessions were cut: after three maxima and a timeout it is back on the grid
        # of maxima, whatever the history was.
        return 3 * self.max_ticks + self.timeout_ticks

    @property
    def windows_of_an_event(self) -> int:
        return 1

    @property
    def kept_ticks(self) -> int:
        # A session is cut at the first check after its maximum duration, and checks are as far apart.
        return 2 * self.max_ticks

    def operator(self, relation: plan.Aggregate, window_id: str | None) -> SessionOperator:
        return SessionOperator(relation, self, window_id)

    def describe_windows(self, time: int) -> str:
        return (
            f"the session that is open at {short_time(time)}, which a gap of more than "
            f"{format_duration(self.timeout_ticks)} ends"
        )

    def describe(self) -> str:
        keys = f", by {', '.join(map(expression, self.partition_by))}" if self.partition_by else ""
        return f"session({duration(self.timeout_ticks)}, at most {duration(self.max_ticks)}{keys})"
