"""Whatever bytes come before anybody has shown a token: no traceback, bounded memory, and a clear end."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.amqp.pair import BEGIN, OPEN, SASL_START, credit, raw, transfer
from tests.server.conftest import entity
from tidegate.amqp import Message, Properties, encode_message
from tidegate.amqp.encoding.types import CONNECTION_FORCED
from tidegate.amqp.framing.frames import AMQP_HEADER, SASL_HEADER
from tidegate.amqp.framing.performatives import Attach, Close, Detach, End, Open, SaslInitFrame, Source, Target
from tidegate.hub.config import NamespaceConfig
from tidegate.server import Server, ServerSettings

MOST_BYTES_HELD = 1 << 20
CHUNK_BYTES = 1 << 18
"""As much as the event loop hands over at once."""


class Wire:
    """A transport that keeps what is written. Nothing is read from it once it is closed or paused."""

    peer = "127.0.0.1:1"

    def __init__(self) -> None:
        self.written = bytearray()
        self.open = True
        self.has_ended = False
        self.write = self.written.extend

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self.open = False

    def end(self) -> None:
        self.has_ended = True

    abort = close


class Preauthenticated:
    """A server without ports, and what went wrong in it."""

    def __init__(self, runner: asyncio.Runner, server: Server) -> None:
        self.runner = runner
        self.server = server
        self.faults: list[str] = []

    def converse(self, pieces: list[bytes]) -> Wire:
        """Play a client that sends these pieces, and then hangs up unless the hub has done so before."""

        async def play() -> Wire:
            wire = Wire()
            connection = self.server.converse(wire)
            for piece in pieces:
                if wire.open:
                    connection.data_received(piece)
            if wire.open:
                connection.eof_received()
            connection.connection_lost()
            return wire

        wire = self.runner.run(play())
        assert not self.faults
        assert not wire.open
        assert not self.server.clients
        return wire


@pytest.fixture(scope="module")
def hub(
    tmp_path_factory: pytest.TempPathFactory, make_config: Callable[..., NamespaceConfig]
) -> Iterator[Preauthenticated]:
    server = Server(make_config(entity("hub")), Path(tmp_path_factory.mktemp("data")), ServerSettings(amqp_port=None))
    with asyncio.Runner() as runner:
        playing = Preauthenticated(runner, server)
        handler = logging.Handler(logging.ERROR)
        handler.emit = lambda record: playing.faults.append(logging.Formatter().format(record))
        logging.getLogger("tidegate").addHandler(handler)
        runner.get_loop().set_exception_handler(lambda _loop, what: playing.faults.append(str(what)))
        runner.run(server.start())
        yield playing
        runner.run(server.stop())
        logging.getLogger("tidegate").removeHandler(handler)


def attach(handle: int, address: str, *, sender: bool = True) -> bytes:
    count = 0 if sender else None
    return raw(
        Attach(
            f"link {handle}",
            handle,
            not sender,
            source=Source(address),
            target=Target(address),
            initial_delivery_count=count,
        )
    )


def request(**properties: Any) -> bytes:
    message = Message(
        properties=Properties(message_id=1), application_properties=properties, body_kind="value", body="x"
    )
    return encode_message(message)


PLAIN = SASL_HEADER + raw(SaslInitFrame("PLAIN", b"\x00RootManageSharedAccessKey\x00wrong"), kind=1)
PUT_TOKEN = request(operation="put-token", type="servicebus.windows.net:sastoken", name="sb://localhost/hub")
READ = request(operation="READ", type="com.microsoft:eventhub", name="hub", security_token="no token")
FRAGMENTS = [
    SASL_START,
    PLAIN,
    SASL_HEADER,
    AMQP_HEADER,
    OPEN,
    BEGIN,
    attach(0, "$cbs"),
    attach(1, "$cbs", sender=False),
    attach(2, "$management"),
    attach(3, "$management", sender=False),
    attach(4, "hub"),
    attach(5, "hub/ConsumerGroups/$Default/Partitions/0", sender=False),
    credit(5, handle=1),
    credit(5, handle=5),
    transfer(0, PUT_TOKEN),
    transfer(1, READ, handle=2),
    transfer(2, PUT_TOKEN, handle=4),
    transfer(3, PUT_TOKEN * 20, more=True),
    raw(Detach(0, True)),
    raw(End()),
    raw(Close()),
    bytes(1 << 14),
    b"\x00\x00\x00\x08\x02\x00\x00\x00" * 4096,
    b"GET / HTTP/1.1\r\n\r\n",
]
START = SASL_START + OPEN + BEGIN


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """Frames in any order, most of them sensible, some damaged."""
    chosen = draw(st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=40), max_size=12))
    data = bytearray(draw(st.sampled_from([b"", SASL_START, SASL_START + OPEN, START])) + b"".join(chosen))
    for _ in range(draw(st.integers(0, 3)) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@given(data=conversations(), cuts=st.lists(st.integers(0, 1 << 15), max_size=8))
@example(data=SASL_START + bytes(1 << 14), cuts=[])
@example(data=PLAIN + bytes(1 << 15), cuts=[])
@example(data=PLAIN + bytes(1 << 15), cuts=[len(PLAIN) - 1])
def test_bytes_of_a_client_without_a_token_end_at_most_its_connection(
    hub: Preauthenticated, data: bytes, cuts: list[int]
) -> None:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:stop] for start, stop in pairwise(places)]
    wire = hub.converse(pieces)
    assert len(wire.written) < MOST_BYTES_HELD


ENDLESS = {
    "a header that never ends": (b"", b"AMQP" * 1000),
    "no header at all": (b"", bytes(1 << 16)),
    "behind the SASL init": (SASL_START, bytes(1 << 16)),
    "behind a refused SASL init": (PLAIN, bytes(1 << 16)),
    "headers again and again": (SASL_START, SASL_HEADER * 5000),
    "heartbeats": (SASL_START + OPEN, b"\x00\x00\x00\x08\x02\x00\x00\x00" * 8192),
    "one delivery without an end": (START + FRAGMENTS[6], transfer(0, bytes(1 << 12), more=True) * 16),
    "requests that nobody reads the answers of": (START + FRAGMENTS[6] + FRAGMENTS[7], transfer(0, PUT_TOKEN) * 300),
    "sessions": (SASL_START + OPEN, BEGIN * 1000),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "heartbeats" else []) for name in ENDLESS]
)
def test_a_client_without_a_token_occupies_little_memory_however_much_it_sends(
    hub: Preauthenticated, name: str
) -> None:
    start, rest = ENDLESS[name]
    chunk = (rest * (CHUNK_BYTES // len(rest) + 1))[:CHUNK_BYTES]

    async def play() -> int:
        wire = Wire()
        connection = hub.server.converse(wire)
        connection.data_received(start)
        tracemalloc.start()
        held = 0
        for _ in range(12):
            if wire.open:
                connection.data_received(chunk)
                wire.written.clear()
                held = max(held, tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        connection.connection_lost()
        return held

    assert hub.runner.run(play()) < 2 * MOST_BYTES_HELD
    assert not hub.faults


JAVASCRIPT = SASL_START + AMQP_HEADER + raw(Open("peer", properties={"product": "MSJSClient"}))


@pytest.mark.parametrize(
    ("sent", "rest", "has_ended"),
    [(JAVASCRIPT, b"", True), (SASL_START + OPEN, b"", False), (SASL_HEADER, JAVASCRIPT[len(SASL_HEADER) :], False)],
    ids=["JavaScript", "another", "handshake"],
)
def test_a_goodbye_to_javascript_ends_the_stream_unless_the_handshake_is_under_way(
    hub: Preauthenticated, sent: bytes, rest: bytes, has_ended: bool
) -> None:
    async def play() -> Wire:
        wire = Wire()
        connection = hub.server.converse(wire)
        connection.data_received(sent)
        connection.say_goodbye()
        assert wire.has_ended is has_ended
        connection.data_received(rest + raw(Close()))
        connection.connection_lost()
        return wire

    wire = hub.runner.run(play())
    assert not wire.open
    assert b"the hub is stopping; connect again" in wire.written


@pytest.mark.parametrize(("product", "is_answered"), [("MSJSClient", True), ("azsdk-python-eventhubs", False)])
def test_what_is_published_while_the_hub_stops_is_answered_where_the_client_would_wait(
    hub: Preauthenticated, product: str, is_answered: bool
) -> None:
    root = hub.server.namespace.access.rule_table.root_rule
    key = SaslInitFrame("PLAIN", f"\0{root.name}\0{root.primary_key}".encode())

    async def play() -> bytes:
        wire = Wire()
        connection = hub.server.converse(wire)
        connection.data_received(SASL_HEADER + raw(key, kind=1) + AMQP_HEADER)
        connection.data_received(raw(Open("peer", properties={"product": product})) + BEGIN + attach(0, "hub"))
        assert (connection.wind_down() > 0) is is_answered
        wire.written.clear()
        connection.data_received(transfer(0, encode_message(Message(body=b"late"))))
        connection.connection_lost()
        return bytes(wire.written)

    assert (CONNECTION_FORCED.encode() in hub.runner.run(play())) is is_answered
