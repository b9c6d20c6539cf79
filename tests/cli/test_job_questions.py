"""What `tidegate job` answers about time: each command in both forms, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.job.runtime.test_watermark_blockers import at, event, seen
from tidegate.cli import main
from tidegate.engine import Program
from tidegate.job import Stepper
from tidegate.job.run.status import StatusFile
from tidegate.job.runtime.placement import DriverPlacement
from tidegate.job.runtime.task import RangeResult, Task, run_task
from tidegate.ordering import Carry, Policy

CASES = Path(__file__).parents[1] / "cases"
ILLUSTRATION = str(CASES / "tp01-seed12-early.json")


def tidegate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command here: its exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert isinstance(left.value.code, int)
    return left.value.code, out, err


def test_an_early_event_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = tidegate(capsys, "job", "explain", ILLUSTRATION, "--sequence-number", "2")
    assert code == 0
    assert "early arrival window of 5 min" in out
    assert "The watermark stays at 2019-01-01T12:06:00Z." in out


def test_a_sample_as_json_has_the_four_touched_events_of_the_illustration(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = tidegate(capsys, "job", "explain", ILLUSTRATION, "--sample", "9", "-o", "json")
    assert code == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert [(event["sequenceNumber"], event["rows"][0]["reasons"]) for event in events] == [
        (2, ["EarlyInputEvent"]),
        (5, ["OutOfOrderEvent"]),
        (8, ["OutOfOrderEvent"]),
        (11, ["LateInputEvent"]),
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["explain", ILLUSTRATION], 2, "give either"),
        (["explain", ILLUSTRATION, "--sample", "1", "--from", "noon"], 2, "expected a time such as"),
        (["explain", ILLUSTRATION, "--sequence-number", "12"], 1, "there is no event 12; it has 0 to 11"),
        (["explain", "nowhere.toml", "--sample", "1"], 1, "cannot read the job file nowhere.toml"),
    ],
)
def test_what_cannot_be_answered_is_said(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    left, _, err = tidegate(capsys, "job", *arguments)
    assert (left, said in err) == (code, True), err


def test_tuning_the_illustration_finds_what_the_article_uses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = tmp_path / "tolerances.svg"
    code, out, _ = tidegate(capsys, "job", "tune", ILLUSTRATION, "--keep", "0.6", "--picture", str(picture))
    assert code == 0
    assert "12 events of 1 partition; beyond any tolerance: 1 early" in out
    assert "in force" in out
    assert picture.read_text().startswith("<svg")


def test_tuning_as_json_has_an_outcome_for_each_pair(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--late", "300,600", "--out-of-order", "0,120,600", "-o", "json")
    code, out, _ = tidegate(capsys, "job", "tune", ILLUSTRATION, *arguments)
    assert code == 0
    tuning = json.loads(out)
    assert len(tuning["grid"]) == 6
    assert (tuning["current"]["late"], tuning["current"]["outOfOrderAdjusting"]) == (1, 2)


def test_tolerances_that_are_none_are_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = tidegate(capsys, "job", "tune", ILLUSTRATION, "--late", "5,soon")
    assert (code, "expected seconds such as 0,2,10" in err) == (2, True)


def test_verifying_says_what_is_identical(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = tidegate(capsys, "job", "verify", ILLUSTRATION, "--starts", "2", "--cuts", "2")
    assert code == 0
    assert out.startswith("identical: 11 results")
    variants = [line for line in err.splitlines() if line.endswith(": identical")]
    assert len(variants) == 4


def test_a_difference_is_shown_and_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(task: Task, program: Program, policy: Policy) -> list[RangeResult]:
        results = run_task(task, program, policy)
        for result in results:
            result.carry = Carry(arrival=result.carry.arrival)
        return results

    monkeypatch.setattr("tidegate.job.runtime.placement.run_task", forgetful)
    code, out, _ = tidegate(capsys, "job", "verify", ILLUSTRATION, "-o", "json")
    found = json.loads(out)
    assert (code, found["identical"]) == (1, False)
    assert found["difference"]["expected"] != found["difference"]["got"]
    code, out, _ = tidegate(capsys, "job", "verify", ILLUSTRATION)
    assert code == 1
    assert "output output differs at line" in out
    assert "--seed 0" in out


def test_a_log_that_has_ended_is_not_held_back(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = tidegate(capsys, "job", "blockers", ILLUSTRATION)
    assert code == 0
    assert "nothing holds results back" in out
    code, out, _ = tidegate(capsys, "job", "blockers", ILLUSTRATION, "-o", "json")
    assert (code, json.loads(out)["running"], json.loads(out)["watermark"]) == (0, False, "end")


def test_a_picture_is_written_where_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "what.svg"
    code, out, _ = tidegate(capsys, "job", "picture", ILLUSTRATION, "-o", str(file), "--title", "Twelve events")
    assert (code, out.strip()) == (0, str(file))
    assert "Twelve events" in file.read_text()
    code, _, err = tidegate(capsys, "job", "picture", ILLUSTRATION, "--from", "2020-01-01", "-o", str(file))
    assert (code, "no event to draw in this stretch" in err) == (1, True)


def test_a_running_job_says_who_holds_back_and_partitions_alike_stand_together(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    events = [event("0", at(99), at(99)), event("1", at(50), at(49)), event("2", at(50), at(49))]
    source = seen("SELECT t INTO out FROM i TIMESTAMP BY t", Policy.seconds(late=30, out_of_order=2), events, at(100))
    step = Stepper(source.program, source.policy, source.logs, DriverPlacement(source.program, source.policy)).step()
    job = tmp_path / "job.toml"
    job.write_text(
        'name = "j"\nquery = "SELECT t INTO out FROM i TIMESTAMP BY t"\n[inputs.i]\ntype = "recorded"\npath = "no"\n'
    )
    (tmp_path / "j.state").mkdir()
    StatusFile(tmp_path / "j.state", source.program, source.policy, lambda: at(101)).update(step, {})
    code, out, _ = tidegate(capsys, "job", "blockers", str(job))
    assert code == 0
    assert out.splitlines()[:4] == [
        "the job is running; this is its status of 2026-01-01T00:01:41.000Z",
        "results before 2026-01-01T00:01:10.000Z can leave",
        "held back by partitions 1, 2 of i, since 2026-01-01T00:01:41.000Z",
        "  released by an event on each of them later than 2026-01-01T00:01:12Z, "
        "or the hub's clock past 2026-01-01T00:01:40Z",
    ]
