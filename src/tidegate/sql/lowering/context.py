"""The context of compilation: what is known besides the query, and what the query has defined so far.

The names of result columns that the query does not name.

No page of Microsoft's documentation states the rule. Its examples show that a column keeps its name as the query spells
it, and that a path is named after its last part (`System.Window().Id` is `Id`). By the same rule a function call has
the function's name in lower case (`COUNT(*)` is `count`, `System.Timestamp()` is `timestamp`). Anything else is
`column` with its place in the SELECT list, like the unnamed columns of an input (column1, column2, …; CREATE TABLE
page).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidegate.sql.parsing import syntax
from tidegate.sql.parsing.diagnostics import Diagnostic
from tidegate.sql.parsing.dialect import LineIndex
from tidegate.sql.parsing.syntax import Node, Span
from tidegate.sql.plan.catalog import Catalog
from tidegate.sql.plan.nodes import DeclaredColumn, Notice, Relation, TextPosition, Type


class Report:
    def __init__(self, sql: str) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._lines = LineIndex(sql)
        self._sql = sql
        self._muted = 0
        self._notices: dict[str, Notice] = {}

    def position(self, span: Span) -> TextPosition:
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


COMPATIBILITY_LEVELS = ("1.0", "1.1", "1.2")


@dataclass(slots=True)
class Lowered:
    """The plan of a query, and the properties of its result.

    Attributes:
        relation: the plan.
        columns: names in lower case -> as written, None when not all are known.
        types: of the columns whose type is known.
        lookback_ticks: how far back a result depends on its inputs.
        over: for each key of TIMESTAMP BY … OVER, the column that carries it; None if none does.
        has_over: whether there were such keys.
        reference: whether it is made of reference data alone.
        hidden: the columns, in lower case, that it carries for PARTITION BY, and that a star leaves out.
        texts: the columns, in lower case, that the query makes text of, unless a star before them has such a column; of
            records that it makes of rows the fields, as `record.field`.
        spread: the aliases, in lower case, of the sources whose fields a star beside APPLY has spread out.
    """

    relation: Relation
    columns: dict[str, str] | None
    types: dict[str, Type]
    lookback_ticks: int
    over: tuple[str | None, ...] = ()
    has_over: bool = False
    reference: bool = False
    hidden: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    spread: frozenset[str] = frozenset()


@dataclass(slots=True)
class Context:
    """The context that one query is compiled in. Names match case-insensitively.

    Attributes:
        report: collects errors and notices.
        catalog: the available functions.
        compatibility_level: of the language.
        inputs: the names of the job's inputs, None if any name is allowed; likewise outputs and functions.
        reference_inputs: the inputs that are reference data, in lower case.
        tables: the columns of CREATE TABLE, by name in lower case.
        steps: the steps above, by name in lower case, as written and lowered; None for one that failed to compile.
        mentions: of stream inputs in FROM, and whether TIMESTAMP BY had OVER there.
        this_step: the name of the step that is being lowered, in lower case; None for a query.
        later_steps: the names of the steps below it, in lower case.
        carries_partition: whether a step is being lowered that is read with PARTITION BY PartitionId.
    """

    report: Report
    catalog: Catalog
    compatibility_level: str
    inputs: Collection[str] | None
    reference_inputs: frozenset[str]
    outputs: Collection[str] | None
    functions: Collection[str] | None
    tables: dict[str, tuple[DeclaredColumn, ...]] = field(default_factory=dict)
    steps: dict[str, tuple[str, Lowered | None]] = field(default_factory=dict)
    mentions: list[tuple[Span, str, bool]] = field(default_factory=list)
    this_step: str | None = None
    later_steps: frozenset[str] = frozenset()
    carries_partition: bool = False


def default_name(node: Node, place: int) -> str:
    """Return the name of an unnamed result column. `place` counts from 1."""
    match node:
        case syntax.Path():
            last = node.words[-1].text
            return last.lower() if node.words[0].text.lower() == "system" and len(node.words) == 2 else last
        case syntax.Member():
            return node.field.text
        case syntax.Function() if node.name[0].text.lower() in ("udf", "uda"):
            return node.name[-1].text
        case syntax.Function():
            return node.name[-1].text.lower()
    return f"column{place}"
