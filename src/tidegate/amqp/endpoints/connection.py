"""One AMQP connection: bytes in, events out; calls in, bytes out.

Part 2, sections 2.2 to 2.4. `handshake` lists the phases in which the peer's bytes are read, and implements those
before AMQP frames. A protocol violation ends the connection with a close that names it; nothing a peer sends raises
here. Peers may pipeline open, begin and attach without waiting for answers: each is answered as it is read.

The memory a peer can occupy is bounded: a frame (`max_frame_size`, less before its open), sessions (`channel_max`),
links (`max_links`), incomplete deliveries (`max_partial_bytes`), nesting and size of decoded values.
"""

from __future__ import annotations

from typing import Any

from tidegate.amqp.encoding.types import (
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
from tidegate.amqp.endpoints.events import Closed, Event, Opened, SessionBegun
from tidegate.amqp.endpoints.handshake import (
    ConnectionSettings,
    Handshake,
    PeerLimits,
    Phase,
    PhaseStep,
    Role,
    outcome_frame,
)
from tidegate.amqp.endpoints.session import Session, SessionState
from tidegate.amqp.framing.frames import (
    AMQP_FRAME,
    EMPTY_FRAME,
    MAX_FRAME_SIZE_BEFORE_OPEN,
    MIN_MAX_FRAME_SIZE,
    TRANSFER_DESCRIPTOR,
    FrameBuffer,
    FrameQueue,
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

MIN_HEARTBEAT_MS = 100


class Liveness:
    """Tracks idle times. Times are milliseconds of the owner's clock, which must be monotonic."""

    __slots__ = ("_heartbeat_ms", "_idle_timeout_ms", "_last_heard_ms", "_next_heartbeat_ms", "heard")

    def __init__(self, idle_timeout_ms: int | None) -> None:
        self.heard = True
        """Set when bytes are received; cleared when the clock is read."""
        self._idle_timeout_ms = idle_timeout_ms
        self._last_heard_ms: int | None = None
        self._next_heartbeat_ms: int | None = None
        self._heartbeat_ms: int | None = None

    def promise_peer(self, idle_timeout_ms: int | None) -> None:
        """Send heartbeats twice as often as the peer requires. Raises PeerError if that is too often."""
        if idle_timeout_ms:
            if idle_timeout_ms < 2 * MIN_HEARTBEAT_MS:
                raise PeerError(INVALID_FIELD, f"an idle-time-out below {2 * MIN_HEARTBEAT_MS} ms")
            self._heartbeat_ms = idle_timeout_ms // 2

    def peer_is_silent(self, now_ms: int) -> bool:
        """Return whether the peer has been silent for twice the timeout that was announced to it."""
        if self.heard or self._last_heard_ms is None:
            self.heard = False
            self._last_heard_ms = now_ms
            return False
        return bool(self._idle_timeout_ms) and now_ms - self._last_heard_ms >= 2 * (self._idle_timeout_ms or 0)

    def heartbeat_is_due(self, now_ms: int) -> bool:
        """Return whether a heartbeat has to be sent now, and schedule the next one."""
        if self._heartbeat_ms is None or (self._next_heartbeat_ms is not None and now_ms < self._next_heartbeat_ms):
            return False
        self._next_heartbeat_ms = now_ms + self._heartbeat_ms
        return True

    def next_due_ms(self, *, with_heartbeats: bool) -> int | None:
        """Return when the owner must next report the time: 0 for now, None for never."""
        due = []
        if self._idle_timeout_ms:
            due.append(0 if self._last_heard_ms is None else self._last_heard_ms + 2 * self._idle_timeout_ms)
        if self._heartbeat_ms is not None and with_heartbeats:
            due.append(self._next_heartbeat_ms or 0)
        return min(due, default=None)


MAX_OUTGOING_FRAME_SIZE = 1 << 22
"""Size of the largest frame sent to a peer that sets no limit."""
COMMON_FRAME_SIZE = 1 << 16
"""The maximum frame size that Event Hubs itself offers, which every client supports."""
_SERIAL = 0xFFFFFFFF


class Channels:
    """Attributes: `sessions` by local channel; `by_remote`, the sessions that the peer has begun, by its channel."""

    __slots__ = ("_left", "by_remote", "sessions")

    def __init__(self) -> None:
        self.sessions: dict[int, Session] = {}
        self.by_remote: dict[int, Session] = {}
        self._left: set[int] = set()

    def find_free(self, limit: int, preferred: int = 0) -> int | None:
        """Return a free channel up to `limit`: the preferred one if possible, else the lowest."""
        if preferred <= limit and preferred not in self.sessions:
            return preferred
        return next((number for number in range(limit + 1) if number not in self.sessions), None)

    def was_left(self, remote_channel: int) -> bool:
        """Return whether the channel had a session: Python's client detaches links after the end of their session."""
        return remote_channel in self._left

    def remove(self, session: Session) -> None:
        """Free the channels of a session that both sides have ended."""
        self.sessions.pop(session.channel, None)
        if session.remote_channel is not None:
            self.by_remote.pop(session.remote_channel, None)
            self._left.add(session.remote_channel)

    def clear(self) -> None:
        """Free all channels."""
        self.sessions.clear()
        self.by_remote.clear()


class Connection:
    """An AMQP 1.0 connection without its socket.

    A server waits for the peer's protocol header; a client calls open() first. `remote` is the peer's Open once
    received. `closed` is True once Closed was reported. `context` is for the owner's use. Peer bytes never raise.
    """

    def __init__(self, role: Role, container_id: str, settings: ConnectionSettings | None = None) -> None:
        settings = settings or ConnectionSettings()
        self.role = role
        self.container_id = container_id
        self.settings = settings
        self.max_frame_size = max(settings.max_frame_size, MIN_MAX_FRAME_SIZE)
        self.outgoing = FrameQueue()
        """Frames to send; a client's wait here until the SASL exchange is done."""
        self.limits = PeerLimits(settings.max_links, settings.max_partial_bytes)
        self.remote: Open | None = None
        self.context: Any = None
        self._handshake = Handshake(role, settings)
        self._channels = Channels()
        self._liveness = Liveness(settings.idle_timeout_ms)
        self._open_sent = False
        self._buffer = FrameBuffer()
        self._shape: TransferShape | None = None

    def __repr__(self) -> str:
        return f"<Connection {self.role} {self.container_id!r} {self._handshake.phase.name}>"

    @property
    def closed(self) -> bool:
        """True once Closed was reported."""
        return self._handshake.phase is Phase.CLOSED

    @property
    def sessions(self) -> list[Session]:
        """The sessions of the connection."""
        return list(self._channels.sessions.values())

    # --- calls by the owner -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Client: send protocol headers and open. begin() and attaching may follow at once, before any answer."""
        if self.role != "client" or self._open_sent:
            raise UsageError("only a client opens, and once")
        self._send_open()
        self._handshake.send_header()

    def begin(self) -> Session:
        """Begin a session; SessionBegun follows. Links may be attached at once.

        Raises UsageError before open(), after the end, and when the channels are used up.
        """
        if not self._open_sent or self.outgoing.closed or self.closed:
            raise UsageError("the connection is not open")
        channel = self._channels.find_free(self._highest_channel())
        if channel is None:
            raise UsageError("the connection has no free channel")
        session = self._channels.sessions[channel] = Session(self, channel)
        session.send_begin()
        return session

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Close, with an error if a condition is given. Closed follows with the peer's answer or receive_eof()."""
        if not self.closed and not self.outgoing.closed:
            self._send_close(AmqpError(condition, description) if condition else None)

    def data_to_send(self) -> bytes:
        """Return all bytes for the peer since the last call."""
        outgoing = self.outgoing
        if outgoing.flushes:
            outgoing.flush()
        handshake = self._handshake
        wire = handshake.wire
        if outgoing.frames and handshake.frames_may_go:
            wire += outgoing.frames
            outgoing.frames.clear()
        if not wire:
            return b""
        data = b"".join(wire)
        wire.clear()
        return data

    # --- time ---------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Event]:
        """Advance the time, read from any monotonic clock, and return the resulting events.

        Sends heartbeats before the peer times out, and ends a connection that was silent for twice `idle_timeout_ms`.
        Call it when next_tick_ms is due.
        """
        events: list[Event] = []
        if self.closed:
            return events
        if self._liveness.peer_is_silent(now_ms):
            # As the service does; clients treat resource-limit-exceeded as a quota and give up.
            limit_ms = 2 * (self.settings.idle_timeout_ms or 0)
            description = f"the connection was inactive for more than the allowed {limit_ms} milliseconds"
            self._fail(CONNECTION_FORCED, description, events)
        elif not self.outgoing.closed and self._liveness.heartbeat_is_due(now_ms):
            self.outgoing.frames.append(EMPTY_FRAME)
        return events

    @property
    def next_tick_ms(self) -> int | None:
        """Return when tick() is due on the caller's clock: 0 for now, None for never."""
        return None if self.closed else self._liveness.next_due_ms(with_heartbeats=not self.outgoing.closed)

    # --- bytes in -----------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[Event]:
        """Process bytes from the peer and return their events. b"" is not the end of the stream (see receive_eof)."""
        events: list[Event] = []
        if self.closed or not data:
            return events
        self._liveness.heard = True
        self._buffer.feed(data)
        self._read(events)
        return events

    def receive_eof(self) -> list[Event]:
        """Process the end of the transport and return the resulting events, Closed last."""
        events: list[Event] = []
        if not self.closed:
            quiet = self.outgoing.closed or not self._open_sent
            error = None if quiet else AmqpError(CONNECTION_FORCED, "the transport ended without a close")
            self._finish(error, True, events)
        return events

    def sasl_outcome(self, ok: bool) -> list[Event]:
        """Server: answer SaslInit. Returns the events of bytes that had been waiting for the answer.

        Does nothing if the peer has gone meanwhile. Raises UsageError if it has asked for nothing.
        """
        events: list[Event] = []
        if self.closed:
            return events
        self._handshake.accept(ok)
        if ok:
            self._read(events)
        else:
            self._finish(AmqpError(UNAUTHORIZED_ACCESS, "the SASL exchange was refused"), False, events)
        return events

    def _read(self, events: list[Event]) -> None:
        """Read as long as there is something complete to read."""
        handshake = self._handshake
        try:
            more = True
            while more and handshake.phase is not Phase.AMQP:
                more, event = handshake.read(self._buffer)
                if event is not None:
                    events.append(event)
            if more:
                self._read_frames(events)
        except PeerError as error:
            self._fail(error.condition, error.description, events)

    def _read_frames(self, events: list[Event]) -> None:
        """Read complete frames until there is none left or the connection has ended."""
        buffer = self._buffer
        data, position, end_of_data = buffer.data, buffer.position, len(buffer.data)
        limit = self.max_frame_size if self.remote else MAX_FRAME_SIZE_BEFORE_OPEN
        by_channel = self._channels.by_remote
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
                if self.closed:
                    return
                limit = self.max_frame_size if self.remote else MAX_FRAME_SIZE_BEFORE_OPEN
        buffer.position = position
        if position < end_of_data:
            buffer.keep(needed)

    def _read_alike(self, shape: TransferShape, data: bytes, position: int, limit: int, events: list[Event]) -> int:
        """Read complete transfer frames of the last one's shape, at a tenth of the cost. Return where they end."""
        session = self._channels.by_remote.get(shape.channel)
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
            session = self._channels.by_remote.get(channel)
            if session is not None:
                self._on_session_frame(session, performative, body[payload:], events)
            elif not self._channels.was_left(channel):
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
            self._channels.remove(session)

    def _on_open(self, remote: Open, events: list[Event]) -> None:
        if self.remote is not None:
            raise PeerError(ILLEGAL_STATE, "a second open")
        if remote.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise PeerError(INVALID_FIELD, f"a max-frame-size below {MIN_MAX_FRAME_SIZE}")
        self._liveness.promise_peer(remote.idle_timeout_ms)
        self.remote = remote
        self.outgoing.max_frame_size = min(remote.max_frame_size, MAX_OUTGOING_FRAME_SIZE)
        if not self._open_sent:
            # uamqp cannot build frames larger than it accepts, yet splits deliveries by the size that its peer offers
            self.max_frame_size = min(self.max_frame_size, max(remote.max_frame_size, COMMON_FRAME_SIZE))
            self._send_open()
        events.append(Opened(remote))

    def _on_begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        if channel > self.settings.channel_max:
            raise PeerError(FRAMING_ERROR, f"channel {channel} is above the maximum {self.settings.channel_max}")
        if channel in self._channels.by_remote:
            raise PeerError(NOT_ALLOWED, f"channel {channel} has a session already")
        if begin.remote_channel is not None:
            session = self._channels.sessions.get(begin.remote_channel)
            if session is None or session.remote_channel is not None:
                raise PeerError(NOT_ALLOWED, f"no begin on channel {begin.remote_channel} waits for an answer")
        else:
            # The peer's own number if it is free, as that is easier to follow in traces.
            free = self._channels.find_free(self._highest_channel(), preferred=channel)
            if free is None:
                raise PeerError(RESOURCE_LIMIT_EXCEEDED, "the connection has no free channel")
            session = self._channels.sessions[free] = Session(self, free)
        session.on_begin(begin, channel)
        self._channels.by_remote[channel] = session
        if begin.remote_channel is None:
            session.send_begin()
        if session.state is SessionState.MAPPED:
            events.append(SessionBegun(session))

    def _highest_channel(self) -> int:
        ours = self.settings.channel_max
        return min(ours, self.remote.channel_max) if self.remote else ours

    def _on_close(self, close: Close, events: list[Event]) -> None:
        if not self.outgoing.closed:
            self._send_close(None)
        self._finish(close.error, True, events)

    # --- frames out ---------------------------------------------------------------------------------------------------

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
        """Close from this side, after flushing earlier settlements."""
        if not self._open_sent:
            self._send_open()
        self.outgoing.flush()
        self.outgoing.frames.append(encode_frame(0, Close(error)))
        self.outgoing.closed = True

    # --- the end -------------------------------------------------------------------------------------------

    def _fail(self, condition: str, description: str, events: list[Event]) -> None:
        """End the connection after a protocol violation, with a close if one can still be sent."""
        phase = self._handshake.phase
        if phase is Phase.AMQP and not self.outgoing.closed:
            self._send_close(AmqpError(condition, description))
        elif phase is Phase.SASL_INIT:
            self._handshake.wire.append(outcome_frame(False))
        self._finish(AmqpError(condition, description), False, events)

    def _finish(self, error: AmqpError | None, by_peer: bool, events: list[Event]) -> None:
        for session in self.sessions:
            session.on_connection_end(error, events)
        self._channels.clear()
        self._buffer = FrameBuffer()
        self._handshake.move(PhaseStep.FINISHED)
        events.append(Closed(error, by_peer))
