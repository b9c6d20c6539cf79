"""The JSON Schema of the job file, for editors. It is generated from the sections, so the two always agree."""

from __future__ import annotations

from typing import Any

from tidegate.job.config.definition import JobDefinition

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NULL = {"type": "null"}


def job_schema() -> dict[str, Any]:
    """Return the schema of a job file, TOML or JSON of the same shape."""
    schema = JobDefinition.model_json_schema()
    made = {key: _plain(value) for key, value in schema.items() if key not in ("title", "description")}
    made["properties"] = {
        "$schema": {"type": "string", "description": "where this schema is, for editors"},
        **made["properties"],
    }
    one_query = [{"required": ["query"]}, {"required": ["query_file"]}]
    return {"$schema": DIALECT, "title": "A Tidegate job", **made, "oneOf": one_query}


def _plain(part: Any) -> Any:
    """Remove titles that only repeat the name, and null, which stands for an absent setting."""
    if isinstance(part, list):
        return [_plain(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    kept: dict[str, Any] = {}
    for key, value in part.items():
        match key, value:
            case ("title", str()) | ("default", None):
                continue
            case "description", str():
                kept[key] = " ".join(value.replace("``", "`").split())
            case "anyOf", list() if _NULL in value:
                given = [_plain(option) for option in value if option != _NULL]
                kept |= given[0] if len(given) == 1 else {"anyOf": given}
            case _:
                kept[key] = _plain(value)
    return kept
