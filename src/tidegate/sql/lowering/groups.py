"""Lowering of the SELECT and HAVING of a GROUP BY, which may use a group's keys, aggregates and window."""

from __future__ import annotations

from tidegate.sql.lowering.expressions import is_condition, looks_at_rows_before
from tidegate.sql.lowering.temporal import RowLowerer, aggregate_arguments, orders
from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.diagnostics import did_you_mean
from tidegate.sql.parsing.syntax import Node
from tidegate.sql.plan.catalog import Catalog
from tidegate.sql.plan.nodes import (
    AggregateCall,
    AggregateRef,
    Call,
    Column,
    Expr,
    Item,
    KeyRef,
    Literal,
    Row,
    SystemTimestamp,
    TemporalRef,
    Type,
    WindowId,
)
from tidegate.sql.plan.signatures import AggregateSignature, Distinct
from tidegate.sql.plan.walking import fold, same


def has_aggregate(catalog: Catalog, node: Node | None) -> bool:
    """Return whether an expression contains an aggregate over a group."""
    waiting: list[Node | None] = [node]
    while waiting:
        current = waiting.pop()
        match current:
            case syntax.Function():
                if _is_aggregate(catalog, current):
                    return True
                waiting.extend(current.args)
            case syntax.Member() | syntax.Unary() | syntax.IsNull() | syntax.CastTo():
                waiting.append(current.value)
            case syntax.Binary():
                waiting += [current.left, current.right]
            case syntax.Connective():
                waiting.extend(current.conditions)
            case syntax.Not():
                waiting.append(current.condition)
            case syntax.InList():
                waiting += [current.value, *current.options]
            case syntax.Between():
                waiting += [current.value, current.low, current.high]
            case syntax.Like():
                waiting += [current.value, current.pattern]
            case syntax.Case():
                waiting += [
                    current.operand,
                    current.otherwise,
                    *(part for branch in current.branches for part in branch),
                ]
    return False


def _is_aggregate(catalog: Catalog, node: syntax.Function) -> bool:
    """Return whether a call aggregates a group rather than earlier rows (LIMIT DURATION)."""
    aggregate = catalog.aggregate(node.key)
    return aggregate is not None and not looks_at_rows_before(node, aggregate)


class GroupLowerer(RowLowerer):
    """Expressions over groups.

    Attributes:
        rows: lowers the arguments of aggregates.
        keys: the expressions of GROUP BY, over rows.
        calls: the aggregates found so far.
        alias: the alias of the current item, for hints.
        given: the expressions that SELECT gives names to, as written, by name in lower case, for hints.
    """

    def __init__(self, rows: RowLowerer, keys: tuple[Expr, ...], place: str) -> None:
        super().__init__(rows.context, rows.scope, place, rows.temporals)
        self.rows = rows
        self.keys = keys
        self.folded = [fold(key) for key in keys]
        self.calls: list[AggregateCall] = []
        self.alias: str | None = None
        self.given: dict[str, str] = {}
        # Items of the SELECT list by lower-case name, which HAVING may use too: the SELECT page forbids it, but the
        # documentation's example of several outputs does it, and a name that is not a key has no other meaning there.
        self.named: dict[str, Item] = {}

    def value(self, node: Node) -> Expr:
        if (
            is_condition(node)
            or isinstance(node, syntax.Constant | syntax.Wildcard)
            or has_aggregate(self.catalog, node)
        ):
            return super().value(node)
        if isinstance(node, syntax.Function) and node.key == "system.timestamp":
            return super().value(node)
        with self.report.muted():
            row = self.rows.value(node)
        folded = fold(row)
        if folded in self.folded and not isinstance(row, Literal | SystemTimestamp):
            return KeyRef(self.folded.index(folded), self.position(node))
        if isinstance(row, TemporalRef):
            name = self.catalog.spelling(node.key) if isinstance(node, syntax.Function) else "this"
            return self.null(
                node, f"{name} needs single rows, but GROUP BY makes groups of them", "compute it in a WITH step"
            )
        return super().value(node)

    def path(self, node: syntax.Path) -> Expr:
        if len(node.words) == 1:
            word = node.words[0]
            if (named := self.named.get(word.text.lower())) is not None:
                return named.expr
            near = did_you_mean(word.text, [item.name for item in self.named.values()])
            is_column = any(source.has(word.text) for source in self.scope.sources)
            if near and not is_column and not word.double_quoted:
                return self.null(node, f"{word.text} is neither a key of GROUP BY nor a name of the SELECT list", near)
        expr = super().path(node)
        if isinstance(expr, Column):
            return self._field_of_key(node, expr)
        if isinstance(expr, Row):
            return self.null(
                node, f"{expr.source} is neither a key of GROUP BY nor an aggregate", "Collect() gathers whole rows"
            )
        return expr

    def _field_of_key(self, node: syntax.Path, column: Column) -> Expr:
        """Return a column as a field of a key that is a record; anything else is reported."""
        for index, key in enumerate(self.keys):
            if isinstance(key, Column):
                depth = len(key.path)
                head = Column(column.source, column.path[:depth])
                if depth < len(column.path) and same(head, key):
                    expr: Expr = KeyRef(index, self.position(node))
                    for name in column.path[depth:]:
                        expr = Call("getrecordpropertyvalue", (expr, Literal(name)), self.position(node))
                    return expr
        if len(node.words) == 1 and node.words[0].double_quoted:
            return Literal(node.words[0].text, self.position(node))
        name = self.report.text(node.span)
        hint = f"add {name} to GROUP BY, or aggregate it: MAX({name})"
        if (written := self.given.get(name.lower())) is not None:
            hint = f"write {written} again, or make {name} in a WITH step"
        if self.alias is not None and self.alias.lower() in {
            key.path[-1].lower() for key in self.keys if isinstance(key, Column)
        }:
            hint = f"GROUP BY {self.alias} groups by a column of that name: write the expression itself there"
        return self.null(node, f"{name} is neither a key of GROUP BY nor in an aggregate", hint)

    def aggregate(self, node: syntax.Function, aggregate: AggregateSignature) -> Expr:
        rows = RowLowerer(self.context, self.scope, "an aggregate", self.temporals)
        name = self.catalog.spelling(node.key)
        args, parameters = aggregate_arguments(rows, node, aggregate)
        order_by = orders(rows, node, aggregate) if aggregate.ranked else ()
        if node.over is not None and (node.over.partition_by or node.over.when):
            self.report.error(
                node.over.span,
                f"{name} over a window takes only ORDER BY",
                "PARTITION BY and WHEN need LIMIT DURATION",
            )
        if node.distinct and (not args or aggregate.distinct is Distinct.REFUSED):
            self.report.error(node.span, f"{name} cannot have DISTINCT here")
        call = AggregateCall(node.key, args, node.distinct, order_by, parameters, self.position(node))
        if call not in self.calls:
            self.calls.append(call)
        return AggregateRef(self.calls.index(call), self.position(node))

    def temporal(self, node: syntax.Function) -> Expr:
        return self.null(
            node,
            f"{self.catalog.spelling(node.key)} needs single rows, but GROUP BY makes groups of them",
            "compute it in a WITH step",
        )

    def window_id(self, node: Node) -> Expr:
        return WindowId(self.position(node))

    def reference_type(self, expr: KeyRef | AggregateRef | TemporalRef, *, likely: bool) -> Type:
        match expr:
            case KeyRef():
                return self.rows.type_of(self.keys[expr.index], likely=likely)
            case AggregateRef():
                args = self.calls[expr.index].args
                argument = self.rows.type_of(args[0], likely=likely) if args else Type.ANY
                return self._aggregate(expr).result_type(argument)
        return super().reference_type(expr, likely=likely)

    def reference_texts(self, expr: KeyRef | AggregateRef | TemporalRef) -> frozenset[str]:
        match expr:
            case KeyRef():
                return self.rows.texts_in(self.keys[expr.index])
            case AggregateRef() if self._aggregate(expr).result_type(Type.RECORD) is Type.RECORD:
                return frozenset().union(*map(self.rows.texts_in, self.calls[expr.index].args[:1]))
        return super().reference_texts(expr)

    def _aggregate(self, expr: AggregateRef) -> AggregateSignature:
        aggregate = self.catalog.aggregate(self.calls[expr.index].function)
        assert aggregate is not None
        return aggregate
