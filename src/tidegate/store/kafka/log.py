"""A partition of a topic as a partition's log: what the hub appends to and reads from.

**Enqueued time.** A broker stamps a batch when it appends it, and brokers' clocks differ, so that stamps go back when a
partition's leader changes. The enqueued time of an event is the running maximum of the stamps up to it. It is a
property of the log alone: the running maximum before an offset is the largest X such that the first record stamped at X
or later lies before that offset, and that record is what ListOffsets looks up. So a reader that begins in the middle,
in any process, finds the same times as one that has read everything (`running_maximum_ms`). Usually the stamp of the
batch before is the maximum, and one request confirms it.

**Idle partitions.** Whoever waits for the lower bound on arrivals of a partition that gets no events makes its gateway
append a marker. The stamp of the marker raises the running maximum, so every later event is enqueued at it or after
it. That holds whatever the clocks of brokers and gateways do, as they only decide when a marker is written.
"""

from __future__ import annotations

import bisect
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.records import BatchError, RecordBatch, parse_batches, rebase
from tidegate.kafka.translation import batch_of
from tidegate.log import (
    ArrivalLowerBound,
    Document,
    EventBatch,
    LogDamaged,
    LogError,
    Numbering,
    RecordBatches,
    TopicAddress,
    WriteFailure,
)
from tidegate.log.group import OnDurable
from tidegate.log.log_writer import call
from tidegate.store.client.cluster import EARLIEST, LATEST, Cluster, Fetched, TopicPartition
from tidegate.store.client.connection import BrokerError, KafkaError
from tidegate.store.client.settings import address_text
from tidegate.store.kafka.records import Marker, Stretch, last_append_time_ms, limited, read_records
from tidegate.store.kafka.shared import LOST_AFTER_S
from tidegate.store.kafka.writer import InFlight, QueuedAppend, Writer, notify

if TYPE_CHECKING:
    from tidegate.store.kafka.store import KafkaStore

IDLE_S = 1.0
"""How long the running maximum does not change before a marker is written for those who wait for it."""
TAIL_BYTES = 4 << 20
_TAIL_KEPT_S = 30.0
"""How long after a read the last events are kept for the next one."""
_KNOWN_MAXIMA = 256
_FAR_BEHIND = 10_000
"""From how many records on it takes less to look up where a partition ends than to read them."""


class KafkaLog:
    """One partition. Methods may be called from any thread, unless they say otherwise."""

    def __init__(self, store: KafkaStore, where: TopicPartition, topic_id: str) -> None:
        """Use `KafkaStore.open_log`."""
        self.where = where
        self.log_id = f"{topic_id}-{where.partition}"
        self._topic_id = topic_id
        self._store = store
        self._cluster: Cluster = store.cluster
        self._lock = threading.Lock()
        self.writer = Writer(where, lambda: store.producer)
        self._is_closed = False
        # -- what is known of the end: everything before `position` was read
        self.position = 0
        self._begin = 0
        self._floor_ms = 0
        self._last = -1
        self._last_time_ms = 0
        self._rose_at_s = time.monotonic()
        self.located_at_s = 0.0
        self._end = 0
        self._tail: deque[EventBatch] = deque()
        self._tail_sizes: deque[int] = deque()
        self._tail_starts: list[int] = []
        self._tail_from = 0
        self._read_at_s = -_TAIL_KEPT_S
        self._tail_bytes = 0
        self._tail_untranslated: dict[int, RecordBatch] = {}
        self._maxima: dict[int, int] = {}
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._wanted_at_s = 0.0

    # -- what is visible

    @property
    def begin_sequence_number(self) -> int:
        """The oldest retained number; next_sequence_number if there is no event."""
        with self._lock:
            return min(self._begin, self._last + 1)

    @property
    def next_sequence_number(self) -> int:
        """The number after the last event that this gateway has seen."""
        with self._lock:
            return self._last + 1

    @property
    def last_offset(self) -> int:
        """The offset of the last event, which is its number; -1 if there never was one."""
        return self._last

    @property
    def last_enqueued_time_ms(self) -> int:
        """The enqueued time of the last event, 0 if there never was one."""
        return self._last_time_ms

    @property
    def is_empty(self) -> bool:
        """Whether the partition holds no event."""
        with self._lock:
            return self._begin > self._last

    @property
    def directory(self) -> Path | None:
        """None: there are no segments on this machine."""
        return None

    @property
    def topic(self) -> TopicAddress:
        """The partition's topic, which jobs read by themselves."""
        settings = self._cluster.settings
        brokers = ",".join(address_text(host, port) for host, port in settings.bootstrap)
        is_open = settings.tls is None and settings.credentials is None
        return TopicAddress(brokers, self.where.topic, self._topic_id, is_open)

    @property
    def size_bytes(self) -> int:
        """0: nothing is stored on this machine."""
        return 0

    def try_again(self) -> None:
        """Append a marker where events were refused and none wait: what waits is tried again all the time.

        Nothing else would show that the partition takes events again, as long as nobody publishes to it.
        """
        if self.writer.ask_for_trial() and not self._is_closed:
            self._store.wake(self)

    @property
    def write_failure(self) -> WriteFailure | None:
        """Why the cluster takes no events now; None if it does."""
        return self.writer.failure

    @property
    def refused_appends(self) -> int:
        """How many appends could not be stored since the log was opened."""
        return self.writer.refused_appends

    @property
    def last_write_s(self) -> float:
        """When events were last stored since the log was opened, Unix time; 0 if none were."""
        return self.writer.last_write_s

    @property
    def is_watched(self) -> bool:
        """Whether a reader waits for events at the end."""
        return bool(self._listeners) or time.monotonic() - self._wanted_at_s < 5 * IDLE_S

    def arrival_lower_bound(self, *, is_awaited: bool = True) -> ArrivalLowerBound:
        """Return the lower bound on future arrivals that the log itself guarantees. Does not wait.

        If the bound has stood still for a while, a marker is appended that will raise it.
        """
        now_s = time.monotonic()
        with self._lock:
            bound = ArrivalLowerBound(self._last + 1, self._floor_ms)
            if not is_awaited:
                return bound
            self._wanted_at_s = now_s
            is_idle = now_s - self._rose_at_s >= IDLE_S and not self.writer.is_marker_wanted and not self._is_closed
            if is_idle:
                self.writer.is_marker_wanted = True
        if is_idle:
            self._store.wake(self)
        return bound

    def note_topic(self, topic_id: str | None) -> None:
        """Note the identity that the topic has now, None if there is no such topic. In the store's thread."""
        reason = None
        if topic_id is None:
            reason = f"the topic {self.where.topic} was deleted: restore it, or delete the event hub"
        elif topic_id != self._topic_id:
            reason = (
                f"the topic {self.where.topic} was deleted, and another one has its name: delete the event hub, or "
                "restart the gateways to use the new topic"
            )
        self.writer.note_gone(reason)

    def on_grow(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` from the store's thread whenever next_sequence_number has advanced.

        It must be quick; an exception is logged and not propagated. Returns the function that unsubscribes.
        """
        with self._lock:
            self._listeners = (*self._listeners, callback)
        self._store.watch(self)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners = tuple(one for one in self._listeners if one is not callback)

        return unsubscribe

    # -- appending

    def append(
        self, events: Sequence[bytes | memoryview], on_durable: OnDurable, numbering: Numbering | None = None
    ) -> None:
        """Store `events` (at least one) atomically.

        on_durable is called once, from the store's thread, when all in-sync replicas have them, or with a LogError.
        Raises ValueError for no events, LogClosed.
        """
        if not events:
            raise ValueError("an append needs at least one event")
        if self.writer.submit(QueuedAppend(events, on_durable, numbering)):
            self._store.wake(self)

    def append_batch(self, batch: RecordBatch, on_durable: OnDurable) -> None:
        """Store a record batch of a client of Kafka as it came. Otherwise like `append`."""
        if self.writer.submit(QueuedAppend((), on_durable, None, batch)):
            self._store.wake(self)

    def next_batch(self) -> InFlight | None:
        """Return what is to be sent now. In the store's thread."""
        return self.writer.next_batch(lambda: Marker(self._last, self._last_time_ms, self.position))

    def acknowledged(self, base_offset: int, append_time_ms: int) -> None:
        """Report that the batch being sent was appended. In the store's thread."""
        sent = self.writer.take_acknowledged()
        with self._lock:
            if not sent.appends:
                self._rose_at_s = time.monotonic()  # even if a clock is behind, one marker a while is enough
            grown = self._take_own(sent, base_offset, append_time_ms)
            listeners = self._listeners if grown else ()
            enqueued_time_ms = max(append_time_ms, self._floor_ms)
        notify(sent, base_offset, enqueued_time_ms)
        for listener in listeners:
            call(listener)
        # Without readers, what other gateways append is not fetched: each would else read all that all others store.
        if self.is_behind and self.is_watched:
            self._store.grown(self)

    def _take_own(self, sent: InFlight, base_offset: int, append_time_ms: int) -> bool:
        """Show what was just appended, unless other records lie before it; those are fetched first.

        The events are kept for readers, if there are any lately. Otherwise they would push what publishers send next
        out of the processor's cache.
        """
        self._end = max(self._end, base_offset + sent.total)
        if base_offset != self.position or any(append.batch is not None for append in sent.appends):
            return False
        if append_time_ms > self._floor_ms:
            self._floor_ms, self._rose_at_s = append_time_ms, time.monotonic()
        self.position = base_offset + sent.total
        if not sent.appends:
            return False
        if self.is_watched or time.monotonic() - self._read_at_s < _TAIL_KEPT_S:
            self._show(EventBatch(base_offset, self._floor_ms, range(base_offset, self.position), sent.events))
        else:
            self._last, self._last_time_ms = self.position - 1, self._floor_ms
            self._forget_tail()
        return True

    def _forget_tail(self) -> None:
        """Have events fetched that lie before the position."""
        self._tail_from = self.position
        self._tail_bytes = 0
        for kept in (self._tail, self._tail_sizes, self._tail_starts, self._tail_untranslated):
            kept.clear()

    def _show(self, batch: EventBatch, untranslated: RecordBatch | None = None) -> None:
        size = sum(map(len, batch.events))
        if untranslated is not None:
            self._tail_untranslated[batch.base_sequence_number] = untranslated
            size += len(untranslated.data)
        self._tail.append(batch)
        self._tail_sizes.append(size)
        self._tail_starts.append(batch.base_sequence_number)
        self._tail_bytes += size
        while self._tail_bytes > TAIL_BYTES and len(self._tail) > 1:
            self._drop_oldest()
        self._last = batch.base_sequence_number + len(batch.events) - 1
        self._last_time_ms = batch.enqueued_time_ms

    @property
    def is_behind(self) -> bool:
        """Whether the partition is known to go on after what was read of it."""
        return self.position < self._end

    # -- following the end, in the store's thread

    async def locate(self) -> None:
        """Find out where the partition begins and ends, and what its last event is. Raises KafkaError."""
        begin = await self._cluster.list_offset(self.where, EARLIEST)
        end = await self._cluster.list_offset(self.where, LATEST)
        last, last_time_ms, look_from = -1, 0, end
        if end > begin:
            found = await self._read(end - 1)
            if found.marker is not None:
                last, last_time_ms, look_from = found.marker
                look_from = max(look_from, begin)
            elif found.batches:
                batch = found.batches[-1]
                last, last_time_ms = batch.base_sequence_number + len(batch.events) - 1, batch.enqueued_time_ms
            while look_from < end:
                found = await self._read(look_from)
                if found.next_offset <= look_from:
                    break
                look_from = found.next_offset
                if found.batches:
                    batch = found.batches[-1]
                    last, last_time_ms = batch.base_sequence_number + len(batch.events) - 1, batch.enqueued_time_ms
        elif end:
            last = end - 1  # retention has deleted all; the numbering continues
        floor_ms = await self.running_maximum_ms(end)
        self.located_at_s = time.monotonic()
        with self._lock:
            self._begin, self.position, self._end, self._floor_ms = begin, end, end, floor_ms
            grown = last > self._last
            self._last, self._last_time_ms = last, last_time_ms
            self._forget_tail()
            listeners = self._listeners if grown else ()
        for listener in listeners:
            call(listener)

    def catch_up(self) -> None:
        """See what other gateways have appended so far. Waits for the cluster, unless it is lost. Raises LogError."""
        shared = self._store.shared
        if shared is not None and not shared.is_connected:
            raise LogError("the gateway has no connection to its cluster")
        try:
            self._store.wait(self.catch_up_soon(), LOST_AFTER_S)
        except KafkaError as error:
            raise LogError(f"{self.where.topic}/{self.where.partition} cannot be read: {error}") from error

    async def catch_up_soon(self) -> None:
        """Read up to where the partition ends now. In the store's thread. Raises KafkaError."""
        end = await self._cluster.list_offset(self.where, LATEST)
        if end - self.position > _FAR_BEHIND and not self.is_watched:
            await self.locate()
            return
        while self.position < end:
            offset = self.position
            fetched = await self._cluster.fetch_one(self.where, offset)
            before = self.position
            try:
                self.take(fetched, offset)
            except BatchError as error:
                raise KafkaError(f"the records at offset {offset} are damaged: {error}") from error
            if self.position == before and not fetched.records:
                return

    def take(self, fetched: Fetched, offset: int) -> bool:
        """Take what a fetch at the end found, and return whether there were events. Raises BatchError."""
        if offset != self.position:
            return False
        stretch = read_records(fetched.records, offset, self._floor_ms)
        now_s = time.monotonic()
        with self._lock:
            self._end = max(self._end, fetched.high_watermark)
            self._begin = max(self._begin, fetched.log_start)
            if stretch.next_offset == offset:
                return False
            self.position = stretch.next_offset
            if stretch.floor_ms > self._floor_ms:
                self._floor_ms, self._rose_at_s = stretch.floor_ms, now_s
            for batch in stretch.batches:
                self._show(batch, stretch.untranslated.get(batch.base_sequence_number))
            if not stretch.batches:
                return False
            listeners = self._listeners
        for listener in listeners:
            call(listener)
        return True

    def _drop_oldest(self) -> None:
        dropped = self._tail.popleft()
        del self._tail_starts[0]
        self._tail_untranslated.pop(dropped.base_sequence_number, None)
        self._tail_bytes -= self._tail_sizes.popleft()
        self._tail_from = dropped.base_sequence_number + len(dropped.events)

    def note_begin(self, begin: int) -> None:
        """Note where the partition begins."""
        with self._lock:
            self._begin = max(self._begin, begin)

    # -- reading

    def read_batches(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> list[EventBatch]:
        """Return events from sequence_number on, or from begin_sequence_number if that is later; [] at the end.

        However small max_bytes is, at least one event is returned if there is one. Waits for the cluster unless the
        events are among the last ones. Raises LogError.
        """
        found = self.read_cached(sequence_number, max_bytes=max_bytes, max_events=max_events)
        if found is None:
            return self._store.wait(self.read(sequence_number, max_bytes=max_bytes, max_events=max_events))
        return found

    def read_cached(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> list[EventBatch] | None:
        """Return what `read_batches` would, or None if the events must be fetched first. Raises LogError."""
        some = self._from_tail(sequence_number, max_events)
        if some is None:
            return None
        return limited(some.batches, max(sequence_number, self._begin), max_bytes, max_events, some.next_offset - 1)

    def start_read(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> Future[list[EventBatch]]:
        """Begin what `read_batches` does and return its future."""
        return self._store.start_soon(self.read(sequence_number, max_bytes=max_bytes, max_events=max_events))

    async def read(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> list[EventBatch]:
        """Return the same as `read_batches`, without blocking. In the store's thread. Raises LogError."""
        found = self.read_cached(sequence_number, max_bytes=max_bytes, max_events=max_events)
        if found is None:
            some = await self._read_some(sequence_number, max_bytes)
            found = limited(some.batches, max(sequence_number, self._begin), max_bytes, max_events, self._last)
        return found

    def _from_tail(self, sequence_number: int, max_events: int) -> Stretch | None:
        """Return batches from the one with a number on, if it is among the last ones; None if it has to be fetched."""
        self._read_at_s = time.monotonic()
        with self._lock:
            sequence_number = max(sequence_number, self._begin)  # what was deleted may still be held here
            if sequence_number > self._last:
                return Stretch([], self._last + 1, 0, None)
            if sequence_number < self._tail_from or not self._tail:
                return None
            first = max(0, bisect.bisect_right(self._tail_starts, sequence_number) - 1)
            some: list[EventBatch] = []
            events = 0
            for index in range(first, len(self._tail)):
                some.append(self._tail[index])
                events += len(self._tail[index].events)
                if events >= max_events or len(some) >= 256:
                    break
            starts = (batch.base_sequence_number for batch in some)
            untranslated = {
                start: self._tail_untranslated[start] for start in starts if start in self._tail_untranslated
            }
            return Stretch(some, self._last + 1, 0, None, untranslated)

    async def _read(self, offset: int, max_bytes: int = 1 << 20) -> Stretch:
        """Fetch from an offset on. Raises KafkaError."""
        while True:
            try:
                fetched = await self._cluster.fetch_one(self.where, offset, max_bytes=max_bytes)
            except BrokerError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                begin = await self._cluster.list_offset(self.where, EARLIEST)
                if begin <= offset:
                    raise
                self.note_begin(begin)
                offset = begin
                continue
            if not fetched.records:
                return Stretch([], offset, 0, None)
            first = next(parse_batches(fetched.records, partial_end=True), None)
            at = offset if first is None else min(offset, first.base_offset)
            maximum_ms = await self.running_maximum_ms(at)
            try:
                stretch = read_records(fetched.records, offset, maximum_ms)
            except BatchError as error:
                raise KafkaError(f"the records at offset {offset} are damaged: {error}") from error
            self._remember(stretch.next_offset, stretch.floor_ms)
            return stretch

    def _remember(self, offset: int, maximum_ms: int) -> None:
        self._maxima[offset] = maximum_ms
        if len(self._maxima) > _KNOWN_MAXIMA:
            del self._maxima[next(iter(self._maxima))]

    async def running_maximum_ms(self, offset: int) -> int:
        """Return the largest append time of the records before an offset, 0 if there are none. Raises KafkaError."""
        known = self._maxima.get(offset)
        if known is None:
            known = await running_maximum_ms(self._cluster, self.where, offset)
            self._remember(offset, known)
        return known

    def read_record_batches(self, sequence_number: int, *, max_bytes: int) -> RecordBatches:
        """Return events as record batches, those of Kafka's clients as they came; see `PartitionLog`.

        Waits for the cluster unless the events are among the last ones. Raises LogError.
        """
        some = self._from_tail(sequence_number, 1 << 20)
        if some is None:
            some = self._store.wait(self._read_some(sequence_number, max_bytes))
        sequence_number, last = max(sequence_number, self._begin), self._last
        found: list[bytes] = []
        count = size = 0
        for batch in some.batches:
            stop = min(batch.base_sequence_number + len(batch.events), last + 1)
            first = max(sequence_number, batch.base_sequence_number)
            if first >= stop:
                continue
            original = some.untranslated.get(batch.base_sequence_number)
            if original is not None:
                encoded = rebase(original, original.base_offset, batch.enqueued_time_ms)
            else:
                base = batch.base_sequence_number
                encoded = batch_of(batch.events[first - base : stop - base], first, batch.enqueued_time_ms)
            if found and size + len(encoded) > max_bytes:
                break
            found.append(encoded)
            size, count, sequence_number = size + len(encoded), count + stop - first, stop
        return RecordBatches(found, count, sequence_number)

    async def _read_some(self, sequence_number: int, max_bytes: int) -> Stretch:
        """Return fetched batches, of which the first holds a number or the next event after it. Raises LogError."""
        try:
            while True:
                some = self._from_tail(sequence_number, 1 << 20)
                if some is not None:
                    return some
                sequence_number = max(sequence_number, self.begin_sequence_number)
                stretch = await self._read(sequence_number, max_bytes)
                if stretch.batches or stretch.next_offset <= sequence_number:
                    return stretch
                sequence_number = stretch.next_offset
        except KafkaError as error:
            raise LogError(f"{self.where.topic}/{self.where.partition} cannot be read: {error}") from error

    def sequence_after_offset(self, offset: int, *, inclusive: bool) -> int:
        """Return the number of the first event with an offset > `offset` (>= when inclusive), which is its number."""
        return max(min(offset if inclusive else offset + 1, self.next_sequence_number), self.begin_sequence_number)

    def sequence_at_time(self, enqueued_time_ms: int, *, inclusive: bool) -> int:
        """Return the number of the first event enqueued after the time (at it or after when inclusive).

        next_sequence_number if there is none. Waits for the cluster. Raises LogError.
        """
        return self._store.wait(self.find_time(enqueued_time_ms, inclusive=inclusive))

    async def find_time(self, enqueued_time_ms: int, *, inclusive: bool) -> int:
        """Return the same as `sequence_at_time`, without blocking. In the store's thread. Raises LogError."""
        # The first record whose running maximum reaches a time is the first that was stamped with it or later.
        time_ms = enqueued_time_ms if inclusive else enqueued_time_ms + 1
        if time_ms <= 0:
            return self.begin_sequence_number
        try:
            found = await self._cluster.list_offset(self.where, time_ms)
        except KafkaError as error:
            raise LogError(f"{self.where.topic}/{self.where.partition} cannot be searched: {error}") from error
        end = self.next_sequence_number
        return end if found < 0 else min(found, end)

    # -- keeping

    def retain(
        self, *, now_ms: int, retention_ms: int | None, retention_bytes: int | None, keep_from: int | None = None
    ) -> int:
        """Return 0: brokers delete what is old, by the settings of the topic."""
        return 0

    def delete_before(self, sequence_number: int) -> None:
        """Delete the events before a number. Waits for the cluster. Raises LogError."""
        try:
            self.note_begin(self._store.wait(self._cluster.delete_before(self.where, sequence_number)))
        except KafkaError as error:
            raise LogError(f"{self.where.topic}/{self.where.partition}: events cannot be deleted: {error}") from error

    def document(self, name: str, *, advice: str) -> Document:
        """Return a document that is kept in the topic of what gateways share. Raises OSError without one."""
        if self._store.shared is None:
            raise OSError(f"{self.where.topic} has no place for {name}")
        return self._store.shared.document(f"{self.where.topic}/{self.where.partition}/{name}", advice)

    def is_assigned(self, task: str) -> bool:
        """Return whether this gateway is the one to do a task of the partition; it applies if nobody does it."""
        shared = self._store.shared
        return shared is None or shared.does(f"{self.where.topic}/{self.where.partition}/{task}")

    def unassign(self, task: str) -> None:
        """Let another gateway do a task."""
        if self._store.shared is not None:
            self._store.shared.leave(f"{self.where.topic}/{self.where.partition}/{task}")

    @property
    def work_folder(self) -> Path:
        """A folder on the local disk for files that may be lost at any time."""
        return Path(tempfile.gettempdir()) / "tidegate" / self.where.topic / str(self.where.partition)

    @property
    def damages(self) -> Sequence[LogDamaged]:
        """Nothing: brokers check what they keep."""
        return ()

    def check(self) -> Iterator[LogDamaged | None]:
        """Yield nothing: brokers check what they keep."""
        return iter(())

    def close(self) -> None:
        """Fail what waits. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._listeners = ()
        self.writer.close()
        self._store.forget(self)


async def running_maximum_ms(cluster: Cluster, where: TopicPartition, offset: int) -> int:
    """Return the largest append time of the records before an offset, 0 if there are none.

    It is the largest X such that the first record stamped at X or later lies before the offset. Raises KafkaError.
    """
    begin = await cluster.list_offset(where, EARLIEST)
    if offset <= begin:
        return 0
    fetched = await cluster.fetch_one(where, offset - 1, max_bytes=1)
    before_ms = last_append_time_ms(fetched.records, offset - 1)
    if before_ms is None:
        raise KafkaError(f"the record at offset {offset - 1} of {where.topic}/{where.partition} cannot be read")

    async def is_reached(time_ms: int) -> bool:
        return 0 <= await cluster.list_offset(where, time_ms) < offset

    low, step = before_ms, 1
    while await is_reached(low + step):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if await is_reached(middle):
            low = middle
        else:
            high = middle
    return low
