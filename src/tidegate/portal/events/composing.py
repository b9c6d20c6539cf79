"""Composing events from what a page, or a script, asks to send."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.amqp.encoding.errors import EncodeError
from tidegate.amqp.encoding.types import Symbol
from tidegate.amqp.messages.message import Message, Properties, encode_message
from tidegate.hub.errors import ArgumentError
from tidegate.portal.events.placeholders import Series, Template
from tidegate.portal.web.fields import integer_of, text_of

MAX_REPEAT = 100_000
MAX_PROPERTIES = 100
_BATCH_EVENTS = 500
_BATCH_BYTES = 200_000
_PARTITION_KEY = "x-opt-partition-key"


@dataclass(frozen=True, slots=True)
class Composed:
    """An event that is ready to be published."""

    partition_key: str | None
    body: str
    properties: dict[str, Any]
    encoded: bytes


class Composition:
    """A body, a key and properties, any of them with placeholders."""

    def __init__(self, request: Any, seed: int | None = None) -> None:
        """Read a request: `body`, `contentType`, `partitionKey`, `partition`, `properties`. Raises ArgumentError.

        A property is an object with `name`, `value` and `type`: `text`, `number` or `boolean`. The seed makes the
        random values the same each time, for a preview that shows what is sent.
        """
        if not isinstance(request, dict):
            raise ArgumentError("expected a JSON object")
        self.partition = text_of(request, "partition")
        self._body = Template(text_of(request, "body"))
        self._content_type = text_of(request, "contentType").strip()
        self._key = Template(text_of(request, "partitionKey"))
        if self.partition and not (self._key.is_constant and not text_of(request, "partitionKey")):
            raise ArgumentError("a partition key chooses the partition: give one of them, not both")
        properties = request.get("properties", [])
        if not isinstance(properties, list) or len(properties) > MAX_PROPERTIES:
            raise ArgumentError(f"properties: expected a list of at most {MAX_PROPERTIES}")
        self._properties = [_property(entry) for entry in properties]
        self.series = Series(random.Random(seed))

    def next(self) -> Composed:
        """Return the next event. Raises ArgumentError if a value is not of its type or has no AMQP encoding."""
        series = self.series
        body = self._body.fill(series)
        key = self._key.fill(series) or None
        properties = {name: _typed(name, kind, template.fill(series)) for name, kind, template in self._properties}
        series.index += 1
        message = Message(
            message_annotations=None if key is None else {Symbol(_PARTITION_KEY): key},
            properties=Properties(content_type=Symbol(self._content_type)) if self._content_type else None,
            application_properties=properties or None,
            body_kind="data",
            body=[body.encode("utf-8", "replace")],
        )
        try:
            return Composed(key, body, properties, encode_message(message))
        except EncodeError as error:
            raise ArgumentError(f"a property or the partition key has no AMQP encoding: {error}") from None

    def preview(self, count: int) -> list[dict[str, Any]]:
        """Return the next events as objects for JSON."""
        return [
            {"partitionKey": event.partition_key, "body": event.body, "properties": event.properties}
            for event in (self.next() for _ in range(count))
        ]

    def batches(self, count: int) -> Iterator[tuple[str | None, Sequence[bytes]]]:
        """Yield the next events in batches of one partition key, each small enough for one publication.

        Events with the same key keep their order.
        """
        waiting: dict[str | None, list[bytes]] = {}
        sizes: dict[str | None, int] = {}
        for _ in range(count):
            event = self.next()
            key, size = event.partition_key, len(event.encoded)
            if key in waiting and (len(waiting[key]) >= _BATCH_EVENTS or sizes[key] + size > _BATCH_BYTES):
                yield key, waiting.pop(key)
                del sizes[key]
            waiting.setdefault(key, []).append(event.encoded)
            sizes[key] = sizes.get(key, 0) + size
        yield from waiting.items()


def repeat_of(request: Any) -> int:
    """Return how many events a request asks for. Raises ArgumentError."""
    return integer_of(request, "repeat", 1, 1, MAX_REPEAT)


def _property(entry: Any) -> tuple[str, str, Template]:
    name, kind = text_of(entry, "name").strip(), text_of(entry, "type", "text")
    if not name:
        raise ArgumentError("properties: every property needs a name")
    if kind not in ("text", "number", "boolean"):
        raise ArgumentError(f"property {name!r}: the type is text, number or boolean, not {kind[:40]!r}")
    return name, kind, Template(text_of(entry, "value"))


def _typed(name: str, kind: str, text: str) -> str | int | float | bool:
    if kind == "text":
        return text
    try:
        value = json.loads(text.strip())
    except ValueError:
        value = None
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind == "number" and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    raise ArgumentError(f"property {name!r}: {text[:40]!r} is not a {kind}")
