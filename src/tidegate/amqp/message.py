"""Messages as bytes: sections, batches, and annotations merged in without decoding the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

BATCH_FORMAT = 0x80013700
"""The message format of an Event Hubs batch: each data section is one whole encoded event."""


@dataclass(slots=True)
class Header:
    """Section 3.2.1 of part 3."""

    durable: bool = False
    priority: int = 4
    ttl_ms: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


@dataclass(slots=True)
class Properties:
    """Section 3.2.4 of part 3. Ids keep their AMQP type (Ulong, UUID, bytes or str)."""

    message_id: Any = None
    user_id: bytes | None = None
    to: Any = None
    subject: str | None = None
    reply_to: Any = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time_ms: int | None = None
    creation_time_ms: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


@dataclass(slots=True)
class Message:
    """A message, decoded. `body` is list[bytes] for "data", list[list] for "sequence", anything for "value"."""

    header: Header | None = None
    delivery_annotations: Mapping[Any, Any] | None = None
    message_annotations: Mapping[Any, Any] | None = None
    properties: Properties | None = None
    application_properties: Mapping[str, Any] | None = None
    body_kind: Literal["data", "sequence", "value"] | None = None
    body: Any = None
    footer: Mapping[Any, Any] | None = None


def parse_message(encoded: bytes) -> Message:
    """Decode a message. Raises DecodeError for malformed bytes, unknown sections and mixed bodies."""
    ...


def encode_message(message: Message) -> bytes:
    """Encode a message. Raises EncodeError."""
    ...


def split_batch(payload: bytes) -> list[bytes]:
    """The events of a transfer of BATCH_FORMAT, undecoded. Raises DecodeError; an empty batch is []."""
    ...


def message_annotation(encoded: bytes, name: str) -> Any:
    """The value of one message annotation, None where there is none; nothing else is decoded. Raises DecodeError."""
    ...


def annotate(
    encoded: bytes,
    sequence_number: int,
    offset: str,
    enqueued_time_ms: int,
    partition_key: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> bytes:
    """A stored event as a consumer gets it: x-opt-sequence-number (long), x-opt-offset (string) and
    x-opt-enqueued-time (timestamp) in its message annotations in place of any the producer wrote, its own others kept,
    `partition_key` and `extra` put in over them. Raises DecodeError."""
    ...


def annotate_run(
    events: Sequence[bytes], first_sequence_number: int, offsets: Sequence[int], enqueued_time_ms: int
) -> list[bytes]:
    """annotate() for events of consecutive sequence numbers and one enqueued time; the way to deliver many."""
    ...


def with_annotations(encoded: bytes, annotations: Mapping[str, Any]) -> bytes:
    """The message with these message annotations set, others kept. Raises DecodeError."""
    ...
