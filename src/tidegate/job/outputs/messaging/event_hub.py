"""Sends events to an event hub, each exactly once.

A hub cannot be rolled back, so the output has to know how many of its events each partition has. Rows are assigned to
partitions by their number or their key, so every run sends the same rows to the same places and skips those that a
partition already has. There are two ways of knowing which:

- A Tidegate hub numbers the events of an idempotent producer and stores the numbers with the events. The reply to the
  attach has the last number, and the attach fences off an earlier run. Exactly once, whatever is killed.
- The end of any other hub, Azure's among them, is read back: from the partition's end at the last commit, for events
  with this output's name and their number. That is exactly once unless an earlier run of the job is still sending (a
  batch that was in flight when its process died may be stored after the end was read).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypeVar

from pydantic import Field, field_validator

from tidegate.client import ClientError, ConnectionLostError, ConnectionString
from tidegate.client.event import decode
from tidegate.client.producer import OutgoingEvent, Producer, RefusedError
from tidegate.engine import ResultRows
from tidegate.hub.placement import partition_for_key
from tidegate.job.model.errors import OutputError
from tidegate.job.outputs.kinds import OUTPUTS, OutputOpening
from tidegate.job.outputs.messaging.message_rows import MessageRows, MessageSettings, RowMessage, row_at
from tidegate.job.outputs.messaging.system_properties import OF_EVENTS, check_names, system_sections
from tidegate.job.outputs.output import (
    RECORD_EXCEEDED_SIZE_LIMIT,
    TYPE_CONVERSION_ERROR,
    Mark,
    Output,
    OutputUnavailableError,
    RejectedRow,
    new_mark,
)

_OUTPUT_PROPERTY = "tidegate-output"
_NUMBER_PROPERTY = "tidegate-number"
_SAMPLES = 20
_READ_EVENTS = 5_000
# Replies after which to ask again; an out-of-order number is one that an earlier run has sent in the meantime.
_AGAIN = frozenset(
    {
        "com.microsoft:server-busy",
        "com.microsoft:timeout",
        "com.microsoft:out-of-order-sequence",
        "amqp:internal-error",
        "amqp:resource-limit-exceeded",
        "",
    }
)
_STOLEN = "com.microsoft:producer-epoch-stolen"
_SURELY_ENOUGH_BYTES = 2_048  # for everything in an event but its body and properties, its key included

Result = TypeVar("Result")


@OUTPUTS.register
class EventHubOutput(MessageSettings):
    """An event hub, Tidegate's or Azure's: an event for each result."""

    type: Literal["eventhub"]
    connection_string: str = Field(description="Endpoint=…;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…")
    event_hub: str | None = Field(default=None, description="the hub's name, where the string has no EntityPath")
    partition_key: str | None = Field(
        default=None,
        description="the column whose value decides the partition; without it, results go to partitions in turn",
    )
    system_property_columns: dict[str, str] = Field(
        default_factory=dict, description="by system property of the event (`MessageId`, `Subject` …), its column"
    )
    consumer_group: str = Field(
        default="$Default", description="the consumer group for reading back the end of a non-Tidegate hub"
    )

    @field_validator("system_property_columns")
    @classmethod
    def _of_an_event(cls, columns: dict[str, str]) -> dict[str, str]:
        check_names(columns, OF_EVENTS)
        return columns

    def open_at(self, opening: OutputOpening) -> Output:
        """See ``OutputSection.open_at``."""
        return HubOutput(self, opening)


class HubOutput:
    """An event hub; its mark has the number of this output's events and the end of each partition."""

    def __init__(self, definition: EventHubOutput, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the hub cannot be reached or refuses, or has lost what the journal says it has.
        """
        identity, mark = opening.identity, opening.mark
        try:
            self._connection = ConnectionString.parse(definition.connection_string, definition.event_hub)
        except ClientError as error:
            raise OutputError(f"output '{identity.output}': {error}") from error
        self._identity = identity
        self._group = definition.consumer_group
        self._rows = MessageRows(
            definition,
            identity,
            opening.shape,
            key=definition.partition_key,
            system=definition.system_property_columns,
            drop=opening.drop,
        )
        digest = hashlib.sha256(f"{identity.journal}/{identity.output}".encode()).digest()
        self._producer_id = int.from_bytes(digest[:6], "big") | 1
        self._name = digest[:8].hex()
        self._mark: Mark = {**new_mark("eventhub"), "sent": {}, "ends": {}} if mark is None else dict(mark)
        self._taken = 0
        self._dealt: dict[str, int] = {}
        self._stored: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[int, OutgoingEvent]]] = {}
        self._producer: Producer | None = None
        self._on_hub(self._opened)
        self._dealt = dict(self._mark["sent"])
        lost = {name: count for name, count in self._dealt.items() if self._stored[name] < count}
        if lost:
            name, count = next(iter(lost.items()))
            raise OutputError(
                f"partition {name} of {self._connection.entity_path} has {self._stored[name]:,} events of output "
                f"'{identity.output}', but the journal committed {count:,}; restore the hub, or move the journal away "
                "to start over"
            )

    # Where the hub stands ---------------------------------------------------------------------------------------------

    def _opened(self) -> Producer:
        """Open a connection with every partition; ``_stored`` then has the number of events in each."""
        if self._producer is not None and not self._producer.closed:
            return self._producer
        producer = Producer(self._connection)
        try:
            if not self._mark["sent"]:
                self._mark["sent"] = dict.fromkeys(producer.partition_ids(), 0)
            partitions = list(self._mark["sent"])
            stand = producer.partitions_properties(partitions)
            for partition in partitions:
                known = max(self._stored.get(partition, 0), self._mark["sent"][partition])
                if stand[partition].arrival_lower_bound_ms is not None:
                    standing = producer.open_partition(partition, self._producer_id, known)
                    assert standing is not None
                    self._stored[partition] = standing.stored
                else:
                    producer.open_partition(partition)
                    self._stored[partition] = max(known, self._read_back(producer, partition, stand[partition].end))
                    self._mark["ends"].setdefault(partition, stand[partition].end)
        except BaseException:
            producer.close()
            raise
        self._producer = producer
        return producer

    def _read_back(self, producer: Producer, partition: str, end: int) -> int:
        """Return how many events of this output a partition has, by the number that the last of them carries."""
        begin = self._mark["ends"].get(partition)
        found = 0
        if begin is not None and begin < end:
            for deliveries in producer.read(self._group, partition, begin, end, _READ_EVENTS):
                for delivery in deliveries:
                    properties = decode(delivery.payload)[1].properties
                    if properties.get(_OUTPUT_PROPERTY) == self._name:
                        found = max(found, int(properties[_NUMBER_PROPERTY]))
        return found

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, rows: ResultRows) -> None:
        """See ``Output.write``."""
        producer = self._on_hub(self._opened)
        for message in self._rows.messages(rows, self._mark["rows"] + self._taken):
            try:
                event = self._event_of(message)
                partition = self._partition_of(event, message.number)
                _check_size(producer, partition, event)
            except ValueError as error:
                kind = RECORD_EXCEEDED_SIZE_LIMIT if isinstance(error, _TooLarge) else TYPE_CONVERSION_ERROR
                row = row_at(rows, message.number - self._mark["rows"] - self._taken)
                self._rows.reject(kind, str(error), message.number, message.time, row)
                continue
            self._dealt[partition] = self._dealt.get(partition, 0) + 1
            if self._dealt[partition] > self._stored[partition]:
                self._waiting.setdefault(partition, []).append((self._dealt[partition], event))
        self._taken += len(rows)

    def _event_of(self, message: RowMessage) -> OutgoingEvent:
        system = None if message.system is None else system_sections(message.system).properties
        return OutgoingEvent(message.body, message.key, message.properties, system)

    def _partition_of(self, event: OutgoingEvent, number: int) -> str:
        partitions: list[str] = list(self._mark["sent"])
        if event.key is None:
            return partitions[number % len(partitions)]
        return partitions[partition_for_key(event.key, len(partitions))]

    def commit(self) -> Mark:
        """See ``Output.commit``."""
        if self._taken:
            self._on_hub(self._send)
            self._mark["rows"] += self._taken
            self._mark["dropped"] += self._rows.dropped
            self._mark["sent"] = {partition: self._dealt[partition] for partition in self._mark["sent"]}
            self._waiting, self._taken, self._rows.dropped = {}, 0, 0
        return {**self._mark, "sent": dict(self._mark["sent"]), "ends": dict(self._mark["ends"])}

    def _send(self) -> None:
        """Send what the hub does not have; after a broken connection it may have more than was known."""
        producer = self._opened()
        producer.publish_to_partitions(
            {
                partition: [
                    producer.encoded(partition, self._named(event, number), number)
                    for number, event in events
                    if number > self._stored[partition]
                ]
                for partition, events in self._waiting.items()
            }
        )
        for partition, events in self._waiting.items():
            self._stored[partition] = max(self._stored[partition], events[-1][0])
        if self._mark["ends"]:
            stand = producer.partitions_properties(list(self._mark["sent"]))
            self._mark["ends"] = {partition: stand[partition].end for partition in self._mark["sent"]}

    def _named(self, event: OutgoingEvent, number: int) -> OutgoingEvent:
        """Return the event as sent to a hub whose end is read back."""
        if not self._mark["ends"]:
            return event
        own = {_OUTPUT_PROPERTY: self._name, _NUMBER_PROPERTY: number}
        return replace(event, properties={**(event.properties or {}), **own})

    # The connection ---------------------------------------------------------------------------------------------------

    def _on_hub(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except RefusedError as error:
            self._hang_up()
            if error.condition == _STOLEN:
                raise OutputError(
                    f"{error}; another run of this job, on a copy of its state folder, is writing to it"
                ) from error
            raise (OutputUnavailableError if error.condition in _AGAIN else OutputError)(str(error)) from error
        except ConnectionLostError as error:
            self._hang_up()
            raise OutputUnavailableError(str(error)) from error
        except ClientError as error:
            self._hang_up()
            raise OutputError(str(error)) from error

    def _hang_up(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def continue_after_held_rows(self) -> None:
        """See ``Output.continue_after_held_rows``; the number of rows dropped among them is unknown."""
        more = sum(self._stored[partition] - dealt for partition, dealt in self._dealt.items())
        self._mark["rows"] += more
        self._mark["sent"] = dict(self._stored)
        self._dealt = dict(self._stored)

    def drain_rejected_rows(self) -> list[RejectedRow]:
        """See ``Output.drain_rejected_rows``."""
        return self._rows.drain_rejected_rows()

    def close(self) -> None:
        """See ``Output.close``."""
        self._hang_up()


class _TooLarge(ValueError):
    """An event is larger than the hub accepts."""


def _check_size(producer: Producer, partition: str, event: OutgoingEvent) -> None:
    room = producer.room(partition)
    if (
        event.properties is None
        and event.system is None
        and len(event.body) + 4 * len(event.key or "") < room - _SURELY_ENOUGH_BYTES
    ):
        return
    size = len(producer.encoded(partition, event, 0)) + _SURELY_ENOUGH_BYTES // 4
    if size > room:
        raise _TooLarge(f"an event of {size:,} bytes is larger than the {room:,} bytes that the hub accepts")
