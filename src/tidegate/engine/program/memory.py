"""What a query keeps between steps: for each operator, what it keeps, for how many keys, and for how long.

This follows from the plan alone, so that it is known before a job runs what will grow with its keys, what with its
events, and what with neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidegate.engine.aggregates.aggregation import aggregate_of, is_aggregate
from tidegate.engine.aggregates.states.state import StateMemory
from tidegate.engine.expressions.relations import is_local
from tidegate.engine.stateful.temporal_operator import ANALYTICS
from tidegate.engine.windows.kind import PaneWindow, WindowKind, kind_of
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import duration, expression
from tidegate.sql.plan.signatures import Distinct


class Growth(Enum):
    """What the kept state grows with."""

    KEYS = "keys"
    VALUES = "values"
    """With the number of values of each key."""
    ROWS = "rows"
    """With the rows of the last ``ticks``."""
    TABLE = "table"
    """With a table of reference data."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What is kept for one relation.

    Attributes:
        what: in words, such as "a count".
        keys: the expressions of which each value has its own, as the query writes them; empty if there are none.
        ticks: how long it is kept, in event time.
        panes: how many of it there are for a key at any time, besides those that wait for the watermark.
        growth: what it grows with.
        rebuilt: whether each window merges its panes again, so that the cost of a result grows with the window's size.
    """

    what: str
    keys: tuple[str, ...] = ()
    ticks: int = 0
    panes: int = 1
    growth: Growth = Growth.KEYS
    rebuilt: bool = False

    def sentence(self) -> str:
        """Return a description for people."""
        if self.growth is Growth.TABLE:
            return self.what
        if self.growth is Growth.ROWS:
            each = f" of each {' and '.join(self.keys)}" if self.keys else ""
            return f"{self.what}{each}, {f'for {duration(self.ticks)}' if self.ticks else 'until the watermark passes'}"
        each = " and ".join(self.keys)
        several = f"pane, {self.panes} panes a window" if self.panes > 1 else "open window"
        small = "; rows are not kept" if self.growth is Growth.KEYS else ""
        rebuilt = "; each window merges its panes again" if self.rebuilt else ""
        return f"{self.what} for each {f'{each} and ' if each else ''}{several}{small}{rebuilt}"


def memories(relation: plan.Relation, functions: Mapping[str, Any] | None = None) -> list[Memory]:
    """Return what is kept for a relation itself; nothing if each of its rows follows from one event.

    Args:
        functions: registered functions by name; a registered aggregate that is not among them is taken to keep rows.
    """
    match relation:
        case plan.Input(reference=True):
            return [Memory("the whole table, and earlier ones while rows may still need them", growth=Growth.TABLE)]
        case plan.Aggregate():
            return [_of_window(relation, kind_of(named.window), functions or {}) for named in relation.windows]
        case plan.Temporal():
            return [_of_call(call) for call in relation.calls]
        case plan.Join(reference=False):
            return _of_join(relation)
        case plan.Match():
            keys = tuple(map(expression, relation.partition_by))
            return [
                Memory("what definitions and measures need of the rows", keys, relation.limit_ticks, 1, Growth.ROWS)
            ]
        case _:
            return []


def of_output(relation: plan.Relation) -> list[Memory]:
    """Return what is kept of an output's rows until they are emitted."""
    return [Memory("the rows", growth=Growth.ROWS)] if is_local(relation) else []


def _of_window(relation: plan.Aggregate, window: WindowKind, functions: Mapping[str, Any]) -> Memory:
    keys = [expression(key) for key in relation.keys if not isinstance(key, plan.WindowId)]
    by = tuple(dict.fromkeys([*keys, *map(expression, window.partition_by)]))
    if not isinstance(window, PaneWindow):
        return Memory("the keys and arguments of the rows", by, window.kept_ticks, 1, Growth.ROWS)
    registered = {name.lower(): function for name, function in functions.items()}
    states = [_of_aggregate(call, registered) for call in relation.aggregates]
    listed = _listed(state.what for state in states) or "whether it exists"
    growth = Growth.KEYS if all(state.bounded for state in states) else Growth.VALUES
    rebuilt = window.panes_a_window > 1 and any(state.rebuilt for state in states)
    return Memory(listed, by, window.kept_ticks, window.panes_a_window, growth, rebuilt)


def _of_aggregate(call: plan.AggregateCall, functions: Mapping[str, Any]) -> StateMemory:
    aggregate = aggregate_of(call.function)
    if call.distinct and aggregate.distinct is Distinct.APPLIES:
        return StateMemory(f"the different values of {expression(call.args[0])}", bounded=False, rebuilt=False)
    return aggregate.memory(call, functions)


def _of_call(call: plan.TemporalCall) -> Memory:
    keys = tuple(map(expression, call.partition_by))
    when = f" for which {expression(call.when)}" if call.when is not None else ""
    if call.function in ANALYTICS:
        what = ANALYTICS[call.function].kept(call, when)
    elif is_aggregate(call.function):
        arguments = _listed(map(expression, call.args)) or "the times"
        what = f"{arguments} of the rows{when}, for {call.function}"
    else:
        raise LookupError(f"no function of the rows before is called {call.function}")
    return Memory(what, keys, call.limit_ticks, 1, Growth.ROWS)


def _of_join(join: plan.Join) -> list[Memory]:
    """Return what is kept of each side, for as long as rows of the other may still match it."""
    keys = [tuple(expression(pair[side]) for pair in join.keys) for side in (0, 1)]
    behind = min((bound.high + 1) * bound.unit_ticks if bound.high is not None else _FAR for bound in join.bounds)
    ahead = min((1 - bound.low) * bound.unit_ticks if bound.low is not None else _FAR for bound in join.bounds)
    return [
        Memory("the rows of its left side", keys[0], max(behind, 0), 1, Growth.ROWS),
        Memory("the rows of its right side", keys[1], max(ahead, 0), 1, Growth.ROWS),
    ]


_FAR = 2**62


def _listed(parts: Iterable[str]) -> str:
    *most, last = [*dict.fromkeys(parts)] or [""]
    return f"{', '.join(most)} and {last}" if most else last
