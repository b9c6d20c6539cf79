"""Rows as entities of Table storage: their two keys, and their properties as JSON with the types of OData.

A bigint is an Edm.Int64, a float an Edm.Double, a datetime an Edm.DateTime with all seven digits, a bit an Edm.Boolean;
records and arrays are JSON text. NULL is no property at all.

Source: "Understanding the Table service data model" and "Payload format for Table service operations".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.arrow_tables import named_columns
from tidegate.connectors.outputs.output import (
    COLUMN_NAME_INVALID,
    RECORD_EXCEEDED_SIZE_LIMIT,
    REQUIRED_COLUMN_MISSING,
    TYPE_CONVERSION_ERROR,
)
from tidegate.engine import Kind, ResultRows, Vector
from tidegate.engine.values.json_lines import plain_values
from tidegate.engine.values.vectors import Datetime

_LONGEST_KEY_CHARACTERS = 512
_MOST_PROPERTIES = 252
_NOT_IN_A_KEY = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]")
_PROPERTY_NAME = re.compile(r"[^\W\d]\w{0,254}")
_OF_THE_STORE = frozenset(("partitionkey", "rowkey", "timestamp", "etag"))
_UNSET = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class Entity:
    """A row as it is written: its number and time in ticks, its keys, and its JSON."""

    number: int
    time: int
    partition_key: str
    row_key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class NoEntity:
    """A row that cannot be an entity: its number, its time in ticks, the kind of error, and why."""

    number: int
    time: int
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class EntityColumns:
    """Which columns are the keys of entities, and which are left out; names in lower case."""

    partition_key: str
    row_key: str
    removed: frozenset[str]

    def entities(self, rows: ResultRows, first: int) -> Iterator[Entity | NoEntity]:
        """Yield rows as entities, of which the first has the number ``first``."""
        columns = named_columns(rows)
        lowered = {name.lower(): vector for name, vector in columns.items()}
        keys = [_key_values(lowered.get(name), len(rows)) for name in (self.partition_key, self.row_key)]
        properties = {name: one for name, one in columns.items() if name.lower() not in self.removed}
        # A column that is a key under the key's own name is that key.
        properties = {name: one for name, one in properties.items() if not self._is_its_key(name)}
        wrong = _wrong_names(properties)
        bodies = _bodies({name: one for name, one in properties.items() if name not in wrong}, keys, len(rows))
        named = [properties[name].kinds != Kind.NULL for name in wrong]
        for place, time in enumerate(rows.timestamps.tolist()):
            number = first + place
            fault = next((wrong[name] for name, there in zip(wrong, named, strict=True) if there[place]), None)
            problem = (COLUMN_NAME_INVALID, fault) if fault is not None else None
            for column, of_rows in zip((self.partition_key, self.row_key), keys, strict=True):
                problem = problem or _key_problem(column, of_rows[place])
            if problem is not None:
                yield NoEntity(number, time, *problem)
                continue
            yield Entity(number, time, keys[0][place], keys[1][place], bodies[place])

    def _is_its_key(self, name: str) -> bool:
        lowered = name.lower()
        return (lowered, self.partition_key) == ("partitionkey",) * 2 or (lowered, self.row_key) == ("rowkey",) * 2


def _key_values(vector: Vector | None, count: int) -> list[Any]:
    if vector is None:
        return [None] * count
    if vector.uniform == Kind.NVARCHAR:
        return vector.to_list()
    return [None if value is None else values.text(value) for value in vector.to_list()]


def _key_problem(column: str, key: str | None) -> tuple[str, str] | None:
    if key is None:
        return REQUIRED_COLUMN_MISSING, f"column '{column}': an entity needs a value in it, got NULL"
    if _NOT_IN_A_KEY.search(key):
        return TYPE_CONVERSION_ERROR, f"column '{column}': a key has none of / \\ # ? and no control characters"
    if len(key) > _LONGEST_KEY_CHARACTERS:
        allowed = f"a key has at most {_LONGEST_KEY_CHARACTERS} characters, got {len(key):,}"
        return RECORD_EXCEEDED_SIZE_LIMIT, f"column '{column}': {allowed}"
    return None


def _wrong_names(properties: dict[str, Vector]) -> dict[str, str]:
    """Return why columns cannot be properties, by their names."""
    wrong = {}
    for place, name in enumerate(properties):
        if name.lower() in _OF_THE_STORE:
            wrong[name] = f"column '{name}': the name belongs to the store; give the column an alias"
        elif not _PROPERTY_NAME.fullmatch(name):
            wrong[name] = (
                f"column '{name[:60]}': a property's name has up to 255 letters, digits and underscores, and begins "
                "with no digit; give the column an alias"
            )
        elif place >= _MOST_PROPERTIES:
            wrong[name] = f"column '{name}': an entity has at most {_MOST_PROPERTIES} properties"
    return wrong


def _bodies(properties: dict[str, Vector], keys: Sequence[list[Any]], count: int) -> list[bytes]:
    """Return the JSON of each row, whose keys may still be None."""
    names: list[str] = ["PartitionKey", "RowKey"]
    columns: list[list[Any]] = [*keys]
    for name, vector in properties.items():
        types, found = _odata(vector)
        if any(type_ is not _UNSET for type_ in set(types)):
            names.append(f"{name}@odata.type")
            columns.append(types)
        names.append(name)
        columns.append(found)
    fields: list[tuple[str, Any]] = [(f"f{number}", Any) for number in range(len(names))]
    rename = {f"f{number}": name for number, name in enumerate(names)}
    row = msgspec.defstruct("Entity", fields, rename=rename, gc=False)
    lines = _encode_lines(list(map(row, *columns))) if count else b""
    return lines.splitlines()


def _odata(vector: Vector) -> tuple[list[Any], list[Any]]:
    """Return the type and the value of each row, unset where there is none to write."""
    count = len(vector.kinds)
    match vector.uniform:
        case Kind.NVARCHAR | Kind.BIT:
            return [_UNSET] * count, vector.to_list()
        case Kind.BIGINT:
            return ["Edm.Int64"] * count, list(map(str, vector.to_list()))
        case Kind.DATETIME:
            return ["Edm.DateTime"] * count, plain_values(vector)
        case _:
            pairs = [_ODATA[type(value)](value) for value in vector.to_list()]
            return [type_ for type_, _ in pairs], [value for _, value in pairs]


def _double(value: float) -> tuple[Any, Any]:
    if math.isfinite(value):
        return "Edm.Double", value
    return "Edm.Double", "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_ODATA: dict[type, Callable[[Any], tuple[Any, Any]]] = {
    type(None): lambda value: (_UNSET, _UNSET),
    str: lambda value: (_UNSET, value),
    bool: lambda value: (_UNSET, value),
    int: lambda value: ("Edm.Int64", str(value)),
    float: _double,
    Datetime: lambda value: ("Edm.DateTime", values.text(value)),
    dict: lambda value: (_UNSET, values.nested(value)),
    list: lambda value: (_UNSET, values.nested(value)),
}

_encode_lines = msgspec.json.Encoder().encode_lines
