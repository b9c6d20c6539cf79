"""Publishing by HTTPS as its users do, and what beside it answers."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import PATIENCE_S, eventually
from tests.server.conftest import Receive
from tidegate.amqp import parse_message
from tidegate.hub.access import sign
from tidegate.hub.config import NamespaceConfig
from tidegate.hub.errors import ArgumentError
from tidegate.server import BackgroundServer, Server
from tidegate.server.http.routes.publishing import BATCH_CONTENT_TYPE, parse_publication

SINGLE = "application/atom+xml;type=entry;charset=utf-8"


class Web:
    """A caller that trusts the development CA."""

    def __init__(self, server: Any, key: str) -> None:
        self.base = f"https://localhost:{server.https_port}"
        self.key = key
        self.context = ssl.create_default_context(cafile=str(server.certificate.authority_file))

    def call(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        request = urllib.request.Request(self.base + path, data=body, method="GET" if body is None else "POST")
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def publish(self, path: str, body: bytes, content_type: str = SINGLE, **headers: str) -> tuple[int, bytes]:
        resource = f"{self.base}/{path.split('/')[0]}"
        token = sign(resource, "RootManageSharedAccessKey", self.key, int(time.time()) + 60)
        full = f"/{path}/messages?timeout=60&api-version=2014-01"
        return self.call(full, body, Authorization=token, Content_Type=content_type, **headers)


@pytest.fixture(scope="module")
def web(server: Server, key: str) -> Any:
    return Web(server, key)


@pytest.mark.sdk
def test_a_single_event(web: Any, hub: str, receive: Receive) -> None:
    answer = web.publish(hub, b'{"a": 1}', BrokerProperties='{"PartitionKey": "7"}', Alert='"strong wind"', Level="3")
    assert answer == (201, b"")
    (event,) = receive(1, partition="1")
    assert event.body_as_str() == '{"a": 1}'
    assert event.partition_key == b"7"
    assert event.properties == {b"Alert": b"strong wind", b"Level": 3}


@pytest.mark.sdk
def test_a_batch_to_a_partition(web: Any, hub: str, receive: Receive) -> None:
    batch = [{"Body": "one"}, {"Body": "two", "UserProperties": {"colour": "red"}}]
    status, _ = web.publish(f"{hub}/partitions/0", json.dumps(batch).encode(), BATCH_CONTENT_TYPE)
    assert status == 201
    first, second = receive(2, partition="0")
    assert [first.body_as_str(), second.body_as_str()] == ["one", "two"]
    assert second.properties == {b"colour": b"red"}


@pytest.mark.parametrize("spelling", ["publishers", "publisher"])
def test_a_publisher(web: Any, hub: str, spelling: str) -> None:
    assert web.publish(f"{hub}/{spelling}/device-1", b"x") == (201, b"")


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("no-such-hub", b"x", {}, 404),
        ("HUB/partitions/99", b"x", {}, 400),
        ("HUB", b"x" * 1_100_000, {}, 413),
        ("HUB", b"x", {"BrokerProperties": "{"}, 400),
        ("HUB", b"[1]", {"content_type": BATCH_CONTENT_TYPE}, 400),
        ("HUB", b"not json", {"content_type": BATCH_CONTENT_TYPE}, 400),
        ("HUB", b'[{"Body": "\\ud800"}]', {"content_type": BATCH_CONTENT_TYPE}, 400),
        ("HUB", b'[{"Body": "x", "UserProperties": {"a": "\\ud800"}}]', {"content_type": BATCH_CONTENT_TYPE}, 400),
        ("HUB", b"x", {"Authorization": "SharedAccessSignature sr=x&sig=x&se=1&skn=x"}, 401),
    ],
)
def test_refusals_say_why(web: Any, hub: str, path: str, body: Any, headers: Any, status: int) -> None:
    if "Authorization" in headers:
        code, detail = web.call(f"/{hub}/messages", body, **headers)
    else:
        code, detail = web.publish(path.replace("HUB", hub), body, **headers)
    assert code == status
    assert f"<Error><Code>{status}</Code><Detail>".encode() in detail


@pytest.mark.parametrize("timeout", ["0", "-1", "60", "1e9", "²", "9" * 5000, ""])
def test_any_timeout_is_taken(web: Any, hub: str, timeout: Any) -> None:
    token = sign(f"{web.base}/{hub}", "RootManageSharedAccessKey", web.key, int(time.time()) + 60)
    path = f"/{hub}/messages?timeout={urllib.parse.quote(timeout)}"
    assert web.call(path, b"x", Authorization=token) == (201, b"")


@pytest.mark.parametrize(
    ("signed", "asked", "status"),
    [
        ("{hub}/messages", "{hub}/messages", 201),
        ("{HUB}/messages/", "{hub}/messages", 201),
        ("{hub}/partitions/0/messages", "{hub}/partitions/0/messages", 201),
        ("{hub}/publishers/one/messages", "{hub}/publishers/one/messages", 201),
        ("{hub}/publisher/one/messages", "{hub}/publisher/one/messages", 201),
        ("{hub}/messages", "{hub}/partitions/0/messages", 401),
        ("{hub}/messages", "{hub}/publishers/one/messages", 401),
        ("{hub}/publishers/one/messages", "{hub}/publishers/two/messages", 401),
        ("{hub}/publishers/one/messages", "{hub}/messages", 401),
        ("wide/messages", "{hub}/messages", 401),
        ("messages", "{hub}/messages", 401),
        ("{hub}/messages/messages", "{hub}/messages", 401),
    ],
)
def test_a_token_may_be_for_the_url_that_is_posted_to(web: Any, hub: str, signed: str, asked: str, status: int) -> None:
    resource = f"{web.base}/{signed.format(hub=hub, HUB=hub.upper())}"
    token = sign(resource, "RootManageSharedAccessKey", web.key, int(time.time()) + 60)
    assert web.call(f"/{asked.format(hub=hub)}", b"x", Authorization=token)[0] == status


def test_a_client_that_leaves_within_its_body_is_no_fault_of_ours(
    server: Server, key: str, hub: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = sign("http://localhost/", "RootManageSharedAccessKey", key, int(time.time()) + 60)
    head = f"POST /{hub}/messages HTTP/1.1\r\nHost: x\r\n"
    with socket.create_connection(("127.0.0.1", server.http_port)) as client:
        client.sendall(f"{head}Authorization: {token}\r\nContent-Length: 100\r\n\r\n{{".encode())
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass
    eventually(lambda: "the client left" in caplog.text)
    assert "Traceback" not in caplog.text
    assert "Exception in ASGI" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize("framing", ["Content-Length: 3000000", "Transfer-Encoding: chunked"])
def test_a_client_that_sends_a_body_nobody_wants_sees_why(
    server: Server, web: Any, hub: str, framing: str, secured: bool
) -> None:
    """Its connection is not reset while it still sends, though it wants it closed after the answer."""
    port = server.https_port if secured else server.http_port
    with socket.create_connection(("localhost", port), PATIENCE_S) as plain:
        client = web.context.wrap_socket(plain, server_hostname="localhost") if secured else plain
        client.sendall(f"POST /{hub}/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{framing}\r\n\r\n".encode())
        # The answer, 401, has been sent by then.
        time.sleep(0.3)
        body = b"x" * 3_000_000 if "Length" in framing else b"100000\r\n" + b"x" * 0x100000 + b"\r\n0\r\n\r\n"
        for first in range(0, len(body), 100_000):
            client.sendall(body[first : first + 100_000])
            time.sleep(0.005)
        answer = b""
        while piece := client.recv(65536):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert answer.endswith(b"</Error>")


def test_without_a_token(web: Any, hub: str) -> None:
    assert web.call(f"/{hub}/messages", b"x")[0] == 401


@pytest.mark.sdk
def test_properties_are_called_what_the_publisher_calls_them(
    server: Server, key: str, hub: str, receive: Receive
) -> None:
    """Over one connection, with names that differ in case only from one request to the next."""
    token = sign(f"http://localhost/{hub}", "RootManageSharedAccessKey", key, int(time.time()) + 60)
    connection = http.client.HTTPConnection("localhost", server.http_port, timeout=PATIENCE_S)
    for name in ("deviceId", "DEVICEID", "X-Temperature"):
        headers = {"AUTHORIZATION": token, "content-TYPE": SINGLE, name: "7", "brokerProperties": "{}"}
        connection.request("POST", f"/{hub}/partitions/0/messages", b"x", headers)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (201, b"")
    connection.close()
    assert [event.properties for event in receive(3, partition="0")] == [
        {b"deviceId": 7},
        {b"DEVICEID": 7},
        {b"X-Temperature": 7},
    ]


@pytest.mark.sdk
def test_a_batch_with_all_that_its_events_may_have(web: Any, hub: str, receive: Receive) -> None:
    batch = [
        {"Body": "one", "UserProperties": {"Alert": "Strong", "n": 3, "x": 1.5, "on": True, "none": None}},
        {"Body": "{}", "BrokerProperties": {"PartitionKey": "k", "CorrelationId": "ignored"}},
        {"Body": "", "BrokerProperties": '{"PartitionKey": "k"}'},
    ]
    assert web.publish(hub, json.dumps(batch).encode(), BATCH_CONTENT_TYPE + "; charset=utf-8")[0] == 201
    events = receive(3)
    assert [event.body_as_str() for event in events] == ["one", "{}", ""]
    assert {event.partition_key for event in events} == {b"k"}
    assert events[0].properties == {b"Alert": b"Strong", b"n": 3, b"x": 1.5, b"on": True, b"none": None}


def test_what_is_not_served_is_said_in_the_service_s_words(web: Any, hub: str) -> None:
    for path, body, status in ((f"/{hub}/messages", None, 405), ("/a/b/c/d", b"x", 404), ("/", None, 404)):
        code, detail = web.call(path, body)
        assert code == status
        assert detail.startswith(f"<Error><Code>{status}</Code><Detail>".encode())


def test_health_and_metrics(web: Any, server: Server) -> None:
    status, body = web.call("/health")
    health = json.loads(body)
    assert (status, health["status"], health["message"]) == (200, "healthy", "Service is healthy.")
    status, body = web.call("/metrics")
    assert status == 200
    assert b"tidegate_connections_opened_total" in body
    with urllib.request.urlopen(f"http://localhost:{server.http_port}/health", timeout=PATIENCE_S) as answer:
        assert answer.status == 200


@pytest.mark.sdk
def test_headers_are_read_in_the_encoding_that_they_were_sent_in(web: Any, hub: str, receive: Receive) -> None:
    keys = {"münchen": "latin-1", "münster": "utf-8", "日本語": "utf-8"}
    for key, encoding in keys.items():
        # urllib sends each character as one byte
        value = json.dumps({"PartitionKey": key}, ensure_ascii=False).encode(encoding).decode("latin-1")
        city = f'"{key}"'.encode(encoding).decode("latin-1")
        assert web.publish(hub, b"x", BrokerProperties=value, City=city)[0] == 201
    events = receive(3)
    assert {event.partition_key.decode() for event in events} == set(keys)
    assert {event.properties[b"City"].decode() for event in events} == set(keys)


def test_events_of_a_batch_share_one_partition_key() -> None:
    batch = [{"Body": "a", "BrokerProperties": {"PartitionKey": "k"}}, {"Body": "b"}]
    events, key = parse_publication({"content-type": BATCH_CONTENT_TYPE}, json.dumps(batch).encode())
    assert key == "k"
    assert [parse_message(event).body for event in events] == [[b"a"], [b"b"]]
    batch.append({"Body": "c", "BrokerProperties": {"PartitionKey": "other"}})
    with pytest.raises(ArgumentError):
        parse_publication({"content-type": BATCH_CONTENT_TYPE}, json.dumps(batch).encode())


@pytest.mark.parametrize(
    ("sent", "value"),
    [
        ("3", 3),
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", "9223372036854775808"),
        ("17446744073709551615", "17446744073709551615"),
        ("1.5", 1.5),
        ("1e999", "1e999"),
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("true", True),
        ('"a"', "a"),
        ('"\\ud800"', '"\\ud800"'),
        ("null", "null"),
    ],
)
def test_a_header_that_is_no_value_of_amqp_is_text(sent: str, value: Any) -> None:
    """A tracer's identifiers had publications refused, whenever they had their highest bit set."""
    (event,), _ = parse_publication({"x-datadog-trace-id": sent}, b"x")
    assert parse_message(event).application_properties == {"x-datadog-trace-id": value}


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ('{"a": 1, "b": 18446744073709551615}', "event 1 of the batch: the user property 'b'"),
        ('{"a": "\\ud800"}', "event 1 of the batch: the user property 'a'"),
        ('{"a": NaN}', "NaN is not JSON"),
    ],
)
def test_a_refused_batch_names_the_property(properties: str, said: str) -> None:
    batch = f'[{{"Body": "a"}}, {{"Body": "b", "UserProperties": {properties}}}]'
    with pytest.raises(ArgumentError, match=said):
        parse_publication({"content-type": BATCH_CONTENT_TYPE}, batch.encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()), st.text())
def test_any_batch_is_events_or_a_refusal(body: Any, broker_properties: str) -> None:
    headers = {"content-type": BATCH_CONTENT_TYPE, "brokerproperties": broker_properties}
    try:
        events, _ = parse_publication(headers, body)
    except ArgumentError:
        return
    assert all(parse_message(event).body_kind == "data" for event in events)


@given(st.dictionaries(st.text(min_size=1), st.text()), st.binary())
def test_any_single_event_keeps_its_body(headers: Any, body: bytes) -> None:
    try:
        events, _ = parse_publication(headers, body)
    except ArgumentError:
        return
    (event,) = events
    assert b"".join(parse_message(event).body) == body


def test_a_client_that_keeps_its_connection_and_does_not_read_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with BackgroundServer(NamespaceConfig(name="ends"), tmp_path, http_port=None, https_port=0) as running:
        server = running.server
        for web in server._web:  # Uvicorn's own limit, which is for requests that go on
            web._server.config.timeout_graceful_shutdown = 3600
        context = Web(server, "").context
        client = http.client.HTTPSConnection("localhost", server.https_port, context=context, timeout=PATIENCE_S)
        client.request("GET", "/health")
        assert client.getresponse().read()
        began = time.monotonic()
    assert time.monotonic() - began < 20  # asyncio waits for such a client for 30 s
    client.close()
