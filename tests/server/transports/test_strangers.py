"""Clients of other protocols on the ports of AMQP: what the log says of them, and what they are answered."""

from __future__ import annotations

import socket
import ssl
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import PATIENCE_S
from tidegate.server import Server
from tidegate.server.transports.strangers import AMQP_1_0, ENOUGH_BYTES, LOG_INTERVAL_S, Strangers

PORTS = {"amqp": 5672, "amqps": 5671, "http": 5300}
SASL_HEADER = AMQP_1_0[1]


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def kafka(api_key: int, version: int) -> bytes:
    body = struct.pack(">HHIH", api_key, version, 1, 7) + b"rdkafka"
    return struct.pack(">I", len(body)) + body


PROTOCOLS = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP (a long method)": b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP (version 2)": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": client_hello(),
    "AMQP 0-9-1": b"AMQP\x00\x00\x09\x01",
    "AMQP 0-9": b"AMQP\x01\x01\x00\x09",
    "AMQP 0-10": b"AMQP\x01\x01\x00\x0a",
    "AMQP 1.0 that negotiates TLS": b"AMQP\x02\x01\x00\x00",
    "Kafka's protocol (ApiVersions)": kafka(18, 3),
    "Kafka's protocol (Metadata)": kafka(3, 9),
    "Kafka's protocol (SaslHandshake)": kafka(17, 1),
    "SSH": b"SSH-2.0-OpenSSH_9.2p1\r\n",
    "MQTT": b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04name",
    "the PROXY protocol": b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
    "the PROXY protocol (version 2)": b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c",
}


@pytest.fixture(scope="module")
def strangers() -> Strangers:
    return Strangers(lambda: PORTS, lambda: 0.0)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_is_recognised_by_its_first_bytes_however_they_are_cut(strangers: Strangers, name: str) -> None:
    data = PROTOCOLS[name]
    found = strangers.recognise(data)
    assert found is not None
    assert name.startswith(found.protocol)
    for size in range(1, len(data)):
        assert strangers.recognise(data[:size]) in (None, found)
    assert strangers.recognise(data[:ENOUGH_BYTES]) == found


@given(st.binary(min_size=1, max_size=40))
def test_any_bytes_are_amqp_or_a_stranger_in_the_end(data: bytes) -> None:
    strangers = Strangers(lambda: PORTS, lambda: 0.0)
    is_amqp = any(header.startswith(data[:8]) for header in AMQP_1_0)
    assert (strangers.recognise(data, at_end=True) is None) == is_amqp
    assert strangers.without_tls(data).protocol.endswith("without TLS")


@pytest.mark.parametrize("header", AMQP_1_0)
def test_amqp_is_no_stranger(strangers: Strangers, header: bytes) -> None:
    for size in range(1, 9):
        assert strangers.recognise(header[:size], at_end=True) is None
    assert strangers.recognise(header + b"anything") is None


def test_advice_names_the_port_that_is_open_or_the_option_that_opens_it() -> None:
    ports: dict[str, int] = {}
    strangers = Strangers(lambda: ports, lambda: 0.0)
    closed = strangers.recognise(PROTOCOLS["TLS"])
    ports["amqps"] = 5671
    opened = strangers.recognise(PROTOCOLS["TLS"])
    assert closed is not None
    assert opened is not None
    assert closed.advice.startswith("start the hub with --amqps-port for AMQP with TLS, or ")
    assert opened.advice.startswith("use port 5671 for AMQP with TLS, or ")


def test_a_client_that_tries_for_ever_costs_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    strangers = Strangers(lambda: PORTS, lambda: now_s)
    kafka, http = (strangers.recognise(PROTOCOLS[name]) for name in ("Kafka's protocol (ApiVersions)", "HTTP"))
    assert kafka is not None
    assert http is not None
    for _ in range(10):
        strangers.note(kafka, "the amqp port 5672", "peer:1")
    strangers.note(http, "the amqp port 5672", "peer:2")
    now_s = LOG_INTERVAL_S
    strangers.note(kafka, "the amqp port 5672", "peer:1")
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" speaks ")[2].partition(" on ")[0] for line in lines] == [
        "Kafka's protocol (ApiVersions)",
        "HTTP",
        "Kafka's protocol (ApiVersions)",
    ]
    assert lines[-1].endswith("(9 more like it were not logged)")


# --- on a running hub


@pytest.fixture
def says(
    server: Server, caplog: pytest.LogCaptureFixture, eventually: Callable[..., None]
) -> Iterator[Callable[[str], None]]:
    """Wait for a line of the log. Other tests' strangers do not count."""
    server._strangers._logged_s.clear()

    def wait(text: str) -> None:
        eventually(lambda: any(text in record.getMessage() for record in caplog.records))

    yield wait
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def exchange(port: int | None, data: bytes) -> bytes:
    """What a client gets that sends these bytes and then only reads."""
    assert port is not None
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
        peer.sendall(data)
        answer = b""
        while piece := peer.recv(65_536):
            answer += piece
        return answer


@pytest.mark.parametrize(
    ("name", "data", "answer"),
    [
        ("AMQP", SASL_HEADER, b""),
        ("AMQP", PROTOCOLS["AMQP 0-9-1"], b""),
        ("TLS", PROTOCOLS["TLS"], b"\x15\x03\x01\x00\x02\x02\x0a"),
        ("Kafka's protocol (ApiVersions)", PROTOCOLS["Kafka's protocol (ApiVersions)"], b""),
        ("MQTT", PROTOCOLS["MQTT"], b"\x20\x02\x00\x01"),
        ("the PROXY protocol", PROTOCOLS["the PROXY protocol"], b""),
    ],
)
def test_another_protocol_on_the_http_port_is_refused_at_once(
    server: Server, says: Callable[[str], None], name: str, data: bytes, answer: bytes
) -> None:
    assert exchange(server.http_port, data) == answer
    says(f"speaks {name} on the http port {server.http_port}: ")


@pytest.mark.parametrize(
    ("name", "data", "advice"),
    [
        ("AMQP", SASL_HEADER, "use port"),
        ("TLS", PROTOCOLS["TLS"], "let the client use SASL_PLAINTEXT, or use port"),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n", "use port"),
        ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n", "SSH has a port"),
    ],
)
def test_another_protocol_on_the_port_of_kafka_is_named(
    server: Server, says: Callable[[str], None], name: str, data: bytes, advice: str
) -> None:
    exchange(server.kafka_port, data)
    says(f"speaks {name} on the kafka port {server.kafka_port}: {advice}")


def test_requests_that_are_no_http_cost_a_line_a_minute(
    server: Server, says: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        assert exchange(server.http_port, b"\x01\x02\x03\x04 not HTTP\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    says(f"speaks no HTTP that is understood on the http port {server.http_port}")
    assert len([record for record in caplog.records if "HTTP" in record.getMessage()]) == 1


def test_http_is_answered_with_the_right_port(server: Server, says: Callable[[str], None]) -> None:
    url = f"http://127.0.0.1:{server.amqp_port}/eh1/messages"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, b"x" * 1_000_000), timeout=PATIENCE_S)
    assert refused.value.code == 400
    assert f"use port {server.http_port} for HTTP" in refused.value.read().decode()
    says(f"speaks HTTP on the amqp port {server.amqp_port}: use port {server.http_port} for HTTP")


def test_a_tls_client_on_the_plain_port_fails_at_once(server: Server, says: Callable[[str], None]) -> None:
    context = ssl.create_default_context()
    connected = socket.create_connection(("127.0.0.1", server.amqp_port or 0), timeout=PATIENCE_S)
    with connected as peer, pytest.raises(ssl.SSLError, match=r"(?i)unexpected.message"):
        context.wrap_socket(peer, server_hostname="localhost")
    says(f"speaks TLS on the amqp port {server.amqp_port}: use port {server.amqps_port} for AMQP with TLS")


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name.startswith("AMQP")])
def test_other_versions_of_amqp_are_answered_with_the_header_that_the_hub_supports(
    server: Server, says: Callable[[str], None], name: str
) -> None:
    assert exchange(server.amqp_port, PROTOCOLS[name]) == SASL_HEADER
    says(f"speaks {name} on the amqp port")


def test_mqtt_is_refused_in_its_own_words(server: Server, says: Callable[[str], None]) -> None:
    assert exchange(server.amqp_port, PROTOCOLS["MQTT"]) == b"\x20\x02\x00\x01"
    says("speaks MQTT on the amqp port")


@pytest.mark.parametrize("name", ["Kafka's protocol (ApiVersions)", "SSH", "the PROXY protocol"])
def test_a_protocol_without_an_answer_is_closed(server: Server, says: Callable[[str], None], name: str) -> None:
    assert exchange(server.amqp_port, PROTOCOLS[name]) == b""
    says(f"speaks {name} on the amqp port")


def test_bytes_of_no_known_protocol_get_the_header_too(server: Server, says: Callable[[str], None]) -> None:
    assert exchange(server.amqp_port, b"\x00" * 20) == SASL_HEADER
    assert exchange(server.amqp_port, b"?") == SASL_HEADER
    says("speaks something that is no protocol known here (it starts with b'\\x00")


def test_amqp_without_tls_on_a_port_with_tls(server: Server, says: Callable[[str], None]) -> None:
    exchange(server.amqps_port, SASL_HEADER)  # ends at once
    says("speaks AMQP without TLS on a port with TLS: remove UseDevelopmentEmulator=true")


@pytest.mark.parametrize("port", ["amqps_port", "https_port"])
def test_http_without_tls_on_a_port_with_tls(server: Server, says: Callable[[str], None], port: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{getattr(server, port)}/", timeout=PATIENCE_S)
    assert refused.value.code == 400
    assert f"use port {server.http_port} for HTTP" in refused.value.read().decode()
    says("speaks HTTP without TLS on a port with TLS")
