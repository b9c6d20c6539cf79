"""The management API: hubs, consumer groups, authorization rules, keys and publishers, changed while the hub runs.

`OPERATIONS` is the whole of it: the routes are made of it, and so is the description that `/openapi.json` serves.
A request carries a shared access signature in its Authorization header, as publications over HTTPS do, and needs the
Manage right on what it is about: a hub, or the namespace. A change has been written durably when the answer leaves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidegate.hub.access import AccessRule, Right
from tidegate.hub.addresses import split_address
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.store import StoreError, open_store
from tidegate.hub.config import EventHubConfig, check_hub_name
from tidegate.hub.errors import ArgumentError, HubError, InternalError, NotFound, Unauthorized
from tidegate.hub.event_hub import EventHub
from tidegate.hub.namespace import Namespace
from tidegate.log import LogError
from tidegate.server.context.metrics import ServerMetrics
from tidegate.server.context.settings import ServerSettings
from tidegate.server.http.body import read_body
from tidegate.server.http.refusals import HttpRefusals
from tidegate.server.http.resources import (
    AuthorizationRuleKeys,
    AuthorizationRuleResource,
    AuthorizationRuleSettings,
    CaptureSettings,
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
    retention_ms,
)

_logger = logging.getLogger(__name__)

PREFIX = "/management/v1"
PROBLEM_CONTENT_TYPE = "application/problem+json"
MAX_BODY_BYTES = 64 << 10

Names = Mapping[str, str]
"""The names in a request's path, by what they are of: `hub`, `group`, `rule`, `publisher`."""


class ManagementContext(Protocol):
    """What of the server the management API needs."""

    metrics: ServerMetrics
    settings: ServerSettings

    @property
    def namespace(self) -> Namespace:
        """Return the namespace that is served."""

    def connection_string(self, rule: AccessRule, key: str, hub: str) -> str:
        """For clients that use this key."""

    def check_links(self) -> None:
        """End the links that a change has left without what they lead to."""


class Management:
    """What the operations do. Called in worker threads; names come from the path, the body is a checked model."""

    def __init__(self, context: ManagementContext) -> None:
        self._namespace = context.namespace
        self._connection_string = context.connection_string
        self._default_capture = context.settings.capture

    def show_namespace(self, names: Names, body: None) -> NamespaceResource:
        return NamespaceResource.of(self._namespace.name, self._namespace.limits)

    def update_namespace(self, names: Names, body: NamespaceChanges) -> NamespaceResource:
        try:
            changes = body.changes()
        except ValueError as error:
            raise ArgumentError(f"namespace {self._namespace.name}: {error}") from None
        self._namespace.update_limits(**changes)
        return self.show_namespace(names, None)

    def list_event_hubs(self, names: Names, body: None) -> list[EventHubResource]:
        return [self._event_hub(hub) for hub in self._namespace.event_hubs.values()]

    def show_event_hub(self, names: Names, body: None) -> EventHubResource:
        return self._event_hub(self._namespace.event_hub(names["hub"]))

    def create_event_hub(self, names: Names, body: EventHubCreation) -> EventHubResource:
        try:
            config = EventHubConfig(
                name=names["hub"],
                partition_count=body.partition_count,
                retention_ms=retention_ms(body.retention_time_in_hours),
                retention_bytes=body.retention_size_in_bytes,
                user_metadata=body.user_metadata,
                capture=None if body.capture is None else self._capture(body.capture, self._default_capture),
            )
        except ValidationError as error:
            raise ArgumentError(f"event hub {names['hub']!r}: {_reasons(error)}") from None
        return self._event_hub(self._namespace.create_event_hub(config))

    def update_event_hub(self, names: Names, body: EventHubChanges) -> EventHubResource:
        changes = body.changes()
        if "capture" in body.model_fields_set:
            former = self._namespace.event_hub(names["hub"]).config.capture or self._default_capture
            changes["capture"] = body.capture and self._capture(body.capture, former)
        return self._event_hub(self._namespace.update_event_hub(names["hub"], **changes))

    def _event_hub(self, hub: EventHub) -> EventHubResource:
        return EventHubResource.of(hub, self._default_capture)

    @staticmethod
    def _capture(settings: CaptureSettings, former: CaptureDescription | None) -> CaptureDescription:
        """What is asked for, tried as far as can be without writing anything. Raises ArgumentError."""
        try:
            description = settings.over(former)
            if "://" not in description.destination:
                # the same folder also after a start from another one
                folder = str(Path(description.destination).absolute())
                description = description.model_copy(update={"destination": folder})
            if description.enabled:
                open_store(description.destination)
        except ValidationError as error:
            raise ArgumentError(f"capture: {_reasons(error)}") from None
        except (StoreError, ModuleNotFoundError) as error:
            raise ArgumentError(f"capture: destination: {error}") from None
        return description

    def delete_event_hub(self, names: Names, body: None) -> None:
        self._namespace.delete_event_hub(names["hub"])

    def list_consumer_groups(self, names: Names, body: None) -> list[ConsumerGroupResource]:
        hub = self._namespace.event_hub(names["hub"])
        return [ConsumerGroupResource.of(hub, group) for group in hub.consumer_groups]

    def show_consumer_group(self, names: Names, body: None) -> ConsumerGroupResource:
        return ConsumerGroupResource.of(self._namespace.event_hub(names["hub"]), names["group"])

    def create_consumer_group(self, names: Names, body: ConsumerGroupSettings) -> ConsumerGroupResource:
        self._namespace.create_consumer_group(names["hub"], names["group"], body.user_metadata)
        return self.show_consumer_group(names, None)

    def update_consumer_group(self, names: Names, body: ConsumerGroupSettings) -> ConsumerGroupResource:
        self._namespace.update_consumer_group(names["hub"], names["group"], body.user_metadata)
        return self.show_consumer_group(names, None)

    def delete_consumer_group(self, names: Names, body: None) -> None:
        self._namespace.delete_consumer_group(names["hub"], names["group"])

    def list_authorization_rules(self, names: Names, body: None) -> list[AuthorizationRuleResource]:
        return [AuthorizationRuleResource.of(rule) for rule in self._namespace.access.rules(names.get("hub", ""))]

    def show_authorization_rule(self, names: Names, body: None) -> AuthorizationRuleResource:
        return AuthorizationRuleResource.of(self._rule(names))

    def create_authorization_rule(self, names: Names, body: AuthorizationRuleSettings) -> AuthorizationRuleResource:
        try:
            rule = AccessRule.create(check_hub_name(names["rule"]), body.as_rights())
        except ValueError as error:
            raise ArgumentError(f"authorization rule {names['rule']!r}: {error}") from None
        self._namespace.create_access_rule(rule, names.get("hub", ""))
        return AuthorizationRuleResource.of(rule)

    def update_authorization_rule(self, names: Names, body: AuthorizationRuleSettings) -> AuthorizationRuleResource:
        rule = self._namespace.update_access_rule(names["rule"], body.as_rights(), names.get("hub", ""))
        return AuthorizationRuleResource.of(rule)

    def delete_authorization_rule(self, names: Names, body: None) -> None:
        self._namespace.delete_access_rule(names["rule"], names.get("hub", ""))

    def list_keys(self, names: Names, body: None) -> AuthorizationRuleKeys:
        return self._keys(self._rule(names), names)

    def renew_key(self, names: Names, body: KeyChoice) -> AuthorizationRuleKeys:
        return self._keys(self._namespace.roll_key(names["rule"], body.key, names.get("hub", "")), names)

    def list_revoked_publishers(self, names: Names, body: None) -> list[RevokedPublisher]:
        revoked = self._namespace.event_hub(names["hub"]).revoked_publishers
        return [RevokedPublisher(name=name) for name in sorted(revoked)]

    def revoke_publisher(self, names: Names, body: None) -> RevokedPublisher:
        (name,) = split_address(names["publisher"])
        self._namespace.revoke_publisher(names["hub"], name)
        return RevokedPublisher(name=name.lower())

    def restore_publisher(self, names: Names, body: None) -> None:
        if not self._namespace.event_hub(names["hub"]).is_revoked(names["publisher"]):
            raise NotFound(f"the publisher {names['publisher']!r} is not revoked")
        self._namespace.restore_publisher(names["hub"], names["publisher"])

    def _rule(self, names: Names) -> AccessRule:
        return self._namespace.access.rule(names["rule"], names.get("hub", ""))

    def _keys(self, rule: AccessRule, names: Names) -> AuthorizationRuleKeys:
        hub = self._namespace.event_hub(names["hub"]).name if "hub" in names else ""
        return AuthorizationRuleKeys(
            key_name=rule.name,
            primary_key=rule.primary_key,
            secondary_key=rule.secondary_key,
            primary_connection_string=self._connection_string(rule, rule.primary_key, hub),
            secondary_connection_string=self._connection_string(rule, rule.secondary_key, hub),
        )


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


def management_routes(context: ManagementContext, refusals: HttpRefusals) -> list[Route]:
    """The routes of all operations, and one that refuses whatever else is asked for below PREFIX."""
    management = Management(context)

    def route(operation: Operation) -> Route:
        async def handle(request: Request) -> Response:
            try:
                return await _perform(context, management, operation, request)
            except HubError as error:
                return refusal(refusals, request, error)
            except (OSError, LogError) as error:
                _logger.exception("%s %s failed", request.method, request.url.path)
                reason = error.strerror if isinstance(error, OSError) else error
                return refusal(refusals, request, InternalError(f"the change could not be written: {reason}"))

        return Route(PREFIX + operation.path, handle, methods=[operation.method], name=operation.operation_id)

    async def unknown(request: Request) -> Response:
        message = f"the management API has no {request.method} {request.url.path[:200]!r}; /openapi.json describes it"
        return refusal(refusals, request, NotFound(message))

    methods = ["GET", "PUT", "PATCH", "POST", "DELETE"]
    return [
        *map(route, OPERATIONS),
        Route(f"{PREFIX}/{{rest:path}}", unknown, methods=methods, include_in_schema=False),
    ]


async def _perform(
    context: ManagementContext, management: Management, operation: Operation, request: Request
) -> Response:
    names = request.path_params
    authorization = request.headers.get("authorization")
    if authorization is None:
        raise Unauthorized("the Authorization header with a shared access signature is missing")
    access = context.namespace.access
    grant = access.check_token(authorization, time.time())
    path = (names["hub"].lower(),) if "hub" in names else ()
    access.authorize([grant], Right.MANAGE, path, time.time())
    body = None
    if operation.takes is not None:
        body = _parse(operation.takes, await read_body(request, MAX_BODY_BYTES, context.settings.body_timeout_s))
    if isinstance(body, EventHubCreation | EventHubChanges) and body.capture is not None:
        # it says where the server writes, which is not a hub's own matter
        access.authorize([grant], Right.MANAGE, (), time.time())
    answer = await run_in_threadpool(operation.act, management, names, body)
    if operation.method != "GET":
        context.check_links()
        _logger.info("%s by a key of %s: %s", operation.operation_id, grant.rule_name, dict(names))
    if answer is None:
        return Response(status_code=operation.status)
    return Response(_json(answer), status_code=operation.status, media_type="application/json")


def _parse(model: type[BaseModel], body: bytes) -> BaseModel:
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise ArgumentError(f"the request's body: {_reasons(error)}") from None


def _reasons(error: ValidationError) -> str:
    """Every mistake with its place. The values are left out: they may be anything, and long."""
    return "; ".join(
        ": ".join(
            (
                ".".join(to_camel(str(step)) for step in item["loc"]) or "the document",
                item["msg"].removeprefix("Value error, "),
            )
        )
        for item in error.errors(include_url=False, include_input=False)
    )


def _json(answer: BaseModel | list[BaseModel]) -> bytes:
    if isinstance(answer, list):
        return b'{"value":[' + b",".join(map(_json, answer)) + b"]}"
    return answer.model_dump_json(by_alias=True).encode()


def refusal(refusals: HttpRefusals, request: Request, error: HubError) -> Response:
    """The answer to a request that is refused."""
    refusals.record(request, error)
    status = error.http_status
    problem = Problem(
        title=HTTPStatus(status).phrase, status=status, detail=error.description, condition=error.condition
    )
    headers = {"WWW-Authenticate": "SharedAccessSignature"} if status == HTTPStatus.UNAUTHORIZED else {}
    body = problem.model_dump_json(by_alias=True)
    return Response(body, status_code=status, media_type=PROBLEM_CONTENT_TYPE, headers=headers)
