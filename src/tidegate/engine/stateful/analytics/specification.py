"""What the engine asks of a function of the rows before: what it holds of them, and its values.

One is specified by one class, which derives from `AnalyticFunction` and is found because a module of
`engine.stateful.analytics` defines it. The compiler, the operator, the estimate of memory and the reference all
ask this class.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.engine.aggregates.states.state import Column
from tidegate.engine.values.sequences import Sequences
from tidegate.engine.values.vectors import BoolArray, Int64Array, Vector
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.analytics import AnalyticSignature


@dataclass(frozen=True, slots=True)
class Past:
    """The rows that the calls of a memory see: held ones, followed by new ones.

    Attributes:
        times: int64[n], ascending within a sequence.
        sequences: the rows by PARTITION BY; every row is in one.
        passing: bool[n], which pass WHEN.
        from_row: where the new ones begin.
        column: returns the values of a column for all of them.
    """

    times: Int64Array
    sequences: Sequences
    passing: BoolArray
    from_row: int
    column: Callable[[Column], Vector]


class Evaluator(Protocol):
    """One call, as it is computed."""

    @property
    def held(self) -> Sequence[Column]:
        """The columns of earlier rows that it needs."""

    @property
    def asked(self) -> Sequence[Column]:
        """The columns that it needs of new rows alone."""

    def values(self, past: Past, new: Callable[[Column], Vector]) -> Vector:
        """Return the results for the new rows.

        Args:
            new: returns the values of a column for the new rows.
        """

    def still(self, past: Past, reached: int | Int64Array) -> BoolArray:
        """Return bool[n]: which rows results of rows at ``reached`` or later may depend on."""


class AnalyticFunction(AnalyticSignature):
    """A function of the rows before."""

    @abstractmethod
    def evaluator(self, call: plan.TemporalCall) -> Evaluator:
        """Return what computes a call."""

    @abstractmethod
    def kept(self, call: plan.TemporalCall, when: str) -> str:
        """Return what is held of each key for ``call.limit_ticks``, in words.

        Args:
            when: which rows, as the end of a phrase; empty for all.
        """
