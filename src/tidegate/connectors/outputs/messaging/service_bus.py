"""Sends messages to a queue or topic of Service Bus, or of any other AMQP 1.0 broker.

A queue cannot be asked what it was sent, so after a kill the messages since the last commit are sent again. They have
the ids that they had before, made of the output's identity and the row's number, and a queue with duplicate detection
drops the ones it has. So each result is there once as long as the detection's window, ten minutes unless set otherwise,
is longer than the time from a kill to the restart. Without duplicate detection, those messages may be there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from tidegate.amqp import Message, encode_message
from tidegate.amqp.encoding.types import Symbol
from tidegate.amqp.messages import Header
from tidegate.client import ClientError, ConnectionLostError, ConnectionString
from tidegate.client.message_sender import MessageSender, Refusal, is_temporary
from tidegate.client.producer import RefusedError
from tidegate.connectors.model.errors import OutputError
from tidegate.connectors.model.section import Public, Secret
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputOpening
from tidegate.connectors.outputs.messaging.bodies import content_type_of
from tidegate.connectors.outputs.messaging.message_rows import (
    MessageOutput,
    MessageRows,
    MessageSettings,
    RowMessage,
    row_at,
)
from tidegate.connectors.outputs.messaging.system_properties import OF_MESSAGES, check_names, system_sections
from tidegate.connectors.outputs.output import (
    RECORD_EXCEEDED_SIZE_LIMIT,
    TYPE_CONVERSION_ERROR,
    Output,
    OutputUnavailableError,
)
from tidegate.engine import ResultRows

_TOO_LARGE = "amqp:link:message-size-exceeded"
_DUPLICATE = "duplicate"

Result = TypeVar("Result")


@OUTPUTS.register
class ServiceBusOutput(MessageSettings):
    """A queue or topic of Service Bus, or of another AMQP 1.0 broker: a message for each result."""

    other_words: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("amqp", "queue", "topic", "servicebusqueue", "servicebustopic", "rabbitmq", "artemis"),
        'write type = "servicebus"',
    )

    type: Literal["servicebus"]
    connection_string: Secret = Field(
        description="Endpoint=…;SharedAccessKeyName=…;SharedAccessKey=…, or `amqp://user:password@host:port` for "
        "another broker"
    )
    queue: Public | None = Field(default=None, description="the queue's name")
    topic: Public | None = Field(default=None, description="the topic's name, instead of a queue's")
    system_property_columns: dict[Public, Public] = Field(
        default_factory=dict,
        description="by system property of the message (`MessageId`, `SessionId`, `PartitionKey` …), its column",
    )
    duplicate_id_property: Public | None = Field(
        default=None,
        description="a property that repeats the message's id, for a broker that finds duplicates by it: "
        "`_AMQ_DUPL_ID` for ActiveMQ Artemis",
    )

    @model_validator(mode="after")
    def _one_entity(self) -> ServiceBusOutput:
        if self.queue is not None and self.topic is not None:
            raise ValueError("give either 'queue' or 'topic', one of the two")
        return self

    @field_validator("system_property_columns")
    @classmethod
    def _of_a_message(cls, columns: dict[str, str]) -> dict[str, str]:
        check_names(columns, OF_MESSAGES)
        return columns

    def connection(self) -> ConnectionString:
        """Return where to send. Raises ClientError."""
        entity = self.queue or self.topic
        if self.connection_string.partition(":")[0] in ("amqp", "amqps"):
            if entity is None:
                raise ClientError("an output to an AMQP broker needs the name of a 'queue' or 'topic'")
            return ConnectionString.of_url(self.connection_string, entity)
        return ConnectionString.parse(self.connection_string, entity)

    def open_at(self, opening: OutputOpening) -> Output:
        return ServiceBusEntity(self, opening)


class ServiceBusEntity(MessageOutput):
    """A queue or topic; its mark counts rows."""

    def __init__(self, settings: ServiceBusOutput, opening: OutputOpening) -> None:
        """
        Raises:
            OutputError: the broker cannot be reached or refuses.
        """
        identity = opening.identity
        try:
            self._connection = settings.connection()
        except ClientError as error:
            raise OutputError(f"output '{identity.output}': {error}") from error
        self._settings = settings
        self._content_type = Symbol(content_type_of(settings))
        self._name = identity.digest
        rows = MessageRows(
            settings, identity, opening.shape, system=settings.system_property_columns, drop=opening.drop
        )
        super().__init__("servicebus", opening, rows)
        self._waiting: list[bytes] = []
        self._sources: list[tuple[int, int, bytes]] = []  # of each waiting message: number, time, beginning of its body
        self._accepted: set[int] = set()
        self._sender: MessageSender | None = None
        self._on_broker(self._opened)

    def _opened(self) -> MessageSender:
        if self._sender is None or not self._sender.still_open():
            self._sender = MessageSender(self._connection)
        return self._sender

    # Rows -------------------------------------------------------------------------------------------------------------

    def write(self, rows: ResultRows) -> None:
        room = self._on_broker(self._opened).max_message_bytes
        first = self._next
        for message in self._rows.messages(rows, first):
            try:
                encoded = self._encoded(message)
            except ValueError as error:
                row = row_at(rows, message.number - first)
                self._rows.reject(TYPE_CONVERSION_ERROR, str(error), message.number, message.time, row)
                continue
            if room is not None and len(encoded) > room:
                said = f"a message of {len(encoded):,} bytes is larger than the {room:,} bytes that the broker accepts"
                row = row_at(rows, message.number - first)
                self._rows.reject(RECORD_EXCEEDED_SIZE_LIMIT, said, message.number, message.time, row)
                continue
            self._waiting.append(encoded)
            self._sources.append((message.number, message.time, message.body[:400]))
        self._taken += len(rows)

    def _encoded(self, message: RowMessage) -> bytes:
        sections = system_sections(message.system, f"{self._name}-{message.number}")
        properties = sections.properties
        assert properties is not None
        if properties.content_type is None:
            properties.content_type = self._content_type
        own = {}
        if self._settings.duplicate_id_property is not None:
            own[self._settings.duplicate_id_property] = properties.message_id
        return encode_message(
            Message(
                header=Header(durable=True, ttl_ms=sections.ttl_ms),
                message_annotations=sections.annotations or None,
                properties=properties,
                application_properties={**(message.properties or {}), **own} or None,
                body_kind="data",
                body=[message.body],
            )
        )

    def _send(self) -> None:
        refusals = self._on_broker(lambda: self._opened().send(self._waiting, self._accepted))
        for refusal in refusals:
            self._accept_refusal(refusal)
        self._waiting, self._sources, self._accepted = [], [], set()

    def _accept_refusal(self, refusal: Refusal) -> None:
        """Count a message that the broker rejects for good, unless it already has it."""
        if refusal.index in self._accepted:
            return
        said = f"{refusal.description or 'the broker rejects the message'} ({refusal.condition or 'no condition'})"
        if _DUPLICATE not in said.lower():
            if is_temporary(refusal.condition):
                raise OutputUnavailableError(said)
            number, time, body = self._sources[refusal.index]
            kind = RECORD_EXCEEDED_SIZE_LIMIT if refusal.condition == _TOO_LARGE else TYPE_CONVERSION_ERROR
            self._rows.reject(kind, said, number, time, {"body": body.decode(errors="replace")})
        self._accepted.add(refusal.index)

    # The connection ---------------------------------------------------------------------------------------------------

    def _on_broker(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except RefusedError as error:
            self.close()
            raise (OutputUnavailableError if is_temporary(error.condition) else OutputError)(str(error)) from error
        except ConnectionLostError as error:
            self.close()
            raise OutputUnavailableError(str(error)) from error
        except ClientError as error:
            self.close()
            raise OutputError(str(error)) from error

    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()
            self._sender = None
