"""Reads Avro from untrusted sources, within limits: object container files, and values whose schema is elsewhere.

fastavro trusts its input. A record whose schema refers to itself may nest as deeply as the data says; an array of
records without fields may announce 2^40 items in a few bytes; a deflated block may inflate a thousandfold. So a
container is parsed here first (https://avro.apache.org/docs/1.11.1/specification/#object-container-files):

- blocks are decompressed here, up to a limit, and handed on uncompressed;
- rows are counted from the headers of blocks;
- the schema is measured. If every value takes at least a byte of data and no type contains itself, the data's length
  bounds what it can contain, and fastavro reads it directly. Otherwise the data is walked once to count values and
  depth, without building anything.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import fastavro
import fastavro.read
import numpy as np
import pyarrow as pa

from tidegate.engine.decoding.content import inflated
from tidegate.engine.decoding.decoded import Problem
from tidegate.engine.decoding.formats import FORMATS, Format, Unreadable
from tidegate.engine.decoding.limits import VALUES_A_BYTE, ContentLimits
from tidegate.engine.decoding.table_formats import TableKind
from tidegate.engine.decoding.tables import Table
from tidegate.engine.values.vectors import Failure, Reason

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_BARE_DEFLATE = -15
_LZMA_MEMORY = 256 << 20
_MOST_DECIMAL_BYTES = 128  # 308 digits, as far as floats reach; Python takes minutes for millions of digits
# The values that a small container may have regardless of its size, and how many values each byte allows for.
_FREE_VALUES = 100_000
_LENGTHS = {"float": 4, "double": 8, "boolean": 1}


class _TooMuch(Exception):
    """The container exceeds a limit."""


def read_container(content: bytes, limits: ContentLimits) -> list[Any]:
    """Return the records of a container.

    Raises:
        Unreadable: it is not a container, is damaged, or exceeds a limit.
    """
    try:
        container = _Container.parse(content, limits)
        schema = json.loads(container.metadata["avro.schema"])
        if _nesting(schema) > 3 * limits.depth:
            raise _TooMuch
        _MeasuredSchema(schema).check(container.blocks, limits)
        return list(fastavro.reader(io.BytesIO(container.uncompressed(content))))
    except Unreadable:
        raise
    except (_TooMuch, RecursionError, MemoryError) as error:
        raise Unreadable(Problem.LIMIT_EXCEEDED) from error
    except Exception as error:  # fastavro raises a dozen kinds, KeyError and IndexError among them
        raise Unreadable(Problem.MALFORMED) from error


class ValueReader:
    """Reads values of one schema, such as those that a schema registry has.

    fastavro reads a value that nests deeply by calling itself as deeply, which ends the process; see above.
    """

    def __init__(self, schema: str, imported: Sequence[str], limits: ContentLimits) -> None:
        """
        Args:
            schema: its JSON.
            imported: the JSON of schemas whose types it may use, each after those that it uses itself.

        Raises:
            Unreadable: a schema is nested too deeply, or is none of Avro.
        """
        self._limits = limits
        try:
            own, others = json.loads(schema), [json.loads(text) for text in imported]
            if _nesting([own, others]) > 3 * limits.depth:
                raise _TooMuch
            named: dict[str, Any] = {}
            for other in others:
                fastavro.parse_schema(other, named_schemas=named)
            self._parsed = fastavro.parse_schema(own, named_schemas=named)
            self._measured = _MeasuredSchema(own, others)
        except (_TooMuch, RecursionError, MemoryError) as error:
            raise Unreadable(Problem.LIMIT_EXCEEDED) from error
        except Exception as error:  # see read_container
            raise Unreadable(Problem.MALFORMED) from error

    def read(self, body: bytes) -> Any:
        """Return the value that a body is.

        Raises:
            Unreadable: it is not a value of the schema, or exceeds a limit.
        """
        try:
            self._measured.check(((1, body),), self._limits)
            return fastavro.schemaless_reader(io.BytesIO(body), self._parsed, None)
        except (_TooMuch, RecursionError, MemoryError) as error:
            raise Unreadable(Problem.LIMIT_EXCEEDED) from error
        except Exception as error:  # see read_container
            raise Unreadable(Problem.MALFORMED) from error


def _nesting(value: Any) -> int:
    """Return how deeply JSON is nested."""
    depth, level = 0, [value]
    while level:
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        depth += 1
    return depth


# containers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Container:
    """A container taken apart: its metadata, and each block's rows and decompressed data."""

    metadata: Mapping[str, bytes]
    header_end: int
    sync: bytes
    blocks: tuple[tuple[int, bytes | memoryview], ...]

    @property
    def codec(self) -> str:
        return self.metadata.get("avro.codec", b"null").decode()

    @classmethod
    def parse(cls, content: bytes, limits: ContentLimits) -> _Container:
        if not content.startswith(_MAGIC):
            raise ValueError("not an Avro container")
        data = _Reader(memoryview(content))
        data.at = len(_MAGIC)
        metadata: dict[str, bytes] = {}
        for count in data.blocks():
            for _ in range(count):
                name = bytes(data.sized()).decode()
                metadata[name] = bytes(data.sized())
        sync = bytes(data.take(_SYNC_BYTES))
        header_end = data.at
        codec = metadata.get("avro.codec", b"null").decode()
        decompress = _CODECS[codec]
        blocks: list[tuple[int, bytes | memoryview]] = []
        rows = size = 0
        while data.at < len(content):
            count = data.long()
            block = decompress(data.sized(), limits.data_bytes - size)
            rows, size = rows + count, size + len(block)
            if count < 0 or bytes(data.take(_SYNC_BYTES)) != sync:
                raise ValueError("a block is damaged")
            if rows > limits.rows or size > limits.data_bytes:
                raise _TooMuch
            blocks.append((count, block))
        return cls(metadata, header_end, sync, tuple(blocks))

    def uncompressed(self, content: bytes) -> bytes:
        """Return the container with the codec `null`."""
        if self.codec == "null":
            return content
        schema = self.metadata["avro.schema"]
        entries = [(b"avro.schema", schema), (b"avro.codec", b"null")]
        header = b"".join(_long(len(part)) + part for entry in entries for part in entry)
        blocks = (_long(count) + _long(len(block)) + bytes(block) + self.sync for count, block in self.blocks)
        return b"".join([_MAGIC, _long(len(entries)), header, b"\0", self.sync, *blocks])


def _long(value: int) -> bytes:
    """Return a non-negative long as Avro writes it: zigzag, seven bits a byte."""
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _inflate(data: memoryview, most: int) -> bytes:
    found = inflated(bytes(data), _BARE_DEFLATE, most)
    if found is None:
        raise ValueError("a block is not deflated")
    return found


def _bunzip(data: memoryview, most: int) -> bytes:
    return bz2.BZ2Decompressor().decompress(data, most + 1)


def _unxz(data: memoryview, most: int) -> bytes:
    return lzma.LZMADecompressor(memlimit=_LZMA_MEMORY).decompress(data, most + 1)


def _unzstd(data: memoryview, most: int) -> bytes:
    found: bytes = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(most + 1)
    return found


def _unsnap(data: memoryview, most: int) -> bytes:
    size = shift = 0
    for octet in data[:5]:
        size |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    if size > most:
        raise _TooMuch
    # Four bytes of checksum follow the compressed data.
    found: bytes = pa.Codec("snappy").decompress(data[:-4], decompressed_size=size, asbytes=True)
    return found


_CODECS: dict[str, Callable[[memoryview, int], bytes | memoryview]] = {
    "null": lambda data, most: data,
    "deflate": _inflate,
    "bzip2": _bunzip,
    "xz": _unxz,
    "zstandard": _unzstd,
    "snappy": _unsnap,
}


class _Reader:
    """Reads Avro's binary encoding, as far as skipping values requires."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> memoryview:
        if not 0 <= count <= len(self._data) - self.at:
            raise ValueError("the data ends too early")
        self.at += count
        return self._data[self.at - count : self.at]

    def long(self) -> int:
        value = shift = 0
        while True:
            octet = self._data[self.at]
            self.at += 1
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")

    def sized(self) -> memoryview:
        return self.take(self.long())

    def blocks(self) -> Iterator[int]:
        """Yield the count of each block of an array or a map; the caller reads the items in between."""
        while count := self.long():
            if count < 0:
                count = -count
                self.long()  # the block's size in bytes
            yield count


# limits of data -------------------------------------------------------------------------------------------------------


class _MeasuredSchema:
    """A schema, and what the sizes of its types say of its values."""

    def __init__(self, schema: Any, imported: Sequence[Any] = ()) -> None:
        self._schema = schema
        self._measure = _Measure()
        for other in imported:
            self._measure.size_of(other)
        self._row = self._measure.size_of(schema)

    def check(self, blocks: Sequence[tuple[int, bytes | memoryview]], limits: ContentLimits) -> None:
        """Raise _TooMuch if values are more, or nested more deeply, than the size of their blocks accounts for.

        Args:
            blocks: the rows and the data of each.
        """
        size = sum(len(block) for _, block in blocks)
        budget = min(_FREE_VALUES + VALUES_A_BYTE * size, limits.values)
        measure, row = self._measure, self._row
        # Items of arrays and maps take bytes; what is beside them in a row may take none.
        beside = sum(count for count, _ in blocks) * row.values
        fits = beside <= budget and beside + measure.values_a_byte * size <= limits.values
        if measure.is_bounded and row.depth <= limits.depth and fits:
            return
        walk = _Walk(measure.named, budget, limits.depth)
        for count, block in blocks:
            data = _Reader(memoryview(block))
            for _ in range(count):
                walk.step_over(self._schema, data, 0)


@dataclass(frozen=True, slots=True)
class _Size:
    """The size of one value of a type: the fewest bytes, and the most values and depth without counting array items."""

    least_bytes: int
    values: int
    depth: int


class _Measure:
    """Computes the sizes of the types of a schema."""

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}
        self.is_bounded = True
        self.values_a_byte = 0
        self._sizes: dict[str, _Size] = {}

    def size_of(self, schema: Any, namespace: str = "") -> _Size:
        if isinstance(schema, list):
            sizes = [self.size_of(branch, namespace) for branch in schema]
            return _Size(
                1 + min((one.least_bytes for one in sizes), default=0),
                max((one.values for one in sizes), default=1),
                max((one.depth for one in sizes), default=0),
            )
        if isinstance(schema, str):
            return self._size_of_name(schema, namespace)
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return self._size_of_record(schema, namespace)
            case "array" | "map":
                item = self.size_of(schema["items" if kind == "array" else "values"], namespace)
                least = item.least_bytes + (kind == "map")
                if not least or item.values > VALUES_A_BYTE * least:
                    self.is_bounded = False
                else:
                    self.values_a_byte = max(self.values_a_byte, -(-item.values // least))
                return _Size(1, 1, 1 + item.depth)
            case "fixed" | "enum":
                name, _ = _full_name(schema, namespace)
                self.named[name] = schema
                self._sizes[name] = _Size(int(schema["size"]) if kind == "fixed" else 1, 1, 0)
                return self._sizes[name]
            case _:
                return self.size_of(kind, namespace)

    def _size_of_name(self, name: str, namespace: str) -> _Size:
        if name == "null":
            return _Size(0, 1, 0)
        known = self._known(name, namespace)
        if known is None:
            return _Size(_LENGTHS.get(name, 1), 1, 0)
        if known not in self._sizes:  # a type within itself
            self.is_bounded = False
            return _Size(0, 1, 0)
        return self._sizes[known]

    def _known(self, name: str, namespace: str) -> str | None:
        return next((one for one in (name, f"{namespace}.{name}") if one in self.named), None)

    def _size_of_record(self, schema: Any, namespace: str) -> _Size:
        name, namespace = _full_name(schema, namespace)
        self.named[name] = schema
        sizes = [self.size_of(field["type"], namespace) for field in schema["fields"]]
        self._sizes[name] = _Size(
            sum(one.least_bytes for one in sizes),
            1 + sum(one.values for one in sizes),
            1 + max((one.depth for one in sizes), default=0),
        )
        return self._sizes[name]


def _full_name(schema: Any, namespace: str) -> tuple[str, str]:
    """Return the full name of a type, and the namespace inside it."""
    name: str = schema["name"]
    if "." not in name:
        namespace = schema.get("namespace", namespace)
        return (f"{namespace}.{name}" if namespace else name), namespace
    return name, name.rpartition(".")[0]


class _Walk:
    """Skips values, and counts them."""

    def __init__(self, named: Mapping[str, Any], budget: int, depth: int) -> None:
        self._named = named
        self._left = budget
        self._depth = depth

    def step_over(self, schema: Any, data: _Reader, depth: int, namespace: str = "") -> None:
        self._left -= 1
        if self._left < 0 or depth > self._depth:
            raise _TooMuch
        if isinstance(schema, list):
            place = data.long()
            if place < 0:
                raise ValueError("a union has no such branch")
            self.step_over(schema[place], data, depth, namespace)
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "null":
                pass
            case "boolean" | "float" | "double":
                data.take(_LENGTHS[kind])
            case "int" | "long" | "enum":
                data.long()
            case "bytes" | "string":
                data.sized()
            case "fixed":
                data.take(schema["size"])
            case "record" | "error":
                _, inner = _full_name(schema, namespace)
                for field in schema["fields"]:
                    self.step_over(field["type"], data, depth + 1, inner)
            case "array" | "map":
                for count in data.blocks():
                    for _ in range(count):
                        if kind == "map":
                            data.sized()
                        self.step_over(schema["items" if kind == "array" else "values"], data, depth + 1, namespace)
            case str():
                known = next(one for one in (kind, f"{namespace}.{kind}") if one in self._named)
                self.step_over(self._named[known], data, depth, known.rpartition(".")[0])
            case _:
                self.step_over(kind, data, depth, namespace)


def _bounded(read: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a reader of decimals to refuse those with more digits than any number of the engine."""

    def bounded(data: Any, *schemas: Any) -> Any:
        if len(data) > _MOST_DECIMAL_BYTES:
            raise ValueError("a decimal has too many digits")
        return read(data, *schemas)

    return bounded


def _in_range(read: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a reader of times: one that Python cannot represent fails, and not the whole container with it."""

    def in_range(data: Any, *schemas: Any) -> Any:
        try:
            return read(data, *schemas)
        except (ValueError, OverflowError):
            return Failure(Reason.DATETIME_RANGE)

    return in_range


def _text_unless(read: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a reader of UUIDs: one that is none stays text."""

    def text_unless(data: Any, *schemas: Any) -> Any:
        try:
            return read(data, *schemas)
        except ValueError:
            return data

    return text_unless


for _logical, _read in list(fastavro.read.LOGICAL_READERS.items()):
    match _logical.partition("-")[2]:
        case "decimal":
            fastavro.read.LOGICAL_READERS[_logical] = _bounded(_read)
        case "uuid":
            fastavro.read.LOGICAL_READERS[_logical] = _text_unless(_read)
        case _:
            fastavro.read.LOGICAL_READERS[_logical] = _in_range(_read)


@FORMATS.register
class AvroFormat(TableKind):
    """A container includes its schema; its records are the rows."""

    name = "avro"
    compresses = True

    def table(self, content: bytes, format_: Format, most: ContentLimits) -> Table:
        return _table(read_container(content, most), len(content))


def _table(records: list[Any], content_bytes: int) -> Table:
    if not all(isinstance(record, dict) for record in records):
        raise Unreadable(Problem.MALFORMED)
    # The records of a container whose schema is a union may differ in their fields.
    names = dict.fromkeys(chain.from_iterable(records))
    columns = {name: [record.get(name) for record in records] for name in names}
    return Table(columns, np.arange(len(records)), len(records), content_bytes=content_bytes)
