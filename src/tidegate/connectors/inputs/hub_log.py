"""An event hub as a log: read over AMQP from anywhere, from its segments on the hub's own machine, or from its topic.

Each way the hub is asked what there is to read, and only events that it has made durable are read. Numbers, times and
bytes are the same, so different ranges may be read differently (by an executor on another machine) without any effect
on results. Numbers have gaps where gateways keep a hub in a topic (`tidegate.store.kafka.records`), and only there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tidegate.client import (
    BusyError,
    ClientError,
    ConnectionLostError,
    ConnectionString,
    HubClient,
    HubTopicAddress,
)
from tidegate.client.event import Details
from tidegate.connectors.inputs.hub_topic import ANY_CLUSTER, ClusterAccess, EventsGone, HubTopic, TopicUnreachable
from tidegate.connectors.model.errors import InputError, InputUnavailableError
from tidegate.connectors.model.events import Events, Int64Array, PartitionEnd
from tidegate.connectors.model.messages import Messages, bodies
from tidegate.engine import JSON, Format
from tidegate.ordering import TICKS_PER_MILLISECOND
from tidegate.retrying import BackOff, call_again

if TYPE_CHECKING:
    # Spark's source reads hubs in processes of its own, and would load pydantic in each. For the same reason, functions
    # that need the engine, Kafka's records or the log's files import them.
    from tidegate.connectors.inputs.schema_registry import RemoteRegistry

_logger = logging.getLogger(__name__)
_LOG_ID_FILE = "log-id"
_AWAITS_BOUND = "tidegate:awaits-lower-bound"
_RUN_BYTES = 16 << 20  # values take up to twenty times as much memory as their text
_PACKED_RUN_BYTES = 512 << 10  # deflate makes at most a thousandfold of it, and that is decoded at once
_READ_AGAIN = 5
_HUB_MAY_RESTART_S = 60
_BETWEEN_READS = BackOff(0.2)

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Segments:
    """A partition's folder of segments, and the identity that tells whether a folder of that name is the hub's."""

    directory: str
    log_id: str

    def are_here(self) -> bool:
        """Return whether this machine has that very folder."""
        try:
            return (Path(self.directory) / _LOG_ID_FILE).read_text(encoding="ascii").strip() == self.log_id
        except (OSError, UnicodeDecodeError):
            return False


@dataclass(frozen=True, slots=True)
class HubRange:
    """Events of one partition of a hub, by sequence number; it is shipped to the task that reads them."""

    start: int
    end: int
    partition: str
    consumer_group: str
    connection: ConnectionString
    segments: Segments | None
    body_format: Format = JSON
    of_devices: bool = False
    topic: HubTopic | None = None
    has_gaps: bool = False
    registry: RemoteRegistry | None = None

    def read_events(self, batch_events: int) -> Iterator[Events]:
        from tidegate.engine.decoding.metadata import HUB_COLUMNS, IOT_HUB_COLUMNS

        for messages in self._runs(batch_events):
            yield Events(
                sequence_numbers=messages.sequence_numbers,
                arrivals=device_arrivals(messages) if self.of_devices else _arrivals(messages),
                bodies=self._bodies(messages),
                messages=messages,
                format=self.body_format,
                added_columns=IOT_HUB_COLUMNS if self.of_devices else HUB_COLUMNS,
            )

    def _bodies(self, messages: Messages) -> Sequence[bytes]:
        found = bodies(messages.buffer, messages.ends)
        if self.registry is None:
            return found
        from tidegate.kafka.value_schemas import SCHEMA_HEADER

        details = messages.details()
        content_types = [one.system_properties.get("content-type") for one in details]
        headers = [(one.values or {}).get(SCHEMA_HEADER) for one in details]
        return self.registry.bodies(found, self.body_format, content_types, headers)

    def _runs(self, batch_events: int) -> Iterator[Messages]:
        for messages in self.read_messages(batch_events):
            yield from messages.parts(_PACKED_RUN_BYTES if self.body_format.may_inflate else _RUN_BYTES)

    def read_messages(self, batch_events: int) -> Iterator[Messages]:
        """Yield the encoded messages in order, at most about ``batch_events`` at a time.

        Raises:
            InputError: the hub cannot be reached, or events of the range are gone.
        """
        if self.has_gaps:
            yield from self._from_topic(batch_events)
            return
        expected = self.start
        from_segments = self.segments is not None and self.segments.are_here()
        source = self._from_segments(batch_events) if from_segments else self._over_amqp(self.start, batch_events)
        for messages in source:
            numbers = messages.sequence_numbers
            if int(numbers[0]) != expected or int(numbers[-1]) != expected + len(numbers) - 1:
                raise self._gone(expected, int(numbers[0]))
            expected += len(numbers)
            yield messages
        if expected != self.end:
            raise self._gone(expected, self.end)

    def _from_segments(self, batch_events: int) -> Iterator[Messages]:
        from tidegate.log import LogError, SegmentReader

        assert self.segments is not None
        reader = SegmentReader(self.segments.directory)
        batch = _Batch()
        try:
            start = max(self.start, min(reader.deleted_before(), self.end))
            for entry in reader.read_entries(start, self.end):
                first = max(start - entry.base_sequence_number, 0)
                last = min(self.end - entry.base_sequence_number, entry.count)
                batch.add(
                    entry.base_sequence_number + first,
                    entry.enqueued_time_ms,
                    np.frombuffer(entry.ends, dtype="<u4").astype(np.int64),
                    entry.first_offset,
                    entry.payload,
                    first,
                    last,
                )
                if batch.count >= batch_events or batch.size >= _RUN_BYTES:
                    yield batch.messages()
                    batch = _Batch()
        except LogError as error:
            raise InputError(f"{self._name}: {error}") from error
        if batch.count:
            yield batch.messages()

    def _from_topic(self, batch_events: int) -> Iterator[Messages]:
        at = self.start
        if self.topic is not None:
            try:
                for messages in self.topic.messages(at, self.end, batch_events):
                    yield messages
                    at = int(messages.sequence_numbers[-1]) + 1
                return
            except EventsGone as error:
                raise self._gone(at, error.begin) from error
            except TopicUnreachable as error:
                _logger.info("%s: %s", self._name, error)
        yield from self._over_amqp(at, batch_events)

    def _over_amqp(self, start: int, batch_events: int) -> Iterator[Messages]:
        at, failures = start, 0
        while at < self.end:
            try:
                client = _client(self.connection)
                for deliveries in client.read(self.consumer_group, self.partition, at, self.end, batch_events):
                    if self.has_gaps:
                        self._check_gaps(client, at, [one.sequence_number for one in deliveries])
                    yield Messages.of(deliveries)
                    at, failures = deliveries[-1].sequence_number + 1, 0
                if self.has_gaps and at < self.end:
                    self._check_gaps(client, at, [self.end])
                return
            except ClientError as error:
                failures += 1
                if failures > _READ_AGAIN or not _is_passing(error):
                    raise _input_error(error) from error
                time.sleep(_BETWEEN_READS.after(failures))

    def _check_gaps(self, client: HubClient, expected: int, numbers: Sequence[int]) -> None:
        """Check that the hub has left numbers out, and that retention has not. Raises InputError, ClientError."""
        if numbers[-1] - expected + 1 == len(numbers):
            return
        missing = next(at for at, number in enumerate(numbers, expected) if number != at)
        begin = client.partition_properties(self.partition).begin
        if begin > missing:
            raise self._gone(missing, begin)

    @property
    def _name(self) -> str:
        return f"event hub {self.connection.entity_path}, partition {self.partition}"

    def _gone(self, expected: int, found: int) -> InputError:
        return InputError(
            f"{self._name}: event {expected} no longer exists (next is {found}); retention has removed "
            f"{found - expected:,} events that the job still has to read. Give the hub a longer retention, or start "
            "the job at a later time"
        )


def _arrivals(messages: Messages) -> Int64Array:
    arrivals: Int64Array = messages.enqueued_times_ms * TICKS_PER_MILLISECOND
    return arrivals


def device_arrivals(messages: Messages) -> Int64Array:
    """Return when each message of a device arrived at the IoT hub, in ticks, or else when it was enqueued here.

    A message reaches this endpoint after it has arrived, so reading starts at a place found by the hub's own times:
    whatever arrived at or after a time was enqueued at or after it.
    """
    return earlier_of_device(_arrivals(messages), messages.details())


def earlier_of_device(arrivals: Int64Array, details: Sequence[Details]) -> Int64Array:
    """Return int64[n], in ticks: when each message arrived at the IoT hub, if it says so, else when it arrived here."""
    from tidegate.engine.decoding.metadata import enqueued_by_device

    earlier = arrivals.copy()
    for place, one in enumerate(details):
        ticks = enqueued_by_device(one.system_properties)
        if ticks is not None:
            earlier[place] = min(ticks, int(earlier[place]))
    return earlier


class _Batch:
    """Collects entries until there are enough to convert them to columns."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self._numbers: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        self._times: list[tuple[int, int]] = []
        self._ends: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        self._positions: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        self._payloads: list[memoryview] = []

    def add(
        self,
        number: int,
        time_ms: int,
        ends: np.ndarray[tuple[int], np.dtype[np.int64]],
        first_offset: int,
        payload: memoryview,
        first: int,
        last: int,
    ) -> None:
        begin = int(ends[first - 1]) if first else 0
        count = last - first
        self._numbers.append(np.arange(number, number + count, dtype=np.int64))
        self._times.append((time_ms, count))
        self._ends.append(ends[first:last] - begin + self.size)
        self._positions.append(first_offset + 4 * np.arange(first, last, dtype=np.int64))
        self._payloads.append(payload[begin : int(ends[last - 1])])
        self.size += int(ends[last - 1]) - begin
        self.count += count

    def messages(self) -> Messages:
        times, counts = zip(*self._times, strict=True)
        return Messages(
            sequence_numbers=np.concatenate(self._numbers),
            enqueued_times_ms=np.repeat(np.array(times, dtype=np.int64), counts),
            positions=np.concatenate(self._positions),
            buffer=b"".join(self._payloads),
            ends=np.concatenate(self._ends),
        )


class HubLog:
    """One event hub, seen from the driver."""

    def __init__(
        self,
        client: HubClient,
        connection: ConnectionString,
        consumer_group: str,
        *,
        direct: ClusterAccess | None = ANY_CLUSTER,
        body_format: Format = JSON,
        of_devices: bool = False,
        patient: bool = True,
        job: str = "",
    ) -> None:
        """
        Args:
            job: the job that reads, as the hub is to show it; empty: it is not shown.
            patient: whether to wait here for a hub that restarts; False: the caller waits.
            direct: how tasks reach the cluster of Kafka, if gateways keep the hub in one. They read its topic, or the
                hub's files if those are on their machine. None: everything is read over the network.
            body_format: the format of the bodies.
            of_devices: the hub is an IoT hub's endpoint, whose messages state their arrival times.
        """
        self._client = client
        self._connection = connection
        self._direct = direct
        self._body_format = body_format
        self._of_devices = of_devices
        self.registry: RemoteRegistry | None = None
        """Where the schemas of the bodies are; None if they have none."""
        self._gives_up_after_s = _HUB_MAY_RESTART_S if patient else 0
        self._consumer_group = consumer_group
        hub = client.hub()
        self._partitions = hub.partition_ids
        # A service's hubs have no identity of each log, but a hub that was deleted and made again has another time.
        created = hub.created_at_ms
        self._created = None if created is None else f"{connection.entity_path.lower()} created at {created}"
        self._segments: dict[str, Segments | None] = {}
        self._topics: dict[str, HubTopic | None] = {}
        self._is_topic_noted = False
        self._is_group_known = False
        self.awaits_bound = True
        """Whether the lower bound on arrivals matters, for which gateways write markers into idle partitions."""
        self._job = job
        self._positions: dict[str, int] = {}
        self._unreported: dict[str, int] = {}

    @classmethod
    def connect(
        cls,
        connection_string: str,
        event_hub: str | None,
        consumer_group: str,
        *,
        token_provider: str | None = None,
        use_segments: bool = True,
        cluster: ClusterAccess | None = None,
        body_format: Format = JSON,
        of_devices: bool = False,
        patient: bool = True,
        job: str = "",
    ) -> HubLog:
        """Connect and find the partitions. Without ``use_segments`` everything is read over the network.

        ``token_provider``: see `ConnectionString.parse`.

        Raises:
            InputError: the connection string is invalid, or the hub cannot be reached or refuses; the message contains
                neither key nor token.
        """
        try:
            connection = ConnectionString.parse(connection_string, event_hub, token_provider=token_provider)
            return cls(
                HubClient(connection),
                connection,
                consumer_group,
                direct=(cluster or ANY_CLUSTER) if use_segments else None,
                body_format=body_format,
                of_devices=of_devices,
                patient=patient,
                job=job,
            )
        except ClientError as error:
            raise _input_error(error) from error

    def _reports(self) -> dict[str, dict[str, Any]]:
        """Return by partition the properties that report a reader that attaches no link to the hub."""
        if not self._job:
            return {}
        return {
            partition: {
                "tidegate:job": self._job,
                "tidegate:consumer-group": self._consumer_group,
                "tidegate:position": position,
                "tidegate:read-events": self._unreported.get(partition, 0),
            }
            for partition, position in self._positions.items()
            if self._attaches_no_link(partition)
        }

    def _attaches_no_link(self, partition: str) -> bool:
        if self._topics.get(partition) is not None:
            return True
        segments = self._segments.get(partition)
        return segments is not None and segments.are_here()

    def _topic(self, partition: str, address: HubTopicAddress) -> HubTopic | None:
        """Return how tasks read a partition's topic, None if they read through a gateway."""
        access = None if self._direct is None or not partition.isdecimal() else self._direct.of(address)
        if access is not None:
            return HubTopic(address.topic, address.topic_id, int(partition), access)
        if self._direct is not None and not self._is_topic_noted:
            self._is_topic_noted = True
            _logger.warning(
                "event hub %s is read through its gateways, because its cluster of Kafka needs TLS or a password: name "
                "a file with them in store_config, and tasks read the topic themselves",
                self._connection.entity_path,
            )
        return None

    def ends(self) -> dict[str, PartitionEnd]:
        ends = {}
        reports = self._reports()
        awaits = {_AWAITS_BOUND: True} if self.awaits_bound else {}
        asked = {partition: {**awaits, **reports.get(partition, {})} for partition in self._partitions}
        every = self._ask(lambda client: client.partitions_properties(self._partitions, asked))
        for partition in reports:
            self._unreported[partition] = 0
        for partition, properties in every.items():
            self._positions.setdefault(partition, properties.begin)
            if self._direct is not None and properties.log_directory is not None and properties.log_id is not None:
                self._segments[partition] = Segments(properties.log_directory, properties.log_id)
            if properties.topic is not None:
                self._topics[partition] = self._topic(partition, properties.topic)
            lower_bound_ms = properties.arrival_lower_bound_ms
            promise = None if lower_bound_ms is None else lower_bound_ms * TICKS_PER_MILLISECOND
            if self._of_devices:
                # The hub reports its own clock; a message reaches it after arriving at the IoT hub.
                promise = None
            log_id = properties.log_identity or self._created
            ends[partition] = PartitionEnd(properties.begin, properties.end, promise, log_id=log_id)
        if not self._is_group_known and (self._segments or self._topics):
            # Whoever reads the log itself attaches no link, for which the hub would look for the consumer group.
            some = self._partitions[:1]
            named = {partition: {"tidegate:consumer-group": self._consumer_group} for partition in some}
            self._ask(lambda client: client.partitions_properties(some, named))
            self._is_group_known = True
        return ends

    def first_at(self, partition: str, arrival: int) -> int:
        time_ms = -(-arrival // TICKS_PER_MILLISECOND)
        first = self._ask(lambda client: client.first_at(self._consumer_group, partition, time_ms))
        self._positions[partition] = max(first, self._positions.get(partition, 0))
        return first

    def first_at_offset(self, partition: str, offset: str, *, inclusive: bool) -> int:
        """Return the first sequence number after an offset, or at it if ``inclusive``; the partition's end if none."""
        group = self._consumer_group
        return self._ask(lambda client: client.first_at_offset(group, partition, offset, inclusive=inclusive))

    def range(self, partition: str, start: int, end: int) -> HubRange:
        self._unreported[partition] = self._unreported.get(partition, 0) + end - start
        self._positions[partition] = end
        segments = self._segments.get(partition)
        return HubRange(
            start,
            end,
            partition,
            self._consumer_group,
            self._connection,
            segments,
            self._body_format,
            self._of_devices,
            self._topics.get(partition),
            partition in self._topics,
            self.registry,
        )

    def _ask(self, question: Callable[[HubClient], _Answer]) -> _Answer:
        """Ask the hub, and repeat the question over a new connection while it is restarting."""

        def attempt() -> _Answer:
            if self._client.closed:
                self._client = HubClient(self._connection)
            return question(self._client)

        try:
            return call_again(attempt, _is_passing, self._gives_up_after_s)
        except ClientError as error:
            raise _input_error(error) from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _is_passing(error: Exception) -> bool:
    return isinstance(error, ConnectionLostError | BusyError)


def _input_error(error: ClientError) -> InputError:
    return (InputUnavailableError if _is_passing(error) else InputError)(str(error))


_clients = threading.local()


def _client(connection: ConnectionString) -> HubClient:
    """Return this thread's connection to a hub: signing in costs more than reading most of a worker's ranges."""
    known: dict[ConnectionString, HubClient] = _clients.__dict__.setdefault("by_connection", {})
    client = known.get(connection)
    if client is None or client.closed:
        client = known[connection] = HubClient(connection)
    return client
