"""`tidegate job test`: what it refuses before it starts anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.job.projects import rides_project, write_project
from tidegate.cli import main
from tidegate.cli.job.junit import JunitCase, write_junit
from tidegate.cli.job.options import json_line


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What is said of a command that cannot run its tests at all."""
    with pytest.raises(SystemExit) as left:
        main(["job", "test", *map(str, arguments)])
    assert left.value.code == 2
    return capsys.readouterr().err


def test_what_to_test_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "say what to test" in refused(capsys)
    assert "one of the two" in refused(capsys, "case.json", "--project", tmp_path)
    assert "are for --project" in refused(capsys, "case.json", "--test-config", "x.json")


def test_what_keeps_the_tests_of_a_project_from_running_is_no_failed_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is not a Stream Analytics project" in refused(capsys, "--project", tmp_path)
    write_project(tmp_path)
    assert "there is no test/testConfig.json beside it" in refused(capsys, "--project", tmp_path)
    rides_project(tmp_path)
    (tmp_path / "Test" / "Hourly" / "Rides.json").unlink()
    assert "Hourly, input Rides: there is no file Hourly/Rides.json" in refused(capsys, "--project", tmp_path)


def test_junit_holds_what_xml_can_hold(tmp_path: Path) -> None:
    path = tmp_path / "new" / "junit.xml"
    write_junit(
        path, "suite", [JunitCase("a\x00<b>", "g", 1.5), JunitCase("c", "g", 0.25, ["first & last", "\x1b[31m"])]
    )
    text = path.read_text(encoding="utf-8")
    assert '<testcase name="a\N{REPLACEMENT CHARACTER}&lt;b&gt;" classname="g" time="1.500" />' in text
    assert '<failure message="first &amp; last">first &amp; last\n\N{REPLACEMENT CHARACTER}[31m</failure>' in text
    assert 'tests="2" failures="1"' in text


def test_a_line_of_json_is_one_line_to_every_reader() -> None:
    value = {"text": "a\u2028b\u2029c\u0085d\ne", "é": "ü"}
    line = json_line(value)
    assert line.splitlines() == [line]
    assert json.loads(line) == value
    assert "é" in line
