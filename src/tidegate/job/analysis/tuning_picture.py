"""The tuning picture: over the out-of-order tolerance, how many events are touched and how far the watermark is behind.

Both panels share the axis of out-of-order tolerances and have a line for each late tolerance, from light (short) to
dark (long). Shares fall by powers of ten, so their axis is logarithmic; zero is drawn at its foot.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log10

from tidegate.ordering.ticks import TICKS_PER_SECOND, format_duration
from tidegate.ordering.tuning import TuningOutcome

_INK, _QUIET, _GRID, _GOAL = "#222222", "#666666", "#e6e6e6", "#d55e00"
_LIGHT, _DARK = (0x8C, 0xC4, 0xE8), (0x08, 0x2B, 0x55)
_LEFT, _RIGHT = 92.0, 836.0
_FINEST_SHARE = 1e-5
_SHORTEST_S = 0.1


def tuning_svg(
    grid: Sequence[Sequence[TuningOutcome]],
    *,
    title: str,
    subtitle: str,
    keep: float,
    current: TuningOutcome | None = None,
) -> str:
    """Draw outcomes, by late tolerance and then by out-of-order tolerance, as an SVG document (text).

    ``keep``: the share to be left untouched, drawn as a line. ``current``: the tolerances in force, marked by a ring
    where they are of the grid. Raises ValueError for an empty grid.
    """
    if not grid or not grid[0]:
        raise ValueError("there is nothing to draw")
    width, height = 960, 640
    shares, delays = _Panel(84.0, 330.0), _Panel(392.0, 574.0)
    x = [_x(place, len(grid[0])) for place in range(len(grid[0]))]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" font-family="system-ui, \'Segoe UI\', \'DejaVu Sans\', sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="24" y="28" font-size="17" font-weight="600" fill="{_INK}">{escape(title)}</text>',
        f'<text x="24" y="47" font-size="12" fill="{_QUIET}">{escape(subtitle)}</text>',
        _heading(shares, "events touched by a rule"),
        _heading(delays, "watermark behind the arrival clock (95th percentile)"),
        *_share_axis(shares),
        *_delay_axis(delays, grid),
        *_tolerance_axis(shares, delays, x, grid[0]),
        *_goal(shares, keep),
    ]
    longest = _longest_s(grid)
    for row, outcomes in enumerate(grid):
        colour = _colour(row, len(grid))
        for panel, heights in (
            (shares, [_share_height(1 - outcome.share_untouched) for outcome in outcomes]),
            (delays, [_delay_height(outcome.watermark_delay_p95_ticks, longest) for outcome in outcomes]),
        ):
            parts += _line(panel, x, heights, colour)
            parts += _rings(panel, x, heights, outcomes, current)
        parts.append(_legend(row, len(grid), outcomes[0], colour))
    middle = (_LEFT + _RIGHT) / 2
    parts.append(
        f'<text x="{middle:.1f}" y="{height - 16}" font-size="12" text-anchor="middle" fill="{_INK}">'
        "out-of-order tolerance</text>"
    )
    parts.append(f'<text x="{_RIGHT + 16:.1f}" y="76" font-size="12" fill="{_INK}">late tolerance</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Panel:
    """A plot's vertical extent; heights from 0 (bottom) to 1."""

    def __init__(self, top: float, bottom: float) -> None:
        self.top, self.bottom = top, bottom

    def y(self, height: float) -> float:
        return self.bottom - height * (self.bottom - self.top)


def _x(place: int, count: int) -> float:
    return _LEFT + 20 + (place * (_RIGHT - _LEFT - 40) / (count - 1) if count > 1 else 0)


def _share_height(share: float) -> float:
    """Return the height of a share: powers of ten from 10⁻⁵ to 1, with nothing at the foot."""
    decades = -log10(_FINEST_SHARE)
    return 0.0 if share <= 0 else 0.06 + 0.94 * (1 + log10(max(share, _FINEST_SHARE)) / decades)


def _delay_height(ticks: int | None, longest_s: float) -> float | None:
    if ticks is None:
        return None
    seconds = max(ticks / TICKS_PER_SECOND, 0.0)
    return log10(1 + seconds / _SHORTEST_S) / log10(1 + longest_s / _SHORTEST_S)


def _longest_s(grid: Sequence[Sequence[TuningOutcome]]) -> float:
    known = [outcome.watermark_delay_p95_ticks for row in grid for outcome in row]
    return max([1.0, *(ticks / TICKS_PER_SECOND for ticks in known if ticks is not None)])


def _heading(panel: _Panel, text: str) -> str:
    return f'<text x="{_LEFT:.1f}" y="{panel.top - 8:.1f}" font-size="12" fill="{_INK}">{text}</text>'


def _share_axis(panel: _Panel) -> list[str]:
    marks = [(share, f"{share:.{digits}%}") for share, digits in ((1, 0), (0.1, 0), (0.01, 0), (1e-3, 1), (1e-4, 2))]
    return [
        part
        for share, text in [*marks, (1e-5, "0.001%"), (0, "none")]
        for part in _rule(panel.y(_share_height(share)), text)
    ]


def _delay_axis(panel: _Panel, grid: Sequence[Sequence[TuningOutcome]]) -> list[str]:
    longest = _longest_s(grid)
    parts, lowest = [], panel.bottom + 99
    for seconds in (0, 1, 5, 30, 120, 600, 3600, 6 * 3600, 86400, 7 * 86400):
        height = _delay_height(seconds * TICKS_PER_SECOND, longest)
        assert height is not None
        y = panel.y(height)
        if height <= 1 and lowest - y >= 16:
            parts += _rule(y, format_duration(seconds * TICKS_PER_SECOND))
            lowest = y
    return parts


def _rule(y: float, text: str) -> list[str]:
    return [
        f'<path d="M{_LEFT:.1f} {y:.1f}H{_RIGHT:.1f}" stroke="{_GRID}"/>',
        f'<text x="{_LEFT - 7:.1f}" y="{y + 4:.1f}" font-size="11" text-anchor="end" fill="{_QUIET}">{text}</text>',
    ]


def _tolerance_axis(shares: _Panel, delays: _Panel, x: Sequence[float], outcomes: Sequence[TuningOutcome]) -> list[str]:
    parts = []
    for at, outcome in zip(x, outcomes, strict=True):
        for panel in (shares, delays):
            parts.append(f'<path d="M{at:.1f} {panel.top:.1f}V{panel.bottom:.1f}" stroke="{_GRID}"/>')
            parts.append(
                f'<text x="{at:.1f}" y="{panel.bottom + 16:.1f}" font-size="11" text-anchor="middle" fill="{_QUIET}">'
                f"{_named(outcome.out_of_order_ticks)}</text>"
            )
    return parts


def _goal(panel: _Panel, keep: float) -> list[str]:
    y = panel.y(_share_height(1 - keep))
    return [
        f'<path d="M{_LEFT:.1f} {y:.1f}H{_RIGHT:.1f}" stroke="{_GOAL}" stroke-dasharray="6 3"/>',
        f'<text x="{_LEFT + 6:.1f}" y="{y - 5:.1f}" font-size="11" fill="{_GOAL}" stroke="#ffffff" stroke-width="3" '
        f'paint-order="stroke">{100 * keep:.6g}% of all events untouched</text>',
    ]


def _line(panel: _Panel, x: Sequence[float], heights: Sequence[float | None], colour: str) -> list[str]:
    points = [(at, panel.y(height)) for at, height in zip(x, heights, strict=True) if height is not None]
    if not points:
        return []
    path = "L".join(f"{at:.1f} {y:.1f}" for at, y in points)
    dots = "".join(f'<circle cx="{at:.1f}" cy="{y:.1f}" r="3" stroke="none"/>' for at, y in points)
    return [
        f'<g fill="{colour}" stroke="{colour}"><path d="M{path}" fill="none" stroke-width="1.8" '
        f'stroke-linejoin="round"/>{dots}</g>'
    ]


def _rings(
    panel: _Panel,
    x: Sequence[float],
    heights: Sequence[float | None],
    outcomes: Sequence[TuningOutcome],
    current: TuningOutcome | None,
) -> list[str]:
    return [
        f'<circle cx="{at:.1f}" cy="{panel.y(height):.1f}" r="7" fill="none" stroke="{_INK}" stroke-width="1.6">'
        "<title>the tolerances in force</title></circle>"
        for at, height, outcome in zip(x, heights, outcomes, strict=True)
        if height is not None and current is not None and _pair(outcome) == _pair(current)
    ]


def _legend(row: int, rows: int, outcome: TuningOutcome, colour: str) -> str:
    x, y = _RIGHT + 16, 94 + row * min(18, 230 / rows)
    return (
        f'<path d="M{x:.1f} {y:.1f}h18" stroke="{colour}" stroke-width="3"/>'
        f'<text x="{x + 24:.1f}" y="{y + 4:.1f}" font-size="11" fill="{_INK}">{_named(outcome.late_ticks)}</text>'
    )


def _pair(outcome: TuningOutcome) -> tuple[int | None, int | None]:
    return outcome.late_ticks, outcome.out_of_order_ticks


def _named(ticks: int | None) -> str:
    return "for ever" if ticks is None else format_duration(ticks)


def _colour(row: int, rows: int) -> str:
    part = row / (rows - 1) if rows > 1 else 1.0
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(_LIGHT, _DARK, strict=True))
