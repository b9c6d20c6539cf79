"""The errors and notices of one query, collected so that all of them are shown at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.sql.parsing.diagnostics import Diagnostic
from tidegate.sql.parsing.dialect import Lines
from tidegate.sql.parsing.syntax import Span
from tidegate.sql.plan.nodes import Notice, Position


class Report:
    def __init__(self, sql: str) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._lines = Lines(sql)
        self._sql = sql
        self._muted = 0
        self._notices: dict[str, Notice] = {}

    def position(self, span: Span) -> Position:
        return self._lines.position(span.start)

    def text(self, span: Span) -> str:
        """Return a part of the query text, shortened to one line for messages."""
        text = " ".join(self._sql[span.start : span.end].split())
        return text if len(text) <= 60 else text[:57] + "…"

    def error(self, span: Span, message: str, hint: str | None = None) -> None:
        if self._muted:
            return
        position = self._lines.position(span.start)
        self.diagnostics.append(
            Diagnostic(position.line, position.column, message, max(1, span.end - span.start), hint)
        )

    def notice(self, span: Span, message: str, hint: str) -> None:
        """Add a notice of how an ambiguous part was read, once per part."""
        if not self._muted and message not in self._notices:
            position, length = self._lines.position(span.start), max(1, span.end - span.start)
            self._notices[message] = Notice(position, length, message, hint)

    @property
    def notices(self) -> tuple[Notice, ...]:
        return tuple(self._notices.values())

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Drop reports made inside the context, for an expression that will be lowered again."""
        self._muted += 1
        try:
            yield
        finally:
            self._muted -= 1
