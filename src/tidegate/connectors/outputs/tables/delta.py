"""A Delta Lake table, by the package deltalake (the extra `deltalake`).

The transaction identifiers of the Delta protocol are made for this: an entry of the log says that an application is at
a version, in the same atomic commit as the files that it added. The application is the output, its version the number
of its rows.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import pyarrow as pa
from pydantic import Field

from tidegate.blobs.object_store import CONNECTION_STRING, allows_plain_http, azure_config, is_azure, without_secrets
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.kinds import StorageAccountSection
from tidegate.connectors.model.section import SecretUrl
from tidegate.connectors.outputs.arrow_tables import ARROW_TYPES
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening
from tidegate.connectors.outputs.output import (
    Identity,
    MarkPlace,
    Output,
    OutputUnavailableError,
    StoredMark,
    moved_by_another_run,
)
from tidegate.connectors.outputs.tables.delta_files import DeltaFile, DeltaFileWriter
from tidegate.connectors.outputs.tables.lake_encoder import FileWriter
from tidegate.connectors.outputs.tables.lake_output import LakeOutput, LakeSettings

_ANOTHER = "another"
_CONCURRENT = "Concurrent transaction"
_PLAIN_WRITER, _WRITER_OF_FEATURES = 2, 7
"""Versions of the protocol: before constraints, computed columns and the like; and since features have names."""
_PLAIN_FEATURES = frozenset({"appendOnly", "invariants"})

Result = TypeVar("Result")


@OUTPUTS.register
class DeltaOutput(StorageAccountSection, LakeSettings):
    """A Delta Lake table in a folder or an object store; a commit of the table holds the results of a step."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("delta", "deltatable", "lakehouse"), 'write type = "deltalake"'
    )

    type: Literal["deltalake"]
    path: SecretUrl = Field(
        description="the table's folder, created if it does not exist; relative to the job file, or "
        "`az://CONTAINER/…`, `abfss://…`, `s3://…`, `gs://…`"
    )

    def open_at(self, opening: OutputOpening) -> Output:
        return LakeOutput(DeltaLakeTable(self), self, opening)


class DeltaLakeTable:
    """One table; see `LakeTable`."""

    kind = "deltalake"

    def __init__(self, definition: DeltaOutput) -> None:
        """Raise OutputError if deltalake is not installed, or the environment's credentials cannot be read."""
        try:
            import deltalake  # an extra: other outputs do without
            import deltalake.exceptions
            import deltalake.transaction
        except ModuleNotFoundError as error:
            raise OutputError("an output to Delta Lake needs deltalake: pip install 'tidegate[deltalake]'") from error
        self._deltalake = deltalake
        self._path = definition.path
        self._environment = definition.storage_environment
        self._partition_by = list(definition.partition_by)
        self.name = f"the Delta table {definition.path.partition('?')[0]}"
        try:
            self._options = _storage_options(self._path, self._environment or os.environ)
        except ValueError as error:
            raise OutputError(str(error)) from error
        self._table: Any = None

    def schema(self) -> pa.Schema | None:
        def read() -> pa.Schema | None:
            if not self._deltalake.DeltaTable.is_deltatable(self._path, storage_options=self._options):
                return None
            self._table = self._deltalake.DeltaTable(self._path, storage_options=self._options)
            return pa.schema(self._table.schema().to_arrow())

        return self._on_table(read)

    def create(self, schema: pa.Schema) -> None:
        self._on_table(
            lambda: self._deltalake.DeltaTable.create(
                self._path,
                schema,
                mode="ignore",
                partition_by=self._partition_by or None,
                storage_options=self._options,
            )
        )

    def stored_mark(self, identity: Identity) -> StoredMark | None:
        def read() -> StoredMark | None:
            self._table.update_incremental()
            rows, dropped, journal = (self._table.transaction_version(app) for app in _apps(identity))
            if rows is None:
                return None
            is_own = journal == _number_of(identity.journal)
            return StoredMark(identity.journal if is_own else _ANOTHER, rows, dropped or 0)

        return self._on_table(read)

    def append(
        self,
        rows: pa.Table | None,
        files: Sequence[DeltaFile],
        identity: Identity,
        before: StoredMark | None,
        after: StoredMark,
    ) -> None:
        versions = (after.rows, after.dropped, _number_of(after.journal))
        properties = self._deltalake.CommitProperties(
            app_transactions=[
                self._deltalake.Transaction(app, version)
                for app, version in zip(_apps(identity), versions, strict=True)
            ]
        )
        if rows is None and not files:
            # The log entry needs a file to go with: a commit without one has none of its actions.
            rows = pa.schema(self._table.schema().to_arrow()).empty_table()
        self._check_shared(files)

        def write() -> None:
            try:
                if files:
                    own = [] if rows is None else self._writer().write(rows)
                    self._add([*files, *own], properties)
                else:
                    self._deltalake.write_deltalake(
                        self._table, rows, mode="append", schema_mode="merge", commit_properties=properties
                    )
            except self._deltalake.exceptions.CommitFailedError as error:
                if _CONCURRENT in str(error):
                    raise moved_by_another_run(identity, MarkPlace(self.name, self.name, "")) from error
                raise

        self._on_table(write)

    def _check_shared(self, files: Sequence[DeltaFile]) -> None:
        if "://" in self._path:
            return
        for file in files:
            if not (Path(self._path) / file.path).exists():
                raise OutputError(
                    f"{self.name} is not shared: an executor has written {file.path}, which is not here; use a path on "
                    "a file system that all machines share, or an object store"
                )

    def _add(self, files: Sequence[DeltaFile], properties: Any) -> None:
        actions = [
            self._deltalake.transaction.AddAction(
                file.path, file.size, file.partition_values, file.modification_time, True, file.stats
            )
            for file in files
        ]
        self._table.create_write_transaction(
            actions, "append", self._table.schema(), self._partition_columns(), commit_properties=properties
        )
        self._table.update_incremental()

    def file_writer(self) -> FileWriter | None:
        """See `LakeTable`; a table with a feature of newer protocols is left to the package that knows it."""
        protocol, metadata = self._table.protocol(), self._table.metadata()
        features = set(protocol.writer_features or ()) | set(protocol.reader_features or ())
        is_plain = protocol.min_writer_version <= _PLAIN_WRITER or (
            protocol.min_writer_version == _WRITER_OF_FEATURES and features <= _PLAIN_FEATURES
        )
        writer = self._writer()
        computed = any(key.startswith(b"delta.") for field in writer.schema for key in (field.metadata or {})) or any(
            name.startswith("delta.constraints.") for name in metadata.configuration
        )
        has_other_types = any(field.type not in ARROW_TYPES.values() for field in writer.schema)
        return writer if is_plain and not computed and not has_other_types else None

    def _writer(self) -> DeltaFileWriter:
        schema = pa.schema(self._table.schema().to_arrow())
        return DeltaFileWriter(self._path, tuple(self._partition_columns()), schema, self._environment)

    def _partition_columns(self) -> list[str]:
        return list(self._table.metadata().partition_columns)

    def close(self) -> None:
        self._table = None

    def _on_table(self, work: Callable[[], Result]) -> Result:
        exceptions = self._deltalake.exceptions
        try:
            return work()
        except exceptions.CommitFailedError as error:
            raise OutputUnavailableError(f"{self.name}: {without_secrets(error)}") from None
        except exceptions.DeltaError as error:
            message = f"{self.name}: {without_secrets(error)}"
            away = "object store" in message.lower() or "objectstore" in message.lower()
            raise (OutputUnavailableError if away else OutputError)(message) from None
        except OSError as error:
            raise OutputUnavailableError(f"{self.name}: {without_secrets(error)}") from None


def _apps(identity: Identity) -> tuple[str, str, str]:
    """Return the names of the transaction identifiers: of the rows, those dropped among them, and the journal."""
    app = f"tidegate/{identity.job}/{identity.output}"
    return app, f"{app}/dropped", f"{app}/journal"


def _number_of(journal: str) -> int:
    return int.from_bytes(hashlib.sha256(journal.encode()).digest()[:7], "big")


def _storage_options(path: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what deltalake does not find in the environment itself. Raises ValueError."""
    if path.startswith("s3"):
        return {"allow_http": "true"} if allows_plain_http({}, environment) else {}
    if not is_azure(path) or CONNECTION_STRING not in environment:
        return {}
    options = {f"azure_storage_{name}": value for name, value in azure_config(environment[CONNECTION_STRING]).items()}
    if options.get("azure_storage_endpoint", "").startswith("http://"):
        options["allow_http"] = "true"
    return options
