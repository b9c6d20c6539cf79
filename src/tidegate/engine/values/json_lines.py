"""Finished rows as the service's JSON output writes them.

Datetimes are text with seven digits and Z, whole floats keep their ``.0``, bits are true and false, records and
arrays are nested, NULL is null. Field names that differ only in case are one name; the left-most has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from tidegate.engine.values.datetimes import datetime_texts
from tidegate.engine.values.vectors import Datetime, Int64Array, Kind, Vector
from tidegate.ordering import format_time


def dicts(
    names: Sequence[str | None], columns: Sequence[Vector], count: int, *, plainly: bool = True
) -> list[dict[str, Any]]:
    """Return each of ``count`` rows as a record; a column named None is spread into its fields.

    ``plainly``: of JSON values, else of values as `Vector.to_list` gives them.
    """
    return _rows(names, list(map(plain_values if plainly else Vector.to_list, columns)), count)


def lines(names: Sequence[str | None], columns: Sequence[Vector], count: int) -> bytes:
    """Return a line for each of ``count`` rows, ended by a line feed."""
    values = list(map(_encodable_values, columns))
    known = tuple(name for name in names if name is not None)
    row_type = _row_type(known) if known and len(known) == len(names) else None
    return _encode_lines(_rows(names, values, count) if row_type is None else list(map(row_type, *values)))


@lru_cache(maxsize=256)
def _row_type(names: tuple[str, ...]) -> type[msgspec.Struct] | None:
    """Return a struct with fields of these names, which is encoded much faster than a record; None where it cannot have
    them."""
    attributes = [f"f{number}" for number in range(len(names))]
    fields: list[tuple[str, Any]] = [(attribute, Any) for attribute in attributes]
    try:
        return msgspec.defstruct("Row", fields, rename=dict(zip(attributes, names, strict=True)), gc=False)
    except ValueError:  # a quote or a backslash
        return None


def _rows(names: Sequence[str | None], columns: Sequence[list[Any]], count: int) -> list[dict[str, Any]]:
    known = [name for name in names if name is not None]
    if len(known) == len(names) and columns:
        return [dict(zip(known, row, strict=True)) for row in zip(*columns, strict=True)]
    if len(names) == 1:
        return [value or {} for value in columns[0]]
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    taken: list[set[str]] = [set() for _ in range(count)]
    for name, column in zip(names, columns, strict=True):
        for row, lowered, value in zip(rows, taken, column, strict=True):
            fields = value or {} if name is None else {name: value}
            for field, inner in fields.items():
                if field.lower() not in lowered:
                    row[field] = inner
            lowered.update(map(str.lower, fields))
    return rows


def _encodable_values(vector: Vector) -> list[Any]:
    """Return the values for the encoder, which knows what to do with a datetime inside a record."""
    return plain_values(vector) if vector.uniform == Kind.DATETIME else vector.to_list()


def _datetime_text(value: Any) -> str:
    return format_time(value)


_encode_lines = msgspec.json.Encoder(enc_hook=_datetime_text).encode_lines


def plain_values(vector: Vector) -> list[Any]:
    """Return the values as JSON has them."""
    if vector.uniform == Kind.DATETIME:
        texts: list[Any] = datetime_texts(vector.int_values()).to_pylist()
        return texts
    if vector.present() & {Kind.DATETIME, Kind.RECORD, Kind.ARRAY}:
        return list(map(plain, vector.to_list()))
    return vector.to_list()


def plain(value: Any) -> Any:
    """Return one value as JSON has it."""
    if isinstance(value, Datetime):
        return format_time(value)
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


def texts_of(vector: Vector) -> list[str]:
    """Return each value as JSON text with sorted fields: what `=` compares records and arrays by."""
    encode = msgspec.json.Encoder(order="deterministic").encode
    return _texts(vector, encode)


def key_texts_of(vector: Vector) -> list[str]:
    """Return each value as JSON text with its fields in their order, as CAST writes records and arrays."""
    return _texts(vector, msgspec.json.Encoder().encode)


def _texts(vector: Vector, encode: Callable[[Any], bytes]) -> list[str]:
    firsts, codes = shared_objects(vector)
    texts = [encode(plain(value)).decode() for value in vector.take(firsts).to_list()]
    return texts if len(texts) == len(codes) else [texts[code] for code in codes.tolist()]


def shared_objects(vector: Vector) -> tuple[Int64Array, Int64Array]:
    """Return the first row with each object among the values of a vector, and which of these each row has.

    Rows that CROSS APPLY makes share the records and arrays of their event. What is done for each of them may be a
    hundred thousand times as much as there is in the event.
    """
    values = vector.to_list()
    known: dict[int, int] = {}
    codes = np.fromiter((known.setdefault(id(value), len(known)) for value in values), np.int64, count=len(values))
    return np.unique(codes, return_index=True)[1], codes
