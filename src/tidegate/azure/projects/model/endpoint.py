"""A live input or an output of a project: `Inputs/NAME.json`, `Outputs/NAME.json`, or its part of a template."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, Field, model_validator

from tidegate.azure.projects.model.project_file import ProjectFile
from tidegate.connectors.model.errors import ProjectError

_SPAN = re.compile(r"(?:\b(\d+)\.)?(\d+):(\d+):(\d+)")
_INPUT_TYPES = ("datastream", "stream", "referencedata", "reference")
_SECTIONS = ("properties", "info")
_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "verticalbar": "|", "space": " "}


def _input_type(written: str) -> str:
    if "".join(written.lower().split()) not in _INPUT_TYPES:
        raise ValueError("expected 'Data Stream' or 'Reference data'")
    return written


InputType = Annotated[str, AfterValidator(_input_type)]
"""What an input is to the query. The tools and the service's API have different names for the same two."""


class Serialization(ProjectFile):
    """How the events of an input, or the rows of an output, are written."""

    type: str | None = Field(default=None, alias="Type")
    field_delimiter: str | None = Field(default=None, alias="FieldDelimiter")
    encoding: str | None = Field(default=None, alias="Encoding")
    format: str | None = Field(default=None, alias="Format")
    delta_table_path: str | None = Field(default=None, alias="DeltaTablePath")
    partition_columns: tuple[str, ...] = Field(default=(), alias="PartitionColumns")
    class_name: str | None = Field(default=None, alias="SerializationClassName")


def delimiter_of(written: str) -> str:
    """Return the delimiter between the fields of CSV, given as a character or by name."""
    return _DELIMITERS.get(written.lower(), written)


def seconds_of(span: str, setting: str) -> float:
    """Return the length of a time span: 00:05:00, 1.00:00:00, or the time of day that templates write for it.

    Raises:
        ProjectError: it is none; the message names the setting.
    """
    found = _SPAN.search(span)
    if found is None:
        raise ProjectError(f"{setting}: expected a time span such as 00:05:00, got {span!r}")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


class Endpoint(ProjectFile):
    """A live input or an output.

    Attributes:
        data_source_type: the kind of source or sink as the file names it: "Event Hub".
        sections: the settings of the source or sink, by the name of the setting that holds them. The tools of Visual
            Studio write one for every kind, those of other kinds without a value.
        origin: the file that it was read from, for messages.
    """

    name: str = Field(alias="Name")
    type: str = Field(default="Data Stream", alias="Type")
    data_source_type: str = Field(default="", alias="DataSourceType")
    sections: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    origin: str = ""
    serialization: Serialization | None = Field(default=None, alias="Serialization")
    compression: str | None = Field(
        default=None, validation_alias=AliasChoices("CompressionType", "CompresssionType", "compression")
    )
    partition_key: str | None = Field(
        default=None, validation_alias=AliasChoices("PartitionKey", "InputPartionKey", "partition_key")
    )
    minimum_rows: int | None = Field(default=None, alias="MinimumRows")
    maximum_time: str | None = Field(default=None, alias="MaximumTime")

    @model_validator(mode="before")
    @classmethod
    def _collect_the_sections(cls, content: Any) -> Any:
        if not isinstance(content, Mapping) or "sections" in content:
            return content
        found = {
            key: value
            for key, value in content.items()
            if str(key).lower().endswith(_SECTIONS) and isinstance(value, Mapping)
        }
        return {**content, "sections": found}

    @property
    def is_reference(self) -> bool:
        """Whether it is reference data."""
        return self.type.lower().startswith("reference")

    @property
    def format(self) -> str | None:
        """The format of its events or rows in lower case: json, csv, avro …; None if the file gives none."""
        named = None if self.serialization is None else self.serialization.type
        return named.lower() if named else None

    def format_settings(self) -> dict[str, Any]:
        """Return its format, delimiter and compression as settings of an input's section."""
        section: dict[str, Any] = {}
        if self.format is not None:
            section["format"] = self.format
        if self.format == "csv" and self.serialization is not None and self.serialization.field_delimiter:
            section["delimiter"] = delimiter_of(self.serialization.field_delimiter)
        compression = (self.compression or "none").lower()
        return section if compression == "none" else {**section, "compression": compression}


class InputEndpoint(Endpoint):
    """A live input."""

    type: InputType = Field(default="Data Stream", alias="Type")
