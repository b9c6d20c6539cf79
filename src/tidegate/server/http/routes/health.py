"""`GET /health`: whether the hub is up, as the official emulator says it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidegate.server.http.openapi_parts import public_operation
from tidegate.server.http.routing import RouteGroup, register

PATH = "/health"


async def _health(_request: Request) -> Response:
    return JSONResponse({"status": "healthy", "message": "Service is healthy."})


register(
    __name__,
    RouteGroup(
        build=lambda _context: [Route(PATH, _health)],
        describe=lambda: {PATH: public_operation("health", "whether the hub is up", "application/json")},
    ),
)
