"""The result of decoding, whatever the format: the rows of a batch as columns, and the bodies that were rejected.

Each format has its own decoder, which finds the rows and their values. This module does what is the same for every
row: the declared columns of CREATE TABLE, the older compatibility levels, values that no type can represent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from tidegate.engine.values.conversions import by_kind, of_distinct, parse_float, parse_number
from tidegate.engine.values.datetimes import parse_datetime, parse_datetimes
from tidegate.engine.values.vectors import BoolArray, Datetime, Failure, Int64Array, Kind, Vector
from tidegate.sql.plan.nodes import Type

Path = tuple[str, ...]

NONE = np.empty(0, dtype=np.int64)


class Problem(IntEnum):
    """Why a body, or a row of it, could not be used; each counts as an Input Deserialization Error."""

    MALFORMED = 1
    OUT_OF_RANGE = 2
    NON_CONFORMING = 3
    INVALID_COMPRESSION = 4
    INVALID_HEADER = 5
    MISSING_COLUMNS = 6
    TYPE_CONVERSION = 7
    LIMIT_EXCEEDED = 8
    SET_ASIDE = 9

    @property
    def data_error_type(self) -> str:
        """The problem's name in the service's diagnostics."""
        return f"InputDeserializerError.{_DATA_ERROR_TYPES.get(self, 'InvalidData')}"

    @property
    def message(self) -> str:
        """A description for people."""
        return _PROBLEM_MESSAGES[self]


_PROBLEM_MESSAGES = {
    Problem.MALFORMED: "it is not in the format of the input, or not in UTF-8",
    Problem.OUT_OF_RANGE: "a number or a time is out of range",
    Problem.NON_CONFORMING: "the body does not fit the columns of CREATE TABLE",
    Problem.INVALID_COMPRESSION: "it is not compressed as the input says, or is truncated",
    Problem.INVALID_HEADER: "the first line does not name the columns, each once",
    Problem.MISSING_COLUMNS: "a column of CREATE TABLE is missing",
    Problem.TYPE_CONVERSION: "a value cannot be converted to the type that CREATE TABLE gives its column",
    Problem.LIMIT_EXCEEDED: "it is larger or more deeply nested than input_limits allow",
    Problem.SET_ASIDE: "it ended the job's process twice, so it was set aside",
}
_DATA_ERROR_TYPES = {
    Problem.OUT_OF_RANGE: "TypeConversionError",
    Problem.INVALID_COMPRESSION: "InvalidCompressionType",
    Problem.INVALID_HEADER: "InvalidHeader",
    Problem.MISSING_COLUMNS: "MissingColumns",
    Problem.TYPE_CONVERSION: "TypeConversionError",
    Problem.SET_ASIDE: "SetAside",
}


_OF_A_BODY = frozenset({Problem.MALFORMED, Problem.LIMIT_EXCEEDED})


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parts of an input's bodies that a query needs.

    Attributes:
        paths: fields, and fields inside them, spelled as in the query; they match regardless of case.
        record: whether the whole body is needed.
        declared: the columns of CREATE TABLE; a row that lacks one or has another type there is rejected.
        bits: whether JSON truth values are bits (compatibility level 1.2) or bigints.
        lower_case: whether names in records become lower case (level 1.0).
        datetimes: whether JSON text that is a time becomes a time (level 1.0).
    """

    paths: tuple[Path, ...] = ()
    record: bool = False
    declared: tuple[tuple[str, Type], ...] | None = None
    bits: bool = True
    lower_case: bool = False
    datetimes: bool = False


@dataclass(frozen=True, slots=True)
class Decoded:
    """The n rows in m bodies.

    Attributes:
        events: int64[n], ascending: the body of each row. A body may hold no row, one, or several.
        indices: int64[n], the index of each row in its body.
        fields: a vector for each wanted path, its names in lower case.
        records: the whole rows, if wanted.
        rejected_events: int64[r], ascending: the body of each rejection (a body may have several, one for each row).
        rejected_problems: int64[r], the `Problem` of each rejection.
    """

    events: Int64Array
    indices: Int64Array
    fields: dict[Path, Vector]
    records: Vector | None
    rejected_events: Int64Array
    rejected_problems: Int64Array

    def __len__(self) -> int:
        return len(self.events)

    def take(self, rows: Int64Array) -> Decoded:
        """Return only these rows, with all rejections."""
        return Decoded(
            self.events[rows],
            self.indices[rows],
            {path: vector.take(rows) for path, vector in self.fields.items()},
            None if self.records is None else self.records.take(rows),
            self.rejected_events,
            self.rejected_problems,
        )

    def beside(self, places: Int64Array, aside: Int64Array) -> Decoded:
        """Return the same rows as those of a longer run of bodies, of which some were not decoded at all.

        Args:
            places: int64[m], ascending: where the bodies are in the longer run.
            aside: ascending: where the others are; each is rejected.
        """
        rejected = np.concatenate([places[self.rejected_events], aside])
        problems = np.concatenate([self.rejected_problems, np.full(len(aside), Problem.SET_ASIDE, dtype=np.int64)])
        order = np.argsort(rejected, kind="stable")
        return replace(
            self, events=places[self.events], rejected_events=rejected[order], rejected_problems=problems[order]
        )


@lru_cache(maxsize=4096)
def spelling_of(members: tuple[str, ...], name: str) -> str | None:
    """Return the member that a name means: spelled the same, or else the first that matches regardless of case."""
    if name in members:
        return name
    low = name.lower()
    return min((member for member in members if member.lower() == low), default=None)


def path_value(record: Any, path: Path, missing: Any = None) -> Any:
    """Return the value of a field inside records, matched regardless of case; ``missing`` if there is none."""
    for step in path:
        if not isinstance(record, dict):
            return missing
        spelling = step if step in record else spelling_of(tuple(record), step)
        if spelling is None:
            return missing
        record = record[spelling]
    return record


def value_problem(value: Any, depth: int) -> Problem | None:
    """Return why a JSON value cannot be used: a whole number out of range, or nested more deeply than ``depth``."""
    if type(value) is int:
        return None if -(2**63) <= value < 2**63 else Problem.OUT_OF_RANGE
    if not isinstance(value, (dict, list)):
        return None
    if not depth:
        return Problem.LIMIT_EXCEEDED
    found = None
    for inner in value.values() if isinstance(value, dict) else value:
        problem = value_problem(inner, depth - 1)
        if problem is Problem.LIMIT_EXCEEDED:
            return problem
        found = found or problem
    return found


def count_values(value: Any, most: int) -> int:
    """Return how many values a value holds, itself included; it is not looked at further once there are more."""
    count, level = 1, [value]
    while level and count <= most:
        inner = [part for part in level if isinstance(part, (dict, list, tuple)) and part]
        level = [one for part in inner for one in (part.values() if isinstance(part, dict) else part)]
        count += len(level)
    return count


def finished(
    decoded: Decoded,
    wanted: Wanted,
    missing: dict[Path, BoolArray],
    rejected: list[tuple[int, Problem]],
    *,
    tabular: bool = False,
    of_text: bool = False,
) -> Decoded:
    """Return the rows as the query sees them, without those that cannot be used.

    Args:
        decoded: the rows with the format's own values; its rejections are ignored.
        missing: bool[n] for a path that some rows lack, as opposed to having NULL there.
        rejected: the bodies (or rows of them) that could not be read at all.
        tabular: whether the format has columns, so that a missing one differs from one of another type.
        of_text: whether all values are text, to be converted to the declared types.
    """
    if not wanted.bits:
        decoded = _with_values(decoded, without_bits, _without_bits)
    if wanted.lower_case:
        decoded = _with_values(decoded, lambda vector: _mapped(vector, _with_lower_names), _with_lower_names)
    if wanted.datetimes and not tabular:
        # A column that is declared as text keeps its original text.
        texts: dict[Path, Vector] = {
            (name.lower(),): decoded.fields[name.lower(),]
            for name, type_ in wanted.declared or ()
            if type_ is Type.NVARCHAR
        }
        decoded = _with_values(
            decoded, lambda vector: _mapped(_with_times(vector), _with_nested_times), _with_nested_times
        )
        decoded = replace(decoded, fields={**decoded.fields, **texts})
    rejected = list(rejected)
    keep, unreadable = _readable(decoded)
    rejected += unreadable
    if wanted.declared is not None:
        events = decoded.events
        if of_text:
            decoded = replace(decoded, fields=_typed_texts(decoded.fields, wanted.declared))
        lacking = np.zeros(len(decoded), dtype=np.bool_)
        for name, _ in wanted.declared:
            lacking |= missing.get((name.lower(),), np.bool_(False))
        decoded, conforming = _conform(decoded, wanted.declared, missing)
        for event, lacks in zip(events[keep & ~conforming].tolist(), lacking[keep & ~conforming].tolist(), strict=True):
            of_columns = Problem.MISSING_COLUMNS if lacks else Problem.TYPE_CONVERSION
            rejected.append((event, of_columns if tabular else Problem.NON_CONFORMING))
        keep = keep & conforming
    rejected.sort()
    if not keep.all():
        decoded = decoded.take(np.flatnonzero(keep))
    return replace(
        decoded,
        rejected_events=np.array([event for event, _ in rejected], dtype=np.int64),
        rejected_problems=np.array([problem for _, problem in rejected], dtype=np.int64),
    )


def _with_values(decoded: Decoded, of_fields: Callable[[Vector], Vector], of_records: Callable[[Any], Any]) -> Decoded:
    records = decoded.records and _mapped(decoded.records, of_records)
    return replace(
        decoded, fields={path: of_fields(vector) for path, vector in decoded.fields.items()}, records=records
    )


def _readable(decoded: Decoded) -> tuple[BoolArray, list[tuple[int, Problem]]]:
    """Return which rows are of bodies whose wanted values are all readable, and the other bodies."""
    problems: dict[int, Problem] = {}
    for vector in decoded.fields.values():
        if Kind.ERROR in vector.present():
            places = np.flatnonzero(vector.kinds == Kind.ERROR)
            codes = vector.int_values()[places]
            for event, code in zip(decoded.events[places].tolist(), codes.tolist(), strict=True):
                problem = Problem(code) if code in _OF_A_BODY else Problem.OUT_OF_RANGE
                problems[event] = min(problems.get(event, problem), problem)
    keep = np.ones(len(decoded), dtype=np.bool_)
    if problems:
        keep = ~np.isin(decoded.events, list(problems))
    return keep, list(problems.items())


# declared columns
# ------------------------------------------------------------------------------------------------------


def _conform(
    decoded: Decoded, declared: tuple[tuple[str, Type], ...], missing: dict[Path, BoolArray]
) -> tuple[Decoded, BoolArray]:
    """Convert the declared columns to their types, and return them with the rows that have them all.

    A JSON null is a NULL of any type.
    """
    conforming = np.ones(len(decoded), dtype=np.bool_)
    fields = dict(decoded.fields)
    for name, type_ in declared:
        path = (name.lower(),)
        null = fields[path].kinds == Kind.NULL
        if path in missing:
            null &= ~missing[path]
        fields[path], fits = _of_type(fields[path], type_)
        conforming &= fits | null
    records = decoded.records
    if records is not None:
        records = _with_declared(records, fields, declared)
    return replace(decoded, fields=fields, records=records), conforming


def _of_type(vector: Vector, type_: Type) -> tuple[Vector, BoolArray]:
    """Convert a declared column's values to the declared type, where that loses nothing."""
    kinds = vector.kinds
    match type_:
        case Type.BIGINT:
            values = vector.float_values()
            whole = (kinds == Kind.FLOAT) & (np.floor(values) == values) & (np.abs(values) < 2.0**63)
            if whole.any():
                ints = np.where(whole, np.where(whole, values, 0.0).astype(np.int64), vector.int_values())
                vector = vector.with_kinds(np.where(whole, np.uint8(Kind.BIGINT), kinds), ints=ints)
            return vector, vector.kinds == Kind.BIGINT
        case Type.FLOAT:
            whole = kinds == Kind.BIGINT
            if whole.any():
                values = np.where(whole, vector.int_values().astype(np.float64), vector.float_values())
                vector = vector.with_kinds(np.where(whole, np.uint8(Kind.FLOAT), kinds), floats=values)
            return vector, vector.kinds == Kind.FLOAT
        case Type.DATETIME:
            ticks, valid = parse_datetimes(vector.text_values())
            already = kinds == Kind.DATETIME
            ticks = np.where(already, vector.int_values(), ticks)
            valid = valid | already
            return Vector(np.where(valid, np.uint8(Kind.DATETIME), np.uint8(Kind.NULL)), ints=ticks), valid
        case Type.ANY:
            return vector, kinds != Kind.NULL
        case _:
            return vector, kinds == _KIND_OF_DECLARED[type_]


def _typed_texts(fields: dict[Path, Vector], declared: tuple[tuple[str, Type], ...]) -> dict[Path, Vector]:
    """Convert texts to numbers or truth values where those are declared; other texts stay, and then do not conform."""
    typed = dict(fields)
    for name, type_ in declared:
        read = _READ_TEXT.get(type_)
        if read is not None:
            typed[name.lower(),] = by_kind(typed[name.lower(),], partial(_read_texts, read))
    return typed


def _read_texts(read: Callable[[str], Any], vector: Vector, kind: int) -> Vector:
    if kind != Kind.NVARCHAR:
        return vector

    def value(text: str) -> Any:
        found = read(text)
        return text if isinstance(found, Failure) else found

    return of_distinct(vector, value)


_TRUTH = {"true": True, "false": False, "1": True, "0": False}
_READ_TEXT: dict[Type, Callable[[str], Any]] = {
    Type.BIGINT: parse_number,
    Type.FLOAT: parse_float,
    Type.BIT: lambda text: _TRUTH.get(text.strip().lower(), text),
}
_KIND_OF_DECLARED = {
    Type.NVARCHAR: Kind.NVARCHAR,
    Type.BIT: Kind.BIT,
    Type.RECORD: Kind.RECORD,
    Type.ARRAY: Kind.ARRAY,
}


def _with_declared(records: Vector, fields: dict[Path, Vector], declared: tuple[tuple[str, Type], ...]) -> Vector:
    rows = [dict(row) for row in records.object_values()]
    for name, _ in declared:
        for row, value in zip(rows, fields[name.lower(),].to_list(), strict=True):
            spelling = spelling_of(tuple(row), name)
            if spelling is not None:
                row[spelling] = value
    return Vector(records.kinds, objects=objects_of(rows))


# older compatibility levels
# --------------------------------------------------------------------------------------------


def without_bits(vector: Vector) -> Vector:
    """Return a vector with bigints in place of bits, also in records and arrays: older levels have no bit."""
    kinds = np.where(vector.kinds == Kind.BIT, np.uint8(Kind.BIGINT), vector.kinds)
    return _mapped(vector.with_kinds(kinds), _without_bits)


def _mapped(vector: Vector, function: Callable[[Any], Any]) -> Vector:
    """Return records and arrays changed by a function of JSON values."""
    if vector.objects is None:
        return vector
    return vector.with_kinds(vector.kinds, objects=objects_of(list(map(function, vector.objects.tolist()))))


def _without_bits(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict):
        return {name: _without_bits(inner) for name, inner in value.items()}
    return [_without_bits(inner) for inner in value] if isinstance(value, list) else value


def _with_times(vector: Vector) -> Vector:
    """Convert texts with a date, a time and possibly a zone to times. A date alone stays text."""
    if Kind.NVARCHAR not in vector.present():
        return vector
    texts = vector.text_values()
    looks = pc.fill_null(pc.match_substring_regex(texts, _TIME), False).to_numpy(zero_copy_only=False)
    if not looks.any():
        return vector
    ticks, valid = parse_datetimes(texts)
    valid &= looks & (vector.kinds == Kind.NVARCHAR)
    kinds = np.where(valid, np.uint8(Kind.DATETIME), vector.kinds)
    return vector.with_kinds(kinds, ints=np.where(valid, ticks, vector.int_values()))


def _with_nested_times(value: Any) -> Any:
    if isinstance(value, str) and _TIME_TEXT.match(value):
        ticks = parse_datetime(value)
        return value if ticks is None else Datetime(ticks)
    if isinstance(value, dict):
        return {name: _with_nested_times(inner) for name, inner in value.items()}
    return [_with_nested_times(inner) for inner in value] if isinstance(value, list) else value


_TIME = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})?$"
_TIME_TEXT = re.compile(_TIME[:-1] + r"\Z")


def _with_lower_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {name.lower(): _with_lower_names(inner) for name, inner in value.items()}
    return [_with_lower_names(inner) for inner in value] if isinstance(value, list) else value


def objects_of(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array


def kinds_of(length: int, kind: Kind) -> npt.NDArray[np.uint8]:
    return np.full(length, kind, dtype=np.uint8)
