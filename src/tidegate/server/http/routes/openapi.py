"""`GET /openapi.json`: the description of the HTTP side, made of what each route module says of itself.

OpenAPI 3.1: https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidegate.server.http.openapi_parts import public_operation
from tidegate.server.http.routing import RouteGroup, register, route_groups

PATH = "/openapi.json"


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
            "description": "Publishing and operation. Hubs and jobs are managed below /subscriptions, by the API of "
            "Azure Resource Manager, which Azure's own specifications describe.",
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
                    "has the right Send",
                }
            },
        },
    }


async def _openapi(_request: Request) -> Response:
    return JSONResponse(description())


register(
    __name__,
    RouteGroup(
        build=lambda _context: [Route(PATH, _openapi)],
        describe=lambda: {PATH: public_operation("describe", "this description", "application/json")},
    ),
)
