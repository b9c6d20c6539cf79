"""Where the HTTP side's routes come from: every module of `routes` registers its own.

A route module calls `register` when it is imported, with a function that builds its routes and one that describes them
for `/openapi.json`. `route_groups` imports all of them, so that a new route is one new module and its test.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tidegate.extensions import import_modules
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.server.context.context import ServerContext
from tidegate.server.http.refusals import HttpRefusals
from tidegate.server.transports.transport import Converse

ROUTES_PACKAGE = "tidegate.server.http.routes"
Operations = Mapping[str, Mapping[str, Any]]
"""OpenAPI operations by path and method in lower case."""


class HubControl(Protocol):
    """What requests may do beyond the shared context: it concerns the server as a whole."""

    def connection_string(self, rule: AccessRule, key: str, hub: str) -> str:
        """Return a connection string for clients that use this key."""

    @property
    def not_ready(self) -> str | None:
        """Why new clients should go elsewhere; None if they are welcome."""

    @property
    def own_ports(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return the ports that serve AMQP, and those that serve HTTP."""

    def client_rows(self) -> list[dict[str, Any]]:
        """Return who is connected over AMQP, and what each uses."""

    @property
    def converse(self) -> Converse:
        """Return what starts an AMQP connection on a transport."""

    @property
    def further_routes(self) -> Sequence[RouteGroup]:
        """Return the routes that layers above the server add."""


@dataclass(frozen=True, slots=True)
class HttpContext:
    """What the handlers of requests are given."""

    hub: ServerContext
    control: HubControl
    refusals: HttpRefusals


@dataclass(frozen=True, slots=True)
class RouteGroup:
    """Routes of one purpose.

    Attributes:
        build: Returns the routes that Starlette serves.
        describe: Returns their part of the OpenAPI description.
        missing: Answers a browser that asks for a page that no group has; None leaves that to the others.
        bearer_rights: Returns what the bearer of an access token may do in the namespace, or raises Unauthorized;
            None for groups that issue no tokens.
        end: Ends what the routes have begun in the background, once no request is served any more.
        carries_events: Every worker answers requests for these routes; others go to the process that owns the
            namespace.
    """

    build: Callable[[HttpContext], Sequence[BaseRoute]]
    describe: Callable[[], Operations] = field(default=dict)
    missing: Callable[[Request], Response] | None = None
    bearer_rights: Callable[[Request], frozenset[Right]] | None = None
    end: Callable[[], Awaitable[None]] | None = None
    carries_events: bool = False


_groups: dict[str, RouteGroup] = {}


def register(module: str, group: RouteGroup) -> None:
    """Serve a group of routes; a module registers itself by its `__name__`."""
    _groups[module] = group


def route_groups() -> Sequence[RouteGroup]:
    """Return the groups of all modules in `routes`, by the names of the modules."""
    import_modules(ROUTES_PACKAGE)
    return [group for _, group in sorted(_groups.items())]


def public_operation(name: str, summary: str, media_type: str) -> dict[str, Any]:
    """Describe a GET that needs no authorization and answers in one media type."""
    answer = {"description": summary, "content": {media_type: {}}}
    return {"get": {"operationId": name, "summary": summary, "security": [], "responses": {"200": answer}}}


def registry_operation(
    method: str, path: str, summary: str, query: Mapping[str, Any], content: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Describe an operation of a schema registry, without its responses.

    Args:
        method: Its method.
        path: Its path, with names in braces.
        summary: What it does.
        query: The schemas of the parameters of its query, by their names.
        content: The media types of its body; None if it has none.
    """
    words = re.sub(r"[{}$:-]", " ", path).replace("/", " ").split()
    parameters = [{"name": name, "in": "query", "schema": schema} for name, schema in query.items()]
    found = {
        "operationId": method.lower() + "".join(word[0].upper() + word[1:] for word in words),
        "summary": summary,
        "tags": ["schema registry"],
        "security": [{"sharedAccessSignature": []}, {"keyOfRule": []}, {"accessToken": []}],
        "parameters": [*path_parameters(path), *parameters],
    }
    return found if content is None else {**found, "requestBody": {"required": True, "content": dict(content)}}


def path_parameters(path: str) -> list[dict[str, Any]]:
    """Describe the names in a path."""
    names = re.findall(r"{(\w+)}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
