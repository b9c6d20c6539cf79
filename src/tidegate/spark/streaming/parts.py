"""Rows of a step as Arrow streams.

Executors encode the rows where they are computed; the driver moves files, and sees rows only while they are few.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate.engine import ResultRows
from tidegate.spark.queries.frame_runs import encoded

ToTable = Callable[[ResultRows], pa.Table]
"""Returns rows as a table of a fixed schema; it is pickled for executors."""


@dataclass(frozen=True, slots=True)
class ArrowEncoder:
    """Encodes rows as an Arrow stream."""

    to_table: ToTable

    def __call__(self, rows: ResultRows) -> bytes:
        """Return the stream; see ``tidegate.connectors.model.encoded_rows.Encoder``."""
        content: bytes = encoded(self.to_table(rows)).to_pybytes()
        return content


def write_durably(path: Path, content: Any) -> None:
    """Write a new file, and return once its content is durable. Raises OSError."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once; over Spark Connect, where that is not known, a moderate number."""
    context = getattr(spark, "_sc", None)
    return 8 if context is None else max(1, context.defaultParallelism)
