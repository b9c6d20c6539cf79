"""Publishing composed events, at once or at a steady rate until stopped, through the hub's own access control."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.amqp.encoding.types import EncodeError, Symbol
from tidegate.amqp.messages import Message, Properties, encode_message
from tidegate.hub.access import Grant
from tidegate.hub.errors import ArgumentError, HubError, NotFound, QuotaExceeded, ServerBusy
from tidegate.hub.namespace import Namespace
from tidegate.portal.events.placeholders import PlaceholderText, Series
from tidegate.portal.web.handling import integer_of, text_of
from tidegate.portal.web.rendering import iso_of_ms
from tidegate.server.context.completions import Completions

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
        self._body = PlaceholderText(text_of(request, "body"))
        self._content_type = text_of(request, "contentType").strip()
        self._key = PlaceholderText(text_of(request, "partitionKey"))
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


def _property(entry: Any) -> tuple[str, str, PlaceholderText]:
    name, kind = text_of(entry, "name").strip(), text_of(entry, "type", "text")
    if not name:
        raise ArgumentError("properties: every property needs a name")
    if kind not in ("text", "number", "boolean"):
        raise ArgumentError(f"property {name!r}: the type is text, number or boolean, not {kind[:40]!r}")
    return name, kind, PlaceholderText(text_of(entry, "value"))


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


_logger = logging.getLogger(__name__)

MAX_GENERATORS = 20
MAX_RATE = 10_000.0
_TICK_S = 0.1
_TIMEOUT_S = 60.0
_SLICE_EVENTS = 500


class EventSender:
    """Publishes to the hubs of one namespace, on the event loop."""

    def __init__(self, namespace: Namespace, completions: Completions) -> None:
        self._namespace = namespace
        self._completions = completions

    async def send(self, hub: str, composition: Composition, count: int, grant: Grant) -> int:
        """Publish the next events of a composition, and return how many are durable: all of them.

        Raises:
            HubError: They are refused. Those of earlier batches may be stored.
        """
        address = f"{hub}/Partitions/{composition.partition}" if composition.partition else hub
        publisher = self._namespace.open_publisher(address, [grant], time.time())
        try:
            for first in range(0, count, _SLICE_EVENTS):  # other clients have their turn in between
                for key, events in composition.batches(min(_SLICE_EVENTS, count - first)):
                    async with asyncio.timeout(_TIMEOUT_S):
                        await self._completions.publish(publisher, events, key)
        except TimeoutError:
            raise ServerBusy("the events were not durable in time; they may still become so") from None
        finally:
            publisher.close()
        return count


@dataclass(slots=True)
class Generator:
    """Sample data that is being sent at a steady rate."""

    identifier: int
    hub: str
    rate: float
    started_by: str
    stops_at_s: float | None
    composition: Composition
    sent: int = 0
    error: str = ""
    started_at_s: float = field(default_factory=time.time)

    def as_json(self) -> dict[str, Any]:
        """Return it as the page shows it."""
        return {
            "id": self.identifier,
            "hub": self.hub,
            "rate": self.rate,
            "sent": self.sent,
            "error": self.error,
            "startedBy": self.started_by,
            "startedAt": iso_of_ms(int(self.started_at_s * 1000)),
            "stopsAt": None if self.stops_at_s is None else iso_of_ms(int(self.stops_at_s * 1000)),
        }


class Generators:
    """The generators of one server. They end with it."""

    def __init__(self, sender: EventSender) -> None:
        self._sender = sender
        self._numbers = itertools.count(1)
        self._running: dict[int, tuple[Generator, asyncio.Task[None]]] = {}

    def of_hub(self, hub: str) -> list[Generator]:
        """Return the generators of a hub."""
        return [one for one, _ in self._running.values() if one.hub == hub]

    def start(
        self, hub: str, composition: Composition, rate: float, seconds: float | None, grant: Grant, name: str
    ) -> Generator:
        """Send `rate` events a second until stopped, or for some seconds. Raises ArgumentError, QuotaExceeded."""
        if not 0 < rate <= MAX_RATE:
            raise ArgumentError(f"rate: expected more than 0 and at most {MAX_RATE:,.0f} events a second, got {rate}")
        if len(self._running) >= MAX_GENERATORS:
            raise QuotaExceeded(f"{MAX_GENERATORS} generators are running; stop one of them first")
        stops_at_s = None if seconds is None else time.time() + seconds
        made = Generator(next(self._numbers), hub, rate, name, stops_at_s, composition)
        task = asyncio.get_running_loop().create_task(self._run(made, grant))
        self._running[made.identifier] = made, task
        return made

    def stop(self, hub: str, identifier: int) -> Generator:
        """Stop a generator, or forget one that has failed. Raises NotFound."""
        found = self._running.get(identifier)
        if found is None or found[0].hub != hub:
            raise NotFound(f"the hub {hub} has no generator {identifier}; it may have ended")
        del self._running[identifier]
        found[1].cancel()
        return found[0]

    async def end(self) -> None:
        """Stop them all, and wait until they have stopped."""
        tasks = [task for _, task in self._running.values()]
        self._running.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, generator: Generator, grant: Grant) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            while generator.stops_at_s is None or time.time() < generator.stops_at_s:
                due = int((loop.time() - began_s) * generator.rate) + 1 - generator.sent
                # After a pause, such as a laptop's sleep, it does not send what it has missed.
                if due > generator.rate + 1:
                    began_s += (due - 1) / generator.rate
                    due = 1
                if due > 0:
                    try:
                        generator.sent += await self._sender.send(generator.hub, generator.composition, due, grant)
                        generator.error = ""
                    except ServerBusy as error:
                        generator.error = f"waiting: {error.description}"
                        began_s += due / generator.rate
                await asyncio.sleep(max(_TICK_S, min(1 / generator.rate, 5.0)))
        except HubError as error:
            generator.error = f"stopped: {error.description}"
            _logger.warning("portal: the generator %d of %s stopped: %s", generator.identifier, generator.hub, error)
            return
        except Exception:
            generator.error = "stopped by an error; see the log"
            _logger.exception("portal: the generator %d of %s stopped", generator.identifier, generator.hub)
            return
        self._running.pop(generator.identifier, None)
