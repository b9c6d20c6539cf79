"""One session of a connection: windows, delivery ids, links by handle.

AMQP 1.0, part 2, section 2.5. Either side begins and the other answers; either side ends and the other answers.
`TRANSITIONS` defines the state each step leads to; a step that a state does not list changes nothing.

Windows count transfer frames, not deliveries; ids are serial numbers of 32 bits that wrap
(RFC 1982). The incoming window is reopened when half of it is used. It is not enforced, because the Python client
counts a delivery of many frames as one, and nothing is buffered here that it would bound. The peer's window is strictly
observed: a delivery that it interrupts is held back, and no other is accepted until it is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Literal

from tidegate.amqp.encoding.types import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    AmqpError,
    PeerError,
    UsageError,
)
from tidegate.amqp.endpoints.events import AttachReceived, Credit, Disposition, Ended, Event, LinkAttached
from tidegate.amqp.endpoints.link import Link, LinkState
from tidegate.amqp.framing.frames import TransferFields, accepted_frame
from tidegate.amqp.framing.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    DeliveryState,
    Detach,
    DispositionFrame,
    End,
    Flow,
    Received,
    Source,
    Target,
)

if TYPE_CHECKING:
    from tidegate.amqp.endpoints.connection import Connection

MAX_UNSETTLED = 1 << 16
"""The maximum of a session's deliveries that await their disposition."""
OUTGOING_WINDOW = 1 << 16
_SERIAL = 0xFFFFFFFF
_MAX_WINDOW = 1 << 31


class SessionState(Enum):
    """The state of a session between its begin and its end."""

    BEGIN_SENT = auto()
    """This side began, or is about to answer the peer's begin."""
    MAPPED = auto()
    """Both sides have begun."""
    ENDING = auto()
    """This side ended; the peer has not answered, and its frames are ignored."""
    ENDED = auto()


class SessionStep(Enum):
    """A step from one state of a session to another."""

    PEER_BEGINS = auto()
    WE_END = auto()
    PEER_ENDS = auto()
    CONNECTION_ENDS = auto()


TRANSITIONS: Mapping[SessionState, Mapping[SessionStep, SessionState]] = {
    SessionState.BEGIN_SENT: {
        SessionStep.PEER_BEGINS: SessionState.MAPPED,
        SessionStep.WE_END: SessionState.ENDING,
        SessionStep.CONNECTION_ENDS: SessionState.ENDED,
    },
    SessionState.MAPPED: {
        SessionStep.WE_END: SessionState.ENDING,
        SessionStep.PEER_ENDS: SessionState.ENDED,
        SessionStep.CONNECTION_ENDS: SessionState.ENDED,
    },
    SessionState.ENDING: {
        SessionStep.PEER_BEGINS: SessionState.ENDING,
        SessionStep.PEER_ENDS: SessionState.ENDED,
        SessionStep.CONNECTION_ENDS: SessionState.ENDED,
    },
    SessionState.ENDED: {},
}


_MAPPED = SessionState.MAPPED
_OPEN = (SessionState.MAPPED, SessionState.BEGIN_SENT)


class Session:
    """The local endpoint of a session. `channel` is the local channel; `context` is for the owner's use."""

    __slots__ = (
        "_by_handle",
        "_by_remote_handle",
        "_left_handles",
        "_remote_handle_max",
        "_requested",
        "_settings",
        "_settlements",
        "_unsettled",
        "channel",
        "context",
        "held",
        "incoming_window",
        "joined_transfers",
        "limits",
        "next_delivery_id",
        "next_incoming_id",
        "next_outgoing_id",
        "outgoing",
        "remote_channel",
        "remote_incoming_window",
        "state",
    )

    def __init__(self, connection: Connection, channel: int) -> None:
        self.outgoing = connection.outgoing
        self.joined_transfers = connection.settings.joined_transfers
        self.limits = connection.limits
        self._settings = connection.settings
        self.channel = channel
        self.remote_channel: int | None = None
        self.context: Any = None
        self.state = SessionState.BEGIN_SENT
        self.next_outgoing_id = 0
        self.next_delivery_id = 0
        self.next_incoming_id = 0
        self.incoming_window = connection.settings.incoming_window
        self.remote_incoming_window = 0
        self.held: deque[bytes] = deque()
        """Frames of a delivery that the peer's window interrupted."""
        self._remote_handle_max = _SERIAL
        self._by_handle: dict[int, Link] = {}
        self._by_remote_handle: dict[int, Link] = {}
        self._left_handles: set[int] = set()
        self._requested: dict[tuple[str, str], Link] = {}
        self._unsettled: dict[int, Link] = {}
        self._settlements: list[tuple[DeliveryState, list[tuple[int, int]]]] = []

    def __repr__(self) -> str:
        return f"<Session {self.channel} {self.state.name}>"

    @property
    def links(self) -> list[Link]:
        """Return the links that neither side has detached."""
        return [
            link for link in self._by_handle.values() if link.state not in (LinkState.DETACHING, LinkState.DETACHED)
        ]

    @property
    def sendable(self) -> int:
        """The number of transfer frames that may be sent now."""
        return 0 if self.held or self.state is not _MAPPED else self.remote_incoming_window

    @property
    def unsettled_room(self) -> int:
        """The number of unsettled deliveries that may be sent now."""
        return MAX_UNSETTLED - len(self._unsettled)

    # --- calls by the owner -------------------------------------------------------------------------------------------

    def attach_sender(
        self,
        name: str,
        target: str | Target,
        *,
        source: str | Source | None = None,
        properties: Mapping[str, Any] | None = None,
        desired_capabilities: Sequence[str] = (),
    ) -> Link:
        """Request a link to send on; LinkAttached or Detached follows, then Credit.

        `source` names the local end to the peer, the link's name by default. Raises UsageError if the session has
        ended, the name is in use, or the peer's handles are used up.
        """
        link = self._request_link(name, "sender")
        link.request_attach(_source(source or name), _target(target), 0, properties, desired_capabilities)
        return link

    def attach_receiver(
        self,
        name: str,
        source: str | Source,
        *,
        target: str | Target | None = None,
        filter: Mapping[str, Any] | None = None,
        credit: int = 0,
        max_message_size: int = 0,
        properties: Mapping[str, Any] | None = None,
        desired_capabilities: Sequence[str] = (),
        snd_settle_mode: int = 2,
    ) -> Link:
        """Request a link to receive on; LinkAttached or Detached follows. Raises like attach_sender().

        `filter` maps a name to a Described value. `credit` is granted at once and kept topped up; 0 leaves it to
        `link.flow()`. `max_message_size` is in bytes, 0 for no limit. `snd_settle_mode` is requested of the peer.
        """
        link = self._request_link(name, "receiver")
        link.snd_settle_mode = snd_settle_mode
        link.max_message_size = max_message_size
        terminus = _source(source)
        if filter is not None:
            terminus.filter = filter
        link.request_attach(terminus, _target(target or name), credit, properties, desired_capabilities)
        return link

    def end(self, condition: str | None = None, description: str = "") -> None:
        """End the session and its links, with an error if a condition is given. No events follow for them."""
        if self.state in _OPEN:
            self._end(AmqpError(condition, description) if condition else None, [])

    def _request_link(self, name: str, role: Literal["sender", "receiver"]) -> Link:
        if self.state not in _OPEN:
            raise UsageError("the session has ended")
        if (name, role) in self._requested:
            raise UsageError(f"a {role} link {name!r} is being attached already")
        handle = self._free_handle()
        if handle is None:
            raise UsageError("the session has no free handle")
        link = Link(self, name, role, handle, LinkState.ATTACH_SENT)
        self._by_handle[handle] = link
        self._requested[name, role] = link
        self.limits.count_links(1)
        return link

    def _free_handle(self) -> int | None:
        limit = min(self._remote_handle_max, self._settings.handle_max)
        if len(self._by_handle) > limit:
            return None
        return next(handle for handle in range(limit + 1) if handle not in self._by_handle)

    # --- frames out ---------------------------------------------------------------------------------------------------

    def send(self, performative: Any) -> None:
        """Link: send a performative on this session's channel."""
        if self.state in _OPEN:
            self.outgoing.send(self.channel, performative)

    def send_begin(self) -> None:
        """Connection: begin, or answer the peer's begin if there is a remote channel."""
        begin = Begin(
            self.remote_channel,
            self.next_outgoing_id,
            self.incoming_window,
            OUTGOING_WINDOW,
            self._settings.handle_max,
        )
        self.outgoing.send(self.channel, begin)

    def send_flow(
        self,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        drain: bool = False,
    ) -> None:
        """Link: send the windows, reopening the incoming one, and a link's credit."""
        self.incoming_window = self._settings.incoming_window
        flow = Flow(
            self.next_incoming_id,
            self.incoming_window,
            self.next_outgoing_id,
            OUTGOING_WINDOW,
            handle,
            delivery_count,
            link_credit,
            drain=drain,
        )
        self.send(flow)

    def on_sent(self, link: Link, first_id: int, deliveries: int, frames: int, remembered: bool) -> None:
        """Link: count transfers that were written."""
        self.next_delivery_id = (first_id + deliveries) & _SERIAL
        self._count_sent(frames)
        if remembered:
            self._unsettled.update(((first_id + index) & _SERIAL, link) for index in range(deliveries))

    def _count_sent(self, frames: int) -> None:
        self.next_outgoing_id = (self.next_outgoing_id + frames) & _SERIAL
        self.remote_incoming_window -= frames

    def settle(self, first_id: int, last_id: int, state: DeliveryState) -> None:
        """Link: settle a range of incoming deliveries by the next flush."""
        if not self._settlements:
            self.outgoing.flushes.append(self.flush_settlements)
        for known, ranges in self._settlements:
            if known is state or known == state:
                last_first, last_last = ranges[-1]
                if first_id == last_last + 1:
                    ranges[-1] = (last_first, last_id)
                else:
                    ranges.append((first_id, last_id))
                return
        self._settlements.append((state, [(first_id, last_id)]))

    def flush_settlements(self) -> None:
        """Connection: write one disposition for each run of settled deliveries of one state."""
        for state, ranges in self._settlements:
            if len(ranges) > 1:
                ranges = _merge(ranges)
            for first, last in ranges:
                if state is not ACCEPTED:
                    self.send(DispositionFrame(True, first, last, True, state))
                elif self.state in _OPEN:
                    self.outgoing.send_frame(accepted_frame(self.channel, first, last))
        self._settlements.clear()

    # --- frames in ----------------------------------------------------------------------------------------------------

    def on_begin(self, begin: Begin, remote_channel: int) -> None:
        """Connection: handle the peer's begin."""
        self.remote_channel = remote_channel
        self.next_incoming_id = begin.next_outgoing_id
        self.remote_incoming_window = min(begin.incoming_window, _MAX_WINDOW)
        self._remote_handle_max = begin.handle_max
        self._move(SessionStep.PEER_BEGINS)

    def on_attach(self, attach: Attach, events: list[Event]) -> None:
        """Connection: handle the peer's request for a link, or its answer to one.

        Raises PeerError for a handle beyond the limit, and if the peer has more links than the connection allows.
        """
        if self.state is not _MAPPED:
            return
        if attach.handle > self._settings.handle_max:
            raise PeerError(FRAMING_ERROR, f"handle {attach.handle} is above the maximum {self._settings.handle_max}")
        there = self._by_remote_handle.get(attach.handle)
        if there is not None and there.state is not LinkState.DETACHING:
            self._end(AmqpError(HANDLE_IN_USE, f"handle {attach.handle} is in use"), events)
            return
        if there is not None:
            self._forget(there)  # the peer reused the handle for another link without a detach, as Python's client may
        role: Literal["sender", "receiver"] = "sender" if attach.role else "receiver"
        link = self._requested.pop((attach.name, role), None)
        if link is None:
            self._on_new_link(attach, role, events)
        else:
            self._by_remote_handle[attach.handle] = link
            if link.on_attach(attach):
                events.append(LinkAttached(link))

    def _on_new_link(self, attach: Attach, role: Literal["sender", "receiver"], events: list[Event]) -> None:
        handle = self._free_handle()
        if handle is None:
            raise PeerError(RESOURCE_LIMIT_EXCEEDED, "the session has no free handle")
        self.limits.count_links(1)
        link = Link(self, attach.name, role, handle, LinkState.ATTACH_RECEIVED)
        self._by_handle[handle] = link
        self._by_remote_handle[attach.handle] = link
        link.on_attach(attach)
        events.append(AttachReceived(link))

    def on_transfer(self, fields: TransferFields, payload: bytes, events: list[Event]) -> None:
        """Connection: handle a transfer."""
        handle, delivery_id, _, message_format, settled, more, aborted, _ = fields
        link = self._count_transfers(handle, 1, events)
        if link is not None:
            link.on_transfer(delivery_id, message_format, settled, more, aborted, payload, events)
        self._widen_window()

    def on_transfers(
        self,
        handle: int,
        first_id: int,
        message_format: int | None,
        settled: bool,
        payloads: list[bytes],
        events: list[Event],
    ) -> None:
        """Connection: handle transfers of one link, each a complete delivery, with ids from first_id on."""
        link = self._count_transfers(handle, len(payloads), events)
        if link is not None:
            link.on_transfers(first_id, message_format, settled, payloads, events)
        self._widen_window()

    def _count_transfers(self, handle: int, count: int, events: list[Event]) -> Link | None:
        self.next_incoming_id = (self.next_incoming_id + count) & _SERIAL
        self.incoming_window -= count
        link = self._by_remote_handle.get(handle)
        if link is None:
            self._on_unknown_handle(handle, events)
        return link

    def _widen_window(self) -> None:
        if self.incoming_window <= self._settings.incoming_window >> 1:
            self.send_flow()

    def on_flow(self, flow: Flow, events: list[Event]) -> None:
        """Connection: handle a flow of the session and, with a handle, of a link."""
        if self.state is not _MAPPED:
            return
        blocked = self.remote_incoming_window == 0 or bool(self.held)
        self.next_incoming_id = flow.next_outgoing_id
        # Ids are serial numbers, but a window is a count: Rust's client gives the largest, 2^32 - 1.
        unseen = (self.next_outgoing_id - (flow.next_incoming_id or 0)) & _SERIAL
        unseen -= 0 if unseen < _MAX_WINDOW else _SERIAL + 1
        self.remote_incoming_window = max(0, min(flow.incoming_window - unseen, _MAX_WINDOW))
        while self.held and self.remote_incoming_window:
            self.outgoing.frames.append(self.held.popleft())
            self._count_sent(1)
        link = None
        if flow.handle is not None:
            link = self._by_remote_handle.get(flow.handle)
            if link is None:
                self._on_unknown_handle(flow.handle, events)
                return
            link.on_flow(flow, events)
        elif flow.echo:
            self.send_flow()
        if blocked and self.sendable:
            waiting = [other for other in self._by_handle.values() if other is not link and other.sendable]
            events.extend(Credit(other, other.credit) for other in waiting)

    def on_disposition(self, disposition: DispositionFrame, events: list[Event]) -> None:
        """Connection: handle the state of deliveries. A sender's disposition of its own deliveries needs no answer."""
        if not disposition.role or self.state is not _MAPPED:
            return
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        count = ((last - first) & _SERIAL) + 1
        if count > _MAX_WINDOW:
            return
        if count <= len(self._unsettled):
            known = [
                number for number in ((first + index) & _SERIAL for index in range(count)) if number in self._unsettled
            ]
        else:
            known = [number for number in self._unsettled if (number - first) & _SERIAL < count]
        terminal = disposition.state is not None and not isinstance(disposition.state, Received)
        for link, start, end in self._runs(known):
            events.append(Disposition(link, start, end, disposition.settled, disposition.state))
        if disposition.settled or terminal:
            full = self.unsettled_room <= 0
            for number in known:
                del self._unsettled[number]
            if not disposition.settled:
                self.send(DispositionFrame(False, first, last, True, disposition.state))
            if full and known:
                events.extend(Credit(link, link.credit) for link in self._by_handle.values() if link.sendable)

    def _runs(self, delivery_ids: list[int]) -> list[tuple[Link, int, int]]:
        """Return unsettled deliveries as runs of consecutive ids of one link."""
        runs: list[tuple[Link, int, int]] = []
        for number in delivery_ids:
            link = self._unsettled[number]
            if runs and runs[-1][0] is link and runs[-1][2] + 1 == number:
                runs[-1] = (link, runs[-1][1], number)
            else:
                runs.append((link, number, number))
        return runs

    def on_detach(self, detach: Detach, events: list[Event]) -> None:
        """Connection: handle the peer's detach of a link."""
        link = self._by_remote_handle.pop(detach.handle, None)
        if link is None:
            self._on_unknown_handle(detach.handle, events)
            return
        link.on_detach(detach, events)
        self._left_handles.add(detach.handle)
        self._forget(link)

    def _on_unknown_handle(self, handle: int, events: list[Event]) -> None:
        """Ignore a late frame for a former link; end the session if the handle was never attached."""
        if handle not in self._left_handles and self.state is _MAPPED:
            self._end(AmqpError(UNATTACHED_HANDLE, f"handle {handle} is not attached"), events)

    def on_left(self, link: Link) -> None:
        """Link: forget a link that one side has detached. Its unsettled deliveries stay unsettled."""
        if link.role == "sender" and link in self._unsettled.values():
            self._unsettled = {number: other for number, other in self._unsettled.items() if other is not link}

    def _forget(self, link: Link) -> None:
        if self._by_handle.get(link.handle) is link:
            del self._by_handle[link.handle]
            self.limits.count_links(-1)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self, error: AmqpError | None, events: list[Event]) -> None:
        """End from this side. Later frames of the peer are ignored until its end."""
        self.flush_settlements()
        self.send(End(error))
        self._finish(SessionStep.WE_END, error, events)

    def on_end(self, end: End, events: list[Event]) -> None:
        """Connection: handle the peer's end, or its answer to an end."""
        if self.state is _MAPPED:
            self.flush_settlements()
            self.send(End())
        self._finish(SessionStep.PEER_ENDS, end.error, events)

    def on_connection_end(self, error: AmqpError | None, events: list[Event]) -> None:
        """Connection: end the session with its connection."""
        self._finish(SessionStep.CONNECTION_ENDS, error, events)

    def _finish(self, step: SessionStep, error: AmqpError | None, events: list[Event]) -> None:
        """Take a step that ends the session; the first such step ends its links and reports Ended."""
        is_first = self.state in _OPEN
        self._move(step)
        if not is_first:
            return
        self._unsettled.clear()
        for link in list(self._by_handle.values()):
            link.on_session_end(error, events)
        self.limits.count_links(-len(self._by_handle))
        self._by_handle.clear()
        self._by_remote_handle.clear()
        self._requested.clear()
        self._settlements.clear()
        self.held.clear()
        events.append(Ended(self, error))

    def _move(self, step: SessionStep) -> None:
        self.state = TRANSITIONS[self.state].get(step, self.state)


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges in order, with adjacent ones merged."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _source(source: str | Source) -> Source:
    return Source(source) if isinstance(source, str) else source


def _target(target: str | Target) -> Target:
    return Target(target) if isinstance(target, str) else target
