"""Name the window, join or output that a row of a query goes to, in words and as spans of time."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.engine.windows.kind import kind_of
from tidegate.ordering import short_time
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import relations_in


@dataclass(frozen=True, slots=True)
class Destination:
    """What an event went into.

    Attributes:
        outputs: the outputs that depend on it.
        sentence: a sentence that describes it.
        windows: (start, end] in ticks, where the windows can be named.
    """

    outputs: tuple[str, ...]
    sentence: str
    windows: tuple[tuple[int, int], ...] = ()


def destination_of(relation: plan.Relation, query: plan.Query, time: int) -> Destination:
    """Return the destination of a row with a time (ticks) that a relation of a query reads."""
    outputs = tuple(output.name for output in query.outputs if _stands_on(output.relation, relation))
    to = " and ".join(f"'{output}'" for output in outputs)
    match relation:
        case plan.Aggregate(windows=named):
            every = [kind_of(one.window) for one in named]
            said = "; ".join(window.describe_windows(time) for window in every)
            windows = tuple(span for window in every for span in window.spans_of(time))
            return Destination(outputs, f"For {to} it counts in {said}.", windows)
        case plan.Join():
            return Destination(outputs, f"For {to} it waits, at {short_time(time)}, for the rows it joins.")
        case plan.Temporal() | plan.Match():
            return Destination(
                outputs, f"For {to} it goes, at {short_time(time)}, to the functions that read earlier rows."
            )
        case _:
            return Destination(outputs, f"For {to} it produces a row at {short_time(time)}.")


def _stands_on(relation: plan.Relation, other: plan.Relation) -> bool:
    return any(below is other for below in relations_in(relation))
