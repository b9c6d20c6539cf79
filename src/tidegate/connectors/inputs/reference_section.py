"""What a kind of reference data declares: its settings, and where its tables come from."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from pydantic import Field

from tidegate.blobs import Blob
from tidegate.connectors.inputs.kinds import InputSection
from tidegate.engine import Format, Limits


class ReferenceTables(Protocol):
    """The tables of one input, each a file or as if it were one. Every method raises BlobError."""

    @property
    def described(self) -> str:
        """Where they come from, for messages."""

    @property
    def are_timed(self) -> bool:
        """Whether each table has a time of its own; otherwise there is one table, which changes."""

    def find(self) -> list[tuple[Blob, int | None]]:
        """Return the tables that there are now, each with its time in ticks if it has one."""

    def read_blob(self, blob: Blob) -> bytes:
        """Return the content of a table."""


class ReferenceSection(InputSection):
    """A section ``[inputs.NAME]`` of reference data."""

    refresh_s: float = Field(default=10, gt=0, description="how often to look for a new table")
    keep_s: float = Field(
        default=0,
        ge=0,
        description="how long the state folder keeps a table that another has replaced, in event time, so that "
        "`verify` and `explain` join earlier rows with it",
    )

    @property
    def is_fixed(self) -> bool:
        """Whether the table of the job's first start is the only one, whatever a restart would find."""
        return False

    @abstractmethod
    def open_tables(self) -> ReferenceTables:
        """Open the tables.

        Raises:
            BlobError: they cannot be reached.
        """

    @abstractmethod
    def file_format(self, name: str, limits: Limits) -> Format:
        """Return the format of a table's content."""
