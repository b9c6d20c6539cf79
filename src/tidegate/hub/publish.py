"""Publishing: parse a transfer, choose its partition, and store its events.

A transfer of format 0 is one event. One of the batch format holds many, each a complete encoded message in a data
section. Either is stored atomically in one partition. Events are stored byte for byte as sent, except for three
annotations: the partition key of a batch's envelope is added to events that lack one, the publisher's name is added to
events on that publisher's link, and a publisher's name that came from any other sender is removed.

A partition key chooses the partition, so a publication may have only one. On a link to a partition there is nothing to
choose, and each event keeps its own key: buffered producers hash keys themselves and send all events of one partition
together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidegate.amqp.messages import (
    BATCH_FORMAT,
    DATA,
    DecodeError,
    message_annotation,
    sections,
    split_batch,
    with_annotations,
)
from tidegate.hub.access import Access, Grant
from tidegate.hub.access_rules import Right
from tidegate.hub.addresses import PublishTarget
from tidegate.hub.checks import check_events
from tidegate.hub.errors import (
    ArgumentError,
    HubError,
    MessageMalformed,
    MessageTooLarge,
    NotAllowed,
    OutOfOrderSequence,
    ProducerFenced,
    PublisherRevoked,
    ServerBusy,
)
from tidegate.hub.partition import Partition
from tidegate.hub.placement import partition_for_key
from tidegate.hub.producers import MARK as PRODUCER_MARK
from tidegate.hub.producers import AppendRefused, Numbers, numbers_of
from tidegate.log import Appended, LogClosed, LogError, NumbersRefused
from tidegate.log.group import OnDurable

if TYPE_CHECKING:
    from tidegate.hub.event_hub import EventHub

_logger = logging.getLogger(__name__)
PARTITION_KEY = "x-opt-partition-key"
PUBLISHER = "x-opt-publisher"
MAX_PARTITION_KEY_CHARACTERS = 128
_PARTITION_KEY = PARTITION_KEY.encode("ascii")
_PUBLISHER = PUBLISHER.encode("ascii")

OnDone = Callable[[HubError | None], None]
OnEachDone = Callable[[Sequence[int], HubError | None], None]


class Publisher:
    """The target of one publishing link or HTTPS request."""

    def __init__(self, event_hub: EventHub, target: PublishTarget, access: Access, grant: Grant) -> None:
        """Use `Namespace.open_publisher`."""
        self._event_hub = event_hub
        self._target = target
        self._access = access
        self._grant = grant
        self._partition = None if target.partition_id is None else event_hub.partition(target.partition_id)
        self.expires_at_s = grant.expires_at_s
        self.max_message_bytes = event_hub.admission.max_message_bytes
        # for an idempotent producer: the properties of the attach reply
        self.producer_id: int | None = None
        self.producer_epoch: int | None = None
        self.producer_sequence_number: int | None = None

    def renew(self, grants: Sequence[Grant], now_s: float) -> int | None:
        """Return when the link expires with these grants, in seconds since 1970, None for never.

        Raises Unauthorized when none covers it.
        """
        self._grant = self._access.authorize(grants, Right.SEND, self._target.path, now_s)
        self.expires_at_s = self._grant.expires_at_s
        return self.expires_at_s

    def check(self) -> None:
        """Check that the target, and the key and right behind the grant, still exist; its expiry is not looked at.

        Raises NotFound, Unauthorized, PublisherRevoked.
        """
        self._event_hub.check_is_there()
        self._access.authorize([self._grant], Right.SEND, self._target.path, 0)
        if self._target.publisher is not None and self._event_hub.is_revoked(self._target.publisher):
            raise PublisherRevoked(f"the publisher {self._target.publisher} is revoked")

    def be_idempotent(self, properties: dict[str, object]) -> None:
        """Number events as an idempotent producer's from now on.

        Raises NotAllowed without a partition, ArgumentError, ProducerFenced, ServerBusy.
        """
        if self._partition is None:
            raise NotAllowed("an idempotent producer publishes to one partition: attach to hub/Partitions/N")
        try:
            attached = self._partition.producers.attach(properties)
        except OSError as error:
            raise ServerBusy(f"the producer's state cannot be stored: {error.strerror}") from error
        self.producer_id, self.producer_epoch, self.producer_sequence_number = attached

    def publish(self, message_format: int, payload: bytes | memoryview, on_done: OnDone) -> None:
        """Store one transfer: an event (format 0) or a batch, all or nothing.

        Raises HubError at once if the transfer is refused. Otherwise on_done is called once: from a committer thread
        when the events are durable (None) or could not be stored; at once for an idempotent producer's duplicate.
        """
        payload = bytes(payload)
        if len(payload) > self.max_message_bytes:
            raise MessageTooLarge(f"a publication may have {self.max_message_bytes} bytes, this one has {len(payload)}")
        try:
            if message_format == BATCH_FORMAT:
                events = split_batch(payload)
                # nearly every batch consists only of data sections
                envelope = b"" if payload.startswith(b"\x00\x53\x75") else payload[: _first_data(payload)]
                key = _key_of(envelope) if envelope else None
            elif message_format == 0:
                events, key = [payload], None
            else:
                raise ArgumentError(
                    f"the message format {message_format:#x} is not known: expected 0 or {BATCH_FORMAT:#x}"
                )
            self._append(*self._prepare(events, len(payload), key), on_done)
        except DecodeError as error:
            raise MessageMalformed(f"the publication is not AMQP: {error}") from None

    def publish_singles(self, payloads: Sequence[bytes], on_done: OnEachDone) -> None:
        """Store transfers of format 0 separately and in order, with one append per partition.

        Raises nothing. Each call of on_done gets the indexes of some payloads and what publish() would have raised or
        reported for each of them. Every index is reported once, from a committer thread or at once.
        """
        if self._partition is not None and payloads and self._are_plain(payloads):
            self._append_singles(self._partition, (range(len(payloads)), payloads), on_done)
            return
        waiting: dict[Partition, tuple[list[int], list[bytes]]] = {}
        for index, payload in enumerate(payloads):
            try:
                if len(payload) > self.max_message_bytes:
                    limit = self.max_message_bytes
                    raise MessageTooLarge(f"a publication may have {limit} bytes, this one has {len(payload)}")
                partition, events = self._prepare([payload], len(payload), None)
                if PRODUCER_MARK in payload:
                    # its number is accepted or refused, and earlier events must be stored first
                    self._append_singles(partition, waiting.pop(partition, None), on_done)
                    self._append(partition, events, partial(on_done, (index,)))
                    continue
            except DecodeError as error:
                on_done((index,), MessageMalformed(f"the publication is not AMQP: {error}"))
            except HubError as error:
                on_done((index,), error)
            else:
                if partition not in waiting:
                    waiting[partition] = [], []
                indexes, together = waiting[partition]
                indexes.append(index)
                together += events
        for partition, some in waiting.items():
            self._append_singles(partition, some, on_done)

    def _are_plain(self, payloads: Sequence[bytes]) -> bool:
        """Return whether all of them can be stored unchanged, as most can."""
        if self._target.publisher is not None or self._event_hub.admission.throughput is not None:
            return False
        if max(map(len, payloads)) > self.max_message_bytes:
            return False
        try:
            return not check_events(payloads)
        except DecodeError:
            return False

    def _append_singles(
        self, partition: Partition, waiting: tuple[Sequence[int], Sequence[bytes]] | None, on_done: OnEachDone
    ) -> None:
        if waiting is None:
            return
        indexes, events = waiting
        try:
            self._store(partition, events, partial(_each_finished, on_done, indexes))
        except HubError as error:
            on_done(indexes, error)

    def publish_events(self, events: Sequence[bytes], partition_key: str | None, on_done: OnDone) -> None:
        """Store messages that were encoded one by one, as HTTPS sends them. Otherwise like `publish`."""
        size = sum(map(len, events))
        if size > self.max_message_bytes:
            raise MessageTooLarge(f"a publication may have {self.max_message_bytes} bytes, this one has {size}")
        try:
            self._append(*self._prepare(list(events), size, partition_key), on_done)
        except DecodeError as error:
            raise MessageMalformed(f"an event is not AMQP: {error}") from None

    def close(self) -> None:
        """Close the link. Events published before are still stored."""

    def _prepare(self, events: list[bytes], size: int, key: str | None) -> tuple[Partition, list[bytes]]:
        """Return a publication's partition, and the events to store. Raises HubError, DecodeError."""
        if not events:
            raise ArgumentError("a batch needs at least one event")
        annotated = check_events(events)
        if key is not None or (annotated and any(_PARTITION_KEY in event for event in events)):
            own = _own_keys(events, key)
            if self._partition is None:
                key = _one_key(own, key)
            events = _with_key(events, own, key)
        publisher = self._target.publisher
        if publisher is not None:
            events, key = self._of_publisher(publisher, events, key)
        elif annotated and any(_PUBLISHER in event for event in events):
            events = [_without_publisher(event) for event in events]
        partition = self._place(key)
        self._admit(partition, size, len(events))
        return partition, events

    def _append(self, partition: Partition, events: Sequence[bytes], on_done: OnDone) -> None:
        """Raises HubError."""
        if not self._store(partition, events, partial(_finish, on_done), numbers_of(events)):
            on_done(None)

    def _store(
        self, partition: Partition, events: Sequence[bytes], on_durable: OnDurable, numbers: Numbers | None = None
    ) -> bool:
        """Store events, or return False if their numbers say that they were stored before. Raises HubError."""
        try:
            if numbers is not None:
                return partition.producers.append(numbers, events, on_durable)
            partition.log.append(events, on_durable)
            return True
        except LogClosed as error:
            self._event_hub.check_is_there()
            raise ServerBusy("the hub is stopping") from error

    def _admit(self, partition: Partition, size: int, count: int) -> None:
        """Raise ServerBusy when the namespace's throughput units, or the partition's single unit, are used up."""
        throughput = self._event_hub.admission.throughput
        if throughput is None:
            return
        wait_s = throughput.partition_wait_s(partition.ingress)
        if wait_s > 0:
            raise ServerBusy(
                f"the partition {partition.partition_id} takes in at most one throughput unit; "
                f"try again in {wait_s:.2f} s"
            )
        wait_s = throughput.ingress_wait_s(size, count, partition.ingress)
        if wait_s > 0:
            raise ServerBusy(
                f"the namespace's throughput units ({throughput.units}) are used up; try again in {wait_s:.2f} s"
            )

    def _of_publisher(self, name: str, events: list[bytes], key: str | None) -> tuple[list[bytes], str]:
        if self._event_hub.is_revoked(name):
            raise PublisherRevoked(f"the publisher {name} is revoked")
        if key is not None and key != name:
            raise NotAllowed(f"the partition key {key!r} is not the publisher {name!r}")
        return [with_annotations(event, {PARTITION_KEY: name, PUBLISHER: name}) for event in events], name

    def _place(self, key: str | None) -> Partition:
        partitions = self._event_hub.partitions
        if self._partition is not None:
            return self._partition
        if key is None:
            return partitions[self._event_hub.turns.next()]
        return partitions[partition_for_key(key, len(partitions))]


def _finish(on_done: OnDone, result: Appended | LogError) -> None:
    """Report that the log stored a publication or failed to. Runs in a committer thread."""
    on_done(_refusal(result) if isinstance(result, LogError) else None)


def _refusal(error: LogError) -> HubError:
    if isinstance(error, AppendRefused):
        return error.error
    if isinstance(error, NumbersRefused):
        return ProducerFenced(str(error)) if error.is_epoch_over else OutOfOrderSequence(str(error))
    return ServerBusy(str(error))


def _each_finished(on_done: OnEachDone, indexes: Sequence[int], result: Appended | LogError) -> None:
    """Report the same for separate events that were stored together. Runs in a committer thread."""
    on_done(indexes, ServerBusy(str(result)) if isinstance(result, LogError) else None)


def _first_data(payload: bytes) -> int:
    for section in sections(payload):
        if section.code == DATA:
            return section.start
    return len(payload)


def _key_entry(key: str | None) -> bytes | tuple[()]:
    """Return the prefix of a message whose only annotation is this partition key, or a prefix that nothing matches."""
    text = b"" if key is None else key.encode("utf-8", "surrogatepass")
    if not 0 < len(text) < 200:
        return ()
    entry = b"\xa3\x13" + _PARTITION_KEY + b"\xa1" + bytes((len(text),)) + text
    return b"\x00\x53\x72\xc1" + bytes((1 + len(entry), 2)) + entry


def _key_of(encoded: bytes) -> str | None:
    """Return a message's partition key. One that is not a string counts as none, as in the service."""
    if _PARTITION_KEY not in encoded:
        return None
    key = message_annotation(encoded, PARTITION_KEY)
    if not isinstance(key, str):
        return None
    if len(key) > MAX_PARTITION_KEY_CHARACTERS:
        raise ArgumentError(f"a partition key is a string of at most {MAX_PARTITION_KEY_CHARACTERS} characters")
    return key


def _own_keys(events: list[bytes], key: str | None) -> list[str | None]:
    """Return the key that each event itself carries, in an envelope with the key `key`."""
    if key is not None and len(key) > MAX_PARTITION_KEY_CHARACTERS:
        raise ArgumentError(f"a partition key has at most {MAX_PARTITION_KEY_CHARACTERS} characters")
    first = key if key is not None else _key_of(events[0])
    entry = _key_entry(first)
    # events that carry the same key begin with the same bytes and need not be parsed
    return [first if event.startswith(entry) else _key_of(event) for event in events]


def _one_key(own: Sequence[str | None], key: str | None) -> str | None:
    """Return the key that chooses the partition of the publication. Raises NotAllowed for two keys."""
    keys = {name for name in (*own, key) if name is not None}
    if len(keys) > 1:
        raise NotAllowed("the events of a publication have different partition keys")
    return next(iter(keys), None)


def _with_key(events: list[bytes], own: Sequence[str | None], key: str | None) -> list[bytes]:
    if key is None:
        return events
    return [
        event if name is not None else with_annotations(event, {PARTITION_KEY: key})
        for event, name in zip(events, own, strict=True)
    ]


def _without_publisher(event: bytes) -> bytes:
    if message_annotation(event, PUBLISHER) is None:
        return event
    return with_annotations(event, {PUBLISHER: None})
