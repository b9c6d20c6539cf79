"""Parquet files of a Delta Lake table that no commit names yet.

Besides a file's path and size, a commit's `add` action has the values by which the table is partitioned, which the file
leaves out, and statistics by which readers skip files:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

import io
import json
import math
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.connectors.outputs.files.file_place import open_place

_LONGEST_BOUND = 64
"""Characters; a longer text is no bound in the statistics, which every reader of the table reads."""


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """What an `add` action says of a file; times in milliseconds since 1970."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    modification_time: int
    stats: str


@dataclass(frozen=True, slots=True)
class DeltaFileWriter:
    """A `FileWriter`.

    Attributes:
        root: the table's folder.
        partition_by: the columns that it is partitioned by.
        schema: the table's columns.
        environment: where credentials are; None for that of the process that writes.
    """

    root: str
    partition_by: tuple[str, ...]
    schema: pa.Schema
    environment: Mapping[str, str] | None = field(default=None, repr=False)

    def write(self, rows: pa.Table) -> list[DeltaFile]:
        """See ``FileWriter.write``; there is a file for each partition."""
        place = open_place(self.root, self.environment)
        made = [self._file(values, part) for values, part in self._partitions(rows)]
        place.put([(file.path, content) for file, content in made])
        place.close()
        return [file for file, _ in made]

    def _file(self, values: Mapping[str, str | None], rows: pa.Table) -> tuple[DeltaFile, bytes]:
        sink = io.BytesIO()
        kept = [
            field for field in self.schema if field.name not in self.partition_by and field.name in rows.column_names
        ]
        pq.write_table(rows.select([field.name for field in kept]).cast(pa.schema(kept)), sink, compression="snappy")
        content = sink.getvalue()
        stats = json.dumps(_statistics(pq.ParquetFile(io.BytesIO(content)).metadata), ensure_ascii=False)
        name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        return DeltaFile(name, len(content), values, time.time_ns() // 1_000_000, stats), content

    def _partitions(self, rows: pa.Table) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
        """Yield the rows of each partition with its values."""
        if not self.partition_by:
            yield {}, rows
            return
        combined = np.zeros(len(rows), dtype=np.int64)
        for name in self.partition_by:
            codes = pc.dictionary_encode(rows.column(name), null_encoding="encode").combine_chunks()
            both = combined * len(codes.dictionary) + codes.indices.to_numpy(zero_copy_only=False)
            combined = np.unique(both, return_inverse=True)[1]
        order = np.argsort(combined, kind="stable")
        bounds = np.flatnonzero(np.diff(combined[order], prepend=-1, append=-1))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            part = rows.take(order[first:last])
            yield {name: _partition_value(part.column(name)[0].as_py()) for name in self.partition_by}, part


def _partition_value(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        case _:
            return str(value)


def _statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return the statistics of a file, from those in its footer."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in range(metadata.num_columns):
        chunks = [metadata.row_group(group).column(column) for group in range(metadata.num_row_groups)]
        found = [chunk.statistics for chunk in chunks]
        name = chunks[0].path_in_schema
        if any(one is None or not one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        bounded = [one for one in found if one.has_min_max]
        # A chunk without bounds has only NULLs, or values without an order, such as NaN.
        if len(bounded) < sum(one.num_values > 0 for one in found) or not bounded:
            continue
        low, high = _bound(min(one.min for one in bounded)), _bound(max(one.max for one in bounded))
        if low is not None and high is not None:
            least[name], most[name] = low, high
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _bound(value: Any) -> Any:
    """Return a value as statistics have it; None for one that they do not."""
    match value:
        case bool():
            return None
        case int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value if len(value) <= _LONGEST_BOUND else None
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case _:
            return None
