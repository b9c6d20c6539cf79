"""JSON bodies to columns of what the query wants.

A body is an object, an array of objects, or several of either on lines of their own; each object is a row. Only
wanted fields are turned into values: a decoder is made that knows their names, and everything else is stepped over
(its syntax is checked, its values are not). So a body is rejected when its syntax is wrong, when it holds something
that is not an object, or when a *wanted* value cannot be had: text that is not UTF-8, a number beyond the range of
its type.

Names match without case, but a JSON decoder matches bytes. The decoder is therefore told the spellings that producers
are seen to use, and a row in which a wanted name was not found is searched for other spellings. Of two spellings in
one object the one that the query uses first wins, then the one that sorts first. What has been learnt changes the
speed and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tidegate.engine.datetimes import parse_datetimes
from tidegate.engine.values import BoolArray, Failure, Int64Array, Kind, Vector
from tidegate.saql.plan import Type

Path = tuple[str, ...]

_UNSET = msgspec.UNSET
_NONE = np.empty(0, dtype=np.int64)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_SPELLINGS = 6
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Problem(IntEnum):
    """Why a body, or a row of it, could not be used; each counts as an Input Deserialization Error."""

    MALFORMED = 1
    OUT_OF_RANGE = 2
    NON_CONFORMING = 3

    @property
    def data_error_type(self) -> str:
        """Its name in the service's diagnostics."""
        return "InputDeserializerError.InvalidData"

    @property
    def message(self) -> str:
        """For people."""
        return _PROBLEM_MESSAGES[self]


_PROBLEM_MESSAGES = {
    Problem.MALFORMED: "the body is not a JSON object, an array of objects, or lines of objects, in UTF-8",
    Problem.OUT_OF_RANGE: "a number is beyond the range of bigint or float",
    Problem.NON_CONFORMING: "a declared column is missing or has a value of another type",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the query needs of an input's bodies.

    Attributes:
        paths: fields, and fields inside them, spelled as the query does; they match without case.
        record: the whole body is needed.
        declared: the columns of CREATE TABLE; a row that lacks one or has another type there is rejected.
        bits: whether JSON truth values are bits (compatibility level 1.2) or bigints.
        lower_case: names in records are made lower case (level 1.0).
    """

    paths: tuple[Path, ...] = ()
    record: bool = False
    declared: tuple[tuple[str, Type], ...] | None = None
    bits: bool = True
    lower_case: bool = False


@dataclass(frozen=True, slots=True)
class Decoded:
    """The n rows that m bodies hold.

    Attributes:
        events: int64[n], ascending: which body the row is of. A body may hold no row, one, or several.
        indices: int64[n], which row of its body it is.
        fields: a vector for each wanted path, its names in lower case.
        records: the whole rows, where wanted.
        rejected_events: int64[r], ascending: the body of each rejection (a body may have several, one for each row).
        rejected_problems: int64[r], why each was: a `Problem`.
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
        """Only these rows; rejections stay."""
        return Decoded(
            self.events[rows],
            self.indices[rows],
            {path: vector.take(rows) for path, vector in self.fields.items()},
            None if self.records is None else self.records.take(rows),
            self.rejected_events,
            self.rejected_problems,
        )


@dataclass(slots=True)
class _Name:
    """A wanted name inside one object: as the query spells it, and the spellings seen besides."""

    spelling: str
    leaf: bool = False
    children: dict[str, _Name] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    def spellings(self) -> list[str]:
        return [self.spelling, *self.others]


class Decoder:
    """Decodes batches of one input; keep one for as long as a task lives."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        paths = list(wanted.paths) + [(name,) for name, _ in wanted.declared or ()]
        self._names = _name_tree(paths)
        self._paths = list(dict.fromkeys(_as_first_spelled(self._names, path) for path in paths))
        self._learned = False
        self._decode_plainly: Callable[[bytes], Any] = (
            _decode_record if wanted.record else msgspec.json.Decoder(_struct(self._names)).decode
        )
        self._decode = self._decode_plainly

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """The rows of m bodies, and which bodies were rejected."""
        rows, texts, events, indices, rejected = self._objects(bodies)
        missing: dict[Path, BoolArray] = {}
        fields = {tuple(map(str.lower, path)): self._vector(rows, texts, path, missing) for path in self._paths}
        records = Vector(_kinds(len(rows), Kind.RECORD), objects=_objects_of(rows)) if self._wanted.record else None
        if self._learned:
            self._decode = msgspec.json.Decoder(_struct(self._names)).decode
            self._learned = False
        if not self._wanted.bits:
            fields = {path: _mapped(_bits_to_bigints(vector), _without_bits) for path, vector in fields.items()}
            records = records and _mapped(records, _without_bits)
        if self._wanted.lower_case:
            fields = {path: _mapped(vector, _with_lower_names) for path, vector in fields.items()}
            records = records and _mapped(records, _with_lower_names)
        decoded = Decoded(events, indices, fields, records, _NONE, _NONE)
        keep, unreadable = _readable(decoded)
        rejected += unreadable
        if self._wanted.declared is not None:
            decoded, conforming = _conform(decoded, self._wanted.declared, missing)
            rejected += [(event, Problem.NON_CONFORMING) for event in events[keep & ~conforming].tolist()]
            keep = keep & conforming
        rejected.sort()
        if not keep.all():
            decoded = decoded.take(np.flatnonzero(keep))
        return replace(
            decoded,
            rejected_events=np.array([event for event, _ in rejected], dtype=np.int64),
            rejected_problems=np.array([problem for _, problem in rejected], dtype=np.int64),
        )

    def _objects(
        self, bodies: Sequence[bytes]
    ) -> tuple[list[Any], Sequence[bytes], Int64Array, Int64Array, list[tuple[int, Problem]]]:
        """Decoded objects, their texts, the body and the index in it of each; and the bodies that hold none."""
        count = len(bodies)
        try:
            # One call an event and no other Python: this is nearly all there is to do for well-formed bodies.
            return list(map(self._decode, bodies)), bodies, np.arange(count), np.zeros(count, dtype=np.int64), []
        except _DECODE_ERRORS:
            pass
        rows: list[Any] = []
        texts: list[bytes] = []
        events: list[int] = []
        indices: list[int] = []
        rejected: list[tuple[int, Problem]] = []
        for event, body in enumerate(bodies):
            try:
                found, found_texts = [self._decode(body)], [body]
            except _DECODE_ERRORS:
                # Not by the decoder that knows other spellings: a value under one that does not count may be what it
                # fails at.
                try:
                    found_texts = _split(body)
                    found = [self._decode_plainly(text) for text in found_texts]
                except _DECODE_ERRORS as error:
                    rejected.append((event, _problem(error)))
                    continue
            rows += found
            texts += found_texts
            events += [event] * len(found)
            indices += range(len(found))
        return rows, texts, np.array(events, dtype=np.int64), np.array(indices, dtype=np.int64), rejected

    def _vector(self, rows: list[Any], texts: Sequence[bytes], path: Path, missing: dict[Path, BoolArray]) -> Vector:
        """The values at a path; notes in ``missing`` where there are none."""
        if self._wanted.record:
            values = [path_value(row, path, _UNSET) for row in rows]
        elif len(path) == 1 and _can_be_known(self._names[path[0].lower()].spelling):
            index = list(self._names).index(path[0].lower())
            values = list(map(attrgetter(f"f{index}_0"), rows))
        else:
            values = [self._value(row, text, path) for row, text in zip(rows, texts, strict=True)]
        types = set(map(type, values))
        if msgspec.UnsetType not in types:
            return Vector.of(values, types)
        places = [place for place, value in enumerate(values) if value is _UNSET]
        is_missing = np.zeros(len(values), dtype=np.bool_)
        found = None if self._wanted.record else self._spelled_otherwise(rows, texts, path, places)
        for place, value in zip(places, found or [_UNSET] * len(places), strict=True):
            is_missing[place] = value is _UNSET
            values[place] = None if value is _UNSET else value
        missing[tuple(map(str.lower, path))] = is_missing
        return Vector.of(values)

    def _spelled_otherwise(
        self, rows: list[Any], texts: Sequence[bytes], path: Path, places: list[int]
    ) -> list[Any] | None:
        """The values of rows that lack the query's own spelling; None where all of them have no value."""
        if len(path) == 1:
            # All those rows at once: nobody mentions the name, or each mentions it once, in a spelling that is known.
            name = self._names[path[0].lower()]
            mentions = _mentions(b"\n".join([texts[place] for place in places]), path[0].lower())
            if mentions == 0:
                return None
            if mentions == len(places) and len(name.others) == 1:
                get = attrgetter(f"f{list(self._names).index(path[0].lower())}_1")
                try:
                    seen = [get(rows[place]) for place in places]
                except AttributeError:  # decoded before that spelling was known
                    seen = [_UNSET]
                if msgspec.UnsetType not in set(map(type, seen)):
                    return seen
        return [self._value(rows[place], texts[place], path) for place in places]

    def _value(self, row: Any, text: bytes, path: Path) -> Any:
        """The value at a path of one row, whatever the spelling; UNSET if there is none."""
        names, value = self._names, row
        for depth, step in enumerate(path):
            if isinstance(value, dict):
                return path_value(value, path[depth:], _UNSET)
            if not isinstance(value, msgspec.Struct):
                return _UNSET
            index, name = list(names).index(step.lower()), names[step.lower()]
            inner = getattr(value, f"f{index}_0", _UNSET)
            if inner is _UNSET:
                seen = [getattr(value, f"f{index}_{other + 1}", _UNSET) for other in range(len(name.others))]
                seen = [found for found in seen if found is not _UNSET]
                mentions = _mentions(text, step.lower())
                if mentions == 0:
                    return _UNSET
                if mentions != 1 or len(seen) != 1:
                    return self._search(text, path)
                inner = seen[0]
            value, names = inner, name.children
        return None if isinstance(value, msgspec.Struct) else value

    def _search(self, text: bytes, path: Path) -> Any:
        """As `_value`, by reading the names of the text's objects; learns the spellings it meets."""
        names = self._names
        raw: Any = text
        try:
            for depth, step in enumerate(path):
                if bytes(raw)[:1] != b"{":
                    return _UNSET
                members = _decode_members(raw)
                name = names[step.lower()]
                spelling = _spelling(tuple(members), step)
                if spelling is None:
                    return _UNSET
                known = spelling in name.spellings() or not _can_be_known(spelling)
                if not known and len(name.others) < _MAX_SPELLINGS:
                    name.others.append(spelling)
                    self._learned = True
                raw = members[spelling]
                if name.leaf:
                    return path_value(_decode_any(raw), path[depth + 1 :], _UNSET)
                names = name.children
        except _DECODE_ERRORS as error:
            return Failure(_problem(error))
        return _UNSET


# JSON
# ------------------------------------------------------------------------------------------------------------------

_decode_any = msgspec.json.Decoder().decode
_decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_Bigint = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_decode_dict = msgspec.json.Decoder(dict[str, _Bigint | float | str | bool | list[Any] | dict[str, Any] | None]).decode


def _decode_record(text: bytes) -> dict[str, Any]:
    record = _decode_dict(text)
    if (text.find(b"{", 1) > 0 or b"[" in text) and not _in_range(record):
        raise msgspec.ValidationError("Number out of range")
    return record


def _split(body: bytes) -> list[bytes]:
    """The texts of the objects in a body that is not one object. Raises DecodeError where it holds anything else."""
    body = body.removeprefix(_BYTE_ORDER_MARK).strip(b" \t\r\n")
    if body[:1] == b"[":
        try:
            return list(map(bytes, _decode_raws(body)))
        except msgspec.DecodeError:
            if b"\n" not in body:
                raise
    elif body[:1] == b"{" and b"\n" not in body:
        return [body]
    texts: list[bytes] = []
    for line in body.split(b"\n"):
        line = line.strip(b" \t\r")
        if line[:1] == b"[":
            texts += map(bytes, _decode_raws(line))
        elif line:
            texts.append(line)
    if not texts:
        raise msgspec.DecodeError("no object")
    return texts


def _problem(error: Exception) -> Problem:
    text = str(error)
    out_of_range = "out of range" in text or "`int` <=" in text or "`int` >=" in text
    return Problem.OUT_OF_RANGE if out_of_range else Problem.MALFORMED


def _in_range(value: Any) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if isinstance(value, dict):
        return all(map(_in_range, value.values()))
    if isinstance(value, list):
        return all(map(_in_range, value))
    return True


# names
# -----------------------------------------------------------------------------------------------------------------


def _name_tree(paths: Iterable[Path]) -> dict[str, _Name]:
    tree: dict[str, _Name] = {}
    for path in paths:
        level = tree
        for depth, step in enumerate(path):
            name = level.setdefault(step.lower(), _Name(step))
            name.leaf |= depth == len(path) - 1
            level = name.children
    return tree


def _as_first_spelled(names: dict[str, _Name], path: Path) -> Path:
    """A path with each name as the query first spells it."""
    spelled: list[str] = []
    for step in path:
        name = names[step.lower()]
        spelled.append(name.spelling)
        names = name.children
    return tuple(spelled)


def _can_be_known(spelling: str) -> bool:
    """Whether a decoder can be told a name; the others are always searched for."""
    return not any(character in '"\\' or character < " " for character in spelling)


def _struct(names: dict[str, _Name]) -> type[msgspec.Struct]:
    """A struct with a field for each spelling of each name: f<name>_<spelling>."""
    fields: list[tuple[str, Any, Any]] = []
    rename: dict[str, str] = {}
    for index, name in enumerate(names.values()):
        value: Any = Any
        if not name.leaf:
            value = _struct(name.children) | int | float | str | bool | list[Any] | None
        for number, spelling in enumerate(name.spellings()):
            if not _can_be_known(spelling):
                continue
            attribute = f"f{index}_{number}"
            fields.append((attribute, value, _UNSET))
            rename[attribute] = spelling
    return msgspec.defstruct("Fields", fields, rename=rename, gc=False)


@lru_cache(maxsize=4096)
def _spelling(members: tuple[str, ...], name: str) -> str | None:
    """The member that a name means: spelled the same, else the first in order that is the same without case."""
    if name in members:
        return name
    low = name.lower()
    return min((member for member in members if member.lower() == low), default=None)


def path_value(record: Any, path: Path, missing: Any = None) -> Any:
    """The value of a field inside records, names without case; ``missing`` where there is none."""
    for step in path:
        if not isinstance(record, dict):
            return missing
        spelling = step if step in record else _spelling(tuple(record), step)
        if spelling is None:
            return missing
        record = record[spelling]
    return record


def _mentions(text: bytes, name: str) -> int:
    """How often a name (in lower case) may occur as a name in the text, at most; −1 where that cannot be said so
    quickly.
    """
    if not name.isascii() or b"\\" in text:
        return -1
    if not text.isascii():
        # The Kelvin sign is a K without case; and a text that is not UTF-8 must be found out, whatever has been learnt.
        if "k" in name:
            return -1
        try:
            text.decode()
        except UnicodeDecodeError:
            return -1
    return text.lower().count(b'"%b"' % name.encode())


def _readable(decoded: Decoded) -> tuple[BoolArray, list[tuple[int, Problem]]]:
    """Which rows are of bodies whose wanted values can all be read, and the bodies that are not."""
    problems: dict[int, Problem] = {}
    for vector in decoded.fields.values():
        if Kind.ERROR in vector.present():
            places = np.flatnonzero(vector.kinds == Kind.ERROR)
            codes = vector.int_values()[places]
            for event, code in zip(decoded.events[places].tolist(), codes.tolist(), strict=True):
                problem = Problem.MALFORMED if code == Problem.MALFORMED else Problem.OUT_OF_RANGE
                problems[event] = min(problems.get(event, problem), problem)
        if vector.objects is not None and decoded.records is None:
            for place, value in enumerate(vector.objects.tolist()):
                if not _in_range(value):
                    problems.setdefault(int(decoded.events[place]), Problem.OUT_OF_RANGE)
    keep = np.ones(len(decoded), dtype=np.bool_)
    if problems:
        keep = ~np.isin(decoded.events, list(problems))
    return keep, list(problems.items())


# declared columns
# ------------------------------------------------------------------------------------------------------


def _conform(
    decoded: Decoded, declared: tuple[tuple[str, Type], ...], missing: dict[Path, BoolArray]
) -> tuple[Decoded, BoolArray]:
    """The declared columns with values of their types, and which rows have them all (a JSON null is a NULL of any
    type).
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
    """A declared column's values as what they are declared to be, where that loses nothing."""
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
            return Vector(np.where(valid, np.uint8(Kind.DATETIME), np.uint8(Kind.NULL)), ints=ticks), valid
        case Type.ANY:
            return vector, kinds != Kind.NULL
        case _:
            return vector, kinds == _KIND_OF_DECLARED[type_]


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
            spelling = _spelling(tuple(row), name)
            if spelling is not None:
                row[spelling] = value
    return Vector(records.kinds, objects=_objects_of(rows))


# older compatibility levels
# --------------------------------------------------------------------------------------------


def _bits_to_bigints(vector: Vector) -> Vector:
    return vector.with_kinds(np.where(vector.kinds == Kind.BIT, np.uint8(Kind.BIGINT), vector.kinds))


def _mapped(vector: Vector, function: Callable[[Any], Any]) -> Vector:
    """Records and arrays changed by a function of JSON values."""
    if vector.objects is None:
        return vector
    return vector.with_kinds(vector.kinds, objects=_objects_of(list(map(function, vector.objects.tolist()))))


def _without_bits(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict):
        return {name: _without_bits(inner) for name, inner in value.items()}
    return [_without_bits(inner) for inner in value] if isinstance(value, list) else value


def _with_lower_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {name.lower(): _with_lower_names(inner) for name, inner in value.items()}
    return [_with_lower_names(inner) for inner in value] if isinstance(value, list) else value


def _objects_of(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array


def _kinds(length: int, kind: Kind) -> npt.NDArray[np.uint8]:
    return np.full(length, kind, dtype=np.uint8)
