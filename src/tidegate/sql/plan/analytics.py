"""What the compiler asks of a function of the rows before: its name, its arguments and its result.

Each is one class that derives from `AnalyticSignature` and adds how it is computed; saql knows the classes only through
the `Catalog` it is given. Aggregates with LIMIT DURATION look back, too, but are declared as aggregates.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import ClassVar

from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import Signature


class Role(Enum):
    """What an argument after the value is."""

    OFFSET = "offset"
    """How many rows to look back: a constant."""
    DEFAULT = "default"
    """The result where there is no such row; of the value's type."""
    CONSTANT = "constant"
    """A parameter of the call."""


class AnalyticSignature(ABC):
    """A function of the rows before, as a query may call it.

    Attributes:
        spelling: its name as the documentation spells it. In plans it is written in lower case.
        signature: the arguments.
        description: what it is, for the reference; one line.
        example: a call and its result at the last of three events, as JSON prints it, for the reference: their field v
            is 2, 4 and 9.
        aligned: its arguments are a unit and a number, the length of aligned intervals. Otherwise the first is a
            value, and its OVER has LIMIT DURATION.
        roles: of the arguments after the value.
        offset: how many rows it looks back if no argument says so; 0 to begin with the row itself.
        takes_rows: whether `*` stands for the whole row.
    """

    spelling: ClassVar[str]
    signature: ClassVar[Signature]
    description: ClassVar[str]
    example: ClassVar[tuple[str, str] | None] = None
    aligned: ClassVar[bool] = False
    roles: ClassVar[tuple[Role, ...]] = ()
    offset: ClassVar[int] = 0
    takes_rows: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Its name in plans."""
        return self.spelling.lower()

    def result_type(self, argument: Type) -> Type:
        """Return the type of the result for a value of a type; ANY where only the values tell."""
        return self.signature.result

    def faults(self, parameters: Sequence[int | float | str]) -> Iterator[tuple[int, str]]:
        """Yield what is wrong with the constants of a call: the place of the argument, and a message."""
        yield from ()
