"""Sessions, against the rule told row by row."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tests.engine.stateful.rows import BASES, KEYS, Rows, rows
from tidegate.engine.windows.kinds.session import sessions
from tidegate.ordering import END_OF_TIME, NO_TIME
from tidegate.ordering.ticks import FIRST_TICKS

Result = tuple[int, int, tuple[int, ...]]
"""A key, the end of a session, and its rows."""


@dataclass
class Open:
    """The session of one key, as time advances tick by tick."""

    opened: int
    last: int
    members: list[int] = field(default_factory=list)


def by_the_rule(given_rows: Rows, timeout: int, longest: int) -> list[Result]:
    """Advance time tick by tick, and at each tick add its rows before asking whether a session ends."""
    results = []
    for key in range(KEYS):
        own = [(time, row) for row, time in enumerate(given_rows.times) if given_rows.keys[row] == key]
        session: Open | None = None
        for now in range(own[0][0], own[-1][0] + timeout + 1) if own else ():
            for row in (row for time, row in own if time == now):
                session = session or Open(now, now)
                session.last = now
                session.members.append(row)
            if session is None:
                continue
            is_check = (now - FIRST_TICKS) % longest == 0 and now - session.opened >= longest
            is_over = now - session.last == timeout
            if (is_check or is_over) and session.members:
                results.append((key, now, tuple(session.members)))
            if is_over:
                session = None
            elif is_check:
                session = Open(now, session.last)
    return results


def gathered(ends: dict[int, int], keys: list[int]) -> list[Result]:
    members: dict[tuple[int, int], list[int]] = {}
    for row, end in sorted(ends.items()):
        members.setdefault((keys[row], end), []).append(row)
    return sorted((key, end, tuple(inside)) for (key, end), inside in members.items())


def computed(given_rows: Rows, timeout: int, longest: int, cuts: list[int]) -> list[Result]:
    """By watermarks: at each, what has ended comes out, and no more is kept than must be."""
    times = np.array(given_rows.times, dtype=np.int64)
    keys = np.array(given_rows.keys, dtype=np.int64)
    ends: dict[int, int] = {}
    held = np.empty(0, dtype=np.int64)
    opened, counted = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_)
    begin = 0
    for until in [*sorted(cuts), END_OF_TIME]:
        end = int(np.searchsorted(times, until))
        new = np.arange(begin, max(begin, end))
        begin = max(begin, end)
        held = np.concatenate([held, new])
        opened = np.concatenate([opened, np.full(len(new), NO_TIME)])
        counted = np.concatenate([counted, np.ones(len(new), dtype=np.bool_)])
        here = Rows(times[held].tolist(), keys[held].tolist(), [True] * len(held))
        of_held = sessions(*here.columns()[:2], timeout, longest, opened, until)
        out = counted & (of_held.ends < until)
        ends.update(zip(held[out].tolist(), of_held.ends[out].tolist(), strict=True))
        counted = counted & ~out
        kept = counted | of_held.open_last
        held, opened, counted = held[kept], of_held.opened[kept], counted[kept]
    assert not len(held)
    return gathered(ends, given_rows.keys)


lengths = st.tuples(st.integers(1, 7), st.integers(1, 7))
cuts = st.lists(st.integers(-1, 45), max_size=5)


@given(st.data(), BASES, lengths, cuts)
def test_sessions_are_those_of_the_rule_whenever_it_is_asked(
    data: st.DataObject, base: int, lengths: tuple[int, int], cuts: list[int]
) -> None:
    given_rows = data.draw(rows(base, span=36))
    assert computed(given_rows, *lengths, [base + cut for cut in cuts]) == by_the_rule(given_rows, *lengths)


@example(rows_=Rows([0, 3, 6, 9, 12, 15], [0] * 6, [True] * 6), lengths=(3, 5), start=10)
@given(rows(0, most=24, span=40), lengths, st.integers(0, 50))
def test_what_was_before_the_look_back_changes_nothing(rows_: Rows, lengths: tuple[int, int], start: int) -> None:
    timeout, longest = lengths
    kept, gone = rows_.since(start - timeout - 2 * longest)
    whole = [result for result in by_the_rule(rows_, timeout, longest) if result[1] >= start]
    cut = [
        (key, end, tuple(row + gone for row in inside))
        for key, end, inside in computed(kept, timeout, longest, [])
        if end >= start
    ]
    assert cut == whole


def test_a_row_at_just_the_timeout_extends_a_session() -> None:
    rows_ = Rows([0, 5, 11], [0, 0, 0], [True] * 3)
    assert computed(rows_, 5, 1000, []) == [(0, 10, (0, 1)), (0, 16, (2,))]


def test_a_row_at_a_check_belongs_to_the_session_that_ends_there() -> None:
    base = FIRST_TICKS
    rows_ = Rows([base + time for time in (1, 4, 8, 12, 16, 20, 21)], [0] * 7, [True] * 7)
    # Opened at 1, checked at 10 (9 old: stays) and at 20.
    assert computed(rows_, 5, 10, []) == [(0, base + 20, (0, 1, 2, 3, 4, 5)), (0, base + 26, (6,))]


def test_a_stretch_between_checks_without_rows_gives_nothing() -> None:
    base = FIRST_TICKS
    rows_ = Rows([base + 1, base + 50], [0, 0], [True, True])
    assert computed(rows_, 60, 10, []) == [(0, base + 20, (0,)), (0, base + 50, (1,))]
