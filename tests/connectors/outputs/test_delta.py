"""What a commit says of files that executors have written, compared with what deltalake says of its own."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from tests.connectors.outputs.test_lake_output import IDENTITY
from tidegate.connectors.outputs.output import StoredMark
from tidegate.connectors.outputs.tables.delta import DeltaFileWriter, DeltaLakeTable, DeltaOutput

MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "n": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "v": (pa.float64(), st.floats()),
    "s": (pa.string(), TEXTS),
    "t": (pa.timestamp("us", "UTC"), MOMENTS),
    "b": (pa.bool_(), st.booleans()),
}
SCHEMA = pa.schema([pa.field(name, type_) for name, (type_, _) in VALUES.items()])
TABLES = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in VALUES.items()}), min_size=1, max_size=8
).map(lambda rows: pa.Table.from_pylist(rows, schema=SCHEMA))


def committed(folder: Path, rows: pa.Table, partition_by: tuple[str, ...]) -> DeltaTable:
    table = DeltaLakeTable(DeltaOutput(type="deltalake", path=str(folder), partition_by=partition_by))
    table.create(SCHEMA)
    table.schema()
    writer = table.file_writer()
    assert isinstance(writer, DeltaFileWriter)
    table.append(None, writer.write(rows), IDENTITY, None, StoredMark("journal", len(rows), 0))
    return DeltaTable(folder)


@given(TABLES, st.sampled_from([(), ("n",), ("s", "b"), ("t",), ("b", "n")]))
def test_readers_find_the_rows_and_skip_no_file_that_has_some(rows: pa.Table, partition_by: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = committed(Path(folder), rows, partition_by)
        read = table.to_pyarrow_table()
        # By the protocol, an empty text that partitions is NULL.
        meant = rows.to_pylist()
        for row in meant:
            if "s" in partition_by and row["s"] == "":
                row["s"] = None
        assert sorted(map(repr, read.select(SCHEMA.names).to_pylist())) == sorted(map(repr, meant))
        dataset = table.to_pyarrow_dataset()
        for row in meant:
            for name in ("n", "s", "t"):
                if row[name] is not None:
                    found = dataset.to_table(filter=ds.field(name) == pa.scalar(row[name], SCHEMA.field(name).type))
                    assert repr(row) in map(repr, found.select(SCHEMA.names).to_pylist())


@given(TABLES)
def test_statistics_are_those_of_deltalake(rows: pa.Table) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = committed(Path(folder) / "own", rows, ())
        write_deltalake(Path(folder) / "theirs", rows)
        mine, theirs = (
            pa.table(table.get_add_actions(flatten=True)).to_pylist()[0]
            for table in (own, DeltaTable(Path(folder) / "theirs"))
        )
    assert mine["num_records"] == theirs["num_records"] == len(rows)
    for name in SCHEMA.names:
        assert mine[f"null_count.{name}"] == theirs[f"null_count.{name}"]
        for bound in ("min", "max"):
            given_bound = mine.get(f"{bound}.{name}")
            # Long texts have no bounds; those of deltalake are cut.
            if given_bound is not None and name != "s":
                theirs_bound = theirs[f"{bound}.{name}"]
                # Those of deltalake are in milliseconds.
                assert given_bound == theirs_bound or 0 <= (given_bound - theirs_bound).total_seconds() < 0.001


@pytest.mark.parametrize("name", ["n", "v", "s", "t", "b"])
def test_values_that_partition_are_written_as_deltalake_does(name: str, tmp_path: Path) -> None:
    value = {"n": -5, "v": 0.1, "s": "a b/=%ä", "t": datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC), "b": True}[name]
    rows = pa.Table.from_pylist([{"n": 1, name: value}, {"n": 1, name: None}], schema=SCHEMA)
    own = committed(tmp_path / "own", rows, (name,))
    write_deltalake(tmp_path / "theirs", rows, partition_by=[name])
    mine, theirs = (
        sorted(str(row[f"partition.{name}"]) for row in pa.table(table.get_add_actions(flatten=True)).to_pylist())
        for table in (own, DeltaTable(tmp_path / "theirs"))
    )
    assert mine == theirs
