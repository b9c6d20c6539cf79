"""Requests that are refused: what they are answered, how they are counted and logged, and the limits of a body."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Callable, Mapping
from xml.sax.saxutils import escape

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tidegate.hub.access import claimed_rule
from tidegate.hub.errors import ArgumentError, HubError, MessageTooLarge
from tidegate.server.context.metrics import LoggedRefusals, ServerMetrics

_logger = logging.getLogger(__name__)


def error_answer(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an XML document with a status and what was wrong."""
    content = f"<Error><Code>{status}</Code><Detail>{escape(detail)}</Detail></Error>"
    return Response(content, status_code=status, media_type="application/xml", headers=headers)


def is_loopback(host: str) -> bool:
    """Return whether a host, by its name or address, is this machine itself."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


async def not_served(request: Request, error: Exception) -> Response:
    """Answer a request for a path or method that does not exist."""
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {request.url.path[:200]} is not served: {error.detail}"
    return error_answer(error.status_code, detail, error.headers)


class HttpRefusals:
    """What all HTTP requests of a server were refused for."""

    def __init__(self, metrics: ServerMetrics, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._logged = LoggedRefusals(monotonic_s)

    def record(self, request: Request, error: HubError, caller: str = "", hub: str = "") -> None:
        """Count a refusal, and log who asked for what: the host and the rule that the token names.

        `hub` is the event hub that was asked for, if it exists.

        A `caller` whose name was verified is logged in its place, and has a limit of its own: what strangers send
        cannot keep it out of the log.
        """
        self._metrics.refuse(error.condition, hub)
        host = request.client.host if request.client else "?"
        ending = self._logged.ending((host, caller))
        if ending is None:
            return
        rule = caller or claimed_rule(request.headers.get("authorization"))
        _logger.warning(
            "refused %s%s: %s %r: %s (%s)%s",
            host,
            f" ({rule!r})" if rule else "",
            request.method,
            request.url.path[:200],
            error.description,
            error.condition,
            ending,
        )


async def read_body(request: Request, limit: int, timeout_s: float) -> bytes:
    """Read a request's body.

    Args:
        request: The request, whose head has come.
        limit: The most bytes it may have. A larger Content-Length is refused before anything of the body is read.
        timeout_s: How long the whole body may take.

    Raises:
        MessageTooLarge: It has more bytes.
        ArgumentError: It did not come in time, or the client left.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limit:
        raise MessageTooLarge(f"a request may have {limit} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for piece in request.stream():
                body += piece
                if len(body) > limit:
                    raise MessageTooLarge(f"a request may have {limit} bytes")
    except ClientDisconnect:
        raise ArgumentError("the client left before the body had come") from None
    except TimeoutError:
        raise ArgumentError(f"the body did not come within {timeout_s:g} s") from None
    return bytes(body)
