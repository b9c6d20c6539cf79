"""Publishes the rows of one task of a Spark write, each once on a Tidegate hub.

Spark may run a task again: after an executor died, or the whole batch after the driver did. The hub makes a repetition
harmless. Each task of a series of batches is an idempotent producer whose epoch is the number of the batch and whose
events are numbered from 1 in each batch and partition. So the hub itself knows how much of a batch it has, nothing is
kept elsewhere, and a task left over from an earlier batch is refused.

A repeated task may have its rows in another order, because a shuffle does not keep one. What an interrupted attempt has
stored is therefore read back, and those very rows are left out. It is only read back where something was stored, which
is rare. If the rows themselves have changed (a query with `uuid()`), as many are left out as were stored.

Other hubs, Azure's among them, number nothing: there, a repeated task publishes its rows again.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from tidegate.client import ClientError, ConnectionLostError, ConnectionString
from tidegate.client.event import decode
from tidegate.client.producer import PRODUCER_ID, EventTemplate, Producer, RefusedError
from tidegate.connectors.model.errors import OutputError
from tidegate.hub.placement import partition_for_key
from tidegate.spark.sink_rows import SinkRows

_EPOCHS = 2**15  # an epoch is a non-negative 16-bit integer
_SEND_BYTES = 4 << 20
_READ_EVENTS = 5_000
_MORE_TO_READ = 1_000
_HUB_MAY_RESTART_S = 60.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_TEMPLATES = 10_000
_AGAIN = frozenset(
    {
        "com.microsoft:server-busy",
        "com.microsoft:timeout",
        "com.microsoft:out-of-order-sequence",
        "amqp:internal-error",
        "amqp:resource-limit-exceeded",
        "",
    }
)
_logger = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class BatchOrigin:
    """The identity of a batch: a series of batches, and the number of this one, which grows."""

    series: str
    number: int

    def producer_id(self, task: int) -> int:
        """Return the id of the producer that a task is."""
        text = f"{self.series}/{self.number // _EPOCHS}/{task}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") | 1

    @property
    def epoch(self) -> int:
        """The epoch of the producers in this batch."""
        return self.number % _EPOCHS


class _Row(NamedTuple):
    """One event to publish, and the number of its row; without a partition, it goes to any."""

    number: int
    body: bytes
    key: str | None
    properties: Mapping[str, Any] | None
    partition: str | None


@dataclass(slots=True)
class _Partition:
    """How much of a partition's share of a task is published.

    Attributes:
        stored: how many events of this task and batch the hub has.
        numbered: how many were given a number; those above ``stored`` are in ``waiting``.
        templates: by key and properties.
    """

    stored: int
    numbered: int
    waiting: list[tuple[int, bytes]] = field(default_factory=list)
    templates: dict[Any, EventTemplate] = field(default_factory=dict)


class Publication:
    """What one attempt of a task publishes. ``add`` its rows, then ``finish``."""

    def __init__(self, connection: ConnectionString, group: str, origin: BatchOrigin, task: int) -> None:
        """
        Args:
            connection: the hub.
            group: the consumer group for reading back what an earlier attempt has stored.
            origin: the batch.
            task: the number of the task in the batch.
        """
        self._connection = connection
        self._group = group
        self._origin = origin
        self._task = task
        self._producer: Producer | None = None
        self._idempotent = False
        self._partitions: dict[str, _Partition] = {}
        self._held: list[_Row] | None = None
        self._rows = self._spread = self._waiting_bytes = 0

    def add(self, rows: SinkRows) -> None:
        """Publish rows, or keep them until there are enough for a batch.

        Raises:
            OutputError: a row cannot be an event, or the hub refuses it or cannot be reached.
        """
        if not self._partitions:
            self._on_hub(self._opened)
            if any(partition.stored for partition in self._partitions.values()):
                self._held = []
        for place, body in enumerate(rows.bodies):
            row = self._row(rows, place, body)
            self._rows += 1
            if self._held is not None:
                self._held.append(row)
                continue
            self._number(row)
            if self._waiting_bytes >= _SEND_BYTES:
                self._on_hub(self._send)

    def finish(self) -> int:
        """Publish the rest and return the number of rows; the hub then has all of them.

        Raises:
            OutputError: the hub refuses or cannot be reached.
        """
        if self._held is not None:
            rest = self._on_hub(partial(self._without_stored, self._held))
            self._held = None
            for row in rest:
                self._number(row)
        if self._waiting_bytes:
            self._on_hub(self._send)
        return self._rows

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _row(self, rows: SinkRows, place: int, body: bytes | str | None) -> _Row:
        number = self._rows
        if body is None:
            raise self._refused(number, "body is NULL; an event has one: filter such rows out, or write ''")
        key = None if rows.keys is None else rows.keys[place]
        partition = None if rows.partitions is None else rows.partitions[place]
        if partition is not None and key is not None:
            raise self._refused(
                number,
                f"it has both a partition ({partition}) and a partitionKey; give one of them, as a key chooses the "
                "partition itself",
            )
        if partition is not None and str(partition) not in self._partitions:
            raise self._refused(
                number,
                f"event hub {self._connection.entity_path} has no partition '{partition}'; "
                f"there are {', '.join(self._partitions)}",
            )
        if key is not None:
            partition = tuple(self._partitions)[partition_for_key(key, len(self._partitions))]
        properties = None if rows.properties is None else rows.properties[place]
        return _Row(
            number,
            body.encode() if isinstance(body, str) else bytes(body),
            key,
            None if not properties else {name: value for name, value in dict(properties).items() if value is not None},
            None if partition is None else str(partition),
        )

    def _refused(self, number: int, reason: str) -> OutputError:
        return OutputError(f"row {number} of task {self._task}: {reason}")

    def _number(self, row: _Row) -> None:
        name = row.partition
        if name is None:
            names = tuple(self._partitions)
            name = names[(self._task + self._spread) % len(names)]
            self._spread += 1
        partition = self._partitions[name]
        event = self._template(name, row).fill(partition.numbered + 1, row.body)
        assert self._producer is not None
        room = self._producer.room(name)
        if len(event) > room:
            raise self._refused(
                row.number,
                f"an event of {len(event):,} bytes is larger than the {room:,} bytes that event hub "
                f"{self._connection.entity_path} accepts",
            )
        partition.numbered += 1
        partition.waiting.append((partition.numbered, event))
        self._waiting_bytes += len(event)

    def _template(self, name: str, row: _Row) -> EventTemplate:
        partition = self._partitions[name]
        known = (row.key, None if row.properties is None else tuple(row.properties.items()))
        template = partition.templates.get(known)
        if template is None:
            if len(partition.templates) >= _TEMPLATES:
                partition.templates.clear()
            assert self._producer is not None
            template = partition.templates[known] = self._producer.template(name, row.key, row.properties)
        return template

    # -- the hub -------------------------------------------------------------------------------------------------------

    def _opened(self) -> Producer:
        """Open a connection with every partition."""
        if self._producer is not None and not self._producer.closed:
            return self._producer
        producer = Producer(self._connection)
        try:
            stand = producer.partitions_properties(producer.partition_ids())
            self._idempotent = all(partition.arrival_lower_bound_ms is not None for partition in stand.values())
            for name in stand:
                stored = self._attach(producer, name)
                partition = self._partitions.setdefault(name, _Partition(stored, stored))
                partition.stored = max(partition.stored, stored)
        except BaseException:
            producer.close()
            raise
        self._producer = producer
        return producer

    def _attach(self, producer: Producer, name: str) -> int:
        if not self._idempotent:
            producer.open_partition(name)
            return 0
        producer_id, epoch = self._origin.producer_id(self._task), self._origin.epoch
        return producer.open_partition_for_batch(name, producer_id, epoch).stored

    def _send(self) -> None:
        """Send what waits; after a broken connection the hub may have some of it."""
        self._opened().publish_to_partitions(
            {
                name: [event for number, event in partition.waiting if number > partition.stored]
                for name, partition in self._partitions.items()
            }
        )
        for partition in self._partitions.values():
            if self._idempotent:
                partition.stored = max(partition.stored, partition.numbered)
            partition.waiting.clear()
        self._waiting_bytes = 0

    def _without_stored(self, held: Sequence[_Row]) -> list[_Row]:
        """Return the rows of a repeated task that an earlier attempt has not stored."""
        stored = {name: self._read_back(name, one.stored) for name, one in self._partitions.items() if one.stored}
        missing = {name: one.stored for name, one in self._partitions.items()}
        left = []
        # A row that may go anywhere is looked for everywhere, but only after those that have a place.
        for row in sorted(held, key=lambda row: row.partition is None):
            names = stored if row.partition is None else [name for name in stored if name == row.partition]
            content = _compared(self._template(row.partition or next(iter(stored)), row).fill(0, row.body))
            name = next((name for name in names if stored[name][content]), None)
            if name is None:
                left.append(row)
                continue
            stored[name][content] -= 1
            missing[name] -= 1
        if any(missing.values()):
            _logger.warning(
                "event hub %s has %d events of batch %d that a repetition of it does not have; as many rows are left "
                "out. A query whose rows differ from attempt to attempt cannot be written exactly once",
                self._connection.entity_path,
                sum(missing.values()),
                self._origin.number,
            )
        return sorted((row for row in left if not _leaves_out(row, missing)), key=attrgetter("number"))

    def _read_back(self, name: str, count: int) -> Counter[Any]:
        """Return the last events that this producer has stored in a partition, by their content."""
        producer = self._opened()
        stand = producer.partition_properties(name)
        own = str(self._origin.producer_id(self._task))
        reach = 2 * count + _MORE_TO_READ
        while True:
            begin = max(stand.begin, stand.end - reach)
            found = [
                _compared(delivery.payload)
                for deliveries in producer.read(self._group, name, begin, stand.end, _READ_EVENTS)
                for delivery in deliveries
                if decode(delivery.payload)[1].system_properties.get(PRODUCER_ID) == own
            ]
            if len(found) >= count or begin == stand.begin:
                return Counter(found[-count:])
            reach *= 4

    def _on_hub(self, work: Callable[[], Result]) -> Result:
        """Do something over a connection, and again over a new one while the hub is restarting or busy."""
        gives_up_at = time.monotonic() + _HUB_MAY_RESTART_S
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return work()
            except ClientError as error:
                again = isinstance(error, ConnectionLostError) or (
                    isinstance(error, RefusedError) and error.condition in _AGAIN
                )
                self.close()
                if not again or time.monotonic() + pause_s > gives_up_at:
                    raise OutputError(str(error)) from error
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _leaves_out(row: _Row, missing: dict[str, int]) -> bool:
    """Return whether a row is left out for one that is stored but was not found again, and count it."""
    names = missing if row.partition is None else [row.partition]
    name = next((name for name in names if missing[name] > 0), None)
    if name is not None:
        missing[name] -= 1
    return name is not None


def _compared(payload: bytes) -> Any:
    """Return an encoded event's content, in a form that compares."""
    body, details = decode(payload)
    return hashlib.sha256(body).digest(), details.partition_key, tuple(sorted(details.properties.items()))
