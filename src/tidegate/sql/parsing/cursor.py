"""A position in the tokens of a query, and the faults to report there."""

from __future__ import annotations

from tidegate.sql.parsing.diagnostics import Diagnostic, nearest
from tidegate.sql.parsing.dialect import CLAUSES, CONDITIONS, ELSEWHERE, RESERVED, LineIndex, Token, TokenKind
from tidegate.sql.parsing.syntax import Span, Word

# Queries nested deeper than anyone writes would exhaust the stack of recursive passes.
MAX_NESTING = 40
MAX_OPERANDS = 150


class SyntaxFault(Exception):
    """Parsing cannot continue from here."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


class Cursor:
    def __init__(self, sql: str, tokens: list[Token]) -> None:
        self.sql = sql
        self.tokens = tokens
        self.index = 0
        self.lines = LineIndex(sql)
        self._nesting = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    @property
    def following(self) -> Token:
        return self.tokens[min(self.index + 1, len(self.tokens) - 1)]

    @property
    def span(self) -> Span:
        return Span(self.token.start, self.token.end)

    @property
    def last_span(self) -> Span:
        """The last token of the query."""
        last = self.tokens[-2] if len(self.tokens) > 1 else None
        return Span(0, 1) if last is None else Span(last.start, last.end)

    def advance(self) -> Token:
        token = self.token
        if token.kind is not TokenKind.END:
            self.index += 1
        return token

    def since(self, start: int) -> Span:
        """From the offset `start` to the end of the last token taken."""
        return Span(start, max(start, self.tokens[self.index - 1].end) if self.index else start)

    # Tests and takes --------------------------------------------------------------------------------------------------

    def at(self, *words: str) -> bool:
        """Whether the next words are these (in capitals)."""
        for distance, word in enumerate(words):
            index = self.index + distance
            if index >= len(self.tokens) or self.tokens[index].upper != word:
                return False
        return True

    def at_sign(self, sign: str) -> bool:
        return self.at_kind(TokenKind.SIGN) and self.token.text == sign

    def at_kind(self, kind: TokenKind) -> bool:
        return self.token.kind is kind

    def accept(self, *words: str) -> bool:
        if not self.at(*words):
            return False
        self.index += len(words)
        return True

    def accept_sign(self, sign: str) -> bool:
        if not self.at_sign(sign):
            return False
        self.index += 1
        return True

    def expect(self, *words: str, why: str = "") -> None:
        if not self.accept(*words):
            raise self.unexpected(" ".join(words) + why)

    def expect_sign(self, sign: str, why: str = "") -> None:
        if not self.accept_sign(sign):
            raise self.unexpected(f"{sign}{why}")

    def name(self, what: str) -> Word:
        """A name: quoted, or a word that is not reserved."""
        token = self.token
        if token.is_quoted or (token.kind is TokenKind.WORD and token.upper not in RESERVED):
            return self.any_word()
        raise self.unexpected(what)

    def any_word(self) -> Word:
        """The next word or quoted name, even if it is reserved."""
        token = self.advance()
        return Word(token.text, Span(token.start, token.end), token.is_quoted, token.kind is TokenKind.DOUBLE_QUOTED)

    # Faults -----------------------------------------------------------------------------------------------------------

    def fault(self, message: str, hint: str | None = None, span: Span | None = None) -> SyntaxFault:
        if span is None:
            # What is missing at the end is missing after the last word.
            place = self.index - 1 if self.token.kind is TokenKind.END and self.index else self.index
            span = Span(self.tokens[place].start, self.tokens[place].end)
        position = self.lines.position(span.start)
        return SyntaxFault(Diagnostic(position.line, position.column, message, max(1, span.end - span.start), hint))

    def unexpected(self, expected: str, hint: str | None = None) -> SyntaxFault:
        """Return the fault of a token that is not `expected`, with what was probably meant, or else the hint."""
        token = self.token
        if token.upper in ELSEWHERE:
            message, hint = ELSEWHERE[token.upper]
            return self.fault(message, hint)
        if meant := self._clause_meant(token):
            return self.fault(f"expected {expected}, found {self._found(token)}", f"did you mean {meant}?")
        before = self.tokens[self.index - 1] if self.index else token
        if before.upper in ("TIMESTAMP", "PARTITION") and token.kind is not TokenKind.END:
            return self.fault(f"expected BY after {before.text}, found {self._found(token)}")
        if meant := self._clause_meant(before):
            span = Span(before.start, before.end)
            return self.fault(f"{before.text} begins no clause", f"did you mean {meant}?", span)
        named = before.upper == "AS" or token.upper not in CLAUSES[:-4]
        if token.upper in RESERVED and named and expected.startswith("a name"):
            hint = f"{token.text} is a word of the language; as a name write [{token.text}]"
        elif token.kind is TokenKind.SIGN:
            hint = self._sign_hint()
        return self.fault(f"expected {expected}, found {self._found(token)}", hint)

    @staticmethod
    def _clause_meant(token: Token) -> str | None:
        """The word of a clause or condition that a word is a misspelling of."""
        if token.upper in CLAUSES or token.upper in CONDITIONS or len(token.upper) < 3:
            return None
        clause = nearest(token.upper, CLAUSES, likeness=0.7)  # "input" is near to INTO.
        return clause or nearest(token.upper, CONDITIONS, likeness=0.8)

    def _found(self, token: Token) -> str:
        if token.kind is TokenKind.END:
            return "the end of the query"
        return self.sql[token.start : token.end] if token.end - token.start <= 40 else "this"

    def _sign_hint(self) -> str | None:
        before = self.tokens[self.index - 1].text if self.index else ""
        return {
            ("=", "="): "equality is written =",
            ("&", "&"): "write AND",
            ("|", "|"): "write OR, or CONCAT(a, b) to join texts",
            ("=", ">"): "write >=",
            ("=", "<"): "write <=",
            (">", "<"): "write <>",
            ("/", "/"): "a comment begins with --",
            (",", ")"): "something is missing after the comma",
            (",", ","): "something is missing between the commas",
        }.get((before, self.token.text))

    def deeper(self) -> None:
        """One level of nesting more. Raises SyntaxFault when there are too many."""
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self._nesting = 0
            raise self.fault(f"this is nested more than {MAX_NESTING} deep", "name parts of it in WITH steps")

    def shallower(self) -> None:
        self._nesting = max(0, self._nesting - 1)
