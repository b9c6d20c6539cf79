"""The columns of an output for Spark: declared by the caller, or derived from the query and a few of its results.

A derived schema is a promise that later rows may break. What does not fit is then an error that names the column, the
value and the way out, never a NULL or a missing row.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, types

from tidegate.connectors.model.errors import JobError, OutputError
from tidegate.connectors.outputs.arrow_tables import arrow_array, named_columns
from tidegate.connectors.outputs.shape import ColumnTypes, Shape, nothing_known, shape_of
from tidegate.connectors.outputs.values import json_text
from tidegate.engine import Kind, Program, ResultRows, Vector
from tidegate.engine.values.json_lines import plain
from tidegate.ordering import format_time
from tidegate.spark.queries.result_types import SPARK_TYPES, arrow_type, converter_to, type_of_values
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.nodes import Type

_AT_ONCE: dict[pa.DataType, Type] = {
    pa.int64(): Type.BIGINT,
    pa.float64(): Type.FLOAT,
    pa.string(): Type.NVARCHAR,
    pa.bool_(): Type.BIT,
    pa.timestamp("us", tz="UTC"): Type.DATETIME,
}
"""Types of columns that are converted at once if all values have the type that belongs to it."""

_SHOWN = 60


@dataclass(frozen=True)
class ResultSchema:
    """The columns of an output. It can be pickled, and is of use in tasks.

    Attributes:
        output: its name.
        names: of the columns.
        arrow: their types.
        shown: Spark's names of their types.
        declared: whether the caller gave the schema; then fields of a ``*`` that it does not name are left out.
        misfits: whether a row with a value that does not fit is an error or dropped.
    """

    output: str
    names: tuple[str, ...]
    arrow: pa.Schema
    shown: tuple[str, ...]
    declared: bool
    misfits: Literal["stop", "drop"] = "stop"

    @classmethod
    def of(
        cls, output: str, struct: types.StructType, *, declared: bool, misfits: Literal["stop", "drop"] = "stop"
    ) -> ResultSchema:
        """Return the columns of a struct.

        Raises:
            ValueError: a column has a type that no result can have; the message names it.
        """
        fields = []
        for field in struct.fields:
            try:
                fields.append(pa.field(field.name, arrow_type(field.dataType)))
            except ValueError as error:
                raise ValueError(f"column '{field.name}': {error}") from None
        shown = tuple(field.dataType.simpleString() for field in struct.fields)
        return cls(output, tuple(struct.names), pa.schema(fields), shown, declared, misfits)

    def batch(self, rows: ResultRows) -> pa.RecordBatch:
        """Return rows with these columns.

        Raises:
            OutputError: a value does not fit, or a derived schema lacks a column; the message says what to do.
        """
        columns = {name.lower(): vector for name, vector in named_columns(rows).items()}
        if not self.declared:
            self._check_names(columns)
        keep = np.ones(len(rows), dtype=np.bool_)
        arrays = []
        for place, name in enumerate(self.names):
            vector = columns.get(name.lower())
            arrays.append(self._array(place, Vector.nulls(len(rows)) if vector is None else vector, rows, keep))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.arrow)
        return batch if keep.all() else batch.take(pa.array(np.flatnonzero(keep)))

    @cached_property
    def _converters(self) -> list[Callable[[Any], Any]]:
        return [
            converter_to(field.type, shown, strict=not self.declared)
            for field, shown in zip(self.arrow, self.shown, strict=True)
        ]

    def _array(self, place: int, vector: Vector, rows: ResultRows, keep: np.ndarray[Any, Any]) -> pa.Array:
        """Return a column; ``keep`` becomes false for rows that are dropped because of it."""
        type_, convert = self.arrow.field(place).type, self._converters[place]
        at_once = _AT_ONCE.get(type_)
        if at_once is not None and vector.present() <= _kinds_at_once(at_once):
            return arrow_array(self.names[place], vector, at_once)[0]
        converted: list[Any] = []
        for row, value in enumerate(vector.to_list()):
            try:
                converted.append(None if value is None else convert(value))
            except ValueError as error:
                if self.misfits == "stop":
                    raise self._misfit(place, value, rows.timestamps[row], error) from None
                keep[row] = False
                converted.append(None)
        if pa.types.is_timestamp(type_):
            return pa.array(converted, pa.int64()).cast(type_)
        return pa.array(converted, type_)

    def _misfit(self, place: int, value: Any, ticks: int, error: ValueError) -> OutputError:
        text = json_text(plain(value))
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        at_most_double = self.shown[place] == "bigint"
        what = "schema= says" if self.declared else "derived from the query and its first results"
        return OutputError(
            f"output '{self.output}', column '{self.names[place]}': {error}; got {text} at "
            f"{format_time(int(ticks))}, expected {self.shown[place]} ({what}). "
            f"{self._way_out(place, 'double' if type(value) is float and at_most_double else 'string')}"
        )

    def _way_out(self, place: int | None = None, instead: str = "string") -> str:
        if self.declared:
            return "Declare another type, or CAST in the query; sql(…) also takes output_error_policy='drop'"
        columns = [
            f"{_quoted(name)} {instead if number == place else shown}"
            for number, (name, shown) in enumerate(zip(self.names, self.shown, strict=True))
        ]
        return f'Pass schema="{", ".join(columns)}" or whatever fits, or CAST in the query'

    def _check_names(self, columns: dict[str, Vector]) -> None:
        known = {name.lower() for name in self.names}
        for name, vector in columns.items():
            if name not in known and vector.present() - {Kind.NULL}:
                raise OutputError(
                    f"output '{self.output}': a result has a field '{name}', which no result of the sample had, so it "
                    f"is not among the columns. {self._way_out()}, or name the columns instead of *"
                )


def _kinds_at_once(type_: Type) -> frozenset[int]:
    return _KINDS[type_] | {Kind.NULL}


_KINDS: dict[Type, frozenset[int]] = {
    Type.BIGINT: frozenset({Kind.BIGINT}),
    Type.FLOAT: frozenset({Kind.FLOAT, Kind.BIGINT}),
    Type.NVARCHAR: frozenset({Kind.NVARCHAR}),
    Type.BIT: frozenset({Kind.BIT}),
    Type.DATETIME: frozenset({Kind.DATETIME}),
}


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"`{name}`"


# finding the schema
# ------------------------------------------------------------------------------------------------------


def declared_schema(
    spark: SparkSession,
    given: str | types.StructType,
    relation: plan.Relation,
    output: str,
    caller: str,
    misfits: Literal["stop", "drop"] = "stop",
) -> tuple[types.StructType, ResultSchema]:
    """Return the schema that a caller declares.

    Args:
        given: a struct, or its text such as ``"window_end timestamp, cars bigint"``.
        relation: the output's, whose columns are compared as far as the query names them.

    Raises:
        JobError: it is not a schema, or it does not fit the query.
    """
    struct = _struct_of(spark, given, caller)
    lowered = [name.lower() for name in struct.names]
    twice = next((name for name in struct.names if lowered.count(name.lower()) > 1), None)
    if twice is not None:
        raise JobError(f"{caller}: schema has the column '{twice}' twice (names differ in more than case)")
    shape = shape_of(relation)
    if shape is not None:
        selected = [column.name for column in shape]
        for name in struct.names:
            if name.lower() not in {one.lower() for one in selected}:
                raise JobError(
                    f"{caller}: schema has a column '{name}', which the query does not {_select(name, selected)}"
                )
        missing = [name for name in selected if name.lower() not in lowered]
        if missing:
            raise JobError(
                f"{caller}: schema lacks {', '.join(missing)}, which the query selects; add a type, or take it out of "
                "the query"
            )
    try:
        return struct, ResultSchema.of(output, struct, declared=True, misfits=misfits)
    except ValueError as error:
        raise JobError(f"{caller}: schema: {error}") from None


def _struct_of(spark: SparkSession, given: str | types.StructType, caller: str) -> types.StructType:
    if isinstance(given, types.StructType):
        return given
    if not isinstance(given, str):
        raise JobError(f"{caller}: schema is a StructType or a text such as 'a bigint, b string', got {given!r}")
    try:
        return spark.createDataFrame([], given).schema
    except Py4JError as error:
        if "char/varchar" not in str(error):
            raise
        raise JobError(f"{caller}: schema: results are not written as char or varchar; use string") from None
    except (PySparkException, ValueError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise JobError(f"{caller}: schema is not a list of columns such as 'a bigint, b string': {reason}") from None


def _select(name: str, selected: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, selected, n=1)
    return f"select; did you mean '{close[0]}'?" if close else f"select; it selects {', '.join(selected)}"


def needs_samples(relation: plan.Relation, known: ColumnTypes = nothing_known) -> bool:
    """Return whether the query alone leaves the type of a column open, or the columns themselves."""
    shape = shape_of(relation, known)
    return shape is None or any(column.type not in SPARK_TYPES for column in shape)


def derived_schema(
    program: Program,
    output: str,
    samples: Sequence[ResultRows],
    caller: str,
    known: ColumnTypes = nothing_known,
) -> tuple[types.StructType, ResultSchema]:
    """Return the schema that follows from the query, and where it leaves a type open, from some results.

    Args:
        samples: results of the output, for example of the first events.
        known: the types of columns of inputs.

    Raises:
        JobError: the query selects ``*``, and there is no result that shows what that is.
    """
    relation = next(one.relation for one in program.query.outputs if one.name == output)
    shape = shape_of(relation, known)
    struct = types.StructType([*_fields(shape, [rows for rows in samples if rows.output == output])])
    if not struct.fields:
        raise JobError(
            f"{caller}: the query selects *, and no result of the first events shows which columns that is; pass "
            "schema='a bigint, b string' or name the columns in the query"
        )
    return struct, ResultSchema.of(output, struct, declared=False)


def _fields(shape: Shape | None, samples: Sequence[ResultRows]) -> Iterator[types.StructField]:
    seen: dict[str, list[Any]] = {}
    spelled: dict[str, str] = {} if shape is None else {column.name.lower(): column.name for column in reversed(shape)}
    for rows in samples:
        for name, vector in named_columns(rows).items():
            spelled.setdefault(name.lower(), name)
            seen.setdefault(name.lower(), []).extend(vector.to_list())
    static = {} if shape is None else {column.name.lower(): column.type for column in shape}
    for key in dict.fromkeys([*(column.name.lower() for column in shape or ()), *seen]):
        known = SPARK_TYPES.get(static.get(key, Type.ANY))
        yield types.StructField(spelled[key], type_of_values(seen.get(key, ())) if known is None else known)
