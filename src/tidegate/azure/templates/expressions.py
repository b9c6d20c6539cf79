"""Template expressions: `[concat(parameters('a'), '-', variables('b').c[0])]`, parsed.

https://learn.microsoft.com/azure/azure-resource-manager/templates/template-expressions. An expression is a text that
begins with one bracket and ends with one. With two at its beginning it is plain text, which begins with one. Names
compare without case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class TemplateError(Exception):
    """A template, or an expression in it, that is wrong. The message holds no secret."""


class UnknownValueError(TemplateError):
    """An expression whose value is known only when the template is deployed."""


MAX_CHARACTERS = 24_576
"""The longest expression, which is the service's limit."""
MAX_DEPTH = 100
_TOKEN = re.compile(r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+)|(?P<name>[A-Za-z_]\w*)|(?P<sign>[()\[\].,]))")


@dataclass(frozen=True, slots=True)
class Literal:
    """A text or a number."""

    value: str | int


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments, which are not evaluated yet."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MemberAccess:
    """A member or an item of a value."""

    value: Node
    key: Node


Node = Literal | Call | MemberAccess


def is_expression(text: str) -> bool:
    """Return whether a text is an expression."""
    return _is_in_brackets(text) and not text.startswith("[[")


def plain_text(text: str) -> str:
    """Return a text that is no expression, without the bracket that escapes another one."""
    return text[1:] if _is_in_brackets(text) and text.startswith("[[") else text


def _is_in_brackets(text: str) -> bool:
    return text.startswith("[") and text.endswith("]")


def parse(text: str) -> Node:
    """Return the expression between the brackets of a text. Raises TemplateError."""
    if len(text) > MAX_CHARACTERS:
        raise TemplateError(f"an expression has at most {MAX_CHARACTERS} characters")
    parser = _Parser(text[1:-1], text)
    node = parser.expression(0)
    if parser.has_more:
        raise parser.wrong()
    return node


class _Parser:
    def __init__(self, source: str, whole: str) -> None:
        self._source = source
        self._whole = whole
        self._position = 0
        self._token: tuple[str, str] = ("end", "")
        self._advance()

    @property
    def has_more(self) -> bool:
        return self._token[0] != "end"

    def wrong(self) -> TemplateError:
        return TemplateError(
            f"the expression {self._whole[:200]!r} is wrong at its character {self._position + 1}: "
            f"{self._token[1] or 'its end'!r} is not expected"
        )

    def expression(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise TemplateError(f"an expression is nested more than {MAX_DEPTH} deep")
        kind, written = self._token
        node: Node
        if kind == "text":
            self._advance()
            node = Literal(written[1:-1].replace("''", "'"))
        elif kind == "number":
            self._advance()
            node = Literal(int(written[:20]))
        elif kind == "name":
            self._advance()
            name = written
            while self._token == ("sign", "."):
                self._advance()
                if self._token[0] != "name":
                    raise self.wrong()
                name += f".{self._token[1]}"
                self._advance()
            node = Call(name, self._arguments(depth))
        else:
            raise self.wrong()
        return self._accesses(node, depth)

    def _arguments(self, depth: int) -> tuple[Node, ...]:
        self._expect("(")
        arguments: list[Node] = []
        while self._token != ("sign", ")"):
            if arguments:
                self._expect(",")
            arguments.append(self.expression(depth + 1))
        self._advance()
        return tuple(arguments)

    def _accesses(self, node: Node, depth: int) -> Node:
        while True:
            if self._token == ("sign", "."):
                self._advance()
                if self._token[0] != "name":
                    raise self.wrong()
                node = MemberAccess(node, Literal(self._token[1]))
                self._advance()
            elif self._token == ("sign", "["):
                self._advance()
                node = MemberAccess(node, self.expression(depth + 1))
                self._expect("]")
            else:
                return node
            depth += 1
            if depth > MAX_DEPTH:
                raise TemplateError(f"an expression is nested more than {MAX_DEPTH} deep")

    def _expect(self, sign: str) -> None:
        if self._token != ("sign", sign):
            raise self.wrong()
        self._advance()

    def _advance(self) -> None:
        if not self._source[self._position :].strip():
            self._token = ("end", "")
            return
        match = _TOKEN.match(self._source, self._position)
        if match is None or match.lastgroup is None:
            self._token = ("wrong", self._source[self._position :].lstrip()[:1])
            return
        self._position = match.end()
        self._token = (match.lastgroup, match[match.lastgroup])


def member(value: Any, key: Any) -> Any:
    """Return a member of an object (in any case) or an item of an array. Raises TemplateError."""
    if isinstance(value, Mapping) and isinstance(key, str):
        if key in value:
            return value[key]
        for name, found in value.items():
            if str(name).lower() == key.lower():
                return found
        raise TemplateError(f"the object has no member {key[:100]!r}; it has {', '.join(map(str, value))[:300]}")
    if isinstance(value, list) and isinstance(key, int) and not isinstance(key, bool):
        if 0 <= key < len(value):
            return value[key]
        raise TemplateError(f"the array has {len(value)} items, and no item {key}")
    raise TemplateError(f"{_kind(value)} has no member {str(key)[:100]!r}")


def _kind(value: Any) -> str:
    return {dict: "an object", list: "an array", str: "a text", int: "a number", bool: "a truth value"}.get(
        type(value), "null"
    )


Function = Callable[..., Any]
