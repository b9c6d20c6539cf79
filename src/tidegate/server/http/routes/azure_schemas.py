"""`/$schemaGroups`: the schema registry as Azure's clients call it.

https://learn.microsoft.com/rest/api/schemaregistry/ and the client azure-schemaregistry
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidegate.hub.access_rules import Right
from tidegate.hub.errors import HubError
from tidegate.hub.schema_state import (
    INCOMPATIBLE,
    INVALID_SCHEMA,
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    SchemaRefused,
    SchemaVersion,
)
from tidegate.schemas import SchemaFormat
from tidegate.schemas.schema import MAX_SCHEMA_BYTES
from tidegate.server.http.refusals import read_body
from tidegate.server.http.routing import HttpContext, Operations, RouteGroup, register, registry_operation
from tidegate.server.http.schema_access import SchemaClient, schema_client

ROOT = "/$schemaGroups"
_METHODS = ["GET", "PUT", "POST"]
_GET_ID = ":get-id"
_NAMES = {SchemaFormat.AVRO: "Avro", SchemaFormat.JSON: "Json", SchemaFormat.PROTOBUF: "Protobuf"}
_CODES = {
    INCOMPATIBLE: (400, "IncompatibleSchema"),
    INVALID_SCHEMA: (400, "InvalidSchema"),
    SCHEMA_NOT_FOUND: (404, "ItemNotFound"),
    SUBJECT_NOT_FOUND: (404, "ItemNotFound"),
}
"""Confluent's codes in Azure's words; the others keep their status."""
_STATUS_CODES = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "ItemNotFound",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
}
_UNSUPPORTED_MEDIA_TYPE = 415


class _Refused(HubError):
    def __init__(self, status: int, description: str) -> None:
        self.http_status = status
        super().__init__(description)


def _routes(context: HttpContext) -> list[Route]:
    contract = _Contract(context)
    paths = (ROOT, f"{ROOT}/{{rest:path}}")
    return [Route(path, contract.answer, methods=_METHODS, include_in_schema=False) for path in paths]


class _Contract:
    """Answers the requests. Names may hold slashes, so that paths are split before they are decoded."""

    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._registry = context.hub.namespace.schema_registry

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        try:
            client = schema_client(self._context, request)
            segments = _segments(request)
            content = await self._content(request)
            ask = partial(self._answer, request, client, segments, content)
            return await run_in_threadpool(self._registry.answer, ask)
        except HubError as error:
            if error.http_status in (401, 403):
                self._context.refusals.record(request, error)
            return _error(error)

    async def _content(self, request: Request) -> str:
        if request.method == "GET":
            return ""
        data = await read_body(request, MAX_SCHEMA_BYTES, self._context.hub.settings.body_timeout_s)
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise SchemaRefused(INVALID_SCHEMA, "the schema is not in UTF-8") from None

    def _answer(self, request: Request, client: SchemaClient, segments: list[str], content: str) -> Response:
        match request.method, segments:
            case "GET", []:
                names = [group.name for group in self._registry.groups() if client.sees(group.name)]
                return _value(names)
            case "GET", ["$schemas", own_id]:
                version = self._registry.with_own_id(own_id)
                if not client.sees(version.group, version.subject):
                    raise SchemaRefused(SCHEMA_NOT_FOUND, f"there is no schema with the id {own_id[:64]!r}")
                return _schema(request, version)
            case "GET", [group, "schemas"]:
                names = [name for of, name in self._registry.subjects() if of.lower() == group.lower()]
                return _value([name for name in names if client.sees(group, name)])
            case "GET", [group, "schemas", name, "versions"]:
                client.check(None, group, name)
                return _value([version.version for version in self._registry.versions(group, name)])
            case "GET", [group, "schemas", name, "versions", number]:
                client.check(None, group, name)
                if not number.isdecimal() or len(number) > 9:
                    raise SchemaRefused(SCHEMA_NOT_FOUND, f"{number[:20]!r} is not a version")
                return _schema(request, self._registry.version(group, name, int(number)))
            case "PUT", [group, "schemas", name]:
                client.check(Right.SEND, group, name)
                self._registry.group(group)
                schema = self._registry.schema(_format(request), content)
                return _properties(request, self._registry.register(group, name, schema))
            case "POST", [group, "schemas", name] if name.endswith(_GET_ID):
                name = name.removesuffix(_GET_ID)
                client.check(None, group, name)
                self._registry.group(group)
                schema = self._registry.schema(_format(request), content)
                return _properties(request, self._registry.find(group, name, schema))
        raise _Refused(404, f"{request.method} {request.url.path[:200]} is not served")


def _segments(request: Request) -> list[str]:
    raw = request.scope["raw_path"].decode("latin-1").partition("?")[0].rstrip("/")
    return [unquote(segment) for segment in raw.split("/")[2:]]


def _format(request: Request) -> SchemaFormat:
    """Return the format that a content type names. Raises HubError."""
    content_type = request.headers.get("content-type", "").replace(" ", "").lower()
    media_type, _, parameters = content_type.partition(";")
    if media_type == "text/plain":
        return SchemaFormat.CUSTOM
    if media_type == "text/vnd.ms.protobuf":
        return SchemaFormat.PROTOBUF
    found = re.search(r"(?:^|;)serialization=(avro|json|protobuf)(?:;|$)", parameters)
    if media_type != "application/json" or found is None:
        raise _Refused(
            _UNSUPPORTED_MEDIA_TYPE,
            f"schemas of the content type {content_type[:100]!r} are not known: it is application/json; "
            "serialization=Avro or Json, text/vnd.ms.protobuf, or text/plain; charset=utf-8 for a custom format",
        )
    return SchemaFormat[found[1].upper()]


def _content_type(schema_format: SchemaFormat) -> str:
    if schema_format is SchemaFormat.PROTOBUF:
        return "text/vnd.ms.protobuf"
    name = _NAMES.get(schema_format)
    return "text/plain; charset=utf-8" if name is None else f"application/json; serialization={name}"


def _value(items: list[str] | list[int]) -> Response:
    return JSONResponse({"Value": items})


def _schema(request: Request, version: SchemaVersion) -> Response:
    headers = {**_headers(request, version), "Content-Type": _content_type(version.schema.format)}
    return Response(version.schema.text.encode("utf-8", "surrogatepass"), headers=headers)


def _properties(request: Request, version: SchemaVersion) -> Response:
    return Response(status_code=204, headers=_headers(request, version))


def _headers(request: Request, version: SchemaVersion) -> Mapping[str, str]:
    base = f"{request.url.scheme}://{request.url.netloc}{ROOT}"
    versions = f"{base}/{quote(version.group, '')}/schemas/{quote(version.subject, '')}/versions"
    number = version.version
    return {
        "Location": f"{versions}/{number}",
        "Schema-Id": version.own_id,
        "Schema-Id-Location": f"{base}/$schemas/{version.own_id}",
        "Schema-Group-Name": _in_header(version.group),
        "Schema-Name": _in_header(version.subject),
        "Schema-Version": str(number),
        "Schema-Versions-Location": versions,
    }


def _in_header(name: str) -> str:
    """Return a name as a header can hold it."""
    return name if name.isascii() else quote(name)


def _error(error: HubError) -> Response:
    status, code = error.http_status, _STATUS_CODES.get(error.http_status, "BadRequest")
    if isinstance(error, SchemaRefused):
        status, code = _CODES.get(error.code, (400 if status == 422 else status, code))
    tracking = uuid.uuid4()
    message = f"{error.description} TrackingId:{tracking}"
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)


_SCHEMA = f"{ROOT}/{{group}}/schemas/{{name}}"
_OPERATIONS = (
    ("GET", ROOT, "list the groups that the caller may read"),
    ("GET", f"{ROOT}/$schemas/{{id}}", "return the schema of an id"),
    ("GET", f"{ROOT}/{{group}}/schemas", "list the schemas of a group"),
    ("GET", f"{_SCHEMA}/versions", "list the versions of a schema"),
    ("GET", f"{_SCHEMA}/versions/{{version}}", "return a version"),
    ("PUT", _SCHEMA, "register a version of a schema"),
    ("POST", f"{_SCHEMA}{_GET_ID}", "return the id of a schema by its content"),
)


def _describe() -> Operations:
    contents: dict[str, Any] = {_content_type(one): {} for one in SchemaFormat}
    refused = {"description": "refused", "content": {"application/json": {}}}
    found: dict[str, dict[str, Any]] = {}
    for method, path, summary in _OPERATIONS:
        is_list = path == ROOT or path.endswith(("/schemas", "/versions"))
        done: dict[str, Any] = {"description": "the answer"}
        if method == "GET":
            done["content"] = {"application/json": {}} if is_list else contents
        operation = registry_operation(
            method, path, summary, {"api-version": {"type": "string"}}, None if method == "GET" else contents
        )
        operation["responses"] = {"200" if method == "GET" else "204": done, "default": refused}
        found.setdefault(path, {})[method.lower()] = operation
    return found


register(__name__, RouteGroup(build=_routes, describe=_describe))
