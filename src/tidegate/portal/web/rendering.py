"""From a page's data to HTML or JSON, with the headers that keep both safe."""

from __future__ import annotations

import gzip
import hashlib
import importlib.resources
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from tidegate.portal.web.sessions import Visitor, VisitorRole

MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
PREFIX = "/assets/"


@dataclass(frozen=True, slots=True)
class Asset:
    """One file with what a browser needs to know about it."""

    content: bytes
    compressed: bytes
    media_type: str
    digest: str


@cache
def assets() -> dict[str, Asset]:
    """Return the files by name."""
    found = {}
    for file in importlib.resources.files("tidegate.portal").joinpath("static").iterdir():
        media_type = MEDIA_TYPES.get("." + file.name.rpartition(".")[2])
        if media_type is not None:
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:16]
            found[file.name] = Asset(content, gzip.compress(content, mtime=0), media_type, digest)
    return found


def asset_url(name: str) -> str:
    """Return the URL of an asset. Raises KeyError if there is none of that name."""
    return f"{PREFIX}{assets()[name].digest}/{name}"


def style_sheet(name: str) -> str:
    """Return a style sheet for a style element. A page that has it inside is painted without a second request.

    Raises KeyError if there is none of that name.
    """
    return assets()[name].content.decode()


async def serve_asset(request: Request) -> Response:
    """Answer a request for an asset; an outdated digest gets the current content, to be asked for again."""
    asset = assets().get(request.path_params["name"])
    if asset is None:
        return Response("no such file", status_code=404, media_type="text/plain")
    is_current = request.path_params["digest"] == asset.digest
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if is_current else "no-cache",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept-Encoding",
    }
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.compressed, media_type=asset.media_type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(asset.content, media_type=asset.media_type, headers=headers)


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
    made.filters |= {"size": size, "number": number, "moment": moment, "ago": ago, "segment": segment, "rate": rate}
    made.filters |= {"with_times": with_times}
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
    """Return an ISO 8601 time as an element with the date and time of day, or a dash.

    It is in UTC and to the millisecond. The page's script shows it in the visitor's time zone if that is wanted, and
    the whole of it in a tooltip.
    """
    return _time(value, "")


def ago(value: str | None) -> str:
    """Return the same as `moment`, for times that the page's script tells by how long ago they were."""
    return _time(value, "data-ago")


_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)")


def with_times(text: str) -> str:
    """Return a text whose times are elements, as `moment` makes them."""
    parts = _MOMENT.split(text)
    return Markup("").join(moment(part) if number % 2 else escape(part) for number, part in enumerate(parts))


_DECIMALS = re.compile(r"(\.\d{1,3})\d*")


def _time(value: str | None, attribute: str) -> str:
    if not value:
        return "–"
    text = _DECIMALS.sub(r"\1", value.replace("T", " ").removesuffix("Z").removesuffix("+00:00"))
    # Markup.format takes ten times as long, and a log has hundreds of times.
    return Markup(f'<time datetime="{escape(value)}" {attribute}>{escape(text)}</time>')


def iso_of_ms(time_ms: int | None) -> str | None:
    """Return a time in ISO 8601, None for no time."""
    if not time_ms:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return what a name is sorted by, such that hub-2 comes before hub-10."""
    parts = re.split(r"(\d+)", name.lower())
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part)


def segment(name: str) -> str:
    """Return a name as one segment of a URL's path, which does not ask for JSON where the name ends in `.json`."""
    quoted = quote(name, safe="$-_.~")
    return f"{quoted.removesuffix(JSON_SUFFIX)}%2Ejson" if quoted.endswith(JSON_SUFFIX) else quoted


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
    path = written_path(request.scope)
    text = (
        environment()
        .get_template(template)
        .render(
            **data,
            nonce=nonce,
            token=token,
            visitor=visitor,
            may_change=visitor is not None and visitor.role.includes(VisitorRole.CONTRIBUTOR),
            is_manager=visitor is not None and visitor.role.includes(VisitorRole.MANAGER),
            has_key=visitor is not None and visitor.has_key,
            is_owner=visitor is not None and visitor.role is VisitorRole.OWNER,
            path=path,
            json_path=f"{path}{JSON_SUFFIX}" + (f"?{request.url.query}" if request.url.query else ""),
        )
    )
    return Response(text, status_code=status, media_type="text/html", headers=security_headers(nonce))


def written_path(scope: Scope) -> str:
    """Return a request's path as the client wrote it, in which an escaped dot is not a dot."""
    raw: bytes = scope["raw_path"]
    return raw.decode("latin-1").partition("?")[0]


def names_json(scope: Scope) -> bool:
    """Return whether a request's path ends in `.json`, other than as the end of a name."""
    return written_path(scope).endswith(JSON_SUFFIX)


def wants_json(request: Request) -> bool:
    """Return whether a request is for JSON: by its path, or because a script sent it."""
    accepted = request.headers.get("accept", "")
    return names_json(request.scope) or request.method != "GET" or "text/html" not in accepted


def error_answer(request: Request, status: int, detail: str, visitor: Visitor | None, token: str) -> Response:
    """Return a refusal, as a page for people and as JSON for scripts."""
    if wants_json(request):
        return json_answer({"error": {"status": status, "detail": detail}}, status)
    data = {"title": HTTPStatus(status).phrase, "detail": detail}
    return html_answer(request, "error.html", data, visitor, token, status)
