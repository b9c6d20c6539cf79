"""Events that a query over history cannot use, with the reason: what `tidegate.spark.rejected` returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from tidegate.connectors.model.events import Events, PartitionEnd
from tidegate.connectors.model.metrics import DataError
from tidegate.ordering import DATA_ERRORS, LATE, OUT_OF_ORDER, TICKS_PER_MICROSECOND, Action, Policy
from tidegate.spark.queries.parcels import HistoryRun, Runs, arrow_schema

REJECTIONS = (
    "input string, partition string, sequenceNumber bigint, enqueuedTime timestamp, reason string, message string, "
    "body binary"
)

_ARROW = arrow_schema(REJECTIONS)


def rejections_of(run: HistoryRun[Runs], runs: Iterable[Runs], end: PartitionEnd) -> Iterator[pa.RecordBatch]:
    """Yield the rejected events of a timeline as rows of `REJECTIONS`.

    Raises:
        InputError: the events cannot be read.
    """
    used = _adjusted_by(run.policy)
    for held, errors in run.data_errors(runs, end):
        found = [error for error in errors if error.kind not in used]
        if found:
            yield _batch(held, found)


def _adjusted_by(policy: Policy) -> frozenset[str]:
    """Return the data errors of events that are used all the same, at another time."""
    if policy.action is Action.DROP:
        return frozenset()
    return frozenset(DATA_ERRORS[reason] for reason in (LATE, OUT_OF_ORDER))


def _batch(held: list[Events], errors: list[DataError]) -> pa.RecordBatch:
    firsts = np.array([int(events.sequence_numbers[0]) for events in held])
    bodies = []
    for error in errors:
        events = held[int(np.searchsorted(firsts, error.sequence_number, side="right")) - 1]
        bodies.append(events.bodies[int(np.searchsorted(events.sequence_numbers, error.sequence_number))])
    rows = (
        (one.input, one.partition, one.sequence_number, one.arrival // TICKS_PER_MICROSECOND, one.kind, one.message)
        for one in errors
    )
    columns = [*zip(*rows, strict=True), bodies]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
