"""From the text of a query to its plan: parse, resolve, check, and report every mistake at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tidegate.sql.lowering.context import COMPATIBILITY_LEVELS, Context, Report
from tidegate.sql.lowering.doubts import note_unread_steps
from tidegate.sql.lowering.expressions import resolve_type
from tidegate.sql.lowering.select import lower_query
from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.diagnostics import QueryError, did_you_mean
from tidegate.sql.parsing.parser import Parser
from tidegate.sql.plan.catalog import Catalog
from tidegate.sql.plan.nodes import DeclaredColumn, Input, Output, Query, Relation
from tidegate.sql.plan.walking import depth_of, relations_in

DEFAULT_OUTPUT = "output"
# Pickling a plan recurses a few calls deep for each relation.
MAX_DEPTH = 150


def compile_query(
    sql: str,
    *,
    catalog: Catalog,
    compatibility_level: str = "1.2",
    reference_inputs: Collection[str] = (),
    inputs: Collection[str] | None = None,
    outputs: Collection[str] | None = None,
    functions: Collection[str] | None = None,
) -> Query:
    """Compile a Stream Analytics query to a plan. Names match without case.

    Args:
        sql: the query.
        catalog: the functions there are.
        compatibility_level: of the language, one of `COMPATIBILITY_LEVELS`.
        reference_inputs: the names of the inputs that are reference data.
        inputs: the names of the inputs the job has; None if any name will do.
        outputs: the names of the outputs the job has; None if any name will do.
        functions: the names of the functions registered with the job, as "udf.name" and "uda.name"; None if any name
            will do.

    Returns:
        The plan, in which every name is resolved.

    Raises:
        QueryError: the query cannot run; it holds every mistake.
        ValueError: there is no such compatibility level.
    """
    if compatibility_level not in COMPATIBILITY_LEVELS:
        raise ValueError(f"compatibility level {compatibility_level} is none of {', '.join(COMPATIBILITY_LEVELS)}")
    parser = Parser(sql, catalog, any_prefix=compatibility_level != "1.2")
    script = parser.script()
    report = Report(sql)
    report.diagnostics += parser.diagnostics
    known_inputs = None if inputs is None else frozenset(inputs) | frozenset(reference_inputs)
    reference = frozenset(name.lower() for name in reference_inputs)
    context = Context(report, catalog, compatibility_level, known_inputs, reference, outputs, functions)
    found = _Script(context, script, parser.last_span)
    found.lower()
    if report.diagnostics:
        raise QueryError(report.diagnostics)
    lookback = max((lookback for _, lookback in found.lowered), default=0)
    read = _inputs_of(found.outputs)
    return Query(read, tuple(found.outputs), lookback, compatibility_level, report.notices)


class _Script:
    """The statements of one script, lowered in order."""

    def __init__(self, context: Context, script: syntax.Script, end: syntax.Span) -> None:
        self._end = end
        queries = [*(step.query for step in script.steps if step.query), *script.queries]
        self._partitioned = {name for query in queries for name in _read_by_partition(query)}
        self._context = context
        self._report = context.report
        self._script = script
        self.lowered: list[tuple[str, int]] = []
        self.outputs: list[Output] = []

    def lower(self) -> None:
        if not self._script.queries and not self._report.diagnostics:
            self._report.error(self._end, "there is no SELECT that writes an output", "SELECT * INTO output FROM input")
        for table in self._script.tables:
            self._table(table)
        names = [definition.name.text.lower() for definition in self._script.steps]
        for index, definition in enumerate(self._script.steps):
            self._context.this_step, self._context.later_steps = names[index], frozenset(names[index + 1 :])
            self._step(definition)
        self._context.this_step = None
        for query in self._script.queries:
            self._query(query)
        note_unread_steps(self._report, self._script)
        self._check_over_everywhere()

    def _table(self, node: syntax.CreateTable) -> None:
        key = node.name.text.lower()
        if key in self._context.tables:
            self._report.error(node.name.span, f"CREATE TABLE {node.name.text} is defined twice")
        known = self._context.inputs
        if known is not None and key not in {name.lower() for name in known}:
            hint = did_you_mean(node.name.text, known)
            self._report.error(
                node.name.span, f"CREATE TABLE declares an input, and there is no input {node.name.text}", hint
            )
        columns: dict[str, DeclaredColumn] = {}
        for name, type_name in node.columns:
            if name.text.lower() in columns:
                self._report.error(name.span, f"the column {name.text} is declared twice")
            columns[name.text.lower()] = DeclaredColumn(name.text, resolve_type(self._context, type_name))
        self._context.tables[key] = tuple(columns.values())

    def _step(self, definition: syntax.StepDefinition) -> None:
        name = definition.name
        key = name.text.lower()
        if key in self._context.steps:
            self._report.error(name.span, f"two steps are called {name.text}")
        elif self._context.inputs is not None and key in {known.lower() for known in self._context.inputs}:
            self._report.error(
                name.span, f"the step {name.text} has the name of an input", "give the step another name"
            )
        lowered = None
        if definition.query is not None:
            for select in _selects(definition.query):
                if select.into:
                    self._report.error(
                        select.into.span, "INTO cannot be used in a step", "write SELECT … INTO after the WITH"
                    )
            self._context.carries_partition = key in self._partitioned
            lowered = lower_query(self._context, definition.query)
            self._context.carries_partition = False
        self._context.steps[key] = (name.text, lowered)

    def _query(self, node: syntax.QueryNode) -> None:
        selects = _selects(node)
        for select in selects[1:]:
            if select.into:
                self._report.error(select.into.span, "INTO belongs in the first SELECT of a UNION", None)
        into = selects[0].into
        name = self._output_name(into)
        span = into.span if into else syntax.Span(selects[0].span.start, selects[0].span.start + len("SELECT"))
        if any(output.name.lower() == name.lower() for output in self.outputs):
            if into:
                self._report.error(span, f"two SELECTs write the output {name}", "combine them with UNION")
            else:
                self._report.error(
                    span, f"this SELECT has no INTO, and another writes {name}", "add INTO: SELECT … INTO name FROM …"
                )
        lowered = lower_query(self._context, node)
        relation: Relation = Input(name, name) if lowered is None else lowered.relation
        if lowered is not None and lowered.reference:
            self._report.error(
                selects[0].source.first.span, "reference data alone gives no stream", "join it to a stream"
            )
        if (depth := depth_of(relation)) > MAX_DEPTH:
            message = f"the steps of {name} are {depth} operations deep; the limit is {MAX_DEPTH}"
            self._report.error(span, message, "put several conditions and columns into one step")
        self.outputs.append(Output(name, relation, self._report.position(span)))
        self.lowered.append((name, 0 if lowered is None else lowered.lookback_ticks))

    def _output_name(self, into: syntax.Word | None) -> str:
        """As the job spells it."""
        written = into.text if into else DEFAULT_OUTPUT
        known = self._context.outputs
        if known is None:
            return written
        by_lower = {name.lower(): name for name in known}
        if written.lower() in by_lower:
            return by_lower[written.lower()]
        if into:
            hint = did_you_mean(written, known) or ("outputs are " + ", ".join(sorted(known)) if known else None)
            self._report.error(into.span, f"there is no output {written}", hint)
        elif len(known) == 1 and len(self._script.queries) == 1:
            return next(iter(known))
        else:
            first = _selects(self._script.queries[len(self.outputs)])[0]
            span = syntax.Span(first.span.start, first.span.start + len("SELECT"))
            self._report.error(span, "this SELECT has no INTO", "outputs are " + ", ".join(sorted(known)))
        return written

    def _check_over_everywhere(self) -> None:
        mentions = self._context.mentions
        if not any(has_over for _, _, has_over in mentions):
            return
        for span, name, has_over in mentions:
            if not has_over:
                message = f"TIMESTAMP BY … OVER is used for some inputs, but not for {name}"
                self._report.error(span, message, "use OVER for all inputs or for none")


def _selects(node: syntax.QueryNode) -> list[syntax.Select]:
    if isinstance(node, syntax.Select):
        return [node]
    return [select for branch in node.branches for select in _selects(branch)]


def _read_by_partition(node: syntax.QueryNode) -> Iterator[str]:
    """Yield the names, in lower case, of what is read with PARTITION BY PartitionId."""
    for select in _selects(node):
        clauses = [clause.source for clause in select.source.rest if isinstance(clause, syntax.JoinClause)]
        for source in (select.source.first, *clauses):
            table = source.source if isinstance(source, syntax.Matched) else source
            if isinstance(table, syntax.Derived):
                yield from _read_by_partition(table.query)
                continue
            for key in table.partition_by:
                if isinstance(key, syntax.Path) and key.words[-1].text.lower() == "partitionid":
                    yield table.name.text.lower()


def _inputs_of(outputs: list[Output]) -> tuple[Input, ...]:
    """Return every different Input that the outputs read, in the order of the text."""
    below = relations_in(*(output.relation for output in outputs))
    found = dict.fromkeys(relation for relation in below if isinstance(relation, Input))
    return tuple(sorted(found, key=lambda item: (item.position.line, item.position.column)))
