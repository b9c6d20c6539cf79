"""Functions of records, arrays, JSON, types and metadata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tidegate.engine.decoding.decoded import path_value
from tidegate.engine.functions.declarations import FunctionGroup, applied
from tidegate.engine.values.conversions import parse_json
from tidegate.engine.values.vectors import Failure, Kind, Reason, Vector
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import ArgumentKind

_NESTED = FunctionGroup("Arrays, records, JSON")
_CONVERSION = FunctionGroup("Conversion")
_METADATA = FunctionGroup("Metadata")

_TYPE_NAMES = {
    Kind.BIGINT: "bigint",
    Kind.FLOAT: "float",
    Kind.NVARCHAR: "nvarchar(max)",
    Kind.DATETIME: "datetime",
    Kind.BIT: "bit",
    Kind.RECORD: "record",
    Kind.ARRAY: "array",
}


@_CONVERSION.by_whole_columns(
    "GetType", "value any", Type.NVARCHAR, nulls="value is NULL", example=("GetType(2.5)", '"float"')
)
def type_names(vector: Vector) -> Vector:
    """Return the name of the type of a value."""
    names = Vector.of([_TYPE_NAMES.get(kind) for kind in Kind])
    return names.take(vector.kinds.astype(np.int64)).failing(vector.is_kind(Kind.ERROR), vector.int_values())


@_NESTED.by_rows(
    "GetArrayElement",
    "array array, index integer",
    nulls="the array has no such element",
    example=("GetArrayElement(JSON_PARSE('[7, 8]'), 1)", "8"),
)
def array_element(array: list[Any], index: int) -> Any:
    """Return an element of an array; the first one is 0."""
    return array[index] if 0 <= index < len(array) else None


@_NESTED.by_rows("GetArrayLength", "array array", Type.BIGINT, example=("GetArrayLength(JSON_PARSE('[7, 8]'))", "2"))
def array_length(array: list[Any]) -> int:
    """Return the number of elements of an array."""
    return len(array)


@_NESTED.by_rows(
    "GetRecordPropertyValue",
    "record record, name name",
    nulls="the record has no such field",
    example=("GetRecordPropertyValue(JSON_PARSE('{\"a\": 5}'), 'A')", "5"),
)
def property_value(record: dict[str, Any], name: str) -> Any:
    """Return a field of a record. Names match without case."""
    return path_value(record, (name,))


@_NESTED.by_rows(
    "JSON_PARSE",
    "text json",
    nulls="the text is not valid JSON",
    fails="it may hold more than 1,000,000 values",
    example=("JSON_PARSE('{\"a\": [1, 2]}')", '{"a":[1,2]}'),
)
def json_parse(text: Any) -> Any:
    """Return the value that a JSON text stands for."""
    value = parse_json(text) if isinstance(text, str) else None
    return None if isinstance(value, Failure) and int(value) != Reason.LIMIT else value


@applied(
    "GetArrayElements",
    ArgumentKind.ARRAY,
    Kind.ARRAY,
    (("ArrayIndex", Type.BIGINT), ("ArrayValue", Type.ANY)),
    aliases=("GetElements",),
    example=("GetArrayElements(JSON_PARSE('[7]'))", '{"ArrayIndex":0,"ArrayValue":7}'),
)
def array_elements(array: list[Any]) -> Iterator[tuple[int, Any]]:
    """Return a row for each element of an array, with its index from 0."""
    return enumerate(array)


@applied(
    "GetRecordProperties",
    ArgumentKind.RECORD,
    Kind.RECORD,
    (("PropertyName", Type.NVARCHAR), ("PropertyValue", Type.ANY)),
    example=("GetRecordProperties(JSON_PARSE('{\"a\": 7}'))", '{"PropertyName":"a","PropertyValue":7}'),
)
def record_properties(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return a row for each field of a record."""
    return iter(record.items())


@_METADATA.of_source(
    "GetMetadataPropertyValue",
    "input source, property property",
    nulls="the event has no such property",
    example=("GetMetadataPropertyValue(input, '[EventHub].[PartitionId]')", "0"),
)
def metadata_path(name: str) -> tuple[str, ...]:
    """Return a property of the event beside its body."""
    return ("\0metadata", name.lower())  # No field has such a name.
