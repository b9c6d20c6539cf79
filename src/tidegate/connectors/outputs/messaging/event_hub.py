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

import pickle
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from tidegate.client import BusyError, ClientError, ConnectionLostError, ConnectionString
from tidegate.client.event import decode
from tidegate.client.producer import (
    EventTemplate,
    OutgoingEvent,
    Producer,
    ProducerProgress,
    RefusedError,
    encoded_event,
)
from tidegate.connectors.model.encoded_rows import Elsewhere, EncodedPiece, EncodedRows, Encoder, framed, opened_frame
from tidegate.connectors.model.errors import JobError, OutputError
from tidegate.connectors.model.section import Public, Secret
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening
from tidegate.connectors.outputs.messaging.message_rows import (
    MessageOutput,
    MessageRows,
    MessageSettings,
    RowMessage,
    row_at,
)
from tidegate.connectors.outputs.messaging.system_properties import OF_EVENTS, check_names, system_sections
from tidegate.connectors.outputs.output import (
    RECORD_EXCEEDED_SIZE_LIMIT,
    TYPE_CONVERSION_ERROR,
    Identity,
    Mark,
    Output,
    OutputUnavailableError,
    RejectedRow,
)
from tidegate.connectors.outputs.shape import Shape
from tidegate.engine import ResultRows
from tidegate.hub.placement import partition_for_key
from tidegate.retrying import PASSING_CONDITIONS

_SURELY_ENOUGH_BYTES = 2_048  # for everything in an event but its body and properties, its key included
_BY_NUMBER = 2**16 - 1
_BUFFER_BYTES = 2**23
_ATTEMPTS = 20
_PAUSE_S = 0.25
LOST = "connection lost"
_WRONG = "wrong"
# Another attempt has sent, or is sending, the same events.
_OVERTAKEN = frozenset({"com.microsoft:out-of-order-sequence", "com.microsoft:server-busy", LOST, ""})

Places = npt.NDArray[np.int64]


class TooLarge(ValueError):
    """An event is larger than the hub accepts."""


def event_of(message: RowMessage) -> OutgoingEvent:
    """Return a row's message as an event.

    Raises:
        ValueError: a system property cannot have its value.
    """
    system = None if message.system is None else system_sections(message.system).properties
    return OutgoingEvent(message.body, message.key, message.properties, system)


def check_size(event: OutgoingEvent, room: int, progress: ProducerProgress | None) -> None:
    """Raise TooLarge if an event does not fit into ``room`` bytes; its size does not depend on the epoch."""
    if (
        event.properties is None
        and event.system is None
        and len(event.body) + 4 * len(event.key or "") < room - _SURELY_ENOUGH_BYTES
    ):
        return
    size = len(encoded_event(event, progress, 0)) + _SURELY_ENOUGH_BYTES // 4
    if size > room:
        raise TooLarge(f"an event of {size:,} bytes is larger than the {room:,} bytes that the hub accepts")


def kind_of(error: ValueError) -> str:
    """Return the kind of error for a row that cannot be an event."""
    return RECORD_EXCEEDED_SIZE_LIMIT if isinstance(error, TooLarge) else TYPE_CONVERSION_ERROR


@dataclass(frozen=True, slots=True)
class EventCounts:
    """What a writer has made of a run of rows, for the job's process.

    Attributes:
        rows: how many there were, those that were rejected included.
        with_key: by partition, how many events have a key that decides it.
        in_turn: by the remainder of a row's place, how many events go where the row's number says.
        rejected: samples of rows that cannot be events, numbered from the first; ``dropped``: how many there are.
    """

    rows: int
    with_key: tuple[int, ...]
    in_turn: tuple[int, ...]
    rejected: Sequence[RejectedRow] = ()
    dropped: int = 0

    def by_partition(self, number: int) -> list[int]:
        """Return how many events each partition gets if the first row has a number."""
        count = len(self.with_key)
        return [self.with_key[place] + self.in_turn[(place - number) % count] for place in range(count)]


@dataclass(frozen=True, slots=True)
class RowEvents:
    """Events of a run of rows: by event the row's place, the partition by its key, and the event."""

    places: Places
    partitions: npt.NDArray[np.uint16]
    bodies: Sequence[bytes]
    others: Mapping[int, OutgoingEvent]
    """By index, events that have more than a body."""

    def partitions_from(self, number: int, count: int) -> Places:
        """Return the partition of each event if the first row has a number."""
        return np.where(self.partitions == _BY_NUMBER, (self.places + number) % count, self.partitions)


@dataclass(frozen=True, slots=True)
class HubEncoder:
    """An `Encoder` that makes events of rows: a head of `EventCounts`, then pickled `RowEvents`.

    Attributes:
        progress: of the producer in any partition. room: how large an event may be, in bytes.
    """

    settings: MessageSettings = field(repr=False)
    identity: Identity
    shape: Shape | None
    key: str | None
    system: Mapping[str, str]
    partitions: int
    progress: ProducerProgress
    room: int

    def __call__(self, rows: ResultRows) -> bytes:
        """Return the head and the events of rows."""
        messages = MessageRows(self.settings, self.identity, self.shape, key=self.key, system=self.system, drop=True)
        places: list[int] = []
        partitions: list[int] = []
        bodies: list[bytes] = []
        others: dict[int, OutgoingEvent] = {}
        for message in messages.messages(rows, 0):
            try:
                event = event_of(message)
                check_size(event, self.room, self.progress)
            except ValueError as error:
                messages.reject(kind_of(error), str(error), message.number, message.time, row_at(rows, message.number))
                continue
            if event.key is not None or event.properties is not None or event.system is not None:
                others[len(bodies)] = event
            places.append(message.number)
            partitions.append(_BY_NUMBER if event.key is None else partition_for_key(event.key, self.partitions))
            bodies.append(event.body)
        events = RowEvents(np.array(places, np.int64), np.array(partitions, np.uint16), bodies, others)
        by_key = events.partitions[events.partitions != _BY_NUMBER]
        turns = events.places[events.partitions == _BY_NUMBER] % self.partitions
        counts = EventCounts(
            len(rows),
            tuple(np.bincount(by_key, minlength=self.partitions).tolist()),
            tuple(np.bincount(turns, minlength=self.partitions).tolist()),
            sorted(messages.drain_rejected_rows(), key=lambda row: row.row),
            messages.dropped,
        )
        return framed(counts, pickle.dumps(events, protocol=5))


@dataclass(frozen=True, slots=True)
class PartitionShare:
    """What a publication sends to a partition.

    Attributes:
        name, place: of the partition. epoch: of the producer.
        begin: how many of the producer's events come before those of the pieces; ``end``: how many there are with them.
        stored: how many of them the hub is known to have.
    """

    name: str
    place: int
    epoch: int
    begin: int
    end: int
    stored: int


@dataclass(frozen=True, slots=True)
class PublicationFailure:
    """Why a publication has failed: what the hub says, and its condition, or `LOST`."""

    message: str
    condition: str


@dataclass(frozen=True, slots=True)
class HubPublication:
    """Sends the events of some partitions, when it is called.

    Attributes:
        pieces: of pickled `RowEvents`, in order, each with the number of its first row.
        count: how many partitions the hub has.
    """

    connection: ConnectionString = field(repr=False)
    producer_id: int
    shares: tuple[PartitionShare, ...]
    pieces: tuple[tuple[EncodedPiece, int], ...]
    count: int

    def __call__(self) -> PublicationFailure | None:
        """Send what the hub does not have yet, and return once it has everything.

        Raises:
            OSError: a piece cannot be read.
        """
        failure: PublicationFailure | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S)
            try:
                self._attempt()
                return None
            except RefusedError as error:
                failure = PublicationFailure(str(error), error.condition)
            except ConnectionLostError as error:
                failure = PublicationFailure(str(error), LOST)
            except ClientError as error:
                failure = PublicationFailure(str(error), _WRONG)
            if failure.condition not in _OVERTAKEN:
                break
        return failure

    def _attempt(self) -> None:
        producer = Producer(self.connection)
        try:
            stored = {
                share.place: producer.join_partition(share.name, self.producer_id, share.epoch, share.stored).stored
                for share in self.shares
            }
            if any(stored[share.place] < share.end for share in self.shares):
                self._send(producer, stored)
        finally:
            producer.close()

    def _send(self, producer: Producer, stored: Mapping[int, int]) -> None:
        names = {share.place: share.name for share in self.shares}
        numbers = {share.place: share.begin for share in self.shares}
        plain = {share.place: producer.template(share.name, None, None) for share in self.shares}
        with_key: dict[tuple[int, str], EventTemplate] = {}
        waiting: dict[str, list[bytes]] = {name: [] for name in names.values()}
        size = 0
        for piece, first in self.pieces:
            events: RowEvents = pickle.loads(piece.read())
            partitions = events.partitions_from(first, self.count)
            for index in np.flatnonzero(np.isin(partitions, list(names))).tolist():
                place = int(partitions[index])
                numbers[place] += 1
                number = numbers[place]
                if number <= stored[place]:
                    continue
                event = events.others.get(index)
                if event is None:
                    encoded = plain[place].fill(number, events.bodies[index])
                elif event.properties is None and event.system is None and event.key is not None:
                    template = with_key.get((place, event.key))
                    if template is None:
                        template = with_key[place, event.key] = producer.template(names[place], event.key, None)
                    encoded = template.fill(number, event.body)
                else:
                    encoded = producer.encoded(names[place], event, number)
                waiting[names[place]].append(encoded)
                size += len(encoded)
                if size > _BUFFER_BYTES:
                    producer.publish_to_partitions(waiting)
                    waiting, size = {name: [] for name in names.values()}, 0
        producer.publish_to_partitions(waiting)
        assert numbers == {share.place: share.end for share in self.shares}


def publications(
    connection: ConnectionString,
    producer_id: int,
    shares: Sequence[PartitionShare],
    pieces: Sequence[tuple[EncodedPiece, int]],
    count: int,
) -> list[HubPublication]:
    """Divide the partitions of a hub among publications; at most ``count``, each with some of the partitions."""
    dealt: list[list[PartitionShare]] = [[] for _ in range(min(count, len(shares)))]
    for place, share in enumerate(shares):
        dealt[place % len(dealt)].append(share)
    return [HubPublication(connection, producer_id, tuple(some), tuple(pieces), len(shares)) for some in dealt]


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
