"""Where in a query a row goes: which window, join or output takes it up, in words and as spans of time."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.engine.stateful.windows import Panes
from tidegate.ordering import format_duration, short_time
from tidegate.saql.plan import nodes as plan
from tidegate.saql.plan.walking import relations_in

_MOST_WINDOWS_SAID = 3


@dataclass(frozen=True, slots=True)
class Destination:
    """What took an event in.

    Attributes:
        outputs: the outputs that depend on it.
        sentence: for people.
        windows: (start, end] in ticks, where the windows can be named.
    """

    outputs: tuple[str, ...]
    sentence: str
    windows: tuple[tuple[int, int], ...] = ()


def destination_of(relation: plan.Relation, query: plan.Query, time: int) -> Destination:
    """What is said of a row with a time (ticks) that a relation of a query takes up."""
    outputs = tuple(output.name for output in query.outputs if _stands_on(output.relation, relation))
    to = " and ".join(f"'{output}'" for output in outputs)
    match relation:
        case plan.Aggregate(window=window):
            named = window.windows if isinstance(window, plan.Windows) else (plan.NamedWindow(None, window),)
            every = [_window(one.window, time) for one in named]
            said = "; ".join(text for text, _ in every)
            windows = tuple(span for _, spans in every for span in spans)
            return Destination(outputs, f"For {to} it counts in {said}.", windows)
        case plan.Join():
            return Destination(outputs, f"For {to} it waits, at {short_time(time)}, for the rows it joins.")
        case plan.Temporal() | plan.Match():
            return Destination(
                outputs, f"For {to} it goes, at {short_time(time)}, to the functions that look at the rows before."
            )
        case _:
            return Destination(outputs, f"For {to} it gives a row at {short_time(time)}.")


def _window(window: plan.SimpleWindow, time: int) -> tuple[str, tuple[tuple[int, int], ...]]:
    """What to say of the windows of one kind that hold a time, and the windows where they can be named."""
    panes = Panes.of(window)
    if panes is not None and panes.pane_ticks:
        size = panes.size_ticks
        spans = tuple((end - size, end) for end in panes.window_ends(time, time + size))
        kind = "tumbling" if isinstance(window, plan.Tumbling) else "hopping"
        shown = [f"({short_time(start)}, {short_time(end)}]" for start, end in spans]
        if len(shown) > _MOST_WINDOWS_SAID:
            shown = [shown[0], f"… ({len(shown)} windows) …", shown[-1]]
        plural = "s" if len(spans) > 1 else ""
        return f"the {kind} window{plural} of {format_duration(size)} {', '.join(shown)}", spans
    match window:
        case plan.Sliding(size_ticks=size):
            return (
                f"the sliding windows of {format_duration(size)} that end from {short_time(time)} until before "
                f"{short_time(time + size)}",
                (),
            )
        case plan.Session(timeout_ticks=timeout):
            return (
                f"the session that is open at {short_time(time)}, which a gap of more than {format_duration(timeout)} "
                "ends",
                (),
            )
        case _:
            return f"the snapshot of {short_time(time)}", ((time, time),)


def _stands_on(relation: plan.Relation, other: plan.Relation) -> bool:
    return any(below is other for below in relations_in(relation))
