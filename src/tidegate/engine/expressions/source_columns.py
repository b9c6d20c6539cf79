"""The columns that the sources of a FROM have, as far as the plan tells: what a row that is not there has NULLs in."""

from __future__ import annotations

from tidegate.engine.expressions.evaluation import temporal_alias
from tidegate.engine.functions.catalog import TABLES
from tidegate.saql.plan import nodes as plan

Names = tuple[str | None, ...]
"""Column names; None means all fields of a record, which the plan does not know."""


def columns_of(relation: plan.Relation) -> dict[str, Names]:
    """The columns of each source of a FROM, by the alias under which frames have it."""
    match relation:
        case plan.Input(alias=alias):
            return {alias.lower(): (None,)}
        case plan.Step(alias=alias):
            return {alias.lower(): selected_names(relation.relation)}
        case plan.Temporal(alias=alias, calls=calls):
            values = tuple(map(str, range(len(calls))))
            return {**columns_of(relation.source), temporal_alias(alias): values}
        case plan.Match(alias=alias, measures=measures):
            return {alias.lower(): tuple(item.name for item in measures)}
        case plan.Apply(alias=alias, function=function):
            names = tuple(name for name, _ in TABLES[function].columns)
            return {**columns_of(relation.source), alias.lower(): names}
        case plan.Join():
            return {**columns_of(relation.left), **columns_of(relation.right)}
        case plan.Filter():
            return columns_of(relation.source)
        case _:
            return {}


def selected_names(relation: plan.Relation) -> Names:
    """The columns of a SELECT."""
    if isinstance(relation, plan.Union):
        every = [selected_names(source) for source in relation.sources]
        alike = len({tuple(name and name.lower() for name in names) for names in every}) == 1
        return every[0] if alike and None not in every[0] else (None,)
    if not isinstance(relation, plan.Project):
        return (None,)
    names: list[str | None] = []
    for item in relation.items:
        names += [item.name] if isinstance(item, plan.Item) else _starred(item, relation.source)
    seen: set[str] = set()
    kept: list[str | None] = []
    for name in names:
        if name is None or name.lower() not in seen:
            kept.append(name)
        if name is not None:
            seen.add(name.lower())
    return tuple(kept)


def _starred(star: plan.Star, source: plan.Relation) -> list[str | None]:
    if star.path:
        return [None]
    return [
        name
        for alias, names in columns_of(source).items()
        if not alias.startswith(" ") and (star.source is None or alias == star.source.lower())
        for name in names
    ]
