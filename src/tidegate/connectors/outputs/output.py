"""The protocol of outputs: an output accepts rows, makes them durable, and remembers its position.

Theory. A job gives an output one sequence of rows, which is the same in every run however it is cut, so the number of a
row in it, from 0, is the same too. A *mark* says how many of them the output has. The journal keeps the marks of the
last committed step. An output that can be rolled back (a file) is truncated to its mark; one that cannot (a table, a
hub) reports how many rows it has, and skips rows below that number. Either way each row is in the output once, even if
a step was made durable in the output and not in the journal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tidegate.connectors.model.encoded_rows import Encoder
from tidegate.connectors.model.errors import OutputError, UnavailableError
from tidegate.connectors.outputs.values import json_text
from tidegate.engine import ResultRows
from tidegate.engine.values.vectors import Int64Array
from tidegate.ordering import format_time

Mark = dict[str, Any]
"""What the journal keeps for an output: ``type``, ``rows`` accepted, ``dropped`` among them, and what else it needs."""

REQUIRED_COLUMN_MISSING = "OutputDataConversionError.RequiredColumnMissing"
COLUMN_NAME_INVALID = "OutputDataConversionError.ColumnNameInvalid"
TYPE_CONVERSION_ERROR = "OutputDataConversionError.TypeConversionError"
RECORD_EXCEEDED_SIZE_LIMIT = "OutputDataConversionError.RecordExceededSizeLimit"
DUPLICATE_KEY = "OutputDataConversionError.DuplicateKey"

_EXAMPLE_CHARACTERS = 400
SAMPLES = 20
"""How many rejected rows an output keeps between two calls of ``drain_rejected_rows``."""


class OutputUnavailableError(OutputError, UnavailableError):
    """An output cannot be written at the moment; the same attempt may succeed later."""


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that an output rejected.

    Attributes:
        kind: one of the names above. message: which column is wrong, and why.
        row: its number among the job's rows for this output. time: its System.Timestamp in ticks.
        example: the beginning of the row as JSON.
    """

    kind: str
    message: str
    row: int
    time: int
    example: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose rows an output holds: the job's name, the output's, and the journal they belong to."""

    job: str
    output: str
    journal: str

    @property
    def digest(self) -> str:
        """What tells the output's rows from all others where a receiver has them: 16 hexadecimal digits."""
        return hashlib.sha256(f"{self.journal}/{self.output}".encode()).hexdigest()[:16]


class Output(Protocol):
    """One open output."""

    def write(self, rows: ResultRows) -> None:
        """Accept rows, in order.

        Raises:
            OutputError: a row is rejected, and such rows are not to be dropped.
        """

    def commit(self) -> Mark:
        """Make the accepted rows durable, and return the mark after them; it may be called again after a failure.

        Raises:
            OutputUnavailableError: it is impossible at the moment.
            OutputError: it is impossible.
        """

    def continue_after_held_rows(self) -> None:
        """Before the first write, advance to the end of the output's rows, whatever its mark says."""

    def drain_rejected_rows(self) -> list[RejectedRow]:
        """Return samples of the rows dropped since the last call."""

    def close(self) -> None:
        """Close files and connections; uncommitted rows are discarded."""


@runtime_checkable
class ChoosesEncoder(Protocol):
    """An output that decides step by step who encodes its rows."""

    def encoder(self) -> Encoder | None:
        """Return what encodes the rows of the next step; None if the output needs those rows themselves."""


@runtime_checkable
class KeepsPeriods(Protocol):
    """An output that keeps rows back until a later period has one."""

    def complete(self) -> None:
        """Keep no rows back in the commits that follow: no more will be written."""


def new_mark(kind: str) -> Mark:
    """Return the mark of an output that has no rows."""
    return {"type": kind, "rows": 0, "dropped": 0}


def rows_from(rows: ResultRows, first: int) -> ResultRows:
    """Return all but the first rows."""
    if not first:
        return rows
    return rows_at(rows, np.arange(first, len(rows)))


def rows_at(rows: ResultRows, places: Int64Array) -> ResultRows:
    """Return the rows at places."""
    columns = tuple(column.take(places) for column in rows.columns)
    return ResultRows(rows.output, rows.timestamps[places], rows.names, columns)


def example_of(row: Mapping[str, Any]) -> str:
    """Return the beginning of a row as JSON, for people."""
    return json_text(row)[:_EXAMPLE_CHARACTERS]


def rejection_error(row: RejectedRow, name: str) -> OutputError:
    """Return the error that ends a job whose output rejects a row, unless such rows are dropped."""
    return OutputError(
        f"output '{name}' cannot hold the result at {format_time(row.time)}: {row.message} "
        f"({row.kind}): {row.example}; correct the query or the output and start the job again, or set "
        'output_error_policy = "drop" to leave such results out'
    )


@dataclass(frozen=True, slots=True)
class StoredMark:
    """The mark at the destination; ``journal`` is the one it belongs to."""

    journal: str
    rows: int
    dropped: int


@dataclass(frozen=True, slots=True)
class MarkLocation:
    """How messages name a destination and the location of its marks.

    Attributes:
        destination: such as ``the table t``; it begins sentences too.
        marks: where the mark is. start_over: what to delete there to start over.
    """

    destination: str
    marks: str
    start_over: str


def check_marks(mark: Mark | None, stored: StoredMark | None, identity: Identity, location: MarkLocation) -> None:
    """Check that the mark of a destination fits the journal's.

    Args:
        mark: the journal's; None if the journal knows of no rows.
        stored: the destination's; None if there is none.

    Raises:
        OutputError: rows are there that no journal accounts for, or rows of the journal are missing.
    """
    name = f"output '{identity.output}' of job '{identity.job}'"
    where = location.destination
    if mark is None:
        if stored is not None and stored.rows:
            raise OutputError(
                f"{where} has {stored.rows:,} results of {name} that no journal of this job accounts for; restore the "
                f"journal, or {location.start_over} to start over"
            )
        return
    if stored is None or stored.journal != identity.journal:
        whose = "is gone" if stored is None else "belongs to another journal"
        raise OutputError(
            f"the mark of {name} in {location.marks} {whose}, so it is unknown which results {where} has; restore "
            "the destination, or move the journal and its results away to start over"
        )
    if stored.rows < mark["rows"]:
        raise OutputError(
            f"{where} has {stored.rows:,} results of {name}, but the journal committed {mark['rows']:,}; restore the "
            "destination, or move the journal and its results away to start over"
        )


def moved_by_another_run(identity: Identity, location: MarkLocation) -> OutputError:
    """Return the error that ends the slower of two runs."""
    return OutputError(
        f"the mark of output '{identity.output}' of job '{identity.job}' in {location.marks} was moved by another run "
        "of this job, on a copy of its state folder; only one may continue"
    )
