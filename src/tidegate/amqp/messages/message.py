"""Messages: encoding and decoding of sections, and the events of a batch.

Part 3, section 3.2: a message is a series of described sections: header, delivery annotations, message annotations,
properties, application properties, a body of data, sequence or value sections, footer. Any order is accepted, because
Event Hubs' Python client writes the delivery annotations last.
http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-messaging-v1.0-os.html#section-message-format
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidegate.amqp.encoding.codec import decode, encode
from tidegate.amqp.encoding.composites import Field, composite, encode_composite, layout_of, read_fields
from tidegate.amqp.encoding.errors import DecodeError, PeerError
from tidegate.amqp.encoding.types import Described, Symbol, Ulong
from tidegate.amqp.messages.annotations import (
    annotate,
    annotate_run,
    message_annotation,
    with_annotations,
    with_delivery_annotations,
)
from tidegate.amqp.messages.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    section_at,
    sections,
)

__all__ = [
    "APPLICATION_PROPERTIES",
    "BATCH_FORMAT",
    "DATA",
    "DELIVERY_ANNOTATIONS",
    "FOOTER",
    "HEADER",
    "PROPERTIES",
    "SEQUENCE",
    "VALUE",
    "DecodeError",
    "Header",
    "Message",
    "Properties",
    "annotate",
    "annotate_run",
    "decode",
    "encode_message",
    "message_annotation",
    "parse_message",
    "sections",
    "split_batch",
    "with_annotations",
    "with_delivery_annotations",
]

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
    """A decoded message. `body` is list[bytes] for "data", list[list] for "sequence", anything for "value"."""

    header: Header | None = None
    delivery_annotations: Mapping[Any, Any] | None = None
    message_annotations: Mapping[Any, Any] | None = None
    properties: Properties | None = None
    application_properties: Mapping[str, Any] | None = None
    body_kind: Literal["data", "sequence", "value"] | None = None
    body: Any = None
    footer: Mapping[Any, Any] | None = None


composite(
    Header,
    0x70,
    "amqp:header:list",
    Field("durable", "boolean", False),
    Field("priority", "ubyte", 4),
    Field("ttl_ms", "uint"),
    Field("first_acquirer", "boolean", False),
    Field("delivery_count", "uint", 0),
)
composite(
    Properties,
    0x73,
    "amqp:properties:list",
    Field("message_id", "any"),
    Field("user_id", "binary"),
    Field("to", "any"),
    Field("subject", "string"),
    Field("reply_to", "any"),
    Field("correlation_id", "any"),
    Field("content_type", "symbol"),
    Field("content_encoding", "symbol"),
    Field("absolute_expiry_time_ms", "timestamp"),
    Field("creation_time_ms", "timestamp"),
    Field("group_id", "string"),
    Field("group_sequence", "uint"),
    Field("reply_to_group_id", "string"),
)

_MAP_FIELDS = {
    DELIVERY_ANNOTATIONS: "delivery_annotations",
    MESSAGE_ANNOTATIONS: "message_annotations",
    APPLICATION_PROPERTIES: "application_properties",
    FOOTER: "footer",
}
_U32 = struct.Struct(">I")


def parse_message(encoded: bytes) -> Message:
    """Decode a message. Raises DecodeError for malformed bytes, unknown sections and mixed bodies."""
    message = Message()
    for section in sections(encoded):
        value, end = decode(encoded, section.value)
        if end != section.end:
            raise DecodeError("a section's value does not fill it")
        if section.code in (HEADER, PROPERTIES):
            _read_list_section(message, section.code, value)
        elif section.code in _MAP_FIELDS:
            if value is not None and not isinstance(value, dict):
                raise DecodeError("a section of annotations or properties is not a map")
            setattr(message, _MAP_FIELDS[section.code], value)
        else:
            _read_body_section(message, section.code, value)
    return message


def _read_list_section(message: Message, code: int, value: Any) -> None:
    layout = layout_of(Described(Ulong(code), value))
    if layout is None:
        raise DecodeError("a section of an unknown kind")
    try:
        instance = layout.build(*read_fields(layout, value))
    except PeerError as error:
        raise DecodeError(error.description) from None
    if code == HEADER:
        message.header = instance
    else:
        message.properties = instance


def _read_body_section(message: Message, code: int, value: Any) -> None:
    kind: Literal["data", "sequence", "value"] = "data" if code == DATA else "sequence" if code == SEQUENCE else "value"
    if message.body_kind not in (None, kind) or (message.body_kind == "value"):
        raise DecodeError("a body of more than one kind")
    if kind == "value":
        message.body = value
    else:
        if not isinstance(value, bytes if kind == "data" else list):
            raise DecodeError(f"a {kind} section of another type")
        if message.body is None:
            message.body = []
        message.body.append(value)
    message.body_kind = kind


def encode_message(message: Message) -> bytes:
    """Encode a message. Raises EncodeError."""
    parts = []
    if message.header is not None:
        parts.append(encode_composite(message.header))
    if message.delivery_annotations is not None:
        parts.append(_map_section(DELIVERY_ANNOTATIONS, message.delivery_annotations))
    if message.message_annotations is not None:
        parts.append(_map_section(MESSAGE_ANNOTATIONS, message.message_annotations))
    if message.properties is not None:
        parts.append(encode_composite(message.properties))
    if message.application_properties is not None:
        parts.append(_descriptor(APPLICATION_PROPERTIES) + encode(dict(message.application_properties)))
    if message.body_kind == "value":
        parts.append(_descriptor(VALUE) + encode(message.body))
    elif message.body_kind is not None:
        descriptor = _descriptor(DATA if message.body_kind == "data" else SEQUENCE)
        parts.extend(descriptor + encode(item) for item in message.body)
    if message.footer is not None:
        parts.append(_map_section(FOOTER, message.footer))
    return b"".join(parts)


def _descriptor(code: int) -> bytes:
    return bytes((0x00, 0x53, code))


def _map_section(code: int, entries: Mapping[Any, Any]) -> bytes:
    return _descriptor(code) + encode({Symbol(k) if type(k) is str else k: item for k, item in entries.items()})


def split_batch(payload: bytes) -> list[bytes]:
    """Return the encoded events of a transfer of BATCH_FORMAT, [] for an empty batch. Raises DecodeError."""
    events: list[bytes] = []
    position, size = 0, len(payload)
    unpack = _U32.unpack_from
    while position < size:
        prefix = payload[position : position + 4]
        if prefix == b"\x00\x53\x75\xb0" and position + 8 <= size:
            start = position + 8
            position = start + unpack(payload, position + 4)[0]
        elif prefix == b"\x00\x53\x75\xa0" and position + 5 <= size:
            start = position + 5
            position = start + payload[position + 4]
        else:
            section = section_at(payload, position)
            if section.code in (SEQUENCE, VALUE):
                raise DecodeError("a batch's body is not of data sections")
            position = section.end
            if section.code == DATA:
                event, _ = decode(payload, section.value)
                if not isinstance(event, bytes):
                    raise DecodeError("a data section that is not binary")
                events.append(event)
            continue
        if position > size:
            raise DecodeError("the message ends inside a section")
        events.append(payload[start:position])
    return events
