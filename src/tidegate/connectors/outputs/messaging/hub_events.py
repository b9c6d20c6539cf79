"""Events that executors make of rows and publish, each once.

The job's process only counts. An executor turns its rows into events and says how many of them each partition gets, by
their keys and by their places; the number of the first row, which decides the rest, is known when all are counted. Then
every executor publishes the share of some partitions, under the producer's epoch and with the numbers of its events, so
that a second attempt, or one that was taken for lost, adds nothing to a partition.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidegate.client import ClientError, ConnectionLostError, ConnectionString
from tidegate.client.producer import (
    EventTemplate,
    OutgoingEvent,
    Producer,
    ProducerProgress,
    RefusedError,
    encoded_event,
)
from tidegate.connectors.model.encoded_rows import EncodedPiece, framed
from tidegate.connectors.outputs.messaging.message_rows import MessageRows, MessageSettings, RowMessage, row_at
from tidegate.connectors.outputs.messaging.system_properties import system_sections
from tidegate.connectors.outputs.output import (
    RECORD_EXCEEDED_SIZE_LIMIT,
    TYPE_CONVERSION_ERROR,
    Identity,
    RejectedRow,
)
from tidegate.connectors.outputs.shape import Shape
from tidegate.engine import ResultRows
from tidegate.hub.placement import partition_for_key

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
