"""The kinds of inputs, outputs and functions with their settings, for forms; and whether given settings are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tidegate.job.config.definition import definition_of
from tidegate.job.config.schema import job_schema
from tidegate.job.prepare.functions import registered_functions
from tidegate.service.secrets import is_secret_of

_QUERY = "SELECT * INTO [output] FROM [input]"
_NOTHING: Mapping[str, Any] = {
    "inputs": {"input": {"type": "recorded", "path": "/dev/null"}},
    "outputs": {"output": {"type": "console"}},
    "functions": {},
}


def sections(_question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kinds of inputs, outputs and functions, each with its fields."""
    return dict(_kinds())


@cache
def _kinds() -> Mapping[str, Any]:
    schema = job_schema()
    definitions = schema["$defs"]
    found: dict[str, Any] = {}
    for kind in ("inputs", "outputs"):
        mapping = schema["properties"][kind]["additionalProperties"]["discriminator"]["mapping"]
        found[kind] = [_kind(name, definitions[ref.rpartition("/")[2]]) for name, ref in sorted(mapping.items())]
    refs = [one["$ref"] for one in schema["properties"]["functions"]["additionalProperties"]["oneOf"]]
    sections = [definitions[ref.rpartition("/")[2]] for ref in refs]
    found["functions"] = [_kind(one["properties"].get("type", {}).get("const", ""), one) for one in sections]
    return found


def _kind(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": name, "description": schema.get("description", ""), "fields": list(_fields(name, schema))}


def _fields(kind: str, schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, one in schema.get("properties", {}).items():
        if name == "type":
            continue
        of_type = one.get("type")
        yield {
            "name": name,
            "description": one.get("description", ""),
            "form": "choice" if "enum" in one else of_type if of_type in _PLAIN else "json",
            "choices": one.get("enum", []),
            "default": one.get("default"),
            "isRequired": name in schema.get("required", ()),
            "isSecret": is_secret_of({"type": kind}, name) and one.get("type") == "string",
        }


_PLAIN = ("string", "number", "integer", "boolean")


def check_section(question: Mapping[str, Any]) -> dict[str, Any]:
    """Check the settings of an input, output or function; with `load`, also load a function as a start would.

    Raises:
        JobError: it says what is wrong and where.
    """
    kind, name = question["kind"], question["name"]
    parts = {**_NOTHING, kind: {name: question["settings"]}}
    definition = definition_of({"name": "checked", "query": _QUERY, **parts}, Path("the job"))
    if kind == "functions" and question.get("load"):
        registered_functions(definition.functions)
    return {}
