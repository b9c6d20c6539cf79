"""Fields of records."""

from __future__ import annotations

import numpy as np

from tidegate.engine.decoding.decoded import path_value
from tidegate.engine.values.vectors import BoolArray, Kind, Vector


def field(vector: Vector, path: tuple[str, ...]) -> Vector:
    """Return the fields at a path inside records; NULL where there is none."""
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
