"""The SASL layer before a connection, both sides of it, as far as Event Hubs uses it.

Part 5, section 5.3: the server lists its mechanisms, the client chooses one with its initial response, and the server
reports the outcome. There are no challenges: MSSBCBS and ANONYMOUS leave authorisation to tokens put on the $cbs node
later, and PLAIN (RFC 4616) needs only its initial response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.amqp.encoding.errors import UNAUTHORIZED_ACCESS, PeerError
from tidegate.amqp.framing.frames import SASL_FRAME, encode_frame, read_performative
from tidegate.amqp.framing.performatives import SaslInitFrame, SaslMechanisms, SaslOutcome

OK = 0
REFUSED = 1


@dataclass(slots=True)
class SaslInit:
    """Server: the peer chose a mechanism; nothing more is read until `Connection.sasl_outcome(ok)`.

    `username` and `password` are those of a PLAIN response, None for other mechanisms.
    """

    mechanism: str
    response: bytes | None
    hostname: str | None
    username: str | None = None
    password: str | None = None


def mechanisms_frame(mechanisms: Sequence[str]) -> bytes:
    """Server: return the frame that offers mechanisms."""
    return encode_frame(0, SaslMechanisms(tuple(mechanisms)), SASL_FRAME)


def read_init(body: bytes, mechanisms: Sequence[str]) -> SaslInit:
    """Server: read the client's choice. Raises PeerError for a mechanism not offered and a malformed PLAIN response."""
    init, _ = read_performative(body, SaslInitFrame)
    if init.mechanism not in mechanisms:
        raise PeerError(UNAUTHORIZED_ACCESS, "the SASL mechanism was not offered")
    event = SaslInit(str(init.mechanism), init.initial_response, init.hostname)
    if event.mechanism == "PLAIN":
        parts = (event.response or b"").split(b"\x00")
        try:
            _, event.username, event.password = (part.decode() for part in parts)
        except ValueError:
            raise PeerError(UNAUTHORIZED_ACCESS, "a malformed PLAIN response") from None
    return event


def outcome_frame(ok: bool) -> bytes:
    """Server: return the frame that reports the outcome."""
    return encode_frame(0, SaslOutcome(OK if ok else REFUSED), SASL_FRAME)


def init_frame(body: bytes, preferred: Sequence[str], response: bytes, hostname: str | None) -> bytes:
    """Client: answer the mechanisms in `body`. Raises PeerError if none of the preferred ones is offered."""
    offer, _ = read_performative(body, SaslMechanisms)
    for mechanism in preferred:
        if mechanism in offer.mechanisms:
            return encode_frame(0, SaslInitFrame(mechanism, response, hostname), SASL_FRAME)
    raise PeerError(UNAUTHORIZED_ACCESS, "the peer offers none of the requested SASL mechanisms")


def read_outcome(body: bytes) -> None:
    """Client: read the outcome. Raises PeerError if the server refused."""
    outcome, _ = read_performative(body, SaslOutcome)
    if outcome.code != OK:
        raise PeerError(UNAUTHORIZED_ACCESS, f"the peer refused the SASL exchange with code {outcome.code}")
