"""Tables that executors write: an encoder that puts rows into a staging table, over a connection of its own.

Its bytes say where the rows are. The job's process moves them to the table and advances the mark in one transaction, so
a staging table that no answer names (of an attempt that died, or of one of two) has no effect. An executor that cannot
reach the database returns the rows.
"""

from __future__ import annotations

import hashlib
import pickle
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.output import SAMPLES, Identity, RejectedRow
from tidegate.connectors.outputs.tables.table_database import StagingDatabase, TableSettings
from tidegate.connectors.outputs.tables.table_rows import Batch, TableRows, by_name
from tidegate.engine import ResultRows

_PLACES_OF_A_RUN = 2**40  # more than a run has rows, so that places ascend from run to run


@dataclass(frozen=True, slots=True)
class StagedRun:
    """What an executor has made of a run of rows.

    Attributes:
        rows: how many there were, those that were rejected included.
        place: of the first row in the staging table.
        table: the staging table; None if no row is in it.
        rejected: samples of the rows that the table cannot hold, numbered from the first; ``dropped``: how many.
        returned: the rows, if the database could not be reached or did not accept them.
    """

    rows: int
    place: int = 0
    table: str | None = None
    rejected: Sequence[RejectedRow] = ()
    dropped: int = 0
    returned: ResultRows | None = None


@dataclass(frozen=True, slots=True)
class TableEncoder:
    """An `Encoder` for the rows of one table.

    Attributes:
        settings: of the output, with its connection string.
        columns: of the table, by the names it has for them, in the order of the query.
        prefix: with which the names of staging tables begin.
        opening: a name that no other opening of the output has; connections are kept for one.
        drop: leave out rows that the table cannot hold.
    """

    settings: TableSettings = field(repr=False)
    columns: tuple[str, ...]
    prefix: str
    opening: str
    drop: bool

    def __call__(self, rows: ResultRows) -> bytes:
        return self.encode_runs([(0, rows)])[0]

    def encode_runs(self, runs: Sequence[tuple[int, ResultRows]]) -> list[bytes]:
        """Put rows into a staging table, and return a pickled `StagedRun` for each run."""
        # A connection that has been kept may have been closed by the database.
        for _ in range(1 + (self.opening in _OPEN)):
            try:
                return [pickle.dumps(one, protocol=5) for one in self._staged(runs)]
            except OutputError:
                _forget(self.opening)
        # The job's process says what is wrong, or waits for the database.
        return [pickle.dumps(StagedRun(len(rows), returned=rows), protocol=5) for _, rows in runs]

    def _staged(self, runs: Sequence[tuple[int, ResultRows]]) -> list[StagedRun]:
        database, table_rows = self._connected()
        batches: list[Batch] = []
        rejected: list[RejectedRow] = []
        for number, rows in runs:
            converted, refused = table_rows.convert(rows, number * _PLACES_OF_A_RUN)
            batches += converted
            rejected += refused
        if any(batch.columns != self.columns for batch in batches):
            raise OutputError("the rows of an output have other columns than its query")
        table = None
        if batches and (self.drop or not rejected):
            table = f"{self.prefix}{uuid.uuid4().hex}"
            rejected += database.stage(table, batches)
        by_run: dict[int, list[RejectedRow]] = {number: [] for number, _ in runs}
        for row in sorted(rejected, key=lambda row: row.row):
            number, place = divmod(row.row, _PLACES_OF_A_RUN)
            by_run[number].append(replace(row, row=place))
        return [
            StagedRun(len(rows), number * _PLACES_OF_A_RUN, table, by_run[number][:SAMPLES], len(by_run[number]))
            for number, rows in runs
        ]

    def _connected(self) -> tuple[StagingDatabase, TableRows]:
        """Return the table over this process's connection."""
        known = _OPEN.get(self.opening)
        if known is not None:
            return known
        database = self.settings.database(drop=self.drop)
        assert isinstance(database, StagingDatabase)
        columns = by_name(database.columns(), self.settings.key)
        for opening, (other, other_rows) in list(_OPEN.items()):
            if len(_OPEN) >= _MOST_OPEN:
                del _OPEN[opening], other_rows
                other.close()
        _OPEN[self.opening] = database, TableRows(columns, self.settings.table)
        return _OPEN[self.opening]


_MOST_OPEN = 8
_OPEN: dict[str, tuple[StagingDatabase, TableRows]] = {}
"""Connections of this process, which lives as long as Spark's worker: by opening, the oldest first."""


def _forget(opening: str) -> None:
    """Close a connection that does not work, so that the next attempt makes another."""
    known = _OPEN.pop(opening, None)
    if known is not None:
        with suppress(OutputError):
            known[0].close()


def staging_prefix(identity: Identity) -> str:
    """Return what the names of an output's staging tables begin with; those of other jobs begin with something else."""
    owner = hashlib.sha256(f"{identity.journal}/{identity.output.lower()}".encode()).hexdigest()[:12]
    return f"tidegate_staged_{owner}_"
