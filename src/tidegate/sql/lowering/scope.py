"""The names that an expression may use, and what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from tidegate.sql.lowering.context import Report
from tidegate.sql.parsing.diagnostics import did_you_mean
from tidegate.sql.parsing.syntax import Path, Word
from tidegate.sql.plan.nodes import Column, Expr, Literal, Row, Type

# Columns that events have besides the fields of their bodies.
OF_INPUTS = frozenset(
    [
        *("eventprocessedutctime", "eventenqueuedutctime", "eventenqueuedtime", "partitionid", "iothub"),
        *("blobname", "bloblastmodifiedutctime", "bloblastmodified"),
    ]
)

# What an IoT hub adds to a message in the record IoTHub, and no body would have.
OF_IOT_HUBS = frozenset(["connectiondeviceid", "connectiondevicegenerationid", "enqueuedtime"])


class SourceKind(Enum):
    """The kind of source that an alias of a FROM names."""

    INPUT = auto()
    STEP = auto()
    REFERENCE = auto()
    APPLY = auto()


@dataclass(slots=True)
class Source:
    """One alias of a FROM.

    Attributes:
        alias: as the query writes it.
        name: of the input or step.
        kind: what it is.
        columns: its column names, from lower case to as written; None if not all are known, as with events.
        types: of the columns whose type is known, by name in lower case.
        over: the keys of TIMESTAMP BY … OVER that the rows still carry, as expressions of this scope.
        has_over: whether there were such keys.
        partition_by: the column of PARTITION BY.
        declared: the columns of CREATE TABLE. Events may have more, but a query cannot name them.
        hidden: the columns, in lower case, that a star leaves out.
        texts, spread: see `Lowered`.
    """

    alias: str
    name: str
    kind: SourceKind
    columns: dict[str, str] | None = None
    types: dict[str, Type] = field(default_factory=dict)
    over: tuple[Expr, ...] = ()
    has_over: bool = False
    partition_by: Column | None = None
    declared: tuple[str, ...] | None = None
    hidden: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    spread: frozenset[str] = frozenset()

    def lacks(self, column: str) -> bool:
        """Return whether the column is known not to exist."""
        lowered = column.lower()
        if self.columns is not None:
            return lowered not in self.columns
        return self.declared is not None and lowered not in {*map(str.lower, self.declared), *OF_INPUTS}

    def has(self, column: str) -> bool:
        """Return whether the column is known to exist."""
        return column.lower() in (self.columns if self.columns is not None else self.types)


class Scope:
    """The aliases of one SELECT, left to right."""

    def __init__(self, report: Report, sources: Iterable[Source] = ()) -> None:
        self._report = report
        self.sources: list[Source] = []
        for source in sources:
            self.sources.append(source)

    def find(self, alias: str) -> Source | None:
        lowered = alias.lower()
        return next((source for source in self.sources if source.alias.lower() == lowered), None)

    def add(self, source: Source, word: Word) -> None:
        if self.find(source.alias):
            self._report.error(
                word.span,
                f"two sources are called {source.alias}",
                f"give one another name: {source.name} AS …",
            )
        self.sources.append(source)

    def resolve(self, path: Path, *, starred: bool = False) -> Expr:
        """Return the Column or Row that a path means. An unresolvable path is reported, and NULL returned.

        Args:
            starred: whether a star follows the path, so that it is a source or a record.
        """
        first, rest = path.words[0], path.words[1:]
        position = self._report.position(path.span)
        source = self.find(first.text)
        if source and rest:
            return self._column(source, path.words if self._of_iot_hub(path, source) else rest, path)
        holders = [candidate for candidate in self.sources if candidate.has(first.text)]
        if source and not holders:
            return Row(source.alias, position)
        if len(holders) > 1:
            return self._ambiguous(path, holders)
        qualifies = bool(rest) or (starred and not holders)
        renamed = next((candidate for candidate in self.sources if candidate.name.lower() == first.text.lower()), None)
        if not holders:
            holders = [candidate for candidate in self.sources if not candidate.lacks(first.text)]
            if len(holders) > 1 and not (renamed and qualifies):
                return self._ambiguous(path, holders)
        if renamed and qualifies and not self._of_iot_hub(path, renamed):
            name = rest[0].text if rest else "*"
            self._report.error(
                first.span, f"{first.text} is called {renamed.alias} here", f"write {renamed.alias}.{name}"
            )
            return Literal(None, position)
        if holders:
            near = did_you_mean(first.text, [candidate.alias for candidate in self.sources])
            if (rest or (starred and near)) and not holders[0].has(first.text):
                self._note_record(path, holders[0], near)
            return Column(holders[0].alias, tuple(word.text for word in path.words), position)
        known = [name for candidate in self.sources for name in (candidate.columns or {}).values()]
        known += [name for candidate in self.sources for name in candidate.declared or ()]
        self._report.error(first.span, f"unknown column {first.text}", self._hint(first.text, known))
        return Literal(None, position)

    def _of_iot_hub(self, path: Path, source: Source) -> bool:
        """Return whether a path is what an IoT hub adds to a message though IoTHub names a source, and note it."""
        if source.kind is not SourceKind.INPUT or path.words[0].text.lower() != "iothub" or len(path.words) != 2:
            return False
        first, name = path.words
        if name.text.lower() not in OF_IOT_HUBS or source.has(name.text):
            return False
        self._report.notice(
            first.span,
            f"IoTHub.{name.text} is read as what an IoT hub adds to a message; the input is called {source.name} too",
            f"write {name.text} alone if it is a field of the body",
        )
        return True

    def _note_record(self, path: Path, source: Source, near: str | None) -> None:
        """Add a notice that a qualifier that names no source was read as a column that holds a record."""
        first = path.words[0]
        if first.text.lower() in OF_INPUTS:
            return
        written = ".".join(word.text for word in path.words)
        self._report.notice(
            first.span,
            f"{first.text} is no source of this FROM: it is read as a column of {source.alias} that holds records",
            near or f"write {source.alias}.{written} if it is one",
        )

    def candidates(self, column: str) -> list[Source]:
        """Return the sources known to have this column, or if there are none, those that may have it."""
        known = [source for source in self.sources if source.has(column)]
        return known or [source for source in self.sources if not source.lacks(column)]

    def _column(self, source: Source, words: tuple[Word, ...], path: Path) -> Expr:
        position = self._report.position(path.span)
        if source.lacks(words[0].text):
            names = list(source.declared or (source.columns or {}).values())
            self._report.error(
                words[0].span, f"{source.alias} has no column {words[0].text}", self._hint(words[0].text, names)
            )
            return Literal(None, position)
        if words[0].text.lower() in source.spread:
            text = f"{source.alias}.{words[0].text}"
            message = f"{text} is read as a field: SELECT * with APPLY has the fields of {words[0].text}, not its row"
            self._report.notice(path.span, message, f"write {source.alias}.FIELD for a field of {words[0].text}")
        return Column(source.alias, tuple(word.text for word in words), position)

    def _ambiguous(self, path: Path, holders: list[Source]) -> Expr:
        name = ".".join(word.text for word in path.words)
        choices = " or ".join(f"{holder.alias}.{name}" for holder in holders[:3])
        if len(path.words) > 1:
            first = path.words[0].text
            hint = did_you_mean(first, [source.alias for source in self.sources])
            if hint is None:
                hint = f"{first} is none of the sources; if it is a record of one, write {choices}"
            self._report.error(path.words[0].span, f"there is no source {first} in this FROM", hint)
            return Literal(None, self._report.position(path.span))
        self._report.error(
            path.words[0].span, f"{name} is ambiguous: it may be of {len(holders)} sources", f"write {choices}"
        )
        return Literal(None, self._report.position(path.span))

    @staticmethod
    def _hint(word: str, known: list[str]) -> str | None:
        if near := did_you_mean(word, known):
            return near
        listed = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
        return f"there are {listed}" if known else None

    def texts_in(self, expr: Column | Row) -> frozenset[str]:
        """Return the fields of a record that the query makes text of (`Lowered.texts`)."""
        if isinstance(expr, Row) and expr.source is None:
            return frozenset().union(*(source.texts for source in self.sources))
        source = self.find(expr.source or "")
        if source is None or isinstance(expr, Row):
            return frozenset() if source is None else source.texts
        return texts_below(source.texts, expr.path)

    def type_of(self, column: Column, *, likely: bool = False) -> Type:
        """Return the type of a column's values as far as the query determines it (`ExpressionLowerer.type_of`)."""
        source = self.find(column.source or "")
        if source is None:
            return Type.ANY
        known = source.types.get(column.path[0].lower(), Type.ANY) if len(column.path) == 1 else Type.ANY
        return Type.NVARCHAR if known is Type.ANY and likely and _dotted(column.path) in source.texts else known


def texts_below(texts: Iterable[str], path: Sequence[str]) -> frozenset[str]:
    """Return the texts within a record, given those of the row that has it."""
    prefix = f"{_dotted(path)}."
    return frozenset(text.removeprefix(prefix) for text in texts if text.startswith(prefix))


def _dotted(path: Sequence[str]) -> str:
    return ".".join(path).lower()
