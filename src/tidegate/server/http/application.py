"""The ASGI application that the HTTP and HTTPS ports serve: the routes that have registered themselves."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from tidegate.server.context.context import ServerContext
from tidegate.server.http.refusals import HttpRefusals
from tidegate.server.http.refused import not_served
from tidegate.server.http.routing import HttpContext, HubControl, route_groups


def application(hub: ServerContext, control: HubControl) -> Starlette:
    """Return the application of one server."""
    context = HttpContext(hub, control, HttpRefusals(hub.metrics))
    routes = [route for group in (*control.further_routes, *route_groups()) for route in group.build(context)]
    return Starlette(routes=routes, exception_handlers={HTTPException: not_served})
