"""Checks of a plan that the compiler cannot make."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.engine.expressions.registered import AGGREGATE_PREFIX, PREFIX, Functions, refusal
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import expressions_of, parts_in, relations_of


class UnsupportedQuery(Exception):
    """The plan needs something that the engine does not have."""


def check(query: plan.Query, functions: Functions, reference: Collection[str]) -> None:
    """Raise UnsupportedQuery if the engine cannot run the query.

    Args:
        functions: the registered functions by name, reference: the names of reference data, both in lower case.
    """
    _check_inputs(query, reference)
    for name, function in functions.items():
        if message := refusal(name, function):
            raise UnsupportedQuery(message)
    for relation in relations_of(query):
        for expr in expressions_of(relation):
            for part in parts_in(expr):
                called = isinstance(part, plan.Call) and part.function.startswith(PREFIX)
                if isinstance(part, plan.Call) and called and part.function not in functions:
                    raise UnsupportedQuery(f"the function {part.function} is not registered")
        if isinstance(relation, plan.Aggregate | plan.Temporal):
            calls = relation.aggregates if isinstance(relation, plan.Aggregate) else relation.calls
            for call in calls:
                if call.function.startswith(AGGREGATE_PREFIX) and call.function not in functions:
                    raise UnsupportedQuery(f"the aggregate {call.function} is not registered")


def _check_inputs(query: plan.Query, reference: Collection[str]) -> None:
    for mention in query.inputs:
        if mention.reference and mention.name.lower() not in reference:
            raise UnsupportedQuery(f"the reference data {mention.name} does not exist")
