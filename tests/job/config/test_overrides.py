"""Overrides: what may be given in place of an input or output, and what each becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.connectors.inputs.event_hub import EventHubInput
from tidegate.connectors.inputs.files import FilesInput
from tidegate.connectors.inputs.recorded import RecordedInput
from tidegate.connectors.inputs.reference import ReferenceInput
from tidegate.connectors.model.errors import JobError
from tidegate.connectors.outputs.console import ConsoleOutput
from tidegate.connectors.outputs.files.result_file import FileOutput
from tidegate.job.config.definition import read_definition
from tidegate.job.config.overrides import parse_override, with_overrides
from tidegate.job.prepare.loading import load_job

HUB = "Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=b;EntityPath=rides"
JOB = """
name = "rides"
query = "SELECT R.zone, Z.name INTO alerts FROM rides R JOIN zones Z ON Z.zone = R.zone"

[inputs.rides]
type = "eventhub"
connection_string = "${RIDES}"
format = "csv"
delimiter = ";"

[inputs.zones]
type = "reference"
path = "zones.json"

[outputs.alerts]
type = "file"
path = "alerts.jsonl"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "zones.json").write_text('{"zone": 1, "name": "a"}\n')
    path = tmp_path / "job" / "rides.toml"
    path.parent.mkdir()
    path.write_text(JOB)
    return path


def section(path: Path, *texts: str, of: str = "") -> Any:
    """The section that the first override leads to."""
    definition = read_definition(path, [parse_override(text, path.parent.parent) for text in texts])
    table, _, name = (of or texts[0]).partition("=")[0].partition(".")
    return (definition.inputs if table == "inputs" else definition.outputs)[name.partition(".")[0]]


def test_the_console_takes_the_place_of_an_output(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDES", HUB)
    assert isinstance(section(job, "outputs.alerts=console"), ConsoleOutput)


def test_a_file_takes_the_place_of_an_input_whose_secret_is_then_not_needed(job: Path) -> None:
    rides = section(job, "inputs.rides=rides.csv.gz")
    assert isinstance(rides, FilesInput)
    assert (rides.path, rides.format, rides.watch) == (str(job.parent.parent / "rides.csv.gz"), "csv", False)


def test_files_that_may_follow_are_waited_for(job: Path) -> None:
    rides = section(job, "inputs.rides=az://lake/rides/*.parquet")
    assert (rides.path, rides.format, rides.watch) == ("az://lake/rides/*.parquet", "parquet", True)


def test_a_file_in_place_of_reference_data_is_reference_data(job: Path) -> None:
    zones = section(job, "inputs.zones=other.csv", "inputs.rides=a.json")
    assert isinstance(zones, ReferenceInput)
    assert (zones.path, zones.format) == (str(job.parent.parent / "other.csv"), "csv")


def test_a_connection_string_takes_the_place_of_the_one_in_the_file(job: Path) -> None:
    rides = section(job, f"inputs.rides={HUB}")
    assert isinstance(rides, EventHubInput)
    assert (rides.connection_string, rides.format, rides.delimiter) == (HUB, "csv", ";")
    zones = with_overrides(
        {"inputs": {"i": {"type": "files", "format": "avro"}}}, [parse_override(f"inputs.i={HUB}", job)]
    )
    assert zones["inputs"]["i"] == {"type": "eventhub", "connection_string": HUB, "format": "avro"}


def test_one_setting_may_be_another(job: Path) -> None:
    rides = section(job, f"inputs.rides.connection_string={HUB}", "inputs.rides.columns=['a', 'b']")
    assert (rides.connection_string, rides.columns, rides.format) == (HUB, ("a", "b"), "csv")
    assert section(job, "inputs.rides=r.csv", "inputs.rides.watch=true").watch is True


def test_a_whole_section_may_be_given(job: Path) -> None:
    rides = section(job, "inputs.RIDES={type = 'recorded', path = 'log.jsonl'}", of="inputs.rides=")
    assert isinstance(rides, RecordedInput)
    assert rides.path == job.parent.parent / "log.jsonl"


def test_the_rows_of_an_output_go_to_a_file_or_into_a_folder(job: Path) -> None:
    one = section(job, "outputs.alerts=rows.csv", "inputs.rides=a.json")
    assert isinstance(one, FileOutput)
    assert (one.path, one.format) == (job.parent.parent / "rows.csv", "csv")
    assert section(job, "outputs.alerts=out/", "inputs.rides=a.json").path == job.parent.parent / "out" / "alerts.jsonl"


def test_a_job_runs_with_them(job: Path) -> None:
    overrides = ["inputs.rides=rides.json", "outputs.alerts=console", "inputs.zones=zones.json"]
    loaded = load_job(job, [parse_override(text, job.parent.parent) for text in overrides])
    assert [one.type for one in loaded.definition.inputs.values()] == ["files", "reference"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("outputs.alerts", "expected inputs.NAME=VALUE or outputs.NAME=VALUE"),
        ("alerts=console", "expected inputs.NAME=VALUE"),
        ("inputs.rides=", "expected inputs.NAME=VALUE"),
        ("inputs.ride=a.json", "there is no input ride; there are: rides, zones"),
        ("outputs.alert=console", "there is no output alert; there are: alerts"),
        ("outputs.alerts=consol", "expected console, a file.*got 'consol'"),
        ("outputs.alerts={type}", "is not a value of TOML"),
        ("outputs.alerts={type = 'fil'}", 'type "fil" is not an output type'),
    ],
)
def test_a_wrong_override_says_what_is_right(job: Path, text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDES", HUB)
    monkeypatch.chdir(job.parent.parent)
    with pytest.raises(JobError, match=said):
        load_job(job, [parse_override(text, job.parent.parent), parse_override("inputs.zones=zones.json", Path.cwd())])
