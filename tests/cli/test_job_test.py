"""`tidegate job test`: what it refuses before it starts anything."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.job.projects import input_file, rides_case, rides_project, write_json, write_project, write_test_config
from tidegate.cli import main
from tidegate.cli.job.options import json_line
from tidegate.cli.job.test import JunitCase, write_junit


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What is said of a command that cannot run its tests at all."""
    with pytest.raises(SystemExit) as left:
        main(["job", "test", *map(str, arguments)])
    assert left.value.code == 2
    return capsys.readouterr().err


def test_what_to_test_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "say what to test" in refused(capsys)
    assert "give either" in refused(capsys, "case.json", "--project", tmp_path)
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


CASE: dict[str, Any] = {
    "name": "counted",
    "query": "SELECT System.Timestamp() AS at, COUNT(*) AS n INTO output FROM input GROUP BY TumblingWindow(second, 1)",
    "inputs": [{"arrival": "2026-01-01T00:00:00.5Z", "body": {"a": 1}}],
    "expected": [
        {"row": {"at": "2026-01-01T00:00:01Z", "n": 1}, "timestamp": "2026-01-01T01:00:01+01:00"},
    ],
}


def write_case(folder: Path, **changes: object) -> Path:
    path = folder / f"{changes.get('name', 'counted')}.json"
    path.write_text(json.dumps({**CASE, **changes}), encoding="utf-8")
    return path


def test_a_case_needs_no_java_and_its_times_are_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven digits of a second, none, or another offset: one instant; another instant differs."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "tidegate.spark", None)
    with pytest.raises(SystemExit) as left:
        main(["job", "test", str(write_case(tmp_path))])
    assert left.value.code == 0
    assert "1 passed, 0 failed" in capsys.readouterr().out
    wrong = [{"row": {"at": "2026-01-01T00:00:01.0000001Z", "n": 1}}]
    with pytest.raises(SystemExit) as left:
        main(["job", "test", str(write_case(tmp_path, expected=wrong))])
    assert left.value.code == 1
    said = capsys.readouterr().out
    assert "output: expected" in said
    assert "2026-01-01T00:00:01.0000001Z" in said


@pytest.mark.parametrize("content", ["", "[]", '{"name": "x"}', '{"name": "x", "query": 1, "inputs": []}'])
def test_what_is_no_case_is_misuse(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "no-case.json"
    path.write_text(content, encoding="utf-8")
    assert "no-case.json" in refused(capsys, path)


def test_a_case_without_its_input_is_named_and_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_case(tmp_path)
    write_case(tmp_path, name="empty", inputs=[])
    write_case(tmp_path, name="other", inputs=[{"input": "tolls", **CASE["inputs"][0]}])
    said = refused(capsys, tmp_path)
    assert "empty.json: the case 'empty' has no events of the input input that its query reads (it has no ev" in said
    assert "other.json: the case 'other' has no events of the input input" in said
    assert "(it has events of tolls)" in said
    assert 'add events with "input": "input" to its "inputs"' in said


FAILING: dict[str, Any] = {
    "name": "failing",
    "query": "SELECT CAST(a AS bigint) AS a INTO output FROM input",
    "inputs": [{"arrival": "2026-01-01T00:00:00Z", "body": {"a": "x"}}],
    "expected": [],
}


def test_a_case_fails_on_errors_that_it_does_not_declare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_case(tmp_path, **FAILING)
    with pytest.raises(SystemExit) as left:
        main(["job", "test", str(path), "-o", "json"])
    assert left.value.code == 1
    result = json.loads(capsys.readouterr().out)
    (error,) = result["dataErrors"]
    assert (error["type"], error["count"], error["first"]["body"]) == ("RuntimeError", 1, '{"a": "x"}')
    (difference,) = result["differences"]
    assert "expected RuntimeError 0, got RuntimeError 1 (input input): a value cannot be converted" in difference


@pytest.mark.parametrize(
    "declared", [{"expected_errors": {"RuntimeError": 1}}, {"expected_metrics": {"Runtime Errors": 1}}]
)
def test_a_case_passes_with_the_errors_that_it_declares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], declared: dict[str, Any]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["job", "test", str(write_case(tmp_path, **FAILING, **declared))])
    assert left.value.code == 0
    assert "pass  failing (0 rows); RuntimeError 1" in capsys.readouterr().out


def test_a_kind_of_error_that_does_not_exist_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["job", "test", str(write_case(tmp_path, **FAILING, expected_errors={"RuntimeErorr": 1}))])
    assert left.value.code == 1
    assert "RuntimeErorr is no kind of data error; did you mean RuntimeError?" in capsys.readouterr().out


def test_a_test_of_a_project_fails_on_errors_that_it_does_not_declare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rides_project(tmp_path / "p")
    write_test_config(tmp_path / "p", [rides_case(ExpectedErrors={})])
    with pytest.raises(SystemExit) as left:
        main(["job", "test", "--project", str(tmp_path / "p"), "--output-path", str(tmp_path / "out")])
    assert left.value.code == 1
    said = capsys.readouterr().out
    assert (
        "expected InputDeserializerError.InvalidData 0, got InputDeserializerError.InvalidData 1 (input Rides)" in said
    )
    assert (tmp_path / "out" / "001-Hourly" / "data-errors.jsonl").exists()


def test_a_local_run_says_what_it_could_not_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = rides_project(tmp_path / "p")
    local = [{"filePath": f"Inputs/Local_{name}.json", "subType": "InputMock"} for name in ("Rides", "Zones")]
    write_project(project, configurations=local)
    for name in ("Rides", "Zones"):
        given = input_file(name, f"../Test/Hourly/{name}.json", reference=name == "Zones")
        write_json(project / "Inputs" / f"Local_{name}.json", given)
    with pytest.raises(SystemExit) as left:
        main(["job", "run", "--project", str(project), "--local", "--output-path", str(tmp_path / "out")])
    assert left.value.code == 0
    said = capsys.readouterr().err
    assert "1 event or row could not be used:\n  InputDeserializerError.InvalidData 1 (input Rides)" in said
    assert f"samples: {tmp_path / 'out' / 'data-errors.jsonl'}" in said
    assert (tmp_path / "out" / "data-errors.jsonl").exists()
