"""The grammar of MATCH_RECOGNIZE. Its clauses may come in any order, as in the documentation's own examples.
https://learn.microsoft.com/stream-analytics-query/match-recognize-stream-analytics
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.cursor import SyntaxFault
from tidegate.sql.parsing.diagnostics import nearest
from tidegate.sql.parsing.dialect import TokenKind
from tidegate.sql.parsing.expression_parser import ExpressionParser
from tidegate.sql.parsing.syntax import Node, Span, Word
from tidegate.sql.plan.patterns import ANY_EVENT, Either, Name, Pattern, Repeat, Sequence

_CLAUSES = ("LIMIT", "PARTITION", "MEASURES", "AFTER", "PATTERN", "DEFINE")
_EXAMPLE = "LIMIT DURATION, PARTITION BY, MEASURES, AFTER MATCH SKIP TO NEXT ROW, PATTERN and DEFINE"

# What MATCH_RECOGNIZE has elsewhere, and not here: the word, what is wrong, and what to do.
_ELSEWHERE = {
    "ORDER": ("MATCH_RECOGNIZE takes no ORDER BY", "events come in the order of their time"),
    "ALL": ("ALL ROWS PER MATCH is not part of this language", "a match is one row; Classifier() names its events"),
    "WITHIN": ("MATCH_RECOGNIZE takes no WITHIN", "LIMIT DURATION(minute, 1) says how long a match may take"),
    "SUBSET": ("MATCH_RECOGNIZE takes no SUBSET", None),
}
# Each name of a pattern becomes a state.
MAX_STATES = 200


@dataclass(slots=True)
class _Clauses:
    limit: syntax.Duration | None = None
    partition_by: tuple[Node, ...] = ()
    measures: list[tuple[Node, Word]] = field(default_factory=list)
    pattern: Pattern | None = None
    definitions: list[tuple[Word, Node]] = field(default_factory=list)


class MatchParser(ExpressionParser):
    def matched(self, source: syntax.TableReference | syntax.Derived) -> syntax.Matched:
        """From MATCH_RECOGNIZE on."""
        start = self.token.start
        self.expect("MATCH_RECOGNIZE")
        self.expect_sign("(", why=" after MATCH_RECOGNIZE")
        clauses = _Clauses()
        self._names: dict[str, Word] = {}
        seen: set[str] = set()
        while not self.at_sign(")"):
            self._clause(clauses, seen)
        end = self.since(start)
        self.advance()
        for clause in ("MEASURES", "PATTERN"):
            if clause not in seen:
                raise self.fault(f"MATCH_RECOGNIZE has no {clause}", f"it has {_EXAMPLE}", Span(start, start + 15))
        alias = self._match_alias()
        assert clauses.pattern is not None
        return syntax.Matched(
            source,
            clauses.limit,
            clauses.partition_by,
            tuple(clauses.measures),
            clauses.pattern,
            tuple(self._names.values()),
            tuple(clauses.definitions),
            alias,
            end,
        )

    def _match_alias(self) -> Word:
        if self.accept("AS") or self._is_bare_name():
            return self.name("a name for what MATCH_RECOGNIZE gives")
        raise self.unexpected("AS and a name for what MATCH_RECOGNIZE gives")

    def _is_bare_name(self) -> bool:
        from_here = self.token.upper
        clauses = ("WHERE", "GROUP", "HAVING", "INTO", "UNION", "JOIN", "LEFT", "INNER", "CROSS", "OUTER", "SELECT")
        return self.token.is_quoted or (self.token.kind is TokenKind.WORD and from_here not in clauses)

    def _clause(self, clauses: _Clauses, seen: set[str]) -> None:
        word = self.token.upper
        if word in seen:
            raise self.fault(f"{word} appears twice in MATCH_RECOGNIZE")
        if word in _ELSEWHERE:
            raise self.fault(*_ELSEWHERE[word])
        seen.add(word)
        match word:
            case "LIMIT":
                clauses.limit = self.limit_duration()
            case "PARTITION":
                self.advance()
                self.expect("BY", why=" after PARTITION")
                clauses.partition_by = self.expressions()
            case "MEASURES":
                self.advance()
                clauses.measures = self._measures()
            case "ONE":
                self.expect("ONE", "ROW", "PER", "MATCH")
            case "AFTER":
                self._skip_clause()
            case "PATTERN":
                self.advance()
                self.expect_sign("(", why=" after PATTERN")
                clauses.pattern = self._alternatives()
                self.expect_sign(")", why=", a name or a quantifier in PATTERN")
                self._check_size(clauses.pattern)
            case "DEFINE":
                self.advance()
                clauses.definitions = self._definitions()
            case _:
                raise self._no_clause()

    def _no_clause(self) -> SyntaxFault:
        meant = nearest(self.token.upper, _CLAUSES) if len(self.token.upper) > 3 else None
        if meant:
            return self.fault(f"{self.token.text} begins no clause", f"did you mean {meant}?")
        return self.fault(
            f"expected a clause of MATCH_RECOGNIZE, found {self._found(self.token)}", f"it has {_EXAMPLE}"
        )

    def _skip_clause(self) -> None:
        start = self.token.start
        self.expect("AFTER")
        self.expect("MATCH", why=" after AFTER")
        self.expect("SKIP", why=" after AFTER MATCH")
        if self.accept("TO", "NEXT", "ROW"):
            return
        while self.token.upper not in ("", *_CLAUSES):
            self.advance()
        raise self.fault(
            "a match can only skip to the next row", "write AFTER MATCH SKIP TO NEXT ROW", self.since(start)
        )

    def _measures(self) -> list[tuple[Node, Word]]:
        measures: list[tuple[Node, Word]] = []
        while not measures or self.accept_sign(","):
            value = self.expression()
            self.expect("AS", why=" and a name after a measure")
            measures.append((value, self.name("a name of a column after AS")))
        return measures

    def _definitions(self) -> list[tuple[Word, Node]]:
        definitions: list[tuple[Word, Node]] = []
        while not definitions or self.accept_sign(","):
            name = self.name("a name of the pattern")
            self.expect("AS", why=f" and a condition after {name.text}")
            definitions.append((name, self.expression()))
        return definitions

    # The pattern ------------------------------------------------------------------------------------------------------

    def _alternatives(self) -> Pattern:
        self.deeper()
        options = [self._concatenation()]
        while self.accept_sign("|"):
            options.append(self._concatenation())
        self.shallower()
        return options[0] if len(options) == 1 else Either(tuple(options))

    def _concatenation(self) -> Pattern:
        parts = [self._repeated()]
        while not (self.at_sign(")") or self.at_sign("|") or self.at_kind(TokenKind.END)):
            if self.at_sign(","):
                raise self.fault("names of a pattern are separated by blanks", "write PATTERN (A B+)")
            parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self) -> Pattern:
        atom = self._atom()
        quantified = atom
        if self.accept_sign("*"):
            quantified = Repeat(atom, 0, None)
        elif self.accept_sign("+"):
            quantified = Repeat(atom, 1, None)
        elif self.accept_sign("?"):
            quantified = Repeat(atom, 0, 1)
        elif self.at_sign("{"):
            quantified = Repeat(atom, *self._counts())
        if quantified is not atom and self.token.kind is TokenKind.SIGN and self.token.text in ("*", "+", "?", "{"):
            raise self.fault(
                "a part of a pattern takes one quantifier", "reluctant quantifiers (*?, +?) do not exist here"
            )
        return quantified

    def _atom(self) -> Pattern:
        if self.accept_sign("("):
            inner = self._alternatives()
            self.expect_sign(")", why=", a name or a quantifier in PATTERN")
            return inner
        if self.accept_sign("."):
            return Name(ANY_EVENT)
        if self.token.upper == "DEFINE" and (self.following.kind is TokenKind.WORD or self.following.is_quoted):
            raise self.unexpected(") at the end of PATTERN")
        word = self.name("a name, . or ( in PATTERN")
        return Name(self._names.setdefault(word.text.lower(), word).text)

    def _counts(self) -> tuple[int, int | None]:
        """{n}, {n,}, {n,m} or {,m}"""
        start = self.token.start
        self.expect_sign("{")
        least = self._count()
        most = least
        if self.accept_sign(","):
            most = self._count()
            least = least or 0
        self.expect_sign("}", why=" after the number of repetitions")
        if least is None or (most is not None and (most < least or most == 0)) or max(least, most or 0) > MAX_STATES:
            span = self.since(start)
            hint = f"write {{n}}, {{n,}} or {{n,m}} with 0 < m, n <= m <= {MAX_STATES}"
            raise self.fault(f"{self.sql[span.start : span.end]} is no number of repetitions", hint, span)
        return least, most

    def _count(self) -> int | None:
        if not self.at_kind(TokenKind.NUMBER):
            return None
        text = self.advance().text
        if not text.isdigit() or len(text) > 9:
            raise self.fault(
                "the number of repetitions must be a whole number", None, self.since(self.tokens[self.index - 1].start)
            )
        return int(text)

    def _check_size(self, pattern: Pattern) -> None:
        if _states(pattern) > MAX_STATES:
            raise self.fault(
                f"this pattern has more than {MAX_STATES} events",
                "make it shorter",
                self.since(self.tokens[self.index - 1].start),
            )


def _states(pattern: Pattern) -> int:
    match pattern:
        case Name():
            return 1
        case Sequence(parts=parts) | Either(options=parts):
            return sum(map(_states, parts))
        case Repeat(part=part, least=least, most=most):
            return _states(part) * max(1, least + 1 if most is None and least else most or 1)
