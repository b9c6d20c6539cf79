"""Jobs below `/management/v1/jobs`. `OPERATIONS` is the whole of it.

A request carries a shared access signature in its Authorization header, as the rest of the management API does, and
needs the Manage right on the namespace.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidegate.hub.access_rules import Right
from tidegate.hub.errors import HubError, Unauthorized
from tidegate.server.http.body import read_body
from tidegate.server.http.routing import HttpContext, RouteGroup
from tidegate.service import (
    Changed,
    InvalidJob,
    JobDocument,
    JobExists,
    JobNotFound,
    Jobs,
    JobsUnavailable,
    Scale,
    ServiceError,
    WrongState,
)
from tidegate.service.api.representation import JobChanges, JobCreation, JobStart, shown, summed_up, with_kept_secrets

_logger = logging.getLogger(__name__)

PREFIX = "/management/v1/jobs"
MAX_BODY_BYTES = 4 << 20
_MOST_LINES = 5000
_STATUSES: Mapping[type[ServiceError], int] = {
    JobNotFound: 404,
    JobExists: 409,
    WrongState: 409,
    Changed: 412,
    InvalidJob: 400,
    JobsUnavailable: 501,
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        name: the job's, where the path has one.
        body: what the request says, as the operation takes it.
        query: the parameters of the URL.
        etag: the If-Match header.
    """

    name: str
    body: Any
    query: Mapping[str, str]
    etag: str | None


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path below PREFIX."""

    method: str
    path: str
    act: Callable[[Jobs, Call], Any]
    takes: type[BaseModel] | None = None
    status: int = 200


def _create(jobs: Jobs, call: Call) -> Any:
    document = JobDocument(call.body.definition, scale=Scale(call.body.streaming_units))
    return shown(jobs.create(call.name, document))


def _update(jobs: Jobs, call: Call) -> Any:
    def change(document: JobDocument) -> JobDocument:
        definition, units = call.body.definition, call.body.streaming_units
        if definition is not None:
            document = replace(document, definition=with_kept_secrets(definition, document.definition))
        return document if units is None else replace(document, scale=Scale(units))

    return shown(jobs.edit(call.name, change, etag=call.etag))


def _start(jobs: Jobs, call: Call) -> Any:
    try:
        mode = call.body.mode
    except ValueError as error:
        raise InvalidJob(call.name, [str(error)]) from None
    return shown(jobs.start(call.name, mode, call.body.output_start_time))


def _logs(jobs: Jobs, call: Call) -> Any:
    after = call.query.get("after", "")
    page = jobs.logs(call.name, limit=_limit(call), after=int(after) if after.isdecimal() else None)
    return {"lines": list(page.lines), "next": page.next}


def _check(jobs: Jobs, call: Call) -> Any:
    return {"problems": list(jobs.check(call.name, call.body.definition))}


def _limit(call: Call) -> int:
    limit = call.query.get("limit", "")
    return min(int(limit), _MOST_LINES) if limit.isdecimal() else 200


OPERATIONS = (
    Operation("GET", "", lambda jobs, call: {"value": [summed_up(job) for job in jobs.list()]}),
    Operation("GET", "/{name}", lambda jobs, call: shown(jobs.show(call.name))),
    Operation("PUT", "/{name}", _create, JobCreation, 201),
    Operation("PATCH", "/{name}", _update, JobChanges),
    Operation("DELETE", "/{name}", lambda jobs, call: jobs.delete(call.name), status=204),
    Operation("POST", "/{name}/start", _start, JobStart, 202),
    Operation("POST", "/{name}/stop", lambda jobs, call: shown(jobs.stop(call.name)), status=202),
    Operation("POST", "/{name}/check", _check, JobCreation),
    Operation("GET", "/{name}/status", lambda jobs, call: jobs.status(call.name)),
    Operation("GET", "/{name}/metrics", lambda jobs, call: dict(jobs.metrics(call.name))),
    Operation("GET", "/{name}/logs", _logs),
    Operation(
        "GET", "/{name}/dataerrors", lambda jobs, call: {"value": list(jobs.data_errors(call.name, limit=_limit(call)))}
    ),
)


def job_routes(jobs: Jobs) -> RouteGroup:
    """Return the routes for the jobs of a service."""

    def build(context: HttpContext) -> list[Route]:
        return [_route(context, jobs, operation) for operation in OPERATIONS]

    return RouteGroup(build)


def _route(context: HttpContext, jobs: Jobs, operation: Operation) -> Route:
    async def handle(request: Request) -> Response:
        try:
            return await _perform(context, jobs, operation, request)
        except HubError as error:
            context.refusals.record(request, error)
            return _problem(error.http_status, error.description)
        except ServiceError as error:
            return _problem(_STATUSES.get(type(error), 500), str(error))

    return Route(PREFIX + operation.path, handle, methods=[operation.method])


async def _perform(context: HttpContext, jobs: Jobs, operation: Operation, request: Request) -> Response:
    authorization = request.headers.get("authorization")
    if authorization is None:
        raise Unauthorized("the Authorization header with a shared access signature is missing")
    access = context.hub.namespace.access
    grant = access.check_token(authorization, time.time())
    access.authorize([grant], Right.MANAGE, (), time.time())
    name = request.path_params.get("name", "")
    body = None
    if operation.takes is not None:
        content = await read_body(request, MAX_BODY_BYTES, context.hub.settings.body_timeout_s)
        body = _parsed(name, operation.takes, content)
    call = Call(name, body, request.query_params, request.headers.get("if-match"))
    answer = await run_in_threadpool(operation.act, jobs, call)
    if operation.method != "GET":
        _logger.info("%s %s by a key of %s", operation.method, request.url.path, grant.rule_name)
    return Response(status_code=204) if operation.status == 204 else JSONResponse(answer, operation.status)


def _parsed(name: str, model: type[BaseModel], content: bytes) -> BaseModel:
    try:
        return model.model_validate_json(content or b"{}")
    except ValidationError as error:
        # The input is left out: it may hold secrets.
        problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_input=False)]
        raise InvalidJob(name, [f"the request's body: {problem}" for problem in problems]) from None


def _problem(status: int, detail: str) -> Response:
    body = json.dumps({"status": status, "detail": detail})
    return Response(body, status, media_type="application/problem+json")
