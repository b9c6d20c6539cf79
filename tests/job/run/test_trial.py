"""Events that end the process of a job: the job goes on without them, and says which they are."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.connectors.model.set_aside import read_set_aside
from tidegate.job import load_job, run_job
from tidegate.job.prepare.opening import close_logs, open_logs
from tidegate.job.run.deaths import EventRange
from tidegate.job.run.trial import _BATCHES, _Death, _Search, _Stretch, culprits
from tidegate.ordering import TICKS_PER_SECOND, format_time, parse_time

START = parse_time("2026-01-01T00:00:00Z")
DEADLY = """
import os

def deadly(value):
    if value < 0:
        os.kill(os.getpid(), 9)
    return value
"""
TOGETHER = """
import json, os
from pathlib import Path

def deadly(value):
    line = (Path(__file__).parent / "state" / "in-step.json").read_bytes().partition(b"\\n")[0]
    in_step = json.loads(line)["in_step"]
    if sum(end - start for _, _, start, end in in_step) > 20:
        os.kill(os.getpid(), 9)
    return value
"""
QUERY = """
SELECT System.Timestamp() AS ts, COUNT(*) AS n, SUM(udf.deadly(v)) AS s INTO out FROM i TIMESTAMP BY t
GROUP BY TumblingWindow(second, 5)
"""
LIFE = """
import sys
from pathlib import Path
from tidegate.job import load_job, run_job
run_job(load_job(Path(sys.argv[1])))
"""


def write_job(folder: Path, values: Sequence[int], *, harmless: bool = False, ordering: str = "") -> Path:
    """A job over events of two partitions, each with a value that ends the process if it is negative.

    Args:
        harmless: leave those out of the log.
    """
    folder.mkdir()
    lines = []
    for place, value in enumerate(values):
        arrival = format_time(START + place * TICKS_PER_SECOND // 2)
        if value >= 0 or not harmless:
            lines.append(json.dumps({"partition": place % 2, "arrival": arrival, "body": {"t": arrival, "v": value}}))
    (folder / "log.jsonl").write_text("\n".join(lines))
    (folder / "functions.py").write_text(DEADLY)
    path = folder / "job.toml"
    path.write_text(
        f'name = "deadly"\nstate_dir = "state"\nquery = """{QUERY}"""\n[event_ordering]\n{ordering}\n'
        '[functions.deadly]\nmodule = "functions.py"\n[inputs.i]\ntype = "recorded"\npath = "log.jsonl"\n'
        '[outputs.out]\ntype = "file"\npath = "out.jsonl"\n'
    )
    return path


def live(path: Path) -> int:
    """Run a job in a process of its own; return how that ended."""
    command = [sys.executable, "-c", LIFE, str(path)]
    return subprocess.run(command, check=False, capture_output=True, timeout=300).returncode


def data_errors(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "state" / "data-errors.jsonl").read_text().splitlines()]


@pytest.mark.crash
@pytest.mark.parametrize(
    "ordering", ["", pytest.param('timelines = "merged by enqueued time"', marks=pytest.mark.soak)]
)
def test_a_job_goes_on_without_events_that_have_ended_its_process_twice(tmp_path: Path, ordering: str) -> None:
    deadly = [-1 if place in (21, 44) else place for place in range(70)]
    path = write_job(tmp_path / "deadly", deadly, ordering=ordering)
    assert [live(path) for _ in range(3)] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    harmless = write_job(tmp_path / "harmless", deadly, harmless=True, ordering=ordering)
    run_job(load_job(harmless))
    result = (tmp_path / "deadly" / "out.jsonl").read_bytes()
    assert result == (tmp_path / "harmless" / "out.jsonl").read_bytes()
    assert result.count(b"\n") == 8

    places = {("0", 22), ("1", 10)}
    found = read_set_aside(tmp_path / "deadly" / "state")
    assert {(one.partition, one.sequence_number) for one in found} == places
    errors = data_errors(tmp_path / "deadly")
    samples = [sample for one in errors for sample in one["ExampleEvents"]]
    assert {(one["partition"], one["sequenceNumber"]) for one in samples} == places
    assert {one["DataErrorType"] for one in errors} == {"InputDeserializerError.SetAside"}
    assert not (tmp_path / "deadly" / "state" / "in-step.json").exists()

    # From the beginning, and in a replay, it is the same job.
    (tmp_path / "deadly" / "state" / "journal.json").unlink()
    (tmp_path / "deadly" / "out.jsonl").unlink()
    assert live(path) == 0
    assert (tmp_path / "deadly" / "out.jsonl").read_bytes() == result
    verify = [sys.executable, "-m", "tidegate", "job", "verify", str(path), "--starts", "1", "--cuts", "1"]
    assert subprocess.run(verify, check=False, capture_output=True, timeout=300).returncode == 0


@pytest.mark.crash
@pytest.mark.parametrize(
    "ordering", ["", pytest.param('timelines = "merged by enqueued time"', marks=pytest.mark.soak)]
)
def test_events_that_end_a_process_only_together_are_taken_in_smaller_steps(tmp_path: Path, ordering: str) -> None:
    path = write_job(tmp_path / "together", range(70), ordering=ordering)
    (tmp_path / "together" / "functions.py").write_text(TOGETHER)
    assert [live(path) for _ in range(3)] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    harmless = write_job(tmp_path / "harmless", range(70), ordering=ordering)
    run_job(load_job(harmless))
    assert (tmp_path / "together" / "out.jsonl").read_bytes() == (tmp_path / "harmless" / "out.jsonl").read_bytes()
    assert not read_set_aside(tmp_path / "together" / "state")


@pytest.mark.slow
def test_events_that_end_no_process_are_not_found(tmp_path: Path) -> None:
    job = load_job(write_job(tmp_path / "job", range(70)))
    logs, _ = open_logs(job.definition, job.program, job.policy)
    try:
        assert culprits(job.program, job.policy, logs, [EventRange("i", "0", 0, 35), EventRange("i", "7", 0, 5)]) == []
    finally:
        close_logs(logs)


@pytest.mark.slow
def test_it_says_how_an_event_ends_the_process(tmp_path: Path) -> None:
    path = write_job(tmp_path / "job", [0, 1, -2, 3])
    (tmp_path / "job" / "functions.py").write_text(DEADLY.replace("os.kill(os.getpid(), 9)", "os._exit(3)"))
    job = load_job(path)
    logs, _ = open_logs(job.definition, job.program, job.policy)
    try:
        (found,) = culprits(job.program, job.policy, logs, [EventRange("i", "0", 0, 2)])
    finally:
        close_logs(logs)
    assert (found.sequence_number, found.reason) == (1, "it ends the process (exit code 3)")


class DeadlyEvents(_Search):
    """A search whose processes die where they should, without processes."""

    def __init__(self, deadly: set[int]) -> None:
        self.deadly = deadly
        self.processes = 0

    def _try(self, of: EventRange, start: int, stretches: Sequence[_Stretch]) -> _Death | None:
        self.processes += 1
        for stretch in reversed(stretches):
            while start < stretch.end:
                end = min(start + _BATCHES[stretch.level], stretch.end)
                if self.deadly & {*range(start, end)}:
                    return _Death(start, end, "")
                start = end
        return None


@given(st.integers(0, 50), st.integers(0, 70_000), st.data())
@example(0, 70_000, None)
def test_each_event_is_found_by_one_process_for_each_size_of_a_batch(
    start: int, count: int, data: st.DataObject | None
) -> None:
    inside = st.sets(st.integers(start, start + count - 1), max_size=5) if count else st.just(set())
    deadly = data.draw(inside) if data else {67_000}
    search = DeadlyEvents(deadly)
    found = [*search.deaths(EventRange("i", "0", start, start + count), start, start + count)]
    assert [(death.start, death.end) for death in found] == [(one, one + 1) for one in sorted(deadly)]
    assert search.processes <= len(_BATCHES) * len(deadly) + 1
