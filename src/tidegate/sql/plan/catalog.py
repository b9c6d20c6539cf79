"""What the functions, operators and windows of the language are, as far as compiling a query needs to know.

Each is declared once, beside its implementation in the engine: the declaration is a `ScalarFunction`, a
`TableFunction`, an `AggregateSignature`, an `AnalyticSignature` or a `Window` that knows how it is computed, too. The
compiler is handed a `Catalog` of them, so that it neither imports the engine nor keeps a table of its own, and what is
in no catalog does not compile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tidegate.sql.plan import types
from tidegate.sql.plan.nodes import Type, Window
from tidegate.sql.plan.signatures import AggregateSignature, AnalyticSignature, ArgumentKind, Signature

CLAUSES = (
    "WITH",
    "WHERE",
    "SELECT *",
    "record.*",
    "UNION",
    "TIMESTAMP BY",
    "TIMESTAMP BY OVER",
    "PARTITION BY",
    "CREATE TABLE",
    "JOIN",
    "reference JOIN",
    "APPLY",
    "DISTINCT",
    "CAST",
    "TRY_CAST",
    "CASE",
    "LIKE",
    "IN",
    "BETWEEN",
    "IS NULL",
    "arithmetic",
    "bitwise operators",
    "whole rows",
    "MATCH_RECOGNIZE",
)


AS_ORDERED = "as_ordered"
"""A function that only plans contain: a value of a type that the query does not tell, as it is put in order."""

WIDENED = "widened"
"""A function that only plans contain: a number as one of the type that a text names, anything else unchanged."""

ResultRule = Callable[[Sequence[Type | None]], Type]
"""The type of a result from those of the arguments, None for one that is the constant NULL."""


class Form(Enum):
    """How a query writes a function."""

    CALL = "call"
    """NAME(arguments)"""
    OPERATOR = "operator"
    """With signs or words of its own, such as + or BETWEEN."""
    INTERNAL = "internal"
    """Not at all: only plans contain it."""


@dataclass(frozen=True, slots=True)
class Example:
    """A call, and its result as JSON prints it."""

    call: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarFunction:
    """A function of one row, or an operator.

    Attributes:
        spelling: its name as the documentation spells it. In plans it is written in lower case.
        group: the heading under which the documentation lists it.
        summary: what it does, in a sentence.
        rule: the type of the result, where it follows from those of the arguments.
        nulls: when it is NULL.
        fails: when it fails the row; empty if never.
        example: a call whose result is tested.
        form: how a query writes it.
    """

    spelling: str
    signature: Signature
    group: str
    summary: str
    rule: ResultRule | None = None
    nulls: str = "an argument is NULL"
    fails: str = ""
    example: Example | None = None
    form: Form = Form.CALL

    @property
    def name(self) -> str:
        """Its name in plans."""
        return self.spelling.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFunction:
    """A function that APPLY takes: a row for each element of its argument.

    Attributes:
        columns: the names of the two columns, and their types.
        aliases: other names that a query may write.
    """

    spelling: str
    argument: ArgumentKind
    columns: tuple[tuple[str, Type], tuple[str, Type]]
    summary: str
    example: Example
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in plans."""
        return self.spelling.lower()


REGISTERED = "uda"
"""The aggregate that stands for all registered ones, `uda.<name>`."""

WINDOWS = "Windows"
"""The function of GROUP BY that computes several windows at once."""

_OTHERS = ("CAST", "TRY_CAST", "System.Timestamp", "System.Window")


@dataclass(frozen=True, slots=True)
class Catalog:
    """The functions and windows there are, by the names of their calls in lower case.

    Attributes:
        aggregates: by name; registered ones are all `REGISTERED`.
        analytics: functions of the rows before that are no aggregates, by name.
        windows: by each name that a query may write.
        snapshot: the window of GROUP BY System.Timestamp().
    """

    scalars: Mapping[str, ScalarFunction]
    tables: Mapping[str, TableFunction]
    aggregates: Mapping[str, AggregateSignature]
    analytics: Mapping[str, AnalyticSignature]
    windows: Mapping[str, type[Window]]
    snapshot: type[Window]

    def scalar(self, name: str) -> ScalarFunction | None:
        """Return the function that a query calls by this name, if there is one."""
        found = self.scalars.get(name)
        return found if found is not None and found.form is Form.CALL else None

    def table(self, name: str) -> TableFunction | None:
        """Return the function that APPLY can take by this name, if there is one."""
        found = self.tables.get(name)
        return found or next((each for each in self.tables.values() if name in map(str.lower, each.aliases)), None)

    def aggregate(self, name: str) -> AggregateSignature | None:
        """Return the aggregate that a call names, if there is one."""
        prefix, _, rest = name.partition(".")
        if rest:
            return self.aggregates[REGISTERED] if prefix == REGISTERED else None
        return self.aggregates.get(name) if name != REGISTERED else None

    def is_window(self, name: str) -> bool:
        """Return whether a function of GROUP BY is a window, or computes several."""
        return name in self.windows or name == WINDOWS.lower()

    def has(self, name: str) -> bool:
        """Return whether a function of any kind has this name."""
        known = (self.scalar(name), self.table(name), self.aggregates.get(name), self.analytics.get(name))
        return name != REGISTERED and (any(each is not None for each in known) or self.is_window(name))

    def spelling(self, name: str) -> str:
        """Return a function's name as messages write it."""
        lowered = name.lower()
        known = (
            self.scalar(lowered) or self.table(lowered) or self.aggregates.get(lowered) or self.analytics.get(lowered)
        )
        if known is not None:
            return known.spelling
        if self.is_window(lowered):
            return self.windows[lowered].names[0] if lowered in self.windows else WINDOWS
        return name if "." in name else name.upper()

    def every_name(self) -> list[str]:
        """Return the names of all functions as messages write them, for suggestions."""
        scalars = [each.spelling for each in self.scalars.values() if each.form is Form.CALL]
        tables = [each.spelling for each in self.tables.values()]
        aggregates = [each.spelling for name, each in self.aggregates.items() if name != REGISTERED]
        analytics = [each.spelling for each in self.analytics.values()]
        windows = dict.fromkeys(kind.names[0] for kind in self.windows.values())
        return [*scalars, *tables, *aggregates, *analytics, *windows, WINDOWS, *_OTHERS]


# Result types that follow from those of the arguments -----------------------------------------------------------------


def number_type(given: Sequence[Type | None]) -> Type:
    """Return the type of the first argument if it is a number's."""
    return given[0] if given and given[0] in (Type.BIGINT, Type.FLOAT) else Type.ANY


def first_type(given: Sequence[Type | None]) -> Type:
    """Return the type of the first argument."""
    return (given[0] if given else None) or Type.ANY


def common_type(given: Sequence[Type | None]) -> Type:
    """Return the type of all arguments that are not the constant NULL, if they have the same."""
    return types.common([type_ for type_ in given if type_ is not None])


def choice_type(given: Sequence[Type | None]) -> Type:
    """Return the type of a CASE, whose arguments are conditions and values in turn."""
    return types.highest([type_ for type_ in (*given[1:-1:2], given[-1]) if type_ is not None])


def arithmetic_type(sign: str) -> ResultRule:
    """Return the rule for an operator between two numbers."""

    def rule(given: Sequence[Type | None]) -> Type:
        return types.arithmetic(sign, given[0] or Type.ANY, given[1] or Type.ANY)[0]

    return rule
