"""How many arguments a function takes, of which kind, and what it returns.

A kind says which values an argument may certainly not have (`types.refusal`): values convert at run time, so only
what can never work is refused here. An argument of kind "unit" is a date part, and becomes a Literal in its long
form.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.saql.plan.nodes import Type


@dataclass(frozen=True, slots=True)
class Signature:
    """`kinds` of the arguments, the last one repeating up to `most`; None for `most` is any number."""

    kinds: tuple[str, ...]
    least: int
    most: int | None
    result: Type = Type.ANY

    def kind(self, index: int) -> str:
        return self.kinds[min(index, len(self.kinds) - 1)] if self.kinds else "any"


def signature(kinds: str, result: Type = Type.ANY, optional: int = 0, more: bool = False) -> Signature:
    words = tuple(kinds.split())
    return Signature(words, len(words) - optional, None if more else len(words), result)
