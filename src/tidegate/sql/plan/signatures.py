"""How many arguments a function takes, of which kind, and what it returns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

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


def signature(kinds: str, result: Type = Type.ANY, optional: int = 0, more: bool = False) -> Signature:
    """Return a signature from the kinds of its arguments, separated by blanks."""
    words = tuple(map(ArgumentKind, kinds.split()))
    return Signature(words, len(words) - optional, None if more else len(words), result)


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
