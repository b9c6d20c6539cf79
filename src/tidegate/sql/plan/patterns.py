"""Patterns of MATCH_RECOGNIZE: regular expressions whose letters are names, each standing for events of one kind.

https://learn.microsoft.com/stream-analytics-query/match-recognize-stream-analytics
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

ANY_EVENT = "."
"""The name that every event matches."""


@dataclass(frozen=True, slots=True)
class Name:
    """One event. `name` is spelt as the pattern first spells it, or is ANY_EVENT."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple[Pattern, ...]

    def __str__(self) -> str:
        return " ".join(f"({part})" if isinstance(part, Either) else str(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Either:
    """One of the options; if several match, the first of them."""

    options: tuple[Pattern, ...]

    def __str__(self) -> str:
        return " | ".join(map(str, self.options))


@dataclass(frozen=True, slots=True)
class Repeat:
    """`part` `least` to `most` times (None: any number), rather more than fewer."""

    part: Pattern
    least: int
    most: int | None

    def __str__(self) -> str:
        inner = str(self.part) if isinstance(self.part, Name) else f"({self.part})"
        match self.least, self.most:
            case 0, None:
                return f"{inner}*"
            case 1, None:
                return f"{inner}+"
            case 0, 1:
                return f"{inner}?"
            case least, None:
                return f"{inner}{{{least},}}"
            case least, most if least == most:
                return f"{inner}{{{least}}}"
        return f"{inner}{{{self.least},{self.most}}}"


Pattern: TypeAlias = Name | Sequence | Either | Repeat


def names_in(pattern: Pattern) -> Iterator[str]:
    """The names, in the order of the text."""
    match pattern:
        case Name(name=name):
            yield name
        case Sequence(parts=parts) | Either(options=parts):
            for part in parts:
                yield from names_in(part)
        case Repeat(part=part):
            yield from names_in(part)


def lengths_of(pattern: Pattern) -> tuple[int, int | None]:
    """The fewest and the most events that can match (None: any number)."""
    match pattern:
        case Name():
            return 1, 1
        case Sequence(parts=parts):
            spans = [lengths_of(part) for part in parts]
            longest = [most for _, most in spans]
            return sum(least for least, _ in spans), None if None in longest else sum(filter(None, longest))
        case Either(options=options):
            spans = [lengths_of(option) for option in options]
            longest = [most for _, most in spans]
            return min(least for least, _ in spans), None if None in longest else max(filter(None, longest), default=0)
        case Repeat(part=part, least=least, most=most):
            shortest, longest_part = lengths_of(part)
            unlimited = (most is None and longest_part != 0) or longest_part is None
            return shortest * least, None if unlimited or most is None or longest_part is None else longest_part * most
