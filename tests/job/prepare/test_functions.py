"""Functions that a job registers: where they are found, how they travel, what is said of those that are not there."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from tests.job.logs import TravellingTasks
from tidegate.cli import main
from tidegate.connectors.inputs.kinds import LogOpening, StreamInput
from tidegate.connectors.model.events import InputLog
from tidegate.job import JobError, JobQueryError, Stepper, load_job
from tidegate.job.prepare.functions import RegisteredFunction
from tidegate.job.prepare.loading import Job

MODULE = """
import doubling_helper

def from_hexadecimal(text):
    return int(text, 16)

def twice(value):
    return doubling_helper.double(value)
"""
JOB = """
name = "hex"
query = "SELECT udf.Hex2Int(h) AS n INTO out FROM i"
[inputs.i]
type = "recorded"
path = "log.jsonl"
[functions.hex2int]
module = "python/numbers_of.py"
function = "from_hexadecimal"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "numbers_of.py").write_text(MODULE)
    (tmp_path / "python" / "doubling_helper.py").write_text("def double(value):\n    return 2 * value\n")
    (tmp_path / "job.toml").write_text(JOB)
    texts = ["B4", "no", "11B"]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps({"body": {"h": text}}) + "\n" for text in texts))
    return tmp_path


def open_log(job: Job, name: str) -> InputLog:
    section = job.definition.inputs[name]
    assert isinstance(section, StreamInput)
    return section.open_log(LogOpening())


def rows_of(job: Job) -> tuple[list[object], dict[str, int]]:
    logs = {name: open_log(job, name) for name in job.program.input_names}
    step = Stepper(job.program, job.policy, logs, TravellingTasks(job.program, job.policy)).step()
    return [row for left in step.rows for row in left.to_dicts()], step.counters


def change(folder: Path, old: str, new: str) -> Path:
    path = folder / "job.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_a_function_beside_the_job_is_called_and_its_error_is_the_rows(folder: Path) -> None:
    rows, counters = rows_of(load_job(folder / "job.toml"))
    assert rows == [{"n": 180}, {"n": 283}]
    assert counters["Runtime Errors"] == 1


def test_what_a_function_raised_is_in_the_sample_of_the_row_that_it_cost(folder: Path) -> None:
    for change_of in [
        ("udf.Hex2Int(h)", "udf.hex2int(h)"),
        ("[functions.hex2int]", "[functions.hex2int]\nvectorized = true"),
    ]:
        job = load_job(change(folder, *change_of))
        logs = {name: open_log(job, name) for name in job.program.input_names}
        step = Stepper(job.program, job.policy, logs, TravellingTasks(job.program, job.policy)).step()
        error = step.data_errors[0]
        assert error.message.startswith("a registered function raised an error")
        assert "; the first: udf.hex2int: " in error.message
        assert "Error: " in error.message


def test_a_function_needs_a_name_only_where_it_differs_and_an_installed_module_needs_no_file(folder: Path) -> None:
    path = change(
        folder, '[functions.hex2int]\nmodule = "python/numbers_of.py"\nfunction = "from_hexadecimal"', "[functions.len]"
    )
    change(folder, "[functions.len]", '[functions.len]\nmodule = "builtins"')
    change(folder, "udf.Hex2Int", "udf.len")
    assert rows_of(load_job(path))[0] == [{"n": 2}, {"n": 2}, {"n": 3}]


def test_a_function_travels_as_text_and_needs_no_file_where_it_arrives(folder: Path) -> None:
    path = folder / "python" / "numbers_of.py"
    function = RegisteredFunction(str(path), path.read_bytes(), "twice")
    assert function(21) == 42
    data = pickle.dumps(function)
    path.unlink()
    assert pickle.loads(data)(4) == 8


def test_a_changed_function_is_another_job(folder: Path) -> None:
    before = load_job(folder / "job.toml").fingerprint
    assert before == load_job(folder / "job.toml").fingerprint
    (folder / "python" / "numbers_of.py").write_text(MODULE.replace("16", "17"))
    assert load_job(folder / "job.toml").fingerprint != before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("from_hexadecimal", "from_hexadecimals", "has no 'from_hexadecimals'; did you mean 'from_hexadecimal'?"),
        ("python/numbers_of.py", "none.py", "[functions.hex2int]: cannot read"),
        ("python/numbers_of.py", "no_such_module", "[functions.hex2int]: cannot import no_such_module: ModuleNotFound"),
        ("python/numbers_of.py", "numbers_of", 'from the folder of the job file: module = "numbers_of.py"'),
        ("function = ", "class = ", "functions.hex2int.class: no such setting"),
        ('"from_hexadecimal"', '"__name__"', "is not a function"),
        ('function = "from', 'vectorized = true\naggregate = "from', "'vectorized' is for functions"),
        ("function = ", "aggregate = ", "is not a class"),
    ],
)
def test_what_cannot_be_had_is_said(folder: Path, old: str, new: str, said: str) -> None:
    path = change(folder, old, new)
    with pytest.raises(JobError) as caught:
        load_job(path)
    assert said in str(caught.value)


def test_a_module_that_fails_says_in_which_line(folder: Path) -> None:
    (folder / "python" / "numbers_of.py").write_text("import json\n\nx = json.loads('nope')\n")
    with pytest.raises(JobError, match=r"cannot import numbers_of\.py: line 3: JSONDecodeError"):
        load_job(folder / "job.toml")
    (folder / "python" / "numbers_of.py").write_text("def f(:\n")
    with pytest.raises(JobError, match=r"cannot import numbers_of\.py: line 1: "):
        load_job(folder / "job.toml")


def test_a_call_is_checked_against_the_registered_names_and_what_they_take(folder: Path) -> None:
    path = change(folder, "udf.Hex2Int(h)", "udf.Hex2Int(h, 1)")
    with pytest.raises(JobQueryError) as caught:
        load_job(path)
    assert "the function takes (text), not 2 arguments" in str(caught.value)
    change(folder, "udf.Hex2Int(h, 1)", "udf.hexint(h)")
    with pytest.raises(JobQueryError, match=r"did you mean udf.hex2int\?"):
        load_job(path)


def test_check_says_so_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = change(folder, "from_hexadecimal", "nothing")
    with pytest.raises(SystemExit) as left:
        main(["job", "check", str(path)])
    assert left.value.code == 1
    assert "job.toml:8:1: error: numbers_of.py has no 'nothing'" in capsys.readouterr().err
