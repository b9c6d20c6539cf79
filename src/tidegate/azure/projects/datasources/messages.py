"""What outputs that send messages have in common: the format of a body, and the columns that are sent apart from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.azure.projects.datasources.kinds import SectionSettings, no_counterpart
from tidegate.azure.projects.model.endpoint import Endpoint, delimiter_of

_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe", " ": "space"}


def body_settings(endpoint: Endpoint) -> SectionSettings:
    """Return the settings for the format of bodies.

    Raises:
        NoCounterpartError: a message cannot have the format.
    """
    written = endpoint.serialization
    match endpoint.format:
        case None | "json":
            is_array = written is not None and (written.format or "").lower() == "array"
            return {"json_format": "array"} if is_array else {}
        case "csv":
            delimiter = delimiter_of((written.field_delimiter if written else None) or ",")
            if delimiter not in _DELIMITERS:
                raise no_counterpart("output", endpoint, f"whose delimiter {delimiter!r} is not supported here")
            return {"format": "csv", "csv_delimiter": _DELIMITERS[delimiter]}
        case "avro":
            return {"format": "avro"}
    raise no_counterpart("output", endpoint, "a format that a message cannot have: expected Json, Csv or Avro")


def column_settings(properties: Sequence[str], system: Mapping[str, Any]) -> SectionSettings:
    """Return the settings for columns that are properties and system properties of the message."""
    section: SectionSettings = {"property_columns": list(properties)} if properties else {}
    named = {name: str(column) for name, column in system.items() if column}
    return {**section, "system_property_columns": named} if named else section
