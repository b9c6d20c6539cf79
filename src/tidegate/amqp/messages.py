"""Messages as bytes (part 3): their sections, batches, and annotations added without decoding the rest.

The sections of an encoded message are located without decoding them: section 3.2 defines them, and part 1, section 1.2,
how a constructor determines the size of its value. Any order of sections is accepted, because Event Hubs' Python client
writes the delivery annotations last.
http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-messaging-v1.0-os.html#section-message-format

A hub delivers each event with three message annotations of its own, and may have to add a partition key or delivery
annotations. Decoding a message for that costs several microseconds, so its bytes are split instead: the part before
the annotations, the entries to keep, and the part after. The two shapes of nearly all events (no message annotations,
or only the client's partition key) are recognised by their first bytes; all others are walked section by section. A
section in an unusual place or with an unusual descriptor is found too, so that a producer cannot pass its own values
off as the hub's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tidegate.amqp.encoding.codec import decode, encode, skip
from tidegate.amqp.encoding.composites import Field, composite, encode_composite, layout_of, read_fields
from tidegate.amqp.encoding.types import DecodeError, Described, PeerError, Symbol, Ulong

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
SEQUENCE = 0x76
VALUE = 0x77
FOOTER = 0x78

_SYMBOLS = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": SEQUENCE,
    b"amqp:amqp-value:*": VALUE,
    b"amqp:footer:map": FOOTER,
}


class Section(NamedTuple):
    """The location of a section in a message: its descriptor's code, its start, its value's start, and its end."""

    code: int
    start: int
    value: int
    end: int


def sections(encoded: bytes) -> Iterator[Section]:
    """Yield the sections of a message by their sizes alone. Raises DecodeError if they do not fill it."""
    position, size = 0, len(encoded)
    while position < size:
        section = section_at(encoded, position)
        yield section
        position = section.end


def section_at(encoded: bytes, start: int) -> Section:
    """Return the section that starts at a position. Raises DecodeError if there is none."""
    try:
        constructor = encoded[start + 1]
        if encoded[start] != 0:
            raise DecodeError("a section is not a described value")
        if constructor == 0x53:
            code, value = encoded[start + 2], start + 3
        else:
            descriptor, value = decode(encoded, start + 1)
            code = _SYMBOLS.get(descriptor.encode(), 0) if isinstance(descriptor, Symbol) else descriptor
        if not isinstance(code, int) or not HEADER <= code <= FOOTER:
            raise DecodeError("a section of an unknown kind")
        return Section(code, start, value, skip(encoded, value))
    except IndexError:
        raise DecodeError("the message ends inside a section") from None


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


SEQUENCE_NUMBER = "x-opt-sequence-number"
OFFSET = "x-opt-offset"
ENQUEUED_TIME = "x-opt-enqueued-time"
PARTITION_KEY = "x-opt-partition-key"
PUBLISHER = "x-opt-publisher"

_HUB_NAMES = frozenset((b"x-opt-sequence-number", b"x-opt-offset", b"x-opt-enqueued-time"))
_PARTITION_KEY_NAME = b"x-opt-partition-key"
_PARTITION_KEY_ENTRY = b"\xa3\x13x-opt-partition-key\xa1"
_SEQUENCE_NUMBER_ENTRY = b"\xa3\x15x-opt-sequence-number\x81"
_OFFSET_ENTRY = b"\xa3\x0cx-opt-offset\xa1"
_ENQUEUED_TIME_ENTRY = b"\xa3\x13x-opt-enqueued-time\x83"
_FIXED_SIZE = len(_SEQUENCE_NUMBER_ENTRY) + 8 + len(_OFFSET_ENTRY) + 1 + len(_ENQUEUED_TIME_ENTRY) + 8
_HUB_SECTION = struct.Struct(">4sII24sq15sB")
_MAP32 = b"\x00\x53\x72\xd1"
"""The beginning of a message annotations section."""
_DESCRIBED = 0x00
_NAME_PREFIXES = {0xA0: 2, 0xA1: 2, 0xA3: 2, 0xB0: 5, 0xB1: 5, 0xB3: 5}
"""How many bytes lie before the text of a name, by its constructor."""
_NUMBER_AT = 12 + len(_SEQUENCE_NUMBER_ENTRY)
"""Where the sequence number is in that section."""
_LATER_SECTIONS = tuple(bytes((0x00, 0x53, code)) for code in range(MESSAGE_ANNOTATIONS + 1, FOOTER + 1))
"""How a message begins that has neither header nor annotations."""
_EMPTY_MAP32 = b"\x00\x00\x00\x04\x00\x00\x00\x00"
_TWO_U32 = struct.Struct(">II")
_I64 = struct.Struct(">q")


class _Cut(NamedTuple):
    """A message split at its annotations of one kind: the bytes `before` and `after`, and the entries to keep."""

    before: bytes
    kept: bytes
    kept_items: int
    after: bytes


def annotate(encoded: bytes, sequence_number: int, offset: int, enqueued_time_ms: int) -> bytes:
    """Return a stored event in the form that consumers receive.

    Its message annotations hold x-opt-sequence-number (long), x-opt-offset (string) and x-opt-enqueued-time (timestamp)
    instead of any the producer wrote. Others are kept. Raises DecodeError for a malformed message.
    """
    return _insert(_cut(encoded, _HUB_NAMES), sequence_number, b"%d" % offset, _time_entry(enqueued_time_ms))


def annotate_run(
    events: Sequence[bytes], first_sequence_number: int, offsets: Sequence[int], enqueued_time_ms: int
) -> list[bytes]:
    """Annotate events with consecutive sequence numbers and one enqueued time, faster than one by one."""
    time_entry = _time_entry(enqueued_time_ms)
    if not _has_more(b"".join(events), 0):
        return _prefixed(events, first_sequence_number, offsets, time_entry)
    run = []
    for sequence_number, (event, offset) in enumerate(zip(events, offsets, strict=True), first_sequence_number):
        run.append(_insert(_cut(event, _HUB_NAMES), sequence_number, b"%d" % offset, time_entry))
    return run


def _prefixed(
    events: Sequence[bytes], first_sequence_number: int, offsets: Sequence[int], time_entry: bytes
) -> list[bytes]:
    """Annotate events of which none has annotations: where one begins with a later section, they go in front of it."""
    run: list[bytes] = []
    digits = 0
    for sequence_number, (event, offset) in enumerate(zip(events, offsets, strict=True), first_sequence_number):
        if not event.startswith(_LATER_SECTIONS) or len(event) < 4:
            run.append(_insert(_cut(event, _HUB_NAMES), sequence_number, b"%d" % offset, time_entry))
            continue
        text = b"%d" % offset
        if len(text) != digits:
            digits = len(text)
            size = 4 + _FIXED_SIZE + digits
            begin = _HUB_SECTION.pack(_MAP32, size, 6, _SEQUENCE_NUMBER_ENTRY, 0, _OFFSET_ENTRY, digits)
            before, after = begin[:_NUMBER_AT], begin[_NUMBER_AT + 8 :]
            pack = struct.Struct(f">{len(before)}sq{len(after)}s{digits}s{len(time_entry)}s").pack
        run.append(pack(before, sequence_number, after, text, time_entry) + event)
    return run


def with_annotations(encoded: bytes, annotations: Mapping[str, Any]) -> bytes:
    """Return the message with these message annotations set and its others kept. Raises DecodeError."""
    if not annotations:
        return encoded
    cut = _cut(encoded, frozenset(name.encode() for name in annotations))
    return _join(cut, MESSAGE_ANNOTATIONS, annotations)


def with_delivery_annotations(encoded: bytes, annotations: Mapping[str, Any]) -> bytes:
    """Return the message with these delivery annotations set and its others kept. Raises DecodeError."""
    if not annotations:
        return encoded
    dropped = frozenset(name.encode() for name in annotations)
    return _join(_walk(encoded, DELIVERY_ANNOTATIONS, dropped), DELIVERY_ANNOTATIONS, annotations)


def message_annotation(encoded: bytes, name: str) -> Any:
    """Return one message annotation, None if it is missing, decoding nothing else. Raises DecodeError."""
    wanted = name.encode()
    if encoded.find(wanted) < 0:
        return None
    value = None
    for section in sections(encoded):
        if section.code == MESSAGE_ANNOTATIONS:
            for key, start, end in _map_entries(encoded, section):
                if key == wanted:
                    value, _ = decode(encoded, skip(encoded, start))
                    if skip(encoded, skip(encoded, start)) != end:
                        raise DecodeError("an annotation does not fill its place")
    return value


def _time_entry(enqueued_time_ms: int) -> bytes:
    return _ENQUEUED_TIME_ENTRY + _I64.pack(enqueued_time_ms)


def _insert(cut: _Cut, sequence_number: int, offset: bytes, time_entry: bytes) -> bytes:
    before, kept, kept_items, after = cut
    size = len(offset)
    section = _HUB_SECTION.pack(
        _MAP32,
        4 + _FIXED_SIZE + size + len(kept),
        6 + kept_items,
        _SEQUENCE_NUMBER_ENTRY,
        sequence_number,
        _OFFSET_ENTRY,
        size,
    )
    return before + section + offset + time_entry + kept + after


def _join(cut: _Cut, code: int, annotations: Mapping[str, Any]) -> bytes:
    entries = cut.kept + _entries(annotations)
    items = cut.kept_items + 2 * len(annotations)
    section = bytes((0x00, 0x53, code, 0xD1)) + _TWO_U32.pack(4 + len(entries), items)
    return cut.before + section + entries + cut.after


def _entries(annotations: Mapping[str, Any]) -> bytes:
    return b"".join([encode(Symbol(name)) + encode(value) for name, value in annotations.items()])


def _cut(encoded: bytes, dropped: frozenset[bytes]) -> _Cut:
    """Split a message at its message annotations, keeping entries not in `dropped`."""
    start = 0
    if encoded.startswith(b"\x00\x53\x70\xc0"):
        start = 5 + encoded[4] if len(encoded) > 4 else 0
    head = encoded[start : start + 4]
    if head[:2] != b"\x00\x53" or len(head) < 4:
        return _walk(encoded, MESSAGE_ANNOTATIONS, dropped)
    if MESSAGE_ANNOTATIONS < head[2] <= FOOTER:
        if _has_more(encoded, start):
            return _walk(encoded, MESSAGE_ANNOTATIONS, dropped)
        return _Cut(encoded[:start], b"", 0, encoded[start:])
    if head[2:] == b"\x72\xd1" and encoded.startswith(_EMPTY_MAP32, start + 4) and not _has_more(encoded, start + 12):
        return _Cut(encoded[:start], b"", 0, encoded[start + 12 :])
    first = start + 6
    if head[2:] == b"\x72\xc1" and encoded.startswith(_PARTITION_KEY_ENTRY, first):
        value = first + len(_PARTITION_KEY_ENTRY)
        end = start + 5 + encoded[start + 4]
        alone = encoded[start + 5] == 2 and value < len(encoded) and value + 1 + encoded[value] == end
        if alone and _PARTITION_KEY_NAME not in dropped and end <= len(encoded) and not _has_more(encoded, end):
            return _Cut(encoded[:start], encoded[first:end], 2, encoded[end:])
    return _walk(encoded, MESSAGE_ANNOTATIONS, dropped)


def _has_more(encoded: bytes, start: int) -> bool:
    """Return whether the bytes from `start` on contain a possible head of a message annotations section.

    True may be wrong (a body may hold such bytes), False never is: these are all descriptors that `sections` accepts.
    """
    return (
        encoded.find(b"\x00\x53\x72", start) >= 0
        or encoded.find(b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x72", start) >= 0
        or encoded.find(b"amqp:message-annotations:map", start) >= 0
    )


def _walk(encoded: bytes, code: int, dropped: frozenset[bytes]) -> _Cut:
    """Split any message, removing its annotation sections of one kind wherever they are."""
    before: list[bytes] = []
    after: list[bytes] = []
    kept: dict[bytes, bytes] = {}
    for section in sections(encoded):
        if section.code == code:
            for key, start, end in _map_entries(encoded, section):
                if key not in dropped:
                    kept[key] = encoded[start:end]
        elif not after and section.code in (HEADER, DELIVERY_ANNOTATIONS) and section.code < code:
            before.append(encoded[section.start : section.end])
        else:
            after.append(encoded[section.start : section.end])
    return _Cut(b"".join(before), b"".join(kept.values()), 2 * len(kept), b"".join(after))


def _map_entries(encoded: bytes, section: Section) -> list[tuple[bytes, int, int]]:
    """Return name, start and end of each entry of a section's map. A name that is no text is its whole encoding.

    Names are symbols, but some clients take text, bytes and described values for the same name, so they all are one.
    """
    position = section.value
    constructor = encoded[position]
    if constructor == 0x40:
        return []
    try:
        if constructor == 0xC1:
            count, position = encoded[position + 2], position + 3
        elif constructor == 0xD1:
            count, position = _TWO_U32.unpack_from(encoded, position + 1)[1], position + 9
        else:
            raise DecodeError("annotations are not a map")
        if count & 1 or count > section.end - position:
            raise DecodeError("a map counts an odd number of items, or more than it has bytes")
        entries = []
        for _ in range(count >> 1):
            value = skip(encoded, position)
            end = skip(encoded, value)
            name = position
            while encoded[name] == _DESCRIBED:
                name = skip(encoded, name + 1)
            name += _NAME_PREFIXES.get(encoded[name], 0)
            entries.append((encoded[name:value], position, end))
            position = end
    except (IndexError, struct.error):
        raise DecodeError("the annotations end inside an entry") from None
    if position > section.end:
        raise DecodeError("annotations pass the end of their section")
    return entries
