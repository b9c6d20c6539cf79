"""Searches: words, fields and comparisons that an event's body, properties and key must match."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from tidegate.amqp.messages import DecodeError, message_annotation, parse_message
from tidegate.hub.errors import ArgumentError
from tidegate.portal.events.reading import PARTITION_KEY, Match, StoredEvent, body_of, properties_of

MAX_SEARCH_CHARACTERS = 500
_MAX_NESTING = 20
_TOKEN = re.compile(
    r"""\s*(?:(?P<sign>-?\(|\))|(?P<word>OR|AND|NOT)(?=[\s()]|$)"""
    r"""|(?P<term>(-?)(?:([\w.@$-]+)(:|>=|<=|!=|>|<))?(?:"([^"]*)"|([^\s()]+))))"""
)
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "!=": operator.ne,
}


def parse_search(text: str) -> Match | None:
    """Return the test of a search, None for an empty one, which every event passes.

    A term is a word, a phrase in double quotes, `name:value` for a property or a field of a JSON body (`device.id:7`),
    or `key:value` for the partition key. Letter case does not matter. Values are compared with `>`, `>=`, `<`, `<=` and
    `!=` too (`speed>70`): as numbers where both are, else as text, which is right for times in ISO 8601. All terms must
    hold, or one on either side of `OR`, which binds less than what stands side by side; brackets group. What `NOT` or a
    minus is before must not hold.

    Raises:
        ArgumentError: The search is too long, nests too deeply, or a bracket or a term is missing.
    """
    if len(text) > MAX_SEARCH_CHARACTERS:
        raise ArgumentError(f"a search has at most {MAX_SEARCH_CHARACTERS} characters")
    return _Search(text).parsed() if text.strip() else None


class _Search:
    """Parses a search by recursive descent."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_TOKEN.finditer(text.strip()))
        self._at = 0

    def parsed(self) -> Match:
        found = self._either(0)
        if self._at < len(self._tokens):
            raise ArgumentError(f"search: nothing opens the bracket {self._place()}; write brackets in double quotes")
        return found

    def _next(self) -> str:
        """Return the sign or the word that comes next; "" for a term and for the end."""
        if self._at == len(self._tokens):
            return ""
        token = self._tokens[self._at]
        return token["sign"] or token["word"] or ""

    def _place(self) -> str:
        if self._at == len(self._tokens):
            return "at the end"
        token = self._tokens[self._at]
        return f"at {token[0].strip()[:20]!r}, character {token.end() - len(token[0].strip()) + 1}"

    def _either(self, depth: int) -> Match:
        tests = [self._all(depth)]
        while self._next() == "OR":
            self._at += 1
            tests.append(self._all(depth))
        return tests[0] if len(tests) == 1 else lambda event: any(test(event) for test in tests)

    def _all(self, depth: int) -> Match:
        tests = [self._one(depth)]
        while self._at < len(self._tokens) and self._next() not in ("OR", ")"):
            self._at += self._next() == "AND"
            tests.append(self._one(depth))
        return tests[0] if len(tests) == 1 else lambda event: all(test(event) for test in tests)

    def _one(self, depth: int) -> Match:
        sign = self._next()
        if depth > _MAX_NESTING:
            raise ArgumentError(f"search: brackets and NOT are nested at most {_MAX_NESTING} deep")
        if self._at == len(self._tokens) or sign in ("OR", "AND", ")"):
            raise ArgumentError(f"search: expected a word or a comparison {self._place()}")
        token = self._tokens[self._at]
        self._at += 1
        if not sign:
            return _term(*token.groups()[3:])
        if sign == "NOT":
            negated = self._one(depth + 1)
            return lambda event: not negated(event)
        group = self._either(depth + 1)
        if self._next() != ")":
            raise ArgumentError(f"search: expected a closing bracket {self._place()}")
        self._at += 1
        return (lambda event: not group(event)) if sign.startswith("-") else group


def _term(minus: str, name: str | None, sign: str | None, quoted: str | None, word: str | None) -> Match:
    value = quoted if quoted is not None else word or ""
    if name is None:
        test = _contains(value)
    else:
        test = _equals(name, value) if sign in (None, ":") else _compares(name, _COMPARISONS[sign], value)
    return (lambda event: not test(event)) if minus else test


def _contains(value: str) -> Match:
    """Test the whole stored message: body, properties, key and annotations are all in it as UTF-8."""
    wanted = value.lower()
    if wanted.isascii():
        encoded = wanted.encode("ascii")
        return lambda event: encoded in event.encoded.lower()
    return lambda event: wanted in event.encoded.decode("utf-8", "ignore").lower()


def _equals(name: str, value: str) -> Match:
    wanted = value.lower()

    def test(event: StoredEvent) -> bool:
        if name == "key":
            return _text(_partition_key(event)).lower() == wanted
        if name == "partition":
            return event.partition == value
        return any(_text(found).lower() == wanted for found in _fields(event, name))

    return test


def _compares(name: str, holds: Callable[[Any, Any], bool], value: str) -> Match:
    wanted = _number(value)

    def test(event: StoredEvent) -> bool:
        for found in _fields(event, name):
            number = None if isinstance(found, bool) else _number(found)
            if number is not None and wanted is not None:
                if holds(number, wanted):
                    return True
            elif not isinstance(found, int | float | dict | list) and holds(_text(found).lower(), value.lower()):
                return True
        return False

    return test


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _partition_key(event: StoredEvent) -> Any:
    try:
        return message_annotation(event.encoded, PARTITION_KEY)
    except DecodeError:
        return None


def _fields(event: StoredEvent, path: str) -> list[Any]:
    """Return the values that a property, or a field of the JSON body, has by this name."""
    # Names compare without case, so only the last part of a path can be looked for in the bytes.
    if path.rpartition(".")[2].lower().encode() not in event.encoded.lower():
        return []
    found = []
    try:
        properties = properties_of(parse_message(event.encoded))
        found += [value for key, value in properties.items() if key.lower() == path.lower()]
        found += _values(json.loads(body_of(event)), path.lower().split("."))
    except (DecodeError, ValueError, RecursionError):
        return found
    return found


def _values(document: Any, path: list[str]) -> list[Any]:
    if isinstance(document, list):
        return [value for item in document for value in _values(item, path)]
    if not path:
        return [document]
    if not isinstance(document, dict):
        return []
    return [value for key, item in document.items() if key.lower() == path[0] for value in _values(item, path[1:])]


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
