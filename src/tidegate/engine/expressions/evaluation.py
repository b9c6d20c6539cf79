"""Expressions over a frame: each gives a vector of as many values as the frame has rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegate.engine.expressions import operators, registered
from tidegate.engine.expressions.frames import Frame, NamedColumns
from tidegate.engine.expressions.functions import FUNCTIONS, UNIT_FUNCTIONS, by_rows, unit_function
from tidegate.engine.expressions.registered_columns import call_with_columns
from tidegate.engine.values import conversions
from tidegate.engine.values.vectors import Int64Array, Kind, Vector
from tidegate.ordering import NO_TIME
from tidegate.saql.plan import nodes as plan

ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "divide_bigints", "modulo"})
BITWISE = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor"})
COMPARISONS = frozenset({"equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal"})
SPECIAL = frozenset(
    {
        "and",
        "or",
        "not",
        "is_null",
        "is_not_null",
        "in",
        "between",
        "case",
        "coalesce",
        "nullif",
        "record",
        "negate",
        "bitwise_not",
    }
)
METADATA_FUNCTION = "getmetadatapropertyvalue"

SCALAR_FUNCTIONS = (
    ARITHMETIC | BITWISE | COMPARISONS | SPECIAL | UNIT_FUNCTIONS | frozenset(FUNCTIONS) | {METADATA_FUNCTION}
)
"""The functions of `plan.Call` that can be evaluated."""


def evaluate(expr: plan.Expr, frame: Frame) -> Vector:
    """The value of an expression for each row; a failure is a value too (`Kind.ERROR`)."""
    match expr:
        case plan.Column(source=source, path=path):
            return frame.sources[(source or "").lower()].at(path)
        case plan.Literal(value=value):
            return Vector.constant(value, len(frame))
        case plan.Call():
            return _call(expr, frame)
        case plan.Cast(value=value, type=type_, safe=safe):
            return conversions.cast(evaluate(value, frame), type_, safe=safe)
        case plan.SystemTimestamp(source=source):
            times = frame.times if source is None else frame.side_times.get(source.lower(), frame.times)
            return _datetimes(times)
        case plan.KeyRef(index=index):
            return frame.keys[index]
        case plan.AggregateRef(index=index):
            return frame.aggregates[index]
        case plan.WindowId():
            return Vector.nulls(len(frame)) if frame.window_ids is None else frame.window_ids
        case plan.TemporalRef(source=source, index=index):
            return frame.sources[temporal_alias(source)].at((str(index),))
        case plan.Row(source=source):
            return _row(source, frame)


def _datetimes(times: Int64Array) -> Vector:
    """Times, NULL for the side of a join that has no row."""
    never = times == NO_TIME
    if not never.any():
        return Vector.datetimes(times)
    kinds = np.where(never, np.uint8(Kind.NULL), np.uint8(Kind.DATETIME))
    return Vector(kinds, ints=np.where(never, 0, times))


def temporal_alias(alias: str) -> str:
    """Under which name a frame has the values of a Temporal's calls; no alias has a blank in front."""
    return " temporal " + alias.lower()


def metadata_path(name: str) -> tuple[str, ...]:
    """Under which path the columns of an input have a metadata property; no field has such a name."""
    return ("\0metadata", name.lower())


def _row(source: str | None, frame: Frame) -> Vector:
    names: list[str | None] = []
    vectors: list[Vector] = []
    for alias, columns in frame.sources.items():
        if alias.startswith(" ") or (source is not None and alias != source.lower()):
            continue
        more_names, more_vectors = columns.spread()
        names += more_names
        vectors += more_vectors
    return NamedColumns(tuple(names), tuple(vectors)).records(len(frame))


def _call(call: plan.Call, frame: Frame) -> Vector:
    name = call.function
    if name in UNIT_FUNCTIONS:
        unit = call.args[0]
        assert isinstance(unit, plan.Literal)
        return unit_function(name, str(unit.value))([evaluate(arg, frame) for arg in call.args[1:]])
    if name == METADATA_FUNCTION:
        source, of = call.args
        assert isinstance(source, plan.Row)
        assert isinstance(of, plan.Literal)
        return frame.sources[(source.source or "").lower()].at(metadata_path(str(of.value)))
    args = [evaluate(arg, frame) for arg in call.args]
    if name in COMPARISONS:
        return operators.compare(name, args[0], args[1])
    if name in ARITHMETIC:
        return operators.arithmetic(name, args[0], args[1])
    if name in BITWISE:
        return operators.bitwise(name, args[0], args[1])
    if name in SPECIAL:
        return _special(name, args)
    if name.startswith(registered.PREFIX):
        function = registered.columnar(name)
        if function is not None and args:
            return call_with_columns(name, function, args)
        return by_rows("any", registered.caller(name), nulls=True)(args) if args else _without_arguments(name, frame)
    return FUNCTIONS[name](args)


def _without_arguments(name: str, frame: Frame) -> Vector:
    return Vector.of([registered.caller(name)()]).take(np.zeros(len(frame), dtype=np.int64))


def _special(name: str, args: Sequence[Vector]) -> Vector:
    match name:
        case "and" | "or":
            return operators.connect(name, args)
        case "not":
            return operators.negation(args[0])
        case "is_null" | "is_not_null":
            null = args[0].kinds == Kind.NULL
            result = Vector.bits(null if name == "is_null" else ~null)
            return operators.strictly(result, [_without_nulls(args[0])])
        case "in":
            return operators.connect("or", [operators.compare("equal", args[0], option) for option in args[1:]])
        case "between":
            low = operators.compare("greater_or_equal", args[0], args[1])
            return operators.connect("and", [low, operators.compare("less_or_equal", args[0], args[2])])
        case "case":
            pairs = list(zip(args[:-1:2], args[1:-1:2], strict=True))
            return operators.case(pairs, args[-1])
        case "coalesce":
            return operators.coalesce(args)
        case "nullif":
            same = operators.compare("equal", args[0], args[1])
            failed = same.kinds == Kind.ERROR
            which = np.where(failed, 2, operators.is_true(same)).astype(np.int64)
            return Vector.choose(which, [args[0], Vector.nulls(len(which)), same])
        case "record":
            names = [str(name.to_list()[0]) if len(name) else None for name in args[::2]]
            return NamedColumns(tuple(names), tuple(args[1::2])).records(len(args[0]))
        case "bitwise_not":
            return operators.bitwise_not(args[0])
        case _:
            return operators.negate(args[0])


def _without_nulls(vector: Vector) -> Vector:
    """Failures alone matter here."""
    return vector.with_kinds(np.where(vector.kinds == Kind.NULL, np.uint8(Kind.BIGINT), vector.kinds))
