"""A recorded log: events in a JSON-lines file, each with its partition and arrival time.

A recorded log is complete: after its last event comes the end of time, so a job over it emits every result.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from pydantic import Field

from tidegate.client.event import NO_DETAILS, PARTITION_KEY, PUBLISHER, Details, details_with
from tidegate.client.event_json import from_json
from tidegate.connectors.inputs.hub_log import earlier_of_device
from tidegate.connectors.inputs.kinds import INPUTS, LogOpening, StreamInput
from tidegate.connectors.model.captured import CapturedMessages
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.events import Events, InputLog, PartitionEnd
from tidegate.engine.decoding.metadata import HUB_COLUMNS, IOT_HUB_COLUMNS
from tidegate.ordering import END_OF_TIME, parse_time

Recorded = Literal["eventhub", "iothub"]
"""What a log may be recorded from, if a query that reads it is to see what it sees there."""
_COLUMNS: Mapping[Recorded | None, tuple[str, ...]] = {None: (), "eventhub": HUB_COLUMNS, "iothub": IOT_HUB_COLUMNS}


@INPUTS.register
class RecordedInput(StreamInput):
    """A recorded log: JSON lines, each ``{"partition": …, "arrival": …, "body": …}``, in the order of arrival, such as
    `tidegate tail -o json` prints."""

    type: Literal["recorded"]
    path: Path = Field(description="the file; relative to the job file")
    source: Recorded | None = Field(
        default=None,
        description="what it was recorded from: SELECT * then includes the columns of such an input, and a message of "
        "an IoT hub arrived when the IoT hub accepted it",
    )

    def open_log(self, opening: LogOpening) -> InputLog:
        return RecordedLog.from_file(self.path, self.source)


class RecordedLine(msgspec.Struct):
    """One line of the file; the names are those that `tidegate tail -o json` prints.

    Attributes:
        body: JSON, or text that is the body; ``bodyBase64`` has one that is neither.
        arrival: when the event was enqueued; ``enqueuedTime`` is another name of it.
        sequenceNumber: those of a partition follow each other; by default they begin at 0.
        properties: the publisher's, with their types (`tidegate.client.event_json`).
    """

    body: msgspec.Raw = msgspec.Raw(b"")
    partition: int | str = 0
    arrival: str | None = None
    body_base64: str | None = msgspec.field(default=None, name="bodyBase64")
    enqueued_time: str | None = msgspec.field(default=None, name="enqueuedTime")
    sequence_number: int | None = msgspec.field(default=None, name="sequenceNumber")
    offset: str | None = None
    publisher: str | None = None
    partition_key: str | None = msgspec.field(default=None, name="partitionKey")
    properties: dict[str, Any] | None = None
    system_properties: dict[str, str] | None = msgspec.field(default=None, name="systemProperties")

    def content(self) -> bytes:
        """Return the body: text unchanged, any other value as its JSON text.

        Raises:
            ValueError: there is none, or it is not in base 64.
        """
        raw = bytes(self.body)
        if self.body_base64 is not None:
            return b64decode(self.body_base64, validate=True)
        if not raw:
            raise ValueError("the line has no body")
        return msgspec.json.decode(raw, type=str).encode() if raw[:1] == b'"' else raw

    def details(self) -> Details | None:
        """Return what the line says of the event beside its body; None if it says nothing.

        Raises:
            ValueError: a property is not of a type that there is.
        """
        given = (self.offset, self.publisher, self.partition_key, self.properties, self.system_properties)
        if all(one is None for one in given):
            return None
        system = dict(self.system_properties or {})
        if self.publisher is not None:
            system.setdefault(PUBLISHER, self.publisher)
        if self.partition_key is not None:
            system.setdefault(PARTITION_KEY, self.partition_key)
        values = {}
        for name, value in (self.properties or {}).items():
            try:
                values[name] = from_json(value)
            except ValueError as error:
                raise ValueError(f"the property {name}: {error}") from error
        return details_with(system.get(PUBLISHER), system.get(PARTITION_KEY), values, system)


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One event of a recorded log; ``arrival`` in ticks, ``sequence_number`` None to count on."""

    partition: str
    arrival: int
    body: bytes
    sequence_number: int | None = None
    offset: str | None = None
    details: Details | None = None


@dataclass(frozen=True, slots=True)
class RecordedRange:
    """A stretch of one recorded partition, carried by value so that it can be read on any machine."""

    start: int
    end: int
    arrivals: list[int]
    bodies: list[bytes]
    messages: CapturedMessages | None = None
    source: Recorded | None = None

    def read_events(self, batch_events: int) -> Iterator[Events]:
        for first in range(0, len(self.bodies), batch_events):
            bodies = self.bodies[first : first + batch_events]
            numbers = np.arange(self.start + first, self.start + first + len(bodies), dtype=np.int64)
            arrivals = np.array(self.arrivals[first : first + len(bodies)], dtype=np.int64)
            messages = None if self.messages is None else self.messages.part(first, first + len(bodies))
            if self.source == "iothub" and messages is not None:
                arrivals = earlier_of_device(arrivals, messages.details())
            yield Events(numbers, arrivals, bodies, messages, added_columns=_COLUMNS[self.source])


class RecordedLog:
    """A recorded log, grouped by partition; where sequence numbers are not recorded, they count from 0."""

    def __init__(self, events: Iterable[RecordedEvent], source: Recorded | None = None) -> None:
        self._partitions: dict[str, list[RecordedEvent]] = {}
        self._arrivals: dict[str, list[int]] = {}
        self._source = source
        for event in events:
            arrivals = self._arrivals.setdefault(event.partition, [])
            # A broker's clock never goes back within a partition; where a recording's does, it is corrected as a broker
            # would have done.
            arrivals.append(max(event.arrival, arrivals[-1]) if arrivals else event.arrival)
            self._partitions.setdefault(event.partition, []).append(event)
        self._has_messages = any(event.details is not None for each in self._partitions.values() for event in each)

    @classmethod
    def from_file(cls, path: Path, source: Recorded | None = None) -> RecordedLog:
        """Read a recorded log.

        Raises:
            InputError: the file cannot be read or a line is not an event; the message names the line.
        """
        try:
            with path.open("rb") as lines:
                return cls(recorded_events(_lines(lines, path)), source)
        except OSError as error:
            raise InputError(f"cannot read the recorded log {path}: {error.strerror}") from error

    def ends(self) -> dict[str, PartitionEnd]:
        """A recording is complete."""
        return {
            partition: PartitionEnd(
                self._begin(partition), self._begin(partition) + len(events), END_OF_TIME, complete=True
            )
            for partition, events in self._partitions.items()
        }

    def first_at(self, partition: str, arrival: int) -> int:
        arrivals = np.array(self._arrivals[partition], dtype=np.int64)
        return self._begin(partition) + int(np.searchsorted(arrivals, arrival, side="left"))

    def range(self, partition: str, start: int, end: int) -> RecordedRange:
        begin = self._begin(partition)
        events = self._partitions[partition][start - begin : end - begin]
        messages = None
        if self._has_messages:
            described = tuple(event.details or NO_DETAILS for event in events)
            messages = CapturedMessages([event.offset for event in events], described)
        arrivals = self._arrivals[partition][start - begin : end - begin]
        return RecordedRange(start, end, arrivals, [event.body for event in events], messages, self._source)

    def _begin(self, partition: str) -> int:
        return self._partitions[partition][0].sequence_number or 0

    def close(self) -> None:
        """Do nothing: no resource is open."""


def recorded_events(lines: Iterable[tuple[str, RecordedLine]]) -> Iterator[RecordedEvent]:
    """Yield events from ``(place, line)``; the place tells a person where the line is.

    An event without an arrival time has that of the event before it, or 1970 at the start: such a log has an order, but
    no clock. A body that is text is used verbatim; any other value becomes its JSON text.

    Raises:
        InputError: an arrival is not a time, sequence numbers do not follow each other, or a property is of no type.
    """
    latest: dict[str, int] = {}
    expected: dict[str, int] = {}
    for place, line in lines:
        partition = str(line.partition)
        arrival = line.enqueued_time if line.arrival is None else line.arrival
        if arrival is None:
            ticks = latest.get(partition, 0)
        else:
            try:
                ticks = parse_time(arrival)
            except ValueError as error:
                raise InputError(
                    f"{place}: arrival is a time such as 2019-01-01T12:07:00.0000000Z, got {arrival!r}"
                ) from error
        latest[partition] = ticks
        number = line.sequence_number
        if number is not None and number != expected.setdefault(partition, number):
            raise InputError(
                f"{place}: the sequence number is {number}, and {expected[partition]} follows in partition "
                f"{partition}: record all events in their order, or leave sequenceNumber out"
            )
        # The first event of a partition decides where its numbers begin.
        begins = expected.get(partition, 0)
        expected[partition] = begins + 1
        try:
            yield RecordedEvent(partition, ticks, line.content(), begins, line.offset, line.details())
        except ValueError as error:
            raise InputError(f"{place}: {error}") from error


class _KnownKeys(RecordedLine, forbid_unknown_fields=True):
    """A line without further keys, as almost every line is."""


def misspelled_key(keys: Iterable[str], kind: type[msgspec.Struct], notes: Collection[str] = ()) -> str | None:
    """Return what is wrong with the keys of an object if one that it does not have is almost like one that it has.

    Other keys are notes for readers: a misspelled one would be taken for a note.
    """
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for key in keys:
        if key not in known and key not in notes and (near := get_close_matches(key, known, n=1, cutoff=0.8)):
            return f"there is no key `{key}`; did you mean `{near[0]}`?"
    return None


def _lines(lines: Iterable[bytes], path: Path) -> Iterator[tuple[str, RecordedLine]]:
    decoder, tolerant = msgspec.json.Decoder(_KnownKeys), msgspec.json.Decoder(RecordedLine)
    for number, line in enumerate(lines, start=1):
        stripped = line.removeprefix(b"\xef\xbb\xbf").strip()
        if not stripped:
            continue
        try:
            try:
                decoded: RecordedLine = decoder.decode(stripped)
            except msgspec.ValidationError:
                decoded = tolerant.decode(stripped)
                if (wrong := misspelled_key(msgspec.json.decode(stripped), RecordedLine)) is not None:
                    raise msgspec.ValidationError(wrong) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(
                f'{path}, line {number}: {error}; a line is {{"partition": …, "arrival": …, "body": …}}'
            ) from error
        yield f"{path}, line {number}", decoded
