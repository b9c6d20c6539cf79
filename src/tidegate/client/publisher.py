"""A blocking publisher: the reading client with one more kind of link.

Events are sent in batches, each an AMQP message of Event Hubs' batch format, which is stored atomically. A call returns
when the hub has acknowledged every event; a durable hub does so once they are on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.amqp import BATCH_FORMAT, Accepted, Disposition, Event, Link, Message, Rejected, encode_message
from tidegate.client.connection_string import PublishError
from tidegate.client.hub_client import HubClient

_PARTITION_KEY = "x-opt-partition-key"
# Space for a batch's own headers, and for a section's descriptor and size.
_BATCH_OVERHEAD_BYTES = 512
_SECTION_OVERHEAD_BYTES = 8
_DEFAULT_BATCH_BYTES = 1 << 20


class Publisher(HubClient):
    """A connection that publishes to one event hub, opened and closed like a `HubClient`."""

    _publishing: Link | None = None
    _unanswered = 0
    _refusal: str | None = None

    def publish(self, bodies: Sequence[bytes], *, partition: str | None = None, key: str | None = None) -> None:
        """Publish events in order, and return when the hub has acknowledged them all.

        Args:
            partition: the partition they go to; None leaves it to the hub.
            key: the partition key: events of one key go to one partition.

        Raises:
            PublishError: The hub refuses, or an event is larger than it allows.
            ClientError: The connection breaks; events of the last call may or may not be stored.
        """
        link = self._link_to(partition)
        for batch in _batches([_encoded(body, key) for body in bodies], link.max_message_size, key):
            self._wait(lambda: link.sendable > 0 or self._lost(link), "credit")
            self._unanswered += len(link.send_deliveries([batch], message_format=BATCH_FORMAT, settled=False))
        self._wait(lambda: self._unanswered == 0 or self._lost(link), "acknowledgement")
        if self._lost(link):
            raise PublishError(self._refusal or self._refused[link])

    def _lost(self, link: Link) -> bool:
        return self._refusal is not None or link in self._refused

    def _link_to(self, partition: str | None) -> Link:
        hub = self._to.entity_path
        target = hub if partition is None else f"{hub}/Partitions/{partition}"
        link = self._publishing
        if link is None or link.target is None or link.target.address != target:
            self._sign_in()
            if link is not None:
                link.detach()
            link = self._session.attach_sender(f"tidegate-send-{next(self._numbers)}", target)
            self._attach(link)
            self._publishing = link
        return link

    def _take(self, event: Event) -> None:
        if isinstance(event, Disposition) and event.link is self._publishing:
            self._unanswered -= event.last - event.first + 1
            if not isinstance(event.state, Accepted):
                error: Any = event.state.error if isinstance(event.state, Rejected) else None
                self._refusal = self._reason(error, "did not take the events")
            return
        super()._take(event)


def _encoded(body: bytes, key: str | None) -> bytes:
    annotations = None if key is None else {_PARTITION_KEY: key}
    return encode_message(Message(message_annotations=annotations, body_kind="data", body=[body]))


def _batches(events: Sequence[bytes], max_bytes: int, key: str | None) -> Iterator[bytes]:
    """Yield the events as batch messages of at most `max_bytes`, in order."""
    room = (max_bytes or _DEFAULT_BATCH_BYTES) - _BATCH_OVERHEAD_BYTES
    annotations = None if key is None else {_PARTITION_KEY: key}
    batch: list[bytes] = []
    size = 0
    for event in events:
        needed = len(event) + _SECTION_OVERHEAD_BYTES
        if needed > room:
            raise PublishError(f"an event of {len(event):,} bytes is larger than the {room:,} bytes that the hub takes")
        if size + needed > room:
            yield encode_message(Message(message_annotations=annotations, body_kind="data", body=batch))
            batch, size = [], 0
        batch.append(event)
        size += needed
    if batch:
        yield encode_message(Message(message_annotations=annotations, body_kind="data", body=batch))
