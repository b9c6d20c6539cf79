"""Capture files: Avro object containers whose records are `Microsoft.ServiceBus.Messaging.EventData`.

The container and the encoding: https://avro.apache.org/docs/1.12.0/specification/. The schema and how the fields are
written are those of the service's own files: uncompressed, the time of arrival as text to the second as .NET writes it
by default, to the millisecond in the system properties, under `x-opt-enqueued-time`. Sequence number and offset are
fields and not repeated there; the other annotations and the fields of the AMQP properties section are.

The same events always give the same bytes: where a block ends follows from the events before, and the sync marker is
the caller's. The few types are encoded here, so that all that repeats within an arrival time is joined once.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from struct import Struct
from typing import Any, BinaryIO

from tidegate.amqp.encoding.types import Array, Decimal, Described
from tidegate.amqp.messages.message import DecodeError, Message, parse_message
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
_IN_FIELDS = frozenset((_ENQUEUED_TIME, "x-opt-sequence-number", "x-opt-offset"))
_DOUBLE = Struct("<d")
_LONG, _DOUBLE_BRANCH, _STRING, _BYTES, _NULL = b"\x00", b"\x02", b"\x04", b"\x06", b"\x08"
_END_OF_MAP = b"\x00"


class AvroFile:
    """A container being written to `file`, which nobody else moves.

    `size_bytes` is what stands in the file now; up to a block more is held back.
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
        """Write the batch's events up to the one that brings the file to the limit. Returns how many were taken.

        An event that is no AMQP message is written too, its bytes as the body and the reason in `tidegate:undecoded`.
        """
        shared = _shared_fields(batch.enqueued_time_ms)
        taken = 0
        for sequence_number, (event, offset) in enumerate(
            zip(batch.events, batch.offsets, strict=True), batch.base_sequence_number
        ):
            if self.size_bytes >= size_limit_bytes:
                break
            head = b"%b%b%b" % (_long(sequence_number), _bytes(b"%d" % offset), shared)
            # most events are one data section and nothing else
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
        """Write what was held back. The file stays open."""
        self._end_block()
        self._file.flush()


def container_header(sync_marker: bytes) -> bytes:
    """What a file begins with, its sync marker last; it is also the whole of a file without events."""
    codec = _text("avro.codec") + _bytes(b"null")
    schema = _text("avro.schema") + _bytes(SCHEMA.encode("ascii"))
    return b"Obj\x01" + _long(2) + codec + schema + _END_OF_MAP + sync_marker


def format_time(time_ms: int) -> str:
    """A time as the service writes it in a capture file, like `8/2/2025 3:04:05 PM`."""
    time = datetime.fromtimestamp(time_ms // 1000, UTC)
    half = "AM" if time.hour < 12 else "PM"
    return f"{time.month}/{time.day}/{time.year} {time.hour % 12 or 12}:{time:%M:%S} {half}"


def _shared_fields(enqueued_time_ms: int) -> bytes:
    """EnqueuedTimeUtc and the first block of SystemProperties, the same for all events of an arrival time."""
    entry = _text(_ENQUEUED_TIME) + _LONG + _long(enqueued_time_ms)
    return _text(format_time(enqueued_time_ms)) + _long(1) + entry


def _rest(event: bytes) -> bytes:
    """What follows the shared fields: the end of SystemProperties, Properties and Body."""
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
    return b"".join((_map(system.items()), _map(properties.items()), _body(message)))


def _map(entries: Iterable[tuple[Any, Any]]) -> bytes:
    encoded = [_text(str(name)) + _value(value) for name, value in entries]
    return b"".join((_long(len(encoded)), *encoded, _END_OF_MAP)) if encoded else _END_OF_MAP


def _value(value: Any) -> bytes:
    """A branch of the union. AMQP has more types than it: the others become text, as JSON has them where it does."""
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
    """Data as it is, text as UTF-8, other values and sequences as JSON; null where there is none."""
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
    """In JSON's types: maps and lists all the way down, bytes in base 64, what JSON does not have as text."""
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
    """Zigzag, seven bits a byte, the least first."""
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
