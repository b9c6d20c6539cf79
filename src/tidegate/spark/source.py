"""The ``eventhubs`` data source: event hubs in Spark, batch and streaming, without a jar.

Use ``spark.read.format("eventhubs")`` and ``spark.readStream.format("eventhubs")`` over Tidegate's hub or Azure's. The
columns are those that Event Hubs users on Spark know. The interface is PySpark's Python Data Source API.

Spark looks the source up, and asks for its columns, in processes of their own. Readers and writers are imported where
they are made, so that these processes start in half of the time.
"""

from __future__ import annotations

import difflib

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidegate.connectors.model.errors import InputError
from tidegate.spark.queries.plain_errors import plain_errors

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


class EventHubsDataSource(DataSource):
    """The data source ``eventhubs``; options in ``docs/reference/spark-source.md``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "eventhubs"

    def schema(self) -> str:
        """Return the columns."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``."""
        from tidegate.spark.source_reader import reader_for

        with plain_errors():
            return reader_for(dict(self.options), selected_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for ``spark.readStream``."""
        from tidegate.spark.source_reader import stream_reader_for

        return stream_reader_for(dict(self.options), selected_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for ``df.write``."""
        from tidegate.spark.sink import writer_for

        with plain_errors():
            return writer_for(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer for ``df.writeStream``."""
        from tidegate.spark.sink import stream_writer_for

        with plain_errors():
            return stream_writer_for(dict(self.options), schema, overwrite)


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
