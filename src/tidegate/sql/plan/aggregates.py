"""What the compiler asks of an aggregate: its name, its arguments, its result, and where it may be used.

Each aggregate is one class that derives from `AggregateSignature` and adds how it is computed; saql knows the classes
only through the `Catalog` it is given.
"""

from __future__ import annotations

from abc import ABC
from enum import Enum
from typing import ClassVar

from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import Signature


class Distinct(Enum):
    """What DISTINCT does to an aggregate."""

    REFUSED = "refused"
    WITHOUT_EFFECT = "without effect"
    APPLIES = "applies"


class AggregateSignature(ABC):
    """An aggregate as a query may call it.

    Attributes:
        spelling: its name as the documentation spells it. In plans it is written in lower case.
        signature: the arguments. One of kind COUNT or FRACTION is a constant, which becomes a parameter of the call;
            one of another kind is the value to aggregate.
        description: what it is, for the reference; one line.
        example: a call and its result as JSON prints it, for the reference: over three events of which the field v is
            2, 4 and 9, and n "a", "b" and "c". None if only registered functions make one.
        gathers_rows: without a value it aggregates whole rows.
        counts_rows: without a value, or with `*`, it needs no value at all.
        ranked: it needs ORDER BY inside its OVER; ``ranks_by`` is how many expressions that may have, None for any
            number, and ``ranks_numbers`` whether those must be numbers.
        distinct: what DISTINCT does.
        with_limit: whether it may have OVER (… LIMIT DURATION …).
    """

    spelling: ClassVar[str]
    signature: ClassVar[Signature]
    description: ClassVar[str]
    example: ClassVar[tuple[str, str] | None] = None
    gathers_rows: ClassVar[bool] = False
    counts_rows: ClassVar[bool] = False
    ranked: ClassVar[bool] = False
    ranks_by: ClassVar[int | None] = None
    ranks_numbers: ClassVar[bool] = False
    distinct: ClassVar[Distinct] = Distinct.REFUSED
    with_limit: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Its name in plans."""
        return self.spelling.lower()

    def result_type(self, argument: Type) -> Type:
        """Return the type of the result for a value of a type; ANY where only the values tell."""
        return self.signature.result
