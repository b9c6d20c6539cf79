"""Browsing an event hub: its partitions' events in the order of their arrival, forwards or backwards, some at a time.

Partitions are merged by enqueued time. A cursor says for each partition where to continue, so that following, paging
back and a search that takes several requests neither skip nor repeat an event. One request reads no more than its
budget, however long the log is; its answer says how far it came.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tidegate.amqp.encoding.types import Array, Decimal, Described, Timestamp
from tidegate.amqp.messages import DecodeError, Message, Properties, parse_message
from tidegate.hub.errors import ArgumentError
from tidegate.hub.event_hub import EventHub
from tidegate.hub.partition import Partition
from tidegate.kafka.value_schemas import SCHEMA_HEADER
from tidegate.log import LogDamaged
from tidegate.portal.web.rendering import iso_of_ms

PREVIEW_BYTES = 64 << 10
_MAX_INFLATED = 8 << 20
PARTITION_KEY = "x-opt-partition-key"
_AVRO = b"Obj\x01"


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event with its place in a partition."""

    partition: str
    sequence_number: int
    offset: int
    enqueued_time_ms: int
    encoded: bytes

    @property
    def order(self) -> tuple[int, int, int]:
        """The key by which events of several partitions are sorted: by arrival, then by partition."""
        return self.enqueued_time_ms, int(self.partition), self.sequence_number


def describe(event: StoredEvent, preview_bytes: int | None = PREVIEW_BYTES) -> dict[str, Any]:
    """Return an event as an object for JSON; a body longer than `preview_bytes` is cut, and says so."""
    described: dict[str, Any] = {
        "partition": event.partition,
        "sequenceNumber": event.sequence_number,
        "offset": str(event.offset),
        "enqueuedTime": iso_of_ms(event.enqueued_time_ms),
        "partitionKey": None,
        "properties": {},
        "systemProperties": {},
    }
    try:
        message = parse_message(event.encoded)
    except DecodeError as error:
        described["error"] = f"the event is not an AMQP message: {error}"
        return described | _body(event.encoded, preview_bytes)
    annotations = {str(key): _readable(value) for key, value in (message.message_annotations or {}).items()}
    described["partitionKey"] = annotations.pop(PARTITION_KEY, None)
    described["properties"] = properties_of(message)
    described["systemProperties"] = _system_properties(message.properties) | annotations
    described |= _described_body(message, preview_bytes)
    if _schema_named(message.properties) is not None:
        described["format"] = "avro"
    elif _schema_header(message) is not None:
        described["format"] = "framed"
    return described


def properties_of(message: Message) -> dict[str, Any]:
    """Return the application properties as JSON can say them; bytes that are a text as that text."""
    return {str(plain(name)): _readable(value) for name, value in (message.application_properties or {}).items()}


def _readable(value: Any) -> Any:
    """Return a value as JSON can say it; bytes that are a text as that text, such as those of Kafka's headers."""
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            text = value.decode()
            if all(letter.isprintable() or letter.isspace() for letter in text):
                return text
    return plain(value)


def body_of(event: StoredEvent) -> bytes:
    """Return the bytes of an event's body, or of the whole message where they cannot be told apart."""
    try:
        message = parse_message(event.encoded)
    except DecodeError:
        return event.encoded
    if message.body_kind == "data":
        return b"".join(message.body)
    return json.dumps(plain(message.body), ensure_ascii=False).encode("utf-8", "replace")


_AVRO_VALUE = "avro/binary+"


def schema_of(event: StoredEvent) -> str | None:
    """Return the id of the schema that an event's content type names, as Azure's encoder writes it; None for none."""
    try:
        return _schema_named(parse_message(event.encoded).properties)
    except DecodeError:
        return None


def _schema_named(properties: Properties | None) -> str | None:
    content_type = str(properties.content_type or "") if properties is not None else ""
    return content_type.removeprefix(_AVRO_VALUE) if content_type.startswith(_AVRO_VALUE) else None


def schema_header_of(event: StoredEvent) -> bytes | None:
    """Return the header in which Kafka's serializers may name a schema; None if the event has none."""
    try:
        return _schema_header(parse_message(event.encoded))
    except DecodeError:
        return None


def _schema_header(message: Message) -> bytes | None:
    found = (message.application_properties or {}).get(SCHEMA_HEADER)
    return found if isinstance(found, bytes) else None


def _described_body(message: Message, preview_bytes: int | None) -> dict[str, Any]:
    if message.body_kind == "data":
        return _body(b"".join(message.body), preview_bytes)
    if message.body_kind is None:
        return {"size": 0, "kind": "empty", "body": ""}
    text = json.dumps(plain(message.body), ensure_ascii=False)
    return {"size": len(text), "kind": "json", "body": text, "bodyKind": message.body_kind}


def _body(content: bytes, preview_bytes: int | None) -> dict[str, Any]:
    """Return size, kind and text of a body: JSON, other text, or base64 of anything else."""
    described: dict[str, Any] = {"size": len(content)}
    if content.startswith(b"\x1f\x8b"):
        try:
            content = zlib.decompressobj(wbits=31).decompress(content, _MAX_INFLATED)
        except zlib.error:
            pass
        else:
            described["compression"] = "gzip"
    shown = content if preview_bytes is None else content[:preview_bytes]
    if len(shown) < len(content):
        described["isCut"] = True
    if content.startswith(b"\0"):
        described["format"] = "framed"
    if content.startswith(_AVRO):
        return described | {"kind": "binary", "format": "avro", "body": base64.b64encode(shown).decode("ascii")}
    try:
        # The cut may have hit the middle of a character.
        text = shown.decode("utf-8", "strict" if len(shown) == len(content) else "ignore")
    except UnicodeDecodeError:
        return described | {"kind": "binary", "body": base64.b64encode(shown).decode("ascii")}
    if "\x00" in text:
        return described | {"kind": "binary", "body": base64.b64encode(shown).decode("ascii")}
    return described | {"kind": "json" if _is_json(text) else "text", "body": text}


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _system_properties(properties: Properties | None) -> dict[str, Any]:
    if properties is None:
        return {}
    names = (
        "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
        "group_id", "group_sequence", "reply_to_group_id",
    )  # fmt: skip
    found = {name.replace("_", "-"): plain(value) for name in names if (value := getattr(properties, name)) is not None}
    for name, time_ms in (
        ("absolute-expiry-time", properties.absolute_expiry_time_ms),
        ("creation-time", properties.creation_time_ms),
    ):
        if time_ms is not None:
            found[name] = iso_of_ms(time_ms)
    return found


def plain(value: Any) -> Any:
    """Return an AMQP value as JSON can say it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Timestamp):
        return _timestamp(int(value))
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        # A browser's numbers are exact up to 2**53.
        return int(value) if abs(value) <= 1 << 53 else str(int(value))
    if isinstance(value, float):
        return float(value) if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, bytes | Decimal):
        content = value if isinstance(value, bytes) else value.encoded
        return base64.b64encode(content).decode("ascii")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Array):
        return plain(value.items)
    if isinstance(value, Described):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)


def _timestamp(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(time_ms)


Match = Callable[[StoredEvent], bool]

MAX_EVENTS = 500
_CHUNK_BYTES = 4 << 20
_SEARCH_CHUNK = 1000

Cursor = Mapping[str, int]
"""Of each partition, the sequence number to continue at (forwards) or before (backwards)."""


@dataclass(frozen=True, slots=True)
class ReadBudget:
    """What one request may read: events, and seconds."""

    events: int = 200_000
    seconds: float = 0.6
    monotonic_s: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class Browsed:
    """What a request found.

    Attributes:
        events: In the order of arrival.
        forward: Where to continue reading forwards.
        backward: Where to continue reading backwards.
        searched: How many events were looked at.
        extent: How many there were to look at, from where reading began in its direction.
        is_complete: True if there is nothing more in the direction that was read.
        damages: Events that cannot be read, as texts.
    """

    events: list[StoredEvent]
    forward: dict[str, int]
    backward: dict[str, int]
    searched: int
    extent: int
    is_complete: bool
    damages: list[str] = field(default_factory=list)


def chosen_partitions(hub: EventHub, partition_id: str) -> Sequence[Partition]:
    """Return one partition, or all for "". Raises ArgumentOutOfRange."""
    return [hub.partition(partition_id)] if partition_id else hub.partitions


def parse_cursor(text: str) -> dict[str, int]:
    """Return the cursor that `cursor_text` wrote. Raises ArgumentError."""
    cursor = {}
    for part in filter(None, text.split("_")):
        partition, _, number = part.partition("-")
        if not (partition.isdecimal() and number.isdecimal()) or len(part) > 40:
            raise ArgumentError(f"cursor: expected PARTITION-NUMBER_PARTITION-NUMBER…, got {text[:60]!r}")
        cursor[partition] = int(number)
    return cursor


def cursor_text(cursor: Cursor) -> str:
    """Return a cursor in the form of a query parameter."""
    return "_".join(f"{partition}-{number}" for partition, number in cursor.items())


def starting_cursor(partitions: Sequence[Partition], start: str) -> dict[str, int]:
    """Return where to read forwards from.

    Args:
        partitions: The partitions to read.
        start: `earliest`, `latest` (only what is yet to come), `sequence:N`, `offset:N`, or `time:` and an ISO 8601
            time, without an offset in UTC.

    Raises:
        ArgumentError: The position is of no such form.
        LogError: A log cannot be read.
    """
    kind, _, value = start.partition(":")
    if kind == "earliest":
        return {one.partition_id: one.log.begin_sequence_number for one in partitions}
    if kind == "latest":
        return {one.partition_id: one.log.next_sequence_number for one in partitions}
    if kind == "sequence":
        number = _whole(kind, value)
        return {one.partition_id: max(number, one.log.begin_sequence_number) for one in partitions}
    if kind == "offset":
        number = _whole(kind, value)
        return {one.partition_id: one.log.sequence_after_offset(number, inclusive=True) for one in partitions}
    if kind == "time":
        time_ms = parse_time_ms(value)
        return {one.partition_id: one.log.sequence_at_time(time_ms, inclusive=True) for one in partitions}
    raise ArgumentError(
        f"from: expected earliest, latest, sequence:N, offset:N or time:2026-01-31T12:00:00Z, got {start[:60]!r}"
    )


def _whole(kind: str, value: str) -> int:
    if not value.isdecimal() or len(value) > 18:
        raise ArgumentError(f"{kind}: expected a whole number, got {value[:40]!r}")
    return int(value)


def parse_time_ms(value: str) -> int:
    """Return an ISO 8601 time in milliseconds since 1970, in UTC unless it says otherwise. Raises ArgumentError."""
    try:
        when = datetime.fromisoformat(value.strip().replace(" ", "T", 1))
    except ValueError:
        raise ArgumentError(
            f"time: expected an ISO 8601 time such as 2026-01-31T12:00:00Z, got {value[:40]!r}"
        ) from None
    if when.tzinfo is None:
        when = datetime.fromisoformat(f"{when.isoformat()}+00:00")
    return int(when.timestamp() * 1000)


def read_forwards(
    partitions: Sequence[Partition], cursor: Cursor, limit: int, match: Match | None, budget: ReadBudget
) -> Browsed:
    """Return the first `limit` matching events from a cursor on. Raises LogError."""
    reading = _Reading(match, budget)
    positions = {one.partition_id: cursor.get(one.partition_id, one.log.begin_sequence_number) for one in partitions}
    ends = {one.partition_id: one.log.next_sequence_number for one in partitions}
    extent = sum(
        max(0, ends[one.partition_id] - max(positions[one.partition_id], one.log.begin_sequence_number))
        for one in partitions
    )
    chunk = limit if match is None else _SEARCH_CHUNK
    found: list[StoredEvent] = []
    while len(found) < limit and not reading.is_over:
        open_ones = [one for one in partitions if positions[one.partition_id] < ends[one.partition_id]]
        if not open_ones:
            break
        for one in open_ones:
            first = max(positions[one.partition_id], one.log.begin_sequence_number)
            stop = min(first + chunk, ends[one.partition_id])
            events, positions[one.partition_id] = reading.between(one, first, stop)
            found += events
    found.sort(key=_by_arrival)
    is_complete = len(found) <= limit and all(positions[name] >= end for name, end in ends.items())
    for event in reversed(found[limit:]):  # the first that is left for later, of each partition
        positions[event.partition] = event.sequence_number
    found = found[:limit]
    backward = {name: cursor.get(name, 0) for name in positions}
    return Browsed(found, positions, backward, reading.searched, extent, is_complete, reading.damages)


def read_backwards(
    partitions: Sequence[Partition], before: Cursor, limit: int, match: Match | None, budget: ReadBudget
) -> Browsed:
    """Return the last `limit` matching events before a cursor; a partition without one is read from its end.

    Raises LogError.
    """
    reading = _Reading(match, budget)
    ends = {one.partition_id: one.log.next_sequence_number for one in partitions}
    forward = {name: min(before.get(name, end), end) for name, end in ends.items()}
    positions = dict(forward)
    extent = sum(max(0, positions[one.partition_id] - one.log.begin_sequence_number) for one in partitions)
    chunk = limit if match is None else _SEARCH_CHUNK
    found: list[StoredEvent] = []
    while len(found) < limit and not reading.is_over:
        open_ones = [one for one in partitions if positions[one.partition_id] > one.log.begin_sequence_number]
        if not open_ones:
            break
        for one in open_ones:
            stop = positions[one.partition_id]
            first = max(stop - chunk, one.log.begin_sequence_number)
            events, _ = reading.between(one, first, stop)
            positions[one.partition_id] = first
            found += events
    found.sort(key=_by_arrival)
    at_begin = all(positions[one.partition_id] <= one.log.begin_sequence_number for one in partitions)
    is_complete = len(found) <= limit and at_begin
    if len(found) > limit:
        # In each partition, continue before the oldest event shown, or where a newer one was left out.
        left_out = {event.partition: event.sequence_number + 1 for event in found[:-limit]}
        positions.update(left_out)
        found = found[-limit:]
    return Browsed(found, forward, positions, reading.searched, extent, is_complete, reading.damages)


class _Reading:
    """One request's reads, counted against its budget."""

    def __init__(self, match: Match | None, budget: ReadBudget) -> None:
        self._match = match
        self._budget = budget
        self._deadline_s = budget.monotonic_s() + budget.seconds
        self.searched = 0
        self.damages: list[str] = []

    @property
    def is_over(self) -> bool:
        return self.searched >= self._budget.events or self._budget.monotonic_s() > self._deadline_s

    def between(self, partition: Partition, first: int, stop: int) -> tuple[list[StoredEvent], int]:
        """Return the matching events of a range, and where reading has come to. Raises LogError."""
        found = []
        for event in self._events(partition, first, stop):
            self.searched += 1
            if self._match is None or self._match(event):
                found.append(event)
        return found, stop

    def _events(self, partition: Partition, first: int, stop: int) -> Iterator[StoredEvent]:
        position = first
        while position < stop:
            try:
                batches = partition.log.read_batches(position, max_bytes=_CHUNK_BYTES, max_events=stop - position)
            except LogDamaged as damage:
                resume = damage.resume_sequence_number
                self.damages.append(
                    f"partition {partition.partition_id}: events {position} to {resume - 1} are damaged"
                )
                position = resume
                continue
            if not batches:
                return
            for batch in batches:
                for at, (offset, encoded) in enumerate(zip(batch.offsets, batch.events, strict=True)):
                    number = batch.base_sequence_number + at
                    if number >= stop:
                        return
                    yield StoredEvent(partition.partition_id, number, offset, batch.enqueued_time_ms, encoded)
                    position = number + 1


def _by_arrival(event: StoredEvent) -> tuple[int, int, int]:
    return event.order
