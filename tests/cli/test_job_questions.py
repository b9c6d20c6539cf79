"""What `tidegate job` answers about time: each command in both forms, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.cli import main

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
        (["explain", ILLUSTRATION], 2, "one of the two"),
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
