"""Case-insensitive equality of expressions, by which GROUP BY keys, OVER keys and join keys are recognised."""

from __future__ import annotations

from tidegate.sql.plan.nodes import Call, Cast, Column, Expr, Row, SystemTimestamp, TemporalRef
from tidegate.sql.plan.walking import parts_in


def fold(expr: Expr, keep_source: bool = True) -> Expr:
    """Return the expression with names in lower case, optionally without sources. Equal results mean the same."""
    match expr:
        case Column():
            source = expr.source.lower() if keep_source and expr.source is not None else None
            return Column(source, tuple(word.lower() for word in expr.path))
        case Row():
            return Row(expr.source.lower() if expr.source is not None else None)
        case TemporalRef():
            return TemporalRef(expr.source.lower(), expr.index)
        case Call():
            return Call(expr.function, tuple(fold(arg, keep_source) for arg in expr.args))
        case Cast():
            return Cast(fold(expr.value, keep_source), expr.type, expr.safe)
        case _:
            return expr


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
    match expr:
        case Column():
            return Column(None, expr.path, expr.position)
        case Row():
            return Row(None, expr.position)
        case Call():
            return Call(expr.function, tuple(without_source(arg) for arg in expr.args), expr.position)
        case Cast():
            return Cast(without_source(expr.value), expr.type, expr.safe, expr.position)
        case _:
            return expr
