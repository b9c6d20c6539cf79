"""Runs of events as columns, and the logs they are read from.

Everything a job reads is a *log*: partitions of events in arrival order, numbered without gaps. A live hub and a
recorded file differ only in how the end of the log is known.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate.amqp.encoding.types import Array, Decimal, Described, Timestamp
from tidegate.client.event import Details
from tidegate.connectors.model.messages import Messages
from tidegate.engine import JSON, Datetime, Format
from tidegate.ordering import NO_TIME, TICKS_PER_MILLISECOND
from tidegate.ordering.ticks import FIRST_TICKS, LAST_TICKS

if TYPE_CHECKING:
    # Avro's reader is a tenth of what each process of a data source imports.
    from tidegate.connectors.model.captured import CapturedMessages

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EventBlobs:
    """The files that a run of n events comes from.

    Attributes:
        names: n names.
        modified: int64[n], when they were last modified, in ticks.
        starts: bool[n], whether an event is the first of its file.
    """

    names: list[str]
    modified: Int64Array
    starts: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, name: str, modified: int, count: int, *, starts: bool) -> EventBlobs:
        """Return the blobs of events from one file; ``starts``: the first event is the first of the file."""
        first = np.zeros(count, dtype=np.bool_)
        first[:1] = starts
        return cls([name] * count, np.full(count, modified, dtype=np.int64), first)

    def part(self, first: int, stop: int) -> EventBlobs:
        """Return the blobs of a stretch of the events."""
        return EventBlobs(self.names[first:stop], self.modified[first:stop], self.starts[first:stop])

    @classmethod
    def concat(cls, parts: Sequence[EventBlobs]) -> EventBlobs:
        """Return the blobs of consecutive runs as one."""
        return cls(
            [name for one in parts for name in one.names],
            np.concatenate([one.modified for one in parts]),
            np.concatenate([one.starts for one in parts]),
        )


@dataclass(frozen=True, slots=True)
class Events:
    """A run of one partition's events, in order: n events, with one entry per event in each column.

    Attributes:
        sequence_numbers: int64[n], without gaps.
        arrivals: int64[n], ticks of 100 ns since 1970.
        bodies: n byte strings as the publisher sent them.
        messages: the encoded messages of the bodies, for callers that need more; None if the log has none.
        format: the format of the bodies.
        reached: ticks; the arrival clock before the first event, as known or estimated.
        added_columns: the system columns that SELECT * includes; none for a recorded or local log.
        set_aside: ascending: which of the events no process may read, because they ended the processes that did.
        blobs: the files that the events are from; None if they are not from files.
    """

    sequence_numbers: Int64Array
    arrivals: Int64Array
    bodies: Sequence[bytes]
    messages: Messages | CapturedMessages | None = None
    format: Format = JSON
    reached: int = NO_TIME
    blobs: EventBlobs | None = None
    added_columns: tuple[str, ...] = ()
    set_aside: tuple[int, ...] = ()

    def part(self, first: int, stop: int) -> Events:
        """Return a stretch of the events."""
        return replace(
            self,
            sequence_numbers=self.sequence_numbers[first:stop],
            arrivals=self.arrivals[first:stop],
            bodies=self.bodies[first:stop],
            messages=None if self.messages is None else self.messages.part(first, stop),
            reached=self.reached if first == 0 else NO_TIME,
            blobs=None if self.blobs is None else self.blobs.part(first, stop),
            set_aside=tuple(place - first for place in self.set_aside if first <= place < stop),
        )

    @property
    def offsets(self) -> Sequence[str | None]:
        """The broker's opaque positions, n texts; empty if the log has none."""
        return [] if self.messages is None else self.messages.offsets

    @property
    def publishers(self) -> list[str | None]:
        """Publisher names; empty if the log has none."""
        return [] if self.messages is None else [item.publisher for item in self.messages.details()]

    @property
    def system_properties(self) -> list[dict[str, str]]:
        """Annotations other than those that the broker adds to every event; empty if the log has none."""
        return [] if self.messages is None else [item.system_properties for item in self.messages.details()]

    @property
    def user_properties(self) -> list[dict[str, Any]]:
        """The publishers' own properties, with their types; empty if the log has none."""
        return [] if self.messages is None else list(map(typed_properties, self.messages.details()))

    @property
    def blob_names(self) -> list[str]:
        """The files the events are from; empty if they are not from files."""
        return [] if self.blobs is None else self.blobs.names

    @property
    def blob_times(self) -> Int64Array:
        """When those files were last modified, in ticks; empty if there are none."""
        return np.empty(0, dtype=np.int64) if self.blobs is None else self.blobs.modified

    @property
    def source_starts(self) -> npt.NDArray[np.bool_]:
        """bool[n]: whether a source begins, as the service counts them: an event of a hub, or a file's first row."""
        return np.ones(len(self.bodies), dtype=np.bool_) if self.blobs is None else self.blobs.starts

    @property
    def partition_keys(self) -> list[str | None]:
        """Partition keys; empty if the log has none."""
        return [] if self.messages is None else [item.partition_key for item in self.messages.details()]


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """Where a partition ends at the moment.

    Attributes:
        begin: the oldest sequence number that still exists.
        end: the sequence number the next event will have.
        arrival_lower_bound: ticks; no event from ``end`` on arrives earlier. None if the log gives no such bound.
        complete: nothing will ever follow ``end``.
        log_id: what distinguishes the log from another that takes its place; None if nothing does.
    """

    begin: int
    end: int
    arrival_lower_bound: int | None
    complete: bool = False
    log_id: str | None = None


class LogRange(Protocol):
    """Events ``start`` ≤ sequence number < ``end`` of one partition; shipped to the task that reads them."""

    @property
    def start(self) -> int:
        """The first sequence number."""

    @property
    def end(self) -> int:
        """The sequence number after the last."""

    def read_events(self, batch_events: int) -> Iterator[Events]:
        """Yield the events in order, at most ``batch_events`` in a run.

        Raises:
            InputError: the log cannot be read, or events of the range are gone.
        """


@dataclass(frozen=True, slots=True)
class HeldRange:
    """Events that are at hand, as a range of a log."""

    runs: Sequence[Events]

    @property
    def start(self) -> int:
        return int(self.runs[0].sequence_numbers[0])

    @property
    def end(self) -> int:
        return int(self.runs[-1].sequence_numbers[-1]) + 1

    def read_events(self, batch_events: int) -> Iterator[Events]:
        yield from self.runs


class InputLog(Protocol):
    """One input of a job, seen from the driver."""

    def ends(self) -> dict[str, PartitionEnd]:
        """Return where each partition ends now.

        Raises:
            InputError: the log cannot be reached.
        """

    def first_at(self, partition: str, arrival: int) -> int:
        """Return the first sequence number with an arrival of ``arrival`` (ticks) or later, or the partition's end."""

    def range(self, partition: str, start: int, end: int) -> LogRange:
        """Return what a task on any machine needs to read these events."""

    def close(self) -> None:
        """Close connections and files."""


def last_arrival(log: InputLog, partition: str, begin: int, end: int) -> int:
    """Return the arrival of the last event before ``end``, in ticks; NO_TIME if there is none.

    Some logs skip numbers, so it is not always the event ``end`` − 1.
    """
    stretch = 1
    while end > begin:
        start = max(begin, end - stretch)
        found = [events for events in log.range(partition, start, end).read_events(stretch) if len(events.arrivals)]
        if found:
            return int(found[-1].arrivals[-1])
        end, stretch = start, 2 * stretch
    return NO_TIME


_LARGEST_BIGINT = 2**63 - 1


def typed_properties(details: Details) -> dict[str, Any]:
    """Return the properties of an event by name; as text where the types that they were sent with are not known."""
    values: Mapping[str, Any] = details.properties if details.values is None else details.values
    return {name: value if type(value) is str else _value(value) for name, value in values.items()}


def _value(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case Timestamp():
            ticks = int(value) * TICKS_PER_MILLISECOND
            return Datetime(ticks) if FIRST_TICKS <= ticks <= LAST_TICKS else int(value)
        case int():
            return int(value) if value <= _LARGEST_BIGINT else float(value)
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case bytes() | bytearray() | memoryview():
            return _text(bytes(value))
        case Decimal():
            return b64encode(value.encoded).decode("ascii")
        case Described():
            return _value(value.value)
        case Array():
            return list(map(_value, value.items))
        case list() | tuple():
            return list(map(_value, value))
        case Mapping():
            return {str(name): _value(item) for name, item in value.items()}
    return str(value)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return b64encode(content).decode("ascii")
