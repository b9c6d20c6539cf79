"""Results that were encoded where they were computed, for outputs that append bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from tidegate.engine import ResultRows

Encoder = Callable[[ResultRows], bytes]
"""Returns bytes for rows: what the output appends, or what only that output understands.

Where the output appends them, the bytes of two runs, one after the other, are the bytes of both.
"""


@runtime_checkable
class RunsEncoder(Protocol):
    """An `Encoder` that takes all that a writer has for an output at once, as for one table or connection."""

    def __call__(self, rows: ResultRows) -> bytes:
        """Return the bytes of one run."""

    def encode_runs(self, runs: Sequence[tuple[int, ResultRows]]) -> list[bytes]:
        """Return bytes for each run of rows; its number grows with the place of the run among all of a step."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Encoded rows: ``length`` bytes of a file from ``offset`` on, or the bytes themselves."""

    length: int
    path: Path | None = None
    offset: int = 0
    content: bytes = b""

    def read(self) -> bytes:
        """Return the bytes.

        Raises:
            OSError: they are in a file that cannot be read.
        """
        if self.path is None:
            return self.content
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.length)


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The encoded rows of one output, in order.

    Attributes:
        output: its name in the query.
        count: how many rows there are.
        latest: ticks; the largest System.Timestamp among them.
    """

    output: str
    count: int
    latest: int
    pieces: tuple[Piece, ...]

    def __len__(self) -> int:
        return self.count
