"""What an operator reads: `/health`, `/ready`, `/metrics` and `/openapi.json`.

`GET /ready` is for balancers: 503 from when the hub begins to stop, and while a gateway does not hear its cluster.
`GET /health` reports whether the hub can be read and written, like the official emulator, and adds the reason. A hub
whose data disk takes no writes is unhealthy (503), though its events can be read. `GET /metrics` is for Prometheus.
`GET /openapi.json` combines the descriptions of all route modules (OpenAPI 3.1: https://spec.openapis.org/oas/v3.1.0).
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidegate.server.context.metrics import CONTENT_TYPE, render
from tidegate.server.http.routing import (
    HttpContext,
    Operations,
    RouteGroup,
    public_operation,
    register,
    route_groups,
)

HEALTH = "/health"
READY = "/ready"
METRICS = "/metrics"
OPENAPI = "/openapi.json"


def _routes(context: HttpContext) -> list[Route]:
    async def health(_request: Request) -> Response:
        storage = context.hub.namespace.storage.status()
        answer: dict[str, object] = {"status": "healthy", "message": "Service is healthy."}  # the emulator's
        if not storage.is_writable:
            wanted = (
                "`tidegate store check` may say more of the cluster of Kafka. The gateway tries again by itself."
                if storage.is_of_cluster
                else "Free space, or make the disk writable; nothing else has to be done."
            )
            reason = f"Events can be read, but not stored: {storage.reason}. {wanted}"
            answer = {"status": "unhealthy", "message": reason}
        answer["storage"] = storage.as_json()
        return JSONResponse(answer, status_code=200 if storage.is_writable else 503)

    async def ready(_request: Request) -> Response:
        reason = context.control.not_ready
        answer = {"ready": reason is None, **({} if reason is None else {"message": reason})}
        return JSONResponse(answer, status_code=200 if reason is None else 503)

    async def metrics(_request: Request) -> Response:
        return Response(render(context.hub.metrics, context.hub.namespace), media_type=CONTENT_TYPE)

    async def openapi(_request: Request) -> Response:
        return JSONResponse(description())

    return [Route(HEALTH, health), Route(READY, ready), Route(METRICS, metrics), Route(OPENAPI, openapi)]


def _describe() -> Operations:
    return {
        HEALTH: public_operation("health", "whether the hub can be read and written", "application/json"),
        READY: public_operation("ready", "whether a balancer should send clients here", "application/json"),
        METRICS: public_operation("metrics", "figures for Prometheus", "text/plain"),
        OPENAPI: public_operation("describe", "this description", "application/json"),
    }


def description() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for group in route_groups():
        for path, operations in group.describe().items():
            paths.setdefault(path, {}).update(operations)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": importlib.metadata.version("tidegate"),
            "description": "Publishing, schemas and operation. Hubs and jobs are managed below /subscriptions, by the "
            "API of Azure Resource Manager, which Azure's own specifications describe.",
        },
        "security": [{"sharedAccessSignature": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "sharedAccessSignature": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "SharedAccessSignature sr=…&sig=…&se=…&skn=…, signed with a key of a rule that "
                    "has the right that the operation needs",
                },
                "keyOfRule": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "the name of a rule and its key, or $ConnectionString and a connection string",
                },
                "accessToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "a token of the endpoint that the management API names",
                },
            },
        },
    }


register(__name__, RouteGroup(build=_routes, describe=_describe))
