"""Formats whose rows are those of a table: CSV, Parquet, Protocol Buffers, and what a user's own code reads."""

from __future__ import annotations

import csv
import io
import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from tidegate.engine.decoding.content import content_of
from tidegate.engine.decoding.decoded import NONE, Decoded, Path, Problem, Wanted, count_values, finished
from tidegate.engine.decoding.formats import FORMATS, BodyDecoder, Deserializer, Format, FormatKind, Unreadable
from tidegate.engine.decoding.limits import BATCH_BYTES, BatchBudget, ContentLimits
from tidegate.engine.decoding.tables import Table, TableBodies, records_vector
from tidegate.engine.values.vectors import BoolArray, Int64Array, Kind, Vector

Part = tuple[Table, Int64Array, Int64Array]
"""A table, and the event and index of each of its rows."""


class TableDecoder:
    """Decodes bodies each of which is a table, or is a row of one."""

    def __init__(self, wanted: Wanted, format_: Format, kind: TableKind) -> None:
        self._wanted = wanted
        self._format = format_
        self._kind = kind
        paths = [*wanted.paths, *((name,) for name, _ in wanted.declared or ())]
        self._paths = list({tuple(map(str.lower, path)): path for path in reversed(paths)}.values())[::-1]

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Return the rows of m bodies, and which bodies were rejected."""
        if isinstance(bodies, TableBodies):
            table = bodies.rows()
            try:
                return self._decoded([(table, table.numbers, np.zeros(len(table), dtype=np.int64))], problems_of(table))
            except Unreadable as error:
                # Damage to a column shows only when it is read; then no row of the file can be used.
                return self._decoded([], [(event, error.problem) for event in range(len(bodies))])
        parts: list[Part] = []
        rejected: list[tuple[int, Problem]] = []
        self._take(bodies, 0, parts, rejected, BatchBudget())
        return self._decoded(parts, rejected)

    def _take(
        self,
        bodies: Sequence[bytes],
        first: int,
        parts: list[Part],
        rejected: list[tuple[int, Problem]],
        budget: BatchBudget,
    ) -> None:
        """Add the rows of bodies, whose events are numbered from ``first``.

        CSV bodies are read together. If one of them prevents that, it is found by bisection.
        """
        if self._kind.joins_bodies and len(bodies) > 1:
            joined = self._kind.joined(bodies, self._format)
            if joined is not None:
                table, events, indices = joined
                budget.add(first, size=table.content_bytes, rows=len(table))
                parts.append((table, events + first, indices))
                return
            half = len(bodies) // 2
            self._take(bodies[:half], first, parts, rejected, budget)
            self._take(bodies[half:], first + half, parts, rejected, budget)
            return
        limits = self._format.limits
        for event, body in enumerate(bodies, start=first):
            try:
                content = content_of(body, self._format)
                budget.add(event, size=len(content))
                table = self._kind.table(content, self._format, limits.of_event())
                self._touch(table)
                budget.add(event, rows=table.total)
            except Unreadable as error:
                rejected.append((event, error.problem))
                continue
            except MemoryError:
                rejected.append((event, Problem.LIMIT_EXCEEDED))
                continue
            parts.append((table, np.full(len(table), event, dtype=np.int64), table.numbers))
            rejected += [(event, problem) for _, problem, _ in table.rejected]

    def _touch(self, table: Table) -> None:
        """Read the columns that will be wanted. Raises Unreadable if one is damaged."""
        for name in table.columns if self._wanted.record else self._paths:
            table.column(name if isinstance(name, str) else name[0])

    def _decoded(self, parts: Sequence[Part], rejected: list[tuple[int, Problem]]) -> Decoded:
        """Return the rows of consecutive tables, each with the event and index of its rows."""
        events = np.concatenate([NONE, *(events for _, events, _ in parts)])
        indices = np.concatenate([NONE, *(indices for _, _, indices in parts)])
        missing: dict[Path, BoolArray] = {}
        fields: dict[Path, Vector] = {}
        for path in self._paths:
            vectors = [table.vector(path) for table, _, _ in parts]
            low = tuple(map(str.lower, path))
            if any(vector is None for vector in vectors):
                lengths = [len(table) for table, _, _ in parts]
                missing[low] = np.repeat(np.array([vector is None for vector in vectors], dtype=np.bool_), lengths)
            fields[low] = Vector.concat(
                [
                    Vector.nulls(len(table)) if vector is None else vector
                    for vector, (table, _, _) in zip(vectors, parts, strict=True)
                ]
            )
        records = None
        if self._wanted.record:
            every = [table.records() for table, _, _ in parts]
            records = records_vector([row for rows, _ in every for row in rows])
            failed = [
                event
                for (_, failure), (_, places, _) in zip(every, parts, strict=True)
                if failure is not None
                for event in places[failure.is_kind(Kind.ERROR)].tolist()
            ]
            if failed:
                keep = np.flatnonzero(~np.isin(events, failed))
                rejected = [*rejected, *((event, Problem.OUT_OF_RANGE) for event in sorted(set(failed)))]
                missing = {path: mask[keep] for path, mask in missing.items()}
                fields = {path: vector.take(keep) for path, vector in fields.items()}
                events, indices, records = events[keep], indices[keep], records.take(keep)
        decoded = Decoded(events, indices, fields, records, NONE, NONE)
        return finished(decoded, self._wanted, missing, rejected, tabular=True, of_text=self._kind.values_are_text)


class TableKind(FormatKind):
    """A format whose contents are tables.

    Attributes:
        values_are_text: whether all values are text, to be converted to the types of CREATE TABLE.
        joins_bodies: whether `joined` may read many bodies at once.
    """

    values_are_text: ClassVar[bool] = False
    joins_bodies: ClassVar[bool] = False

    @abstractmethod
    def table(self, content: bytes, format_: Format, most: ContentLimits) -> Table:
        """Return the table in a content.

        Args:
            most: what it may hold.

        Raises:
            Unreadable: it is not such a table, or exceeds a limit.
        """

    def joined(self, bodies: Sequence[bytes], format_: Format) -> Part | None:
        """Return the rows of many bodies read in one pass, or None if they must be read one by one."""
        return None

    def decoder(self, wanted: Wanted, format_: Format) -> BodyDecoder:
        return TableDecoder(wanted, format_, self)

    def file_rows(self, content: bytes, format_: Format) -> Sequence[bytes]:
        return TableBodies.of(self.table(content, format_, format_.limits.of_file()))


def problems_of(table: Table) -> list[tuple[int, Problem]]:
    """Return the rows of a table that could not be read, and why."""
    return [(number, problem) for number, problem, _ in table.rejected]


_MOST_COLUMNS = 10_000  # each takes memory, whether it has values or not


@FORMATS.register
class CsvFormat(TableKind):
    """RFC 4180; every value is text, an empty field without quotes is NULL."""

    name = "csv"
    is_text = True
    values_are_text = True
    joins_bodies = True

    def table(self, content: bytes, format_: Format, most: ContentLimits) -> Table:
        return _csv_table(content, format_, most)

    def joined(self, bodies: Sequence[bytes], format_: Format) -> Part | None:
        """Read CSV bodies with the same header and nothing unusual as one text; return None if that is impossible."""
        try:
            texts = [content_of(body, format_).strip(b"\r\n") for body in bodies]
        except Unreadable:
            return None
        header = b""
        if not format_.columns:
            header = texts[0].partition(b"\n")[0] + b"\n"
            if not all(text.startswith(header) for text in texts):
                return None
            texts = [text[len(header) :] for text in texts]
        whole = b"\n".join(texts)
        if b'"' in header or not all(texts) or _has_unusual_lines(whole):
            return None
        try:
            counts = np.fromiter(
                (_row_count(text, format_.delimiter) for text in texts), dtype=np.int64, count=len(texts)
            )
            most = format_.limits.of_event()
            longest = int(counts.max())
            if longest > most.rows or len(whole) > BATCH_BYTES:
                return None
            table = _csv_table(header + whole, format_, format_.limits.of_file())
            if longest * len(table.columns) > most.values:
                return None
        except (Unreadable, csv.Error, UnicodeDecodeError):
            return None
        if table.rejected or len(table) != int(counts.sum()):
            return None
        firsts = np.cumsum(counts) - counts
        return table, np.repeat(np.arange(len(texts)), counts), np.arange(len(table)) - np.repeat(firsts, counts)


def _csv_table(content: bytes, format_: Format, most: ContentLimits) -> Table:
    names, header_lines = list(format_.columns), 0
    if not names:
        names, header_lines = _header(content, format_.delimiter)
        if len(names) > _MOST_COLUMNS:
            raise Unreadable(Problem.LIMIT_EXCEEDED)
    if not content.isascii() and not _is_utf8(content):
        raise Unreadable(Problem.MALFORMED)
    # A line may be part of a text in quotes, and then it is no row; there may be fewer rows than lines, but not more.
    rows = content.count(b"\n") + 1 - header_lines
    if (rows > most.rows or rows * len(names) > most.values) and b'"' in content:
        try:
            rows = _row_count(content, format_.delimiter)
        except csv.Error as error:  # a quote that is not closed, or a longer text than Python's reader takes
            raise Unreadable(Problem.LIMIT_EXCEEDED) from error
    if rows > most.rows or rows * len(names) > most.values:
        raise Unreadable(Problem.LIMIT_EXCEEDED)
    rejected: list[tuple[int, Problem, bytes]] = []

    def skip(row: Any) -> str:
        rejected.append((row.number - 1 - header_lines, Problem.MALFORMED, row.text.encode()[:400]))
        return "skip"

    text = pa.large_string()
    content = content if content.endswith(b"\n") else content + b"\n"
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(content),
            read_options=pa.csv.ReadOptions(
                use_threads=False, column_names=names, skip_rows=header_lines, block_size=len(content) + 2
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=format_.delimiter, newlines_in_values=True, invalid_row_handler=skip
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, text),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return Table({}, NONE, 0, content_bytes=len(content))
        raise Unreadable(Problem.MALFORMED) from error
    total = table.num_rows + len(rejected)
    is_last_read = not rejected or rejected[-1][0] < total - 1
    opened = _open_quote(table, content) if is_last_read else None
    if opened is not None:
        table = table.slice(0, table.num_rows - 1)
        line = content.rfind(b"\n", 0, opened) + 1
        rejected.append((total - 1, Problem.MALFORMED, content[line : line + 400]))
    numbers = np.setdiff1d(np.arange(total), [number for number, _, _ in rejected]) if rejected else np.arange(total)
    columns = dict(zip(names, table.columns, strict=True))
    return Table(columns, numbers, total, tuple(rejected), len(content))


def _open_quote(table: Any, content: bytes) -> int | None:
    """Return where a quote stands that is not closed, so that the last value holds all rows that follow it.

    Then the content ends with that quote and the value. Otherwise it ends with the quote that closes the value.
    """
    if b'"' not in content or not table.num_rows:
        return None
    last = table.column(table.num_columns - 1)[table.num_rows - 1].as_py()
    if last is None or not last.endswith("\n"):
        return None
    rest = b'"' + last.replace('"', '""').encode()
    # A value of one line end looks the same with its quotes and with one.
    if not content.endswith(rest) or (last == "\n" and content.count(b'"') % 2 == 0):
        return None
    return len(content) - len(rest)


def _is_utf8(content: bytes) -> bool:
    """Return whether a content is valid UTF-8, without a copy of it.

    pyarrow checks texts itself, but prints a traceback for each row that has too few fields and is not valid.
    """
    ends = pa.py_buffer(np.array([0, len(content)], dtype=np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, ends, pa.py_buffer(content)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _header(content: bytes, delimiter: str) -> tuple[list[str], int]:
    """Return the names in the first line that is not empty, and how many lines the header takes."""
    lines = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="surrogateescape", newline="")
    reader = csv.reader(lines, delimiter=delimiter)
    try:
        for names in reader:
            if names:
                names = [name.strip().encode("utf-8", "surrogateescape").decode() for name in names]
                if not all(names) or len({name.lower() for name in names}) < len(names):
                    raise Unreadable(Problem.INVALID_HEADER)
                return names, reader.line_num
    except (UnicodeError, csv.Error) as error:
        raise Unreadable(Problem.INVALID_HEADER) from error
    raise Unreadable(Problem.INVALID_HEADER)


def _has_unusual_lines(text: bytes) -> bool:
    """Return whether a CSV text may have an empty line, or a line that ends with a carriage return alone."""
    return b"\n\n" in text or b"\n\r" in text or text.count(b"\r") != text.count(b"\r\n")


def _row_count(text: bytes, delimiter: str) -> int:
    """Return the number of rows of a text without empty lines. Raises csv.Error for unclosed quotes."""
    if b'"' not in text:
        return text.count(b"\n") + 1
    return sum(1 for _ in csv.reader(io.StringIO(text.decode(), newline=""), delimiter=delimiter, strict=True))


@FORMATS.register
class ParquetFormat(TableKind):
    """A format of files only, as in the service."""

    name = "parquet"
    compresses = True
    in_events = False

    def table(self, content: bytes, format_: Format, most: ContentLimits) -> Table:
        return _parquet_table(content, most)


class _ParquetColumns(Mapping[str, Any]):
    """The columns of a Parquet file, each read on demand."""

    def __init__(self, content: bytes, most_bytes: int) -> None:
        file = pa.parquet.ParquetFile(pa.BufferReader(content))
        self._file = _with_dictionaries(file, content) if _may_be_large(file.metadata, most_bytes) else file
        self._names: list[str] = file.schema_arrow.names
        self._most_bytes = most_bytes
        self._read: dict[str, Any] = {}
        self.metadata: pa.parquet.FileMetaData = file.metadata

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            try:
                found = self._file.read(columns=[name], use_threads=False)
                if name not in found.column_names:  # a name with a dot in it means something else to the reader
                    found = self._file.read(use_threads=False)
                column = found.column(name)
                # Texts inside records and lists that are not UTF-8, and places beyond a dictionary, show only here.
                column.validate(full=True)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise Unreadable(Problem.MALFORMED) from error
            except MemoryError as error:
                raise Unreadable(Problem.LIMIT_EXCEEDED) from error
            if len(column) != self.metadata.num_rows:
                raise Unreadable(Problem.MALFORMED)
            self._read[name] = self._expanded(column)
        return self._read[name]

    def _expanded(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if not pa.types.is_dictionary(column.type):
            return column
        size = 0
        for chunk in column.chunks:
            lengths = pc.cast(pc.binary_length(chunk.dictionary), pa.int64())
            size += pc.sum(pc.take(lengths, chunk.indices)).as_py() or 0
        if size > self._most_bytes:
            raise Unreadable(Problem.LIMIT_EXCEEDED)
        return column.cast(pa.large_string() if pa.types.is_string(column.type.value_type) else column.type.value_type)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _may_be_large(metadata: pa.parquet.FileMetaData, most_bytes: int) -> bool:
    """Return whether texts could exceed a limit if every row had a copy of everything in its row group."""
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    return bool(sum(group.num_rows * group.total_byte_size for group in groups) > most_bytes)


def _with_dictionaries(file: pa.parquet.ParquetFile, content: bytes) -> pa.parquet.ParquetFile:
    """Return the same file with texts as dictionaries, which hold a text once however many rows refer to it.

    The metadata of a column tells whether it has a dictionary, but damaged metadata makes pyarrow end the process.
    """
    texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
    return pa.parquet.ParquetFile(pa.BufferReader(content), read_dictionary=texts) if texts else file


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _parquet_table(content: bytes, most: ContentLimits) -> Table:
    try:
        columns = _ParquetColumns(content, most.data_bytes)
        metadata = columns.metadata
        rows = metadata.num_rows
        groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise Unreadable(Problem.MALFORMED) from error
    if rows > most.rows or sum(group.total_byte_size for group in groups) > most.data_bytes:
        raise Unreadable(Problem.LIMIT_EXCEEDED)
    if rows < 0 or sum(group.num_rows for group in groups) != rows:
        raise Unreadable(Problem.MALFORMED)
    if len(set(columns)) < len(columns):
        raise Unreadable(Problem.INVALID_HEADER)
    return Table(columns, np.arange(rows), rows, content_bytes=len(content))


_logger = logging.getLogger(__name__)
_reported: set[Deserializer] = set()


@FORMATS.register
class CustomFormat(TableKind):
    """A function returns the rows of each body or file. What it raises costs that body alone; the first is logged."""

    name = "custom"
    compresses = True

    def table(self, content: bytes, format_: Format, most: ContentLimits) -> Table:
        deserializer = format_.deserializer
        if deserializer is None:
            raise ValueError("the format custom needs a deserializer")
        try:
            records = []
            values = 0
            for row in deserializer(content):
                records.append(dict(row))
                values += count_values(records[-1], most.values - values)
                if len(records) > most.rows or values > most.values:
                    raise Unreadable(Problem.LIMIT_EXCEEDED)
        except Unreadable:
            raise
        except Exception as error:
            if deserializer not in _reported:
                _reported.add(deserializer)
                _logger.warning("%s: %s: %s (logged once)", deserializer, type(error).__name__, error)
            raise Unreadable(Problem.MALFORMED) from error
        names = dict.fromkeys(name for record in records for name in record)
        if len(names) * len(records) > most.values:
            raise Unreadable(Problem.LIMIT_EXCEEDED)
        columns = {str(name): [record.get(name) for record in records] for name in names}
        return Table(columns, np.arange(len(records)), len(records), content_bytes=len(content))


@FORMATS.register
class ProtobufFormat(CustomFormat):
    """One message is a row; a body has one, or several with their lengths before them."""

    name = "protobuf"
