"""A Delta Lake table, by the package deltalake (the extra `deltalake`).

The transaction identifiers of the Delta protocol are made for this: an entry of the log says that an application is at
a version, in the same atomic commit as the files that it added. The application is the output, its version the number
of its rows.

Parquet files of a Delta Lake table that no commit names yet.

Besides a file's path and size, a commit's `add` action has the values by which the table is partitioned, which the file
leaves out, and statistics by which readers skip files:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from tidegate.blobs.object_store import CONNECTION_STRING, allows_plain_http, azure_config, is_azure, without_secrets
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.kinds import StorageAccountSection
from tidegate.connectors.model.section import SecretUrl
from tidegate.connectors.outputs.arrow_tables import ARROW_TYPES
from tidegate.connectors.outputs.files.file_location import FINAL_ERRORS, open_location
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening
from tidegate.connectors.outputs.output import (
    Identity,
    MarkLocation,
    Output,
    OutputUnavailableError,
    StoredMark,
    moved_by_another_run,
)
from tidegate.connectors.outputs.tables.lake_output import FileWriter, LakeOutput, LakeSettings, LakeTable

_LONGEST_BOUND = 64
"""Characters; a longer text is no bound in the statistics, which every reader of the table reads."""


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """What an `add` action says of a file; times in milliseconds since 1970."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    modification_time: int
    stats: str


@dataclass(frozen=True, slots=True)
class DeltaFileWriter:
    """A `FileWriter`.

    Attributes:
        root: the table's folder.
        partition_by: the columns that it is partitioned by.
        schema: the table's columns.
        environment: where credentials are; None for that of the process that writes.
    """

    root: str
    partition_by: tuple[str, ...]
    schema: pa.Schema
    environment: Mapping[str, str] | None = field(default=None, repr=False)

    def write(self, rows: pa.Table) -> list[DeltaFile]:
        """There is a file for each partition."""
        location = open_location(self.root, self.environment)
        made = [self._file(values, part) for values, part in self._partitions(rows)]
        location.put([(file.path, content) for file, content in made])
        location.close()
        return [file for file, _ in made]

    def _file(self, values: Mapping[str, str | None], rows: pa.Table) -> tuple[DeltaFile, bytes]:
        sink = io.BytesIO()
        kept = [
            field for field in self.schema if field.name not in self.partition_by and field.name in rows.column_names
        ]
        pq.write_table(rows.select([field.name for field in kept]).cast(pa.schema(kept)), sink, compression="snappy")
        content = sink.getvalue()
        stats = json.dumps(_statistics(pq.ParquetFile(io.BytesIO(content)).metadata), ensure_ascii=False)
        name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        return DeltaFile(name, len(content), values, time.time_ns() // 1_000_000, stats), content

    def _partitions(self, rows: pa.Table) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
        """Yield the rows of each partition with its values."""
        if not self.partition_by:
            yield {}, rows
            return
        combined = np.zeros(len(rows), dtype=np.int64)
        for name in self.partition_by:
            codes = pc.dictionary_encode(rows.column(name), null_encoding="encode").combine_chunks()
            both = combined * len(codes.dictionary) + codes.indices.to_numpy(zero_copy_only=False)
            combined = np.unique(both, return_inverse=True)[1]
        order = np.argsort(combined, kind="stable")
        bounds = np.flatnonzero(np.diff(combined[order], prepend=-1, append=-1))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            part = rows.take(order[first:last])
            yield {name: _partition_value(part.column(name)[0].as_py()) for name in self.partition_by}, part


def _partition_value(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        case _:
            return str(value)


def _statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return the statistics of a file, from those in its footer."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in range(metadata.num_columns):
        chunks = [metadata.row_group(group).column(column) for group in range(metadata.num_row_groups)]
        found = [chunk.statistics for chunk in chunks]
        name = chunks[0].path_in_schema
        if any(one is None or not one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        bounded = [one for one in found if one.has_min_max]
        # A chunk without bounds has only NULLs, or values without an order, such as NaN.
        if len(bounded) < sum(one.num_values > 0 for one in found) or not bounded:
            continue
        low, high = _bound(min(one.min for one in bounded)), _bound(max(one.max for one in bounded))
        if low is not None and high is not None:
            least[name], most[name] = low, high
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _bound(value: Any) -> Any:
    """Return a value as statistics have it; None for one that they do not."""
    match value:
        case bool():
            return None
        case int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= _LONGEST_BOUND else None
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case _:
            return None


_ANOTHER = "another"
_CONCURRENT = "Concurrent transaction"
# deltalake has one class of errors for most of what goes wrong, and also wraps those of a store: "Failed to parse
# parquet: External: Generic MicrosoftAzure error: …" is a store that could not be reached. Waiting does not change a
# refused key, a missing container or bucket, and a folder that cannot be written.
_OF_STORE = re.compile(r"Generic \w+ error|object ?store|the store answers", re.IGNORECASE)
_FINAL = re.compile(rf"the store answers 40[134]\b|\(os error (?:{'|'.join(map(str, FINAL_ERRORS))})\)")
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


class DeltaLakeTable(LakeTable):
    """One table."""

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
                    raise moved_by_another_run(identity, MarkLocation(self.name, self.name, "")) from error
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
        """Return what writes files; a table with a feature of newer protocols is left to the package that knows it."""
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
        except (exceptions.DeltaError, OSError) as error:
            said = without_secrets(error)
            may_pass = (isinstance(error, OSError) or _OF_STORE.search(said)) and not _FINAL.search(said)
            raise (OutputUnavailableError if may_pass else OutputError)(f"{self.name}: {said}") from None


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
