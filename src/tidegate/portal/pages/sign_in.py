"""`/sign-in`: a session for visitors from elsewhere, with a key or a connection string of the namespace."""

from __future__ import annotations

import logging
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tidegate.hub.access_rules import ROOT_RULE
from tidegate.hub.errors import HubError
from tidegate.portal.web.handling import SIGN_IN_PATH, Desk
from tidegate.portal.web.rendering import html_answer
from tidegate.portal.web.sessions import COOKIE, SESSION_S
from tidegate.server.http.refusals import read_body

_logger = logging.getLogger(__name__)
MAX_FORM_BYTES = 16 << 10
SIGN_OUT_PATH = "/sign-out"


def sign_in_routes(desk: Desk) -> list[Route]:
    """Return the routes of signing in and out."""
    sessions = desk.sessions

    async def show(request: Request) -> Response:
        return _page(desk, request, "", request.query_params.get("next", "/"), ROOT_RULE, 200)

    async def sign_in(request: Request) -> Response:
        target, rule = "/", ROOT_RULE
        try:
            form = await _form(request)
            target, rule = form.get("next", "/"), form.get("rule", rule)
            sessions.check_page_token(request, "", form.get("csrf_token", ""))
            identifier = sessions.sign_in(*_rule_and_key(form))
        except HubError as error:
            desk.refusal(request, None, error)
            return _page(desk, request, error.description, target, rule, error.http_status)
        host = request.client.host if request.client else "?"
        _logger.info("portal: %s signed in with a key", host)
        answer = RedirectResponse(local_path(target), status_code=303)
        answer.set_cookie(
            COOKIE,
            identifier,
            max_age=int(SESSION_S),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def sign_out(request: Request) -> Response:
        identifier = request.cookies.get(COOKIE, "")
        try:
            form = await _form(request)
            sessions.check_page_token(request, identifier, form.get("csrf_token", ""))
        except HubError as error:
            return desk.refusal(request, None, error)
        sessions.sign_out(identifier)
        answer = RedirectResponse(SIGN_IN_PATH, status_code=303)
        answer.delete_cookie(COOKIE)
        return answer

    return [
        Route(SIGN_IN_PATH, show, methods=["GET"]),
        Route(SIGN_IN_PATH, sign_in, methods=["POST"]),
        Route(SIGN_OUT_PATH, sign_out, methods=["POST"]),
    ]


def _page(desk: Desk, request: Request, problem: str, target: str, rule: str, status: int) -> Response:
    namespace = desk.http.hub.namespace.name
    data = {"problem": problem, "next": local_path(target), "rule": rule, "namespace": namespace}
    return html_answer(request, "sign_in.html", data, None, desk.sessions.page_token(""), status)


async def _form(request: Request) -> dict[str, str]:
    content = await read_body(request, MAX_FORM_BYTES, 60.0)
    return {name: values[-1] for name, values in parse_qs(content.decode("utf-8", "replace")).items()}


def _rule_and_key(form: dict[str, str]) -> tuple[str, str]:
    """Return what a form says: a rule's name and key, or a connection string that has both."""
    key = form.get("key", "").strip()
    parts = {name.strip().lower(): value.strip() for name, _, value in (part.partition("=") for part in key.split(";"))}
    if "sharedaccesskey" in parts:
        return parts.get("sharedaccesskeyname", ""), parts["sharedaccesskey"]
    return form.get("rule", "").strip(), key


def local_path(target: str) -> str:
    """Return where to go after signing in: a path of the portal, never another site."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc or not target.startswith("/") or target.startswith(("//", "/\\")):
        return "/"
    return target
