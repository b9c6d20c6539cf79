"""What the compiler asks of a function: its name, how many arguments it takes, of which kind, and what it returns.

Each aggregate and each function of earlier rows is one class that derives from `AggregateSignature` or
`AnalyticSignature` and adds how it is computed; the compiler knows the classes only through the `Catalog` it is given.
Aggregates with LIMIT DURATION look back, too, but are declared as aggregates.
"""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from tidegate.sql.plan.nodes import Type


class ArgumentKind(Enum):
    """What an argument must be able to be.

    Values convert at run time, so that only what can never work is refused at compile time (`types.refusal`).
    """

    ANY = "any"
    AS_TEXT = "as_text"
    """Any value, read as text."""
    TEXT = "text"
    JSON = "json"
    """Text that holds JSON; other values are no JSON, and not converted."""
    NUMBER = "number"
    INTEGER = "integer"
    DATETIME = "datetime"
    ORDERED = "ordered"
    RECORD = "record"
    ARRAY = "array"
    GEOGRAPHY = "geography"
    """A GeoJSON record, or text with GeoJSON or well-known text."""
    CONDITION = "condition"
    """True, false or NULL; only operators take one."""
    COUNT = "count"
    """A constant whole number."""
    FRACTION = "fraction"
    """A constant from 0 to 1."""
    UNIT = "unit"
    """A date part; the plan holds its long form as a Literal."""
    PART = "part"
    """A date part that can be read from a time, held like a unit."""
    SOURCE = "source"
    """The name of an input of the FROM."""
    NAME = "name"
    """Text; between double quotes, too."""
    PROPERTY = "property"
    """A constant text."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of a function.

    Attributes:
        kinds: of the arguments, the last one repeating up to `most`.
        least: how many arguments there must be.
        most: how many there may be; None for any number.
        result: the type of the result, ANY if it depends on the values.
        names: of the arguments, for the documentation.
    """

    kinds: tuple[ArgumentKind, ...]
    least: int
    most: int | None
    result: Type = Type.ANY
    names: tuple[str, ...] = ()

    def kind(self, index: int) -> ArgumentKind:
        """Return the kind of an argument."""
        return self.kinds[min(index, len(self.kinds) - 1)] if self.kinds else ArgumentKind.ANY

    def __str__(self) -> str:
        """Return the names of the arguments as the documentation writes them, optional ones in brackets."""
        written = [name if index < self.least else f"[{name}]" for index, name in enumerate(self.names)]
        return ", ".join([*written, "…"] if self.most is None else written)


def read_signature(text: str, result: Type = Type.ANY) -> Signature:
    """Return a signature from its text.

    Args:
        text: the arguments, each a name and a kind, separated by commas: ``text text, [start integer]``. Brackets
            mark an argument that may be left out, ``…`` after the last one that it may be repeated.
        result: the type of what the function returns.
    """
    repeats = text.endswith("…")
    parts = [part.strip() for part in text.removesuffix("…").split(",") if part.strip()]
    found = [re.fullmatch(r"(\[?)(\w+) (\w+)\]?", part) for part in parts]
    kinds = tuple(ArgumentKind(match[3]) for match in found if match)
    if len(kinds) != len(parts):
        raise ValueError(f"not the arguments of a function: {text}")
    least = sum(not match[1] for match in found if match)
    return Signature(kinds, least, None if repeats else len(kinds), result, tuple(match[2] for match in found if match))


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


class ArgumentRole(Enum):
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
    roles: ClassVar[tuple[ArgumentRole, ...]] = ()
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
