"""Where a time axis puts its marks and what it writes at them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from tidegate.ordering.ticks import TICKS_PER_DAY, TICKS_PER_HOUR, TICKS_PER_MINUTE, TICKS_PER_SECOND, format_time

# Steps that a clock's reader expects; between decimal fractions of a second and days the base changes.
_STEPS = (
    *(step * 10**power for power in range(7) for step in (1, 2, 5)),
    *(step * TICKS_PER_SECOND for step in (1, 2, 5, 10, 15, 30)),
    *(step * TICKS_PER_MINUTE for step in (1, 2, 5, 10, 15, 30)),
    *(step * TICKS_PER_HOUR for step in (1, 2, 3, 6, 12)),
    *(step * TICKS_PER_DAY for step in (1, 2, 7, 14, 28, 91, 364)),
)


@dataclass(frozen=True)
class Mark:
    """A mark at a time (ticks) and its label."""

    ticks: int
    label: str


def marks(first: int, last: int, most: int) -> list[Mark]:
    """Return at most ``most`` marks (at least 2) at round times from ``first`` to ``last``, in ticks.

    Labels are as short as tells neighbours apart: dates for days, hours and minutes, seconds, digits of a second. The
    first mark of each day after the first says the day.
    """
    length = max(1, last - first)
    longest = _STEPS[-1] * (length // (_STEPS[-1] * most) + 1)
    step = next((step for step in _STEPS if length // step < most), longest)
    found = []
    day_before = first // TICKS_PER_DAY
    for ticks in range(-(-first // step) * step, last + 1, step):
        label = _label(ticks, step)
        day = ticks // TICKS_PER_DAY
        if step < TICKS_PER_DAY and day != day_before:
            label = f"{label} {_day(ticks)}"
        day_before = day
        found.append(Mark(ticks, label))
    return found


def days(first: int, last: int) -> str:
    """Return the day, or first and last day, that an axis from ``first`` to ``last`` (ticks) covers."""
    one, other = format_time(first)[:10], format_time(last)[:10]
    return one if one == other else f"{one} to {other}"


def _label(ticks: int, step: int) -> str:
    text = format_time(ticks)
    if step >= 28 * TICKS_PER_DAY:
        return text[:10]
    if step >= TICKS_PER_DAY:
        return _day(ticks)
    if step >= TICKS_PER_MINUTE:
        return text[11:16]
    if step >= TICKS_PER_SECOND:
        return text[11:19]
    digits = next(digits for digits in range(1, 8) if step >= 10 ** (7 - digits))
    return text[11 : 20 + digits]


def _day(ticks: int) -> str:
    day = date.fromordinal(ticks // TICKS_PER_DAY + 719_163)
    return f"{day.day} {day:%b}"
