"""`POST /{hub}/messages` and its like: publishing by HTTP.

Requests and answers: https://learn.microsoft.com/rest/api/eventhub/event-hubs-runtime-rest
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidegate.hub.addresses import path_of
from tidegate.hub.errors import HubError, ServerBusy, Unauthorized
from tidegate.hub.namespace import Publisher
from tidegate.server.context.completions import Completions
from tidegate.server.http.body import read_body
from tidegate.server.http.openapi_parts import path_parameters
from tidegate.server.http.protocol import SPELLING
from tidegate.server.http.publication import BATCH_CONTENT_TYPE, parse_publication
from tidegate.server.http.refused import error_answer
from tidegate.server.http.routing import HttpContext, Operations, RouteGroup, register

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
    try:
        await _publish(context, request)
    except HubError as error:
        context.refusals.record(request, error)
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
        await asyncio.wait_for(_durable(context.hub.completions, publisher, events, partition_key), _timeout_s(request))
    except TimeoutError:
        raise ServerBusy("the publication was not durable in time; it may still become so") from None
    finally:
        publisher.close()


def _timeout_s(request: Request) -> float:
    text = request.query_params.get("timeout", "")
    asked_s = float(text) if text.isdecimal() else 0.0
    return min(asked_s, DEFAULT_TIMEOUT_S) if asked_s > 0 else DEFAULT_TIMEOUT_S


async def _durable(completions: Completions, publisher: Publisher, events: list[bytes], key: str | None) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(error: HubError | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    publisher.publish_events(events, key, lambda error: completions.report(settle, error))
    await done


register(__name__, RouteGroup(build=_routes, describe=_describe))
