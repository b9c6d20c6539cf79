"""The body of a request, of which there is not more and not for longer than there may be."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from tidegate.hub.errors import ArgumentError, MessageTooLarge


async def read_body(request: Request, limit: int, timeout_s: float) -> bytes:
    """All of it. Raises MessageTooLarge, ArgumentError when it does not come, or not in time."""
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
