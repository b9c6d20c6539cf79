"""HTTP and several workers: events go to any of them, everything else to the process that owns the namespace."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from tests.patience import PATIENCE_S
from tests.workers.support import MANY, HubOfWorkers
from tidegate.hub.access import sign

# A hub starts, in a process of its own or in several.
pytestmark = pytest.mark.slow

GROUP = "eh1/ConsumerGroups/$Default/Partitions"
BATCH = "application/vnd.microsoft.servicebus.json"


@pytest.fixture
def connections(hub: HubOfWorkers) -> Iterator[list[http.client.HTTPConnection]]:
    """Return connections to both workers, half of them with TLS."""
    context = ssl.create_default_context(cafile=str(hub.data / "tls" / "ca.pem"))
    made: list[http.client.HTTPConnection] = []
    for number in range(MANY):
        if number % 2:
            made.append(http.client.HTTPSConnection("localhost", hub.https_port, context=context, timeout=PATIENCE_S))
        else:
            made.append(http.client.HTTPConnection("localhost", hub.http_port, timeout=PATIENCE_S))
    yield made
    for one in made:
        one.close()


def token(hub: HubOfWorkers) -> str:
    parts = dict(part.split("=", 1) for part in hub.connection.split(";") if part)
    key, name = parts["SharedAccessKey"], parts["SharedAccessKeyName"]
    return sign("sb://localhost/eh1", name, key, int(time.time()) + 3600)


def publish(hub: HubOfWorkers, connection: http.client.HTTPConnection, body: bytes, partition: int) -> int:
    path = f"/eh1/partitions/{partition}/messages"
    connection.request("POST", path, body, {"Authorization": token(hub), "Content-Type": "text/plain", "MyName": "1"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def get(connection: http.client.HTTPConnection, path: str, **headers: str) -> tuple[int, bytes]:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_what_is_published_to_one_worker_is_there_for_all_protocols(
    hub: HubOfWorkers, connections: list[http.client.HTTPConnection]
) -> None:
    readers = [hub.client() for _ in range(4)]
    latest = [
        one.reader(f"{GROUP}/3", credit=100, selector="amqp.annotation.x-opt-offset > '@latest'") for one in readers
    ]
    kafka = hub.kafka()
    first = kafka.fetch("eh1", 0, partition=3, max_wait_ms=0).high_watermark
    for number, connection in enumerate(connections):
        assert publish(hub, connection, b"%d" % number, 3) == 201
        assert kafka.fetch("eh1", first + number, partition=3, max_wait_ms=0).high_watermark == first + number + 1
    kafka.close()
    for client, link in zip(readers, latest, strict=True):
        messages = client.receive(link, MANY)
        assert [b"".join(one.body) for one in messages] == [b"%d" % number for number in range(MANY)]
        assert messages[0].application_properties == {"MyName": 1}
        client.close()


def test_one_connection_asks_for_anything_in_any_order(
    hub: HubOfWorkers, connections: list[http.client.HTTPConnection]
) -> None:
    for connection in connections:
        assert publish(hub, connection, b"before", 0) == 201
        assert get(connection, "/ready") == (200, b'{"ready":true}')
        assert publish(hub, connection, b"between", 0) == 201
        status, _ = get(connection, "/", Accept="text/html")
        assert status in (200, 303)
        assert get(connection, "/nowhere")[0] == 404
        assert b"tidegate_workers 2.0" in get(connection, "/metrics")[1]
        assert get(connection, "/subscriptions?api-version=2022-12-01")[0] == 401
        assert publish(hub, connection, b"after", 0) == 201


def test_a_large_body_is_handed_over_whole(hub: HubOfWorkers, connections: list[http.client.HTTPConnection]) -> None:
    for connection in connections[:4]:
        headers = {"Authorization": token(hub), "Transfer-Encoding": "chunked"}
        pieces = (b"x" * 10_000 for _ in range(100))
        connection.request("PUT", "/$schemagroups/g/schemas/s", pieces, headers, encode_chunked=True)
        answer = connection.getresponse()
        assert answer.status in (400, 403, 404, 413)
        assert answer.read()


def test_requests_that_come_together_are_answered_in_their_order(hub: HubOfWorkers) -> None:
    head = (
        f"POST /eh1/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token(hub)}\r\nContent-Length: 1\r\n\r\nx"
    )
    ask = "GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = "GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for _ in range(4):
        with socket.create_connection(("localhost", hub.http_port), PATIENCE_S) as peer:
            peer.sendall((head + head + ask + head + last).encode())
            found = b""
            while data := peer.recv(1 << 16):
                found += data
        assert re.findall(rb"HTTP/1\.1 (\d+)", found) == [b"201", b"201", b"200", b"201", b"200"]


def test_a_client_that_leaves_is_left(hub: HubOfWorkers) -> None:
    for _ in range(4):
        with socket.create_connection(("localhost", hub.http_port), PATIENCE_S) as peer:
            peer.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert peer.recv(100).startswith(b"HTTP/1.1 200")
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(1 << 16):
                pass


def test_the_wrong_key_is_refused(hub: HubOfWorkers, connections: list[http.client.HTTPConnection]) -> None:
    for connection in connections:
        connection.request("POST", "/eh1/messages", b"x", {"Authorization": token(hub).replace("sig=", "sig=x")})
        answer = connection.getresponse()
        assert (answer.status, b"not valid" in answer.read()) == (401, True)


def test_commands_find_the_ports(hub: HubOfWorkers) -> None:
    assert json.loads(hub.get("/openapi.json"))["openapi"] == "3.1.0"
    assert str(hub.http_port) in (hub.data / "endpoint.json").read_text()
