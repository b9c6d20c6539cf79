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

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from pydantic import Field, field_validator

from tidegate.client import BusyError, ClientError, ConnectionLostError, ConnectionString
from tidegate.client.event import decode
from tidegate.client.producer import (
    OutgoingEvent,
    Producer,
    ProducerProgress,
    RefusedError,
)
from tidegate.connectors.model.encoded_rows import Elsewhere, EncodedPiece, EncodedRows, Encoder, opened_frame
from tidegate.connectors.model.errors import JobError, OutputError
from tidegate.connectors.model.section import Public, Secret
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening
from tidegate.connectors.outputs.messaging.hub_events import (
    LOST,
    EventCounts,
    HubEncoder,
    HubPublication,
    PartitionShare,
    PublicationFailure,
    check_size,
    event_of,
    kind_of,
    publications,
)
from tidegate.connectors.outputs.messaging.message_rows import (
    MessageOutput,
    MessageRows,
    MessageSettings,
    row_at,
)
from tidegate.connectors.outputs.messaging.system_properties import OF_EVENTS, check_names
from tidegate.connectors.outputs.output import (
    Mark,
    Output,
    OutputUnavailableError,
)
from tidegate.engine import ResultRows
from tidegate.hub.placement import partition_for_key
from tidegate.retrying import PASSING_CONDITIONS

_OUTPUT_PROPERTY = "tidegate-output"
_NUMBER_PROPERTY = "tidegate-number"
_READ_EVENTS = 5_000
# Replies after which to ask again; an out-of-order number is one that an earlier run has sent in the meantime.
_AGAIN = PASSING_CONDITIONS | {"com.microsoft:out-of-order-sequence", ""}
_STOLEN = "com.microsoft:producer-epoch-stolen"

Result = TypeVar("Result")


@OUTPUTS.register
class EventHubOutput(MessageSettings):
    """An event hub, Tidegate's or Azure's: an event for each result."""

    type: Literal["eventhub"]
    connection_string: Secret = Field(description="Endpoint=…;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=…")
    event_hub: Public | None = Field(default=None, description="the hub's name, where the string has no EntityPath")
    partition_key: Public | None = Field(
        default=None,
        description="the column whose value decides the partition; without it, results go to partitions in turn",
    )
    system_property_columns: dict[Public, Public] = Field(
        default_factory=dict, description="by system property of the event (`MessageId`, `Subject` …), its column"
    )
    consumer_group: Public = Field(
        default="$Default", description="the consumer group for reading back the end of a non-Tidegate hub"
    )

    @field_validator("system_property_columns")
    @classmethod
    def _of_an_event(cls, columns: dict[str, str]) -> dict[str, str]:
        check_names(columns, OF_EVENTS)
        return columns

    def open_at(self, opening: OutputOpening) -> Output:
        return HubOutput(self, opening)


class HubOutput(MessageOutput):
    """An event hub; its mark has the number of this output's events and the end of each partition."""

    def __init__(self, definition: EventHubOutput, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the hub cannot be reached or refuses, or has lost what the journal says it has.
        """
        identity = opening.identity
        try:
            self._connection = ConnectionString.parse(definition.connection_string, definition.event_hub)
        except ClientError as error:
            raise OutputError(f"output '{identity.output}': {error}") from error
        self._identity = identity
        self._group = definition.consumer_group
        rows = MessageRows(
            definition,
            identity,
            opening.shape,
            key=definition.partition_key,
            system=definition.system_property_columns,
            drop=opening.drop,
        )
        super().__init__("eventhub", opening, rows)
        self._mark = {"sent": {}, "ends": {}, **self._mark}
        self._name = identity.digest
        self._producer_id = int(self._name[:12], 16) | 1
        self._definition = definition
        self._shape = opening.shape
        self._dealt: dict[str, int] = {}
        self._stored: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[int, OutgoingEvent]]] = {}
        self._progress: dict[str, ProducerProgress] = {}
        self._room = 0
        self._pieces: list[tuple[EncodedPiece, int]] = []
        self._piece_counts: Counter[str] = Counter()
        self._elsewhere: Elsewhere | None = None
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

    # What the hub has ---------------------------------------------------------------------------------------------

    def _opened(self) -> Producer:
        """Open a connection with every partition; ``_stored`` then has the number of events in each."""
        if self._producer is not None and self._producer.still_open():
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
                    progress = producer.open_partition(partition, self._producer_id, known)
                    assert progress is not None
                    self._stored[partition] = progress.stored
                    self._progress[partition] = progress
                else:
                    producer.open_partition(partition)
                    self._stored[partition] = max(known, self._read_back(producer, partition, stand[partition].end))
                    self._mark["ends"].setdefault(partition, stand[partition].end)
        except BaseException:
            producer.close()
            raise
        self._producer = producer
        self._room = min(map(producer.room, partitions))
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
        self._on_hub(self._opened)
        if self._pieces:
            self._on_hub(self._send_missing)
        first = self._next
        for message in self._rows.messages(rows, first):
            try:
                event = event_of(message)
                partition = self._partition_of(event, message.number)
                check_size(event, self._room, self._progress.get(partition))
            except ValueError as error:
                row = row_at(rows, message.number - first)
                self._rows.reject(kind_of(error), str(error), message.number, message.time, row)
                continue
            self._dealt[partition] = self._dealt.get(partition, 0) + 1
            if self._dealt[partition] > self._stored[partition]:
                self._waiting.setdefault(partition, []).append((self._dealt[partition], event))
        self._taken += len(rows)

    def encoder(self) -> Encoder | None:
        """Return what makes events on executors; None while rows come that the hub has, and for a hub of another kind.

        Such a hub does not number events, so that two attempts of one publication would be stored.
        """
        partitions: list[str] = list(self._mark["sent"])
        if set(self._progress) != set(partitions):
            return None
        if any(self._stored[partition] > self._dealt[partition] for partition in partitions):
            return None
        return HubEncoder(
            self._definition,
            self._identity,
            self._shape,
            self._definition.partition_key,
            self._definition.system_property_columns,
            len(partitions),
            self._progress[partitions[0]],
            self._room,
        )

    def write_encoded(self, rows: EncodedRows) -> None:
        """Accept rows that executors have made events of with the `encoder` of the output.

        Raises:
            OutputUnavailableError: what they have written cannot be read, or the hub not be reached, at the moment.
            OutputError: a row is rejected, and such rows are not to be dropped.
        """
        if self._waiting:
            self._on_hub(self._send_missing)
        try:
            found: list[tuple[EventCounts, EncodedPiece]] = [opened_frame(piece) for piece in rows.pieces]
        except OSError as error:
            raise OutputUnavailableError(f"cannot read what executors have written: {error}") from error
        self._elsewhere = rows.elsewhere
        for counts, events in found:
            number = self._next
            self._rows.take_rejected([replace(row, row=number + row.row) for row in counts.rejected], counts.dropped)
            for partition, count in zip(self._mark["sent"], counts.by_partition(number), strict=True):
                self._dealt[partition] += count
                self._piece_counts[partition] += count
            self._pieces.append((events, number))
            self._taken += counts.rows

    def _partition_of(self, event: OutgoingEvent, number: int) -> str:
        partitions: list[str] = list(self._mark["sent"])
        if event.key is None:
            return partitions[number % len(partitions)]
        return partitions[partition_for_key(event.key, len(partitions))]

    def commit(self) -> Mark:
        mark = super().commit()
        return {**mark, "sent": dict(mark["sent"]), "ends": dict(mark["ends"])}

    def _send(self) -> None:
        self._on_hub(self._send_missing)
        self._mark["sent"] = {partition: self._dealt[partition] for partition in self._mark["sent"]}

    def _send_missing(self) -> None:
        """Send what the hub does not have; after a broken connection it may have more than was known."""
        producer = self._opened()
        if self._pieces:
            self._publish_pieces()
            return
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
        self._waiting = {}
        if self._mark["ends"]:
            stand = producer.partitions_properties(list(self._mark["sent"]))
            self._mark["ends"] = {partition: stand[partition].end for partition in self._mark["sent"]}

    def _publish_pieces(self) -> None:
        """Send the events of pieces, on executors if they can, otherwise from here."""
        shares = [
            PartitionShare(
                name,
                place,
                self._progress[name].epoch,
                self._dealt[name] - self._piece_counts[name],
                self._dealt[name],
                self._stored[name],
            )
            for place, name in enumerate(self._mark["sent"])
        ]
        elsewhere = self._elsewhere
        places = 1 if elsewhere is None else elsewhere.places
        works = publications(self._connection, self._producer_id, shares, self._pieces, places)
        try:
            failures = self._published_here(works) if elsewhere is None else elsewhere.run(works)
        except JobError:
            # What attempts there may still send is what is sent here, with the same numbers.
            failures = self._published_here(works)
        for failure in failures:
            if failure is not None:
                if failure.condition == LOST:
                    raise ConnectionLostError(failure.message)
                raise RefusedError(failure.message, failure.condition)
        self._stored = dict(self._dealt)
        self._pieces, self._piece_counts, self._elsewhere = [], Counter(), None

    def _published_here(self, works: Sequence[HubPublication]) -> list[PublicationFailure | None]:
        try:
            return [work() for work in works]
        except OSError as error:
            raise OutputUnavailableError(f"cannot read what executors have written: {error}") from error

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
        except (ConnectionLostError, BusyError) as error:
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
        """The number of rows dropped among them is unknown."""
        more = sum(self._stored[partition] - dealt for partition, dealt in self._dealt.items())
        self._mark["rows"] += more
        self._mark["sent"] = dict(self._stored)
        self._dealt = dict(self._stored)

    def close(self) -> None:
        self._hang_up()
