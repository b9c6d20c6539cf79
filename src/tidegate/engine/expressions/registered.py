"""Registered functions: Python, and what takes many rows at once (`registered_rows`).

A function ("udf.name") takes JSON values (datetimes as ISO 8601 text, NULL as None) and returns one. It must be
deterministic: it is called once for each distinct set of arguments in a batch, in any task. An exception fails only
its row. A function with a true attribute ``vectorized`` gets a column for each argument instead (`columnar`).

An aggregate ("uda.name") is a class, or any other callable that returns a new object; see `Accumulator`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tidegate.engine.values.json_lines import plain
from tidegate.engine.values.vectors import Failure, Reason, is_value

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
        counted.failed += 1
        return Failure(Reason.FUNCTION_FAILED)

    return call


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
