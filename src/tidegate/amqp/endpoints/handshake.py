"""The handshake before AMQP frames: protocol headers, and the SASL exchange between them.

An unexpected header is answered with the expected one, and the connection ends (section 2.2). A server that accepts
ANONYMOUS also accepts a peer without the SASL layer: Microsoft's JavaScript client omits it if the connection string
has a signature instead of a key.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.amqp.encoding.errors import FRAMING_ERROR, PeerError, UsageError
from tidegate.amqp.endpoints import sasl
from tidegate.amqp.endpoints.phases import TRANSITIONS, Phase, PhaseStep, Role
from tidegate.amqp.endpoints.settings import ConnectionSettings
from tidegate.amqp.framing.frames import (
    AMQP_HEADER,
    MAX_FRAME_SIZE_BEFORE_OPEN,
    SASL_FRAME,
    SASL_HEADER,
    FrameBuffer,
    read_head,
)

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

    def read(self, buffer: FrameBuffer) -> tuple[bool, sasl.SaslInit | None]:
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
        self.wire.append(sasl.outcome_frame(ok))
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
                self.wire.append(sasl.mechanisms_frame(self._mechanisms))
        return True

    def _read_frame(self, buffer: FrameBuffer) -> tuple[bool, sasl.SaslInit | None]:
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
            event = sasl.read_init(body, self._mechanisms)
            self.move(PhaseStep.INIT)
            return False, event  # what was pipelined behind it is legal, however much came at once
        if self.phase is Phase.SASL_MECHANISMS:
            settings = self._settings
            self.wire.append(sasl.init_frame(body, self._mechanisms, settings.sasl_response, settings.hostname))
            self.move(PhaseStep.MECHANISMS)
        else:
            sasl.read_outcome(body)
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
