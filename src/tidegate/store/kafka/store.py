"""The connection of a gateway to its cluster: what sends appends to the leaders, and what follows the partitions' ends.

Everything runs in one event loop in a thread of its own, so that neither a slow cluster nor a busy server holds the
other up. For each broker there is one request with appends on its way at a time, and it carries what waits for every
partition that the broker leads: the busier the partitions, the larger the batches (group commit).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Api
from tidegate.kafka.records import BatchError
from tidegate.log import LogError
from tidegate.store.client.cluster import LATEST, RETRIABLE, Cluster, Fetched, Produced, TopicPartition
from tidegate.store.client.connection import BrokerError, KafkaError, Unreachable
from tidegate.store.client.settings import ClientSettings
from tidegate.store.kafka.log import KafkaLog
from tidegate.store.kafka.writer import InFlight

if TYPE_CHECKING:
    from tidegate.store.kafka.shared_topic import SharedTopic

_logger = logging.getLogger(__name__)
_PRODUCE_TIMEOUT_S = 5.0
_FOLLOW_WAIT_S = 0.25
_POLL_S = 1.0
_TOPICS_EVERY = 3
_LOOKUPS_PER_TURN = 20
"""How many partitions without readers are looked up at once: each takes some requests, and there may be thousands."""
_RETRY_S = 0.05
_MAX_RETRY_S = 0.5
_NUMBERS = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)
_Result = TypeVar("_Result")


class KafkaStore:
    """One gateway's store: a cluster, and the logs that were opened in it."""

    def __init__(self, settings: ClientSettings) -> None:
        """Start the thread; `open` connects."""
        self.cluster = Cluster(settings)
        self.shared: SharedTopic | None = None
        """What the gateways of a namespace share, once that is open."""
        self.producer = (-1, -1)
        """Id and epoch of the producer that numbers this gateway's appends; replaced when numbers were lost."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafka-store", daemon=True)
        self._thread.start()
        self._lock = threading.Lock()
        self._dirty: set[KafkaLog] = set()
        self._is_waking = False
        self._logs: dict[TopicPartition, KafkaLog] = {}
        self._ready: dict[int, dict[KafkaLog, None]] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._homeless: dict[KafkaLog, KafkaError] = {}
        self._rehoming: asyncio.Task[None] | None = None
        self._followers: dict[int, asyncio.Task[None]] = {}
        self._following: dict[int, asyncio.Event] = {}
        self._poller: asyncio.Task[None] | None = None
        self._is_closed = False

    # -- opening and closing

    def open(self) -> None:
        """Connect to the cluster. Raises KafkaError."""
        self.wait(self._open())

    async def _open(self) -> None:
        await self.cluster.refresh()
        self.producer = await self.cluster.init_producer_id(10)
        self._poller = asyncio.ensure_future(self._poll())

    def open_log(self, where: TopicPartition, topic_id: str) -> KafkaLog:
        """Open one partition of a topic that exists. Raises KafkaError."""
        return self.wait(self.open_log_soon(where, topic_id))

    async def open_log_soon(self, where: TopicPartition, topic_id: str) -> KafkaLog:
        """Open the same, in the store's thread. Raises KafkaError."""
        log = KafkaLog(self, where, topic_id)
        await log.locate()
        self._logs[where] = log
        return log

    def forget(self, log: KafkaLog) -> None:
        """Do nothing for a log any more."""
        self._logs.pop(log.where, None)

    def wait(self, work: Coroutine[Any, Any, _Result], timeout_s: float = 60.0) -> _Result:
        """Run something in the store's thread and return its result. Not to be called in that thread."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the store's thread cannot wait for itself")
        if self._is_closed:
            work.close()
            raise LogError("the store is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise LogError(f"the cluster did not answer within {timeout_s:.0f} s") from None

    @property
    def topics(self) -> set[str]:
        """The topics of the open logs, and that of what gateways share."""
        shared = set() if self.shared is None else {self.shared.where.topic}
        return shared | {where.topic for where in list(self._logs)}

    @property
    def is_closed(self) -> bool:
        """Whether the store was closed."""
        return self._is_closed

    def call_soon(self, function: Callable[[str], None], argument: str) -> None:
        """Call something in the store's thread."""
        self._loop.call_soon_threadsafe(function, argument)

    async def last_number(self, where: TopicPartition, producer_id: int) -> tuple[int, int] | None:
        """Return the epoch and last number of a producer in a partition, None if it is unknown. Raises KafkaError."""
        node = self.cluster.leader(where)
        if node is None:
            await self.cluster.refresh([where.topic])
            node = self.cluster.leader(where)
        if node is None:
            raise Unreachable(f"{where.topic}/{where.partition} has no leader")
        values = {"topics": [{"name": where.topic, "partition_indexes": [where.partition]}]}
        answer = (await self.cluster.ask(node, "control", Api.DESCRIBE_PRODUCERS, values)).topics[0].partitions[0]
        if answer.error_code:
            raise BrokerError(answer.error_code, f"{where.topic}/{where.partition}", answer.error_message)
        for one in answer.active_producers:
            if one.producer_id == producer_id:
                return one.producer_epoch, one.last_sequence
        return None

    def start_soon(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Run something in the store's thread, and return its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Close all logs and connections. Idempotent."""
        if self._is_closed:
            return
        for log in list(self._logs.values()):
            log.close()
        self.wait(self._close())
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        tasks = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await self.cluster.close()
        if tasks:
            await asyncio.wait(tasks)
        for log in {*self._homeless, *(one for ready in self._ready.values() for one in ready)}:
            if log.writer.in_flight is not None:
                log.writer.failed(Unreachable("the gateway is stopping"))

    # -- sending

    def wake(self, log: KafkaLog) -> None:
        """Send what waits in a log, soon. From any thread."""
        with self._lock:
            self._dirty.add(log)
            if self._is_waking or self._is_closed:
                return
            self._is_waking = True
        self._loop.call_soon_threadsafe(self._dispatch)

    def _dispatch(self) -> None:
        with self._lock:
            dirty, self._dirty = self._dirty, set()
            self._is_waking = False
        for log in dirty:
            self._send_soon(log)

    def _send_soon(self, log: KafkaLog) -> None:
        if log in self._homeless:
            return
        node = self.cluster.leader(log.where)
        if node is None:
            self._rehome(log, Unreachable(f"{log.where.topic}/{log.where.partition} has no leader"))
            return
        self._ready.setdefault(node, {})[log] = None
        sender = self._senders.get(node)
        if sender is None or sender.done():
            self._senders[node] = self._loop.create_task(self._send(node))

    async def _send(self, node: int) -> None:
        """Send what waits for the partitions of one broker, until nothing does."""
        while ready := self._ready.pop(node, None):
            logs = {log.where: log for log in ready}
            batches = {where: sent for where, log in logs.items() if (sent := log.next_batch()) is not None}
            if not batches:
                continue
            try:
                results: Mapping[TopicPartition, Produced | BrokerError] = await self.cluster.produce(
                    node, {where: sent.encoded for where, sent in batches.items()}, _PRODUCE_TIMEOUT_S
                )
            except KafkaError as error:
                for where in batches:
                    self._rehome(logs[where], error)
                continue
            for where, sent in batches.items():
                result = results.get(where, Unreachable("the broker left the partition out"))
                await self._finish(logs[where], sent, result)

    async def _finish(self, log: KafkaLog, sent: InFlight, result: Produced | KafkaError) -> None:
        is_known = isinstance(result, BrokerError) and await self._is_known(log, sent, result)
        if log.writer.in_flight is not sent:
            return  # sent to two leaders while one took over from the other, of which the other has answered
        if isinstance(result, Produced):
            log.acknowledged(*result)
        elif not isinstance(result, BrokerError) or result.code in RETRIABLE:
            self._rehome(log, result)
            return
        elif is_known:
            log.acknowledged(-1, -1)
        elif not sent.is_own and result.code in _NUMBERS:
            log.writer.refused_numbers(result)
        else:
            if sent.is_own and result.code != ErrorCode.MESSAGE_TOO_LARGE and log.write_failure is None:
                _logger.error("%s/%s refuses a batch of this gateway: %s", *log.where, result)
            log.writer.failed(result)
        if sent.is_own and not isinstance(result, Produced):
            await self._renew_producer()
        self._send_soon(log)

    async def _is_known(self, log: KafkaLog, sent: InFlight, error: BrokerError) -> bool:
        """Return whether a numbered batch that was refused for its numbers is older than what is stored.

        A broker remembers the last five batches of a producer; an older duplicate is out of order for it.
        """
        if error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or not sent.appends:
            return False
        numbering = sent.appends[0].numbering
        if numbering is None:
            return False
        with suppress(KafkaError):
            known = await self.last_number(log.where, numbering.producer_id)
            if known is not None and known[0] == numbering.epoch:
                last = numbering.first + sent.total - 1 & 0x7FFFFFFF
                return (known[1] - last & 0x7FFFFFFF) < 1 << 30
        return False

    async def _renew_producer(self) -> None:
        """Number appends anew, after some whose fate is unknown."""
        with suppress(KafkaError):
            self.producer = await self.cluster.init_producer_id(_PRODUCE_TIMEOUT_S)

    def _rehome(self, log: KafkaLog, error: KafkaError) -> None:
        """Have a log's appends sent again when its leader is known."""
        log.writer.note_failure(error)
        self._homeless[log] = error
        if self._rehoming is None or self._rehoming.done():
            self._rehoming = self._loop.create_task(self._find_leaders())

    async def _find_leaders(self) -> None:
        wait_s = _RETRY_S
        while self._homeless:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _MAX_RETRY_S)
            with suppress(KafkaError):
                await self.cluster.refresh([*{log.where.topic for log in self._homeless}])
            homeless, self._homeless = self._homeless, {}
            renew = False
            for log, error in homeless.items():
                while (sent := log.next_batch()) is not None and time.monotonic() >= sent.deadline_s:
                    renew = renew or sent.is_own
                    log.writer.failed(error)
                if sent is None:
                    continue
                if self.cluster.leader(log.where) is None:
                    self._homeless[log] = error
                else:
                    self._send_soon(log)
            if renew:
                await self._renew_producer()

    # -- following

    def watch(self, log: KafkaLog) -> None:
        """Follow the end of a log from now on. From any thread."""
        if not self._is_closed:
            self._loop.call_soon_threadsafe(self._follow_soon, log)

    def grown(self, log: KafkaLog) -> None:
        """Have a log read what was appended to it. In the store's thread."""
        self._follow_soon(log)

    def _follow_soon(self, log: KafkaLog) -> None:
        node = self.cluster.leader(log.where)
        if node is None:
            return
        self._following.setdefault(node, asyncio.Event()).set()
        follower = self._followers.get(node)
        if follower is None or follower.done():
            self._followers[node] = self._loop.create_task(self._follow(node))

    async def _follow(self, node: int) -> None:
        """Read the ends of the watched partitions that a broker leads, for as long as there are any."""
        wanted = self._following[node]
        failures = 0
        while True:
            logs = {
                log.where: log
                for log in list(self._logs.values())
                if log.is_watched and self.cluster.leader(log.where) == node
            }
            if not logs:
                wanted.clear()
                await wanted.wait()
                continue
            positions = {where: log.position for where, log in logs.items()}
            try:
                found = await self.cluster.fetch(node, positions, purpose="follow", wait_s=_FOLLOW_WAIT_S)
            except KafkaError as error:
                found = dict.fromkeys(positions, BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(error)))
            is_well = True
            for where, result in found.items():
                is_well = await self._take(logs[where], positions[where], result) and is_well
            failures = 0 if is_well else failures + 1
            if failures:
                await asyncio.sleep(min(_RETRY_S * failures, _MAX_RETRY_S))
                with suppress(KafkaError):
                    await self.cluster.refresh()
                for log in logs.values():
                    self._follow_soon(log)  # another broker may lead it now

    async def _take(self, log: KafkaLog, offset: int, result: Fetched | BrokerError) -> bool:
        """Take what was found at the end of a log, and return whether it could be read."""
        try:
            if isinstance(result, BrokerError):
                if result.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await log.locate()
                    return True
                return False
            log.take(result, offset)
            return True
        except BatchError as error:
            _logger.error("%s/%s: records at offset %d cannot be read: %s", *log.where, offset, error)
            return False
        except KafkaError:
            return False

    async def _check_topics(self, missing: set[str]) -> set[str]:
        """Tell the logs whose topics were deleted, and return the topics that were missing now.

        A broker that has just started may not know a topic yet, so one must be missing twice.
        """
        logs = list(self._logs.values())
        try:
            await self.cluster.refresh()
        except KafkaError:
            return missing
        now = {log.where.topic for log in logs if self.cluster.topic_id(log.where.topic) is None}
        for log in logs:
            if log.where.topic not in now - missing:
                log.note_topic(self.cluster.topic_id(log.where.topic))
        return now

    async def _poll(self) -> None:
        """Look now and then where partitions end that nobody watches, and whether topics are still there.

        Partitions that are watched are followed again, as nobody has since they were without a leader.
        """
        missing: set[str] = set()
        for turn in itertools.count():
            await asyncio.sleep(_POLL_S)
            if turn % _TOPICS_EVERY == 0:
                missing = await self._check_topics(missing)
            idle: dict[TopicPartition, KafkaLog] = {}
            for log in list(self._logs.values()):
                if log.is_watched:
                    self._follow_soon(log)
                else:
                    idle[log.where] = log
            if not idle:
                continue
            try:
                found = await self.cluster.list_offsets(dict.fromkeys(idle, LATEST))
                grown = [
                    idle[where]
                    for where, one in found.items()
                    if not one.error_code and one.offset > idle[where].position and where in self._logs
                ]
                for log in sorted(grown, key=lambda log: log.located_at_s)[:_LOOKUPS_PER_TURN]:
                    await log.locate()
                if len(found) < len(idle) or any(one.error_code for one in found.values()):
                    await self.cluster.refresh()
            except KafkaError as error:
                _logger.info("the ends of partitions cannot be looked up: %s", error)
                with suppress(KafkaError):
                    await self.cluster.refresh()
