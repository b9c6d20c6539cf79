"""How a notebook shows a query: what it does, its latest batch and step, and how far its watermark is behind."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

_WIDTH, _HEIGHT, _MARGIN = 360, 60, 4
_MOST_NOTICES = 5


def query_html(
    name: str, message: str, progress: Any, steps: Sequence[Mapping[str, Any]], notices: Sequence[str]
) -> str:
    """Return a query as HTML without scripts.

    Args:
        name: the query's name or identity.
        message: what it does at the moment.
        progress: Spark's latest `StreamingQueryProgress`; None if there is none.
        steps: of the evaluation, the oldest first, in the form of Spark's progress.
        notices: what it has said.
    """
    rows = [("query", name), ("status", message)]
    if progress is not None:
        written = f"{progress.numInputRows:,} rows to {progress.sink.description}"
        rows += [
            ("batch", f"{progress.batchId:,} at {progress.timestamp}, {progress.batchDuration:,} ms"),
            ("written", written),
        ]
    if steps:
        last = steps[-1]
        rows += [
            ("step", f"{last['batchId']:,} at {last['timestamp']}, {last['batchDuration']:,} ms"),
            ("read", f"{last['numInputRows']:,} events, {last['processedRowsPerSecond']:,.0f} a second"),
            ("watermark", last["eventTime"].get("watermark", "none yet")),
        ]
    rows += [("notice", text) for text in notices[-_MOST_NOTICES:]]
    # Jupyter aligns cells to the right, as those of data; sentences are hard to read there.
    left = 'style="text-align: left"'
    cells = "".join(
        f"<tr><th {left}>{html.escape(key)}</th><td {left}>{html.escape(value)}</td></tr>" for key, value in rows
    )
    return f"<table>{cells}</table>{_delays_svg(steps)}"


def _delays_svg(reports: Sequence[Mapping[str, Any]]) -> str:
    """Return how far the watermark was behind the clock at each report, as a line; empty for fewer than two."""
    points = [
        (at, at - _seconds(report["eventTime"]["watermark"]))
        for report in reports
        if "watermark" in report["eventTime"]
        for at in [_seconds(report["timestamp"])]
    ]
    if len(points) < 2:
        return ""
    begin, most = points[0][0], max(max(delay for _, delay in points), 0.001)
    span = max(points[-1][0] - begin, 0.001)
    inner = _HEIGHT - 2 * _MARGIN
    line = " ".join(
        f"{_MARGIN + (_WIDTH - 2 * _MARGIN) * (at - begin) / span:.1f},"
        f"{_HEIGHT - _MARGIN - inner * max(delay, 0) / most:.1f}"
        for at, delay in points
    )
    title = f"watermark behind the clock: {points[-1][1]:,.1f} s now, at most {most:,.1f} s in {span:,.0f} s"
    return (
        f'<figure><svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{title}">'
        f'<polyline points="{line}" fill="none" stroke="currentColor"/></svg><figcaption>{title}</figcaption></figure>'
    )


def _seconds(text: str) -> float:
    """Return a time such as 2026-01-31T12:00:00.0000000Z in seconds since 1970."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp() + float(f"0.{fraction or 0}")
