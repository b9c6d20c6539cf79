"""What is wrong with a job, a query or a project: all of it at once, each with its place."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.job.projects import rides_case, rides_project, write_json, write_test_config
from tidegate.azure.projects.check import check_project
from tidegate.cli import main
from tidegate.connectors.inputs.kinds import INPUTS, InputSection, reference_names
from tidegate.connectors.inputs.reference import ReferenceInput
from tidegate.job.prepare.check import Finding, check_job, check_query

JOB = '''\
name = "tolls"
query = """
SELECT booth, COUNT(*) AS cars
INTO results
FROM tolls TIMESTAMP BY entry_time
GROUP BY booth, TumblingWindow(second, 5)
"""
[event_ordering]
late_arrival_tolerance_s = 5
[inputs.tolls]
type = "recorded"
path = "log.jsonl"
[outputs.results]
type = "file"
path = "results.jsonl"
'''


def places(findings: list[Finding]) -> list[tuple[int, int, int, str, str]]:
    """Line, column, length, severity and code of each."""
    return [(one.line, one.column, one.length, one.severity, one.code) for one in findings]


def check(text: str, name: str = "job.toml") -> list[Finding]:
    return check_job(text, Path(name))[1]


def test_nothing_is_wrong_with_a_job_that_is_fine() -> None:
    definition, findings = check_job(JOB, Path("job.toml"))
    assert findings == []
    assert definition is not None


def test_two_outputs_that_write_one_file() -> None:
    other = '[outputs.others]\ntype = "file"\npath = "./results.jsonl"\n'
    job = JOB.replace("second, 5)\n", "second, 5)\nSELECT booth INTO others FROM tolls\n") + other
    (finding,) = check(job)
    assert (finding.line, finding.severity, finding.code) == (19, "error", "output")
    assert finding.message.startswith("the output results writes ")


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ('"tolls"', '"tolls', (1, 14, 1, "error", "syntax"), "it is not valid TOML: illegal character"),
        ("[event_ordering]", "[event_orderin]", (8, 1, 15, "error", "setting"), "did you mean 'event_ordering'?"),
        ("= 5", "= -7", (9, 1, 24, "error", "setting"), "greater than or equal to -1"),
        ("= 5", "= true", (8, 1, 16, "error", "setting"), "late_arrival_tolerance_s is a number, got true"),
        ('type = "recorded"', 'type = "kafka"', (10, 1, 14, "error", "setting"), "inputs.tolls"),
        ('path = "log.jsonl"\n', "", (10, 1, 14, "error", "setting"), "inputs.tolls.path: missing"),
        ("FROM tolls", "FROM toll", (5, 6, 4, "error", "query"), "there is no input or step toll"),
        ("INTO results", "INTO result", (13, 1, 17, "error", "output"), "the query never writes the output results"),
        ("log.jsonl", "${NO_SUCH}", (12, 9, 10, "warning", "environment"), "${NO_SUCH} is not set in the environment"),
        ("COUNT(*)", "udf.f(booth)", (3, 15, 12, "error", "query"), "there is no function udf.f"),
    ],
)
def test_a_mistake_is_found_where_it_is(old: str, new: str, place: tuple[Any, ...], said: str) -> None:
    findings = check(JOB.replace(old, new, 1))
    assert place in places(findings)
    assert said in " ".join(one.message for one in findings)


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        ("udf.plate(booth)", '[functions.plate] with module = "functions.py"'),
        ("uda.Middle(booth)", '[functions.Middle] with module = "functions.py" and aggregate = "CLASS"'),
        ("udf.[the plate](booth)", "[functions.'the plate'] with module = \"functions.py\""),
    ],
)
def test_a_function_that_is_not_registered_comes_with_the_section_to_write(call: str, instead: str) -> None:
    found = next(one for one in check(JOB.replace("COUNT(*)", call)) if one.message.startswith("there is no function"))
    places = "the job file (of a project: to tidegate.toml; of a Spark program: to functions=)"
    assert found.hint == f"add {instead} to {places}"


def test_which_inputs_are_reference_data_follows_from_their_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Table(InputSection):
        """Another kind of reference data."""

    monkeypatch.setattr(INPUTS, "by_name", {"reference": ReferenceInput, "table": Table, **INPUTS.by_name})
    sections = {"a": {"type": "reference"}, "b": {"type": "table"}, "c": {"type": "recorded"}, "d": {"type": ["?"]}}
    assert reference_names(sections | {"e": {}, "f": "reference"}) == ["a", "b"]
    assert reference_names("reference") == reference_names(None) == []
    text = JOB.replace(
        "FROM tolls TIMESTAMP BY entry_time", "FROM tolls TIMESTAMP BY entry_time JOIN zones z ON z.b = booth"
    )
    text = text.replace("SELECT booth", "SELECT tolls.booth").replace("GROUP BY booth", "GROUP BY tolls.booth")
    text = text.replace("= booth", "= tolls.booth") + '[inputs.zones]\ntype = "table"\n'
    assert "query" not in {one.code for one in check(text)}


def test_mistakes_in_the_file_and_in_the_query_are_told_together() -> None:
    text = JOB.replace("FROM tolls", "FROM toll").replace("(second, 5)", "(second)").replace('"recorded"', '"x"')
    assert [one.code for one in check(text)] == ["query", "query", "setting"]


def test_what_is_doubtful_in_a_query_is_a_warning() -> None:
    (found,) = check(JOB.replace("TumblingWindow(second, 5)", "SessionWindow(second, 5, 60)"))
    assert (found.line, found.column, found.severity, found.code) == (6, 17, "warning", "query")
    assert "one session for every tolls.booth" in found.message


def test_an_input_that_is_never_read_is_a_warning() -> None:
    (finding,) = check(JOB + '[inputs.other]\ntype = "recorded"\npath = "x"\n')
    assert (finding.severity, finding.code, finding.line) == ("warning", "input", 16)


@pytest.mark.parametrize(
    ("query", "line", "column"),
    [
        ("query = 'SELECT * INTO results FROM toll'", 2, 37),
        ("query = '''SELECT *\n INTO results\n FROM toll'''", 4, 7),
        ('query = """SELECT *\r\nINTO results FROM toll"""', 3, 19),
    ],
)
def test_a_query_is_pointed_into_however_it_is_quoted(query: str, line: int, column: int) -> None:
    begin, end = JOB.index("query ="), JOB.index("[event_ordering]")
    findings = check(JOB[:begin] + query + "\n" + JOB[end:])
    assert (findings[0].line, findings[0].column, findings[0].code) == (line, column, "query")


def test_a_query_in_its_own_file_is_pointed_into_there(tmp_path: Path) -> None:
    begin, end = JOB.index("query ="), JOB.index("[event_ordering]")
    text = JOB[:begin] + 'query_file = "q.asaql"\n' + JOB[end:]
    (finding,) = check_job(text, tmp_path / "job.toml")[1]
    assert (finding.line, finding.code) == (2, "file")
    (tmp_path / "q.asaql").write_text("SELECT *\nINTO results\nFROM toll")
    (finding,) = check_job(text, tmp_path / "job.toml")[1]
    assert (finding.file, finding.line, finding.column) == (str(tmp_path / "q.asaql"), 3, 6)


def test_a_job_in_json_is_pointed_into_too() -> None:
    text = json.dumps(
        {
            "name": "x",
            "query": "SELECT *\nINTO o\nFROM j",
            "inputs": {"i": {"type": "recorded", "path": "p", "pth": 1}},
        },
        indent=1,
    )
    query, setting = check(text, "job.json")
    assert (query.line, query.code) == (3, "query")
    assert query.message.startswith("line 3, column 6 of the query: ")
    assert (setting.line, setting.message.split(";")[0]) == (8, "inputs.i.pth: no such setting")
    (syntax,) = check('{"name": ]', "job.json")
    assert (syntax.line, syntax.column, syntax.code) == (1, 10, "syntax")


def test_functions_are_looked_for_and_each_is_told(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("def double(x):\n    return 2 * x\n")
    text = JOB.replace("COUNT(*)", "udf.double(booth, 1)")
    text += '[functions.double]\nmodule = "f.py"\n[functions.a]\nmodule = "f.py"\n[functions.b]\nmodule = "no_module"\n'
    missing = check_job(text, tmp_path / "job.toml")[1]
    assert [(one.line, one.code) for one in missing] == [(19, "function"), (21, "function")]
    only = text[: text.index("[functions.a]")]
    (call,) = check_job(only, tmp_path / "job.toml")[1]
    assert "the function takes (x), not 2 arguments" in call.message
    assert (call.line, call.column) == (3, 15)


def test_a_query_alone_may_read_and_call_anything() -> None:
    query, findings = check_query("SELECT udf.f(a) INTO o FROM anything", "q.asaql")
    (finding,) = findings
    assert finding.severity == "warning"
    assert finding.message == "whether there is a function udf.f cannot be told from the query alone"
    assert query is not None


def test_a_project_is_looked_at_with_its_query_and_its_tests(tmp_path: Path) -> None:
    folder = rides_project(tmp_path)
    assert check_project(folder)[1] == []
    (folder / "rides.asaql").write_text("SELECT zone INTO Totals FROM Rides GROUP BY zone, TumblingWindow(hour)")
    write_json(folder / "JobConfig.json", {"EventsOutOfOrderPolicies": "Drop"})
    write_test_config(folder, [rides_case(), rides_case(Name="Two", Inputs=[])])
    (folder / "Test" / "Hourly" / "Rides.json").unlink()
    findings = check_project(folder)[1]
    told = {(Path(one.file).name, one.severity, one.line) for one in findings}
    assert told == {
        ("JobConfig.json", "warning", 1),
        ("rides.asaql", "error", 1),
        ("testConfig.json", "error", 1),
    }


def test_a_project_that_cannot_be_read_is_told_file_by_file(tmp_path: Path) -> None:
    folder = rides_project(tmp_path)
    (folder / "JobConfig.json").write_text('{\n "CompatibilityLevel": }')
    (finding,) = check_project(folder)[1]
    assert (Path(finding.file).name, finding.line, finding.column) == ("JobConfig.json", 2, 24)
    write_json(folder / "JobConfig.json", {"CompatibilityLevel": "9", "EventsOutOfOrderPolicy": 3})
    findings = check_project(folder)[1]
    assert [Path(one.file).name for one in findings] == ["JobConfig.json", "JobConfig.json"]
    assert sorted(one.message.split(":")[0] for one in findings) == ["CompatibilityLevel", "EventsOutOfOrderPolicy"]
    (finding,) = check_project(tmp_path / "nowhere")[1]
    assert "there is no such folder" in finding.message


def tidegate(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run the command here: its exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as left:
        main(["job", "check", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, out, err


def test_the_command_looks_at_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fine, wrong, query = tmp_path / "fine.toml", tmp_path / "wrong.toml", tmp_path / "q.asaql"
    fine.write_text(JOB)
    wrong.write_text(JOB.replace("FROM tolls", "FROM toll"))
    query.write_text("SELECT 1 AS n INTO o FROM i")
    code, out, err = tidegate(capsys, fine, query)
    assert (code, err) == (0, "")
    assert "the job 'tolls' is fine; " in out
    assert f"{query}: the query is fine" in out
    code, out, err = tidegate(capsys, fine, wrong)
    assert code == 1
    assert f"{wrong}:5:6: error: there is no input or step toll" in err
    assert "  5 | FROM toll TIMESTAMP BY entry_time\n    |      ^^^^\n  hint: did you mean tolls?" in err
    code, out, err = tidegate(capsys, fine, wrong, rides_project(tmp_path / "rides"), "-o", "json")
    shown = [json.loads(line) for line in out.splitlines()]
    assert [one["job"] for one in shown] == [str(fine), str(wrong), str(tmp_path / "rides")]
    assert [len(one["problems"]) for one in shown] == [0, 1, 0]
    assert shown[1]["problems"][0] == {
        "file": str(wrong),
        "line": 5,
        "column": 6,
        "length": 4,
        "severity": "error",
        "code": "query",
        "message": "there is no input or step toll",
        "hint": "did you mean tolls?",
    }


def test_a_query_alone_is_told_what_is_reference_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = tmp_path / "q.asaql"
    query.write_text("SELECT i.a, Z.b INTO o FROM i JOIN Z ON i.a = Z.a")
    assert tidegate(capsys, query)[0] == 1
    assert tidegate(capsys, query, "--reference", "Z")[0] == 0


def test_an_editor_gives_its_buffer_and_says_what_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    typed("SELECT * INTO o FROM")
    code, out, _ = tidegate(capsys, "-", "--stdin-name", "jobs/q.asaql", "-o", "json")
    assert code == 1
    assert json.loads(out)["problems"][0]["file"] == "jobs/q.asaql"
    typed(JOB)
    assert tidegate(capsys, "-")[0] == 0
    assert tidegate(capsys, "-", "-")[0] == 2
    assert tidegate(capsys)[0] == 2


def test_a_file_that_cannot_be_read_is_an_error_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    code, _, err = tidegate(capsys, tmp_path / "binary.toml", tmp_path / "none.toml")
    assert code == 1
    assert "binary.toml: it is not UTF-8 text" in err
    assert "none.toml: No such file or directory" in err


def test_warnings_alone_are_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB.replace("log.jsonl", "${NO_SUCH_VARIABLE}"))
    code, out, err = tidegate(capsys, path)
    assert (code, "is fine" in out, "warning" in err) == (0, True, True)


SIDE_OUTPUTS = """
[outputs.told]
type = "console"
[outputs.early]
type = "console"
[explanations]
output = "told"
[early_results]
period_s = 1
outputs = { results = "early" }
"""


def test_outputs_beside_those_of_the_query_are_outputs_of_the_job() -> None:
    assert check(JOB + SIDE_OUTPUTS) == []


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("[outputs.told]", "[outputs.tell]", "output", "the query never writes the output tell"),
        ('output = "told"', 'output = "Results"', "output", "the query itself writes 'Results'"),
        ('output = "told"', 'output = "early"', "output", "early_results.outputs writes 'early' too"),
        ("{ results =", "{ result =", "output", "the query has no output 'result'; it writes results"),
        ("TumblingWindow(second, 5)", "SessionWindow(second, 5, 10)", "output", "'results' has no early results"),
        ("late_arrival", 'timelines = "merged by enqueued time"\nlate_arrival', "output", "follow the timeline"),
    ],
)
def test_what_a_run_would_refuse_of_its_side_outputs_is_found(old: str, new: str, code: str, said: str) -> None:
    text = (JOB + SIDE_OUTPUTS).replace(old, new)
    assert old in JOB + SIDE_OUTPUTS
    findings = check(text)
    assert any(one.code == code and said in one.message for one in findings), findings
