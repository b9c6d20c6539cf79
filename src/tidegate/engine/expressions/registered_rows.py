"""Registered functions that take the rows of a batch at once: scripts and models that are not Python.

Such a function has a true attribute ``by_rows``, and ``call_rows(columns, count)``: from a list of values for each
argument, as `Vector.to_list` gives them, to a value for each row, or the exception that the row failed with. An
aggregate has ``compute_groups(values, times, starts)``, which does the same for groups of rows that follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidegate.engine.expressions.registered import calls, note
from tidegate.engine.values.vectors import Failure, Kind, Reason, Vector


def call_with_rows(name: str, function: Any, args: Sequence[Vector], length: int) -> Vector:
    """Return the values of a function that takes rows; rows with a failing argument have that failure."""
    failing = np.zeros(length, dtype=np.bool_)
    for arg in args:
        failing |= arg.kinds == Kind.ERROR
    rows = np.flatnonzero(~failing)
    given = [arg.take(rows).to_list() if failing.any() else arg.to_list() for arg in args]
    results = results_of(name, function.call_rows(given, len(rows)), len(rows))
    if not failing.any():
        return results
    back = np.empty(length, dtype=np.int64)
    back[rows] = np.arange(len(rows))
    parts = [results]
    begin = len(rows)
    rest = failing
    for arg in args:
        # A row has the failure of its first argument that failed.
        where = np.flatnonzero(rest & (arg.kinds == Kind.ERROR))
        back[where] = begin + np.arange(len(where))
        parts.append(arg.take(where))
        begin += len(where)
        rest = rest & (arg.kinds != Kind.ERROR)
    return Vector.concat(parts).take(back)


def results_of(name: str, results: Sequence[Any], requests: int) -> Vector:
    """Return what calls gave as values, and count the calls and their failures."""
    counted = calls()
    counted.requests += requests
    types = set(map(type, results))
    if not any(issubclass(type_, Exception) or type_ is Failure for type_ in types):
        return Vector.of(results, types)
    values: list[Any] = []
    for result in results:
        if isinstance(result, Exception):
            note(name, result)
            result = Failure(Reason.FUNCTION_FAILED)
        counted.failed += type(result) is Failure
        values.append(result)
    return Vector.of(values)
