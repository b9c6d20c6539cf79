"""Decodes JSON bodies to columns of the fields that the query wants.

A body is an object, an array of objects, or several of either on separate lines; each object is a row. Only wanted
fields become values: a decoder is generated that knows their names, and it skips everything else (checking its syntax,
but not its values). So a body is rejected if its syntax is wrong, if it holds something other than an object, or if a
*wanted* value cannot be represented: text that is not UTF-8, a number beyond the range of its type.

Names match regardless of case, but a JSON decoder matches bytes. The decoder is therefore given the spellings that
producers have been seen to use, and a row in which a wanted name was not found is searched for other spellings. Of two
spellings in one object, the one that the query uses first wins, then the one that sorts first. Learned spellings affect
speed and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np

from tidegate.engine.decoding.content import content_of
from tidegate.engine.decoding.decoded import (
    NONE,
    Decoded,
    Path,
    Problem,
    Wanted,
    finished,
    kinds_of,
    objects_of,
    path_value,
    spelling_of,
    value_problem,
)
from tidegate.engine.decoding.formats import FORMATS, BodyDecoder, Format, FormatKind, Unreadable
from tidegate.engine.decoding.limits import DEFAULT_LIMITS, BatchBudget, DecodingLimits
from tidegate.engine.decoding.table_formats import problems_of
from tidegate.engine.decoding.tables import TableBodies
from tidegate.engine.values.budget import may_hold_too_many
from tidegate.engine.values.vectors import BoolArray, Failure, Int64Array, Kind, Vector

_UNSET = msgspec.UNSET
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_SPELLINGS = 6
_SYNTAX_DEPTH = 500
_JSON_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_JSON_SPACES = (" ", "\t", "\r", "\n")
_JSON_VALUE = json.JSONDecoder()
_OPENING, _CLOSING = np.frombuffer(b"[{", dtype=np.uint8), np.frombuffer(b"]}", dtype=np.uint8)
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(slots=True)
class _Name:
    """A wanted name inside one object: the query's spelling, and other spellings seen so far."""

    spelling: str
    leaf: bool = False
    children: dict[str, _Name] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    def spellings(self) -> list[str]:
        return [self.spelling, *self.others]


class Decoder:
    """Decodes batches of one input; keep one for the lifetime of a task."""

    def __init__(self, wanted: Wanted, limits: DecodingLimits = DEFAULT_LIMITS) -> None:
        self._wanted = wanted
        self._limits = limits
        paths = list(wanted.paths) + [(name,) for name, _ in wanted.declared or ()]
        self._names = _name_tree(paths)
        self._paths = list(dict.fromkeys(_as_first_spelled(self._names, path) for path in paths))
        self._learned = False
        self._decode_plainly: Callable[[bytes], Any] = (
            self._decode_record if wanted.record else msgspec.json.Decoder(_struct(self._names)).decode
        )
        self._decode = self._decode_plainly

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Return the rows of m bodies, and which bodies were rejected."""
        rows, texts, events, indices, rejected = self._objects(bodies)
        missing: dict[Path, BoolArray] = {}
        fields = {tuple(map(str.lower, path)): self._field(rows, texts, path, missing) for path in self._paths}
        records = Vector(kinds_of(len(rows), Kind.RECORD), objects=objects_of(rows)) if self._wanted.record else None
        if self._learned:
            self._decode = msgspec.json.Decoder(_struct(self._names)).decode
            self._learned = False
        decoded = Decoded(events, indices, fields, records, NONE, NONE)
        return finished(decoded, self._wanted, missing, rejected)

    def _objects(
        self, bodies: Sequence[bytes]
    ) -> tuple[list[Any], Sequence[bytes], Int64Array, Int64Array, list[tuple[int, Problem]]]:
        """Return decoded objects, their texts, the body and index of each, and the bodies that hold none."""
        count = len(bodies)
        longest = max(map(len, bodies), default=0)
        too_deep = _too_deep(bodies, longest) | self._too_many_values(bodies, longest)
        try:
            if too_deep:
                raise RecursionError
            # One call per event and no other Python: this is nearly all the work for well-formed bodies.
            return list(map(self._decode, bodies)), bodies, np.arange(count), np.zeros(count, dtype=np.int64), []
        except _DECODE_ERRORS:
            pass
        rows: list[Any] = []
        texts: list[bytes] = []
        events: list[int] = []
        indices: list[int] = []
        rejected: list[tuple[int, Problem]] = []
        budget = BatchBudget()
        for event, body in enumerate(bodies):
            if event in too_deep:
                rejected.append((event, Problem.LIMIT_EXCEEDED))
                continue
            try:
                found, found_texts = [self._decode(body)], [body]
            except _DECODE_ERRORS:
                # Do not use the decoder that knows other spellings: it may fail at a value under a spelling that does
                # not count.
                try:
                    found_texts = _split(body, self._limits.event_rows)
                    budget.add(event, rows=len(found_texts))
                    found = [self._decode_plainly(text) for text in found_texts]
                except _DECODE_ERRORS as error:
                    rejected.append((event, _problem(error)))
                    continue
            rows += found
            texts += found_texts
            events += [event] * len(found)
            indices += range(len(found))
        return rows, texts, np.array(events, dtype=np.int64), np.array(indices, dtype=np.int64), rejected

    def _too_many_values(self, bodies: Sequence[bytes], longest: int) -> set[int]:
        """Return which bodies have too many values. Each takes a byte, so only long bodies are looked at."""
        most = self._limits.event_values
        if longest <= most:
            return set()
        return {event for event, body in enumerate(bodies) if _has_more_values(body, most)}

    def _decode_record(self, text: bytes) -> dict[str, Any]:
        record = _decode_dict(text)
        if text.find(b"{", 1) > 0 or b"[" in text:
            match value_problem(record, self._limits.depth):
                case Problem.LIMIT_EXCEEDED:
                    raise RecursionError
                case Problem.OUT_OF_RANGE:
                    raise msgspec.ValidationError("Number out of range")
        return record

    def _field(self, rows: list[Any], texts: Sequence[bytes], path: Path, missing: dict[Path, BoolArray]) -> Vector:
        """Return the values at a path, with unusable ones as errors."""
        vector = self._vector(rows, texts, path, missing)
        if vector.objects is None or self._wanted.record:
            return vector
        depth = self._limits.depth - len(path)
        problems = [value_problem(value, depth) for value in vector.objects.tolist()]
        if not any(problems):
            return vector
        failed = np.array([0 if problem is None else int(problem) for problem in problems], dtype=np.int64)
        return vector.failing(failed > 0, failed)

    def _vector(self, rows: list[Any], texts: Sequence[bytes], path: Path, missing: dict[Path, BoolArray]) -> Vector:
        """Return the values at a path, and record in ``missing`` where there are none."""
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
        """Return the values of rows without the query's own spelling; None if all of them have no value."""
        if len(path) == 1:
            # All rows at once: either none mentions the name, or each mentions it once, in a known spelling.
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
        """Return the value at a path of one row, whatever the spelling; UNSET if there is none."""
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
        """Return `_value` by reading the names of the text's objects, and learn the spellings found."""
        names = self._names
        raw: Any = text
        try:
            for depth, step in enumerate(path):
                if bytes(raw)[:1] != b"{":
                    return _UNSET
                members = _decode_members(raw)
                name = names[step.lower()]
                spelling = spelling_of(tuple(members), step)
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


def _too_deep(bodies: Sequence[bytes], longest: int) -> set[int]:
    """Return which bodies are nested so deeply that a decoder that skips them would run out of stack.

    The available stack depends on where the decoder runs, but the bodies that are rejected must not.
    """
    if longest <= _SYNTAX_DEPTH:
        return set()
    return {event for event, body in enumerate(bodies) if len(body) > _SYNTAX_DEPTH and _nesting(body) > _SYNTAX_DEPTH}


def _nesting(text: bytes) -> int:
    """Return how deeply a text that may be JSON is nested; 0 if it is certainly not too deep."""
    if text.count(b"[") + text.count(b"{") <= _SYNTAX_DEPTH:
        return 0
    octets = np.frombuffer(_JSON_STRING.sub(b"", text), dtype=np.uint8)
    steps = np.isin(octets, _OPENING).astype(np.int64) - np.isin(octets, _CLOSING)
    return int(np.cumsum(steps).max(initial=0))


def _has_more_values(text: bytes, most: int) -> bool:
    """Return whether a text that may be JSON has more values than that, by what separates them."""
    return may_hold_too_many(text, most) and (b'"' not in text or may_hold_too_many(_JSON_STRING.sub(b"", text), most))


def _split(body: bytes, most: int) -> list[bytes]:
    """Return the texts of the objects in a body that is not one object.

    Raises:
        DecodeError: it is not JSON.
        RecursionError: it has more than ``most`` rows.
    """
    if body.count(b"{") > most and _rows_at_most(body) > most:
        raise RecursionError
    texts = _texts_of_rows(body)
    if len(texts) > most:
        raise RecursionError
    return texts


def _rows_at_most(body: bytes) -> int:
    """Return how many objects a text that may be JSON has that are not inside another, or braces without a pair."""
    octets = np.frombuffer(_JSON_STRING.sub(b"", body), dtype=np.uint8)
    opening, closing = octets == ord("{"), octets == ord("}")
    depths = np.cumsum(opening.astype(np.int32) - closing, dtype=np.int32)
    return int(np.count_nonzero(opening & (depths <= 1)))


def _texts_of_rows(body: bytes) -> list[bytes]:
    body = body.removeprefix(_BYTE_ORDER_MARK).strip(b" \t\r\n")
    if body[:1] == b"[":
        try:
            return list(map(bytes, _decode_raws(_without_last_comma(body))))
        except msgspec.DecodeError:
            if b"\n" not in body:
                raise
    elif body[:1] == b"{" and (b"\n" not in body or _is_json(body)):
        return [body]
    texts: list[bytes] = []
    for line in body.split(b"\n"):
        line = line.strip(b" \t\r")
        if line[:1] == b"[":
            texts += map(bytes, _decode_raws(_without_last_comma(line)))
        elif line:
            texts.append(line)
    if not texts:
        raise msgspec.DecodeError("no object")
    return texts


def _is_json(text: bytes) -> bool:
    try:
        _check_json(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _values(content: bytes) -> list[bytes] | None:
    """Return the texts of values that follow each other in any layout; None if something else is among them."""
    found: list[bytes] = []
    try:
        text = content.decode()
        place = 0
        while place < len(text):
            _, end = _JSON_VALUE.raw_decode(text, place)
            found.append(text[place:end].encode())
            place = end
            while text[place : place + 1] in _JSON_SPACES:
                place += 1
    except (ValueError, RecursionError):
        return None
    return found


def _without_last_comma(array: bytes) -> bytes:
    """Remove the trailing comma of an array, which the service's own tools accept."""
    inside = array[:-1].rstrip() if array[-1:] == b"]" else b""
    return inside[:-1] + b"]" if inside[-1:] == b"," and len(inside) > 2 else array


def _problem(error: Exception) -> Problem:
    if isinstance(error, RecursionError):
        return Problem.LIMIT_EXCEEDED
    text = str(error)
    out_of_range = "out of range" in text or "`int` <=" in text or "`int` >=" in text
    return Problem.OUT_OF_RANGE if out_of_range else Problem.MALFORMED


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
    """Return a path with each name as the query first spells it."""
    spelled: list[str] = []
    for step in path:
        name = names[step.lower()]
        spelled.append(name.spelling)
        names = name.children
    return tuple(spelled)


def _can_be_known(spelling: str) -> bool:
    """Return whether a decoder can be given a name; other names are always searched for."""
    return not any(character in '"\\' or character < " " for character in spelling)


def _struct(names: dict[str, _Name]) -> type[msgspec.Struct]:
    """Return a struct with a field for each spelling of each name: f<name>_<spelling>."""
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


def _mentions(text: bytes, name: str) -> int:
    """Return an upper bound of how often a name (in lower case) occurs as a name in the text.

    Return −1 if that cannot be determined quickly.
    """
    if not name.isascii() or b"\\" in text:
        return -1
    if not text.isascii():
        # The Kelvin sign is a K regardless of case; and text that is not UTF-8 must be detected, whatever was learned.
        if "k" in name:
            return -1
        try:
            text.decode()
        except UnicodeDecodeError:
            return -1
    return text.lower().count(b'"%b"' % name.encode())


_TRAILING_COMMA = re.compile(rb",\s*\]\s*\Z")
_check_json = msgspec.json.Decoder(msgspec.Raw).decode


@FORMATS.register
class JsonFormat(FormatKind):
    """Objects, arrays of them, or lines of either; see `json_bodies`."""

    name = "json"
    is_text = True

    def decoder(self, wanted: Wanted, format_: Format) -> BodyDecoder:
        decoder = Decoder(wanted, format_.limits)
        return _UnpackedDecoder(decoder, format_) if format_.is_packed else decoder

    def file_rows(self, content: bytes, format_: Format) -> Sequence[bytes]:
        """Return the texts in a JSON file: the elements of an array, the values on separate lines, or of any layout."""
        stripped = content.strip()
        if stripped[:1] == b"[":
            try:
                return list(map(bytes, _decode_raws(_TRAILING_COMMA.sub(b"]", stripped))))
            except (msgspec.DecodeError, RecursionError):
                pass
        lines = [line for line in (line.strip() for line in stripped.split(b"\n")) if line]
        if lines and lines[0][:1] == b"{" and not _is_json(lines[0]) and (values := _values(stripped)) is not None:
            return values
        texts: list[bytes] = []
        for line in lines:
            if line[:1] == b"[":
                try:
                    texts += map(bytes, _decode_raws(line))
                    continue
                except (msgspec.DecodeError, RecursionError):
                    pass
            texts.append(line)
        return texts


class _UnpackedDecoder:
    """JSON that is compressed, or in another encoding."""

    def __init__(self, decoder: Decoder, format_: Format) -> None:
        self._decoder = decoder
        self._format = format_

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Return the rows of m bodies, and which bodies were rejected."""
        if isinstance(bodies, TableBodies):  # a file that could not be read
            return _with_rejections(self._decoder.decode([]), problems_of(bodies.rows()))
        texts: list[bytes] = []
        places: list[int] = []
        rejected: list[tuple[int, Problem]] = []
        budget = BatchBudget()
        for event, body in enumerate(bodies):
            try:
                texts.append(content_of(body, self._format))
                places.append(event)
                budget.add(event, size=len(texts[-1]))
            except Unreadable as error:
                rejected.append((event, error.problem))
        decoded = self._decoder.decode(texts)
        where = np.array(places, dtype=np.int64)
        rejected += zip(
            where[decoded.rejected_events].tolist(), map(Problem, decoded.rejected_problems.tolist()), strict=True
        )
        return _with_rejections(replace(decoded, events=where[decoded.events]), sorted(rejected))


def _with_rejections(decoded: Decoded, rejected: Sequence[tuple[int, Problem]]) -> Decoded:
    return replace(
        decoded,
        rejected_events=np.array([event for event, _ in rejected], dtype=np.int64),
        rejected_problems=np.array([int(problem) for _, problem in rejected], dtype=np.int64),
    )
