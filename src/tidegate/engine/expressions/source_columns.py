"""The columns that the sources of a FROM have, as far as the plan tells: what a row that is not there has NULLs in."""

from __future__ import annotations

from tidegate.engine.expressions.evaluation import temporal_alias
from tidegate.engine.functions.catalog import TABLES
from tidegate.sql.plan import nodes as plan

Names = tuple[str | None, ...]
"""Column names; None means all fields of a record, which the plan does not know."""


def columns_of(relation: plan.Relation, known: dict[int, Names] | None = None) -> dict[str, Names]:
    """The columns of each source of a FROM, by the alias under which frames have it; `known`: of steps, by id."""
    known = {} if known is None else known
    match relation:
        case plan.Input(alias=alias):
            return {alias.lower(): (None,)}
        case plan.Step(alias=alias):
            return {alias.lower(): selected_names(relation.relation, known)}
        case plan.Temporal(alias=alias, calls=calls):
            values = tuple(map(str, range(len(calls))))
            return {**columns_of(relation.source, known), temporal_alias(alias): values}
        case plan.Match(alias=alias, measures=measures):
            return {alias.lower(): tuple(item.name for item in measures)}
        case plan.Apply(alias=alias, function=function):
            names = tuple(name for name, _ in TABLES[function].columns)
            return {**columns_of(relation.source, known), alias.lower(): names}
        case plan.Join():
            return {**columns_of(relation.left, known), **columns_of(relation.right, known)}
        case plan.Filter():
            return columns_of(relation.source, known)
        case _:
            return {}


def selected_names(relation: plan.Relation, known: dict[int, Names] | None = None) -> Names:
    """The columns of a SELECT. A step that is read many times is looked at once."""
    known = {} if known is None else known
    if id(relation) not in known:
        known[id(relation)] = _selected_names(relation, known)
    return known[id(relation)]


def _selected_names(relation: plan.Relation, known: dict[int, Names]) -> Names:
    if isinstance(relation, plan.Union):
        every = [selected_names(source, known) for source in relation.sources]
        alike = len({tuple(name and name.lower() for name in names) for names in every}) == 1
        return every[0] if alike and None not in every[0] else (None,)
    if not isinstance(relation, plan.Project):
        return (None,)
    names: list[str | None] = []
    for item in relation.items:
        names += [item.name] if isinstance(item, plan.Item) else _starred(item, relation.source, known)
    first = {name and name.lower(): name for name in reversed(names)}  # a second unknown record adds no name either
    return tuple(first[key] for key in dict.fromkeys(name and name.lower() for name in names))


def _starred(star: plan.Star, source: plan.Relation, known: dict[int, Names]) -> list[str | None]:
    if star.path:
        return [None]
    return [
        name
        for alias, names in columns_of(source, known).items()
        if not alias.startswith(" ") and (star.source is None or alias == star.source.lower())
        for name in names
    ]
