"""The test cases of a project: what passes, how a failure is shown, and what keeps them from being run."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.job.logs import TravellingTasks
from tests.job.projects import (
    JOB_CONFIG,
    TOTALS,
    expected_output,
    input_file,
    lines,
    rides_case,
    rides_project,
    write_json,
    write_project,
    write_test_config,
)
from tests.profiles import example_count
from tidegate.azure.projects.cases import ProjectCaseResult, ProjectTests
from tidegate.azure.projects.check import check_project
from tidegate.azure.projects.live import functions_of
from tidegate.azure.projects.reading import read_project
from tidegate.connectors.model.errors import FunctionError, ProjectError
from tidegate.job import JobError, JobQueryError, read_case

CASES = Path(__file__).parents[2] / "cases"
FROM_PROJECTS = sorted(CASES.glob("d365-*.json"))


def run(folder: Path, **more: Any) -> list[ProjectCaseResult]:
    project = read_project(folder)
    tests = ProjectTests(project, functions=functions_of(project))
    return [tests.run(case, TravellingTasks, **more) for case in tests.cases]


@pytest.mark.parametrize("path", FROM_PROJECTS, ids=lambda path: path.stem)
def test_the_worked_examples_of_projects_pass_as_projects(tmp_path: Path, path: Path) -> None:
    case = read_case(path)
    given: dict[str, list[Any]] = {}
    for line in case.inputs:
        given.setdefault(line.input, []).append(json.loads(bytes(line.body)))
    write_project(tmp_path, query=case.query, config={**JOB_CONFIG, "CompatibilityLevel": case.compatibility_level})
    inputs = []
    for name, rows in given.items():
        write_json(tmp_path / "Test" / "One" / f"{name}.json", rows)
        inputs.append(input_file(name, f"One/{name}.json"))
    for name, rows in case.reference_data.items():
        write_json(tmp_path / "Test" / "One" / f"{name}.json", rows)
        inputs.append(input_file(name, f"One\\{name}.json", reference=True))
    expected: dict[str, list[Any]] = {}
    for row in case.expected:
        expected.setdefault(row.output, []).append(row.row)
    outputs = []
    for name, rows in expected.items():
        (tmp_path / "Test" / "One" / f"Expected{name}.json").write_text(lines(rows))
        outputs.append(expected_output(name, f"One/Expected{name}.json"))
    errors = {"ExpectedErrors": case.expected_errors} if case.expected_errors else {}
    write_test_config(tmp_path, [{"Name": case.name, "Inputs": inputs, "ExpectedOutputs": outputs, **errors}])
    (result,) = run(tmp_path)
    if path.stem == "d365-heartbeat-metrics-missing-fields":
        # Its query is shortened: the original's CREATE TABLE loses both events (see tests/engine/test_cases.py).
        assert [output.status for output in result.outputs] == ["unexpected"]
        return
    if case.expected_complete:
        assert result.passed, result
    else:
        assert all(not output.difference.missing for output in result.outputs if output.difference is not None)


def test_a_case_passes_whatever_the_order_and_however_the_events_are_cut(tmp_path: Path) -> None:
    (result,) = run(rides_project(tmp_path))
    assert result.passed
    assert [output.status for output in result.outputs] == ["matched"]
    (result,) = run(tmp_path, max_events_per_step=1)
    assert result.passed


def test_a_row_that_differs_is_told_field_by_field(tmp_path: Path) -> None:
    rides_project(tmp_path)
    (tmp_path / "Test" / "Hourly" / "Totals.json").write_text(lines([{**TOTALS[1], "fares": 9}, TOTALS[0]]))
    (result,) = run(tmp_path)
    assert not result.passed
    (output,) = result.outputs
    assert output.status == "not equal"
    assert output.difference is not None
    assert output.difference.summary() == "1 as expected, 1 different"
    assert "    fares  expected 9, got 8.5" in output.difference.lines()


def test_fields_that_are_ignored_may_differ(tmp_path: Path) -> None:
    rides_project(tmp_path)
    write_test_config(
        tmp_path,
        [rides_case(ExpectedOutputs=[expected_output("totals", "Hourly/Totals.json", IgnoreFields=["Fares"])])],
    )
    (tmp_path / "Test" / "Hourly" / "Totals.json").write_text(lines([{**row, "fares": 0} for row in TOTALS]))
    (result,) = run(tmp_path)
    assert result.passed


def test_an_output_that_nothing_is_said_of_must_be_empty(tmp_path: Path) -> None:
    rides_project(tmp_path)
    write_test_config(tmp_path, [rides_case(ExpectedOutputs=[])])
    (result,) = run(tmp_path)
    assert [(output.alias, output.status, len(output.rows)) for output in result.outputs] == [
        ("Totals", "unexpected", 2)
    ]


def test_an_output_that_is_not_required_is_not_looked_at_and_its_file_need_not_be_there(tmp_path: Path) -> None:
    rides_project(tmp_path)
    outputs = [expected_output("Totals", "[N/A]", Required=False)]
    write_test_config(tmp_path, [rides_case(ExpectedOutputs=outputs)])
    (result,) = run(tmp_path)
    assert result.passed
    assert [output.status for output in result.outputs] == ["unrequired"]


def test_an_empty_file_expects_no_row_of_an_output_that_there_is(tmp_path: Path) -> None:
    rides_project(tmp_path)
    write_json(tmp_path / "Test" / "Hourly" / "Rides.json", [])
    (tmp_path / "Test" / "Hourly" / "Totals.json").write_text("")
    outputs = [expected_output("Totals", "Hourly/Totals.json"), expected_output("Total", "Hourly/Totals.json")]
    write_test_config(tmp_path, [rides_case(ExpectedOutputs=outputs)])
    (result,) = run(tmp_path)
    assert [output.status for output in result.outputs] == ["matched", "missing"]


def test_every_file_that_is_not_there_is_named_before_anything_runs(tmp_path: Path) -> None:
    rides_project(tmp_path)
    inputs = [input_file("Rides", "Hourly/Ride.json"), {**input_file("x", "Hourly/Rides.json"), "InputAlias": None}]
    write_test_config(
        tmp_path, [rides_case(Inputs=inputs, ExpectedOutputs=[expected_output("Totals", "Hourly/Total.json")])]
    )
    with pytest.raises(ProjectError) as caught:
        ProjectTests(read_project(tmp_path))
    told = str(caught.value)
    assert "Hourly, input Rides: there is no file Hourly/Ride.json" in told
    assert "Hourly: an input has no InputAlias" in told
    assert "Hourly, output Totals: there is no file Hourly/Total.json" in told


def test_an_input_that_the_case_lacks_fails_the_case_and_no_other(tmp_path: Path) -> None:
    rides_project(tmp_path)
    without = rides_case(Name="Without", Inputs=[input_file("Zones", "Hourly/Zones.json", reference=True)])
    write_test_config(tmp_path, [without, rides_case()])
    failed, passed = run(tmp_path)
    assert failed.problem == "the query reads Rides, for which there is no file; there are: Zones"
    assert not failed.passed
    assert passed.passed


def test_a_query_that_cannot_run_is_an_error_of_all(tmp_path: Path) -> None:
    rides_project(tmp_path)
    (tmp_path / "rides.asaql").write_text("SELECT COUNT(*) INTO o FROM Rides GROUP BY TumblingWindow(hour)")
    with pytest.raises(JobQueryError, match=r"rides\.asaql"):
        run(tmp_path)


def test_a_project_without_tests_says_where_they_would_be(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=r"no test/testConfig\.json beside it; name the file with --test-config"):
        ProjectTests(read_project(write_project(tmp_path)))


def test_an_input_without_a_time_has_the_one_it_was_sampled_with(tmp_path: Path) -> None:
    write_project(tmp_path, query="SELECT System.Timestamp() AS t, n INTO o FROM i")
    rows = [
        {"n": 1, "EventEnqueuedUtcTime": "2026-01-01T00:00:01.0000000Z"},
        {"n": 2, "EventEnqueuedUtcTime": "2026-01-01T00:00:00.0000000Z"},
    ]
    write_json(tmp_path / "Test" / "i.json", rows)
    (tmp_path / "Test" / "o.json").write_text(
        lines([{"t": row["EventEnqueuedUtcTime"], "n": row["n"]} for row in rows])
    )
    case = {"Name": "a", "Inputs": [input_file("i", "i.json")], "ExpectedOutputs": [expected_output("o", "o.json")]}
    write_test_config(tmp_path, [case])
    (result,) = run(tmp_path)
    assert result.passed
    assert result.notes == ()
    write_json(tmp_path / "Test" / "i.json", [{"n": 1}])
    (result,) = run(tmp_path)
    assert "the time of all of them is 1970-01-01" in result.notes[0]


def test_local_files_of_csv_have_the_types_that_the_query_declares(tmp_path: Path) -> None:
    rides_project(tmp_path)
    (tmp_path / "Test" / "Hourly" / "Rides.csv").write_text(
        "zone,fare,at\nb,2,2026-03-01T10:50:00Z\na,7.5,2026-03-01T10:10:00Z\na,1,2026-03-01T11:00:00Z\n"
    )
    (tmp_path / "Test" / "Hourly" / "Zones.csv").write_text("zone,name\na,Airport\nb,Bridge\n")
    inputs = [
        input_file("Rides", "Hourly/Rides.csv", file_format="CSV"),
        input_file("Zones", "Hourly/Zones.csv", reference=True, file_format="csv"),
    ]
    write_test_config(tmp_path, [rides_case(Inputs=inputs, ExpectedErrors={})])
    (result,) = run(tmp_path)
    assert result.passed, result
    (result,) = run(tmp_path, max_events_per_step=1)
    assert result.passed
    write_test_config(tmp_path, [rides_case(Inputs=[input_file("Rides", "Hourly/Rides.csv", file_format="CustomClr")])])
    with pytest.raises(ProjectError, match="Hourly, input Rides: the format customclr cannot be read here"):
        run(tmp_path)


JAVASCRIPT = {"Name": "Shout", "Type": "Scalar", "ScriptType": "JSFunction", "OutputType": "nvarchar(max)"}


def shouting(folder: Path, function: dict[str, Any], call: str) -> Path:
    """A project whose query calls a function of its own."""
    configurations = [{"filePath": "Functions\\Shout.js.json", "subType": "JSFunction"}]
    write_project(folder, query=f"SELECT {call} AS loud\nINTO o FROM i", configurations=configurations)
    write_json(folder / "Functions" / "Shout.js.json", function)
    write_json(folder / "Test" / "i.json", [{"text": "hello"}])
    (folder / "Test" / "o.json").write_text('{"loud": "HELLO!"}')
    case = {"Name": "a", "Inputs": [input_file("i", "i.json")], "ExpectedOutputs": [expected_output("o", "o.json")]}
    write_test_config(folder, [case])
    return folder


def test_a_function_in_javascript_runs_as_it_is(tmp_path: Path) -> None:
    shouting(tmp_path, JAVASCRIPT, "udf.shout(text)")
    (tmp_path / "Functions" / "Shout.js").write_text('function main(text) { return text.toUpperCase() + "!"; }')
    (result,) = run(tmp_path)
    assert result.passed


def test_an_aggregate_in_javascript_runs_as_it_is(tmp_path: Path) -> None:
    shouting(tmp_path, {**JAVASCRIPT, "Type": "Aggregate"}, "uda.shout(text)")
    (tmp_path / "rides.asaql").write_text(
        "SELECT uda.shout(text) AS loud INTO o FROM i GROUP BY TumblingWindow(second, 5)"
    )
    (tmp_path / "Functions" / "Shout.js").write_text(
        """function main() {
            this.init = function () { this.state = ""; };
            this.accumulate = function (value, timestamp) { this.state += value.toUpperCase() + "!"; };
            this.deaccumulate = function (value, timestamp) { throw new Error("not called"); };
            this.computeResult = function () { return this.state; };
        }"""
    )
    (result,) = run(tmp_path)
    assert result.passed, result


def test_a_script_that_cannot_be_used_is_told_with_its_line(tmp_path: Path) -> None:
    shouting(tmp_path, JAVASCRIPT, "udf.shout(text)")
    (tmp_path / "Functions" / "Shout.js").write_text("function main(text) {\n  return text +;\n}")
    with pytest.raises(FunctionError, match=r"\[functions.Shout\]: cannot use its script: line 2: SyntaxError"):
        run(tmp_path)


def test_a_function_in_csharp_is_refused_by_name_with_the_next_step(tmp_path: Path) -> None:
    shouting(tmp_path, {**JAVASCRIPT, "ScriptType": "CSharpFunction"}, "udf.shout(text)")
    with pytest.raises(JobQueryError) as caught:
        run(tmp_path)
    told = str(caught.value)
    assert "line 1, column 8: udf.shout is in C#, which is not supported here" in told
    assert "write it in JavaScript, as Functions/Shout.js of the project, or in Python" in told


def test_a_function_without_its_script_is_refused_by_name_with_the_next_step(tmp_path: Path) -> None:
    shouting(tmp_path, JAVASCRIPT, "udf.shout(text)")
    with pytest.raises(JobQueryError) as caught:
        run(tmp_path)
    told = str(caught.value)
    assert "line 1, column 8: udf.shout is in JavaScript, and its script does not exist" in told
    assert '[functions.Shout] module = "functions.py", function = "Shout"' in told


def test_a_function_in_python_takes_its_place(tmp_path: Path) -> None:
    shouting(tmp_path, JAVASCRIPT, "udf.shout(text)")
    (tmp_path / "tidegate.toml").write_text('[functions.shout]\nmodule = "functions.py"\n')
    (tmp_path / "functions.py").write_text('def shout(text):\n    return text.upper() + "!"\n')
    (result,) = run(tmp_path)
    assert result.passed, result


def test_what_the_project_says_itself_is_refused_in_the_file_beside_it(tmp_path: Path) -> None:
    shouting(tmp_path, JAVASCRIPT, "udf.shout(text)")
    (tmp_path / "tidegate.toml").write_text('query = "SELECT 1"\n')
    with pytest.raises(ProjectError, match="query: the project already sets this; remove it"):
        run(tmp_path)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(["Json", "i.json", "..", "\0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("name", "startFile", "configurations", "filePath", "subType", "TestCases", "Name", "Inputs"),
                    *("InputAlias", "Type", "Format", "FilePath", "ExpectedOutputs", "OutputAlias", "Serialization"),
                    *("FieldDelimiter", "CompatibilityLevel", "EventsLateArrivalMaxDelayInSeconds", "resources"),
                    *("type", "properties", "transformation", "query", "datasource", "parameters"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(description=JSON_VALUES, other=JSON_VALUES, tests=JSON_VALUES)
@settings(max_examples=example_count(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_files_hold_is_read_or_refused(tmp_path: Path, description: Any, other: Any, tests: Any) -> None:
    write_json(tmp_path / "test" / "i.json", [])
    (tmp_path / "rides.asaql").write_text("SELECT * INTO o FROM i")
    write_json(tmp_path / "JobConfig.json", other)
    write_json(tmp_path / "test" / "testConfig.json", tests)
    kinds = ("JobConfig", "InputMock", "Input", "Output", "JSFunction")
    listed = [{"filePath": "JobConfig.json", "subType": kind} for kind in kinds]
    for content in (
        description,
        {"startFile": "rides.asaql", "configurations": listed[:1]},
        {"startFile": "rides.asaql", "configurations": listed},
    ):
        write_json(tmp_path / "asaproj.json", content)
        with contextlib.suppress(JobError):
            run(tmp_path)
        check_project(tmp_path)
