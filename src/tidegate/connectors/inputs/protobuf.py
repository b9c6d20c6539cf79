"""Messages of Protocol Buffers as rows, by a .proto file or a descriptor set.

The types are those of the query language: whole numbers are bigint (an unsigned one beyond it a float), bytes are text
in base64, an enumeration is the name of its value, a Timestamp is a time, a Duration its seconds, and a wrapper what it
wraps. A field that can be absent and is has the value NULL; one that cannot has its default.

Source: the Protocol Buffers guides "Encoding" and "ProtoJSON format".
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, assert_never

from tidegate.connectors.model.errors import InputError
from tidegate.engine import DEFAULT_LIMITS, Problem
from tidegate.engine.decoding.formats import Unreadable

SUFFIXES = (".proto", ".desc", ".pb", ".binpb", ".protoset")
_TIMEOUT_S = 60
_LONGEST_VARINT = 10
_MOST_BIGINT = (1 << 63) - 1
_NANOSECONDS = 1_000_000_000
# Kinds of fields in the encoding ("Message Structure"), and the sizes of those that have one.
_VARINT, _LENGTH = 0, 2
_WIRE_SIZES = {1: 8, 5: 4}
# FieldDescriptor.TYPE_*: double, fixed64, sfixed64; float, fixed32, sfixed32; varints.
_PACKED_BYTES = {1: 8, 6: 8, 16: 8, 2: 4, 7: 4, 15: 4, **dict.fromkeys((3, 4, 5, 8, 13, 14, 17, 18), 0)}
_VARINT_ENDS = bytes(128 * [1] + 128 * [0])


class MessagePrefix(StrEnum):
    """What says how long each message of a body is."""

    NONE = "none"
    BASE128 = "base128"
    FIXED32 = "fixed32"


class DescriptionError(InputError):
    """A description of messages that is wrong in itself."""


@dataclass(frozen=True)
class ProtobufDeserializer:
    """Reads the messages of bodies; it can be pickled and hashed.

    Attributes:
        name: the message's full name. descriptors: a serialized FileDescriptorSet with it and all it imports.
        prefix: the length before each message; without one, a body is one message.
    """

    name: str
    descriptors: bytes = field(repr=False)
    prefix: MessagePrefix = MessagePrefix.NONE

    def __call__(self, body: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the rows of a body.

        Raises:
            Unreadable: a message holds too many values.
            ValueError: it is cut off, or no such message.
        """
        make, read = self._message
        for content in _messages(body, self.prefix):
            if _holds_more(content, make.DESCRIPTOR, DEFAULT_LIMITS.event_values):
                raise Unreadable(Problem.LIMIT_EXCEEDED)
            yield read(make.FromString(content))

    @cached_property
    def _message(self) -> tuple[Any, Callable[[Any], dict[str, Any]]]:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(self.descriptors).file:
            pool.Add(file)
        try:
            found = pool.FindMessageTypeByName(self.name)
        except KeyError:
            raise InputError(f"there is no message {self.name}; {_names(self.descriptors)}") from None
        return message_factory.GetMessageClass(found), _Reader(found)

    def check(self) -> None:
        """Raise InputError unless the message exists."""
        _ = self._message

    def __str__(self) -> str:
        return f"protobuf message {self.name}"

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "descriptors": self.descriptors, "prefix": self.prefix}


def protobuf_deserializer(path: str, name: str, prefix: str) -> ProtobufDeserializer:
    """Return what reads a message that a file describes.

    Args:
        path: of a .proto file, whose imports are found relative to its folder, or of a descriptor set.

    Raises:
        InputError: the package is missing, the file cannot be read or compiled, or there is no such message.
    """
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        raise InputError("the format protobuf needs an extra: pip install 'tidegate[protobuf]'")
    from google.protobuf.message import DecodeError

    try:
        descriptors = _compiled(Path(path)) if path.endswith(".proto") else Path(path).read_bytes()
        found = ProtobufDeserializer(name, descriptors, MessagePrefix(prefix))
        found.check()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (DecodeError, TypeError) as error:
        raise InputError(
            f"{path} is not a descriptor set; write one with protoc --include_imports --descriptor_set_out=FILE"
        ) from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return found


def _compiled(path: Path) -> bytes:
    """Return the descriptor set of a .proto file, imports included."""
    try:
        from grpc_tools import protoc
    except ImportError:
        raise InputError(
            "compiling it needs an extra: pip install 'tidegate[protobuf]'; or give a descriptor set"
        ) from None
    path.read_bytes()
    with tempfile.TemporaryDirectory(prefix="tidegate-proto-") as folder:
        target = Path(folder) / "set"
        options = [f"--proto_path={path.parent.absolute()}", "--include_imports", f"--descriptor_set_out={target}"]
        # In a process of its own, because it writes what is wrong to standard error.
        command = [sys.executable, protoc.__file__, *options, path.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()
            named = [line[line.index(f"{path.name}:") :] for line in said if f"{path.name}:" in line]
            raise DescriptionError(f"it cannot be compiled: {'; '.join(named or said)[:500]}")
        return target.read_bytes()


def message_reader(
    schema: str, imported: Iterable[tuple[str, str]], path: Sequence[int]
) -> ProtobufDeserializer | None:
    """Return what reads a message of a schema in a registry; None if the schema has no such message.

    Args:
        schema: a FileDescriptorProto in base64, or .proto text.
        imported: what it imports, directly or not, by the names that importers use.
        path: which message, by its place in the file and then in the message around it.

    Raises:
        DescriptionError: the schema cannot be compiled.
        InputError: the package is missing.
    """
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        raise InputError("the format protobuf needs an extra: pip install 'tidegate[protobuf]'")
    from google.protobuf import descriptor_pb2

    parts = [*imported, (_REGISTERED, schema)]
    files = [_descriptor(name, text) for name, text in parts]
    known = [file for file in files if file is not None]
    if len(known) == len(parts):
        whole = descriptor_pb2.FileDescriptorSet()
        _add_well_known(whole, known)
        _add_in_order(whole, known[-1], {file.name: file for file in known})
    else:
        with tempfile.TemporaryDirectory(prefix="tidegate-proto-") as folder:
            for name, text in parts:
                target = (Path(folder) / name).resolve()
                if not target.is_relative_to(Path(folder).resolve()):
                    raise DescriptionError(f"the import {name!r} leaves the folder of schemas")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            whole = descriptor_pb2.FileDescriptorSet.FromString(_compiled(Path(folder) / _REGISTERED))
    file = next(one for one in whole.file if one.name == _REGISTERED)
    messages, names = file.message_type, [file.package] if file.package else []
    for index in path:
        if index >= len(messages):
            return None
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ProtobufDeserializer(".".join(names), whole.SerializeToString())


_REGISTERED = "registered-schema.proto"


def _descriptor(name: str, text: str) -> Any | None:
    """Return the FileDescriptorProto that a text has in base64; None for .proto text."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None
    file.name = name
    return file


def _add_in_order(whole: Any, file: Any, waiting: dict[str, Any]) -> None:
    """Add a file after those that it imports; `waiting` has all that are not added yet."""
    del waiting[file.name]
    for name in file.dependency:
        if name in waiting:
            _add_in_order(whole, waiting[name], waiting)
    whole.file.append(file)


def _add_well_known(whole: Any, files: Iterable[Any]) -> None:
    """Add the files that come with protobuf itself and that files import, each after those that it imports."""
    from google.protobuf import descriptor_pb2

    for file in files:
        for name in file.dependency:
            path = name.removesuffix(".proto").replace("/", ".") + "_pb2"
            if not name.startswith("google/protobuf/") or any(one.name == name for one in whole.file):
                continue
            if importlib.util.find_spec(path) is None:
                raise DescriptionError(f"the import {name!r} is not among the references")
            found = descriptor_pb2.FileDescriptorProto()
            importlib.import_module(path).DESCRIPTOR.CopyToProto(found)
            _add_well_known(whole, [found])
            whole.file.append(found)


def _names(descriptors: bytes) -> str:
    from google.protobuf import descriptor_pb2

    names = [
        ".".join(filter(None, (file.package, message.name)))
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
        for message in file.message_type
    ]
    return f"there are {', '.join(names[:20])}"


def _messages(body: bytes, prefix: MessagePrefix) -> Iterator[bytes]:
    if prefix is MessagePrefix.NONE:
        yield body
        return
    place = 0
    while place < len(body):
        size, place = _size(body, place, prefix)
        if place + size > len(body):
            raise ValueError(f"a message of {size:,} bytes at byte {place:,} is cut off")
        yield body[place : place + size]
        place += size


def _size(body: bytes, place: int, prefix: MessagePrefix) -> tuple[int, int]:
    """Return the length that is at a place, and where it ends."""
    match prefix:
        case MessagePrefix.FIXED32:
            if place + 4 > len(body):
                raise ValueError(f"the length at byte {place:,} is cut off")
            return int.from_bytes(body[place : place + 4], "little"), place + 4
        case MessagePrefix.BASE128:
            size = 0
            for number, digit in enumerate(body[place : place + _LONGEST_VARINT]):
                size |= (digit & 0x7F) << 7 * number
                if digit < 0x80:
                    return size, place + number + 1
            raise ValueError(f"the length at byte {place:,} is cut off")
        case MessagePrefix.NONE:
            raise AssertionError(prefix)
    assert_never(prefix)


class _Reader:
    """Reads messages of one type."""

    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor

    @cached_property
    def _fields(self) -> list[tuple[str, bool, Callable[[Any], Any]]]:
        """The name of each field, whether it can be absent, and what reads it."""
        return [(one.name, one.has_presence, _reader_of(one)) for one in self._descriptor.fields]

    def __call__(self, message: Any) -> dict[str, Any]:
        return {
            name: None if optional and not message.HasField(name) else read(getattr(message, name))
            for name, optional, read in self._fields
        }


def _holds_more(content: bytes, descriptor: Any, most: int) -> bool:
    """Return whether a message would be more values than that as a record, before it is parsed.

    A message inside takes two bytes, and becomes an object of some hundred bytes and a record with all fields of its
    type, whether they are set or not. What is not such a message is for the parser to refuse.
    """
    if len(content) * _largest_type(descriptor) <= most:
        return False
    count, waiting = len(descriptor.fields), [(descriptor, 0, len(content))]
    while waiting:
        type_, place, end = waiting.pop()
        fields = _wire_fields(type_)
        while place < end:
            if count > most:
                return True
            tag, place = _varint(content, place, end)
            known, size = fields.get(tag >> 3), _WIRE_SIZES.get(tag & 7, 0)
            start = place
            if tag & 7 == _VARINT:
                _, place = _varint(content, place, end)
            elif tag & 7 == _LENGTH:
                size, start = _varint(content, place, end)
                place = start + size
            else:
                # The fields of a group are counted like those of the message around it.
                place += size
            if known is None:
                continue
            inner, packed_bytes = known
            if inner is not None and tag & 7 == _LENGTH:
                count += 1 + len(inner.fields)
                waiting.append((inner, start, min(place, end)))
            elif packed_bytes is not None and tag & 7 == _LENGTH:
                count += _packed_count(content[start:place], packed_bytes)
            else:
                count += 1
    return count > most


@lru_cache(maxsize=256)
def _wire_fields(descriptor: Any) -> dict[int, tuple[Any, int | None]]:
    """Return of each field number the type of its messages, and how many bytes a packed value has: 0 if that varies."""
    return {
        one.number: (
            one.message_type,
            None if one.message_type is not None or not one.is_repeated else _PACKED_BYTES.get(one.type),
        )
        for one in descriptor.fields
    }


def _varint(content: bytes, place: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while place < end:
        digit = content[place]
        place += 1
        value |= (digit & 0x7F) << shift
        if digit < 0x80:
            return value, place
        shift += 7
        if shift > 7 * _LONGEST_VARINT:
            break
    return value, end


def _packed_count(content: bytes, size: int) -> int:
    return len(content) // size if size else sum(content.translate(_VARINT_ENDS))


@lru_cache(maxsize=256)
def _largest_type(descriptor: Any) -> int:
    """Return the most fields that a type has which a message of this one may contain."""
    seen = {descriptor.full_name: descriptor}
    waiting = [descriptor]
    while waiting:
        inner = [one.message_type for one in waiting.pop().fields if one.message_type is not None]
        new = [one for one in inner if one.full_name not in seen]
        seen |= {one.full_name: one for one in new}
        waiting += new
    return max(len(one.fields) for one in seen.values()) + 1


def _reader_of(field_: Any) -> Callable[[Any], Any]:
    if field_.message_type is not None and field_.message_type.GetOptions().map_entry:
        value = _value_reader(field_.message_type.fields_by_name["value"])
        return lambda entries: {_key(key): value(entries[key]) for key in entries}
    read = _value_reader(field_)
    return (lambda items: [read(item) for item in items]) if field_.is_repeated else read


def _key(key: Any) -> str:
    return ("true" if key else "false") if isinstance(key, bool) else str(key)


def _value_reader(field_: Any) -> Callable[[Any], Any]:
    if field_.message_type is not None:
        known = _KNOWN.get(field_.message_type.full_name)
        return known if known is not None else _Reader(field_.message_type)
    if field_.enum_type is not None:
        names = {value.number: value.name for value in field_.enum_type.values}
        return lambda number: names.get(number, number)
    if field_.type == field_.TYPE_BYTES:
        return _base64
    if field_.type in (field_.TYPE_UINT64, field_.TYPE_FIXED64):
        return _unsigned
    return _same


def _same(value: Any) -> Any:
    return value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _unsigned(value: int) -> int | float:
    return value if value <= _MOST_BIGINT else float(value)


def _json(value: Any) -> Any:
    from google.protobuf import json_format

    return json_format.MessageToDict(value, preserving_proto_field_name=True)


def _wrapped(value: Any) -> Any:
    return _base64(value.value) if isinstance(value.value, bytes) else value.value


_KNOWN: dict[str, Callable[[Any], Any]] = {
    "google.protobuf.Timestamp": lambda value: value.ToJsonString(),
    "google.protobuf.Duration": lambda value: value.seconds + value.nanos / _NANOSECONDS,
    **dict.fromkeys((f"google.protobuf.{one}" for one in ("Struct", "Value", "ListValue", "FieldMask")), _json),
    **dict.fromkeys(
        (
            f"google.protobuf.{one}Value"
            for one in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
        ),
        _wrapped,
    ),
}
