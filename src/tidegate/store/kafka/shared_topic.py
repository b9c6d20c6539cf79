"""The topic of what gateways share: this gateway's copy of the state, and the records that it writes."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from tidegate.durable_files import FileDamaged
from tidegate.kafka.compression import Compression
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.records import BatchError, decode, encode, parse_batches
from tidegate.log import DocumentReplaced, LogError
from tidegate.store.client.cluster import EARLIEST, LATEST, RETRIABLE, Fetched, Produced, TopicPartition
from tidegate.store.client.connection import BrokerError, KafkaError, Unreachable
from tidegate.store.kafka.shared import BEAT_S, DEAD_AFTER_S, LOST_AFTER_S, SharedState, Verdict
from tidegate.store.kafka.store import KafkaStore
from tidegate.store.kafka.topics import SHARED_SETTINGS, check_shared_topic, create_topic, find_topic

_logger = logging.getLogger(__name__)
_WAIT_S = 0.5
_TIMEOUT_S = 20.0
_COMPRESSED_BYTES = 10_000
"""Longer records are compressed: a broker takes a megabyte by default."""


class Stale(Exception):
    """Another gateway has changed the definitions meanwhile."""


class TopicDocument:
    """A document that gateways share. Whoever writes it must know its last version."""

    def __init__(self, shared: SharedTopic, name: str, advice: str) -> None:
        self._shared = shared
        self._name = name
        self._advice = advice
        self._version: int | None = None

    def __str__(self) -> str:
        return f"{self._shared.where.topic}/{self._name}"

    @property
    def exists(self) -> bool:
        """Whether it was ever written, as far as this gateway knows."""
        return self._name in self._shared.state.documents

    def read(self) -> Mapping[str, Any] | None:
        """Return what was last written, as far as this gateway knows; None before the first time."""
        known = self._shared.state.documents.get(self._name)
        self._version = 0 if known is None else known.version
        return None if known is None else known.content

    def write(self, document: Mapping[str, Any]) -> None:
        """Replace the document that was read or written here last, durably. Waits.

        Raises DocumentReplaced if another gateway has replaced it since, OSError, and ValueError if JSON has no form
        for it.
        """
        if self._version is None:
            self.read()
        version = (self._version or 0) + 1
        json.dumps(document, allow_nan=False)
        try:
            self._shared.wait(self._shared.write_document(self._name, version, document))
        except Stale:
            raise DocumentReplaced(f"{self} was written by another gateway meanwhile") from None
        except (KafkaError, LogError) as error:
            raise OSError(f"{self} cannot be written: {error}") from error
        self._version = version

    def damaged(self, reason: str) -> FileDamaged:
        """Return the error to raise for content that makes no sense."""
        return FileDamaged(Path(str(self)), reason, self._advice)


class SharedTopic:
    """What this gateway knows of the others. Coroutines run in the store's thread.

    Attributes:
        gateway: The name of this gateway, drawn when it starts.
        state: The state as far as it was read.
    """

    def __init__(self, store: KafkaStore, namespace: str) -> None:
        self.gateway = uuid.uuid4().hex[:12]
        self.where = TopicPartition(f"_tidegate.{namespace}", 0)
        self.state = SharedState()
        self.on_definitions: Callable[[], None] = lambda: None
        """Called when another gateway has changed the definitions."""
        self.on_evicted: Callable[[str, int | None], None] = lambda claim_id, level: None
        """Called with a claim of this gateway that had to give way, and the owner level of the one that took over."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called when the cluster was not heard for so long that others may take over."""
        self.on_declared_dead: Callable[[], None] = lambda: None
        """Called when another gateway has declared this one dead, so that none of its claims counts."""
        self.report: Callable[[], Mapping[str, Any]] = dict
        """Returns what this gateway reports with its signs of life."""
        self.on_reports: Callable[[], None] = lambda: None
        """Called when gateways have come, gone, or reported something."""
        self._store = store
        store.shared = self
        self._cluster = store.cluster
        self._position = 0
        self._definitions: tuple[int, Any] = (0, None)
        self._read_on = asyncio.Condition()
        self._verdicts: dict[str, Verdict] = {}
        self._claims: set[str] = set()
        self._sent_beats: dict[int, float] = {}
        self._heard_at_s = 0.0
        self._is_lost = False
        self._seen_at_s: dict[str, tuple[int, float]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._asked_tasks: set[str] = set()
        self._followed: dict[str, tuple[int, Callable[[Mapping[str, Any]], None]]] = {}

    @property
    def is_connected(self) -> bool:
        """Whether the gateway has read a sign of life of its own lately."""
        return not self._is_lost and bool(self._tasks)

    @property
    def may_own(self) -> bool:
        """Whether readers of this gateway may have an owner level, as no other gateway can have taken over."""
        return self.is_connected and self.silence_s <= LOST_AFTER_S

    def holds(self, resource: str, claim_id: str) -> bool:
        """Return whether a claim counts, as far as this gateway knows. From any thread."""
        return any(one.claim_id == claim_id for one in self.state.claims.get(resource, ()))

    @property
    def silence_s(self) -> float:
        """How long ago the gateway wrote the last sign of life that it has read back."""
        return time.monotonic() - self._heard_at_s

    async def open(self) -> None:
        """Create the topic if it is missing, read it, and show this gateway to the others. Raises KafkaError."""
        name = self.where.topic
        facts = await find_topic(self._cluster, name)
        if facts is None:
            await create_topic(self._cluster, name, 1, SHARED_SETTINGS)
        else:
            check_shared_topic(name, facts)
        await self._cluster.refresh([name])
        self._position = await self._cluster.list_offset(self.where, EARLIEST)
        end = await self._cluster.list_offset(self.where, LATEST)
        while self._position < end:
            await self._take(await self._cluster.fetch_one(self.where, self._position))
        self._heard_at_s = time.monotonic()
        self._tasks = [asyncio.ensure_future(work) for work in (self._follow(), self._beat(), self._watch())]
        await self._applied(await self._put(f"gateway/{self.gateway}", {"started": time.time()}))

    async def close(self) -> None:
        """Withdraw this gateway."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(2):
                    await self._put(f"gateway/{self.gateway}", None)
                    await self._put(f"beat/{self.gateway}", None)
        self._tasks = []

    def definitions(self) -> tuple[int, Any]:
        """Return the version of the definitions and what they are, None before there are any. From any thread."""
        return self._definitions

    # -- what this gateway wants

    async def define(self, version: int, definitions: Any) -> None:
        """Replace the definitions of the version before. Raises Stale, KafkaError."""
        if version != self.state.version + 1:
            raise Stale
        key = f"definitions/{self.gateway}"
        await self._applied(await self._put(key, {"version": version, "state": definitions}))
        if (self.state.version, self.state.definitions_by) != (version, self.gateway):
            raise Stale

    async def claim(self, resource: str, level: int | None, name: str) -> Verdict:
        """Ask for a partition, and return the verdict, with the claim whose id releases it. Raises KafkaError."""
        claim_id = uuid.uuid4().hex[:12]
        key = f"claim/{self.gateway}/{claim_id}"
        self._claims.add(claim_id)
        try:
            await self._applied(await self._put(key, {"resource": resource, "level": level, "name": name}))
            verdict = self._verdicts.pop(claim_id)
        except (KafkaError, asyncio.CancelledError):
            self.release(claim_id)  # it may have been granted
            raise
        if verdict.refusal is not None:
            self.release(claim_id)
        return verdict

    def release(self, claim_id: str) -> None:
        """Withdraw a claim, soon."""
        self._claims.discard(claim_id)
        self._put_soon(f"claim/{self.gateway}/{claim_id}", None)

    def _put_soon(self, key: str, value: Any) -> None:
        task = asyncio.ensure_future(self._try_to_put(key, value))
        self._tasks.append(task)
        task.add_done_callback(lambda done: self._tasks.remove(done) if done in self._tasks else None)

    async def _try_to_put(self, key: str, value: Any) -> None:
        try:
            await self._put(key, value)
        except KafkaError as error:
            _logger.warning("%s: the record %s cannot be written: %s", self.where.topic, key, error)

    # -- what only one gateway may do

    def does(self, task: str) -> bool:
        """Return whether this gateway is to do a task that only one may do; it applies for it if nobody else does it.

        Tasks are spread over the live gateways by a hash of both names. Does not wait; from any thread. A gateway that
        is no longer to do a task calls `leave` when it has stopped.
        """
        if not self.is_connected or self.gateway not in self.state.gateways:
            return False
        chosen = max(list(self.state.gateways), key=lambda gateway: sha256(f"{gateway}/{task}".encode()).digest())
        does_it = self.state.tasks.get(task)
        if does_it is None and chosen == self.gateway:
            self._store.call_soon(self._apply_for, task)
        return does_it == chosen == self.gateway

    def leave(self, task: str) -> None:
        """Let others do a task. From any thread."""
        if not self._store.is_closed:
            self._store.call_soon(self._leave, task)

    def _apply_for(self, task: str) -> None:
        if self.state.tasks.get(task) is None and task not in self._asked_tasks:
            self._asked_tasks.add(task)
            self._put_soon(f"task/{self.gateway}/{task}", {})
            asyncio.get_running_loop().call_later(_TIMEOUT_S, self._asked_tasks.discard, task)

    def _leave(self, task: str) -> None:
        self._asked_tasks.discard(task)
        if self.state.tasks.get(task) == self.gateway:
            self._put_soon(f"task/{self.gateway}/{task}", None)

    # -- documents

    def document(self, name: str, advice: str) -> TopicDocument:
        """Return a document. `advice` says what a person can do about one that makes no sense."""
        return TopicDocument(self, name, advice)

    def wait(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the store's thread."""
        self._store.wait(work, _TIMEOUT_S)

    async def write_document(self, name: str, version: int, content: Mapping[str, Any]) -> None:
        """Replace the version before of a document. Raises Stale, KafkaError."""
        known = self.state.documents.get(name)
        if version != (0 if known is None else known.version) + 1:
            raise Stale
        await self._applied(
            await self._put(f"document/{self.gateway}/{name}", {"version": version, "content": content})
        )
        known = self.state.documents.get(name)
        if known is None or (known.version, known.by) != (version, self.gateway):
            raise Stale

    async def remove_documents(self, prefix: str) -> None:
        """Remove the documents whose names begin with a text. Raises KafkaError."""
        for name, document in list(self.state.documents.items()):
            if name.startswith(prefix):
                for key in sorted(document.keys):
                    await self._put(key, None)

    # -- lists

    async def follow_entries(self, name: str, apply: Callable[[Mapping[str, Any]], None]) -> None:
        """Call a function with each entry of a list, and from now on with each that is added, in this thread."""
        self._followed[name] = 0, apply
        self._pass_entries()

    async def append_entry(self, name: str, number: int, entry: Mapping[str, Any]) -> None:
        """Add an entry to a list, as that of a number from 1 on. Raises Stale if another is it already, KafkaError."""
        keys: list[str] = []

        def new_key() -> str:
            keys.append(f"entry/{self.gateway}/{uuid.uuid4().hex}")
            return keys[-1]

        await self._applied(await self._put(new_key, {"list": name, "number": number, "entry": entry}))
        if not self.state.counts(keys, name, number):
            raise Stale

    async def catch_up(self) -> None:
        """Read up to where the topic ends now. Raises KafkaError."""
        await self._applied(await self._cluster.list_offset(self.where, LATEST, _TIMEOUT_S) - 1)

    def _pass_entries(self) -> None:
        for name, (passed, apply) in self._followed.items():
            listed = self.state.entries.get(name, [])
            for _, entry in listed[passed:]:
                apply(entry)
            self._followed[name] = len(listed), apply

    # -- writing and reading

    async def _put(self, key: str | Callable[[], str], value: Any) -> int:
        """Write a record and return its offset; a function draws a key for each attempt. Raises KafkaError."""
        text = None if value is None else json.dumps(value, separators=(",", ":")).encode()
        found: list[int] = []

        async def attempt() -> Any:
            node = self._cluster.leader(self.where)
            if node is None:
                return None
            encoded = encode(
                [text],
                timestamps_ms=[time.time_ns() // 1_000_000],
                keys=[(key if isinstance(key, str) else key()).encode()],
                compression=Compression.GZIP if len(text or b"") > _COMPRESSED_BYTES else Compression.NONE,
            )
            result = (await self._cluster.produce(node, {self.where: encoded}, 3, purpose="shared"))[self.where]
            if isinstance(result, BrokerError):
                raise result
            assert isinstance(result, Produced)
            found[:] = [result.base_offset]
            return result

        # Repeating is harmless: a record twice does what it does once, or each attempt has a key of its own.
        await self._cluster.retrying(self.where.topic, _TIMEOUT_S, attempt, [self.where.topic])
        return found[0]

    async def _applied(self, offset: int) -> None:
        async with self._read_on, asyncio.timeout(_TIMEOUT_S):
            try:
                await self._read_on.wait_for(lambda: self._position > offset)
            except TimeoutError:
                raise Unreachable(f"{self.where.topic} cannot be read") from None

    async def _follow(self) -> None:
        logged = ""
        while True:
            node = self._cluster.leader(self.where)
            result: Fetched | BrokerError | None = None
            with suppress(KafkaError):
                if node is not None:
                    found = await self._cluster.fetch(
                        node, {self.where: self._position}, purpose="shared-follow", wait_s=_WAIT_S
                    )
                    result = found.get(self.where)
            if isinstance(result, Fetched):
                logged = ""
                try:
                    await self._take(result)
                    continue
                except KafkaError as error:
                    _logger.error("%s; it is read again", error)
                    await asyncio.sleep(BEAT_S)
            if isinstance(result, BrokerError) and result.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                with suppress(KafkaError):
                    self._position = await self._cluster.list_offset(self.where, EARLIEST)
            elif isinstance(result, BrokerError) and result.code not in RETRIABLE and str(result) != logged:
                logged = str(result)
                _logger.error("%s cannot be read, which is tried again: %s", self.where.topic, logged)
            await asyncio.sleep(0.1)
            with suppress(KafkaError):
                await self._cluster.refresh([self.where.topic])

    async def _take(self, fetched: Fetched) -> None:
        version, gateways = self.state.version, dict(self.state.gateways)
        for batch in parse_batches(fetched.records, partial_end=True):
            if batch.next_offset <= self._position:
                continue
            try:
                batch.check()
                columns = decode(batch)
            except BatchError as error:
                raise KafkaError(f"{self.where.topic} is damaged at offset {batch.base_offset}: {error}") from error
            for offset, key, value in zip(columns.offsets, columns.keys, columns.values, strict=True):
                if offset >= self._position:
                    self._apply(offset, key, value)
            self._position = batch.next_offset
        self._definitions = self.state.version, self.state.definitions
        self._pass_entries()
        async with self._read_on:
            self._read_on.notify_all()
        if self.state.version != version and self.state.definitions_by != self.gateway:
            self.on_definitions()
        if self.state.gateways != gateways:
            self.on_reports()

    def _apply(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        text = (key or b"").decode("utf-8", "replace")
        try:
            verdict = self.state.apply(offset, text, None if value is None else json.loads(value))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            _logger.warning("%s: the record at offset %d is not Tidegate's: %s", self.where.topic, offset, error)
            return
        if text == f"beat/{self.gateway}" and self.state.gateways.get(self.gateway) == offset:
            sent_at_s = self._sent_beats.pop(json.loads(value or b"{}").get("beat", -1), 0.0)
            self._heard_at_s = max(self._heard_at_s, sent_at_s)
        elif text.startswith("silence/") and value is not None:
            self._note_silence(*text.split("/", 2)[1:])
        elif text.startswith("task/"):
            self._note_task(*text.split("/", 2)[1:], is_withdrawn=value is None)
        elif text.startswith(f"entry/{self.gateway}/") and value is not None:
            wanted = json.loads(value)
            if not self.state.counts([text], wanted["list"], wanted["number"]):
                self._put_soon(text, None)
        if verdict is None:
            return
        if verdict.claim.gateway == self.gateway:
            if verdict.claim.claim_id in self._claims:
                self._verdicts[verdict.claim.claim_id] = verdict
            else:
                self.release(verdict.claim.claim_id)  # a repeated record came after the claim was withdrawn
        for evicted in verdict.evicted:
            if evicted.gateway == self.gateway:
                self.on_evicted(evicted.claim_id, verdict.claim.level)

    def _note_silence(self, gateway: str, by: str) -> None:
        """Begin anew after this gateway was declared dead, and withdraw what it has declared of one that is not."""
        if gateway == self.gateway and gateway not in self.state.gateways and self._tasks:
            _logger.error("another gateway has declared this one dead: its readers are closed")
            self.on_declared_dead()
            self._asked_tasks.clear()
            self._put_soon(f"gateway/{self.gateway}", {"started": time.time()})
        elif by == self.gateway and gateway in self.state.gateways:
            self._put_soon(f"silence/{gateway}/{by}", None)

    def _note_task(self, gateway: str, name: str, *, is_withdrawn: bool) -> None:
        """Withdraw a task for which this gateway has applied too late."""
        if gateway == self.gateway and not is_withdrawn:
            self._asked_tasks.discard(name)
            if self.state.tasks.get(name) != self.gateway:
                self._put_soon(f"task/{self.gateway}/{name}", None)

    # -- signs of life

    async def _beat(self) -> None:
        beat = 0
        while True:
            beat += 1
            self._sent_beats = {beat: time.monotonic()}
            with suppress(KafkaError):
                if self.gateway in self.state.gateways:
                    await self._put(f"beat/{self.gateway}", {"beat": beat, "report": self.report()})
                else:  # it was declared dead, and what says that it begins anew may not have been written
                    await self._put(f"gateway/{self.gateway}", {"started": time.time()})
            await asyncio.sleep(BEAT_S)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S / 2)
            now_s = time.monotonic()
            was_lost, is_lost = self._is_lost, now_s - self._heard_at_s > LOST_AFTER_S
            # Whoever sees a closed link must not find the gateway ready.
            self._is_lost = is_lost
            if is_lost and not was_lost:
                _logger.error(
                    "the cluster was not heard for %.0f s: readers with an owner level are closed", LOST_AFTER_S
                )
                self.on_lost()
            if is_lost:
                self._seen_at_s.clear()
                continue
            for gateway, offset in list(self.state.gateways.items()):
                known = self._seen_at_s.get(gateway)
                if known is None or known[0] != offset:
                    self._seen_at_s[gateway] = offset, now_s
                elif now_s - known[1] > DEAD_AFTER_S and gateway != self.gateway:
                    # Not awaited: meanwhile this gateway may lose the cluster itself. It waits before it tries again.
                    self._put_soon(f"silence/{gateway}/{self.gateway}", {"silent_since": offset})
                    self._seen_at_s[gateway] = offset, now_s + _TIMEOUT_S - DEAD_AFTER_S
