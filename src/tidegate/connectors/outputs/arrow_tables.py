"""Rows as Arrow tables: what Parquet, Avro, Delta Lake and Iceberg are written from.

Types belong to values in the query language and to columns in these formats. A column whose type is declared converts
losslessly or rejects the row, by the rule of `tidegate.connectors.outputs.values`; times count in microseconds, as
everything that reads these formats does, and records and arrays are JSON text. A column whose type is not declared
takes that of its values: float if some are whole and some are not, and text if they have nothing in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.connectors.outputs import values
from tidegate.engine import Kind, ResultRows, Vector
from tidegate.engine.values.json_lines import dicts
from tidegate.sql.plan.nodes import Type

_TICKS_PER_MICROSECOND = 10

ARROW_TYPES: dict[Type, pa.DataType] = {
    Type.BIGINT: pa.int64(),
    Type.FLOAT: pa.float64(),
    Type.NVARCHAR: pa.string(),
    Type.DATETIME: pa.timestamp("us", tz="UTC"),
    Type.BIT: pa.bool_(),
    Type.RECORD: pa.string(),
    Type.ARRAY: pa.string(),
}
_TYPE_OF_KIND = {
    Kind.BIGINT: Type.BIGINT,
    Kind.FLOAT: Type.FLOAT,
    Kind.NVARCHAR: Type.NVARCHAR,
    Kind.DATETIME: Type.DATETIME,
    Kind.BIT: Type.BIT,
    Kind.RECORD: Type.RECORD,
    Kind.ARRAY: Type.ARRAY,
}


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value that does not go into its column: the place of its row, and why."""

    place: int
    message: str


def named_columns(rows: ResultRows) -> dict[str, Vector]:
    """Return the columns of rows by name; the fields of a SELECT * become columns, NULL where a row lacks one."""
    names = [name for name in rows.names if name is not None]
    if len(names) == len(rows.names) and len({name.lower() for name in names}) == len(names):
        return dict(zip(names, rows.columns, strict=True))
    records = dicts(rows.names, rows.columns, len(rows), plainly=False)
    spelled: dict[str, str] = {}
    for record in records:
        for name in record:
            spelled.setdefault(name.lower(), name)
    lowered = [{name.lower(): value for name, value in record.items()} for record in records]
    return {name: Vector.of([record.get(key) for record in lowered]) for key, name in spelled.items()}


def type_of_values(vector: Vector) -> Type | None:
    """Return the type that holds all values of a column; None if all are NULL."""
    kinds = vector.present() - {Kind.NULL}
    if not kinds:
        return None
    if len(kinds) == 1:
        return _TYPE_OF_KIND[Kind(next(iter(kinds)))]
    if kinds == {Kind.BIGINT, Kind.FLOAT}:
        return Type.FLOAT
    return Type.RECORD if kinds == {Kind.RECORD, Kind.ARRAY} else Type.NVARCHAR


def arrow_table(rows: ResultRows, declared: Mapping[str, Type]) -> tuple[pa.Table, list[Misfit]]:
    """Return rows as a table, and the values that do not fit; those are NULL in it.

    Args:
        declared: types by column name in lower case. A column without one takes the type of its values, and is left
            out if all of them are NULL.
    """
    arrays: list[Any] = []
    fields: list[pa.Field] = []
    misfits: list[Misfit] = []
    for name, vector in named_columns(rows).items():
        type_ = declared.get(name.lower()) or type_of_values(vector)
        if type_ is None:
            continue
        array, wrong = arrow_array(name, vector, type_)
        arrays.append(array)
        fields.append(pa.field(name, ARROW_TYPES[type_]))
        misfits += wrong
    if not arrays:
        # A table needs a column to have rows.
        return pa.table({"": pa.nulls(len(rows))}), misfits
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields)), misfits


def arrow_array(name: str, vector: Vector, type_: Type) -> tuple[Any, list[Misfit]]:
    """Return a column as an Arrow array of a type, and the values that do not fit."""
    fast = _FAST.get(type_)
    array = None if fast is None else fast(vector)
    if array is not None:
        return array, []
    convert = _CONVERTERS[type_]
    converted: list[Any] = []
    misfits: list[Misfit] = []
    for place, value in enumerate(vector.to_list()):
        try:
            converted.append(None if value is None else convert(value))
        except ValueError as error:
            converted.append(None)
            misfits.append(Misfit(place, f"column '{name}': {error}"))
    array = pa.array(converted, pa.int64() if type_ is Type.DATETIME else ARROW_TYPES[type_])
    return array.cast(ARROW_TYPES[type_]), misfits


def _microseconds(value: Any) -> int:
    return values.ticks(value, "datetime") // _TICKS_PER_MICROSECOND


_CONVERTERS: dict[Type, Callable[[Any], Any]] = {
    Type.BIGINT: values.whole("bigint", 64),
    Type.FLOAT: values.floating("float"),
    Type.NVARCHAR: values.text,
    Type.DATETIME: _microseconds,
    Type.BIT: values.truth("bit"),
    Type.RECORD: values.nested,
    Type.ARRAY: values.nested,
}


def _without(vector: Vector, *kinds: int) -> Any:
    """Return bool[n], which values are NULL; None if values of other kinds than these are there."""
    if vector.present() - {Kind.NULL, *kinds}:
        return None
    return vector.kinds == Kind.NULL


def _whole_numbers(vector: Vector) -> Any:
    null = _without(vector, Kind.BIGINT)
    return None if null is None else pa.array(vector.int_values(), mask=null)


def _floats(vector: Vector) -> Any:
    null = _without(vector, Kind.FLOAT, Kind.BIGINT)
    if null is None:
        return None
    whole = vector.kinds == Kind.BIGINT
    numbers = vector.float_values()
    if whole.any():
        numbers = np.where(whole, vector.int_values().astype(np.float64), numbers)
    return pa.array(numbers, mask=null)


def _texts(vector: Vector) -> Any:
    null = _without(vector, Kind.NVARCHAR)
    if null is None:
        return None
    texts = vector.text_values()
    if null.any():
        texts = pc.if_else(pa.array(~null), texts, pa.scalar(None, texts.type))
    return texts.cast(pa.string())


def _times(vector: Vector) -> Any:
    null = _without(vector, Kind.DATETIME)
    if null is None:
        return None
    counted = vector.int_values() // _TICKS_PER_MICROSECOND
    return pa.array(counted, mask=null).cast(ARROW_TYPES[Type.DATETIME])


def _truths(vector: Vector) -> Any:
    null = _without(vector, Kind.BIT)
    return None if null is None else pa.array(vector.int_values().astype(bool), mask=null)


_FAST: dict[Type, Callable[[Vector], Any]] = {
    Type.BIGINT: _whole_numbers,
    Type.FLOAT: _floats,
    Type.NVARCHAR: _texts,
    Type.DATETIME: _times,
    Type.BIT: _truths,
}
