"""Functions that look back at earlier rows: LAG, LAST, ISFIRST, and aggregates OVER (… LIMIT DURATION …).

They are computed on their source before JOIN, WHERE and GROUP BY, so calls are collected here, and expressions refer to
their values. https://learn.microsoft.com/stream-analytics-query/analytic-functions-azure-stream-analytics
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from tidegate.sql.lowering.context import Context
from tidegate.sql.lowering.expressions import ExpressionLowerer, as_text, check_count, unit_word
from tidegate.sql.lowering.scope import Scope, Source, SourceKind
from tidegate.sql.lowering.windows import whole_number
from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.syntax import Node
from tidegate.sql.plan import types, units
from tidegate.sql.plan.catalog import REGISTERED
from tidegate.sql.plan.nodes import (
    AggregateRef,
    Call,
    Expr,
    KeyRef,
    Literal,
    Order,
    Relation,
    Row,
    Temporal,
    TemporalCall,
    TemporalRef,
    Type,
)
from tidegate.sql.plan.signatures import AggregateSignature, AnalyticSignature, ArgumentKind, ArgumentRole
from tidegate.sql.plan.walking import fold, parts_in, sources_in


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of the result of a call: its type, its likely type, and the texts in it (`ExpressionLowerer`)."""

    type: Type = Type.ANY
    likely_type: Type = Type.ANY
    texts: frozenset[str] = frozenset()


class Temporals:
    """The calls of one SELECT by the alias they look back at; equal calls are computed once."""

    def __init__(self) -> None:
        self._calls: dict[str, list[TemporalCall]] = {}
        self._results: dict[tuple[str, int], Result] = {}

    def add(self, alias: str, call: TemporalCall, result: Result) -> int:
        calls = self._calls.setdefault(alias, [])
        if call not in calls:
            calls.append(call)
        index = calls.index(call)
        self._results[alias, index] = result
        return index

    def result_of(self, reference: TemporalRef) -> Result:
        return self._results.get((reference.source, reference.index), Result())

    def over(self, alias: str, relation: Relation) -> Relation:
        """Return the relation of an alias, with its calls on top if it has any."""
        calls = self._calls.get(alias)
        return Temporal(relation, alias, tuple(calls)) if calls else relation

    def lookback_ticks(self, alias: str) -> int:
        return max((call.limit_ticks for call in self._calls.get(alias, ())), default=0)


class RowLowerer(ExpressionLowerer):
    """Expressions over rows, which may look back at earlier rows."""

    def __init__(self, context: Context, scope: Scope, place: str, temporals: Temporals) -> None:
        super().__init__(context, scope, place)
        self.temporals = temporals

    def reference_type(self, expr: KeyRef | AggregateRef | TemporalRef, *, likely: bool) -> Type:
        result = self.temporals.result_of(expr) if isinstance(expr, TemporalRef) else Result()
        return result.likely_type if likely else result.type

    def reference_texts(self, expr: KeyRef | AggregateRef | TemporalRef) -> frozenset[str]:
        return self.temporals.result_of(expr).texts if isinstance(expr, TemporalRef) else frozenset()

    def temporal(self, node: syntax.Function) -> Expr:
        name = self.catalog.spelling(node.key)
        inner = ExpressionLowerer(self.context, self.scope, f"another function of the rows before, {name}")
        function = self.catalog.analytics.get(node.key) or self.catalog.aggregate(node.key)
        match function:
            case AnalyticSignature():
                call = self._analytic(node, inner, function)
            case AggregateSignature():
                call = self._aggregate_over(node, inner, function)
            case None:
                raise LookupError(f"no function of the rows before is called {node.key}")
            case unreachable:
                assert_never(unreachable)
        if call is None:
            return self.null(node)
        source = self._source(node, call)
        if source is None:
            return self.null(node)
        if any(isinstance(arg, Row) and arg.source is None for arg in call.args):
            call = replace(
                call, args=tuple(Row(source.alias, arg.position) if isinstance(arg, Row) else arg for arg in call.args)
            )
        own = source.partition_by
        if own is not None and fold(own) not in map(fold, call.partition_by):
            # PARTITION BY of the FROM makes separate timelines: earlier rows are those of the partition.
            call = replace(call, partition_by=(*call.partition_by, own))
        type_, likely_type = (
            function.result_type(inner.type_of(call.args[0], likely=likely) if call.args else Type.ANY)
            for likely in (False, True)
        )
        is_argument = bool(call.args) and function.result_type(Type.RECORD) is Type.RECORD
        texts = inner.texts_in(call.args[0]) if is_argument else frozenset[str]()
        result = Result(type_ if type_ is not Type.BIT else Type.ANY, likely_type, texts)
        index = self.temporals.add(source.alias, call, result)
        return TemporalRef(source.alias, index, self.position(node))

    # The forms --------------------------------------------------------------------------------------------------------

    def _aligned(
        self, node: syntax.Function, inner: ExpressionLowerer, function: AnalyticSignature
    ) -> TemporalCall | None:
        name = function.spelling
        if len(node.args) != 2:
            return None
        if node.over and node.over.limit:
            message = f"{name} takes no LIMIT DURATION"
            self.report.error(node.over.limit.span, message, f"its duration is in {name}(unit, n)")
        what = f"the duration of {name}"
        ticks = duration_ticks(self.context, node.args[0], node.args[1], what, units.WINDOW_UNITS)
        partition_by, when = self._over(node, inner)
        self._ordered(node, inner, None)
        return TemporalCall(node.key, (), ticks, partition_by, when, position=self.position(node))

    def _analytic(
        self, node: syntax.Function, inner: ExpressionLowerer, function: AnalyticSignature
    ) -> TemporalCall | None:
        name = function.spelling
        check_count(self.context, node, function.signature)
        if function.aligned:
            return self._aligned(node, inner, function)
        limit_ticks = self._limit(node)
        partition_by, when = self._over(node, inner)
        self._ordered(node, inner, None)
        if not node.args or limit_ticks is None:
            return None
        first = node.args[0]
        whole = isinstance(first, syntax.Wildcard) and not first.words and function.takes_rows
        value = Row(None, self.position(first)) if whole else inner.value_or_row(first)
        if any(isinstance(part, Call) and part.function.startswith("udf.") for part in parts_in(value)):
            self.report.error(
                first.span, f"{name} cannot contain registered functions", "compute the value in a WITH step"
            )
        if message := types.refusal(function.signature.kind(0), inner.type_of(value), None):
            self.report.error(first.span, message)
        offset, default, parameters = self._after_value(node, inner, function, inner.type_of(value))
        return TemporalCall(
            node.key,
            (value,),
            limit_ticks,
            partition_by,
            when,
            offset,
            default,
            parameters=parameters,
            position=self.position(node),
        )

    def _after_value(
        self, node: syntax.Function, inner: ExpressionLowerer, function: AnalyticSignature, type_: Type
    ) -> tuple[int, Expr | None, tuple[int | float | str, ...]]:
        """Return the offset, the default and the parameters of a call, whose value has a type."""
        offset, default = function.offset, None
        parameters: list[int | float | str] = []
        for role, arg in zip(function.roles, node.args[1:], strict=False):
            match role:
                case ArgumentRole.OFFSET:
                    offset = whole_number(self.context, arg, f"the offset of {function.spelling}")
                case ArgumentRole.DEFAULT:
                    default = inner.value(arg)
                    self._check_default(arg, type_, inner.type_of(default), function.spelling)
                case ArgumentRole.CONSTANT:
                    constant = as_text(arg)
                    if isinstance(constant, syntax.Constant) and constant.value is not None:
                        parameters.append(constant.value)
                    else:
                        self.report.error(constant.span, "expected a constant")
                case unreachable:
                    assert_never(unreachable)
        for index, message in function.faults(parameters):
            self.report.error(node.args[index].span, message)
        return offset, default, tuple(parameters)

    def _check_default(self, node: Node, type_: Type, default: Type, name: str) -> None:
        if Type.ANY not in (type_, default) and type_ is not default:
            message = f"the default of {name} is a {default.value}, its value a {type_.value}"
            self.report.error(node.span, message, "they must have the same type")

    def _aggregate_over(
        self, node: syntax.Function, inner: ExpressionLowerer, aggregate: AggregateSignature
    ) -> TemporalCall | None:
        name = self.catalog.spelling(node.key)
        if not aggregate.with_limit:
            able = sorted(name for name, each in self.catalog.aggregates.items() if each.with_limit)
            known = ", ".join(self.catalog.spelling(key) for key in able if key != REGISTERED)
            self.null(node, f"{name} cannot have LIMIT DURATION", f"these can: {known}")
            return None
        if node.distinct:
            self.report.error(
                node.span, f"{name}(DISTINCT …) cannot have LIMIT DURATION", "count in a window of GROUP BY"
            )
        limit_ticks = self._limit(node)
        partition_by, when = self._over(node, inner)
        order_by = self._ordered(node, inner, aggregate)
        args, parameters = aggregate_arguments(inner, node, aggregate)
        if limit_ticks is None:
            return None
        return TemporalCall(
            node.key,
            args,
            limit_ticks,
            partition_by,
            when,
            order_by=order_by,
            parameters=parameters,
            position=self.position(node),
        )

    # Parts ------------------------------------------------------------------------------------------------------------

    def _limit(self, node: syntax.Function) -> int | None:
        name = self.catalog.spelling(node.key)
        if node.over is None or node.over.limit is None:
            self.report.error(
                node.over.span if node.over else node.span,
                f"{name} needs OVER (… LIMIT DURATION(unit, n)): how far back to look",
                f"{name}(…) OVER (PARTITION BY key LIMIT DURATION(hour, 1))",
            )
            return None
        return limit_ticks(self.context, node.over.limit)

    def _over(self, node: syntax.Function, inner: ExpressionLowerer) -> tuple[tuple[Expr, ...], Expr | None]:
        """Return PARTITION BY and WHEN of a call's OVER."""
        over = node.over
        if over is None:
            return (), None
        partition_by = tuple(inner.value(key) for key in over.partition_by)
        return partition_by, None if over.when is None else inner.condition(over.when)

    def _ordered(
        self, node: syntax.Function, inner: ExpressionLowerer, aggregate: AggregateSignature | None
    ) -> tuple[Order, ...]:
        """Return ORDER BY of a call's OVER, which only a ranking aggregate may have."""
        if aggregate is not None and aggregate.ranked:
            return orders(inner, node, aggregate)
        if node.over is not None and node.over.order_by:
            name = self.catalog.spelling(node.key)
            self.report.error(node.over.span, f"{name} cannot have ORDER BY: rows are in the order of time")
        return ()

    def _source(self, node: syntax.Function, call: TemporalCall) -> Source | None:
        """Return the source that a call looks back at; None, and a report, if it is not one stream."""
        read: set[str] = set()
        for expr in (*call.args, *call.partition_by, *(order.expr for order in call.order_by)):
            read |= sources_in(expr)
        for optional in (call.when, call.default):
            read |= sources_in(optional) if optional is not None else set()
        streams = [source for source in self.scope.sources if source.kind in (SourceKind.INPUT, SourceKind.STEP)]
        name = self.catalog.spelling(node.key)
        if not read:
            if len(streams) == 1:
                return streams[0]
            choices = ", ".join(source.alias for source in streams)
            self.report.error(
                node.span, f"{name} could refer to any of {choices}", "compute it in a WITH step over one of them"
            )
            return None
        if len(read) > 1:
            self.report.error(
                node.span,
                f"{name} reads {' and '.join(sorted(read))}, but can only look back at rows of one source",
                "join in a WITH step, and look back at its rows",
            )
            return None
        source = self.scope.find(read.pop())
        if source is not None and source.kind not in (SourceKind.INPUT, SourceKind.STEP):
            what = (
                "reference data has no earlier rows"
                if source.kind is SourceKind.REFERENCE
                else "the rows of APPLY have no earlier rows"
            )
            self.report.error(node.span, what, "compute the rows in a WITH step, and look back at those")
            return None
        return source


def limit_ticks(context: Context, limit: syntax.Duration) -> int:
    """Return the ticks of a LIMIT DURATION."""
    return duration_ticks(context, limit.unit, limit.length, "the length of LIMIT DURATION", tuple(units.TICKS))


def duration_ticks(context: Context, unit: Node, length: Node, what: str, allowed: tuple[str, ...]) -> int:
    """Return the ticks of a unit and a constant length, and report anything else."""
    word = unit_word(context, unit, allowed)
    number = whole_number(context, length, what)
    ticks = number * units.TICKS[word]
    if ticks >= 2**62:
        context.report.error(length.span, f"{what} is too large")
        return units.SECOND
    return ticks


def orders(lowerer: ExpressionLowerer, node: syntax.Function, aggregate: AggregateSignature) -> tuple[Order, ...]:
    """Return ORDER BY of a ranking aggregate."""
    name = aggregate.spelling
    over = node.over
    if over is None or not over.order_by:
        lowerer.report.error(node.span, f"{name} needs OVER (ORDER BY …)", f"{name}(…) OVER (ORDER BY column DESC)")
        return ()
    if aggregate.ranks_by is not None and len(over.order_by) > aggregate.ranks_by:
        count = "one expression" if aggregate.ranks_by == 1 else f"{aggregate.ranks_by} expressions at the most"
        lowerer.report.error(over.span, f"{name} orders by {count}")
    found: list[Order] = []
    for ordering in over.order_by:
        expr = lowerer.value(ordering.value)
        if message := types.refusal(ArgumentKind.ORDERED, lowerer.type_of(expr), None):
            lowerer.report.error(ordering.value.span, message, "order by a bigint, float or datetime")
        elif aggregate.ranks_numbers and (lowerer.is_text(expr) or lowerer.type_of(expr) is Type.DATETIME):
            # "The expression must evaluate to a numeric type" (PERCENTILE_DISC page); text is not made a number again.
            made = "text" if lowerer.is_text(expr) else "datetimes"
            hint = "TRY_CAST(… AS float) leaves out what is no number" if made == "text" else "order by a number"
            lowerer.report.error(ordering.value.span, f"{name} orders by numbers, and these are {made}", hint)
        found.append(Order(lowerer.ordered(expr), ordering.descending))
    return tuple(found)


def aggregate_arguments(
    lowerer: ExpressionLowerer, node: syntax.Function, aggregate: AggregateSignature
) -> tuple[tuple[Expr, ...], tuple[int | float | str, ...]]:
    """Return the arguments of an aggregate, and its constants."""
    report = lowerer.report
    if node.key.startswith(f"{REGISTERED}."):
        return (_registered_argument(lowerer, node),), ()
    name = aggregate.spelling
    check_count(lowerer.context, node, aggregate.signature)
    rows: tuple[Expr, ...] = (Row(None, report.position(node.span)),) if aggregate.gathers_rows else ()
    if not node.args:
        return rows, ()
    first, kind = node.args[0], aggregate.signature.kind(0)
    if kind is ArgumentKind.COUNT:
        number = whole_number(lowerer.context, first, f"the number of {name}")
        values = [lowerer.argument(arg, aggregate.signature.kind(1)) for arg in node.args[1:2]]
        return tuple(values) or rows, (number,)
    if kind is ArgumentKind.FRACTION:
        return rows, (_fraction(lowerer, first, name),)
    if isinstance(first, syntax.Wildcard):
        if not aggregate.counts_rows or first.words or node.distinct:
            report.error(first.span, f"{name} takes a value, not *", None)
        return (), ()
    value = lowerer.argument(first, kind)
    if aggregate.counts_rows and isinstance(value, Row) and not node.distinct:
        return (), ()  # COUNT(input) counts events, like COUNT(*).
    if isinstance(value, Literal) and value.value is None and isinstance(first, syntax.Constant):
        report.error(first.span, f"{name} needs a value, not NULL")
    return (lowerer.ordered(value) if kind is ArgumentKind.ORDERED else value,), ()


def _registered_argument(lowerer: ExpressionLowerer, node: syntax.Function) -> Expr:
    report = lowerer.report
    lowerer.check_registered(node)
    if len(node.args) != 1:
        message = f"{node.key} takes 1 argument, not {len(node.args)}"
        report.error(node.span, message, "an aggregate takes one value of each row")
    if not node.args:
        return Literal(None, report.position(node.span))
    first = node.args[0]
    if isinstance(first, syntax.Wildcard):
        report.error(first.span, f"{node.key} takes a value, not *", "write the name of the source for the whole row")
        return Literal(None, report.position(node.span))
    return lowerer.value_or_row(first)


def _fraction(lowerer: ExpressionLowerer, node: Node, name: str) -> float:
    fraction = node.value if isinstance(node, syntax.Constant) else None
    if not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        lowerer.report.error(node.span, f"{name} takes a constant from 0 to 1")
        return 0.5
    return float(fraction)
