"""The dots of the watermark picture: one for each event, by the rule that touched it and by its fate.

Colour tells the rule (from the palette of Okabe and Ito, which readers with any colour vision can tell apart) and shape
tells the fate, so that a print without colour still says everything: a filled dot is at its System.Timestamp, a
hollow dot at the own time of an event that was moved from there, a cross at an event that is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.ordering.ticks import Times, format_time
from tidegate.ordering.timeline import (
    ADJUSTED,
    DROPPED,
    EARLY,
    INVALID_KEY,
    INVALID_TIMESTAMP,
    LATE,
    OK,
    OUT_OF_ORDER,
    Flags,
    Stamps,
)

MOST_DOTS = 4_000
"""More dots than this are thinned: of several of a kind in one small square, one is drawn."""

MOST_NUMBERED = 40
MOST_TOLD = 500

INK = "#222222"

Pixels = npt.NDArray[np.floating]


@dataclass(frozen=True)
class DotKind:
    """A kind of event: what the legend calls it, its colour, and whether it is kept, moved or lost."""

    name: str
    colour: str
    fate: int


KINDS = (
    DotKind("in time", "#0072b2", OK),
    DotKind("out of order, adjusted", "#e69f00", ADJUSTED),
    DotKind("late, adjusted", "#cc79a7", ADJUSTED),
    DotKind("out of order, dropped", "#b87900", DROPPED),
    DotKind("late, dropped", "#a8467c", DROPPED),
    DotKind("early, dropped", "#d55e00", DROPPED),
)
UNREADABLE = len(KINDS)


@dataclass(frozen=True)
class PlotArea:
    """The plot's rectangle in pixels and the times at its edges."""

    left: float
    top: float
    right: float
    bottom: float
    first_arrival: int
    last_arrival: int
    first_time: int
    last_time: int

    def x(self, arrival: Times) -> Pixels:
        # Differences are taken as integers: a float holds no tick of this century.
        scale = (self.right - self.left) / (self.last_arrival - self.first_arrival)
        return self.left + (arrival - self.first_arrival) * scale

    def y(self, time: Times) -> Pixels:
        scale = (self.bottom - self.top) / (self.last_time - self.first_time)
        return self.bottom - (time - self.first_time) * scale


def kinds_of(stamps: Stamps) -> Flags:
    """Return the index into KINDS of each event; UNREADABLE for one without a readable time or key."""
    adjusted = stamps.fate == ADJUSTED
    # A late event that was then out of order as well is drawn as late, the rule that came first.
    late, behind = (stamps.reasons & LATE) != 0, (stamps.reasons & OUT_OF_ORDER) != 0
    conditions = [
        (stamps.reasons & (INVALID_TIMESTAMP | INVALID_KEY)) != 0,
        (stamps.reasons & EARLY) != 0,
        late & adjusted,
        late,
        behind & adjusted,
        behind,
    ]
    return np.select(conditions, [UNREADABLE, 5, 2, 4, 1, 3], default=0).astype(np.uint8)


def draw_dots(frame: PlotArea, event_time: Times, arrival: Times, stamps: Stamps, kinds: Flags) -> tuple[str, int]:
    """Draw all dots that can be placed; return their SVG and how many there are."""
    shown = np.flatnonzero(kinds != UNREADABLE)
    x = frame.x(arrival[shown])
    # A time far away is marked at the picture's edge rather than not at all.
    own = np.clip(frame.y(event_time[shown]), frame.top, frame.bottom)
    stamped = np.where(stamps.fate[shown] == DROPPED, own, frame.y(stamps.system_timestamp[shown]))
    drawn = _thinned(kinds[shown], x, own, stamped)
    radius = 4.5 if len(drawn) <= 100 else 3.0 if len(drawn) <= 1_000 else 2.0
    arrows = ' marker-end="url(#arrow)"' if len(drawn) <= 200 else ""
    parts = [
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="12" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555555"/></marker></defs>',
        '<g clip-path="url(#plot)">',
    ]
    for kind_number, kind in enumerate(KINDS):
        of_kind = drawn[kinds[shown[drawn]] == kind_number]
        if not len(of_kind):
            continue
        faint = ' opacity="0.6"' if len(of_kind) > 500 else ""
        parts.append(f'<g fill="{kind.colour}" stroke="{kind.colour}"{faint}>')
        for i in of_kind.tolist():
            marks = _dot(kind, x[i], own[i], stamped[i], radius, arrows)
            if len(drawn) <= MOST_TOLD:
                marks = f"<g>{marks}<title>{_dot_text(int(shown[i]), event_time, stamps, kind)}</title></g>"
            parts.append(marks)
        parts.append("</g>")
    if len(stamps) <= MOST_NUMBERED:
        parts += _numbers(frame, shown + 1, x + radius + 2, own - radius - 1)
    parts.append("</g>")
    return "\n".join(parts), len(drawn)


def glyph(kind: DotKind, x: float, y: float) -> str:
    """Draw a kind as the legend shows it, in a space 28 wide and 12 high around the point (x + 14, y)."""
    body = _dot(kind, x + 14, y + 5, y - 5, 3.5, "") if kind.fate == ADJUSTED else _dot(kind, x + 14, y, y, 4.5, "")
    return f'<g fill="{kind.colour}" stroke="{kind.colour}">{body}</g>'


def _dot(kind: DotKind, x: float, own: float, stamped: float, radius: float, arrow: str) -> str:
    if kind.fate == DROPPED:
        r = radius
        return (
            f'<path d="M{x - r:.1f} {own - r:.1f}l{2 * r:.1f} {2 * r:.1f}m0 {-2 * r:.1f}l{-2 * r:.1f} {2 * r:.1f}" '
            f'fill="none" stroke-width="{max(1.2, r / 2.2):.1f}"/>'
        )
    filled = f'<circle cx="{x:.1f}" cy="{stamped:.1f}" r="{radius}" stroke="none"/>'
    if kind.fate != ADJUSTED:
        return filled
    # Where the dots nearly touch there is no room for an arrow's head.
    arrow = arrow if abs(own - stamped) > 4 * radius else ""
    return (
        f'<path d="M{x:.1f} {own:.1f}V{stamped:.1f}" stroke-width="1" stroke-opacity="0.6"{arrow}/>'
        f'<circle cx="{x:.1f}" cy="{own:.1f}" r="{radius - 0.5}" fill="#ffffff" stroke-width="1.2"/>{filled}'
    )


def _numbers(frame: PlotArea, numbers: npt.NDArray[np.intp], x: Pixels, y: Pixels) -> list[str]:
    """Draw each event's number beside its dot; dots in the same place share one text."""
    together: dict[tuple[int, int], list[int]] = {}
    for i in range(len(numbers)):
        together.setdefault((round(x[i] / 8), round(y[i] / 8)), []).append(i)
    parts = []
    for group in together.values():
        at, text = group[0], ", ".join(str(numbers[i]) for i in group)
        outside = x[at] + 7 * len(text) > frame.right
        place = f'x="{x[at] - 14:.1f}" text-anchor="end"' if outside else f'x="{x[at]:.1f}"'
        parts.append(
            f'<text {place} y="{max(y[at], frame.top + 9):.1f}" font-size="10" fill="{INK}" stroke="#ffffff" '
            f'stroke-width="3" paint-order="stroke">{text}</text>'
        )
    return parts


def _thinned(kinds: Flags, x: Pixels, own: Pixels, stamped: Pixels) -> npt.NDArray[np.intp]:
    """Return the dots to draw: all, or the first of each kind in each square of the finest grid that suffices."""
    chosen = np.arange(len(x))
    square = 1.5
    while len(chosen) > MOST_DOTS:
        cells = kinds.astype(np.int64)
        for place in (x, own, stamped):
            cells = (cells << 16) | (np.clip(place, 0, 65_535) / square).astype(np.int64)
        chosen = np.sort(np.unique(cells, return_index=True)[1])
        square *= 1.5
    return chosen


def _dot_text(event: int, event_time: Times, stamps: Stamps, kind: DotKind) -> str:
    text = f"event {event + 1}: {format_time(int(event_time[event]))}, {kind.name}"
    return f"{text} to {format_time(int(stamps.system_timestamp[event]))}" if kind.fate == ADJUSTED else text
