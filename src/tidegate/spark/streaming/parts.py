"""Rows of a step as Arrow streams in files, and as a DataFrame that reads them.

Executors encode the rows where they are computed; the driver moves files, and sees rows only while they are few.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.engine import ResultRows

FEW_BYTES = 4 << 20
"""So many bytes of a step travel from the driver; executors read more from the files."""

ToTable = Callable[[ResultRows], pa.Table]
"""Returns rows as a table of a fixed schema; it is pickled for executors."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a step: an Arrow stream of ``length`` bytes in a file, from ``offset`` on."""

    path: Path
    offset: int
    length: int

    def read(self) -> pa.Table:
        """Return the rows.

        Raises:
            OSError: the file cannot be read, or ends too early.
            pa.ArrowInvalid: its content is not what was written.
        """
        with pa.memory_map(str(self.path)) as file:
            if file.size() < self.offset + self.length:
                raise OSError(f"{self.path} has {file.size():,} bytes, expected {self.offset + self.length:,}")
            file.seek(self.offset)
            return decoded(file.read_buffer(self.length))


@dataclass(frozen=True, slots=True)
class ArrowEncoder:
    """Encodes rows as an Arrow stream."""

    to_table: ToTable

    def __call__(self, rows: ResultRows) -> bytes:
        """Return the stream; see ``tidegate.connectors.model.encoded_rows.Encoder``."""
        content: bytes = encoded(self.to_table(rows)).to_pybytes()
        return content


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads parts on executors: row n of its input stands for the n-th group of parts."""

    groups: Sequence[Sequence[Part]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in self.groups[number]:
                    yield from part.read().to_batches()


def encoded(table: pa.Table) -> pa.Buffer:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def decoded(content: Any) -> pa.Table:
    """Return the table of an Arrow stream.

    Raises:
        pa.ArrowInvalid: it is not one.
    """
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


def write_durably(path: Path, content: Any) -> None:
    """Write a new file, and return once its content is durable. Raises OSError."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def frame_of(spark: SparkSession, parts: Sequence[Part]) -> DataFrame:
    """Return the rows of parts as a DataFrame, which may be evaluated any number of times.

    Raises:
        OSError: a part cannot be read.
        pa.ArrowInvalid: a part is not what was written.
    """
    if sum(part.length for part in parts) <= FEW_BYTES:
        table = pa.concat_tables([part.read() for part in parts])
        return spark.createDataFrame(table, from_arrow_schema(table.schema))
    schema = parts[0].read().schema
    groups = in_groups(parts, parallelism(spark))
    reader = PartReader(groups)
    count = len(groups)
    return spark.range(0, count, 1, count).mapInArrow(_plain(reader), from_arrow_schema(schema))


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once; over Spark Connect, where that is not known, a moderate number."""
    context = getattr(spark, "_sc", None)
    return 8 if context is None else max(1, context.defaultParallelism)


def in_groups(parts: Sequence[Part], most: int) -> list[list[Part]]:
    """Cut parts, in order, into at most so many groups of about the same size."""
    whole, reached = sum(part.length for part in parts), 0
    groups: dict[int, list[Part]] = {}
    for part in parts:
        groups.setdefault(min(most - 1, reached * most // max(1, whole)), []).append(part)
        reached += part.length
    return [groups[number] for number in sorted(groups)]


def _plain(reader: PartReader) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # PySpark takes functions only.
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return reader(batches)

    return run
