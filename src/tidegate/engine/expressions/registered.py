"""Registered functions: Python, and what takes many rows at once (`registered_rows`).

A function ("udf.name") takes JSON values (datetimes as ISO 8601 text, NULL as None) and returns one. It must be
deterministic: it is called once for each distinct set of arguments in a batch, in any task. An exception fails only
its row. A function with a true attribute ``vectorized`` gets a column for each argument instead (`columnar`).

An aggregate ("uda.name") is a class, or any other callable that returns a new object; see `Accumulator`.

Registered functions that take columns: Arrow arrays in, one out.

An argument is an Arrow array of int64, double, string (also of datetimes, as ISO 8601 text), bool, struct or list; NULL
is null. What comes back is an array (Arrow, numpy or a list) of as many values. Values of one column may be of several
types, and an array has one: the function is called once for each combination of types that occurs. Where it raises, it
is called again with half of the rows, so that in the end the rows that it cannot work on fail, and no other.

Registered functions that take the rows of a batch at once: scripts and models that are not Python.

Such a function has a true attribute ``by_rows``, and ``call_rows(columns, count)``: from a list of values for each
argument, as `Vector.to_list` gives them, to a value for each row, or the exception that the row failed with. An
aggregate has ``compute_groups(values, times, starts)``, which does the same for groups of rows that follow each other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.engine.values.json_lines import plain
from tidegate.engine.values.vectors import Failure, Int64Array, Kind, Reason, Vector, is_value

PREFIX = "udf."
AGGREGATE_PREFIX = "uda."
Functions = Mapping[str, Callable[..., Any]]
"""By the name a query calls them, in lower case: "udf.name", "uda.name"."""

_NONE: Functions = MappingProxyType({})
_current: ContextVar[Functions] = ContextVar("registered functions", default=_NONE)
_raised: ContextVar[list[str] | None] = ContextVar("what they raised", default=None)
_MOST_OF_AN_ERROR = 200


@dataclass(slots=True)
class FunctionCalls:
    """How often registered functions were called.

    A repetition counts again: how often a function is called depends on how a log is cut into batches.

    Attributes:
        requests: calls, of an aggregate those of its methods after the constructor.
        failed: the calls among them that raised an error, or returned something that is not a value.
        events: rows whose values were passed, each once for every function of the query that takes it.
    """

    requests: int = 0
    failed: int = 0
    events: int = 0

    @classmethod
    def sum(cls, parts: Iterable[FunctionCalls]) -> FunctionCalls:
        """Add up what several places counted."""
        total = cls()
        for part in parts:
            total.requests += part.requests
            total.failed += part.failed
            total.events += part.events
        return total


_calls: ContextVar[FunctionCalls | None] = ContextVar("how often they were called", default=None)


@contextmanager
def available(functions: Functions, calls: FunctionCalls | None = None) -> Iterator[None]:
    """Make functions known to the expressions that are evaluated inside; add to ``calls`` how often they are called."""
    token, raised, counted = _current.set(functions), _raised.set([]), _calls.set(calls or FunctionCalls())
    try:
        yield
    finally:
        _calls.reset(counted)
        _raised.reset(raised)
        _current.reset(token)


def note(name: str, error: Exception) -> None:
    """Remember what a function raised, the first time that one does."""
    raised = _raised.get()
    if raised is not None and not raised:
        raised.append(f"{name}: {type(error).__name__}: {error}"[:_MOST_OF_AN_ERROR])


def first_raised() -> str:
    """Return the first error that a function raised, as text for people; empty if there was none."""
    return next(iter(_raised.get() or ()), "")


def calls() -> FunctionCalls:
    """Return where the calls of registered functions are counted at present."""
    return _calls.get() or FunctionCalls()


def caller(name: str) -> Callable[..., Any]:
    """Return a registered function as a function of a row's values."""
    function, counted = _current.get()[name], calls()

    def call(*args: Any) -> Any:
        counted.requests += 1
        try:
            value = function(*map(plain, args))
        except Exception as error:  # Whatever the function raises is the row's failure, and is counted.
            note(name, error)
            counted.failed += 1
            return Failure(Reason.FUNCTION_FAILED)
        if is_value(value):
            return value
        note(name, _refused(value))
        counted.failed += 1
        return Failure(Reason.FUNCTION_FAILED)

    return call


def _refused(value: Any) -> TypeError:
    """Return what is wrong with something that a function returned, which is not a value."""
    kind = type(value)
    if kind is str:
        shown = "text with half of a surrogate pair"
    elif kind in (int, float):
        shown = f"{kind.__name__} out of range, or not a number"
    elif kind in (dict, list):
        shown = f"a {kind.__name__} with something else inside, or nested too deeply"
    else:
        shown = f"an object of type {kind.__name__}"
    return TypeError(f"it returned {shown}, expected None, bool, int, float, str, or dict or list of them")


def columnar(name: str) -> Callable[..., Any] | None:
    """Return a registered function that takes columns; None if it takes values."""
    function = _current.get()[name]
    return function if getattr(function, "vectorized", False) else None


def taking_rows(name: str) -> Any:
    """Return a registered function or aggregate that takes many rows at once (`registered_rows`); None for others."""
    function = _current.get()[name]
    return function if getattr(function, "by_rows", False) else None


# Aggregates -----------------------------------------------------------------------------------------------------------


class Accumulator:
    """An object of a registered aggregate, as the service's JavaScript ones are made.

    It has ``init()`` (or all of it in its constructor), ``accumulate(value, timestamp)`` and ``compute_result()``, the
    last also under the service's name, ``computeResult``. Values are those that functions are given; ``timestamp`` is
    the row's System.Timestamp as text, and may be left out. Rows come in the order of time and then of arrival. An
    object with ``merge(other)`` is kept instead of its rows: it takes up what another one of its class has
    accumulated, in any order, and neither may the result depend on that order nor may it change the other. The
    service's ``deaccumulate`` and ``deaccumulateState`` are not called: a window is accumulated from its own rows, so
    that a result never depends on what was in the window before it.
    """

    __slots__ = ("_accumulate", "_timed", "failed", "state")

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.state = factory()
        init = getattr(self.state, "init", None)
        if init is not None:
            init()
        self.failed = False
        self._accumulate: Callable[..., Any] = self.state.accumulate
        self._timed = _takes_two(self._accumulate)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (self.state, self.failed))

    @property
    def merges(self) -> bool:
        """Return whether it is kept instead of rows."""
        return callable(getattr(self.state, "merge", None))

    def accumulate(self, value: Any, timestamp: Any) -> bool:
        """Add a row, and return whether it was passed to the aggregate: after a failure none is."""
        if self.failed:
            return False
        try:
            if self._timed:
                self._accumulate(plain(value), plain(timestamp))
            else:
                self._accumulate(plain(value))
        except Exception as error:  # An aggregate that raises fails its group, which is counted.
            note("accumulate", error)
            calls().failed += 1
            self.failed = True
        return True

    def merge(self, other: Accumulator) -> None:
        """Merge another object's rows."""
        self.failed |= other.failed
        if self.failed:
            return
        counted = calls()
        counted.requests += 1
        try:
            self.state.merge(other.state)
        except Exception as error:  # As above.
            note("merge", error)
            counted.failed += 1
            self.failed = True

    def result(self) -> Any:
        """Return the result, a Failure if anything failed."""
        if self.failed:
            return Failure(Reason.FUNCTION_FAILED)
        counted = calls()
        counted.requests += 1
        try:
            value = _result_method(self.state)()
        except Exception as error:  # As above.
            note("compute_result", error)
            counted.failed += 1
            return Failure(Reason.FUNCTION_FAILED)
        if is_value(value):
            return value
        note("compute_result", _refused(value))
        counted.failed += 1
        return Failure(Reason.FUNCTION_FAILED)


def accumulator(name: str) -> Accumulator:
    """Return a new object of a registered aggregate."""
    return Accumulator(_current.get()[name])


def refusal(name: str, function: Callable[..., Any]) -> str | None:
    """Return why something cannot be registered under a name; None if it can be."""
    if not callable(function):
        return f"{name} is not a function"
    if not name.lower().startswith(AGGREGATE_PREFIX) or getattr(function, "by_rows", False):
        return None
    try:
        state = function()
    except Exception as error:  # Whatever it raises goes into the message.
        return f"{name} cannot be made: {type(error).__name__}: {error}"
    if not callable(getattr(state, "accumulate", None)):
        return f"{name} has no method accumulate(value, timestamp)"
    if _result_method(state) is None:
        return f"{name} has no method compute_result()"
    return None


def _restored(state: Any, failed: bool) -> Accumulator:
    restored = Accumulator.__new__(Accumulator)
    restored.state = state
    restored.failed = failed
    restored._accumulate = state.accumulate
    restored._timed = _takes_two(state.accumulate)
    return restored


def _result_method(state: Any) -> Any:
    method = getattr(state, "compute_result", None) or getattr(state, "computeResult", None)
    return method if callable(method) else None


def _takes_two(method: Callable[..., Any]) -> bool:
    try:
        inspect.signature(method).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        # A function that is not written in Python may not tell; then both are passed, as the service does.
        return True
    return True


_PLAIN_KINDS = {Kind.BIGINT: pa.int64(), Kind.FLOAT: pa.float64(), Kind.BIT: pa.bool_()}


def call_with_columns(name: str, function: Callable[..., Any], args: Sequence[Vector]) -> Vector:
    """The values of a function that takes columns; rows with a failing argument have that failure."""
    length = len(args[0])
    kinds = [_filled(arg) for arg in args]
    failing = np.zeros(length, dtype=np.bool_)
    for arg in args:
        failing |= arg.kinds == Kind.ERROR
    codes = np.zeros(length, dtype=np.int64)
    for each in kinds:
        codes = codes * len(Kind) + each
    parts, places = [], []
    for code in np.unique(codes[~failing]).tolist():
        where = np.flatnonzero((codes == code) & ~failing)
        parts.append(
            _called(name, function, [arg.take(where) for arg in args], [int(each[where[0]]) for each in kinds])
        )
        places.append(where)
    if failing.any():
        where = np.flatnonzero(failing)
        failures = [next(value for value in row if isinstance(value, Failure)) for row in _rows(args, where)]
        parts.append(Vector.of(failures))
        places.append(where)
    return Vector.scattered(parts, places, length)


def _rows(args: Sequence[Vector], where: Int64Array) -> list[tuple[Any, ...]]:
    return list(zip(*(arg.take(where).to_list() for arg in args), strict=True))


def _filled(arg: Vector) -> Int64Array:
    """The kind of each value; a NULL goes with the first other kind there is."""
    others = sorted(arg.present() - {Kind.NULL, Kind.ERROR})
    return np.where(arg.kinds == Kind.NULL, others[0] if others else Kind.NULL, arg.kinds).astype(np.int64)


def _called(name: str, function: Callable[..., Any], args: Sequence[Vector], kinds: Sequence[int]) -> Vector:
    counted = calls()
    counted.requests += 1
    try:
        arrays = [_array(arg, kind) for arg, kind in zip(args, kinds, strict=True)]
        result = _vector(function(*arrays), len(args[0]))
    except Exception as error:  # Whatever the function raises is the failure of the rows it cannot handle.
        counted.failed += 1
        length = len(args[0])
        if length == 1:
            note(name, error)
            return Vector.errors(Reason.FUNCTION_FAILED, 1)
        halves = (np.arange(length // 2), np.arange(length // 2, length))
        return Vector.concat([_called(name, function, [arg.take(half) for arg in args], kinds) for half in halves])
    counted.failed += Kind.ERROR in result.present()
    return result


def _array(arg: Vector, kind: int) -> Any:
    if kind in _PLAIN_KINDS and arg.uniform == kind:
        values: Any = arg.float_values() if kind == Kind.FLOAT else arg.int_values()
        return pa.array(values.astype(np.bool_) if kind == Kind.BIT else values, _PLAIN_KINDS[Kind(kind)])
    values = [None if value is None else plain(value) for value in arg.to_list()]
    type_ = pa.string() if kind in (Kind.NVARCHAR, Kind.DATETIME) else _PLAIN_KINDS.get(Kind(kind))
    return pa.array(values, type_)


def _vector(result: Any, length: int) -> Vector:
    """What a function gave as values; raises TypeError or ValueError for what is no column of that length."""
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        result = result.tolist() if isinstance(result, np.ndarray) else list(result)
    if len(result) != length:
        raise ValueError("as many values must come out as went in")
    values = result.to_pylist() if isinstance(result, pa.Array) else result
    return Vector.of([value if is_value(value) else Failure(Reason.FUNCTION_FAILED) for value in values])


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
    parts, places = [results], [rows]
    for arg in args:
        # A row has the failure of its first argument that failed.
        places.append(np.flatnonzero(failing & (arg.kinds == Kind.ERROR)))
        parts.append(arg.take(places[-1]))
        failing &= arg.kinds != Kind.ERROR
    return Vector.scattered(parts, places, length)


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
