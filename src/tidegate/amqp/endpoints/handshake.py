"""The handshake before AMQP frames: protocol headers, and the SASL exchange between them.

AMQP 1.0, part 2, section 2.2, and part 5, section 5.3. A connection starts with a protocol header of eight bytes; with
the SASL layer there is one more header, and an exchange between the two. `TRANSITIONS` defines for each role the
phase that each step leads to. A step that a phase does not list is a bug in this package, never an error of the peer.

The server lists its mechanisms, the client chooses one with its initial response, and the server reports the outcome.
There are no challenges: MSSBCBS and ANONYMOUS leave authorisation to tokens put on the $cbs node later, and PLAIN
(RFC 4616) needs only its initial response.

An unexpected header is answered with the expected one, and the connection ends (section 2.2). A server that accepts
ANONYMOUS also accepts a peer without the SASL layer: Microsoft's JavaScript client omits it if the connection string
has a signature instead of a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Literal

from tidegate.amqp.encoding.types import (
    FRAMING_ERROR,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    PeerError,
    UsageError,
)
from tidegate.amqp.endpoints.events import SaslInit
from tidegate.amqp.framing.frames import (
    AMQP_HEADER,
    MAX_FRAME_SIZE_BEFORE_OPEN,
    SASL_FRAME,
    SASL_HEADER,
    FrameBuffer,
    encode_frame,
    read_head,
    read_performative,
)
from tidegate.amqp.framing.performatives import SaslInitFrame, SaslMechanisms, SaslOutcome


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Sizes are bytes, the window is frames."""

    hostname: str | None = None
    max_frame_size: int = 1 << 20
    channel_max: int = 2047
    handle_max: int = 255
    max_links: int = 1024
    max_partial_bytes: int = 1 << 26
    """The maximum size of incomplete deliveries."""
    idle_timeout_ms: int | None = None
    """The idle timeout announced to the peer. The connection ends after twice that time without bytes."""
    incoming_window: int = 8192
    sasl_mechanisms: Sequence[str] | None = None
    """A server offers these (None: MSSBCBS, ANONYMOUS and PLAIN); a client chooses the first of them that is offered
    (None: ANONYMOUS). Empty: no SASL layer."""
    sasl_response: bytes = b""
    """A client's initial response, sent with the mechanism."""
    properties: Mapping[str, Any] | None = None
    joined_transfers: bool = False
    """Report deliveries as Transfers."""


class PeerLimits:
    """Counts links and the bytes of incomplete deliveries. Exceeding a maximum ends the connection."""

    __slots__ = ("_max_links", "_max_partial_bytes", "links", "partial_bytes")

    def __init__(self, max_links: int, max_partial_bytes: int) -> None:
        self._max_links = max_links
        self._max_partial_bytes = max_partial_bytes
        self.links = 0
        self.partial_bytes = 0

    def count_links(self, change: int) -> None:
        """Count attached or detached links. Raises PeerError if there are too many."""
        self.links += change
        if self.links > self._max_links:
            raise PeerError(RESOURCE_LIMIT_EXCEEDED, f"more than {self._max_links} links on one connection")

    def reserve_partial_bytes(self, size: int) -> None:
        """Count buffered bytes of a delivery. Raises PeerError if there are too many."""
        self.partial_bytes += size
        if self.partial_bytes > self._max_partial_bytes:
            raise PeerError(RESOURCE_LIMIT_EXCEEDED, "too many bytes of deliveries that are not yet whole")

    def release_partial_bytes(self, size: int) -> None:
        """Count bytes that are no longer buffered."""
        self.partial_bytes -= size


Role = Literal["server", "client"]


class Phase(Enum):
    """What a connection expects to read next."""

    HEADER = auto()
    """A protocol header."""
    SASL_INIT = auto()
    """A server reads the mechanism that the client chose."""
    SASL_VERDICT = auto()
    """Nothing is read until the server's owner has accepted or refused."""
    SASL_MECHANISMS = auto()
    """A client reads the mechanisms on offer."""
    SASL_OUTCOME = auto()
    """A client reads whether it was accepted."""
    AMQP = auto()
    """Frames: open first, close last."""
    CLOSED = auto()
    """Nothing more is read."""


class PhaseStep(Enum):
    """A step from one phase of a connection to another."""

    SASL_HEADER = auto()
    AMQP_HEADER = auto()
    MECHANISMS = auto()
    INIT = auto()
    ACCEPTED = auto()
    """By the server's owner, or in the outcome that a client reads."""
    FINISHED = auto()
    """By a close, an error, or the end of the transport."""


_COMMON = {PhaseStep.FINISHED: Phase.CLOSED}

TRANSITIONS: Mapping[Role, Mapping[Phase, Mapping[PhaseStep, Phase]]] = {
    "server": {
        Phase.HEADER: {PhaseStep.SASL_HEADER: Phase.SASL_INIT, PhaseStep.AMQP_HEADER: Phase.AMQP, **_COMMON},
        Phase.SASL_INIT: {PhaseStep.INIT: Phase.SASL_VERDICT, **_COMMON},
        Phase.SASL_VERDICT: {PhaseStep.ACCEPTED: Phase.HEADER, **_COMMON},
        Phase.AMQP: _COMMON,
        Phase.CLOSED: {},
    },
    "client": {
        Phase.HEADER: {PhaseStep.SASL_HEADER: Phase.SASL_MECHANISMS, PhaseStep.AMQP_HEADER: Phase.AMQP, **_COMMON},
        Phase.SASL_MECHANISMS: {PhaseStep.MECHANISMS: Phase.SASL_OUTCOME, **_COMMON},
        Phase.SASL_OUTCOME: {PhaseStep.ACCEPTED: Phase.HEADER, **_COMMON},
        Phase.AMQP: _COMMON,
        Phase.CLOSED: {},
    },
}


_OK = 0
_REFUSED = 1


def _mechanisms_frame(mechanisms: Sequence[str]) -> bytes:
    """Server: return the frame that offers mechanisms."""
    return encode_frame(0, SaslMechanisms(tuple(mechanisms)), SASL_FRAME)


def _read_init(body: bytes, mechanisms: Sequence[str]) -> SaslInit:
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
    return encode_frame(0, SaslOutcome(_OK if ok else _REFUSED), SASL_FRAME)


def _init_frame(body: bytes, preferred: Sequence[str], response: bytes, hostname: str | None) -> bytes:
    """Client: answer the mechanisms in `body`. Raises PeerError if none of the preferred ones is offered."""
    offer, _ = read_performative(body, SaslMechanisms)
    for mechanism in preferred:
        if mechanism in offer.mechanisms:
            return encode_frame(0, SaslInitFrame(mechanism, response, hostname), SASL_FRAME)
    raise PeerError(UNAUTHORIZED_ACCESS, "the peer offers none of the requested SASL mechanisms")


def _read_outcome(body: bytes) -> None:
    """Client: read the outcome. Raises PeerError if the server refused."""
    outcome, _ = read_performative(body, SaslOutcome)
    if outcome.code != _OK:
        raise PeerError(UNAUTHORIZED_ACCESS, f"the peer refused the SASL exchange with code {outcome.code}")


SERVER_MECHANISMS = ("MSSBCBS", "ANONYMOUS", "PLAIN")
CLIENT_MECHANISMS = ("ANONYMOUS",)


class Handshake:
    """The phase of a connection, and the bytes of the phases before frames.

    `wire` holds the bytes to send before any frame; the caller that sends them clears it.
    """

    __slots__ = (
        "_expected_header",
        "_header_sent",
        "_may_skip_sasl",
        "_mechanisms",
        "_settings",
        "phase",
        "role",
        "wire",
    )

    def __init__(self, role: Role, settings: ConnectionSettings) -> None:
        self.role = role
        self.phase = Phase.HEADER
        self.wire: list[bytes] = []
        self._settings = settings
        self._mechanisms = _mechanisms(role, settings.sasl_mechanisms)
        self._may_skip_sasl = role == "server" and "ANONYMOUS" in self._mechanisms
        self._expected_header = SASL_HEADER if self._mechanisms else AMQP_HEADER
        self._header_sent = False

    @property
    def frames_may_go(self) -> bool:
        """Whether the AMQP header has been sent."""
        return self._header_sent and self._expected_header is AMQP_HEADER

    def move(self, step: PhaseStep) -> None:
        """Enter the phase that a step leads to."""
        self.phase = TRANSITIONS[self.role][self.phase][step]

    def send_header(self) -> None:
        """Send this side's first or answering header, unless it was sent."""
        if not self._header_sent:
            self.wire.append(self._expected_header)
            self._header_sent = True

    def read(self, buffer: FrameBuffer) -> tuple[bool, SaslInit | None]:
        """Read one header or SASL frame.

        Returns:
            Whether there may be more to read, and the peer's SaslInit if one was read.

        Raises:
            PeerError: The peer broke the protocol, or one side refused the other.
        """
        if self.phase is Phase.HEADER:
            return self._read_header(buffer), None
        if self.phase is Phase.SASL_VERDICT:
            if buffer.waiting > MAX_FRAME_SIZE_BEFORE_OPEN:
                raise PeerError(FRAMING_ERROR, "too much was sent ahead of the SASL outcome")
            return False, None
        return self._read_frame(buffer)

    def accept(self, ok: bool) -> None:
        """Server: answer the peer's choice. Raises UsageError if it has made none."""
        if self.phase is not Phase.SASL_VERDICT:
            raise UsageError("no SASL exchange waits for its outcome")
        self.wire.append(outcome_frame(ok))
        if ok:
            self._expect_amqp_header()

    def _read_header(self, buffer: FrameBuffer) -> bool:
        header = buffer.data[buffer.position : buffer.position + 8]
        if self._may_skip_sasl and len(header) > 4 and AMQP_HEADER.startswith(header):
            self._expected_header = AMQP_HEADER
        if not self._expected_header.startswith(header):
            self.send_header()
            protocol = "SASL" if self._expected_header is SASL_HEADER else "AMQP"
            raise PeerError(FRAMING_ERROR, f"the peer did not start with the {protocol} header")
        if len(header) < 8:
            buffer.keep(8)
            return False
        buffer.position += 8
        self.send_header()
        if header == AMQP_HEADER:
            self.move(PhaseStep.AMQP_HEADER)
        else:
            self.move(PhaseStep.SASL_HEADER)
            if self.role == "server":
                self.wire.append(_mechanisms_frame(self._mechanisms))
        return True

    def _read_frame(self, buffer: FrameBuffer) -> tuple[bool, SaslInit | None]:
        data, position = buffer.data, buffer.position
        if len(data) - position < 8:
            buffer.keep(8)
            return False, None
        size, offset, kind, _ = read_head(data, position, MAX_FRAME_SIZE_BEFORE_OPEN)
        if kind != SASL_FRAME:
            raise PeerError(FRAMING_ERROR, "a frame before the SASL exchange was over")
        if len(data) - position < size:
            buffer.keep(size)
            return False, None
        body = data[position + offset : position + size]
        buffer.position += size
        if self.phase is Phase.SASL_INIT:
            event = _read_init(body, self._mechanisms)
            self.move(PhaseStep.INIT)
            return False, event  # what was pipelined behind it is legal, however much came at once
        if self.phase is Phase.SASL_MECHANISMS:
            settings = self._settings
            self.wire.append(_init_frame(body, self._mechanisms, settings.sasl_response, settings.hostname))
            self.move(PhaseStep.MECHANISMS)
        else:
            _read_outcome(body)
            self._expect_amqp_header()
            self.send_header()
        return True, None

    def _expect_amqp_header(self) -> None:
        self.move(PhaseStep.ACCEPTED)
        self._expected_header = AMQP_HEADER
        self._header_sent = False


def _mechanisms(role: Role, wanted: Sequence[str] | None) -> tuple[str, ...]:
    if wanted is not None:
        return tuple(wanted)
    return SERVER_MECHANISMS if role == "server" else CLIENT_MECHANISMS
