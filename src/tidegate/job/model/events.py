"""Runs of events as columns, and the logs they are read from.

Everything a job reads is a *log*: partitions of events in arrival order, numbered without gaps. A live hub and a
recorded file differ only in who knows the end of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidegate.engine import JSON, Format
from tidegate.job.model.captured import CapturedMessages
from tidegate.job.model.messages import Messages
from tidegate.ordering import NO_TIME

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EventBlobs:
    """The files that a run of n events is from.

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
        """Return one file for all events; ``starts``: the first of them is the first of the file."""
        first = np.zeros(count, dtype=np.bool_)
        first[:1] = starts
        return cls([name] * count, np.full(count, modified, dtype=np.int64), first)

    @classmethod
    def concat(cls, parts: Sequence[EventBlobs]) -> EventBlobs:
        """One after the other."""
        return cls(
            [name for one in parts for name in one.names],
            np.concatenate([one.modified for one in parts]),
            np.concatenate([one.starts for one in parts]),
        )


@dataclass(frozen=True, slots=True)
class Events:
    """A run of one partition's events, in order: n events, one entry a column.

    Attributes:
        sequence_numbers: int64[n], without gaps.
        arrivals: int64[n], ticks of 100 ns since 1970.
        bodies: n byte strings as the publisher sent them.
        messages: the encoded messages the bodies are from, for callers that need more; None where the log has no more.
        format: what the bodies are.
        reached: ticks; what the arrival clock was known, or taken, to have reached before the first of them.
        added_columns: the system columns that SELECT * includes; none of a recorded or local log.
        blobs: the files that the events are from; None where they are from no file.
    """

    sequence_numbers: Int64Array
    arrivals: Int64Array
    bodies: Sequence[bytes]
    messages: Messages | CapturedMessages | None = None
    format: Format = JSON
    reached: int = NO_TIME
    blobs: EventBlobs | None = None
    added_columns: tuple[str, ...] = ()

    @property
    def offsets(self) -> list[str]:
        """The broker's opaque positions, n texts; empty where the log has none."""
        return [] if self.messages is None else self.messages.offsets

    @property
    def publishers(self) -> list[str | None]:
        """Publisher names; empty where the log has none."""
        return [] if self.messages is None else [item.publisher for item in self.messages.details()]

    @property
    def system_properties(self) -> list[dict[str, str]]:
        """Annotations, other than what the broker adds to every event; empty where the log has none."""
        return [] if self.messages is None else [item.system_properties for item in self.messages.details()]

    @property
    def user_properties(self) -> list[dict[str, str]]:
        """The publishers' own; empty where the log has none."""
        return [] if self.messages is None else [item.properties for item in self.messages.details()]

    @property
    def blob_names(self) -> list[str]:
        """The files the events are from; empty where they are from none."""
        return [] if self.blobs is None else self.blobs.names

    @property
    def blob_times(self) -> Int64Array:
        """When those were last modified, in ticks; empty where there are none."""
        return np.empty(0, dtype=np.int64) if self.blobs is None else self.blobs.modified

    @property
    def source_starts(self) -> npt.NDArray[np.bool_]:
        """bool[n]: where a source begins as the service counts them: an event of a hub, or the first row of a file."""
        return np.ones(len(self.bodies), dtype=np.bool_) if self.blobs is None else self.blobs.starts

    @property
    def partition_keys(self) -> list[str | None]:
        """Partition keys; empty where the log has none."""
        return [] if self.messages is None else [item.partition_key for item in self.messages.details()]


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """Where a partition stands at the moment of asking.

    Attributes:
        begin: the oldest sequence number still there.
        end: the sequence number the next event will have.
        arrival_lower_bound: ticks; no event from ``end`` on arrives earlier. None if the log gives no such bound.
        complete: nothing will ever follow ``end``.
    """

    begin: int
    end: int
    arrival_lower_bound: int | None
    complete: bool = False


class LogRange(Protocol):
    """Events ``start`` ≤ sequence number < ``end`` of one partition; travels to the task that reads them."""

    @property
    def start(self) -> int:
        """The first sequence number."""

    @property
    def end(self) -> int:
        """The sequence number after the last."""

    def read(self, batch_events: int) -> Iterator[Events]:
        """The events in order, at most ``batch_events`` in a run.

        Raises:
            InputError: the log cannot be read, or events of the range are gone.
        """


class InputLog(Protocol):
    """One input of a job, seen from the driver."""

    def ends(self) -> dict[str, PartitionEnd]:
        """Where each partition stands now.

        Raises:
            InputError: the log cannot be reached.
        """

    def first_at(self, partition: str, arrival: int) -> int:
        """The first sequence number that arrived at ``arrival`` (ticks) or later; the partition's end if none."""

    def range(self, partition: str, start: int, end: int) -> LogRange:
        """What a task needs to read these events, wherever it runs."""

    def close(self) -> None:
        """Give back connections and files."""
