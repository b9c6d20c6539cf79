"""Formats: what a body, or a file, is made of, and its rows.

JSON has a decoder of its own (`decode`). Of the others a content is first taken apart into a `Table`, of which a
query then touches the columns it wants. A content may be compressed and in another encoding than UTF-8; it is undone
first. What cannot be read is said by its documented name and costs only itself (article "Azure Stream Analytics data
errors").
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Protocol

import fastavro
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from tidegate.engine.decoding.decoded import NONE, Decoded, Path, Problem, Wanted, finished
from tidegate.engine.decoding.json_bodies import Decoder
from tidegate.engine.decoding.tables import Table, TableBodies, records_vector
from tidegate.engine.values.vectors import BoolArray, Int64Array, Kind, Vector

_MOST_BYTES = 2**30
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TRAILING_COMMA = re.compile(rb",\s*\]\s*\Z")
_decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_check_json = msgspec.json.Decoder(msgspec.Raw).decode

Kinds = Literal["json", "csv", "avro", "parquet"]
Compression = Literal["none", "gzip", "deflate"]


@dataclass(frozen=True, slots=True)
class Format:
    """What an input's bodies are made of.

    Attributes:
        delimiter: one character, between the columns of CSV.
        columns: the names of the columns of CSV without a header; empty where the first line has them.
        encoding: of text, as Python names it.
        compression: of the whole body.
    """

    kind: Kinds = "json"
    delimiter: str = ","
    columns: tuple[str, ...] = ()
    encoding: str = "utf-8"
    compression: Compression = "none"

    @property
    def is_plain_json(self) -> bool:
        """Whether bodies are JSON as they stand."""
        return self.kind == "json" and self.compression == "none" and self.encoding == "utf-8"


JSON = Format()


class Unreadable(Exception):
    """A content of which no row can be read."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class AnyDecoder(Protocol):
    """Decodes batches of one input."""

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """The rows of m bodies, and which bodies were rejected."""


@lru_cache(maxsize=64)
def decoder_of(wanted: Wanted, format_: Format = JSON) -> AnyDecoder:
    """One decoder for as long as the worker lives: it learns how producers spell names."""
    if format_.is_plain_json:
        return Decoder(wanted)
    return _UnpackedJsonDecoder(wanted, format_) if format_.kind == "json" else TableDecoder(wanted, format_)


# content
# ------------------------------------------------------------------------------------------------------


def content_of(body: bytes, format_: Format) -> bytes:
    """A body without its compression, text in UTF-8.

    Raises:
        Unreadable: it is not compressed so, or not in that encoding.
    """
    if format_.compression != "none":
        body = _decompressed(body, format_.compression)
    if format_.kind in ("json", "csv"):
        if format_.encoding != "utf-8":
            try:
                body = codecs.decode(body, format_.encoding).removeprefix("\ufeff").encode()
            except (UnicodeError, LookupError) as error:
                raise Unreadable(Problem.MALFORMED) from error
        body = body.removeprefix(_BYTE_ORDER_MARK)
    return body


def _decompressed(body: bytes, compression: Compression) -> bytes:
    # .NET's "deflate" is the bare one (RFC 1951); others put a head before it (RFC 1950).
    for window in (31,) if compression == "gzip" else (15, -15):
        parts: list[bytes] = []
        size, rest = 0, body
        try:
            while rest:
                stream = zlib.decompressobj(window)
                parts.append(stream.decompress(rest, _MOST_BYTES - size))
                size += len(parts[-1])
                if not stream.eof:
                    raise zlib.error("it ends too early, or is too large")
                rest = stream.unused_data.lstrip(b"\0") if window == 31 else b""
            if parts:
                return b"".join(parts)
        except zlib.error:
            continue
    raise Unreadable(Problem.INVALID_COMPRESSION)


def rows_of(body: bytes, format_: Format) -> Sequence[bytes]:
    """The rows of a file as bodies of as many events, each in ``JSON`` or as a row of a table.

    A file that cannot be read at all is one event that cannot be read.
    """
    try:
        content = content_of(body, format_)
        if format_.kind == "json":
            return _json_texts(content)
        return TableBodies.of(replace(table_of(content, format_), content_bytes=len(body)))
    except Unreadable as error:
        return TableBodies.of(Table.unreadable(error.problem, body))


def _json_texts(content: bytes) -> list[bytes]:
    """The texts in a JSON file: the elements of an array, one object, or those on lines of their own."""
    stripped = content.strip()
    if stripped[:1] == b"[":
        try:
            return list(map(bytes, _decode_raws(_TRAILING_COMMA.sub(b"]", stripped))))
        except (msgspec.DecodeError, RecursionError):
            pass
    lines = [line for line in (line.strip() for line in stripped.split(b"\n")) if line]
    if len(lines) > 1 and lines[0] == b"{":
        try:
            _check_json(stripped)
            return [stripped]
        except (msgspec.DecodeError, RecursionError):
            pass
    texts: list[bytes] = []
    for line in lines:
        if line[:1] == b"[":
            try:
                texts += map(bytes, _decode_raws(line))
                continue
            except (msgspec.DecodeError, RecursionError):
                pass
        texts.append(line)
    return texts


# tables
# -------------------------------------------------------------------------------------------------------


def table_of(content: bytes, format_: Format) -> Table:
    """The rows of a content that is a table.

    Raises:
        Unreadable: it is none.
    """
    match format_.kind:
        case "csv":
            return _csv(content, format_)
        case "avro":
            return _avro(content)
        case _:
            return _parquet(content)


def _csv(content: bytes, format_: Format) -> Table:
    names, header_lines = list(format_.columns), 0
    if not names:
        names, header_lines = _header(content, format_.delimiter)
    rejected: list[tuple[int, Problem, bytes]] = []

    def skip(row: Any) -> str:
        rejected.append((row.number - 1 - header_lines, Problem.MALFORMED, row.text.encode()[:400]))
        return "skip"

    text = pa.large_string()
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(content if content.endswith(b"\n") else content + b"\n"),
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
    numbers = np.setdiff1d(np.arange(total), [number for number, _, _ in rejected]) if rejected else np.arange(total)
    columns = dict(zip(names, table.columns, strict=True))
    return Table(columns, numbers, total, tuple(rejected), len(content))


def _header(content: bytes, delimiter: str) -> tuple[list[str], int]:
    """The names in the first line that is not empty, and how many lines it takes."""
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


def _row_count(text: bytes) -> int:
    """How many rows a text has that has no empty line. Raises csv.Error for quotes that are not closed."""
    if b'"' not in text:
        return text.count(b"\n") + 1
    return sum(1 for _ in csv.reader(io.StringIO(text.decode(), newline=""), strict=True))


def _avro(content: bytes) -> Table:
    try:
        records = list(fastavro.reader(io.BytesIO(content)))
    except Exception as error:  # fastavro reports what it meets: a dozen kinds, KeyError and IndexError among them
        raise Unreadable(Problem.MALFORMED) from error
    if not all(isinstance(record, dict) for record in records):
        raise Unreadable(Problem.MALFORMED)
    rows: list[dict[str, Any]] = [record for record in records if isinstance(record, dict)]
    names = list(rows[0]) if rows else []
    columns = {name: [row.get(name) for row in rows] for name in names}
    return Table(columns, np.arange(len(rows)), len(rows), content_bytes=len(content))


class _ParquetColumns(Mapping[str, Any]):
    """The columns of a Parquet file, each read when it is asked for."""

    def __init__(self, file: pa.parquet.ParquetFile) -> None:
        self._file = file
        self._names: list[str] = file.schema_arrow.names
        self._read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            try:
                found = self._file.read(columns=[name], use_threads=False)
                if name not in found.column_names:  # a name with a dot in it means something else to the reader
                    found = self._file.read(use_threads=False)
                self._read[name] = found.column(name)
            except (pa.ArrowException, OSError) as error:
                raise Unreadable(Problem.MALFORMED) from error
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _parquet(content: bytes) -> Table:
    try:
        file = pa.parquet.ParquetFile(pa.BufferReader(content))
        columns = _ParquetColumns(file)
        rows = file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise Unreadable(Problem.MALFORMED) from error
    if len(set(columns)) < len(columns):
        raise Unreadable(Problem.INVALID_HEADER)
    return Table(columns, np.arange(rows), rows, content_bytes=len(content))


# decoders
# -----------------------------------------------------------------------------------------------------


_Part = tuple[Table, Int64Array, Int64Array]
"""A table, and of each of its rows the event and the index in it."""


class TableDecoder:
    """Decodes bodies each of which is a table, or is a row of one."""

    def __init__(self, wanted: Wanted, format_: Format) -> None:
        self._wanted = wanted
        self._format = format_
        paths = [*wanted.paths, *((name,) for name, _ in wanted.declared or ())]
        self._paths = list({tuple(map(str.lower, path)): path for path in reversed(paths)}.values())[::-1]

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """The rows of m bodies, and which bodies were rejected."""
        if isinstance(bodies, TableBodies):
            table = bodies.rows()
            try:
                return self._decoded([(table, table.numbers, np.zeros(len(table), dtype=np.int64))], _problems(table))
            except Unreadable as error:
                # A column can only be found damaged when it is read: no row of the file is of use then.
                return self._decoded([], [(event, error.problem) for event in range(len(bodies))])
        parts: list[_Part] = []
        rejected: list[tuple[int, Problem]] = []
        self._take(bodies, 0, parts, rejected)
        return self._decoded(parts, rejected)

    def _take(
        self, bodies: Sequence[bytes], first: int, parts: list[_Part], rejected: list[tuple[int, Problem]]
    ) -> None:
        """Add the rows of bodies, whose events are counted from ``first``.

        Bodies of CSV are read together. Where one of them stands in the way it is found by halving.
        """
        if self._format.kind == "csv" and len(bodies) > 1:
            joined = self._joined(bodies)
            if joined is not None:
                table, events, indices = joined
                parts.append((table, events + first, indices))
                return
            half = len(bodies) // 2
            self._take(bodies[:half], first, parts, rejected)
            self._take(bodies[half:], first + half, parts, rejected)
            return
        for event, body in enumerate(bodies, start=first):
            try:
                table = table_of(content_of(body, self._format), self._format)
                self._touch(table)
            except Unreadable as error:
                rejected.append((event, error.problem))
                continue
            parts.append((table, np.full(len(table), event, dtype=np.int64), table.numbers))
            rejected += [(event, problem) for _, problem, _ in table.rejected]

    def _touch(self, table: Table) -> None:
        """Read the columns that will be wanted. Raises Unreadable for one that is damaged."""
        for name in table.columns if self._wanted.record else self._paths:
            table.column(name if isinstance(name, str) else name[0])

    def _joined(self, bodies: Sequence[bytes]) -> _Part | None:
        """CSV bodies with one and the same header and nothing unusual in them, read as one text; else None."""
        try:
            texts = [content_of(body, self._format).replace(b"\r\n", b"\n").strip(b"\n") for body in bodies]
        except Unreadable:
            return None
        header = b""
        if not self._format.columns:
            header = texts[0].partition(b"\n")[0] + b"\n"
            if not all(text.startswith(header) for text in texts):
                return None
            texts = [text[len(header) :] for text in texts]
        whole = b"\n".join(texts)
        if b'"' in header or b"\n\n" in whole or b"\r" in whole or not all(texts):
            return None
        try:
            counts = np.fromiter((_row_count(text) for text in texts), dtype=np.int64, count=len(texts))
            table = table_of(header + whole, self._format)
        except (Unreadable, csv.Error, UnicodeDecodeError):
            return None
        if table.rejected or len(table) != int(counts.sum()):
            return None
        firsts = np.cumsum(counts) - counts
        return table, np.repeat(np.arange(len(texts)), counts), np.arange(len(table)) - np.repeat(firsts, counts)

    def _decoded(self, parts: Sequence[_Part], rejected: list[tuple[int, Problem]]) -> Decoded:
        """The rows of tables, one after the other: each with the event and the index in it of its rows."""
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
        return finished(decoded, self._wanted, missing, rejected, tabular=True, of_text=self._format.kind == "csv")


class _UnpackedJsonDecoder:
    """JSON that is compressed, or in another encoding."""

    def __init__(self, wanted: Wanted, format_: Format) -> None:
        self._decoder = Decoder(wanted)
        self._format = format_

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """The rows of m bodies, and which bodies were rejected."""
        if isinstance(bodies, TableBodies):  # a file that could not be read
            return _with_rejections(self._decoder.decode([]), _problems(bodies.rows()))
        texts: list[bytes] = []
        places: list[int] = []
        rejected: list[tuple[int, Problem]] = []
        for event, body in enumerate(bodies):
            try:
                texts.append(content_of(body, self._format))
                places.append(event)
            except Unreadable as error:
                rejected.append((event, error.problem))
        decoded = self._decoder.decode(texts)
        where = np.array(places, dtype=np.int64)
        rejected += zip(
            where[decoded.rejected_events].tolist(), map(Problem, decoded.rejected_problems.tolist()), strict=True
        )
        return _with_rejections(replace(decoded, events=where[decoded.events]), sorted(rejected))


def _problems(table: Table) -> list[tuple[int, Problem]]:
    return [(number, problem) for number, problem, _ in table.rejected]


def _with_rejections(decoded: Decoded, rejected: Sequence[tuple[int, Problem]]) -> Decoded:
    return replace(
        decoded,
        rejected_events=np.array([event for event, _ in rejected], dtype=np.int64),
        rejected_problems=np.array([int(problem) for _, problem in rejected], dtype=np.int64),
    )
