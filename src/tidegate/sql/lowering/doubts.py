"""Notices about names that a query reads in another way than its author may think, and about expressions that fail for
every row.

The language has no error for these: any name may be a column of an event, and a row that fails is one row less. Each
is read as the language says, and the notice says how. Nothing is said of a name that the query itself shows to be a
column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tidegate.sql.lowering.context import Context, Report, default_name
from tidegate.sql.lowering.scope import Scope
from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.syntax import Node
from tidegate.sql.plan import types
from tidegate.sql.plan.catalog import Catalog
from tidegate.sql.plan.nodes import Call, Expr, Literal, Type
from tidegate.sql.plan.signatures import ArgumentKind

_ARRIVED = "System.Timestamp() is the time of the event; a stream has no other now"
_USER = "a stream has no user: add the name to the event"
_WORDS = {
    **dict.fromkeys(("current_timestamp", "current_date", "current_time", "localtime", "localtimestamp"), _ARRIVED),
    **dict.fromkeys(
        ("getdate", "getutcdate", "sysdatetime", "sysutcdatetime", "sysdatetimeoffset", "sysdate"), _ARRIVED
    ),
    **dict.fromkeys(("current_user", "session_user", "system_user"), _USER),
}
"""Words that mean something in other dialects, and what to write here."""
_CALCULATIONS = frozenset(["subtract", "multiply", "divide", "divide_bigints", "modulo", "negate"])
"""Calls that yield numbers, whatever their arguments are."""

Typed = tuple[Expr, Type]
"""A lowered expression, and the type of its values."""


def note_word(report: Report, scope: Scope, path: syntax.Path) -> None:
    """Add a notice if a path is a word of another dialect that is read as a column."""
    word = path.words[0]
    hint = _WORDS.get(word.text.lower())
    if hint is None or len(path.words) > 1 or word.quoted or any(source.has(word.text) for source in scope.sources):
        return
    report.notice(path.span, f"{word.text} is no word of this language: it is read as a column", hint)


def note_aliases(
    context: Context, scope: Scope, node: syntax.Select, *, grouped: bool, aggregated: Collection[str]
) -> None:
    """Add a notice wherever a SELECT uses a name that it gives itself, and that is read as a column of its source.

    Args:
        grouped: whether the SELECT returns groups.
        aggregated: the names, in lower case, that it gives to what it computes of groups. An aggregate of one of these
            does not see it; one of another name is expected to be of rows.
    """
    given = {item.alias.text.lower(): item for item in node.items if item.alias is not None}
    report, catalog = context.report, context.catalog
    given = {name: item for name, item in given.items() if name not in _columns(catalog, node)}
    if not given:
        return
    tables = list(_tables(node))
    places = [part for table in tables for part in (table.timestamp_by, *table.over, *table.partition_by)]
    places += [node.where, *([] if grouped else [node.having])]
    places += [*node.group_by, *(item.value for item in node.items)]
    for clause in node.source.rest:
        places += clause.function.args if isinstance(clause, syntax.ApplyClause) else [clause.on]
    for place in places:
        of_groups = set() if place is None else set(_paths_in(catalog, place, grouped=grouped))
        for path in () if place is None else _paths_in(catalog, place):
            name = path.words[0].text
            if path not in of_groups and name.lower() not in aggregated:
                continue
            item = given.get(name.lower())
            known = scope.find(name) is not None or any(source.has(name) for source in scope.sources)
            if item is None or known or path.words[0].double_quoted:
                continue
            message = f"{name} is read as a column of what FROM reads, not as the {name} that this SELECT makes"
            expression = report.text(item.value.span)
            report.notice(path.words[0].span, message, f"write {expression} again, or make {name} in a WITH step")


def note_comparison(report: Report, node: Node, left: Typed, right: Typed) -> None:
    """Add a notice if values of a certain type are compared with a constant text that converts to none of them."""
    for (value, type_), (constant, _) in ((left, right), (right, left)):
        if isinstance(constant, Literal) and not isinstance(value, Literal):
            doubt = types.comparison_doubt(type_, constant.value)
            if doubt is not None:
                report.notice(node.span, *doubt)


def note_calculation(report: Report, node: syntax.Binary, left: Typed, right: Typed) -> None:
    """Add a notice if a constant text is calculated with, and is no number; + also joins it to what may be text."""
    for (text, _), (other, type_) in ((left, right), (right, left)):
        if not (isinstance(text, Literal) and isinstance(text.value, str)) or types.is_number_text(text.value):
            continue
        is_number = type_ in types.NUMERIC or (isinstance(other, Call) and other.function in _CALCULATIONS)
        if node.sign != "+" or is_number:
            hint = "CONCAT joins texts" if node.sign == "+" else "name a column, or write a number without quotes"
            report.notice(node.span, f"the text '{text.value}' is no number: this fails for every row", hint)


def note_unread_steps(report: Report, script: syntax.Script) -> None:
    """Add a notice for each WITH step that contributes to no output."""
    steps = {step.name.text.lower(): step for step in script.steps}
    waiting = list(script.queries)
    read: set[str] = set()
    while waiting:
        for name in _names_in(waiting.pop()):
            step = steps.get(name)
            if step is not None and name not in read:
                read.add(name)
                waiting += [] if step.query is None else [step.query]
    for name, step in steps.items():
        if name not in read:
            written = step.name.text
            hint = f"SELECT … INTO an output FROM {written}, or remove the step"
            report.notice(step.name.span, f"no output reads the step {written}: nothing becomes of it", hint)


def _columns(catalog: Catalog, node: syntax.Select) -> set[str]:
    """Return names, in lower case, that a SELECT shows to be columns of what it reads.

    `CAST(a AS float) AS a` shows it of `a`, and so does `TIMESTAMP BY a`, unless the SELECT makes `a` of other columns.
    """
    shown, made = set(), set()
    for place, item in enumerate(node.items, start=1):
        if item.alias is None:
            if isinstance(item.value, syntax.Path):
                shown.add(default_name(item.value, place).lower())
            continue
        name = item.alias.text.lower()
        read = list(_paths_in(catalog, item.value))
        shown |= {name for path in read if name in _names_of(path)}
        made |= {name} if any(path.words[0].text.lower() != "system" for path in read) else set()
    for table in _tables(node):
        for part in (table.timestamp_by, *table.over, *table.partition_by):
            for path in () if part is None else _paths_in(catalog, part):
                shown |= _names_of(path) - made
    return shown


def _tables(node: syntax.Select) -> Iterator[syntax.TableReference]:
    """Yield the inputs and steps that a SELECT reads by name."""
    joined = [clause.source for clause in node.source.rest if isinstance(clause, syntax.JoinClause)]
    for source in (node.source.first, *joined):
        table = source.source if isinstance(source, syntax.Matched) else source
        if isinstance(table, syntax.TableReference):
            yield table


def _names_of(path: syntax.Path) -> set[str]:
    return {word.text.lower() for word in path.words}


def _paths_in(catalog: Catalog, node: Node, *, grouped: bool = False) -> Iterator[syntax.Path]:
    """Yield the names that an expression reads. A unit of time, such as in DATEPART(hour, …), is none.

    With ``grouped``, arguments of aggregates are left out.
    """
    waiting: list[Node] = [node]
    while waiting:
        current = waiting.pop()
        match current:
            case syntax.Path():
                yield current
            case syntax.Function() if grouped and catalog.aggregate(current.key) is not None:
                continue
            case syntax.Function():
                waiting += _arguments(catalog, current)
            case _:
                waiting += _parts(current)
        if isinstance(current, syntax.Function) and current.over is not None:
            over = current.over
            waiting += [*over.partition_by, *(one.value for one in over.order_by)]
            waiting += [] if over.when is None else [over.when]


def _arguments(catalog: Catalog, call: syntax.Function) -> list[Node]:
    """Return the arguments of a call without units of time. Those of windows are units and lengths."""
    if catalog.is_window(call.key):
        return []
    function = catalog.scalar(call.key)
    kinds = (ArgumentKind.UNIT, ArgumentKind.PART)
    return [arg for n, arg in enumerate(call.args) if function is None or function.signature.kind(n) not in kinds]


def _parts(node: Node) -> tuple[Node, ...]:
    """Return the expressions that an expression other than a function is made of."""
    match node:
        case syntax.Member() | syntax.Unary() | syntax.IsNull() | syntax.CastTo():
            return (node.value,)
        case syntax.Binary():
            return (node.left, node.right)
        case syntax.Connective():
            return node.conditions
        case syntax.Not():
            return (node.condition,)
        case syntax.InList():
            return (node.value, *node.options)
        case syntax.Between():
            return (node.value, node.low, node.high)
        case syntax.Like():
            return (node.value, node.pattern)
        case syntax.Case():
            ends = [end for end in (node.operand, node.otherwise) if end is not None]
            return (*ends, *(part for branch in node.branches for part in branch))
    return ()


def _names_in(node: syntax.QueryNode) -> Iterator[str]:
    """Yield, in lower case, the names of what a query reads."""
    if isinstance(node, syntax.UnionNode):
        for branch in node.branches:
            yield from _names_in(branch)
        return
    joined = [clause.source for clause in node.source.rest if isinstance(clause, syntax.JoinClause)]
    for source in (node.source.first, *joined):
        table = source.source if isinstance(source, syntax.Matched) else source
        if isinstance(table, syntax.Derived):
            yield from _names_in(table.query)
        else:
            yield table.name.text.lower()
