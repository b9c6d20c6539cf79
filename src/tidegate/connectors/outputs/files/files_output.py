"""Files of results below a folder or in an object store: one for every so many rows, in folders by time or value.

Rows wait as durable chunks until a folder has enough of them for a file or the oldest has waited long enough. Files
appear whole, under names that sort in the order of their rows, and never change. `part_committer` has why each result
is in exactly one of them.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from tidegate.connectors.model.encoded_rows import EncodedRows, Encoder
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.kinds import StorageAccountSection
from tidegate.connectors.model.section import Public, SecretUrl
from tidegate.connectors.outputs.arrow_tables import Misfit
from tidegate.connectors.outputs.column_types import ColumnType
from tidegate.connectors.outputs.files.file_formats import FormatSettings, ResultFormat
from tidegate.connectors.outputs.files.file_location import FileLocation, open_location
from tidegate.connectors.outputs.files.parts import (
    OWN_FOLDER,
    CommittedFiles,
    FolderPart,
    NewPart,
    PartCommitter,
    PartEncoder,
    PartWriter,
    Rename,
    content_of,
    rejected_rows,
    written_parts,
)
from tidegate.connectors.outputs.files.path_template import PathTemplate, PathTemplateError
from tidegate.connectors.outputs.files.result_file import DELIMITERS
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening, OutputSection
from tidegate.connectors.outputs.output import (
    SAMPLES,
    Mark,
    Output,
    RejectedRow,
    check_marks,
    new_mark,
    rejection_error,
    rows_at,
    rows_from,
)
from tidegate.connectors.outputs.shape import Shape
from tidegate.engine import ResultRows
from tidegate.sql.plan.nodes import Type

_LABEL_DIGITS = 12
_logger = logging.getLogger(__name__)


@OUTPUTS.register
class FilesOutput(StorageAccountSection, OutputSection):
    """Files below a folder or in an object store, each result in exactly one of them."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("blob", "blobs", "blobstorage", "datalake", "adls", "s3", "gs", "folder", "parquet", "avro"),
        'write type = "files"',
    )

    type: Literal["files"]
    path: SecretUrl = Field(
        description="a folder, with `{date}`, `{time}`, `{datetime:yyyy/MM}`, `{partition}` or the name of a column in "
        "braces; relative to the job file, or `az://CONTAINER/…`, `abfss://…`, `s3://…`, `gs://…`"
    )
    date_format: Public = Field(default="YYYY/MM/DD", description="how `{date}` is written, such as YYYY-MM-DD")
    time_format: Public = Field(default="HH", description="how `{time}` is written, such as HH or HH/mm")
    format: Literal["json", "csv", "avro", "parquet"] = Field(default="json", description="how a result is written")
    json_format: Literal["line separated", "array"] = Field(
        default="line separated", description="a line for each result, or one array of them all"
    )
    csv_delimiter: Literal["comma", "semicolon", "tab", "pipe", "space"] = Field(
        default="comma", description="the delimiter between the fields of a line"
    )
    columns: dict[Public, ColumnType] = Field(
        default_factory=dict, description="the types of columns of Avro and Parquet that the query does not determine"
    )
    minimum_rows: int = Field(
        default=2_000, ge=1, description="how many results of a folder make a file before the maximum time is over"
    )
    maximum_time_s: float = Field(
        default=60, gt=0, le=7_200, description="how long a result waits at most until its file is written, in seconds"
    )
    write_mode: Literal["append", "once"] = Field(
        default="append",
        description="once: write the files of a period when all its results are there, which is when a later period "
        "has one or the input has ended; needs a time in the path",
    )

    @model_validator(mode="after")
    def _settings_fit(self) -> FilesOutput:
        for name, formats in _SETTINGS_OF_FORMATS.items():
            if name in self.model_fields_set and self.format not in formats:
                raise ValueError(f'{name} is not for format = "{self.format}"')
        template = self.template()
        if self.write_mode == "once" and not template.unit_ticks:
            raise ValueError('write_mode = "once" needs {date}, {time} or {datetime:…} in the path')
        return self

    def template(self) -> PathTemplate:
        """Return the parsed path."""
        try:
            return PathTemplate.parse(self.path, self.date_format, self.time_format)
        except PathTemplateError as error:
            raise ValueError(str(error)) from None

    def open_at(self, opening: OutputOpening) -> Output:
        template = self.template()
        return FilesOfResults(self, opening, open_location(template.root, self.storage_environment))

    def part_writer(self, opening: OutputOpening, location: FileLocation) -> PartWriter:
        """Return what writes parts for this output, in any process."""
        identity = opening.identity
        types = {name.lower(): Type(text) for name, text in self.columns.items()}
        for column in opening.shape or ():
            if column.type is not Type.ANY:
                types.setdefault(column.name.lower(), column.type)
        settings = FormatSettings(
            ResultFormat(self.format), self.json_format == "array", DELIMITERS[self.csv_delimiter], types
        )
        own_folder = f"{OWN_FOLDER}/{_file_name(identity.job)}.{_file_name(identity.output)}"
        minimum_rows = np.iinfo(np.int64).max if self.write_mode == "once" else self.minimum_rows
        return PartWriter(self.template(), settings, own_folder, int(minimum_rows), location)


_SETTINGS_OF_FORMATS = {"json_format": ("json",), "csv_delimiter": ("csv",), "columns": ("avro", "parquet")}


class FilesOfResults:
    """Files; the mark in the job's journal counts rows, and the output's own journal says where they are."""

    def __init__(
        self,
        definition: FilesOutput,
        opening: OutputOpening,
        location: FileLocation,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """
        Raises:
            OutputError: the location cannot be written, or what it holds does not fit the mark.
        """
        identity, mark = opening.identity, opening.mark
        self._definition = definition
        self._identity = identity
        self._drop = opening.drop
        self._now_s = now_s
        self._location = location
        _check_path(definition, opening.shape, identity.output)
        self._writer = definition.part_writer(opening, location)
        self._suffix = f"-{hashlib.sha256(str(identity).encode()).hexdigest()[:8]}{self._writer.format.opened().suffix}"
        self._committer = PartCommitter(location, self._writer.own_folder, identity)
        try:
            stored = self._committer.read()
            check_marks(mark, stored, identity, self._committer.mark_location)
            if mark is None:
                self._committer.commit(CommittedFiles(identity.journal))
            self._committer.recover()
        except BaseException:
            location.close()
            raise
        self._mark = new_mark("files") if mark is None else dict(mark)
        self._rows: int = self._mark["rows"]
        self._dropped = 0
        self._new: list[NewPart] = []
        self._contents: dict[str, bytes] = {}
        self._planned: CommittedFiles | None = None
        self._rejected_rows: list[RejectedRow] = []
        self._is_complete = False

    @property
    def _state(self) -> CommittedFiles:
        assert self._committer.state is not None
        return self._committer.state

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, rows: ResultRows) -> None:
        first = min(max(self._state.rows - self._rows, 0), len(rows))
        new = rows_from(rows, first)
        number = self._rows + first
        misfits = self._writer.misfits(new) if len(new) else []
        if misfits:
            new = self._without(new, number, misfits)
        if len(new):
            self._new += self._writer.new_parts(new, f"{number:0{_LABEL_DIGITS}d}")
        self._rows += len(rows)

    def _without(self, rows: ResultRows, number: int, misfits: Sequence[Misfit]) -> ResultRows:
        """Return the rows that have no misfit; the others are rejected."""
        rejected, places = rejected_rows(rows, misfits, number)
        self._reject(rejected, len(places))
        return rows_at(rows, np.setdiff1d(np.arange(len(rows)), places))

    def _reject(self, rows: Sequence[RejectedRow], count: int) -> None:
        if rows and not self._drop:
            raise rejection_error(rows[0], self._identity.output)
        self._rejected_rows += rows[: max(0, SAMPLES - len(self._rejected_rows))]
        self._dropped += count

    def encoder(self) -> Encoder | None:
        """Return what writes parts on executors; None while rows come that the output has.

        Such rows are left out one by one, as a step may begin before the first new row and end after it.
        """
        if self._rows < self._state.rows:
            return None
        return PartEncoder(self._writer, self._identity.output, self._committer.path)

    def write_encoded(self, rows: EncodedRows) -> None:
        """Accept parts that executors have written with the `encoder` of the output.

        Raises:
            OutputError: a row is rejected, and such rows are not to be dropped.
        """
        for written in written_parts(rows):
            placed = written.from_row(self._rows, _LABEL_DIGITS)
            self._reject(placed.rejected, placed.dropped)
            self.accept_parts(placed.parts, placed.rows)

    def accept_parts(self, parts: Sequence[FolderPart], rows: int, dropped: int = 0) -> None:
        """Accept parts that `PartWriter.write_parts` has made durable, in place of `write`.

        Args:
            rows: how many rows of the job they hold, those among them that were dropped included.
        """
        self._new += [NewPart(part, b"") for part in parts]
        self._rows += rows
        self._dropped += dropped

    # Files ------------------------------------------------------------------------------------------------------------

    def commit(self) -> Mark:
        state = self._state
        if self._planned is None and (self._rows > state.rows or self._due(state.pending)):
            self._planned = self._plan(everything=False)
        if self._planned is not None:
            self._carry_out(self._planned)
            self._committer.finish_moves()
        else:
            self._committer.finish_moves()
            self._location.settle()
        if self._rows >= self._state.rows:
            self._mark.update(rows=self._state.rows, dropped=self._state.dropped)
        else:
            self._mark["rows"] = self._rows
        return dict(self._mark)

    def _carry_out(self, planned: CommittedFiles) -> None:
        self._committer.commit(planned)
        kept = {part.name for part in planned.pending}
        self._contents = {name: content for name, content in self._contents.items() if name in kept}
        self._new, self._dropped, self._planned = [], 0, None

    def _plan(self, *, everything: bool) -> CommittedFiles:
        """Make the new rows durable, as files where they are due, and return the commit that follows.

        Args:
            everything: write files of all pending rows, and leave new ones alone.
        """
        state = self._state
        new = [] if everything else self._new
        durable = {one.part.name for one in new if not one.content}
        contents = {one.part.name: one.content for one in new if one.content}
        parts = (*state.pending, *(one.part for one in new))
        due = {part.folder for part in parts} if everything else self._due(parts)
        pending: list[FolderPart] = []
        files: list[NewPart] = []
        moves: list[Rename] = []
        for folder in dict.fromkeys(part.folder for part in parts):
            waiting: list[FolderPart] = []
            for part in [one for one in parts if one.folder == folder]:
                if not part.whole:
                    waiting.append(part)
                    continue
                # Rows before this file do not wait for rows after it: files sort in the order of their rows.
                files += (before := self._files_of(waiting, contents))
                moves += [*(self._move(file.part) for file in before), self._move(part)]
                waiting = []
            if folder in due:
                files += (rest := self._files_of(waiting, contents))
                moves += [self._move(file.part) for file in rest]
            else:
                pending += waiting
        chunks = [NewPart(part, contents[part.name]) for part in pending if part.name in contents]
        whole = [one for one in new if one.part.whole and one.part.name not in durable]
        self._writer.store([*files, *chunks, *whole])
        self._contents |= {one.part.name: one.content for one in chunks}
        rows = state.rows if everything else max(state.rows, self._rows)
        dropped = state.dropped + (0 if everything else self._dropped)
        return CommittedFiles(self._identity.journal, rows, dropped, tuple(pending), tuple(moves))

    def _due(self, parts: Iterable[FolderPart]) -> set[str]:
        """Return the folders whose chunks are to become files now."""
        rows: dict[str, int] = {}
        since: dict[str, float] = {}
        periods: dict[str, int] = {}
        for part in parts:
            periods[part.folder] = part.period
            if not part.whole:
                rows[part.folder] = rows.get(part.folder, 0) + part.rows
                since[part.folder] = min(part.since, since.get(part.folder, part.since))
        if self._definition.write_mode == "once":
            latest = max(periods.values(), default=0)
            return {folder for folder in rows if self._is_complete or periods[folder] < latest}
        oldest = self._now_s() - self._definition.maximum_time_s
        return {
            folder
            for folder, count in rows.items()
            if count >= self._definition.minimum_rows or since[folder] <= oldest
        }

    def _files_of(self, chunks: Sequence[FolderPart], contents: Mapping[str, bytes]) -> list[NewPart]:
        """Return files of chunks of one folder; more than one where their columns differ."""
        format_ = self._writer.format.opened()
        groups: list[tuple[list[FolderPart], list[bytes]]] = []
        for part in chunks:
            content = contents.get(part.name) or self._contents.get(part.name) or content_of(self._location, part)
            if not groups or not format_.joins(groups[-1][1], content):
                groups.append(([], []))
            groups[-1][0].append(part)
            groups[-1][1].append(content)
        files = []
        for parts, bodies in groups:
            file = format_.file(bodies)
            first = parts[0]
            described = self._writer.described(
                first.folder, first.period, first.label, sum(part.rows for part in parts), file
            )
            files.append(NewPart(replace(described, whole=True), file))
        return files

    def _move(self, part: FolderPart) -> Rename:
        folder = f"{part.folder.strip('/')}/" if part.folder.strip("/") else ""
        return Rename(part.name, f"{folder}{part.label}{self._suffix}")

    # The rest of `Output` ---------------------------------------------------------------------------------------------

    def complete(self) -> None:
        self._is_complete = True

    def continue_after_held_rows(self) -> None:
        self._rows = self._state.rows

    def drain_rejected_rows(self) -> list[RejectedRow]:
        rejected, self._rejected_rows = self._rejected_rows, []
        return rejected

    def close(self) -> None:
        """Rows that are committed and wait for more become files now."""
        try:
            if self._planned is None and self._definition.write_mode == "append" and self._state.pending:
                self._committer.commit(self._plan(everything=True))
            self._location.settle()
        except OutputError as error:
            _logger.warning(
                "output '%s': %s; results without a file are durable, and the next run makes files of them",
                self._identity.output,
                error,
            )
        finally:
            self._location.close()


def _check_path(definition: FilesOutput, shape: Shape | None, name: str) -> None:
    """Raise an error if the path names a column that the query does not have."""
    if shape is None:
        return
    known = {column.name.lower() for column in shape}
    missing = [column for column in definition.template().columns if column.lower() not in known]
    if missing:
        raise OutputError(
            f"output '{name}': its path names the column {missing[0]}, which the query does not have; it has "
            f"{', '.join(column.name for column in shape)}"
        )


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", text)
