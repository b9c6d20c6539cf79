"""The sections of a job file that name its outputs: `[outputs.NAME]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tidegate.job.config.section import Section

ColumnType = Literal["bigint", "float", "nvarchar(max)", "datetime", "bit", "record", "array"]

_IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?$"
_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}


class FileOutput(Section):
    """A file of JSON or CSV, each result once, in time order."""

    type: Literal["file"]
    path: Path = Field(description="the file; relative to the job file")
    format: Literal["json", "csv"] = Field(default="json", description="how a result is written")
    json_format: Literal["line separated", "array"] = Field(
        default="line separated", description="a line for each result, or one array of them all"
    )
    csv_delimiter: Literal["comma", "semicolon", "tab", "pipe", "space"] = Field(
        default="comma", description="what stands between the fields of a line"
    )

    @model_validator(mode="after")
    def _settings_of_its_format(self) -> FileOutput:
        other = "json_format" if self.format == "csv" else "csv_delimiter"
        if other in self.model_fields_set:
            raise ValueError(f'{other} is not for format = "{self.format}"')
        return self

    @property
    def delimiter(self) -> str:
        """What stands between the fields of a line of CSV."""
        return _DELIMITERS[self.csv_delimiter]


class SqliteOutput(Section):
    """A table of a SQLite database; the results of a step and the mark of how far they go in one transaction."""

    type: Literal["sqlite"]
    path: Path = Field(description="the database file, made if it is not there; relative to the job file")
    table: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_$]*$", description="the table, made if it is not there")
    key: tuple[str, ...] = Field(
        default=(), description="columns that make a row one: a later result with the same values takes its place"
    )
    columns: dict[str, ColumnType] = Field(
        default_factory=dict, description="the types of a table to be made, where the query does not tell them"
    )


class PostgresqlOutput(Section):
    """A table of a PostgreSQL database; the results of a step and the mark of how far they go in one transaction."""

    type: Literal["postgresql"]
    connection_string: str = Field(description="`postgresql://user:password@host/database`, or `host=… dbname=…`")
    table: str = Field(pattern=_IDENTIFIER, description="`table` or `schema.table`, made if it is not there")
    key: tuple[str, ...] = Field(
        default=(), description="columns that make a row one: a later result with the same values takes its place"
    )
    columns: dict[str, ColumnType] = Field(
        default_factory=dict, description="the types of a table to be made, where the query does not tell them"
    )


class EventHubOutput(Section):
    """An event hub, of this hub or of Azure: an event of JSON for each result."""

    type: Literal["eventhub"]
    connection_string: str = Field(description="Endpoint=…;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…")
    event_hub: str | None = Field(default=None, description="the hub's name, where the string has no EntityPath")
    partition_key: str | None = Field(
        default=None, description="the column whose value decides the partition; without, results go round in turn"
    )
    property_columns: tuple[str, ...] = Field(
        default=(), description="columns that are put into the event's properties as well"
    )
    consumer_group: str = Field(
        default="$Default", description="where the end of a hub that is not ours is read back after a crash"
    )


class ConsoleOutput(Section):
    """Results on standard output, as JSON lines."""

    type: Literal["console"]


OUTPUT_SECTIONS: tuple[type[Section], ...] = (
    FileOutput,
    SqliteOutput,
    PostgresqlOutput,
    EventHubOutput,
    ConsoleOutput,
)

OutputDefinition = Annotated[
    FileOutput | SqliteOutput | PostgresqlOutput | EventHubOutput | ConsoleOutput, Field(discriminator="type")
]
