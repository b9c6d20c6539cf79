"""Capture files: Avro object containers whose records are `Microsoft.ServiceBus.Messaging.EventData`.

The container and the encoding: https://avro.apache.org/docs/1.12.0/specification/. The schema and the format of the
fields are those of the service's own files: uncompressed; the time of arrival as .NET's default text with seconds, and
with milliseconds in the system properties as `x-opt-enqueued-time`. The system properties also hold the other
annotations and the fields of the AMQP properties section, but not sequence number and offset, which have fields.

The same events always give the same bytes: block boundaries follow from the events alone, and the caller supplies the
sync marker. The few types are encoded here, so that bytes shared within an arrival time are built only once.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from struct import Struct
from typing import Any, BinaryIO
from uuid import UUID

from tidegate.amqp.encoding.types import Array, Decimal, Described, Timestamp, Ulong
from tidegate.amqp.messages import DecodeError, Message, parse_message
from tidegate.log import EventBatch

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "EventData",
        "namespace": "Microsoft.ServiceBus.Messaging",
        "fields": [
            {"name": "SequenceNumber", "type": "long"},
            {"name": "Offset", "type": "string"},
            {"name": "EnqueuedTimeUtc", "type": "string"},
            {"name": "SystemProperties", "type": {"type": "map", "values": ["long", "double", "string", "bytes"]}},
            {"name": "Properties", "type": {"type": "map", "values": ["long", "double", "string", "bytes", "null"]}},
            {"name": "Body", "type": ["null", "bytes"]},
        ],
    },
    separators=(",", ":"),
)
SYNC_MARKER_BYTES = 16
BLOCK_BYTES = 1 << 16
_ENQUEUED_TIME = "x-opt-enqueued-time"
_UNDECODED = "tidegate:undecoded"
PROPERTY_TYPES = "tidegate:property-types"
"""A system property: a JSON object with the types of properties that are written as text or as a long."""
_TYPES_TO_NAME: dict[type, str] = {bool: "boolean", Timestamp: "timestamp", UUID: "uuid", Decimal: "decimal"}
_IN_FIELDS = frozenset((_ENQUEUED_TIME, "x-opt-sequence-number", "x-opt-offset"))
_DOUBLE = Struct("<d")
_LONG, _DOUBLE_BRANCH, _STRING, _BYTES, _NULL = b"\x00", b"\x02", b"\x04", b"\x06", b"\x08"
_END_OF_MAP = b"\x00"


class AvroFile:
    """A container being written to `file`, whose position nobody else may move.

    `size_bytes` is the size of the file now; up to one more block is buffered.
    """

    def __init__(self, file: BinaryIO, sync_marker: bytes) -> None:
        if len(sync_marker) != SYNC_MARKER_BYTES:
            raise ValueError(f"a sync marker has {SYNC_MARKER_BYTES} bytes")
        self._file = file
        self._sync_marker = sync_marker
        self._block: list[bytes] = []
        self._block_bytes = 0
        self.events = 0
        header = container_header(sync_marker)
        file.write(header)
        self.size_bytes = len(header)

    def add(self, batch: EventBatch, size_limit_bytes: int) -> int:
        """Write the batch's events up to the one that fills the file, and return how many were written.

        An event that is not an AMQP message is written with its bytes as the body and the reason in
        `tidegate:undecoded`.
        """
        shared = _shared_fields(batch.enqueued_time_ms)
        taken = 0
        for sequence_number, (event, offset) in enumerate(
            zip(batch.events, batch.offsets, strict=True), batch.base_sequence_number
        ):
            if self.size_bytes >= size_limit_bytes:
                break
            head = b"%b%b%b" % (_long(sequence_number), _bytes(b"%d" % offset), shared)
            # most events consist of a single data section
            if len(event) > 4 and event.startswith(b"\x00\x53\x75\xa0") and len(event) == 5 + event[4]:
                record = b"%b\x00\x00\x02%b" % (head, _bytes(event[5:]))
            else:
                record = head + _rest(event)
            self._block.append(record)
            self._block_bytes += len(record)
            self.events += 1
            taken += 1
            if self._block_bytes >= BLOCK_BYTES:
                self._end_block()
        return taken

    def _end_block(self) -> None:
        if not self._block:
            return
        head = _long(len(self._block)) + _long(self._block_bytes)
        self._file.write(b"".join((head, *self._block, self._sync_marker)))
        self.size_bytes += len(head) + self._block_bytes + SYNC_MARKER_BYTES
        self._block.clear()
        self._block_bytes = 0

    def finish(self) -> None:
        """Write the buffered block. The file stays open."""
        self._end_block()
        self._file.flush()


def container_header(sync_marker: bytes) -> bytes:
    """Return a file's header, which ends with the sync marker. A file without events is only that."""
    codec = _text("avro.codec") + _bytes(b"null")
    schema = _text("avro.schema") + _bytes(SCHEMA.encode("ascii"))
    return b"Obj\x01" + _long(2) + codec + schema + _END_OF_MAP + sync_marker


def format_time(time_ms: int) -> str:
    """Return a time as the service writes it in capture files, like `8/2/2025 3:04:05 PM`."""
    time = datetime.fromtimestamp(time_ms // 1000, UTC)
    half = "AM" if time.hour < 12 else "PM"
    return f"{time.month}/{time.day}/{time.year} {time.hour % 12 or 12}:{time:%M:%S} {half}"


def _shared_fields(enqueued_time_ms: int) -> bytes:
    """Return EnqueuedTimeUtc and the first block of SystemProperties, shared by all events of an arrival time."""
    entry = _text(_ENQUEUED_TIME) + _LONG + _long(enqueued_time_ms)
    return _text(format_time(enqueued_time_ms)) + _long(1) + entry


def _rest(event: bytes) -> bytes:
    """Return the fields after the shared ones: the end of SystemProperties, Properties and Body."""
    try:
        message = parse_message(event)
    except DecodeError as error:
        return b"".join((_map([(_UNDECODED, str(error))]), _END_OF_MAP, b"\x02", _bytes(event)))
    system: dict[str, Any] = {}
    for name, value in (message.message_annotations or {}).items():
        if name not in _IN_FIELDS and value is not None:
            system[str(name)] = value
    if message.properties is not None:
        for field in fields(message.properties):
            value = getattr(message.properties, field.name)
            if value is not None:
                system[field.name.removesuffix("_ms").replace("_", "-")] = value
    properties = message.application_properties or {}
    if types := _lost_types(properties):
        system[PROPERTY_TYPES] = json.dumps(types, ensure_ascii=False)
    return b"".join((_map(system.items()), _map(properties.items()), _body(message)))


def _lost_types(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the types of properties that the union lacks, by name, so that a job reads what the publisher sent."""
    found = {}
    for name, value in properties.items():
        for kind, written in _TYPES_TO_NAME.items():
            if isinstance(value, kind):
                found[str(name)] = written
        if isinstance(value, Ulong) and value >= 2**63:
            found[str(name)] = "ulong"
    return found


def _map(entries: Iterable[tuple[Any, Any]]) -> bytes:
    encoded = [_text(str(name)) + _value(value) for name, value in entries]
    return b"".join((_long(len(encoded)), *encoded, _END_OF_MAP)) if encoded else _END_OF_MAP


def _value(value: Any) -> bytes:
    """Encode a branch of the union. AMQP types that the union lacks become text, as JSON if possible."""
    if isinstance(value, str):
        return _STRING + _text(value)
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return _LONG + _long(value)
    if isinstance(value, float):
        return _DOUBLE_BRANCH + _DOUBLE.pack(value)
    if isinstance(value, bytes):
        return _BYTES + _bytes(value)
    return _NULL if value is None else _STRING + _text(_as_text(value))


def _body(message: Message) -> bytes:
    """Encode the body: data unchanged, text as UTF-8, other values and sequences as JSON, no body as null."""
    body = message.body
    if message.body_kind == "data":
        content = b"".join(body)
    elif message.body_kind is None or body is None:
        return b"\x00"
    elif isinstance(body, bytes):
        content = body
    else:
        content = (body if isinstance(body, str) else _as_text(body)).encode("utf-8", "replace")
    return b"\x02" + _bytes(content)


def _as_text(value: Any) -> str:
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Convert to JSON types recursively: bytes become base64, other types without an equivalent text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Array):
        return [_plain(item) for item in value.items]
    if isinstance(value, Described):
        return _plain(value.value)
    if isinstance(value, bytes | Decimal):
        return b64encode(value if isinstance(value, bytes) else value.encoded).decode("ascii")
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _long(value: int) -> bytes:
    """Encode a zigzag varint: seven bits per byte, least significant first."""
    rest = value << 1 ^ value >> 63
    if rest < 0x80:
        return bytes((rest,))
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode("utf-8", "replace"))
