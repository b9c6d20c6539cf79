"""Files that executors write: an encoder whose bytes say which parts of the rows it has made durable.

The parts are where the output keeps those that nobody has committed yet. The bytes go to the driver, which gives the
parts their places in the order of the rows and commits them, as it does with its own.
"""

from __future__ import annotations

import pickle
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidegate.connectors.model.encoded_rows import EncodedRows
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.arrow_tables import Misfit
from tidegate.connectors.outputs.files.parts import Part, PartWriter
from tidegate.connectors.outputs.output import SAMPLES, TYPE_CONVERSION_ERROR, RejectedRow, example_of, rows_at
from tidegate.engine import ResultRows
from tidegate.engine.values.json_lines import dicts

_UNORDERED = "step"
_SEEN: set[str] = set()


@dataclass(frozen=True, slots=True)
class WrittenParts:
    """What an executor has made of rows.

    Attributes:
        rows: how many rows there were, those that were dropped included.
        rejected: samples of rows that the format cannot hold, numbered from the first row here.
        dropped: how many of those there are.
    """

    parts: list[Part]
    rows: int
    rejected: list[RejectedRow]
    dropped: int

    def from_row(self, number: int, digits: int) -> WrittenParts:
        """Return the same of rows whose first one has a number among all rows of the output."""
        label = f"{number:0{digits}d}"
        parts = [replace(part, label=f"{label}-{place:04d}") for place, part in enumerate(self.parts)]
        rejected = [replace(row, row=number + row.row) for row in self.rejected]
        return replace(self, parts=parts, rejected=rejected)


@dataclass(frozen=True, slots=True)
class PartEncoder:
    """An `Encoder` that writes rows as parts.

    Attributes:
        output: the output's name, for messages.
        journal: a file that the driver has written in the same place.
    """

    writer: PartWriter
    output: str
    journal: str

    def __call__(self, rows: ResultRows) -> bytes:
        """Write rows, and return the pickled `WrittenParts`.

        Raises:
            OutputError: the place cannot be written, or is not the driver's.
        """
        self._check_place()
        rejected, places = rejected_rows(rows, self.writer.misfits(rows))
        kept = rows_at(rows, np.setdiff1d(np.arange(len(rows)), places)) if places else rows
        parts = self.writer.write_parts(kept, _UNORDERED) if len(kept) else []
        return pickle.dumps(WrittenParts(parts, len(rows), rejected, len(places)), protocol=5)

    def _check_place(self) -> None:
        seen = f"{self.writer.place}/{self.journal}"
        if seen in _SEEN:
            return
        if self.writer.place.read(self.journal) is None:
            raise OutputError(
                f"output '{self.output}': {self.writer.place} is not shared: an executor on {platform.node()} does not "
                "find there what the driver has written; use a path on a file system that all machines share, or an "
                "object store"
            )
        _SEEN.add(seen)


def rejected_rows(rows: ResultRows, misfits: Sequence[Misfit], first: int = 0) -> tuple[list[RejectedRow], list[int]]:
    """Return samples of the rows that a format cannot hold, and the places of all of them.

    Args:
        first: the number of the first row among all of the output.
    """
    messages = {misfit.place: misfit.message for misfit in reversed(misfits)}
    places = sorted(messages)
    samples = []
    for place in places[:SAMPLES]:
        (record,) = dicts(rows.names, rows_at(rows, np.array([place])).columns, 1, plainly=False)
        time = int(rows.timestamps[place])
        samples.append(RejectedRow(TYPE_CONVERSION_ERROR, messages[place], first + place, time, example_of(record)))
    return samples, places


def written_parts(rows: EncodedRows) -> list[WrittenParts]:
    """Return what executors have made of rows, in order."""
    return [pickle.loads(piece.read()) for piece in rows.pieces]
