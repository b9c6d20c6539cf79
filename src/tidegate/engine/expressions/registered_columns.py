"""Registered functions that take columns: Arrow arrays in, one out.

An argument is an Arrow array of int64, double, string (also of datetimes, as ISO 8601 text), bool, struct or list; NULL
is null. What comes back is an array (Arrow, numpy or a list) of as many values. Values of one column may be of several
types, and an array has one: the function is called once for each combination of types that occurs. Where it raises, it
is called again with half of the rows, so that in the end the rows that it cannot work on fail, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.engine.expressions.registered import calls, note
from tidegate.engine.values.json_lines import plain
from tidegate.engine.values.vectors import Failure, Int64Array, Kind, Reason, Vector, is_value

_PLAIN_KINDS = {Kind.BIGINT: pa.int64(), Kind.FLOAT: pa.float64(), Kind.BIT: pa.bool_()}


def call_with_columns(name: str, function: Callable[..., Any], args: Sequence[Vector]) -> Vector:
    """The values of a function that takes columns; rows with a failing argument have that failure."""
    length = len(args[0])
    kinds = [_filled(arg) for arg in args]
    failing = np.zeros(length, dtype=np.bool_)
    for arg in args:
        failing |= arg.kinds == Kind.ERROR
    codes = np.zeros(length, dtype=np.int64)
    for each in kinds:
        codes = codes * len(Kind) + each
    parts, places = [], []
    for code in np.unique(codes[~failing]).tolist():
        where = np.flatnonzero((codes == code) & ~failing)
        parts.append(
            _called(name, function, [arg.take(where) for arg in args], [int(each[where[0]]) for each in kinds])
        )
        places.append(where)
    if failing.any():
        where = np.flatnonzero(failing)
        failures = [next(value for value in row if isinstance(value, Failure)) for row in _rows(args, where)]
        parts.append(Vector.of(failures))
        places.append(where)
    back = np.empty(length, dtype=np.int64)
    back[np.concatenate([*places, np.empty(0, dtype=np.int64)])] = np.arange(length)
    return Vector.concat(parts).take(back)


def _rows(args: Sequence[Vector], where: Int64Array) -> list[tuple[Any, ...]]:
    return list(zip(*(arg.take(where).to_list() for arg in args), strict=True))


def _filled(arg: Vector) -> Int64Array:
    """The kind of each value; a NULL goes with the first other kind there is."""
    others = sorted(arg.present() - {Kind.NULL, Kind.ERROR})
    return np.where(arg.kinds == Kind.NULL, others[0] if others else Kind.NULL, arg.kinds).astype(np.int64)


def _called(name: str, function: Callable[..., Any], args: Sequence[Vector], kinds: Sequence[int]) -> Vector:
    counted = calls()
    counted.requests += 1
    try:
        arrays = [_array(arg, kind) for arg, kind in zip(args, kinds, strict=True)]
        result = _vector(function(*arrays), len(args[0]))
    except Exception as error:  # Whatever the function raises is the failure of the rows it cannot handle.
        counted.failed += 1
        length = len(args[0])
        if length == 1:
            note(name, error)
            return Vector.errors(Reason.FUNCTION_FAILED, 1)
        halves = (np.arange(length // 2), np.arange(length // 2, length))
        return Vector.concat([_called(name, function, [arg.take(half) for arg in args], kinds) for half in halves])
    counted.failed += Kind.ERROR in result.present()
    return result


def _array(arg: Vector, kind: int) -> Any:
    if kind in _PLAIN_KINDS and arg.uniform == kind:
        values: Any = arg.float_values() if kind == Kind.FLOAT else arg.int_values()
        return pa.array(values.astype(np.bool_) if kind == Kind.BIT else values, _PLAIN_KINDS[Kind(kind)])
    values = [None if value is None else plain(value) for value in arg.to_list()]
    type_ = pa.string() if kind in (Kind.NVARCHAR, Kind.DATETIME) else _PLAIN_KINDS.get(Kind(kind))
    return pa.array(values, type_)


def _vector(result: Any, length: int) -> Vector:
    """What a function gave as values; raises TypeError or ValueError for what is no column of that length."""
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        result = result.tolist() if isinstance(result, np.ndarray) else list(result)
    if len(result) != length:
        raise ValueError("as many values must come out as went in")
    values = result.to_pylist() if isinstance(result, pa.Array) else result
    return Vector.of([value if is_value(value) else Failure(Reason.FUNCTION_FAILED) for value in values])
