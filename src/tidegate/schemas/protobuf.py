"""Schemas of Protocol Buffers: as text or as a descriptor, and whether one can read what another wrote.

On the wire a field is its number and its wire type, so names are free and so is most of what is added or removed. What
breaks a reader: a field whose type is written otherwise (int32, uint32, int64, uint64, bool and enums share an
encoding; sint32 and sint64; fixed32 and sfixed32; fixed64 and sfixed64; string and bytes), another message in its
place, a message that is gone, a numeric or message field that becomes repeated or ceases to be, a required field that
is added or removed, and a field that is moved into a oneof with others, where only the last one survives.

Confluent's clients for Java send .proto text, the one for Python a FileDescriptorProto in base64. Both are accepted,
and either is given to either: `identity` and `as_descriptor` work on descriptors, `as_text` prints one. The package
protobuf (and grpcio-tools, for text) is needed, which the extra `protobuf` installs.

Sources: "Updating A Message Type" and "Encoding" of the Protocol Buffers documentation; the rules of Confluent's
documentation "Schema Evolution and Compatibility", section Protobuf.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from tidegate.schemas.schema import MAX_SCHEMA_BYTES, SchemaError

_COMPILED_WITHIN_S = 60
_FILE = "schema.proto"
_TYPES = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
    12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
"""Of FieldDescriptorProto.Type: the scalar types."""
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_ENCODINGS = {
    **dict.fromkeys((5, 13, 3, 4, 8, 14), "varint"),
    **dict.fromkeys((17, 18), "zigzag"),
    **dict.fromkeys((7, 15), "fixed32"),
    **dict.fromkeys((6, 16), "fixed64"),
    **dict.fromkeys((9, 12), "text"),
    1: "double",
    2: "float",
}
_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3
_LABELS = {_OPTIONAL: "optional", _REQUIRED: "required", _REPEATED: "repeated"}


def identity(text: str, imported: Mapping[str, str]) -> str:
    """Return the descriptor without what only layout decides, in base64. Raises SchemaError."""
    return as_descriptor(text, imported)


def as_descriptor(text: str, imported: Mapping[str, str]) -> str:
    """Return a FileDescriptorProto in base64, as Confluent's client for Python has schemas. Raises SchemaError."""
    plain = _plain(_file(text, imported))
    return base64.b64encode(plain.SerializeToString(deterministic=True)).decode()


def as_text(text: str, imported: Mapping[str, str]) -> str:
    """Return a schema as .proto text. Raises SchemaError."""
    return "\n".join(_printed_file(_file(text, imported))) + "\n" if _decoded(text) is not None else text


def _file(text: str, imported: Mapping[str, str]) -> Any:
    if len(text) > MAX_SCHEMA_BYTES:
        raise SchemaError(f"a schema has at most {MAX_SCHEMA_BYTES} characters, this one {len(text)}")
    try:
        return _parsed(text, tuple(sorted(imported.items())))
    except RecursionError:
        raise SchemaError("the imports of the schema lead in a circle") from None


@lru_cache(maxsize=256)
def _parsed(text: str, imported: tuple[tuple[str, str], ...]) -> Any:
    """Return the FileDescriptorProto of a schema, checked."""
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        raise SchemaError("schemas of Protobuf need an extra on the hub: pip install 'tidegate[protobuf]'")
    from google.protobuf import descriptor_pool

    decoded = _decoded(text)
    file = _compiled(text, dict(imported)) if decoded is None else decoded
    if decoded is not None:
        pool = descriptor_pool.DescriptorPool()
        try:
            _add_imports(pool, file, dict(imported), set())
            pool.Add(file)
            pool.FindFileByName(file.name)
        except (TypeError, KeyError) as error:
            raise SchemaError(f"the descriptor is not valid: {error}") from None
    return file


def _decoded(text: str) -> Any | None:
    """Return the descriptor that a text has in base64, None for any other text."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    if not (file.message_type or file.enum_type or file.service or file.dependency):
        return None
    file.name = file.name or _FILE
    return file


def _add_imports(pool: Any, file: Any, imported: Mapping[str, str], added: set[str]) -> None:
    """Put the files that a descriptor imports into a pool. Raises SchemaError, TypeError."""
    for name in file.dependency:
        if name in added:
            continue
        added.add(name)
        if name in imported:
            part = _parsed(imported[name], tuple(sorted(imported.items())))
            copy = type(part)()
            copy.CopyFrom(part)
            copy.name = name
        else:
            copy = _well_known(name)
        _add_imports(pool, copy, imported, added)
        pool.Add(copy)


def _well_known(name: str) -> Any:
    """Return a file that comes with protobuf itself. Raises SchemaError."""
    from google.protobuf import descriptor_pb2

    path = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if not name.startswith("google/protobuf/") or importlib.util.find_spec(path) is None:
        raise SchemaError(f"the import {name!r} is not among the references")
    found = descriptor_pb2.FileDescriptorProto()
    importlib.import_module(path).DESCRIPTOR.CopyToProto(found)
    return found


def _compiled(text: str, imported: Mapping[str, str]) -> Any:
    """Return the descriptor of .proto text."""
    from google.protobuf import descriptor_pb2

    try:
        from grpc_tools import protoc
    except ImportError:
        raise SchemaError("schemas in .proto text need an extra on the hub: pip install 'tidegate[protobuf]'") from None
    with tempfile.TemporaryDirectory(prefix="tidegate-schema-") as folder:
        root = Path(folder)
        (root / _FILE).write_text(text, encoding="utf-8")
        for name, part in imported.items():
            target = (root / name).resolve()
            if not target.is_relative_to(root.resolve()):
                raise SchemaError(f"the import {name!r} leaves the folder of schemas")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(as_text(part, imported), encoding="utf-8")
        included = Path(protoc.__file__).parent / "_proto"
        options = [f"--proto_path={root}", f"--proto_path={included}", f"--descriptor_set_out={root / 'set'}"]
        # In a process of its own, because it writes what is wrong to standard error.
        command = [sys.executable, protoc.__file__, *options, _FILE]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILED_WITHIN_S, check=False)
        except subprocess.TimeoutExpired:
            raise SchemaError("the .proto text takes too long to compile") from None
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith(f"{_FILE}:")] or [done.stderr.strip()]
            raise SchemaError("; ".join(said)[:500])
        return descriptor_pb2.FileDescriptorSet.FromString((root / "set").read_bytes()).file[0]


def _plain(file: Any) -> Any:
    """Return a copy without source positions, the file's name, and names for JSON that follow from the others."""
    copy = type(file)()
    copy.CopyFrom(file)
    copy.name = _FILE
    copy.ClearField("source_code_info")
    for message, _ in _messages(copy):
        for field in [*message.field, *message.extension]:
            if field.json_name == _json_name(field.name):
                field.ClearField("json_name")
    return copy


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _messages(file: Any) -> Iterator[tuple[Any, str]]:
    """Yield each message with its full name."""
    waiting = [(message, f".{file.package}" if file.package else "") for message in file.message_type]
    while waiting:
        message, scope = waiting.pop(0)
        name = f"{scope}.{message.name}"
        yield message, name
        waiting += [(nested, name) for nested in message.nested_type]


# -- evolution


def differences(
    reader: str, reader_imports: Mapping[str, str], writer: str, writer_imports: Mapping[str, str]
) -> list[str]:
    """Return why messages of one schema cannot be read with another. Raises SchemaError."""
    now, before = _file(reader, reader_imports), _file(writer, writer_imports)
    # a package that is renamed changes nothing on the wire
    current = {name.removeprefix(f".{now.package}"): message for message, name in _messages(now)}
    found = []
    for message, full in _messages(before):
        name = full.removeprefix(f".{before.package}")
        if message.options.map_entry:
            continue
        if name not in current:
            found.append(f"MESSAGE_REMOVED at {name.removeprefix('.')}")
        else:
            found += _Messages(current[name], now.package, message, before.package, name.removeprefix(".")).reasons()
    return found


class _Messages:
    """Two versions of a message."""

    def __init__(self, now: Any, package: str, before: Any, former_package: str, name: str) -> None:
        self._now, self._before, self._name = now, before, name
        self._packages = (package, former_package)
        self._fields = {field.number: field for field in now.field}
        self._former = {field.number: field for field in before.field}

    def reasons(self) -> list[str]:
        """Return what a reader of the new version cannot read."""
        found = []
        for number, field in self._fields.items():
            former = self._former.get(number)
            if former is not None:
                found += self._field(field, former)
            elif field.label == _REQUIRED:
                found.append(f"REQUIRED_FIELD_ADDED at {self._name}.{field.name}")
        found += [
            f"REQUIRED_FIELD_REMOVED at {self._name}.{former.name}"
            for number, former in self._former.items()
            if former.label == _REQUIRED and number not in self._fields
        ]
        return found + self._oneofs()

    def _field(self, field: Any, former: Any) -> list[str]:
        place = f"{self._name}.{field.name} ({field.number})"
        if (field.type in (_GROUP, _MESSAGE)) != (former.type in (_GROUP, _MESSAGE)):
            return [f"FIELD_KIND_CHANGED at {place}: {_type_name(former)} became {_type_name(field)}"]
        if field.type in (_GROUP, _MESSAGE):
            return self._message_field(field, former, place)
        found = []
        if _ENCODINGS[field.type] != _ENCODINGS[former.type]:
            found.append(f"FIELD_SCALAR_KIND_CHANGED at {place}: {_type_name(former)} became {_type_name(field)}")
        elif (field.label == _REPEATED) != (former.label == _REPEATED) and _ENCODINGS[field.type] != "text":
            found.append(
                f"FIELD_NUMERIC_LABEL_CHANGED at {place}: {_LABELS[former.label]} became {_LABELS[field.label]}"
            )
        if (field.label == _REQUIRED) and (former.label != _REQUIRED):
            found.append(f"REQUIRED_FIELD_ADDED at {place}")
        return found

    def _message_field(self, field: Any, former: Any, place: str) -> list[str]:
        name, former_name = (
            one.type_name.removeprefix(f".{package}") if package else one.type_name
            for one, package in zip((field, former), self._packages, strict=True)
        )
        entries, former_entries = _map_of(self._now, field), _map_of(self._before, former)
        if entries is not None and former_entries is not None:
            return _Messages(entries, self._packages[0], former_entries, self._packages[1], place).reasons()
        if field.type != former.type or entries is not former_entries or name != former_name:
            return [f"FIELD_NAMED_TYPE_CHANGED at {place}: {former.type_name} became {field.type_name}"]
        if (field.label == _REPEATED) != (former.label == _REPEATED):
            return [f"FIELD_MESSAGE_LABEL_CHANGED at {place}: {_LABELS[former.label]} became {_LABELS[field.label]}"]
        return []

    def _oneofs(self) -> list[str]:
        found = []
        former_of = _oneof_members(self._before)
        for name, numbers in _oneof_members(self._now).items():
            former = former_of.get(name, set())
            moved = {number for number in numbers - former if number in self._former}
            if former and moved:
                found.append(f"FIELD_MOVED_TO_EXISTING_ONEOF at {self._name}.{name}")
            elif len(moved) > 1 and not any(moved <= others for others in former_of.values()):
                found.append(f"MULTIPLE_FIELDS_MOVED_TO_ONEOF at {self._name}.{name}")
            if former - set(self._fields):
                found.append(f"ONEOF_FIELD_REMOVED at {self._name}.{name}")
        return found


def _map_of(message: Any, field: Any) -> Any | None:
    """Return the entries' message of a map field."""
    short = field.type_name.rpartition(".")[2]
    return next((one for one in message.nested_type if one.options.map_entry and one.name == short), None)


def _oneof_members(message: Any) -> dict[str, set[int]]:
    """Return the numbers of the fields of each oneof that someone wrote; `optional` in proto3 makes one of its own."""
    found: dict[str, set[int]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            found.setdefault(message.oneof_decl[field.oneof_index].name, set()).add(field.number)
    return found


def _type_name(field: Any) -> str:
    return _TYPES.get(field.type) or str(field.type_name).removeprefix(".")


# -- text


def _printed_file(file: Any) -> Iterator[str]:
    yield f'syntax = "{file.syntax or "proto2"}";'
    if file.package:
        yield f"package {file.package};"
    for number, name in enumerate(file.dependency):
        kind = "public " if number in file.public_dependency else "weak " if number in file.weak_dependency else ""
        yield f'import {kind}"{name}";'
    yield from _options(file.options)
    is_proto3 = file.syntax == "proto3"
    for enum in file.enum_type:
        yield from _printed_enum(enum, "")
    for message in file.message_type:
        yield from _printed_message(message, "", is_proto3)
    for field in file.extension:
        yield f"extend {field.extendee} {{ {_printed_field(field, None, is_proto3)} }}"
    for service in file.service:
        yield f"service {service.name} {{"
        for method in service.method:
            given = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            returned = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            yield f"  rpc {method.name} ({given}) returns ({returned});"
        yield "}"


def _printed_message(message: Any, indent: str, is_proto3: bool) -> Iterator[str]:
    yield f"{indent}message {message.name} {{"
    inner = f"{indent}  "
    for option in _options(message.options):
        yield inner + option
    for enum in message.enum_type:
        yield from _printed_enum(enum, inner)
    for nested in message.nested_type:
        if not nested.options.map_entry:
            yield from _printed_message(nested, inner, is_proto3)
    done: set[int] = set()
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            if field.oneof_index not in done:
                done.add(field.oneof_index)
                yield f"{inner}oneof {message.oneof_decl[field.oneof_index].name} {{"
                for one in message.field:
                    if one.HasField("oneof_index") and one.oneof_index == field.oneof_index:
                        yield f"{inner}  {_printed_field(one, message, is_proto3, in_oneof=True)}"
                yield f"{inner}}}"
        else:
            yield inner + _printed_field(field, message, is_proto3)
    for one in message.extension_range:
        yield f"{inner}extensions {one.start} to {one.end - 1};"
    for one in message.reserved_range:
        yield f"{inner}reserved {one.start} to {one.end - 1};"
    if message.reserved_name:
        yield f"{inner}reserved {', '.join(_quoted(name) for name in message.reserved_name)};"
    for field in message.extension:
        yield f"{inner}extend {field.extendee} {{ {_printed_field(field, None, is_proto3)} }}"
    yield f"{indent}}}"


def _printed_enum(enum: Any, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    for option in _options(enum.options):
        yield f"{indent}  {option}"
    for value in enum.value:
        yield f"{indent}  {value.name} = {value.number};"
    for one in enum.reserved_range:
        yield f"{indent}  reserved {one.start} to {one.end};"
    if enum.reserved_name:
        yield f"{indent}  reserved {', '.join(_quoted(name) for name in enum.reserved_name)};"
    yield f"{indent}}}"


def _printed_field(field: Any, message: Any | None, is_proto3: bool, *, in_oneof: bool = False) -> str:
    entries = None if message is None else _map_of(message, field)
    if entries is not None:
        key, value = (_TYPES.get(one.type) or one.type_name for one in entries.field)
        return f"map<{key}, {value}> {field.name} = {field.number};"
    label = f"{_LABELS[field.label]} "
    if in_oneof or (is_proto3 and field.label == _OPTIONAL and not field.proto3_optional):
        label = ""
    options = [option.removeprefix("option ").removesuffix(";") for option in _options(field.options)]
    if field.HasField("default_value"):
        is_text = _ENCODINGS.get(field.type) == "text"
        options.append(f"default = {_quoted(field.default_value) if is_text else field.default_value}")
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        options.append(f"json_name = {_quoted(field.json_name)}")
    suffix = f" [{', '.join(options)}]" if options else ""
    return f"{label}{_TYPES.get(field.type) or field.type_name} {field.name} = {field.number}{suffix};"


def _options(options: Any) -> Iterator[str]:
    """Print the options that protobuf itself defines and that have one value; map_entry follows from the field."""
    for descriptor, value in options.ListFields():
        if descriptor.is_extension or descriptor.name in ("map_entry", "uninterpreted_option", "features"):
            continue
        if descriptor.type == descriptor.TYPE_STRING:
            yield f"option {descriptor.name} = {_quoted(value)};"
        elif descriptor.type == descriptor.TYPE_BOOL:
            yield f"option {descriptor.name} = {'true' if value else 'false'};"
        elif descriptor.type == descriptor.TYPE_ENUM and not isinstance(value, str | bytes) and hasattr(value, "real"):
            yield f"option {descriptor.name} = {descriptor.enum_type.values_by_number[value].name};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
