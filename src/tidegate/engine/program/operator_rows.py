"""How many rows the operators of a program take and release, for people who look for the operator that is busy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

Side = tuple[int, int]
"""An operator's number in `Program.operators`, and which of its sources."""


@dataclass(slots=True)
class OperatorRows:
    """Rows by operator.

    Rows that a restart reads again count again, as calls of functions do.

    Attributes:
        taken: rows that reached a side of an operator, before it reduced them.
        released: rows that an operator passed on.
    """

    taken: Counter[Side] = field(default_factory=Counter)
    released: Counter[int] = field(default_factory=Counter)

    def add(self, other: OperatorRows) -> None:
        """Add what another place counted."""
        self.taken.update(other.taken)
        self.released.update(other.released)

    @classmethod
    def sum(cls, parts: Iterable[OperatorRows]) -> OperatorRows:
        """Add up what several places counted."""
        total = cls()
        for part in parts:
            total.add(part)
        return total
