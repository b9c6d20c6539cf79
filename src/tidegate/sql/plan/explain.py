"""A plan as text, for `tidegate job explain-plan` and for tests.

The relations of an output are printed from the top down, each above the indented relations it reads. A step is printed
at its first use.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.sql.plan import units
from tidegate.sql.plan.catalog import AS_ORDERED, WIDENED
from tidegate.sql.plan.nodes import (
    Aggregate,
    AggregateCall,
    AggregateRef,
    Apply,
    Call,
    Cast,
    Column,
    Expr,
    Filter,
    Input,
    Item,
    Join,
    KeyRef,
    Literal,
    Match,
    MatchCall,
    Order,
    Project,
    Query,
    Relation,
    Row,
    Star,
    StepReference,
    SystemTimestamp,
    Temporal,
    TemporalCall,
    TemporalRef,
    TimeBound,
    Union,
    Window,
    WindowId,
    Windows,
)
from tidegate.sql.plan.walking import sources_of


def explain(query: Query) -> str:
    """Describe the whole plan: outputs with their relations, and the look-back."""
    lines: list[str] = []
    shown: set[int] = set()
    for output in query.outputs:
        lines.append(f"output {output.name}")
        _relation(output.relation, 1, lines, shown)
    lines.append(f"looks back {duration(query.lookback_ticks)}")
    return "\n".join(lines)


def duration(ticks: int) -> str:
    """Return the shortest exact way to write a duration: 90 s, 1 d, 5 µs."""
    for name, size in (
        ("d", units.DAY),
        ("h", units.HOUR),
        ("min", units.MINUTE),
        ("s", units.SECOND),
        ("ms", units.MILLISECOND),
        ("µs", units.MICROSECOND),
    ):
        if ticks % size == 0 and ticks:
            return f"{ticks // size} {name}"
    return f"{ticks} ticks" if ticks else "0 s"


def _relation(relation: Relation, depth: int, lines: list[str], shown: set[int]) -> None:
    waiting: list[tuple[Relation, int]] = [(relation, depth)]
    while waiting:
        current, level = waiting.pop()
        lines.append("  " * level + line(current))
        if isinstance(current, StepReference):
            if id(current.relation) in shown:
                lines[-1] += " (above)"
                continue
            shown.add(id(current.relation))
        waiting.extend((below, level + 1) for below in reversed(sources_of(current)))


def line(relation: Relation) -> str:
    """Describe one relation, without those it reads."""
    match relation:
        case Input():
            return _input(relation)
        case StepReference():
            partition = f" partition by {expression(relation.partition_by)}" if relation.partition_by else ""
            return f"step {relation.name} as {relation.alias}{partition}"
        case Filter():
            return f"filter {expression(relation.predicate)}"
        case Project():
            return "select " + ", ".join(_item(item) for item in relation.items)
        case Aggregate():
            keys = f" by {_list(relation.keys)}" if relation.keys else ""
            calls = "; ".join(_aggregate(call) for call in relation.aggregates)
            return f"group{keys} in {window(relation.window)}: {calls or 'no aggregates'}"
        case Temporal():
            return f"over {relation.alias}: " + "; ".join(_temporal(call) for call in relation.calls)
        case Apply():
            kind = "outer" if relation.outer else "cross"
            return f"{kind} apply {relation.function}({expression(relation.argument)}) as {relation.alias}"
        case Join():
            return _join(relation)
        case Union():
            return "union"
        case Match():
            return _match(relation)


def _input(relation: Input) -> str:
    parts = ["reference" if relation.reference else "input", relation.name, "as", relation.alias]
    if relation.timestamp_by is not None:
        parts += ["timestamp by", expression(relation.timestamp_by)]
    if relation.over:
        parts += ["over", _list(relation.over)]
    if relation.partition_by is not None:
        parts += ["partition by", expression(relation.partition_by)]
    if relation.declared is not None:
        parts.append("(" + ", ".join(f"{column.name} {column.type.value}" for column in relation.declared) + ")")
    return " ".join(parts)


def _join(relation: Join) -> str:
    conditions = [_bound(bound) for bound in relation.bounds]
    conditions += [f"{expression(left)} = {expression(right)}" for left, right in relation.keys]
    if relation.residual is not None:
        conditions.append(expression(relation.residual))
    kind = f"{relation.kind.value} {'reference ' if relation.reference else ''}join"
    return f"{kind} on {' and '.join(conditions)}"


def _match(relation: Match) -> str:
    keys = f" by {_list(relation.partition_by)}" if relation.partition_by else ""
    where = "".join(f"; {name} is {expression(expr)}" for name, expr in relation.definitions)
    calls = "; ".join(f"{index} = {_match_call(call)}" for index, call in enumerate(relation.calls))
    measures = ", ".join(_item(item) for item in relation.measures)
    limit = duration(relation.limit_ticks)
    return f"match {relation.pattern} within {limit}{keys} as {relation.alias}{where}; {calls}: {measures}"


def _match_call(call: MatchCall) -> str:
    value = "" if call.value is None else expression(call.value)
    return f"{call.function}({value}{f' of {call.variable}' if call.variable else ''})"


def _bound(bound: TimeBound) -> str:
    low = "" if bound.low is None else f"{bound.low} <= "
    high = "" if bound.high is None else f" <= {bound.high}"
    return f"{low}datediff({bound.unit}, {bound.left}, {bound.right}){high}"


def _item(item: Item | Star) -> str:
    if isinstance(item, Item):
        return f"{item.name} = {expression(item.expr)}"
    return ".".join([*([item.source] if item.source else []), *item.path, "*"])


def window(shape: Window | Windows) -> str:
    """Return a window in words, sizes in the shortest exact unit."""
    if isinstance(shape, Window):
        return shape.describe()
    parts = (
        f"{named.id!r} {named.window.describe()}" if named.id else named.window.describe() for named in shape.windows
    )
    return f"windows({', '.join(parts)})"


def offset(ticks: int) -> str:
    """Return the offset of a window as the suffix of `Window.describe`, empty if it is 0."""
    return f", offset {'-' if ticks < 0 else ''}{duration(abs(ticks))}" if ticks else ""


def _aggregate(call: AggregateCall) -> str:
    distinct = "distinct " if call.distinct else ""
    args = ", ".join([*(str(value) for value in call.parameters), *(expression(arg) for arg in call.args)]) or "*"
    return f"{call.function}({distinct}{args}{_orders(call.order_by)})"


def _temporal(call: TemporalCall) -> str:
    args = ", ".join([*(expression(arg) for arg in call.args), *(str(value) for value in call.parameters)])
    text = f"{call.function}({args}{_orders(call.order_by)})"
    if call.offset:
        text += f" {call.offset} back"
    if call.default is not None:
        text += f" default {expression(call.default)}"
    if call.partition_by:
        text += f" by {_list(call.partition_by)}"
    if call.when is not None:
        text += f" when {expression(call.when)}"
    return f"{text} within {duration(call.limit_ticks)}"


def _orders(orders: tuple[Order, ...]) -> str:
    if not orders:
        return ""
    return " order by " + ", ".join(expression(order.expr) + (" desc" if order.descending else "") for order in orders)


def _list(exprs: Iterable[Expr]) -> str:
    return ", ".join(expression(expr) for expr in exprs)


def expression(expr: Expr) -> str:
    """Return an expression in the form function(arguments), columns as source.path."""
    match expr:
        case Column():
            return ".".join(
                word if word.isidentifier() else f"[{word}]" for word in (expr.source, *expr.path) if word is not None
            )
        case Row():
            return f"{expr.source}.*" if expr.source else "*"
        case Literal():
            return _literal(expr.value)
        case SystemTimestamp():
            return f"{expr.source}.time" if expr.source else "time"
        case WindowId():
            return "window id"
        case Call(function=function, args=(value,)) if function in (AS_ORDERED, WIDENED):
            return expression(value)
        case Call():
            return f"{expr.function}({_list(expr.args)})"
        case Cast():
            return f"{'try_cast' if expr.safe else 'cast'}({expression(expr.value)} as {expr.type.value})"
        case KeyRef():
            return f"key {expr.index}"
        case AggregateRef():
            return f"aggregate {expr.index}"
        case TemporalRef():
            return f"{expr.source}.over {expr.index}"


def _literal(value: int | float | str | bool | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value).lower()
