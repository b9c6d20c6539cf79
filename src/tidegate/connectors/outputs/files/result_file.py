"""Files of results: JSON lines, one JSON array, or CSV. The mark is a length; anything beyond it is cut off."""

from __future__ import annotations

import errno
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from tidegate.connectors.model.encoded_rows import EncodedPiece, EncodedRows, Encoder, framed, opened_frame
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.outputs.files.file_formats import CsvLines
from tidegate.connectors.outputs.files.file_location import FINAL_ERRORS
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening, OutputSection
from tidegate.connectors.outputs.output import (
    SAMPLES,
    Mark,
    Output,
    OutputUnavailableError,
    RejectedRow,
    new_mark,
    rejection_error,
    rows_at,
)
from tidegate.connectors.outputs.shape import Shape
from tidegate.durable_files import try_lock
from tidegate.engine import ResultRows
from tidegate.engine.values.json_lines import dicts


@dataclass(frozen=True, slots=True)
class ResultFrame:
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
    return framed(ResultFrame(len(rows)), rows.to_json_lines())


def encode_items(rows: ResultRows) -> bytes:
    """Encode rows as the items of an array of JSON, without the brackets around and the comma before them."""
    return framed(ResultFrame(len(rows)), array_items(rows))


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
        return framed(ResultFrame(len(rows), rejected[:SAMPLES], len(rejected)), text)


_ARRAY_END = b"\n]\n"
_COPY_BYTES = 2**22


DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}


@OUTPUTS.register
class FileOutput(OutputSection):
    """A file of JSON or CSV, each result once, in time order."""

    other_words: ClassVar[Mapping[str, str]] = {
        **{name: f'to write {name}: type = "file", format = "{name}"' for name in ("json", "csv")},
        **dict.fromkeys(("jsonl", "jsonlines"), 'write type = "file"'),
    }

    type: Literal["file"]
    path: Path = Field(description="the file; relative to the job file")
    format: Literal["json", "csv"] = Field(default="json", description="how a result is written")
    json_format: Literal["line separated", "array"] = Field(
        default="line separated", description="a line for each result, or one array of them all"
    )
    csv_delimiter: Literal["comma", "semicolon", "tab", "pipe", "space"] = Field(
        default="comma", description="the delimiter between the fields of a line"
    )

    @model_validator(mode="after")
    def _settings_of_its_format(self) -> FileOutput:
        other = "json_format" if self.format == "csv" else "csv_delimiter"
        if other in self.model_fields_set:
            raise ValueError(f'{other} is not for format = "{self.format}"')
        return self

    @property
    def delimiter(self) -> str:
        """The delimiter between the fields of a line of CSV."""
        return DELIMITERS[self.csv_delimiter]

    def own_file(self) -> Path:
        return self.path

    def open_at(self, opening: OutputOpening) -> Output:
        return ResultFile(self, opening)


class RowFormat(ABC):
    """How rows become bytes. ``end`` closes the file at rest, and is overwritten by later rows."""

    end = b""

    @abstractmethod
    def encode(self, rows: ResultRows, number: int) -> tuple[bytes, list[RejectedRow]]:
        """Return the bytes of rows, the first being the ``number``-th of the file, and the rows that it rejects."""

    @abstractmethod
    def encoder(self) -> Encoder | None:
        """Return what encodes rows on executors, in frames; None if that has to wait for rows that the driver has."""

    def before_text(self, number: int) -> bytes:
        """Return what comes before text of executors whose first row is the ``number``-th of the file."""
        return b""


class JsonLines(RowFormat):
    """A line of JSON for each row."""

    def encode(self, rows: ResultRows, number: int) -> tuple[bytes, list[RejectedRow]]:
        return rows.to_json_lines(), []

    def encoder(self) -> Encoder | None:
        return encode_lines


class JsonArray(RowFormat):
    """All rows in one array."""

    end = _ARRAY_END

    def encode(self, rows: ResultRows, number: int) -> tuple[bytes, list[RejectedRow]]:
        return self.before_text(number) + array_items(rows), []

    def encoder(self) -> Encoder | None:
        return encode_items

    def before_text(self, number: int) -> bytes:
        return b",\n" if number else b"[\n"


class Csv(RowFormat):
    """Lines below a header, which has the columns that the query determines.

    The columns of a SELECT * may be known from nothing but events; the header then has those of the first row.
    """

    def __init__(self, delimiter: str, columns: Sequence[str] | None, shape: Shape | None) -> None:
        """Open the format at the columns of a header that the file has, or for a query's columns."""
        self._delimiter = delimiter
        self.columns = None if columns is None else list(columns)
        self._of_query = None if shape is None else _as_rows_have_them(shape)

    def encode(self, rows: ResultRows, number: int) -> tuple[bytes, list[RejectedRow]]:
        header = b""
        if self.columns is None and len(rows):
            (first,) = dicts(rows.names, rows_at(rows, np.array([0])).columns, 1)
            header = self._with_header(list(first))
        text, rejected = CsvLines(self._delimiter, self.columns or ()).encode(rows)
        return header + text, rejected

    def encoder(self) -> Encoder | None:
        columns = self.columns or self._of_query
        return CsvEncoder(self._delimiter, tuple(columns)) if columns else None

    def before_text(self, number: int) -> bytes:
        if self.columns is not None:
            return b""
        assert self._of_query is not None
        return self._with_header(self._of_query)

    def _with_header(self, columns: list[str]) -> bytes:
        self.columns = columns
        return CsvLines(self._delimiter, columns).header()


def _as_rows_have_them(shape: Shape) -> list[str]:
    """Return the names of columns; of those that differ only in case a row has the first."""
    found: dict[str, str] = {}
    for column in shape:
        found.setdefault(column.name.lower(), column.name)
    return list(found.values())


class ResultFile:
    """A file; its mark has its length in ``bytes``, without the end that a later row overwrites."""

    def __init__(self, definition: FileOutput, opening: OutputOpening) -> None:
        """Open the file at its mark, or a new file if there is none.

        Raises:
            OutputError: the file cannot be written, is shorter than the mark, or holds rows of another run.
        """
        self._path: Path = definition.path
        mark = opening.mark
        self._name = opening.identity.output
        self._drop = opening.drop
        self._mark = {**new_mark("file"), "bytes": 0} if mark is None else dict(mark)
        if definition.format == "csv":
            self._format: RowFormat = Csv(definition.delimiter, self._mark.get("columns"), opening.shape)
        else:
            self._format = JsonArray() if definition.json_format == "array" else JsonLines()
        self._waiting: list[bytes | EncodedPiece] = []
        self._taken = self._dropped = 0
        self._rejected_rows: list[RejectedRow] = []
        self._file: BinaryIO = self._opened(mark)

    def _opened(self, mark: Mark | None) -> BinaryIO:
        path, committed = self._path, self._mark["bytes"]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            length = path.stat().st_size if path.exists() else 0
            if mark is None and length:
                raise OutputError(
                    f"{path} holds {length:,} bytes that no journal of this job accounts for; move it away, "
                    "or name another file"
                )
            if length < committed:
                raise OutputError(
                    f"{path} has {length:,} bytes, but the journal committed {committed:,}; restore the file, "
                    "or move the journal away to start over"
                )
            file: BinaryIO = path.open("r+b" if path.exists() else "w+b", buffering=0)
            if not _is_exclusive(file):
                file.close()
                raise OutputError(
                    f"output '{self._name}': {path} is being written by another output or job; name another file"
                )
            file.truncate(committed)
            if self._mark["rows"] > self._mark["dropped"]:
                os.pwrite(file.fileno(), self._format.end, committed)
        except OSError as error:
            message = f"cannot write the output {path}: {error.strerror}"
            raise (OutputError if error.errno in FINAL_ERRORS else OutputUnavailableError)(message) from error
        return file

    def write(self, rows: ResultRows) -> None:
        data, rejected = self._format.encode(rows, self._kept)
        self._accept(ResultFrame(len(rows), rejected[:SAMPLES], len(rejected)))
        self._waiting.append(data)

    def encoder(self) -> Encoder | None:
        return self._format.encoder()

    def write_encoded(self, rows: EncodedRows) -> None:
        """Accept rows that executors have encoded with the `encoder` of the output.

        Raises:
            OutputUnavailableError: what they have written cannot be read at the moment.
            OutputError: a row is rejected, and such rows are not to be dropped.
        """
        try:
            found = [opened_frame(piece) for piece in rows.pieces]
        except OSError as error:
            raise OutputUnavailableError(f"cannot read what executors have written: {error}") from error
        for frame, text in found:
            kept = self._kept
            self._accept(frame)
            if text.length:
                self._waiting.append(self._format.before_text(kept))
                self._waiting.append(text.content if text.path is None else text)

    @property
    def _kept(self) -> int:
        """How many rows the file has and will have with those that wait."""
        rows: int = self._mark["rows"] + self._taken - self._mark["dropped"] - self._dropped
        return rows

    def _accept(self, frame: ResultFrame) -> None:
        """Count rows."""
        first = self._mark["rows"] + self._taken
        for row in frame.rejected:
            numbered = replace(row, row=first + row.row)
            if not self._drop:
                raise rejection_error(numbered, self._name)
            self._rejected_rows = [*self._rejected_rows, numbered][:SAMPLES]
        self._taken += frame.rows
        self._dropped += frame.dropped

    def commit(self) -> Mark:
        if not self._taken:
            return dict(self._mark)
        at = end = self._mark["bytes"]
        try:
            # Cut off what an earlier attempt may have left, so that the file is never longer than its rows.
            self._file.truncate(at)
            for part in _joined(self._waiting):
                end += _write_part(self._file.fileno(), part, end)
            if end > at and self._format.end:
                _write_all(self._file.fileno(), self._format.end, end)
            os.fdatasync(self._file.fileno())
        except OSError as error:
            raise OutputUnavailableError(f"cannot write {self._path}: {error.strerror}") from error
        self._mark["rows"] += self._taken
        self._mark["dropped"] += self._dropped
        self._mark["bytes"] = end
        if isinstance(self._format, Csv) and self._format.columns is not None:
            self._mark["columns"] = self._format.columns
        self._waiting, self._taken, self._dropped = [], 0, 0
        return dict(self._mark)

    def continue_after_held_rows(self) -> None:
        """There are no rows beyond the mark."""

    def drain_rejected_rows(self) -> list[RejectedRow]:
        rejected, self._rejected_rows = self._rejected_rows, []
        return rejected

    def close(self) -> None:
        self._file.close()


def _is_exclusive(file: BinaryIO) -> bool:
    """Return whether nothing else writes to a file; a file system without locks cannot tell."""
    try:
        return try_lock(file.fileno())
    except OSError:
        return True


def _joined(parts: Sequence[bytes | EncodedPiece]) -> Iterator[bytes | EncodedPiece]:
    """Yield the parts, those that are bytes joined with their neighbours."""
    for in_file, group in itertools.groupby(parts, lambda part: isinstance(part, EncodedPiece)):
        if in_file:
            yield from group
        else:
            yield b"".join(part for part in group if isinstance(part, bytes))


def _write_part(descriptor: int, part: bytes | EncodedPiece, at: int) -> int:
    """Write a part, and return its length."""
    if isinstance(part, bytes):
        _write_all(descriptor, part, at)
        return len(part)
    assert part.path is not None
    copied = 0
    with part.path.open("rb") as source:
        while copied < part.length:
            source.seek(part.offset + copied)
            content = source.read(min(part.length - copied, _COPY_BYTES))
            if not content:
                raise OSError(errno.EIO, f"{part.path} ends too early")
            _write_all(descriptor, content, at + copied)
            copied += len(content)
    return part.length


def _write_all(descriptor: int, data: bytes, at: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, at)
        left, at = left[written:], at + written
