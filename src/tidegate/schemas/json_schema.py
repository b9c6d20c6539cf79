"""JSON Schemas: whether every document that is valid under one is valid under another.

A schema denotes a set of documents. A reader can read what a writer wrote if the writer's set lies within the reader's.
That is undecidable in practice (patterns, negations), so it is proved by structure, and what cannot be proved counts as
a difference. Each keyword of the reader must follow from the writer:

- Types: the writer's lie among the reader's; an integer is a number. Bounds of numbers, lengths and counts: those of
  the writer are at least as tight. `pattern`, `contains`, `not` and others that are opaque: equal.
- Objects: a property that the reader describes takes its schema from the writer's `properties`, matching
  `patternProperties` or `additionalProperties`, in this order. So a property can be added to a closed content model,
  and not to an open one, where earlier documents may have anything under its name. It can be removed from an open one.
  What the reader requires the writer must require, unless the reader has a default for it.
- Arrays: item by item, then the remaining items.
- `enum` and `const`: each value of the writer is checked against the reader.
- `allOf` of the reader: all of its parts; `anyOf` and `oneOf`: one of them. A writer's alternatives must each lie
  within the reader. That `oneOf` means exactly one is not considered: alternatives are taken to be disjoint.

Sources: JSON Schema draft 7 and 2020-12 (https://json-schema.org/specification); the content models of Confluent's
documentation "JSON Schema Serializer and Deserializer".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag

from tidegate.schemas.schema import ComparisonBudget, SchemaError, parse_json

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_OPAQUE = ("pattern", "contains", "propertyNames", "dependencies", "dependentRequired", "dependentSchemas", "not", "if")
"""Keywords that are compared as a whole, with the type they concern."""
_AT_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains")
_AT_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains")
_CONCERNS = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"), "number"),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), "string"),
    **dict.fromkeys(("minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains"), "array"),
    **dict.fromkeys(
        ("minProperties", "maxProperties", "propertyNames", "dependencies", "dependentRequired", "dependentSchemas"),
        "object",
    ),
}
_UNTRIED = {
    **{key: kind for key, kind in _CONCERNS.items() if key in (*_OPAQUE, "multipleOf", "uniqueItems")},
    **dict.fromkeys(("properties", "patternProperties", "additionalProperties", "required"), "object"),
    **dict.fromkeys(("items", "prefixItems", "additionalItems"), "array"),
}
"""Keywords by which no single value is checked, with the type they concern."""
_SUBSCHEMAS = (
    "items",
    "additionalItems",
    "contains",
    "additionalProperties",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def parse(text: str, imported: Mapping[str, str]) -> Any:
    """Return the document of a schema. Raises SchemaError."""
    document = parse_json(text)
    _check(document, "#")
    _Scope(document, imported).check_references(document)
    return document


def identity(text: str, imported: Mapping[str, str]) -> str:
    """Return the schema without what only layout decides. Raises SchemaError."""
    return json.dumps(parse(text, imported), separators=(",", ":"), sort_keys=True)


def _check(node: Any, path: str) -> None:
    """Raise SchemaError where a keyword has a value that it cannot have."""
    if isinstance(node, bool):
        return
    if not isinstance(node, dict):
        raise SchemaError(f"{path}: a schema is an object or a boolean, not {json.dumps(node)[:60]}")
    types = node.get("type", [])
    for one in types if isinstance(types, list) else [types]:
        if one not in _TYPES:
            raise SchemaError(f"{path}: there is no type {json.dumps(one)[:60]}")
    for keyword, is_valid in _VALUES.items():
        if keyword in node and not is_valid(node[keyword]):
            raise SchemaError(f"{path}/{keyword}: {json.dumps(node[keyword])[:60]} is not possible")
    for keyword in _SUBSCHEMAS:
        if keyword in node and not (keyword == "items" and isinstance(node[keyword], list)):
            _check(node[keyword], f"{path}/{keyword}")
    for keyword in (*_LISTS, "items"):
        if isinstance(node.get(keyword), list):
            for number, part in enumerate(node[keyword]):
                _check(part, f"{path}/{keyword}/{number}")
    for keyword in _MAPS:
        for name, part in node.get(keyword, {}).items():
            _check(part, f"{path}/{keyword}/{name}")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or value.is_integer()


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and _is_whole(value)


def _is_pattern(value: Any) -> bool:
    return isinstance(value, str) and len(value) < 10_000


_VALUES: Mapping[str, Callable[[Any], bool]] = {
    "enum": lambda value: isinstance(value, list),
    "required": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "$ref": lambda value: isinstance(value, str),
    "pattern": _is_pattern,
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "minimum": _is_number,
    "maximum": _is_number,
    **dict.fromkeys((*_LISTS,), lambda value: isinstance(value, list) and bool(value)),
    **dict.fromkeys(_MAPS, lambda value: isinstance(value, dict)),
    **dict.fromkeys(
        (
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minContains",
            "maxContains",
        ),
        _is_count,
    ),
}


class _Scope:
    """Where references of a schema lead."""

    def __init__(self, document: Any, imported: Mapping[str, str]) -> None:
        self._document = document
        self._imported = imported
        self._parsed: dict[str, Any] = {}

    def resolve(self, node: Any) -> Any:
        """Follow references until there is none. Raises SchemaError."""
        for _ in range(100):
            if not isinstance(node, dict) or "$ref" not in node:
                return node
            target = self._target(node["$ref"])
            others = {key: value for key, value in node.items() if key != "$ref" and key in _MEANINGFUL}
            node = {"allOf": [target, others]} if others else target
        raise SchemaError("references lead in a circle")

    def _target(self, reference: str) -> Any:
        base, fragment = urldefrag(reference)
        node: Any = self._document
        if base and base != (self._document.get("$id") if isinstance(self._document, dict) else None):
            node = self._import(base)
        for step in fragment.removeprefix("/").split("/") if fragment else ():
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and step in node:
                node = node[step]
            elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            else:
                raise SchemaError(f"the reference {reference!r} leads nowhere")
        return node

    def _import(self, name: str) -> Any:
        if name not in self._imported:
            raise SchemaError(f"the schema {name!r} is not among the references")
        if name not in self._parsed:
            self._parsed[name] = parse_json(self._imported[name])
        return self._parsed[name]

    def check_references(self, node: Any) -> None:
        """Raise SchemaError for a reference that leads nowhere."""
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict):
                if isinstance(one.get("$ref"), str):
                    self._target(one["$ref"])
                waiting += [value for key, value in one.items() if key not in ("enum", "const", "default", "examples")]
            elif isinstance(one, list):
                waiting += one


def differences(
    reader: str, reader_imports: Mapping[str, str], writer: str, writer_imports: Mapping[str, str]
) -> list[str]:
    """Return why documents of one schema may be invalid under another. Raises SchemaError."""
    reader_root, writer_root = parse(reader, reader_imports), parse(writer, writer_imports)
    comparison = _Inclusion(_Scope(reader_root, reader_imports), _Scope(writer_root, writer_imports))
    try:
        return comparison.reasons(reader_root, writer_root, "#")
    except (RecursionError, OverflowError):
        raise SchemaError("the schemas are nested too deeply, or have too large numbers, to be compared") from None


class _Inclusion:
    """Whether documents of the writer's schemas are valid under the reader's."""

    def __init__(self, reader: _Scope, writer: _Scope) -> None:
        self._reader, self._writer = reader, writer
        self._known: dict[tuple[int, int], list[str]] = {}
        self._under_way: set[tuple[int, int]] = set()
        self._assumed: set[tuple[int, int]] = set()
        self._kept: list[Any] = []
        self._budget = ComparisonBudget()

    def reasons(self, reader: Any, writer: Any, path: str) -> list[str]:
        """Return what the reader demands that the writer does not promise."""
        self._budget.spend()
        reader, writer = self._reader.resolve(reader), self._writer.resolve(writer)
        if reader is True or writer is False or not _demands(reader):
            return []
        pair = (id(reader), id(writer))
        if pair in self._known:
            return self._known[pair]
        if pair in self._under_way:
            self._assumed.add(pair)
            return []
        self._under_way.add(pair)
        self._kept += [reader, writer]  # so that their ids are not given to others
        found = self._compare(reader, {} if writer is True else writer, path)
        self._under_way.discard(pair)
        self._assumed.discard(pair)
        if found or not self._assumed:  # a success may depend on a pair that is still being compared, a failure not
            self._known[pair] = found
        return found

    def _compare(self, reader: Any, writer: dict[str, Any], path: str) -> list[str]:
        if reader is False:
            return [f"CONTENT_REMOVED at {path}: nothing is valid any more"]
        values = _values_of(writer)
        if values is not None:
            refused = [value for value in values if not self._admits(reader, value)]
            return [
                f"ENUM_VALUES_NARROWED at {path}: {json.dumps(value)[:60]} is no longer valid" for value in refused[:5]
            ]
        for keyword in ("anyOf", "oneOf"):
            if keyword in writer:
                rest = {key: value for key, value in writer.items() if key != keyword}
                return [
                    reason for part in writer[keyword] for reason in self.reasons(reader, self._both(part, rest), path)
                ]
        if "allOf" in writer:
            return self.reasons(reader, self._merged(writer), path)
        found = []
        for part in reader.get("allOf", ()):
            found += self.reasons(part, writer, path)
        for keyword in ("anyOf", "oneOf"):
            if keyword in reader and all(self.reasons(part, writer, path) for part in reader[keyword]):
                found.append(f"SUM_TYPE_NARROWED at {path}/{keyword}: no alternative takes what the writer writes")
        return found + self._keywords(reader, writer, path)

    def _both(self, part: Any, rest: dict[str, Any]) -> Any:
        return self._merged({"allOf": [part, rest]}) if any(key in _MEANINGFUL for key in rest) else part

    def _merged(self, writer: dict[str, Any]) -> dict[str, Any]:
        """Return one schema for the parts of an `allOf`; where two say something of one keyword, the first counts.

        This forgets demands and adds none, so that nothing is proved that does not hold.
        """
        merged: dict[str, Any] = {key: value for key, value in writer.items() if key != "allOf"}
        waiting = list(writer["allOf"])
        while waiting:
            self._budget.spend()
            part = self._writer.resolve(waiting.pop(0))
            if part is False:
                return {"enum": []}
            for key, value in part.items() if isinstance(part, dict) else ():
                if key == "allOf":
                    waiting += value
                elif key == "properties":
                    merged[key] = {**value, **merged.get(key, {})}
                elif key == "required":
                    merged[key] = [*merged.get(key, ()), *value]
                else:
                    merged.setdefault(key, value)
        return merged

    def _keywords(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        written = _types(writer)
        found = []
        if "enum" in reader or "const" in reader:
            found.append(f"ENUM_ADDED at {path}: only certain values are valid, the writer has any")
        lost = [one for one in written if not _takes(_types(reader), one)]
        if lost:
            found.append(f"TYPE_NARROWED at {path}: {', '.join(lost)} is no longer valid")
        for keyword, concerned in _CONCERNS.items():
            if keyword in reader and _may_be(written, concerned):
                found += _bound(keyword, reader[keyword], writer.get(keyword), path)
        found += [
            f"{keyword.upper()}_CHANGED at {path}"
            for keyword in ("not", "if")
            if keyword in reader and any(reader.get(key) != writer.get(key) for key in (keyword, "then", "else"))
        ]
        if "object" in written:
            found += self._object(reader, writer, path)
        if "array" in written:
            found += self._array(reader, writer, path)
        return found

    def _object(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        found = []
        properties, written = reader.get("properties", {}), writer.get("properties", {})
        for name, schema in properties.items():
            before = _written_property(writer, name)
            reasons = self.reasons(schema, before, f"{path}/properties/{name}")
            if reasons and before is True:
                reasons = [f"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at {path}/properties/{name}"]
            found += reasons
        for name, schema in written.items():
            if name not in properties:
                now = _read_property(reader, name)
                reasons = self.reasons(now, schema, f"{path}/properties/{name}")
                if reasons and now is False:
                    reasons = [f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at {path}/properties/{name}"]
                found += reasons
        for pattern, schema in reader.get("patternProperties", {}).items():
            if pattern in writer.get("patternProperties", {}):
                found += self.reasons(
                    schema, writer["patternProperties"][pattern], f"{path}/patternProperties/{pattern}"
                )
            elif writer.get("additionalProperties", True) is not False:
                found.append(f"PATTERN_PROPERTY_ADDED at {path}/patternProperties/{pattern}")
        rest = writer.get("additionalProperties", True)
        for schema in [rest, *writer.get("patternProperties", {}).values()]:
            reasons = self.reasons(reader.get("additionalProperties", True), schema, f"{path}/additionalProperties")
            found += [f"ADDITIONAL_PROPERTIES_NARROWED at {path}"] if reasons else []
        for name in reader.get("required", ()):
            if name not in writer.get("required", ()) and not _has_default(self._reader.resolve(properties.get(name))):
                found.append(f"REQUIRED_ATTRIBUTE_ADDED at {path}: {name} is now required")
        return list(dict.fromkeys(found))

    def _array(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        first, rest = _items(reader)
        written, written_rest = _items(writer)
        found = []
        for number in range(max(len(first), len(written))):
            one = first[number] if number < len(first) else rest
            other = written[number] if number < len(written) else written_rest
            found += self.reasons(one, other, f"{path}/items/{number}")
        return found + self.reasons(rest, written_rest, f"{path}/items")

    def _admits(self, schema: Any, value: Any) -> bool:
        """Return whether a value is valid under a schema of the reader, as far as the writer's own keywords say."""
        self._budget.spend()
        schema = self._reader.resolve(schema)
        if isinstance(schema, bool):
            return schema
        if not _takes(_types(schema), _type_of(value)):
            return False
        if not all(self._admits(part, value) for part in schema.get("allOf", ())):
            return False
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema and not any(self._admits(part, value) for part in schema[keyword]):
                return False
        values = _values_of(schema)
        if values is not None:
            return any(_same(value, one) for one in values)
        if any(key in schema and _may_be([_type_of(value)], kind) for key, kind in _UNTRIED.items()) or (
            "not" in schema or "if" in schema
        ):
            return False
        as_schema = {"type": _type_of(value), **_facts(value)}
        return not any(
            _bound(keyword, schema[keyword], as_schema.get(keyword), "")
            for keyword in (*_AT_LEAST, *_AT_MOST)
            if keyword in schema and _may_be([as_schema["type"]], _CONCERNS[keyword])
        )


_ANNOTATIONS = frozenset(
    {
        "$schema", "$id", "id", "$anchor", "$comment", "$defs", "definitions", "title", "description", "default",
        "examples", "readOnly", "writeOnly", "deprecated", "format", "contentEncoding", "contentMediaType",
    }
)  # fmt: skip
_MEANINGFUL = frozenset(
    {
        *_SUBSCHEMAS, *_LISTS, *_OPAQUE, *_AT_LEAST, *_AT_MOST, "type", "enum", "const", "properties",
        "patternProperties", "required", "multipleOf", "uniqueItems", "$ref",
    }
)  # fmt: skip


def _demands(schema: Any) -> bool:
    """Return whether a schema says anything about documents."""
    return schema is False or (isinstance(schema, dict) and any(key in _MEANINGFUL for key in schema))


def _values_of(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return list(schema["enum"]) if "enum" in schema else None


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _types(schema: dict[str, Any]) -> list[str]:
    given = schema.get("type")
    if given is None:
        return [one for one in _TYPES if one != "integer"]
    return given if isinstance(given, list) else [given]


def _takes(types: list[str], one: str) -> bool:
    return one in types or (one == "integer" and "number" in types)


def _may_be(types: list[str], concerned: str) -> bool:
    return concerned in types or (concerned == "number" and "integer" in types)


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if _is_whole(value) else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _facts(value: Any) -> dict[str, Any]:
    """Return the tightest bounds that a value satisfies."""
    if isinstance(value, bool) or value is None:
        return {}
    if isinstance(value, int | float):
        return {"minimum": value, "maximum": value}
    size, name = len(value), {"string": "Length", "array": "Items"}.get(_type_of(value), "Properties")
    return {f"min{name}": size, f"max{name}": size}


def _bound(keyword: str, wanted: Any, promised: Any, path: str) -> list[str]:
    """Return a difference unless what the writer promises of a keyword is at least as tight."""
    if keyword == "multipleOf":
        is_kept = promised is not None and promised % wanted == 0
    elif keyword == "uniqueItems":
        is_kept = not wanted or promised is True
    elif keyword in _AT_LEAST and _is_number(wanted):
        is_nothing = wanted == 0 and keyword.startswith("min") and keyword != "minimum"
        is_kept = is_nothing or (_is_number(promised) and promised >= wanted)
    elif keyword in _AT_MOST and _is_number(wanted):
        is_kept = _is_number(promised) and promised <= wanted
    else:
        is_kept = wanted == promised
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", keyword).upper()
    return [] if is_kept else [f"{name}_{'ADDED' if promised is None else 'NARROWED'} at {path}"]


def _written_property(schema: dict[str, Any], name: str) -> Any:
    """Return what a writer promises of a property, whether it is named or not."""
    if name in schema.get("properties", {}):
        return schema["properties"][name]
    patterns = schema.get("patternProperties", {})
    found = [_matches(pattern, name) for pattern in patterns]
    if True in found:
        return list(patterns.values())[found.index(True)]
    return True if None in found else schema.get("additionalProperties", True)


def _read_property(schema: dict[str, Any], name: str) -> Any:
    """Return all that a reader may demand of a property that it does not name."""
    patterns = schema.get("patternProperties", {})
    parts = [part for pattern, part in patterns.items() if _matches(pattern, name) is not False]
    if not any(_matches(pattern, name) for pattern in patterns):
        parts.append(schema.get("additionalProperties", True))
    return parts[0] if len(parts) == 1 else {"allOf": parts}


def _matches(pattern: str, name: str) -> bool | None:
    """Return whether a pattern matches a name; None if it is not tried, because it spells out more than a prefix.

    Patterns come from strangers, and some take for ever.
    """
    literal = pattern.removeprefix("^").removesuffix("$").removesuffix(".*")
    if not pattern.startswith("^") or not re.fullmatch(r"[A-Za-z0-9_-]*", literal):
        return None
    return name == literal if pattern.endswith("$") and not pattern.endswith(".*$") else name.startswith(literal)


def _has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _items(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the schemas of the first items, and that of the others (draft 2020-12 and those before)."""
    if "prefixItems" in schema:
        return schema["prefixItems"], schema.get("items", True)
    items = schema.get("items", True)
    return (items, schema.get("additionalItems", True)) if isinstance(items, list) else ([], items)
