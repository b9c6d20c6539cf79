"""`tidegate job test --project` as people and build servers call it, on Spark."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.job.projects import TOTALS, lines, rides_case, rides_project, write_test_config
from tidegate.cli import main

pytestmark = pytest.mark.spark


def tidegate(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run a command here: its exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert isinstance(left.value.code, int)
    return left.value.code, out, err


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = rides_project(tmp_path / "rides")
    wrong = [TOTALS[0], {**TOTALS[1], "fares": 9.0, "name": "Harbour"}]
    (folder / "Test" / "Hourly" / "Wrong.json").write_text(lines(wrong))
    outputs = [{"OutputAlias": "Totals", "FilePath": "Hourly/Wrong.json"}]
    write_test_config(folder, [rides_case(), rides_case(Name="Wrong", ExpectedOutputs=outputs)])
    return folder


def test_a_person_and_a_build_server_see_what_differs(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit, results = tmp_path / "results" / "junit.xml", tmp_path / "results" / "rows"
    options = ("--junit", junit, "--output-path", results)
    code, out, err = tidegate(capsys, "job", "test", "--project", project, *options)
    assert code == 1
    assert "compatibility level 1.2; a local run, without an event ordering policy" in out
    assert "pass  Hourly (Totals 2)" in out
    assert "FAIL  Wrong" in out
    assert "fares  expected 9.0, got 8.5" in out
    assert '~ row 2: {"zone": "a", "window_end": "2026-03-01T11:00:00.0000000Z"}' in out
    assert out.endswith("1 passed, 1 failed\n")
    assert "testResultSummary.json" in err
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    failure = suite.find(".//testcase[@name='Wrong']/failure")
    assert failure is not None
    assert failure.text is not None
    assert "expected 9.0, got 8.5" in failure.text
    summary = json.loads((results / "testResultSummary.json").read_text())
    assert (summary["Total"], summary["Passed"], summary["Failed"]) == (2, 1, 1)
    assert [entry["Status"] for entry in summary["Results"]] == [0, 1]
    (matched,) = summary["Results"][0]["OutputMatched"]
    assert matched["OutputAlias"] == "Totals"
    assert [json.loads(line) for line in Path(matched["Output"]).read_text().splitlines()] == TOTALS[::-1]


def test_as_json_a_line_a_case(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = tidegate(capsys, "job", "test", "--project", project, "-o", "json")
    passed, failed = map(json.loads, out.splitlines())
    assert (code, passed["passed"], failed["passed"]) == (1, True, False)
    (output,) = failed["outputs"]
    assert output["status"] == "not equal"
    assert output["difference"]["different"][0]["fields"] == ["fares", "name"]
