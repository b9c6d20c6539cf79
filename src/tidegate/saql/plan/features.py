"""What a plan uses of the language, by name, so that whoever evaluates plans can say what it supports.

A feature is `kind:name`: `window:TumblingWindow`, `aggregate:SUM`, `function:UPPER`, `analytic:LAG`, `clause:UNION`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tidegate.saql.plan import aggregates, functions
from tidegate.saql.plan.names import spelling
from tidegate.saql.plan.nodes import (
    Aggregate,
    AggregateCall,
    Apply,
    Call,
    Cast,
    Expr,
    Filter,
    Hopping,
    Input,
    Item,
    Join,
    Match,
    Output,
    Position,
    Project,
    Relation,
    Row,
    Session,
    Sliding,
    Snapshot,
    Star,
    Step,
    Temporal,
    Tumbling,
    Union,
    Window,
    WindowId,
    Windows,
    sources_of,
)
from tidegate.saql.plan.same import walk

Use = tuple[str, Position]

CLAUSES = (
    "WITH",
    "WHERE",
    "SELECT *",
    "record.*",
    "UNION",
    "TIMESTAMP BY",
    "TIMESTAMP BY OVER",
    "PARTITION BY",
    "CREATE TABLE",
    "JOIN",
    "reference JOIN",
    "APPLY",
    "DISTINCT",
    "CAST",
    "TRY_CAST",
    "CASE",
    "LIKE",
    "IN",
    "BETWEEN",
    "IS NULL",
    "arithmetic",
    "bitwise operators",
    "whole rows",
    "MATCH_RECOGNIZE",
)

_WINDOWS: dict[type[Window], str] = {
    Tumbling: "TumblingWindow",
    Hopping: "HoppingWindow",
    Sliding: "SlidingWindow",
    Session: "SessionWindow",
    Snapshot: "System.Timestamp()",
    Windows: "Windows()",
}

# Operators, as Call has them, and the clause they belong to; None for those without which nothing works.
_OPERATORS: dict[str, str | None] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "divide_bigints", "modulo", "negate"), "arithmetic"),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"), "bitwise operators"),
    **dict.fromkeys(
        ("equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal", "and", "or", "not"), None
    ),
    **dict.fromkeys(("is_null", "is_not_null"), "IS NULL"),
    "record": None,
    "like": "LIKE",
    "in": "IN",
    "between": "BETWEEN",
    "case": "CASE",
}

ALL = frozenset(
    [f"clause:{name}" for name in CLAUSES]
    + [f"window:{name}" for name in _WINDOWS.values()]
    + [f"function:{spelling(name)}" for name in functions.SCALAR]
    + ["function:udf", "aggregate:uda", "analytic:uda"]
    + [f"aggregate:{spelling(name)}" for name in aggregates.AGGREGATE]
    + [f"analytic:{spelling(name)}" for name in (*aggregates.ANALYTIC, *aggregates.AGGREGATE_OVER)]
)


def features_of(outputs: Collection[Output]) -> list[Use]:
    """Every feature the outputs use, with where."""
    found: dict[Use, None] = {}
    seen: set[int] = set()
    waiting: list[Relation] = [output.relation for output in outputs]
    while waiting:
        relation = waiting.pop()
        if id(relation) not in seen:
            seen.add(id(relation))
            found.update(dict.fromkeys(_of_relation(relation)))
            waiting.extend(sources_of(relation))
    return list(found)


def unsupported(uses: Collection[Use], supported: Collection[str]) -> list[tuple[Use, str]]:
    """The uses that are not supported, each with what is supported of its kind; one for each feature."""
    missing: dict[str, tuple[Use, str]] = {}
    for use in sorted(uses, key=lambda item: (item[1].line, item[1].column, item[0])):
        feature = use[0]
        if feature not in supported and feature not in missing:
            kind = feature.partition(":")[0]
            alternatives = sorted(name.partition(":")[2] for name in supported if name.startswith(f"{kind}:"))
            missing[feature] = (use, ", ".join(alternatives))
    return list(missing.values())


def _of_relation(relation: Relation) -> Iterator[Use]:
    match relation:
        case Input():
            yield from _of_input(relation)
        case Step():
            yield "clause:WITH", relation.position
            if relation.partition_by is not None:
                yield "clause:PARTITION BY", relation.partition_by.position
        case Filter():
            yield "clause:WHERE", _position(relation.predicate)
            yield from _of_expr(relation.predicate)
        case Project():
            for item in relation.items:
                yield from _of_item(item)
        case Aggregate():
            yield from _of_aggregate(relation)
        case Temporal():
            yield from _of_temporal(relation)
        case Apply():
            yield "clause:APPLY", relation.position
            yield from _of_expr(relation.argument)
        case Join():
            yield ("clause:reference JOIN" if relation.reference else "clause:JOIN"), relation.position
            for pair in relation.keys:
                yield from (use for side in pair for use in _of_expr(side))
            if relation.residual is not None:
                yield from _of_expr(relation.residual)
        case Union():
            yield "clause:UNION", relation.position
        case Match():
            yield "clause:MATCH_RECOGNIZE", relation.position
            values = [call.value for call in relation.calls if call.value is not None]
            measures = [item.expr for item in relation.measures]
            for expr in (*relation.partition_by, *(each for _, each in relation.definitions), *values, *measures):
                yield from _of_expr(expr)


def _of_input(relation: Input) -> Iterator[Use]:
    if relation.timestamp_by is not None:
        yield "clause:TIMESTAMP BY", relation.position
        yield from _of_expr(relation.timestamp_by)
    if relation.over:
        yield "clause:TIMESTAMP BY OVER", _position(relation.over[0])
        for key in relation.over:
            yield from _of_expr(key)
    if relation.partition_by is not None:
        yield "clause:PARTITION BY", relation.partition_by.position
    if relation.declared is not None:
        yield "clause:CREATE TABLE", relation.position


def _of_item(item: Item | Star) -> Iterator[Use]:
    if isinstance(item, Star):
        yield ("clause:record.*" if item.path else "clause:SELECT *"), item.position
    else:
        yield from _of_expr(item.expr)


def _of_aggregate(relation: Aggregate) -> Iterator[Use]:
    window = relation.window
    yield f"window:{_WINDOWS[type(window)]}", window.position
    for simple in [named.window for named in window.windows] if isinstance(window, Windows) else [window]:
        yield f"window:{_WINDOWS[type(simple)]}", simple.position
        if isinstance(simple, Session):
            yield from (use for key in simple.partition_by for use in _of_expr(key))
    for key in relation.keys:
        yield from _of_expr(key)
    for call in relation.aggregates:
        yield from _of_call(call)


def _of_call(call: AggregateCall) -> Iterator[Use]:
    name = "uda" if call.function.startswith("uda.") else spelling(call.function)
    yield f"aggregate:{name}", call.position
    if call.distinct:
        yield "clause:DISTINCT", call.position
    collects = call.function in ("topone", "collecttop", "collect")
    for expr in (*call.args, *(order.expr for order in call.order_by)):
        if not (collects and isinstance(expr, Row)):
            yield from _of_expr(expr)


def _of_temporal(relation: Temporal) -> Iterator[Use]:
    for call in relation.calls:
        name = "uda" if call.function.startswith("uda.") else spelling(call.function)
        yield f"analytic:{name}", call.position
        parts = (*call.args, *call.partition_by, *(order.expr for order in call.order_by), call.when, call.default)
        for expr in parts:
            if expr is not None:
                yield from _of_expr(expr)


def _of_expr(expr: Expr) -> Iterator[Use]:
    metadata: set[int] = set()
    for part in walk(expr):
        match part:
            case Call():
                clause = _OPERATORS.get(part.function, "")
                if part.function.startswith("udf."):
                    yield "function:udf", part.position
                elif clause == "":
                    yield f"function:{spelling(part.function)}", part.position
                elif clause is not None:
                    yield f"clause:{clause}", part.position
                if part.function == "getmetadatapropertyvalue":
                    metadata.update(id(arg) for arg in part.args)
            case Cast():
                yield ("clause:TRY_CAST" if part.safe else "clause:CAST"), part.position
            case Row() if id(part) not in metadata:
                yield "clause:whole rows", part.position
            case WindowId():
                yield "window:Windows()", part.position


def _position(expr: Expr) -> Position:
    return expr.position
