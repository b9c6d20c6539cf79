"""Runs of jobs with substreams or merged partitions: what the journal keeps of what has left."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.job.logs import travelling
from tests.job.run.test_run import START, outputs_of, run_here, write_job
from tidegate.cli import main
from tidegate.job import JobError, StepReport, load_job, run_job
from tidegate.ordering import TICKS_PER_SECOND

QUERY = """
SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, AVG(v) AS mean INTO counted
FROM i TIMESTAMP BY t OVER k, PartitionId PARTITION BY PartitionId
GROUP BY k, PartitionId, TumblingWindow(second, 5)
SELECT System.Timestamp() AS ts, k, v, LAG(v) OVER (PARTITION BY k, PartitionId LIMIT DURATION(second, 9)) AS before
INTO large FROM i TIMESTAMP BY t OVER k, PartitionId PARTITION BY PartitionId
"""
ANYWHERE = """SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, AVG(v) AS mean INTO counted
FROM i TIMESTAMP BY t OVER k GROUP BY k, TumblingWindow(second, 5)
SELECT System.Timestamp() AS ts, k, v INTO large FROM i TIMESTAMP BY t OVER k"""
ORDERINGS = {
    "substreams": "late_arrival_tolerance_s = 4",
    "merged": 'late_arrival_tolerance_s = 4\ntimelines = "merged by enqueued time"',
}


class Killed(Exception):
    """What ends a run before its step is committed or after."""


@pytest.mark.slow
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_run_broken_off_again_and_again_gives_the_same_bytes(tmp_path: Path, ordering: str) -> None:
    run_here(write_job(tmp_path / "whole", 200, QUERY, ORDERINGS[ordering]))
    path = write_job(tmp_path / "broken", 200, QUERY, ORDERINGS[ordering])
    assert load_job(path).program.by_substream
    dice = random.Random(3)

    def kill(report: StepReport) -> None:
        if dice.random() < 0.3:
            raise Killed

    while True:
        try:
            run_here(path, max_events_per_step=dice.randint(10, 40), on_step=kill)
            break
        except Killed:
            continue
    assert outputs_of(tmp_path / "broken") == outputs_of(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_up_to_a_time_and_another_from_there_give_every_row_once(tmp_path: Path) -> None:
    run_here(write_job(tmp_path / "whole", 200, QUERY))
    path = write_job(tmp_path / "parts", 200, QUERY)
    for until in (START + 9 * TICKS_PER_SECOND, START + 20 * TICKS_PER_SECOND + 1):
        job = load_job(path)
        assert run_job(job, travelling(job), until=until, max_events_per_step=25).why
    run_here(path)
    for parts, whole in zip(outputs_of(tmp_path / "parts"), outputs_of(tmp_path / "whole"), strict=True):
        assert sorted(parts.splitlines()) == sorted(whole.splitlines())


@pytest.mark.parametrize(
    ("query", "ordering", "said"),
    [
        (ANYWHERE, "late_arrival_tolerance_s = 4", "input i has 3 partitions, .* wait until .* has passed them by 4 s"),
        (ANYWHERE, "late_arrival_tolerance_s = -1", "wait without limit"),
        (ANYWHERE, ORDERINGS["merged"], None),
        (QUERY, "", None),
    ],
)
def test_a_run_says_where_substreams_wait_for_every_partition(
    tmp_path: Path, query: str, ordering: str, said: str | None
) -> None:
    job = load_job(write_job(tmp_path, 30, query, ordering))
    notices: list[str] = []
    run_job(job, travelling(job), notice=notices.append)
    assert bool(notices) == (said is not None)
    assert said is None or re.search(said, notices[0])


def test_merged_partitions_are_not_looked_at_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_job(tmp_path, 30, QUERY, ORDERINGS["merged"])
    assert "merged by enqueued time" in load_job(path).policy.describe()
    with pytest.raises(SystemExit):
        main(["job", "explain", str(path), "--partition", "1", "--sequence-number", "3"])
    assert "one timeline" in capsys.readouterr().err
    path.write_text(path.read_text() + '\n[explanations]\noutput = "counted"\n', encoding="utf-8")
    with pytest.raises(JobError):
        load_job(path)
