"""Job files written as templates and read back: the same sections, but for the settings that a note names."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiles import example_count
from tidegate.azure.projects.live import live_project
from tidegate.azure.projects.reading import read_project
from tidegate.azure.projects.template_export import export_job
from tidegate.job.config.definition import definition_of

HUB = "Endpoint=sb://city.servicebus.windows.net/;SharedAccessKeyName=all;SharedAccessKey=sEcReT"
names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,8}", fullmatch=True)
texts = st.from_regex(r"[a-z][a-z0-9 \[\]]{0,8}", fullmatch=True) | st.sampled_from(["[dbo].[rows]", "[a]", "[[b]]"])
counts = st.integers(1, 99)


def of(kind: str, needed: dict[str, Any], **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Sections of a kind, with some of its optional settings."""
    required = {name: one if isinstance(one, st.SearchStrategy) else st.just(one) for name, one in needed.items()}
    return st.fixed_dictionaries({"type": st.just(kind), **required}, optional=optional).map(_of_its_format)


def _of_its_format(section: dict[str, Any]) -> dict[str, Any]:
    foreign = {"json": ("csv_delimiter", "delimiter"), "csv": ("json_format",)}.get(
        section.get("format", "json"), ("csv_delimiter", "delimiter", "json_format")
    )
    return {key: value for key, value in section.items() if key not in foreign}


DELIMITERS = st.sampled_from([",", ";", "\t", "|", " "])
DATES = st.sampled_from(["YYYY/MM/DD", "YYYY-MM-DD", "DD-MM-YYYY"])
EVENTS = {"format": st.sampled_from(["json", "csv", "avro"]), "delimiter": DELIMITERS}
MESSAGE_COMPRESSION = st.sampled_from(["none", "gzip", "deflate"])
BODIES = {
    "format": st.sampled_from(["json", "csv", "avro"]),
    "json_format": st.sampled_from(["array", "line separated"]),
    "csv_delimiter": st.sampled_from(["comma", "semicolon", "tab", "pipe", "space"]),
}
INPUTS = st.one_of(
    of(
        "eventhub",
        {"connection_string": HUB, "event_hub": names},
        **EVENTS,
        compression=MESSAGE_COMPRESSION,
        consumer_group=names,
        idle_after_s=counts,
    ),
    of(
        "files",
        {"path": names.map(lambda name: f"az://rides/{name}/{{date}}/{{time}}")},
        **EVENTS,
        date_format=DATES,
        time_format=st.sampled_from(["HH", "HH/mm"]),
        settle_s=counts,
    ),
    of("kafka", {"bootstrap_servers": "b:9092", "topic": names}, **EVENTS, consumer_group=names),
)
OUTPUTS = st.one_of(
    of(
        "eventhub",
        {"connection_string": HUB, "event_hub": names},
        **BODIES,
        partition_key=texts,
        property_columns=st.lists(texts, max_size=2, unique=True),
    ),
    of(
        "files",
        {"path": names.map(lambda name: f"az://results/{name}/{{date}}")},
        **{**BODIES, "format": st.sampled_from(["json", "csv", "avro", "parquet"])},
        date_format=DATES,
        minimum_rows=counts,
        maximum_time_s=st.integers(1, 7_000) | st.just(30.5),
        write_mode=st.sampled_from(["append", "once"]),
    ),
    of(
        "deltalake",
        {"path": names.map(lambda name: f"az://lake/{name}/rows")},
        partition_by=st.lists(names, max_size=1),
    ),
    of("servicebus", {"connection_string": HUB, "queue": names}, **BODIES),
    of("kafka", {"bootstrap_servers": "b:9092", "topic": names}, **BODIES, max_message_bytes=st.integers(2_000, 9_000)),
    of(
        "sqlserver",
        {"connection_string": "sqlserver://me:sEcReT@db/city", "table": names.map(lambda name: name.replace("-", "_"))},
        batch_rows=counts,
    ),
    of(
        "postgresql",
        {"connection_string": "postgresql://me:sEcReT@db/city", "table": st.just("rows")},
        key=st.just(["zone"]),
    ),
    of(
        "cosmosdb",
        {"connection_string": "AccountEndpoint=https://city.example.com:443/;AccountKey=sEcReT;"},
        **{"database": texts, "container": texts, "document_id": texts},
    ).filter(lambda one: {"database", "container"} <= one.keys()),
    of(
        "tablestorage",
        {"connection_string": "AccountName=city;AccountKey=sEcReT;"},
        **{"table": st.sampled_from(["rows", "abc"]), "partition_key": texts, "row_key": texts, "batch_size": counts},
    ).filter(lambda one: {"table", "partition_key", "row_key"} <= one.keys()),
    of(
        "webhook",
        {"url": "https://city.azurewebsites.net/api/count"},
        **{"key": st.just("sEcReT"), "max_batch_count": counts, "attempts": st.integers(1, 9)},
    ),
    of("powerbi", {"push_url": "https://api.example.com/beta/t/datasets/d/rows?key=sEcReT"}),
)
ORDERING = st.fixed_dictionaries(
    {},
    optional={
        "late_arrival_tolerance_s": st.integers(-1, 99) | st.just(0.5),
        "out_of_order_tolerance_s": st.integers(0, 99),
        "action": st.sampled_from(["adjust", "drop"]),
        "early_arrival_tolerance_s": st.sampled_from([300, 10, False]),
    },
)


def variables_of(table: dict[str, Any]) -> dict[str, str]:
    """The variables that hold what a project does not."""
    found = {"AZURE_STORAGE_CONNECTION_STRING": "UseDevelopmentStorage=true"}
    for name, section in table.items():
        word = "_".join(part for part in name.upper().replace("-", "_").split("_") if part)
        address = section.get("connection_string") or section.get("push_url") or section.get("url")
        found |= {f"{word}_CONNECTION_STRING": address} if address else {}
        found |= {f"{word}_PASSWORD": section["key"]} if section["type"] == "webhook" and "key" in section else {}
    return found


@settings(max_examples=example_count(60), deadline=None)
@given(names, INPUTS, names, OUTPUTS, ORDERING)
def test_a_job_comes_back_but_for_what_a_note_names(
    one: str, source: dict[str, Any], other: str, sink: dict[str, Any], ordering: dict[str, Any]
) -> None:
    name, out = f"in-{one}", f"out-{other}"
    content = {"name": "rides", "query": f"SELECT zone INTO [{out}] FROM [{name}]", "event_ordering": ordering}
    content |= {"inputs": {name: source}, "outputs": {out: sink}}
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        definition = definition_of(content, Path(folder, "rides.toml"))
        exported = export_job(definition)
        path = Path(folder, "template.json")
        path.write_text(json.dumps(exported.content))
        assert "sEcReT" not in path.read_text()
        for variable, value in {**variables_of({name: source}), **variables_of({out: sink})}.items():
            patch.setenv(variable, value)
        back = live_project(read_project(path)).definition
    assert back.query == definition.query
    lost = {note.partition(":")[0] for note in exported.notes}
    before, after = (
        {
            **{f"inputs.{name}.{key}": value for key, value in job.inputs[name].model_dump(mode="json").items()},
            **{f"outputs.{out}.{key}": value for key, value in job.outputs[out].model_dump(mode="json").items()},
            **{f"event_ordering.{key}": value for key, value in dict(job.event_ordering).items()},
        }
        for job in (definition, back)
    )
    assert {key for key in before if before[key] != after.get(key)} <= lost


def test_two_names_that_look_alike_have_parameters_of_their_own(tmp_path: Path) -> None:
    hub = {"type": "eventhub", "connection_string": f"{HUB};EntityPath=rides"}
    content = {"name": "rides", "query": "SELECT zone INTO [a-b] FROM [a b]"}
    content |= {"inputs": {"a b": hub, "a_b": hub, "job": hub}, "outputs": {"a-b": hub, "A_B": hub}}
    exported = export_job(definition_of(content, tmp_path / "rides.toml"))
    keys = [name.lower() for name, one in exported.content["parameters"].items() if one["type"] == "securestring"]
    assert len(set(keys)) == 5
    assert {one.get("value") for one in exported.content["parameters"].values()} == {None}


def test_scripts_of_a_job_file_are_written_too(tmp_path: Path) -> None:
    (tmp_path / "twice.js").write_text("function twice(x, times) { return x * times; }")
    content = {
        "name": "rides",
        "query": "SELECT udf.twice(a, 2) AS a, udf.shout(b) AS b INTO o FROM i",
        "inputs": {"i": {"type": "eventhub", "connection_string": f"{HUB};EntityPath=rides"}},
        "functions": {
            "twice": {"module": "twice.js"},
            "shout": {"script": "function main(text) { return text.toUpperCase(); }"},
            "py": {"module": "functions.py"},
        },
    }
    exported = export_job(definition_of(content, tmp_path / "rides.toml"))
    assert exported.notes == ("the function py is in Python: the service has no such thing, it is left out",)
    path = tmp_path / "template.json"
    path.write_text(json.dumps(exported.content))
    back = read_project(path).functions
    assert {name: len(function.inputs) for name, function in back.items()} == {"twice": 2, "shout": 1}
    assert back["twice"].script == (tmp_path / "twice.js").read_text()


def test_texts_in_brackets_are_no_expressions(tmp_path: Path) -> None:
    account = "AccountEndpoint=https://city.example.com:443/;AccountKey=key;"
    sink = {"type": "cosmosdb", "connection_string": account, "database": "d", "container": "[dbo].[rows]"}
    content = {"name": "rides", "query": "SELECT a INTO o FROM [i]", "outputs": {"o": sink}}
    content["inputs"] = {"i": {"type": "eventhub", "connection_string": f"{HUB};EntityPath=rides"}}
    exported = export_job(definition_of(content, tmp_path / "rides.toml"))
    (output,) = exported.content["resources"][0]["properties"]["outputs"]
    assert output["properties"]["datasource"]["properties"]["collectionNamePattern"] == "[[dbo].[rows]"
    path = tmp_path / "template.json"
    path.write_text(json.dumps(exported.content))
    assert read_project(path).outputs["o"].sections["DocumentDbProperties"]["CollectionNamePattern"] == "[dbo].[rows]"
    path.write_text(json.dumps(exported.content).replace("[[dbo].[rows]", "[concat('a', 'b')]"))
    assert read_project(path).outputs["o"].sections["DocumentDbProperties"]["CollectionNamePattern"] == "ab"
