"""Rows for outputs, made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.engine import ResultRows, Vector


def result_rows(records: list[dict[str, Any]], first_time: int = 0, output: str = "out") -> ResultRows:
    """The records as rows of SELECT *, at the times ``first_time``, ``first_time`` + 1 …; values as `Vector.of` takes
    them."""
    times = np.arange(first_time, first_time + len(records), dtype=np.int64)
    return ResultRows(output, times, (None,), (Vector.of(records),))


def result_columns(columns: dict[str, list[Any]], first_time: int = 0, output: str = "out") -> ResultRows:
    """The same by column."""
    count = len(next(iter(columns.values())))
    times = np.arange(first_time, first_time + count, dtype=np.int64)
    return ResultRows(output, times, tuple(columns), tuple(Vector.of(values) for values in columns.values()))
