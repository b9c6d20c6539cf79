"""Numbers for values: dense codes for equal ones, sort keys for ordered ones.

Two values are the same group key if they have the same type and are equal; records and arrays are what their JSON is.
All NULLs are one key. The order of values of one type is the natural one, of texts that of their code points;
different types are ordered by type (numbers of both types together, and if equal bigint before float), NULL first. It
is total, so that what is sorted by it has one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.json_lines import texts_of
from tidegate.engine.values import TEXT, Int64Array, Kind, Vector

_RANK_OF_KIND = {
    Kind.NULL: 0,
    Kind.BIGINT: 1,
    Kind.FLOAT: 1,
    Kind.NVARCHAR: 2,
    Kind.DATETIME: 3,
    Kind.BIT: 4,
    Kind.RECORD: 5,
    Kind.ARRAY: 6,
    Kind.ERROR: 7,
}


@dataclass(frozen=True, slots=True)
class Groups:
    """Which group each of n rows is in.

    Attributes:
        codes: int64[n], 0 to count − 1; every one occurs.
        firsts: int64[count], the first row of each group.
    """

    codes: Int64Array
    firsts: Int64Array

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.firsts)


def group(length: int, vectors: Sequence[Vector], numbers: Sequence[Int64Array] = ()) -> Groups:
    """Group ``length`` rows by vectors and by int64 columns."""
    parts = [_codes_of_numbers(column) for column in numbers] + [codes_of(vector) for vector in vectors]
    parts = [part for part in parts if part[1] > 1]
    if not length or not parts:
        return Groups(np.zeros(length, dtype=np.int64), np.zeros(min(length, 1), dtype=np.int64))
    codes, cardinality = parts[0]
    for more, more_cardinality in parts[1:]:
        if cardinality * more_cardinality > 2**62:
            codes, cardinality = _dictionary(pa.array(codes))
        codes = codes * more_cardinality + more
        cardinality *= more_cardinality
    return _densely(codes, cardinality)


def _densely(codes: Int64Array, cardinality: int) -> Groups:
    """Codes of which each occurs, numbered by size."""
    length = len(codes)
    if cardinality > 8 * length + 1024:
        codes, cardinality = _dictionary(pa.array(codes))
    firsts = np.full(cardinality, -1, dtype=np.int64)
    # Where an index repeats, the last assignment stays: going backwards, that is the first row.
    firsts[codes[::-1]] = np.arange(length - 1, -1, -1)
    occurring = firsts >= 0
    if not occurring.all():
        codes = (np.cumsum(occurring) - 1)[codes]
        firsts = firsts[occurring]
    return Groups(codes, firsts)


def codes_of(vector: Vector) -> tuple[Int64Array, int]:
    """int64[n] codes, equal for equal values and below the cardinality; not every code need occur."""
    uniform = vector.uniform
    if uniform is not None:
        return _codes_of_kind(vector, uniform)
    codes = np.zeros(len(vector), dtype=np.int64)
    cardinality = 0
    for kind in sorted(vector.present()):
        places = np.flatnonzero(vector.kinds == kind)
        of_kind, count = _codes_of_kind(vector.take(places), kind)
        codes[places] = of_kind + cardinality
        cardinality += count
    return codes, cardinality


def _codes_of_kind(vector: Vector, kind: int) -> tuple[Int64Array, int]:
    match kind:
        case Kind.NULL:
            return np.zeros(len(vector), dtype=np.int64), 1
        case Kind.FLOAT:
            return _dictionary(pa.array(vector.float_values()))
        case Kind.NVARCHAR:
            return _dictionary(vector.text_values())
        case Kind.RECORD | Kind.ARRAY:
            return _dictionary(pa.array(texts_of(vector), TEXT))
        case _:
            return _codes_of_numbers(vector.int_values())


def _codes_of_numbers(numbers: Int64Array) -> tuple[Int64Array, int]:
    if not len(numbers):
        return numbers, 0
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < 2 * len(numbers) + 1024:
        return (numbers if low == 0 else numbers - low), high - low + 1
    return _dictionary(pa.array(numbers))


def _dictionary(array: Any) -> tuple[Int64Array, int]:
    encoded = array.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def sort_keys(vector: Vector) -> Int64Array:
    """int64[n] numbers in the order of the values, equal only for values that are the same."""
    uniform = vector.uniform
    match uniform:
        case Kind.NULL:
            return np.zeros(len(vector), dtype=np.int64)
        case Kind.BIGINT | Kind.DATETIME | Kind.BIT | Kind.ERROR:
            return vector.int_values()
        case Kind.FLOAT:
            bits = vector.float_values().view(np.int64)
            # The bits of positive floats are in their order, those of negative ones in the opposite one.
            return np.where(bits >= 0, bits, bits ^ np.int64(0x7FFF_FFFF_FFFF_FFFF))
        case Kind.NVARCHAR:
            encoded = vector.text_values().dictionary_encode()
            ranks: Int64Array = np.empty(len(encoded.dictionary), dtype=np.int64)
            # Arrow compares the bytes of UTF-8, whose order is that of the code points.
            ranks[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(ranks))
            keys: Int64Array = ranks[encoded.indices.to_numpy()]
            return keys
        case _:
            return _mixed_sort_keys(vector)


def _mixed_sort_keys(vector: Vector) -> Int64Array:
    codes, _ = codes_of(vector)
    groups = _densely(codes, int(codes.max()) + 1)
    distinct = vector.take(groups.firsts)
    nested = np.isin(distinct.kinds, (Kind.RECORD, Kind.ARRAY))
    texts = iter(texts_of(distinct.take(np.flatnonzero(nested))))
    keys = [
        (_RANK_OF_KIND[Kind(kind)], next(texts) if is_nested else 0 if value is None else value, kind)
        for kind, value, is_nested in zip(distinct.kinds.tolist(), distinct.to_list(), nested.tolist(), strict=True)
    ]
    return _ranks(keys)[groups.codes]


def _ranks(distinct: list[Any]) -> Int64Array:
    order = sorted(range(len(distinct)), key=distinct.__getitem__)
    ranks: Int64Array = np.empty(len(distinct), dtype=np.int64)
    ranks[order] = np.arange(len(distinct))
    return ranks


def sorted_rows(columns: Sequence[Int64Array]) -> Int64Array:
    """The order of rows by several int64 columns, the first the most significant; stable."""
    if len(columns) == 1:
        return np.argsort(columns[0], kind="stable")
    order: Int64Array = np.lexsort(columns[::-1])
    return order


def ranges(starts: Int64Array, lengths: Int64Array) -> Int64Array:
    """starts[0], starts[0] + 1, …, lengths[0] of them, then those of the next."""
    total = int(lengths.sum())
    ends = np.cumsum(lengths)
    offsets: npt.NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    return offsets + np.arange(total)
