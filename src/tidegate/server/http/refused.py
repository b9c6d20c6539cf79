"""Answers to requests that are refused, in the words of the service's runtime API."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response


def error_answer(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an XML document with a status and what was wrong."""
    content = f"<Error><Code>{status}</Code><Detail>{escape(detail)}</Detail></Error>"
    return Response(content, status_code=status, media_type="application/xml", headers=headers)


async def not_served(request: Request, error: Exception) -> Response:
    """Answer a request for a path or method that does not exist."""
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {request.url.path[:200]} is not served: {error.detail}"
    return error_answer(error.status_code, detail, error.headers)
