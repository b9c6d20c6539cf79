"""`tidegate job export`: where the template goes, and what is said beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.cli import main

JOB = """
name = "rides"
query = "SELECT * INTO out FROM rides"

[inputs.rides]
type = "recorded"
path = "log.jsonl"
"""


def code_of(*arguments: object) -> int:
    """The exit code of the command."""
    with pytest.raises(SystemExit) as left:
        main(["job", "export", *map(str, arguments)])
    return left.value.code if isinstance(left.value.code, int) else 0


def test_the_template_is_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "rides.toml"
    job.write_text(JOB)
    assert code_of(job, "--arm") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["contentVersion"] == "1.0.0.0"
    assert "note: inputs.rides is of type recorded" in printed.err
    output = tmp_path / "template.json"
    assert code_of(job, "--arm", "--output", output) == 0
    assert json.loads(output.read_text()) == json.loads(printed.out)


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(tmp_path / "rides.toml") == 2
    assert "give --arm" in capsys.readouterr().err
    assert code_of("--arm") == 2
    assert "give either JOB" in capsys.readouterr().err
