"""Results that were encoded where they were computed, for outputs that append bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

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
class EncodedPiece:
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


_LENGTH_BYTES = 8


def framed(head: object, body: bytes) -> bytes:
    """Return bytes of which the driver reads the head alone."""
    own = pickle.dumps(head, protocol=5)
    return len(own).to_bytes(_LENGTH_BYTES, "big") + own + body


def opened_frame(piece: EncodedPiece) -> tuple[Any, EncodedPiece]:
    """Return the head of a piece that `framed` has made, and the piece of its body.

    Raises:
        OSError: the piece is in a file that cannot be read.
    """
    if piece.path is None:
        begin = _LENGTH_BYTES + int.from_bytes(piece.content[:_LENGTH_BYTES], "big")
        return pickle.loads(piece.content[_LENGTH_BYTES:begin]), EncodedPiece(
            piece.length - begin, content=piece.content[begin:]
        )
    with piece.path.open("rb") as file:
        file.seek(piece.offset)
        length = int.from_bytes(file.read(_LENGTH_BYTES), "big")
        head = pickle.loads(file.read(length))
    begin = _LENGTH_BYTES + length
    return head, replace(piece, length=piece.length - begin, offset=piece.offset + begin)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A way to work where pieces can be read.

    Attributes:
        places: how much of the work is done at a time.
        run: calls functions, which travel there, and returns what they return in their order. A function may be called
            several times, even at once. It raises `JobError` or `UnavailableError` if that is impossible.
    """

    places: int
    run: Callable[[Sequence[Callable[[], Any]]], list[Any]]


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The encoded rows of one output, in order.

    Attributes:
        output: its name in the query.
        count: how many rows there are.
        latest: ticks; the largest System.Timestamp among them.
        elsewhere: a way to work on executors as these rows are committed; None if there is none.
    """

    output: str
    count: int
    latest: int
    pieces: tuple[EncodedPiece, ...]
    elsewhere: Elsewhere | None = None

    def __len__(self) -> int:
        return self.count
