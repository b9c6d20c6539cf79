"""The management API without HTTP: finds a request's operation, checks the caller's right, and answers.

Everything here runs in worker threads. Writes take turns, so that what an If-Match header was compared with is what the
write replaces.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import quote

from tidegate.azure.management.access.requests import (
    ArmAnswer,
    ArmError,
    ArmRequest,
    Found,
    Operation,
    OperationTable,
    bad_request,
    etag_of,
    path_segments,
    refused_by_hub,
)
from tidegate.azure.management.access.tokens import Caller
from tidegate.azure.management.manager.state import DEFAULT_LOCATION
from tidegate.hub.errors import HubError
from tidegate.log import LogError


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A type of resource: `namespaces/eventhubs`, with the versions of the API that clients are offered."""

    name: str
    api_versions: tuple[str, ...]


class ResourceProvider(Protocol):
    """A provider such as Microsoft.EventHub."""

    namespace: str
    kinds: Sequence[ResourceKind]

    def operations(self) -> Sequence[Operation]:
        """Return what it serves."""

    def top_level(self, subscription: str, group: str) -> Sequence[dict[str, Any]]:
        """Return its resources in a group (empty: in the subscription), as their own GET answers them."""

    def delete_group(self, group: str) -> None:
        """Delete what was created in an explicit group. Raises ArmError, OSError."""


def provider_resource(provider: ResourceProvider, prefix: str = "") -> dict[str, Any]:
    """Return a provider with its types, by which clients choose a version of the API."""
    return {
        "id": f"{prefix}/providers/{provider.namespace}",
        "namespace": provider.namespace,
        "registrationState": "Registered",
        "registrationPolicy": "RegistrationFree",
        "resourceTypes": [
            {
                "resourceType": kind.name,
                "locations": [DEFAULT_LOCATION],
                "apiVersions": list(kind.api_versions),
                "defaultApiVersion": kind.api_versions[0],
                "capabilities": "SupportsTags, SupportsLocation",
            }
            for kind in provider.kinds
        ],
    }


_logger = logging.getLogger(__name__)
_API_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(-(preview|alpha|beta|privatepreview))?", re.IGNORECASE)
_WRITES = ("PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class Question:
    """A request before its operation is known.

    Attributes:
        method: GET, HEAD, PUT, PATCH, POST or DELETE.
        segments: The decoded segments of the path.
        query: The query parameters, their names in lower case.
        headers: Their names in lower case.
        base_url: Scheme, host and port by which the client reached the server.
    """

    method: str
    segments: Sequence[str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    base_url: str


class ResourceManager:
    """Answers requests by a table of operations."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._table = OperationTable(operations)
        self._writing = threading.RLock()

    def find(self, question: Question) -> Found:
        """Return the operation that a request is for. Raises ArmError."""
        found = self._table.find(question.method, question.segments)
        version = question.query.get("api-version", "")
        if not version:
            raise bad_request(
                "The api-version query parameter (?api-version=) is required for all requests.",
                "MissingApiVersionParameter",
            )
        if not _API_VERSION.fullmatch(version):
            raise bad_request(
                f"The api-version '{version[:40]}' is invalid: it is a date, as in 2024-01-01.",
                "InvalidApiVersionParameter",
            )
        return found

    def is_public(self, question: Question) -> bool:
        """Return whether a request needs no token, because its URL holds a secret."""
        try:
            return self._table.find(question.method, question.segments).operation.is_public
        except ArmError:
            return False

    def authorize(self, found: Found, question: Question, caller: Caller) -> None:
        """Check that the caller may do what is asked. Raises ArmError with 403."""
        path = "/" + "/".join(question.segments)
        _authorize(found, ArmRequest(question.method, path, found.names, who=caller.name, role=caller.role))

    def answer(self, found: Found, question: Question, caller: Caller, body: Any) -> ArmAnswer:
        """Do what is asked. Raises ArmError."""
        request = ArmRequest(
            question.method,
            "/" + "/".join(question.segments),
            found.names,
            question.query,
            question.headers,
            body,
            question.base_url,
            caller.name,
            caller.role,
        )
        if request.method in _WRITES:
            with self._writing:
                self._check_preconditions(request)
                return _with_etag(request, _acting(found.operation.act, request))
        answer = _with_etag(request, _acting(found.operation.act, request))
        if request.method == "GET" and question.headers.get("if-none-match") == answer.headers.get("ETag", ""):
            return ArmAnswer(304, headers=answer.headers)
        return answer

    def perform(self, request: ArmRequest) -> ArmAnswer:
        """Do what another operation asks for on behalf of its caller, such as a deployment. Raises ArmError."""
        segments = path_segments(quote(request.path))
        found = self._table.find(request.method, segments)
        _authorize(found, replace(request, names=found.names))
        if request.is_dry:
            return ArmAnswer()
        with self._writing:
            return _acting(found.operation.act, replace(request, names=found.names))

    def _check_preconditions(self, request: ArmRequest) -> None:
        """Compare If-Match and If-None-Match with the current resource. Raises ArmError with 412."""
        wanted, unwanted = request.headers.get("if-match"), request.headers.get("if-none-match")
        if wanted is None and unwanted is None:
            return
        current = self._current_etag(request)
        if wanted is not None and not _matches(wanted, current):
            raise ArmError(412, "PreconditionFailed", "the resource has changed, or does not exist: If-Match fails")
        if unwanted is not None and _matches(unwanted, current):
            raise ArmError(412, "PreconditionFailed", "the resource exists already: If-None-Match fails")

    def _current_etag(self, request: ArmRequest) -> str | None:
        try:
            show = self._table.find("GET", tuple(request.path.strip("/").split("/")))
            asked = replace(request, method="GET", names=show.names, body=None, query={})
            answer = _acting(show.operation.act, asked)
        except ArmError as error:
            if error.status in (404, 405):
                return None
            raise
        return answer.headers.get("ETag") or etag_of(answer.body)


def _authorize(found: Found, request: ArmRequest) -> None:
    """Check that the caller of a request has the right it needs. Raises ArmError with 403."""
    action = found.operation.action
    owner_only = found.operation.owner_only(request)
    if request.role.may(action) and not (owner_only and not request.role.may("Microsoft.Authorization/write")):
        return
    hint = "; the root key is a credential of this API, so it needs the role of an owner" if owner_only else ""
    raise ArmError(
        403,
        "AuthorizationFailed",
        f"The client '{request.who}' with the role {request.role.value} does not have authorization to perform "
        f"action '{action}' over scope '{request.path[:300]}'{hint}.",
    )


def _matches(header: str, etag: str | None) -> bool:
    if etag is None:
        return False
    given = [tag.strip().removeprefix("W/").strip('"') for tag in header.split(",")]
    return "*" in given or etag.strip('"') in given


def _with_etag(request: ArmRequest, answer: ArmAnswer) -> ArmAnswer:
    """Give the answer with a whole resource its entity tag."""
    is_resource = isinstance(answer.body, dict) and "id" in answer.body and request.method in ("GET", "PUT", "PATCH")
    if not is_resource or answer.status >= 400 or "ETag" in answer.headers or request.query.get("$expand"):
        return answer
    return replace(answer, headers={**answer.headers, "ETag": etag_of(answer.body)})


def _acting(act: Callable[[ArmRequest], ArmAnswer], request: ArmRequest) -> ArmAnswer:
    """Do what an operation does, with all refusals in Resource Manager's words. Raises ArmError."""
    try:
        return act(request)
    except HubError as error:
        raise refused_by_hub(error) from None
    except (OSError, LogError) as error:
        _logger.exception("%s %s failed", request.method, request.path[:200])
        reason = error.strerror if isinstance(error, OSError) else error
        raise ArmError(500, "InternalError", f"the change could not be written: {reason}") from None
