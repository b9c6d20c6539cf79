"""A job whose query or event ordering has changed goes on where its results ended, and says whose results are whose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.job.logs import travelling
from tests.job.run.test_run import QUERY, outputs_of, write_job
from tidegate.job import JobError, load_job, run_job
from tidegate.job.run.journal import Journal
from tidegate.job.run.versions import Versions
from tidegate.ordering import format_time, parse_time

HALF = parse_time("2026-01-01T00:00:30Z")
OLD = QUERY
NEW = QUERY.replace("COUNT(*) AS n", "COUNT(*) * 10 AS n").replace("v > 90", "v > 80")


def run_until(path: Path, until: int | None = None, **arguments: Any) -> list[str]:
    """Run a job in steps of a few events; return its notices."""
    job = load_job(path)
    notices: list[str] = []
    bound = {} if until is None else {"until": until}
    run_job(job, travelling(job), max_events_per_step=20, notice=notices.append, **bound, **arguments)
    return notices


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_bytes().splitlines()]


def alone(folder: Path, query: str, ordering: str = "late_arrival_tolerance_s = 4") -> Path:
    """The same job with one query from beginning to end."""
    path = write_job(folder, 600, query, ordering)
    run_until(path)
    return path


@pytest.mark.slow
def test_the_new_query_takes_over_where_the_results_of_the_old_one_ended(tmp_path: Path) -> None:
    changed = write_job(tmp_path / "changed", 600, OLD)
    run_until(changed, HALF)
    released = Journal(tmp_path / "changed" / "crash.state").read_commit().released
    write_job(tmp_path / "changed", 600, NEW)
    (notice,) = run_until(changed)
    alone(tmp_path / "old", OLD)
    alone(tmp_path / "new", NEW)
    boundary = format_time(released)
    assert boundary in notice
    for name in ("counted", "large"):
        old = [row for row in rows(tmp_path / "old", name) if row["ts"] < boundary]
        new = [row for row in rows(tmp_path / "new", name) if row["ts"] >= boundary]
        assert old
        assert new
        assert rows(tmp_path / "changed", name) == old + new


@pytest.mark.slow
def test_the_report_says_which_results_are_whose(tmp_path: Path) -> None:
    path = write_job(tmp_path, 600, OLD)
    run_until(path, HALF)
    count = {name: len(rows(tmp_path, name)) for name in ("counted", "large")}
    write_job(tmp_path, 600, NEW)
    (notice,) = run_until(path)
    old, new = Versions(tmp_path / "crash.state").read()
    assert old.query is not None
    assert "v > 90" in old.query
    assert new.query is not None
    assert "v > 80" in new.query
    assert (old.results_from, old.first_rows) == (None, {})
    assert new.first_rows == count
    assert new.results_from in notice
    assert f"counted: {count['counted']:,}, large: {count['large']:,}" in notice


@pytest.mark.slow
def test_a_changed_event_ordering_takes_over_too(tmp_path: Path) -> None:
    path = write_job(tmp_path / "changed", 600)
    run_until(path, HALF)
    other = "late_arrival_tolerance_s = 1\nout_of_order_tolerance_s = 3"
    write_job(tmp_path / "changed", 600, ordering=other)
    run_until(path)
    alone(tmp_path / "new", QUERY, other)
    boundary = Versions(tmp_path / "changed" / "crash.state").read()[-1].results_from
    new = [row for row in rows(tmp_path / "new", "counted") if row["ts"] >= boundary]
    assert [row for row in rows(tmp_path / "changed", "counted") if row["ts"] >= boundary] == new
    assert new


@pytest.mark.slow
def test_a_change_that_changes_no_result_leaves_no_trace_in_the_outputs(tmp_path: Path) -> None:
    path = write_job(tmp_path / "changed", 600)
    run_until(path, HALF)
    write_job(tmp_path / "changed", 600, QUERY + "-- a comment\n")
    run_until(path)
    alone(tmp_path / "new", QUERY)
    assert outputs_of(tmp_path / "changed") == outputs_of(tmp_path / "new")


@pytest.mark.slow
def test_a_take_over_that_was_killed_before_its_commit_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_job(tmp_path, 600, OLD)
    run_until(path, HALF)
    write_job(tmp_path, 600, NEW)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write_commit", lambda self, commit: (_ for _ in ()).throw(JobError("killed")))
        with pytest.raises(JobError, match="killed"):
            run_until(path)
    newer = NEW.replace("v > 80", "v > 70")
    write_job(tmp_path, 600, newer)
    run_until(path)
    queries = [version.query for version in Versions(tmp_path / "crash.state").read()]
    assert queries == [load_job(write_job(tmp_path, 600, query)).sql for query in (OLD, newer)]


@pytest.mark.slow
def test_an_output_that_the_new_query_does_not_write_keeps_its_rows_for_its_return(tmp_path: Path) -> None:
    path = write_job(tmp_path, 600, OLD)
    run_until(path, HALF)
    kept = (tmp_path / "large.jsonl").read_bytes()
    only_counted = QUERY[: QUERY.index("SELECT System.Timestamp() AS ts, k, v")]
    files = '[outputs.counted]\ntype = "file"\npath = "counted.jsonl"\n'
    write_job(tmp_path, 600, only_counted, outputs=files)
    run_until(path, parse_time("2026-01-01T00:00:45Z"))
    assert (tmp_path / "large.jsonl").read_bytes() == kept
    write_job(tmp_path, 600, OLD)
    run_until(path)
    assert (tmp_path / "large.jsonl").read_bytes().startswith(kept)
    assert len(Versions(tmp_path / "crash.state").read()) == 3


@pytest.mark.slow
def test_a_new_query_over_a_log_that_has_ended_is_refused(tmp_path: Path) -> None:
    path = alone(tmp_path, OLD)
    write_job(tmp_path, 600, NEW)
    with pytest.raises(JobError, match="has changed since the job emitted all results"):
        run_until(path)


@pytest.mark.slow
def test_a_later_start_with_a_new_query_skips_what_is_between(tmp_path: Path) -> None:
    path = write_job(tmp_path, 600, OLD)
    run_until(path, HALF)
    write_job(tmp_path, 600, NEW)
    later = parse_time("2026-01-01T00:00:40Z")
    run_until(path, start=later)
    between = [row for row in rows(tmp_path, "large") if format_time(HALF) <= row["ts"] < format_time(later)]
    assert not between
    assert Versions(tmp_path / "crash.state").read()[-1].results_from == format_time(later)
