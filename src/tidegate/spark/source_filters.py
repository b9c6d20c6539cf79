"""Which events the filters of a Spark query leave, so that the source reads no others.

Partitions and sequence numbers are what a range is made of, and the hub finds the first event of a time. So filters on
these three become fewer and shorter ranges. Spark evaluates all other filters, and those on times once more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tidegate.connectors.inputs.hub_log import HubLog
from tidegate.ordering import TICKS_PER_SECOND

_PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"
_NEVER_NULL = ("body", "partition", "offset", "sequenceNumber", "enqueuedTime", "properties", "systemProperties")
_EQUALITIES = ("EqualTo", "EqualNullSafe", "In")
_TICKS_PER_MICROSECOND = 10
_CLOCK_SET_BACK = 3600 * TICKS_PER_SECOND
"""How far the times of a partition may go back on a hub that does not rule it out."""


def filters_are_offered() -> bool:
    """Return whether this process plans a read for which Spark offers the filters to the source.

    Spark 4.1 and later do that in a process of their own, if ``spark.sql.python.filterPushdown.enabled`` is on. If it
    is off, as by default, Spark refuses a reader that takes filters.
    """
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PLANNER in sys.modules or getattr(started, "name", None) == _PLANNER


@dataclass(frozen=True, slots=True)
class SelectedEvents:
    """The events that filters leave.

    Attributes:
        partitions: None for all.
        without: partitions to leave out.
        first, stop: sequence numbers, from the one on and before the other.
        arrived_from, arrived_before: ticks, in the same way.
    """

    partitions: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    first: int | None = None
    stop: int | None = None
    arrived_from: int | None = None
    arrived_before: int | None = None

    def with_filter(self, given: Any) -> tuple[SelectedEvents, bool]:
        """Return what is left after one more filter, and whether Spark need not evaluate it.

        Args:
            given: a `pyspark.sql.datasource.Filter`, a class that PySpark 4.0 does not have.
        """
        kind = type(given).__name__
        of = given.child if kind == "Not" else given
        match kind, of.attribute:
            case "Not", ("partition",) if texts := _equals(of, str):
                return replace(self, without=self.without | texts), True
            case (("EqualTo" | "EqualNullSafe" | "In"), ("partition",)) if texts := _equals(of, str):
                return replace(self, partitions=texts if self.partitions is None else self.partitions & texts), True
            case "IsNotNull", (name,):
                return self, name in _NEVER_NULL
            case _, ("sequenceNumber",) if kind != "Not":
                numbers = _equals(of, int)
                low, high = (min(numbers), max(numbers) + 1) if numbers else _bounds(kind, of, int, lambda n: n, 1)
                cut = replace(self, first=_later(self.first, low), stop=_earlier(self.stop, high))
                return cut, (low, high) != (None, None) and len(numbers) <= 1
            case _, ("enqueuedTime",) if kind != "Not":
                times = {_ticks(time) for time in _equals(of, datetime)}
                one = _TICKS_PER_MICROSECOND
                low, high = (min(times), max(times) + one) if times else _bounds(kind, of, datetime, _ticks, one)
                from_, before = _later(self.arrived_from, low), _earlier(self.arrived_before, high)
                return replace(self, arrived_from=from_, arrived_before=before), False
        return self, False

    def cut(
        self, log: HubLog, start: Mapping[str, int], end: Mapping[str, int]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Return where the ranges of partitions begin and end if they leave out what filters do not let pass.

        Raises:
            InputError: the hub cannot be reached.
        """
        ends = log.ends()
        firsts, stops = {}, {}
        for partition in end:
            if partition in self.without or (self.partitions is not None and partition not in self.partitions):
                continue
            first, stop = max(start[partition], self.first or 0), end[partition]
            if self.stop is not None:
                stop = min(stop, self.stop)
            if first < stop and self.arrived_from is not None:
                first = max(first, log.first_at(partition, max(0, self.arrived_from)))
            if first < stop and self.arrived_before is not None:
                in_order = ends[partition].arrival_lower_bound is not None
                before = self.arrived_before if in_order else self.arrived_before + _CLOCK_SET_BACK
                stop = min(stop, log.first_at(partition, max(0, before)))
            if first < stop:
                firsts[partition], stops[partition] = first, stop
        return firsts, stops


def _equals(given: Any, type_: type) -> frozenset[Any]:
    """Return the values of which a filter lets a column have one; none if it is another filter, or of another type."""
    kind = type(given).__name__
    values = tuple(given.value) if kind == "In" else (given.value,) if kind in _EQUALITIES else ()
    return frozenset(values) if all(isinstance(value, type_) for value in values) else frozenset()


def _bounds(
    kind: str, given: Any, type_: type, number_of: Callable[[Any], int], one: int
) -> tuple[int | None, int | None]:
    """Return from where and before where a comparison lets values be; ``one`` is the step between two."""
    value = getattr(given, "value", None)
    if not isinstance(value, type_):
        return None, None
    number = number_of(value)
    match kind:
        case "GreaterThan":
            return number + one, None
        case "GreaterThanOrEqual":
            return number, None
        case "LessThan":
            return None, number
        case "LessThanOrEqual":
            return None, number + one
    return None, None


def _later(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _ticks(time: datetime) -> int:
    since = time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * TICKS_PER_SECOND + since.microseconds * _TICKS_PER_MICROSECOND
