"""What the server counts, and how Prometheus reads it: counting is adding to an int, the rest happens at the scrape."""

from __future__ import annotations

import re
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.hub.kafka_backend import GatewayFacts
from tidegate.hub.namespace import Namespace

BUCKET_S = 5
BUCKETS = 720


class _Ring:
    """Counts of the last BUCKETS buckets of time."""

    def __init__(self, bucket: int) -> None:
        self._counts = array("Q", bytes(8 * BUCKETS))
        self._last = bucket

    def add(self, bucket: int, count: int) -> None:
        for passed in range(max(self._last + 1, bucket - BUCKETS + 1), bucket + 1):
            self._counts[passed % BUCKETS] = 0
        self._last = max(self._last, bucket)
        if bucket > self._last - BUCKETS:
            self._counts[bucket % BUCKETS] += count

    def get(self, bucket: int) -> int:
        return self._counts[bucket % BUCKETS] if self._last - BUCKETS < bucket <= self._last else 0


class TimedCounts:
    """Counts of the last hour by key, in buckets of BUCKET_S seconds. A key takes 6 KB once it is counted."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._rings: dict[tuple[str, ...], _Ring] = {}

    def add(self, key: tuple[str, ...], count: int) -> None:
        """Count something that happened now."""
        bucket = int(self._now_s()) // BUCKET_S
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = _Ring(bucket)
        ring.add(bucket, count)

    def keys(self) -> Sequence[tuple[str, ...]]:
        """Return what was counted."""
        return list(self._rings)

    def of(self, key: tuple[str, ...], from_s: int, bucket_s: int, buckets: int) -> Sequence[int | None]:
        """Return the counts of consecutive stretches of time; None for those that are no longer known.

        Args:
            key: What is counted.
            from_s: Where the first begins, in seconds since 1970: a multiple of BUCKET_S.
            bucket_s: How long each is: a multiple of BUCKET_S.
            buckets: How many there are.
        """
        ring = self._rings.get(key)
        oldest = int(self._now_s()) // BUCKET_S - BUCKETS + 1
        width = bucket_s // BUCKET_S
        found: list[int | None] = []
        for number in range(buckets):
            first = from_s // BUCKET_S + number * width
            if first < oldest:
                found.append(None)
            else:
                found.append(0 if ring is None else sum(ring.get(one) for one in range(first, first + width)))
        return found


class Deliveries:
    """What was sent to readers of each hub, in events and bytes, over the last hour. Used on the event loop only."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._counts = TimedCounts(now_s)

    def count(self, hub: str, events: int, size: int = 0) -> None:
        """Count events that were sent to a reader of a hub, and their bytes where they passed through this server."""
        self._counts.add((hub, "events"), events)
        if size:
            self._counts.add((hub, "bytes"), size)

    def series(self, hub: str, from_s: int, bucket_s: int, buckets: int) -> Sequence[int | None]:
        """Return the events in consecutive stretches of time; see `TimedCounts.of`."""
        return self._counts.of((hub, "events"), from_s, bucket_s, buckets)

    def sizes(self, hub: str, from_s: int, bucket_s: int, buckets: int) -> Sequence[int | None]:
        """Return the bytes in consecutive stretches of time."""
        return self._counts.of((hub, "bytes"), from_s, bucket_s, buckets)


class ErrorKind(StrEnum):
    """What a refusal is called in the metrics of Azure's Event Hubs."""

    USER = "UserErrors"
    SERVER = "ServerErrors"
    THROTTLED = "ThrottledRequests"
    QUOTA = "QuotaExceededErrors"

    @classmethod
    def of(cls, condition: str) -> ErrorKind:
        """Return the kind of a refusal by its AMQP condition, or by the name of Kafka's error."""
        return _KINDS.get(condition.lower(), cls.USER)


class Activity(StrEnum):
    """What is counted beside errors, under the names of the metrics of Azure's Event Hubs."""

    REQUESTS = "IncomingRequests"
    CONNECTIONS_OPENED = "ConnectionsOpened"
    CONNECTIONS_CLOSED = "ConnectionsClosed"
    CAPTURED_MESSAGES = "CapturedMessages"
    CAPTURED_BYTES = "CapturedBytes"


_KINDS = {
    "com.microsoft:server-busy": ErrorKind.THROTTLED,
    "kafka:throttling_quota_exceeded": ErrorKind.THROTTLED,
    "amqp:resource-limit-exceeded": ErrorKind.QUOTA,
    "amqp:internal-error": ErrorKind.SERVER,
    "kafka:kafka_storage_error": ErrorKind.SERVER,
    "kafka:unknown_server_error": ErrorKind.SERVER,
}

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class ServerMetrics:
    """Counts since the server started."""

    connections_opened: int = 0
    connections_open: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    publications: int = 0
    delivered_events: int = 0
    collectors: list[Collector] = field(default_factory=list)
    """What layers above the server count."""
    refusals: Counter[str] = field(default_factory=Counter)
    """By AMQP condition: links, tokens, publications and requests that were turned down."""
    deliveries: Deliveries = field(default_factory=Deliveries)
    counts: TimedCounts = field(default_factory=TimedCounts)
    """What happened in the last hour, by `ErrorKind` or `Activity` and hub; the hub is empty where it was none of one
    hub, such as a connection or a request that named no hub that exists."""

    def refuse(self, condition: str, hub: str = "", count: int = 1) -> None:
        """Count refusals of an AMQP condition."""
        self.refusals[condition] += count
        self.counts.add((ErrorKind.of(condition), hub), count)

    def request(self, hub: str = "", count: int = 1) -> None:
        """Count requests: publications, whether they are taken or not, tokens, questions, and those of Kafka."""
        self.counts.add((Activity.REQUESTS, hub), count)

    def open_connection(self) -> None:
        """Count a client that has connected."""
        self.connections_opened += 1
        self.connections_open += 1
        self.counts.add((Activity.CONNECTIONS_OPENED, ""), 1)

    def close_connection(self, count: int = 1) -> None:
        """Count clients that have left."""
        self.connections_open -= count
        if count:
            self.counts.add((Activity.CONNECTIONS_CLOSED, ""), count)

    def capture(self, hub: str, events: int, size: int) -> None:
        """Count the events and bytes of a capture file that is in its place."""
        self.counts.add((Activity.CAPTURED_MESSAGES, hub), events)
        self.counts.add((Activity.CAPTURED_BYTES, hub), size)


class LoggedRefusals:
    """Which refusals are logged: a client that tries for ever must not fill the log."""

    MOST_A_MINUTE = 20

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._minute = 0.0
        self._logged: Counter[object] = Counter()

    def ending(self, client: object) -> str | None:
        """Count a client's refusal. Return what its line ends with, None if it had enough lines in this minute."""
        minute = self._monotonic_s() // 60
        if minute != self._minute:
            self._minute = minute
            self._logged.clear()
        self._logged[client] += 1
        count = self._logged[client]
        if count > self.MOST_A_MINUTE:
            return None
        return "; further ones of this minute are not logged" if count == self.MOST_A_MINUTE else ""


_HOST = re.compile(r"^[a-z]+://[^/]*/?", re.IGNORECASE)


def without_host(address: object) -> str:
    """Return an address as a path; some clients write a whole URL."""
    return _HOST.sub("", str(address))


def hub_in(namespace: Namespace, address: object) -> str:
    """Return the event hub that an address begins with, "" if there is none of that name."""
    hub = namespace.event_hubs.get(without_host(address).lstrip("/").partition("/")[0].lower())
    return "" if hub is None else hub.name


class _ServerCollector(Collector):
    def __init__(self, metrics: ServerMetrics, namespace: Namespace) -> None:
        self._metrics = metrics
        self._namespace = namespace

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield GaugeMetricFamily("tidegate_connections_open", "AMQP connections now", value=metrics.connections_open)
        for name, help_text, value in (
            ("tidegate_connections_opened", "AMQP connections accepted", metrics.connections_opened),
            ("tidegate_received_bytes", "Bytes received from AMQP clients", metrics.received_bytes),
            ("tidegate_sent_bytes", "Bytes sent to AMQP clients", metrics.sent_bytes),
            ("tidegate_publications", "Publications (batches or single events) taken", metrics.publications),
            ("tidegate_delivered_events", "Events sent to readers", metrics.delivered_events),
        ):
            yield CounterMetricFamily(name, help_text, value=value)
        refusals = CounterMetricFamily("tidegate_refusals", "Requests turned down", labels=["condition"])
        for condition, count in metrics.refusals.items():
            refusals.add_metric([condition], count)
        yield refusals
        throughput = self._namespace.throughput
        if throughput.units is not None:
            help_text = "Throughput units of the namespace now"
            yield GaugeMetricFamily("tidegate_throughput_units", help_text, value=throughput.units)
            help_text = "Units that auto-inflate has added"
            yield CounterMetricFamily("tidegate_throughput_units_added", help_text, value=throughput.inflations)
        yield from self._storage()
        yield from self._partitions()
        yield from self._kafka_groups()
        yield from self._captures()

    def _storage(self) -> Iterator[Metric]:
        status = self._namespace.storage.status()
        help_text = "1 if the data disk takes writes, 0 if not"
        yield GaugeMetricFamily("tidegate_storage_writable", help_text, value=float(status.is_writable))
        if status.free_bytes is not None and status.size_bytes is not None:
            yield GaugeMetricFamily("tidegate_storage_free_bytes", "Free on the data disk", value=status.free_bytes)
            yield GaugeMetricFamily("tidegate_storage_size_bytes", "Size of the data disk", value=status.size_bytes)
        help_text = "When something was last made durable on the data disk, Unix time"
        name = "tidegate_storage_last_durable_write_timestamp_seconds"
        yield GaugeMetricFamily(name, help_text, value=status.last_write_s)
        help_text = "Publications that could not be stored"
        yield CounterMetricFamily("tidegate_storage_refused_publications", help_text, value=status.refused_appends)

    def _partitions(self) -> Iterator[Metric]:
        labels = ["event_hub", "partition"]
        enqueued = CounterMetricFamily("tidegate_enqueued_events", "Durable events ever enqueued", labels=labels)
        stored = GaugeMetricFamily("tidegate_stored_events", "Events that can be read", labels=labels)
        arrival = GaugeMetricFamily(
            "tidegate_last_enqueued_timestamp_seconds", "Arrival of the last event, Unix time", labels=labels
        )
        damaged = GaugeMetricFamily(
            "tidegate_damaged_events", "Events found unreadable at or after start", labels=labels
        )
        for event_hub in self._namespace.event_hubs.values():
            for partition in event_hub.partitions:
                where = [event_hub.name, partition.partition_id]
                damaged.add_metric(where, partition.damaged_events)
                log = partition.log
                end = log.next_sequence_number
                enqueued.add_metric(where, end)
                stored.add_metric(where, end - log.begin_sequence_number)
                arrival.add_metric(where, log.last_enqueued_time_ms / 1000)
        yield from (enqueued, stored, arrival, damaged)
        yield from self._readers()

    def _readers(self) -> Iterator[Metric]:
        readers = GaugeMetricFamily(
            "tidegate_readers", "Attached readers and reading jobs", labels=["event_hub", "consumer_group", "partition"]
        )
        lag = GaugeMetricFamily(
            "tidegate_job_reader_lag_events",
            "Events that a job on the hub's machine has yet to read",
            labels=["event_hub", "consumer_group", "partition", "job_name"],
        )
        for event_hub in self._namespace.event_hubs.values():
            for group in event_hub.consumer_groups:
                for partition in event_hub.partitions:
                    where = [event_hub.name, group, partition.partition_id]
                    slots, end = partition.reader_slots(group), partition.log.next_sequence_number
                    jobs = slots.jobs
                    readers.add_metric(where, len(slots) + len(jobs))
                    for job in jobs:
                        lag.add_metric([*where, job.name], max(0, end - job.next_sequence_number))
        yield from (readers, lag)

    def _kafka_groups(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "tidegate_kafka_group_lag_events",
            "Events behind the offset that a group of Kafka's clients has committed",
            labels=["event_hub", "kafka_group", "partition"],
        )
        committed = GaugeMetricFamily(
            "tidegate_kafka_group_committed_timestamp_seconds",
            "When a group of Kafka's clients last committed an offset of a partition, Unix time",
            labels=["event_hub", "kafka_group", "partition"],
        )
        offsets = self._namespace.group_offsets
        for hub in self._namespace.event_hubs.values():
            for group, positions in offsets.in_hub(hub.definition.directory).items():
                for number, position in sorted(positions.items()):
                    if number < len(hub.partitions):
                        where = [hub.name, group, str(number)]
                        log = hub.partitions[number].log
                        first = max(position.offset, log.begin_sequence_number)
                        lag.add_metric(where, max(0, log.next_sequence_number - first))
                        committed.add_metric(where, position.committed_at_ms / 1000)
        yield from (lag, committed)

    def _captures(self) -> Iterator[Metric]:
        labels = ["event_hub", "partition"]
        files = CounterMetricFamily("tidegate_captured_files", "Capture files put in their place", labels=labels)
        events = CounterMetricFamily("tidegate_captured_events", "Events in them", labels=labels)
        waiting = GaugeMetricFamily("tidegate_capture_waiting_events", "Events in no file yet", labels=labels)
        failures = CounterMetricFamily("tidegate_capture_failures", "Attempts that are made again", labels=labels)
        lost = CounterMetricFamily("tidegate_capture_lost_events", "Events that could not be captured", labels=labels)
        for event_hub in self._namespace.event_hubs.values():
            for partition in event_hub.partitions:
                writer = partition.capture
                if writer is not None:
                    where = [event_hub.name, partition.partition_id]
                    files.add_metric(where, writer.files)
                    events.add_metric(where, writer.events)
                    waiting.add_metric(where, partition.log.next_sequence_number - writer.keep_from)
                    failures.add_metric(where, writer.failures)
                    lost.add_metric(where, writer.events_lost)
        yield from (files, events, waiting, failures, lost)


class GatewayCollector(Collector):
    """What a gateway knows of its cluster of Kafka."""

    def __init__(self, facts: Callable[[], GatewayFacts]) -> None:
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        facts = self._facts()
        for name, help_text, value in (
            ("tidegate_gateway_connected", "1 if the gateway hears its cluster, 0 if not", float(facts.is_connected)),
            ("tidegate_gateway_silence_seconds", "Age of the last sign of life that it has read back", facts.silence_s),
            ("tidegate_gateways", "Gateways that serve the namespace", facts.gateways),
            (
                "tidegate_store_under_replicated_partitions",
                "Partitions in Kafka that have fewer replicas in sync than replicas",
                facts.under_replicated,
            ),
            ("tidegate_store_offline_partitions", "Partitions in Kafka without a leader", facts.offline),
        ):
            yield GaugeMetricFamily(name, help_text, value=value)


def render(metrics: ServerMetrics, namespace: Namespace) -> bytes:
    """The text that `GET /metrics` answers with."""
    registry = CollectorRegistry()
    registry.register(_ServerCollector(metrics, namespace))
    for collector in metrics.collectors:
        registry.register(collector)
    return generate_latest(registry)
