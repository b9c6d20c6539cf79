"""The watermark picture: event time against arrival time, events as dots by fate, the watermark as a step line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from math import atan2, degrees

import numpy as np
import numpy.typing as npt

from tidegate.job.analysis.picture_dots import INK, KINDS, UNREADABLE, DotKind, PlotArea, draw_dots, glyph, kinds_of
from tidegate.ordering.policy import Policy
from tidegate.ordering.ticks import (
    NO_TIME,
    TICKS_PER_DAY,
    TICKS_PER_HOUR,
    TICKS_PER_MINUTE,
    TICKS_PER_SECOND,
    Times,
    format_time,
)
from tidegate.ordering.timeline import DROPPED, Flags, Stamps

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


_QUIET, _GRID = "#666666", "#e6e6e6"

# Watermark lines differ by their dashes, since colour already tells the rules.
_DASHES = ("", "7 3", "2 2", "9 3 2 3", "4 2", "1 3")
_DENSE = 1_000
"""With this many dots or more, they would hide the watermark."""
_LETTER = 6.9
"""Width of a letter of the legend, about; text is not measured here."""


def watermark_svg(
    event_time: Times,
    arrival: Times,
    stamps: Stamps,
    *,
    title: str,
    policy: Policy | None = None,
    timelines: Sequence[str] | None = None,
    width: int = 960,
    height: int = 600,
) -> str:
    """Draw n stamped events, in broker order, as an SVG document (text).

    ``event_time``, ``arrival``: int64[n], ticks; ``stamps``: what the scan said of them. ``policy``: its tolerances are
    drawn as dashed lines and written under the title. ``timelines``: for each event the name of its timeline (partition
    or substream); each gets a watermark line of its own (a single one without). Raises ValueError if lengths differ.
    """
    if not len(event_time) == len(arrival) == len(stamps) or (timelines is not None and len(timelines) != len(stamps)):
        raise ValueError("event_time, arrival, stamps and timelines must be columns of the same events")
    kinds = kinds_of(stamps)
    placed = kinds != UNREADABLE
    legend, legend_height = _legend(kinds, width)
    top = 58.0 + legend_height
    margin = 36.0 if timelines is None else min(180.0, 16 + _LETTER * max(map(len, timelines), default=0))
    frame = _frame(event_time, arrival, stamps, placed, (92.0, top, width - margin, height - 58.0))
    dots, drawn = draw_dots(frame, event_time, arrival, stamps, kinds)
    watermarks = _watermarks(frame, arrival, stamps, timelines)
    notes = [f"{len(stamps):,} events"]
    if drawn < int(placed.sum()):
        notes.append(f"{drawn:,} dots drawn, one where several of a kind fall together")
    outside = int((placed & ((event_time < frame.first_time) | (event_time > frame.last_time))).sum())
    if outside:
        notes.append(f"{outside:,} own times lie beyond the edge and are marked there")
    subtitle = policy.describe() if policy else "event ordering: not stated"
    middle = (frame.left + frame.right) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" font-family="system-ui, \'Segoe UI\', \'DejaVu Sans\', sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="24" y="28" font-size="17" font-weight="600" fill="{INK}">{escape(title)}</text>',
        f'<text x="24" y="47" font-size="12" fill="{_QUIET}">{escape(subtitle)}</text>',
        legend,
        f'<clipPath id="plot"><rect x="{frame.left}" y="{frame.top}" width="{frame.right - frame.left:.1f}" '
        f'height="{frame.bottom - frame.top:.1f}"/></clipPath>',
        *_axes(frame),
        *_bounds(frame, policy),
        *([dots, *watermarks] if drawn > _DENSE else [*watermarks, dots]),
        f'<text x="{middle:.1f}" y="{height - 22}" font-size="12" text-anchor="middle" fill="{INK}">'
        f"arrival time (UTC), {days(frame.first_arrival, frame.last_arrival)}</text>",
        f'<text transform="translate(16 {(frame.top + frame.bottom) / 2:.1f}) rotate(-90)" font-size="12" '
        f'text-anchor="middle" fill="{INK}">event time (UTC), {days(frame.first_time, frame.last_time)}</text>',
        f'<text x="{width - 24}" y="{height - 6}" font-size="11" text-anchor="end" fill="{_QUIET}">'
        f"{escape('; '.join(notes))}</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _frame(
    event_time: Times,
    arrival: Times,
    stamps: Stamps,
    placed: npt.NDArray[np.bool_],
    edges: tuple[float, float, float, float],
) -> PlotArea:
    left, top, right, bottom = edges
    arrivals = arrival[arrival != NO_TIME]
    first_arrival, last_arrival = _span(arrivals)
    kept = stamps.system_timestamp[stamps.fate != DROPPED]
    promised = stamps.watermark[stamps.watermark != NO_TIME]
    first, last = _span(np.concatenate([kept, promised]) if len(kept) or len(promised) else event_time[placed])
    # Own times of touched events may lie anywhere; they widen the picture, but no single one may flatten the rest.
    own = event_time[placed]
    if len(own):
        room = 2 * (last - first)
        within = own[(own >= first - room) & (own <= last + room)]
        if len(within):
            first, last = min(first, int(within.min())), max(last, int(within.max()))
    wide, high = max(1, (last_arrival - first_arrival) // 40), max(1, (last - first) // 25)
    return PlotArea(left, top, right, bottom, first_arrival - wide, last_arrival + wide, first - high, last + high)


def _span(times: Times) -> tuple[int, int]:
    if not len(times):
        return 0, TICKS_PER_SECOND
    first, last = int(times.min()), int(times.max())
    return (first, last) if first < last else (first - TICKS_PER_SECOND, last + TICKS_PER_SECOND)


def _axes(frame: PlotArea) -> list[str]:
    parts = []
    for mark in marks(frame.first_arrival, frame.last_arrival, int((frame.right - frame.left) // 80)):
        x = float(frame.x(np.array([mark.ticks]))[0])
        parts.append(f'<path d="M{x:.1f} {frame.top:.1f}V{frame.bottom:.1f}" stroke="{_GRID}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{frame.bottom + 16:.1f}" font-size="11" text-anchor="middle" fill="{_QUIET}">'
            f"{mark.label}</text>"
        )
    for mark in marks(frame.first_time, frame.last_time, int((frame.bottom - frame.top) // 32)):
        y = float(frame.y(np.array([mark.ticks]))[0])
        parts.append(f'<path d="M{frame.left:.1f} {y:.1f}H{frame.right:.1f}" stroke="{_GRID}"/>')
        parts.append(
            f'<text x="{frame.left - 7:.1f}" y="{y + 4:.1f}" font-size="11" text-anchor="end" fill="{_QUIET}">'
            f"{mark.label}</text>"
        )
    parts.append(
        f'<path d="M{frame.left:.1f} {frame.top:.1f}V{frame.bottom:.1f}H{frame.right:.1f}" fill="none" '
        f'stroke="{_QUIET}"/>'
    )
    return parts


def _bounds(frame: PlotArea, policy: Policy | None) -> list[str]:
    """Draw where event time equals arrival, and how far from it the policy lets an event be."""
    lines = [(0, "event time = arrival")]
    if policy is not None and policy.early_ticks is not None:
        lines.append((policy.early_ticks, "early"))
    if policy is not None and policy.late_ticks is not None:
        lines.append((-policy.late_ticks, "late"))
    parts = []
    drawn: set[int] = set()
    high = frame.last_time - frame.first_time
    for ahead, name in lines:
        begin = max(frame.first_arrival, frame.first_time - ahead)
        end = min(frame.last_arrival, frame.last_time - ahead)
        if begin >= end or ahead in drawn:
            continue
        drawn.add(ahead)
        x, y = frame.x(np.array([begin, end])), frame.y(np.array([begin + ahead, end + ahead]))
        parts.append(
            f'<path d="M{x[0]:.1f} {y[0]:.1f}L{x[1]:.1f} {y[1]:.1f}" stroke="#9a9a9a" stroke-dasharray="3 4"/>'
        )
        angle = degrees(atan2(y[1] - y[0], x[1] - x[0]))
        # A name is written only where it has room: along its line, and clear of the line named before.
        room = np.hypot(x[1] - x[0], y[1] - y[0]) > 2 * _LETTER * len(name)
        clear = all(abs(ahead - other) * (frame.bottom - frame.top) > 16 * high for other in drawn if other != ahead)
        if room and clear:
            parts.append(
                f'<text transform="translate({x[0]:.1f} {y[0]:.1f}) rotate({angle:.1f})" x="10" y="-4" '
                f'font-size="10" fill="#8a8a8a" stroke="#ffffff" stroke-width="3" paint-order="stroke">{name}</text>'
            )
    return parts


def _watermarks(frame: PlotArea, arrival: Times, stamps: Stamps, timelines: Sequence[str] | None) -> list[str]:
    if timelines is None:
        path = _steps(frame, arrival, stamps.watermark)
        return (
            [f'<path d="{path}" fill="none" stroke="{INK}" stroke-width="1.6" clip-path="url(#plot)"/>'] if path else []
        )
    parts = []
    labels: list[tuple[float, str]] = []
    which = np.array(timelines, dtype=np.str_)
    names = list(dict.fromkeys(timelines))
    for i, name in enumerate(names):
        of_timeline = which == name
        path = _steps(frame, arrival[of_timeline], stamps.watermark[of_timeline])
        if not path:
            continue
        few = len(names) <= len(_DASHES)
        dashes = f' stroke-dasharray="{_DASHES[i]}"' if few and _DASHES[i] else ""
        stroke = 'stroke-width="1.5"' if few else 'stroke-width="1" stroke-opacity="0.35"'
        parts.append(f'<path d="{path}" fill="none" stroke="{INK}" {stroke}{dashes} clip-path="url(#plot)"/>')
        if few:
            labels.append((float(frame.y(stamps.watermark[of_timeline][-1:])[0]), name))
    lowest = frame.bottom
    for y, name in sorted(labels, reverse=True):
        lowest = min(y + 4, lowest)
        parts.append(
            f'<text x="{frame.right + 5:.1f}" y="{lowest:.1f}" font-size="11" fill="{INK}">{escape(name)}</text>'
        )
        lowest -= 13
    return parts


def _steps(frame: PlotArea, arrival: Times, watermark: Times) -> str:
    """Return the path of a watermark that is constant between events; at most one step a pixel column."""
    promised = np.flatnonzero(watermark != NO_TIME)
    if not len(promised):
        return ""
    x = np.maximum.accumulate(np.round(frame.x(arrival[promised]), 1))
    y = np.round(np.clip(frame.y(watermark[promised]), frame.top - 9, frame.bottom + 9), 1)
    last_of_column = np.append(np.floor(x[1:]) != np.floor(x[:-1]), True)
    x, y = x[last_of_column], y[last_of_column]
    moves = np.append(True, y[1:] != y[:-1])
    steps = [f"H{at:g}V{to:g}" for at, to in zip(x[moves][1:], y[moves][1:], strict=True)]
    return f"M{x[0]:g} {y[0]:g}{''.join(steps)}H{frame.right:g}"


def _legend(kinds: Flags, width: int) -> tuple[str, float]:
    """Return the SVG of the legend below the subtitle, and its height."""
    entries: list[tuple[DotKind | None, str]] = []
    for number, kind in enumerate(KINDS):
        count = int((kinds == number).sum())
        if count:
            entries.append((kind, f"{kind.name} {count:,}"))
    unreadable = int((kinds == UNREADABLE).sum())
    entries.append((None, "watermark"))
    parts, x, y = [], 24.0, 66.0
    for entry, text in entries:
        taken = 34 + _LETTER * len(text) + 14
        if x + taken > width - 24:
            x, y = 24.0, y + 20
        if entry is None:
            parts.append(f'<path d="M{x:.1f} {y + 3:.1f}h14v-6h14" fill="none" stroke="{INK}" stroke-width="1.6"/>')
        else:
            parts.append(glyph(entry, x, y))
        parts.append(f'<text x="{x + 34:.1f}" y="{y + 4:.1f}" font-size="12" fill="{INK}">{text}</text>')
        x += taken
    if unreadable:
        text = f"without a readable time or key, not drawn: {unreadable:,}"
        if x + _LETTER * len(text) > width - 24:
            x, y = 24.0, y + 20
        parts.append(f'<text x="{x:.1f}" y="{y + 4:.1f}" font-size="12" fill="{INK}">{text}</text>')
    return "\n".join(parts), y + 20 - 58
