"""Rows in columns: those of a CSV text, an Avro container or a Parquet file.

A `Table` knows which of the content's rows it holds and which could not be read. `TableBodies` present such rows as
events of a log: each row is an event of its own, and is rendered as text only on demand.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cached_property
from math import isfinite, isnan
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.decoding.decoded import Path, Problem, path_value, spelling_of
from tidegate.engine.values.vectors import (
    TEXT,
    BoolArray,
    Datetime,
    Failure,
    Int64Array,
    Kind,
    Reason,
    Vector,
    object_array,
)
from tidegate.ordering import TICKS_PER_DAY, TICKS_PER_SECOND, format_time

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_TICKS_PER_UNIT = {"s": TICKS_PER_SECOND, "ms": TICKS_PER_SECOND // 1_000, "us": TICKS_PER_SECOND // 1_000_000}
# Seconds of the years 1 and 9999: the range of times, whatever their unit.
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of one content, in columns.

    Attributes:
        columns: by name, each with a value for every readable row: Arrow arrays, or lists of Python values.
        numbers: int64[n], ascending: the number in the content of each of them, from 0.
        total: how many rows the content has, unreadable ones included.
        rejected: rows that could not be read: number, why, and their text.
        content_bytes: the length of the content.
    """

    columns: Mapping[str, Any]
    numbers: Int64Array
    total: int
    rejected: tuple[tuple[int, Problem, bytes], ...] = ()
    content_bytes: int = 0

    @classmethod
    def unreadable(cls, problem: Problem, content: bytes) -> Table:
        """Return the table of an unreadable content: one row that is rejected."""
        return cls({}, np.empty(0, dtype=np.int64), 1, ((0, problem, content[:400]),), len(content))

    def __len__(self) -> int:
        return len(self.numbers)

    def vector(self, path: Path) -> Vector | None:
        """Return the values of a field, matched regardless of case; None if there is no such column."""
        column = self.column(path[0])
        return None if column is None else _field_vector(column, path[1:])

    def column(self, name: str) -> Any | None:
        """Return a column by its name, regardless of case; None if there is none."""
        spelling = spelling_of(tuple(self.columns), name)
        return None if spelling is None else self.columns[spelling]

    def records(self) -> tuple[list[dict[str, Any]], Vector | None]:
        """Return every row as a record, and a vector with failures for rows with values that no type can represent."""
        vectors = {name: _field_vector(column, ()) for name, column in self.columns.items()}
        failing = np.zeros(len(self), dtype=np.bool_)
        for vector in vectors.values():
            failing |= vector.is_kind(Kind.ERROR)
        rows: list[dict[str, Any]] = [{} for _ in range(len(self))]
        for name, vector in vectors.items():
            for row, value in zip(rows, vector.to_list(), strict=True):
                row[name] = value
        if not failing.any():
            return rows, None
        failed = Vector.errors(Reason.OVERFLOW, len(self))
        return rows, failed.with_kinds(np.where(failing, failed.kinds, np.uint8(Kind.NULL)))


@dataclass(frozen=True, eq=False)
class TableBodies(Sequence[bytes]):
    """The rows ``start`` ≤ number < ``stop`` of a table, as bodies of one event each."""

    table: Table
    start: int
    stop: int

    @classmethod
    def of(cls, table: Table) -> TableBodies:
        """Return the bodies of all rows."""
        return cls(table, 0, table.total)

    def of_file(self, file_bytes: int) -> TableBodies:
        """Return the same rows, with the size of the file that they come from."""
        return replace(self, table=replace(self.table, content_bytes=file_bytes))

    def __len__(self) -> int:
        return self.stop - self.start

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> TableBodies: ...

    def __getitem__(self, index: int | slice) -> bytes | TableBodies:
        """Return a row as JSON text (an unreadable one as its original text), or the bodies of a slice."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("a slice of rows must have step 1")
            return replace(self, start=self.start + start, stop=self.start + max(start, stop))
        number = self.start + index
        if not self.start <= number < self.stop:
            raise IndexError(index)
        if number in self._unreadable:
            return self._unreadable[number]
        (row, _) = self._read_rows(number, number + 1)
        record = {
            name: _field_vector(column[row : row + 1], ()).to_list()[0] for name, column in self.table.columns.items()
        }
        return json.dumps(_shown(record), ensure_ascii=False, default=str).encode("utf-8", errors="replace")

    @cached_property
    def _unreadable(self) -> dict[int, bytes]:
        return {number: text for number, _, text in self.table.rejected}

    def _read_rows(self, start: int, stop: int) -> tuple[int, int]:
        first, last = np.searchsorted(self.table.numbers, (start, stop)).tolist()
        return first, last

    def sizes(self) -> Int64Array:
        """int64[n]: each row's share of the content's bytes; the shares add up to the content's length."""
        if not self.table.content_bytes:
            return np.zeros(len(self), dtype=np.int64)
        ends = np.arange(self.start, self.stop + 1, dtype=np.int64) * self.table.content_bytes
        return np.diff(ends // max(self.table.total, 1))

    def rows(self) -> Table:
        """Return these rows as a table with numbers from 0."""
        first, last = self._read_rows(self.start, self.stop)
        columns = self.table.columns
        return Table(
            columns if (first, last) == (0, len(self.table)) else _Cut(columns, first, last),
            self.table.numbers[first:last] - self.start,
            len(self),
            tuple(
                (number - self.start, problem, text)
                for number, problem, text in self.table.rejected
                if self.start <= number < self.stop
            ),
        )


class _Cut(Mapping[str, Any]):
    """Columns that are sliced on demand, so that unused ones are not touched."""

    def __init__(self, columns: Mapping[str, Any], first: int, last: int) -> None:
        self._columns = columns
        self._range = slice(first, last)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._range]

    def __iter__(self) -> Any:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def byte_sizes(bodies: Sequence[bytes]) -> Int64Array:
    """int64[n]: the length of each body."""
    if isinstance(bodies, TableBodies):
        return bodies.sizes()
    return np.fromiter(map(len, bodies), dtype=np.int64, count=len(bodies))


# columns
# ------------------------------------------------------------------------------------------------------


def _field_vector(column: Any, path: Path) -> Vector:
    if isinstance(column, list):
        values = [plain(path_value(value, path)) if path else plain(value) for value in column]
        return Vector.of(values)
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    while path and pa.types.is_struct(array.type):
        names = tuple(array.type.field(place).name for place in range(array.type.num_fields))
        name = spelling_of(names, path[0])
        if name is None:
            return Vector.nulls(len(array))
        array, path = pc.struct_field(array, [names.index(name)]), path[1:]
    if path:
        return Vector.of([plain(path_value(value, path)) for value in _python_values(array)])
    return vector_of(array)


def vector_of(array: pa.Array) -> Vector:
    """Convert an Arrow array to values. Whole numbers and floats out of range fail; NaN, which JSON lacks, is NULL."""
    kind = array.type
    types = pa.types
    if types.is_dictionary(kind):
        is_text = types.is_string(kind.value_type) or types.is_large_string(kind.value_type)
        return Vector.of_encoded(array) if is_text else vector_of(array.dictionary_decode())
    if types.is_string(kind) or types.is_large_string(kind):
        return Vector.of_texts(array.cast(TEXT))
    if types.is_null(kind):
        return Vector.nulls(len(array))
    null = _is_null(array)
    if types.is_boolean(kind):
        return Vector.bits(array.fill_null(False).to_numpy(zero_copy_only=False), null)
    if types.is_integer(kind):
        values = _numbers(array, 0)
        too_large = values > np.uint64(2**63 - 1) if types.is_uint64(kind) else np.zeros(len(values), dtype=np.bool_)
        ints = np.where(too_large, int(Reason.OVERFLOW), values).astype(np.int64)
        return _some(Kind.BIGINT, null, too_large, ints=ints)
    if types.is_floating(kind) or types.is_decimal(kind):
        floats = _numbers(array.cast(pa.float64(), safe=False), 0.0)
        fine = np.isfinite(floats)
        if fine.all() and not array.null_count:
            return Vector.of_floats(floats)
        return _some(
            Kind.FLOAT,
            null | np.isnan(floats),
            ~fine,
            ints=np.full(len(floats), int(Reason.OVERFLOW), dtype=np.int64) if not fine.all() else None,
            floats=np.where(fine, floats, 0.0) + 0.0,
        )
    if types.is_timestamp(kind) or types.is_date(kind):
        return _times(array, null)
    return Vector.of([plain(value) for value in _python_values(array)])


def _some(kind: Kind, null: Any, failed: Any, **storages: Any) -> Vector:
    """Return values of one kind, except those that are NULL or have failed; NULL takes precedence."""
    if not null.any() and not failed.any():
        return Vector(np.full(len(null), kind, dtype=np.uint8), **storages, uniform=int(kind))
    kinds = np.where(null, np.uint8(Kind.NULL), np.where(failed, np.uint8(Kind.ERROR), np.uint8(kind)))
    return Vector(kinds, **storages)


def _times(array: pa.Array, null: Any) -> Vector:
    if pa.types.is_date(array.type):
        days = array.cast(pa.date32()).cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return _ticks(days, TICKS_PER_DAY, null)
    units = _numbers(array.cast(pa.int64()), 0)
    unit = array.type.unit
    # A nanosecond is finer than a tick: round down to the tick.
    return _ticks(units // 100, 1, null) if unit == "ns" else _ticks(units, _TICKS_PER_UNIT[unit], null)


def _is_null(array: pa.Array) -> BoolArray:
    if not array.null_count:
        return np.zeros(len(array), dtype=np.bool_)
    null: BoolArray = array.is_null().to_numpy(zero_copy_only=False)
    return null


def _numbers(array: pa.Array, if_null: float) -> Any:
    """Return the values as an array that may not be written to."""
    return (array.fill_null(if_null) if array.null_count else array).to_numpy(zero_copy_only=False)


def _ticks(values: Int64Array, ticks_each: int, null: Any) -> Vector:
    each_second = TICKS_PER_SECOND / ticks_each
    if len(values) and not null.any():
        first_s, last_s = int(values.min()) / each_second, int(values.max()) / each_second
        if first_s >= _FIRST_S and last_s < _LAST_S + 1:
            return Vector.datetimes(values * ticks_each)
    seconds = values / each_second
    fine = (seconds >= _FIRST_S) & (seconds < _LAST_S + 1)
    ticks = np.where(fine, values, 0) * ticks_each
    ints = np.where(fine, ticks, int(Reason.DATETIME_RANGE))
    return _some(Kind.DATETIME, null, ~fine, ints=ints)


def _python_values(array: pa.Array) -> list[Any]:
    try:
        values: list[Any] = array.to_pylist(maps_as_pydicts="lossy")
    except (ArithmeticError, LookupError, ValueError):
        # A time that Python cannot represent, or in a time zone that it does not know.
        return [_python_value(scalar) for scalar in array]
    return values


def _python_value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py(maps_as_pydicts="lossy")
    except (ArithmeticError, LookupError, ValueError):
        return Failure(Reason.DATETIME_RANGE)


# Python values
# ------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Convert a Python value from a decoder of Avro or Arrow to a value of the engine.

    A record or array with something that no type can represent fails as a whole.
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -(2**63) <= value < 2**63 else Failure(Reason.OVERFLOW)
        case float():
            return value if isfinite(value) else None if isnan(value) else Failure(Reason.OVERFLOW)
        case dict():
            record = {str(name): plain(inner) for name, inner in value.items()}
            return next((inner for inner in record.values() if isinstance(inner, Failure)), record)
        case list() | tuple():
            array = [plain(inner) for inner in value]
            return next((inner for inner in array if isinstance(inner, Failure)), array)
        case bytes() | bytearray() | memoryview():
            return _text_of(bytes(value))
        case datetime():
            return _datetime(value)
        case date():
            return Datetime((value.toordinal() - _EPOCH_DAY) * TICKS_PER_DAY)
        case time():
            return value.isoformat()
        case Decimal():
            return plain(float(value))
        case _:
            return str(value)


def _datetime(value: datetime) -> Datetime:
    """Convert a datetime; Arrow's subclass has nanoseconds beside the microseconds."""
    since = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    ticks = (since.days * 86_400 + since.seconds) * TICKS_PER_SECOND + since.microseconds * 10
    return Datetime(ticks + int(getattr(value, "nanosecond", 0)) // 100)


def _text_of(content: bytes) -> str:
    """Return bytes as text: decoded from UTF-8 if they are valid, otherwise in base 64."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return base64.b64encode(content).decode("ascii")


def _shown(value: Any) -> Any:
    if isinstance(value, Datetime):
        return format_time(int(value))
    if isinstance(value, Failure):
        return None
    if isinstance(value, dict):
        return {name: _shown(inner) for name, inner in value.items()}
    return [_shown(inner) for inner in value] if isinstance(value, list) else value


def records_vector(rows: list[dict[str, Any]]) -> Vector:
    """Return rows as a vector of records."""
    return Vector(np.full(len(rows), Kind.RECORD, dtype=np.uint8), objects=object_array(rows))
