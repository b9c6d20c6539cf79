"""A few results of a query, from the first events that come to hand: what untyped columns are likely to hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
from pyspark.sql import functions

from tidegate.connectors.model.events import Events, InputLog, LogRange, PartitionEnd
from tidegate.engine import Program, ResultRows
from tidegate.job.runtime.placement import DriverPlacement
from tidegate.job.runtime.step import Stepper
from tidegate.ordering import END_OF_TIME, Policy
from tidegate.spark.queries.column_types import collected
from tidegate.spark.queries.frame_events import EventsOfFrame, columns_for, partitions_in

SAMPLE_EVENTS = 1000


class SampledLog:
    """The first events of each partition of a log, as if it ended there."""

    def __init__(self, log: InputLog, most_events: int = SAMPLE_EVENTS) -> None:
        self._log = log
        self._most_events = most_events

    def ends(self) -> dict[str, PartitionEnd]:
        return {
            partition: PartitionEnd(end.begin, min(end.end, end.begin + self._most_events), END_OF_TIME, complete=True)
            for partition, end in self._log.ends().items()
        }

    def first_at(self, partition: str, arrival: int) -> int:
        return min(self._log.first_at(partition, arrival), self.ends()[partition].end)

    def range(self, partition: str, start: int, end: int) -> LogRange:
        return self._log.range(partition, start, end)

    def close(self) -> None:
        self._log.close()


@dataclass(frozen=True, slots=True)
class WholePartition:
    """All events of a partition, as a range whose numbers count them, whatever their own are."""

    start: int
    end: int
    events: Events

    def read_events(self, batch_events: int) -> Iterator[Events]:
        yield self.events


class HeldLog:
    """Some events of each partition, as a log that has ended; it is read as a whole."""

    def __init__(self, partitions: Mapping[str, Events]) -> None:
        self._partitions = partitions

    def ends(self) -> dict[str, PartitionEnd]:
        return {
            partition: PartitionEnd(0, len(events.arrivals), END_OF_TIME, complete=True)
            for partition, events in self._partitions.items()
        }

    def first_at(self, partition: str, arrival: int) -> int:
        return int((self._partitions[partition].arrivals < arrival).sum())

    def range(self, partition: str, start: int, end: int) -> LogRange:
        return WholePartition(start, end, self._partitions[partition])

    def close(self) -> None:
        """Do nothing: no resource is open."""


def sampled_frame(found: EventsOfFrame, program: Program, name: str) -> HeldLog:
    """Return the first events that Spark finds of a DataFrame.

    Raises:
        InputError: a row is not an event.
    """
    selected, order, layout = columns_for(found, program.source_of(name), program.need(name))
    rows = found.frame.select(*selected).limit(SAMPLE_EVENTS).repartition(1)
    sampled = collected(rows.sortWithinPartitions(functions.col("partition"), *order))
    pieces = partitions_in(iter(sampled.to_batches()), SAMPLE_EVENTS)
    partitions = {}
    for partition, found_rows in groupby(pieces, key=lambda item: item[0]):
        table = pa.concat_tables([one for _, one in found_rows])
        partitions[partition] = layout.events(partition, table, 0)
    return HeldLog(partitions)


def sample_results(program: Program, policy: Policy, logs: Mapping[str, InputLog]) -> list[ResultRows]:
    """Return the results of short logs, computed in this process.

    Raises:
        InputError: a log cannot be read.
    """
    apart = replace(policy, merged=False)
    stepper = Stepper(program, apart, logs, DriverPlacement(program, apart))
    return list(_steps(stepper))


def _steps(stepper: Stepper) -> Iterator[ResultRows]:
    while True:
        step = stepper.step()
        yield from step.rows
        if step.complete or not step.events:
            return
