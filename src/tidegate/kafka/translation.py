"""Records as events, and events as records: what each protocol's clients see of what the other's have written.

As Microsoft documents it in "Exchange events between consumers and producers that use different protocols":

    record      event
    value       body: one data section; a body of another kind becomes text or AMQP's own encoding
    key         partition key; a key that is no text, or too long for a partition key, is seen by Kafka's clients alone
    headers     application properties: a header's bytes as binary, and a property's value in AMQP's own encoding

An event's other properties and annotations have no place in a record. If a header is repeated, its last value counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.amqp.encoding.codec import encode
from tidegate.amqp.encoding.types import DecodeError
from tidegate.amqp.messages import message_annotation, parse_message
from tidegate.kafka.records import DEFAULT_MAX_RECORDS_BYTES, Header, RecordBatch, decode
from tidegate.kafka.records import encode as encode_batch

MESSAGE: tuple[Header, ...] = (("amqp", None),)
"""The headers of a record in a gateway's topic whose value is an encoded AMQP message."""
MARKER: tuple[Header, ...] = (("tidegate-marker", None),)
"""The headers of a record there that is no event."""
RESERVED_HEADERS = frozenset((MESSAGE, MARKER))
"""What no record of a client may have: its value would be served unchecked, or not at all."""
PARTITION_KEY = "x-opt-partition-key"
MAX_KEY_CHARACTERS = 128
_ANNOTATIONS, _PROPERTIES, _DATA = b"\x00\x53\x72", b"\x00\x53\x74", b"\x00\x53\x75"
_KEY_NAME = b"\xa3" + bytes((len(PARTITION_KEY),)) + PARTITION_KEY.encode("ascii")


def events_of(batch: RecordBatch, max_bytes: int = DEFAULT_MAX_RECORDS_BYTES) -> list[bytes]:
    """Return the records of a batch as encoded AMQP messages. Raises BatchError."""
    columns = decode(batch, max_bytes)
    return list(map(event_of, columns.keys, columns.values, columns.headers))


def event_of(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> bytes:
    """Return one record as an encoded AMQP message."""
    body = value or b""
    size = len(body)
    data = b"\x00\x53\x75\xa0%c%b" % (size, body) if size < 256 else b"\x00\x53\x75\xb0%b%b" % (_size(size), body)
    if headers:
        data = _properties(headers) + data
    if key is not None:
        data = _key_annotation(key) + data
    return data


def record_of(event: bytes) -> tuple[bytes | None, bytes, tuple[Header, ...]]:
    """Return the key, value and headers of an encoded AMQP message."""
    if event.startswith(_DATA):
        if event[3:4] == b"\xa0" and len(event) == 5 + event[4]:
            return None, event[5:], ()
        if event[3:4] == b"\xb0" and len(event) == 8 + int.from_bytes(event[4:8], "big"):
            return None, event[8:], ()
    try:
        message = parse_message(event)
        key = message_annotation(event, PARTITION_KEY)
    except DecodeError:  # stored by a version that checked less
        return None, event, ()
    properties = message.application_properties or {}
    headers = tuple((str(name), None if value is None else encode(value)) for name, value in properties.items())
    value = message.body
    if message.body_kind == "data":
        body = b"".join(value)
    elif isinstance(value, bytes):
        body = value
    elif isinstance(value, str):
        body = value.encode("utf-8", "replace")
    else:
        body = b"" if value is None else encode(value)
    return (key.encode("utf-8", "replace") if isinstance(key, str) else None), body, headers


def batch_of(events: Sequence[bytes], base_offset: int, enqueued_time_ms: int) -> bytes:
    """Return events of one enqueued time as a record batch whose time is that of the append."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[tuple[Header, ...]] = []
    for event in events:
        key, value, some = record_of(event)
        keys.append(key)
        values.append(value)
        headers.append(some)
    return encode_batch(
        values,
        timestamps_ms=[enqueued_time_ms] * len(values),
        keys=keys if any(key is not None for key in keys) else None,
        headers=headers if any(headers) else None,
        base_offset=base_offset,
        has_append_time=True,
    )


def _size(size: int) -> bytes:
    return size.to_bytes(4, "big")


def _key_annotation(key: bytes) -> bytes:
    """Return the section that holds the partition key, b"" if the key cannot be one."""
    try:
        if not 0 < len(key.decode("utf-8")) <= MAX_KEY_CHARACTERS:
            return b""
    except UnicodeDecodeError:
        return b""
    size = len(key)
    text = b"\xa1%c%b" % (size, key) if size < 256 else b"\xb1%b%b" % (_size(size), key)
    return _map(_ANNOTATIONS, 2, _KEY_NAME + text)


def _properties(headers: Sequence[Header]) -> bytes:
    properties = dict(headers)
    entries = b"".join(encode(name) + encode(value) for name, value in properties.items())
    return _map(_PROPERTIES, 2 * len(properties), entries)


def _map(descriptor: bytes, count: int, entries: bytes) -> bytes:
    if len(entries) < 255 and count < 256:
        return b"%b\xc1%c%c%b" % (descriptor, len(entries) + 1, count, entries)
    return b"%b\xd1%b%b%b" % (descriptor, _size(len(entries) + 4), _size(count), entries)
