"""Readings of inputs: an input with one TIMESTAMP BY and OVER.

An input that a query reads in two ways has two timelines, so it is two inputs to the engine, each with its own
watermark and its own events.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.explain import expression
from tidegate.sql.plan.same import fold

Way = tuple[plan.Expr | None, tuple[plan.Expr, ...]]


@dataclass(frozen=True, slots=True)
class Reading:
    """An input, read in one way.

    Attributes:
        name: its name in the program: the input's name, with TIMESTAMP BY and OVER appended for a second reading.
        mention: one of the places where the query reads it this way.
    """

    name: str
    mention: plan.Input

    def has(self, mention: plan.Input) -> bool:
        """Return whether a place in the query reads the input this way."""
        return mention.name.lower() == self.mention.name.lower() and _way(mention) == _way(self.mention)


def readings_of(query: plan.Query) -> dict[str, Reading]:
    """Return the readings of a query by name in lower case, reference data too, in the order of the text."""
    found: dict[str, Reading] = {}
    for mention in query.inputs:
        if any(reading.has(mention) for reading in found.values()):
            continue
        first = next((one for one in found.values() if one.mention.name.lower() == mention.name.lower()), None)
        name = mention.name if first is None else f"{first.mention.name} {_said(mention)}"
        found[name.lower()] = Reading(name, mention)
    return found


def _way(mention: plan.Input) -> Way:
    timestamp_by = None if mention.timestamp_by is None else fold(mention.timestamp_by)
    return timestamp_by, tuple(map(fold, mention.over))


def _said(mention: plan.Input) -> str:
    if mention.timestamp_by is None:
        return "without TIMESTAMP BY"
    over = f" OVER {', '.join(map(expression, mention.over))}" if mention.over else ""
    return f"TIMESTAMP BY {expression(mention.timestamp_by)}{over}"
