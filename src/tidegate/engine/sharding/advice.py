"""How far a query can be spread over shards, for people: for each of its operators, and what to write instead."""

from __future__ import annotations

from tidegate.engine.expressions.relations import is_local
from tidegate.engine.program.operators import operator_relations
from tidegate.engine.sharding.keys import Division, Placement, keys_of, placements
from tidegate.engine.substreams.separation import components, joins_streams
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import expression
from tidegate.sql.plan.walking import sources_of

_ALONE = "in one shard"


def spread_of(query: plan.Query) -> dict[int, str]:
    """Return, by the `id` of each relation that keeps state, how it is spread over shards."""
    relations = [one for one in operator_relations(query) if not is_local(one)]
    operators = [(one, sources_of(one)) for one in relations]
    by_substream = components(query) is not None and not any(isinstance(one, plan.Match) for one in relations)
    joined = any(joins_streams(one) for one in relations)
    placed = placements(operators, by_substream=by_substream, joined=joined)
    return {id(one): _said(one, placement) for (one, _), placement in zip(operators, placed, strict=True)}


def _said(relation: plan.Relation, placement: Placement) -> str:
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
