"""Opens an output as its section of the job file says."""

from __future__ import annotations

from tidegate.job.config.output_definitions import (
    ConsoleOutput,
    EventHubOutput,
    FileOutput,
    OutputDefinition,
    PostgresqlOutput,
    SqliteOutput,
)
from tidegate.job.model.errors import OutputError
from tidegate.job.outputs.console import Console
from tidegate.job.outputs.event_hub import HubOutput
from tidegate.job.outputs.files import ResultFile
from tidegate.job.outputs.output import Identity, Mark, Output
from tidegate.job.outputs.postgresql import PostgresqlTable
from tidegate.job.outputs.shape import Shape
from tidegate.job.outputs.sqlite import SqliteTable
from tidegate.job.outputs.tables import TableDatabase, TableOutput


def open_output(
    definition: OutputDefinition, identity: Identity, mark: Mark | None, shape: Shape | None, *, drop: bool
) -> Output:
    """Open an output at the mark that the journal has for it.

    Args:
        mark: None for an output that has taken nothing yet.
        shape: the columns of the query for it, where they are known.
        drop: rows that the output cannot hold are left out, else they end the job.

    Raises:
        OutputError: it cannot be written, or what it holds does not fit the mark.
    """
    if mark is not None and mark["type"] != definition.type:
        if mark["rows"] and mark["type"] != "console":
            raise OutputError(
                f"output '{identity.output}' was of type {mark['type']} and has {mark['rows']:,} results there; a job "
                "goes on with its outputs as they were: change the type back, or move the journal away to start afresh"
            )
        mark = None
    match definition:
        case FileOutput():
            return ResultFile(definition, identity, mark, drop=drop)
        case ConsoleOutput():
            return Console(mark)
        case EventHubOutput():
            return HubOutput(definition, identity, mark, shape, drop=drop)
        case SqliteOutput():
            database: TableDatabase = SqliteTable(definition, drop=drop)
        case PostgresqlOutput():
            database = PostgresqlTable(definition, drop=drop)
    return TableOutput(
        database,
        identity,
        mark,
        shape,
        table=definition.table,
        key=definition.key,
        types=definition.columns,
        drop=drop,
    )
