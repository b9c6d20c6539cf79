"""An event as JSON: what the explorer shows of a stored message."""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidegate.amqp.encoding.types import Array, Decimal, Described, Timestamp
from tidegate.amqp.messages.message import DecodeError, Message, Properties, parse_message
from tidegate.portal.web.rendering import iso_of_ms

PREVIEW_BYTES = 64 << 10
_MAX_INFLATED = 8 << 20
_PARTITION_KEY = "x-opt-partition-key"


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
    annotations = {str(key): plain(value) for key, value in (message.message_annotations or {}).items()}
    described["partitionKey"] = annotations.pop(_PARTITION_KEY, None)
    described["properties"] = plain(message.application_properties or {})
    described["systemProperties"] = _system_properties(message.properties) | annotations
    return described | _described_body(message, preview_bytes)


def body_of(event: StoredEvent) -> bytes:
    """Return the bytes of an event's body, or of the whole message where they cannot be told apart."""
    try:
        message = parse_message(event.encoded)
    except DecodeError:
        return event.encoded
    if message.body_kind == "data":
        return b"".join(message.body)
    return json.dumps(plain(message.body), ensure_ascii=False).encode("utf-8", "replace")


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
