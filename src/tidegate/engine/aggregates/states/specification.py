"""What the engine asks of an aggregate: what it keeps of a group's rows, and the value it yields.

An aggregate is specified by one class, which derives from `AggregateFunction` and is found because a module of
`engine.aggregates.functions` defines it. The compiler, the windows, the estimate of memory, the schema of outputs and
the reference all ask this class.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.engine.aggregates.states.state import Hops, Summary
from tidegate.engine.values.vectors import Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.aggregates import AggregateSignature


@dataclass(frozen=True, slots=True)
class StateMemory:
    """The memory that the state of one group takes.

    Attributes:
        what: in words, such as "an exact sum".
        bounded: whether it does not grow with the rows of the group.
        rebuilt: whether a hopping window merges it from its panes again at each hop.
    """

    what: str
    bounded: bool
    rebuilt: bool


class AggregateFunction(AggregateSignature):
    """An aggregate of the language."""

    @abstractmethod
    def summary(self, call: plan.AggregateCall) -> Summary:
        """Return what is kept of a group's rows; with DISTINCT, of the distinct values of its one column."""

    @abstractmethod
    def finish(self, state: Any, call: plan.AggregateCall) -> Vector:
        """Return the value of each group of a state that `summary` made."""

    def beside_distinct(self, call: plan.AggregateCall) -> tuple[Summary, ...]:
        """Return what a call with DISTINCT keeps of all values, beside what it keeps of the distinct ones."""
        return ()

    def finish_distinct(self, state: Any, beside: Sequence[Any], call: plan.AggregateCall) -> Vector:
        """Return the value of each group with DISTINCT: ``state`` is that of the distinct values."""
        return self.finish(state, call)

    @abstractmethod
    def kept(self, call: plan.AggregateCall) -> tuple[str, bool]:
        """Return what is kept of a group, in words, and whether it does not grow with the group's rows."""

    def memory(self, call: plan.AggregateCall, functions: Mapping[str, Callable[..., Any]]) -> StateMemory:
        """Return the memory that the state of one group takes.

        Args:
            functions: registered functions and aggregates, by lower-case name.
        """
        what, bounded = self.kept(call)
        return StateMemory(what, bounded, self.summary(call).hops is Hops.REBUILT)
