"""Decompresses the contents of bodies and files, and transcodes text to UTF-8.

`rows_of` returns the rows of whole files, whatever their format, as bodies of one event each.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Sequence

from tidegate.engine.decoding.decoded import Problem
from tidegate.engine.decoding.formats import FORMATS, Compression, Format, Unreadable
from tidegate.engine.decoding.tables import Table, TableBodies

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PIECE_BYTES = 64 << 10
_GZIP, _ZLIB, _BARE = 31, 15, -15


def content_of(body: bytes, format_: Format, most_bytes: int | None = None) -> bytes:
    """Return a body without its compression, text in UTF-8 without a byte order mark.

    Args:
        most_bytes: the largest size after decompression; default: the limit for one event.

    Raises:
        Unreadable: it is not compressed or encoded as the format says, or exceeds that size.
    """
    if format_.compression != "none":
        body = decompressed(body, format_.compression, most_bytes or format_.limits.event_bytes)
    if FORMATS.kind(format_.kind).is_text:
        if format_.encoding != "utf-8":
            try:
                body = codecs.decode(body, format_.encoding).removeprefix("\ufeff").encode()
            except (UnicodeError, LookupError) as error:
                raise Unreadable(Problem.MALFORMED) from error
        body = body.removeprefix(_BYTE_ORDER_MARK)
    return body


def decompressed(body: bytes, compression: Compression, most_bytes: int) -> bytes:
    """Return a body without its compression.

    .NET's "deflate" is the raw format (RFC 1951); others add a header (RFC 1950). Both are accepted.

    Raises:
        Unreadable: it is not in that compression, is truncated, or inflates to more than ``most_bytes``.
    """
    for window in (_GZIP,) if compression == "gzip" else (_ZLIB, _BARE):
        found = inflated(body, window, most_bytes)
        if found is not None:
            return found
    raise Unreadable(Problem.INVALID_COMPRESSION)


def inflated(body: bytes, window: int, most_bytes: int) -> bytes | None:
    """Return inflated bytes, or None if they are not in this deflate format.

    Args:
        window: zlib's ``wbits``: 31 for gzip, whose members follow each other; 15 with, -15 without a zlib header.

    Raises:
        Unreadable: they exceed ``most_bytes``.
    """
    parts: list[bytes] = []
    size = at = 0
    view = memoryview(body)
    try:
        while at < len(body):
            stream = zlib.decompressobj(window)
            while at < len(body) and not stream.eof:
                # In pieces, because zlib copies what follows the end of a member, and there may be many members.
                piece = view[at : at + _PIECE_BYTES]
                parts.append(stream.decompress(piece, most_bytes - size + 1))
                size += len(parts[-1])
                if size > most_bytes:
                    raise Unreadable(Problem.LIMIT_EXCEEDED)
                at += len(piece) - len(stream.unused_data)
            if not stream.eof:
                return None
            if window != _GZIP:
                break
            at = _after_padding(body, at)
    except zlib.error:
        return None
    return b"".join(parts) if parts else None


def _after_padding(body: bytes, at: int) -> int:
    """Return where the next member of gzip begins, after any zero bytes."""
    while at < len(body) and not body[at]:
        piece = body[at : at + _PIECE_BYTES]
        at += len(piece) - len(piece.lstrip(b"\0"))
    return at


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
