"""The one way through a plan: relations and the relations they read, expressions and their parts.

A relation that several others read, such as a WITH step, is visited once, as the same object: equality and hashing of
whole relations would go through it once for each mention.

`same` is the case-insensitive equality of expressions by which GROUP BY keys, OVER keys and join keys are recognised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tidegate.sql.plan.nodes import (
    Aggregate,
    Apply,
    Call,
    Cast,
    Column,
    Expr,
    Filter,
    Input,
    Item,
    Join,
    Match,
    Project,
    Query,
    Relation,
    Row,
    StepReference,
    SystemTimestamp,
    Temporal,
    TemporalRef,
    Union,
)

Found = TypeVar("Found")


def sources_of(relation: Relation) -> tuple[Relation, ...]:
    """Return the relations that a relation reads directly."""
    match relation:
        case Input():
            return ()
        case StepReference():
            return (relation.relation,)
        case Join():
            return (relation.left, relation.right)
        case Union():
            return relation.sources
        case _:
            return (relation.source,)


def relations_in(
    *relations: Relation, sources: Callable[[Relation], Sequence[Relation]] = sources_of
) -> Iterator[Relation]:
    """Yield the relations and all those they read, each once; a relation comes before those it reads."""
    waiting = list(reversed(relations))
    seen: set[int] = set()
    while waiting:
        relation = waiting.pop()
        if id(relation) not in seen:
            seen.add(id(relation))
            yield relation
            waiting.extend(reversed(sources(relation)))


def relations_of(query: Query) -> Iterator[Relation]:
    """Yield every relation of a query, once."""
    return relations_in(*(output.relation for output in query.outputs))


def folded(
    relation: Relation,
    combine: Callable[[Relation, list[Found]], Found],
    sources: Callable[[Relation], Sequence[Relation]] = sources_of,
) -> Found:
    """Return what `combine` makes of a relation and of its own results for those that it reads, each made once."""
    found: dict[int, Found] = {}
    waiting = [relation]
    while waiting:
        current = waiting[-1]
        below = sources(current)
        unknown = [source for source in below if id(source) not in found]
        if unknown:
            waiting += unknown
        else:
            waiting.pop()
            if id(current) not in found:
                found[id(current)] = combine(current, [found[id(source)] for source in below])
    return found[id(relation)]


def depth_of(relation: Relation) -> int:
    """Return the length of the longest chain of relations that read one another."""
    return folded(relation, lambda _, below: 1 + max(below, default=0))


def parts_of(expr: Expr) -> tuple[Expr, ...]:
    """Return the expressions that an expression is directly made of."""
    match expr:
        case Call():
            return expr.args
        case Cast():
            return (expr.value,)
        case _:
            return ()


def parts_in(expr: Expr) -> Iterator[Expr]:
    """Yield an expression and all that it is made of."""
    waiting = [expr]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(parts_of(current))


def expressions_of(relation: Relation) -> Iterator[Expr]:
    """Yield the expressions of a relation itself."""
    match relation:
        case Input():
            yield from relation.over
            yield from (expr for expr in (relation.timestamp_by, relation.partition_by) if expr is not None)
        case StepReference() | Union():
            return
        case Filter():
            yield relation.predicate
        case Project():
            yield from (item.expr for item in relation.items if isinstance(item, Item))
        case Apply():
            yield relation.argument
        case Join():
            for pair in relation.keys:
                yield from pair
            if relation.residual is not None:
                yield relation.residual
        case Aggregate():
            yield from _of_aggregate(relation)
        case Temporal():
            yield from _of_temporal(relation)
        case Match():
            yield from relation.partition_by
            yield from (expr for _, expr in relation.definitions)
            yield from (call.value for call in relation.calls if call.value is not None)
            yield from (measure.expr for measure in relation.measures)


def _of_aggregate(relation: Aggregate) -> Iterator[Expr]:
    yield from relation.keys
    for named in relation.windows:
        yield from named.window.partition_by
    for call in relation.aggregates:
        yield from call.args
        yield from (order.expr for order in call.order_by)


def _of_temporal(relation: Temporal) -> Iterator[Expr]:
    for call in relation.calls:
        yield from call.args
        yield from call.partition_by
        yield from (order.expr for order in call.order_by)
        yield from (expr for expr in (call.when, call.default) if expr is not None)


def rebuilt(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return an expression with each part changed that is not made of others."""
    match expr:
        case Call():
            return replace(expr, args=tuple(rebuilt(arg, change) for arg in expr.args))
        case Cast():
            return replace(expr, value=rebuilt(expr.value, change))
        case _:
            return change(expr)


def fold(expr: Expr, keep_source: bool = True) -> Expr:
    """Return the expression with names in lower case, optionally without sources. Equal results mean the same."""

    def folded(part: Expr) -> Expr:
        match part:
            case Column():
                source = part.source.lower() if keep_source and part.source is not None else None
                return Column(source, tuple(word.lower() for word in part.path))
            case Row():
                return Row(part.source.lower() if part.source is not None else None)
            case TemporalRef():
                return TemporalRef(part.source.lower(), part.index)
            case _:
                return part

    return rebuilt(expr, folded)


def same(one: Expr, other: Expr) -> bool:
    return fold(one) == fold(other)


def sources_in(expr: Expr) -> set[str]:
    """Return the aliases an expression reads, in lower case."""
    found: set[str] = set()
    for part in parts_in(expr):
        if isinstance(part, Column | Row | SystemTimestamp | TemporalRef) and part.source is not None:
            found.add(part.source.lower())
    return found


def without_source(expr: Expr) -> Expr:
    """Return the expression over the event's own columns, for TIMESTAMP BY, OVER and PARTITION BY."""
    return rebuilt(expr, lambda part: replace(part, source=None) if isinstance(part, Column | Row) else part)
