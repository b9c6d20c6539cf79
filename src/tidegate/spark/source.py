"""The ``eventhubs`` data source: event hubs in Spark, batch and streaming, without a jar.

Use ``spark.read.format("eventhubs")`` and ``spark.readStream.format("eventhubs")`` over Tidegate's hub or Azure's. The
columns are those that Event Hubs users on Spark know. The interface is PySpark's Python Data Source API.

Spark looks the source up, and asks for its columns, in processes of their own. Readers and writers are imported where
they are made, so that these processes start in half of the time.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidegate.spark.source_schema import SCHEMA, selected_columns


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

        return reader_for(dict(self.options), selected_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for ``spark.readStream``."""
        from tidegate.spark.source_reader import stream_reader_for

        return stream_reader_for(dict(self.options), selected_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for ``df.write``."""
        from tidegate.spark.sink import writer_for

        return writer_for(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer for ``df.writeStream``."""
        from tidegate.spark.sink import stream_writer_for

        return stream_writer_for(dict(self.options), schema, overwrite)
