"""The words of a query.

A word is a word, and the grammar (`parser`) says where it is a keyword and where a name: `timestamp`, `count` or
`user` are ordinary column names. Quotes, brackets, comments and operators are those of T-SQL.
https://learn.microsoft.com/sql/t-sql/language-elements/language-elements-transact-sql
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from enum import Enum, auto

from tidegate.sql.parsing.diagnostics import LINE_END, Diagnostic, QueryError
from tidegate.sql.plan.nodes import TextPosition

# Words that cannot be an unquoted name, so that a forgotten comma or name is found where it is.
RESERVED = frozenset(
    [
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP",
        "HAVING",
        "INTO",
        "UNION",
        "JOIN",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "CROSS",
        "OUTER",
        "ON",
        "AS",
        "AND",
        "OR",
        "NOT",
        "IN",
        "LIKE",
        "BETWEEN",
        "IS",
        "NULL",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "WITH",
        "CREATE",
        "ORDER",
        "DISTINCT",
        "OVER",
    ]
)

CLAUSES = ("SELECT", "FROM", "WHERE", "INTO", "HAVING", "UNION", "JOIN", "GROUP", "TIMESTAMP", "PARTITION", "APPLY")

CONDITIONS = ("BETWEEN", "LIKE", "ESCAPE")

# What T-SQL has and this language has not: the word, and what to do instead.
ELSEWHERE = {
    "ORDER": (
        "ORDER BY is not part of this language: a stream has no end to sort up to",
        "TopOne and CollectTop rank rows",
    ),
    "TOP": ("TOP is not part of this language: a stream has no end", "TopOne and CollectTop rank rows of a window"),
    "LIMIT": (
        "LIMIT is not part of this language here",
        "LIMIT DURATION belongs inside OVER (…); a number of rows is for TopOne and CollectTop",
    ),
    "QUALIFY": ("QUALIFY is not part of this language", "name the value in a WITH step and filter that"),
    "EXCEPT": (
        "EXCEPT is not part of this language",
        "UNION is the only set operator; to leave out a column, name the others",
    ),
    "INTERSECT": ("INTERSECT is not part of this language", "UNION is the only set operator"),
    "FOR": ("FOR is not part of this language here", "an output says in which format it writes"),
    "OFFSET": ("OFFSET is not part of this language here", None),
    "RIGHT": ("RIGHT JOIN is not part of this language", "change the sides and write LEFT JOIN"),
    "FULL": ("FULL JOIN is not part of this language", "JOIN and LEFT JOIN are"),
}

# Words that begin statements of T-SQL which this language has not, and what to do instead.
STATEMENTS = {
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE"), "SELECT … INTO output FROM input writes"),
    **dict.fromkeys(("DECLARE", "SET"), "there are no variables: write the value, or join reference data"),
    **dict.fromkeys(("USE", "GO", "EXEC", "EXECUTE", "PRINT", "BEGIN", "IF", "WHILE"), None),
    **dict.fromkeys(("DROP", "ALTER", "GRANT"), "CREATE TABLE declares the columns of an input"),
}

# Words of the grammar: where a page glues them to others by invisible characters, they are words of their own.
KEYWORDS = RESERVED | {*CLAUSES, *ELSEWHERE, "BY", "DURATION", "TABLE", "MATCH_RECOGNIZE", "ASC", "DESC"}


class TokenKind(Enum):
    WORD = auto()
    QUOTED = auto()  # [name]
    DOUBLE_QUOTED = auto()  # "name", or "text" where there can be no field of that name
    TEXT = auto()  # 'text'
    NUMBER = auto()
    SIGN = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A word, name, text, number or sign.

    Attributes:
        kind: what it is.
        text: its content without quotes; of a sign, its canonical form.
        start: its offset in the query.
        end: the offset behind it.
    """

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def is_quoted(self) -> bool:
        """Whether it is a name in brackets or double quotes."""
        return self.kind is TokenKind.QUOTED or (self.kind is TokenKind.DOUBLE_QUOTED and bool(self.text))

    @property
    def upper(self) -> str:
        """The word in capitals; "" for what is not an unquoted word."""
        return self.text.upper() if self.kind is TokenKind.WORD else ""


class LineIndex:
    """Offsets to lines and columns."""

    def __init__(self, sql: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer(LINE_END, sql))]

    def position(self, offset: int) -> TextPosition:
        line = bisect.bisect_right(self._starts, offset)
        return TextPosition(line, offset - self._starts[line - 1] + 1)


INVISIBLE = "\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
"""Characters without a width, as text copied from web pages contains them. They separate or mean nothing."""

_SIGN_CHARACTERS = r"(),.;+\-*/%=<>!&|^~?{}"
_SPACE = re.compile(rf"(?:[\s{INVISIBLE}]|--[^\r\n]*)+")
_TOKEN = re.compile(
    rf"""
      (?P<text>[Nn]?'(?:[^']|'')*+')
    | (?P<double>"(?:[^"]|"")*+")
    | (?P<name>\[(?:[^\]]|\]\])*+\])
    | (?P<number>(?:\d+(?:\.\d*)?|(?<![\w\]"])\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<sign><\s*>|[!<>]\s*=|!\s*[<>]|[{_SIGN_CHARACTERS}])
    | (?P<word>[^\s'"\[\]{_SIGN_CHARACTERS}]+|\])
    """,
    re.VERBOSE,
)
_COMMENT_PART = re.compile(r"/\*|\*/")
_NAME = re.compile(r"[^\W\d][\w$]*\Z")
_HEXADECIMAL = re.compile(r"[xX]([0-9a-fA-F]{1,15})\Z")
_CANONICAL_SIGNS = {"!=": "<>", "!<": ">=", "!>": "<="}
_CURLY = {"‘": "'", "’": "'", "“": "'", "”": "'"}


def tokenize(sql: str) -> list[Token]:
    """Return the tokens of a query, comments left out, with one END at the end.

    Raises:
        QueryError: with every character that begins nothing in this language, or with the quote, bracket or comment
            left open.
    """
    lines = LineIndex(sql)
    tokens: list[Token] = []
    diagnostics: list[Diagnostic] = []
    place = 0
    while place < len(sql):
        if space := _SPACE.match(sql, place):
            place = space.end()
            continue
        if sql.startswith("/*", place):
            place = _end_of_comment(sql, place)
            continue
        match = _TOKEN.match(sql, place)
        if match is None:
            raise QueryError([_left_open(sql, place)])
        for token in _tokens_of(match):
            if fault := _fault(sql[token.start : token.end], token, tokens):
                position = lines.position(token.start)
                length = token.end - token.start
                diagnostics.append(Diagnostic(position.line, position.column, fault[0], length, fault[1]))
            tokens.append(token)
        place = match.end()
    if diagnostics:
        raise QueryError(diagnostics)
    tokens.append(Token(TokenKind.END, "", len(sql), len(sql)))
    return tokens


def _tokens_of(match: re.Match[str]) -> list[Token]:
    source, start, end = match[0], match.start(), match.end()
    match match.lastgroup:
        case "text":
            return [Token(TokenKind.TEXT, source[source.index("'") + 1 : -1].replace("''", "'"), start, end)]
        case "double":
            return [Token(TokenKind.DOUBLE_QUOTED, source[1:-1].replace('""', '"'), start, end)]
        case "name":
            return [Token(TokenKind.QUOTED, source[1:-1].replace("]]", "]"), start, end)]
        case "number":
            return [Token(TokenKind.NUMBER, source, start, end)]
        case "sign":
            joined = "".join(source.split())
            return [Token(TokenKind.SIGN, _CANONICAL_SIGNS.get(joined, joined), start, end)]
        case _:
            return _words(source, start)


def _words(source: str, start: int) -> list[Token]:
    """Return a run of letters as one word without its invisible characters, or as several where keywords are glued."""
    pieces = [(piece[0], piece.start()) for piece in re.finditer(rf"[^{INVISIBLE}]+", source)]
    if len(pieces) > 1 and any(text.upper() in KEYWORDS for text, _ in pieces):
        return [Token(TokenKind.WORD, text, start + place, start + place + len(text)) for text, place in pieces]
    return [Token(TokenKind.WORD, "".join(text for text, _ in pieces), start, start + len(source))]


def _end_of_comment(sql: str, start: int) -> int:
    """Return the offset behind a comment. Comments nest."""
    depth = 0
    for part in _COMMENT_PART.finditer(sql, start):
        depth += 1 if part[0] == "/*" else -1
        if not depth:
            return part.end()
    position = LineIndex(sql).position(start)
    raise QueryError(
        [Diagnostic(position.line, position.column, "this comment is never closed", 2, "close it with */")]
    )


def _fault(source: str, token: Token, before: list[Token]) -> tuple[str, str | None] | None:
    """Return what is wrong with one token, and a hint; None if the language has it."""
    glued = bool(before) and before[-1].kind is TokenKind.NUMBER and before[-1].end == token.start
    match token.kind:
        case TokenKind.QUOTED:
            return None if token.text else ("empty name", "write the name between the brackets")
        case TokenKind.NUMBER:
            return (f"{source} is not a number", None) if glued else None
        case TokenKind.SIGN:
            return ("unexpected !", None) if source == "!" else None
        case TokenKind.WORD if _NAME.match(token.text) and glued:
            if before[-1].text == "0" and (hexadecimal := _HEXADECIMAL.match(source)):
                return "numbers are decimal in this language", f"write {int(hexadecimal[1], 16)}"
            return "a name cannot begin with a digit", f"write [{before[-1].text}{source}]"
        case TokenKind.WORD if _NAME.match(token.text):
            return None
        case TokenKind.WORD:
            return _odd_word(source)
    return None


def _odd_word(source: str) -> tuple[str, str | None]:
    for curly in _CURLY:
        if curly in source:
            return f"{curly} is a typographic quote", "write text between straight quotes: 'text'"
    if source.startswith("#"):
        return "unexpected #", "a comment begins with --; there are no temporary tables in this language"
    if source.startswith(("@", "$")):
        return f"unexpected {source[:1]}", "there are no variables or temporary tables in this language"
    if "`" in source:
        return "unexpected `", "write names that need quotes in brackets: [name]"
    if "::" in source:
        return "unexpected ::", "write CAST(value AS type)"
    return f"unexpected {source}" if source.isprintable() else "unexpected control character", None


def _left_open(sql: str, start: int) -> Diagnostic:
    """Return what to say about the quote or bracket at an offset, which nothing closes."""
    position = LineIndex(sql).position(start)
    quote = sql[start]
    if quote == "[":
        return Diagnostic(position.line, position.column, "this name is never closed", 1, "close it with ]")
    what = "text" if quote == "'" else "name"
    example = "'it''s'" if quote == "'" else '"5"" pipe"'
    hint = f"close it with {quote}; a quote inside {what} is written twice: {example}"
    return Diagnostic(position.line, position.column, f"this {what} is never closed", 1, hint)
