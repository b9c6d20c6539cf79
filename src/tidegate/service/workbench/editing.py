"""For the query editor: what the compiler says, the plan, and the names that may be completed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tidegate.connectors.model.errors import JobError
from tidegate.engine import CATALOG
from tidegate.job.analysis.query_plan import plan_of
from tidegate.sql import Diagnostic, QueryError, compile_query
from tidegate.sql.parsing.dialect import KEYWORDS
from tidegate.sql.plan.catalog import Form
from tidegate.sql.plan.nodes import Query


def compiled(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mistakes and doubts of a query, each with its place, and which inputs and outputs it names.

    Raises:
        JobError: there is no such compatibility level.
    """
    try:
        query = _query(question)
    except QueryError as error:
        return {"errors": [_diagnostic(one) for one in error.diagnostics], "warnings": [], "inputs": [], "outputs": []}
    except ValueError as error:
        raise JobError(str(error)) from None
    return {
        "errors": [],
        "warnings": [_diagnostic(one) for one in plan_of(query).warnings],
        "inputs": sorted({mention.name for mention in query.inputs}),
        "outputs": sorted({output.name for output in query.outputs}),
    }


def plan(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return a query's plan. Raises QueryError."""
    return plan_of(_query(question)).as_json()


def _query(question: Mapping[str, Any]) -> Query:
    definition = question["definition"]
    inputs = definition.get("inputs", {})
    reference = [name for name, one in inputs.items() if one.get("type") == "reference"]
    is_complete = question.get("is_complete", False)

    def names(kind: str) -> list[str] | None:
        """Return the names there are; None for any: a job in the editor may have no inputs yet."""
        return list(definition[kind]) if is_complete and kind in definition else list(definition.get(kind, {})) or None

    return compile_query(
        definition.get("query") or "",
        catalog=CATALOG,
        compatibility_level=definition.get("compatibility_level", "1.2"),
        reference_inputs=reference,
        inputs=names("inputs"),
        outputs=names("outputs"),
        functions=None if is_complete and "functions" not in definition else _called(definition.get("functions", {})),
    )


def _called(functions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names by which a query calls a job's functions."""
    return [f"{'uda' if section.get('aggregate') else 'udf'}.{name}" for name, section in functions.items()]


def _diagnostic(one: Diagnostic) -> dict[str, Any]:
    return {"line": one.line, "column": one.column, "length": one.length, "message": one.message, "hint": one.hint}


@cache
def _words() -> tuple[dict[str, str], ...]:
    return tuple(_known_words())


def words(_question: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return every name of the language with what it is and what it does."""
    return list(_words())


def _known_words() -> Iterator[dict[str, str]]:
    for word in sorted(KEYWORDS):
        yield {"label": word, "type": "keyword", "detail": "", "info": ""}
    for scalar in CATALOG.scalars.values():
        if scalar.form is Form.CALL:
            yield _call(scalar.spelling, scalar.signature.names, scalar.summary, scalar.group)
    for aggregate in CATALOG.aggregates.values():
        if aggregate.spelling != "uda":
            yield _call(aggregate.spelling, aggregate.signature.names, aggregate.description, "Aggregate")
    for analytic in CATALOG.analytics.values():
        yield _call(analytic.spelling, analytic.signature.names, analytic.description, "Analytic")
    for table in CATALOG.tables.values():
        yield _call(table.spelling, (table.argument.value,), table.summary, "With APPLY")
    for name, window in CATALOG.windows.items():
        if name.endswith("window"):
            spelling = name.removesuffix("window").capitalize() + "Window"
            yield _call(spelling, (), (inspect.getdoc(window) or "").partition("\n")[0].replace("``", ""), "Window")
    for name in ("System.Timestamp", "System.Window", "CAST", "TRY_CAST"):
        yield _call(name, (), "", "System")


def _call(name: str, arguments: tuple[str, ...], info: str, group: str) -> dict[str, str]:
    return {"label": name, "type": "function", "detail": f"({', '.join(arguments)})  {group}", "info": info}
