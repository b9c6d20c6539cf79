"""What the hub asks of whatever keeps the events of a partition.

The embedded log (`tidegate.log.PartitionLog`) is one implementation. The server, capture and the portal see only this
protocol, and so does the hub but for opening logs and for the state of idempotent producers. A store that has to ask
another machine is slower than a disk and may not answer at all, which shapes the protocol: facts are cached, so that
reading one never waits; appending never waits; and each read comes in three forms, one that never waits, one that can
be awaited and one that blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tidegate.kafka.records import RecordBatch
from tidegate.log.errors import LogDamaged
from tidegate.log.group import OnDurable
from tidegate.log.log_reader import EventBatch, RecordBatches
from tidegate.log.log_writer import WriteFailure


class ArrivalLowerBound(NamedTuple):
    """A guarantee: every event from next_sequence_number on is enqueued at lower_bound_ms or later, even after a crash.

    This is what lets the watermark of an idle partition advance.
    """

    next_sequence_number: int
    lower_bound_ms: int


class Numbering(NamedTuple):
    """The numbers that an idempotent producer gave its events: its id, its epoch, and that of the first event."""

    producer_id: int
    epoch: int
    first: int


class TopicAddress(NamedTuple):
    """Where the records of a partition are, for a job that reads them without a gateway.

    Attributes:
        bootstrap: `HOST:PORT[,HOST:PORT…]` of some brokers.
        topic: The name of the topic.
        topic_id: Its identity; another topic of the same name has another one.
        is_open: Whether the brokers talk to everybody, without TLS and SASL.
    """

    bootstrap: str
    topic: str
    topic_id: str
    is_open: bool


class Document(Protocol):
    """A small JSON document that a store keeps, such as how far a partition's capture has come."""

    @property
    def exists(self) -> bool:
        """Whether it was ever written."""

    def read(self) -> Mapping[str, Any] | None:
        """Return what was last written, None before the first time, {} if an operator has emptied it.

        Raises FileDamaged, OSError.
        """

    def write(self, document: Mapping[str, Any]) -> None:
        """Replace the document, atomically and durably.

        Raises DocumentReplaced if another process has replaced what was read or written here last, OSError, or
        ValueError if JSON has no form for it.
        """

    def damaged(self, reason: str) -> Exception:
        """Return the FileDamaged to raise for a document whose content makes no sense."""


class PartitionStore(Protocol):
    """The log of one partition.

    Sequence numbers and offsets grow from one event to the next, and enqueued times never go back. A batch has
    consecutive numbers; a store may leave out some between batches, for records of its own. An event is visible once it
    is durable. Methods may be called from any thread.
    """

    # -- facts: what is known without asking, so that reading them never waits

    @property
    def log_id(self) -> str:
        """The identity of the log: another log in the same place has another one."""

    @property
    def begin_sequence_number(self) -> int:
        """The sequence number of the oldest retained event; next_sequence_number if there is none."""

    @property
    def next_sequence_number(self) -> int:
        """The sequence number of the next event to become durable; only events below it can be read."""

    @property
    def last_offset(self) -> int:
        """The offset of the last event, -1 if there never was one. Kept when retention deletes that event."""

    @property
    def last_enqueued_time_ms(self) -> int:
        """The enqueued time of the last event, 0 if there never was one."""

    @property
    def is_empty(self) -> bool:
        """Whether the partition holds no event."""

    @property
    def size_bytes(self) -> int:
        """How much the retained events take, as far as it is known."""

    def arrival_lower_bound(self, *, is_awaited: bool = True) -> ArrivalLowerBound:
        """Return a lower bound on future arrivals that holds even after a crash.

        It rises in an idle partition too, with or without some delay: a caller that waits for it asks again.

        Args:
            is_awaited: Whether the caller waits for it to rise, for which a store may have to write something.
        """

    def catch_up(self) -> None:
        """Have the facts include what was appended before, through other gateways too. May wait. Raises LogError."""

    # -- the health of writing

    @property
    def write_failure(self) -> WriteFailure | None:
        """Why the store takes no events now; None if it does."""

    @property
    def refused_appends(self) -> int:
        """How many appends could not be stored since the log was opened."""

    @property
    def last_write_s(self) -> float:
        """When events were last made durable since the log was opened, Unix time; 0 if none were."""

    def try_again(self) -> None:
        """Find out whether a log that took no events can be written again. May wait."""

    # -- appending

    def append(
        self, events: Sequence[bytes | memoryview], on_durable: OnDurable, numbering: Numbering | None = None
    ) -> None:
        """Store `events` (at least one) atomically, without waiting.

        Args:
            events: Encoded AMQP messages.
            on_durable: Called once, from a thread of the store: with where the events are once they are durable, or
                with a LogError. Calls come in the order of the log.
            numbering: The numbers of an idempotent producer, for a store that keeps the state of producers itself. The
                events carry them as annotations, too.

        Raises:
            ValueError: There are no events.
            LogClosed: The log is closed.
        """

    def append_batch(self, batch: RecordBatch, on_durable: OnDurable) -> None:
        """Store a record batch of a client of Kafka as it came, but for its offset and time. Otherwise like `append`.

        Its records must have been checked, and have offsets without a gap.
        """

    def on_grow(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` from a thread of the store whenever next_sequence_number has advanced.

        It must be quick; an exception is logged and not propagated. Returns the function that unsubscribes.
        """

    # -- reading

    def read_cached(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> list[EventBatch] | None:
        """Return what `read_batches` would, or None if that may have to wait. For event loops. Raises LogError."""

    def start_read(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> Future[list[EventBatch]]:
        """Begin what `read_batches` does and return its future; `asyncio.wrap_future` makes it awaitable."""

    def read_batches(
        self, sequence_number: int, *, max_bytes: int = 1 << 20, max_events: int = 1 << 20
    ) -> list[EventBatch]:
        """Return durable events from sequence_number on, or from begin_sequence_number if that is later; [] at the end.

        However small max_bytes is, at least one event is returned if there is one.

        Raises:
            LogDamaged: The event at sequence_number cannot be read. Intact events before damage are returned first.
            LogError: The log cannot be read.
        """

    def read_record_batches(self, sequence_number: int, *, max_bytes: int) -> RecordBatches:
        """Return durable events as record batches, those that came as such untouched.

        The first batch may begin before sequence_number, as clients of Kafka expect. However small max_bytes is, one
        batch is returned if there is one. Raises LogDamaged, LogError.
        """

    def sequence_after_offset(self, offset: int, *, inclusive: bool) -> int:
        """Return the sequence number of the first event with an offset > `offset` (>= when inclusive).

        next_sequence_number if there is none. May wait. Raises LogError.
        """

    def sequence_at_time(self, enqueued_time_ms: int, *, inclusive: bool) -> int:
        """Return the sequence number of the first event enqueued after the time (at it or after when inclusive).

        next_sequence_number if there is none. May wait. Raises LogError.
        """

    # -- keeping

    def retain(
        self, *, now_ms: int, retention_ms: int | None, retention_bytes: int | None, keep_from: int | None = None
    ) -> int:
        """Delete events that retention no longer keeps, oldest first, and return how many. May wait.

        A store deletes in pieces that suit it, so events may outlive their retention somewhat. Numbering continues,
        and last_offset and last_enqueued_time_ms stay.

        Args:
            now_ms: The time, by the clock of the store.
            retention_ms: Events enqueued longer ago than this are due. None: no limit of age.
            retention_bytes: The oldest events are due while all take more than this. None: no limit of size.
            keep_from: Events from this sequence number on are kept in any case, because capture has yet to read them.

        Raises:
            LogError: Something could not be deleted; it is left for the next call.
        """

    def delete_before(self, sequence_number: int) -> None:
        """Delete the events before a number, which nobody is given from then on. May wait. Raises LogError."""

    def document(self, name: str, *, advice: str) -> Document:
        """Return a document that is kept with the partition, and lost with it.

        Args:
            name: Its name, such as `capture/journal.json`.
            advice: What a person can do about a damaged one; it ends the message of FileDamaged.
        """

    def is_assigned(self, task: str) -> bool:
        """Return whether this process is the one to do a task, such as capture, that only one may do.

        Does not wait. A store that several processes share applies for a task that nobody does, so that a later call
        returns True; and it returns False when others are to take over, who wait for `unassign`.
        """

    def unassign(self, task: str) -> None:
        """Let another process do a task. Does not wait."""

    @property
    def directory(self) -> Path | None:
        """The folder in which a job on this machine may read the segments itself, None if there is none."""

    @property
    def topic(self) -> TopicAddress | None:
        """The topic from which a job may read the records itself, None if there is none. Numbers have gaps in one."""

    @property
    def work_folder(self) -> Path:
        """A folder on the local disk for files that may be lost at any time. It may have to be created."""

    @property
    def damages(self) -> Sequence[LogDamaged]:
        """The acknowledged events that were found unreadable when the log was opened."""

    def check(self) -> Iterator[LogDamaged | None]:
        """Check the events that opening did not read, in pieces: yield each damage, and None between pieces.

        A store that checks what it keeps by itself yields nothing. Raises LogError.
        """

    def close(self) -> None:
        """Finish what is under way, fail pending appends, and release what is held. Idempotent."""
