"""The end of a hub, as its clients over TCP and TLS see it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.amqp.pair import SASL_START, raw
from tests.patience import PROMPTLY_S
from tests.server.conftest import entity
from tidegate.amqp.framing.frames import AMQP_HEADER
from tidegate.amqp.framing.performatives import Close, Open
from tidegate.hub.config import NamespaceConfig
from tidegate.server import Server, ServerSettings


def trusting(server: Server) -> ssl.SSLContext:
    assert server.certificate is not None
    return ssl.create_default_context(cafile=str(server.certificate.authority_file))


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_the_end_of_the_stream_follows_the_close_to_javascript_and_waits_for_no_answer(
    tmp_path: Path, make_config: Callable[..., NamespaceConfig], scheme: str
) -> None:
    async def play() -> bytes:
        settings = ServerSettings(amqp_port=0, amqps_port=0, http_port=None, stop_timeout_s=3 * PROMPTLY_S)
        server = Server(make_config(entity("hub")), tmp_path, settings)
        await server.start()
        port, tls = (server.amqp_port, None) if scheme == "amqp" else (server.amqps_port, trusting(server))
        reader, writer = await asyncio.open_connection("localhost", port, ssl=tls)
        writer.write(SASL_START + AMQP_HEADER + raw(Open("peer", properties={"product": "MSJSClient"})))
        await reader.readuntil(AMQP_HEADER)
        stopping = asyncio.create_task(server.stop())
        try:
            async with asyncio.timeout(PROMPTLY_S):
                said = await reader.read()
            # Nothing is amiss on the connection: what the client says now is still read.
            writer.write(raw(Close()))
            await writer.drain()
            return said
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            await stopping

    assert b"the hub is stopping; connect again" in asyncio.run(play())
