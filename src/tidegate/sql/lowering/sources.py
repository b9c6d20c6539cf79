"""Lowering of FROM: inputs and steps with their times, joins and APPLY.
https://learn.microsoft.com/stream-analytics-query/from-azure-stream-analytics

A FROM is read first and assembled last, because only the whole SELECT determines which analytic functions (`Temporal`)
belong on which source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.sql.lowering.context import Context, Lowered
from tidegate.sql.lowering.expressions import ExpressionLowerer
from tidegate.sql.lowering.join_bounds import JoinCondition
from tidegate.sql.lowering.match import lower_match
from tidegate.sql.lowering.scope import Scope, Source, SourceKind
from tidegate.sql.lowering.temporal import RowLowerer, Temporals
from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.diagnostics import did_you_mean
from tidegate.sql.parsing.syntax import Node
from tidegate.sql.plan import types
from tidegate.sql.plan.nodes import (
    Apply,
    Column,
    Expr,
    Input,
    Join,
    JoinKind,
    Literal,
    Relation,
    Row,
    StepReference,
    SystemTimestamp,
)
from tidegate.sql.plan.signatures import ArgumentKind
from tidegate.sql.plan.walking import parts_in, without_source


@dataclass(slots=True)
class FromPlan:
    """A FROM that has been read, and can be assembled.

    Attributes:
        scope: the aliases.
        temporals: the analytic functions that its sources need.
        stream_join: whether it joins streams.
        reference: whether it begins with reference data.
        first: the first source: alias, relation and look-back.
        rest: functions that add each join and APPLY on top.
        lookback_ticks: complete after `assemble`.
    """

    scope: Scope
    temporals: Temporals
    stream_join: bool = False
    reference: bool = False
    first: tuple[str, Relation, int] | None = None
    rest: list[Callable[[Relation], Relation]] = field(default_factory=list)
    lookback_ticks: int = 0

    def assemble(self) -> Relation | None:
        if self.first is None:
            return None
        alias, relation, lookback = self.first
        self.lookback_ticks += lookback + self.temporals.lookback_ticks(alias)
        relation = self.temporals.over(alias, relation)
        for put_on in self.rest:
            relation = put_on(relation)
        return relation


class FromLowerer:
    """Lowers a FROM. `lower_query` lowers a query in parentheses."""

    def __init__(self, context: Context, lower_query: Callable[[syntax.QueryNode], Lowered | None]) -> None:
        self._context = context
        self._report = context.report
        self._lower_query = lower_query

    def lower(self, node: syntax.From) -> FromPlan:
        plan = FromPlan(Scope(self._report), Temporals())
        self._applied = {clause.alias.text.lower() for clause in node.rest if isinstance(clause, syntax.ApplyClause)}
        source, relation, lookback = self._source(node.first)
        plan.scope.add(source, _name_of(node.first))
        plan.first = (source.alias, relation, lookback)
        plan.reference = source.kind is SourceKind.REFERENCE
        for clause in node.rest:
            if isinstance(clause, syntax.JoinClause):
                self._join(clause, plan)
            else:
                self._apply(clause, plan)
        return plan

    # Sources ----------------------------------------------------------------------------------------------------------

    def _source(self, node: syntax.Source) -> tuple[Source, Relation, int]:
        if isinstance(node, syntax.Matched):
            return self._matched(node)
        if isinstance(node, syntax.Derived):
            return self._derived(node)
        if found := self._context.steps.get(node.name.text.lower()):
            return self._step(node, *found)
        return self._input(node)

    def _derived(self, node: syntax.Derived) -> tuple[Source, Relation, int]:
        lowered = self._lower_query(node.query)
        alias = node.alias.text
        if lowered is None:
            return Source(alias, alias, SourceKind.STEP), Input(alias, alias), 0
        step = StepReference(alias, alias, lowered.relation, None, self._report.position(node.span))
        return _step_source(alias, alias, lowered), step, lowered.lookback_ticks

    def _matched(self, node: syntax.Matched) -> tuple[Source, Relation, int]:
        source, relation, lookback = self._source(node.source)
        if source.kind is SourceKind.REFERENCE:
            self._report.error(node.source.span, f"the reference data {source.name} has no time to match by")
        matched, match, more = lower_match(self._context, node, source, relation)
        return matched, match, lookback + more

    def _step(self, node: syntax.TableReference, name: str, lowered: Lowered | None) -> tuple[Source, Relation, int]:
        alias = node.alias.text if node.alias else node.name.text
        if node.timestamp_by is not None:
            self._report.error(
                node.timestamp_by.span,
                f"TIMESTAMP BY on the step {name}: only an input takes it",
                "put TIMESTAMP BY where the step reads its input",
            )
        if lowered is None:  # The step failed to compile, which has been reported.
            return Source(alias, name, SourceKind.STEP), Input(name, alias), 0
        source = _step_source(alias, name, lowered)
        partition_by = self._partition_by(node, source)
        position = self._report.position(node.name.span)
        return source, StepReference(name, alias, lowered.relation, partition_by, position), lowered.lookback_ticks

    def _input(self, node: syntax.TableReference) -> tuple[Source, Relation, int]:
        name = self._input_name(node.name)
        alias = node.alias.text if node.alias else node.name.text
        declared = self._context.tables.get(name.lower())
        reference = name.lower() in self._context.reference_inputs
        source = Source(alias, name, SourceKind.REFERENCE if reference else SourceKind.INPUT)
        source.types = {column.name.lower(): column.type for column in declared or ()}
        source.declared = None if declared is None else tuple(column.name for column in declared)
        timestamp_by: Expr | None = None
        over: tuple[Expr, ...] = ()
        if reference:
            self._refuse_time_of_reference(node, name)
        else:
            timestamp_by = None if node.timestamp_by is None else self._timestamp_by(node.timestamp_by, source)
            over = self._over(node, source)
            self._context.mentions.append((node.name.span, name, bool(over)))
        partition_by = self._partition_by(node, source)
        relation = Input(
            name,
            alias,
            timestamp_by,
            over,
            None if partition_by is None else Column(None, partition_by.path, partition_by.position),
            declared,
            reference,
            self._report.position(node.name.span),
        )
        return source, relation, 0

    def _input_name(self, word: syntax.Word) -> str:
        """Return the input's name as the job spells it."""
        known = self._context.inputs
        if word.text.lower() == self._context.this_step:
            self._report.error(word.span, f"the step {word.text} reads itself", "a step may only use steps above it")
            return word.text
        if word.text.lower() in self._context.later_steps:
            self._report.error(
                word.span, f"the step {word.text} is defined later", "a step may only use steps above it"
            )
            return word.text
        if known is None:
            return word.text
        by_lower = {name.lower(): name for name in known}
        if word.text.lower() in by_lower:
            return by_lower[word.text.lower()]
        steps = [name for name, _ in self._context.steps.values()]
        everything = [*known, *steps]
        hint = did_you_mean(word.text, everything) or ("inputs are " + ", ".join(sorted(known)) if known else None)
        self._report.error(word.span, f"there is no input or step {word.text}", hint)
        return word.text

    def _refuse_time_of_reference(self, node: syntax.TableReference, name: str) -> None:
        if node.timestamp_by is not None:
            message = f"TIMESTAMP BY on the reference data {name}: it has no time"
            self._report.error(node.timestamp_by.span, message, "leave TIMESTAMP BY out")

    # Time -------------------------------------------------------------------------------------------------------------

    def _timestamp_by(self, node: Node, source: Source) -> Expr:
        value = self._of_event(node, source, "TIMESTAMP BY")
        if any(isinstance(part, SystemTimestamp) for part in parts_in(value)):
            self._report.error(
                node.span,
                "TIMESTAMP BY System.Timestamp(): only fields of the event can be its time",
                "leave TIMESTAMP BY out for the arrival time",
            )
        elif isinstance(value, Row):
            self._report.error(node.span, "TIMESTAMP BY takes a datetime, not the whole event", "name a column")
        else:
            literal = value.value if isinstance(value, Literal) else None
            type_ = ExpressionLowerer(self._context, Scope(self._report, [source]), "").type_of(value)
            if message := types.refusal(ArgumentKind.DATETIME, type_, literal):
                hint = "for seconds since 1970: DATEADD(second, n, '1970-01-01')" if "bigint" in message else None
                self._report.error(node.span, f"TIMESTAMP BY takes a datetime: {message}", hint)
        return without_source(value)

    def _over(self, node: syntax.TableReference, source: Source) -> tuple[Expr, ...]:
        keys = tuple(self._of_event(key, source, "TIMESTAMP BY … OVER") for key in node.over)
        source.over = keys
        source.has_over = bool(keys)
        return tuple(without_source(key) for key in keys)

    def _of_event(self, node: Node, source: Source, place: str) -> Expr:
        """Lower an expression over the fields of the event alone."""
        lowerer = _EventLowerer(self._context, Scope(self._report, [source]), place, self._applied)
        return lowerer.value(node)

    def _partition_by(self, node: syntax.TableReference, source: Source) -> Column | None:
        if not node.partition_by:
            return None
        if len(node.partition_by) > 1:
            span = node.partition_by[0].span.to(node.partition_by[-1].span)
            self._report.error(span, "PARTITION BY takes one column", "PARTITION BY PartitionId")
        key = self._of_event(node.partition_by[0], source, "PARTITION BY")
        if isinstance(key, Column):
            source.partition_by = key
            return key
        if not isinstance(key, Literal):
            self._report.error(node.partition_by[0].span, "PARTITION BY takes a column", "PARTITION BY PartitionId")
        return None

    # JOIN and APPLY ---------------------------------------------------------------------------------------------------

    def _join(self, clause: syntax.JoinClause, plan: FromPlan) -> None:
        left = list(plan.scope.sources)
        source, relation, lookback = self._source(clause.source)
        plan.scope.add(source, _name_of(clause.source))
        rows = RowLowerer(self._context, plan.scope, "ON", plan.temporals)
        condition = JoinCondition(self._context, rows, left, source)
        if clause.on is not None:
            condition.split(clause.on)
        reference = source.kind is SourceKind.REFERENCE
        name = _name_of(clause.source)
        if reference:
            condition.check_reference(name.span)
        elif plan.reference:
            message = f"the reference data {left[0].alias} is on the left of a JOIN"
            self._report.error(name.span, message, "put the stream on the left, and the reference data on the right")
        elif clause.on is None:
            message = f"CROSS JOIN takes reference data, and {source.alias} is a stream"
            self._report.error(name.span, message, "JOIN … ON DATEDIFF(…) bounds how far apart two events may be")
        else:
            condition.check_stream(name.span)
            plan.stream_join = True
        kind = JoinKind.LEFT if clause.left_outer else JoinKind.INNER
        position = self._report.position(clause.span)

        def put_on(under: Relation) -> Relation:
            if not reference:
                of_right = lookback + plan.temporals.lookback_ticks(source.alias)
                plan.lookback_ticks = max(plan.lookback_ticks, of_right) + condition.lookback_ticks(
                    outer=clause.left_outer
                )
            right = plan.temporals.over(source.alias, relation)
            bounds = () if reference else tuple(condition.bounds)
            keys = tuple(condition.keys)
            return Join(under, right, kind, bounds, keys, condition.residual(), reference, position)

        plan.rest.append(put_on)

    def _apply(self, clause: syntax.ApplyClause, plan: FromPlan) -> None:
        call = clause.function
        catalog = self._context.catalog
        function = catalog.table(call.key)
        if function is None:
            known = [each.spelling for each in catalog.tables.values()]
            hint = did_you_mean(call.key, known) or "APPLY takes " + " or ".join(known)
            self._report.error(call.span, f"{catalog.spelling(call.key)} cannot be applied", hint)
            function = next(iter(catalog.tables.values()))
        elif len(call.args) != 1:
            self._report.error(call.span, f"{function.spelling} takes 1 argument, not {len(call.args)}")
        lowerer = ExpressionLowerer(self._context, plan.scope, "APPLY")
        argument: Expr = lowerer.argument(call.args[0], function.argument) if call.args else Literal(None)
        alias = clause.alias.text
        source = Source(alias, alias, SourceKind.APPLY, {name.lower(): name for name, _ in function.columns})
        source.types = {name.lower(): type_ for name, type_ in function.columns}
        plan.scope.add(source, clause.alias)
        position = self._report.position(clause.span)
        name = function.name
        plan.rest.append(lambda under: Apply(under, name, argument, alias, clause.outer, position))


class _EventLowerer(ExpressionLowerer):
    """Lowers expressions over the fields of an event, which cannot use the results of APPLY."""

    def __init__(self, context: Context, scope: Scope, place: str, applied: set[str]) -> None:
        super().__init__(context, scope, place)
        self._applied = applied

    def path(self, node: syntax.Path) -> Expr:
        if node.words[0].text.lower() in self._applied and self.scope.find(node.words[0].text) is None:
            message = f"{self.place} over {node.words[0].text}, which APPLY makes: only fields of the event can be used"
            return self.null(node, message, "name a field of the event")
        return super().path(node)


def _step_source(alias: str, name: str, lowered: Lowered) -> Source:
    kind = SourceKind.REFERENCE if lowered.reference else SourceKind.STEP
    over = tuple(Column(alias, (column,)) for column in lowered.over if column is not None)
    has_over = lowered.has_over and len(over) == len(lowered.over)
    types_ = dict(lowered.types)
    source = Source(alias, name, kind, lowered.columns, types_, over, has_over)
    source.hidden, source.texts, source.spread = lowered.hidden, lowered.texts, lowered.spread
    return source


def _name_of(node: syntax.Source) -> syntax.Word:
    if isinstance(node, syntax.Derived | syntax.Matched):
        return node.alias
    return node.alias or node.name
