"""A reader's link: durable events out, within its credit, as fast as its transport takes them and no faster.

Events are read from the log in chunks and annotated once; readers that follow one another share the annotated chunk. A
link is moved on by four things: credit, room in the transport, growth of the partition, and the end of a read that had
to wait. Recent events are read at once, others in another thread, so that a slow disk or store holds up no other link.
Nothing is queued for a reader beyond its current chunk, so one that lags costs a pointer into the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.amqp import Credit, Link, Timestamp, Transfers, annotate_run
from tidegate.amqp.endpoints.link import SEND_SETTLED
from tidegate.amqp.messages import with_delivery_annotations
from tidegate.hub.errors import HubError
from tidegate.hub.namespace import Reader
from tidegate.log import EventBatch
from tidegate.server.connections.link_handler import follow_token, settle_mode
from tidegate.server.context.readers import Chunk

if TYPE_CHECKING:
    from tidegate.server.connections.client_connection import ClientConnection

CHUNK_BYTES = 256 << 10
EVENT_OVERHEAD_BYTES = 64
SELECTOR = "apache.org:selector-filter:string"
EPOCH = "com.microsoft:epoch"
RECEIVER_NAME = "com.microsoft:receiver-name"
RUNTIME_METRIC = "com.microsoft:enable-receiver-runtime-metric"


class DeliveryLink:
    """The behaviour of a link whose source is a partition in a consumer group."""

    def __init__(self, client: ClientConnection, link: Link, reader: Reader, with_runtime_metrics: bool) -> None:
        self._client = client
        self._link = link
        self._reader = reader
        self._chunks = client.context.chunks
        self._gate = client.context.egress
        self._with_runtime_metrics = with_runtime_metrics
        self._settled = link.snd_settle_mode == SEND_SETTLED
        self._chunk: Sequence[bytes] = ()
        self._position = 0
        self._loading: asyncio.Task[list[EventBatch]] | None = None
        self._scheduled = False
        self._closed = False
        self._drain = False
        self._wake = self.pump_and_flush
        self.expires_at_s: float | None = reader.expires_at_s
        client.context.arrivals.watch(reader.partition, self._wake)
        if not reader.is_located:
            self._start(self._locate())

    @classmethod
    def attach(cls, client: ClientConnection, link: Link, address: str) -> DeliveryLink:
        """Open the reader and accept the link. Raises HubError."""

        def on_stolen(error: HubError) -> None:
            client.detach(link, error)
            client.flush()

        epoch = link.properties.get(EPOCH)
        reader = client.context.namespace.open_reader(
            address,
            client.tokens.grants,
            time.time(),
            selector=_selector(link),
            epoch=epoch if isinstance(epoch, int) else None,
            receiver_name=str(link.properties.get(RECEIVER_NAME) or ""),
            on_stolen=on_stolen,
        )
        with_runtime_metrics = RUNTIME_METRIC in link.desired_capabilities
        offered = [RUNTIME_METRIC] if with_runtime_metrics else []
        link.accept(offered_capabilities=offered, snd_settle_mode=settle_mode(link, client.peer_properties))
        return cls(client, link, reader, with_runtime_metrics)

    def on_transfers(self, transfers: Transfers) -> None:
        """The peer only receives on this link."""

    def on_credit(self, credit: Credit) -> None:
        self._drain = credit.drain
        self.pump()

    def on_writable(self) -> None:
        self.pump()

    def renew(self) -> None:
        """The token has ended; a later one may cover the link. Raises Unauthorized."""
        self.expires_at_s = self._reader.renew(self._client.tokens.grants, time.time())

    def check(self) -> None:
        self._reader.check()

    def close(self) -> None:
        self._closed = True
        if self._loading is not None:
            self._loading.cancel()
        self._gate.forget(self._wake)
        self._client.context.arrivals.unwatch(self._reader.partition, self._wake)
        self._reader.close()

    def pump_and_flush(self) -> None:
        """pump(), from outside the client's own processing."""
        self._client.guard(self._pump_and_flush)

    def _pump_and_flush(self) -> None:
        self.pump()
        self._client.flush()

    def pump(self) -> None:
        """Send what credit, transport and log allow, at most about a chunk; the rest in the loop's next turn."""
        self._scheduled = False
        link = self._link
        if self._closed or not self._client.writable:
            return
        sendable = link.sendable
        if not sendable and not self._drain:
            return
        if self._gate.is_limiting:
            if not self._gate.may_send(self._wake):
                return
            sendable = min(sendable, self._gate.turn_events)
        try:
            follow_token(self)
            self._reader.confirm()
            if self._position >= len(self._chunk) and not self._next_chunk():
                if self._drain and self._loading is None:
                    self._drain = False
                    link.drained()
                return
        except HubError as error:
            self._client.detach(link, error)
            return
        outgoing = self._outgoing(self._position, self._position + sendable)
        sent = len(link.send_deliveries(outgoing, settled=self._settled, remembered=False))
        size = sum(map(len, outgoing[:sent]))
        if self._gate.is_limiting:
            self._gate.sent(size, sent)
        self._position += sent
        metrics = self._client.context.metrics
        metrics.delivered_events += sent
        metrics.deliveries.count(self._reader.partition.hub_name, sent, size)
        if sent and link.sendable and not self._scheduled:
            self._scheduled = True
            self._client.loop.call_soon(self._wake)

    def _next_chunk(self) -> bool:
        """Load the next chunk; False at the end of the log, or while a read waits. Raises HubError."""
        if self._loading is not None:
            return False
        reader = self._reader
        start = reader.next_sequence_number
        chunk = self._chunks.get(reader.partition, start)
        if chunk is None:
            batches = reader.read_cached(max_events=1 << 20, max_bytes=CHUNK_BYTES)
            if batches is None:
                self._start(reader.read(max_events=1 << 20, max_bytes=CHUNK_BYTES))
                return False
            if not batches:
                return False
            self._show(batches, start)
            return True
        reader.next_sequence_number = chunk.next_sequence_number
        self._chunk = chunk.events
        self._position = 0
        return True

    def _show(self, batches: Sequence[EventBatch], start: int) -> None:
        """Make a chunk of events that were read from `start` on."""
        events: list[bytes] = []
        for batch in batches:
            events += annotate_run(batch.events, batch.base_sequence_number, batch.offsets, batch.enqueued_time_ms)
        size = sum(map(len, events)) + EVENT_OVERHEAD_BYTES * len(events)
        self._chunks.put(self._reader.partition, start, Chunk(events, size, self._reader.next_sequence_number))
        self._chunk = events
        self._position = 0

    async def _locate(self) -> list[EventBatch]:
        await self._reader.locate()
        return []

    def _start(self, work: Coroutine[Any, Any, list[EventBatch]]) -> None:
        """Begin a read that may have to wait. Nothing else is read until it has ended."""
        start = self._reader.next_sequence_number if self._reader.is_located else 0
        self._loading = loading = self._client.loop.create_task(work)
        loading.add_done_callback(lambda _: self._client.guard(lambda: self._loaded(loading, start)))

    def _loaded(self, loading: asyncio.Task[list[EventBatch]], start: int) -> None:
        if loading.cancelled():
            return
        failure = loading.exception()
        self._loading = None
        if self._closed:
            return
        if isinstance(failure, HubError):
            self._client.detach(self._link, failure)
            self._client.flush()
            return
        if failure is not None:
            raise failure
        if batches := loading.result():
            self._show(batches, start)
        self._pump_and_flush()

    def _outgoing(self, start: int, end: int) -> Sequence[bytes]:
        events = self._chunk[start:end]
        if self._with_runtime_metrics:
            properties = self._reader.partition.properties()
            annotations = {
                "last_enqueued_sequence_number": properties.last_enqueued_sequence_number,
                "last_enqueued_offset": properties.last_enqueued_offset,
                "last_enqueued_time_utc": Timestamp(properties.last_enqueued_time_ms),
                "runtime_info_retrieval_time_utc": Timestamp(int(time.time() * 1000)),
            }
            return [with_delivery_annotations(event, annotations) for event in events]
        return events


def _selector(link: Link) -> str | None:
    """The text of the selector filter, under whichever name or descriptor the client put it."""
    filters = (link.source.filter if link.source else None) or {}
    for name, described in filters.items():
        if name == SELECTOR or getattr(described, "descriptor", None) in (SELECTOR, 0x468C00000004):
            value = getattr(described, "value", described)
            return value if isinstance(value, str) else ""
    return None
