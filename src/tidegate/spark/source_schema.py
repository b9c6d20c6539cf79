"""The columns of the data source ``eventhubs``, and their types in Spark."""

from __future__ import annotations

import difflib

from pyspark.sql.types import StructType

from tidegate.connectors.model.errors import InputError

COLUMN_TYPES = {
    "body": "binary",
    "partition": "string",
    "offset": "string",
    "sequenceNumber": "bigint",
    "enqueuedTime": "timestamp",
    "publisher": "string",
    "partitionKey": "string",
    "properties": "map<string,string>",
    "systemProperties": "map<string,string>",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMN_TYPES.items())


def selected_columns(schema: StructType) -> tuple[str, ...]:
    """Return the columns to read, which are those of the source or, after ``.schema(…)``, some of them.

    Raises:
        InputError: the source has no such column, or it has another type.
    """
    for field in schema.fields:
        if field.name not in COLUMN_TYPES:
            close = difflib.get_close_matches(field.name, COLUMN_TYPES, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else f"; it has {', '.join(COLUMN_TYPES)}"
            raise InputError(f"schema: the source has no column '{field.name}'{hint}")
        kind, given = COLUMN_TYPES[field.name], field.dataType.simpleString()
        if given != kind:
            raise InputError(f"schema: column '{field.name}' is {kind}, not {given}; cast it after load()")
    return tuple(schema.names)
