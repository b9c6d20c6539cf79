"""What a database does for an output of rows: `TableDatabase`, and `StagingDatabase` if executors can write to it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from pydantic import Field

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public
from tidegate.connectors.outputs.column_types import ColumnType
from tidegate.connectors.outputs.kinds import OutputSection
from tidegate.connectors.outputs.output import Identity, MarkPlace, RejectedRow, StoredMark, moved_by_another_run
from tidegate.connectors.outputs.tables.table_rows import Batch, StagedRows, TableColumn
from tidegate.sql.plan.nodes import Type

MARKS_TABLE = "tidegate_outputs"
PLACE_COLUMN, TIME_COLUMN = "tidegate_row", "tidegate_time"
"""The columns of a staging table beside those of the rows: the place of a row in the step, and its time in ticks."""


class TableDatabase(Protocol):
    """One table in one database.

    Every method but ``close`` raises OutputError, or OutputUnavailableError when the same call may succeed later; the
    next call then reconnects.
    """

    kind: str
    """The kind of database, for people and in marks."""

    def columns(self) -> Sequence[TableColumn]:
        """Return the columns of the table; none if it does not exist."""

    def create(self, columns: Sequence[tuple[str, Type]], key: Sequence[str]) -> None:
        """Create the table; a column of type ANY takes the type of its values."""

    def check_key(self, key: Sequence[str]) -> None:
        """Raise OutputError unless the database enforces that these columns are unique."""

    def stored_mark(self, identity: Identity) -> StoredMark | None:
        """Return the mark of an output; create the table of marks if it does not exist."""

    def begin(self, identity: Identity) -> None:
        """Set the mark of an output to no rows."""

    def write(self, batches: Iterable[Batch], identity: Identity, before: int, after: StoredMark) -> list[RejectedRow]:
        """Write rows and advance the mark from ``before`` rows to ``after``, in one transaction.

        Returns the rows that the database itself rejected; they count as dropped in the mark that is stored. Raises
        OutputError with no effect if the mark is not at ``before``.
        """

    def close(self) -> None:
        """Close the connection."""


@runtime_checkable
class StagingDatabase(TableDatabase, Protocol):
    """A database in which executors put rows into staging tables, over connections of their own.

    A staging table is filled in one transaction, under a name that no other attempt has. It is deleted as its rows are
    moved to the table, or else as one that an earlier run has left.
    """

    def can_stage(self, prefix: str) -> bool:
        """Return whether the user may create staging tables; it may try to, with a name that begins with the prefix."""

    def stage(self, name: str, batches: Sequence[Batch]) -> list[RejectedRow]:
        """Create a staging table with rows, all of the same columns, and return those that the database rejects.

        The numbers of the rows are their places. Without dropping of rows, one that is rejected may be the last that
        was tried.
        """

    def write_staged(
        self, changes: Sequence[Batch | StagedRows], identity: Identity, before: int, after: StoredMark
    ) -> list[RejectedRow]:
        """Write rows as `TableDatabase.write` does, some of them from staging tables, which are deleted."""

    def delete_staged(self, prefix: str) -> None:
        """Delete all staging tables whose names begin with a prefix; one that is being written may stay."""


class TableSettings(OutputSection):
    """Settings common to outputs that write a table."""

    table: Public
    key: tuple[Public, ...] = Field(
        default=(), description="columns that identify a row: a later result with the same values replaces it"
    )
    columns: dict[Public, ColumnType] = Field(
        default_factory=dict, description="the types of a table to create, where the query does not determine them"
    )

    @abstractmethod
    def database(self, *, drop: bool) -> TableDatabase:
        """Return the table in its database, to which there is no connection yet; ``drop`` as in `OutputOpening`."""


def another_run_writes(identity: Identity) -> OutputError:
    """Return the error that ends the slower of two runs."""
    return moved_by_another_run(identity, MarkPlace("the table", MARKS_TABLE, ""))
