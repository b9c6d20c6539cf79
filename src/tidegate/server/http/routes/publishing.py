"""`POST /{hub}/messages` and its like: publishing by HTTP.

Requests and answers: https://learn.microsoft.com/rest/api/eventhub/event-hubs-runtime-rest
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidegate.amqp.encoding.codec import encode
from tidegate.amqp.encoding.types import EncodeError, Symbol
from tidegate.amqp.messages import Message, Properties, encode_message
from tidegate.hub.addresses import path_of
from tidegate.hub.errors import ArgumentError, HubError, ServerBusy, Unauthorized
from tidegate.server.context.metrics import hub_in
from tidegate.server.http.protocol import SPELLING
from tidegate.server.http.refusals import error_answer, read_body
from tidegate.server.http.routing import HttpContext, Operations, RouteGroup, path_parameters, register

BATCH_CONTENT_TYPE = "application/vnd.microsoft.servicebus.json"
# What HTTP itself needs; any other header of a single event's request is one of its user properties.
# fmt: off
_TRANSPORT_HEADERS = frozenset({
    "accept", "accept-encoding", "accept-language", "authorization", "brokerproperties",
    "cache-control", "connection", "content-length", "content-type", "date", "expect", "host",
    "origin", "pragma", "referer", "te", "traceparent", "tracestate", "transfer-encoding",
    "upgrade", "user-agent",
})
# fmt: on


def parse_publication(
    headers: Mapping[str, str], body: bytes, spelling: Mapping[str, str] = MappingProxyType({})
) -> tuple[list[bytes], str | None]:
    """The events of a request as encoded AMQP messages, and their partition key. Raises ArgumentError.

    The headers' names are in lower case; `spelling` says how they were sent.
    """
    headers = {name: _as_sent(value) for name, value in headers.items()}
    content_type = headers.get("content-type", "")
    broker_properties = _json_object(headers.get("brokerproperties", "{}"), "BrokerProperties")
    key = _partition_key(broker_properties)
    if content_type.split(";")[0].strip().lower() != BATCH_CONTENT_TYPE:
        properties = {
            spelling.get(name, name): _header_value(value)
            for name, value in headers.items()
            if name not in _TRANSPORT_HEADERS
        }
        return [_encode(body, properties, key, content_type)], key
    try:
        entries = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"the batch is not JSON: {error}") from None
    if not isinstance(entries, list) or not entries:
        raise ArgumentError("a batch is a JSON array of at least one event")
    return _parse_batch(entries, key)


def _parse_batch(entries: list[Any], key: str | None) -> tuple[list[bytes], str | None]:
    keys = {key} - {None}
    parsed: list[tuple[bytes, dict[str, Any]]] = []
    for position, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("Body"), str):
            raise ArgumentError(f"event {position} of the batch has no Body that is a string")
        properties = _json_object(entry.get("UserProperties") or {}, f"UserProperties of event {position}")
        if not all(value is None or isinstance(value, str | int | float) for value in properties.values()):
            raise ArgumentError(f"UserProperties of event {position} may hold texts, numbers and booleans")
        own = _partition_key(_json_object(entry.get("BrokerProperties") or {}, f"BrokerProperties of event {position}"))
        keys |= {own} - {None}
        try:
            body = entry["Body"].encode()
        except UnicodeEncodeError:
            raise ArgumentError(f"the Body of event {position} of the batch holds half a character") from None
        parsed.append((body, properties))
    if len(keys) > 1:
        raise ArgumentError("all events of a batch must have the same partition key")
    shared = next(iter(keys), None)
    return [
        _encode(body, properties, shared, None, f"event {position} of the batch: ")
        for position, (body, properties) in enumerate(parsed)
    ], shared


def _encode(
    body: bytes, properties: dict[str, Any], key: str | None, content_type: str | None, where: str = ""
) -> bytes:
    message = Message(
        message_annotations={Symbol("x-opt-partition-key"): key} if key is not None else None,
        properties=Properties(content_type=Symbol(content_type)) if content_type else None,
        application_properties=properties or None,
        body_kind="data",
        body=[body],
    )
    try:
        return encode_message(message)
    except EncodeError:
        names = [name for name, value in properties.items() if not (_is_encodable(name) and _is_encodable(value))]
        what = f"the user property {names[0]!a}" if names else "the partition key or the content type"
        raise ArgumentError(
            f"{where}{what} has no AMQP encoding: a whole number has at most 64 bits with its sign, and a text no half"
            " a character"
        ) from None


def _is_encodable(value: Any) -> bool:
    try:
        encode(value)
    except EncodeError:
        return False
    return True


def _partition_key(broker_properties: dict[str, Any]) -> str | None:
    key = broker_properties.get("PartitionKey")
    if key is not None and not isinstance(key, str):
        raise ArgumentError("BrokerProperties: PartitionKey must be a string")
    return key


def _json_object(value: Any, name: str) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ArgumentError(f"{name} is not JSON") from None
    if not isinstance(value, dict):
        raise ArgumentError(f"{name} must be a JSON object")
    return value


def _as_sent(value: str) -> str:
    """Return a header's value, which came as ISO 8859-1, as its sender wrote it: in UTF-8 if it can be."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def _header_value(text: str) -> str | int | float | bool:
    """Text is in double quotes, numbers and booleans are bare, as in the REST interface; anything else is text.

    So is a number that AMQP cannot hold, such as the unsigned 64-bit identifiers that tracers add to every request.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, str | int | float) or not _is_encodable(value):
        return text
    return text if isinstance(value, float) and math.isinf(value) else value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


DEFAULT_TIMEOUT_S = 60.0
_ERROR = {"description": "refused", "content": {"application/xml": {"schema": {"type": "string"}}}}
_PATHS = (
    ("/{hub}/messages", "sendEvents", "publish to an event hub"),
    ("/{hub}/partitions/{partition}/messages", "sendPartitionEvents", "publish to a partition"),
    ("/{hub}/publishers/{publisher}/messages", "sendPublisherEvents", "publish as a publisher"),
    ("/{hub}/publisher/{publisher}/messages", "sendPublisherEventsSingular", "the same, as some clients spell it"),
)


def _routes(context: HttpContext) -> list[Route]:
    async def messages(request: Request) -> Response:
        return await _answer(context, request)

    return [Route(path, messages, methods=["POST"]) for path, _, _ in _PATHS]


def _describe() -> Operations:
    return {path: {"post": _operation(path, name, summary)} for path, name, summary in _PATHS}


def _operation(path: str, name: str, summary: str) -> dict[str, Any]:
    body = {
        "required": True,
        "description": "one event as it is, or a batch of them as JSON",
        "content": {"*/*": {}, BATCH_CONTENT_TYPE: {"schema": {"type": "array"}}},
    }
    responses = {"201": {"description": "stored durably"}, "default": _ERROR}
    return {
        "operationId": name,
        "summary": summary,
        "tags": ["publishing"],
        "parameters": path_parameters(path),
        "requestBody": body,
        "responses": responses,
    }


async def _answer(context: HttpContext, request: Request) -> Response:
    hub = hub_in(context.hub.namespace, request.url.path)
    context.hub.metrics.request(hub)
    try:
        await _publish(context, request)
    except HubError as error:
        context.refusals.record(request, error, hub=hub)
        return error_answer(error.http_status, error.description)
    context.hub.metrics.publications += 1
    return Response(status_code=201)


async def _publish(context: HttpContext, request: Request) -> None:
    namespace = context.hub.namespace
    authorization = request.headers.get("authorization")
    if authorization is None:
        raise Unauthorized("the Authorization header with a shared access signature is missing")
    grant = namespace.access.check_token(authorization, time.time())
    address = request.url.path.removeprefix("/").removesuffix("/messages").replace("/publisher/", "/publishers/")
    if grant.scope == path_of(request.url.path):
        # signed for the very URL, as many scripts do: it covers what the URL publishes to
        grant = replace(grant, scope=path_of(address))
    publisher = namespace.open_publisher(address, [grant], time.time())
    try:
        body = await read_body(request, publisher.max_message_bytes, context.hub.settings.body_timeout_s)
        publisher.renew([grant], time.time())  # the body may have taken long
        spelling = request.scope.get("state", {}).get(SPELLING, {})
        events, partition_key = parse_publication(request.headers, body, spelling)
        async with asyncio.timeout(_timeout_s(request)):
            await context.hub.completions.publish(publisher, events, partition_key)
    except TimeoutError:
        raise ServerBusy("the publication was not durable in time; it may still become so") from None
    finally:
        publisher.close()


def _timeout_s(request: Request) -> float:
    text = request.query_params.get("timeout", "")
    asked_s = float(text) if text.isdecimal() else 0.0
    return min(asked_s, DEFAULT_TIMEOUT_S) if asked_s > 0 else DEFAULT_TIMEOUT_S


register(__name__, RouteGroup(build=_routes, describe=_describe, carries_events=True))
