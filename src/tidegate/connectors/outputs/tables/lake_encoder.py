"""Tables in an open format that executors write: an encoder that turns rows into files which no commit names yet.

Its bytes say which files those are. The job's process adds them to the table and advances the mark in one commit, so a
file of an attempt that died, or of one of two attempts, is in no snapshot. Like the files of any writer that dies, it
stays in the table's folder until the table is vacuumed. Few rows travel with the answer, and so do those of an executor
that cannot write: the job's process writes them.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.output import RejectedRow
from tidegate.connectors.outputs.tables.lake_rows import LakeRows
from tidegate.engine import ResultRows

LEAST_BYTES = 1 << 20
"""Rows of fewer bytes, in memory, do not make a file: readers of a table suffer from many small ones."""


class FileWriter(Protocol):
    """Writes files of one table, in any process."""

    def write(self, rows: pa.Table) -> list[Any]:
        """Write rows to files, durably, and return what the table needs to know of each to add it.

        Raises:
            OutputError: they cannot be written.
        """


@dataclass(frozen=True, slots=True)
class WrittenRun:
    """What an executor has made of a run of rows.

    Attributes:
        rows: how many there were, those that were rejected included.
        rejected: samples of the rows that the table cannot hold, numbered from the first; ``dropped``: how many.
        files: of this run and of those after it from the same executor.
        table: the rows themselves, in place of files.
    """

    rows: int
    rejected: Sequence[RejectedRow] = ()
    dropped: int = 0
    files: Sequence[Any] = ()
    table: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class LakeEncoder:
    """An `Encoder` for the rows of one table.

    Attributes:
        least_bytes: rows of fewer bytes make no file.
    """

    rows: LakeRows
    writer: FileWriter
    least_bytes: int

    def __call__(self, rows: ResultRows) -> bytes:
        return self.encode_runs([(0, rows)])[0]

    def encode_runs(self, runs: Sequence[tuple[int, ResultRows]]) -> list[bytes]:
        """Write the rows of all runs, and return a pickled `WrittenRun` for each."""
        converted = [self.rows.convert(rows, 0) for _, rows in runs]
        written = [
            WrittenRun(len(rows), one.rejected, one.dropped) for (_, rows), one in zip(runs, converted, strict=True)
        ]
        table = one_table([one.table for one in converted if one.table is not None])
        if table is not None:
            files: Sequence[Any] = ()
            if table.nbytes >= self.least_bytes:
                try:
                    files = self.writer.write(table)
                except OutputError:
                    # The job's process says what is wrong, or waits until it can write.
                    files = ()
            written[0] = replace(written[0], files=files, table=None if files else table)
        return [pickle.dumps(one, protocol=5) for one in written]


def one_table(tables: Sequence[pa.Table]) -> pa.Table | None:
    """Return the rows of all tables in one, which has the columns of all; None without tables."""
    if not tables:
        return None
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")
