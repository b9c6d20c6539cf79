"""Avro files encoded by column, read back by fastavro and by Apache's own library."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import avro.datafile
import avro.io
import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.outputs.files.file_formats import avro_file

WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "whole": st.none() | WHOLE,
            "half": st.none() | st.floats(allow_nan=False),
            "text": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
            "yes": st.none() | st.booleans(),
        }
    ),
    min_size=1,
    max_size=30,
)
SCHEMA = pa.schema([("whole", pa.int64()), ("half", pa.float64()), ("text", pa.string()), ("yes", pa.bool_())])


def read(content: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(content)))


@given(ROWS)
def test_what_is_written_is_read(rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    assert read(avro_file(table, table.column_names)) == rows
    # A slice, whose buffers begin before its rows.
    middle = table.slice(len(rows) // 2)
    assert read(avro_file(middle, table.column_names)) == rows[len(rows) // 2 :]


@pytest.mark.parametrize("count", [0, 1, 3_999, 4_000, 4_001, 9_000])
def test_any_number_of_rows_is_written_in_blocks(count: int) -> None:
    rows = [{"n": number if number % 3 else None, "t": "x" * (number % 200)} for number in range(count)]
    table = pa.Table.from_pylist(rows, pa.schema([("n", pa.int64()), ("t", pa.string())]))
    content = avro_file(table, ["n", "t"])
    assert read(content) == rows
    with avro.datafile.DataFileReader(io.BytesIO(content), avro.io.DatumReader()) as reader:
        assert list(reader) == rows


def test_times_are_microseconds_and_a_column_of_nulls_is_text() -> None:
    noon = datetime(2026, 1, 1, 12, 0, 0, 123_456, UTC)
    table = pa.table({"t": pa.array([noon, None], pa.timestamp("us", tz="UTC")), "none": pa.nulls(2)})
    assert read(avro_file(table, ["t", "none"])) == [{"t": noon, "none": None}, {"t": None, "none": None}]
