"""The topic of what gateways share: this gateway's copy of the state, and the records that it writes."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.records import BatchError, decode, encode, parse_batches
from tidegate.store.client.cluster import EARLIEST, LATEST, RETRIABLE, Fetched, Produced, TopicPartition
from tidegate.store.client.connection import KafkaError, Refused, Unreachable
from tidegate.store.kafka.shared import BEAT_S, DEAD_AFTER_S, LOST_AFTER_S, SharedState, Verdict
from tidegate.store.kafka.store import KafkaStore
from tidegate.store.kafka.topics import SHARED_SETTINGS, TopicUnfit, create_topic, find_topic

_logger = logging.getLogger(__name__)
_WAIT_S = 0.5
_TIMEOUT_S = 20.0


class Stale(Exception):
    """Another gateway has changed the definitions meanwhile."""


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
        self._store = store
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

    @property
    def is_connected(self) -> bool:
        """Whether the gateway has read a sign of life of its own lately."""
        return not self._is_lost and bool(self._tasks)

    async def open(self) -> None:
        """Create the topic if it is missing, read it, and show this gateway to the others. Raises KafkaError."""
        name = self.where.topic
        facts = await find_topic(self._cluster, name)
        if facts is None:
            await create_topic(self._cluster, name, 1, SHARED_SETTINGS)
        elif facts.partitions != 1 or "compact" not in facts.settings.get("cleanup.policy", "compact"):
            raise TopicUnfit(
                f"the topic {name} needs one partition and cleanup.policy=compact: correct it with `kafka-configs.sh "
                f"--bootstrap-server HOST:PORT --alter --topic {name} --add-config cleanup.policy=compact`"
            )
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
            with suppress(KafkaError):
                async with asyncio.timeout(2):
                    await self._put(f"gateway/{self.gateway}", None)
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
        except KafkaError:
            self.release(claim_id)  # it may have been granted
            raise
        if verdict.refusal is not None:
            self.release(claim_id)
        return verdict

    def release(self, claim_id: str) -> None:
        """Withdraw a claim, soon."""
        self._claims.discard(claim_id)
        task = asyncio.ensure_future(self._release(claim_id))
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    async def _release(self, claim_id: str) -> None:
        try:
            await self._put(f"claim/{self.gateway}/{claim_id}", None)
        except KafkaError as error:
            _logger.warning("a reader's place cannot be given back; it is once the gateway ends: %s", error)

    # -- writing and reading

    async def _put(self, key: str, value: Any) -> int:
        """Write a record and return its offset. Raises KafkaError."""
        encoded = encode(
            [None if value is None else json.dumps(value, separators=(",", ":")).encode()],
            timestamps_ms=[time.time_ns() // 1_000_000],
            keys=[key.encode()],
        )
        found: list[int] = []

        async def attempt() -> Any:
            node = self._cluster.leader(self.where)
            if node is None:
                return None
            result = (await self._cluster.produce(node, {self.where: encoded}, 3, purpose="shared"))[self.where]
            if isinstance(result, Refused):
                raise result
            assert isinstance(result, Produced)
            found[:] = [result.base_offset]
            return result

        # Repeating is harmless: a record twice does what it does once.
        await self._cluster.retrying(self.where.topic, _TIMEOUT_S, attempt, [self.where.topic])
        return found[0]

    async def _applied(self, offset: int) -> None:
        async with self._read_on, asyncio.timeout(_TIMEOUT_S):
            try:
                await self._read_on.wait_for(lambda: self._position > offset)
            except TimeoutError:
                raise Unreachable(f"{self.where.topic} cannot be read") from None

    async def _follow(self) -> None:
        while True:
            node = self._cluster.leader(self.where)
            result: Fetched | Refused | None = None
            with suppress(KafkaError):
                if node is not None:
                    found = await self._cluster.fetch(
                        node, {self.where: self._position}, purpose="shared-follow", wait_s=_WAIT_S
                    )
                    result = found.get(self.where)
            if isinstance(result, Fetched):
                await self._take(result)
                continue
            if isinstance(result, Refused) and result.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                with suppress(KafkaError):
                    self._position = await self._cluster.list_offset(self.where, EARLIEST)
            elif isinstance(result, Refused) and result.code not in RETRIABLE:
                _logger.error("%s cannot be read: %s", self.where.topic, result)
            await asyncio.sleep(0.1)
            with suppress(KafkaError):
                await self._cluster.refresh([self.where.topic])

    async def _take(self, fetched: Fetched) -> None:
        version = self.state.version
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
        async with self._read_on:
            self._read_on.notify_all()
        if self.state.version != version and self.state.definitions_by != self.gateway:
            self.on_definitions()

    def _apply(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        text = (key or b"").decode("utf-8", "replace")
        try:
            verdict = self.state.apply(offset, text, None if value is None else json.loads(value))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            _logger.warning("%s: the record at offset %d is not Tidegate's: %s", self.where.topic, offset, error)
            return
        if text == f"gateway/{self.gateway}" and self.state.gateways.get(self.gateway) == offset:
            sent_at_s = self._sent_beats.pop(json.loads(value or b"{}").get("beat", -1), 0.0)
            self._heard_at_s = max(self._heard_at_s, sent_at_s)
        elif text == f"gateway/{self.gateway}" and self.gateway not in self.state.gateways and self._tasks:
            _logger.error("another gateway has declared this one dead: owners' links are closed")
            self.on_lost()
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

    # -- signs of life

    async def _beat(self) -> None:
        beat = 0
        while True:
            beat += 1
            self._sent_beats = {beat: time.monotonic()}
            with suppress(KafkaError):
                await self._put(f"gateway/{self.gateway}", {"beat": beat})
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
                    with suppress(KafkaError):
                        await self._put(f"gateway/{gateway}", {"silent_since": offset, "by": self.gateway})
