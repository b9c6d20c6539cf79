"""`tidegate job test --project` as people and build servers call it, on Spark."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.job.projects import (
    TOTALS,
    input_file,
    lines,
    rides_case,
    rides_project,
    write_json,
    write_project,
    write_test_config,
)
from tidegate.cli import main

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_spark")]


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


def test_a_local_run_writes_the_rows_of_each_output(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [{"filePath": f"Inputs\\Local_{name}.json", "subType": "InputMock"} for name in ("Rides", "Zones")]
    write_project(project, configurations=listed)
    write_json(project / "Inputs" / "Local_Rides.json", input_file("Rides", "..\\test\\hourly\\rides.json"))
    write_json(
        project / "Inputs" / "Local_Zones.json", input_file("Zones", "../Test/Hourly/Zones.json", reference=True)
    )
    code, out, err = tidegate(capsys, "job", "run", "--project", project, "--local")
    assert code == 0, err
    assert [json.loads(line) for line in out.splitlines()] == TOTALS[::-1]
    assert "rides: Totals 2; a local run, without an event ordering policy" in err
    outputs = tmp_path / "LocalRunOutputs"
    code, out, _ = tidegate(capsys, "job", "run", "--project", project, "--local", "--output-path", outputs)
    assert (code, out) == (0, "")
    assert len((outputs / "Totals.json").read_text().splitlines()) == 2


FUNCTIONS = """
import pyarrow.compute as pc
from helper import SCALE

def scaled(value):
    return value * SCALE

def squared(values):
    return pc.multiply(values, values)

class Span:
    def init(self):
        self.least = self.most = None

    def accumulate(self, value, timestamp):
        self.least = value if self.least is None else min(self.least, value)
        self.most = value if self.most is None else max(self.most, value)

    def merge(self, other):
        for value in (other.least, other.most):
            if value is not None:
                self.accumulate(value, None)

    def compute_result(self):
        return self.most - self.least
"""
FUNCTIONS_JOB = """
name = "functions"
query = '''
SELECT k, uda.span(v) AS span, SUM(udf.squared(v)) AS squares, MAX(udf.scaled(w)) AS most,
    SUM(udf.doubled(v)) AS doubled, uda.joined(v) AS joined
INTO out FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(minute, 1)
'''
[event_ordering]
enabled = false
[inputs.i]
type = "recorded"
path = "log.jsonl"
[outputs.out]
type = "file"
path = "out.jsonl"
[functions.scaled]
module = "functions.py"
[functions.squared]
module = "functions.py"
vectorized = true
[functions.span]
module = "functions.py"
aggregate = "Span"
[functions.doubled]
script = "function main(v) { return v * 2; }"
[functions.joined]
module = "joined.js"
aggregate = "main"
"""
JOINED = """
function main() {
    this.init = function () { this.values = []; };
    this.accumulate = function (value, timestamp) { this.values.push(value); };
    this.computeResult = function () { return this.values.join(" "); };
}
"""


def test_functions_of_a_job_are_called_where_its_tasks_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate.job")
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "joined.js").write_text(JOINED)
    (tmp_path / "helper.py").write_text("SCALE = 10\n")
    (tmp_path / "job.toml").write_text(FUNCTIONS_JOB)
    events = [{"k": n % 2, "v": n, "w": n, "t": f"2026-01-01T00:00:{n:02}Z"} for n in range(1, 9)]
    # What a function cannot do with a row costs that row, and is counted.
    events.append({"k": 0, "v": 3, "w": {"three": 3}, "t": "2026-01-01T00:00:09Z"})
    recorded = [json.dumps({"partition": n % 3, "body": event}) + "\n" for n, event in enumerate(events)]
    (tmp_path / "log.jsonl").write_text("".join(recorded))
    code, _, err = tidegate(capsys, "job", "run", tmp_path / "job.toml", "--max-events-per-step", "2")
    assert code == 0, err
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows == [
        {"k": 0, "span": 6, "squares": 4 + 16 + 36 + 64, "most": 80, "doubled": 40, "joined": "2 4 6 8"},
        {"k": 1, "span": 6, "squares": 1 + 9 + 25 + 49, "most": 70, "doubled": 32, "joined": "1 3 5 7"},
    ]
    assert "Runtime Errors 1" in caplog.text
    assert "keeps for out: the state of uda.span" in caplog.text
