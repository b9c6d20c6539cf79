"""Topics of Kafka as a log: a partition is a timeline, and offsets are its sequence numbers.

Offsets may have gaps: a transaction takes one for its end, and compaction removes records. Only the records of
committed transactions are read, up to the last stable offset, so what is read never changes.

A record arrives at its timestamp. Timestamps that producers set may go back; the scan measures such a record by the
arrival that its partition had reached. `first_at` is consistent with that: the broker finds the first record at or
after a time, and every record before it is earlier.

Partitions of further topics are numbered from 100,000, 200,000 and so on, in the order in which the topics are named.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import Field, model_validator

from tidegate.client import ClientError
from tidegate.client.event import Details
from tidegate.connectors.inputs.deserializer import DeserializerName, Prefix, deserializer_of, problem_of
from tidegate.connectors.inputs.event_hub import Compression
from tidegate.connectors.inputs.file_settings import Columns, Delimiter, Encoding
from tidegate.connectors.inputs.kinds import INPUTS, ArrivalEstimate, EstimateArrival, FormatName, IdleAfter, LogOpening
from tidegate.connectors.inputs.schema_registry import REGISTRY_FORMATS, RegistrySettings, RemoteRegistry
from tidegate.connectors.model.captured import CapturedMessages
from tidegate.connectors.model.errors import InputError, InputUnavailableError
from tidegate.connectors.model.events import Events, InputLog, PartitionEnd
from tidegate.connectors.model.kafka_cluster import SILENT, KafkaClusterSection, reason_of, refusals
from tidegate.connectors.model.section import Public, SecretOptions
from tidegate.engine import DecodingLimits, Format
from tidegate.engine.decoding.metadata import HUB_COLUMNS
from tidegate.kafka.value_schemas import SCHEMA_HEADER
from tidegate.ordering import TICKS_PER_MILLISECOND

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_PUBLIC_OPTIONS = (
    "client.id",
    "client.rack",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "max.partition.fetch.bytes",
    "ssl.ca.location",
)


@INPUTS.register
class KafkaInput(KafkaClusterSection, RegistrySettings):
    """A topic of Kafka, or an event hub through its Kafka endpoint. A record arrives at its timestamp: when it was
    appended, or when it was made, as the topic's `message.timestamp.type` says."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(("confluent", "redpanda", "topic"), 'write type = "kafka"')

    type: Literal["kafka"]
    topic: Public = Field(description="the topic; several are separated by commas, and each of their partitions counts")
    consumer_group: Public = Field(
        default="tidegate", description="the group that the job reads as; its positions are in the job's journal"
    )
    format: Annotated[Public, FormatName(in_events=True)] = Field(default="json", description="the format of a body")
    delimiter: Delimiter = ","
    columns: Columns = ()
    encoding: Encoding = "utf-8"
    compression: Compression = "none"
    deserializer: DeserializerName = None
    message_prefix: Prefix = "none"
    options: Annotated[dict[str, str | int | float | bool], SecretOptions(_PUBLIC_OPTIONS)] = Field(
        default_factory=dict, description="further settings of librdkafka, such as `fetch.max.bytes`"
    )
    estimate_arrival: EstimateArrival = True
    idle_after_s: IdleAfter = 1

    @model_validator(mode="after")
    def _settings_fit(self) -> KafkaInput:
        if self.schema_registry is not None and self.format not in REGISTRY_FORMATS:
            raise ValueError("schema_registry is for the formats avro, protobuf and json")
        has_registry = self.schema_registry is not None
        problem = problem_of(self.format, self.deserializer, self.message_prefix, has_registry=has_registry)
        if problem is not None:
            raise ValueError(problem)
        if not all(name.strip() for name in self.topic.split(",")):
            raise ValueError("topic: a name is empty")
        return self

    def event_hub_name(self) -> str:
        return self.topic

    def open_log(self, opening: LogOpening) -> InputLog:
        if importlib.util.find_spec("confluent_kafka") is None:
            raise InputError("an input from Kafka needs confluent-kafka: pip install 'tidegate[kafka]'")
        topics = tuple(name.strip() for name in self.topic.split(","))
        try:
            settings = {"group.id": self.consumer_group, **self.cluster_settings(), **self.options}
        except ClientError as error:
            raise InputError(str(error)) from error
        source = KafkaSource(
            tuple(settings.items()), self._body_format(opening.limits), self.registry(), opening.retry_s
        )
        return KafkaTopics(source, topics)

    def arrival_estimate(self) -> ArrivalEstimate | None:
        return ArrivalEstimate(self.idle_after_s) if self.estimate_arrival else None

    def _body_format(self, limits: DecodingLimits) -> Format:
        custom = deserializer_of(self.deserializer, self.message_prefix)
        return Format(self.format, self.delimiter, self.columns, self.encoding, self.compression, limits, custom)


_NUMBERS_OF_A_TOPIC = 100_000
_ANSWER_WITHIN_S = 20.0
_READY_WITHIN_S = 5.0
_POLL_S = 1.0
_NOTICE_AFTER_S = 5.0
_NO_TOPIC_ID = "A" * 22  # zero, as Kafka writes it
_CONNECTION_SETTINGS = (
    "bootstrap.servers",
    "metadata.broker.list",
    "client.id",
    "security.",
    "sasl.",
    "ssl.",
    "socket.",
)
_logger = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """How a cluster is reached and its records are read; it is shipped to tasks.

    Attributes:
        settings: of librdkafka; they may hold a password.
        body_format: of the records' values.
        registry: where the schemas of the values are; None if they have none.
        wait_s: how long a task waits for a cluster that it cannot reach.
    """

    settings: tuple[tuple[str, Any], ...] = field(repr=False)
    body_format: Format
    registry: RemoteRegistry | None = None
    wait_s: float = _ANSWER_WITHIN_S

    def consumer(self) -> Consumer:
        """Return this thread's connection: a new one costs more than reading most ranges."""
        known: dict[KafkaSource, Consumer] = _consumers.__dict__.setdefault("by_source", {})
        if self not in known:
            known[self] = self.connect()
        return known[self]

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str | None]:
        """Return what tells each topic from one of its name that was created later.

        None where the cluster does not say, which needs Kafka 2.8 or newer and the right to describe topics.
        """
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient

        configuration = {name: value for name, value in self.settings if name.startswith(_CONNECTION_SETTINGS)}
        ids: dict[str, str | None] = dict.fromkeys(topics)
        try:
            admin = AdminClient(configuration, logger=SILENT)
            wanted = TopicCollection(list(topics))
            for topic, answer in admin.describe_topics(wanted, request_timeout=_ANSWER_WITHIN_S).items():
                topic_id = str(answer.result().topic_id)
                ids[topic] = None if topic_id == _NO_TOPIC_ID else f"topic {topic} {topic_id}"
        except (KafkaException, ValueError):
            pass  # the consumer reports what is wrong with the connection
        return ids

    def connect(self, note_trouble: Callable[[KafkaError], None] | None = None) -> Consumer:
        """Return a connection.

        Args:
            note_trouble: called with what goes wrong behind a call that only times out, such as a refused password.

        Raises:
            InputError: the library does not know a setting.
        """
        from confluent_kafka import Consumer, KafkaException  # an extra: other inputs do without

        configuration = {
            "fetch.wait.max.ms": 10,  # a fetch that waits for more records would hold back that of the next range
            **dict(self.settings),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
        if note_trouble is not None:
            configuration["error_cb"] = note_trouble
        try:
            return Consumer(configuration, logger=SILENT)
        except KafkaException as error:
            raise InputError(f"kafka: {error.args[0].str()}") from error


_consumers = threading.local()


@dataclass(frozen=True, slots=True)
class KafkaRange:
    """Records of one partition by offset; it is shipped to the task that reads them."""

    start: int
    end: int
    topic: str
    partition: int
    source: KafkaSource

    def read_events(self, batch_events: int) -> Iterator[Events]:
        """Yield the events of the range, in batches of up to ``batch_events``.

        Raises:
            InputError: the cluster cannot be reached, or records of the range are gone.
        """
        from confluent_kafka import KafkaException, TopicPartition

        consumer = self.source.consumer()
        try:
            consumer.assign([TopicPartition(self.topic, self.partition, self.start)])
            for records in self._batches(consumer, batch_events):
                yield self._events(records)
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        finally:
            consumer.unassign()

    def _batches(self, consumer: Consumer, batch_events: int) -> Iterator[list[Message]]:
        from confluent_kafka import KafkaError

        at, silence = self.start, _Silence(self._name, self.source.wait_s)
        while at < self.end:
            found = consumer.consume(min(batch_events, self.end - at), _POLL_S)
            records = []
            for one in found:
                error, offset = one.error(), one.offset()
                if one.topic() is not None and (one.topic(), one.partition()) != (self.topic, self.partition):
                    continue  # left over from the range that this connection read before
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    if not _is_passing(error):
                        raise self._failed(error)
                    silence.reason = error.str()
                    continue  # the library connects again by itself
                silence.broken()
                if offset is None or offset < at:
                    continue
                if error is None and offset < self.end:
                    records.append(one)
                    at = offset + 1
                elif offset >= self.end:
                    at = self.end  # what follows is not of the range, or nothing follows
            if records:
                yield records
            silence.check()

    def _events(self, records: Sequence[Message]) -> Events:
        values = [one.value() or b"" for one in records]
        numbers = np.array([one.offset() for one in records], dtype=np.int64)
        times_ms = np.array([one.timestamp()[1] for one in records], dtype=np.int64)
        body_format, registry = self.source.body_format, self.source.registry
        bodies: Sequence[bytes] = values
        if registry is not None:
            headers = [dict(one.headers() or ()).get(SCHEMA_HEADER) for one in records]
            bodies = registry.bodies(values, body_format, headers=headers)
        return Events(
            numbers,
            np.maximum(times_ms, 0) * TICKS_PER_MILLISECOND,
            bodies,
            CapturedMessages([str(number) for number in numbers.tolist()], tuple(map(self._details, records))),
            format=body_format,
            added_columns=HUB_COLUMNS,
        )

    def _details(self, record: Message) -> Details:
        key = record.key()
        headers = record.headers() or ()
        properties = {name: _text(value) for name, value in (headers.items() if isinstance(headers, dict) else headers)}
        return Details(None, None if key is None else _text(key), {**properties, "kafka.topic": self.topic}, {})

    @property
    def _name(self) -> str:
        return f"topic {self.topic}, partition {self.partition}"

    def _failed(self, error: KafkaError) -> InputError:
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            return InputError(
                f"{self._name}: record {self.start} no longer exists; retention has removed records that the job still "
                "has to read. Give the topic a longer retention, or start the job at a later time"
            )
        return _failure(self._name, error)


class _Silence:
    """How long a cluster has said nothing about a partition that has records to read."""

    def __init__(self, name: str, longest_s: float) -> None:
        self._name = name
        self._longest_s = longest_s
        self._since_s = time.monotonic()
        self._is_noted = False
        self.reason = "nothing was heard of it"

    def broken(self) -> None:
        """Begin anew: the cluster has answered."""
        if self._is_noted:
            _logger.warning("%s: can be read again after %.0f s", self._name, time.monotonic() - self._since_s)
        self._since_s, self._is_noted = time.monotonic(), False

    def check(self) -> None:
        """Raise InputUnavailableError if it lasts for too long, and log a warning before that."""
        lasted_s = time.monotonic() - self._since_s
        if lasted_s > self._longest_s:
            raise InputUnavailableError(f"{self._name}: unavailable for {self._longest_s:.0f} s: {self.reason}")
        if lasted_s > _NOTICE_AFTER_S and not self._is_noted:
            _logger.warning("%s: %s; waiting, %.0f s at most", self._name, self.reason, self._longest_s)
            self._is_noted = True


class KafkaTopics:
    """The topics of one input, seen from the driver."""

    def __init__(self, source: KafkaSource, topics: Sequence[str]) -> None:
        """
        Raises:
            InputUnavailableError: no broker answers.
            InputError: a topic does not exist, or a setting is wrong.
        """
        self._source = source
        self._trouble: KafkaError | None = None
        self._consumer = source.connect(self._note_trouble)
        self._places: dict[str, tuple[str, int]] = {}
        for number, topic in enumerate(topics):
            described = self._described(topic)
            if described.error is not None:
                raise InputError(
                    f"topic {topic}: {described.error.str()}; create it, or correct its name in `topic`"
                    if _is_passing(described.error)
                    else f"topic {topic}: {described.error.str()}"
                )
            for partition in sorted(described.partitions):
                self._places[str(_NUMBERS_OF_A_TOPIC * number + partition)] = (topic, partition)
        self._topic_ids = source.topic_ids(topics)

    def ends(self) -> dict[str, PartitionEnd]:
        from confluent_kafka import TopicPartition

        found = {}
        for name, place in self._places.items():
            begin, end = self._bounds(TopicPartition(*place))
            found[name] = PartitionEnd(begin, max(begin, end), None, log_id=self._topic_ids[place[0]])
        return found

    def _bounds(self, place: TopicPartition) -> tuple[int, int]:
        """Return the first offset of a partition and its last stable one."""
        found = self._ask(lambda: self._consumer.get_watermark_offsets(place, timeout=_ANSWER_WITHIN_S, cached=False))
        return (0, 0) if found is None else (int(found[0]), int(found[1]))

    def _described(self, topic: str) -> Any:
        deadline = time.monotonic() + _READY_WITHIN_S
        while True:
            found = self._ask(lambda: self._consumer.list_topics(topic, timeout=_ANSWER_WITHIN_S)).topics[topic]
            # A broker that has just started may not know its topics yet.
            if found.error is None or not _is_passing(found.error) or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    def first_at(self, partition: str, arrival: int) -> int:
        from confluent_kafka import TopicPartition

        topic, number = self._places[partition]
        time_ms = max(0, -(-arrival // TICKS_PER_MILLISECOND))
        (found,) = self._ask(
            lambda: self._consumer.offsets_for_times([TopicPartition(topic, number, time_ms)], timeout=_ANSWER_WITHIN_S)
        )
        if found.error is not None:
            raise _failure(f"topic {topic}, partition {number}", found.error)
        return found.offset if found.offset >= 0 else self.ends()[partition].end

    def range(self, partition: str, start: int, end: int) -> KafkaRange:
        topic, number = self._places[partition]
        return KafkaRange(start, end, topic, number, self._source)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _ask(self, question: Callable[[], Result]) -> Result:
        from confluent_kafka import KafkaException

        self._trouble = None
        try:
            return question()
        except KafkaException as raised:
            self._consumer.poll(0)  # it calls `_note_trouble`
            servers = dict(self._source.settings).get("bootstrap.servers")
            raise _failure(f"kafka at {servers}", reason_of(raised.args[0], self._trouble)) from raised

    def _note_trouble(self, error: KafkaError) -> None:
        if self._trouble is None or _is_passing(self._trouble):
            self._trouble = error


def _failure(what: str, error: KafkaError) -> InputError:
    """Return the error for a person: unavailable if the same attempt may succeed later."""
    return (InputUnavailableError if _is_passing(error) else InputError)(f"{what}: {error.str()}")


def _is_passing(error: KafkaError) -> bool:
    """Return whether the same attempt may succeed later.

    The library reports a broker that dies or starts in many ways, unknown partitions among them. So everything passes
    but a refusal.
    """
    from confluent_kafka import KafkaError

    of_reading = {
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError._BAD_MSG,
    }
    return error.code() not in refusals() | of_reading and not error.fatal()


def _text(value: Any) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
