"""Evaluate expressions over a frame: the result is a vector with a value for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np

from tidegate.engine.expressions import registered
from tidegate.engine.expressions.frames import Frame, NamedColumns
from tidegate.engine.expressions.registered import call_with_columns, call_with_rows
from tidegate.engine.functions import dates, geography, logic, numbers, records, text
from tidegate.engine.functions.declarations import SCALARS, TABLES, OfColumn, OverColumns, WithUnit, over_rows
from tidegate.engine.values import conversions
from tidegate.engine.values.budget import within_text_limit
from tidegate.engine.values.vectors import Int64Array, Kind, Vector
from tidegate.extensions import load_group
from tidegate.ordering import NO_TIME
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.signatures import ArgumentKind, Signature

__all__ = ["MODULES", "SCALARS", "TABLES"]

MODULES = (text, dates, numbers, logic, records, geography)
"""The modules with declarations, beside those that entry points name."""

load_group("tidegate.functions")


_ANY_VALUES = Signature((ArgumentKind.ANY,), 1, None)


def evaluate(expr: plan.Expr, frame: Frame) -> Vector:
    """Return the value of an expression for each row. A failure is a value too (`Kind.ERROR`)."""
    match expr:
        case plan.Column(source=source, path=path):
            return frame.sources[(source or "").lower()].at(path)
        case plan.Literal(value=value):
            return Vector.constant(value, len(frame))
        case plan.Call():
            return _call(expr, frame)
        case plan.Cast(value=value, type=type_, safe=safe):
            return within_text_limit(conversions.cast(evaluate(value, frame), type_, safe=safe))
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
    """Return times, NULL for the side of a join that has no row."""
    never = times == NO_TIME
    if not never.any():
        return Vector.datetimes(times)
    kinds = np.where(never, np.uint8(Kind.NULL), np.uint8(Kind.DATETIME))
    return Vector(kinds, ints=np.where(never, 0, times))


def temporal_alias(alias: str) -> str:
    """Return the name under which a frame has the values of a Temporal's calls; no alias begins with a blank."""
    return " temporal " + alias.lower()


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
    if call.function.startswith(registered.PREFIX):
        return within_text_limit(_registered(call, frame))
    implementation = SCALARS[call.function].implementation
    match implementation:
        case OverColumns(apply=apply):
            return within_text_limit(apply([evaluate(arg, frame) for arg in call.args]))
        case WithUnit(of_unit=of_unit):
            unit = call.args[0]
            assert isinstance(unit, plan.Literal)
            return within_text_limit(of_unit(str(unit.value))([evaluate(arg, frame) for arg in call.args[1:]]))
        case OfColumn(path=path):
            source, name = call.args
            assert isinstance(source, plan.Row)
            assert isinstance(name, plan.Literal)
            return frame.sources[(source.source or "").lower()].at(path(str(name.value)))
        case _:
            assert_never(implementation)


def _registered(call: plan.Call, frame: Frame) -> Vector:
    name = call.function
    by_rows = registered.taking_rows(name)
    if not call.args:
        registered.calls().events += len(frame)
        if by_rows is not None:
            return call_with_rows(name, by_rows, [], 1).take(np.zeros(len(frame), dtype=np.int64))
        return Vector.of([registered.caller(name)()]).take(np.zeros(len(frame), dtype=np.int64))
    args = [evaluate(arg, frame) for arg in call.args]
    registered.calls().events += len(frame) - _rows_with_failures(args)
    if by_rows is not None:
        return call_with_rows(name, by_rows, args, len(frame))
    function = registered.columnar(name)
    if function is not None:
        return call_with_columns(name, function, args)
    return over_rows(_ANY_VALUES, registered.caller(name), nulls=True)(args)


def _rows_with_failures(args: Sequence[Vector]) -> int:
    failing = [arg.kinds == Kind.ERROR for arg in args if Kind.ERROR in arg.present()]
    return int(np.count_nonzero(np.logical_or.reduce(failing))) if failing else 0
