"""Outputs to tables: the rows of a step and their mark are one commit, so that each row is in the table once.

A run that finds the table ahead of its journal produces the same rows again up to the stored mark, and they are
skipped. The commit that advances the mark says where it starts from. So if two runs write at the same time, which a
copied state folder can cause, the second finds that the mark has moved and ends.

Executors can do most of the writing. A `RunEncoder` puts the rows of a run where the table can take them from (a
staging table, a file that no commit names yet) and returns an `EncodedRun`, which says where they are. Only the commit
in the job's process makes them part of the table, so what a dead or repeated attempt has left has no effect.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.connectors.model.encoded_rows import EncodedRows, Encoder
from tidegate.connectors.outputs.kinds import OutputOpening
from tidegate.connectors.outputs.output import (
    SAMPLES,
    Mark,
    MarkLocation,
    OutputUnavailableError,
    RejectedRow,
    StoredMark,
    check_marks,
    new_mark,
    rejection_error,
    rows_from,
)
from tidegate.engine import ResultRows


@dataclass(frozen=True, slots=True)
class Converted:
    """Rows as the table takes them.

    Attributes:
        changes: what is to be committed, in order; each kind of table has its own form.
        rejected: samples of the rows that the table cannot hold; ``dropped``: how many there are.
    """

    changes: Sequence[Any]
    rejected: Sequence[RejectedRow] = ()
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class EncodedRun:
    """What an executor has made of a run of rows.

    Attributes:
        rows: how many there were, those that were rejected included.
        changes: where they are, in the form of the kind of table.
        rejected: samples of the rows that the table cannot hold, numbered from the first; ``dropped``: how many.
        returned: the rows, if the executor could not reach the table or it did not accept them.
    """

    rows: int
    changes: Sequence[Any] = ()
    rejected: Sequence[RejectedRow] = ()
    dropped: int = 0
    returned: ResultRows | None = None


class RunEncoder(ABC):
    """An `Encoder` that puts rows where the table can take them from."""

    __slots__ = ()

    def __call__(self, rows: ResultRows) -> bytes:
        return self.encode_runs([(0, rows)])[0]

    def encode_runs(self, runs: Sequence[tuple[int, ResultRows]]) -> list[bytes]:
        """Write the rows of all runs, and return a pickled `EncodedRun` for each."""
        return [pickle.dumps(one, protocol=5) for one in self.encoded(runs)]

    @abstractmethod
    def encoded(self, runs: Sequence[tuple[int, ResultRows]]) -> list[EncodedRun]:
        """Write the rows of all runs."""


class TableOutput(ABC):
    """A table; its mark counts rows. A subclass fits the table to the query before it calls ``__init__``."""

    begins_marks = True
    """Whether the table has a mark as soon as it is opened, and not only with the first rows."""

    def __init__(self, kind: str, location: MarkLocation, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the table's mark does not fit the journal's.
        """
        self._identity = opening.identity
        self._location = location
        self._drop = opening.drop
        self._mark = new_mark(kind) if opening.mark is None else dict(opening.mark)
        self._rows: int = self._mark["rows"]
        self._stored = self._agreed(opening.mark)
        self._changes: list[Any] = []
        self._dropped = 0
        self._rejected_rows: list[RejectedRow] = []
        self._unsure = False

    def _agreed(self, mark: Mark | None) -> StoredMark | None:
        """Return the mark in the table, after checking that it matches the journal's."""
        stored = self.stored_mark()
        if stored is not None or self.begins_marks or (mark is not None and mark["rows"]):
            check_marks(mark, stored, self._identity, self._location)
        return self.begun() if mark is None and self.begins_marks else stored

    @property
    def _held(self) -> StoredMark:
        """How far the table is with the rows of this journal."""
        is_own = self._stored is not None and self._stored.journal == self._identity.journal
        return self._stored if self._stored and is_own else StoredMark(self._identity.journal, 0, 0)

    @property
    def lags(self) -> bool:
        """Whether rows come that the table has.

        Those are left out one by one, as a step may begin before the first new row and end after it.
        """
        return self._rows < self._held.rows

    # What a kind of table knows ---------------------------------------------------------------------------------------

    @abstractmethod
    def stored_mark(self) -> StoredMark | None:
        """Return the mark in the table."""

    def begun(self) -> StoredMark:
        """Set the mark in the table to no rows, and return it."""
        return StoredMark(self._identity.journal, 0, 0)

    @abstractmethod
    def converted(self, rows: ResultRows, number: int) -> Converted:
        """Convert rows, of which the first has a number."""

    @abstractmethod
    def accepted(self, runs: Sequence[tuple[int, EncodedRun]]) -> Sequence[Any]:
        """Return the changes of consecutive runs, each with the number of its first row."""

    def pause_executors(self) -> None:
        """Leave the writing to this process for a while: executors have returned rows."""
        return

    @abstractmethod
    def stored(self, changes: Sequence[Any], before: StoredMark | None, after: StoredMark) -> Sequence[RejectedRow]:
        """Commit changes and move the mark, and return the rows that only the table could reject.

        They count as dropped in the mark that is stored.

        Raises:
            OutputError: the mark is not ``before``: another run writes.
        """

    @abstractmethod
    def encoder(self) -> Encoder | None:
        """Return what writes rows on executors; None while they cannot, or the table `lags`."""

    @abstractmethod
    def close(self) -> None:
        """Close connections; uncommitted rows are discarded."""

    # `Output` ---------------------------------------------------------------------------------------------------------

    def write(self, rows: ResultRows) -> None:
        first = min(max(self._held.rows - self._rows, 0), len(rows))
        converted = self.converted(rows_from(rows, first), self._rows + first)
        self._reject(converted.rejected, converted.dropped)
        self._changes += converted.changes
        self._rows += len(rows)

    def _reject(self, rows: Sequence[RejectedRow], count: int) -> None:
        if rows and not self._drop:
            raise rejection_error(rows[0], self._identity.output)
        self._rejected_rows = [*self._rejected_rows, *rows][:SAMPLES]
        self._dropped += count

    def write_encoded(self, rows: EncodedRows) -> None:
        """Accept rows that executors have written, or returned because they could not.

        Raises:
            OutputUnavailableError: what they answered cannot be read at the moment.
            OutputError: a row is rejected, and such rows are not to be dropped.
        """
        try:
            runs: list[EncodedRun] = [pickle.loads(piece.read()) for piece in rows.pieces]
        except OSError as error:
            raise OutputUnavailableError(f"cannot read what executors have written: {error}") from error
        written: list[tuple[int, EncodedRun]] = []
        for run in runs:
            if run.returned is not None:
                # This process waits for the table, or says what is wrong with it.
                self.pause_executors()
                self._changes += self.accepted(written)
                written = []
                self.write(run.returned)
                continue
            self._reject([replace(row, row=self._rows + row.row) for row in run.rejected], run.dropped)
            written.append((self._rows, run))
            self._rows += run.rows
        self._changes += self.accepted(written)

    def commit(self) -> Mark:
        if self._rows > self._held.rows:
            after = StoredMark(self._identity.journal, self._rows, self._held.dropped + self._dropped)
            if not self._unsure or not self._was_stored(after):
                try:
                    rejected = self.stored(self._changes, self._stored, after)
                except OutputUnavailableError:
                    self._unsure = True
                    raise
                self._rejected_rows = [*self._rejected_rows, *rejected][:SAMPLES]
                self._stored = replace(after, dropped=after.dropped + len(rejected))
            self._unsure = False
            self._changes, self._dropped = [], 0
        self._mark["rows"] = self._rows
        if self._rows == self._held.rows:
            self._mark["dropped"] = self._held.dropped
        return dict(self._mark)

    def _was_stored(self, after: StoredMark) -> bool:
        """Return whether an attempt whose reply was lost took effect."""
        stored = self.stored_mark()
        if stored is None or (stored.journal, stored.rows) != (after.journal, after.rows):
            return False
        self._stored = stored
        return True

    def continue_after_held_rows(self) -> None:
        self._rows = self._held.rows

    def drain_rejected_rows(self) -> list[RejectedRow]:
        rejected, self._rejected_rows = self._rejected_rows, []
        return rejected
