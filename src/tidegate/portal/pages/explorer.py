"""`/eventhubs/NAME/explorer`: send events to a hub, and browse those that it holds."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from tidegate.hub.access_rules import Right
from tidegate.hub.config import EventHubConfig
from tidegate.hub.errors import ArgumentError, NotFound, Unauthorized
from tidegate.hub.event_hub import EventHub
from tidegate.hub.partition import Partition
from tidegate.hub.schema_state import SchemaRefused
from tidegate.kafka.value_schemas import named_schema
from tidegate.portal.events.placeholders import PLACEHOLDERS, SAMPLES
from tidegate.portal.events.reading import (
    MAX_EVENTS,
    Browsed,
    Match,
    ReadBudget,
    StoredEvent,
    body_of,
    chosen_partitions,
    cursor_text,
    describe,
    parse_cursor,
    read_backwards,
    read_forwards,
    schema_header_of,
    schema_of,
    starting_cursor,
)
from tidegate.portal.events.searching import parse_search
from tidegate.portal.events.sending import MAX_RATE, Composition, EventSender, Generators, repeat_of
from tidegate.portal.pages.event_hub import HUB
from tidegate.portal.web.handling import Desk, integer_of, text_of
from tidegate.portal.web.rendering import iso_of_ms, security_headers
from tidegate.portal.web.sessions import Visitor, VisitorRole
from tidegate.schemas import SchemaError, SchemaFormat, SchemaText
from tidegate.schemas import protobuf as protobuf_schemas

DEFAULT_EVENTS = 50
MAX_DOWNLOADED = 100_000
PREVIEWS = 3
SAMPLE_HUB = "tolls"
SAMPLE_EVENTS, SAMPLE_RATE, SAMPLE_S = 200, 10.0, 3600.0
"""How many sample events a first visitor gets at once, and how many a second for how long."""
_COMPOSED = ("body", "contentType", "partitionKey", "partition", "properties", "repeat")
"""What a request says of the events to send."""
_NEWEST = "newest"
_MAX_SECONDS = 86_400.0


class Decode(Protocol):
    """Returns what a body says, as JSON."""

    async def __call__(self, body: bytes, **schema: Any) -> Mapping[str, Any]:
        """Decode a container, or a value of the schema that is given with what it imports. Raises HubError."""


class ExplorerPages:
    """The handlers of the data explorer."""

    def __init__(self, desk: Desk, now_s: Any, decode: Decode | None = None) -> None:
        """Prepare the handlers.

        Args:
            desk: what all handlers share.
            now_s: the clock that the hub checks tokens by.
            decode: returns what a body in Avro or Protobuf says; None where there is no engine.
        """
        self._desk = desk
        self._decode = decode
        self._now_s = now_s
        hub = desk.http.hub
        self._namespace = hub.namespace
        self._sender = EventSender(hub.namespace, hub.completions)
        self._generators = Generators(self._sender)

    async def end(self) -> None:
        """Stop the generators, as the hub stops."""
        await self._generators.end()

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        desk, sender = self._desk, VisitorRole.CONTRIBUTOR
        return [
            desk.action("/samples", self._start_sample, VisitorRole.MANAGER),
            desk.data(f"{HUB}/events.json", self._events),
            desk.download(f"{HUB}/events/download", self._download),
            desk.download(f"{HUB}/events/{{partition}}/{{number:int}}/body", self._body),
            desk.data(f"{HUB}/events/{{partition}}/{{number:int}}.json", self._event),
            desk.data(f"{HUB}/events/{{partition}}/{{number:int}}/decoded.json", self._decoded),
            desk.action(f"{HUB}/preview", self._preview, VisitorRole.READER, _COMPOSED),
            desk.action(f"{HUB}/send", self._send, sender, _COMPOSED),
            desk.data(f"{HUB}/generators.json", self._list_generators),
            desk.action(f"{HUB}/generators", self._start_generator, sender, (*_COMPOSED, "rate", "seconds")),
            desk.action(f"{HUB}/generators/{{number:int}}/stop", self._stop_generator, sender),
            *desk.page(f"{HUB}/explorer", "explorer.html", self._show),
        ]

    def _hub(self, request: Request, visitor: Visitor) -> EventHub:
        """Return the hub that a visitor may read. Raises NotFound, Unauthorized."""
        hub = self._namespace.event_hub(request.path_params["hub"])
        self._namespace.access.authorize([visitor.grant], Right.LISTEN, (hub.name.lower(),), self._now_s())
        return hub

    async def _show(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        hub = self._hub(request, visitor)
        return {
            "name": hub.name,
            "namespace": self._namespace.name,
            "partitionIds": [partition.partition_id for partition in hub.partitions],
            "chosen": {
                name: request.query_params.get(name, "") for name in ("partition", "from", "value", "search", "limit")
            },
            "browsed": await self._events(request, visitor),
            "generators": [one.as_json() for one in self._generators.of_hub(hub.name)],
            "samples": [
                {"name": one.name, "title": one.title, "partitionKey": one.partition_key, "body": one.body}
                for one in SAMPLES
            ],
            "placeholders": [{"usage": one.usage, "help": one.help} for one in PLACEHOLDERS.values()],
            "maxRate": MAX_RATE,
        }

    async def _events(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        hub = self._hub(request, visitor)
        query = request.query_params
        partitions = chosen_partitions(hub, query.get("partition", ""))
        match = parse_search(query.get("search", ""))
        limit = integer_of({"limit": query.get("limit") or DEFAULT_EVENTS}, "limit", DEFAULT_EVENTS, 1, MAX_EVENTS)
        browsed = await run_in_threadpool(_browse, partitions, query, limit, match, ReadBudget())
        return {
            "events": [describe(event) for event in browsed.events],
            "forward": cursor_text(browsed.forward),
            "backward": cursor_text(browsed.backward),
            "searched": browsed.searched,
            "extent": browsed.extent,
            "isComplete": browsed.is_complete,
            "damages": browsed.damages,
        }

    async def _event(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        event = await run_in_threadpool(_one, self._hub(request, visitor), request.path_params)
        return describe(event, None)

    async def _decoded(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        """Return what an event's body says that is an Avro container, or whose schema is in the registry."""
        event = await run_in_threadpool(_one, self._hub(request, visitor), request.path_params)
        body, version = body_of(event), None
        if (own_id := schema_of(event)) is not None:
            version = self._namespace.schema_registry.with_own_id(own_id)
        elif (found := named_schema(body, schema_header_of(event))) is not None:
            name, body = found
            registry = self._namespace.schema_registry
            try:
                version = (registry.with_id(name) if isinstance(name, int) else registry.with_content_id(name))[0]
            except SchemaRefused:  # a zero byte may begin anything
                return {"count": 0, "records": [], "schema": None}
        named = None if version is None else f"{version.subject} version {version.version}, id {version.schema_id}"
        if version is not None and version.schema.format is SchemaFormat.JSON:
            return {"count": 1, "records": [_json(body)], "schema": named}
        if version is not None and version.schema.format is SchemaFormat.CUSTOM:
            raise ArgumentError(f"the body is of the schema {named}, whose format is not decoded here")
        if self._decode is None:
            raise NotFound("this hub runs without jobs, whose engine decodes Avro and Protobuf")
        if version is None:
            question: Mapping[str, Any] = {}
        elif version.schema.format is SchemaFormat.PROTOBUF:
            question = await run_in_threadpool(_as_descriptors, version.schema)
        else:
            question = {"schema": version.schema.text, "imported": list(version.schema.imported.values())}
        return {**await self._decode(body, **question), "schema": named}

    async def _body(self, request: Request, visitor: Visitor) -> Response:
        hub = self._hub(request, visitor)
        event = await run_in_threadpool(_one, hub, request.path_params)
        described = describe(event)
        extension = {"json": "json", "text": "txt"}.get(described["kind"], "bin")
        name = f"{hub.name}-{event.partition}-{event.sequence_number}.{extension}"
        return Response(body_of(event), media_type="application/octet-stream", headers=_attachment(name))

    async def _download(self, request: Request, visitor: Visitor) -> Response:
        """Return events as a file, read and written piece by piece."""
        hub = self._hub(request, visitor)
        query = request.query_params
        form = query.get("format", "jsonl")
        if form not in _FORMATS:
            raise ArgumentError(f"format: expected {' or '.join(_FORMATS)}, got {form[:20]!r}")
        partitions = chosen_partitions(hub, query.get("partition", ""))
        match = parse_search(query.get("search", ""))
        limit = integer_of(query, "limit", 10_000, 1, MAX_DOWNLOADED)
        start = await run_in_threadpool(_download_start, partitions, query)
        media_type, lines = _FORMATS[form]
        check = partial(self._desk.sessions.check, visitor)
        pieces = _while_valid(lines(_all_events(partitions, start, limit, match)), check)
        return StreamingResponse(pieces, media_type=media_type, headers=_attachment(f"{hub.name}.{form}"))

    async def _preview(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        composition = Composition(body, seed=random.randrange(1 << 32))
        return {"events": composition.preview(min(PREVIEWS, repeat_of(body)))}

    async def _send(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        hub = self._namespace.event_hub(request.path_params["hub"])
        count = repeat_of(body)
        sent = await self._sender.send(hub.name, Composition(body), count, visitor.grant)
        self._desk.http.hub.metrics.publications += 1
        self._desk.http.hub.metrics.request(hub.name)
        return {"sent": sent}

    async def _start_sample(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        """Fill a hub with sample events, which is made if there is none, for an hour."""
        if SAMPLE_HUB not in self._namespace.event_hubs:
            made = EventHubConfig(name=SAMPLE_HUB, partition_count=2)
            await run_in_threadpool(self._namespace.management.create_event_hub, made)
        if not self._generators.of_hub(SAMPLE_HUB):
            (tolls,) = [one for one in SAMPLES if one.name == SAMPLE_HUB]
            event = {"body": tolls.body, "partitionKey": tolls.partition_key}
            await self._sender.send(SAMPLE_HUB, Composition(event), SAMPLE_EVENTS, visitor.grant)
            self._generators.start(SAMPLE_HUB, Composition(event), SAMPLE_RATE, SAMPLE_S, visitor.grant, visitor.name)
        return {"name": SAMPLE_HUB}

    async def _list_generators(self, request: Request, visitor: Visitor) -> Mapping[str, Any]:
        hub = self._hub(request, visitor)
        return {"generators": [one.as_json() for one in self._generators.of_hub(hub.name)]}

    async def _start_generator(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        hub = self._namespace.event_hub(request.path_params["hub"])
        Composition(body).preview(1)  # a value that is not of its type is a mistake of the form
        composition = Composition(body)
        rate, seconds = _number(body, "rate"), _number(body, "seconds")
        if rate is None:
            raise ArgumentError("rate: how many events a second?")
        if seconds is not None and not 0 < seconds <= _MAX_SECONDS:
            raise ArgumentError(f"seconds: expected more than 0 and at most {_MAX_SECONDS:,.0f}")
        made = self._generators.start(hub.name, composition, rate, seconds, visitor.grant, visitor.name)
        return made.as_json()

    async def _stop_generator(self, request: Request, visitor: Visitor, body: Any) -> Mapping[str, Any]:
        hub = self._namespace.event_hub(request.path_params["hub"])
        return self._generators.stop(hub.name, request.path_params["number"]).as_json()


def _browse(
    partitions: Sequence[Partition], query: Mapping[str, str], limit: int, match: Match | None, budget: ReadBudget
) -> Browsed:
    """Read what a query asks for: after or before a cursor, from a position on, or the newest events."""
    if query.get("after"):
        return read_forwards(partitions, parse_cursor(query["after"]), limit, match, budget)
    if query.get("before"):
        return read_backwards(partitions, parse_cursor(query["before"]), limit, match, budget)
    start = _start(query)
    if start == _NEWEST:
        return read_backwards(partitions, {}, limit, match, budget)
    return read_forwards(partitions, starting_cursor(partitions, start), limit, match, budget)


def _start(query: Mapping[str, str]) -> str:
    """Return the position that a query names: `from=time:…`, or `from=time&value=…` as a form sends it."""
    start, value = query.get("from", "") or _NEWEST, query.get("value", "").strip()
    return f"{start}:{value}" if start in ("sequence", "offset", "time") else start


def _download_start(partitions: Sequence[Partition], query: Mapping[str, str]) -> dict[str, int]:
    start = _start(query)
    if query.get("after"):
        return parse_cursor(query["after"])
    return starting_cursor(partitions, "earliest" if start == _NEWEST else start)


def _one(hub: EventHub, names: Mapping[str, Any]) -> StoredEvent:
    """Return one event. Raises NotFound, ArgumentOutOfRange, LogError."""
    partition, number = hub.partition(names["partition"]), names["number"]
    if partition.log.begin_sequence_number <= number < partition.log.next_sequence_number:
        for batch in partition.log.read_batches(number, max_events=1):
            found = StoredEvent(
                partition.partition_id, number, batch.offsets[0], batch.enqueued_time_ms, batch.events[0]
            )
            if batch.base_sequence_number == number:
                return found
    raise NotFound(f"partition {partition.partition_id} of {hub.name} holds no event {number}")


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ArgumentError("the body is not JSON, as its schema says") from None


_CHECK_EVERY = 100


def _all_events(
    partitions: Sequence[Partition], cursor: Mapping[str, int], limit: int, match: Match | None
) -> Iterator[StoredEvent]:
    ends = {one.partition_id: one.log.next_sequence_number for one in partitions}
    while limit > 0:
        page = read_forwards(partitions, cursor, min(limit, MAX_EVENTS), match, ReadBudget())
        yield from page.events
        limit -= len(page.events)
        cursor = page.forward
        if page.is_complete or all(cursor[name] >= end for name, end in ends.items()):
            return


def _while_valid(lines: Iterator[bytes], check: Callable[[], None]) -> Iterator[bytes]:
    """Yield lines until the visitor's key ends; a last line then says so, which no program takes for an event."""
    for number, line in enumerate(lines):
        if number % _CHECK_EVERY == 0:
            try:
                check()
            except Unauthorized:
                yield b"# the rest is missing: the key of this session is no longer valid\n"
                return
        yield line


def _json_lines(events: Iterator[StoredEvent]) -> Iterator[bytes]:
    for event in events:
        described = describe(event, None)
        if described["kind"] == "json":
            described["body"] = json.loads(described["body"])
        yield json.dumps(described, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _bodies(events: Iterator[StoredEvent]) -> Iterator[bytes]:
    for event in events:
        yield body_of(event) + b"\n"


def _csv(events: Iterator[StoredEvent]) -> Iterator[bytes]:
    def line(values: Sequence[Any]) -> bytes:
        text = io.StringIO()
        csv.writer(text).writerow(values)
        return text.getvalue().encode("utf-8", "replace")

    yield line(["enqueuedTime", "partition", "sequenceNumber", "offset", "partitionKey", "properties", "body"])
    for event in events:
        described = describe(event, None)
        yield line(
            [
                iso_of_ms(event.enqueued_time_ms),
                event.partition,
                event.sequence_number,
                event.offset,
                described["partitionKey"] or "",
                json.dumps(described["properties"], ensure_ascii=False) if described["properties"] else "",
                described["body"],
            ]
        )


_FORMATS = {
    "jsonl": ("application/x-ndjson", _json_lines),
    "csv": ("text/csv; charset=utf-8", _csv),
    "txt": ("text/plain; charset=utf-8", _bodies),
}


def _attachment(name: str) -> dict[str, str]:
    safe = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in name)
    return security_headers() | {"Content-Disposition": f'attachment; filename="{safe}"'}


def _number(body: Any, name: str) -> float | None:
    value = body.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(f"{name}: expected a number, got {text_of(body, name)[:40]!r}")
    return float(value)


def _as_descriptors(schema: SchemaText) -> Mapping[str, Any]:
    """Return a schema of Protobuf and what it imports, compiled. Raises ArgumentError."""
    try:
        imported = {
            name: protobuf_schemas.as_descriptor(text, schema.imported) for name, text in schema.imported.items()
        }
        whole = protobuf_schemas.as_descriptor(schema.text, schema.imported)
    except SchemaError as error:
        raise ArgumentError(f"the schema of the body cannot be compiled: {error}") from None
    return {"format": "protobuf", "schema": whole, "imported": imported}
