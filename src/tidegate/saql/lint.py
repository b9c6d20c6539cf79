"""Warnings about what a query says but probably does not mean. `job check` shows them; the query still runs."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.saql.parsing.diagnostics import Diagnostic
from tidegate.saql.plan.explain import expression
from tidegate.saql.plan.nodes import (
    Aggregate,
    Call,
    Column,
    Expr,
    Literal,
    Position,
    Query,
    Relation,
    Window,
    WindowId,
)
from tidegate.saql.plan.same import fold
from tidegate.saql.plan.walking import expressions_of, parts_in, relations_of

_COMPARISONS = frozenset(["equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal"])


def lint(query: Query) -> list[Diagnostic]:
    """Return what a query says and hardly ever means, in the order of the text."""
    found = dict.fromkeys(warning for relation in relations_of(query) for warning in _of_relation(relation))
    for notice in query.notices:
        line, column = notice.position.line, notice.position.column
        found[Diagnostic(line, column, notice.message, notice.length, notice.hint)] = None
    return sorted(found, key=lambda one: (one.line, one.column, one.message))


def _of_relation(relation: Relation) -> Iterator[Diagnostic]:
    if isinstance(relation, Aggregate):
        for named in relation.windows:
            if named.window.partitions:
                yield from _of_partitions(named.window, relation.keys)
            if (oddity := named.window.oddity) is not None:
                yield _warning(named.window.position, *oddity)
    for expr in expressions_of(relation):
        for part in parts_in(expr):
            if isinstance(part, Column) and tuple(map(str.lower, part.path)) == ("eventprocessedutctime",):
                yield _warning(
                    part.position,
                    "EventProcessedUtcTime is the time of processing in the service, and the arrival here",
                    "EventEnqueuedUtcTime is the arrival in both",
                )
            if isinstance(part, Call) and part.function in _COMPARISONS and any(map(_is_null, part.args)):
                yield _warning(part.position, "a comparison with NULL is never true", "use IS NULL or IS NOT NULL")


def _of_partitions(window: Window, keys: tuple[Expr, ...]) -> Iterator[Diagnostic]:
    own = {fold(key) for key in window.partition_by}
    across = [expression(key) for key in keys if fold(key) not in own and not isinstance(key, WindowId)]
    if across and not own:
        names = " and ".join(across)
        message = f"one {window.word} for every {names}: an event of any of them keeps it open for all"
        yield _warning(window.position, message, f"{window.names[0]}(…) OVER (PARTITION BY {', '.join(across)})")


def _is_null(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value is None


def _warning(position: Position, message: str, hint: str) -> Diagnostic:
    return Diagnostic(max(1, position.line), max(1, position.column), message, 1, hint)
