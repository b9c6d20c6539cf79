"""The words of a query: sqlglot's T-SQL tokenizer, with the words of T-SQL that Stream Analytics does not have taken
out.

Only the tokenizer of the pinned sqlglot is used; the grammar is ours (`parser.py`). sqlglot's parser aims at
accepting every dialect and at transpiling, so it takes what has to be refused here (`BETWEEN 1 2`, a comma before
FROM, any unknown clause of a known name), gives & | ^ another precedence than T-SQL does, and rewrites the arguments
of functions it knows.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

from sqlglot.dialects.tsql import TSQL
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from tidegate.saql.parsing.diagnostics import LINE_END, Diagnostic, QueryError
from tidegate.saql.plan.nodes import Position


class StreamAnalytics(TSQL):
    """T-SQL without keywords: a word is a word, and the grammar says where it is a name. So `timestamp`, `count` or
    `user` are ordinary column names."""

    class Tokenizer(TSQL.Tokenizer):
        QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'"]
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            "<>": TokenType.NEQ,
            "!=": TokenType.NEQ,
            "<=": TokenType.LTE,
            ">=": TokenType.GTE,
            "!<": TokenType.GTE,
            "!>": TokenType.LTE,
        }
        COMMANDS: ClassVar[set[TokenType]] = set()


class Kind(Enum):
    WORD = auto()
    QUOTED = auto()  # [name]
    TEXT = auto()  # 'text', "text"
    NUMBER = auto()
    SIGN = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """`start` and `end` are offsets in the query, end exclusive. `text` is the content without quotes; of a sign, its
    canonical form."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The word in capitals; "" for what is not an unquoted word."""
        return self.text.upper() if self.kind is Kind.WORD else ""


class Lines:
    """Offsets to lines and columns."""

    def __init__(self, sql: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer(LINE_END, sql))]

    def position(self, offset: int) -> Position:
        line = bisect.bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)


_NAME = re.compile(r"[^\W\d][\w$]*\Z")
_COMPARISONS = frozenset(["<>", "!=", "<=", ">=", "!<", "!>"])
_CANONICAL_SIGNS = {"!=": "<>", "!<": ">=", "!>": "<="}
_SIGNS = frozenset(
    ["(", ")", ",", ".", ";", "+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "&", "|", "^", "~"]
) | frozenset("?{}")  # Of patterns (MATCH_RECOGNIZE) alone.
_CURLY = {"‘": "'", "’": "'", "“": "'", "”": "'"}


def tokenize(sql: str) -> list[Token]:
    """The tokens of a query, comments left out, with one END at the end.

    Raises QueryError with every character that begins nothing in this language, or with the quote, bracket or comment
    left open.
    """
    try:
        raw = StreamAnalytics().tokenize(sql)
    except TokenError:
        raise QueryError([_left_open(sql)]) from None
    lines = Lines(sql)
    tokens: list[Token] = []
    diagnostics: list[Diagnostic] = []
    places = [(token, token.start, token.end + 1) for token in raw]
    # T-SQL, and the page of WHERE, write < > and ! = too.
    signs = [sql[start:end] for _, start, end in places]
    for index in range(len(places) - 1, 0, -1):
        if signs[index - 1] in ("<", ">", "!") and signs[index - 1] + signs[index] in _COMPARISONS:
            places[index - 1 : index + 1] = [(places[index][0], places[index - 1][1], places[index][2])]
    for token, start, end in places:
        source = sql[start:end]
        if (joined := "".join(source.split())) in _COMPARISONS:
            source = joined
        fault = _fault(source, token.token_type, tokens, start)
        if fault:
            position = lines.position(start)
            diagnostics.append(Diagnostic(position.line, position.column, fault[0], end - start, fault[1]))
        match token.token_type:
            case TokenType.STRING | TokenType.NATIONAL_STRING:
                kind, text = Kind.TEXT, token.text
            case TokenType.NUMBER:
                kind, text = Kind.NUMBER, source
            case TokenType.IDENTIFIER if source.startswith('"'):
                # Text, as in the examples of "Parsing JSON"; after AS a name, as in those of the functions.
                kind, text = Kind.TEXT, source[1:-1].replace('""', '"')
            case TokenType.IDENTIFIER:
                kind, text = Kind.QUOTED, token.text
            case _ if source in _SIGNS or source in _CANONICAL_SIGNS:
                kind, text = Kind.SIGN, _CANONICAL_SIGNS.get(source, source)
            case _:
                kind, text = Kind.WORD, source
        tokens.append(Token(kind, text, start, end))
    if diagnostics:
        raise QueryError(diagnostics)
    tokens.append(Token(Kind.END, "", len(sql), len(sql)))
    return tokens


def _fault(source: str, kind: TokenType, before: list[Token], start: int) -> tuple[str, str | None] | None:
    """What is wrong with one token, and a hint; None if it may stand in a query."""
    if kind in (TokenType.STRING, TokenType.NATIONAL_STRING):
        return None
    if kind is TokenType.IDENTIFIER:
        return (
            None if len(source) > 2 or source.startswith('"') else ("empty name", "write the name between the brackets")
        )
    glued = bool(before) and before[-1].kind is Kind.NUMBER and before[-1].end == start
    if kind is TokenType.NUMBER:
        if glued or not re.fullmatch(r"\d+(\.\d*)?([eE][+-]?\d+)?", source):
            return f"{source} is not a number", None
        return None
    if source in _SIGNS or source in _CANONICAL_SIGNS:
        return None
    if _NAME.match(source):
        return ("a name cannot begin with a digit", f"write [{before[-1].text}{source}]") if glued else None
    for curly in _CURLY:
        if curly in source:
            return f"{curly} is a typographic quote", "write text between straight quotes: 'text'"
    if source.startswith(("@", "#", "$")):
        return f"unexpected {source[:1]}", "there are no variables or temporary tables in this language"
    return f"unexpected {source}" if source.isprintable() else "unexpected control character", None


def _left_open(sql: str) -> Diagnostic:
    """The quote, bracket or comment that nothing closes."""
    closing = {"'": "'", "[": "]", '"': '"'}
    offset, opened, depth = 0, 0, 0
    inside = ""
    while offset < len(sql):
        pair = sql[offset : offset + 2]
        if depth:
            step = 2 if pair in ("/*", "*/") else 1
            depth += {"/*": 1, "*/": -1}.get(pair, 0)
        elif inside:
            step = 2 if pair == inside * 2 else 1
            inside = "" if step == 1 and sql[offset] == inside else inside
        elif pair == "--":
            end = re.compile(LINE_END).search(sql, offset)
            step = (end.start() if end else len(sql)) - offset
        elif pair == "/*":
            opened, depth, step = offset, 1, 2
        else:
            inside = closing.get(sql[offset], "")
            opened, step = (offset if inside else opened), 1
        offset += step
    position = Lines(sql).position(opened)
    if depth:
        return Diagnostic(position.line, position.column, "this comment is never closed", 2, "close it with */")
    if inside == "]":
        return Diagnostic(position.line, position.column, "this name is never closed", 1, "close it with ]")
    if inside:
        return Diagnostic(
            position.line,
            position.column,
            "this text is never closed",
            1,
            f"close it with {inside}; a quote inside text is written twice: 'it''s'",
        )
    return Diagnostic(position.line, position.column, "this cannot be read as a query")
