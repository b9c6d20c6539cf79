"""The JSON Schema of the job file says what the code says: it takes what is a job, and refuses what is none."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.source import ROOT
from tidegate.cli import main
from tidegate.job import JobError
from tidegate.job.config.definition import JobDefinition, definition_of, read_definition
from tidegate.job.config.schema import job_schema

JOB = {
    "name": "tolls",
    "query": "SELECT * INTO results FROM tolls",
    "event_ordering": {"late_arrival_tolerance_s": 60, "early_arrival_tolerance_s": False, "action": "drop"},
    "inputs": {"tolls": {"type": "recorded", "path": "log.jsonl"}},
    "outputs": {"results": {"type": "file", "path": "results.jsonl"}, "other": {"type": "console"}},
    "functions": {"double": {"module": "functions.py", "vectorized": True}},
}
TYPES: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "object": dict,
    "array": (list, tuple),
    "number": (int, float),
    "integer": int,
}


def accepts(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    """The part of JSON Schema that ours uses; a keyword it does not know is an error, so that none is passed over."""
    if "$ref" in schema:
        return accepts(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, root)
    checks: dict[str, Any] = {
        "type": lambda word: isinstance(value, TYPES[word]) and (word == "boolean" or not isinstance(value, bool)),
        "const": lambda one: value == one and type(value) is type(one),
        "enum": lambda several: value in several,
        "minimum": lambda least: not isinstance(value, int | float) or value >= least,
        "maximum": lambda most: not isinstance(value, int | float) or value <= most,
        "exclusiveMinimum": lambda least: not isinstance(value, int | float) or value > least,
        "exclusiveMaximum": lambda most: not isinstance(value, int | float) or value < most,
        "minLength": lambda least: not isinstance(value, str) or len(value) >= least,
        "maxLength": lambda most: not isinstance(value, str) or len(value) <= most,
        "minItems": lambda least: not isinstance(value, list) or len(value) >= least,
        "minProperties": lambda least: len(value) >= least,
        "pattern": lambda pattern: re.search(pattern, value) is not None,
        "required": lambda names: all(name in value for name in names),
        "items": lambda inner: all(accepts(inner, item, root) for item in value),
        "properties": lambda known: all(
            accepts(known[name], item, root) for name, item in value.items() if name in known
        ),
        "propertyNames": lambda inner: all(accepts(inner, name, root) for name in value),
        "additionalProperties": lambda inner: all(
            inner is not False and (inner is True or accepts(inner, item, root))
            for name, item in value.items()
            if name not in schema.get("properties", {})
        ),
        "anyOf": lambda options: any(accepts(option, value, root) for option in options),
        "oneOf": lambda options: sum(accepts(option, value, root) for option in options) == 1,
    }
    told = {"description", "default", "discriminator", "format", "$defs", "$schema", "title", "examples"}
    return all(checks[word](of) for word, of in schema.items() if word not in told)


def is_a_job(content: Any) -> bool:
    try:
        definition_of(copy.deepcopy(content), Path("job.toml"))
    except JobError:
        return False
    return True


def changed(change: dict[str, Any]) -> dict[str, Any]:
    """The job with some settings put in or, where the value is None, taken out; places are written with dots."""
    content = copy.deepcopy(JOB)
    for place, value in change.items():
        *path, name = place.split(".")
        part: Any = content
        for word in path:
            part = part.setdefault(word, {})
        if value is None:
            del part[name]
        else:
            part[name] = value
    return content


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"query": None, "query_file": "q.asaql"},
        {"outputs": None},
        {"event_ordering": None},
        {"event_ordering.late_arrival_tolerance_s": -1},
        {"event_ordering.early_arrival_tolerance_s": 5},
        {"compatibility_level": "1.0"},
        {"name": "../x"},
        {"name": None},
        {"query": None},
        {"query_file": "q.asaql"},
        {"compatibility_level": "1.3"},
        {"inputs": {}},
        {"inputs.tolls.type": "kafka"},
        {"inputs.tolls.type": None},
        {"inputs.tolls.path": None},
        {"inputs.tolls.paht": "x"},
        {"outputs.results.path": 5},
        {"event_ordering.action": "skip"},
        {"event_ordering.late_arrival_tolerance_s": -2},
        {"event_ordering.late_arrival_tolerance_s": 1_814_400},
        {"event_ordering.early_arrival_tolerance_s": True},
        {"functions.double.module": None},
        {"functions.double.modul": "x"},
        {"querry": "x"},
    ],
    ids=str,
)
def test_the_schema_takes_what_the_code_takes(change: dict[str, Any]) -> None:
    content = changed(change)
    schema = job_schema()
    assert accepts(schema, content, schema) == is_a_job(content)


def test_jobs_in_the_documents_fit_the_schema() -> None:
    schema = job_schema()
    seen = 0
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for block in re.findall(r"```toml\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            content = tomllib.loads(block)
            if "name" in content:
                seen += 1
                assert accepts(schema, content, schema), f"{path}: {block}"
    assert seen


def test_every_setting_is_described() -> None:
    schema = job_schema()
    assert schema["properties"].keys() - {"$schema"} == JobDefinition.model_fields.keys()
    undescribed = [
        f"{name}.{setting}"
        for name, section in schema["$defs"].items()
        for setting, of in section.get("properties", {}).items()
        if "description" not in of and "const" not in of
    ]
    assert not undescribed


def test_a_job_may_name_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"$schema": "job.schema.json", **JOB}))
    assert read_definition(path).name == "tolls"


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["job", "schema"])
    assert left.value.code == 0
    assert json.loads(capsys.readouterr().out) == job_schema()
