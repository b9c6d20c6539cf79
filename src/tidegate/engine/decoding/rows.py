"""The input and output of a program: rows of a partition with their times, and finished rows of an output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate.engine.values.json_lines import dicts, lines
from tidegate.engine.values.vectors import Int64Array, Vector


class EventColumns(Protocol):
    """The broker's metadata of m events of one partition, in order; an empty column means that no event has it.

    sequence_numbers and arrivals are int64[m], arrivals in ticks.
    """

    @property
    def sequence_numbers(self) -> Int64Array: ...

    @property
    def arrivals(self) -> Int64Array: ...

    @property
    def offsets(self) -> Sequence[str | None]: ...

    @property
    def publishers(self) -> Sequence[str | None]: ...

    @property
    def partition_keys(self) -> Sequence[str | None]: ...

    @property
    def system_properties(self) -> Sequence[Mapping[str, str]]: ...

    @property
    def user_properties(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def blob_names(self) -> Sequence[str]: ...

    @property
    def blob_times(self) -> Int64Array: ...

    @property
    def source_starts(self) -> npt.NDArray[np.bool_]:
        """bool[m]: whether a source begins, as the service counts them: an event of a hub, or a file's first row."""

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The system columns that SELECT * includes."""


@dataclass(frozen=True, slots=True)
class ResultRows:
    """Finished rows of one output, in the order of emission.

    Attributes:
        output: its name in the query.
        timestamps: int64[n], System.Timestamp in ticks.
        names: the columns; None instead of a name means all fields of the record with it (SELECT * over rows
            of unknown shape), of which those are left out whose name a column further left has.
        columns: a vector for each name.
        merge_keys: what orders the rows among those of other shards; empty where there is one shard.
    """

    output: str
    timestamps: Int64Array
    names: tuple[str | None, ...]
    columns: tuple[Vector, ...]
    merge_keys: tuple[Vector, ...] = ()

    def __len__(self) -> int:
        return len(self.timestamps)

    def by_time(self) -> ResultRows:
        """Return the same rows in time order."""
        order = np.argsort(self.timestamps, kind="stable")
        columns = tuple(column.take(order) for column in self.columns)
        keys = tuple(key.take(order) for key in self.merge_keys)
        return ResultRows(self.output, self.timestamps[order], self.names, columns, keys)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each row as a record; datetimes as text with seven digits and Z."""
        return dicts(self.names, self.columns, len(self))

    def to_json_lines(self) -> bytes:
        """Return a line of JSON for each row, each with a line feed: fields in selected order, whole floats as 8.0."""
        return lines(self.names, self.columns, len(self))
