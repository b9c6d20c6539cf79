"""Early results: what is written about open windows, when, and that no cut, kill or start changes it."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.job.run.test_run import run_here, write_job
from tidegate.connectors.model.errors import JobError
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND, format_time, parse_time

QUERY = """
SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, AVG(v) AS mean INTO counted FROM i TIMESTAMP BY t
GROUP BY k, {window}
"""
OUTPUTS = """
[outputs.counted]
type = "file"
path = "counted.jsonl"
[outputs.early]
type = "file"
path = "early.jsonl"
[early_results]
period_s = {period}
outputs = {{ counted = "early" }}
"""
WINDOWS = ("TumblingWindow(second, 60)", "HoppingWindow(second, 60, 20)")


def write_early_job(folder: Path, window: str = WINDOWS[0], period: float = 10, events: int = 1500) -> Path:
    return write_job(folder, events, QUERY.format(window=window), outputs=OUTPUTS.format(period=period))


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
def test_revisions_grow_and_end_in_the_final_row(tmp_path: Path, window: str) -> None:
    summary = run_here(write_early_job(tmp_path, window))
    finals = rows_of(tmp_path / "counted.jsonl")
    told: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    early = rows_of(tmp_path / "early.jsonl")
    for row in early:
        told[row["ts"], row["k"]].append(row)
    assert [{**row, "revision": None, "final": None} for row in early if row["final"]] == [
        {**row, "revision": None, "final": None} for row in finals
    ]
    assert len(early) > 2 * len(finals)
    for rows in told.values():
        assert [row["final"] for row in rows] == [False] * (len(rows) - 1) + [True]
        counts = [row["n"] for row in rows]
        assert counts == sorted(counts)
        numbers = [row["revision"] for row in rows]
        assert numbers == sorted(set(numbers))
    assert summary.totals["Output Events"] == len(finals) + len(early)


def test_a_revision_has_what_arrived_before_a_multiple_of_the_period(tmp_path: Path) -> None:
    path = write_early_job(tmp_path, events=400)
    ordering = "late_arrival_tolerance_s = -1\nout_of_order_tolerance_s = 20"
    path.write_text(path.read_text().replace("late_arrival_tolerance_s = 4", ordering), encoding="utf-8")
    run_here(path)
    period, size = 10 * TICKS_PER_SECOND, 60 * TICKS_PER_SECOND
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    events = [(parse_time(line["arrival"]), line["partition"], line["body"]) for line in lines]
    last = {partition: arrival for arrival, partition, _ in events}
    expected = []
    for multiple in range(events[0][0] // period * period + period, events[-1][0] + 1, period):
        if not any(multiple - period <= arrival < multiple for arrival, _, _ in events):
            continue
        counts: dict[tuple[int, str], int] = defaultdict(int)
        latest = {partition: END_OF_TIME if last[partition] < multiple else NO_TIME for partition in last}
        for arrival, partition, body in events:
            # No event is far enough behind to be moved, so each counts where its own time is.
            if arrival < multiple and body != "{broken":
                time = parse_time(body["t"])
                counts[-(-time // size) * size, body["k"]] += 1
                latest[partition] = max(latest[partition], time)
        watermark = min(latest.values()) - 20 * TICKS_PER_SECOND
        expected += [(format_time(end), k, count) for (end, k), count in sorted(counts.items()) if end >= watermark]
    told = [(row["ts"], row["k"], row["n"]) for row in rows_of(tmp_path / "early.jsonl") if not row["final"]]
    assert told == expected
    assert len(told) > 10


@pytest.mark.parametrize("window", WINDOWS)
def test_no_cut_and_no_restart_changes_what_is_told(tmp_path: Path, window: str) -> None:
    whole = tmp_path / "whole"
    summary = run_here(write_early_job(whole, window, events=600))
    expected = (whole / "early.jsonl").read_bytes()
    dice = random.Random(5)
    for attempt in range(2):
        folder = tmp_path / f"cut-{attempt}"
        path = write_early_job(folder, window, events=600)
        while True:
            left = dice.randrange(4, 30)

            def stop_sometime(report: object) -> None:
                nonlocal left
                left -= 1
                if not left:
                    raise KeyboardInterrupt

            try:
                again = run_here(path, dice.choice([7, 30, 90]), stop_sometime)
                break
            except KeyboardInterrupt:
                continue
        assert (folder / "early.jsonl").read_bytes() == expected
        assert (folder / "counted.jsonl").read_bytes() == (whole / "counted.jsonl").read_bytes()
        assert again.totals == summary.totals


def test_a_stretch_without_events_tells_nothing_new(tmp_path: Path) -> None:
    path = write_early_job(tmp_path, period=1, events=3)
    lines = [
        {"partition": 0, "arrival": f"2026-01-0{day}T00:00:00.5Z", "body": {"t": f"2026-01-0{day}T00:00:00Z", "k": "a"}}
        for day in (1, 3)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    run_here(path)
    told = [(row["ts"][:10], row["revision"], row["final"]) for row in rows_of(tmp_path / "early.jsonl")]
    assert told == [
        ("2026-01-01", 1, False),
        ("2026-01-01", 2, True),
        ("2026-01-03", 1, True),
    ]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT k INTO counted FROM i TIMESTAMP BY t", "not from a window"),
        (
            "SELECT k, COUNT(*) AS n INTO counted FROM i TIMESTAMP BY t GROUP BY k, SessionWindow(second, 5, 10)",
            "the end of a session window is not known in advance",
        ),
        (
            "SELECT k, COUNT(*) AS n INTO counted FROM i TIMESTAMP BY t GROUP BY k, SlidingWindow(second, 5)",
            "the end of a sliding window",
        ),
        ("SELECT k INTO other FROM i TIMESTAMP BY t", "the query has no output 'counted'; it writes other"),
    ],
)
def test_what_has_no_early_results_is_told(tmp_path: Path, query: str, said: str) -> None:
    outputs = OUTPUTS.format(period=10)
    path = write_job(tmp_path, 5, query, outputs=outputs)
    with pytest.raises(JobError, match=said):
        run_here(path)


def test_an_output_of_the_query_is_not_mixed_with_early_results(tmp_path: Path) -> None:
    path = write_early_job(tmp_path, events=5)
    path.write_text(path.read_text().replace('counted = "early"', 'counted = "Counted"'), encoding="utf-8")
    with pytest.raises(JobError, match="the query itself writes 'Counted'; name another output"):
        run_here(path)
