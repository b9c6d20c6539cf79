"""Rows of Arrow as events; no Spark is started."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tidegate.connectors.model.errors import InputError
from tidegate.engine import JSON, Format, TableBodies
from tidegate.ordering import parse_time
from tidegate.spark.queries.frame_events import RowLayout, partitions_in

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
BODIES = RowLayout("input", None, True, (), JSON, ())


def rows(count: int = 2, **columns: Any) -> pa.Table:
    given = {
        "partition": ["0"] * count,
        "arrival": pa.array([NOON] * count, pa.timestamp("us", "Europe/Berlin")),
        "number": pa.array(range(5, 5 + count), pa.int64()),
        "body": [b"{}"] * count,
    }
    return pa.table({**given, **columns})


def test_bodies_have_their_positions_and_arrivals_in_ticks() -> None:
    events = BODIES.events("0", rows(body=[b'{"a":1}', None]), 0)
    assert events.sequence_numbers.tolist() == [5, 6]
    assert events.arrivals.tolist() == [parse_time("2026-01-31T12:00:00Z")] * 2
    assert list(events.bodies) == [b'{"a":1}', b""]


def test_columns_are_fields_and_events_without_a_position_are_numbered() -> None:
    layout = RowLayout("input", ("a", "b"), False, (), Format("parquet"), ())
    columns = {"field0": [1, 2], "field1": pa.array([{"x": 1.5}, None], pa.struct([("x", pa.float64())]))}
    events = layout.events("0", rows(**columns, number=pa.nulls(2)), 7)
    assert events.sequence_numbers.tolist() == [7, 8]
    assert isinstance(events.bodies, TableBodies)
    assert list(events.bodies) == [b'{"a": 1, "b": {"x": 1.5}}', b'{"a": 2, "b": null}']


def test_details_are_texts() -> None:
    details = ("offset", "publisher", "partitionKey", "properties", "systemProperties")
    layout = RowLayout("input", None, True, details, JSON, ())
    captured = [[("x-opt-a", {"member0": None, "member2": "text"}), ("x-opt-b", {"member0": 7, "member2": None})]] * 2
    kind = pa.map_(pa.string(), pa.struct([("member0", pa.int64()), ("member2", pa.string())]))
    given = {
        "offset": ["10", "20"],
        "publisher": [None, "p"],
        "partitionKey": ["k", None],
        "properties": pa.array([[("a", "1")], None], pa.map_(pa.string(), pa.string())),
        "systemProperties": pa.array(captured, kind),
    }
    events = layout.events("0", rows(**given), 0)
    assert (events.offsets, events.publishers, events.partition_keys) == (["10", "20"], [None, "p"], ["k", None])
    assert events.user_properties == [{"a": "1"}, {}]
    assert events.system_properties[0] == {"x-opt-a": "text", "x-opt-b": "7"}


@pytest.mark.parametrize(
    ("partition", "columns", "message"),
    [
        ("east", {}, "the partition 'east' is not a whole number"),
        (
            "0",
            {"arrival": pa.array([NOON, None], pa.timestamp("us", "UTC"))},
            r"1 of 2 rows have no arrival; leave them out with df\.where\('… IS NOT NULL'\)",
        ),
        ("0", {"number": pa.array([None, 1], pa.int64())}, "1 of 2 rows have no position"),
    ],
)
def test_rows_that_are_not_events_are_errors(partition: str, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        BODIES.events(partition, rows(**columns), 0)


@pytest.mark.parametrize("most_rows", [1, 2, 3, 100])
@pytest.mark.parametrize("cut", [1, 2, 4, 100])
def test_partitions_are_cut_where_they_end(cut: int, most_rows: int) -> None:
    names = ["0", "0", "0", "1", "2", "2", "2", "2", "2", "10"]
    table = pa.table({"partition": names, "number": range(len(names))})
    found = [(name, piece.column("number").to_pylist()) for name, piece in partitions_in(_cut(table, cut), most_rows)]
    assert [number for _, numbers in found for number in numbers] == list(range(len(names)))
    assert all(names[number] == name for name, numbers in found for number in numbers)
    assert all(len(numbers) <= most_rows for _, numbers in found)
    assert len(found) == sum(-(-names.count(name) // most_rows) for name in set(names))


def _cut(table: pa.Table, rows_each: int) -> Any:
    batches: Sequence[pa.RecordBatch] = table.combine_chunks().to_batches(max_chunksize=rows_each)
    return iter(batches)


def test_rows_without_a_partition_are_refused() -> None:
    with pytest.raises(InputError, match=r"input 'input': 2 rows or more have no partition \(NULL\)"):
        BODIES.events("NULL", rows(), 0)
