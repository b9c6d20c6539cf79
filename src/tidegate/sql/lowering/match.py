"""Lowering of MATCH_RECOGNIZE: its pattern variables and measures.
https://learn.microsoft.com/stream-analytics-query/match-recognize-stream-analytics

A column qualified by a pattern variable is read from the current row in that variable's own definition, and elsewhere
from the last row matched to the variable. An unqualified column is read from the current row, in MEASURES from the last
row of the match.
"""

from __future__ import annotations

from tidegate.sql.lowering.context import Context
from tidegate.sql.lowering.expressions import ExpressionLowerer, check_count
from tidegate.sql.lowering.scope import Scope, Source, SourceKind
from tidegate.sql.lowering.temporal import limit_ticks
from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.diagnostics import did_you_mean
from tidegate.sql.parsing.syntax import Node
from tidegate.sql.plan import types
from tidegate.sql.plan.nodes import (
    AggregateRef,
    Column,
    Expr,
    Item,
    KeyRef,
    Literal,
    Match,
    MatchCall,
    Relation,
    Row,
    SystemTimestamp,
    TemporalRef,
    Type,
)
from tidegate.sql.plan.patterns import lengths_of
from tidegate.sql.plan.signatures import AggregateSignature, ArgumentKind, Signature
from tidegate.sql.plan.units import SECOND
from tidegate.sql.plan.walking import fold

_METHODS = {"first": "First", "last": "Last", "min": "Min", "max": "Max"}


def lower_match(context: Context, node: syntax.Matched, source: Source, below: Relation) -> tuple[Source, Match, int]:
    """Return the source that MATCH_RECOGNIZE makes, its plan, and how far it looks back."""
    report = context.report
    ticks = SECOND
    if node.limit is None:
        span = syntax.Span(node.span.start, node.span.start + len("MATCH_RECOGNIZE"))
        message = "MATCH_RECOGNIZE needs LIMIT DURATION(unit, n): how long a match may take"
        report.error(span, message, "LIMIT DURATION(minute, 1)")
    else:
        ticks = limit_ticks(context, node.limit)
    if lengths_of(node.pattern)[1] == 0:
        report.error(node.span, "this PATTERN matches no event")
    scope = Scope(report, [source])
    keys = ExpressionLowerer(context, scope, "PARTITION BY")
    partition_by = tuple(keys.value(key) for key in node.partition_by)
    for key, lowered in zip(node.partition_by, partition_by, strict=True):
        if isinstance(lowered, Row):
            report.error(
                key.span, f"{lowered.source} is a whole event, not a key", f"name a column: {lowered.source}.…"
            )
    own = source.partition_by
    if own is not None and fold(own) not in map(fold, partition_by):
        # PARTITION BY of the FROM makes separate timelines: a match is of one partition's events.
        partition_by = (*partition_by, own)
    calls: list[MatchCall] = []
    words = {word.text.lower(): word.text for word in node.names}
    definitions = _definitions(context, node, scope, words, calls)
    lowerer = _MatchLowerer(context, scope, node.alias.text, words, calls, "MEASURES")
    measures: dict[str, Item] = {}
    types_: dict[str, Type] = {}
    texts: set[str] = set()
    for value, name in node.measures:
        if name.text.lower() in measures:
            report.error(name.span, f"two measures are called {name.text}", "give one another name: AS …")
        written = name.text.lower() if context.compatibility_level == "1.0" else name.text
        expr = lowerer.value(value)
        measures[name.text.lower()] = Item(written, expr, report.position(value.span))
        types_[name.text.lower()] = lowerer.type_of(expr)
        texts |= {name.text.lower()} if lowerer.is_text(expr) else set()
    relation = Match(
        below,
        node.alias.text,
        partition_by,
        ticks,
        node.pattern,
        definitions,
        tuple(calls),
        tuple(measures.values()),
        report.position(node.span),
    )
    columns = {key: item.name for key, item in measures.items()}
    known: dict[str, Type] = {key: type_ for key, type_ in types_.items() if type_ is not Type.ANY}
    matched = Source(node.alias.text, node.alias.text, SourceKind.STEP, columns, known, texts=frozenset(texts))
    return matched, relation, ticks


def _definitions(
    context: Context, node: syntax.Matched, scope: Scope, words: dict[str, str], calls: list[MatchCall]
) -> tuple[tuple[str, Expr], ...]:
    report = context.report
    order = [name.text.lower() for name, _ in node.definitions]
    found: dict[str, Expr] = {}
    for place, (name, condition) in enumerate(node.definitions):
        key = name.text.lower()
        if key in found:
            report.error(name.span, f"{name.text} is defined twice")
        if key not in words:
            names = list(words.values())
            hint = did_you_mean(name.text, names) or "its names are " + ", ".join(names)
            report.error(name.span, f"{name.text} is not a name of the PATTERN", hint)
        lowerer = _MatchLowerer(context, scope, node.alias.text, words, calls, "DEFINE")
        lowerer.defined = key
        lowerer.later = frozenset(order[place + 1 :]) - {key}
        found[key] = lowerer.condition(condition)
    return tuple((words[key], expr) for key, expr in found.items() if key in words)


class _MatchLowerer(ExpressionLowerer):
    """`words` are the names of the pattern in lower case -> as written; `calls` are gathered. `defined` is the name
    that a definition is for, None in MEASURES; `later` are those defined further down."""

    def __init__(
        self, context: Context, scope: Scope, alias: str, words: dict[str, str], calls: list[MatchCall], place: str
    ) -> None:
        super().__init__(context, scope, place)
        self._alias = alias
        self._words = words
        self._calls = calls
        self.defined: str | None = None
        self.later: frozenset[str] = frozenset()

    # Columns ----------------------------------------------------------------------------------------------------------

    def path(self, node: syntax.Path) -> Expr:
        if node.words[0].text.lower() == "system" and len(node.words) > 1 and "system" not in self._words:
            return super().path(node)
        variable, column = self._column(node)
        if not isinstance(column, Column) or (self.defined is not None and variable in (None, self.defined)):
            return column
        return self._call(MatchCall("last", self._written(variable), column, self.position(node)))

    def _column(self, node: syntax.Path) -> tuple[str | None, Expr]:
        """Return the pattern variable that qualifies a column, in lower case, and the column of the source."""
        first = node.words[0]
        key = first.text.lower()
        if key not in self._words:
            if len(node.words) > 1 and self._misspelt(first):
                return None, Literal(None, self.position(node))
            return None, self._of_source(node)
        if len(node.words) == 1:
            return None, self.null(
                node, f"{first.text} is a name of the PATTERN, not a value", f"name a column: {first.text}.…"
            )
        if key in self.later:
            self.report.error(
                first.span,
                f"{first.text} is defined later: a definition can only use names defined above it",
                "change the order of the definitions",
            )
        rest = syntax.Path(node.words[1:], syntax.Span(node.words[1].span.start, node.span.end))
        return key, self._of_source(rest)

    def _misspelt(self, word: syntax.Word) -> bool:
        """Return whether a qualifier is probably a misspelt pattern variable, and report it if so."""
        source = self.scope.sources[0]
        near = did_you_mean(word.text, self._words.values())
        if near is None or source.has(word.text) or word.text.lower() in (source.alias.lower(), source.name.lower()):
            return False
        self.report.error(word.span, f"{word.text} is not a name of the PATTERN", near)
        return True

    def _of_source(self, path: syntax.Path) -> Expr:
        """Return a column of the source, optionally qualified by the source's name."""
        expr = self.scope.resolve(path)
        if isinstance(expr, Row):
            return self.null(path, f"{expr.source} is a whole event, not a value", f"name a column: {expr.source}.…")
        return expr

    def system_timestamp(self, node: Node) -> Expr:
        return SystemTimestamp(None, self.position(node))

    # Functions --------------------------------------------------------------------------------------------------------

    def function(self, node: syntax.Function) -> Expr:
        if node.key in _METHODS:
            return self._method(node)
        if node.key == "classifier":
            return self._classifier(node)
        return super().function(node)

    def aggregate(self, node: syntax.Function, aggregate: AggregateSignature) -> Expr:
        name = self.catalog.spelling(node.key)
        return self.null(node, f"MATCH_RECOGNIZE has no {name}", "it has First, Last, Min, Max and Classifier")

    def _method(self, node: syntax.Function) -> Expr:
        """Lower First, Last, Min or Max of a column."""
        name = _METHODS[node.key]
        if node.over is not None:
            self.report.error(node.over.span, f"{name} takes no OVER in MATCH_RECOGNIZE")
        if node.distinct:
            self.report.error(node.span, f"{name} takes no DISTINCT in MATCH_RECOGNIZE")
        if len(node.args) != 1:
            return self.null(node, f"{name} takes 1 argument in MATCH_RECOGNIZE, not {len(node.args)}")
        argument = node.args[0]
        if not isinstance(argument, syntax.Path):
            hint = f"name one column of one name of the pattern: {name}({next(iter(self._words.values()), 'A')}.value)"
            return self.null(argument, f"{name} takes a column in MATCH_RECOGNIZE, and nothing computed", hint)
        variable, column = self._column(argument)
        if not isinstance(column, Column):
            return column
        if node.key in ("min", "max") and (
            message := types.refusal(ArgumentKind.ORDERED, self.scope.type_of(column), None)
        ):
            self.report.error(argument.span, message)
        value = self.ordered(column) if node.key in ("min", "max") else column
        return self._call(MatchCall(node.key, self._written(variable), value, self.position(node)))

    def _classifier(self, node: syntax.Function) -> Expr:
        check_count(self.context, node, Signature((), 0, 0, Type.ARRAY))
        if self.defined is not None:
            return self.null(node, "Classifier() is allowed only in MEASURES")
        return self._call(MatchCall("classifier", None, None, self.position(node)))

    def _written(self, variable: str | None) -> str | None:
        return None if variable is None else self._words[variable]

    def _call(self, call: MatchCall) -> Expr:
        if call not in self._calls:
            self._calls.append(call)
        return TemporalRef(self._alias, self._calls.index(call), call.position)

    def reference_type(self, expr: KeyRef | AggregateRef | TemporalRef, *, likely: bool) -> Type:
        if not isinstance(expr, TemporalRef):
            return Type.ANY
        call = self._calls[expr.index]
        return Type.ARRAY if call.value is None else self.type_of(call.value, likely=likely)
