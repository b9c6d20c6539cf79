"""Functions of records, arrays, JSON and types."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.engine.decoding.decoded import path_value
from tidegate.engine.values.conversions import parse_json
from tidegate.engine.values.vectors import BoolArray, Failure, Kind, Vector

_TYPE_NAMES = {
    Kind.BIGINT: "bigint",
    Kind.FLOAT: "float",
    Kind.NVARCHAR: "nvarchar(max)",
    Kind.DATETIME: "datetime",
    Kind.BIT: "bit",
    Kind.RECORD: "record",
    Kind.ARRAY: "array",
}


def type_names(vector: Vector) -> Vector:
    """GetType: the name of each value's type; NULL has none."""
    names = Vector.of([_TYPE_NAMES.get(kind) for kind in Kind])
    result = names.take(vector.kinds.astype(np.int64))
    if Kind.ERROR not in vector.present():
        return result
    failed = vector.kinds == Kind.ERROR
    ints = np.where(failed, vector.int_values(), 0)
    return result.with_kinds(np.where(failed, np.uint8(Kind.ERROR), result.kinds), ints=ints)


def array_element(array: list[Any], index: int) -> Any:
    """GetArrayElement: counted from 0; NULL beyond the end."""
    return array[index] if 0 <= index < len(array) else None


def property_value(record: dict[str, Any], name: str) -> Any:
    """GetRecordPropertyValue: names match without case; NULL if there is none."""
    return path_value(record, (name,))


def json_parse(text: Any) -> Any:
    """JSON_PARSE: the value of a JSON text; NULL of what is no text, or no JSON."""
    value = parse_json(text) if isinstance(text, str) else None
    return None if isinstance(value, Failure) else value


def field(vector: Vector, path: tuple[str, ...]) -> Vector:
    """The fields at a path inside records; NULL where there is none."""
    if not path:
        return vector
    if vector.objects is None:
        return Vector.nulls(len(vector)) if Kind.ERROR not in vector.present() else _keep_failures(vector)
    values = [path_value(value, path) for value in vector.object_values().tolist()]
    result = Vector.of(values)
    return result if Kind.ERROR not in vector.present() else _keep_failures(vector, result)


def _keep_failures(vector: Vector, result: Vector | None = None) -> Vector:
    result = Vector.nulls(len(vector)) if result is None else result
    failed = vector.kinds == Kind.ERROR
    ints = np.where(failed, vector.int_values(), result.int_values())
    return result.with_kinds(np.where(failed, np.uint8(Kind.ERROR), result.kinds), ints=ints)


def has_field(vector: Vector, name: str) -> BoolArray:
    """bool[n]: which values are records with a field of that name."""
    missing = object()
    return np.fromiter(
        (path_value(value, (name,), missing) is not missing for value in vector.object_values()),
        dtype=np.bool_,
        count=len(vector),
    )
