"""The body of a request, limited in size and time."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from tidegate.hub.errors import ArgumentError, MessageTooLarge


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
