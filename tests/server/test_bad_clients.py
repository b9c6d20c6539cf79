"""Clients that misbehave are closed or cost nothing; a working client beside them notices nothing."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError

from tests.patience import PATIENCE_S
from tests.server.conftest import RawClient
from tidegate.amqp import Message, encode_message
from tidegate.hub.access import sign
from tidegate.hub.config import NamespaceConfig
from tidegate.server import BackgroundServer

pytestmark = pytest.mark.sdk


# As short as a client that works can do with on a busy machine: it has to open in the first and to speak in the second.
OPEN_TIMEOUT_S = 1.0
IDLE_TIMEOUT_S = 2.0
BODY_TIMEOUT_S = 0.5
IN_FLIGHT_BYTES = 100_000
# What asyncio reads at once, which is more where the client is quick and the hub is not.
READ_BYTES = 256 << 10


@pytest.fixture(scope="module")
def serving(
    tmp_path_factory: pytest.TempPathFactory, make_config: Callable[..., NamespaceConfig]
) -> Callable[..., Any]:
    """Starts a server with such limits."""
    config = make_config({"Name": "target", "PartitionCount": 2, "ConsumerGroups": []})

    @contextmanager
    def start(**limits: Any) -> Iterator[BackgroundServer]:
        with BackgroundServer(config, tmp_path_factory.mktemp("strict"), http_port=0, **limits) as server:
            yield server

    return start


@pytest.fixture(scope="module")
def strict(serving: Callable[..., Any]) -> Iterator[BackgroundServer]:
    """A server that does not wait long for anybody."""
    with serving(
        open_timeout_s=OPEN_TIMEOUT_S,
        body_timeout_s=BODY_TIMEOUT_S,
        idle_timeout_ms=int(IDLE_TIMEOUT_S * 1000),
        unsent_bytes_per_client=100_000,
        in_flight_bytes_per_client=IN_FLIGHT_BYTES,
    ) as server:
        yield server


class Bystander:
    """A working client that publishes all the time and notes how long each took."""

    def __init__(self, connection: str) -> None:
        self.seconds: list[float] = []
        self._stop = threading.Event()
        self._connection = connection
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with EventHubProducerClient.from_connection_string(
            self._connection, eventhub_name="target", retry_total=0
        ) as producer:
            while not self._stop.wait(0.02):
                started = time.monotonic()
                try:
                    producer.send_event(EventData("working"), partition_id="1")
                except EventHubError:
                    if self.seconds:
                        raise
                    continue  # on a busy machine it takes a working client too long to open
                self.seconds.append(time.monotonic() - started)

    def stop(self) -> None:
        self._stop.set()
        self.thread.join(PATIENCE_S)


@pytest.fixture(scope="module")
def working(strict: BackgroundServer) -> Iterator[Bystander]:
    client = Bystander(strict.connection_string)
    yield client
    client.stop()


@pytest.fixture
def bystander(working: Bystander, eventually: Callable[[Callable[[], object]], None]) -> Iterator[None]:
    """Whatever the test does, this client must not notice."""
    eventually(lambda: working.seconds)
    before = len(working.seconds)
    yield
    eventually(lambda: len(working.seconds) > before or not working.thread.is_alive())
    assert working.thread.is_alive()
    # It takes milliseconds; whom another client can hold up waits for as long as that one likes.
    assert max(working.seconds[before:]) < 20


def connect(server: BackgroundServer) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", server.server.amqp_port or 0))
    peer.settimeout(PATIENCE_S)
    return peer


def read_to_end(peer: socket.socket) -> bytes:
    """What the server says until it closes."""
    said = b""
    try:
        while chunk := peer.recv(65536):
            said += chunk
    except ConnectionResetError:
        pass
    return said


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(range(256)) * 64,
        b"AMQP\x00\x01\x00\x00" + b"\xff" * 64,
        b"AMQP\x03\x01\x00\x00" + struct.pack(">IBBH", 0xFFFFFFFF, 2, 1, 0),
        b"AMQP\x00\x01\x00\x00" + struct.pack(">IBBH", 4, 2, 0, 0),
        b"AMQP\x00\x01\x00\x00" + struct.pack(">IBBH", 9, 2, 0, 0) + b"\x00",
    ],
)
def test_garbage_is_answered_with_a_close(strict: BackgroundServer, bystander: None, garbage: Any) -> None:
    with connect(strict) as peer:
        peer.sendall(garbage)
        read_to_end(peer)


def test_a_peer_that_says_nothing_is_closed(strict: BackgroundServer, bystander: None) -> None:
    started = time.monotonic()
    with connect(strict) as peer:
        assert read_to_end(peer) == b""
    assert time.monotonic() - started >= 0.99 * OPEN_TIMEOUT_S


def test_a_peer_that_drips_bytes_is_closed(strict: BackgroundServer, bystander: None) -> None:
    with connect(strict) as peer, pytest.raises(ConnectionError):
        drip(peer, b"AMQP\x00\x01\x00\x00" + struct.pack(">IBBH", 100_000, 2, 0, 0), b"\x00")


def drip(peer: socket.socket, start: bytes, drop: bytes) -> None:
    """The start, and then the drop again and again until the server has enough of it."""
    deadline = time.monotonic() + PATIENCE_S
    drops: Iterable[int] = itertools.chain(start, itertools.cycle(drop))
    for byte in drops:
        assert time.monotonic() < deadline, "the server let it drip"
        peer.sendall(bytes([byte]))
        time.sleep(0.02)


def test_half_of_a_connection_costs_nothing(strict: BackgroundServer, bystander: None) -> None:
    peers = [connect(strict) for _ in range(100)]
    for peer in peers:
        peer.sendall(b"AMQP\x00\x01\x00\x00")
    for peer in peers:
        read_to_end(peer)
        peer.close()


def fill(strict: Any) -> None:
    """More than the kernel's buffers take between a server and a client that does not read."""
    with EventHubProducerClient.from_connection_string(strict.connection_string, eventhub_name="target") as producer:
        for _ in range(20):
            producer.send_event(EventData("x" * 900_000), partition_id="0")


def test_a_reader_that_never_grants_credit_is_closed_when_it_is_silent(
    strict: BackgroundServer, sign_in: Callable[..., RawClient], bystander: None
) -> None:
    fill(strict)
    client = sign_in(strict.server, "target")
    client.reader("target/ConsumerGroups/$Default/Partitions/0")
    rest = read_to_end(client.socket)
    assert len(rest) < 1000


def test_a_reader_that_takes_nothing_is_not_sent_more_than_its_share(
    strict: BackgroundServer,
    sign_in: Callable[..., RawClient],
    bystander: None,
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    fill(strict)
    client = sign_in(strict.server, "target")
    client.reader("target/ConsumerGroups/$Default/Partitions/0", credit=100_000)
    (victim,) = (c for c in strict.server.clients if c.peer.endswith(f":{client.socket.getsockname()[1]}"))
    client.socket.sendall(client.amqp.data_to_send())
    eventually(lambda: not victim.writable)
    with EventHubProducerClient.from_connection_string(strict.connection_string, eventhub_name="target") as producer:
        assert producer.get_partition_properties("0")["last_enqueued_sequence_number"] >= 19
    client.socket.close()


def test_a_frame_that_never_ends_does_not_hold_its_connection_open_for_ever(
    strict: BackgroundServer, sign_in: Callable[..., RawClient], bystander: None
) -> None:
    client = sign_in(strict.server, "target")
    client.socket.sendall(struct.pack(">IBBH", 500_000, 2, 0, 0) + b"\x00" * 1000)
    read_to_end(client.socket)


def test_a_publisher_that_never_reads_its_answers(
    strict: BackgroundServer,
    sign_in: Callable[..., RawClient],
    bystander: None,
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    client = sign_in(strict.server, "target")
    link = client.publisher("target/Partitions/1")
    event = encode_message(Message(body_kind="data", body=[b"x" * 1000]))
    while link.send_deliveries([event] * 100, settled=False):
        client.socket.sendall(client.amqp.data_to_send())
    client.socket.close()
    eventually(lambda: len(strict.server.clients) <= 1)


def test_a_publisher_is_read_no_further_while_the_disk_has_not_what_it_sent(
    serving: Callable[..., Any],
    sign_in: Callable[..., RawClient],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    is_free = threading.Event()
    sync = os.fdatasync

    def sync_later(descriptor: int) -> None:
        assert is_free.wait(PATIENCE_S)
        sync(descriptor)

    with serving(in_flight_bytes_per_client=IN_FLIGHT_BYTES) as server:
        client = sign_in(server.server, "target")
        link = client.publisher("target/Partitions/1")
        (victim,) = server.server.clients
        monkeypatch.setattr(os, "fdatasync", sync_later)
        event = encode_message(Message(body_kind="data", body=[b"x" * 1000]))
        while link.send_deliveries([event] * 100, settled=False):
            client.socket.sendall(client.amqp.data_to_send())
        eventually(lambda: not victim._reading)
        assert IN_FLIGHT_BYTES < victim.in_flight_bytes <= IN_FLIGHT_BYTES + READ_BYTES
        is_free.set()
        eventually(lambda: victim._reading and victim.in_flight_bytes == 0)
        client.socket.close()


def connect_web(server: BackgroundServer) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", server.server.http_port or 0))
    peer.settimeout(PATIENCE_S)
    return peer


@pytest.mark.parametrize("head", [b"", b"POST /target/messages HTTP/1.1\r\nHost: localhost\r\nX-"])
def test_a_web_client_whose_request_never_comes_is_closed(
    strict: BackgroundServer, bystander: None, head: bytes
) -> None:
    started = time.monotonic()
    with connect_web(strict) as peer:
        peer.sendall(head)
        assert read_to_end(peer) == b""
    assert time.monotonic() - started >= 0.99 * OPEN_TIMEOUT_S


def test_a_web_client_that_drips_the_head_of_a_request_is_closed(strict: BackgroundServer, bystander: None) -> None:
    with connect_web(strict) as peer, pytest.raises(ConnectionError):
        drip(peer, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"x")


def test_a_second_request_that_never_comes_whole_is_closed_too(strict: BackgroundServer, bystander: None) -> None:
    with connect_web(strict) as peer:
        peer.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in peer.recv(65536)
        # With the first byte of the next request the time is over in which a connection may do nothing.
        peer.sendall(b"GET /health HTTP/1.1\r\n")
        read_to_end(peer)


def head_of(token: str, length: int) -> bytes:
    return f"POST /target/messages HTTP/1.1\r\nAuthorization: {token}\r\nContent-Length: {length}\r\n".encode()


@pytest.fixture
def web_token(key: str) -> str:
    return sign("http://localhost/target", "RootManageSharedAccessKey", key, int(time.time()) + 60)


def test_a_body_that_never_comes_is_refused(strict: BackgroundServer, web_token: str, bystander: None) -> None:
    with connect_web(strict) as peer:
        peer.sendall(head_of(web_token, 9) + b"Host: localhost\r\n\r\nfour")
        answer = read_to_end(peer)
        assert b" 400 " in answer
        assert b"the body did not come within 0.5 s" in answer


def test_a_body_that_drips_on_after_its_refusal_is_closed(
    strict: BackgroundServer, web_token: str, bystander: None
) -> None:
    with connect_web(strict) as peer:
        peer.sendall(head_of(web_token, 100_000_000) + b"Host: localhost\r\n\r\n")
        with pytest.raises(ConnectionError):
            drip(peer, b"", b"x")


def test_a_refused_body_that_still_comes_leaves_the_connection_in_use(
    serving: Callable[..., Any], web_token: str
) -> None:
    # What is left of a request has as long as a head has.
    with serving(body_timeout_s=BODY_TIMEOUT_S) as patient, connect_web(patient) as peer:
        peer.sendall(head_of(web_token, 9) + b"Host: localhost\r\n\r\nfour")
        assert b" 400 " in peer.recv(65536)
        peer.sendall(b"+five" + head_of(web_token, 4) + b"Host: localhost\r\nConnection: close\r\n\r\nbody")
        assert b" 201 " in read_to_end(peer)


def test_a_request_may_take_longer_than_its_head(serving: Callable[..., Any], web_token: str) -> None:
    with serving(open_timeout_s=OPEN_TIMEOUT_S) as patient, connect_web(patient) as peer:
        peer.sendall(head_of(web_token, 4) + b"Host: localhost\r\nConnection: close\r\n\r\nbo")
        time.sleep(1.3 * OPEN_TIMEOUT_S)
        peer.sendall(b"dy")
        assert b" 201 " in read_to_end(peer)
