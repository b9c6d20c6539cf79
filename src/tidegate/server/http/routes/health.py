"""`GET /health`: whether the hub can be read and written, as the official emulator says it and with the reason.

A hub whose data disk takes no writes is unhealthy (503), though its events can be read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidegate.log import StorageStatus
from tidegate.server.http.openapi_parts import public_operation
from tidegate.server.http.routing import HttpContext, RouteGroup, register

PATH = "/health"


def health_of(storage: StorageStatus) -> dict[str, Any]:
    """Return the answer, of which `status` and `message` are the emulator's."""
    details = {
        "writable": storage.is_writable,
        "reason": storage.reason,
        "since": _time(storage.since_s),
        "freeBytes": storage.free_bytes,
        "sizeBytes": storage.size_bytes,
        "lastDurableWrite": _time(storage.last_write_s),
        "refusedPublications": storage.refused_appends,
    }
    if storage.is_writable:
        return {"status": "healthy", "message": "Service is healthy.", "storage": details}
    message = f"Events can be read, but not stored: {storage.reason}. Make space; nothing else has to be done."
    return {"status": "unhealthy", "message": message, "storage": details}


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _routes(context: HttpContext) -> list[Route]:
    async def health(_request: Request) -> Response:
        storage = context.hub.namespace.storage.status()
        return JSONResponse(health_of(storage), status_code=200 if storage.is_writable else 503)

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
