"""Checks of a plan that the compiler cannot make."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tidegate.engine.expressions.registered import AGGREGATE_PREFIX, PREFIX, Functions, refusal
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import expressions_of, parts_in, relations_of, sources_of


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
        _check_partitions(relation)


def _check_inputs(query: plan.Query, reference: Collection[str]) -> None:
    for mention in query.inputs:
        if mention.reference and mention.name.lower() not in reference:
            raise UnsupportedQuery(f"the reference data {mention.name} does not exist")


def _check_partitions(relation: plan.Relation) -> None:
    """Raise unless rows of a partitioned source meet by its key only.

    PARTITION BY makes separate timelines. The engine merges them, which is then the same.
    """
    match relation:
        case plan.Aggregate(source=source, keys=keys, windows=windows):
            groups = [keys, *(named.window.partition_by for named in windows if named.window.partitions)]
        case plan.Temporal(source=source, calls=calls):
            groups = [call.partition_by for call in calls]
        case plan.Match(source=source, partition_by=partition_by):
            groups = [partition_by]
        case _:
            return
    for alias, column in _partitions_of(source):
        path = tuple(map(str.lower, column.path))
        for group in groups:
            columns = [key for key in group if isinstance(key, plan.Column)]
            if not any(
                (key.source or "").lower() == alias and tuple(map(str.lower, key.path)) == path for key in columns
            ):
                name = ".".join(column.path)
                raise UnsupportedQuery(
                    f"the source is partitioned by {name}, so what groups its rows must have that key"
                )


def _partitions_of(relation: plan.Relation) -> Iterator[tuple[str, plan.Column]]:
    """Yield the aliases of a FROM that are partitioned, each with its key."""
    if isinstance(relation, (plan.Input, plan.StepReference)):
        if relation.partition_by is not None:
            yield relation.alias.lower(), relation.partition_by
        return
    if not isinstance(relation, (plan.Project, plan.Aggregate, plan.Union, plan.Match)):
        for source in sources_of(relation):
            yield from _partitions_of(source)
