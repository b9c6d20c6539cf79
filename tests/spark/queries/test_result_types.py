"""Spark's types for results; no Spark is started."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidegate.engine.values.vectors import Datetime
from tidegate.ordering import parse_time
from tidegate.spark.queries.result_types import arrow_type, converter_to, type_of_values

NOON = Datetime(parse_time("2026-01-31T12:00:00.1234567Z"))
MIDNIGHT = Datetime(parse_time("2026-01-31T00:00:00Z"))


def converted(value: Any, type_: DataType, *, strict: bool = True) -> Any:
    arrow = arrow_type(type_)
    found = converter_to(arrow, type_.simpleString(), strict=strict)(value)
    return pa.array([found], pa.int64() if pa.types.is_timestamp(arrow) else arrow).cast(arrow).to_pylist()[0]


RECORD = StructType([StructField("a", LongType()), StructField("b", ArrayType(StringType()))])


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (8, LongType(), 8),
        (8.0, IntegerType(), 8),
        (8, DoubleType(), 8.0),
        (True, BooleanType(), True),
        (1, BooleanType(), True),
        (8.5, StringType(), "8.5"),
        (NOON, StringType(), "2026-01-31T12:00:00.1234567Z"),
        ({"a": NOON}, StringType(), '{"a":"2026-01-31T12:00:00.1234567Z"}'),
        (MIDNIGHT, DateType(), date(2026, 1, 31)),
        (0.1, DecimalType(5, 2), Decimal("0.10")),
        (123, DecimalType(5, 2), Decimal("123.00")),
        ({"A": 1, "b": ["x", 2, None]}, RECORD, {"a": 1, "b": ["x", "2", None]}),
        ({"x": 1, "y": None}, MapType(StringType(), LongType()), [("x", 1), ("y", None)]),
    ],
)
def test_a_value_goes_where_nothing_of_it_is_lost(value: Any, type_: DataType, expected: Any) -> None:
    assert converted(value, type_) == expected


def test_times_count_in_microseconds() -> None:
    for text in ("2026-01-31T12:00:00.123456Z", "2026-01-31T12:00:00.1234569Z"):
        found = converted(text, TimestampType())
        assert found.isoformat() == "2026-01-31T12:00:00.123456+00:00"
    assert converted(Datetime(-1), TimestampType()).isoformat() == "1969-12-31T23:59:59.999999+00:00"


@pytest.mark.parametrize(
    ("value", "type_", "message"),
    [
        (8.5, LongType(), "without losing its fraction"),
        (2**31, IntegerType(), "out of range for int"),
        ("8", LongType(), "a nvarchar(max) does not go into a column of type bigint"),
        (2, BooleanType(), "a bigint does not go into a column of type boolean"),
        (NOON, DateType(), "is not a whole day"),
        (0.125, DecimalType(5, 2), "has more digits than decimal(5,2)"),
        (1234, DecimalType(5, 2), "out of range for decimal(5,2)"),
        ([1], RECORD, "array"),
        ({"a": "x"}, RECORD, "in its field 'a', a nvarchar(max)"),
        ({"c": 1}, RECORD, "has a field 'c'"),
        ({"a": 1}, ArrayType(LongType()), "a record does not go"),
        ([1], MapType(StringType(), LongType()), "array"),
    ],
)
def test_any_other_value_is_refused(value: Any, type_: DataType, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        converted(value, type_)


def test_a_declared_struct_leaves_other_fields_out() -> None:
    assert converted({"a": 1, "c": 2}, RECORD, strict=False) == {"a": 1, "b": None}


def test_types_without_a_counterpart_are_named() -> None:
    with pytest.raises(ValueError, match="binary"):
        arrow_type(types.BinaryType())


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ([], "string"),
        ([None], "string"),
        ([1, None], "bigint"),
        ([1, 2.5], "double"),
        ([1, "a"], "string"),
        ([NOON], "timestamp"),
        ([True], "boolean"),
        ([{"a": 1}, {"A": 2.5, "b": None}], "struct<a:double,b:string>"),
        ([{}], "string"),
        ([[], [1], [{"x": True}]], "array<string>"),
        ([[{"x": True}], [{"y": [1]}]], "array<struct<x:boolean,y:array<bigint>>>"),
        ([{"a": 1}, [1]], "string"),
    ],
)
def test_a_few_values_suggest_a_type(sample: list[Any], expected: str) -> None:
    assert type_of_values(sample).simpleString() == expected
