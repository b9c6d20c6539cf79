"""One AMQP connection: bytes in, events out; calls in, bytes out.

Part 2, sections 2.2 to 2.4, and part 5 for the SASL layer. The peer's bytes are read in phases:

| phase           | what comes                 | what follows                                           |
|-----------------|----------------------------|--------------------------------------------------------|
| HEADER          | eight bytes                | SASL_INIT or SASL_MECHANISMS after the SASL one (which |
|                 |                            | a server answers with its own), AMQP after the other   |
| SASL_INIT       | a server reads sasl-init   | SASL_VERDICT: nothing is read until sasl_outcome()     |
| SASL_VERDICT    |                            | HEADER, or closed                                      |
| SASL_MECHANISMS | a client reads the offer   | SASL_OUTCOME                                           |
| SASL_OUTCOME    | a client reads the outcome | HEADER, or closed                                      |
| AMQP            | frames                     | open first, close last                                 |
| CLOSED          | nothing is read            |                                                        |

A header other than the one expected is answered with the one expected, and that is the end (section 2.2). A server that
lets anybody in as ANONYMOUS takes a peer without the SASL layer for the same: Microsoft's JavaScript client leaves it
out where a connection string has a signature in place of a key. A rule that the peer breaks ends the connection with a
close that says which; nothing a peer sends raises here. Open, begin and attach may all come before our answers to them:
each is answered as it is read.

What a peer can make us keep is bounded: a frame (`max_frame_size`, less before its open), sessions (`channel_max`),
links (`max_links`), deliveries not yet whole (`max_partial_bytes`), nesting and size of decoded values.
"""

from __future__ import annotations

from typing import Any, Literal

from tidegate.amqp.encoding.errors import (
    CONNECTION_FORCED,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    AmqpError,
    PeerError,
    UsageError,
)
from tidegate.amqp.endpoints import sasl
from tidegate.amqp.endpoints.events import Closed, Event, Opened
from tidegate.amqp.endpoints.frame_queue import FrameQueue
from tidegate.amqp.endpoints.peer_limits import PeerLimits
from tidegate.amqp.endpoints.session import MAPPED, Session, SessionBegun
from tidegate.amqp.endpoints.settings import ConnectionSettings
from tidegate.amqp.framing.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    TRANSFER_DESCRIPTOR,
    FrameBuffer,
    TransferShape,
    encode_frame,
    parse_transfer,
    read_head,
    read_performative,
    transfer_fields,
    transfer_shape,
)
from tidegate.amqp.framing.performatives import (
    PERFORMATIVES,
    Attach,
    Begin,
    Close,
    Detach,
    DispositionFrame,
    End,
    Flow,
    Open,
    TransferFrame,
)

HEADER = "header"
SASL_INIT = "sasl init"
SASL_VERDICT = "sasl verdict"
SASL_MECHANISMS = "sasl mechanisms"
SASL_OUTCOME = "sasl outcome"
AMQP = "amqp"
CLOSED = "closed"

MAX_FRAME_SIZE_BEFORE_OPEN = 1 << 14
"""Bytes of a frame before the peer's open: more than the 512 of section 2.4.1, as clients send."""
MAX_OUTGOING_FRAME_SIZE = 1 << 22
"""Bytes of the largest frame sent to a peer that sets no limit."""
COMMON_FRAME_SIZE = 1 << 16
"""Bytes of the frames that Event Hubs itself offers to take; every client manages these."""
MIN_HEARTBEAT_MS = 100
_SERIAL = 0xFFFFFFFF
SERVER_MECHANISMS = ("MSSBCBS", "ANONYMOUS", "PLAIN")
CLIENT_MECHANISMS = ("ANONYMOUS",)


class Connection:
    """An AMQP 1.0 connection without its socket.

    A server waits for the peer's protocol header; a client calls open() first. `remote` is the peer's Open once it
    came. `closed` is True once Closed was reported. `context` is the owner's. Peer bytes never raise.
    """

    def __init__(
        self, role: Literal["server", "client"], container_id: str, settings: ConnectionSettings | None = None
    ) -> None:
        settings = settings or ConnectionSettings()
        mechanisms = settings.sasl_mechanisms
        self.role = role
        self.container_id = container_id
        self.settings = settings
        self.max_frame_size = max(settings.max_frame_size, MIN_MAX_FRAME_SIZE)
        self.outgoing = FrameQueue()
        """Frames to send; a client's wait here until the SASL layer is through."""
        self.limits = PeerLimits(settings.max_links, settings.max_partial_bytes)
        self.remote: Open | None = None
        self.context: Any = None
        self._mechanisms = tuple(mechanisms if mechanisms is not None else _default_mechanisms(role))
        self._may_skip_sasl = role == "server" and "ANONYMOUS" in self._mechanisms
        self._wire: list[bytes] = []
        self._phase = HEADER
        self._expected_header = SASL_HEADER if self._mechanisms else AMQP_HEADER
        self._header_sent = False
        self._open_sent = False
        self._buffer = FrameBuffer()
        self._shape: TransferShape | None = None
        self._sessions: dict[int, Session] = {}
        self._by_remote_channel: dict[int, Session] = {}
        self._left_channels: set[int] = set()
        """Where sessions were: Python's client detaches its links after the end of their session."""
        self._heard = True
        self._last_heard_ms: int | None = None
        self._next_heartbeat_ms: int | None = None
        self._heartbeat_ms: int | None = None

    def __repr__(self) -> str:
        return f"<Connection {self.role} {self.container_id!r} {self._phase}>"

    @property
    def closed(self) -> bool:
        """True once Closed was reported."""
        return self._phase is CLOSED

    @property
    def sessions(self) -> list[Session]:
        """The sessions of the connection."""
        return list(self._sessions.values())

    # --- what the owner asks for --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Client: send protocol headers and open; begin() and attaching may follow at once, before any answer."""
        if self.role != "client" or self._open_sent:
            raise UsageError("only a client opens, and once")
        self._send_open()
        self._send_header()

    def begin(self) -> Session:
        """Begin a session; SessionBegun follows. Links may be attached at once.

        Raises UsageError before open(), after the end, and when the channels are used up.
        """
        if not self._open_sent or self.outgoing.closed or self.closed:
            raise UsageError("the connection is not open")
        limit = min(self.settings.channel_max, self.remote.channel_max if self.remote else self.settings.channel_max)
        channel = next((number for number in range(limit + 1) if number not in self._sessions), None)
        if channel is None:
            raise UsageError("the connection has no free channel")
        session = self._sessions[channel] = Session(self, channel)
        session.send_begin()
        return session

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Close, with an error where there is a condition. Closed follows with the peer's answer or receive_eof()."""
        if not self.closed and not self.outgoing.closed:
            self._send_close(AmqpError(condition, description) if condition else None)

    def data_to_send(self) -> bytes:
        """All bytes for the peer since the last call."""
        outgoing = self.outgoing
        if outgoing.flushes:
            outgoing.flush()
        if outgoing.frames and self._header_sent and self._expected_header == AMQP_HEADER:
            self._wire += outgoing.frames
            outgoing.frames.clear()
        if not self._wire:
            return b""
        data = b"".join(self._wire)
        self._wire.clear()
        return data

    # --- time ---------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Event]:
        """Tell the time, by any clock that does not go back.

        Sends what keeps the peer's timer quiet; ends a connection that was silent for twice `idle_timeout_ms`. Call it
        when next_tick_ms is due.
        """
        events: list[Event] = []
        if self.closed:
            return events
        if self._heard or self._last_heard_ms is None:
            self._heard = False
            self._last_heard_ms = now_ms
        elif self.settings.idle_timeout_ms and now_ms - self._last_heard_ms >= 2 * self.settings.idle_timeout_ms:
            self._fail(RESOURCE_LIMIT_EXCEEDED, "the connection was idle for too long", events)
            return events
        due = self._next_heartbeat_ms is None or now_ms >= self._next_heartbeat_ms
        if self._heartbeat_ms is not None and due and not self.outgoing.closed:
            self.outgoing.frames.append(EMPTY_FRAME)
            self._next_heartbeat_ms = now_ms + self._heartbeat_ms
        return events

    @property
    def next_tick_ms(self) -> int | None:
        """When tick() is due, on its caller's clock; 0 = now; None = nothing is timed."""
        due = []
        if self.closed:
            return None
        if self.settings.idle_timeout_ms:
            due.append(0 if self._last_heard_ms is None else self._last_heard_ms + 2 * self.settings.idle_timeout_ms)
        if self._heartbeat_ms is not None and not self.outgoing.closed:
            due.append(self._next_heartbeat_ms or 0)
        return min(due, default=None)

    # --- bytes in -----------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[Event]:
        """Take bytes from the peer and report what they said. b"" says nothing (see receive_eof)."""
        events: list[Event] = []
        if self.closed or not data:
            return events
        self._heard = True
        self._buffer.feed(data)
        self._read(events)
        return events

    def receive_eof(self) -> list[Event]:
        """The transport has ended: the events that follow from that, Closed the last."""
        events: list[Event] = []
        if not self.closed:
            quiet = self.outgoing.closed or not self._open_sent
            error = None if quiet else AmqpError(CONNECTION_FORCED, "the transport ended without a close")
            self._finish(error, True, events)
        return events

    def sasl_outcome(self, ok: bool) -> list[Event]:
        """Server: answer SaslInit. Returns the events of bytes that had been waiting for the answer.

        Raises UsageError where there is nothing to answer.
        """
        if self._phase is not SASL_VERDICT:
            raise UsageError("no SASL exchange waits for its outcome")
        events: list[Event] = []
        self._wire.append(sasl.outcome_frame(ok))
        if ok:
            self._expect_amqp_header()
            self._read(events)
        else:
            self._finish(AmqpError(UNAUTHORIZED_ACCESS, "the SASL exchange was refused"), False, events)
        return events

    def _read(self, events: list[Event]) -> None:
        """Read on while there is something whole to read."""
        try:
            more = True
            while more:
                if self._phase is AMQP:
                    more = self._read_frames(events)
                elif self._phase is HEADER:
                    more = self._read_header(events)
                elif self._phase in (SASL_INIT, SASL_MECHANISMS, SASL_OUTCOME):
                    more = self._read_sasl(events)
                else:
                    more = False
                    if self._buffer.waiting > MAX_FRAME_SIZE_BEFORE_OPEN:
                        raise PeerError(FRAMING_ERROR, "too much was sent ahead of the SASL outcome")
        except PeerError as error:
            self._fail(error.condition, error.description, events)

    def _read_header(self, events: list[Event]) -> bool:
        buffer = self._buffer
        header = buffer.data[buffer.position : buffer.position + 8]
        if self._may_skip_sasl and len(header) > 4 and AMQP_HEADER.startswith(header):
            self._expected_header = AMQP_HEADER
        if not self._expected_header.startswith(header):
            self._send_header()
            protocol = "SASL" if self._expected_header == SASL_HEADER else "AMQP"
            self._finish(AmqpError(FRAMING_ERROR, f"the peer did not start with the {protocol} header"), False, events)
            return False
        if len(header) < 8:
            buffer.keep(8)
            return False
        buffer.position += 8
        self._send_header()
        if header == AMQP_HEADER:
            self._phase = AMQP
        elif self.role == "server":
            self._wire.append(sasl.mechanisms_frame(self._mechanisms))
            self._phase = SASL_INIT
        else:
            self._phase = SASL_MECHANISMS
        return True

    def _read_sasl(self, events: list[Event]) -> bool:
        buffer = self._buffer
        data, position = buffer.data, buffer.position
        if len(data) - position < 8:
            buffer.keep(8)
            return False
        size, offset, kind, _ = read_head(data, position, MAX_FRAME_SIZE_BEFORE_OPEN)
        if kind != SASL_FRAME:
            raise PeerError(FRAMING_ERROR, "a frame before the SASL exchange was over")
        if len(data) - position < size:
            buffer.keep(size)
            return False
        body = data[position + offset : position + size]
        buffer.position += size
        if self._phase is SASL_INIT:
            event = sasl.read_init(body, self._mechanisms)
            self._phase = SASL_VERDICT
            events.append(event)
        elif self._phase is SASL_MECHANISMS:
            self._wire.append(
                sasl.init_frame(body, self._mechanisms, self.settings.sasl_response, self.settings.hostname)
            )
            self._phase = SASL_OUTCOME
        else:
            sasl.read_outcome(body)
            self._expect_amqp_header()
            self._send_header()
        return True

    def _read_frames(self, events: list[Event]) -> bool:
        """Read whole frames until there is none, or the phase changes."""
        buffer = self._buffer
        data, position, end_of_data = buffer.data, buffer.position, len(buffer.data)
        limit = self.max_frame_size if self.remote else MAX_FRAME_SIZE_BEFORE_OPEN
        by_channel = self._by_remote_channel
        while True:
            if self._shape is not None:
                position = self._read_alike(self._shape, data, position, limit, events)
            if end_of_data - position < 8:
                needed = 8
                break
            size, offset, kind, channel = read_head(data, position, limit)
            if size > end_of_data - position:
                needed = size
                break
            start, body, position = position, position + offset, position + size
            if kind != AMQP_FRAME:
                raise PeerError(FRAMING_ERROR, f"a frame of type {kind}")
            session = by_channel.get(channel)
            if (
                session is not None
                and not self.outgoing.closed
                and data.startswith(TRANSFER_DESCRIPTOR, body, position)
            ):
                fields = parse_transfer(data, body, position)
                session.on_transfer(fields, data[fields[-1] : position], events)
                self._shape = transfer_shape(data, start, body, fields)
            elif body < position:
                buffer.position = position
                self._on_frame(channel, data[body:position], events)
                if self._phase is not AMQP:
                    return False
                limit = self.max_frame_size if self.remote else MAX_FRAME_SIZE_BEFORE_OPEN
        buffer.position = position
        if position < end_of_data:
            buffer.keep(needed)
        return False

    def _read_alike(self, shape: TransferShape, data: bytes, position: int, limit: int, events: list[Event]) -> int:
        """Read whole transfer frames while they have the shape of the last one: a tenth of the work. Where they end."""
        session = self._by_remote_channel.get(shape.channel)
        if session is None or self.outgoing.closed:
            return position
        least, head, tag_head, rest = shape.size, shape.head, shape.tag_head, shape.rest
        unpack, end_of_data = shape.layout.unpack_from, len(data)
        first_id = next_id = shape.next_id
        payloads: list[bytes] = []
        while end_of_data - position >= least:
            size, a_head, delivery_id, a_tag_head, a_rest = unpack(data, position)
            end = position + size
            if delivery_id != next_id or a_head != head or a_rest != rest or a_tag_head != tag_head:
                break
            if not least <= size <= limit or end > end_of_data:
                break
            payloads.append(data[position + least : end])
            next_id, position = next_id + 1, end
        if payloads:
            shape.next_id = next_id & _SERIAL
            handle, message_format, settled = shape.common
            session.on_transfers(handle, first_id, message_format, settled, payloads, events)
        return position

    def _on_frame(self, channel: int, body: bytes, events: list[Event]) -> None:
        performative, payload = read_performative(body, *PERFORMATIVES)
        if isinstance(performative, Close):
            self._on_close(performative, events)
        elif self.outgoing.closed:
            return
        elif isinstance(performative, Open):
            self._on_open(performative, events)
        elif self.remote is None:
            raise PeerError(ILLEGAL_STATE, "a frame before open")
        elif isinstance(performative, Begin):
            self._on_begin(performative, channel, events)
        else:
            session = self._by_remote_channel.get(channel)
            if session is not None:
                self._on_session_frame(session, performative, body[payload:], events)
            elif channel not in self._left_channels:
                raise PeerError(NOT_ALLOWED, f"channel {channel} has no session")

    def _on_session_frame(self, session: Session, performative: Any, payload: bytes, events: list[Event]) -> None:
        if isinstance(performative, Attach):
            session.on_attach(performative, events)
        elif isinstance(performative, Flow):
            session.on_flow(performative, events)
        elif isinstance(performative, TransferFrame):
            session.on_transfer(transfer_fields(performative, 0), payload, events)
        elif isinstance(performative, DispositionFrame):
            session.on_disposition(performative, events)
        elif isinstance(performative, Detach):
            session.on_detach(performative, events)
        elif isinstance(performative, End):
            session.on_end(performative, events)
            self._sessions.pop(session.channel, None)
            if session.remote_channel is not None:
                self._by_remote_channel.pop(session.remote_channel, None)
                self._left_channels.add(session.remote_channel)

    def _on_open(self, remote: Open, events: list[Event]) -> None:
        if self.remote is not None:
            raise PeerError(ILLEGAL_STATE, "a second open")
        if remote.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise PeerError(INVALID_FIELD, f"a max-frame-size below {MIN_MAX_FRAME_SIZE}")
        if remote.idle_timeout_ms:
            if remote.idle_timeout_ms < 2 * MIN_HEARTBEAT_MS:
                raise PeerError(INVALID_FIELD, f"an idle-time-out below {2 * MIN_HEARTBEAT_MS} ms")
            self._heartbeat_ms = remote.idle_timeout_ms // 2
        self.remote = remote
        self.outgoing.max_frame_size = min(remote.max_frame_size, MAX_OUTGOING_FRAME_SIZE)
        if not self._open_sent:
            # uamqp cannot build frames larger than those it takes, yet cuts a delivery by what its peer offers
            self.max_frame_size = min(self.max_frame_size, max(remote.max_frame_size, COMMON_FRAME_SIZE))
            self._send_open()
        events.append(Opened(remote))

    def _on_begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        if channel > self.settings.channel_max:
            raise PeerError(FRAMING_ERROR, f"channel {channel} is above the maximum {self.settings.channel_max}")
        if channel in self._by_remote_channel:
            raise PeerError(NOT_ALLOWED, f"channel {channel} has a session already")
        if begin.remote_channel is not None:
            session = self._sessions.get(begin.remote_channel)
            if session is None or session.remote_channel is not None:
                raise PeerError(NOT_ALLOWED, f"no begin on channel {begin.remote_channel} waits for an answer")
        else:
            session = Session(self, self._free_channel(channel))
            self._sessions[session.channel] = session
        session.on_begin(begin, channel)
        self._by_remote_channel[channel] = session
        if begin.remote_channel is None:
            session.send_begin()
        if session.state is MAPPED:
            events.append(SessionBegun(session))

    def _free_channel(self, wished: int) -> int:
        """A channel for the answer to a begin: the peer's own number where it is free, as it is easier to follow."""
        limit = min(self.settings.channel_max, self.remote.channel_max if self.remote else self.settings.channel_max)
        if wished <= limit and wished not in self._sessions:
            return wished
        for number in range(limit + 1):
            if number not in self._sessions:
                return number
        raise PeerError(RESOURCE_LIMIT_EXCEEDED, "the connection has no free channel")

    def _on_close(self, close: Close, events: list[Event]) -> None:
        if not self.outgoing.closed:
            self._send_close(None)
        self._finish(close.error, True, events)

    # --- frames out ---------------------------------------------------------------------------------------------------

    def _send_header(self) -> None:
        if not self._header_sent:
            self._wire.append(self._expected_header)
            self._header_sent = True

    def _expect_amqp_header(self) -> None:
        self._phase = HEADER
        self._expected_header = AMQP_HEADER
        self._header_sent = False

    def _send_open(self) -> None:
        self._open_sent = True
        frame = Open(
            self.container_id,
            self.settings.hostname,
            self.max_frame_size,
            self.settings.channel_max,
            self.settings.idle_timeout_ms,
            properties=self.settings.properties,
        )
        self.outgoing.frames.append(encode_frame(0, frame))

    def _send_close(self, error: AmqpError | None) -> None:
        """Close from our side. What was settled before goes out before."""
        if not self._open_sent:
            self._send_open()
        self.outgoing.flush()
        self.outgoing.frames.append(encode_frame(0, Close(error)))
        self.outgoing.closed = True

    # --- the end -------------------------------------------------------------------------------------------

    def _fail(self, condition: str, description: str, events: list[Event]) -> None:
        """The peer broke a rule: say so where that is possible yet, and end."""
        if self._phase is AMQP and not self.outgoing.closed:
            self._send_close(AmqpError(condition, description))
        elif self._phase is SASL_INIT:
            self._wire.append(sasl.outcome_frame(False))
        self._finish(AmqpError(condition, description), False, events)

    def _finish(self, error: AmqpError | None, by_peer: bool, events: list[Event]) -> None:
        for session in self.sessions:
            session.lose(error, events)
        self._sessions.clear()
        self._by_remote_channel.clear()
        self._buffer = FrameBuffer()
        self._phase = CLOSED
        events.append(Closed(error, by_peer))


def _default_mechanisms(role: str) -> tuple[str, ...]:
    return SERVER_MECHANISMS if role == "server" else CLIENT_MECHANISMS
