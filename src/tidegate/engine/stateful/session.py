"""Session windows: from a row until none has come for a while, or until the session is too long.
https://learn.microsoft.com/stream-analytics-query/session-window-azure-stream-analytics

Theory. A *run* of a key is a stretch of its rows in which no two neighbours are further apart than the timeout; it is
over at E = its last time + timeout. A session opens with a run, at o, and is checked at the multiples of the maximum
duration, counted from 0001-01-01: at a check c with c − o ≥ max it ends, and the next one opens there, at c, if the run
goes on. From the first such check c₁ = the first multiple that is not before o + max, every multiple is one, because
the session that opened at the one before is exactly max old. So a row at t belongs to the session that ends at

    min(E, c₁ if t ≤ c₁ else the first multiple of max that is not before t)

and no loop over sessions is needed. A stretch between checks that no row falls into gives no result. A row at exactly
last + timeout extends the run, and one at exactly c belongs to the session that ends there: bounds are (start, end].

Look-back. What a session is depends on when its run opened, and a run may go on for ever. But only c₁ depends on it.
Take the rows from X on and nothing before, or anything else before. If the run at hand had its last row before X, and
goes on with the row f, then f < X + timeout, and the run cut off at X opens at f; else both runs open at the same
row. The whole run was forced at every multiple from some c₁ ≤ c′ on, the run cut off from c′ = the first multiple not
before f + max, and c′ < X + timeout + 2 max. From c′ on both stand alike, and if they are over before, they are over at
the same E ≤ c′ and the next run is the same in both. So sessions that end after c′ are the same, and
L = timeout + 2 max (a plan asks for one max more).

Forgetting. At W a session that ends before W is out, and its rows can go. What must stay of a run that is not over
(E ≥ W) is when its last session opened and its last time; the last row stays for that, counted or not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.engine.stateful.windows import ceil_to
from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS, NO_TIME


@dataclass(frozen=True, slots=True)
class Sessions:
    """In which session each of n rows is, and what is to be kept of them.

    Attributes:
        ends: int64[n], where the session of each row ends, as far as is known; before ``until`` that is final.
        open_last: bool[n], the last row of a run that is not over at ``until``.
        opened: int64[n], when the session open at ``until`` opened, for rows of a run that is not over.
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
) -> Sessions:
    """The sessions of rows, when all rows before ``until`` are there.

    Args:
        times: int64[n], ascending inside each sequence.
        sequences: the rows by what sessions are partitioned by; every row is in one.
        opened: int64[n], what `Sessions.opened` said of a row that was kept; NO_TIME for new ones.
        until: for all rows or for each; the same for the rows of a sequence.
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
    return Sessions(
        sequences.by_row(ends),
        sequences.by_row(open_last.astype(np.int64)).astype(np.bool_),
        sequences.by_row(session_opened[run]),
    )
