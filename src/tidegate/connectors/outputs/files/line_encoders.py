"""Encoders of the text that a single file consists of, and how the rows they reject reach the driver.

The bytes of an encoder are a *frame* and then the text. The driver reads the frame, and copies the text from file to
file without looking at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.connectors.model.encoded_rows import framed
from tidegate.connectors.outputs.files.csv_lines import CsvLines
from tidegate.connectors.outputs.output import SAMPLES, RejectedRow
from tidegate.engine import ResultRows


@dataclass(frozen=True, slots=True)
class Frame:
    """What an encoder says of rows beside their text.

    Attributes:
        rows: how many there were, those that were rejected included.
        rejected: samples of these, numbered from the first row of the frame; ``dropped``: how many of them there are.
    """

    rows: int
    rejected: Sequence[RejectedRow] = ()
    dropped: int = 0


def encode_lines(rows: ResultRows) -> bytes:
    """Encode rows as lines of JSON."""
    return framed(Frame(len(rows)), rows.to_json_lines())


def encode_items(rows: ResultRows) -> bytes:
    """Encode rows as the items of an array of JSON, without the brackets around and the comma before them."""
    return framed(Frame(len(rows)), array_items(rows))


def array_items(rows: ResultRows) -> bytes:
    """Return rows as the items of an array of JSON."""
    return rows.to_json_lines()[:-1].replace(b"\n", b",\n")


@dataclass(frozen=True, slots=True)
class CsvEncoder:
    """Encodes rows as lines of CSV below a known header."""

    delimiter: str
    columns: tuple[str, ...]

    def __call__(self, rows: ResultRows) -> bytes:
        """Return the frame and the lines of rows."""
        text, rejected = CsvLines(self.delimiter, self.columns).encode(rows)
        return framed(Frame(len(rows), rejected[:SAMPLES], len(rejected)), text)
