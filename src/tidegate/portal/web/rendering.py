"""From a page's data to HTML or JSON, with the headers that keep both safe."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import jinja2
from starlette.requests import Request
from starlette.responses import Response

from tidegate.portal.web.assets import asset_url, style_sheet
from tidegate.portal.web.roles import Role, Visitor

JSON_SUFFIX = ".json"
_SIZES = ("B", "KB", "MB", "GB", "TB")


@cache
def environment() -> jinja2.Environment:
    """Return the templates; everything that they print is escaped."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("tidegate.portal"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.globals |= {"asset": asset_url, "style_sheet": style_sheet}
    made.filters |= {"size": size, "number": number, "moment": moment, "segment": segment, "rate": rate}
    return made


def compile_templates() -> None:
    """Compile all templates, so that the first visitor does not wait for it."""
    for name in environment().list_templates():
        environment().get_template(name)


def size(count: float | None) -> str:
    """Return a number of bytes for people, in powers of 1000."""
    if count is None:
        return "–"
    for unit in _SIZES[:-1]:
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_SIZES[-1]}"


def number(value: float | None) -> str:
    """Return a number with separators, or a dash."""
    return "–" if value is None else f"{value:,}"


def rate(value: float | None) -> str:
    """Return events a second with as many digits as say something, or a dash."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:,.2f}"


def moment(value: str | None) -> str:
    """Return an ISO 8601 time as a date and a time of day in UTC, or a dash."""
    return "–" if not value else value.replace("T", " ").removesuffix("Z")


def iso_of_ms(time_ms: int | None) -> str | None:
    """Return a time in ISO 8601, None for no time."""
    if not time_ms:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def segment(name: str) -> str:
    """Return a name as one segment of a URL's path."""
    return quote(name, safe="$-_.~")


def security_headers(nonce: str = "") -> dict[str, str]:
    """Return the headers of every answer; the nonce is for the style elements that the editor makes."""
    style = f"'self' 'nonce-{nonce}'" if nonce else "'self'"
    policy = (
        f"default-src 'none'; script-src 'self'; style-src {style}; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def json_answer(data: Any, status: int = 200) -> Response:
    """Return an answer in JSON."""
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A body may hold half a character, which UTF-8 cannot.
    content = body.encode("utf-8", "replace")
    return Response(content, status_code=status, media_type="application/json", headers=security_headers())


def html_answer(
    request: Request, template: str, data: Mapping[str, Any], visitor: Visitor | None, token: str, status: int = 200
) -> Response:
    """Return a page.

    Args:
        request: The request that it answers.
        template: The template's file name.
        data: What the page shows, the same as at `.json`.
        visitor: Who sees it, None before signing in.
        token: What the page's changes carry.
        status: The status of the answer.
    """
    nonce = secrets.token_urlsafe(16)
    path = request.url.path
    text = (
        environment()
        .get_template(template)
        .render(
            **data,
            nonce=nonce,
            token=token,
            visitor=visitor,
            may_change=visitor is not None and visitor.role.includes(Role.CONTRIBUTOR),
            is_manager=visitor is not None and visitor.role.includes(Role.MANAGER),
            has_key=visitor is not None and visitor.has_key,
            is_owner=visitor is not None and visitor.role is Role.OWNER,
            path=path,
            json_path=f"{path}{JSON_SUFFIX}" + (f"?{request.url.query}" if request.url.query else ""),
        )
    )
    return Response(text, status_code=status, media_type="text/html", headers=security_headers(nonce))


def wants_json(request: Request) -> bool:
    """Return whether a request is for JSON: by its path, or because a script sent it."""
    accepted = request.headers.get("accept", "")
    return request.url.path.endswith(JSON_SUFFIX) or request.method != "GET" or "text/html" not in accepted


def error_answer(request: Request, status: int, detail: str, visitor: Visitor | None, token: str) -> Response:
    """Return a refusal, as a page for people and as JSON for scripts."""
    if wants_json(request):
        return json_answer({"error": {"status": status, "detail": detail}}, status)
    data = {"title": HTTPStatus(status).phrase, "detail": detail}
    return html_answer(request, "error.html", data, visitor, token, status)
