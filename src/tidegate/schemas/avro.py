"""Avro schemas: parsing, and whether data written with one can be read with another.

The theory is the specification's "Schema Resolution". A reader and a writer are compared node by node. Where both are
of the same kind, their parts must resolve; a few primitive types can be promoted (int to long, float or double, long to
float or double, float to double, string and bytes to each other). A writer's union resolves if each of its branches
does, a reader's if one of its branches takes the writer. Named types resolve if their unqualified names are equal, or
an alias of the reader is the writer's name. A field that only the reader has needs a default, a symbol that only the
writer has needs a default of the reader's enum. Recursive types are compared once: a pair that is being compared is
taken to resolve, which is sound because any reason against it is found where it occurs.

Source: Apache Avro 1.12 specification, https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.schemas.schema import ComparisonBudget, SchemaError, parse_json

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""Which writers' types a reader's primitive type takes beside itself."""

_ABOVE = {"int": 1 << 31, "long": 1 << 63}


@dataclass(eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    has_default: bool
    aliases: tuple[str, ...]


@dataclass(eq=False)
class AvroType:
    """A node of a schema. Which attributes count depends on its kind; named types can occur below themselves."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0
    branches: list[AvroType] = field(default_factory=list)
    """Of a union; the items of an array and the values of a map are the only one."""

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.name or self.kind


def parse(text: str, imported: Mapping[str, str]) -> AvroType:
    """Return the type that a text describes.

    Args:
        text: The schema.
        imported: The schemas that define named types which it uses.

    Raises:
        SchemaError: It is no schema of Avro.
    """
    return _Parser(imported).parse_text(text)


def identity(text: str, imported: Mapping[str, str]) -> str:
    """Return the schema without what only layout decides. Raises SchemaError."""
    parse(text, imported)
    return json.dumps(_plain(parse_json(text)), separators=(",", ":"), sort_keys=True)


def _plain(node: Any) -> Any:
    """Write `{"type": "int"}` as `"int"`, everywhere."""
    if isinstance(node, list):
        return [_plain(part) for part in node]
    if not isinstance(node, dict):
        return node
    if set(node) == {"type"}:
        return _plain(node["type"])
    return {key: _plain(value) if key in _WITH_TYPES else value for key, value in node.items()}


_WITH_TYPES = ("type", "fields", "items", "values")


class _Parser:
    def __init__(self, imported: Mapping[str, str]) -> None:
        self._imported = imported
        self._named: dict[str, AvroType] = {}
        self._importing: set[str] = set()
        self._budget = ComparisonBudget()

    def parse_text(self, text: str) -> AvroType:
        return self._type(parse_json(text), "")

    def _type(self, node: Any, namespace: str) -> AvroType:
        if isinstance(node, str):
            return AvroType(node) if node in PRIMITIVES else self._known(node, namespace)
        if isinstance(node, list):
            return self._union(node, namespace)
        if not isinstance(node, dict):
            raise SchemaError(f"expected a type, got {json.dumps(node)[:60]}")
        kind = node.get("type")
        if isinstance(kind, dict | list):
            return self._type(kind, namespace)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(kind, node, namespace)
        if kind == "array":
            return AvroType("array", branches=[self._part(node, "items", namespace)])
        if kind == "map":
            return AvroType("map", branches=[self._part(node, "values", namespace)])
        if not isinstance(kind, str):
            raise SchemaError(f"a type is missing in {json.dumps(node)[:60]}")
        return self._type(kind, namespace)

    def _part(self, node: dict[str, Any], name: str, namespace: str) -> AvroType:
        if name not in node:
            raise SchemaError(f"the {node['type']} has no {name}")
        return self._type(node[name], namespace)

    def _known(self, name: str, namespace: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate not in self._named:
                self._import(candidate)
            if candidate in self._named:
                return self._named[candidate]
        raise SchemaError(f"the type {full!r} is not defined")

    def _import(self, name: str) -> None:
        if name in self._imported and name not in self._importing:
            self._importing.add(name)
            self._type(parse_json(self._imported[name]), "")

    def _union(self, nodes: list[Any], namespace: str) -> AvroType:
        branches = [self._type(node, namespace) for node in nodes]
        labels = [branch.label for branch in branches]
        if "union" in labels:
            raise SchemaError("a union cannot contain a union directly")
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise SchemaError(f"a union has {twice!r} twice")
        return AvroType("union", branches=branches)

    def _definition(self, kind: str, node: dict[str, Any], namespace: str) -> AvroType:
        name = node.get("name")
        if not isinstance(name, str) or not all(_NAME.fullmatch(part) for part in name.split(".")):
            raise SchemaError(f"the {kind} has no valid name: {name!r}")
        space = name.rpartition(".")[0] if "." in name else node.get("namespace", namespace)
        if not isinstance(space, str) or (space and not all(_NAME.fullmatch(part) for part in space.split("."))):
            raise SchemaError(f"the namespace of {name!r} is not valid: {space!r}")
        short = name.rpartition(".")[2]
        full = f"{space}.{short}" if space else short
        if full in self._named:
            raise SchemaError(f"the type {full!r} is defined twice")
        aliases = tuple(
            alias if "." in alias or not space else f"{space}.{alias}" for alias in _texts(node, "aliases", full)
        )
        found = AvroType("record" if kind == "error" else kind, full, aliases)
        self._named[full] = found
        if kind == "enum":
            self._fill_enum(found, node)
        elif kind == "fixed":
            size = node.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise SchemaError(f"the size of fixed {full!r} must be a number of bytes, not {size!r}")
            found.size = size
        else:
            self._fill_record(found, node, space)
        return found

    def _fill_enum(self, found: AvroType, node: dict[str, Any]) -> None:
        symbols = _texts(node, "symbols", found.name)
        if "symbols" not in node or len(set(symbols)) != len(symbols) or not all(map(_NAME.fullmatch, symbols)):
            raise SchemaError(f"the symbols of enum {found.name!r} must be different names")
        default = node.get("default")
        if default is not None and default not in symbols:
            raise SchemaError(f"the default of enum {found.name!r} is none of its symbols: {default!r}")
        found.symbols, found.default_symbol = tuple(symbols), default

    def _fill_record(self, found: AvroType, node: dict[str, Any], namespace: str) -> None:
        given = node.get("fields")
        if not isinstance(given, list):
            raise SchemaError(f"the record {found.name!r} has no list of fields")
        names = set()
        for one in given:
            name = one.get("name") if isinstance(one, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name) or "type" not in one:
                raise SchemaError(f"a field of {found.name!r} has no valid name and type: {json.dumps(one)[:60]}")
            if name in names:
                raise SchemaError(f"the record {found.name!r} has the field {name!r} twice")
            names.add(name)
            kind = self._type(one["type"], namespace)
            if "default" in one and not self._is_value(one["default"], kind):
                value = json.dumps(one["default"])[:60]
                raise SchemaError(f"the default of {found.name}.{name} is no {kind.label}: {value}")
            found.fields.append(AvroField(name, kind, "default" in one, tuple(_texts(one, "aliases", name))))

    def _is_value(self, value: Any, kind: AvroType) -> bool:
        """Return whether a JSON value is a default of a type; of a union, as of 1.12, any branch may have it."""
        self._budget.spend()
        match kind.kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "int" | "long":
                return type(value) is int and -_ABOVE[kind.kind] <= value < _ABOVE[kind.kind]
            case "float" | "double":
                return type(value) in (int, float) or value in ("NaN", "INF", "-INF")
            case "string" | "bytes" | "fixed":
                return isinstance(value, str)
            case "enum":
                return value in kind.symbols
            case "array":
                return isinstance(value, list) and all(self._is_value(item, kind.branches[0]) for item in value)
            case "map":
                if not isinstance(value, dict):
                    return False
                return all(self._is_value(item, kind.branches[0]) for item in value.values())
            case "union":
                return any(self._is_value(value, branch) for branch in kind.branches)
            case _:
                return isinstance(value, dict) and all(
                    self._is_value(value[one.name], one.type) if one.name in value else one.has_default
                    for one in kind.fields
                )


def _texts(node: dict[str, Any], key: str, owner: str) -> list[str]:
    values = node.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise SchemaError(f"the {key} of {owner!r} must be a list of names")
    return values


# -- resolution


def differences(
    reader: str, reader_imports: Mapping[str, str], writer: str, writer_imports: Mapping[str, str]
) -> list[str]:
    """Return why data written with one schema cannot be read with another. Raises SchemaError."""
    try:
        return _Resolution().reasons(parse(reader, reader_imports), parse(writer, writer_imports), "")
    except RecursionError:
        raise SchemaError("the schemas' types refer to each other too deeply to be compared") from None


class _Resolution:
    """One comparison. What is known of a pair of named types is kept, so that no pair is compared again and again."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[str]] = {}
        self._under_way: set[tuple[int, int]] = set()
        self._assumed: set[tuple[int, int]] = set()
        self._budget = ComparisonBudget()

    def reasons(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        """Return why a writer's type does not resolve to a reader's."""
        self._budget.spend()
        if not (reader.name and writer.name):
            return self._compare(reader, writer, path)
        pair = (id(reader), id(writer))
        if pair in self._known:
            return self._known[pair]
        if pair in self._under_way:
            self._assumed.add(pair)
            return []
        self._under_way.add(pair)
        found = self._compare(reader, writer, path)
        self._under_way.discard(pair)
        self._assumed.discard(pair)
        if found or not self._assumed:  # a success may depend on a pair that is still being compared, a failure not
            self._known[pair] = found
        return found

    def _compare(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if writer.kind == "union":
            return [reason for branch in writer.branches for reason in self.reasons(reader, branch, path)]
        if reader.kind == "union":
            tried = [self.reasons(branch, writer, path) for branch in reader.branches]
            if not all(tried):
                return []
            same = [one for branch, one in zip(reader.branches, tried, strict=True) if _is_alike(branch, writer)]
            where = path or "/"
            return same[0] if same else [f"MISSING_UNION_BRANCH at {where}: the reader's union takes no {writer.label}"]
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTIONS.get(reader.kind, ()):
                return []
            return [f"TYPE_MISMATCH at {path or '/'}: the reader has {reader.label}, the writer {writer.label}"]
        if reader.kind in ("array", "map"):
            return self.reasons(reader.branches[0], writer.branches[0], f"{path}/{reader.kind}")
        if not reader.name:
            return []
        if not _is_alike(reader, writer):
            return [f"NAME_MISMATCH at {path or '/'}: the reader has {reader.name}, the writer {writer.name}"]
        if reader.kind == "fixed":
            if reader.size == writer.size:
                return []
            return [f"FIXED_SIZE_MISMATCH at {path or '/'}: the reader has {reader.size}, the writer {writer.size}"]
        if reader.kind == "enum":
            missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
            if not missing or reader.default_symbol is not None:
                return []
            return [f"MISSING_ENUM_SYMBOLS at {path or '/'}: the reader lacks {', '.join(missing)} and has no default"]
        return self._fields(reader, writer, path)

    def _fields(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        found = []
        written = {one.name: one for one in writer.fields}
        for one in reader.fields:
            source = next((written[name] for name in (one.name, *one.aliases) if name in written), None)
            place = f"{path}/{one.name}"
            if source is not None:
                found += self.reasons(one.type, source.type, place)
            elif not one.has_default:
                found.append(f"READER_FIELD_MISSING_DEFAULT_VALUE at {place}: the writer has no such field")
        return found


def _is_alike(reader: AvroType, writer: AvroType) -> bool:
    if reader.kind != writer.kind:
        return False
    return reader.name.rpartition(".")[2] == writer.name.rpartition(".")[2] or writer.name in reader.aliases
