"""The store's end of the sockets to its workers: publications go to the logs, growth and changes to the workers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tidegate.hub.errors import HubError, NotFound
from tidegate.hub.partition import Partition, ReaderSlot, ReaderSlots
from tidegate.hub.producers import Numbers, ProducerTable
from tidegate.kafka.records import parse_batch
from tidegate.log import Appended, LogError, PartitionLog, facts_of
from tidegate.server.context.completions import Completions
from tidegate.server.server import Server
from tidegate.workers import frames
from tidegate.workers.door import take_in
from tidegate.workers.frames import FrameKind, Splitter, StoreAppend

_logger = logging.getLogger(__name__)
_LAST_APPEND = int(FrameKind.APPEND_NUMBERED)
_LOOK_S = 1.0
"""How often segments that retention has deleted are looked for."""
_ADOPTION_S = 2.0
"""How long a change waits for workers that do not answer, such as one that is stopped."""


class Store:
    """What the workers of one server share. Its event loop runs in a thread of its own.

    Partitions have numbers, which are never used again.
    """

    def __init__(self, server: Server) -> None:
        """Start the thread; `server` has opened its data."""
        self.server = server
        self.namespace = server.namespace
        self.main_loop = asyncio.get_running_loop()
        self.loop = asyncio.new_event_loop()
        self.completions = Completions(self.loop)
        self.sessions: set[StoreSession] = set()
        self.numbers = itertools.count()
        self._partitions: dict[int, Partition] = {}
        self._numbers: dict[Partition, int] = {}
        self._unsubscribe: dict[Partition, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._version = 0
        self._adopted = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="worker-store", daemon=True)
        self._thread.start()
        self._follow()
        server.followers.append(self._follow)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_later(_LOOK_S, self._look)
        self.loop.run_forever()
        self.loop.close()

    def partition(self, number: int) -> Partition:
        """Return a partition by its number. Raises NotFound."""
        found = self._partitions.get(number)
        if found is None:
            raise NotFound("the event hub was deleted")
        return found

    def _follow(self) -> None:
        """Number the partitions of hubs that were created, and pass on what has changed. In any thread."""
        with self._lock:
            served = {one for hub in self.namespace.event_hubs.values() for one in hub.partitions}
            for partition in served - self._numbers.keys():
                number = next(self.numbers)
                self._numbers[partition], self._partitions[number] = number, partition
                grown = partial(self.completions.report, self._grown, number)
                self._unsubscribe[partition] = partition.log.on_grow(grown)
            for partition in self._numbers.keys() - served:
                self._unsubscribe.pop(partition)()
                del self._partitions[self._numbers.pop(partition)]
            self._version += 1
            version = self._version
        with contextlib.suppress(RuntimeError):  # the store has stopped
            self.loop.call_soon_threadsafe(self._tell_state)
            self._await_adoption(version)

    def _tell_state(self) -> None:
        for session in list(self.sessions):
            session.write(self.state_frame())

    def state_frame(self) -> bytes:
        """Return the frame that has workers serve what is served now. In the store's thread."""
        version = self._version  # the state is no older
        return frames.json_frame(FrameKind.STATE, {**self.state(), "version": version})

    def _await_adoption(self, version: int) -> None:
        """Wait until every worker serves a version, so that no client meets what was before a change that is made."""
        with self._adopted:
            self._adopted.wait_for(
                lambda: all(one.adopted >= version for one in list(self.sessions)), timeout=_ADOPTION_S
            )

    def note_adoption(self) -> None:
        """Have changes see that a worker has adopted a version, or has ended."""
        with self._adopted:
            self._adopted.notify_all()

    def state(self) -> dict[str, Any]:
        """Return the namespace and its partitions, for workers. In the store's thread, so that no growth is missed."""
        while True:
            with contextlib.suppress(KeyError):  # a hub was created or deleted meanwhile
                hubs = self.namespace.event_hubs
                partitions = {
                    key: [
                        [self._numbers[one], str(_log(one).directory.absolute()), facts_of(_log(one)).encode().hex()]
                        for one in hub.partitions
                    ]
                    for key, hub in hubs.items()
                }
                state = self.namespace.state()
                if {hub.config.name.lower() for hub in state.event_hubs} == partitions.keys():
                    return {"namespace": state.model_dump(mode="json"), "partitions": partitions}

    def _grown(self, number: int) -> None:
        for session in self.sessions:
            if number in session.watched:
                session.unsent_facts[number] = None
                self.completions.afterwards(session.flush)

    def _look(self) -> None:
        for number in list(self._partitions):
            self._grown(number)
        for session in list(self.sessions):
            session.flush()
        self.loop.call_later(_LOOK_S, self._look)

    def attach(self, stream: socket.socket, line: socket.socket, door: socket.socket, session: StoreSession) -> None:
        """Serve a worker on its sockets, which belong to the session from now on."""
        door.setblocking(False)
        session.door = door
        asyncio.run_coroutine_threadsafe(self.loop.create_connection(lambda: session, sock=stream), self.loop)
        threading.Thread(target=session.answer, args=(line,), name="worker-line", daemon=True).start()

    def take_in(self, door: socket.socket) -> None:
        """Have the server answer those who are at a worker's door. In the store's thread, where nobody waits long."""
        with contextlib.suppress(OSError, RuntimeError):  # the worker has ended, or the server has stopped
            while (found := take_in(door)) is not None:
                origin, connection = found
                asyncio.run_coroutine_threadsafe(self.server.take_over(connection, origin), self.main_loop)

    def close(self) -> None:
        """Stop the thread, once all workers have ended."""
        self.server.followers.remove(self._follow)
        for unsubscribe in self._unsubscribe.values():
            unsubscribe()
        self.completions.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


def _log(partition: Partition) -> PartitionLog:
    """Return the log of a partition that this process writes."""
    log = partition.log
    assert isinstance(log, PartitionLog), "workers read the segments of the embedded log"
    return log


def _producers(partition: Partition) -> ProducerTable:
    """Return the idempotent producers of such a partition."""
    producers = partition.producers
    assert isinstance(producers, ProducerTable), "only the embedded log keeps their state here"
    return producers


class StoreSession(asyncio.Protocol):
    """One worker. `on_frame` gets what is for the server; it is called in the store's thread."""

    def __init__(self, store: Store, settings: dict[str, Any], on_frame: Callable[[int, Any], None]) -> None:
        self.unsent_facts: dict[int, None] = {}
        self.door: socket.socket | None = None
        self.memory: memoryview | None = None
        """The memory that is shared with the worker."""
        self.adopted = 0
        """The version of the state that the worker serves."""
        self.watched: set[int] = set()
        """The partitions that somebody reads there; of others, the worker asks what it needs to know."""
        self._store = store
        self._settings = settings
        self._on_frame = on_frame
        self._splitter = Splitter()
        self._transport: asyncio.Transport | None = None
        self._is_full = False
        self._results: list[bytes] = []
        self._claims: dict[int, tuple[ReaderSlots, ReaderSlot]] = {}
        self._claims_lock = threading.Lock()
        self._is_gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self.door is not None:
            self._store.loop.add_reader(self.door, self._store.take_in, self.door)
        self.write(frames.json_frame(FrameKind.SETTINGS, self._settings))
        self.write(self._store.state_frame())
        self._store.sessions.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free what the worker had: its readers' places. Publications that have arrived are stored."""
        self._store.sessions.discard(self)
        self._store.note_adoption()
        if self.door is not None:
            self._store.loop.remove_reader(self.door)
            self._store.take_in(self.door)
            self.door.close()
        self._transport = None
        with self._claims_lock:
            self._is_gone = True
            claims, self._claims = list(self._claims.values()), {}
        for slots, slot in claims:
            slots.vacate(slot)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self.flush()

    def write(self, data: bytes) -> None:
        """Send a frame, in the store's thread."""
        if self._transport is not None:
            self._transport.write(data)

    def write_soon(self, data: bytes) -> None:
        """Send a frame, from any thread."""
        with contextlib.suppress(RuntimeError):  # the store has stopped
            self._store.loop.call_soon_threadsafe(self.write, data)

    def flush(self) -> None:
        """Send what became of publications, and what has grown unless the worker is behind."""
        if self._results:
            results, self._results = self._results, []
            self.write(frames.frame(FrameKind.RESULTS, b"".join(results)))
        if self.unsent_facts and not self._is_full:
            numbers, self.unsent_facts = self.unsent_facts, {}
            facts = []
            for number in numbers:
                with contextlib.suppress(NotFound):
                    log = _log(self._store.partition(number))
                    facts.append(number.to_bytes(4, "little") + facts_of(log).encode())
            self.write(frames.frame(FrameKind.FACTS, b"".join(facts)))

    # -- what the worker sends

    def data_received(self, data: bytes) -> None:
        for kind, content in self._splitter.feed(data):
            try:
                self._take(kind, content)
            except Exception:
                _logger.exception("a frame of a worker could not be handled")

    def _take(self, kind: int, content: memoryview) -> None:
        if kind <= _LAST_APPEND:
            self._store_publication(frames.parse_publication(kind, content))
        elif kind == FrameKind.SHARED and self.memory is not None:
            self._take(*frames.parse_shared(content, self.memory))
        elif kind == FrameKind.APPEND_BATCH:
            self._store_batch(*frames.parse_batch_frame(content))
        elif kind == FrameKind.ADOPTED:
            self.adopted = max(self.adopted, json.loads(bytes(content)))
            self._store.note_adoption()
        elif kind == FrameKind.WATCH:
            number, is_watched = json.loads(bytes(content))
            if is_watched:
                self.watched.add(number)
                self.unsent_facts[number] = None
                self.flush()
            else:
                self.watched.discard(number)
        elif kind == FrameKind.VACATE:
            self._vacate(*json.loads(bytes(content)))
        elif kind == FrameKind.NOTE_JOB:
            number, group, name, next_sequence_number = json.loads(bytes(content))
            with contextlib.suppress(NotFound):
                self._store.partition(number).reader_slots(group).note_job(name, next_sequence_number)
        else:
            values = json.loads(bytes(content))
            if kind == FrameKind.STATISTICS:
                self._note_positions(values.pop("positions"))
            self._on_frame(kind, values)

    def _store_publication(self, publication: StoreAppend) -> None:
        request, number, numbers, events = publication
        try:
            partition = self._store.partition(number)
            done = partial(self._done, request)
            if numbers is None:
                _log(partition).append_joined(events, done)
            elif not _producers(partition).append_joined(numbers, events, done):
                self._store.completions.report(self._report, request, Appended(-1, len(events), -1, -1, 0))
        except (HubError, LogError) as error:
            self._refuse(request, error)

    def _store_batch(self, request: int, number: int, data: memoryview) -> None:
        try:
            partition, batch = self._store.partition(number), parse_batch(data)
            done = partial(self._done, request)
            if batch.producer_id < 0:
                partition.log.append_batch(batch, done)
                return
            numbers = Numbers(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence)
            if not partition.producers.append_batch(numbers, batch, done):
                first = partition.producers.sequence_number_of(numbers)
                known = Appended(-1 if first is None else first, batch.count, -1, -1, -1)
                self._store.completions.report(self._report, request, known)
        except (HubError, LogError) as error:
            self._refuse(request, error)

    def _done(self, request: int, result: Appended | LogError) -> None:
        """Report what became of a publication. Runs in a committer thread.

        The log reports its growth after all publications of a group, and the store's thread need not wake before.
        """
        if isinstance(result, LogError):
            self._store.completions.report(self._report, request, result)
        else:
            self._store.completions.add(self._report, request, result)

    def _report(self, request: int, result: Appended | LogError) -> None:
        if isinstance(result, LogError):
            self._refuse(request, result)
            return
        self._results.append(frames.result(request, result))
        self._store.completions.afterwards(self.flush)

    def _refuse(self, request: int, error: HubError | LogError) -> None:
        self.write(frames.json_frame(FrameKind.REFUSED, [request, *frames.error_values(error)]))

    def _note_positions(self, positions: dict[str, int]) -> None:
        for claim, position in positions.items():
            found = self._claims.get(int(claim))
            if found is not None:
                found[1].next_sequence_number = position

    def _vacate(self, claim: int, position: int | None) -> None:
        with self._claims_lock:
            found = self._claims.pop(claim, None)
        if found is not None:
            slots, slot = found
            slot.next_sequence_number = position
            slots.vacate(slot)

    # -- what the worker asks, in a thread of its own

    def answer(self, line: socket.socket) -> None:
        """Answer the worker's questions until its end is closed."""
        with line, contextlib.suppress(EOFError, OSError):
            while True:
                question = frames.receive(line)
                ask = getattr(self, f"_ask_{question.pop('question')}")
                try:
                    answer = {"answer": ask(**question)}
                except (HubError, LogError, OSError) as error:
                    answer = {"error": frames.error_values(error)}
                except Exception as error:
                    _logger.exception("a question of a worker could not be answered")
                    answer = {"error": ["InternalError", f"the store failed: {error}"]}
                frames.send(line, answer)

    def _ask_facts(self, partition: int) -> list[Any]:
        log = _log(self._store.partition(partition))
        bound = log.arrival_lower_bound()  # it holds for what comes after facts that are younger
        return [facts_of(log).encode().hex(), bound.lower_bound_ms]

    def _ask_attach(self, partition: int, properties: dict[str, object]) -> list[int]:
        return [*self._store.partition(partition).producers.attach(properties)]

    def _ask_sequence_number_of(self, partition: int, numbers: list[int]) -> int | None:
        return self._store.partition(partition).producers.sequence_number_of(Numbers(*numbers))

    def _ask_claim(self, partition: int, consumer_group: str, epoch: int | None, name: str) -> int:
        slots = self._store.partition(partition).reader_slots(consumer_group)
        claim = next(self._store.numbers)

        def on_stolen(error: HubError) -> None:
            with self._claims_lock:
                self._claims.pop(claim, None)
            self.write_soon(frames.json_frame(FrameKind.STOLEN, [claim, *frames.error_values(error)]))

        slot = slots.occupy(epoch, name, on_stolen)
        with self._claims_lock:
            self._claims[claim] = slots, slot
            is_gone = self._is_gone
        if is_gone:
            self._vacate(claim, None)
        return claim

    def _ask_jobs(self, partition: int, consumer_group: str) -> list[tuple[str, int]]:
        slots = self._store.partition(partition).reader_slots(consumer_group)
        return [(job.name, job.next_sequence_number) for job in slots.jobs]

    def _ask_kafka_groups(self, directory: str) -> dict[str, list[list[Any]]]:
        known = self._store.server.namespace.group_offsets.in_hub(directory)
        return {group: [[number, *one] for number, one in positions.items()] for group, positions in known.items()}

    def _ask_identity(self, directory: str) -> str:
        return self._store.server.context.log_identities.of(Path(directory))

    def _ask_ingress_wait_s(self, size: int, count: int, partition: int | None) -> float:
        ingress = None if partition is None else self._store.partition(partition).ingress
        return self._store.namespace.throughput.ingress_wait_s(size, count, ingress)

    def _ask_partition_wait_s(self, partition: int) -> float:
        return self._store.namespace.throughput.partition_wait_s(self._store.partition(partition).ingress)

    def _ask_egress_wait_s(self, size: int, count: int) -> float:
        return self._store.namespace.throughput.egress_wait_s(size, count)

    def _ask_spend_egress(self, size: int, count: int) -> None:
        self._store.namespace.throughput.spend_egress(size, count)
