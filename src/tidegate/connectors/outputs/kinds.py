"""What a kind of output declares: its section of the job file, and how to open it at a mark."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.connectors.model.encoded_rows import Encoder
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.kinds import Kinds, KindSection
from tidegate.connectors.outputs.output import Identity, Mark, Output
from tidegate.connectors.outputs.shape import Shape


@dataclass(frozen=True, slots=True)
class OutputOpening:
    """The arguments for opening an output beside its section.

    Attributes:
        identity: whose rows the output holds.
        mark: how far the output is according to the journal; None for an output that has no rows yet.
        shape: the columns of the query for it, if they are known.
        drop: drop rows that the output rejects; otherwise they end the job.
        folder: the job's state folder, for what a user should see; None if there is none.
    """

    identity: Identity
    mark: Mark | None = None
    shape: Shape | None = None
    drop: bool = False
    folder: Path | None = None


class OutputSection(KindSection):
    """A section ``[outputs.NAME]``."""

    @abstractmethod
    def open_at(self, opening: OutputOpening) -> Output:
        """Open the output at its mark, or empty.

        Raises:
            OutputError: it cannot be written, or what it holds does not fit the mark.
        """

    def own_file(self) -> Path | None:
        """Return the file that no other output may write; None if it writes no such file."""
        return None

    def encoder(self) -> Encoder | None:
        """Return what turns rows into the bytes that the output appends; None if it needs the rows themselves.

        Executors then encode the rows, and the output's ``write_encoded`` appends them.
        """
        return None


OUTPUTS: Kinds[OutputSection] = Kinds("an output", __package__, "tidegate.outputs")
"""Every kind of output."""


def shared_files(sections: Mapping[str, OutputSection]) -> dict[str, str]:
    """Return what is wrong with outputs that name the file of an output before them, by their names."""
    owners: dict[Path, str] = {}
    wrong = {}
    for name, section in sections.items():
        path = section.own_file()
        if path is not None and (owner := owners.setdefault(path.resolve(), name)) != name:
            wrong[name] = f"the output {owner} writes {path} too; name another file"
    return wrong


def open_output(section: OutputSection, opening: OutputOpening) -> Output:
    """Open an output at the mark that the journal has for it.

    Raises:
        OutputError: it cannot be written, what it holds does not fit the mark, or its type has changed.
    """
    mark = opening.mark
    if mark is None or mark["type"] == section.type:
        return section.open_at(opening)
    if mark["rows"] and mark["type"] != "console":
        raise OutputError(
            f"output '{opening.identity.output}' was of type {mark['type']} and has {mark['rows']:,} results; a "
            "job keeps its outputs: change the type back, or move the journal away to start over"
        )
    return section.open_at(replace(opening, mark=None))
