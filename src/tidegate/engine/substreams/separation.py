"""Which queries keep substreams apart: whether each row follows from events of one substream alone.

The documentation asks for it (TIMESTAMP BY page: OVER columns are keys of GROUP BY and in the condition of every JOIN),
and the compiler rejects other queries. Functions of earlier rows and sessions may still look across substreams if their
PARTITION BY does not name the keys; then results wait for the slowest substream there could be.

The keys are followed from the inputs up, as the expressions over the rows of each relation that carry the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import fold, rebuilt, relations_in, relations_of

Carriers = tuple[frozenset[plan.Expr], ...]
"""For each OVER key the expressions, with names in lower case, that equal it in every row of a relation."""

_PARTITION = plan.Column(None, ("partitionid",))


@dataclass(frozen=True, slots=True)
class Component:
    """Inputs whose rows may meet.

    Attributes:
        inputs: their names in lower case.
        by_partition: each partition has substreams of its own, because OVER names PartitionId.
    """

    inputs: frozenset[str]
    by_partition: bool


def components(query: plan.Query) -> tuple[Component, ...] | None:
    """Return the inputs of a query that keeps its substreams apart, by what may meet; None for any other query."""
    streams = [mention for mention in query.inputs if not mention.reference]
    if not streams or not all(mention.over for mention in streams):
        return None
    seen: dict[int, Carriers | None] = {}
    for output in query.outputs:
        if _carriers(output.relation, seen) is None:
            return None
    over = {mention.name.lower(): tuple(map(fold, mention.over)) for mention in streams}
    found = []
    for inputs in _meeting(query):
        places = {tuple(key == _PARTITION for key in over[name]) for name in inputs}
        found.append(Component(inputs, len(places) == 1 and any(next(iter(places)))))
    return tuple(found)


def keyed_by_substreams(query: plan.Query) -> frozenset[int]:
    """By `id`, the relations of such a query whose GROUP BY or PARTITION BY names nothing but OVER keys, so that rows
    of one substream are of one group."""
    seen: dict[int, Carriers | None] = {}
    found = set()
    for relation in relations_of(query):
        match relation:
            case plan.Aggregate(source=source, keys=keys):
                every = {fold(key) for key in keys if not isinstance(key, plan.WindowId)}
            case plan.Temporal(source=source, calls=calls):
                every = {fold(key) for call in calls for key in call.partition_by}
            case _:
                continue
        if every <= frozenset[plan.Expr]().union(*(_carriers(source, seen) or ())):
            found.add(id(relation))
    return frozenset(found)


def joins_streams(relation: plan.Relation) -> bool:
    """Return whether the rows of a relation follow from a join of streams."""
    return any(isinstance(one, plan.Join) and not one.reference for one in relations_in(relation))


def _meeting(query: plan.Query) -> list[frozenset[str]]:
    """Group the inputs of outputs: outputs that share an input are in one group."""
    groups: list[set[str]] = []
    for output in query.outputs:
        inputs = _inputs_of(output.relation)
        apart = [group for group in groups if not group & inputs]
        together = set(inputs).union(*(group for group in groups if group & inputs))
        groups = [*apart, together]
    return [frozenset(group) for group in groups]


def _inputs_of(relation: plan.Relation) -> set[str]:
    inputs = (below for below in relations_in(relation) if isinstance(below, plan.Input))
    return {each.name.lower() for each in inputs if not each.reference}


def carried_through(relation: plan.Relation, known: Mapping[int, Carriers]) -> Carriers:
    """Return what carries keys in the rows of a relation, given the carriers of relations below it by `id`."""
    return _carriers(relation, dict(known)) or ()


def _carriers(relation: plan.Relation, seen: dict[int, Carriers | None]) -> Carriers | None:
    """Return what carries the keys in the rows of a relation; None if rows may draw on several substreams."""
    if id(relation) not in seen:
        seen[id(relation)] = _found(relation, seen)
    return seen[id(relation)]


def _found(relation: plan.Relation, seen: dict[int, Carriers | None]) -> Carriers | None:
    match relation:
        case plan.Input(alias=alias, over=over):
            return tuple(frozenset([_of_source(fold(key), alias.lower())]) for key in over)
        case plan.StepReference(alias=alias):
            inner = _carriers(relation.relation, seen)
            return inner and tuple(_renamed(keys, alias.lower()) for keys in inner)
        case plan.Join(reference=False):
            return _of_join(relation, _carriers(relation.left, seen), _carriers(relation.right, seen))
        case plan.Join():
            return _carriers(relation.left, seen)
        case plan.Union(sources=sources):
            every = [_carriers(source, seen) for source in sources]
            if any(one is None or len(one) != len(every[0] or ()) for one in every):
                return None
            return tuple(frozenset.intersection(*keys) for keys in zip(*(one or () for one in every), strict=True))
        case plan.Match():
            return None
    below = _carriers(relation.source, seen)
    match relation:
        case plan.Filter() | plan.Apply():
            return below
        case plan.Project(items=items):
            return below and tuple(_selected(keys, items, relation.source) for keys in below)
        case plan.Temporal(calls=calls):
            return below if below and all(_has_all(call.partition_by, below) for call in calls) else None
        case plan.Aggregate(keys=keys):
            return below if below is None else _of_aggregate(relation, keys, below)
    return None


def _of_aggregate(relation: plan.Aggregate, keys: tuple[plan.Expr, ...], below: Carriers) -> Carriers | None:
    partitions = [named.window.partition_by for named in relation.windows if named.window.partitions]
    if not all(_has_all(group, below) for group in (keys, *partitions)):
        return None
    folded = [fold(key) for key in keys]
    return tuple(frozenset(plan.KeyRef(index) for index, key in enumerate(folded) if key in one) for one in below)


def _of_join(join: plan.Join, left: Carriers | None, right: Carriers | None) -> Carriers | None:
    if left is None or right is None or len(left) != len(right):
        return None
    pairs = [(fold(one), fold(other)) for one, other in join.keys]
    for mine, theirs in zip(left, right, strict=True):
        if not any(one in mine and other in theirs for one, other in pairs):
            return None
    # A left row without a match has NULLs for the right ones.
    inner = join.kind is plan.JoinKind.INNER
    return tuple(mine | theirs if inner else mine for mine, theirs in zip(left, right, strict=True))


def _has_all(group: tuple[plan.Expr, ...], below: Carriers) -> bool:
    folded = {fold(key) for key in group}
    return all(folded & keys for keys in below)


def _of_source(expr: plan.Expr, alias: str) -> plan.Expr:
    """Rewrite an expression over the event itself as one over the input's alias."""
    return rebuilt(expr, lambda part: replace(part, source=alias) if isinstance(part, plan.Column | plan.Row) else part)


def _renamed(keys: frozenset[plan.Expr], alias: str) -> frozenset[plan.Expr]:
    return frozenset(plan.Column(alias, key.path) for key in keys if isinstance(key, plan.Column) and not key.source)


def _selected(
    keys: frozenset[plan.Expr], items: tuple[plan.Item | plan.Star, ...], source: plan.Relation
) -> frozenset[plan.Expr]:
    """Return the columns of a SELECT list that carry the key; of two with one name the left one counts."""
    taken: set[str] = set()
    found = set()
    for item in items:
        if isinstance(item, plan.Star):
            if not item.path:
                found |= {name for name in _starred(keys, item, source) if name not in taken}
            # What comes after a star may be hidden by one of its columns.
            break
        if fold(item.expr) in keys and item.name.lower() not in taken:
            found.add(item.name.lower())
        taken.add(item.name.lower())
    return frozenset(plan.Column(None, (name,)) for name in found)


def _starred(keys: Mapping[plan.Expr, None] | frozenset[plan.Expr], star: plan.Star, source: plan.Relation) -> set[str]:
    if star.source is None and isinstance(_below_filters(source), plan.Join | plan.Apply):
        return set()
    return {
        key.path[0]
        for key in keys
        if isinstance(key, plan.Column)
        and len(key.path) == 1
        and (star.source is None or (key.source or "") == star.source.lower())
    }


def _below_filters(relation: plan.Relation) -> plan.Relation:
    while isinstance(relation, plan.Filter | plan.Temporal):
        relation = relation.source
    return relation


__all__ = ["Carriers", "Component", "carried_through", "components", "joins_streams", "keyed_by_substreams"]
