"""Options of writing to ``eventhubs``."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.client import ClientError, ConnectionString
from tidegate.connectors.model.errors import OutputError
from tidegate.spark.options import named_options
from tidegate.spark.publication import BatchOrigin

_OPTIONS = ("connectionString", "eventHub", "tokenProvider", "consumerGroup", "txnAppId", "txnVersion")
# What Spark passes on of its own.
_SPARK_OPTIONS = ("path", "paths", "checkpointlocation", "queryname")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one write.

    Attributes:
        connection: the hub.
        consumer_group: the group for reading back what an interrupted attempt has stored.
        origin: the identity of a batch write; of a stream's batches, Spark's query id and batch number are it.
    """

    connection: ConnectionString
    consumer_group: str
    origin: BatchOrigin

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
        """Check the options of a writer.

        Raises:
            OutputError: an option is missing, unknown, or has an invalid value.
        """
        options = named_options(given, _OPTIONS, _SPARK_OPTIONS, OutputError)
        if "connectionString" not in options:
            raise OutputError(
                "option connectionString is missing: Endpoint=…;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…"
            )
        try:
            connection = ConnectionString.parse(
                options["connectionString"], options.get("eventHub"), token_provider=options.get("tokenProvider")
            )
        except ClientError as error:
            raise OutputError(str(error)) from error
        return cls(connection, options.get("consumerGroup", "$Default"), _origin(options, streaming))


def _origin(options: Mapping[str, str], streaming: bool) -> BatchOrigin:
    application, version = options.get("txnAppId"), options.get("txnVersion")
    if streaming and (application or version):
        raise OutputError("options txnAppId and txnVersion are for df.write; a stream numbers its batches itself")
    if (application is None) != (version is None):
        raise OutputError("options txnAppId and txnVersion belong together: give both, or neither")
    if application is None or version is None:
        return BatchOrigin(f"write/{uuid.uuid4().hex}", 0)
    if not version.strip().isdecimal():
        raise OutputError(f"option txnVersion: expected a whole number that grows with every write, got {version!r}")
    return BatchOrigin(f"transaction/{application}", int(version))
