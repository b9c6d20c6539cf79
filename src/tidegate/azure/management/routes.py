"""The management API on the HTTP and HTTPS ports, with the token endpoint that its clients log in at."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from tidegate.azure.management.access.login import (
    MAX_FORM_BYTES,
    cloud_metadata,
    instance_discovery,
    issue_token,
    openid_configuration,
)
from tidegate.azure.management.access.principals import FOLDER, Principals
from tidegate.azure.management.access.requests import (
    MAX_BODY_BYTES,
    ArmAnswer,
    ArmError,
    Found,
    PrincipalRole,
    bad_request,
    parse_json,
    path_segments,
)
from tidegate.azure.management.access.tokens import DATA_AUDIENCES, Caller, Callers, TokenIssuer, signing_key
from tidegate.azure.management.deployments import Deployments
from tidegate.azure.management.event_hubs.provider import EventHubProvider
from tidegate.azure.management.manager.resource_groups import ResourceGroups
from tidegate.azure.management.manager.resource_manager import Question, ResourceManager, ResourceProvider
from tidegate.azure.management.manager.state import StateFile
from tidegate.azure.management.manager.subscriptions import Subscriptions
from tidegate.azure.management.monitor import ActivityLog, Monitor
from tidegate.azure.management.stream_analytics.provider import StreamAnalyticsProvider
from tidegate.azure.management.stream_analytics.store import LocalHubs
from tidegate.hub.access_rules import Right
from tidegate.hub.errors import HubError, MessageTooLarge, Unauthorized
from tidegate.server.http.refusals import is_loopback, read_body
from tidegate.server.http.routing import HttpContext, RouteGroup
from tidegate.service import Jobs

_logger = logging.getLogger(__name__)
_METHODS = ["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE"]
_ROOTS = ("subscriptions", "providers", "tenants")
_TENANT = "{tenant:path}"
_NOT_PUBLISHING = r"(?!/[^/]+/((partitions|publishers?)/[^/]+/)?messages/?$)"
"""An event hub may be called as the management API's paths begin, and still be published to."""
MOST_LOGINS_AT_ONCE = 4
"""Verifying a secret takes 16 MiB and some 50 ms on purpose."""


@dataclass(frozen=True, slots=True)
class ArmSettings:
    """What the management API needs beside the hub.

    Attributes:
        data_dir: Where it keeps principals, its key and its state.
        jobs: The service whose jobs are served as well.
    """

    data_dir: Path
    jobs: Jobs | None = None


class ManagementApi:
    """The management API of one server, and what others show of its state."""

    def __init__(self, settings: ArmSettings) -> None:
        self._settings = settings
        self._served: ArmApplication | None = None

    def routes(self) -> RouteGroup:
        """Return the routes, for `Server`."""

        def build(context: HttpContext) -> list[BaseRoute]:
            """Return the routes; HTTP and HTTPS share one application, which holds the state."""
            if self._served is None or self._served.hub is not context.hub:
                self._served = ArmApplication(self._settings, context)
            return self._served.routes()

        def bearer_rights(request: Request) -> frozenset[Right]:
            """Return what the bearer of a token may do in the namespace. Raises Unauthorized."""
            assert self._served is not None
            return self._served.bearer_rights(request)

        return RouteGroup(build=build, bearer_rights=bearer_rights)

    def namespace_tags(self) -> Mapping[str, str]:
        """Return the tags of the namespace; none before it is served."""
        return {} if self._served is None else self._served.event_hubs.tags

    def set_namespace_tags(self, tags: Mapping[str, str]) -> None:
        """Replace the tags of the namespace. Raises OSError."""
        if self._served is not None:
            self._served.event_hubs.set_tags(tags)


def arm_routes(settings: ArmSettings) -> RouteGroup:
    """Return the routes of the management API, for `Server`."""
    return ManagementApi(settings).routes()


class ArmApplication:
    """Turns HTTP requests into questions and answers."""

    def __init__(self, settings: ArmSettings, context: HttpContext) -> None:
        """Raises FileDamaged, OSError."""
        self._context = context
        self.hub = hub = context.hub
        resource_groups = ResourceGroups(StateFile(settings.data_dir))
        issuer = TokenIssuer(signing_key(settings.data_dir))
        self._callers = Callers(hub.namespace.access, Principals(settings.data_dir), issuer, time.time)
        connect = context.control.connection_string
        self.event_hubs = EventHubProvider(hub.namespace, resource_groups, hub.settings.capture, connect)
        providers: list[ResourceProvider] = [self.event_hubs]
        if settings.jobs is not None:
            hubs = LocalHubs(hub.namespace, connect, lambda: context.control.own_ports)
            settings.jobs.refresh = hubs.refreshed
            outputs = (settings.data_dir / FOLDER / "outputs").absolute()
            providers.append(StreamAnalyticsProvider(settings.jobs, resource_groups, hubs, outputs))
        self._changes = ActivityLog(settings.data_dir / FOLDER / "activity.jsonl")
        providers.append(Monitor(context, settings.jobs, resource_groups, self._changes))
        deployments = Deployments(resource_groups)
        providers.append(deployments)
        operations = [operation for provider in providers for operation in provider.operations()]
        operations += Subscriptions(resource_groups, providers).operations()
        self._manager = ResourceManager(operations)
        deployments.perform = self._manager.perform
        self._logins = asyncio.Semaphore(MOST_LOGINS_AT_ONCE)

    def routes(self) -> list[BaseRoute]:
        """Return them all; literal parts compare without case."""
        routes = [
            *(Route(f"/{root}", self._arm, methods=_METHODS) for root in _ROOTS),
            *(Route(f"/{root}/{{rest:path}}", self._arm, methods=_METHODS) for root in _ROOTS),
            Route("/metadata/endpoints", self._metadata, methods=["GET"]),
            Route("/common/discovery/instance", self._instance, methods=["GET"]),
            Route(f"/{_TENANT}/oauth2/v2.0/token", self._token_v2, methods=["POST"]),
            Route(f"/{_TENANT}/oauth2/token", self._token_v1, methods=["POST"]),
            Route(f"/{_TENANT}/v2.0/.well-known/openid-configuration", self._openid_v2, methods=["GET"]),
            Route(f"/{_TENANT}/.well-known/openid-configuration", self._openid_v1, methods=["GET"]),
            Route(f"/{_TENANT}/discovery/keys", _no_keys, methods=["GET"]),
        ]
        for route in routes:
            route.path_regex = re.compile(_NOT_PUBLISHING + route.path_regex.pattern, re.IGNORECASE)
        return list(routes)

    def bearer_rights(self, request: Request) -> frozenset[Right]:
        """Return what the bearer of a token may do in the namespace. Raises Unauthorized."""
        audiences = [*DATA_AUDIENCES, _base_url(request)]
        try:
            caller = self._callers.authenticate(request.headers.get("authorization"), audiences)
        except ArmError as error:
            raise Unauthorized(str(error)) from None
        return frozenset(Right) if caller.role.includes(PrincipalRole.CONTRIBUTOR) else frozenset({Right.LISTEN})

    # -- the management API

    async def _arm(self, request: Request) -> Response:
        headers = _answer_headers(request)
        who = ""
        try:
            _check_transport(request)
            question = _question(request)
            caller = self._caller(request, question)
            who = caller.name
            found = self._manager.find(question)
            self._manager.authorize(found, question, caller)
            body = await run_in_threadpool(parse_json, await self._body(request, MAX_BODY_BYTES))
            if body is not None:  # it may have taken long
                caller = self._caller(request, question)
                self._manager.authorize(found, question, caller)
            answer = await run_in_threadpool(self._manager.answer, found, question, caller, body)
        except ArmError as error:
            return self._refusal(request, error, who, headers)
        except Exception:
            _logger.exception("%s %s failed", request.method, request.url.path[:200])
            failed = ArmError(500, "InternalServerError", "the request failed; the hub's log says why")
            return self._refusal(request, failed, who, headers)
        if request.method not in ("GET", "HEAD"):
            _log_change(found, question, who)
            path, correlation = "/" + "/".join(question.segments), headers["x-ms-correlation-request-id"]
            noted = (found.operation.action, path, request.method, who, answer.status, correlation)
            await run_in_threadpool(self._changes.note, *noted)
        return _response(answer, headers, is_head=request.method == "HEAD")

    def _caller(self, request: Request, question: Question) -> Caller:
        """Return the caller of a request. Raises ArmError; strangers do not learn which paths exist."""
        if self._manager.is_public(question):
            return Caller("", PrincipalRole.READER)
        return self._callers.authenticate(request.headers.get("authorization"), [question.base_url])

    async def _body(self, request: Request, limit: int) -> bytes:
        if request.method in ("GET", "HEAD"):
            return b""
        try:
            return await read_body(request, limit, self._context.hub.settings.body_timeout_s)
        except MessageTooLarge as error:
            raise ArmError(413, "RequestContentTooLarge", error.description) from None
        except HubError as error:
            raise bad_request(error.description, "InvalidRequestContent") from None

    def _refusal(self, request: Request, error: ArmError, who: str, headers: Mapping[str, str]) -> Response:
        if error.status in (401, 403):
            self._context.refusals.record(request, Unauthorized(f"{error} ({error.code})"), who)
        headers = {**headers, **error.headers, "x-ms-failure-cause": "gateway"}
        if error.status == 401:
            authority = f"{_base_url(request)}/adfs"
            headers["WWW-Authenticate"] = f'Bearer authorization_uri="{authority}", error="invalid_token"'
        return _response(ArmAnswer(error.status, {"error": error.body()}), headers, is_head=request.method == "HEAD")

    # -- logging in

    async def _token_v2(self, request: Request) -> Response:
        return await self._token(request, is_v2=True)

    async def _token_v1(self, request: Request) -> Response:
        return await self._token(request, is_v2=False)

    async def _token(self, request: Request, *, is_v2: bool) -> Response:
        headers = _answer_headers(request)
        try:
            _check_transport(request)
            base_url = _base_url(request)
            content = await self._body(request, MAX_FORM_BYTES)
            tenant = request.path_params["tenant"]
            async with self._logins:
                answer, client_id = await run_in_threadpool(
                    issue_token, self._callers, tenant, content, request.headers, base_url, is_v2=is_v2
                )
        except ArmError as error:
            return self._refusal(request, error, "", headers)
        if answer.status == 200:
            _logger.info("%r logged in", client_id)
        else:
            self._context.refusals.record(request, Unauthorized(f"no token for {client_id!r}: {answer.body['error']}"))
        return _response(answer, headers)

    async def _openid_v2(self, request: Request) -> Response:
        return _openid(request, is_v2=True)

    async def _openid_v1(self, request: Request) -> Response:
        return _openid(request, is_v2=False)

    async def _instance(self, request: Request) -> Response:
        return JSONResponse(
            instance_discovery(_base_url(request), request.query_params.get("authorization_endpoint", ""))
        )

    async def _metadata(self, request: Request) -> Response:
        return JSONResponse(cloud_metadata(_base_url(request), request.query_params.get("api-version", "2015")))


async def _no_keys(_request: Request) -> Response:
    """Answer with no keys: tokens are for this server, and only it can verify them."""
    return JSONResponse({"keys": []})


def _openid(request: Request, *, is_v2: bool) -> Response:
    base_url = _base_url(request)
    authority = f"{base_url}/{request.path_params['tenant'][:200]}"
    return JSONResponse(openid_configuration(base_url, authority, is_v2=is_v2))


def _check_transport(request: Request) -> None:
    """Refuse secrets that cross a network unencrypted. Raises ArmError.

    A client that connects from the very address it connects to is on this machine, too.
    """
    host = request.client.host if request.client else ""
    server = request.scope.get("server")
    is_same_machine = is_loopback(host) or (server is not None and host == server[0])
    if request.url.scheme != "https" and not is_same_machine:
        raise ArmError(403, "HttpsRequired", "without TLS the management API is served to clients on this machine only")


def _base_url(request: Request) -> str:
    """Return scheme, host and port by which the client reached the server."""
    return f"{request.url.scheme}://{request.url.netloc}"


def _question(request: Request) -> Question:
    raw_path = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0]
    query: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if len(name) + len(value) > 8192:
            raise bad_request("a query parameter is too long", "InvalidUri")
        query.setdefault(name.lower(), value)
    return Question(request.method, path_segments(raw_path), query, dict(request.headers), _base_url(request))


def _answer_headers(request: Request) -> dict[str, str]:
    """Return what every answer carries: ids by which clients and logs name a request, and that nothing is cached."""
    request_id = str(uuid.uuid4())
    headers = {
        "x-ms-request-id": request_id,
        "x-ms-correlation-request-id": request_id,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    client_id = request.headers.get("x-ms-client-request-id", "")
    if re.fullmatch(r"[A-Za-z0-9-]{1,64}", client_id):
        headers["x-ms-client-request-id"] = client_id
    return headers


def _response(answer: ArmAnswer, headers: Mapping[str, str], *, is_head: bool = False) -> Response:
    content = b"" if is_head or answer.status in (204, 304) else answer.content()
    merged = {**headers, **answer.headers}
    if content:
        merged["Content-Type"] = "application/json; charset=utf-8"
    return Response(content, status_code=answer.status, headers=merged)


def _log_change(found: Found, question: Question, who: str) -> None:
    _logger.info("%s by %r: /%s", found.operation.action, who, "/".join(question.segments)[:300])
