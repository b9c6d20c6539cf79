"""The plan: what a query means, after names, windows and restrictions are resolved.

A plan is a tree of relations over a tree of expressions, all frozen. It is made by `compile_query` and read by the
engine. Only `position` (for messages) refers to the SQL text, and equality and hashing ignore it, so that two mentions
of the same expression are equal. A step read twice is one object: walk relations by identity, because comparing or
hashing whole relations would visit it once per mention.

Rows. A row has a System.Timestamp and, for each alias in its scope, a set of columns. `Input` and `StepReference`
open a scope with one alias; `Apply` and `Join` add aliases to their source's; `Filter` and `Temporal` keep them;
`Aggregate` replaces them by keys and aggregates (`KeyRef`, `AggregateRef`); `Project` and `Union` give rows of named
columns without an alias, for a `StepReference` or an `Output` above.

Durations and offsets are int64 ticks of 100 ns. Window bounds are (start, end].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, TypeAlias

from tidegate.sql.plan.patterns import Pattern


class Type(Enum):
    """A type of values. Types belong to values, not to columns; ANY means that the query does not determine it."""

    BIGINT = "bigint"
    FLOAT = "float"
    NVARCHAR = "nvarchar(max)"
    DATETIME = "datetime"
    BIT = "bit"
    RECORD = "record"
    ARRAY = "array"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class TextPosition:
    """A place in the query text, counted from 1."""

    line: int
    column: int


NOWHERE = TextPosition(0, 0)


# Expressions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the source `source` (an alias of the scope, as its relation spells it), and fields inside it.

    `path` is as written in the query; it matches data case-insensitively. `source` is None only inside an `Input`
    (TIMESTAMP BY, OVER, PARTITION BY), where the columns are those of the event itself.
    """

    source: str | None
    path: tuple[str, ...]
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Row:
    """The whole row of a source as a record; of all sources, left columns first, if `source` is None."""

    source: str | None
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: int is bigint, float is float, str is nvarchar(max), bool is bit, None is NULL."""

    value: int | float | str | bool | None
    position: TextPosition = field(default=NOWHERE, compare=False)

    def __eq__(self, other: object) -> bool:
        """Compare types too: 1, 1.0 and True are three different constants."""
        return isinstance(other, Literal) and (type(self.value), self.value) == (type(other.value), other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class SystemTimestamp:
    """System.Timestamp of the row (`source` None), or of one side of a join."""

    source: str | None = None
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class WindowId:
    """System.Window().Id of the row's window; NULL where the windows have no ids. Only above an Aggregate."""

    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar function or operator, by its lower-case name in the catalog.

    Argument lists: and / or take two or more · case(condition, value, …, else) always has an else, maybe NULL ·
    matches(operand, option) is equal for CASE · in(value, option, …) · between(value, low, high) ·
    like(value, pattern[, escape]) · divide gives a float, divide_bigints (of two certain bigints) a bigint ·
    dateadd / datediff / datename / datepart(unit, …) with
    the unit as a Literal in its long form ("minute") · record(name, value, …) · a registered function is "udf.<name>".
    """

    function: str
    args: tuple[Expr, ...]
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """CAST (an error fails the row) or, when `safe`, TRY_CAST (an error is NULL)."""

    value: Expr
    type: Type
    safe: bool
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class KeyRef:
    """The index-th key of the Aggregate below."""

    index: int
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AggregateRef:
    """The index-th aggregate of the Aggregate below."""

    index: int
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class TemporalRef:
    """The index-th call of the Temporal, or of the Match, whose `alias` is `source`."""

    source: str
    index: int
    position: TextPosition = field(default=NOWHERE, compare=False)


Expr: TypeAlias = (
    Column | Row | Literal | SystemTimestamp | WindowId | Call | Cast | KeyRef | AggregateRef | TemporalRef
)


# Windows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Length:
    """A length among the arguments of a window: `Duration(unit, n)`, or n alone after a unit.

    Attributes:
        name: as the long form writes it.
        what: what messages call it.
        optional: whether it may be left out; it is 0 then.
        signed: whether it may be 0 or less.
    """

    name: str
    what: str = "size"
    optional: bool = False
    signed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(ABC):
    """A window of GROUP BY: assigns each row to intervals of time.

    Each kind is one class, a frozen dataclass whose first fields are the ticks of its `lengths`, in their order. The
    engine's classes add how a window is evaluated; saql knows them only through the `Catalog` it is given.

    Attributes:
        names: the names a query may use, Microsoft's spelling first.
        lengths: its arguments.
        word: its adjective in texts, such as "tumbling".
        example: a call, for hints and the reference.
        description: a line for the reference.
        partitions: whether it may have OVER (PARTITION BY …). Without it, its windows depend on all rows, whatever
            their keys.
        partition_by: expressions over the Aggregate's source; each of their values has its own sequence of windows.
    """

    names: ClassVar[tuple[str, ...]]
    lengths: ClassVar[tuple[Length, ...]]
    word: ClassVar[str]
    example: ClassVar[str]
    description: ClassVar[str]
    partitions: ClassVar[bool] = False

    partition_by: tuple[Expr, ...] = ()
    position: TextPosition = field(default=NOWHERE, compare=False)

    @property
    @abstractmethod
    def lookback_ticks(self) -> int:
        """Return how far before its end a window may depend on events."""

    @property
    @abstractmethod
    def windows_of_an_event(self) -> int:
        """Return the largest number of windows that one event can be in."""

    @property
    def oddity(self) -> tuple[str, str] | None:
        """Return what is suspicious about the lengths, and what to write instead; None if nothing is."""
        return None

    @abstractmethod
    def describe(self) -> str:
        """Return a description with sizes in the shortest exact unit, as `explain` prints it."""


@dataclass(frozen=True, slots=True)
class NamedWindow:
    """A window of Windows(), with its id if it has one."""

    id: str | None
    window: Window


@dataclass(frozen=True, slots=True)
class Windows:
    """The union of the results of several windows. Either all have an id or none has."""

    windows: tuple[NamedWindow, ...]
    position: TextPosition = field(default=NOWHERE, compare=False)


# Parts of relations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """A column of CREATE TABLE."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Item:
    """A column of a SELECT list: its output name, and its value."""

    name: str
    expr: Expr
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Star:
    """`*`, `source.*` or `source.path.*` (the fields of a record). The leftmost column wins a name clash."""

    source: str | None = None
    path: tuple[str, ...] = ()
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Order:
    """One key of ORDER BY. NULL is the smallest value."""

    expr: Expr
    descending: bool = False


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate over the rows of a window: "count", "sum", …, "uda.<name>".

    COUNT(*) has no args. TopOne, CollectTop and Collect without an argument collect whole rows: their argument is
    then a `Row`. `parameters` are constants: the number of CollectTop, the fraction of PERCENTILE_CONT.
    """

    function: str
    args: tuple[Expr, ...]
    distinct: bool = False
    order_by: tuple[Order, ...] = ()
    parameters: tuple[int | float | str, ...] = ()
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class TemporalCall:
    """A function of a row and earlier rows: lag, last, isfirst, or an aggregate with LIMIT DURATION.

    All expressions are over the row of the Temporal's source. LAG: `args` (value,), `offset` ≥ 1, `default` for a
    missing row (not for a NULL). LAST is lag of offset 0 among the rows that pass `when`. ISFIRST: `limit_ticks`
    is the length of its aligned intervals. Otherwise `limit_ticks` is how far back (t - limit_ticks, t] remembers.
    `order_by` and `parameters` as in AggregateCall.
    """

    function: str
    args: tuple[Expr, ...]
    limit_ticks: int
    partition_by: tuple[Expr, ...] = ()
    when: Expr | None = None
    offset: int = 0
    default: Expr | None = None
    order_by: tuple[Order, ...] = ()
    parameters: tuple[int | float | str, ...] = ()
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class TimeBound:
    """low ≤ DATEDIFF(unit, left, right) ≤ high; None for no bound on that side.

    DATEDIFF counts the boundaries crossed from the time of `left` to that of `right`, each `unit_ticks` apart:
    floor(right / unit_ticks) - floor(left / unit_ticks), both counted from 0001-01-01. `left` is an alias of the
    join's left side, `right` one of its right side, whichever order the query named them in.
    """

    left: str
    right: str
    unit: str
    unit_ticks: int
    low: int | None
    high: int | None
    position: TextPosition = field(default=NOWHERE, compare=False)


# Relations ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Input:
    """One mention of an input in a FROM.

    Attributes:
        timestamp_by: the time of an event; None for its arrival.
        over: the keys of substreams; () for none.
        partition_by: the column of PARTITION BY.
        declared: the columns of CREATE TABLE.
        reference: whether it is reference data, whose rows have no time.
    """

    name: str
    alias: str
    timestamp_by: Expr | None = None
    over: tuple[Expr, ...] = ()
    partition_by: Column | None = None
    declared: tuple[DeclaredColumn, ...] | None = None
    reference: bool = False
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class StepReference:
    """One mention of a WITH step in a FROM. All mentions of a step hold the same `relation` object."""

    name: str
    alias: str
    relation: Relation
    partition_by: Column | None = None
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which `predicate` is true; NULL is not."""

    source: Relation
    predicate: Expr


@dataclass(frozen=True, slots=True)
class Project:
    source: Relation
    items: tuple[Item | Star, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Groups by window and keys; the time of a result is the end of its window.

    `keys` may contain SystemTimestamp and WindowId.
    """

    source: Relation
    window: Window | Windows
    keys: tuple[Expr, ...]
    aggregates: tuple[AggregateCall, ...]

    @property
    def windows(self) -> tuple[NamedWindow, ...]:
        """Return its windows: one, or those of Windows()."""
        return self.window.windows if isinstance(self.window, Windows) else (NamedWindow(None, self.window),)


@dataclass(frozen=True, slots=True)
class Temporal:
    """The rows of its source, extended with the values of `calls`, which a TemporalRef names.

    It is directly above its one source, because these functions are computed before JOIN, WHERE and GROUP BY.
    """

    source: Relation
    alias: str
    calls: tuple[TemporalCall, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """A row for each element of `argument`, with the columns of the table function `function` under `alias`.

    `outer` keeps a row with NULLs when there is no element.
    """

    source: Relation
    function: str
    argument: Expr
    alias: str
    outer: bool
    position: TextPosition = field(default=NOWHERE, compare=False)


class JoinKind(Enum):
    INNER = "inner"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Join:
    """The pairs of rows for which all of `bounds`, `keys` and `residual` hold.

    With reference data on the right there are no bounds. Otherwise there is at least one; the time of a pair is the
    later of the two, and that of a left row without a match is its own plus the upper bound.

    Attributes:
        keys: pairs of expressions over the left and the right side that must be equal.
        residual: any other condition.
        reference: whether the right side is reference data.
    """

    left: Relation
    right: Relation
    kind: JoinKind
    bounds: tuple[TimeBound, ...]
    keys: tuple[tuple[Expr, Expr], ...]
    residual: Expr | None
    reference: bool = False
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of the sources, merged by time.

    If all columns are known, they have the same names in the same order; otherwise they are matched by name.
    """

    sources: tuple[Relation, ...]
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class MatchCall:
    """A function of the events in a match so far.

    Attributes:
        function: "first", "last", "min" or "max" of a value, or "classifier", the names of all events in order.
        variable: the pattern variable whose events it reads; None for every event.
        value: over the row of the Match's source.
    """

    function: str
    variable: str | None
    value: Expr | None
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Match:
    """MATCH_RECOGNIZE … ONE ROW PER MATCH, AFTER MATCH SKIP TO NEXT ROW.

    Each row that begins a match yields a row of `measures` under `alias`, with the time of the last row of the match.
    Definitions and measures refer to a call by a TemporalRef whose source is `alias`.

    Attributes:
        limit_ticks: the last row of a match is less than this after its first.
        definitions: for pattern variables, as `pattern` spells them, the condition that a row must meet, over the
            row and over `calls` up to and including it. A variable without a definition matches any row.
        measures: over `calls` at the end of the match.
    """

    source: Relation
    alias: str
    partition_by: tuple[Expr, ...]
    limit_ticks: int
    pattern: Pattern
    definitions: tuple[tuple[str, Expr], ...]
    calls: tuple[MatchCall, ...]
    measures: tuple[Item, ...]
    position: TextPosition = field(default=NOWHERE, compare=False)


Relation: TypeAlias = Input | StepReference | Filter | Project | Aggregate | Temporal | Apply | Join | Union | Match


@dataclass(frozen=True, slots=True)
class Output:
    """One SELECT … INTO. A name appears once."""

    name: str
    relation: Relation
    position: TextPosition = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Notice:
    """How the compiler read an ambiguous part of the query, and how to write it unambiguously."""

    position: TextPosition
    length: int
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Query:
    """A compiled script.

    Attributes:
        inputs: every different `Input` that outputs depend on, in order of mention. One name may appear with several
            aliases or with several TIMESTAMP BY.
        outputs: in the order of the text.
        lookback_ticks: a result at time T depends on no event stamped before T - lookback_ticks.
        compatibility_level: of the language.
        notices: for `lint`.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    lookback_ticks: int
    compatibility_level: str = "1.2"
    notices: tuple[Notice, ...] = field(default=(), compare=False)
