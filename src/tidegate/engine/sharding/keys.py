"""By what each operator of a query is sharded.

Theory. An operator's result depends only on rows that agree in its keys: GROUP BY, PARTITION BY, the equalities of a
JOIN. So its rows may be divided by any of these keys, if each row's shard follows from their values. Where one operator
reads another, both can run in the same shard if the keys by which the lower one is divided are still in its rows and
are keys of the upper one as well. They are followed from operator to operator as expressions that equal the key in
every row (the *carriers*), through projections and the names of steps. Where no key is common to both, the rows go
through an exchange, and the upper operator is a *level* higher.

Keys are narrowed to what all neighbours share (`_narrow`): a window GROUP BY a, b below one GROUP BY a is divided by a.

Operators without a key: windows that do not overlap are divided by their ends; anything else runs in one shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tidegate.engine.expressions.relations import is_local, streams_of
from tidegate.engine.program.operators import operator_relations
from tidegate.engine.substreams.separation import Carriers, carried_through, components, joins_streams
from tidegate.engine.windows.kind import PaneWindow
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import expression
from tidegate.sql.plan.explain import window as in_words
from tidegate.sql.plan.walking import fold, sources_of


class Division(Enum):
    """How the rows of an operator are divided among shards."""

    KEYS = "by keys"
    PANES = "by windows"
    SUBSTREAMS = "by substreams"
    ROWS = "in any way"
    NONE = "not at all"


@dataclass(frozen=True, slots=True)
class OperatorPlacement:
    """Where an operator runs.

    Attributes:
        level: how many exchanges its rows have been through.
        division: how its rows are divided.
        keys: of its keys (`keys_of`), those that decide the shard, in an order that neighbours share.
        exchanged: for each side, whether its rows come through an exchange; those of tasks do not count.
    """

    level: int
    division: Division
    keys: tuple[int, ...]
    exchanged: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Key:
    """A key in which rows of an operator agree if they affect each other.

    Attributes:
        by_side: its expression over each source.
        column: its place among the key columns of what the operator reduces rows to.
    """

    by_side: tuple[plan.Expr, ...]
    column: int


def keys_of(relation: plan.Relation) -> list[Key]:
    """Return the keys by which the rows of an operator can be divided."""
    match relation:
        case plan.Aggregate():
            return _window_keys(relation)
        case plan.Temporal(calls=calls):
            first, *others = [call.partition_by for call in calls]
            folded = [set(map(fold, each)) for each in others]
            shared = [key for key in first if all(fold(key) in each for each in folded)]
            return [Key((key,), place) for place, key in enumerate(shared)]
        case plan.Join(keys=keys):
            return [Key(key, place) for place, key in enumerate(keys)]
        case plan.Match(partition_by=keys):
            return [Key((key,), place) for place, key in enumerate(keys)]
        case _:
            return []


def _window_keys(relation: plan.Aggregate) -> list[Key]:
    """Return keys of GROUP BY by which all windows can be divided; windows with PARTITION BY only by what it names.

    The key columns of a window alone are those of GROUP BY, then those of its PARTITION BY.
    """
    columns: list[plan.Expr] = [key for key in relation.keys if not isinstance(key, plan.WindowId)]
    windows = [named.window for named in relation.windows]
    if len(windows) == 1:
        columns += windows[0].partition_by
    keys = [Key((key,), place) for place, key in enumerate(columns) if not isinstance(key, plan.SystemTimestamp)]
    for window in windows:
        if window.partitions:
            allowed = set(map(fold, window.partition_by))
            keys = [key for key in keys if fold(key.by_side[0]) in allowed]
    return keys


@dataclass(slots=True)
class _Node:
    """An operator while its keys are being narrowed. ``keys``: the numbers of those that may decide the shard."""

    relation: plan.Relation
    sources: tuple[plan.Relation, ...]
    keys: set[int]
    links: dict[int, _Link] = field(default_factory=dict)


@dataclass(slots=True)
class _Link:
    """A side of an operator that reads another one: which keys of the lower one are keys of the upper one."""

    lower: int
    pairs: list[tuple[int, int]]


def placements(
    operators: Sequence[tuple[plan.Relation, tuple[plan.Relation, ...]]], *, by_substream: bool, joined: bool
) -> list[OperatorPlacement]:
    """Decide where each operator runs.

    Args:
        operators: the relation and the sources of each, from the inputs up.
        by_substream: results are emitted by substream, so rows are divided by the keys of OVER.
        joined: some of them follow from a join of streams.
    """
    if by_substream:
        division = Division.NONE if joined else Division.SUBSTREAMS
        return [OperatorPlacement(0, division, (), (False,) * len(sources)) for _, sources in operators]
    nodes = [_Node(relation, sources, set(range(len(keys_of(relation))))) for relation, sources in operators]
    numbers = {id(node.relation): number for number, node in enumerate(nodes)}
    _link(nodes, numbers)
    _narrow(nodes)
    return _levels(nodes, numbers)


def operator_below(relation: plan.Relation, numbers: Mapping[int, int]) -> int | None:
    """Return the number of the operator whose rows a relation shows; None if tasks compute it from events."""
    while id(relation) not in numbers:
        if is_local(relation):
            return None
        (relation,) = streams_of(relation)
    return numbers[id(relation)]


def _link(nodes: Sequence[_Node], numbers: Mapping[int, int]) -> None:
    """Find which keys of neighbours are the same."""
    for node in nodes:
        for side, source in enumerate(node.sources):
            lower = None if is_local(source) else operator_below(source, numbers)
            if lower is None:
                continue
            below = nodes[lower]
            base = {id(below.relation): _carriers(below.relation)}
            carriers = carried_through(source, base)
            pairs = [
                (mine, theirs)
                for mine, key in enumerate(keys_of(node.relation))
                for theirs, carrier in enumerate(carriers)
                if fold(key.by_side[side]) in carrier
            ]
            if pairs:
                node.links[side] = _Link(lower, pairs)


def _carriers(relation: plan.Relation) -> Carriers:
    """Return what equals each key of an operator in the rows that it releases."""
    match relation:
        case plan.Aggregate():
            refs: dict[plan.Expr, frozenset[plan.Expr]] = {}
            for index, key in enumerate(relation.keys):
                refs[fold(key)] = refs.get(fold(key), frozenset()) | {plan.KeyRef(index)}
            return tuple(refs.get(fold(key.by_side[0]), frozenset()) for key in keys_of(relation))
        case plan.Temporal():
            return tuple(frozenset([fold(key.by_side[0])]) for key in keys_of(relation))
        case plan.Join(kind=plan.JoinKind.INNER):
            return tuple(frozenset(map(fold, key)) for key in relation.keys)
        case plan.Join():
            return tuple(frozenset([fold(left)]) for left, _ in relation.keys)
        case _:
            return tuple(frozenset[plan.Expr]() for _ in keys_of(relation))


def _narrow(nodes: Sequence[_Node]) -> None:
    """Keep of each operator's keys those that its neighbours share; cut a link that would leave none."""
    changed = True
    while changed:
        changed = False
        for node in nodes:
            for side, link in list(node.links.items()):
                lower = nodes[link.lower]
                alive = [(mine, theirs) for mine, theirs in link.pairs if mine in node.keys and theirs in lower.keys]
                if not alive:
                    del node.links[side]
                    changed = True
                    continue
                mine, theirs = {one for one, _ in alive}, {other for _, other in alive}
                if mine != node.keys or theirs != lower.keys:
                    node.keys, lower.keys = mine, theirs
                    changed = True


def _levels(nodes: Sequence[_Node], numbers: Mapping[int, int]) -> list[OperatorPlacement]:
    """Give each operator its level and an order of its keys."""
    found: list[OperatorPlacement] = []
    for node in nodes:
        lower = [None if is_local(source) else operator_below(source, numbers) for source in node.sources]
        order = tuple(sorted(node.keys))
        aligned = [False] * len(lower)
        division = _division(node)
        for side, below in enumerate(lower):
            if below is None:
                continue
            if division in (Division.ROWS, Division.NONE):
                aligned[side] = division is Division.ROWS or found[below].division is Division.NONE
            elif side in node.links:
                mapped = _mapped(found[below].keys, node.links[side])
                # Two sides that are divided by other keys, or in another order, cannot both stay where they are.
                if mapped is not None and (not any(aligned) or mapped == order):
                    order, aligned[side] = mapped, True
        levels = [found[below].level + (not aligned[side]) for side, below in enumerate(lower) if below is not None]
        level = max(levels, default=0)
        exchanged = tuple(
            below is not None and not (aligned[side] and found[below].level == level)
            for side, below in enumerate(lower)
        )
        found.append(OperatorPlacement(level, division, order if division is Division.KEYS else (), exchanged))
    return found


def _mapped(lower_keys: Sequence[int], link: _Link) -> tuple[int, ...] | None:
    """Return the upper keys in the order of the lower ones; None if some have no counterpart."""
    mapped = []
    for key in lower_keys:
        mine = next((one for one, other in link.pairs if other == key), None)
        if mine is None:
            return None
        mapped.append(mine)
    return tuple(mapped) or None


def _division(node: _Node) -> Division:
    match node.relation:
        case plan.Aggregate() if not node.keys:
            windows = [named.window for named in node.relation.windows]
            (window, *others) = windows
            apart = isinstance(window, PaneWindow) and window.panes_a_window == 1 and not others
            return Division.PANES if apart else Division.NONE
        case plan.Aggregate() | plan.Temporal() | plan.Match() | plan.Join(reference=False):
            return Division.KEYS if node.keys else Division.NONE
        case _:
            return Division.ROWS


_ALONE = "in one shard"


def spread_of(query: plan.Query) -> dict[int, str]:
    """Return, by the `id` of each relation that keeps state, how it is spread over shards."""
    relations = [one for one in operator_relations(query) if not is_local(one)]
    operators = [(one, sources_of(one)) for one in relations]
    by_substream = components(query) is not None and not any(isinstance(one, plan.Match) for one in relations)
    joined = any(joins_streams(one) for one in relations)
    placed = placements(operators, by_substream=by_substream, joined=joined)
    return {id(one): _said(one, placement) for (one, _), placement in zip(operators, placed, strict=True)}


def unspread(query: plan.Query) -> list[str]:
    """Return a sentence for each operator that one shard computes for all keys: what it is, and what to do about it."""
    spread = spread_of(query)
    relations = [one for one in operator_relations(query) if spread.get(id(one), "").startswith(_ALONE)]
    return list(dict.fromkeys(f"{_named(one)} {_ALONE} of Spark, so on one core; {_instead(one)}" for one in relations))


def _named(relation: plan.Relation) -> str:
    """Return what people call an operator, and the verb."""
    match relation:
        case plan.Aggregate():
            return f"the window {in_words(relation.window)} runs"
        case plan.Temporal(calls=calls):
            names = list(dict.fromkeys(call.function.upper() for call in calls))
            return f"{' and '.join(names)} {'runs' if len(names) == 1 else 'run'}"
        case plan.Match():
            return "MATCH_RECOGNIZE runs"
        case _:
            return "a JOIN runs"


def _said(relation: plan.Relation, placement: OperatorPlacement) -> str:
    after = ", after an exchange" if any(placement.exchanged) else ""
    match placement.division:
        case Division.KEYS:
            keys = keys_of(relation)
            named = ", ".join(expression(keys[number].by_side[0]) for number in placement.keys)
            return f"in parallel by {named}{after}"
        case Division.PANES:
            return f"in parallel by window{after}"
        case Division.SUBSTREAMS:
            return "in parallel by the keys of OVER"
        case Division.ROWS:
            return f"in parallel{after}"
        case Division.NONE:
            return f"{_ALONE}{after}; {_instead(relation)}"


def _instead(relation: plan.Relation) -> str:
    """Return what to write so that an operator can be spread."""
    match relation:
        case plan.Aggregate() if any(named.window.partitions for named in relation.windows):
            return "to spread it, name a key in GROUP BY and in the window's OVER (PARTITION BY ...)"
        case plan.Aggregate():
            return "to spread it, add a key to GROUP BY, or use a tumbling window, of which tasks send only totals"
        case plan.Temporal():
            return "to spread it, give every call PARTITION BY with a key that they share"
        case plan.Match():
            return "to spread it, add PARTITION BY"
        case _:
            return "to spread it, add an equality of keys to ON, and do without OVER"
