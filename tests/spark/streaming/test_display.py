"""How a notebook shows a query."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

from tidegate.spark.streaming.display import query_html

LEFT = ' style="text-align: left"'


def report(second: int, watermark: str | None) -> dict[str, Any]:
    return {
        "batchId": second,
        "timestamp": f"2026-01-31T12:00:{second:02d}.000Z",
        "batchDuration": 12,
        "numInputRows": 1_000,
        "processedRowsPerSecond": 83_333.3,
        "eventTime": {} if watermark is None else {"watermark": watermark},
    }


PROGRESS = SimpleNamespace(
    batchId=3,
    timestamp="2026-01-31T12:00:31.000Z",
    batchDuration=40,
    numInputRows=20,
    sink=SimpleNamespace(description="FileSink[<here>]"),
)


def test_a_query_is_shown_with_its_latest_batch_and_step_and_the_delay_of_its_watermark() -> None:
    reports = [
        report(10, None),
        report(20, "2026-01-31T12:00:15.0000000Z"),
        report(30, "2026-01-31T12:00:29.5000000Z"),
    ]
    shown = query_html("tolls", "Processing new data", PROGRESS, reports, ["5 events were skipped"])
    ElementTree.fromstring(f"<body>{shown}</body>")
    # Jupyter would align sentences to the right.
    assert shown.count(LEFT) == shown.count("<t") - shown.count("<tr") - shown.count("<table")
    shown = shown.replace(LEFT, "")
    assert "<th>read</th><td>1,000 events, 83,333 a second</td>" in shown
    assert "<th>batch</th><td>3 at 2026-01-31T12:00:31.000Z, 40 ms</td>" in shown
    assert "20 rows to FileSink[&lt;here&gt;]" in shown
    assert "5 events were skipped" in shown
    assert "watermark behind the clock: 0.5 s now, at most 5.0 s in 10 s" in shown
    assert 'points="4.0,4.0 356.0,50.8"' in shown


def test_a_query_that_has_read_nothing_is_shown_without_a_picture() -> None:
    shown = query_html("tolls", "Initializing sources", None, [], [])
    assert shown.replace(LEFT, "") == (
        "<table><tr><th>query</th><td>tolls</td></tr><tr><th>status</th><td>Initializing sources</td></tr></table>"
    )
