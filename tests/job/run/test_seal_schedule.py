"""Runs that seal their state: what a restart or a loss reads again, when a seal is due, and what is said."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.job.logs import prepared
from tests.job.sharded import ShardsHere
from tidegate.engine import Program
from tidegate.job import load_job
from tidegate.job.run import run as run_module
from tidegate.job.run.losses import Losses
from tidegate.job.run.opening import open_run
from tidegate.job.run.run import Placements, RunHooks, RunSettings, run_steps
from tidegate.job.run.seal_schedule import SealSchedule, is_worthwhile
from tidegate.job.runtime import seals
from tidegate.job.runtime.emission import StepOrder
from tidegate.job.runtime.placement import DriverPlacement, Outcome, Placement, StateLost
from tidegate.job.runtime.step import Step
from tidegate.job.runtime.task import Task
from tidegate.ordering import TICKS_PER_SECOND, Policy, format_time, parse_time

START = parse_time("2026-01-01T00:00:00Z")
LAG_OF_A_DAY = """
SELECT System.Timestamp() AS ts, k, v, LAG(v) OVER (PARTITION BY k LIMIT DURATION(hour, 24)) AS before INTO lagged
FROM i TIMESTAMP BY t
"""
EVENTS, A_STEP = 4_000, 100


@pytest.fixture(autouse=True)
def seals_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seal takes no time to begin with: the logs of these tests are so short that reading them would be quicker."""
    monkeypatch.setattr(seals, "START_S", 0.0)
    monkeypatch.setattr(seals, "START_ON_SPARK_S", 0.0)


def write_job(folder: Path, settings: str = "") -> Path:
    """A job that looks back a day over a log of 40 hours, whose keys are rare."""
    dice, clock, lines = random.Random(5), START, []
    for _ in range(EVENTS):
        clock += dice.randrange(2 * 36 * TICKS_PER_SECOND)
        body = {"t": format_time(clock - dice.randrange(8) * TICKS_PER_SECOND), "k": dice.randrange(900), "v": clock}
        lines.append(json.dumps({"partition": dice.randrange(2), "arrival": format_time(clock), "body": body}))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    path = folder / "job.toml"
    path.write_text(
        f'name = "sealed"\n{settings}\nquery = """{LAG_OF_A_DAY}"""\n'
        '[event_ordering]\nlate_arrival_tolerance_s = 10\n[inputs.i]\ntype = "recorded"\npath = "log.jsonl"\n'
        '[outputs.lagged]\ntype = "file"\npath = "lagged.jsonl"\n',
        encoding="utf-8",
    )
    return path


class Run:
    """Runs of a job, with what they say."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.notices, self.events = path, list[str](), 0
        monkeypatch.setattr(run_module, "Losses", lambda: Losses(sleep=lambda seconds: None))

    def go(self, places: Placements | None = None, steps: int = 1_000) -> None:
        job = load_job(self.path)
        here = Placements(lambda program: DriverPlacement(program, job.policy))
        left = iter(range(steps))

        def note(step: Step, *others: object) -> None:
            self.events += step.events

        with open_run(job) as opened:
            hooks = RunHooks(observers=[note], should_stop=lambda: next(left, None) is None, notice=self.notices.append)
            run_steps(opened, places or here, RunSettings(max_events_per_step=A_STEP), hooks)

    @property
    def again(self) -> tuple[int, int | None]:
        """The events that are read again by the last notice of them, and those that would be without a seal."""
        pattern = re.compile(r"([\d,]+) events are read again(?:, instead of ([\d,]+))?")
        found = [match for notice in self.notices if (match := pattern.search(notice)) is not None][-1]
        again, instead = (None if one is None else int(one.replace(",", "")) for one in found.groups())
        assert again is not None
        return again, instead


def whole_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    Run(write_job(tmp_path / "whole", "seal_every_s = 0"), monkeypatch).go()
    assert not (tmp_path / "whole" / "sealed.state" / "sealed").exists()
    return (tmp_path / "whole" / "lagged.jsonl").read_bytes()


@pytest.mark.slow
def test_a_restart_reads_from_the_seal_instead_of_a_day_and_writes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole_output(tmp_path, monkeypatch)
    run = Run(write_job(tmp_path / "sealed"), monkeypatch)
    run.go(steps=30)
    assert run.notices == []
    run.go(steps=2)
    again, instead = run.again
    assert "the state is the sealed one" in run.notices[-1]
    assert again == 0
    assert instead is not None
    assert instead > 2_000
    # A damaged seal is noted, and the log is used.
    for path in (tmp_path / "sealed" / "sealed.state" / "sealed").glob("*.chunk"):
        path.write_bytes(b"something else")
    run.go()
    assert "its sealed state cannot be used" in run.notices[-1]
    assert run.again[0] > 2_000
    assert (tmp_path / "sealed" / "lagged.jsonl").read_bytes() == expected


class LosingOnce(ShardsHere):
    """Two shards, which lose their state at the steps of a list."""

    left: list[int]

    def __init__(self, program: Program, policy: Policy) -> None:
        super().__init__(program, policy, 2, random.getrandbits(64))

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        if self._version and self.left and self._version >= self.left[0]:
            del self.left[0]
            raise StateLost("the state of shard 1 (level 0) is gone")
        return super().run(tasks, order)


@pytest.mark.slow
def test_a_lost_shard_costs_what_was_read_since_the_seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole_output(tmp_path, monkeypatch)
    job = load_job(write_job(tmp_path / "lost", "seal_every_s = 0.000001"))
    monkeypatch.setattr("tidegate.job.run.seal_schedule._SHARE", 0)

    def placement(program: Program) -> Placement:
        return LosingOnce(program, job.policy)

    LosingOnce.left = [28, 33]
    run = Run(tmp_path / "lost" / "job.toml", monkeypatch)
    run.go(Placements(placement))
    assert sum("is gone" in notice for notice in run.notices) == 2
    assert run.again[0] <= A_STEP
    assert run.again[1] is not None
    assert run.again[1] > 2_000
    assert run.events <= EVENTS + 2 * A_STEP
    assert (tmp_path / "lost" / "lagged.jsonl").read_bytes() == expected


def test_only_a_query_that_looks_back_ten_minutes_is_sealed() -> None:
    policy, short = Policy.seconds(early=300, late=5), LAG_OF_A_DAY.replace("hour, 24", "minute, 4")
    assert is_worthwhile(prepared(LAG_OF_A_DAY), policy)
    assert not is_worthwhile(prepared(short), policy)
    assert is_worthwhile(prepared(short), Policy.seconds(early=None, late=5))


def test_a_seal_that_takes_long_is_taken_less_often_and_a_failed_one_is_reported() -> None:
    now, notices = [0.0], list[str]()

    class Slow:
        def write(self, *where: object) -> int:
            now[0] += 50
            if now[0] > 2_000:
                raise OSError("no space left on device")
            return 7

    slow: Any = Slow()
    nowhere: Any = None
    schedule = SealSchedule(slow, 300, notices.append, lambda: now[0])
    step, nothing = Step([], 0, 5, 0, {}), Step([], 0, 0, 0, {})
    assert not schedule.is_due(step)
    now[0] = 300
    assert schedule.is_due(nothing)
    schedule.seal(nowhere, nowhere)
    assert schedule.last is not None
    assert (schedule.last.bytes, schedule.last.seconds) == (7, 50)
    now[0] += 999
    assert not schedule.is_due(step)
    now[0] += 1
    assert schedule.is_due(step)
    assert not schedule.is_due_at_stop(step)
    now[0] = 2_000
    schedule.seal(nowhere, nowhere)
    assert notices == ["the state could not be sealed: no space left on device; the job continues without it"]
    assert not SealSchedule(None, 0, notices.append).is_due(step)
