"""Marks that an output keeps beside its rows, and how one agrees with the mark in the job's journal.

An output that cannot be rolled back stores its rows and the number of them in one atomic commit. A run that finds the
stored mark ahead of the journal's produces the same rows again up to it, and they are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.output import Identity, Mark


@dataclass(frozen=True, slots=True)
class StoredMark:
    """The mark at the destination; ``journal`` is the one it belongs to."""

    journal: str
    rows: int
    dropped: int


@dataclass(frozen=True, slots=True)
class MarkPlace:
    """How messages name a destination and the place of its marks.

    Attributes:
        destination: such as ``the table t``; it begins sentences too.
        marks: where the mark is. start_over: what to delete there to start over.
    """

    destination: str
    marks: str
    start_over: str


def check_marks(mark: Mark | None, stored: StoredMark | None, identity: Identity, place: MarkPlace) -> None:
    """Check that the mark of a destination fits the journal's.

    Args:
        mark: the journal's; None if the journal knows of no rows.
        stored: the destination's; None if there is none.

    Raises:
        OutputError: rows are there that no journal accounts for, or rows of the journal are missing.
    """
    name = f"output '{identity.output}' of job '{identity.job}'"
    where = place.destination
    if mark is None:
        if stored is not None and stored.rows:
            raise OutputError(
                f"{where} has {stored.rows:,} results of {name} that no journal of this job accounts for; restore the "
                f"journal, or {place.start_over} to start over"
            )
        return
    if stored is None or stored.journal != identity.journal:
        whose = "is gone" if stored is None else "belongs to another journal"
        raise OutputError(
            f"the mark of {name} in {place.marks} {whose}, so it is unknown which results {where} has; restore "
            "the destination, or move the journal and its results away to start over"
        )
    if stored.rows < mark["rows"]:
        raise OutputError(
            f"{where} has {stored.rows:,} results of {name}, but the journal committed {mark['rows']:,}; restore the "
            "destination, or move the journal and its results away to start over"
        )


def moved_by_another_run(identity: Identity, place: MarkPlace) -> OutputError:
    """Return the error that ends the slower of two runs."""
    return OutputError(
        f"the mark of output '{identity.output}' of job '{identity.job}' in {place.marks} was moved by another run of "
        "this job, on a copy of its state folder; only one may continue"
    )
