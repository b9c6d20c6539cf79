"""LIKE patterns, matched in linear time.

``%`` stands for any characters, ``_`` for one, ``[abc]`` and ``[a-c]`` for one of these and ``[^abc]`` for one other.
https://learn.microsoft.com/stream-analytics-query/like-azure-stream-analytics

As a regular expression, ``%a%b%c`` backtracks: with k wildcards it takes time proportional to the k-th power of the
text's length. It need not. Between two ``%`` stands a segment of a fixed number of characters, and if the segments
match at all, they match when each is taken where it first fits (only the last one may be bound to the end of the
text), so that one pass from left to right decides. See https://research.swtch.com/glob.

A segment without wildcards is found by ``str.find``, another one by a regular expression without quantifiers, which
takes at most as many steps at each place of the text as the segment has characters; `is_costly` limits their product.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from tidegate.engine.values.budget import LONGEST_PATTERN, MOST_LIKE_STEPS

_SHORT = 32
"""Up to this length, trying a segment with wildcards at each place of a text costs little, however long the text is."""


@dataclass(slots=True)
class _Segment:
    """The part of a pattern between two ``%``.

    Attributes:
        parts: for each character of the segment, a regular expression for that one character.
        literal: the segment as plain text, None if it has wildcards or classes.
    """

    parts: list[str] = field(default_factory=list)
    literal: str | None = ""
    _expression: re.Pattern[str] | None = None

    def add(self, part: str, literal: str | None) -> None:
        self.parts.append(part)
        self.literal = None if literal is None or self.literal is None else self.literal + literal

    def starts(self, text: str, place: int) -> bool:
        """Return whether the segment fits at a place of the text."""
        if self.literal is not None:
            return text.startswith(self.literal, place)
        return self._compiled().match(text, place) is not None

    def find(self, text: str, place: int) -> int:
        """Return the first place, from ``place`` on, at which the segment fits; -1 if there is none."""
        if self.literal is not None:
            return text.find(self.literal, place)
        found = self._compiled().search(text, place)
        return -1 if found is None else found.start()

    def _compiled(self) -> re.Pattern[str]:
        if self._expression is None:
            self._expression = re.compile("".join(self.parts), re.DOTALL)
        return self._expression


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A pattern as the segments between its ``%``."""

    segments: tuple[_Segment, ...]

    def matches(self, text: str) -> bool:
        """Return whether all of the text fits."""
        return self._fits_from(text, 0, open_end=False)

    def find(self, text: str, *, anywhere: bool, open_end: bool) -> int:
        """Return the first place at which the pattern fits; -1 if there is none.

        Args:
            text: the text to look at.
            anywhere: whether the pattern may begin after the first character of the text.
            open_end: whether it may end before the last one.
        """
        if not anywhere:
            return 0 if self._fits_from(text, 0, open_end=open_end) else -1
        first = self.segments[0]
        if len(self.segments) == 1 and not open_end:
            place = len(text) - len(first.parts)
            return place if place >= 0 and first.starts(text, place) else -1
        # What follows the first segment fits behind its first occurrence if it fits behind any.
        place = first.find(text, 0)
        return place if place >= 0 and self._fits_from(text, place, open_end=open_end) else -1

    def _fits_from(self, text: str, place: int, *, open_end: bool) -> bool:
        first, *rest = self.segments
        if not first.starts(text, place):
            return False
        place += len(first.parts)
        if not rest:
            return open_end or place == len(text)
        last = None if open_end else rest.pop()
        for segment in rest:
            place = segment.find(text, place)
            if place < 0:
                return False
            place += len(segment.parts)
        if last is None:
            return True
        end = len(text) - len(last.parts)
        return end >= place and last.starts(text, end)


def is_costly(pattern: str, text: str) -> bool:
    """Return whether a pattern is too long, or a long segment of it would take too many steps on the text."""
    return len(pattern) > LONGEST_PATTERN or (
        len(pattern) > _SHORT and len(pattern) * len(text) > MOST_LIKE_STEPS and _has_long_segment(pattern)
    )


def _has_long_segment(pattern: str) -> bool:
    return max(map(len, pattern.split("%"))) > _SHORT and ("_" in pattern or "[" in pattern)


@lru_cache(maxsize=1024)
def like_pattern(pattern: str, escape: str | None = None) -> LikePattern | None:
    """Read a pattern.

    Args:
        pattern: as a query writes it.
        escape: the character after which the next one stands for itself.

    Returns:
        The pattern; None if its last character is the escape character.
    """
    segments = [_Segment()]
    place = 0
    while place < len(pattern):
        character = pattern[place]
        place += 1
        if character == escape:
            if place == len(pattern):
                return None
            segments[-1].add(re.escape(pattern[place]), pattern[place])
            place += 1
        elif character == "%":
            segments.append(_Segment())
        elif character == "_":
            segments[-1].add(".", None)
        elif character == "[" and (end := pattern.find("]", place + 1)) > 0:
            segments[-1].add(_character_class(pattern[place:end]), None)
            place = end + 1
        else:
            segments[-1].add(re.escape(character), character)
    return LikePattern(tuple(segments))


def _character_class(inside: str) -> str:
    negated, inside = (True, inside[1:]) if inside.startswith("^") else (False, inside)
    parts: list[str] = []
    place = 0
    while place < len(inside):
        if place + 2 < len(inside) and inside[place + 1] == "-":
            low, high = inside[place], inside[place + 2]
            if low <= high:
                parts.append(f"{re.escape(low)}-{re.escape(high)}")
            place += 3
        else:
            parts.append(re.escape(inside[place]))
            place += 1
    if not parts:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(parts)}]"
