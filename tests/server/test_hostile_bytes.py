"""Bytes that mean to exhaust the hub, sent to one that runs with little memory: it refuses them and serves others."""

import base64
import contextlib
import gzip
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.amqp.test_limits import HOSTILE
from tests.patience import PATIENCE_S, PROMPTLY_S
from tidegate.hub.access import sign

# A hub starts, in a process of its own or in several.
pytestmark = pytest.mark.slow

MEMORY_BYTES = 1200 << 20
"""Address space, most of which are stacks of threads; the hub uses some 60 MB."""
BATCH = "application/vnd.microsoft.servicebus.json"
DEEP = "[" * 400_000


@dataclass
class LimitedHub:
    http: tuple[str, int]
    amqp: tuple[str, int]
    token: str
    process: subprocess.Popen[str]

    def post(self, body: bytes, headers: dict[str, str] | None = None, path: str = "/eh1/messages") -> int:
        url = f"http://{self.http[0]}:{self.http[1]}{path}"
        request = urllib.request.Request(url, body, {"Authorization": self.token, **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def send_raw(self, address: tuple[str, int], data: bytes) -> bytes:
        """What the hub answers until it has nothing more to say, or closes."""
        with socket.create_connection(address, timeout=PATIENCE_S) as peer:
            answer = b""
            try:
                peer.sendall(data)
                peer.settimeout(1)
                while piece := peer.recv(65_536):
                    answer += piece
            except (TimeoutError, ConnectionError):
                pass
            return answer

    def serves(self) -> bool:
        return self.process.poll() is None and self.post(b"still here") == 201


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedHub]:
    data: Path = tmp_path_factory.mktemp("limited")
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", "up", "--data", str(data), "--amqp-port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
        env=os.environ | {"MALLOC_ARENA_MAX": "2"},
    )
    ports = {}
    assert process.stdout is not None
    for line in process.stdout:
        name, _, value = line.strip().partition(": ")
        ports[name] = value
        if "Successfully Up" in line:
            break
    addresses = {name: ("127.0.0.1", int(ports[name].rpartition(":")[2])) for name in ("HTTP", "AMQP")}
    token = sign("sb://localhost/", "RootManageSharedAccessKey", "SAS_KEY_VALUE", int(time.time()) + 600)
    yield LimitedHub(addresses["HTTP"], addresses["AMQP"], token, process)
    process.terminate()
    assert process.wait(PATIENCE_S) == 0


def event(**fields: object) -> bytes:
    return json.dumps([{"Body": "x", **fields}]).encode()


BATCHES = {
    "nested arrays": DEEP.encode(),
    "nested objects": b'{"a":' * 150_000,
    "a million small arrays": b"[" + b"[]," * 330_000 + b"[]]",
    "a number of a million digits": b'[{"Body":"x","UserProperties":{"n":' + b"9" * 1_000_000 + b"}}]",
    "an integer beyond 64 bits": event(UserProperties={"n": 1 << 70}),
    "properties nested in a text": event(UserProperties=DEEP),
    "half a character": b'[{"Body":"\\ud800"}]',
    "not UTF-8": b'[{"Body":"\xff"}]',
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_hostile_batch_is_refused(hub: LimitedHub, name: str) -> None:
    assert hub.post(BATCHES[name], {"Content-Type": BATCH}) == 400
    assert hub.serves()


def test_the_headers_of_an_event_may_be_nested_or_long(hub: LimitedHub) -> None:
    assert hub.post(b"x", {"BrokerProperties": "[" * 10_000}) == 400
    assert hub.post(b"x", {"Own": "[" * 10_000}) == 201
    assert hub.post(b"x", {"Own": "9" * 10_000}) == 201
    head = b"POST /eh1/messages HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 100_000
    assert b" 4" in hub.send_raw(hub.http, head)[:16]
    assert hub.serves()


def test_a_compressed_body_is_not_inflated(hub: LimitedHub) -> None:
    assert hub.post(gzip.compress(bytes(200 << 20)), {"Content-Encoding": "gzip"}) == 201
    assert hub.serves()


def test_a_management_request_may_be_nested(hub: LimitedHub) -> None:
    path = "subscriptions/s/resourceGroups/g/providers/Microsoft.EventHub/namespaces/tidegate/eventhubs/made"
    url = f"http://{hub.http[0]}:{hub.http[1]}/{path}?api-version=2024-01-01"
    headers = {"Authorization": "Bearer SAS_KEY_VALUE"}
    request = urllib.request.Request(url, b"[" * 4_000_000, headers, method="PUT")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=PATIENCE_S)
    assert refused.value.code == 400
    assert hub.serves()


FRAMINGS = {
    "a body of an exabyte announced": (b"Content-Length: 1000000000000000000", b"", b" 413"),
    "a chunk of 2^60 bytes announced": (
        b"Transfer-Encoding: chunked",
        b"fffffffffffffff\r\n" + b"x" * 2_000_000,
        b" 413",
    ),
    "chunks of one byte for ever": (b"Transfer-Encoding: chunked", b"1\r\nx\r\n" * 100_000, b" "),
    "a chunk whose size never ends": (b"Transfer-Encoding: chunked", b"0" * 200_000, b" 4"),
    "a transfer encoding that nobody asked for": (b"Transfer-Encoding: gzip", b"x", b" "),
    "two lengths": (b"Content-Length: 1\r\nContent-Length: 2", b"xx", b" 400"),
    "a length beside chunks": (b"Content-Length: 1\r\nTransfer-Encoding: chunked", b"0\r\n\r\n", b" 400"),
    "a negative length": (b"Content-Length: -1", b"", b" 400"),
}


@pytest.mark.parametrize("name", FRAMINGS)
def test_a_hostile_framing_is_refused_promptly(hub: LimitedHub, name: str) -> None:
    header, body, status = FRAMINGS[name]
    head = b"POST /eh1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: " + hub.token.encode() + b"\r\n" + header
    started = time.monotonic()
    answer = hub.send_raw(hub.http, head + b"\r\n\r\n" + body)
    assert time.monotonic() - started < PROMPTLY_S
    assert status in answer[:16] or not answer
    assert hub.serves()


def test_a_body_in_tiny_chunks_does_not_hold_up_others(hub: LimitedHub) -> None:
    """Its chunks are parsed in small portions, between which other connections have their turns."""
    head = b"POST /eh1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: " + hub.token.encode()
    head += b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    answers = 0
    done = threading.Event()

    def send() -> None:
        with socket.create_connection(hub.http, timeout=PATIENCE_S) as peer, contextlib.suppress(ConnectionError):
            peer.sendall(head + b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n")
            peer.recv(1)
        done.set()

    sender = threading.Thread(target=send)
    sender.start()
    while not done.is_set():
        with urllib.request.urlopen(f"http://{hub.http[0]}:{hub.http[1]}/health", timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        answers += 1
    sender.join()
    # A hub that parsed all of it at once would answer before, after, or not at all meanwhile.
    assert answers > 3


WEB_SOCKET_FRAMES = {
    "a frame of 2^62 bytes": b"\x82\xff" + struct.pack(">Q", 1 << 62) + b"mask" + b"x" * 1000,
    "a frame of 2^63 bytes": b"\x82\xff" + struct.pack(">Q", 1 << 63) + b"mask",
    "a text frame": b"\x81\x83mask" + b"abc",
    "a ping of 64 KB": b"\x89\xfe\xff\xffmask" + b"x" * 65_535,
    "fragments for ever": b"\x02\xfe\xff\xffmask" + b"x" * 65_535 + (b"\x00\xfe\xff\xffmask" + b"x" * 65_535) * 400,
    "an unmasked frame": b"\x82\x05AMQP\x00",
}


@pytest.mark.parametrize("name", WEB_SOCKET_FRAMES)
def test_a_hostile_web_socket_frame_ends_at_most_its_connection(hub: LimitedHub, name: str) -> None:
    key = base64.b64encode(os.urandom(16))
    upgrade = b"GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    upgrade += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: AMQPWSB10\r\nSec-WebSocket-Key: " + key
    answer = hub.send_raw(hub.http, upgrade + b"\r\n\r\n" + WEB_SOCKET_FRAMES[name])
    assert b" 101 " in answer[:16] or not answer
    assert hub.serves()


AMQP_START = b"AMQP\x00\x01\x00\x00"
OPEN_BODY = b"\x00\x53\x10\xc0\x04\x01\xa1\x01c"


@pytest.mark.parametrize("size", [0, 7, 8, 1 << 31, 0xFFFFFFFF])
def test_a_frame_of_any_announced_size_ends_at_most_its_connection(hub: LimitedHub, size: int) -> None:
    hub.send_raw(hub.amqp, AMQP_START + struct.pack(">IBBH", size, 2, 0, 0) + b"x" * 1000)
    assert hub.serves()


def test_hostile_values_in_frames_end_at_most_their_connection(hub: LimitedHub) -> None:
    opened = struct.pack(">IBBH", 8 + len(OPEN_BODY), 2, 0, 0) + OPEN_BODY
    for value in HOSTILE.values():
        body = b"\x00\x53\x11" + value
        hub.send_raw(hub.amqp, AMQP_START + opened + struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body)
    assert hub.serves()
