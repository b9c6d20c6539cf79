"""Functions and aggregates in JavaScript, with the service's conversions of types.

https://learn.microsoft.com/azure/stream-analytics/stream-analytics-javascript-user-defined-functions: numbers are
Number, datetimes Date (to the millisecond), records and arrays objects and arrays, NULL null. Of what a function
returns, a whole Number is a bigint if it fits into one, any other a float; undefined is NULL. Functions, symbols,
BigInts, errors, promises and numbers that are not finite are no values, and fail the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from tidegate.engine.values.vectors import Datetime, Failure, Reason
from tidegate.job.functions.isolate import FunctionScript, Piece, ScriptError, check_script, run
from tidegate.ordering import TICKS_PER_MILLISECOND
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS

_DATE = "\0date"
_encoder = msgspec.json.Encoder(enc_hook=lambda value: {_DATE: value // TICKS_PER_MILLISECOND})


@dataclass(frozen=True, slots=True)
class JavaScriptFunction:
    """The function ``main`` of a script; it is called for all rows of a batch at once.

    Attributes:
        source: the script's text.
    """

    source: str
    by_rows: ClassVar[bool] = True

    def check(self) -> None:
        """Load the script.

        Raises:
            ScriptError: it cannot be used.
        """
        check_script(self._script)

    def __call__(self, *args: Any) -> Any:
        """Call it for one row.

        Raises:
            ScriptError: it failed.
        """
        (value,) = self.call_rows([[arg] for arg in args]) if args else self.call_rows([], 1)
        if isinstance(value, Exception):
            raise value
        return value

    def call_rows(self, columns: Sequence[Sequence[Any]], count: int | None = None) -> list[Any]:
        """Return its value for each row, or the exception that the row failed with."""
        rows = len(columns[0]) if count is None else count
        dates = [index for index, column in enumerate(columns) if _only_dates(column)]
        given = [_milliseconds(column) if index in dates else column for index, column in enumerate(columns)]
        nested = any(not {int, float, str, bool, type(None)}.issuperset(map(type, column)) for column in given)

        def encode(start: int, end: int) -> str:
            parts = [column[start:end] for column in given]
            return _request({"columns": parts, "dates": dates, "nested": nested, "count": end - start})

        return _results(run(self._script, rows, encode))

    def identity(self) -> tuple[str, ...]:
        """Return what results depend on."""
        return ("javascript", self.source)

    @property
    def _script(self) -> FunctionScript:
        return FunctionScript(self.source, aggregate=False)


@dataclass(frozen=True, slots=True)
class JavaScriptAggregate:
    """The aggregate of a script: ``new main()`` has `init`, `accumulate(value, timestamp)` and `computeResult`.

    The rows of a group are kept and accumulated once it is complete, so `deaccumulate` is not needed: see
    `engine.expressions.registered.Accumulator`.
    """

    source: str
    by_rows: ClassVar[bool] = True

    def check(self) -> None:
        """Load the script, and make an object.

        Raises:
            ScriptError: it cannot be used.
        """
        check_script(self._script)

    def __call__(self) -> Any:
        raise ScriptError("an aggregate in JavaScript is computed group by group")

    def compute_groups(self, values: Sequence[Any], times: Sequence[int], starts: Sequence[int]) -> list[Any]:
        """Return the result of each group, or the exception that it failed with.

        Args:
            values, times: of the rows, in the order of the groups; times are in ticks.
            starts: where each group begins, and where the last one ends.
        """
        nested = not {int, float, str, bool, type(None)}.issuperset(map(type, values))
        at = [ticks // TICKS_PER_MILLISECOND for ticks in times]

        def encode(start: int, end: int) -> str:
            first, last = starts[start], starts[end]
            content = {
                "columns": [values[first:last], at[first:last]],
                "starts": [begin - first for begin in starts[start : end + 1]],
                "dates": [1],
                "nested": nested,
                "count": end - start,
            }
            return _request(content)

        return _results(run(self._script, len(starts) - 1, encode))

    def identity(self) -> tuple[str, ...]:
        """Return what results depend on."""
        return ("javascript aggregate", self.source)

    @property
    def _script(self) -> FunctionScript:
        return FunctionScript(self.source, aggregate=True)


def _only_dates(column: Sequence[Any]) -> bool:
    return set(map(type, column)) <= {Datetime, type(None)} and any(value is not None for value in column)


def _milliseconds(column: Sequence[Any]) -> list[int | None]:
    return [None if value is None else value // TICKS_PER_MILLISECOND for value in column]


def _request(content: dict[str, Any]) -> str:
    return _encoder.encode(content).decode()


def _results(pieces: Sequence[Piece]) -> list[Any]:
    results: list[Any] = []
    for piece in pieces:
        values = piece.values
        for index in piece.large:
            values[index] = _whole_number(float(values[index]))
        for index in piece.marked:
            values[index] = _dated(values[index])
        for index, reason in piece.failures:
            values[index] = ScriptError(reason)
        results += values
    return results


def _whole_number(value: float) -> int | float:
    return int(value) if -(2**63) <= value < 2**63 else value


def _dated(value: Any) -> Any:
    """Return a value with the dates and large numbers that JSON does not have."""
    if isinstance(value, list):
        parts = list(map(_dated, value))
        failed = [part for part in parts if type(part) is Failure]
        return failed[0] if failed else parts
    if not isinstance(value, dict):
        return value
    if _DATE in value:
        if value[_DATE] is None:
            return _whole_number(float(value["value"]))
        ticks = value[_DATE] * TICKS_PER_MILLISECOND
        return Datetime(ticks) if FIRST_TICKS <= ticks <= LAST_TICKS else Failure(Reason.DATETIME_RANGE)
    fields = {name: _dated(inner) for name, inner in value.items()}
    failed = [part for part in fields.values() if type(part) is Failure]
    return failed[0] if failed else fields
