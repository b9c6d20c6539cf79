"""Arrow tables as Avro object container files, encoded by column.

A record of Avro is its fields one after the other, so each column is encoded as a whole, a length and the bytes of each
value, and the values are then brought into the order of the rows. Every field is a union of null and its type.

Source: the Avro 1.12 specification, "Binary Encoding" and "Object Container Files".
"""

from __future__ import annotations

import json
import secrets
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_ROWS_OF_A_BLOCK = 4_000
_NULL_BRANCH, _VALUE_BRANCH = 0, 2  # 0 and 1, each written as a long

Bytes = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int64]

TYPES: dict[pa.DataType, Any] = {
    pa.int64(): "long",
    pa.float64(): "double",
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.timestamp("us", tz="UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.null(): "string",
}
"""The types of columns that can be written, and what they are in Avro."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """The values of a column: how many bytes each has, and all of them one after the other."""

    lengths: Lengths
    content: Bytes


def avro_file(table: pa.Table, names: list[str]) -> bytes:
    """Return a table as a file, compressed by deflate.

    Args:
        names: of the fields, which are valid in Avro.
    """
    fields = [{"name": name, "type": ["null", TYPES[one.type]]} for name, one in zip(names, table.schema, strict=True)]
    schema = json.dumps({"type": "record", "name": "Result", "fields": fields}).encode()
    sync = secrets.token_bytes(_SYNC_BYTES)
    parts = [_MAGIC, _header({"avro.schema": schema, "avro.codec": b"deflate"}), sync]
    for first in range(0, table.num_rows, _ROWS_OF_A_BLOCK):
        block = table.slice(first, _ROWS_OF_A_BLOCK)
        compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        body = compressor.compress(_records(block)) + compressor.flush()
        parts += [_long(block.num_rows), _long(len(body)), body, sync]
    return b"".join(parts)


def _header(entries: dict[str, bytes]) -> bytes:
    pairs = [_sized(name.encode()) + _sized(value) for name, value in entries.items()]
    return _long(len(pairs)) + b"".join(pairs) + _long(0)


def _sized(content: bytes) -> bytes:
    return _long(len(content)) + content


def _long(value: int) -> bytes:
    encoded = _longs(np.array([value], np.int64))
    return encoded.content.tobytes()


def _records(table: pa.Table) -> bytes:
    """Return the fields of each row, row by row."""
    columns = [_in_union(column.combine_chunks()) for column in table.columns]
    lengths = np.stack([column.lengths for column in columns], axis=1)
    starts = np.cumsum(lengths) - lengths.ravel()
    found = np.empty(int(lengths.sum()), np.uint8)
    for column, place in zip(columns, starts.reshape(lengths.shape).T, strict=True):
        found[_places(place, column.lengths)] = column.content
    return found.tobytes()


def _places(starts: Lengths, lengths: Lengths) -> Lengths:
    """Return where each byte goes of values that begin at ``starts``."""
    before = np.cumsum(lengths) - lengths
    places: Lengths = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    return places


def _in_union(array: Any) -> _Encoded:
    """Return a column with the branch of the union before each value."""
    valid = np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), bool)
    values = _values(array.drop_null() if not valid.all() else array)
    lengths = np.ones(len(array), np.int64)
    lengths[valid] += values.lengths
    content = np.full(int(lengths.sum()), _NULL_BRANCH, np.uint8)
    starts = (np.cumsum(lengths) - lengths)[valid]
    content[starts] = _VALUE_BRANCH
    content[_places(starts + 1, values.lengths)] = values.content
    return _Encoded(lengths, content)


def _values(array: Any) -> _Encoded:
    """Return values, none of which is NULL."""
    if pa.types.is_null(array.type):
        return _Encoded(np.zeros(0, np.int64), np.zeros(0, np.uint8))
    if pa.types.is_boolean(array.type):
        return _Encoded(np.ones(len(array), np.int64), array.cast(pa.uint8()).to_numpy())
    if pa.types.is_float64(array.type):
        numbers = np.ascontiguousarray(array.to_numpy(), "<f8")
        return _Encoded(np.full(len(array), 8, np.int64), numbers.view(np.uint8))
    if pa.types.is_string(array.type):
        return _texts(array)
    return _longs(array.cast(pa.int64()).to_numpy())


def _texts(array: Any) -> _Encoded:
    binary = array.cast(pa.binary())
    _, offsets_buffer, content_buffer = binary.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    content = np.frombuffer(content_buffer, np.uint8) if content_buffer is not None else np.zeros(0, np.uint8)
    content = content[offsets[0] : offsets[-1]]
    sizes = np.diff(offsets)
    prefixes = _longs(sizes)
    lengths = prefixes.lengths + sizes
    found = np.empty(int(lengths.sum()), np.uint8)
    starts = np.cumsum(lengths) - lengths
    found[_places(starts, prefixes.lengths)] = prefixes.content
    found[_places(starts + prefixes.lengths, sizes)] = content
    return _Encoded(lengths, found)


def _longs(numbers: npt.NDArray[np.int64]) -> _Encoded:
    """Return whole numbers as variable-length zigzag."""
    zigzag = (numbers.astype(np.uint64) << np.uint64(1)) ^ (numbers >> np.int64(63)).astype(np.uint64)
    longest = max(1, -(-int(zigzag.max(initial=0)).bit_length() // 7))
    digits = np.empty((len(numbers), longest), np.uint8)
    lengths = np.ones(len(numbers), np.int64)
    for place in range(longest):
        digit = zigzag & np.uint64(0x7F)
        zigzag = zigzag >> np.uint64(7)
        more = zigzag > 0
        digits[:, place] = digit | (more.astype(np.uint64) << np.uint64(7))
        lengths += more
    return _Encoded(lengths, digits[np.arange(longest) < lengths[:, None]])
