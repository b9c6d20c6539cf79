"""Bodies that ask for far more than their size, each with the format that it attacks."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet

from tests import profiles
from tidegate.engine import Format

SYNC = bytes(16)
BOMB_BYTES = 256 << 20
# Of what takes long to compress: three times what a body may have.
SLOW_BOMB_BYTES = 48 << 20
OBJECTS = 250_000 * min(profiles.SOAK, 4)


class Hostile(NamedTuple):
    """A body (or a file, for a format of files) that must be rejected without harm."""

    name: str
    format: Format
    body: bytes


def long_of(value: int) -> bytes:
    """Return a long as Avro writes it."""
    value = value << 1 if value >= 0 else ((-value) << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text_of(data: bytes) -> bytes:
    return long_of(len(data)) + data


def container(schema: Any, count: int, data: bytes, codec: bytes = b"null") -> bytes:
    """Return an Avro container with one block."""
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    meta = long_of(2) + text_of(b"avro.schema") + text_of(text) + text_of(b"avro.codec") + text_of(codec) + b"\0"
    return b"Obj\x01" + meta + SYNC + long_of(count) + text_of(data) + SYNC


def record(*types: Any, name: str = "r") -> dict[str, Any]:
    fields = [{"name": f"f{place}", "type": type_} for place, type_ in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


@cache
def deflated_zeros(window: int) -> bytes:
    """Return `BOMB_BYTES` of zeros, deflated, or in a member of gzip."""
    stream = zlib.compressobj(9, wbits=-15)
    piece = bytes(1 << 20)
    # After a full flush the next piece is deflated to the same bytes, so one is enough.
    deflated = (stream.compress(piece) + stream.flush(zlib.Z_FULL_FLUSH)) * (BOMB_BYTES >> 20) + stream.flush()
    if window < 0:
        return deflated
    checksum = 0
    for _ in range(BOMB_BYTES >> 20):
        checksum = zlib.crc32(piece, checksum)
    return b"\x1f\x8b\x08" + bytes(7) + deflated + struct.pack("<II", checksum, BOMB_BYTES)


def avro_bodies() -> Iterator[tuple[str, bytes]]:
    nested = record(["null", "r"])
    yield "a list nested 500,000 deep", container(nested, 1, long_of(1) * 500_000 + long_of(0))
    tree: dict[str, Any] = record({"type": "array", "items": "r"})
    yield "arrays nested 500,000 deep", container(tree, 1, long_of(1) * 500_000 + b"\0" * 500_000)
    yield "2^40 rows without fields", container(record(), 1 << 40, b"")
    empty = record(name="e")
    yield "2^40 empty records", container(record({"type": "array", "items": empty}), 1, long_of(1 << 40) + b"\0")
    yield "2^60 nulls", container(record({"type": "array", "items": "null"}), 1, long_of(1 << 60) + b"\0")
    zero = {"type": "fixed", "name": "z", "size": 0}
    yield "2^40 fixed of no bytes", container(record({"type": "array", "items": zero}), 1, long_of(1 << 40) + b"\0")
    doubling: Any = record(name="n0")
    for level in range(1, 40):
        doubling = record(doubling, f"n{level - 1}", name=f"n{level}")
    yield "2^39 records in one", container(doubling, 1, b"")
    many_nulls = record(*["null"] * 5_000, "boolean")
    yield "5,000 nulls in each of 20,000 rows", container(many_nulls, 20_000, b"\0" * 20_000)
    yield "a text of 2^62 bytes", container(record("string"), 1, long_of(1 << 62))
    yield "a text of -5 bytes", container(record("string"), 1, long_of(-5))
    yield "a fixed of 2^50 bytes", container(record({"type": "fixed", "name": "z", "size": 1 << 50}), 1, b"x")
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": 10**8}
    yield "a decimal of 2.4 million digits", container(record(decimal), 1, text_of(b"\x7f" * (1 << 20)))
    yield (
        "a schema nested 100,000 deep",
        container(b'{"type":"array","items":' * 100_000 + b'"int"' + b"}" * 100_000, 1, b""),
    )
    yield "a bomb in a deflated block", container(record("bytes"), 1, deflated_zeros(-15), b"deflate")
    yield "a bomb in a bzip2 block", container(record("bytes"), 1, bz2.compress(bytes(SLOW_BOMB_BYTES)), b"bzip2")
    yield "a bomb in an xz block", container(record("bytes"), 1, lzma.compress(bytes(SLOW_BOMB_BYTES), preset=0), b"xz")
    zstd = pa.compress(bytes(BOMB_BYTES), "zstd", asbytes=True)
    yield "a bomb in a zstandard block", container(record("bytes"), 1, zstd, b"zstandard")
    size = b"\xff\xff\xff\xff\x0f"
    yield "a snappy block that announces 4 GB", container(record("bytes"), 1, size + bytes(40), b"snappy")
    yield "metadata with 2^60 entries", b"Obj\x01" + long_of(1 << 60) + text_of(b"a") + text_of(b"b")


def parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pa.parquet.write_table(table, file, row_group_size=1 << 24)
    return file.getvalue()


def parquet_files() -> Iterator[tuple[str, bytes]]:
    nulls = pa.nulls(11_000_000, pa.int64())
    yield "11,000,000 rows in few bytes", parquet(pa.table({"a": nulls}))
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 500_000, pa.int32()), pa.array(["x" * 50_000]))
    yield "one text of 50,000 bytes in 500,000 rows", parquet(pa.table({"a": repeated}))


def hostile_bodies() -> Iterator[Hostile]:
    """Yield every hostile body."""
    for name, body in avro_bodies():
        yield Hostile(f"avro: {name}", Format("avro"), body)
    for name, body in parquet_files():
        yield Hostile(f"parquet: {name}", Format("parquet"), body)
    for kind in ("json", "csv", "avro"):
        yield Hostile(f"{kind}: a gzip bomb", Format(kind, compression="gzip"), deflated_zeros(31))
        yield Hostile(f"{kind}: a deflate bomb", Format(kind, compression="deflate"), deflated_zeros(-15))
    bomb = gzip.compress(bytes(1 << 20), 9, mtime=0) * 100
    yield Hostile("json: a gzip bomb of many members", Format(compression="gzip"), bomb)
    empty = gzip.compress(b"", 9, mtime=0)
    yield Hostile("json: 20,000 empty members of gzip", Format(compression="gzip"), empty * 20_000)
    for name, text in (
        ("arrays nested 1,000,000 deep", b"[" * 1_000_000 + b"]" * 1_000_000),
        ("objects nested deeply", b'{"a":' * OBJECTS + b"1" + b"}" * OBJECTS),
        ("objects nested 900 deep", b'{"a":' * 900 + b"1" + b"}" * 900),
        ("objects nested 100 deep", b'{"a":' * 100 + b"1" + b"}" * 100),
        ("1,000,000 digits", b"1" * 1_000_000),
        ("1,000,000 digits in an array", b"[" + b"1" * 1_000_000 + b"]"),
        ("a huge exponent", b"1e" + b"9" * 1_000_000),
        ("an open text", b'"' + b"\\" * 1_000_001),
    ):
        yield Hostile(f"json: {name}", Format(), b'{"a":' + text + b"}")
    wide = b",".join(b"c%d" % place for place in range(100_000))
    yield Hostile("csv: 100,000 columns and no rows that fit", Format("csv"), wide + b"\n1\n")
