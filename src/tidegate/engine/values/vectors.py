"""Vectors: n values whose types belong to the values.

The service gives a type to each value and not to a column (query reference, "Data Types"), so a vector carries a kind
beside every value. Nearly always all kinds of a vector are the same, or the same but for NULLs; then a whole vector
is worked on at once.

A value that could not be computed is a value too: kind ERROR, whose payload says why. It travels through expressions
like a NULL that nothing absorbs, so the failure of one row stays in that row.

Invariants: floats are finite, and zero has no sign; texts are valid UTF-8; datetimes are ticks within the years 1 to
9999. Slots of another kind's storage hold zeros or nulls and mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
KindArray = npt.NDArray[np.uint8]
Texts: TypeAlias = pa.LargeStringArray
EncodedTexts: TypeAlias = pa.DictionaryArray
_WORTH_A_COPY_BYTES = 1024
TEXT = pa.large_string()


class Kind(IntEnum):
    """The type of one value; the order is the one in which values of different types are sorted."""

    NULL = 0
    BIGINT = 1
    FLOAT = 2
    NVARCHAR = 3
    DATETIME = 4
    BIT = 5
    RECORD = 6
    ARRAY = 7
    ERROR = 8


class Reason(IntEnum):
    """Why a value could not be computed."""

    CONVERSION = 1
    OVERFLOW = 2
    DIVIDE_BY_ZERO = 3
    OPERAND_TYPE = 4
    OUT_OF_DOMAIN = 5
    DATETIME_RANGE = 6
    FUNCTION_FAILED = 7
    TIME_LIMIT = 8
    NOT_COMPARABLE = 9
    LIMIT = 10

    @property
    def message(self) -> str:
        """For people."""
        return _MESSAGES[self]


_MESSAGES = {
    Reason.CONVERSION: "a value cannot be converted to the type asked for",
    Reason.OVERFLOW: "a number is out of range",
    Reason.DIVIDE_BY_ZERO: "division by zero",
    Reason.OPERAND_TYPE: "an operand is of a type the operation does not take",
    Reason.OUT_OF_DOMAIN: "an argument lies outside of what the function is defined for",
    Reason.DATETIME_RANGE: "a time lies outside of the years 1 to 9999",
    Reason.FUNCTION_FAILED: "a registered function raised an error, or gave something that is not a value",
    Reason.TIME_LIMIT: "a regular expression that needs backtracking took longer than a second on one text",
    Reason.NOT_COMPARABLE: (
        "MIN, MAX or ORDER BY met values that cannot be compared: text that is no number, or types that have no common "
        "order; CAST(… AS nvarchar(max)) compares text, TRY_CAST(… AS float) leaves out what is no number"
    ),
    Reason.LIMIT: "a value is larger, or takes more work, than one row may (the reference has a page of limits)",
}

INT_KINDS = frozenset({Kind.BIGINT, Kind.DATETIME, Kind.BIT, Kind.ERROR})
"""The kinds whose values are in ``ints``: numbers, ticks, 0 or 1, reasons."""
OBJECT_KINDS = frozenset({Kind.RECORD, Kind.ARRAY})
_MIXED = -1


class Vector:
    """n values.

    Attributes:
        kinds: uint8[n], see `Kind`.
        ints: int64[n], or None where no value needs it; so are floats float64[n], texts (Arrow) and objects (dict and
            list).
        encoded: the texts as numbers of a dictionary of distinct ones, if they came so; None if they did not.
    """

    __slots__ = ("_texts", "_uniform", "encoded", "floats", "ints", "kinds", "objects")

    def __init__(
        self,
        kinds: KindArray,
        *,
        ints: Int64Array | None = None,
        floats: FloatArray | None = None,
        texts: Texts | None = None,
        objects: npt.NDArray[np.object_] | None = None,
        encoded: EncodedTexts | None = None,
        uniform: int | None = None,
    ) -> None:
        self.kinds = kinds
        self.ints = ints
        self.floats = floats
        self.objects = objects
        self.encoded = encoded
        self._texts = texts
        self._uniform = uniform

    def __len__(self) -> int:
        return len(self.kinds)

    def __getstate__(self) -> tuple[Any, ...]:
        kinds: Any = (self.uniform, len(self.kinds)) if self.uniform is not None else self.kinds
        texts = _own_buffers(self.texts) if self.encoded is None else _packed_texts(self.encoded)
        return (kinds, self.ints, self.floats, texts, self.objects)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        kinds, self.ints, self.floats, texts, self.objects = state
        is_encoded = isinstance(texts, pa.DictionaryArray)
        self._texts, self.encoded = (None, texts) if is_encoded else (texts, None)
        if isinstance(kinds, tuple):
            uniform, length = kinds
            self.kinds = _all_of(uniform, length)
            self._uniform = uniform
        else:
            self.kinds = kinds
            self._uniform = _MIXED

    @property
    def texts(self) -> Texts | None:
        """The texts; None where no value needs them."""
        if self._texts is None and self.encoded is not None:
            self._texts = _decoded_texts(self.encoded)
        return self._texts

    @property
    def uniform(self) -> int | None:
        """The kind that all values have; None where they differ. An empty vector is all NULL."""
        if self._uniform is None:
            kinds = self.kinds
            if not len(kinds):
                self._uniform = int(Kind.NULL)
            else:
                self._uniform = int(kinds[0]) if bool((kinds == kinds[0]).all()) else _MIXED
        return None if self._uniform == _MIXED else self._uniform

    @property
    def has_texts(self) -> bool:
        """Whether there are texts, without making them of numbers."""
        return self._texts is not None or self.encoded is not None

    def present(self) -> frozenset[int]:
        """Return the kinds that occur."""
        if self.uniform is not None:
            return frozenset({self.uniform}) if len(self) else frozenset()
        return frozenset(np.flatnonzero(np.bincount(self.kinds)).tolist())

    def is_kind(self, kind: int) -> BoolArray:
        """Return bool[n]: which values are of a kind."""
        mask: BoolArray = self.kinds == kind
        return mask

    def with_kinds(
        self,
        kinds: KindArray,
        *,
        ints: Int64Array | None = None,
        floats: FloatArray | None = None,
        texts: Texts | None = None,
        objects: npt.NDArray[np.object_] | None = None,
    ) -> Vector:
        """Return the same values with other kinds, and with the storages given."""
        return Vector(
            kinds,
            ints=self.ints if ints is None else ints,
            floats=self.floats if floats is None else floats,
            texts=self._texts if texts is None else texts,
            objects=self.objects if objects is None else objects,
            encoded=self.encoded if texts is None else None,
        )

    def failing(self, where: BoolArray, reason: int | Int64Array) -> Vector:
        """Return the values with a failure in place of those ``where``: its `Reason`, or int64[n] reasons."""
        if not where.any():
            return self
        kinds = np.where(where, np.uint8(Kind.ERROR), self.kinds)
        return self.with_kinds(kinds, ints=np.where(where, reason, self.int_values()))

    def take(self, indices: Int64Array) -> Vector:
        """Return the values at ``indices``, in that order."""
        uniform, encoded = self.uniform, self.encoded
        texts = self._texts if encoded is None else None
        return Vector(
            self.kinds[indices] if uniform is None else _all_of(uniform, len(indices)),
            ints=None if self.ints is None else self.ints[indices],
            floats=None if self.floats is None else self.floats[indices],
            texts=None if texts is None else texts.take(pa.array(indices)),
            objects=None if self.objects is None else self.objects[indices],
            encoded=None if encoded is None else encoded.take(pa.array(indices)),
            uniform=uniform if len(indices) else None,
        )

    def where(self, mask: BoolArray) -> Vector:
        """Return the values for which ``mask`` is true."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def to_list(self) -> list[Any]:
        """Return the values as Python objects: None, int, float, str, `Datetime`, bool, dict, list, `Failure`."""
        uniform = self.uniform
        if uniform is not None:
            return self._list_of(uniform)
        result: list[Any] = [None] * len(self)
        for kind in self.present() - {Kind.NULL}:
            places = np.flatnonzero(self.kinds == kind)
            for place, value in zip(places.tolist(), self.take(places)._list_of(kind), strict=True):
                result[place] = value
        return result

    def _list_of(self, kind: int) -> list[Any]:
        values: list[Any]
        match kind:
            case Kind.BIGINT:
                values = self.int_values().tolist()
            case Kind.FLOAT:
                values = self.float_values().tolist()
            case Kind.NVARCHAR:
                values = self.text_values().to_pylist()
            case Kind.DATETIME:
                values = [Datetime(ticks) for ticks in self.int_values().tolist()]
            case Kind.BIT:
                values = self.int_values().astype(bool).tolist()
            case Kind.RECORD | Kind.ARRAY:
                values = self.object_values().tolist()
            case Kind.ERROR:
                values = [Failure(reason) for reason in self.int_values().tolist()]
            case _:
                values = [None] * len(self)
        return values

    def int_values(self) -> Int64Array:
        """Return ``ints``, or zeros."""
        return np.zeros(len(self), dtype=np.int64) if self.ints is None else self.ints

    def float_values(self) -> FloatArray:
        """Return ``floats``, or zeros."""
        return np.zeros(len(self), dtype=np.float64) if self.floats is None else self.floats

    def text_values(self) -> Texts:
        """Return ``texts``, or nulls."""
        return pa.nulls(len(self), TEXT) if self.texts is None else self.texts

    def object_values(self) -> npt.NDArray[np.object_]:
        """Return ``objects``, or None throughout."""
        return np.full(len(self), None, dtype=object) if self.objects is None else self.objects

    # making vectors
    # ----------------------------------------------------------------------------------------------------

    @classmethod
    def nulls(cls, length: int) -> Vector:
        """Return ``length`` NULLs."""
        return cls(_all_of(Kind.NULL, length), uniform=int(Kind.NULL))

    @classmethod
    def bigints(cls, values: Int64Array) -> Vector:
        """Return whole numbers."""
        return cls(_all_of(Kind.BIGINT, len(values)), ints=values, uniform=int(Kind.BIGINT))

    @classmethod
    def of_floats(cls, values: FloatArray) -> Vector:
        """Return floats that the caller knows to be finite; −0.0 becomes 0.0."""
        return cls(_all_of(Kind.FLOAT, len(values)), floats=values + 0.0, uniform=int(Kind.FLOAT))

    @classmethod
    def datetimes(cls, ticks: Int64Array) -> Vector:
        """Return times, given in ticks."""
        return cls(_all_of(Kind.DATETIME, len(ticks)), ints=ticks, uniform=int(Kind.DATETIME))

    @classmethod
    def bits(cls, values: BoolArray, null: BoolArray | None = None) -> Vector:
        """Return truth values, NULL where ``null``."""
        ints = values.astype(np.int64)
        if null is None or not null.any():
            return cls(_all_of(Kind.BIT, len(values)), ints=ints, uniform=int(Kind.BIT))
        return cls(np.where(null, np.uint8(Kind.NULL), np.uint8(Kind.BIT)), ints=ints)

    @classmethod
    def of_texts(cls, texts: Texts) -> Vector:
        """Return texts; an Arrow null is NULL."""
        if not texts.null_count:
            return cls(_all_of(Kind.NVARCHAR, len(texts)), texts=texts, uniform=int(Kind.NVARCHAR))
        null = texts.is_null().to_numpy(zero_copy_only=False)
        return cls(np.where(null, np.uint8(Kind.NULL), np.uint8(Kind.NVARCHAR)), texts=texts)

    @classmethod
    def of_encoded(cls, texts: pa.DictionaryArray) -> Vector:
        """Return texts that come as numbers of a dictionary; they stay numbers if it is small, and none is twice."""
        distinct = texts.dictionary.cast(TEXT)
        if 4 * len(distinct) > len(texts) or distinct.null_count or len(distinct.unique()) < len(distinct):
            return cls.of_texts(distinct.take(texts.indices))
        encoded = pa.DictionaryArray.from_arrays(texts.indices, distinct)
        if not encoded.null_count:
            return cls(_all_of(Kind.NVARCHAR, len(encoded)), encoded=encoded, uniform=int(Kind.NVARCHAR))
        null = encoded.is_null().to_numpy(zero_copy_only=False)
        return cls(np.where(null, np.uint8(Kind.NULL), np.uint8(Kind.NVARCHAR)), encoded=encoded)

    @classmethod
    def errors(cls, reason: Reason, length: int) -> Vector:
        """Return the same failure ``length`` times."""
        return cls(
            _all_of(Kind.ERROR, length),
            ints=np.full(length, int(reason), dtype=np.int64),
            uniform=int(Kind.ERROR),
        )

    @classmethod
    def constant(cls, value: Any, length: int) -> Vector:
        """Return one Python value ``length`` times."""
        return cls.of([value]).take(np.zeros(length, dtype=np.int64))

    @classmethod
    def of(cls, values: Sequence[Any], types: set[type] | None = None) -> Vector:
        """Python objects as `to_list` gives them; an integer beyond int64 or a float that is not finite becomes an
        overflow.

        ``types`` are those of the values, where the caller knows them.
        """
        if types is None:
            types = set(map(type, values))
        if len(types) == 1:
            uniform = _of_one_type(next(iter(types)), values)
            if uniform is not None:
                return uniform
        return _of_many_types(values)

    @classmethod
    def concat(cls, vectors: Sequence[Vector]) -> Vector:
        """Concatenate vectors."""
        if len(vectors) == 1:
            return vectors[0]
        if not vectors:
            return cls.nulls(0)
        uniforms = {vector.uniform for vector in vectors if len(vector)}
        uniform = uniforms.pop() if len(uniforms) == 1 else None
        return cls(
            np.concatenate([vector.kinds for vector in vectors]),
            ints=_concat_arrays(vectors, "ints", Vector.int_values),
            floats=_concat_arrays(vectors, "floats", Vector.float_values),
            texts=(
                pa.concat_arrays([vector.text_values() for vector in vectors])
                if any(vector.has_texts for vector in vectors)
                else None
            ),
            objects=_concat_arrays(vectors, "objects", Vector.object_values),
            uniform=uniform,
        )

    @classmethod
    def scattered(cls, parts: Sequence[Vector], places: Sequence[Int64Array], length: int) -> Vector:
        """Return ``length`` values, those of each part at its places; every place is in one of them."""
        back = np.empty(length, dtype=np.int64)
        back[np.concatenate([*places, np.empty(0, dtype=np.int64)])] = np.arange(length)
        return cls.concat(parts).take(back)

    @classmethod
    def choose(cls, which: Int64Array, vectors: Sequence[Vector]) -> Vector:
        """Choose row by row the value of ``vectors[which[row]]``; all of them are n long."""
        if len(vectors) == 1:
            return vectors[0]
        length = len(which)
        stacked = cls.concat(vectors)
        return stacked.take(which * length + np.arange(length))


class Datetime(int):
    """A time in ticks, as a Python object."""

    __slots__ = ()


class Failure(int):
    """A `Reason`, as a Python object instead of a value."""

    __slots__ = ()


_KIND_OF_TYPE: dict[type, Kind] = {
    type(None): Kind.NULL,
    int: Kind.BIGINT,
    float: Kind.FLOAT,
    str: Kind.NVARCHAR,
    Datetime: Kind.DATETIME,
    bool: Kind.BIT,
    dict: Kind.RECORD,
    list: Kind.ARRAY,
    Failure: Kind.ERROR,
}


_DEEPEST = 128  # as of scripts (`harness.js`)


def kind_of(value: Any) -> Kind:
    """Return the kind of a Python object as `Vector.to_list` gives them."""
    return _KIND_OF_TYPE[type(value)]


def is_value(value: Any, depth: int = _DEEPEST) -> bool:
    """Return whether a Python object is a value all through, nested at most so deeply."""
    match value:
        case dict() if type(value) is dict:
            names_fit = all(type(name) is str and is_value(name) for name in value)
            return depth > 0 and names_fit and all(is_value(inner, depth - 1) for inner in value.values())
        case list() if type(value) is list:
            return depth > 0 and all(is_value(inner, depth - 1) for inner in value)
        case int() if type(value) is int:
            return -(2**63) <= value < 2**63
        case float() if type(value) is float:
            return isfinite(value)
        case str() if type(value) is str:
            return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
        case _:
            return type(value) in _KIND_OF_TYPE


def object_array(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    """Return a numpy array of Python objects, without looking into lists."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _own_buffers(texts: Texts | None) -> Texts | None:
    """Return texts without what they are a slice of: Arrow pickles the whole buffers of a slice."""
    if texts is None or texts.get_total_buffer_size() <= 2 * texts.nbytes + _WORTH_A_COPY_BYTES:
        return texts
    return pa.concat_arrays([texts])


def _decoded_texts(encoded: EncodedTexts) -> Texts:
    return encoded.dictionary.take(encoded.indices)


def _packed_texts(encoded: EncodedTexts) -> Texts | EncodedTexts:
    """Return texts to pickle: still as numbers unless most of the dictionary is of no use, and in as few bytes."""
    distinct = encoded.dictionary
    if 4 * len(distinct) > len(encoded):
        return _decoded_texts(encoded)
    kind = pa.uint16() if len(distinct) < 2**16 else pa.int32()
    indices = encoded.indices
    return pa.DictionaryArray.from_arrays(
        indices.cast(kind) if indices.type != kind else pa.concat_arrays([indices]), _own_buffers(distinct)
    )


def _all_of(kind: int, length: int) -> KindArray:
    return np.full(length, kind, dtype=np.uint8)


def _of_one_type(type_: type, values: Sequence[Any]) -> Vector | None:
    """Return a vector of values of one Python type; None if one of them is out of range."""
    if type_ is str:
        return Vector.of_texts(pa.array(values, TEXT))
    if type_ is float:
        floats = np.array(values, dtype=np.float64)
        return Vector.of_floats(floats) if bool(np.isfinite(floats).all()) else None
    if type_ is type(None):
        return Vector.nulls(len(values))
    kind = _KIND_OF_TYPE[type_]
    if kind in OBJECT_KINDS:
        return Vector(_all_of(kind, len(values)), objects=object_array(values), uniform=int(kind))
    try:
        ints = np.array(values, dtype=np.int64)
    except OverflowError:
        return None
    return Vector(_all_of(kind, len(values)), ints=ints, uniform=int(kind))


def _of_many_types(values: Sequence[Any]) -> Vector:
    length = len(values)
    kinds = np.fromiter(map(_KIND_OF_TYPE.__getitem__, map(type, values)), dtype=np.uint8, count=length)
    present = set(np.flatnonzero(np.bincount(kinds, minlength=1)).tolist())
    ints: Int64Array | None = None
    floats: FloatArray | None = None
    texts: Texts | None = None
    objects: npt.NDArray[np.object_] | None = None
    if present & {*INT_KINDS, Kind.FLOAT}:
        ints = np.zeros(length, dtype=np.int64)
    for kind in sorted(present):
        places = np.flatnonzero(kinds == kind)
        chosen = [values[place] for place in places.tolist()]
        if kind == Kind.FLOAT:
            floats = np.zeros(length, dtype=np.float64)
            floats[places] = chosen
            floats += 0.0
            infinite = ~np.isfinite(floats)
            assert ints is not None
            floats[infinite], kinds[infinite], ints[infinite] = 0.0, Kind.ERROR, Reason.OVERFLOW
        elif kind == Kind.NVARCHAR:
            texts = pa.array([value if type(value) is str else None for value in values], TEXT)
        elif kind in OBJECT_KINDS:
            objects = np.full(length, None, dtype=object) if objects is None else objects
            objects[places] = object_array(chosen)
        elif kind in INT_KINDS:
            assert ints is not None
            for place, value in zip(places.tolist(), chosen, strict=True):
                if -(2**63) <= value < 2**63:
                    ints[place] = value
                else:
                    kinds[place], ints[place] = Kind.ERROR, Reason.OVERFLOW
    return Vector(kinds, ints=ints, floats=floats, texts=texts, objects=objects)


def _concat_arrays(
    vectors: Sequence[Vector], name: str, values: Callable[[Vector], npt.NDArray[Any]]
) -> npt.NDArray[Any] | None:
    if all(getattr(vector, name) is None for vector in vectors):
        return None
    return np.concatenate([values(vector) for vector in vectors])
