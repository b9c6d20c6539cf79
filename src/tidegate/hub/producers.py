"""Idempotent producers: a publication that is sent twice is stored once.

Each event of such a producer carries its id, its epoch and a number that increases by one. For each partition and
producer the hub keeps the last number: the next number is new, numbers at or before it are duplicates, a gap is
refused, and a lower epoch belongs to an instance that has been replaced. Numbers are 32-bit integers and wrap to 0.

The state is in the log itself, in the annotations of the events. A snapshot beside the segments holds the state at
some sequence number, so that opening the partition reads only later events. A partition that never had such a producer
has no snapshot.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from tidegate.amqp.messages import DecodeError, message_annotation
from tidegate.hub.errors import ArgumentError, HubError, OutOfOrderSequence, ProducerFenced, ServerBusy
from tidegate.kafka.records import RecordBatch, parse_batch
from tidegate.log import Appended, EntryView, LogDamaged, LogError, PartitionLog
from tidegate.log.entry import JoinedEvents
from tidegate.log.group import OnDurable

_logger = logging.getLogger(__name__)
PRODUCER_ID = "com.microsoft:producer-id"
PRODUCER_EPOCH = "com.microsoft:producer-epoch"
PRODUCER_SEQUENCE_NUMBER = "com.microsoft:producer-sequence-number"
MARK = PRODUCER_ID.encode("ascii")
"""Bytes that every event of such a producer contains."""
_MAX_NUMBER = 2**31 - 1
_SNAPSHOT_EVENTS = 20_000
MAX_PRODUCERS = 10_000
RECENT_BATCHES = 5
"""Kafka's clients have at most so many publications under way."""
_VERSION = 1
_ADVICE = (
    "restore it from a backup, or replace it with an empty file: the producers are then read from the retained events, "
    "and a duplicate of an older event would be stored again"
)


@dataclass(slots=True)
class ProducerState:
    """A partition's state of a producer. `stored` is the last durable number, `accepted` the last one accepted."""

    epoch: int
    stored: int
    accepted: int
    attempt: int = 0
    """How often the log has refused what was accepted. A refusal of an earlier attempt says nothing of this one."""
    recent: deque[tuple[int, int]] = field(default_factory=partial(deque, maxlen=RECENT_BATCHES))
    """The last number of the latest publications, and the sequence number of the first event of each."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The producer numbers of one publication."""

    producer_id: int
    epoch: int
    first: int
    last: int


class AppendRefused(LogError):
    """A store elsewhere refused a publication, for the reason in `error`."""

    def __init__(self, error: HubError) -> None:
        super().__init__(error.description)
        self.error = error


def numbers_of(events: Sequence[bytes]) -> Numbers | None:
    """Return the producer numbers of one publication, None if its events carry none. Raises ArgumentError."""
    if not _is_numbered(events[0]) and not _is_numbered(events[-1]):
        return None
    first, last = _number(events[0]), _number(events[-1])
    if first is None or last is None or first[:2] != last[:2] or _plus(first[2], len(events) - 1) != last[2]:
        raise ArgumentError("the events of a batch must carry one producer id and epoch, and numbers without a gap")
    return Numbers(first[0], first[1], first[2], last[2])


def _is_numbered(event: bytes) -> bool:
    """Return whether an event carries producer annotations, not merely the same bytes in its body."""
    try:
        return MARK in event and message_annotation(event, PRODUCER_ID) is not None
    except DecodeError:
        return False


def _number(event: bytes) -> tuple[int, int, int] | None:
    try:
        values = [message_annotation(event, name) for name in (PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQUENCE_NUMBER)]
    except DecodeError:
        return None
    producer_id, epoch, number = values
    if isinstance(producer_id, int) and isinstance(epoch, int) and isinstance(number, int):
        return producer_id, epoch, number
    return None


def _plus(number: int, count: int) -> int:
    return (number + count) & _MAX_NUMBER


class Producers(Protocol):
    """The idempotent producers of one partition, wherever their state is. See `ProducerTable`."""

    def attach(self, properties: Mapping[str, object]) -> tuple[int, int, int]:
        """Attach a producer, new or known, and return its id, epoch and last number. Raises HubError."""

    def sequence_number_of(self, numbers: Numbers) -> int | None:
        """Return the first sequence number of a publication that is among the producer's latest."""

    def append(self, numbers: Numbers, events: Sequence[bytes], on_durable: OnDurable) -> bool:
        """Store a publication, or return False if it is a duplicate. Raises HubError, LogClosed."""

    def append_batch(self, numbers: Numbers, batch: RecordBatch, on_durable: OnDurable) -> bool:
        """Store a record batch; like `append`."""

    def close(self) -> None:
        """Save the state. Call after the log was closed."""


class ProducerTable:
    """The idempotent producers of one partition. Safe to call from any thread."""

    def __init__(self, log: PartitionLog) -> None:
        """Read the state from the snapshot and the log. Raises FileDamaged, LogError, OSError."""
        self._log = log
        self._document = log.document("producers.json", advice=_ADVICE)
        # held as the log takes a publication, and a committer without threads reports it at once
        self._lock = threading.RLock()
        self._producers: dict[int, ProducerState] = {}
        self._since_snapshot = 0
        self._in_use = self._document.exists
        if self._in_use:
            self._replay(self._read_snapshot())
        # the state includes all events below this, perhaps not those above
        self._accounted = log.next_sequence_number

    def attach(self, properties: Mapping[str, object]) -> tuple[int, int, int]:
        """Attach a producer, new or known, and return its id, epoch and last number.

        `properties` may name the id, epoch and last number that the producer had before. Raises ArgumentError,
        ProducerFenced, ServerBusy.
        """
        producer_id, epoch, last = (
            integer_property(properties, name) for name in (PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQUENCE_NUMBER)
        )
        with self._lock:
            self._begin_use()
            if producer_id is None:
                producer_id = new_producer_id()
            known = self._producers.get(producer_id)
            if known is None:
                self._make_room()
                last = (last or 0) & _MAX_NUMBER
                known = self._producers[producer_id] = ProducerState(epoch or 0, last, last)
            elif epoch is not None and epoch < known.epoch:
                raise ProducerFenced(f"producer {producer_id} has the newer epoch {known.epoch}: epoch {epoch} is over")
            elif epoch is not None and epoch > known.epoch:
                known.epoch = epoch
                if last is not None:
                    known.stored = known.accepted = last & _MAX_NUMBER
            return producer_id, known.epoch, known.stored

    def _begin_use(self) -> None:
        """Have the log read for producers from now on at each start. Raises ServerBusy."""
        if self._in_use:
            return
        self._accounted = self._log.next_sequence_number
        try:
            self._write_snapshot()
        except OSError as error:
            raise ServerBusy(f"the producer cannot be recorded: {error.strerror}; try again later") from error
        self._in_use = True

    def _make_room(self) -> None:
        while len(self._producers) >= MAX_PRODUCERS:
            del self._producers[next(iter(self._producers))]  # the one that came first

    def sequence_number_of(self, numbers: Numbers) -> int | None:
        """Return the first sequence number of a publication that is among the producer's latest."""
        with self._lock:
            state = self._producers.get(numbers.producer_id)
            recent = () if state is None or state.epoch != numbers.epoch else state.recent
            return next((first for last, first in recent if last == numbers.last), None)

    def append(self, numbers: Numbers, events: Sequence[bytes], on_durable: OnDurable) -> bool:
        """Store a publication, or return False if it is a duplicate.

        A client of Kafka numbers its records from 0 again with each epoch, and attaches to no partition: a new epoch
        begins with whatever number comes first.

        Raises OutOfOrderSequence, ProducerFenced, ServerBusy, LogClosed.
        """
        return self._submit(numbers, partial(self._log.append, events), on_durable)

    def append_joined(self, numbers: Numbers, events: JoinedEvents, on_durable: OnDurable) -> bool:
        """Store events that another process has joined; like `append`."""
        return self._submit(numbers, partial(self._log.append_joined, events), on_durable)

    def append_batch(self, numbers: Numbers, batch: RecordBatch, on_durable: OnDurable) -> bool:
        """Store a record batch of a client of Kafka; like `append`."""
        return self._submit(numbers, partial(self._log.append_batch, batch), on_durable)

    def _submit(self, numbers: Numbers, append: Callable[[OnDurable], None], on_durable: OnDurable) -> bool:
        """Accept a publication and hand it to the log at once.

        Otherwise the log could refuse those before it in between, and then store it without them.
        """
        with self._lock:
            state = self._accept(numbers)
            if state is None:
                return False
            append(partial(self._finish, numbers, state, state.attempt, on_durable))
        return True

    def _accept(self, numbers: Numbers) -> ProducerState | None:
        """Return the state of the producer, now with the publication among those accepted; None for a duplicate."""
        state = self._producers.get(numbers.producer_id)
        if state is not None and numbers.epoch < state.epoch:
            raise ProducerFenced(f"the epoch {numbers.epoch} of producer {numbers.producer_id} is over")
        if state is None or numbers.epoch > state.epoch:
            self._begin_use()
            if state is None:
                self._make_room()
            before = _plus(numbers.first, -1)
            state = self._producers[numbers.producer_id] = ProducerState(numbers.epoch, before, before)
        if numbers.first == _plus(state.accepted, 1):
            state.accepted = numbers.last
            return state
        if _is_at_or_before(numbers.last, state.stored):
            return None
        if _is_at_or_before(numbers.last, state.accepted):
            raise ServerBusy("the same publication is being stored; try again")
        raise OutOfOrderSequence(
            f"producer {numbers.producer_id} must continue with number {_plus(state.accepted, 1)}, not {numbers.first}"
        )

    def _finish(
        self,
        numbers: Numbers,
        state: ProducerState,
        attempt: int,
        on_durable: OnDurable,
        result: Appended | LogError,
    ) -> None:
        """Take in what became of a publication, and report it. Runs in a committer thread."""
        if isinstance(result, LogError):
            self._note_refused(state, attempt)
        else:
            self._note_stored(numbers, result.first_sequence_number)
        on_durable(result)

    def _note_stored(self, numbers: Numbers, first_sequence_number: int) -> None:
        """Note that a publication is durable, as are all before it: the log reports in its order."""
        with self._lock:
            self._accounted = first_sequence_number
            state = self._producers.get(numbers.producer_id)
            # earlier publications may have failed and will be sent again
            if state is not None and numbers.first == _plus(state.stored, 1):
                state.stored = numbers.last
                state.recent.append((numbers.last, first_sequence_number))
            self._since_snapshot += 1 + (numbers.last - numbers.first & _MAX_NUMBER)
            if self._since_snapshot >= _SNAPSHOT_EVENTS:
                self._try_snapshot()

    def _note_refused(self, state: ProducerState, attempt: int) -> None:
        """Expect the numbers of a publication again, and of those after it, which the log refuses with it.

        The first refusal says all: when the others are reported, the producer may have begun to send again.
        """
        with self._lock:
            if state.attempt == attempt:
                state.accepted = state.stored
                state.attempt += 1

    def close(self) -> None:
        """Save the state, so that the next start need not read the log. Call after the log was closed."""
        with self._lock:
            if self._in_use:
                self._accounted = self._log.next_sequence_number
                self._try_snapshot()

    # -- on the disk

    def _try_snapshot(self) -> None:
        try:
            self._write_snapshot()
        except OSError as error:
            # an older snapshot only means more to read at the next start
            _logger.warning("%s cannot be written: %s", self._document, error)

    def _write_snapshot(self) -> None:
        state = {
            "version": _VERSION,
            "sequence_number": self._accounted,
            "producers": [[number, state.epoch, state.stored] for number, state in self._producers.items()],
        }
        self._document.write(state)
        self._since_snapshot = 0

    def _read_snapshot(self) -> int:
        """Return the sequence number from which the log is to be read. Raises FileDamaged, OSError."""
        state = self._document.read()
        if not state:
            _logger.warning("%s is empty: the producers are read from the retained events", self._document)
            return 0
        try:
            producers = {
                int(number): ProducerState(int(e), int(last), int(last)) for number, e, last in state["producers"]
            }
            sequence_number = int(state["sequence_number"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._document.damaged(str(error)) from None
        if not 0 <= sequence_number <= self._log.next_sequence_number:
            known = f"it knows {sequence_number} events and the log has {self._log.next_sequence_number}"
            raise self._document.damaged(known)
        self._producers = producers
        return sequence_number

    def _replay(self, sequence_number: int) -> None:
        log = self._log
        if sequence_number < log.begin_sequence_number:
            # What was stored since, and by whom, is deleted. Only a producer without a state may go on with any number.
            self._producers.clear()
            sequence_number = log.begin_sequence_number
        while sequence_number < log.next_sequence_number:
            try:
                with closing(log.entries(sequence_number)) as entries:
                    for entry in entries:
                        self._note(entry)
                        sequence_number = entry.next_sequence_number
            except LogDamaged as damage:
                sequence_number = damage.resume_sequence_number

    def _note(self, entry: EntryView) -> None:
        """Take in the numbers of a stored entry."""
        if entry.is_record_batch:
            batch = parse_batch(entry.payload)
            if batch.producer_id >= 0:
                state = self._producers.get(batch.producer_id)
                if state is None or state.epoch != batch.producer_epoch:
                    state = self._producers[batch.producer_id] = ProducerState(batch.producer_epoch, 0, 0)
                state.stored = state.accepted = batch.last_sequence
                state.recent.append((batch.last_sequence, entry.base_sequence_number))
            return
        for event in entry.events():
            found = _number(event) if MARK in event else None
            if found is not None:
                producer_id, epoch, number = found
                self._producers[producer_id] = ProducerState(epoch, number, number)


def new_producer_id() -> int:
    """Return an id that no producer has."""
    return secrets.randbits(52) | 1  # JavaScript holds 53 bits exactly


def _is_at_or_before(number: int, other: int) -> bool:
    """Return whether `number` is at or before `other`, for numbers that wrap (at most half their range apart)."""
    return (other - number & _MAX_NUMBER) < 2**30


def integer_property(properties: Mapping[str, object], name: str) -> int | None:
    """Return an optional property of an attach. Raises ArgumentError if it is no integer."""
    value = properties.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(f"the property {name} must be an integer")
    return int(value)
