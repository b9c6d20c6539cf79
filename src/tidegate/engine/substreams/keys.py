"""The OVER keys of rows as bytes: equal for values that are the same (`values.grouping`); callers unify them first.

A key that is a single text is its UTF-8. In any other key each value has a header of eight bytes (0xFF, which occurs in
no UTF-8; its kind; how many bytes follow) and then its content in whole words: the 64 bits of a number or time, a text,
or the JSON of a record or array.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.engine.values.json_lines import key_texts_of
from tidegate.engine.values.vectors import INT_KINDS, TEXT, Datetime, Int64Array, Kind, Texts, Vector
from tidegate.ordering import Keys

_MARK = 0xFF
_HEADER = struct.Struct("<Q")
_INT, _FLOAT = struct.Struct("<q"), struct.Struct("<d")


def keys_of(columns: Sequence[Vector]) -> Keys:
    """Return the key of each row, given a column for each of its values; none is NULL or a failure."""
    if len(columns) > 1:
        return Keys.woven([part for column in columns for part in _typed(column)])
    (column,) = columns
    if column.uniform == Kind.NVARCHAR:
        return texts_as_keys(column.text_values())
    if Kind.NVARCHAR not in column.present():
        return Keys.woven(_typed(column))
    is_text = (column.kinds == Kind.NVARCHAR).tolist()
    texts = column.text_values().to_pylist()
    typed = Keys.woven(_typed(column)).to_list()
    return Keys.of([texts[row].encode() if is_text[row] else key for row, key in enumerate(typed)])


def values_of(key: bytes) -> tuple[tuple[int, Any], ...]:
    """Return the values of a key, each with its kind; records and arrays are the text of their JSON."""
    if not key.startswith(b"\xff"):
        return ((int(Kind.NVARCHAR), key.decode()),)
    values, place = [], 0
    while place < len(key):
        (header,) = _HEADER.unpack_from(key, place)
        kind, length = (header >> 8) & 0xFF, header >> 16
        place += _HEADER.size
        values.append((kind, _value(kind, key[place : place + length])))
        place += -(-length // 8) * 8
    return tuple(values)


def _value(kind: int, content: bytes) -> Any:
    if kind == Kind.FLOAT:
        return _FLOAT.unpack(content)[0]
    if kind in INT_KINDS:
        (number,) = _INT.unpack(content)
        return bool(number) if kind == Kind.BIT else Datetime(number) if kind == Kind.DATETIME else number
    return content.decode()


def _typed(column: Vector) -> tuple[Keys, Keys]:
    """Return headers and contents."""
    contents = _contents(column)
    headers = _MARK | column.kinds.astype(np.int64) << 8 | contents.lengths << 16
    return Keys.of_words(headers.view(np.uint64)[:, None]), contents


def _contents(column: Vector) -> Keys:
    kind = column.uniform
    if kind is None:
        return _of_many_kinds(column)
    if kind in INT_KINDS:
        return Keys.of_words(column.int_values().view(np.uint64)[:, None])
    if kind == Kind.FLOAT:
        return Keys.of_words(column.float_values().view(np.uint64)[:, None])
    return texts_as_keys(column.text_values() if kind == Kind.NVARCHAR else pa.array(key_texts_of(column), TEXT))


def _of_many_kinds(column: Vector) -> Keys:
    contents: list[bytes] = [b""] * len(column)
    for kind in column.present():
        places: Int64Array = np.flatnonzero(column.kinds == kind)
        for place, content in zip(places.tolist(), _contents(column.take(places)).to_list(), strict=True):
            contents[place] = content
    return Keys.of(contents)


def texts_as_keys(texts: Texts) -> Keys:
    """Return texts as keys: the bytes of their UTF-8."""
    if not len(texts):
        return Keys.of([])
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return Keys.of_bytes(
        np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8),
        ends[:-1],
        np.diff(ends),
    )
