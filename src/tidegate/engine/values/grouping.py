"""Numbers for values: dense codes for equal values, sort keys for ordered ones.

Two values are *the same* (`group`) if they have the same type and are written the same: text by code points, numbers by
value, records and arrays by their JSON with fields in their order. All NULLs are the same.

Two values are *one key* if `=` finds them equal without converting text (docs/how-time-works.md): numbers and bits by
value, whatever their type ("You may join on (or compare) a bigint and a float", data types page), texts regardless of
case, records and arrays by their fields in any order, with names and values compared alike. `unified` maps the values
of one key to the same value, so keys are grouped, hashed and joined by their unified values. It costs next to nothing
where a column has one spelling of each key.

A group is output under one of its spellings: the one that comes first in the order below, 1 before 1.0 and 'A' before
'a'. It depends on the rows of the group alone (`spelled`).

Values of one type have their natural order, texts that of their code points; different types are ordered by type
(numbers and bits together, and if equal bigint before float before bit), NULL first. The order is total, so sorting by
it has one result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.values.conversions import parse_number, truth
from tidegate.engine.values.json_lines import key_texts_of, shared_objects
from tidegate.engine.values.vectors import Failure, Int64Array, Kind, Texts, Vector, object_array

_RANK_OF_KIND = {
    Kind.NULL: 0,
    Kind.BIGINT: 1,
    Kind.FLOAT: 1,
    Kind.BIT: 1,
    Kind.NVARCHAR: 2,
    Kind.DATETIME: 3,
    Kind.RECORD: 5,
    Kind.ARRAY: 6,
    Kind.ERROR: 7,
}


_NUMERIC = frozenset({Kind.BIGINT, Kind.FLOAT, Kind.BIT})

_WIDEST = 2**40
"""Numbers within a range of this size are used as codes directly."""
_LONG = 128
"""Characters of the JSON of records and arrays that are compared by a hash."""


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
            codes, cardinality = _fewer(codes, cardinality)
            more, more_cardinality = _fewer(more, more_cardinality)
        codes = codes * more_cardinality + more
        cardinality *= more_cardinality
    return _densely(codes, cardinality)


def unified(vector: Vector, *, everywhere: bool = False) -> Vector:
    """Return values of which those of one key are the same; the vector itself if nothing has to change.

    Args:
        everywhere: make numbers the same in every vector and not just inside this one, at the cost of a look at each.
    """
    kinds = vector.present()
    numeric = kinds & _NUMERIC
    if len(numeric) > 1 or (everywhere and numeric - {Kind.BIGINT}):
        vector = _unified_numbers(vector)
    if Kind.NVARCHAR in kinds and not (vector.encoded is not None and _is_lower(vector.encoded.dictionary)):
        texts = vector.text_values()
        lowered = without_case(texts)
        vector = vector if lowered is texts else vector.with_kinds(vector.kinds, texts=lowered)
    if kinds & {Kind.RECORD, Kind.ARRAY}:
        nested = np.flatnonzero((vector.kinds == Kind.RECORD) | (vector.kinds == Kind.ARRAY))
        objects = vector.object_values().copy()
        unified_objects: dict[int, Any] = {}
        for value in objects[nested].tolist():
            if id(value) not in unified_objects:
                unified_objects[id(value)] = _unified_object(value)
        objects[nested] = object_array([unified_objects[id(value)] for value in objects[nested].tolist()])
        vector = vector.with_kinds(vector.kinds, objects=objects)
    return vector


def _unified_numbers(vector: Vector) -> Vector:
    """Return whole floats that a bigint can hold, and bits, as bigints."""
    floats = vector.float_values()
    whole = (vector.kinds == Kind.FLOAT) & (np.floor(floats) == floats) & (floats >= -(2.0**63)) & (floats < 2.0**63)
    kinds = np.where(whole | (vector.kinds == Kind.BIT), np.uint8(Kind.BIGINT), vector.kinds)
    ints = np.where(whole, np.where(whole, floats, 0.0).astype(np.int64), vector.int_values())
    return Vector(kinds, ints=ints, floats=vector.floats, texts=vector.texts, objects=vector.objects)


def _unified_object(value: Any) -> Any:
    if isinstance(value, dict):
        fields = sorted((name.lower(), name, inner) for name, inner in value.items())
        names = [lowered for lowered, _, _ in fields]
        return {
            lowered if names.count(lowered) == 1 else name: _unified_object(inner) for lowered, name, inner in fields
        }
    if isinstance(value, list):
        return [_unified_object(inner) for inner in value]
    if isinstance(value, str):
        return value.lower()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer() and -(2.0**63) <= value < 2.0**63:
        return int(value)
    return value


def without_case(texts: Texts) -> Texts:
    """Return texts in lower case; the same object if they are."""
    if _is_lower(texts):
        return texts
    lowered: Texts = pc.utf8_lower(texts)
    return lowered


def _is_lower(texts: Texts) -> bool:
    """Return whether texts have neither capitals nor characters beyond ASCII: nothing else can change."""
    _, offsets, content = texts.buffers()
    if not len(texts) or content is None:
        return True
    ends = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(content, dtype=np.uint8)[ends[0] : ends[-1]]
    return not bool(((data - np.uint8(65) < 26) | (data >= 128)).any())


def spelled(vector: Vector, groups: Groups) -> Vector:
    """Return the spelling of each group's key, given the keys of rows: the one that comes first in their order."""
    firsts = vector.take(groups.firsts)
    if groups.count == len(vector) or unified(vector) is vector:
        return firsts
    keys = sort_keys(vector)
    least = keys[groups.firsts]
    np.minimum.at(least, groups.codes, keys)
    best = groups.firsts.copy()
    winners = np.flatnonzero(keys == least[groups.codes])
    best[groups.codes[winners]] = winners
    return vector.take(best)


def texts_of_numbers(key: Vector) -> Int64Array:
    """Return the rows whose key is text that `=` would find equal to a number or bit of other rows.

    They are two keys nonetheless: reading text as a number depends on what it is compared with, which a key cannot.
    """
    kinds = key.present()
    numeric = kinds & _NUMERIC
    if Kind.NVARCHAR not in kinds or not numeric:
        return np.empty(0, dtype=np.int64)
    floats = np.where(key.kinds == Kind.FLOAT, key.float_values(), key.int_values().astype(np.float64))
    numbers = np.unique(floats[np.isin(key.kinds, list(numeric))])
    places = np.flatnonzero(key.kinds == Kind.NVARCHAR)
    encoded = key.take(places).text_values().dictionary_encode()
    read = np.full(len(encoded.dictionary), np.nan)
    for place, text in enumerate(encoded.dictionary.to_pylist()):
        number: float | bool | Failure | None = parse_number(text)
        if isinstance(number, Failure):
            number = truth(text) if Kind.BIT in numeric else None
        read[place] = np.nan if number is None else float(number)
    found: Int64Array = places[np.isin(read, numbers)[encoded.indices.to_numpy()]]
    return found


def _densely(codes: Int64Array, cardinality: int) -> Groups:
    """Renumber codes by size so that each occurs."""
    length = len(codes)
    if cardinality > 8 * length + 1024:
        return _by_sorting(codes, cardinality)
    firsts = np.full(cardinality, -1, dtype=np.int64)
    # Where an index repeats, the last assignment stays: going backwards, that is the first row.
    firsts[codes[::-1]] = np.arange(length - 1, -1, -1)
    occurring = firsts >= 0
    if not occurring.all():
        codes = (np.cumsum(occurring) - 1)[codes]
        firsts = firsts[occurring]
    return Groups(codes, firsts)


def _by_sorting(codes: Int64Array, cardinality: int) -> Groups:
    """Do the same if most codes do not occur: code and row in one word, sorted as a number."""
    bits = len(codes).bit_length()
    if cardinality.bit_length() + bits > 63:
        codes, _ = _dictionary(pa.array(codes))
    words = (codes << bits) | np.arange(len(codes))
    words.sort()
    rows = words & ((1 << bits) - 1)
    words >>= bits
    begins = np.ones(len(codes), dtype=np.bool_)
    np.not_equal(words[1:], words[:-1], out=begins[1:])
    dense = np.empty(len(codes), dtype=np.int64)
    dense[rows] = np.cumsum(begins) - 1
    return Groups(dense, rows[begins])


def _fewer(codes: Int64Array, cardinality: int) -> tuple[Int64Array, int]:
    """Return the same codes, numbered without gaps."""
    return (codes, cardinality) if cardinality <= len(codes) else _dictionary(pa.array(codes))


def codes_of(vector: Vector) -> tuple[Int64Array, int]:
    """Return int64[n] codes, equal for equal values and below the cardinality; not every code need occur."""
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
        case Kind.NVARCHAR if vector.encoded is not None and len(vector.encoded.dictionary) <= len(vector):
            return vector.encoded.indices.to_numpy().astype(np.int64), len(vector.encoded.dictionary)
        case Kind.NVARCHAR:
            return _dictionary(vector.text_values())
        case Kind.RECORD | Kind.ARRAY:
            firsts, codes = shared_objects(vector)
            known: dict[Any, int] = {}
            texts = map(_digest, key_texts_of(vector.take(firsts)))
            return np.fromiter((known.setdefault(text, len(known)) for text in texts), np.int64)[codes], len(known)
        case _:
            return _codes_of_numbers(vector.int_values())


def _digest(text: str) -> str | bytes:
    """Return what stands for a text: itself, or if it is long, a hash that no other text has."""
    return text if len(text) < _LONG else blake2b(text.encode("utf-8", "surrogatepass")).digest()


def _codes_of_numbers(numbers: Int64Array) -> tuple[Int64Array, int]:
    if not len(numbers):
        return numbers, 0
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < _WIDEST:
        return (numbers if low == 0 else numbers - low), high - low + 1
    return _dictionary(pa.array(numbers))


def _dictionary(array: Any) -> tuple[Int64Array, int]:
    encoded = array.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def sort_keys(vector: Vector) -> Int64Array:
    """Return int64[n] numbers in the order of the values, equal only for values that are the same."""
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
            return _text_sort_keys(vector.text_values())
        case _:
            return _mixed_sort_keys(vector)


def ordered_keys(vector: Vector) -> Int64Array:
    """Return sort keys in the order of `<`, which compares texts regardless of case; 'A' is before 'a'."""
    folded = unified(vector)
    if folded.texts is vector.texts:
        return sort_keys(vector)
    columns = sort_keys(folded), sort_keys(vector)
    order = sorted_rows(columns)
    ranks = np.zeros(len(order), dtype=np.int64)
    for column in columns:
        by_rank = column[order]
        ranks[1:] |= by_rank[1:] != by_rank[:-1]
    keys = np.empty_like(ranks)
    keys[order] = np.cumsum(ranks)
    return keys


def _text_sort_keys(texts: Texts) -> Int64Array:
    """Return sort keys of texts, in the order of their code points, which is that of the bytes of UTF-8.

    Texts that differ in at most seven bytes, as numbered names do, become numbers of eight bytes: what follows the
    common prefix, and its length to tell a text from one with zeros behind it.
    """
    count = len(texts)
    if not count:
        return np.empty(0, dtype=np.int64)
    _, offsets, content = texts.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + count + 1]
    starts, lengths = ends[:-1], np.diff(ends)
    shortest, longest = int(lengths.min()), int(lengths.max())
    if longest - shortest <= 7:
        data = np.zeros(int(ends[-1]) + 8, dtype=np.uint8)
        if content is not None:
            data[:-8] = np.frombuffer(content, dtype=np.uint8, count=int(ends[-1]))
        words: npt.NDArray[np.uint64] = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data.data, strides=(1,))
        common = 0
        while common < shortest and longest - common > 7:
            differing = int(np.bitwise_or.reduce(words[starts + common] ^ words[starts[0] + common]))
            alike = 8 if not differing else ((differing & -differing).bit_length() - 1) // 8
            common = min(common + alike, shortest)
            if alike < 8:
                break
        if longest - common <= 7:
            rest = (lengths - common).astype(np.uint64)
            own = words[starts + common] & ((np.uint64(1) << (np.uint64(8) * rest)) - np.uint64(1))
            ordered = own.astype(np.uint64, copy=False).byteswap() | rest
            return (ordered ^ np.uint64(1 << 63)).view(np.int64)
    encoded = texts.dictionary_encode()
    ranks: Int64Array = np.empty(len(encoded.dictionary), dtype=np.int64)
    ranks[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(ranks))
    keys: Int64Array = ranks[encoded.indices.to_numpy()]
    return keys


def _mixed_sort_keys(vector: Vector) -> Int64Array:
    codes, _ = codes_of(vector)
    groups = _densely(codes, int(codes.max()) + 1)
    distinct = vector.take(groups.firsts)
    nested = np.isin(distinct.kinds, (Kind.RECORD, Kind.ARRAY))
    texts = iter(key_texts_of(distinct.take(np.flatnonzero(nested))))
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
    """Return the order of rows by several int64 columns, the first the most significant; stable."""
    first, *others = columns
    # A column that is the same for all rows, as the partition of one partition's rows is, need not be sorted by.
    differing = [
        column for column in others if len(column) and (column[0] != column[-1] or (column != column[0]).any())
    ]
    if not differing:
        return np.argsort(first, kind="stable")
    order: Int64Array = np.lexsort([*reversed(differing), first])
    return order


def ranges(starts: Int64Array, lengths: Int64Array) -> Int64Array:
    """Return starts[0], starts[0] + 1, …, lengths[0] of them, then those of the next."""
    total = int(lengths.sum())
    ends = np.cumsum(lengths)
    offsets: npt.NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    return offsets + np.arange(total)
