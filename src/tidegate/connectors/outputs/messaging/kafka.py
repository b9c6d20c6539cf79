"""Sends messages to a topic of Kafka, each exactly once, by confluent-kafka (the extra `kafka`).

The messages of a step are one transaction, and part of it is the number of rows that the topic then has: it is
committed as the offset of a consumer group that is named after the output and has no consumers. So either both are
there or neither. A transactional id admits one producer: opening one ends what an earlier run has left open, by commit
if that had begun and by abort otherwise, and fences that run off. So the number that is read afterwards is final, after
a kill as well as after a reply that was lost. Rows below it are skipped.

Where transactions are not to be had, as in the lower tiers of Event Hubs, messages are sent by an idempotent producer:
none is lost, and those that a killed process had sent since its last commit are sent again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn, TypeVar

from pydantic import Field

from tidegate.client import ClientError
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.kafka_cluster import SILENT, KafkaClusterSection, reason_of, refusals
from tidegate.connectors.model.section import Public, SecretOptions
from tidegate.connectors.outputs import values
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening
from tidegate.connectors.outputs.messaging.message_rows import (
    MessageOutput,
    MessageRows,
    MessageSettings,
    RowMessage,
    row_at,
)
from tidegate.connectors.outputs.output import (
    RECORD_EXCEEDED_SIZE_LIMIT,
    Output,
    OutputUnavailableError,
)
from tidegate.engine import ResultRows
from tidegate.hub.placement import partition_for_key

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer

_ANSWER_WITHIN_S = 20.0
_READY_WITHIN_S = 5.0
_MESSAGE_OVERHEAD_BYTES = 512  # of a message and of the batch that holds it
_NO_OFFSET = -1001
_PUBLIC_OPTIONS = (
    "acks",
    "batch.size",
    "client.id",
    "compression.level",
    "compression.type",
    "linger.ms",
    "message.timeout.ms",
    "ssl.ca.location",
)

Result = TypeVar("Result")


@OUTPUTS.register
class KafkaOutput(KafkaClusterSection, MessageSettings):
    """A topic of Kafka, or an event hub through its Kafka endpoint: a message for each result."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(("confluent", "redpanda"), 'write type = "kafka"')

    type: Literal["kafka"]
    topic: Public = Field(description="the topic; it is not created, unless the cluster does so by itself")
    partition_key: Public | None = Field(
        default=None,
        description="the column that becomes the key and decides the partition; without it, results go to partitions "
        "in turn",
    )
    transactions: bool = Field(
        default=True, description="false, for clusters without them: results may be there twice after a kill"
    )
    lost_position: Literal["stop", "journal"] = Field(
        default="stop",
        description="when the cluster no longer has the output's position, which it keeps for a week after the last "
        "result: end the job, or continue from the journal's",
    )
    max_message_bytes: int = Field(default=1_000_000, ge=1_000, description="the largest message the topic accepts")
    options: Annotated[dict[str, str | int | float | bool], SecretOptions(_PUBLIC_OPTIONS)] = Field(
        default_factory=dict, description="further settings of librdkafka, such as `compression.type`"
    )

    def open_at(self, opening: OutputOpening) -> Output:
        return KafkaTopic(self, opening)


class KafkaTopic(MessageOutput):
    """A topic; its mark counts rows."""

    def __init__(self, settings: KafkaOutput, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the cluster cannot be reached or refuses, or has lost what the journal says it has.
        """
        try:
            import confluent_kafka  # an extra: other outputs do without
        except ModuleNotFoundError as error:
            raise OutputError("an output to Kafka needs confluent-kafka: pip install 'tidegate[kafka]'") from error
        self._kafka = confluent_kafka
        self._settings = settings
        self._output = opening.identity.output
        self._id = f"tidegate-{opening.identity.digest}"
        try:
            cluster = settings.cluster_settings()
        except ClientError as error:
            raise OutputError(f"output '{self._output}': {error}") from error
        self._configuration: dict[str, Any] = {
            **cluster,
            "message.max.bytes": settings.max_message_bytes,
            "client.id": self._id,
            "log_level": 0,
            "error_cb": self._note_trouble,
            **settings.options,
        }
        rows = MessageRows(settings, opening.identity, opening.shape, key=settings.partition_key, drop=opening.drop)
        super().__init__("kafka", opening, rows)
        self._held: int = self._mark["rows"]
        self._waiting: list[RowMessage] = []
        self._partitions = 1
        self._trouble: KafkaError | None = None
        self._failure: KafkaError | None = None
        self._producer: Producer | None = None
        self._on_cluster(self._opened)

    # The cluster ------------------------------------------------------------------------------------------------------

    def _opened(self) -> Producer:
        """Open a producer unless one is open; ``_held`` is then the number of rows that the topic has."""
        if self._producer is not None:
            return self._producer
        self._trouble = self._failure = None
        of_producer: dict[str, Any] = {"enable.idempotence": True, "queue.buffering.max.messages": 2_000_000}
        if self._settings.transactions:
            of_producer["transactional.id"] = self._id
            of_producer["transaction.timeout.ms"] = 60_000
        else:
            of_producer |= {"delivery.report.only.error": True, "on_delivery": self._note_failure}
        self._producer = producer = self._kafka.Producer({**of_producer, **self._configuration}, logger=SILENT)
        self._partitions = self._count_partitions(producer)
        if self._settings.transactions:
            self._begin_transactions(producer)
            self._held = self._stored_rows()
        return producer

    def _begin_transactions(self, producer: Producer) -> None:
        try:
            producer.init_transactions(_ANSWER_WITHIN_S)
        except self._kafka.KafkaException as error:
            reason: KafkaError = error.args[0]
            producer.poll(0)  # it calls `_note_trouble`
            if reason.code() != self._kafka.KafkaError._TIMED_OUT or self._trouble is not None:
                raise
            # The brokers answer, as the topic's partitions are known.
            raise OutputUnavailableError(
                f"{self._place}: no broker coordinates transactions; a cluster with fewer brokers than its "
                "transaction.state.log.replication.factor (3 unless it is set) cannot: lower that, or set "
                "transactions = false"
            ) from None

    def _count_partitions(self, producer: Producer) -> int:
        topic, errors = self._settings.topic, self._kafka.KafkaError
        deadline = time.monotonic() + _READY_WITHIN_S
        while True:
            found = producer.list_topics(topic, timeout=_ANSWER_WITHIN_S).topics[topic]
            if found.error is None and found.partitions:
                return len(found.partitions)
            # A cluster that creates topics by itself needs a moment for it.
            code = None if found.error is None else found.error.code()
            is_coming = code in (None, errors.UNKNOWN_TOPIC_OR_PART, errors._UNKNOWN_TOPIC, errors.LEADER_NOT_AVAILABLE)
            if is_coming and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            if code in (errors.UNKNOWN_TOPIC_OR_PART, errors._UNKNOWN_TOPIC):
                raise OutputError(f"{self._place} does not exist: create it, or correct the name in `topic`")
            raise self._kafka.KafkaException(found.error)

    def _stored_rows(self) -> int:
        """Return how many rows of this output the topic has, according to the cluster."""
        known: int = self._mark["rows"]
        group = {"group.id": self._id, "enable.auto.commit": False}
        with contextlib.closing(self._kafka.Consumer({**self._configuration, **group}, logger=SILENT)) as consumer:
            offset = self._committed_offset(consumer)
        if offset == _NO_OFFSET:
            if known and self._settings.lost_position == "stop":
                raise OutputError(
                    f"{self._place} no longer has the position of output '{self._output}' (the offset of the group "
                    f"{self._id}, which a cluster forgets a week after its last change), so it may have results after "
                    f'the {known:,} of the journal; set lost_position = "journal" to continue from there'
                )
            return known
        if offset < known:
            raise OutputError(
                f"{self._place} has {offset:,} results of output '{self._output}', but the journal committed "
                f"{known:,}; restore the topic, or move the journal away to start over"
            )
        return offset

    def _committed_offset(self, consumer: Consumer) -> int:
        errors = self._kafka.KafkaError
        # A broker that has just taken over a group refuses to answer for it for a moment.
        moving = (errors.NOT_COORDINATOR, errors.COORDINATOR_NOT_AVAILABLE, errors.COORDINATOR_LOAD_IN_PROGRESS)
        deadline = time.monotonic() + _READY_WITHIN_S
        while True:
            try:
                (stored,) = consumer.committed([self._position(0)], timeout=_ANSWER_WITHIN_S)
                error = stored.error
            except self._kafka.KafkaException as raised:
                error = raised.args[0]
            if error is None:
                return int(stored.offset)
            if error.code() not in moving or time.monotonic() > deadline:
                raise self._kafka.KafkaException(error)
            time.sleep(0.05)

    def _position(self, rows: int) -> Any:
        """Return the number of rows as the offset that is committed with them."""
        return self._kafka.TopicPartition(self._settings.topic, 0, rows)

    @property
    def _place(self) -> str:
        return f"the topic {self._settings.topic} at {self._configuration['bootstrap.servers']}"

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, rows: ResultRows) -> None:
        first = self._next
        for message in self._rows.messages(rows, first):
            size = len(message.body) + 4 * len(message.key or "") + _MESSAGE_OVERHEAD_BYTES
            if message.properties is not None:
                size += sum(len(name) + len(value) for name, value in _headers(message.properties))
            if size > self._settings.max_message_bytes:
                limit = self._settings.max_message_bytes
                said = f"a message of {size:,} bytes is larger than the {limit:,} that the topic accepts"
                row = row_at(rows, message.number - first)
                self._rows.reject(RECORD_EXCEEDED_SIZE_LIMIT, said, message.number, message.time, row)
                continue
            self._waiting.append(message)
        self._taken += len(rows)

    def _send(self) -> None:
        self._on_cluster(self._send_missing)
        self._waiting = []

    def _send_missing(self) -> None:
        """Send what the topic does not have; after a broken connection it may have more than was known."""
        producer = self._opened()
        after = self._next
        if after <= self._held:
            return
        if not self._settings.transactions:
            self._produce(producer)
            if producer.flush(_ANSWER_WITHIN_S) or self._failure is not None:
                errors = self._kafka.KafkaError
                raise self._kafka.KafkaException(self._failure or errors(errors._TIMED_OUT, "messages are unanswered"))
        else:
            producer.begin_transaction()
            self._produce(producer)
            producer.send_offsets_to_transaction([self._position(after)], self._group(), _ANSWER_WITHIN_S)
            producer.commit_transaction(_ANSWER_WITHIN_S)
        self._held = after

    def _group(self) -> Any:
        """Return the consumer group, as one without members has it."""
        nobody = self._kafka.Consumer({**self._configuration, "group.id": self._id}, logger=SILENT)
        with contextlib.closing(nobody):
            return nobody.consumer_group_metadata()

    def _produce(self, producer: Producer) -> None:
        produce, topic, partitions = producer.produce, self._settings.topic, self._partitions
        for message in self._waiting:
            if message.number < self._held:
                continue
            key, partition = None, message.number % partitions
            if message.key is not None:
                key, partition = message.key.encode(), partition_for_key(message.key, partitions)
            headers: list[Any] | None = None if message.properties is None else list(_headers(message.properties))
            while True:
                try:
                    produce(topic, message.body, key, partition, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.1)

    # Trouble ----------------------------------------------------------------------------------------------------------

    def _on_cluster(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except self._kafka.KafkaException as error:
            reason: KafkaError = error.args[0]
            try:
                if self._producer is not None:
                    self._producer.poll(0)  # it calls `_note_trouble`
            except self._kafka.KafkaException as fatal:
                reason = fatal.args[0]
            self.close()
            self._raise(reason)
        except OutputError:
            self.close()
            raise

    def _raise(self, error: KafkaError) -> NoReturn:
        codes = self._kafka.KafkaError
        trouble = reason_of(error, self._trouble)
        said = f"{self._place}: {trouble.str()} ({trouble.name()})"
        if trouble.code() in (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH):
            raise OutputError(f"{said}; another run of this job, on a copy of its state folder, is writing to it")
        if trouble.code() in (codes.UNSUPPORTED_VERSION, codes._UNSUPPORTED_FEATURE):
            raise OutputError(f"{said}; if the cluster has no transactions, set transactions = false")
        of_writing = {
            codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            codes.MSG_SIZE_TOO_LARGE,
            codes.INVALID_CONFIG,
            codes.POLICY_VIOLATION,
        }
        if trouble.code() in refusals() | of_writing:
            raise OutputError(said)
        raise OutputUnavailableError(said)

    def _note_trouble(self, error: KafkaError) -> None:
        """Keep the reason behind a timeout: a refused password, or no broker to be reached."""
        self._trouble = error

    def _note_failure(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failure = error

    def continue_after_held_rows(self) -> None:
        """The number of rows dropped among them is unknown."""
        self._mark["rows"] = self._held

    def close(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer = None


def _headers(properties: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    for name, value in properties.items():
        yield name, values.text(value).encode()
