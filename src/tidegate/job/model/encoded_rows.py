"""Results that were encoded where they were computed, for outputs that append bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidegate.engine import ResultRows

Encoder = Callable[[ResultRows], bytes]
"""Returns bytes for rows: what the output appends, or what only that output understands.

Where the output appends them, the bytes of two runs, one after the other, are the bytes of both.
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """Encoded rows: ``length`` bytes of a file from ``offset`` on, or the bytes themselves."""

    length: int
    path: Path | None = None
    offset: int = 0
    content: bytes = b""


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
