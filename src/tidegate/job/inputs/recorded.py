"""A recorded log: events in a JSON-lines file, each with its partition and arrival time.

A recorded log is complete: after its last event comes the end of time, so a job over it emits every result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from pydantic import Field

from tidegate.job.inputs.kinds import INPUTS, LogOpening, StreamInput
from tidegate.job.model.errors import InputError
from tidegate.job.model.events import Events, InputLog, PartitionEnd
from tidegate.ordering import END_OF_TIME, parse_time


@INPUTS.register
class RecordedInput(StreamInput):
    """A recorded log: JSON lines, each ``{"partition": …, "arrival": …, "body": …}``, in the order of arrival."""

    type: Literal["recorded"]
    path: Path = Field(description="the file; relative to the job file")

    def open_log(self, opening: LogOpening) -> InputLog:
        """See ``StreamInput.open_log``."""
        return RecordedLog.from_file(self.path)


class RecordedLine(msgspec.Struct):
    """One line of the file."""

    body: msgspec.Raw
    partition: int | str = 0
    arrival: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One event of a recorded log; ``arrival`` in ticks."""

    partition: str
    arrival: int
    body: bytes


@dataclass(frozen=True, slots=True)
class RecordedRange:
    """A stretch of one recorded partition, carried by value so that it can be read on any machine."""

    start: int
    end: int
    arrivals: list[int]
    bodies: list[bytes]

    def read_events(self, batch_events: int) -> Iterator[Events]:
        """See ``LogRange.read_events``."""
        for first in range(0, len(self.bodies), batch_events):
            bodies = self.bodies[first : first + batch_events]
            numbers = np.arange(self.start + first, self.start + first + len(bodies), dtype=np.int64)
            arrivals = np.array(self.arrivals[first : first + len(bodies)], dtype=np.int64)
            yield Events(numbers, arrivals, bodies)


class RecordedLog:
    """A recorded log, grouped by partition; sequence numbers count the lines of a partition from 0."""

    def __init__(self, events: Iterable[RecordedEvent]) -> None:
        self._arrivals: dict[str, list[int]] = {}
        self._bodies: dict[str, list[bytes]] = {}
        for event in events:
            arrivals = self._arrivals.setdefault(event.partition, [])
            # A broker's clock never goes back within a partition; where a recording's does, it is corrected as a broker
            # would have done.
            arrivals.append(max(event.arrival, arrivals[-1]) if arrivals else event.arrival)
            self._bodies.setdefault(event.partition, []).append(event.body)

    @classmethod
    def from_file(cls, path: Path) -> RecordedLog:
        """Read a recorded log.

        Raises:
            InputError: the file cannot be read or a line is not an event; the message names the line.
        """
        try:
            with path.open("rb") as lines:
                return cls(recorded_events(_lines(lines, path)))
        except OSError as error:
            raise InputError(f"cannot read the recorded log {path}: {error.strerror}") from error

    def ends(self) -> dict[str, PartitionEnd]:
        """See ``InputLog.ends``; a recording is complete."""
        return {
            partition: PartitionEnd(0, len(bodies), END_OF_TIME, complete=True)
            for partition, bodies in self._bodies.items()
        }

    def first_at(self, partition: str, arrival: int) -> int:
        """See ``InputLog.first_at``."""
        return int(np.searchsorted(np.array(self._arrivals[partition], dtype=np.int64), arrival, side="left"))

    def range(self, partition: str, start: int, end: int) -> RecordedRange:
        """See ``InputLog.range``."""
        return RecordedRange(start, end, self._arrivals[partition][start:end], self._bodies[partition][start:end])

    def close(self) -> None:
        """Do nothing: no resource is open."""


def recorded_events(lines: Iterable[tuple[str, RecordedLine]]) -> Iterator[RecordedEvent]:
    """Yield events from ``(place, line)``; the place tells a person where the line is.

    An event without an arrival time has that of the event before it, or 1970 at the start: such a log has an order, but
    no clock. A body that is text is used verbatim; any other value becomes its JSON text.

    Raises:
        InputError: an arrival is not a time.
    """
    latest: dict[str, int] = {}
    for place, line in lines:
        partition = str(line.partition)
        if line.arrival is None:
            ticks = latest.get(partition, 0)
        else:
            try:
                ticks = parse_time(line.arrival)
            except ValueError as error:
                raise InputError(
                    f"{place}: arrival is a time such as 2019-01-01T12:07:00.0000000Z, got {line.arrival!r}"
                ) from error
        latest[partition] = ticks
        raw = bytes(line.body)
        yield RecordedEvent(partition, ticks, msgspec.json.decode(raw, type=str).encode() if raw[:1] == b'"' else raw)


def _lines(lines: Iterable[bytes], path: Path) -> Iterator[tuple[str, RecordedLine]]:
    decoder = msgspec.json.Decoder(RecordedLine)
    for number, line in enumerate(lines, start=1):
        stripped = line.removeprefix(b"\xef\xbb\xbf").strip()
        if not stripped:
            continue
        try:
            yield f"{path}, line {number}", decoder.decode(stripped)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(
                f'{path}, line {number}: {error}; a line is {{"partition": …, "arrival": …, "body": …}}'
            ) from error
