"""How a function of the language is declared: once, above the Python function that computes it.

    @_TEXT.by_rows("LEFT", "text text, count integer", Type.NVARCHAR, fails="count is negative", example=…)
    def left(text: str, count: int) -> str | Failure: …

The first sentence of the docstring documents it. The compiler, the type checker, the evaluator and the documentation
read the declaration; nothing else has to know the function. `catalog` imports the modules that contain declarations.

An argument converts as its kind says before the function sees it: text, number, integer and datetime convert where
they can, records and arrays are taken as they are. A function that can tell the values of one row is computed once for
each distinct set of arguments in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from tidegate.engine.functions.operators import strictly
from tidegate.engine.values.budget import is_too_much, repeated
from tidegate.engine.values.conversions import to_datetimes, to_integers, to_numbers, to_texts
from tidegate.engine.values.grouping import group
from tidegate.engine.values.vectors import Failure, Kind, Reason, Vector
from tidegate.sql.plan.catalog import Example, Form, ResultRule, ScalarFunction, TableFunction
from tidegate.sql.plan.nodes import Type
from tidegate.sql.plan.signatures import ArgumentKind, Signature, read_signature

Columns: TypeAlias = Callable[[Sequence[Vector]], Vector]
"""Computes a result for each row from one vector per argument."""

Convert = Callable[[Vector], Vector]
ByRow = TypeVar("ByRow", bound=Callable[..., Any])
ByColumn = TypeVar("ByColumn", bound=Callable[..., Vector])
OfUnit = TypeVar("OfUnit", bound=Callable[..., Vector])
OfSource = TypeVar("OfSource", bound=Callable[[str], tuple[str, ...]])
Elements = TypeVar("Elements", bound=Callable[[Any], Iterator[tuple[object, object]]])


@dataclass(frozen=True, slots=True)
class OverColumns:
    """Computed from the arguments alone."""

    apply: Columns


@dataclass(frozen=True, slots=True)
class WithUnit:
    """Computed from the date part that is the first argument, and from the other arguments."""

    of_unit: Callable[[str], Columns]


@dataclass(frozen=True, slots=True)
class OfColumn:
    """Read from a column of the source that is the first argument; the second, a constant, says which."""

    path: Callable[[str], tuple[str, ...]]


Implementation: TypeAlias = OverColumns | WithUnit | OfColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredScalar(ScalarFunction):
    """A function of one row, and how it is computed."""

    implementation: Implementation


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTable(TableFunction):
    """A function that APPLY takes, and the rows it makes of one value."""

    kind: Kind
    elements: Callable[[Any], Iterator[tuple[object, object]]]


SCALARS: dict[str, DeclaredScalar] = {}
TABLES: dict[str, DeclaredTable] = {}


@dataclass(frozen=True, slots=True)
class FunctionGroup:
    """The functions under one heading of the documentation."""

    title: str

    def by_rows(
        self,
        spelling: str,
        arguments: str,
        result: Type = Type.ANY,
        *,
        example: tuple[str, str] | None = None,
        fails: str = "",
        rule: ResultRule | None = None,
        nulls: str | None = None,
        takes_nulls: bool = False,
        form: Form = Form.CALL,
        grows: bool = False,
    ) -> Callable[[ByRow], ByRow]:
        """Declare a function of the values of one row.

        Args:
            spelling: its name.
            arguments: see `read_signature`.
            result: the type of its results.
            example: a call and its result as JSON prints it.
            fails: when it returns a `Failure`.
            rule: the type of its results, if it follows from those of the arguments.
            nulls: when it is NULL, beside "an argument is NULL".
            takes_nulls: whether it is called with None for NULL, rather than being NULL itself.
            form: how a query writes it; a call needs an example.
            grows: whether its results may be much larger than its arguments.
        """

        def declare(function: ByRow) -> ByRow:
            signature = read_signature(arguments, result)
            apply = over_rows(signature, function, nulls=takes_nulls, grows=grows)
            self._add(spelling, signature, function.__doc__, OverColumns(apply), rule, nulls, fails, example, form)
            return function

        return declare

    def by_columns(
        self,
        spelling: str,
        arguments: str,
        result: Type = Type.ANY,
        *,
        example: tuple[str, str],
        fails: str = "",
        rule: ResultRule | None = None,
    ) -> Callable[[ByColumn], ByColumn]:
        """Declare a function of whole columns; what it returns where an argument is NULL or failed does not matter."""

        def declare(function: ByColumn) -> ByColumn:
            signature = read_signature(arguments, result)
            apply = over_columns(signature, function)
            self._add(spelling, signature, function.__doc__, OverColumns(apply), rule, None, fails, example)
            return function

        return declare

    def by_whole_columns(
        self,
        spelling: str,
        arguments: str,
        result: Type = Type.ANY,
        *,
        example: tuple[str, str] | None = None,
        nulls: str | None = None,
        fails: str = "",
        rule: ResultRule | None = None,
        form: Form = Form.CALL,
    ) -> Callable[[ByColumn], ByColumn]:
        """Declare a function of whole columns that deals with NULLs, failures and conversions itself."""

        def declare(function: ByColumn) -> ByColumn:
            signature = read_signature(arguments, result)
            apply = OverColumns(lambda args: function(*args))
            self._add(spelling, signature, function.__doc__, apply, rule, nulls, fails, example, form)
            return function

        return declare

    def of_unit(
        self, spelling: str, arguments: str, result: Type, *, example: tuple[str, str], fails: str = ""
    ) -> Callable[[OfUnit], OfUnit]:
        """Declare a function whose first argument is a date part, and whose others are columns."""

        def declare(function: OfUnit) -> OfUnit:
            signature = read_signature(arguments, result)
            rest = Signature(signature.kinds[1:], signature.least - 1, signature.least - 1)

            def of_unit(unit: str) -> Columns:
                return over_columns(rest, lambda *args: function(unit, *args))

            self._add(spelling, signature, function.__doc__, WithUnit(of_unit), None, None, fails, example)
            return function

        return declare

    def of_source(
        self, spelling: str, arguments: str, *, nulls: str, example: tuple[str, str]
    ) -> Callable[[OfSource], OfSource]:
        """Declare a function of a source of the FROM and a constant: from these to the path of a column."""

        def declare(function: OfSource) -> OfSource:
            signature = read_signature(arguments)
            self._add(spelling, signature, function.__doc__, OfColumn(function), None, nulls, "", example)
            return function

        return declare

    def _add(
        self,
        spelling: str,
        signature: Signature,
        doc: str | None,
        implementation: Implementation,
        rule: ResultRule | None,
        nulls: str | None,
        fails: str,
        example: tuple[str, str] | None,
        form: Form = Form.CALL,
    ) -> None:
        declared = DeclaredScalar(
            spelling=spelling,
            signature=signature,
            group=self.title,
            summary=first_line(doc),
            rule=rule,
            nulls="an argument is NULL" if nulls is None else nulls,
            fails=fails,
            example=None if example is None else Example(*example),
            form=form,
            implementation=implementation,
        )
        if form is Form.CALL and example is None:
            raise ValueError(f"the function {spelling} is declared without an example")
        if declared.name in SCALARS:
            raise ValueError(f"the function {spelling} is declared twice")
        SCALARS[declared.name] = declared


def applied(
    spelling: str,
    argument: ArgumentKind,
    kind: Kind,
    columns: tuple[tuple[str, Type], tuple[str, Type]],
    *,
    example: tuple[str, str],
    aliases: tuple[str, ...] = (),
) -> Callable[[Elements], Elements]:
    """Declare a function that APPLY takes: from a value of a kind to the two columns of each of its elements."""

    def declare(function: Elements) -> Elements:
        TABLES[spelling.lower()] = DeclaredTable(
            spelling=spelling,
            argument=argument,
            columns=columns,
            summary=first_line(function.__doc__),
            example=Example(*example),
            aliases=aliases,
            kind=kind,
            elements=function,
        )
        return function

    return declare


def first_line(doc: str | None) -> str:
    """Return the first sentence of a docstring, as the documentation shows it."""
    return " ".join((doc or "").partition("\n\n")[0].split()).replace("``", "`")


# From functions of values to functions of columns ---------------------------------------------------------------------


def nested_only(kind: Kind) -> Convert:
    """Return a conversion to records or arrays alone: any other value that is not NULL fails."""

    def only(vector: Vector) -> Vector:
        wrong = ~np.isin(vector.kinds, (Kind.NULL, Kind.ERROR, kind))
        return vector.failing(wrong, Reason.OPERAND_TYPE)

    return only


_CONVERT: dict[ArgumentKind, Convert] = {
    ArgumentKind.TEXT: to_texts,
    ArgumentKind.AS_TEXT: to_texts,
    ArgumentKind.NAME: to_texts,
    ArgumentKind.NUMBER: to_numbers,
    ArgumentKind.INTEGER: to_integers,
    ArgumentKind.DATETIME: to_datetimes,
    ArgumentKind.RECORD: nested_only(Kind.RECORD),
    ArgumentKind.ARRAY: nested_only(Kind.ARRAY),
}
"""The kinds whose values convert; those of the others are taken as they are."""


def _converted(signature: Signature, args: Sequence[Vector]) -> list[Vector]:
    converts = (_CONVERT.get(signature.kind(index)) for index in range(len(args)))
    return [arg if convert is None else convert(arg) for convert, arg in zip(converts, args, strict=True)]


def over_columns(signature: Signature, function: Callable[..., Vector]) -> Columns:
    """Return a function of whole columns as one that is NULL or fails where an argument does."""

    def apply(args: Sequence[Vector]) -> Vector:
        converted = _converted(signature, args)
        return strictly(function(*converted), converted)

    return apply


def over_rows(
    signature: Signature, function: Callable[..., Any], *, nulls: bool = False, grows: bool = False
) -> Columns:
    """Return a function of one row's values as one of columns; None is NULL, passed on where it takes ``nulls``."""

    def apply(args: Sequence[Vector]) -> Vector:
        converted = _converted(signature, args)
        length = len(converted[0])
        usable = np.ones(length, dtype=np.bool_)
        for arg in converted:
            usable &= arg.kinds != Kind.ERROR
            if not nulls:
                usable &= arg.kinds != Kind.NULL
        rows = np.flatnonzero(usable)
        given = [arg.take(rows) for arg in converted] if len(rows) < length else converted
        groups = group(len(rows), given)
        distinct = [arg.take(groups.firsts).to_list() for arg in given]
        rows_of_values = zip(*distinct, strict=True)
        found = _bounded(function, rows_of_values) if grows else [function(*values) for values in rows_of_values]
        results = repeated(Vector.of(found), groups.codes)
        if len(rows) == length:
            return results
        where = np.full(length, len(rows), dtype=np.int64)
        where[rows] = np.arange(len(rows))
        spread = Vector.concat([results, Vector.nulls(1)]).take(where)
        return strictly(spread, [arg.with_kinds(_failures_only(arg)) for arg in converted] if nulls else converted)

    return apply


def _bounded(function: Callable[..., Any], rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Call a function whose results may be much larger than its arguments, until they are too much together."""
    results: list[Any] = []
    size = 0
    for values in rows:
        results.append(result := function(*values))
        if type(result) is str:
            size += len(result)
            if is_too_much(size, so_far=True):
                return [Failure(Reason.LIMIT)] * (len(results) + sum(1 for _ in rows))
    return results


def _failures_only(vector: Vector) -> Any:
    return np.where(vector.kinds == Kind.ERROR, np.uint8(Kind.ERROR), np.uint8(Kind.BIGINT))
