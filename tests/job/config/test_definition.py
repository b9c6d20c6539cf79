"""Job files: how they are read, and the messages about mistakes in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidegate.connectors.inputs.recorded import RecordedInput
from tidegate.connectors.inputs.sql_reference import SqlReferenceInput
from tidegate.connectors.model.errors import JobError
from tidegate.connectors.outputs import OUTPUTS
from tidegate.connectors.outputs.files.result_file import FileOutput
from tidegate.job.config.definition import definition_of, query_text, read_definition
from tidegate.job.prepare.loading import event_ordering_policy

JOB = """
name = "tolls"
query = "SELECT * INTO results FROM tolls"
[inputs.tolls]
type = "recorded"
path = "log.jsonl"
[outputs.results]
type = "file"
path = "out/results.jsonl"
"""


def write(folder: Path, text: str, name: str = "job.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_paths_are_relative_to_the_job_file(tmp_path: Path) -> None:
    definition = read_definition(write(tmp_path, JOB))
    tolls, results = definition.inputs["tolls"], definition.outputs["results"]
    assert isinstance(tolls, RecordedInput)
    assert tolls.path == tmp_path / "log.jsonl"
    assert isinstance(results, FileOutput)
    assert results.path == tmp_path / "out" / "results.jsonl"
    assert definition.state_dir == tmp_path / "tolls.state"


def test_event_ordering_defaults_are_the_portals(tmp_path: Path) -> None:
    ordering = read_definition(write(tmp_path, JOB)).event_ordering
    assert (ordering.late_arrival_tolerance_s, ordering.out_of_order_tolerance_s) == (5, 0)
    assert (ordering.early_arrival_tolerance_s, ordering.action) == (300, "adjust")


@pytest.mark.parametrize(
    ("written", "early_ticks"), [("0", 0), ("0.0", 0), ("1", 10_000_000), ("0.0000001", 1), ("false", None)]
)
def test_an_early_window_of_nought_is_not_the_rule_switched_off(
    tmp_path: Path, written: str, early_ticks: int | None
) -> None:
    section = f"[event_ordering]\nearly_arrival_tolerance_s = {written}\n"
    ordering = read_definition(write(tmp_path, JOB + section)).event_ordering
    assert event_ordering_policy(ordering).early_ticks == early_ticks


def test_a_job_may_be_json_and_name_its_query_file(tmp_path: Path) -> None:
    (tmp_path / "q.asaql").write_text("SELECT 1 INTO o FROM i", encoding="utf-8")
    job = {"name": "j", "query_file": "q.asaql", "inputs": {"i": {"type": "recorded", "path": "i.jsonl"}}}
    definition = read_definition(write(tmp_path, json.dumps(job), "job.json"))
    assert query_text(definition) == "SELECT 1 INTO o FROM i"


def test_the_environment_fills_in_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLS_PATH", "elsewhere.jsonl")
    tolls = read_definition(write(tmp_path, JOB.replace("log.jsonl", "${TOLLS_PATH}"))).inputs["tolls"]
    assert isinstance(tolls, RecordedInput)
    assert tolls.path.name == "elsewhere.jsonl"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("[inputs.tolls]", "querry = 1\n[inputs.tolls]"), "querry: no such setting; did you mean 'query'?"),
        (
            ("[inputs.tolls]", "delta_query = 1\n[inputs.tolls]"),
            "delta_query: no such setting here; a section of another",
        ),
        (("[inputs.tolls]", "[event_ordering]\naction = 'skip'\n[inputs.tolls]"), "event_ordering.action"),
        (
            ("[inputs.tolls]", "[event_ordering]\nlate_arrival_tolerance_s = -2\n[inputs.tolls]"),
            "event_ordering.late_arrival_tolerance_s",
        ),
        (
            ("[inputs.tolls]", "[event_ordering]\nlate_arrival_tolerance_s = -0.5\n[inputs.tolls]"),
            "0 or more, or -1 to wait indefinitely",
        ),
        (('type = "recorded"', 'type = "kafka"'), "inputs.tolls"),
        (('path = "log.jsonl"', ""), "inputs.tolls.path: missing"),
        (('query = "SELECT * INTO results FROM tolls"', ""), "give either 'query'"),
        (("log.jsonl", "${NOT_SET_ANYWHERE}"), "NOT_SET_ANYWHERE"),
        (('name = "tolls"', 'name = "../x"'), "name"),
        (("[outputs.results]", "[outputs.results"), "not valid TOML"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    path = write(tmp_path, JOB.replace(*change))
    with pytest.raises(JobError) as caught:
        read_definition(path)
    assert told in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_file_of_a_database_is_beside_the_job(tmp_path: Path) -> None:
    booths = (
        '[inputs.booths]\ntype = "sql_reference"\nsnapshot_query = "SELECT 1"\nconnection_string = "sqlite:///{}"\n'
    )
    for file, found in (("b.db", tmp_path / "b.db"), ("/elsewhere/b.db", Path("/elsewhere/b.db"))):
        section = read_definition(write(tmp_path, JOB + booths.format(file))).inputs["booths"]
        assert isinstance(section, SqlReferenceInput)
        assert section.connection_string == f"sqlite:///{found}"


def test_a_connection_string_is_never_repeated(tmp_path: Path) -> None:
    job = JOB.replace('type = "recorded"\npath = "log.jsonl"', 'type = "eventhub"\nconnection_string = ["hush-hush"]')
    with pytest.raises(JobError) as caught:
        read_definition(write(tmp_path, job))
    assert "hush-hush" not in str(caught.value)


def test_a_missing_file_is_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot read the job file"):
        read_definition(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(JobError, match="not UTF-8"):
        read_definition(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"inputs": {"i": {"type": "parquet"}}},
            'inputs.i: type "parquet" is not an input type; expected one of eventhub, files, iothub, kafka, '
            'recorded, reference, sql_reference (to read parquet files: type = "files", format = "parquet")',
        ),
        ({"inputs": {"i": {"type": "event-hub"}}}, 'did you mean type = "eventhub"?'),
        ({"inputs": {"i": {"path": "x"}}}, "inputs.i: type is missing; expected one of eventhub, "),
        ({"outputs": {"o": {"type": "csv"}}}, '(to write csv: type = "file", format = "csv")'),
        ({"outputs": {"o": {"type": "carrier pigeon"}}}, f"expected one of {', '.join(OUTPUTS.by_name)}\n"),
    ],
)
def test_an_unknown_type_says_what_to_write_instead(section: dict[str, Any], message: str) -> None:
    job = {"name": "x", "query": "SELECT 1", "inputs": {"r": {"type": "recorded", "path": "r"}}}
    with pytest.raises(JobError) as raised:
        definition_of({**job, **section}, Path("job.toml"))
    assert message in f"{raised.value}\n"


@pytest.mark.parametrize(
    ("written", "policy"),
    [("stop", "stop"), ("Stop", "stop"), ("Retry", "stop"), ("retry", "stop"), ("drop", "drop"), ("Drop", "drop")],
)
def test_error_policies_have_the_service_s_names_too(written: str, policy: str) -> None:
    job = {"name": "x", "query": "SELECT 1", "inputs": {"r": {"type": "recorded", "path": "r"}}}
    assert definition_of({**job, "output_error_policy": written}, Path("job.toml")).output_error_policy == policy


def test_another_error_policy_is_refused_with_the_names_there_are() -> None:
    job = {"name": "x", "query": "SELECT 1", "inputs": {"r": {"type": "recorded", "path": "r"}}}
    for wrong in ("ignore", 3):
        with pytest.raises(JobError, match=rf"output_error_policy: .*'Drop', 'Stop' or 'Retry'.*{wrong}"):
            definition_of({**job, "output_error_policy": wrong}, Path("job.toml"))
