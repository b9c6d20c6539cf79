"""The description of the HTTP side, made of the table that its routes are made of.

OpenAPI 3.1: https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import importlib.metadata
import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from tidegate.server.http.management import OPERATIONS, PREFIX, PROBLEM_CONTENT_TYPE, Operation
from tidegate.server.http.resources import Problem

_REFERENCE = "#/components/schemas/{model}"
_ERROR = {"description": "refused", "content": {"application/xml": {"schema": {"type": "string"}}}}
_PUBLISHING = (
    ("/{hub}/messages", "sendEvents", "publish to an event hub"),
    ("/{hub}/partitions/{partition}/messages", "sendPartitionEvents", "publish to a partition"),
    ("/{hub}/publishers/{publisher}/messages", "sendPublisherEvents", "publish as a publisher"),
    ("/{hub}/publisher/{publisher}/messages", "sendPublisherEventsSingular", "the same, as some clients spell it"),
)
_PUBLIC = (
    ("/health", "health", "whether the hub is up", "application/json"),
    ("/metrics", "metrics", "figures for Prometheus", "text/plain"),
    ("/openapi.json", "describe", "this description", "application/json"),
)


def description() -> dict[str, Any]:
    """The document that `GET /openapi.json` answers with."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _operation(operation)
    for path, name, summary in _PUBLISHING:
        paths[path] = {"post": _publishing(path, name, summary)}
    for path, name, summary, media_type in _PUBLIC:
        answer = {"description": summary, "content": {media_type: {}}}
        paths[path] = {"get": {"operationId": name, "summary": summary, "security": [], "responses": {"200": answer}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidegate", "version": importlib.metadata.version("tidegate")},
        "security": [{"sharedAccessSignature": []}],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "sharedAccessSignature": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "SharedAccessSignature sr=…&sig=…&se=…&skn=…, signed with a key of a rule that "
                    "has the right: Manage below /management, Send to publish",
                }
            },
        },
    }


def _schemas() -> dict[str, Any]:
    models: dict[type[BaseModel], JsonSchemaMode] = {o.takes: "validation" for o in OPERATIONS if o.takes is not None}
    models |= {o.answer: "serialization" for o in OPERATIONS if o.answer is not None}
    models[Problem] = "serialization"
    _, schema = models_json_schema(list(models.items()), by_alias=True, ref_template=_REFERENCE)
    return dict(sorted(schema["$defs"].items()))


def _operation(operation: Operation) -> dict[str, Any]:
    refused = {"description": "refused", "content": {PROBLEM_CONTENT_TYPE: {"schema": _reference(Problem)}}}
    answer: dict[str, Any] = {"description": "done"}
    if operation.answer is not None:
        schema: dict[str, Any] = _reference(operation.answer)
        if operation.is_list:
            items = {"type": "array", "items": schema}
            schema = {"type": "object", "properties": {"value": items}, "required": ["value"]}
        answer["content"] = {"application/json": {"schema": schema}}
    described: dict[str, Any] = {
        "operationId": operation.operation_id,
        "summary": operation.summary,
        "tags": ["management"],
        "responses": {str(operation.status): answer, "default": refused},
    }
    if parameters := _parameters(operation.path):
        described["parameters"] = parameters
    if operation.takes is not None:
        required = any(field.is_required() for field in operation.takes.model_fields.values())
        content = {"application/json": {"schema": _reference(operation.takes)}}
        described["requestBody"] = {"required": required, "content": content}
    return described


def _publishing(path: str, name: str, summary: str) -> dict[str, Any]:
    body = {
        "required": True,
        "description": "one event as it is, or a batch of them as JSON",
        "content": {"*/*": {}, "application/vnd.microsoft.servicebus.json": {"schema": {"type": "array"}}},
    }
    responses = {"201": {"description": "stored durably"}, "default": _ERROR}
    return {
        "operationId": name,
        "summary": summary,
        "tags": ["publishing"],
        "parameters": _parameters(path),
        "requestBody": body,
        "responses": responses,
    }


def _parameters(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": _REFERENCE.format(model=model.__name__)}
