"""CSV, with a header or with columns that the input names."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from tidegate.engine.decoding.content import content_of
from tidegate.engine.decoding.decoded import NONE, Problem
from tidegate.engine.decoding.formats import FORMATS, Format, Unreadable
from tidegate.engine.decoding.limits import BATCH_BYTES, ContentLimits
from tidegate.engine.decoding.table_decoder import Part, TableKind
from tidegate.engine.decoding.tables import Table

_MOST_COLUMNS = 10_000  # each takes memory, whether it has values or not


@FORMATS.register
class CsvFormat(TableKind):
    """RFC 4180; every value is text, an empty field without quotes is NULL."""

    name = "csv"
    is_text = True
    values_are_text = True
    joins_bodies = True

    def table(self, content: bytes, format_: Format, most: ContentLimits) -> Table:
        return _table(content, format_, most)

    def joined(self, bodies: Sequence[bytes], format_: Format) -> Part | None:
        """Read CSV bodies with the same header and nothing unusual as one text; return None if that is impossible."""
        try:
            texts = [content_of(body, format_).replace(b"\r\n", b"\n").strip(b"\n") for body in bodies]
        except Unreadable:
            return None
        header = b""
        if not format_.columns:
            header = texts[0].partition(b"\n")[0] + b"\n"
            if not all(text.startswith(header) for text in texts):
                return None
            texts = [text[len(header) :] for text in texts]
        whole = b"\n".join(texts)
        if b'"' in header or b"\n\n" in whole or b"\r" in whole or not all(texts):
            return None
        try:
            counts = np.fromiter((_row_count(text) for text in texts), dtype=np.int64, count=len(texts))
            most = format_.limits.of_event()
            longest = int(counts.max())
            if longest > most.rows or len(whole) > BATCH_BYTES:
                return None
            table = _table(header + whole, format_, format_.limits.of_file())
            if longest * len(table.columns) > most.values:
                return None
        except (Unreadable, csv.Error, UnicodeDecodeError):
            return None
        if table.rejected or len(table) != int(counts.sum()):
            return None
        firsts = np.cumsum(counts) - counts
        return table, np.repeat(np.arange(len(texts)), counts), np.arange(len(table)) - np.repeat(firsts, counts)


def _table(content: bytes, format_: Format, most: ContentLimits) -> Table:
    names, header_lines = list(format_.columns), 0
    if not names:
        names, header_lines = _header(content, format_.delimiter)
        if len(names) > _MOST_COLUMNS:
            raise Unreadable(Problem.LIMIT_EXCEEDED)
    # A line may be part of a text in quotes, and then it is no row; there may be fewer rows than lines, but not more.
    rows = content.count(b"\n") + 1 - header_lines
    if (rows > most.rows or rows * len(names) > most.values) and b'"' in content:
        rows = _row_count(content)
    if rows > most.rows or rows * len(names) > most.values:
        raise Unreadable(Problem.LIMIT_EXCEEDED)
    if not content.isascii() and not _is_utf8(content):
        raise Unreadable(Problem.MALFORMED)
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


def _row_count(text: bytes) -> int:
    """Return the number of rows of a text without empty lines. Raises csv.Error for unclosed quotes."""
    if b'"' not in text:
        return text.count(b"\n") + 1
    return sum(1 for _ in csv.reader(io.StringIO(text.decode(), newline=""), strict=True))
