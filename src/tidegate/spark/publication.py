"""Publishes the rows of one task of a Spark write, each once on a Tidegate hub.

Spark may run a task again: after an executor died, or the whole batch after the driver did. The hub makes a repetition
harmless. Each task of a series of batches is an idempotent producer whose epoch is the number of the batch and whose
events are numbered from 1 in each batch and partition. So the hub itself knows how much of a batch it has, nothing is
kept elsewhere, and a task left over from an earlier batch is refused.

A repeated task may have its rows in another order, because a shuffle does not keep one. What an interrupted attempt has
stored is therefore read back, and those very rows are left out. It is only read back where something was stored, which
is rare. If the rows themselves have changed (a query with `uuid()`), as many are left out as were stored.

Other hubs, Azure's among them, number nothing: there, a repeated task publishes its rows again.

Rows stay in Arrow. A batch is the bytes of an Arrow array, which joins heads, numbers and bodies of all rows at once.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.client import BusyError, ClientError, ConnectionLostError, ConnectionString
from tidegate.client.event import decode
from tidegate.client.producer import NUMBERS, PRODUCER_ID, EventTemplate, Producer, RefusedError
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.events import Int64Array
from tidegate.hub.placement import partition_for_key
from tidegate.spark.sink_rows import SinkRows

_EPOCHS = 2**15  # an epoch is a non-negative 16-bit integer
_SEND_BYTES = 4 << 20
_READ_EVENTS = 5_000
_MORE_TO_READ = 1_000
_HUB_MAY_RESTART_S = 60.0
_ANY, _NOWHERE = -1, -2
_SHORT_HEAD, _LONG_HEAD = 5, 8
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


@dataclass(frozen=True, slots=True)
class _Rows:
    """Checked rows of a task, n in each column.

    Attributes:
        numbers: int64[n], the number of each row in the task.
        bodies: binary.
        places: int64[n], which partition each row goes to; `_ANY` without one.
        heads: int64[n], which of the contents each row has beside its body.
        contents: key and properties.
    """

    numbers: Int64Array
    bodies: pa.Array
    places: Int64Array
    heads: Int64Array
    contents: Sequence[tuple[str | None, Mapping[str, Any] | None]]

    def single(self, names: Sequence[str]) -> Iterator[_Row]:
        """Yield the rows one by one."""
        columns = (self.numbers.tolist(), self.bodies.to_pylist(), self.heads.tolist(), self.places.tolist())
        for number, body, head, place in zip(*columns, strict=True):
            key, properties = self.contents[head]
            yield _Row(number, body, key, properties, None if place == _ANY else names[place])

    @classmethod
    def of(cls, rows: Sequence[_Row], names: Sequence[str]) -> _Rows:
        """Return single rows together."""
        heads: dict[Any, int] = {}
        contents: list[tuple[str | None, Mapping[str, Any] | None]] = []
        codes = []
        for row in rows:
            code = heads.setdefault(_head_of(row.key, row.properties), len(heads))
            if code == len(contents):
                contents.append((row.key, row.properties))
            codes.append(code)
        places = [_ANY if row.partition is None else names.index(row.partition) for row in rows]
        return cls(
            np.array([row.number for row in rows], dtype=np.int64),
            pa.array([row.body for row in rows], pa.binary()),
            np.array(places, dtype=np.int64),
            np.array(codes, dtype=np.int64),
            contents,
        )


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Encoded events of a partition, each a data section of a batch; the first has the number ``first``."""

    first: int
    sections: pa.Array


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
    waiting: list[_Numbered] = field(default_factory=list)
    templates: dict[Any, EventTemplate] = field(default_factory=dict)


class TaskPublication:
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
        self._held: list[_Rows] | None = None
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
        checked = self._checked(rows)
        self._rows += len(rows)
        if self._held is not None:
            self._held.append(checked)
            return
        self._number(checked)
        if self._waiting_bytes >= _SEND_BYTES:
            self._on_hub(self._send)

    def finish(self) -> int:
        """Publish the rest and return the number of rows; the hub then has all of them.

        Raises:
            OutputError: the hub refuses or cannot be reached.
        """
        if self._held is not None:
            names = tuple(self._partitions)
            single = [row for some in self._held for row in some.single(names)]
            rest = self._on_hub(partial(self._without_stored, single))
            self._held = None
            self._number(_Rows.of(rest, names))
        if self._waiting_bytes:
            self._on_hub(self._send)
        return self._rows

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _checked(self, rows: SinkRows) -> _Rows:
        """Return rows with the partition and the head of each. Raises OutputError for the first that is no event."""
        names = tuple(self._partitions)
        count = len(rows)
        places = np.full(count, _ANY)
        keys: list[str | None] = [None]
        key_codes = np.zeros(count, dtype=np.int64)
        wrong: list[tuple[int, int, str]] = []
        if rows.bodies.null_count:
            at = _first(_nulls(rows.bodies))
            wrong.append((at, 0, "body is NULL; an event has one: filter such rows out, or write ''"))
        if rows.partitions is not None:
            texts, codes = _distinct(rows.partitions)
            known = {name: place for place, name in enumerate(names)}
            place_of = np.array([_ANY if text is None else known.get(text, _NOWHERE) for text in texts])
            places = place_of[codes]
            if (places == _NOWHERE).any():
                at = _first(places == _NOWHERE)
                hub = self._connection.entity_path
                wrong.append(
                    (at, 2, f"event hub {hub} has no partition '{texts[codes[at]]}'; there are {', '.join(names)}")
                )
        if rows.keys is not None:
            keys, key_codes = _distinct(rows.keys)
            place_of_key = np.array([_ANY if key is None else partition_for_key(key, len(names)) for key in keys])
            placed_by_key = place_of_key[key_codes]
            twice = (placed_by_key != _ANY) & (places != _ANY)
            if twice.any() and rows.partitions is not None:
                at = _first(twice)
                both = f"it has both a partition ({rows.partitions[at].as_py()}) and a partitionKey"
                wrong.append((at, 1, f"{both}; give one of them, as a key chooses the partition itself"))
            places = np.where(placed_by_key == _ANY, places, placed_by_key)
        if wrong:
            at, _, reason = min(wrong)
            raise self._refused(self._rows + at, reason)
        numbers = np.arange(self._rows, self._rows + count)
        if rows.properties is None:
            return _Rows(numbers, rows.bodies, places, key_codes, [(key, None) for key in keys])
        known_heads: dict[Any, int] = {}
        contents: list[tuple[str | None, Mapping[str, Any] | None]] = []
        heads = np.empty(count, dtype=np.int64)
        for row, (code, given) in enumerate(zip(key_codes.tolist(), rows.properties, strict=True)):
            properties = {name: value for name, value in dict(given or ()).items() if value is not None} or None
            heads[row] = known_heads.setdefault((code, _head_of(None, properties)), len(known_heads))
            if heads[row] == len(contents):
                contents.append((keys[code], properties))
        return _Rows(numbers, rows.bodies, places, heads, contents)

    def _refused(self, number: int, reason: str) -> OutputError:
        return OutputError(f"row {number} of task {self._task}: {reason}")

    def _number(self, rows: _Rows) -> None:
        """Encode rows with the next numbers of their partitions; those without one take the partitions in turn."""
        anywhere = rows.places == _ANY
        places = rows.places.copy()
        count = int(np.count_nonzero(anywhere))
        places[anywhere] = (self._task + self._spread + np.arange(count)) % len(self._partitions)
        self._spread += count
        too_large: list[tuple[int, int, int]] = []
        for place, (name, partition) in enumerate(self._partitions.items()):
            own = np.flatnonzero(places == place)
            if not len(own):
                continue
            all_of_them = len(own) == len(places)
            bodies = rows.bodies if all_of_them else rows.bodies.take(pa.array(own))
            distinct, heads = np.unique(rows.heads[own], return_inverse=True)
            templates = [self._template(name, *rows.contents[head]) for head in distinct.tolist()]
            assert self._producer is not None
            sections, sizes = _sections(templates, heads, partition.numbered + 1, bodies)
            room = self._producer.room(name)
            if sizes.max() > room:
                at = _first(sizes > room)
                too_large.append((int(rows.numbers[own[at]]), int(sizes[at]), room))
                continue
            partition.waiting.append(_Numbered(partition.numbered + 1, sections))
            partition.numbered += len(own)
            self._waiting_bytes += sections.nbytes
        if too_large:
            number, size, room = min(too_large)
            raise self._refused(
                number,
                f"an event of {size:,} bytes is larger than the {room:,} bytes that event hub "
                f"{self._connection.entity_path} accepts",
            )

    def _template(self, name: str, key: str | None, properties: Mapping[str, Any] | None) -> EventTemplate:
        partition = self._partitions[name]
        known = _head_of(key, properties)
        template = partition.templates.get(known)
        if template is None:
            if len(partition.templates) >= _TEMPLATES:
                partition.templates.clear()
            assert self._producer is not None
            template = partition.templates[known] = self._producer.template(name, key, properties)
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
        producer = self._opened()
        producer.publish_batches(
            {name: [*_batches(one, producer.batch_room(name))] for name, one in self._partitions.items()}
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
            content = _compared(
                self._template(row.partition or next(iter(stored)), row.key, row.properties).fill(0, row.body)
            )
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
            try:
                found = [
                    _compared(delivery.payload)
                    for deliveries in producer.read(self._group, name, begin, stand.end, _READ_EVENTS)
                    for delivery in deliveries
                    if decode(delivery.payload)[1].system_properties.get(PRODUCER_ID) == own
                ]
            except (BusyError, ConnectionLostError):
                raise
            except ClientError as error:
                raise OutputError(
                    f"{error}. An interrupted attempt of this batch has stored {count:,} events in partition {name}, "
                    "which are read back to leave them out now: that needs Listen beside Send, and the consumer group "
                    f"{self._group} (option consumerGroup)"
                ) from error
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
                again = isinstance(error, BusyError | ConnectionLostError) or (
                    isinstance(error, RefusedError) and error.condition in _AGAIN
                )
                self.close()
                if not again or time.monotonic() + pause_s > gives_up_at:
                    raise OutputError(str(error)) from error
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _head_of(key: str | None, properties: Mapping[str, Any] | None) -> Any:
    """Return what two heads are the same by; 1, 1.0 and true are different values."""
    if properties is None:
        return key
    return key, tuple((name, type(value), value) for name, value in properties.items())


def _distinct(column: pa.Array) -> tuple[list[Any], Int64Array]:
    """Return the distinct values of a column, and which of them each row has."""
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _first(found: npt.NDArray[np.bool_]) -> int:
    return int(np.argmax(found))


# encoding
# ------------------------------------------------------------------------------------------------------


def _sections(
    templates: Sequence[EventTemplate], heads: Int64Array, first: int, bodies: pa.Array
) -> tuple[pa.Array, Int64Array]:
    """Return encoded events, each as a data section of a batch, and the sizes of the events without it.

    Args:
        heads: int64[n], the template of each event.
        first: the number of the first event.
    """
    count = len(bodies)
    parts: list[Any] = [_each([one.before for one in templates], heads)]
    sizes = np.array([len(one.before) for one in templates], dtype=np.int64)[heads]
    if templates[0].after is not None:
        numbers = ((first + np.arange(count)) % NUMBERS).astype(">u4")
        parts += [_fixed(numbers), _each([one.after or b"" for one in templates], heads)]
        sizes = sizes + numbers.itemsize + np.array([len(one.after or b"") for one in templates], dtype=np.int64)[heads]
    body_sizes = pc.binary_length(bodies).to_numpy().astype(np.int64)
    of_bodies = _data_heads(body_sizes)
    sizes = sizes + body_sizes + pc.binary_length(of_bodies).to_numpy()
    return pc.binary_join_element_wise(_data_heads(sizes), *parts, of_bodies, bodies, b""), sizes


def _each(values: Sequence[bytes], places: Int64Array) -> Any:
    if len(values) == 1:
        return pa.scalar(values[0], pa.binary())
    return pa.array(values, pa.binary()).take(pa.array(places))


def _fixed(values: npt.NDArray[Any]) -> pa.Array:
    """Return the bytes of each value."""
    offsets = np.arange(len(values) + 1, dtype=np.int32) * values.itemsize
    return _binary(offsets, values.tobytes())


def _data_heads(sizes: Int64Array) -> pa.Array:
    """Return what precedes data of these sizes: the section's descriptor, and binary of one byte of size or of four.

    AMQP 1.0 part 3, section 3.2.6, and part 1, section 1.6.19.
    """
    is_short = sizes <= 255
    ends = np.cumsum(np.where(is_short, _SHORT_HEAD, _LONG_HEAD))
    starts = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1]))
    octets = np.zeros(int(ends[-1]), dtype=np.uint8)
    octets[starts + 1], octets[starts + 2] = 0x53, 0x75
    octets[starts + 3] = np.where(is_short, 0xA0, 0xB0)
    octets[starts[is_short] + 4] = sizes[is_short]
    of_four = sizes[~is_short].astype(">u4").view(np.uint8).reshape(-1, 4)
    octets[starts[~is_short][:, None] + 4 + np.arange(4)] = of_four
    return _binary(np.concatenate((np.zeros(1, dtype=np.int32), ends.astype(np.int32))), octets)


def _binary(offsets: npt.NDArray[np.int32], content: Any) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _batches(partition: _Partition, most_bytes: int) -> Iterator[bytes]:
    """Yield the events that a partition has not stored, as many in a batch as it may have."""
    pieces: list[memoryview] = []
    size = 0
    for waiting in partition.waiting:
        sections = waiting.sections.slice(max(0, partition.stored + 1 - waiting.first))
        _, offsets_buffer, content = sections.buffers()
        begin, end = sections.offset, sections.offset + len(sections)
        offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[begin : end + 1].astype(np.int64)
        octets = memoryview(content) if content is not None else memoryview(b"")
        at = 0
        while at < len(sections):
            stop = int(np.searchsorted(offsets, offsets[at] + most_bytes - size, side="right")) - 1
            if stop > at:
                pieces.append(octets[int(offsets[at]) : int(offsets[stop])])
                size, at = size + len(pieces[-1]), stop
            if at < len(sections):
                yield b"".join(pieces)
                pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)


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
