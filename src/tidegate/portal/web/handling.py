"""What every page and every action of the portal goes through: whose request it is, whether they may, and refusals."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from tidegate.hub.errors import ArgumentError, HubError, InternalError, Unauthorized
from tidegate.log import LogError
from tidegate.portal.web.rendering import (
    JSON_SUFFIX,
    error_answer,
    html_answer,
    json_answer,
    names_json,
    wants_json,
    written_path,
)
from tidegate.portal.web.sessions import TOKEN_HEADER, Forbidden, Sessions, Visitor, VisitorRole
from tidegate.server.http.refusals import read_body
from tidegate.server.http.routing import HttpContext


def text_of(body: Any, name: str, default: str = "") -> str:
    """Return a text field of a request's body. Raises ArgumentError."""
    value = body.get(name, default) if isinstance(body, dict) else None
    if not isinstance(value, str):
        raise ArgumentError(f"{name}: expected a text")
    return value


def integer_of(body: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    """Return a whole number of a request's body or query. Raises ArgumentError."""
    value = body.get(name, default)
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ArgumentError(f"{name}: expected a whole number from {least} to {most:,}, got {str(value)[:40]!r}")
    return value


MOST_TAGS = 50
_LONGEST_TAG = {"name": 512, "value": 256}


TAG_FIELDS = ("tags", "shown")
"""What a form says of tags: as they are to be, and as it showed them before they were edited."""


def changed_tags(current: Mapping[str, str], body: Any) -> dict[str, str]:
    """Return tags with what a request's body changes. Raises ArgumentError.

    What differs between `shown` and `tags` is changed: the other tags may have been changed elsewhere since. Without
    `shown`, as scripts send it, `tags` replaces them all.
    """
    if not isinstance(body, dict) or "tags" not in body:
        raise ArgumentError("tags: expected lines of name = value; an empty text removes all tags")
    wanted = _tags_in(body, "tags")
    if "shown" not in body:
        return wanted
    shown = _tags_in(body, "shown")
    replaced = {name.lower() for name, value in wanted.items() if shown.get(name) != value}
    removed = {name.lower() for name in shown if name not in wanted}
    kept = {name: value for name, value in current.items() if name.lower() not in replaced | removed}
    changed = kept | {name: value for name, value in wanted.items() if name.lower() in replaced}
    _check_count(changed)
    return changed


def _check_count(tags: Mapping[str, str]) -> None:
    if len(tags) > MOST_TAGS:
        raise ArgumentError(f"tags: there may be {MOST_TAGS}, not {len(tags)}")


def _tags_in(body: Mapping[str, Any], field: str) -> dict[str, str]:
    """Return the tags of a field, lines of `name = value`, within Azure's limits. Raises ArgumentError."""
    found: dict[str, str] = {}
    for number, line in enumerate(text_of(body, field).splitlines(), 1):
        if not line.strip():
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or not equals:
            raise ArgumentError(f"tags, line {number}: expected name = value, got {line.strip()[:40]!r}")
        for what, text in (("name", name), ("value", value)):
            if len(text) > _LONGEST_TAG[what]:
                most = _LONGEST_TAG[what]
                raise ArgumentError(f"tags, line {number}: a {what} has at most {most} characters, not {len(text)}")
        if name.lower() in map(str.lower, found):
            raise ArgumentError(f"tags, line {number}: there is a tag {name!r} already")
        found[name] = value
    _check_count(found)
    return found


_logger = logging.getLogger(__name__)

SIGN_IN_PATH = "/sign-in"
MAX_BODY_BYTES = 8 << 20
BODY_TIMEOUT_S = 60.0

Load = Callable[[Request, Visitor], Awaitable[Mapping[str, Any]]]
Act = Callable[[Request, Visitor, Any], Awaitable[Mapping[str, Any] | Response | None]]


def _check_fields(body: Any, fields: Collection[str] | None) -> None:
    """Raise ArgumentError unless a request's body is an object of these fields; None: of any."""
    if not isinstance(body, dict):
        raise ArgumentError("the request's body: expected a JSON object")
    unknown = next((name for name in body if name not in fields), None) if fields is not None else None
    if unknown is not None:
        expected = ", ".join(fields or ()) or "none"
        raise ArgumentError(f"{unknown[:80]}: there is no such field; the fields are: {expected}")


class _JsonRoute(Route):
    """A route that ends in `.json`. `/jobs/a%2Ejson` is not one: it is the page of the job `a.json`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for this route, and what its path names."""
        return super().matches(scope) if names_json(scope) else (Match.NONE, {})


@dataclass(frozen=True, slots=True)
class Desk:
    """What handlers share: the server, and its visitors."""

    http: HttpContext
    sessions: Sessions

    def page(self, path: str, template: str, load: Load) -> list[Route]:
        """Return the routes of a page and of the same data at `.json`.

        Args:
            path: The page's path.
            template: Its template, which gets what `load` returns.
            load: Returns the page's data: what JSON can say.
        """

        async def show(request: Request, visitor: Visitor) -> Response:
            data = dict(await load(request, visitor))
            reason = self.http.hub.namespace.storage.status().reason
            if reason is not None:
                data["storage_problem"] = reason
            if names_json(request.scope):
                return json_answer(data)
            return html_answer(request, template, data, visitor, self.sessions.page_token(visitor.session))

        return [_JsonRoute(f"{path}{JSON_SUFFIX}", self.guarded(show)), Route(path, self.guarded(show))]

    def data(self, path: str, load: Load) -> Route:
        """Return the route of data that no page shows as a whole; its path ends in `.json`."""

        async def show(request: Request, visitor: Visitor) -> Response:
            return json_answer(await load(request, visitor))

        return _JsonRoute(path, self.guarded(show))

    def action(self, path: str, act: Act, needed: VisitorRole, fields: Collection[str] | None = ()) -> Route:
        """Return the route of a change: a JSON object in, JSON out, only for pages of the portal and for a role.

        Args:
            path: The path.
            act: Makes the change.
            needed: The least role that may.
            fields: What the object may hold. Any other field is refused, as it is probably misspelled, and a change
                without it is not the one that was meant. None: `act` checks that.
        """

        async def change(request: Request, visitor: Visitor) -> Response:
            if not visitor.is_exempt:
                self.sessions.check_page_token(request, visitor.session, request.headers.get(TOKEN_HEADER, ""))
            visitor.check(needed)
            content = await read_body(request, MAX_BODY_BYTES, BODY_TIMEOUT_S)
            if content:  # it may have taken long
                visitor = self._known(request)
                visitor.check(needed)
            try:
                body = json.loads(content) if content else {}
            except (ValueError, RecursionError):
                raise ArgumentError("the request's body is not JSON") from None
            _check_fields(body, fields)
            answer = await act(request, visitor, body)
            if isinstance(answer, Response):
                return answer
            return json_answer({} if answer is None else answer)

        return Route(path, self.guarded(change), methods=["POST"])

    def download(self, path: str, act: Callable[[Request, Visitor], Awaitable[Response]]) -> Route:
        """Return the route of a file."""
        return Route(path, self.guarded(act))

    def _known(self, request: Request) -> Visitor:
        """Return the visitor of a request. Raises Unauthorized without one."""
        visitor = self.sessions.visitor(request)
        if visitor is None:
            raise Unauthorized("sign in, or send a shared access signature in the Authorization header")
        return visitor

    def guarded(
        self, handle: Callable[[Request, Visitor], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that knows its visitor, and that answers refusals."""

        async def answer(request: Request) -> Response:
            visitor: Visitor | None = None
            try:
                visitor = self.sessions.visitor(request)
                if visitor is None:
                    if wants_json(request):
                        raise Unauthorized("sign in, or send a shared access signature in the Authorization header")
                    query = f"?{request.url.query}" if request.url.query else ""
                    target = quote(written_path(request.scope) + query)
                    return RedirectResponse(f"{SIGN_IN_PATH}?next={target}", status_code=303)
                return await handle(request, visitor)
            except HubError as error:
                return self.refusal(request, visitor, error)
            except (OSError, LogError) as error:
                _logger.exception("%s %s failed", request.method, request.url.path)
                reason = error.strerror if isinstance(error, OSError) else error
                return self.refusal(request, visitor, InternalError(f"the data cannot be read or written: {reason}"))

        return answer

    def refusal(self, request: Request, visitor: Visitor | None, error: HubError) -> Response:
        """Answer a refused request, count it, and log who tried what."""
        if isinstance(error, Forbidden | Unauthorized):
            host = request.client.host if request.client else "?"
            name = "nobody" if visitor is None else f"{visitor.name}, {visitor.role.value}"
            self.http.hub.metrics.refuse(error.condition)
            _logger.warning(
                "portal: refused %s (%s): %s %r: %s",
                host, name, request.method, request.url.path[:200], error.description,
            )  # fmt: skip
        token = self.sessions.page_token(visitor.session if visitor else "")
        return error_answer(request, error.http_status, error.description, visitor, token)
