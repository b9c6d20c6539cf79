"""What a query may say, and hardly ever means: said by `job check` and `job explain-plan`, and run as it stands."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.saql.parsing.diagnostics import Diagnostic
from tidegate.saql.plan.explain import expression
from tidegate.saql.plan.nodes import (
    Aggregate,
    Call,
    Expr,
    Filter,
    Hopping,
    Item,
    Join,
    Literal,
    Match,
    Position,
    Project,
    Query,
    Relation,
    Session,
    Temporal,
    WindowId,
    Windows,
    sources_of,
)
from tidegate.saql.plan.same import fold, walk

_COMPARISONS = frozenset(["equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal"])


def doubts(query: Query) -> list[Diagnostic]:
    """What is doubtful, in the order of the text."""
    found: dict[Diagnostic, None] = {}
    seen: set[int] = set()
    waiting: list[Relation] = [output.relation for output in query.outputs]
    while waiting:
        relation = waiting.pop()
        if id(relation) not in seen:
            seen.add(id(relation))
            found.update(dict.fromkeys(_of_relation(relation)))
            waiting.extend(sources_of(relation))
    return sorted(found, key=lambda one: (one.line, one.column, one.message))


def _of_relation(relation: Relation) -> Iterator[Diagnostic]:
    if isinstance(relation, Aggregate):
        shape = relation.window
        for window in [named.window for named in shape.windows] if isinstance(shape, Windows) else [shape]:
            if isinstance(window, Session):
                yield from _of_session(window, relation.keys)
            elif isinstance(window, Hopping) and window.hop_ticks > window.size_ticks:
                message = "events between these windows are in none of them: the hop is longer than the window"
                yield _doubt(window.position, message, "HoppingWindow(unit, size, hop)")
    for expr in _expressions(relation):
        for part in walk(expr):
            if isinstance(part, Call) and part.function in _COMPARISONS and any(map(_is_null, part.args)):
                yield _doubt(
                    part.position, "a comparison with NULL is never true", "IS NULL and IS NOT NULL ask for it"
                )


def _of_session(window: Session, keys: tuple[Expr, ...]) -> Iterator[Diagnostic]:
    own = {fold(key) for key in window.partition_by}
    across = [expression(key) for key in keys if fold(key) not in own and not isinstance(key, WindowId)]
    if across and not own:
        names = " and ".join(across)
        message = f"one session for every {names}: an event of any of them keeps it open for all"
        yield _doubt(window.position, message, f"SessionWindow(…) OVER (PARTITION BY {', '.join(across)})")


def _expressions(relation: Relation) -> Iterator[Expr]:
    match relation:
        case Filter(predicate=predicate):
            yield predicate
        case Project(items=items):
            yield from (item.expr for item in items if isinstance(item, Item))
        case Aggregate(keys=keys, aggregates=aggregates):
            yield from (*keys, *(arg for call in aggregates for arg in call.args))
        case Temporal(calls=calls):
            yield from (part for call in calls for part in (*call.args, call.when) if part is not None)
        case Join(residual=residual) if residual is not None:
            yield residual
        case Match(definitions=definitions):
            yield from (definition for _, definition in definitions)


def _is_null(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value is None


def _doubt(position: Position, message: str, hint: str) -> Diagnostic:
    return Diagnostic(max(1, position.line), max(1, position.column), message, 1, hint)
