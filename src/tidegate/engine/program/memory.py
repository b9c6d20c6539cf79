"""What a query remembers between steps: for each operator, what it keeps, for how many keys, and for how long.

It is said from the plan, in the words of the operators (`panes`, `hopping`, `horizon`), so that a person can tell
before a job runs what will grow with its keys, what with its events, and what with neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.engine.aggregates.catalog import aggregate_of
from tidegate.engine.aggregates.states.specification import StateMemory
from tidegate.engine.expressions.relations import is_local
from tidegate.engine.windows.kind import PaneWindow, WindowKind, kind_of
from tidegate.saql.plan import nodes as plan
from tidegate.saql.plan.aggregates import Distinct
from tidegate.saql.plan.explain import duration, expression


@dataclass(frozen=True, slots=True)
class Memory:
    """What is kept for one relation.

    Attributes:
        what: in words, such as "a count".
        keys: of what there is one each, as the query writes it; empty where there are no keys.
        ticks: how long it stays, counted in the time of events.
        panes: how many of it there are for a key at any moment, beside those that wait for the watermark.
        grows_with: "keys", "values" (a number of them for each key), "rows" (of the last ``ticks``), or "table"
            (reference data).
        anew: each window puts its panes together anew, so that a result costs the more, the longer the window is.
    """

    what: str
    keys: tuple[str, ...] = ()
    ticks: int = 0
    panes: int = 1
    grows_with: str = "keys"
    anew: bool = False

    def sentence(self) -> str:
        """For people."""
        if self.grows_with == "table":
            return self.what
        if self.grows_with == "rows":
            each = f" of each {' and '.join(self.keys)}" if self.keys else ""
            return f"{self.what}{each}, {f'for {duration(self.ticks)}' if self.ticks else 'until the watermark passes'}"
        each = " and ".join(self.keys)
        several = f"pane, {self.panes} panes a window" if self.panes > 1 else "open window"
        small = "; rows are not kept" if self.grows_with == "keys" else ""
        anew = "; each window puts its panes together anew" if self.anew else ""
        return f"{self.what} for each {f'{each} and ' if each else ''}{several}{small}{anew}"


def memories(relation: plan.Relation, functions: Mapping[str, Any] | None = None) -> list[Memory]:
    """What is kept for a relation itself; nothing where each of its rows follows from one event.

    Args:
        functions: registered ones by name; without them, an aggregate among them is taken for one that keeps rows.
    """
    match relation:
        case plan.Input(reference=True):
            return [Memory("the whole table, and those before it while rows may still need them", grows_with="table")]
        case plan.Aggregate():
            return [_of_window(relation, kind_of(named.window), functions or {}) for named in relation.windows]
        case plan.Temporal():
            return [_of_call(call) for call in relation.calls]
        case plan.Join(reference=False):
            return _of_join(relation)
        case plan.Match():
            keys = tuple(map(expression, relation.partition_by))
            return [Memory("what definitions and measures ask of the rows", keys, relation.limit_ticks, 1, "rows")]
        case _:
            return []


def of_output(relation: plan.Relation) -> list[Memory]:
    """What is kept of an output's rows before they leave."""
    return [Memory("the rows", grows_with="rows")] if is_local(relation) else []


def _of_window(relation: plan.Aggregate, window: WindowKind, functions: Mapping[str, Any]) -> Memory:
    keys = [expression(key) for key in relation.keys if not isinstance(key, plan.WindowId)]
    by = tuple(dict.fromkeys([*keys, *map(expression, window.partition_by)]))
    if not isinstance(window, PaneWindow):
        return Memory("the keys and arguments of the rows", by, window.kept_ticks, 1, "rows")
    registered = {name.lower(): function for name, function in functions.items()}
    states = [_of_aggregate(call, registered) for call in relation.aggregates]
    listed = _listed(state.what for state in states) or "its being there"
    grows_with = "keys" if all(state.bounded for state in states) else "values"
    anew = window.panes_a_window > 1 and any(state.rebuilt for state in states)
    return Memory(listed, by, window.kept_ticks, window.panes_a_window, grows_with, anew)


def _of_aggregate(call: plan.AggregateCall, functions: Mapping[str, Any]) -> StateMemory:
    aggregate = aggregate_of(call.function)
    if call.distinct and aggregate.distinct is Distinct.APPLIES:
        return StateMemory(f"the different values of {expression(call.args[0])}", bounded=False, rebuilt=False)
    return aggregate.memory(call, functions)


def _of_call(call: plan.TemporalCall) -> Memory:
    keys = tuple(map(expression, call.partition_by))
    when = f" for which {expression(call.when)}" if call.when is not None else ""
    match call.function:
        case "lag" | "last":
            count = max(call.offset, 1)
            rows = "the last row" if count == 1 else f"the last {count} rows"
            return Memory(f"{expression(call.args[0])} of {rows}{when}", keys, call.limit_ticks, 1, "rows")
        case "isfirst":
            return Memory(f"the time of the first row{when}", keys, call.limit_ticks, 1, "rows")
        case _:
            arguments = _listed(map(expression, call.args)) or "the times"
            return Memory(f"{arguments} of the rows{when}, for {call.function}", keys, call.limit_ticks, 1, "rows")


def _of_join(join: plan.Join) -> list[Memory]:
    """Each side, for as long as a row of the other may still meet it."""
    keys = [tuple(expression(pair[side]) for pair in join.keys) for side in (0, 1)]
    behind = min((bound.high + 1) * bound.unit_ticks if bound.high is not None else _FAR for bound in join.bounds)
    ahead = min((1 - bound.low) * bound.unit_ticks if bound.low is not None else _FAR for bound in join.bounds)
    return [
        Memory("the rows of its left side", keys[0], max(behind, 0), 1, "rows"),
        Memory("the rows of its right side", keys[1], max(ahead, 0), 1, "rows"),
    ]


_FAR = 2**62


def _listed(parts: Iterable[str]) -> str:
    *most, last = [*dict.fromkeys(parts)] or [""]
    return f"{', '.join(most)} and {last}" if most else last
