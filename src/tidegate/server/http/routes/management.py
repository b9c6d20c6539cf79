"""The management API: hubs, consumer groups, authorization rules, keys and publishers, changed while the hub runs.

`OPERATIONS` is the whole of it: the routes are made of it, and so is the description that `/openapi.json` serves.
A request carries a shared access signature in its Authorization header, as publications over HTTPS do, and needs the
Manage right on what it is about: a hub, or the namespace. A change has been written durably when the answer leaves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import JsonSchemaMode
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidegate.hub.access_rules import Right
from tidegate.hub.errors import ArgumentError, HubError, InternalError, NotFound, Unauthorized
from tidegate.log import LogError
from tidegate.server.http.body import read_body
from tidegate.server.http.management import Management, Names, reasons
from tidegate.server.http.openapi_parts import path_parameters, schema_reference
from tidegate.server.http.resources import (
    AuthorizationRuleKeys,
    AuthorizationRuleResource,
    AuthorizationRuleSettings,
    ConsumerGroupResource,
    ConsumerGroupSettings,
    EventHubChanges,
    EventHubCreation,
    EventHubResource,
    KeyChoice,
    NamespaceChanges,
    NamespaceResource,
    Problem,
    RevokedPublisher,
)
from tidegate.server.http.routing import HttpContext, Operations, RouteGroup, register

_logger = logging.getLogger(__name__)

PREFIX = "/management/v1"
PROBLEM_CONTENT_TYPE = "application/problem+json"
MAX_BODY_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path below PREFIX. `answer` is the model of what comes back, or of each item of a list."""

    method: str
    path: str
    summary: str
    act: Callable[[Management, Names, Any], Any]
    takes: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    status: int = 200

    @property
    def operation_id(self) -> str:
        """`createEventHub`; of a hub's own authorization rules, `createEventHubAuthorizationRule`."""
        verb, *nouns = self.act.__name__.split("_")
        if "{hub}" in self.path and "/authorizationrules" in self.path:
            nouns = ["event", "hub", *nouns]
        return verb + "".join(map(str.capitalize, nouns))

    @property
    def is_list(self) -> bool:
        """The answer is `{"value": [...]}`."""
        return self.act.__name__.startswith("list_") and self.answer is not AuthorizationRuleKeys


_M = Management
_HUB = "/eventhubs/{hub}"
_GROUP = f"{_HUB}/consumergroups/{{group}}"
_PUBLISHER = f"{_HUB}/revokedpublishers/{{publisher}}"


def _rule_operations(level: str, of: str) -> tuple[Operation, ...]:
    rules, rule = f"{level}/authorizationrules", f"{level}/authorizationrules/{{rule}}"
    one, settings, keys = AuthorizationRuleResource, AuthorizationRuleSettings, AuthorizationRuleKeys
    return (
        Operation("GET", rules, f"the authorization rules {of}", _M.list_authorization_rules, answer=one),
        Operation("GET", rule, f"an authorization rule {of}", _M.show_authorization_rule, answer=one),
        Operation("PUT", rule, f"create a rule {of}, with new keys", _M.create_authorization_rule, settings, one, 201),
        Operation("PATCH", rule, "give a rule other rights", _M.update_authorization_rule, settings, one),
        Operation(
            "DELETE", rule, "delete a rule; its tokens are worth nothing", _M.delete_authorization_rule, status=204
        ),
        Operation("GET", f"{rule}/keys", "the keys of a rule", _M.list_keys, answer=keys),
        Operation(
            "POST", f"{rule}/keys/renew", "make a key anew; the former is refused", _M.renew_key, KeyChoice, keys
        ),
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/namespace", "the namespace and its limits", _M.show_namespace, answer=NamespaceResource),
    Operation(
        "PATCH", "/namespace", "change the namespace's limits", _M.update_namespace, NamespaceChanges, NamespaceResource
    ),
    Operation("GET", "/eventhubs", "the event hubs", _M.list_event_hubs, answer=EventHubResource),
    Operation("GET", _HUB, "an event hub", _M.show_event_hub, answer=EventHubResource),
    Operation("PUT", _HUB, "create an event hub", _M.create_event_hub, EventHubCreation, EventHubResource, 201),
    Operation("PATCH", _HUB, "change an event hub", _M.update_event_hub, EventHubChanges, EventHubResource),
    Operation("DELETE", _HUB, "delete an event hub with its events", _M.delete_event_hub, status=204),
    Operation(
        "GET", f"{_HUB}/consumergroups", "its consumer groups", _M.list_consumer_groups, answer=ConsumerGroupResource
    ),
    Operation("GET", _GROUP, "a consumer group", _M.show_consumer_group, answer=ConsumerGroupResource),
    Operation(
        "PUT",
        _GROUP,
        "create a consumer group",
        _M.create_consumer_group,
        ConsumerGroupSettings,
        ConsumerGroupResource,
        201,
    ),
    Operation(
        "PATCH",
        _GROUP,
        "change a consumer group",
        _M.update_consumer_group,
        ConsumerGroupSettings,
        ConsumerGroupResource,
    ),
    Operation("DELETE", _GROUP, "delete a consumer group", _M.delete_consumer_group, status=204),
    *_rule_operations("", "of the namespace"),
    *_rule_operations(_HUB, "of an event hub"),
    Operation(
        "GET",
        f"{_HUB}/revokedpublishers",
        "the publishers that are revoked",
        _M.list_revoked_publishers,
        answer=RevokedPublisher,
    ),
    Operation("PUT", _PUBLISHER, "revoke a publisher", _M.revoke_publisher, answer=RevokedPublisher),
    Operation("DELETE", _PUBLISHER, "restore a publisher", _M.restore_publisher, status=204),
)


def _routes(context: HttpContext) -> list[Route]:
    """Return the routes of all operations, and one that refuses whatever else is asked for below PREFIX."""
    hub = context.hub
    management = Management(hub.namespace, hub.settings.capture, context.control.connection_string)

    def route(operation: Operation) -> Route:
        async def handle(request: Request) -> Response:
            try:
                return await _perform(context, management, operation, request)
            except HubError as error:
                return refusal(context, request, error)
            except (OSError, LogError) as error:
                _logger.exception("%s %s failed", request.method, request.url.path)
                reason = error.strerror if isinstance(error, OSError) else error
                return refusal(context, request, InternalError(f"the change could not be written: {reason}"))

        return Route(PREFIX + operation.path, handle, methods=[operation.method], name=operation.operation_id)

    async def unknown(request: Request) -> Response:
        message = f"the management API has no {request.method} {request.url.path[:200]!r}; /openapi.json describes it"
        return refusal(context, request, NotFound(message))

    methods = ["GET", "PUT", "PATCH", "POST", "DELETE"]
    return [
        *map(route, OPERATIONS),
        Route(f"{PREFIX}/{{rest:path}}", unknown, methods=methods, include_in_schema=False),
    ]


async def _perform(context: HttpContext, management: Management, operation: Operation, request: Request) -> Response:
    names = request.path_params
    authorization = request.headers.get("authorization")
    if authorization is None:
        raise Unauthorized("the Authorization header with a shared access signature is missing")
    access = context.hub.namespace.access
    grant = access.check_token(authorization, time.time())
    path = (names["hub"].lower(),) if "hub" in names else ()
    access.authorize([grant], Right.MANAGE, path, time.time())
    body = None
    if operation.takes is not None:
        body = _parse(operation.takes, await read_body(request, MAX_BODY_BYTES, context.hub.settings.body_timeout_s))
    if isinstance(body, EventHubCreation | EventHubChanges) and body.capture is not None:
        # it says where the server writes, which is not a hub's own matter
        access.authorize([grant], Right.MANAGE, (), time.time())
    answer = await run_in_threadpool(operation.act, management, names, body)
    if operation.method != "GET":
        context.control.check_links()
        _logger.info("%s by a key of %s: %s", operation.operation_id, grant.rule_name, dict(names))
    if answer is None:
        return Response(status_code=operation.status)
    return Response(_json(answer), status_code=operation.status, media_type="application/json")


def _parse(model: type[BaseModel], body: bytes) -> BaseModel:
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise ArgumentError(f"the request's body: {reasons(error)}") from None


def _json(answer: BaseModel | list[BaseModel]) -> bytes:
    if isinstance(answer, list):
        return b'{"value":[' + b",".join(map(_json, answer)) + b"]}"
    return answer.model_dump_json(by_alias=True).encode()


def refusal(context: HttpContext, request: Request, error: HubError) -> Response:
    """The answer to a request that is refused."""
    context.refusals.record(request, error)
    status = error.http_status
    problem = Problem(
        title=HTTPStatus(status).phrase, status=status, detail=error.description, condition=error.condition
    )
    headers = {"WWW-Authenticate": "SharedAccessSignature"} if status == HTTPStatus.UNAUTHORIZED else {}
    body = problem.model_dump_json(by_alias=True)
    return Response(body, status_code=status, media_type=PROBLEM_CONTENT_TYPE, headers=headers)


def _describe() -> Operations:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _operation(operation)
    return paths


def _operation(operation: Operation) -> dict[str, Any]:
    refused = {"description": "refused", "content": {PROBLEM_CONTENT_TYPE: {"schema": schema_reference(Problem)}}}
    answer: dict[str, Any] = {"description": "done"}
    if operation.answer is not None:
        schema: dict[str, Any] = schema_reference(operation.answer)
        if operation.is_list:
            items = {"type": "array", "items": schema}
            schema = {"type": "object", "properties": {"value": items}, "required": ["value"]}
        answer["content"] = {"application/json": {"schema": schema}}
    described: dict[str, Any] = {
        "operationId": operation.operation_id,
        "summary": operation.summary,
        "tags": ["management"],
        "responses": {str(operation.status): answer, "default": refused},
    }
    if parameters := path_parameters(operation.path):
        described["parameters"] = parameters
    if operation.takes is not None:
        required = any(field.is_required() for field in operation.takes.model_fields.values())
        content = {"application/json": {"schema": schema_reference(operation.takes)}}
        described["requestBody"] = {"required": required, "content": content}
    return described


def _models() -> dict[type[BaseModel], JsonSchemaMode]:
    models: dict[type[BaseModel], JsonSchemaMode] = {o.takes: "validation" for o in OPERATIONS if o.takes is not None}
    models |= {o.answer: "serialization" for o in OPERATIONS if o.answer is not None}
    models[Problem] = "serialization"
    return models


register(__name__, RouteGroup(build=_routes, describe=_describe, models=_models))
