"""The aggregates of the language: every public class of a module in `engine.aggregates.functions`, and entry points."""

from __future__ import annotations

from tidegate.engine.aggregates import functions
from tidegate.engine.aggregates.states.specification import AggregateFunction
from tidegate.engine.expressions.registered import AGGREGATE_PREFIX
from tidegate.extensions import classes_of

AGGREGATES: dict[str, AggregateFunction] = {
    aggregate.name: aggregate
    for aggregate in (
        each() for each in classes_of(functions, "tidegate.aggregates") if issubclass(each, AggregateFunction)
    )
}
"""By lower-case name; registered ones are all "uda"."""


def is_aggregate(function: str) -> bool:
    """Return whether a call names an aggregate."""
    return function.startswith(AGGREGATE_PREFIX) or function in AGGREGATES


def aggregate_of(function: str) -> AggregateFunction:
    """Return the aggregate that a call names.

    Raises:
        KeyError: There is no such aggregate.
    """
    return AGGREGATES["uda" if function.startswith(AGGREGATE_PREFIX) else function]
