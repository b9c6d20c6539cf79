"""The types of Spark's columns: which the query language has, which can be sorted, and which Arrow takes."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame, types

from tidegate.connectors.model.errors import JobError

_UNSUITED = (types.VariantType, types.CalendarIntervalType, types.YearMonthIntervalType, types.DayTimeIntervalType)


def check_types(fields: Iterable[types.StructField], where: str) -> None:
    """Check that the query language has values for columns.

    Raises:
        JobError: it has none for one of them.
    """
    for one in fields:
        if _is_unsuited(one.dataType):
            raise JobError(
                f"{where}: column '{one.name}' is {one.dataType.simpleString()}, which the query language does not "
                f"have; drop it, or convert it, for example with functions.col('{one.name}').cast('string')"
            )


def _is_unsuited(type_: types.DataType) -> bool:
    match type_:
        case types.ArrayType():
            return _is_unsuited(type_.elementType)
        case types.MapType():
            return _is_unsuited(type_.keyType) or _is_unsuited(type_.valueType)
        case types.StructType():
            return any(_is_unsuited(one.dataType) for one in type_.fields)
        case _:
            return isinstance(type_, _UNSUITED)


def sorts_alike(type_: types.DataType) -> bool:
    """Return whether Arrow sorts values of a type as Spark does."""
    match type_:
        case types.StringType():
            return type_.simpleString() == "string"  # without a collation
        case types.NumericType() | types.BinaryType() | types.BooleanType() | types.DateType():
            return True
        case types.TimestampType() | types.TimestampNTZType():
            return True
        case _:
            return False


def collected(frame: DataFrame) -> pa.Table:
    """Return the rows of a DataFrame.

    PySpark's ``toArrow`` fails for a record that is NULL and has a field that never is, as after an outer join.
    """
    nullable = _nullable(frame.schema)
    assert isinstance(nullable, types.StructType)
    return frame.to(nullable).toArrow()


def _nullable(type_: types.DataType) -> types.DataType:
    match type_:
        case types.ArrayType():
            return types.ArrayType(_nullable(type_.elementType))
        case types.MapType():
            return types.MapType(_nullable(type_.keyType), _nullable(type_.valueType))
        case types.StructType():
            return types.StructType([types.StructField(one.name, _nullable(one.dataType)) for one in type_.fields])
        case _:
            return type_


def has_map(type_: types.DataType) -> bool:
    """Return whether a type has maps in it, which Spark cannot sort."""
    match type_:
        case types.MapType() | types.VariantType():
            return True
        case types.ArrayType():
            return has_map(type_.elementType)
        case types.StructType():
            return any(has_map(one.dataType) for one in type_.fields)
        case _:
            return False
