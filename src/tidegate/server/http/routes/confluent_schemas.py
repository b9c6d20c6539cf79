"""`/schema-registry`: the schema registry as Confluent's clients, Kafka Connect and their like call it.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidegate.hub.access_rules import Right
from tidegate.hub.errors import HubError
from tidegate.hub.schema_state import (
    COMPATIBILITY_NOT_SET,
    DEFAULT_GROUP,
    INVALID_COMPATIBILITY,
    INVALID_MODE,
    INVALID_SCHEMA,
    INVALID_VERSION,
    MODE_NOT_SET,
    NOT_PERMITTED,
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    Mode,
    SchemaRefused,
    SchemaVersion,
    SubjectName,
)
from tidegate.schemas import Compatibility, Reference, SchemaError, SchemaFormat, SchemaText
from tidegate.schemas import protobuf as protobuf_schemas
from tidegate.schemas.schema import MAX_SCHEMA_BYTES
from tidegate.server.http.refusals import read_body
from tidegate.server.http.routing import HttpContext, Operations, RouteGroup, register, registry_operation
from tidegate.server.http.schema_access import CONFLUENT_ROOT, SchemaClient, schema_client

_METHODS = ["GET", "POST", "PUT", "DELETE"]
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_MAX_BODY_BYTES = 2 * MAX_SCHEMA_BYTES
_TYPES = ("JSON", "PROTOBUF", "AVRO")
_FORBIDDEN_CODE = 40301
_NOT_SERVED = 404
_NO_MAXIMUM = -1
_LATEST = ("latest", "-1")


@dataclass(frozen=True, slots=True)
class _Question:
    """One request: the client, what the path's names and the query say, and the body."""

    client: SchemaClient
    names: Sequence[str]
    query: Mapping[str, str]
    body: Mapping[str, Any]

    def flag(self, name: str) -> bool:
        """Return whether a parameter of the query is true."""
        return self.query.get(name, "").lower() == "true"

    def subject(self) -> tuple[str, str]:
        """Return the group and the subject that the path names first, or the default group. Raises SchemaRefused."""
        return SubjectName.parse(self.names[0]) if self.names else (DEFAULT_GROUP, "")

    def checked(self, right: Right | None) -> tuple[str, str]:
        """Return the group and the subject if the client has a right on them. Raises SchemaRefused, Forbidden."""
        place = self.subject()
        self.client.check(right, *(place if self.names else ()))
        return place

    def version(self) -> int | None:
        """Return the version that the path names second, None for the latest. Raises SchemaRefused."""
        text = self.names[1]
        if text in _LATEST:
            return None
        if not text.isdecimal() or not 0 < int(text[:11]) < 1 << 31:
            raise SchemaRefused(
                INVALID_VERSION,
                f"The specified version '{text[:20]}' is not a valid version id: it is a number from 1 to 2^31-1, "
                'or "latest"',
            )
        return int(text)


_Handle = Callable[["_Contract", _Question], Any]


@dataclass(frozen=True, slots=True)
class _Operation:
    """A row of the contract: its path, with names in braces, what it does, and the parameters of the query."""

    method: str
    path: str
    summary: str
    parameters: Sequence[str]
    handle: _Handle

    def names_in(self, method: str, segments: Sequence[str]) -> list[str] | None:
        """Return what a request's path has in place of the names; None if it is not a request for this."""
        parts = [part for part in self.path.split("/") if part]
        if method != self.method or len(parts) != len(segments):
            return None
        pairs = list(zip(parts, segments, strict=True))
        if not all(part == segment or part.startswith("{") for part, segment in pairs):
            return None
        return [segment for part, segment in pairs if part.startswith("{")]


_table: list[_Operation] = []
_SCHEMAS = {
    "offset": {"type": "integer", "minimum": 0},
    "limit": {"type": "integer"},
    "subject": {"type": "string"},
    "subjectPrefix": {"type": "string"},
    "format": {"type": "string"},
}
"""Of the parameters of the query; the others are flags."""


def _serves(method: str, path: str, summary: str, *parameters: str) -> Callable[[_Handle], _Handle]:
    def note(handle: _Handle) -> _Handle:
        _table.append(_Operation(method, path, summary, parameters, handle))
        return handle

    return note


class _Contract:
    """Answers the requests. Names may hold slashes, so that paths are split before they are decoded."""

    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._registry = context.hub.namespace.schema_registry
        self._cluster_id = context.hub.namespace.name

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        try:
            client = schema_client(self._context, request)
            body = await self._body(request)
            ask = partial(self._answer, request, client, body)
            status, answer = 200, await run_in_threadpool(self._registry.answer, ask)
        except HubError as error:
            if error.http_status in (401, 403):
                self._context.refusals.record(request, error)
            status = error.http_status
            code = error.code if isinstance(error, SchemaRefused) else _FORBIDDEN_CODE if status == 403 else status
            answer = {"error_code": code, "message": error.description}
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        headers = {"WWW-Authenticate": 'Basic realm="schema registry"'} if status == 401 else None
        return Response(content, status_code=status, media_type=_MEDIA_TYPE, headers=headers)

    async def _body(self, request: Request) -> Mapping[str, Any]:
        if request.method not in ("POST", "PUT"):
            return {}
        data = await read_body(request, _MAX_BODY_BYTES, self._context.hub.settings.body_timeout_s)
        try:
            body = json.loads(data) if data else {}
        except (ValueError, RecursionError) as error:
            raise SchemaRefused(400, f"the body is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise SchemaRefused(400, "the body must be a JSON object")
        return body

    def _answer(self, request: Request, client: SchemaClient, body: Mapping[str, Any]) -> Any:
        raw = request.scope["raw_path"].decode("latin-1").partition("?")[0].removeprefix(CONFLUENT_ROOT)
        segments = [unquote(segment) for segment in raw.split("/") if segment]
        for operation in _table:
            names = operation.names_in(request.method, segments)
            if names is not None:
                return operation.handle(self, _Question(client, names, request.query_params, body))
        raise SchemaRefused(_NOT_SERVED, f"{request.method} {request.url.path[:200]} is not served")

    # -- schemas

    @_serves("GET", "", "answer with an empty object, by which clients find out that the registry is there")
    def _root(self, question: _Question) -> Any:
        return {}

    @_serves("GET", "schemas/types", "list the formats of schemas")
    def _types(self, question: _Question) -> Any:
        return list(_TYPES)

    @_serves("GET", "schemas/ids/{id}", "return the schema of an id", "subject", "format")
    def _by_id(self, question: _Question) -> Any:
        version = self._with_id(question)
        return self._content(version, question)

    @_serves("GET", "schemas/ids/{id}/schema", "return the text of the schema of an id", "subject", "format")
    def _text_by_id(self, question: _Question) -> Any:
        return _text(self._with_id(question).schema, question).encode()

    @_serves(
        "GET", "schemas/guids/{guid}", "return the schema of a content's GUID, or of Azure's id of a version", "format"
    )
    def _by_content_id(self, question: _Question) -> Any:
        """Answer with a content; Azure's id of a version is as good, so that one address gives out every schema."""
        try:
            content_id = uuid.UUID(question.names[0])
        except ValueError:
            raise SchemaRefused(SCHEMA_NOT_FOUND, f"Schema {question.names[0][:64]} not found.") from None
        try:
            found = self._registry.with_content_id(content_id)
        except SchemaRefused:
            found = [self._registry.with_own_id(content_id.hex)]
        return self._content(_seen(question, found), question)

    @_serves("GET", "schemas/ids/{id}/subjects", "list the subjects that use the schema of an id", "deleted")
    def _subjects_of_id(self, question: _Question) -> Any:
        return sorted({_name(version) for version in self._uses(question)})

    @_serves("GET", "schemas/ids/{id}/versions", "list the versions that use the schema of an id", "deleted")
    def _versions_of_id(self, question: _Question) -> Any:
        return [{"subject": _name(version), "version": version.version} for version in self._uses(question)]

    @_serves("GET", "schemas", "list schemas", "subjectPrefix", "latestOnly", "deleted", "offset", "limit")
    def _schemas(self, question: _Question) -> Any:
        found = []
        prefix = question.query.get("subjectPrefix", "")
        for group, subject in self._registry.subjects(deleted=question.flag("deleted")):
            if SubjectName.text(group, subject).startswith(prefix) and question.client.sees(group, subject):
                versions = self._registry.versions(group, subject, deleted=question.flag("deleted"))
                found += versions[-1:] if question.flag("latestOnly") else versions
        return [self._described(version, question) for version in _page(found, question)]

    def _with_id(self, question: _Question) -> SchemaVersion:
        return _seen(question, self._registry.with_id(_id(question.names[0])))

    def _uses(self, question: _Question) -> list[SchemaVersion]:
        found = self._registry.with_id(_id(question.names[0]))
        _seen(question, found)
        return [
            version
            for version in found
            if question.client.sees(version.group, version.subject)
            and (question.flag("deleted") or not version.is_deleted)
        ]

    # -- subjects

    @_serves("GET", "subjects", "list subjects", "subjectPrefix", "deleted", "deletedOnly", "offset", "limit")
    def _subjects(self, question: _Question) -> Any:
        prefix = question.query.get("subjectPrefix", "")
        is_any = question.flag("deleted") or question.flag("deletedOnly")
        found = self._registry.subjects(deleted=is_any)
        if question.flag("deletedOnly"):
            alive = set(self._registry.subjects())
            found = [one for one in found if one not in alive]
        names = [SubjectName.text(*one) for one in found if question.client.sees(*one)]
        return _page([name for name in names if name.startswith(prefix) or prefix == ":*:"], question)

    @_serves("GET", "contexts", "list the groups that the caller may read", "offset", "limit")
    def _contexts(self, question: _Question) -> Any:
        names = [group.name for group in self._registry.groups() if question.client.sees(group.name)]
        return _page(["." if name == DEFAULT_GROUP else f".{name}" for name in names], question)

    @_serves(
        "GET",
        "subjects/{subject}/versions",
        "list the versions of a subject",
        "deleted",
        "deletedOnly",
        "offset",
        "limit",
    )
    def _versions(self, question: _Question) -> Any:
        group, subject = question.checked(None)
        is_any = question.flag("deleted") or question.flag("deletedOnly")
        found = self._registry.versions(group, subject, deleted=is_any)
        if question.flag("deletedOnly"):
            found = [version for version in found if version.is_deleted]
        return _page([version.version for version in found], question)

    @_serves("GET", "subjects/{subject}/versions/{version}", "return a version", "deleted", "format")
    def _version(self, question: _Question) -> Any:
        return self._described(self._asked_version(question), question)

    @_serves(
        "GET",
        "subjects/{subject}/versions/{version}/schema",
        "return the text of a version's schema",
        "deleted",
        "format",
    )
    def _version_text(self, question: _Question) -> Any:
        return _text(self._asked_version(question).schema, question).encode()

    @_serves(
        "GET",
        "subjects/{subject}/versions/{version}/referencedby",
        "list the ids of the schemas that refer to a version",
        "deleted",
    )
    def _referring(self, question: _Question) -> Any:
        version = self._asked_version(question)
        found = self._registry.referring(version.group, version.subject, version.version)
        return sorted({one.schema_id for one in found if question.flag("deleted") or not one.is_deleted})

    @_serves(
        "POST",
        "subjects/{subject}",
        "find the version of a subject that has a schema",
        "deleted",
        "normalize",
        "format",
    )
    def _look_up(self, question: _Question) -> Any:
        group, subject = question.checked(None)
        schema = self._schema(question)
        return self._described(self._registry.find(group, subject, schema, deleted=question.flag("deleted")), question)

    @_serves("POST", "subjects/{subject}/versions", "register a schema as a version of a subject", "normalize")
    def _register(self, question: _Question) -> Any:
        group, subject = question.checked(Right.SEND)
        number, schema_id = (_number(question.body, name) for name in ("version", "id"))
        version = self._registry.register(group, subject, self._schema(question), schema_id=schema_id, number=number)
        # clients keep a text that is answered here, and read it as the one they would be sent with another format
        return {"id": version.schema_id, "version": version.version, "guid": str(version.content_id)}

    @_serves("DELETE", "subjects/{subject}", "delete a subject", "permanent")
    def _delete_subject(self, question: _Question) -> Any:
        group, subject = question.checked(Right.MANAGE)
        return self._registry.delete(group, subject, None, is_permanent=question.flag("permanent"))

    @_serves("DELETE", "subjects/{subject}/versions/{version}", "delete a version", "permanent")
    def _delete_version(self, question: _Question) -> Any:
        group, subject = question.checked(Right.MANAGE)
        number = question.version() or self._registry.version(group, subject, None).version
        return self._registry.delete(group, subject, number, is_permanent=question.flag("permanent"))[0]

    def _asked_version(self, question: _Question) -> SchemaVersion:
        group, subject = question.checked(None)
        number = question.version()
        return self._registry.version(group, subject, number, deleted=question.flag("deleted") and number is not None)

    # -- compatibility

    @_serves(
        "POST",
        "compatibility/subjects/{subject}/versions/{version}",
        "test whether a schema is compatible with a version",
        "verbose",
        "normalize",
    )
    def _test_version(self, question: _Question) -> Any:
        group, subject = question.checked(None)
        return self._tested(question, [self._registry.version(group, subject, question.version())])

    @_serves(
        "POST",
        "compatibility/subjects/{subject}/versions",
        "test whether a schema is compatible with the versions of a subject",
        "verbose",
        "normalize",
    )
    def _test_all(self, question: _Question) -> Any:
        try:
            earlier = self._registry.versions(*question.checked(None))
        except SchemaRefused as error:
            if error.code != SUBJECT_NOT_FOUND:
                raise
            earlier = []
        return self._tested(question, earlier)

    def _tested(self, question: _Question, earlier: list[SchemaVersion]) -> Any:
        group, subject = question.subject()
        reasons = self._registry.incompatibilities(group, subject, self._schema(question), earlier)
        answer: dict[str, Any] = {"is_compatible": not reasons}
        return {**answer, "messages": reasons} if question.flag("verbose") else answer

    # -- rules

    @_serves("GET", "config", "return the compatibility of the default group")
    @_serves("GET", "config/{subject}", "return the compatibility of a subject", "defaultToGlobal")
    def _level(self, question: _Question) -> Any:
        group, subject = question.checked(None)
        found = self._registry.compatibility(group, subject) if subject else self._registry.compatibility(group)
        if found is None and question.flag("defaultToGlobal"):
            found = self._registry.compatibility(group)
        if found is None:
            message = f"Subject '{subject}' does not have subject-level compatibility configured"
            raise SchemaRefused(COMPATIBILITY_NOT_SET, message)
        return {"compatibilityLevel": found}

    @_serves("PUT", "config", "set the compatibility of the default group")
    @_serves("PUT", "config/{subject}", "set the compatibility of a subject")
    def _set_level(self, question: _Question) -> Any:
        group, subject = question.checked(Right.MANAGE)
        level = _asked_level(question)
        if subject:
            self._registry.set_compatibility(group, subject, level)
        else:
            self._registry.put_group(group, compatibility=level)
        return {"compatibility": level}

    @_serves("DELETE", "config", "reset the compatibility of the default group")
    @_serves("DELETE", "config/{subject}", "reset the compatibility of a subject")
    def _reset_level(self, question: _Question) -> Any:
        group, subject = question.checked(Right.MANAGE)
        former = self._registry.compatibility(group, subject if question.names else None)
        if question.names:
            self._registry.set_compatibility(group, subject, None)
        else:
            self._registry.put_group(group, compatibility=Compatibility.BACKWARD)
        return {"compatibilityLevel": former}

    @_serves("GET", "mode", "return the mode of the default group")
    @_serves("GET", "mode/{subject}", "return the mode of a subject", "defaultToGlobal")
    def _mode(self, question: _Question) -> Any:
        group, subject = question.checked(None)
        found = self._registry.mode(group, subject) if subject else self._registry.mode(group)
        if found is None and question.flag("defaultToGlobal"):
            found = self._registry.mode(group)
        if found is None:
            raise SchemaRefused(MODE_NOT_SET, f"Subject '{subject}' does not have subject-level mode configured")
        return {"mode": found}

    @_serves("PUT", "mode", "set the mode of the default group", "force")
    @_serves("PUT", "mode/{subject}", "set the mode of a subject", "force")
    def _set_mode(self, question: _Question) -> Any:
        group, subject = question.checked(Right.MANAGE)
        mode, is_forced = _asked_mode(question), question.flag("force")
        if not question.names and mode is Mode.IMPORT and not is_forced and self._registry.subjects(deleted=True):
            raise SchemaRefused(NOT_PERMITTED, "Cannot import since found existing subjects: add force=true")
        if subject:
            self._registry.set_mode(group, subject, mode, is_forced=is_forced)
        else:
            self._registry.put_group(group, mode=mode)
        return {"mode": mode}

    @_serves("DELETE", "mode/{subject}", "reset the mode of a subject")
    def _reset_mode(self, question: _Question) -> Any:
        group, subject = question.checked(Right.MANAGE)
        former = self._registry.mode(group, subject)
        self._registry.set_mode(group, subject, None)
        return {"mode": former}

    # -- the server

    @_serves("GET", "v1/metadata/id", "return the ids of the cluster and of the registry")
    def _identity(self, question: _Question) -> Any:
        clusters = {"kafka-cluster": self._cluster_id, "schema-registry-cluster": "tidegate"}
        return {"scope": {"path": [], "clusters": clusters}}

    @_serves("GET", "v1/metadata/version", "return the version whose contract is served")
    def _release(self, question: _Question) -> Any:
        return {"version": "7.9.0", "commitId": "tidegate"}

    # -- forms

    def _schema(self, question: _Question) -> SchemaText:
        """Return the schema of a request. Raises SchemaRefused."""
        body = question.body
        text, name = body.get("schema"), body.get("schemaType") or "AVRO"
        if not isinstance(text, str):
            raise SchemaRefused(INVALID_SCHEMA, "Empty schema")
        if name not in _TYPES:
            raise SchemaRefused(INVALID_SCHEMA, f"Invalid schema type {str(name)[:40]}: it is {', '.join(_TYPES)}")
        references = [_reference(one) for one in body.get("references") or ()]
        for reference in references:  # what is wrong with a schema says much about those that it refers to
            if not question.client.sees(*SubjectName.parse(reference.subject)):
                what = f"the reference {reference.name!r}: Subject '{reference.subject}' not found."
                raise SchemaRefused(INVALID_SCHEMA, what)
        extra = {key: body[key] for key in ("metadata", "ruleSet") if body.get(key) is not None}
        return self._registry.schema(SchemaFormat(name), text, references, extra)

    def _described(self, version: SchemaVersion, question: _Question) -> dict[str, Any]:
        return {
            "subject": _name(version),
            "version": version.version,
            "id": version.schema_id,
            **self._content(version, question),
            **({"deleted": True} if version.is_deleted else {}),
        }

    def _content(self, version: SchemaVersion, question: _Question) -> dict[str, Any]:
        schema = version.schema
        kind = {} if schema.format is SchemaFormat.AVRO else {"schemaType": schema.format.value}
        references = {"references": [one.as_json() for one in schema.references]} if schema.references else {}
        text = _text(schema, question)
        return {"guid": str(version.content_id), **kind, **references, **schema.extra, "schema": text}


def _text(schema: SchemaText, question: _Question) -> str:
    """Return the text of a schema in the form that is asked for. Raises SchemaRefused."""
    if schema.format is not SchemaFormat.PROTOBUF:
        return schema.text
    convert = (
        protobuf_schemas.as_descriptor if question.query.get("format") == "serialized" else protobuf_schemas.as_text
    )
    try:
        return convert(schema.text, schema.imported)
    except SchemaError as error:
        raise SchemaRefused(INVALID_SCHEMA, str(error)) from None


def _seen(question: _Question, found: list[SchemaVersion]) -> SchemaVersion:
    """Return one of several versions of a content, the one of the subject that is named if it has one.

    Raises SchemaRefused, as if there were none, for a client that may read none of them.
    """
    wanted = question.query.get("subject")
    visible = [version for version in found if question.client.sees(version.group, version.subject)]
    if not visible:
        raise SchemaRefused(SCHEMA_NOT_FOUND, f"Schema {question.names[0][:64]} not found.")
    return next((version for version in visible if _name(version) == wanted), visible[0])


def _name(version: SchemaVersion) -> str:
    return SubjectName.text(version.group, version.subject)


def _id(text: str) -> int:
    if not text.isdecimal() or len(text) > 10:
        raise SchemaRefused(SCHEMA_NOT_FOUND, f"Schema {text[:20]} not found.")
    return int(text)


def _number(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value in (None, 0, _NO_MAXIMUM):
        return None
    if type(value) is not int or not 0 < value < 1 << 31:
        raise SchemaRefused(
            INVALID_VERSION if name == "version" else INVALID_SCHEMA, f"{name} cannot be {value!r}"[:80]
        )
    return value


def _reference(one: Any) -> Reference:
    try:
        name, subject, version = one["name"], one["subject"], one["version"]
    except (KeyError, TypeError):
        raise SchemaRefused(INVALID_SCHEMA, "a reference has a name, a subject and a version") from None
    if not isinstance(name, str) or not isinstance(subject, str) or type(version) is not int:
        raise SchemaRefused(INVALID_SCHEMA, "a reference has a name, a subject and a version")
    return Reference(name, subject, version)


def _asked_level(question: _Question) -> Compatibility:
    value = question.body.get("compatibility")
    known = ("compatibility", "normalize")
    unknown = [key for key, one in question.body.items() if key not in known and one is not None]
    if unknown:
        raise SchemaRefused(NOT_PERMITTED, f"the setting {unknown[0][:40]!r} is not supported")
    try:
        return Compatibility(str(value).upper())
    except ValueError:
        names = ", ".join(Compatibility)
        raise SchemaRefused(INVALID_COMPATIBILITY, f"Invalid compatibility level {str(value)[:40]}: {names}") from None


def _asked_mode(question: _Question) -> Mode:
    value = question.body.get("mode")
    try:
        return Mode(str(value).upper())
    except ValueError:
        raise SchemaRefused(INVALID_MODE, f"Invalid mode {str(value)[:40]}: {', '.join(Mode)}") from None


def _page(items: list[Any], question: _Question) -> list[Any]:
    """Return the part of a list that `offset` and `limit` ask for."""
    try:
        first, count = int(question.query.get("offset", 0)), int(question.query.get("limit", _NO_MAXIMUM))
    except ValueError:
        raise SchemaRefused(422, "offset and limit are whole numbers") from None
    items = items[max(first, 0) :]
    return items[:count] if count >= 0 else items


def _routes(context: HttpContext) -> list[Route]:
    contract = _Contract(context)
    paths = (CONFLUENT_ROOT, f"{CONFLUENT_ROOT}/{{rest:path}}")
    return [Route(path, contract.answer, methods=_METHODS, include_in_schema=False) for path in paths]


def _describe() -> Operations:
    found: dict[str, dict[str, Any]] = {}
    for one in _table:
        path = f"{CONFLUENT_ROOT}/{one.path}".rstrip("/")
        query = {name: _SCHEMAS.get(name, {"type": "boolean"}) for name in one.parameters}
        body = {_MEDIA_TYPE: {"schema": {"type": "object"}}} if one.method in ("POST", "PUT") else None
        operation = registry_operation(one.method, path, one.summary, query, body)
        operation["responses"] = {"200": {"description": "the answer", "content": {_MEDIA_TYPE: {}}}, "default": _ERROR}
        found.setdefault(path, {})[one.method.lower()] = operation
    return found


_ERROR = {"description": "refused, with an error_code and a message", "content": {_MEDIA_TYPE: {}}}

register(__name__, RouteGroup(build=_routes, describe=_describe))
