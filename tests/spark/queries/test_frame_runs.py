"""Rows in any order, cut into batches and tasks anyhow, come out sorted by partition, key and content."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.model.errors import InputError
from tidegate.engine import JSON, Format
from tidegate.ordering import TICKS_PER_SECOND
from tidegate.spark.queries import frame_runs
from tidegate.spark.queries.frame_events import RowLayout
from tidegate.spark.queries.frame_runs import ORDER, RunsStage, SortedRows, merged_runs, runs_of

NUMBERED = RowLayout("input", None, True, (), JSON, (), order=("number",))
BY_CONTENT = RowLayout("input", ("x", "y"), False, (), Format("parquet"), (), order=("arrival", "field0", "field1"))
TIME = pa.timestamp("us", "UTC")


def table(rows: list[dict[str, Any]], types: dict[str, pa.DataType]) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], type_) for name, type_ in types.items()})


def batches(rows: pa.Table, cut: int) -> Iterator[pa.RecordBatch]:
    return iter(rows.to_batches(max_chunksize=cut))


def shuffled(layout: RowLayout, tasks: list[pa.Table], cut: int, most_rows: int) -> list[tuple[str, pa.Table]]:
    """Return what the merge of the runs of some tasks yields; Spark would sort them."""
    place = RunsStage(layout, (0, 1))
    runs = []
    for number, task in enumerate(tasks):
        for batch in place(batches(task, cut)):
            runs.append(batch.set_column(3, "task", pa.array([number] * len(batch), pa.int32())))
    if not runs:
        return []
    ordered = pa.Table.from_batches(runs).sort_by([(name, "ascending") for name in ORDER])
    found = list(merged_runs(batches(ordered, 3), layout, most_rows))
    assert all(len(some) <= most_rows for _, some in found)
    return found


KEYS = st.integers(-5, 5) | st.integers(-(2**60), 2**60)
PARTITIONS = st.sampled_from(["0", "1", "10", None])
ROWS = st.fixed_dictionaries({"partition": PARTITIONS, "number": KEYS, "body": st.binary(max_size=3)})


@given(
    st.lists(
        st.lists(ROWS, max_size=40)
        | st.lists(ROWS, max_size=40).map(lambda rows: sorted(rows, key=lambda row: cast("int", row["number"]))),
        max_size=4,
    ),
    st.integers(1, 50),
    st.integers(1, 20),
    st.integers(1, 10),
)
def test_rows_are_sorted_by_their_numbers(tasks: list[Any], cut: int, most_rows: int, sorted_rows: int) -> None:
    types = {"partition": pa.string(), "number": pa.int64(), "body": pa.binary()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_runs, "_SORTED_ROWS", 4 * sorted_rows)
        patch.setattr(frame_runs, "RUN_ROWS", sorted_rows)
        found = shuffled(NUMBERED, [table(rows, types) for rows in tasks], cut, most_rows)
    seen: dict[str, list[tuple[int, bytes]]] = {}
    for partition, some in found:
        seen.setdefault(partition, []).extend(zip(*some.to_pydict().values(), strict=True))
    expected: dict[str, list[tuple[int, bytes]]] = {}
    for row in (row for rows in tasks for row in rows):
        expected.setdefault(row["partition"] or "NULL", []).append((row["number"], row["body"]))
    assert {name: [number for number, _ in rows] for name, rows in seen.items()} == {
        name: sorted(number for number, _ in rows) for name, rows in expected.items()
    }
    assert {name: sorted(rows) for name, rows in seen.items()} == {
        name: sorted(rows) for name, rows in expected.items()
    }
    assert [name for name, _ in found] == sorted(name for name, _ in found)


FLOATS = st.none() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5]) | st.floats()
CONTENT = st.fixed_dictionaries(
    {"arrival": st.integers(0, 3), "field0": FLOATS, "field1": st.none() | st.text(max_size=2)}
)


def spark_order(row: dict[str, Any]) -> tuple[Any, ...]:
    """As Spark sorts: NULL first, NaN after every number, text by its bytes."""
    number, text = row["field0"], row["field1"]
    of_number = (0, 0.0) if number is None else (2, 0.0) if math.isnan(number) else (1, number)
    of_text = (0, b"") if text is None else (1, text.encode("utf-8", "surrogatepass"))
    return row["arrival"], of_number, of_text


@given(st.lists(st.lists(CONTENT, max_size=30), max_size=3), st.integers(1, 40), st.integers(1, 9))
def test_rows_that_arrive_together_are_sorted_by_content(tasks: list[Any], cut: int, sorted_rows: int) -> None:
    types = {"arrival": TIME, "field0": pa.float64(), "field1": pa.string()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_runs, "_SORTED_ROWS", 4 * sorted_rows)
        patch.setattr(frame_runs, "RUN_ROWS", sorted_rows)
        found = shuffled(BY_CONTENT, [table(rows, types) for rows in tasks], cut, 1000)
    seen = [
        row for _, some in found for row in some.set_column(0, "arrival", some["arrival"].cast(pa.int64())).to_pylist()
    ]
    expected = [spark_order(row) for row in sorted((row for rows in tasks for row in rows), key=spark_order)]
    assert [spark_order(row) for row in seen] == expected
    assert {partition for partition, _ in found} <= {"0"}


def test_rows_in_order_are_cut_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_runs, "RUN_ROWS", 4)
    rows = pa.table({"number": pa.array(range(10), pa.int64()), "body": [b"x"] * 10})
    found = list(runs_of(iter(rows.to_batches()), NUMBERED))
    assert [(partition, first, len(some)) for partition, first, some in found] == [
        ("0", 0, 4),
        ("0", 4, 4),
        ("0", 8, 2),
    ]
    starts = {some.column("number").chunk(0).buffers()[1].address for _, _, some in found}
    assert starts == {rows.column("number").chunk(0).buffers()[1].address}


def test_partitions_are_whole_numbers_or_texts_of_them() -> None:
    rows = pa.table({"partition": pa.array([3, None, 3, 0], pa.int16()), "number": pa.array([4, 3, 2, 1], pa.int64())})
    found = [(name, some.column("number").to_pylist()) for name, _, some in runs_of(iter(rows.to_batches()), NUMBERED)]
    assert found == [("3", [2, 4]), ("NULL", [3]), ("0", [1])]


def test_a_row_without_a_number_is_an_error() -> None:
    rows = pa.table({"number": pa.array([1, None], pa.int64()), "body": [b"x"] * 2})
    with pytest.raises(InputError, match="1 of 2 rows have no position in order"):
        list(runs_of(iter(rows.to_batches()), NUMBERED))


def test_a_large_run_travels_in_rows_that_are_not() -> None:
    rows = pa.table({"number": pa.array(range(3), pa.int64()), "body": [b"x" * 100_000] * 3})
    sent = list(RunsStage(NUMBERED, (7,))(iter(rows.to_batches())))
    assert max(len(blob) for batch in sent for blob in batch.column("blob").to_pylist()) <= 32_768
    assert {label for batch in sent for label in batch.column("label").to_pylist()} == {7}
    ((_, back),) = merged_runs(iter(sent), NUMBERED)
    assert back.equals(rows)


@pytest.mark.parametrize("partitions", [3, 1000])
@pytest.mark.parametrize("shuffled", [False, True])
def test_rows_are_ordered_by_partition_and_key_and_keep_their_order_if_they_tie(
    partitions: int, shuffled: bool
) -> None:
    dice = np.random.default_rng(1)
    keys = np.sort(dice.integers(0, 500, 2000))
    codes = dice.integers(0, partitions, 2000)
    if shuffled:
        keys = dice.permutation(keys)
    expected = sorted(range(2000), key=lambda row: (codes[row], keys[row], row))
    assert frame_runs._by_keys(codes, keys).tolist() == expected


@pytest.mark.parametrize("most_rows", [1, 2, 100])
def test_rows_from_one_arrival_up_to_another_are_a_stretch_of_a_partition(
    most_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_runs, "RUN_ROWS", most_rows)
    # The clock was set back twice: once before the first event that matters, once after the last.
    seconds = [1, 5, 2, 3, 6, 7, 4, 8]
    rows = [
        {"partition": partition, "arrival": second * 1_000_000, "number": number, "body": b""}
        for partition in "01"
        for number, second in enumerate(seconds)
    ]
    types = {"partition": pa.string(), "arrival": TIME, "number": pa.int64(), "body": pa.binary()}
    given = table(rows, types)
    for begin, stop, expected in ((5, 7, [1, 2, 3, 4]), (6, 100, [4, 5, 6, 7]), (0, 5, [0]), (9, 100, []), (0, 1, [])):
        wanted = SortedRows(NUMBERED, False, begin * TICKS_PER_SECOND, stop * TICKS_PER_SECOND)
        for partition, pieces in wanted.partitions(batches(given, 3)):
            found = [(first, some.column("number").to_pylist()) for first, some in pieces]
            assert [number for _, numbers in found for number in numbers] == expected, partition
            assert all(first == numbers[0] for first, numbers in found)
