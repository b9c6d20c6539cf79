"""Requests and responses as bytes, and as values: the codec over the table of `schemas`.

A frame is a length and a message; the message is a header and a body. The body's fields follow one another without
names, so both sides must agree on the version, which the request's header says. Bytes of a peer are checked before
memory is spent on them: an array has no more elements than the frame has bytes left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from struct import Struct, error
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from tidegate.kafka.schemas import MESSAGES

_FRAME = Struct(">i")
_REQUEST_HEADER = Struct(">hhi")
_MAX_VARINT_BITS = 35


class MalformedMessage(ValueError):
    """The bytes are not a message of the version that they claim to be."""


class Message(SimpleNamespace):
    """The fields of a request, a response, or of an element of an array, as attributes."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: str
    first: int
    last: int
    nullable_from: int  # beyond `last` if never null
    default: object
    fields: tuple[_Field, ...]


@dataclass(frozen=True, slots=True)
class _Schema:
    name: str
    key: int
    first: int
    last: int
    flexible_from: int
    request: tuple[_Field, ...]
    response: tuple[_Field, ...]


_NEVER = 1 << 15
_DEFAULTS: dict[str, object] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": UUID(int=0),
    "[]": (),
    "{}": None,
}


def _parse_schemas() -> Iterator[_Schema]:
    lines = [(len(line) - len(line.lstrip()), line.split()) for line in MESSAGES.splitlines() if line]
    at = 0
    while at < len(lines):
        name, key, versions, flexible = lines[at][1]
        first, last = map(int, versions.split("-"))
        request, at = _parse_fields(lines, at + 2, 2, first, last)
        response, at = _parse_fields(lines, at + 1, 2, first, last)
        flexible_from = _NEVER if flexible == "none" else int(flexible)
        yield _Schema(name, int(key), first, last, flexible_from, request, response)


def _parse_fields(
    lines: list[tuple[int, list[str]]], at: int, indent: int, first: int, last: int
) -> tuple[tuple[_Field, ...], int]:
    fields = []
    while at < len(lines) and lines[at][0] == indent:
        name, type_, *rest = lines[at][1]
        default = _DEFAULTS["[]"] if type_.startswith("[") else _DEFAULTS.get(type_, 0)
        since, until, null_since = first, last, _NEVER
        if "=" in rest:
            text = rest[-1]
            default = text == "True" if type_ == "bool" else int(text)
            rest = rest[:-2]
        for word in rest:
            if word.startswith("?"):
                null_since = int(word[1:].rstrip("+")) if word[1:] else since
                default = None if type_ not in ("[]",) else default
            else:
                start, _, end = word.partition("-")
                since = int(start.rstrip("+"))
                until = int(end) if end else last if start.endswith("+") else since
        below, at = _parse_fields(lines, at + 1, indent + 2, first, last)
        fields.append(_Field(name, type_, since, until, null_since, default, below))
    return tuple(fields), at


_SCHEMAS = {schema.key: schema for schema in _parse_schemas()}

VERSIONS: Mapping[int, tuple[int, int]] = {key: (schema.first, schema.last) for key, schema in _SCHEMAS.items()}
"""The first and the last known version of each request, by its number."""


class Api(IntEnum):
    """A kind of request, by its number."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    CONSUMER_GROUP_HEARTBEAT = 68


class RequestHeader(NamedTuple):
    """What every request begins with, and where its body begins in the frame."""

    api: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def parse_header(frame: bytes) -> RequestHeader:
    """Return the header of a request. `frame` is without its length.

    The header of an unknown request or version has no body; what it begins with is always the same. Raises
    MalformedMessage.
    """
    try:
        api, version, correlation_id = _REQUEST_HEADER.unpack_from(frame)
        client_id, at = _read_nullable_string(frame, _REQUEST_HEADER.size)
        schema = _SCHEMAS.get(api)
        if schema is not None and schema.flexible_from <= version <= schema.last:
            at = _skip_tags(frame, at)
    except (error, IndexError, UnicodeDecodeError) as cause:
        raise MalformedMessage(f"a request's header is cut off or no text: {cause}") from None
    return RequestHeader(api, version, correlation_id, client_id, at)


def parse_request(header: RequestHeader, frame: bytes) -> Message:
    """Return the body of a request of a known version. Raises MalformedMessage."""
    return _parse(frame, header.body_at, header.api, header.version, "request")


def parse_response(api: int, version: int, frame: bytes | memoryview) -> tuple[int, Message]:
    """Return a response's correlation id and body. `frame` is without its length. Raises MalformedMessage.

    Records of a `memoryview` are a part of it, not a copy.
    """
    try:
        (correlation_id,) = _FRAME.unpack_from(frame)
        at = _skip_tags(frame, _FRAME.size) if _has_flexible_header(api, version) else _FRAME.size
    except (error, IndexError):
        raise MalformedMessage("a response's header is cut off") from None
    return int(correlation_id), _parse(frame, at, api, version, "response")


def encode_request(
    api: int, version: int, correlation_id: int, client_id: str | None, values: Mapping[str, object]
) -> bytes:
    """Return a request with its length in front."""
    head: list[bytes] = [_REQUEST_HEADER.pack(api, version, correlation_id)]
    _write_nullable_string(head, client_id)
    if version >= _SCHEMAS[api].flexible_from:
        head.append(b"\x00")
    return _encode(head, api, version, "request", values)


def encode_response(api: int, version: int, correlation_id: int, values: Mapping[str, object]) -> bytes:
    """Return a response with its length in front.

    Fields that the version does not have are left out, and those that `values` lacks get their default.
    """
    head = [_FRAME.pack(correlation_id)]
    if _has_flexible_header(api, version):
        head.append(b"\x00")
    return _encode(head, api, version, "response", values)


def _has_flexible_header(api: int, version: int) -> bool:
    # a client that asks for versions cannot know yet which header the server uses (KIP-511)
    return api != Api.API_VERSIONS and version >= _SCHEMAS[api].flexible_from


def _parse(frame: _Frame, at: int, api: int, version: int, kind: str) -> Message:
    try:
        value, _ = _reader(api, version, kind)(frame, at)
    except (error, IndexError, UnicodeDecodeError) as cause:
        name = _SCHEMAS[api].name
        raise MalformedMessage(f"a {kind} {name} of version {version} is cut off or no text: {cause}") from None
    assert isinstance(value, Message)
    return value


def _encode(head: list[bytes], api: int, version: int, kind: str, values: Mapping[str, object]) -> bytes:
    _writer(api, version, kind)(head, values)
    return b"".join((_FRAME.pack(sum(map(len, head))), *head))


# -- reading

_Frame = bytes | memoryview
_Read = Callable[[_Frame, int], tuple[Any, int]]


@cache
def _reader(api: int, version: int, kind: str) -> _Read:
    schema = _SCHEMAS[api]
    return _struct_reader(getattr(schema, kind), version, version >= schema.flexible_from)


def _struct_reader(fields: tuple[_Field, ...], version: int, flexible: bool) -> _Read:
    present = [
        (field.name, _value_reader(field, version, flexible))
        for field in fields
        if field.first <= version <= field.last
    ]
    absent = {field.name: field.default for field in fields if not field.first <= version <= field.last}

    def read(data: _Frame, at: int) -> tuple[Message, int]:
        message = Message(**absent)
        values = message.__dict__
        for name, read_value in present:
            values[name], at = read_value(data, at)
        if flexible:
            at = _skip_tags(data, at)
        return message, at

    return read


def _value_reader(field: _Field, version: int, flexible: bool) -> _Read:
    nullable = version >= field.nullable_from
    if field.type == "{}":
        return _nullable_struct_reader(_struct_reader(field.fields, version, flexible))
    if field.type == "[]":
        return _array_reader(_struct_reader(field.fields, version, flexible), nullable, flexible)
    if field.type.startswith("["):
        return _array_reader(_scalar_reader(field.type[1:-1], False, flexible), nullable, flexible)
    return _scalar_reader(field.type, nullable, flexible)


def _nullable_struct_reader(read_struct: _Read) -> _Read:
    def read(data: _Frame, at: int) -> tuple[Message | None, int]:
        mark, at = _NUMBERS["int8"].unpack_from(data, at)[0], at + 1
        return (None, at) if mark < 0 else read_struct(data, at)

    return read


def _scalar_reader(type_: str, nullable: bool, flexible: bool) -> _Read:
    if type_ in _NUMBERS:
        number = _NUMBERS[type_]
        unpack, size = number.unpack_from, number.size
        return lambda data, at: (unpack(data, at)[0], at + size)
    if type_ == "bool":
        return lambda data, at: (data[at] != 0, at + 1)
    if type_ == "uuid":
        return lambda data, at: (UUID(bytes=bytes(data[at : at + 16])) if at + 16 <= len(data) else _cut_off(), at + 16)
    if type_ == "string":
        read: _Read = _read_compact_string if flexible else _read_nullable_string
        missing: object = ""
    elif type_ == "records":
        read, missing = (_read_compact_records if flexible else _read_nullable_records), b""
    else:
        read, missing = (_read_compact_bytes if flexible else _read_nullable_bytes), b""
    if nullable:
        return read

    def read_or_empty(data: _Frame, at: int) -> tuple[object, int]:
        value, at = read(data, at)
        return (missing if value is None else value), at

    return read_or_empty


def _array_reader(read_element: _Read, nullable: bool, flexible: bool) -> _Read:
    def read(data: _Frame, at: int) -> tuple[list[object] | None, int]:
        if flexible:
            count, at = _read_varint(data, at)
            count -= 1
        else:
            (count,) = _FRAME.unpack_from(data, at)
            at += 4
        if count < 0:
            return (None if nullable else []), at
        if count > len(data) - at:
            raise IndexError(f"an array of {count} elements in {len(data) - at} bytes")
        elements = []
        for _ in range(count):
            element, at = read_element(data, at)
            elements.append(element)
        return elements, at

    return read


_NUMBERS = {
    "int8": Struct(">b"),
    "int16": Struct(">h"),
    "int32": Struct(">i"),
    "int64": Struct(">q"),
}
_SHORT = _NUMBERS["int16"]


def _cut_off() -> UUID:
    raise IndexError("cut off")


def _take(data: _Frame, at: int, size: int) -> tuple[_Frame, int]:
    end = at + size
    if end > len(data):
        raise IndexError(f"{size} bytes where {len(data) - at} are left")
    return data[at:end], end


def _read_varint(data: _Frame, at: int) -> tuple[int, int]:
    number = data[at]
    at += 1
    if number < 0x80:
        return number, at
    number &= 0x7F
    for shift in range(7, _MAX_VARINT_BITS, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise IndexError("a number with too many bytes")


def _read_nullable_string(data: _Frame, at: int) -> tuple[str | None, int]:
    (size,) = _SHORT.unpack_from(data, at)
    if size < 0:
        return None, at + 2
    value, at = _take(data, at + 2, size)
    return bytes(value).decode(), at


def _read_compact_string(data: _Frame, at: int) -> tuple[str | None, int]:
    size, at = _read_varint(data, at)
    if not size:
        return None, at
    value, at = _take(data, at, size - 1)
    return bytes(value).decode(), at


def _read_nullable_bytes(data: _Frame, at: int) -> tuple[bytes | None, int]:
    value, at = _read_nullable_records(data, at)
    return (None if value is None else bytes(value)), at


def _read_compact_bytes(data: _Frame, at: int) -> tuple[bytes | None, int]:
    value, at = _read_compact_records(data, at)
    return (None if value is None else bytes(value)), at


def _read_nullable_records(data: _Frame, at: int) -> tuple[_Frame | None, int]:
    (size,) = _FRAME.unpack_from(data, at)
    return (None, at + 4) if size < 0 else _take(data, at + 4, size)


def _read_compact_records(data: _Frame, at: int) -> tuple[_Frame | None, int]:
    size, at = _read_varint(data, at)
    return (None, at) if not size else _take(data, at, size - 1)


def _skip_tags(data: _Frame, at: int) -> int:
    count = data[at]
    if not count:
        return at + 1
    count, at = _read_varint(data, at)
    if count > len(data) - at:
        raise IndexError(f"{count} tagged fields in {len(data) - at} bytes")
    for _ in range(count):
        _, at = _read_varint(data, at)
        size, at = _read_varint(data, at)
        _, at = _take(data, at, size)
    return at


# -- writing

_Write = Callable[[list[bytes], Any], None]


@cache
def _writer(api: int, version: int, kind: str) -> _Write:
    schema = _SCHEMAS[api]
    return _struct_writer(getattr(schema, kind), version, version >= schema.flexible_from)


def _struct_writer(fields: tuple[_Field, ...], version: int, flexible: bool) -> _Write:
    names = {field.name for field in fields}
    present = [
        (field.name, field.default, _value_writer(field, version, flexible))
        for field in fields
        if field.first <= version <= field.last
    ]

    def write(parts: list[bytes], value: Mapping[str, object] | Message) -> None:
        values = value.__dict__ if isinstance(value, Message) else value
        if not names.issuperset(values):
            raise KeyError(f"no fields are called {sorted(set(values) - names)}")
        for name, default, write_value in present:
            write_value(parts, values.get(name, default))
        if flexible:
            parts.append(b"\x00")

    return write


def _value_writer(field: _Field, version: int, flexible: bool) -> _Write:
    if field.type == "{}":
        return _nullable_struct_writer(_struct_writer(field.fields, version, flexible))
    if field.type == "[]":
        return _array_writer(_struct_writer(field.fields, version, flexible), flexible, version >= field.nullable_from)
    if field.type.startswith("["):
        return _array_writer(
            _scalar_writer(field.type[1:-1], False, flexible), flexible, version >= field.nullable_from
        )
    return _scalar_writer(field.type, version >= field.nullable_from, flexible)


def _nullable_struct_writer(write_struct: _Write) -> _Write:
    def write(parts: list[bytes], value: Any) -> None:
        parts.append(b"\xff" if value is None else b"\x01")
        if value is not None:
            write_struct(parts, value)

    return write


def _scalar_writer(type_: str, nullable: bool, flexible: bool) -> _Write:
    if type_ in _NUMBERS:
        pack = _NUMBERS[type_].pack
        return lambda parts, value: parts.append(pack(value))
    if type_ == "bool":
        return lambda parts, value: parts.append(b"\x01" if value else b"\x00")
    if type_ == "uuid":
        return lambda parts, value: parts.append(value.bytes)
    if type_ == "string":
        write: _Write = _write_compact_string if flexible else _write_nullable_string
        missing: object = ""
    else:
        write, missing = (_write_compact_bytes if flexible else _write_nullable_bytes), b""
    if nullable:
        return write
    return lambda parts, value: write(parts, missing if value is None else value)


def _array_writer(write_element: _Write, flexible: bool, nullable: bool) -> _Write:
    def write(parts: list[bytes], values: Any) -> None:
        if values is None and nullable:
            parts.append(b"\x00" if flexible else b"\xff\xff\xff\xff")
            return
        values = values or ()
        parts.append(_varint(len(values) + 1) if flexible else _FRAME.pack(len(values)))
        for value in values:
            write_element(parts, value)

    return write


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _write_nullable_string(parts: list[bytes], value: str | None) -> None:
    if value is None:
        parts.append(b"\xff\xff")
    else:
        encoded = value.encode()
        parts += (_SHORT.pack(len(encoded)), encoded)


def _write_compact_string(parts: list[bytes], value: str | None) -> None:
    _write_compact_bytes(parts, None if value is None else value.encode())


def _write_nullable_bytes(parts: list[bytes], value: bytes | None) -> None:
    if value is None:
        parts.append(b"\xff\xff\xff\xff")
    else:
        parts += (_FRAME.pack(len(value)), value)


def _write_compact_bytes(parts: list[bytes], value: bytes | None) -> None:
    if value is None:
        parts.append(b"\x00")
    else:
        parts += (_varint(len(value) + 1), value)
