"""Types of columns: which are refused, which Spark cannot sort, and which Arrow sorts as Spark does."""

from __future__ import annotations

import pytest
from pyspark.sql import types

from tidegate.connectors.model.errors import JobError
from tidegate.spark.queries.column_types import check_types, has_map, sorts_alike

MAP = types.MapType(types.StringType(), types.LongType())
INTERVAL = types.DayTimeIntervalType()


def record(of: types.DataType) -> types.StructType:
    return types.StructType([types.StructField("a", types.ArrayType(of))])


@pytest.mark.parametrize("within", [INTERVAL, record(INTERVAL), types.MapType(types.StringType(), INTERVAL)])
def test_a_column_without_values_of_the_language_is_refused(within: types.DataType) -> None:
    fields = [types.StructField("good", record(MAP)), types.StructField("bad", within)]
    with pytest.raises(JobError, match=r"input 'i': column 'bad' is .*interval"):
        check_types(fields, "input 'i'")
    check_types(fields[:1], "input 'i'")


def test_a_map_is_found_at_any_depth() -> None:
    assert [has_map(one) for one in (MAP, record(MAP), types.VariantType())] == [True] * 3
    assert [has_map(one) for one in (types.LongType(), record(types.LongType()))] == [False] * 2


def test_text_with_a_collation_and_records_are_not_sorted_by_arrow() -> None:
    assert all(sorts_alike(one) for one in (types.StringType(), types.DoubleType(), types.TimestampNTZType()))
    assert not any(sorts_alike(one) for one in (types.StringType("UTF8_LCASE"), record(types.LongType()), MAP))
