"""The explorer's search: words, phrases, and `name:value` of a property or of a field in a JSON body."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tidegate.amqp.messages.message import DecodeError, message_annotation, parse_message
from tidegate.hub.errors import ArgumentError
from tidegate.portal.events.description import StoredEvent, body_of, plain

MAX_SEARCH_CHARACTERS = 500
_TERM = re.compile(r'(-?)(?:([\w.@$-]+):)?(?:"([^"]*)"|(\S+))')
_PARTITION_KEY = "x-opt-partition-key"

Match = Callable[[StoredEvent], bool]


def parse_search(text: str) -> Match | None:
    """Return the test of a search, None for an empty one, which every event passes.

    All terms must hold. A term is a word, a phrase in double quotes, `name:value` for a property or a field of a JSON
    body (`device.id:7`), or `key:value` for the partition key; a minus before it means that it must not hold. Letter
    case does not matter.

    Raises:
        ArgumentError: The search is too long.
    """
    if len(text) > MAX_SEARCH_CHARACTERS:
        raise ArgumentError(f"a search has at most {MAX_SEARCH_CHARACTERS} characters")
    tests = [_term(*match.groups()) for match in _TERM.finditer(text)]
    if not tests:
        return None
    return lambda event: all(test(event) for test in tests)


def _term(minus: str, name: str | None, quoted: str | None, word: str | None) -> Match:
    value = quoted if quoted is not None else word or ""
    test = _contains(value) if name is None else _equals(name, value)
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


def _partition_key(event: StoredEvent) -> Any:
    try:
        return message_annotation(event.encoded, _PARTITION_KEY)
    except DecodeError:
        return None


def _fields(event: StoredEvent, path: str) -> list[Any]:
    """Return the values that a property, or a field of the JSON body, has by this name."""
    # Names compare without case, so only the last part of a path can be looked for in the bytes.
    if path.rpartition(".")[2].lower().encode() not in event.encoded.lower():
        return []
    found = []
    try:
        properties = plain(parse_message(event.encoded).application_properties or {})
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
