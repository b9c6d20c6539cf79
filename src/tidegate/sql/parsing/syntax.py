"""The syntax tree of a query, before its names are resolved. `parser` makes it, the modules of `lowering` read it.

A `Span` is a pair of offsets in the text of the query, end exclusive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidegate.sql.plan.patterns import Pattern


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    end: int

    def to(self, other: Span) -> Span:
        """From the start of this to the end of `other`."""
        return Span(self.start, other.end)


@dataclass(frozen=True, slots=True)
class Word:
    """A name without its brackets or quotes. A quoted one is never a keyword; a double-quoted one may be text."""

    text: str
    span: Span
    quoted: bool = False
    double_quoted: bool = False


# Expressions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Path:
    """a, a.b, a.b.c"""

    words: tuple[Word, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Wildcard:
    """*, a.*, a.b.*"""

    words: tuple[Word, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Constant:
    value: int | float | str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Ordering:
    value: Node
    descending: bool


@dataclass(frozen=True, slots=True)
class Duration:
    """unit, length: of LIMIT DURATION."""

    unit: Node
    length: Node
    span: Span


@dataclass(frozen=True, slots=True)
class Over:
    partition_by: tuple[Node, ...]
    order_by: tuple[Ordering, ...]
    limit: Duration | None
    when: Node | None
    span: Span


@dataclass(frozen=True, slots=True)
class Function:
    """name(args) [OVER (…)]. A `*` among the arguments is a Wildcard."""

    name: tuple[Word, ...]
    args: tuple[Node, ...]
    distinct: bool
    over: Over | None
    span: Span

    @property
    def key(self) -> str:
        """The name as the tables of functions have it."""
        return ".".join(word.text for word in self.name).lower()


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a function's result: f(x).field"""

    value: Node
    field: Word
    span: Span


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic or comparison, by its sign."""

    sign: str
    left: Node
    right: Node
    span: Span


@dataclass(frozen=True, slots=True)
class Unary:
    """- or ~"""

    sign: str
    value: Node
    span: Span


@dataclass(frozen=True, slots=True)
class Connective:
    """AND or OR of two or more conditions."""

    word: str
    conditions: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Not:
    condition: Node
    span: Span


@dataclass(frozen=True, slots=True)
class IsNull:
    value: Node
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class InList:
    value: Node
    options: tuple[Node, ...]
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Between:
    value: Node
    low: Node
    high: Node
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Like:
    value: Node
    pattern: Node
    escape: Node | None
    negated: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Case:
    """With an operand, the conditions are values to compare it with."""

    operand: Node | None
    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node | None
    span: Span


@dataclass(frozen=True, slots=True)
class TypeName:
    name: Word
    length: Word | None
    span: Span


@dataclass(frozen=True, slots=True)
class CastTo:
    value: Node
    type: TypeName
    safe: bool
    span: Span


Node: TypeAlias = (
    Path
    | Wildcard
    | Constant
    | Function
    | Member
    | Binary
    | Unary
    | Connective
    | Not
    | IsNull
    | InList
    | Between
    | Like
    | Case
    | CastTo
)


# Clauses --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SelectItem:
    value: Node
    alias: Word | None


@dataclass(frozen=True, slots=True)
class TableReference:
    """name [AS alias] [TIMESTAMP BY … [OVER …]] [PARTITION BY … [INTO n]], the last two in either order."""

    name: Word
    alias: Word | None
    timestamp_by: Node | None
    over: tuple[Node, ...]
    partition_by: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Derived:
    """(SELECT …) AS alias"""

    query: QueryNode
    alias: Word
    span: Span


@dataclass(frozen=True, slots=True)
class Matched:
    """source MATCH_RECOGNIZE (…) AS alias. `names` are the words of the pattern, `measures` and `definitions` as in
    MEASURES and DEFINE."""

    source: TableReference | Derived
    limit: Duration | None
    partition_by: tuple[Node, ...]
    measures: tuple[tuple[Node, Word], ...]
    pattern: Pattern
    names: tuple[Word, ...]
    definitions: tuple[tuple[Word, Node], ...]
    alias: Word
    span: Span


Source: TypeAlias = TableReference | Derived | Matched


@dataclass(frozen=True, slots=True)
class JoinClause:
    left_outer: bool
    source: Source
    on: Node | None  # None: CROSS JOIN
    span: Span


@dataclass(frozen=True, slots=True)
class ApplyClause:
    outer: bool
    function: Function
    alias: Word
    span: Span


@dataclass(frozen=True, slots=True)
class From:
    first: Source
    rest: tuple[JoinClause | ApplyClause, ...]


@dataclass(frozen=True, slots=True)
class Select:
    items: tuple[SelectItem, ...]
    into: Word | None
    source: From
    where: Node | None
    group_by: tuple[Node, ...]
    having: Node | None
    span: Span
    distinct: Span | None = None  # where it says DISTINCT


@dataclass(frozen=True, slots=True)
class UnionNode:
    branches: tuple[QueryNode, ...]
    span: Span


QueryNode: TypeAlias = Select | UnionNode


# Statements -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTable:
    name: Word
    columns: tuple[tuple[Word, TypeName], ...]


@dataclass(frozen=True, slots=True)
class StepDefinition:
    name: Word
    query: QueryNode | None  # None: it could not be read


@dataclass(frozen=True, slots=True)
class Script:
    tables: tuple[CreateTable, ...]
    steps: tuple[StepDefinition, ...]
    queries: tuple[QueryNode, ...]
