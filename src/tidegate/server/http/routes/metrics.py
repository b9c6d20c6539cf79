"""`GET /metrics`: figures for Prometheus."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidegate.server.context.metrics import CONTENT_TYPE, render
from tidegate.server.http.openapi_parts import public_operation
from tidegate.server.http.routing import HttpContext, RouteGroup, register

PATH = "/metrics"


def _routes(context: HttpContext) -> list[Route]:
    async def metrics(_request: Request) -> Response:
        return Response(render(context.hub.metrics, context.hub.namespace), media_type=CONTENT_TYPE)

    return [Route(PATH, metrics)]


register(
    __name__,
    RouteGroup(
        build=_routes, describe=lambda: {PATH: public_operation("metrics", "figures for Prometheus", "text/plain")}
    ),
)
