"""The process of a worker: accepts clients on the shared ports, and reaches the store over the sockets it was given."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tidegate.hub.config import NamespaceConfig
from tidegate.hub.partition import ReaderSlot
from tidegate.hub.producers import AppendRefused, Numbers
from tidegate.kafka.records import RecordBatch
from tidegate.log import FACTS_BYTES, LogError, LogFacts
from tidegate.log.group import OnDurable
from tidegate.log_format import log_to_standard_error
from tidegate.server import Server, ServerSettings
from tidegate.server.context.completions import Completions, InFlightBytes
from tidegate.server.context.context import LogIdentities, ServerContext
from tidegate.server.context.metrics import Deliveries, TimedCounts
from tidegate.server.context.origin import Origin
from tidegate.server.context.readers import Arrivals, EgressGate, SharedChunks
from tidegate.server.kafka.connection import Handle
from tidegate.server.kafka.session import Session
from tidegate.server.server import tune_gc
from tidegate.workers import frames
from tidegate.workers.door import hand_over
from tidegate.workers.frames import FrameKind, Sender, Splitter
from tidegate.workers.kafka import WorkerRequests
from tidegate.workers.mirror import SharedNamespace, SharedRegistry
from tidegate.workers.ring import Ring, map_memory

_logger = logging.getLogger(__name__)
_STATISTICS_S = 0.5
_LARGE_BYTES = 1024
"""A smaller frame costs less on the stream."""
_STORE_LOST = 70
"""The exit code when the store's process has ended."""


class StoreConnection(asyncio.Protocol):
    """The worker's end of its sockets; see `StoreLink`. Used in the event loop, except for `ask`."""

    def __init__(self, line: socket.socket, ring: Ring | None = None) -> None:
        self._ring = ring
        self.claims: dict[int, ReaderSlot] = {}
        self.settings: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.state: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.registry: SharedRegistry | None = None
        self.stop = asyncio.Event()
        self.describe_clients: Callable[[], list[dict[str, Any]]] = list
        self._line = line
        self._line_lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._splitter = Splitter()
        self._transport: asyncio.Transport | None = None
        self._sender: Sender | None = None
        self._unsent: list[bytes] = []
        self._requests = itertools.count()
        self._waiting: dict[int, OnDurable] = {}

    # -- to the store

    def ask(self, question: str, **arguments: object) -> Any:
        """Ask the store something and wait for the answer. Raises HubError, LogError; ends without a store."""
        with self._line_lock:
            try:
                frames.send(self._line, {"question": question, **arguments})
                answer = frames.receive(self._line)
            except (OSError, EOFError):
                _end_without_store()
        if "error" in answer:
            raise frames.hub_error(answer["error"]) or LogError(answer["error"][1])
        return answer["answer"]

    def publish(
        self, partition: int, events: Sequence[bytes | memoryview], numbers: Numbers | None, on_durable: OnDurable
    ) -> None:
        """Have events stored, without waiting."""
        request = next(self._requests)
        self._waiting[request] = on_durable
        self._send_large(request, frames.publication_frame(request, partition, numbers, events))

    def publish_batch(self, partition: int, batch: RecordBatch, on_durable: OnDurable) -> None:
        """Have a record batch stored, without waiting."""
        request = next(self._requests)
        self._waiting[request] = on_durable
        self._send_large(request, frames.batch_frame(request, partition, bytes(batch.data)))

    def watch(self, partition: int, is_watched: bool) -> None:
        """Have growth of a partition passed on, or no longer."""
        self.tell(FrameKind.WATCH, [partition, is_watched])

    def vacate(self, claim: int, next_sequence_number: int | None) -> None:
        """Give up a reader's place, without waiting."""
        self._send(frames.json_frame(FrameKind.VACATE, [claim, next_sequence_number]))

    def note_job(self, partition: int, consumer_group: str, name: str, next_sequence_number: int) -> None:
        """Pass on how far a job has read, without waiting."""
        self._send(frames.json_frame(FrameKind.NOTE_JOB, [partition, consumer_group, name, next_sequence_number]))

    def tell(self, kind: FrameKind, value: Any) -> None:
        """Send the store a frame of JSON."""
        self._send(frames.json_frame(kind, value))

    def _send_large(self, request: int, data: bytes) -> None:
        """Send through the shared memory what has room there and is not small."""
        if self._ring is not None and len(data) >= _LARGE_BYTES:
            at = self._ring.put(request, data)
            if at is not None:
                data = frames.shared_frame(at, len(data))
        self._send(data)

    def _done(self, request: int) -> OnDurable:
        """Return what waits for a request that is done."""
        if self._ring is not None:
            self._ring.free(request)
        return self._waiting.pop(request)

    def _send(self, data: bytes) -> None:
        """Send with all that this turn of the event loop sends."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(data)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._sender is not None:
            self._sender.send(unsent)

    def close(self) -> None:
        """Send what is unsent and close the sockets."""
        self._flush()
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    # -- from the store

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._sender = Sender(transport.get_extra_info("socket"), self._loop)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.stop.is_set():
            _end_without_store()

    def data_received(self, data: bytes) -> None:
        for kind, content in self._splitter.feed(data):
            try:
                self._take(kind, content)
            except Exception:
                _logger.exception("a frame of the store could not be handled")

    def _take(self, kind: int, content: memoryview) -> None:
        if kind == FrameKind.RESULTS:
            for request, appended in frames.parse_results(content):
                self._done(request)(appended)
        elif kind == FrameKind.FACTS:
            self._update(content)
        elif kind == FrameKind.REFUSED:
            request, *values = json.loads(bytes(content))
            error = frames.hub_error(values)
            self._done(request)(LogError(values[1]) if error is None else AppendRefused(error))
        elif kind == FrameKind.STOLEN:
            claim, *values = json.loads(bytes(content))
            slot, stolen = self.claims.pop(claim, None), frames.hub_error(values)
            if slot is not None and stolen is not None:
                slot.on_stolen(stolen)
        elif kind == FrameKind.STATE:
            self._adopt(json.loads(bytes(content)))
        elif kind == FrameKind.SETTINGS:
            self.settings.set_result(json.loads(bytes(content)))
        elif kind == FrameKind.ASK_CLIENTS:
            self.tell(FrameKind.CLIENTS, self.describe_clients())
        elif kind == FrameKind.STOP:
            self.stop.set()

    def _adopt(self, described: dict[str, Any]) -> None:
        """Serve what the store serves now, and say so: whoever has changed it waits for that."""
        version = described.pop("version")
        try:
            self._serve_state(described)
        finally:
            self.tell(FrameKind.ADOPTED, version)

    def _serve_state(self, described: dict[str, Any]) -> None:
        if self.registry is not None:
            self.registry.adopt(described)
        elif not self.state.done():
            self.state.set_result(described)
        else:
            self.state = self._loop.create_future()
            self.state.set_result(described)

    def _update(self, content: memoryview) -> None:
        if self.registry is None:
            return
        for at in range(0, len(content), 4 + FACTS_BYTES):
            number = int.from_bytes(content[at : at + 4], "little")
            partition = self.registry.partitions.get(number)
            if partition is not None:
                partition.mirror.update(LogFacts.decode(content, at + 4))


def _end_without_store() -> Any:
    """End at once: nothing can be stored or admitted, and clients connect to the next worker."""
    logging.shutdown()
    os._exit(_STORE_LOST)


class _StoreIdentities(LogIdentities):
    """The identities of the logs, which the store writes."""

    def __init__(self, link: StoreConnection) -> None:
        super().__init__()
        self._link = link
        self._known: dict[Path, str] = {}

    def of(self, directory: Path) -> str:
        """The identity that the file in `directory` holds. Raises OSError."""
        if directory not in self._known:
            try:
                self._known[directory] = str(self._link.ask("identity", directory=str(directory)))
            except LogError as error:
                raise OSError(str(error)) from error
        return self._known[directory]


class _Uncounted(Deliveries):
    """Deliveries that the store has not counted yet."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: dict[str, tuple[int, int]] = {}

    def count(self, hub: str, events: int, size: int = 0) -> None:
        """Count events that were sent to a reader of a hub, and their bytes."""
        before = self.counted.get(hub, (0, 0))
        self.counted[hub] = before[0] + events, before[1] + size


class _UncountedHere(TimedCounts):
    """What has happened and the store has not counted yet."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[tuple[str, ...]] = Counter()

    def add(self, key: tuple[str, ...], count: int) -> None:
        """Count what happened to a hub."""
        self.counted[key] += count


class WorkerServer(Server):
    """A server whose namespace is kept by another process."""

    def __init__(self, data_dir: Path, settings: ServerSettings, link: StoreConnection, door: socket.socket) -> None:
        super().__init__(NamespaceConfig(name="worker"), data_dir, settings)
        self._link = link
        self._door = door
        self._hand_over = lambda *client: hand_over(door, Origin(*client))
        self._uncounted = self.metrics.deliveries = _Uncounted()
        self._happened = self.metrics.counts = _UncountedHere()
        self._counted: dict[str, int] = {}

    async def start(self) -> None:
        """Show the namespace, then listen. Raises LogError, ListenError."""
        try:
            self._open_data()
            await self._listen()
        except BaseException:
            await self.stop()
            raise
        self._tasks = [asyncio.create_task(self._tell_statistics())]

    def _open_data(self) -> None:
        loop = asyncio.get_running_loop()
        completions = Completions(loop, threading.get_ident())
        self._open.callback(completions.close)
        registry = SharedRegistry(self._link)
        registry.adopt(self._link.state.result())
        namespace = SharedNamespace(registry, self.data_dir)
        self._open.callback(namespace.close)
        namespace.on_change(partial(self._on_change, loop))
        self._link.registry = registry
        self._link.describe_clients = self.client_rows
        self.context = ServerContext(
            namespace=namespace,
            settings=self.settings,
            metrics=self.metrics,
            completions=completions,
            arrivals=Arrivals(completions),
            chunks=SharedChunks(self.settings.shared_chunk_bytes),
            egress=EgressGate(namespace.throughput, loop),
            log_identities=_StoreIdentities(self._link),
            in_flight=InFlightBytes(self.settings.in_flight_bytes),
        )

    def _kafka_requests(self) -> Handle:
        """Answer what is this worker's, and pass the rest on."""

        def to_owner(session: Session) -> socket.socket:
            host, _, port = session.peer.rpartition(":")
            return hand_over(self._door, Origin("kafka", (host, int(port)), session.advertised, session.grant))

        return WorkerRequests(self.context, to_owner).begin

    async def _tell_statistics(self) -> None:
        while True:
            await asyncio.sleep(_STATISTICS_S)
            self.tell_statistics()

    def tell_statistics(self) -> None:
        """Pass on what was counted since the last time."""
        metrics = self.metrics
        names = ("connections_opened", "received_bytes", "sent_bytes", "publications", "delivered_events")
        now = {name: int(getattr(metrics, name)) for name in names}
        statistics: dict[str, Any] = {name: value - self._counted.get(name, 0) for name, value in now.items()}
        self._counted = now
        statistics["connections_open"] = metrics.connections_open
        statistics["refusals"], statistics["deliveries"] = dict(metrics.refusals), dict(self._uncounted.counted)
        statistics["counts"] = [[*key, count] for key, count in self._happened.counted.items()]
        metrics.refusals.clear()
        self._uncounted.counted.clear()
        self._happened.counted.clear()
        statistics["positions"] = {
            claim: slot.next_sequence_number
            for claim, slot in self._link.claims.items()
            if slot.next_sequence_number is not None
        }
        self._link.tell(FrameKind.STATISTICS, statistics)


async def _serve(stream: socket.socket, line: socket.socket, door: socket.socket, ring: Ring | None) -> None:
    loop = asyncio.get_running_loop()
    link = StoreConnection(line, ring)
    loop.add_signal_handler(signal.SIGTERM, link.stop.set)
    await loop.create_connection(lambda: link, sock=stream)
    values = await link.settings
    level = logging.INFO if values["is_verbose"] else logging.WARNING
    log_to_standard_error(values["log_format"], level)
    plain = values["settings"]
    for name in ("cert_file", "key_file"):
        plain[name] = plain[name] and Path(plain[name])
    plain |= {"listen": tuple(plain["listen"]), "replaceable_ports": frozenset()}
    settings = ServerSettings(**plain)
    await link.state
    server = WorkerServer(Path(values["data_dir"]), settings, link, door)
    try:
        await server.start()
    except (OSError, LogError) as error:
        link.tell(FrameKind.FAILED, str(error))
        await asyncio.sleep(0)
    else:
        tune_gc()
        link.tell(FrameKind.READY, {})
        await link.stop.wait()
        await server.stop()
        server.tell_statistics()
    link.stop.set()
    link.close()
    await asyncio.sleep(0)


def main() -> None:
    """Serve until the store says stop, or its process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the store says stop
    stream, line, door = (socket.socket(fileno=int(number)) for number in sys.argv[1:4])
    ring = None
    if len(sys.argv) > 4:
        handle = int(sys.argv[4])
        ring = Ring(map_memory(handle))
        os.close(handle)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(stream, line, door, ring))


if __name__ == "__main__":
    main()
