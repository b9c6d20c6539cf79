"""`GET /health`: whether the hub can be read and written, as the official emulator says it and with the reason.

A hub whose data disk takes no writes is unhealthy (503), though its events can be read.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidegate.server.http.openapi_parts import public_operation
from tidegate.server.http.routing import HttpContext, RouteGroup, register

PATH = "/health"


def _routes(context: HttpContext) -> list[Route]:
    async def health(_request: Request) -> Response:
        storage = context.hub.namespace.storage.status()
        answer: dict[str, object] = {"status": "healthy", "message": "Service is healthy."}  # the emulator's
        if not storage.is_writable:
            reason = f"Events can be read, but not stored: {storage.reason}. Make space; nothing else has to be done."
            answer = {"status": "unhealthy", "message": reason}
        answer["storage"] = storage.as_json()
        return JSONResponse(answer, status_code=200 if storage.is_writable else 503)

    return [Route(PATH, health)]


register(
    __name__,
    RouteGroup(
        build=_routes,
        describe=lambda: {
            PATH: public_operation("health", "whether the hub can be read and written", "application/json")
        },
    ),
)
