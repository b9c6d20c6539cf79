"""Finds where a setting is in a job file, so that messages can point to it.

The parsers of TOML and JSON check a file and return its values, but not their places. This module reads a file that
they have accepted a second time, only for its keys. It skips values without looking into them, except for TOML tables
on one line.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import re
from dataclasses import dataclass

Path = tuple[str, ...]

_BLANK = re.compile(r"[ \t]*")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")' r"|'''.*?'{3,5}(?!')" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'", re.DOTALL
)
_BARE = re.compile(r"[^,\]}\n#]+")
_JSON_SPACE = re.compile(r"[ \t\r\n]*")
_JSON_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_OPENING, _CLOSING = "[{", "]}"


@dataclass(frozen=True, slots=True)
class KeySpan:
    """A key and its value: offsets in the text."""

    key: int
    key_end: int
    value: int
    value_end: int


class Positions:
    """The places of a file's keys, by their path."""

    def __init__(self, text: str, places: dict[Path, KeySpan]) -> None:
        self.text = text
        self._places = places
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    @classmethod
    def of(cls, text: str, *, is_json: bool) -> Positions:
        """Find the keys of a TOML or JSON text; a text that cannot be read yields no places and never an error."""
        reading = _Json(text) if is_json else _Toml(text)
        with contextlib.suppress(_Lost, ValueError, RecursionError):
            reading.read()
        return cls(text, reading.places)

    def place(self, path: tuple[int | str, ...]) -> KeySpan | None:
        """Return the place of a setting or, if it is absent, of the table it belongs in; None for the file itself."""
        words = tuple(map(str, path))
        for length in range(len(words), 0, -1):
            found = self._places.get(words[:length])
            if found is not None:
                return found
        return None

    def in_value(self, offset: int) -> bool:
        """Return whether an offset is in a value rather than in a comment; true if in doubt."""
        values = [place for place in self._places.values() if place.value_end > place.value]
        return not values or any(place.value <= offset < place.value_end for place in values)

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset, from 1."""
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


class _Lost(Exception):
    """The text does not have the expected syntax."""


class _Toml:
    def __init__(self, text: str) -> None:
        self.text = text
        self.places: dict[Path, KeySpan] = {}
        self._at = 0

    def read(self) -> None:
        table: Path = ()
        self._skip(_SPACE)
        while self._at < len(self.text):
            start = self._at
            if self.text[start] == "[":
                self._at += 2 if self.text.startswith("[[", start) else 1
                table = self._key()
                closing = self.text.find("]", self._at)
                if closing < 0:
                    raise _Lost
                self._at = closing + 1
                while self.text.startswith("]", self._at):
                    self._at += 1
                self.places.setdefault(table, KeySpan(start, self._at, start, self._at))
            else:
                self._pair(table)
            self._skip(_SPACE)

    def _pair(self, table: Path) -> None:
        start = self._at
        path = (*table, *self._key())
        end = self._at
        self._skip(_BLANK)
        if not self.text.startswith("=", self._at):
            raise _Lost
        self._at += 1
        self._skip(_BLANK)
        value = self._at
        self._value(path)
        self.places[path] = KeySpan(start, end, value, self._at)

    def _key(self) -> Path:
        words = []
        while True:
            self._skip(_BLANK)
            words.append(self._word())
            after = _BLANK.match(self.text, self._at)
            assert after is not None
            if not self.text.startswith(".", after.end()):
                return tuple(words)
            self._at = after.end() + 1

    def _word(self) -> str:
        found = _WORD.match(self.text, self._at)
        if found is not None:
            self._at = found.end()
            return found[0]
        found = _STRING.match(self.text, self._at)
        if found is None:
            raise _Lost
        self._at = found.end()
        return found[0][1:-1]

    def _value(self, path: Path) -> None:
        first = self.text[self._at : self._at + 1]
        if first == "{":
            self._at += 1
            self._skip(_SPACE)
            while not self.text.startswith("}", self._at):
                self._pair(path)
                self._skip(_SPACE)
                if self.text.startswith(",", self._at):
                    self._at += 1
                    self._skip(_SPACE)
            self._at += 1
        elif first == "[":
            self._over_array()
        else:
            found = _STRING.match(self.text, self._at) or _BARE.match(self.text, self._at)
            if found is None:
                raise _Lost
            self._at = found.end()

    def _over_array(self) -> None:
        depth = 0
        while self._at < len(self.text):
            character = self.text[self._at]
            found = _STRING.match(self.text, self._at) if character in "\"'" else None
            if found is not None:
                self._at = found.end()
                continue
            if character == "#":
                self._skip(_SPACE)
                continue
            depth += (character in _OPENING) - (character in _CLOSING)
            self._at += 1
            if depth == 0:
                return
        raise _Lost

    def _skip(self, what: re.Pattern[str]) -> None:
        found = what.match(self.text, self._at)
        assert found is not None
        self._at = found.end()


class _Json:
    def __init__(self, text: str) -> None:
        self.text = text
        self.places: dict[Path, KeySpan] = {}

    def read(self) -> None:
        self._value(self._after(0), ())

    def _value(self, at: int, path: Path) -> int:
        first = self.text[at : at + 1]
        if first == "{":
            return self._object(at, path)
        if first == "[":
            return self._array(at, path)
        try:
            return json.JSONDecoder().raw_decode(self.text, at)[1]
        except ValueError as error:
            raise _Lost from error

    def _object(self, at: int, path: Path) -> int:
        at = self._after(at + 1)
        while not self.text.startswith("}", at):
            key = _JSON_STRING.match(self.text, at)
            if key is None:
                raise _Lost
            inner = (*path, str(json.loads(key[0])))
            colon = self._after(key.end())
            if not self.text.startswith(":", colon):
                raise _Lost
            value = self._after(colon + 1)
            end = self._value(value, inner)
            self.places[inner] = KeySpan(at, key.end(), value, end)
            at = self._next(end)
        return at + 1

    def _array(self, at: int, path: Path) -> int:
        at = self._after(at + 1)
        number = 0
        while not self.text.startswith("]", at):
            end = self._value(at, (*path, str(number)))
            self.places.setdefault((*path, str(number)), KeySpan(at, end, at, end))
            number += 1
            at = self._next(end)
        return at + 1

    def _next(self, at: int) -> int:
        at = self._after(at)
        if at >= len(self.text):
            raise _Lost
        return self._after(at + 1) if self.text[at] == "," else at

    def _after(self, at: int) -> int:
        found = _JSON_SPACE.match(self.text, at)
        assert found is not None
        return found.end()
