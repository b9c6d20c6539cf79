"""Frames: n rows with their times, and the columns that expressions can name.

A row's columns are grouped by the alias of the source they come from. There are two ways to hold the columns of a
source: as the wanted fields of events (`EventColumns`), or as the list that a SELECT made (`NamedColumns`). Above an
aggregate a row has keys and aggregates instead, and no source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np
import pyarrow.compute as pc

from tidegate.engine.decoding.decoded import path_value
from tidegate.engine.values.budget import text_bytes
from tidegate.engine.values.grouping import sorted_rows
from tidegate.engine.values.json_lines import dicts
from tidegate.engine.values.vectors import BoolArray, Int64Array, Kind, Vector, object_array


def field_of(vector: Vector, path: tuple[str, ...]) -> Vector:
    """Return the fields at a path inside records; NULL where there is none."""
    if not path:
        return vector
    if vector.objects is None:
        result = Vector.nulls(len(vector))
    else:
        result = Vector.of([path_value(value, path) for value in vector.objects.tolist()])
    return result.failing(vector.is_kind(Kind.ERROR), vector.int_values())


def has_field(vector: Vector, name: str) -> BoolArray:
    """bool[n]: which values are records with a field of that name."""
    missing = object()
    return np.fromiter(
        (path_value(value, (name,), missing) is not missing for value in vector.object_values()),
        dtype=np.bool_,
        count=len(vector),
    )


Path = tuple[str, ...]


class Columns(Protocol):
    """The columns of one source."""

    def at(self, path: Path) -> Vector:
        """Return a column's values, or a field's inside it; names are case-insensitive, missing values NULL."""

    def spread(self) -> tuple[tuple[str | None, ...], tuple[Vector, ...]]:
        """Return all columns in order; None instead of a name means all fields of the record beside it."""

    def take(self, rows: Int64Array) -> Columns:
        """Return the columns of these rows."""

    def vectors_held(self) -> Sequence[Vector]:
        """Return the vectors that the columns consist of."""


@dataclass(frozen=True, slots=True)
class FieldColumns:
    """The decoded parts of events.

    Attributes:
        fields: a vector for each wanted path, in lower case.
        records: the whole events, where some expression needs them.
    """

    fields: Mapping[Path, Vector]
    records: Vector | None

    def at(self, path: Path) -> Vector:
        return self.fields[tuple(map(str.lower, path))]

    def spread(self) -> tuple[tuple[str | None, ...], tuple[Vector, ...]]:
        assert self.records is not None
        return (None,), (self.records,)

    def take(self, rows: Int64Array) -> FieldColumns:
        return FieldColumns(
            {path: vector.take(rows) for path, vector in self.fields.items()},
            None if self.records is None else self.records.take(rows),
        )

    def vectors_held(self) -> Sequence[Vector]:
        return list(self.fields.values())


@dataclass(frozen=True, slots=True)
class NamedColumns:
    """The columns of a SELECT list. Of two columns with the same name (without case) the left one counts."""

    names: tuple[str | None, ...]
    vectors: tuple[Vector, ...]

    def at(self, path: Path) -> Vector:
        wanted = path[0].lower()
        found: Vector | None = None
        missing: Int64Array | None = None
        for name, vector in zip(self.names, self.vectors, strict=True):
            if name is not None and name.lower() == wanted:
                column, has = vector, None
            elif name is None:
                column = field_of(vector, (path[0],))
                has = has_field(vector, path[0])
            else:
                continue
            if found is None or missing is None:
                found, missing = column, None if has is None else np.flatnonzero(~has)
            else:
                which = np.zeros(len(vector), dtype=np.int64)
                which[missing] = 1
                found = Vector.choose(which, [found, column])
                missing = None if has is None else np.flatnonzero((which == 1) & ~has)
            if missing is None or not len(missing):
                break
        if found is None:
            found = Vector.nulls(len(self.vectors[0]) if self.vectors else 0)
        return field_of(found, path[1:])

    def spread(self) -> tuple[tuple[str | None, ...], tuple[Vector, ...]]:
        return self.names, self.vectors

    def take(self, rows: Int64Array) -> NamedColumns:
        return NamedColumns(self.names, tuple(vector.take(rows) for vector in self.vectors))

    def vectors_held(self) -> Sequence[Vector]:
        return self.vectors

    def without_hidden(self) -> NamedColumns:
        """Return the columns without those whose name a column further left certainly has."""
        seen: set[str] = set()
        kept = []
        for index, name in enumerate(self.names):
            if name is None or name.lower() not in seen:
                kept.append(index)
            if name is not None:
                seen.add(name.lower())
        return NamedColumns(tuple(self.names[i] for i in kept), tuple(self.vectors[i] for i in kept))

    @classmethod
    def concat(cls, parts: Sequence[NamedColumns], counts: Sequence[int]) -> NamedColumns:
        """Concatenate rows; if their column names differ, they become records."""
        lowered = {tuple(name and name.lower() for name in part.names) for part in parts}
        if len(lowered) == 1 and None not in next(iter(lowered)):
            columns = zip(*(part.vectors for part in parts), strict=True)
            return cls(parts[0].names, tuple(Vector.concat(column) for column in columns))
        return cls((None,), (Vector.concat([part.records(count) for part, count in zip(parts, counts, strict=True)]),))

    def records(self, count: int) -> Vector:
        """Return the ``count`` rows as records."""
        if self.names == (None,):
            return self.vectors[0]
        rows = dicts(self.names, self.vectors, count, plainly=False)
        kinds = np.full(count, Kind.RECORD, dtype=np.uint8)
        return Vector(kinds, objects=object_array(rows))


@dataclass(frozen=True, slots=True)
class MissingColumns:
    """The columns of a source that has no row beside these ``count`` ones: all are NULL."""

    names: tuple[str | None, ...]
    count: int

    def at(self, path: Path) -> Vector:
        return Vector.nulls(self.count)

    def spread(self) -> tuple[tuple[str | None, ...], tuple[Vector, ...]]:
        return self.names, (Vector.nulls(self.count),) * len(self.names)

    def take(self, rows: Int64Array) -> MissingColumns:
        return MissingColumns(self.names, len(rows))

    def vectors_held(self) -> Sequence[Vector]:
        return ()

    def like(self, other: Columns) -> Columns:
        """Return the same NULLs in the representation of ``other``."""
        if isinstance(other, FieldColumns):
            nothing = Vector.nulls(self.count)
            return FieldColumns(dict.fromkeys(other.fields, nothing), None if other.records is None else nothing)
        return NamedColumns(*self.spread())


@dataclass(frozen=True, slots=True)
class Frame:
    """n rows.

    Attributes:
        times: int64[n], System.Timestamp in ticks.
        sources: columns by alias in lower case; "" for those of a SELECT list that nobody has named yet.
        keys, aggregates: what KeyRef and AggregateRef index; window_ids beside them, where windows have ids.
        side_times: by alias, the times of the sides of a join.
        order: int64 columns that order rows of the same time (`arrival_order`); empty for rows without an arrival.
        ties: columns that order rows of the same time without `order` among those of all shards.
        rows: int64[n], which decoded row each is; only in a task.
        substreams: int64[n], the number of each row's substream; only where results leave by those.
    """

    times: Int64Array
    sources: Mapping[str, Columns] = field(default_factory=dict)
    keys: tuple[Vector, ...] = ()
    aggregates: tuple[Vector, ...] = ()
    window_ids: Vector | None = None
    side_times: Mapping[str, Int64Array] = field(default_factory=dict)
    order: tuple[Int64Array, ...] = ()
    ties: tuple[Vector, ...] = ()
    rows: Int64Array | None = None
    substreams: Int64Array | None = None

    def __len__(self) -> int:
        return len(self.times)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the columns of `order` by what little most of them hold: a partition, consecutive numbers."""
        values = {name.name: getattr(self, name.name) for name in fields(self)}
        return _unpickled_frame, ({**values, "order": tuple(map(_compressed, self.order))},)

    def take(self, rows: Int64Array) -> Frame:
        """Return these rows, in this order."""
        sources = {alias: columns.take(rows) for alias, columns in self.sources.items()}
        # Keys and arguments that are columns of a source are the same vectors, and stay so.
        taken = {
            id(vector): of_rows
            for alias, columns in self.sources.items()
            for vector, of_rows in zip(columns.vectors_held(), sources[alias].vectors_held(), strict=True)
        }
        return Frame(
            self.times[rows],
            sources,
            tuple(_taken(vector, rows, taken) for vector in self.keys),
            tuple(_taken(vector, rows, taken) for vector in self.aggregates),
            None if self.window_ids is None else self.window_ids.take(rows),
            {alias: times[rows] for alias, times in self.side_times.items()},
            tuple(column[rows] for column in self.order),
            tuple(column.take(rows) for column in self.ties),
            None if self.rows is None else self.rows[rows],
            None if self.substreams is None else self.substreams[rows],
        )

    def text_bytes(self) -> int:
        """Return about how many bytes the texts of all rows have, in constant time."""
        return sum(text_bytes(vector) for columns in self.sources.values() for vector in columns.vectors_held())

    def text_sizes(self) -> Int64Array:
        """int64[n]: the bytes of each row's texts."""
        sizes = np.zeros(len(self), dtype=np.int64)
        for columns in self.sources.values():
            for vector in columns.vectors_held():
                if vector.texts is not None:
                    lengths = pc.fill_null(pc.binary_length(vector.texts), 0)
                    sizes += lengths.to_numpy(zero_copy_only=False).astype(np.int64)
        return sizes

    def ordering(self) -> tuple[Int64Array, ...]:
        """Return int64 columns that order the rows: by time, then by `order`.

        Rows of the same time are always in one frame, so rows without order columns are ordered by position.
        """
        return (self.times, *(self.order or (np.arange(len(self)),)))

    def in_order(self) -> Frame:
        """Return the rows sorted by time and order of arrival."""
        return self.take(sorted_rows(self.ordering()))

    def in_shards_order(self) -> Frame:
        """Return the rows in order, with ties that tell how they are ordered among the rows of all shards."""
        ordered = self.in_order()
        return ordered.with_ties(Vector.bigints(ordered.times), *ordered.tie_breakers())

    def tie_breakers(self) -> tuple[Vector, ...]:
        """Return the columns that order rows of the same time, whichever shard they come from."""
        return tuple(map(Vector.bigints, self.order)) or self.ties

    def with_ties(self, *ties: Vector) -> Frame:
        """Return the same rows with columns that order those of the same time among the rows of all shards."""
        return replace(self, ties=ties)

    def with_order(self, order: tuple[Int64Array, ...]) -> Frame:
        """Return the same rows with other order columns."""
        return replace(self, order=order)

    def without_order(self) -> Frame:
        """Return the same rows, already in order, without order columns."""
        return replace(self, order=())

    def without_rows(self) -> Frame:
        """Return the same rows without their row numbers, which only have a meaning in their task."""
        return replace(self, rows=None)

    def of_substreams(self, substreams: Int64Array | None) -> Frame:
        """Return the same rows with other numbers for their substreams."""
        return replace(self, substreams=substreams)

    def selected(self) -> NamedColumns:
        """Return the columns of a SELECT list."""
        columns = self.sources[""]
        assert isinstance(columns, NamedColumns)
        return columns

    def with_sources(self, sources: Mapping[str, Columns]) -> Frame:
        """Return the same rows with other columns, and no keys, aggregates and sides."""
        return replace(self, sources=sources, keys=(), aggregates=(), window_ids=None, side_times={})

    @classmethod
    def concat(cls, frames: Sequence[Frame]) -> Frame:
        """Concatenate frames that have the same aliases, keys and aggregates."""
        first = frames[0]
        if len(frames) == 1:
            return first
        with_rows = [frame.rows for frame in frames if frame.rows is not None]
        of_substreams = [frame.substreams for frame in frames if frame.substreams is not None]
        with_ids = [frame.window_ids for frame in frames if frame.window_ids is not None]
        return cls(
            np.concatenate([frame.times for frame in frames]),
            {alias: _concat_columns([frame.sources[alias] for frame in frames], frames) for alias in first.sources},
            _concat_each([frame.keys for frame in frames]),
            _concat_each([frame.aggregates for frame in frames]),
            Vector.concat(with_ids) if with_ids else None,
            {alias: np.concatenate([frame.side_times[alias] for frame in frames]) for alias in first.side_times},
            _concat_orders(frames),
            _concat_ties(frames),
            np.concatenate(with_rows) if with_rows else None,
            np.concatenate(of_substreams) if of_substreams else None,
        )


def _taken(vector: Vector, rows: Int64Array, taken: Mapping[int, Vector]) -> Vector:
    """Return these rows of a vector, unless they have been taken."""
    known = taken.get(id(vector))
    return vector.take(rows) if known is None else known


def _concat_each(columns: Sequence[tuple[Vector, ...]]) -> tuple[Vector, ...]:
    return tuple(Vector.concat(vectors) for vectors in zip(*columns, strict=True))


def _concat_orders(frames: Sequence[Frame]) -> tuple[Int64Array, ...]:
    """Concatenate order columns. Rows multiplied by APPLY or a join have more of them than others."""
    depth = max(len(frame.order) for frame in frames)
    padded = [(*frame.order, *[np.zeros_like(frame.times)] * (depth - len(frame.order))) for frame in frames]
    return tuple(np.concatenate(columns) for columns in zip(*padded, strict=True))


def _concat_ties(frames: Sequence[Frame]) -> tuple[Vector, ...]:
    """Concatenate ties. A row that has fewer of them than others comes before those that agree with it so far."""
    depth = max(len(frame.ties) for frame in frames)
    padded = [(*frame.ties, *[Vector.nulls(len(frame))] * (depth - len(frame.ties))) for frame in frames]
    return _concat_each(padded)


def _concat_columns(parts: Sequence[Columns], frames: Sequence[Frame]) -> Columns:
    there = next((part for part in parts if not isinstance(part, MissingColumns)), None)
    if there is None:
        return parts[0].take(np.zeros(sum(map(len, frames)), dtype=np.int64))
    parts = [part.like(there) if isinstance(part, MissingColumns) else part for part in parts]
    named = [part for part in parts if isinstance(part, NamedColumns)]
    if len(named) == len(parts):
        return NamedColumns.concat(named, [len(frame) for frame in frames])
    decoded = [part for part in parts if isinstance(part, FieldColumns)]
    assert len(decoded) == len(parts)
    records = [part.records for part in decoded if part.records is not None]
    return FieldColumns(
        {path: Vector.concat([part.fields[path] for part in decoded]) for path in decoded[0].fields},
        Vector.concat(records) if records else None,
    )


def merge_by_time(frames: Sequence[Frame]) -> Frame:
    """Merge frames by time; at equal times, rows of earlier frames come first."""
    if len(frames) == 1:
        return frames[0]
    joined = Frame.concat(frames)
    return joined.take(sorted_rows([joined.times]))


def _unpickled_frame(values: dict[str, Any]) -> Frame:
    return Frame(**{**values, "order": tuple(map(_expanded, values["order"]))})


def _compressed(column: Int64Array) -> Int64Array | tuple[int, int, int]:
    """Return the first value, the step and the length of an arithmetic progression, and any other column as it is."""
    if len(column) < 3:
        return column
    first, step = int(column[0]), int(column[1]) - int(column[0])
    # The last value alone rules out nearly every other column.
    if int(column[-1]) != first + step * (len(column) - 1) or (np.diff(column) != step).any():
        return column
    return first, step, len(column)


def _expanded(column: Int64Array | tuple[int, int, int]) -> Int64Array:
    if isinstance(column, tuple):
        first, step, length = column
        return first + step * np.arange(length, dtype=np.int64)
    return column
