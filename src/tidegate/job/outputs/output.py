"""What an output is: it takes rows, makes them durable, and knows again where it was.

Theory. What a job gives to an output is one sequence of rows, the same in every run however it is cut, so that the
number of a row in it, from 0, is the same too. A *mark* says how many of them the output has taken. The journal keeps
the marks of the last committed step; an output that can go back (a file) is cut off at its mark, and one that cannot
(a table, a hub) says how many rows it holds, and takes no row below that number again. Either way a step that was
made durable in an output and not in the journal leaves each row there once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tidegate.engine import ResultRows
from tidegate.job.model.errors import OutputError, UnavailableError
from tidegate.job.outputs.values import json_text
from tidegate.ordering import format_time

Mark = dict[str, Any]
"""What the journal keeps of an output: ``type``, ``rows`` taken, ``dropped`` among them, and what else it needs."""

REQUIRED_COLUMN_MISSING = "OutputDataConversionError.RequiredColumnMissing"
COLUMN_NAME_INVALID = "OutputDataConversionError.ColumnNameInvalid"
TYPE_CONVERSION_ERROR = "OutputDataConversionError.TypeConversionError"
RECORD_EXCEEDED_SIZE_LIMIT = "OutputDataConversionError.RecordExceededSizeLimit"
DUPLICATE_KEY = "OutputDataConversionError.DuplicateKey"

_EXAMPLE_CHARACTERS = 400


class OutputUnavailableError(OutputError, UnavailableError):
    """An output cannot be written at the moment; the same attempt may succeed later."""


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that an output cannot hold.

    Attributes:
        kind: one of the names above. message: what is wrong with which column.
        row: its number among the job's rows for this output. time: its System.Timestamp in ticks.
        example: the row as JSON, its beginning.
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


class Output(Protocol):
    """One open output."""

    def write(self, rows: ResultRows) -> None:
        """Take rows, in order.

        Raises:
            OutputError: a row cannot be held, and such rows are not to be dropped.
        """

    def commit(self) -> Mark:
        """Make durable what was taken, and say how far it goes; again after a failure.

        Raises:
            OutputUnavailableError: not now.
            OutputError: not at all.
        """

    def continue_after_held_rows(self) -> None:
        """Before the first write: the rows to come follow on all that the output holds, whatever its mark says."""

    def drain_rejected_rows(self) -> list[RejectedRow]:
        """Samples of the rows that were dropped since this was last asked."""

    def close(self) -> None:
        """Give back files and connections; what was not committed is gone."""


def new_mark(kind: str) -> Mark:
    """The mark of an output that has taken nothing."""
    return {"type": kind, "rows": 0, "dropped": 0}


def rows_from(rows: ResultRows, first: int) -> ResultRows:
    """All but the first rows."""
    if not first:
        return rows
    places = np.arange(first, len(rows))
    return ResultRows(rows.output, rows.timestamps[first:], rows.names, tuple(one.take(places) for one in rows.columns))


def example_of(row: Mapping[str, Any]) -> str:
    """The beginning of a row as JSON, for people."""
    return json_text(row)[:_EXAMPLE_CHARACTERS]


def rejection_error(row: RejectedRow, name: str) -> OutputError:
    """The end of a job that does not drop what its output cannot hold."""
    return OutputError(
        f"output '{name}' cannot hold the result at {format_time(row.time)}: {row.message} "
        f"({row.kind}): {row.example}; correct the query or the output and start the job again, or set "
        'output_error_policy = "drop" to leave such results out'
    )
