"""Registered functions: Python in the place of the service's JavaScript and C# functions.

A function is given JSON values (datetimes as ISO 8601 text, NULL as None) and gives one back. It must give the same
for the same arguments: it is called once for each different set of them in a batch, in whatever task has the batch.
What it raises fails the row, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from tidegate.engine.json_lines import plain
from tidegate.engine.values import Failure, Reason, is_value

PREFIX = "udf."
Functions = Mapping[str, Callable[..., Any]]
"""By the name a query calls them, in lower case: "udf.name"."""

_NONE: Functions = MappingProxyType({})
_current: ContextVar[Functions] = ContextVar("registered functions", default=_NONE)


@contextmanager
def available(functions: Functions) -> Iterator[None]:
    """Make functions known to the expressions that are evaluated inside."""
    token = _current.set(functions)
    try:
        yield
    finally:
        _current.reset(token)


def caller(name: str) -> Callable[..., Any]:
    """A registered function as one of a row's values."""
    function = _current.get()[name]

    def call(*args: Any) -> Any:
        try:
            value = function(*map(plain, args))
        except Exception:  # Whatever a registered function raises is the row's failure, and is counted as that.
            return Failure(Reason.FUNCTION_FAILED)
        return value if is_value(value) else Failure(Reason.FUNCTION_FAILED)

    return call
