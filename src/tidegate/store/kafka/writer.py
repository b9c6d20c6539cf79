"""What waits to be appended to a partition, and the one record batch of it that is on its way to the leader."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.records import RecordBatch
from tidegate.log import Appended, LogClosed, LogError, Numbering, NumbersRefused, WriteFailure
from tidegate.log.group import OnDurable
from tidegate.log.log_writer import call
from tidegate.store.client.cluster import TopicPartition
from tidegate.store.client.connection import BrokerError, KafkaError
from tidegate.store.kafka.records import Marker, encode_marker, encode_messages

_logger = logging.getLogger(__name__)
MAX_BATCH_BYTES = 900_000
"""A record batch is closed before it gets larger; Kafka's own limit (max.message.bytes) is 1,048,588 by default."""
MAX_PENDING_BYTES = 64 << 20
DELIVERY_TIMEOUT_S = 20.0
"""How long appends are retried before their publishers get a retryable error."""
_RECORD_BYTES = 24
_MAX_SEQUENCE = 2**31 - 1
_MAX_EPOCH = 2**15 - 2


@dataclass(slots=True)
class QueuedAppend:
    """Events to be stored atomically, and the callback to notify. A record batch is stored in place of events.

    Attributes:
        size: About as many bytes as it takes in a record batch.
        total: How many events there are.
        queued_at_s: When it came, by the monotonic clock.
    """

    events: Sequence[bytes | memoryview]
    on_durable: OnDurable
    numbering: Numbering | None = None
    batch: RecordBatch | None = None
    size: int = field(init=False)
    total: int = field(init=False)
    queued_at_s: float = field(init=False, default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if self.batch is not None:
            self.size, self.total = len(self.batch.data), self.batch.count
        else:
            self.total = len(self.events)
            self.size = sum(map(len, self.events)) + _RECORD_BYTES * self.total


@dataclass(slots=True)
class InFlight:
    """A record batch on its way to the leader, and the appends in it (none for a marker).

    It is sent again, byte for byte, until the cluster has answered or the time for it is over, so the broker knows a
    repetition by its producer's numbers.

    Attributes:
        encoded: The record batch.
        appends: The appends, in order.
        deadline_s: When the time for it is over, by the monotonic clock.
        is_own: Whether the gateway numbered it, and not a client.
        total: How many records it has.
        events: What the appends hold; none of a record batch.
    """

    encoded: bytes
    appends: list[QueuedAppend]
    deadline_s: float
    is_own: bool
    total: int
    events: Sequence[bytes] = ()


class Writer:
    """The appends of one partition. Methods may be called from any thread, unless they say otherwise."""

    def __init__(self, where: TopicPartition, producer: Callable[[], tuple[int, int]]) -> None:
        """`producer` returns the id and epoch that number this gateway's appends."""
        self._where = where
        self._new_producer = producer
        self._lock = threading.Lock()
        self._pending: deque[QueuedAppend] = deque()
        self._pending_bytes = 0
        self._producer: tuple[int, int] | None = None
        self._next_number = 0
        self._is_closed = False
        self._failure: tuple[str, float] | None = None
        self._gone: str | None = None
        self.in_flight: InFlight | None = None
        self.is_marker_wanted = False
        self.refused_appends = 0
        self.last_write_s = 0.0

    @property
    def failure(self) -> WriteFailure | None:
        """Why the cluster takes no events now; None if it does."""
        failure = self._failure
        return None if failure is None else WriteFailure(failure[0], failure[1], self.refused_appends, 0)

    def submit(self, append: QueuedAppend) -> bool:
        """Add an append, and return whether nothing was waiting before it. Raises LogClosed."""
        size = append.size
        with self._lock:
            if self._is_closed:
                raise LogClosed("the log is closed")
            gone = self._gone
            if gone is None and (not self._pending or self._pending_bytes + size <= MAX_PENDING_BYTES):
                self._pending.append(append)
                self._pending_bytes += size
                return len(self._pending) == 1
        self._refuse([append], gone or f"{self._pending_bytes >> 20} MB wait for the partition already")
        return False

    def ask_for_trial(self) -> bool:
        """Have a marker sent, and return True, if the last append failed and nothing is being sent that would tell."""
        with self._lock:
            is_busy = self.in_flight is not None or bool(self._pending) or self.is_marker_wanted
            if self._failure is None or self._gone is not None or is_busy:
                return False
            self.is_marker_wanted = True
            return True

    def next_batch(self, marker: Callable[[], Marker]) -> InFlight | None:
        """Return what is to be sent now: the batch that is being sent, or one of what waits. In the store's thread."""
        if self.in_flight is not None:
            return self.in_flight
        with self._lock:
            group = self._take_group()
        now_ms = time.time_ns() // 1_000_000
        if not group:
            if not self.is_marker_wanted:
                return None
            encoded = encode_marker(marker(), now_ms, self._own_numbers(1))
            self.in_flight = InFlight(encoded, [], time.monotonic() + DELIVERY_TIMEOUT_S, True, 1)
            return self.in_flight
        first = group[0]
        deadline_s = first.queued_at_s + DELIVERY_TIMEOUT_S
        total = sum(append.total for append in group)
        events: Sequence[bytes] = ()
        if first.batch is not None:
            encoded, is_own = bytes(first.batch.data), False
        else:
            events = [event if type(event) is bytes else bytes(event) for append in group for event in append.events]
            is_own = first.numbering is None
            encoded = encode_messages(events, now_ms, first.numbering or self._own_numbers(total))
        self.in_flight = InFlight(encoded, group, deadline_s, is_own, total, events)
        return self.in_flight

    def _take_group(self) -> list[QueuedAppend]:
        """Take the appends that go into one record batch: all that fit, or one that has a batch of its own."""
        group: list[QueuedAppend] = []
        size = 0
        pending = self._pending
        while pending:
            append = pending[0]
            is_alone = append.batch is not None or append.numbering is not None
            if group and (is_alone or size + append.size > MAX_BATCH_BYTES):
                break
            group.append(pending.popleft())
            size += append.size
            if is_alone:
                break
        self._pending_bytes -= size
        return group

    def _own_numbers(self, total: int) -> tuple[int, int, int]:
        if self._producer is None:
            self._producer = self._new_producer()
        first = self._next_number
        self._next_number = (first + total) & _MAX_SEQUENCE
        return (*self._producer, first)

    def _begin_epoch(self) -> None:
        """Number from 0 again after a batch whose fate is unknown, as what follows it would leave a gap.

        In the same epoch, a broker would take the new number 0 for a repetition of the first batch, and answer that it
        is stored. After the last epoch, the store has long drawn another producer.
        """
        assert self._producer is not None
        producer_id, epoch = self._producer
        self._producer = (producer_id, epoch + 1) if epoch < _MAX_EPOCH else None
        self._next_number = 0

    def take_acknowledged(self) -> InFlight:
        """Return the batch being sent, which was appended, and be ready for the next. In the store's thread."""
        sent, self.in_flight = self.in_flight, None
        assert sent is not None
        self._failure = None
        self.last_write_s = time.time()
        if not sent.appends:
            self.is_marker_wanted = False
        return sent

    def note_gone(self, reason: str | None) -> None:
        """Take no events any more, because the topic is no longer there; None: it is."""
        if reason == self._gone:
            return
        self._gone = reason
        if reason is not None:
            _logger.error("%s/%s: %s", *self._where, reason)
            self._failure = reason, time.time()

    def failed(self, error: KafkaError) -> None:
        """Report that the batch being sent was refused, or that the time for it is over. In the store's thread."""
        sent, self.in_flight = self.in_flight, None
        assert sent is not None
        if sent.is_own:
            self._begin_epoch()
        self.is_marker_wanted = False
        self._refuse(sent.appends, str(error))

    def note_failure(self, error: KafkaError) -> None:
        """Report that the cluster takes no events now, and that it is tried again."""
        if self._failure is None:
            self._failure = str(error), time.time()

    def _refuse(self, appends: Sequence[QueuedAppend], reason: str) -> None:
        if self._failure is None and appends:
            self._failure = reason, time.time()
        self.refused_appends += len(appends)
        where = f"{self._where.topic}/{self._where.partition}"
        for append in appends:
            call(append.on_durable, LogError(f"{where} cannot take events now: {reason}"))

    def refused_numbers(self, error: BrokerError) -> None:
        """Report that the numbers of the batch being sent leave a gap or are of an epoch that is over."""
        sent, self.in_flight = self.in_flight, None
        assert sent is not None
        for append in sent.appends:
            is_epoch_over = error.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
            call(append.on_durable, NumbersRefused(str(error), is_epoch_over=is_epoch_over))

    def close(self) -> None:
        """Fail what waits. Idempotent."""
        with self._lock:
            self._is_closed = True
            pending, self._pending = list(self._pending), deque()
            self._pending_bytes = 0
        for append in pending:
            call(append.on_durable, LogClosed("the log is closed"))


def notify(sent: InFlight, base_offset: int, enqueued_time_ms: int) -> None:
    """Tell the publishers where their events are; an offset of -1 is one that the broker has forgotten."""
    number = base_offset
    for append in sent.appends:
        total = append.total
        last = number + total - 1 if base_offset >= 0 else -1
        call(append.on_durable, Appended(number, total, number, last, enqueued_time_ms))
        number = number + total if base_offset >= 0 else -1
