"""Merging the results of shards into the order that they would have in one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tidegate.engine.decoding.rows import ResultRows
from tidegate.engine.expressions.frames import NamedColumns
from tidegate.engine.values.grouping import sort_keys, sorted_rows
from tidegate.engine.values.vectors import Vector


def merged_results(rows: Iterable[ResultRows], outputs: Sequence[str]) -> list[ResultRows]:
    """Return the rows of all shards as one for each output that has any, in the order of ``outputs``."""
    by_output: dict[str, list[ResultRows]] = {}
    for each in rows:
        by_output.setdefault(each.output, []).append(each)
    return [_merged(by_output[output]) for output in outputs if output in by_output]


def _merged(runs: Sequence[ResultRows]) -> ResultRows:
    first = runs[0]
    if len(runs) == 1:
        return first
    order = merge_order([run.merge_keys for run in runs], list(map(len, runs)))
    columns = NamedColumns.concat([NamedColumns(run.names, run.columns) for run in runs], list(map(len, runs)))
    timestamps = np.concatenate([run.timestamps for run in runs])[order]
    return ResultRows(first.output, timestamps, columns.names, tuple(column.take(order) for column in columns.vectors))


def merge_order(keys: Sequence[Sequence[Vector]], counts: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the order of the rows of several runs, given the merge keys and the number of rows of each."""
    depth = max(map(len, keys))
    padded = [[*own, *[Vector.nulls(count)] * (depth - len(own))] for own, count in zip(keys, counts, strict=True)]
    columns = [Vector.concat(parts) for parts in zip(*padded, strict=True)]
    return sorted_rows(list(map(sort_keys, columns)))
