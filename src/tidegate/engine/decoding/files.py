"""The rows of whole files, whatever their format, as bodies of one event each."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.engine.decoding.content import content_of
from tidegate.engine.decoding.formats import FORMATS, Format, Unreadable
from tidegate.engine.decoding.tables import Table, TableBodies


def rows_of(body: bytes, format_: Format) -> Sequence[bytes]:
    """Return the rows of a file as bodies of one event each, in ``JSON`` or as rows of a table.

    A file that cannot be read at all becomes one event that cannot be read.
    """
    try:
        return readable_rows_of(body, format_)
    except Unreadable as error:
        return TableBodies.of(Table.unreadable(error.problem, body))


def readable_rows_of(body: bytes, format_: Format) -> Sequence[bytes]:
    """Return the rows of a file; see `rows_of`.

    Raises:
        Unreadable: no row of the file can be read.
    """
    content = content_of(body, format_, format_.limits.file_bytes)
    rows = FORMATS.kind(format_.kind).file_rows(content, format_)
    return rows.of_file(len(body)) if isinstance(rows, TableBodies) else rows
