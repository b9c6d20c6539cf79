"""Spark's types for the values of results: what each accepts, and which one a few values suggest.

In the query language a type belongs to a value, in Spark to a column. A value goes into a column where nothing of it is
lost, by the rule of the service's own outputs (`tidegate.connectors.outputs.values`): a whole float into a bigint, a
bigint into a double, anything into a string, where records and arrays are JSON. Spark counts time in microseconds, so a
timestamp lacks the seventh digit of a time; a column of strings keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation, localcontext
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import types

from tidegate.connectors.outputs import values
from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import TICKS_PER_DAY
from tidegate.sql.plan.nodes import Type

Converter = Callable[[Any], Any]
"""Converts a value that is not NULL for Arrow. Raises ValueError with a message for people."""

_TICKS_PER_MICROSECOND = 10

SPARK_TYPES: dict[Type, types.DataType] = {
    Type.BIGINT: types.LongType(),
    Type.FLOAT: types.DoubleType(),
    Type.NVARCHAR: types.StringType(),
    Type.DATETIME: types.TimestampType(),
    Type.BIT: types.BooleanType(),
}
"""The types of columns whose values all have one scalar type."""

_ARROW_TYPES: dict[type[types.DataType], pa.DataType] = {
    types.ByteType: pa.int8(),
    types.ShortType: pa.int16(),
    types.IntegerType: pa.int32(),
    types.LongType: pa.int64(),
    types.FloatType: pa.float32(),
    types.DoubleType: pa.float64(),
    types.StringType: pa.string(),
    types.BooleanType: pa.bool_(),
    types.TimestampType: pa.timestamp("us", tz="UTC"),
    types.TimestampNTZType: pa.timestamp("us"),
    types.DateType: pa.date32(),
}


def arrow_type(type_: types.DataType) -> pa.DataType:
    """Return Arrow's type for one of Spark's.

    Raises:
        ValueError: no result can have that type.
    """
    found = _ARROW_TYPES.get(type(type_))
    if found is not None:
        return found
    match type_:
        case types.DecimalType():
            return pa.decimal128(type_.precision, type_.scale)
        case types.StructType():
            return pa.struct([pa.field(field.name, arrow_type(field.dataType)) for field in type_.fields])
        case types.ArrayType():
            return pa.list_(arrow_type(type_.elementType))
        case types.MapType(keyType=types.StringType()):
            return pa.map_(pa.string(), arrow_type(type_.valueType))
        case _:
            raise ValueError(f"results are not written as {type_.simpleString()}; use string")


# values into columns
# ------------------------------------------------------------------------------------------------------


def converter_to(type_: pa.DataType, name: str, *, strict: bool) -> Converter:
    """Return the conversion of values for a column.

    Args:
        type_: as `arrow_type` returns it.
        name: Spark's name for it, for messages.
        strict: whether a field of a record that the type does not have is an error; else it is left out.
    """
    kinds = pa.types
    if kinds.is_struct(type_):
        return _struct(type_, name, strict=strict)
    if kinds.is_map(type_):
        return _map(converter_to(type_.item_type, "a map's value", strict=strict), name)
    if kinds.is_list(type_):
        return _array(converter_to(type_.value_type, "an array's element", strict=strict), name)
    if kinds.is_decimal(type_):
        return _decimal(type_.precision, type_.scale, name)
    if kinds.is_timestamp(type_):
        return lambda value: values.ticks(value, name) // _TICKS_PER_MICROSECOND
    if kinds.is_date(type_):
        return _day(name)
    if kinds.is_integer(type_):
        return values.whole(name, type_.bit_width)
    if kinds.is_floating(type_):
        return values.floating(name)
    return values.truth(name) if kinds.is_boolean(type_) else values.text


def _day(name: str) -> Converter:
    whole_day = values.day(name)

    def convert(value: Any) -> int:
        whole_day(value)
        return values.ticks(value, name) // TICKS_PER_DAY

    return convert


def _decimal(precision: int, scale: int, name: str) -> Converter:
    number = values.number(name)

    def convert(value: Any) -> Decimal:
        # By way of its shortest text, so that 0.1 is a tenth and not its binary neighbour.
        exact = Decimal(str(number(value)))
        with localcontext(prec=precision) as context:
            try:
                fitted = exact.quantize(Decimal(1).scaleb(-scale), context=context)
            except InvalidOperation:
                raise ValueError(f"{value} is out of range for {name}") from None
        if fitted != exact:
            raise ValueError(f"{value} has more digits than {name}")
        return fitted

    return convert


def _struct(type_: pa.StructType, name: str, *, strict: bool) -> Converter:
    fields = {}
    for place in range(type_.num_fields):
        field = type_.field(place)
        fields[field.name.lower()] = field.name, converter_to(field.type, str(field.type), strict=strict)

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"a {values.type_name(value)} does not go into a column of type {name}")
        found: dict[str, Any] = {}
        for member, inner in value.items():
            known = fields.get(member.lower())
            if known is None:
                if strict and inner is not None:
                    raise ValueError(f"the record has a field '{member}', which {name} has not")
            elif known[0] not in found:
                found[known[0]] = None if inner is None else _inside(member, known[1], inner)
        return found

    return convert


def _inside(member: str, convert: Converter, value: Any) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        raise ValueError(f"in its field '{member}', {error}") from None


def _array(convert_element: Converter, name: str) -> Converter:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"a {values.type_name(value)} does not go into a column of type {name}")
        return [None if one is None else convert_element(one) for one in value]

    return convert


def _map(convert_value: Converter, name: str) -> Converter:
    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise ValueError(f"a {values.type_name(value)} does not go into a column of type {name}")
        return [(key, None if one is None else convert_value(one)) for key, one in value.items()]

    return convert


# columns from values
# ------------------------------------------------------------------------------------------------------


def type_of_values(sample: Iterable[Any]) -> types.DataType:
    """Return the type that holds all of some values; a string holds any, and is all that NULLs suggest."""
    return _settled(_common(map(_type_of, sample)))


_OF_PYTHON: dict[type, types.DataType] = {
    type(None): types.NullType(),
    int: types.LongType(),
    float: types.DoubleType(),
    str: types.StringType(),
    Datetime: types.TimestampType(),
    bool: types.BooleanType(),
}


def _type_of(value: Any) -> types.DataType:
    if isinstance(value, dict):
        return types.StructType([types.StructField(name, _type_of(inner)) for name, inner in value.items()])
    if isinstance(value, list):
        return types.ArrayType(_common(map(_type_of, value)))
    return _OF_PYTHON[type(value)]


def _common(found: Iterable[types.DataType]) -> types.DataType:
    nothing: types.DataType = types.NullType()
    return reduce(_merged, found, nothing)


def _merged(one: types.DataType, other: types.DataType) -> types.DataType:
    if one == other or isinstance(other, types.NullType):
        return one
    match one, other:
        case types.NullType(), _:
            return other
        case (types.LongType(), types.DoubleType()) | (types.DoubleType(), types.LongType()):
            return types.DoubleType()
        case types.ArrayType(), types.ArrayType():
            return types.ArrayType(_merged(one.elementType, other.elementType))
        case types.StructType(), types.StructType():
            fields = {field.name.lower(): field for field in one.fields}
            for field in other.fields:
                known = fields.setdefault(field.name.lower(), field)
                merged = _merged(known.dataType, field.dataType)
                fields[field.name.lower()] = types.StructField(known.name, merged)
            return types.StructType([*fields.values()])
        case _:
            return types.StringType()


def _settled(type_: types.DataType) -> types.DataType:
    """Return a type without parts of which nothing is known: those are strings."""
    match type_:
        case types.NullType():
            return types.StringType()
        case types.ArrayType():
            return types.ArrayType(_settled(type_.elementType))
        case types.StructType():
            fields = [types.StructField(field.name, _settled(field.dataType)) for field in type_.fields]
            # No file format has records without fields.
            return types.StructType(fields) if fields else types.StringType()
        case _:
            return type_
