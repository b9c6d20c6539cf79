"""Clients that speak another protocol than a port's own: which one it is, and what to do about it.

A Kafka client with the wrong port, a browser or a client that expects TLS sees a closed connection and learns nothing.
`Strangers` tells by the first bytes what connected, returns an answer where that protocol has one, and logs one line
a minute for each kind.
"""

from __future__ import annotations

import logging
import re
import ssl
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_logger = logging.getLogger(__name__)

ENOUGH_BYTES = 16
"""Everything known here is recognised by then."""
LOG_INTERVAL_S = 60.0
AMQP_1_0 = (b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00")
"""The headers of section 2.2 and of part 5, section 5.3.2."""

_TLS_RECORD = b"\x16\x03"
_UNEXPECTED_MESSAGE = b"\x15\x03\x01\x00\x02\x02\x0a"
"""A fatal alert (RFC 8446, section 6), which clients report at once."""
_HTTP = re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|CONNECT|TRACE|PRI) ")
_PROXY = (b"PROXY ", b"\r\n\r\n\x00\r\nQUIT\n")
_MQTT = re.compile(rb"\x10(?:[\x80-\xff]{0,3}[\x00-\x7f])\x00(?:\x04MQTT|\x06MQIsdp)")
_MQTT_REFUSAL = b"\x20\x02\x00\x01"
"""CONNACK: unacceptable protocol version."""
_KAFKA_HEAD = struct.Struct(">IHH")
_KAFKA_FIRST_REQUESTS = {3: "Metadata", 17: "SaslHandshake", 18: "ApiVersions"}
_KAFKA_MAX = (1 << 20, 20)
"""Of a first request: its size, and a version."""
_MAY_BECOME_KNOWN = frozenset(b"\x00\x10\x16\rABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True, slots=True)
class Stranger:
    """What a client speaks, what its user can do, and what it is answered (nothing: the connection closes).

    `passed_on` is for other versions of AMQP: the AMQP core answers them with the header that it supports.
    """

    protocol: str
    advice: str
    answer: bytes = b""
    passed_on: bool = False


class Strangers:
    """Recognises clients of other protocols.

    `ports` returns the ports that are open by scheme: amqp, amqps, http, https, kafka, kafka-tls.
    """

    def __init__(self, ports: Callable[[], Mapping[str, int]], monotonic_s: Callable[[], float]) -> None:
        self._ports = ports
        self._monotonic_s = monotonic_s
        self._logged_s: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def recognise(self, data: bytes, *, at_end: bool = False) -> Stranger | None:
        """Return what the first bytes of a client without TLS are.

        None if they are AMQP 1.0's, or may still become so or something else that is known (not `at_end`).
        """
        if any(header.startswith(data[:8]) for header in AMQP_1_0):
            return None
        known = self._known(data)
        if known is None and (at_end or len(data) >= ENOUGH_BYTES or data[0] not in _MAY_BECOME_KNOWN):
            what = f"something that is no protocol known here (it starts with {data[:8]!r})"
            return Stranger(what, "use a client of Event Hubs or of AMQP 1.0", passed_on=True)
        return known

    def on_kafka(self, data: bytes) -> Stranger | None:
        """Return what the first bytes of a client are that are no request of Kafka's on its port without TLS."""
        if data.startswith(_TLS_RECORD):
            advice = self._port("kafka-tls", "Kafka's protocol with TLS")
            return Stranger("TLS", f"let the client use SASL_PLAINTEXT, or {advice}", _UNEXPECTED_MESSAGE)
        if data.startswith(b"AMQP"):
            return Stranger("AMQP", f"{self._port('amqp', 'AMQP')}, or {self._port('amqps', 'AMQP with TLS')}")
        return self._known(data)

    def _known(self, data: bytes) -> Stranger | None:
        if data.startswith(b"AMQP") and len(data) >= len(AMQP_1_0[0]):
            return _other_amqp(data, self._tls_advice())
        if data.startswith(_TLS_RECORD):
            return Stranger("TLS", self._tls_advice(), _UNEXPECTED_MESSAGE)
        if _HTTP.match(data):
            return _http("HTTP", f"{self._port('http', 'HTTP')}, or {self._port('https', 'HTTPS')}")
        if data.startswith(b"SSH-"):
            return Stranger("SSH", "SSH has a port of its own, usually 22")
        if data.startswith(_PROXY):
            return Stranger("the PROXY protocol", "turn it off in the load balancer that sends it")
        if _MQTT.match(data):
            return Stranger("MQTT", "use a client of Event Hubs or of AMQP 1.0", _MQTT_REFUSAL)
        if len(data) >= _KAFKA_HEAD.size:
            size, api_key, version = _KAFKA_HEAD.unpack_from(data)
            return _kafka(size, api_key, version, self._port("kafka", "Kafka's protocol"))
        return None

    def on_http(self, data: bytes) -> Stranger | None:
        """Return what the first bytes of a client are on a port of HTTP; None if they may be HTTP."""
        if data.startswith(b"AMQP"):
            advice = f"{self._port('amqp', 'AMQP')}, or {self._port('amqps', 'AMQP with TLS')}"
            return Stranger("AMQP", f"{advice}; or let the client use AMQP over WebSockets")
        if data.startswith(_TLS_RECORD):
            return Stranger("TLS", f"use http://, or {self._port('https', 'HTTPS')}", _UNEXPECTED_MESSAGE)
        return None if _HTTP.match(data) else self._known(data)

    def without_tls(self, data: bytes) -> Stranger:
        """Return what the first bytes are of a client that sends something else than TLS to a port with TLS."""
        if data.startswith(b"AMQP"):
            advice = "remove UseDevelopmentEmulator=true from its connection string"
            return Stranger("AMQP without TLS", f"{advice}, or {self._port('amqp', 'AMQP without TLS')}")
        if _HTTP.match(data):
            return _http("HTTP without TLS", f"use https:// if this is the HTTPS port, or {self._port('http', 'HTTP')}")
        known = self._known(data)
        what = known.protocol if known is not None else f"something (it starts with {data[:8]!r})"
        return Stranger(f"{what} without TLS", "let the client use TLS, or another port")

    def note(self, stranger: Stranger, where: str, peer: str = "a client") -> None:
        """Log a stranger, at most once a minute for each protocol and place."""
        kind = f"{stranger.protocol.partition(' (')[0]} on {where}"
        now_s = self._monotonic_s()
        if now_s - self._logged_s.get(kind, -LOG_INTERVAL_S) < LOG_INTERVAL_S:
            self._unlogged[kind] += 1
            return
        self._logged_s[kind] = now_s
        unlogged = self._unlogged.pop(kind, 0)
        more = f" ({unlogged} more like it were not logged)" if unlogged else ""
        _logger.warning("%s speaks %s on %s: %s%s", peer, stranger.protocol, where, stranger.advice, more)

    def _port(self, scheme: str, name: str) -> str:
        port = self._ports().get(scheme)
        return f"use port {port} for {name}" if port else f"start the hub with --{scheme}-port for {name}"

    def _tls_advice(self) -> str:
        emulator = "add UseDevelopmentEmulator=true to the client's connection string"
        return f"{self._port('amqps', 'AMQP with TLS')}, or {emulator}"


def _other_amqp(data: bytes, tls_advice: str) -> Stranger | None:
    """Return the version of AMQP that a header names: protocol id, major, minor, revision, in two layouts."""
    if data[4:5] == b"\x02":
        return Stranger("AMQP 1.0 that negotiates TLS", tls_advice, passed_on=True)
    version = {b"\x00\x00\x09\x01": "0-9-1", b"\x01\x01\x00\x0a": "0-10", b"\x01\x01\x00\x09": "0-9"}.get(data[4:8])
    name = f"AMQP {version or data[4:8].hex(' ')}"
    advice = "clients of RabbitMQ's protocol cannot be served; use a client of Event Hubs or of AMQP 1.0"
    return Stranger(name, advice, passed_on=True)


def _kafka(size: int, api_key: int, version: int, advice: str) -> Stranger | None:
    request = _KAFKA_FIRST_REQUESTS.get(api_key)
    if request is None or not _KAFKA_HEAD.size <= size <= _KAFKA_MAX[0] or version > _KAFKA_MAX[1]:
        return None
    return Stranger(f"Kafka's protocol ({request})", advice)


def _http(protocol: str, advice: str) -> Stranger:
    body = f"This port does not serve {protocol}: {advice}.\n".encode()
    head = f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return Stranger(protocol, advice, b"HTTP/1.1 400 Bad Request\r\n" + head.encode() + body)


class StrangerAwareContext(ssl.SSLContext):
    """A TLS context whose accepted connections report bytes that are not TLS before they fail.

    `on_plaintext` is given the first bytes, and returns what to send in the clear.
    """

    on_plaintext: Callable[[bytes], bytes] | None = None

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> ssl.SSLObject:
        """Return the TLS state of a connection whose first bytes are looked at."""
        self.sslobject_class = AttentiveTls
        tls = super().wrap_bio(incoming, outgoing, *args, **options)
        assert isinstance(tls, AttentiveTls)
        tls.wires = (incoming, outgoing)
        return tls


class AttentiveTls(ssl.SSLObject):
    """The TLS state of an accepted connection. `asked_for` is the name by which the client knows this machine."""

    asked_for: str | None = None
    wires: tuple[ssl.MemoryBIO, ssl.MemoryBIO] | None = None

    def do_handshake(self) -> None:
        """Do the handshake, unless the first bytes are no TLS."""
        context = self.context
        if self.wires is not None and self.wires[0].pending and isinstance(context, StrangerAwareContext):
            incoming, outgoing = self.wires
            first = incoming.read()
            incoming.write(first)
            self.wires = None
            on_plaintext = None if _TLS_RECORD.startswith(first[:2]) else context.on_plaintext
            if on_plaintext is not None and (answer := on_plaintext(first)):
                outgoing.write(answer)
                raise ssl.SSLWantReadError  # the event loop sends what was written; the next bytes or the end fail
        super().do_handshake()
