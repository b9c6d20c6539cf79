"""A producer for several partitions of one hub that tracks how far each is published, for outputs of jobs.

Each partition has one batch in flight at a time, so that no later batch is stored if one is refused. On a Tidegate hub
the producer is idempotent (`tidegate.hub.producers`): its events are numbered, the hub reports how many it has stored,
and a higher epoch fences off earlier instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.amqp import (
    BATCH_FORMAT,
    Accepted,
    Disposition,
    Event,
    Link,
    Message,
    Properties,
    Rejected,
    encode_message,
)
from tidegate.amqp.encoding.types import Int, Short
from tidegate.client.connection_string import ConnectionString, PublishError
from tidegate.client.hub_client import HubClient

_PLACEHOLDER = 0x5EED_BEAD
_SHORT_BODY = 255


class EventTemplate:
    """The head of events with the same annotations and properties.

    Attributes:
        before, after: the head around the number, which has four bytes; ``after`` is None if there is no number.
    """

    __slots__ = ("after", "before")

    def __init__(self, before: bytes, after: bytes | None) -> None:
        self.before = before
        self.after = after

    @classmethod
    def of(
        cls, annotations: Mapping[str, Any], properties: Mapping[str, Any] | None, number_annotation: str | None
    ) -> EventTemplate:
        """Return the template for annotations and properties; ``number_annotation`` has each event's number."""
        if number_annotation is None:
            return cls(_head(annotations, properties), None)
        numbered = {number_annotation: Int(_PLACEHOLDER), **annotations}
        # The number is the first of the annotations, so the first placeholder is its own.
        before, _, after = _head(numbered, properties).partition(_PLACEHOLDER.to_bytes(4, "big"))
        return cls(before, after)

    def fill(self, number: int, body: bytes) -> bytes:
        """Return the encoded event; ``number`` counts a producer's events in a partition and wraps at 2³¹."""
        size = len(body)
        data = (
            b"\x00Su\xa0" + size.to_bytes(1, "big") if size <= _SHORT_BODY else b"\x00Su\xb0" + size.to_bytes(4, "big")
        )
        if self.after is None:
            return self.before + data + body
        return self.before + (number % NUMBERS).to_bytes(4, "big") + self.after + data + body


def _head(annotations: Mapping[str, Any], properties: Mapping[str, Any] | None) -> bytes:
    whole = encode_message(
        Message(
            message_annotations=dict(annotations) or None,
            application_properties=properties or None,
            body_kind="data",
            body=[b""],
        )
    )
    return whole.removesuffix(b"\x00Su\xa0\x00")


IDEMPOTENT = "com.microsoft:idempotent-producer"
PRODUCER_ID = "com.microsoft:producer-id"
PRODUCER_EPOCH = "com.microsoft:producer-epoch"
PRODUCER_SEQUENCE_NUMBER = "com.microsoft:producer-sequence-number"
_PARTITION_KEY = "x-opt-partition-key"
NUMBERS = 2**31  # a number is a non-negative 32-bit integer that wraps
_LAST_EPOCH = 2**15 - 1
_BATCH_OVERHEAD_BYTES = 512
_SECTION_OVERHEAD_BYTES = 8
_DEFAULT_BATCH_BYTES = 1 << 20


class RefusedError(PublishError):
    """The hub refused a batch or a link; ``condition`` is the AMQP condition, "" if it gave none."""

    def __init__(self, message: str, condition: str) -> None:
        super().__init__(message)
        self.condition = condition


@dataclass(frozen=True, slots=True)
class ProducerProgress:
    """An idempotent producer's state in a partition: its id, its epoch, and how many of its events are stored."""

    producer_id: int
    epoch: int
    stored: int


@dataclass(frozen=True, slots=True)
class OutgoingEvent:
    """One event: its body, the partition key that chose its partition, its properties and its system properties."""

    body: bytes
    key: str | None = None
    properties: Mapping[str, Any] | None = None
    system: Properties | None = None


class BatchSender(HubClient):
    """What clients that send batches of events share: what the hub has not answered yet, and what it refused."""

    def __init__(self, connection: ConnectionString) -> None:
        self._partitions: dict[str, Link] = {}
        self._unanswered: dict[Link, int] = {}
        self._refusal: tuple[str, str] | None = None
        super().__init__(connection)

    def _send(self, link: Link, batch: bytes) -> None:
        """Send a batch, as soon as the hub lets it."""
        self._wait(lambda: link.sendable > 0 or self._lost(link), "credit")
        self._check(link)
        sent = len(link.send_deliveries([batch], message_format=BATCH_FORMAT, settled=False))
        self._unanswered[link] = self._unanswered.get(link, 0) + sent

    def _wait_for_answers(self) -> None:
        """Wait until the hub has all that was sent. Raises RefusedError."""
        self._wait(self._answered, "acknowledgement")
        unanswered, self._unanswered = self._unanswered, {}
        for link in unanswered:
            self._check(link)

    def _answered(self) -> bool:
        return not any(self._unanswered.values()) or any(map(self._lost, self._unanswered))

    def _lost(self, link: Link) -> bool:
        return self._refusal is not None or link in self._refused

    def _check(self, link: Link) -> None:
        if self._refusal is not None:
            raise RefusedError(*self._refusal)
        if link in self._refused:
            raise RefusedError(self._refused[link], "")

    def _take(self, event: Event) -> None:
        if isinstance(event, Disposition) and event.link in self._unanswered:
            self._unanswered[event.link] -= event.last - event.first + 1
            if not isinstance(event.state, Accepted):
                error: Any = event.state.error if isinstance(event.state, Rejected) else None
                condition = "" if error is None else str(error.condition)
                self._refusal = (self._reason(error, "did not take the events"), condition)
            return
        super()._take(event)


class Producer(BatchSender):
    """A connection that publishes to the partitions of one hub, opened and closed like a `HubClient`."""

    def __init__(self, connection: ConnectionString) -> None:
        """Connect and sign in.

        Raises:
            ClientError: the hub cannot be reached or refuses.
        """
        self._progress: dict[str, ProducerProgress] = {}
        super().__init__(connection)

    def open_partition(self, partition: str, producer_id: int | None = None, known: int = 0) -> ProducerProgress | None:
        """Open a partition for publishing, and return the producer's state there.

        Args:
            producer_id: the id of an idempotent producer; None for any other.
            known: how many of its events are known to be stored, because the hub's number wraps.

        Raises:
            ClientError: the hub refuses.
        """
        if producer_id is None:
            self._partitions[partition] = self._attach_to(partition, {})
            return None
        # Without an epoch the hub returns the current one; attaching with the next fences off earlier instances.
        first = self._attach_to(partition, {PRODUCER_ID: producer_id})
        epoch = int(first.properties.get(PRODUCER_EPOCH, 0))
        first.detach()
        link = self._attach_to(
            partition, {PRODUCER_ID: producer_id, PRODUCER_EPOCH: Short(min(epoch + 1, _LAST_EPOCH))}
        )
        progress = ProducerProgress(producer_id, int(link.properties.get(PRODUCER_EPOCH, 0)), _stored(link, known))
        self._partitions[partition], self._progress[partition] = link, progress
        return progress

    def open_partition_for_batch(self, partition: str, producer_id: int, epoch: int) -> ProducerProgress:
        """Open a partition for one of a series of batches, and return how many of its events are stored.

        The epoch counts the batches. The first attach with a higher one starts the batch's numbers at 1, another attach
        with the same one finds what an earlier attempt has stored, and one with a lower one is refused.

        Raises:
            ClientError: the hub refuses; a later batch has been started, for one.
        """
        link = self._attach_to(
            partition, {PRODUCER_ID: producer_id, PRODUCER_EPOCH: Short(epoch), PRODUCER_SEQUENCE_NUMBER: Int(0)}
        )
        stored = int(link.properties.get(PRODUCER_SEQUENCE_NUMBER, 0))
        progress = ProducerProgress(producer_id, int(link.properties.get(PRODUCER_EPOCH, 0)), stored)
        self._partitions[partition], self._progress[partition] = link, progress
        return progress

    def join_partition(self, partition: str, producer_id: int, epoch: int, known: int) -> ProducerProgress:
        """Open a partition for a producer that another instance has opened, beside it, and return its state there.

        Instances of one epoch may send the same events at the same time: each event is stored once. One that
        finds a number stored that is beyond the next of its own is refused, and continues after it if it joins again.

        Raises:
            ClientError: the hub refuses; the producer has a later epoch, for one.
        """
        link = self._attach_to(partition, {PRODUCER_ID: producer_id, PRODUCER_EPOCH: Short(epoch)})
        progress = ProducerProgress(producer_id, epoch, _stored(link, known))
        self._partitions[partition], self._progress[partition] = link, progress
        return progress

    def template(self, partition: str, key: str | None, properties: Mapping[str, Any] | None) -> EventTemplate:
        """Return a template for the partition's events with a key and properties."""
        annotations: dict[str, Any] = {} if key is None else {_PARTITION_KEY: key}
        progress = self._progress.get(partition)
        if progress is None:
            return EventTemplate.of(annotations, properties, None)
        annotations |= {PRODUCER_ID: progress.producer_id, PRODUCER_EPOCH: Short(progress.epoch)}
        return EventTemplate.of(annotations, properties, PRODUCER_SEQUENCE_NUMBER)

    def room(self, partition: str) -> int:
        """Return the largest size of an encoded event in bytes."""
        return self.batch_room(partition) - _SECTION_OVERHEAD_BYTES

    def batch_room(self, partition: str) -> int:
        """Return the largest size of a batch in bytes, with the head of each event's data section."""
        return _batch_room(self._partitions[partition])

    def encoded(self, partition: str, event: OutgoingEvent, number: int) -> bytes:
        """Return an event encoded for publishing; ``number`` counts the producer's events in the partition from 1."""
        return encoded_event(event, self._progress.get(partition), number)

    def publish_to_partitions(self, events: Mapping[str, Sequence[bytes]]) -> None:
        """Publish encoded events, in order within each partition, and return when the hub has stored them all.

        Raises:
            RefusedError: The hub refuses a batch; no later events of its partition were sent.
            ClientError: The connection breaks; events of this call may or may not be stored.
        """
        self.publish_batches(
            {partition: _batches(some, self.batch_room(partition)) for partition, some in events.items()}
        )

    def publish_batches(self, batches: Mapping[str, Sequence[bytes]]) -> None:
        """Publish batches, each a data section for every event; otherwise like `publish_to_partitions`."""
        waiting = {partition: [*some] for partition, some in batches.items() if some}
        while waiting:
            for partition in list(waiting):
                self._send(self._partitions[partition], waiting[partition].pop(0))
                if not waiting[partition]:
                    del waiting[partition]
            self._wait_for_answers()

    def _attach_to(self, partition: str, properties: Mapping[str, Any]) -> Link:
        self._sign_in()
        link = self._session.attach_sender(
            f"tidegate-produce-{next(self._numbers)}",
            f"{self._to.entity_path}/Partitions/{partition}",
            properties=properties,
            desired_capabilities=[IDEMPOTENT] if properties else [],
        )
        self._attach(link)
        return link


class Publisher(BatchSender):
    """A connection that publishes to one event hub, opened and closed like a `HubClient`."""

    def publish(self, bodies: Sequence[bytes], *, partition: str | None = None, key: str | None = None) -> None:
        """Publish events in order, and return when the hub has acknowledged them all.

        Args:
            partition: the partition they go to; None leaves it to the hub.
            key: the partition key: events of one key go to one partition.

        Raises:
            PublishError: The hub refuses, or an event is larger than it allows.
            ClientError: The connection breaks; events of the last call may or may not be stored.
        """
        hub = self._to.entity_path
        target = hub if partition is None else f"{hub}/Partitions/{partition}"
        link = self._partitions.get(target)
        if link is None:
            self._sign_in()
            link = self._session.attach_sender(f"tidegate-send-{next(self._numbers)}", target)
            self._attach(link)
            self._partitions[target] = link
        events = [encoded_event(OutgoingEvent(body, key), None, 0) for body in bodies]
        room = _batch_room(link)
        for event in events:
            if len(event) + _SECTION_OVERHEAD_BYTES > room:
                said = f"an event of {len(event):,} bytes is larger than the {room:,} bytes that the hub takes"
                raise PublishError(said)
        for batch in _batches(events, room, None if key is None else {_PARTITION_KEY: key}):
            self._send(link, batch)
        self._wait_for_answers()


def _batch_room(link: Link) -> int:
    return int(link.max_message_size or _DEFAULT_BATCH_BYTES) - _BATCH_OVERHEAD_BYTES


def _batches(events: Sequence[bytes], room: int, annotations: Mapping[str, Any] | None = None) -> list[bytes]:
    """Return events as messages of at most so many bytes, each a data section for every event."""
    batches: list[list[bytes]] = []
    size = room
    for event in events:
        needed = len(event) + _SECTION_OVERHEAD_BYTES
        if size + needed > room:
            batches.append([])
            size = 0
        batches[-1].append(event)
        size += needed
    return [encode_message(Message(message_annotations=annotations, body_kind="data", body=batch)) for batch in batches]


def encoded_event(event: OutgoingEvent, progress: ProducerProgress | None, number: int) -> bytes:
    """Return an event encoded for publishing by a producer; ``progress`` is None if it is not idempotent."""
    annotations: dict[str, Any] = {} if event.key is None else {_PARTITION_KEY: event.key}
    if progress is not None:
        annotations[PRODUCER_ID] = progress.producer_id
        annotations[PRODUCER_EPOCH] = Short(progress.epoch)
        annotations[PRODUCER_SEQUENCE_NUMBER] = Int(number % NUMBERS)
    return encode_message(
        Message(
            message_annotations=annotations or None,
            properties=event.system,
            application_properties=event.properties or None,
            body_kind="data",
            body=[event.body],
        )
    )


def _stored(link: Link, known: int) -> int:
    """Return how many events the hub has stored, of which it says the number that wraps; about ``known`` of them."""
    number = int(link.properties.get(PRODUCER_SEQUENCE_NUMBER, 0))
    return known + (number - known + NUMBERS // 2) % NUMBERS - NUMBERS // 2
