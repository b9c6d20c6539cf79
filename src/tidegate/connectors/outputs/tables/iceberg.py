"""An Apache Iceberg table, by pyiceberg (the extra `iceberg`), in a catalog of SQLite, PostgreSQL or another kind.

Rows and mark are one commit: the mark is a property of the table that the transaction sets along with the new snapshot.
The catalog accepts a commit only if the table is still the one that the run has read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pyarrow as pa
from pydantic import Field

from tidegate.blobs.object_store import without_secrets
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public, SecretOptions, SecretUrl, TextPattern
from tidegate.connectors.outputs.files.file_location import FINAL_ERRORS
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
from tidegate.connectors.outputs.tables.postgresql import REFUSED

_TRANSFORM = re.compile(r"^(?:(year|month|day|hour)\((.+)\)|(.+))$")
# Every commit writes a file of metadata; without these the old ones would stay for ever.
_TABLE_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_USER = re.compile(r"//[^/@\s]*@")
_TABLE_NAME = TextPattern(r"^[A-Za-z0-9_.-]+\.[A-Za-z0-9_-]+$", "namespace.table, both of letters, digits, '_' and '-'")

Result = TypeVar("Result")


@OUTPUTS.register
class IcebergOutput(LakeSettings):
    """An Apache Iceberg table; a snapshot of it holds the results of a step."""

    type: Literal["iceberg"]
    table: Annotated[Public, _TABLE_NAME] = Field(
        description="`namespace.table`, both created if they do not exist; it may be partitioned by `day(column)` too",
    )
    path: SecretUrl = Field(
        description="the warehouse: the folder of a new table's files, relative to the job file, or `s3://…`"
    )
    catalog: SecretUrl | None = Field(
        default=None,
        description="`sqlite:///FILE`, `postgresql://user:password@host/database`, or the address of a REST catalog; "
        "default: a SQLite database in the warehouse",
    )
    catalog_name: Public = Field(
        default="default", description="the catalog's name; tables of a SQL catalog are found below it"
    )
    snapshots_to_keep: int = Field(
        default=50, ge=1, description="how many snapshots the table keeps, at least; older ones expire as new ones come"
    )
    catalog_properties: Annotated[dict[str, str], SecretOptions()] = Field(
        default_factory=dict, description="properties of pyiceberg's catalog, such as credentials of the warehouse"
    )

    def open_at(self, opening: OutputOpening) -> Output:
        return LakeOutput(IcebergTable(self), self, opening)


class IcebergTable(LakeTable):
    """One table."""

    kind = "iceberg"

    def __init__(self, definition: IcebergOutput) -> None:
        """Raise OutputError if pyiceberg is not installed."""
        try:
            import pyiceberg.catalog  # an extra: other outputs do without
            import pyiceberg.exceptions
            import sqlalchemy.exc
        except ModuleNotFoundError as error:
            raise OutputError("an output to Iceberg needs pyiceberg: pip install 'tidegate[iceberg]'") from error
        self._pyiceberg = pyiceberg
        self._database_errors = (sqlalchemy.exc.OperationalError, sqlalchemy.exc.InterfaceError)
        self._definition = definition
        self._identifier = definition.table
        self.name = f"the Iceberg table {definition.table}"
        self._catalog: Any = None
        self._table: Any = None

    def schema(self) -> pa.Schema | None:
        def read() -> pa.Schema | None:
            self._catalog = self._catalog or self._opened()
            try:
                self._table = self._catalog.load_table(self._identifier)
            except self._pyiceberg.exceptions.NoSuchTableError:
                return None
            schema: pa.Schema = self._table.schema().as_arrow()
            return schema

        return self._on_catalog(read)

    def _opened(self) -> Any:
        """Return the catalog."""
        definition = self._definition
        warehouse = definition.path
        if "://" not in warehouse:
            Path(warehouse).mkdir(parents=True, exist_ok=True)
            warehouse = Path(warehouse).as_uri()
        address = definition.catalog
        if address is None:
            if "://" in definition.path:
                raise OutputError(
                    f"{self.name}: a warehouse in an object store needs a catalog elsewhere: set `catalog`"
                )
            address = f"sqlite:///{definition.path}/catalog.db"
        is_rest = address.startswith(("http://", "https://"))
        properties = {
            "type": "rest" if is_rest else "sql",
            "uri": re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", address),
            "warehouse": warehouse,
            **definition.catalog_properties,
        }
        return self._pyiceberg.catalog.load_catalog(definition.catalog_name, **properties)

    def create(self, schema: pa.Schema) -> None:
        def create() -> None:
            namespace = self._identifier.rpartition(".")[0]
            self._catalog.create_namespace_if_not_exists(namespace)
            # Version 2 has microseconds and a place for every type that results have.
            with (
                self._catalog.create_table_transaction(
                    self._identifier, schema=schema, properties=_TABLE_PROPERTIES
                ) as transaction,
                transaction.update_spec() as partitions,
            ):
                for text in self._definition.partition_by:
                    self._add_partition(partitions, text)

        self._on_catalog(create)

    def _add_partition(self, partitions: Any, text: str) -> None:
        from pyiceberg.transforms import parse_transform

        found = _TRANSFORM.match(text)
        assert found is not None
        transform, column, alone = found.groups()
        partitions.add_field(column or alone, parse_transform(transform or "identity"))

    def stored_mark(self, identity: Identity) -> StoredMark | None:
        def read() -> StoredMark | None:
            self._table.refresh()
            text = self._table.properties.get(_property(identity))
            if text is None:
                return None
            journal, rows, dropped = text.rsplit(" ", 2)
            return StoredMark(journal, int(rows), int(dropped))

        return self._on_catalog(read)

    def append(
        self,
        rows: pa.Table | None,
        files: Sequence[Any],
        identity: Identity,
        before: StoredMark | None,
        after: StoredMark,
    ) -> None:
        if rows is not None and files:
            # One snapshot for all.
            files, rows = [*files, *self._writer().write(rows)], None

        def write() -> None:
            known = {field.name for field in self._table.schema().fields}
            with self._table.transaction() as transaction:
                if rows is not None:
                    if not set(rows.column_names) <= known:
                        with transaction.update_schema() as update:
                            update.union_by_name(rows.schema)
                    transaction.append(rows)
                if files:
                    with transaction.update_snapshot().fast_append() as snapshot:
                        for file in files:
                            snapshot.append_data_file(file)
                transaction.set_properties({_property(identity): f"{after.journal} {after.rows} {after.dropped}"})

        # Another writer's commit makes this one fail, and then the table is read anew.
        if self.stored_mark(identity) != before:
            raise moved_by_another_run(identity, MarkLocation(self.name, self.name, ""))
        self._check_shared(files)
        self._on_catalog(write)
        self._on_catalog(self._expire_snapshots)

    def _check_shared(self, files: Sequence[Any]) -> None:
        for file in files:
            path = str(file.file_path)
            if path.startswith("file:") and not self._table.io.new_input(path).exists():
                raise OutputError(
                    f"{self.name}: its warehouse is not shared: an executor has written {path.rpartition('/')[2]}, "
                    "which is not here; use a path on a file system that all machines share, or an object store"
                )

    def file_writer(self) -> FileWriter:
        return self._writer()

    def _writer(self) -> IcebergFileWriter:
        # What the table was before is of no interest to a writer, and grows.
        before: dict[str, Any] = {
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
            "current_snapshot_id": None,
        }
        return IcebergFileWriter(self._table.metadata.model_copy(update=before), self._table.io)

    def _expire_snapshots(self) -> None:
        """Keep the metadata small, which every commit copies; files of rows stay."""
        keep = self._definition.snapshots_to_keep
        snapshots = sorted(self._table.snapshots(), key=lambda snapshot: snapshot.sequence_number)
        if len(snapshots) < 2 * keep:
            return
        named = {reference.snapshot_id for reference in self._table.refs().values()}
        old = [one.snapshot_id for one in snapshots[:-keep] if one.snapshot_id not in named]
        if old:
            self._table.maintenance.expire_snapshots().by_ids(old).commit()

    def close(self) -> None:
        if self._catalog is not None and hasattr(self._catalog, "engine"):
            self._catalog.engine.dispose()
        self._catalog = self._table = None

    def _on_catalog(self, work: Callable[[], Result]) -> Result:
        exceptions = self._pyiceberg.exceptions
        try:
            return work()
        except (exceptions.CommitFailedException, exceptions.CommitStateUnknownException) as error:
            raise OutputUnavailableError(self._problem(error)) from None
        except (exceptions.ServiceUnavailableError, exceptions.ServerError, OSError, *self._database_errors) as error:
            final = getattr(error, "errno", None) in FINAL_ERRORS or REFUSED.search(str(error))
            raise (OutputError if final else OutputUnavailableError)(self._problem(error)) from None
        except (exceptions.RESTError, exceptions.ValidationError, ValueError) as error:
            raise OutputError(self._problem(error)) from None

    def _problem(self, error: Exception) -> str:
        return f"{self.name}: {_USER.sub('//', without_secrets(error))}"


@dataclass(frozen=True, slots=True)
class IcebergFileWriter:
    """A `FileWriter`: pyiceberg's own, which also computes partitions and statistics.

    Attributes:
        metadata: pyiceberg's, of the table; io: with which it reads and writes files.
    """

    metadata: Any
    io: Any = field(repr=False)

    def write(self, rows: pa.Table) -> list[Any]:
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        try:
            return list(_dataframe_to_data_files(self.metadata, rows, self.io))
        except (OSError, ValueError) as error:
            raise OutputError(f"an Iceberg table's file cannot be written: {without_secrets(error)}") from None


def _property(identity: Identity) -> str:
    name = hashlib.sha256(f"{identity.job}/{identity.output}".encode()).hexdigest()[:16]
    return f"tidegate.mark.{name}"
