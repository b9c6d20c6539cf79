"""Diagnostics: where a query is wrong, what was expected, and what was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

LINE_END = r"\r\n|\r|\n"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake. `line` and `column` count from 1; `length` is how many characters the carets cover (at least 1)."""

    line: int
    column: int
    message: str
    length: int = 1
    hint: str | None = None

    def render(self, sql: str) -> str:
        """The message, the line of the query it is about, carets under it, and the hint."""
        lines = re.split(LINE_END, sql)
        text = lines[min(self.line, len(lines)) - 1]
        start = min(self.column - 1, len(text))
        # A tab stays a tab in the margin, so that the carets line up whatever its width.
        margin = "".join("\t" if character == "\t" else " " for character in text[:start])
        carets = "^" * max(1, min(self.length, len(text) - start))
        number = str(self.line)
        rows = [
            f"line {self.line}, column {self.column}: {self.message}",
            f"  {number} | {text}",
            f"  {' ' * len(number)} | {margin}{carets}",
        ]
        if self.hint:
            rows.append(f"  hint: {self.hint}")
        return "\n".join(rows)


_MOST_RENDERED = 50


class QueryError(Exception):
    """A query that cannot run, with every diagnostic in the order of the text."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(sorted(set(diagnostics), key=lambda item: (item.line, item.column, item.message)))
        lines = (f"line {item.line}, column {item.column}: {item.message}" for item in self.diagnostics)
        super().__init__("; ".join(lines))

    def render(self, sql: str) -> str:
        """Return the diagnostics with their lines and carets, for a terminal; of very many only the first."""
        shown = [item.render(sql) for item in self.diagnostics[:_MOST_RENDERED]]
        more = len(self.diagnostics) - len(shown)
        return "\n\n".join([*shown, f"and {more:,} more"] if more else shown)


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The nearest of `known` (without case), or None when nothing is near."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=likeness)
    return by_lower[near[0]] if near else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint naming the nearest of `known`, or None."""
    near = nearest(word, known)
    return f"did you mean {near}?" if near else None
