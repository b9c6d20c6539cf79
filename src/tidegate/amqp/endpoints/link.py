"""The local endpoint of one link of a session.

AMQP 1.0, part 2, section 2.6. Both sides attach and both detach; either may start, and the other answers. `TRANSITIONS`
defines the state each step leads to. A step that is not listed for a state is ignored there: a local one does nothing,
and the peer may have sent its step before it learned of the new state.

A peer refuses to attach by answering without a terminus and then detaching (section 2.6.3). Until then the link stays
ATTACH_SENT, so that answer is not a step.

Flow control, section 2.6.7: the receiver allows the sender `credit` deliveries beyond the `delivery_count` that both
sides track.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Literal

from tidegate.amqp.encoding.types import NOT_ALLOWED, TRANSFER_LIMIT_EXCEEDED, AmqpError, PeerError, UsageError
from tidegate.amqp.endpoints.events import Credit, Detached, Drained, Event, Transfer, Transfers, TransferTooLarge
from tidegate.amqp.endpoints.handshake import PeerLimits
from tidegate.amqp.framing.frames import LAST, MORE, TransferTemplate
from tidegate.amqp.framing.performatives import Attach, DeliveryState, Detach, Flow, Source, Target

if TYPE_CHECKING:
    from tidegate.amqp.endpoints.session import Session

DEFAULT_MAX_MESSAGE_SIZE = 1 << 20
SEND_SETTLED = 1
"""The snd-settle-mode of a link on which no delivery waits for an outcome (section 2.8.2)."""
_SERIAL = 0xFFFFFFFF


class LinkState(Enum):
    """The state of a link between the first attach and the last detach."""

    ATTACH_RECEIVED = auto()
    """The peer requested the link; the owner has to accept or refuse."""
    ATTACH_SENT = auto()
    """This side requested the link; the peer has not answered, or has refused and will detach."""
    ATTACHED = auto()
    DETACHING = auto()
    """This side detached; the peer has not answered."""
    DETACHED = auto()


class LinkStep(Enum):
    """A step from one state of a link to another."""

    WE_ACCEPT = auto()
    WE_DETACH = auto()
    """A closing detach; also ends a refusal."""
    PEER_ATTACHES = auto()
    """An attach with a terminus: the peer accepts the requested link."""
    PEER_DETACHES = auto()
    SESSION_ENDS = auto()


TRANSITIONS: Mapping[LinkState, Mapping[LinkStep, LinkState]] = {
    LinkState.ATTACH_RECEIVED: {
        LinkStep.WE_ACCEPT: LinkState.ATTACHED,
        LinkStep.WE_DETACH: LinkState.DETACHING,
        LinkStep.PEER_DETACHES: LinkState.DETACHED,
        LinkStep.SESSION_ENDS: LinkState.DETACHED,
    },
    LinkState.ATTACH_SENT: {
        LinkStep.PEER_ATTACHES: LinkState.ATTACHED,
        LinkStep.WE_DETACH: LinkState.DETACHING,
        LinkStep.PEER_DETACHES: LinkState.DETACHED,
        LinkStep.SESSION_ENDS: LinkState.DETACHED,
    },
    LinkState.ATTACHED: {
        LinkStep.WE_DETACH: LinkState.DETACHING,
        LinkStep.PEER_DETACHES: LinkState.DETACHED,
        LinkStep.SESSION_ENDS: LinkState.DETACHED,
    },
    LinkState.DETACHING: {
        LinkStep.PEER_DETACHES: LinkState.DETACHED,
        LinkStep.SESSION_ENDS: LinkState.DETACHED,
    },
    LinkState.DETACHED: {},
}


class Assembly:
    """The frames of one delivery (section 2.6.14). Once they exceed the link's limit, only their size is kept.

    Its id and format are those of the first frame; later frames may omit them.
    """

    __slots__ = ("_kept", "_limits", "delivery_id", "message_format", "settled", "size")

    def __init__(self, limits: PeerLimits, delivery_id: int, message_format: int) -> None:
        self.delivery_id = delivery_id
        self.message_format = message_format
        self.settled = False
        self.size = 0
        self._limits = limits
        self._kept = bytearray()

    @property
    def is_whole(self) -> bool:
        """Whether every piece so far was kept."""
        return len(self._kept) == self.size

    def add(self, payload: bytes, limit: int) -> None:
        """Add a piece; `limit` is the link's maximum in bytes, 0 for none. Raises PeerError."""
        self.size += len(payload)
        if 0 < limit < self.size:
            self.discard()
        else:
            self._limits.reserve_partial_bytes(len(payload))
            self._kept += payload

    def join(self) -> bytes:
        """Return the joined pieces, and release them."""
        payload = bytes(self._kept)
        self.discard()
        return payload

    def discard(self) -> None:
        """Release the pieces."""
        self._limits.release_partial_bytes(len(self._kept))
        self._kept = bytearray()


_ATTACHED = LinkState.ATTACHED


class Link:
    """The local endpoint of a link: a "sender" sends to the peer, a "receiver" gets its transfers.

    Attributes: `name`; `role`; `session`; `source` and `target` (None for a null terminus; `source.filter` maps names
    to Described values); the peer's `properties`, `desired_capabilities` and `offered_capabilities` ({} and () if
    none); `max_message_size` in bytes (the receiver's limit; 0 = no limit); `snd_settle_mode`, `rcv_settle_mode`;
    `credit` (deliveries that may be sent, or received, now); `context` (for the owner's use).

    Calls on a detached link do nothing, because the peer may have just detached it. Calls for the other role raise
    UsageError.
    """

    __slots__ = (
        "_assembly",
        "_draining",
        "_template",
        "_top_up",
        "context",
        "credit",
        "delivery_count",
        "desired_capabilities",
        "handle",
        "max_message_size",
        "name",
        "offered_capabilities",
        "properties",
        "rcv_settle_mode",
        "remote_handle",
        "role",
        "session",
        "snd_settle_mode",
        "source",
        "state",
        "target",
    )

    def __init__(
        self, session: Session, name: str, role: Literal["sender", "receiver"], handle: int, state: LinkState
    ) -> None:
        self.session = session
        self.name = name
        self.role = role
        self.handle = handle
        self.remote_handle: int | None = None
        self.state = state
        self.source: Source | None = None
        self.target: Target | None = None
        self.properties: Mapping[str, Any] = {}
        self.desired_capabilities: tuple[str, ...] = ()
        self.offered_capabilities: tuple[str, ...] = ()
        self.max_message_size = 0
        self.snd_settle_mode = 2
        self.rcv_settle_mode = 0
        self.credit = 0
        self.delivery_count = 0
        self.context: Any = None
        self._top_up = 0
        self._draining = False
        self._assembly: Assembly | None = None
        self._template: TransferTemplate | None = None

    def __repr__(self) -> str:
        return f"<Link {self.name!r} {self.role} {self.state.name}>"

    @property
    def address(self) -> Any:
        """The address of the local node: the target of a receiver, the source of a sender.

        None without a terminus.
        """
        terminus = self.target if self.role == "receiver" else self.source
        return None if terminus is None else terminus.address

    @property
    def is_attached(self) -> bool:
        """Whether the link is attached: from accept() or LinkAttached until the first detach of either side."""
        return self.state is _ATTACHED

    @property
    def sendable(self) -> int:
        """The number of deliveries that send_deliveries() would send now: credit within the session's window."""
        if self.state is not _ATTACHED or self.role != "sender":
            return 0
        return min(self.credit, self.session.sendable)

    # --- attaching ----------------------------------------------------------------------------------------------------

    def accept(
        self,
        *,
        credit: int = 0,
        max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
        properties: Mapping[str, Any] | None = None,
        offered_capabilities: Sequence[str] = (),
        snd_settle_mode: int | None = None,
    ) -> None:
        """Answer AttachReceived by attaching.

        A receiver with `credit` grants that much and keeps it topped up. `max_message_size` is in bytes; the JavaScript
        client takes 0 literally and builds empty batches. `snd_settle_mode` defaults to the mode the peer requested.
        """
        if not self._may(LinkStep.WE_ACCEPT):
            return
        if snd_settle_mode is not None:
            self.snd_settle_mode = snd_settle_mode
        if self.role == "receiver":
            self.max_message_size = max_message_size
        self._send_attach(self.source, self.target, max_message_size, properties, offered_capabilities)
        self._move(LinkStep.WE_ACCEPT)
        if self.role == "receiver" and credit > 0:
            self.top_up_to(credit)

    def refuse(self, condition: str, description: str) -> None:
        """Answer AttachReceived by attaching with a null terminus, then detaching (closed) with this error."""
        if self.state is not LinkState.ATTACH_RECEIVED:
            return
        self._send_null_attach()
        self._send_detach(AmqpError(condition, description))

    def _send_null_attach(self) -> None:
        """Attach without the local terminus, as a refusal begins (section 2.6.3)."""
        source, target = (None, self.target) if self.role == "sender" else (self.source, None)
        self._send_attach(source, target, DEFAULT_MAX_MESSAGE_SIZE, None, ())

    def _send_attach(
        self,
        source: Source | None,
        target: Target | None,
        max_message_size: int,
        properties: Mapping[str, Any] | None,
        offered_capabilities: Sequence[str],
        desired_capabilities: Sequence[str] = (),
    ) -> None:
        attach = Attach(
            self.name,
            self.handle,
            self.role == "receiver",
            self.snd_settle_mode,
            self.rcv_settle_mode,
            source,
            target,
            initial_delivery_count=self.delivery_count if self.role == "sender" else None,
            max_message_size=max_message_size or None,
            offered_capabilities=tuple(offered_capabilities) or None,
            desired_capabilities=tuple(desired_capabilities) or None,
            properties=properties or None,
        )
        self.session.send(attach)

    def request_attach(
        self,
        source: Source | None,
        target: Target | None,
        credit: int,
        properties: Mapping[str, Any] | None,
        desired_capabilities: Sequence[str],
    ) -> None:
        """Session: attach first. The credit is granted after the peer's attach, which gives the initial count."""
        self.source, self.target = source, target
        self._top_up = credit
        self._send_attach(source, target, self.max_message_size, properties, (), desired_capabilities)

    def on_attach(self, attach: Attach) -> bool:
        """Session: handle the peer's attach, and return whether the link is now attached."""
        self.remote_handle = attach.handle
        self.source = attach.source
        self.target = attach.target
        self.properties = attach.properties or {}
        self.desired_capabilities = attach.desired_capabilities or ()
        self.offered_capabilities = attach.offered_capabilities or ()
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        if self.role == "sender":
            self.max_message_size = attach.max_message_size or 0
        else:
            self.delivery_count = attach.initial_delivery_count or 0
        terminus = self.target if self.role == "sender" else self.source
        if terminus is None or not self._may(LinkStep.PEER_ATTACHES):
            return False
        self._move(LinkStep.PEER_ATTACHES)
        if self._top_up > 0:
            self.top_up_to(self._top_up)
        return True

    # --- receiving ----------------------------------------------------------------------------------------------------

    def flow(self, credit: int, *, drain: bool = False) -> None:
        """Receiver: let the peer send `credit` deliveries from now on, replacing earlier credit and topping up.

        With `drain`, the peer uses the credit at once or returns it: Drained follows.
        """
        self._expect("receiver")
        if self.state is _ATTACHED:
            self._top_up = 0
            self.credit = credit
            self._draining = drain
            self.send_flow()

    def top_up_to(self, credit: int) -> None:
        """Receiver: grant `credit` deliveries now, and top up whenever half of them are used."""
        self._expect("receiver")
        if self.state is _ATTACHED:
            self._top_up = credit
            self.credit = credit
            self._draining = False
            self.send_flow()

    def settle(self, first_id: int, last_id: int, state: DeliveryState) -> None:
        """Receiver: settle deliveries `first_id` to `last_id` (inclusive) with a state.

        May be called in any order. Runs of one state are merged into one frame by data_to_send().
        """
        self._expect("receiver")
        if self.state is _ATTACHED:
            self.session.settle(first_id, last_id, state)

    def on_transfer(
        self,
        delivery_id: int | None,
        message_format: int | None,
        settled: bool,
        more: bool,
        aborted: bool,
        payload: bytes,
        events: list[Event],
    ) -> None:
        """Session: handle a transfer frame. Credit is counted, not enforced: the Python client exceeds it."""
        if self.role != "receiver":
            raise PeerError(NOT_ALLOWED, "a transfer from the receiver of a link")
        if self.state is not _ATTACHED:
            if self.state is LinkState.ATTACH_RECEIVED:
                error = AmqpError(TRANSFER_LIMIT_EXCEEDED, "a transfer before the link was attached")
                self.refuse(error.condition, error.description or "")
                events.append(Detached(self, error))
            return
        assembly = self._assembly
        if assembly is None:
            if delivery_id is None:
                raise PeerError(NOT_ALLOWED, "a delivery without a delivery id")
            if not more and not aborted and not 0 < self.max_message_size < len(payload):
                self._report(delivery_id, message_format or 0, settled, [payload], events)
                return
            assembly = self._assembly = Assembly(self.session.limits, delivery_id, message_format or 0)
        elif delivery_id is not None and delivery_id != assembly.delivery_id:
            raise PeerError(NOT_ALLOWED, "a delivery begins inside another of its link")
        assembly.settled |= settled
        assembly.add(payload, self.max_message_size)
        if not more or aborted:
            self._end_assembly(assembly, aborted, events)

    def on_transfers(
        self,
        first_id: int,
        message_format: int | None,
        settled: bool,
        payloads: list[bytes],
        events: list[Event],
    ) -> None:
        """Session: handle complete single-frame deliveries with ids from first_id on."""
        usual = self.role == "receiver" and self.state is _ATTACHED and self._assembly is None
        if usual and not 0 < self.max_message_size < max(map(len, payloads)):
            self._report(first_id, message_format or 0, settled, payloads, events)
            return
        for delivery_id, payload in enumerate(payloads, first_id):
            self.on_transfer(delivery_id, message_format, settled, False, False, payload, events)

    def _end_assembly(self, assembly: Assembly, aborted: bool, events: list[Event]) -> None:
        self._assembly = None
        is_whole = assembly.is_whole
        payload = assembly.join()
        if not aborted and is_whole:
            self._report(assembly.delivery_id, assembly.message_format, assembly.settled, [payload], events)
            return
        if not aborted:
            events.append(TransferTooLarge(self, assembly.delivery_id, assembly.settled))
        self._count_deliveries(1, events)

    def _report(
        self, first_id: int, message_format: int, settled: bool, payloads: list[bytes], events: list[Event]
    ) -> None:
        """Report complete deliveries."""
        last = events[-1] if events else None
        if not self.session.joined_transfers:
            for delivery_id, payload in enumerate(payloads, first_id):
                events.append(Transfer(self, delivery_id, message_format, settled, payload))
        elif (
            isinstance(last, Transfers)
            and last.link is self
            and last.first_id + len(last.payloads) == first_id
            and (last.message_format, last.settled) == (message_format, settled)
        ):
            last.payloads += payloads
        else:
            events.append(Transfers(self, first_id, message_format, settled, payloads))
        self._count_deliveries(len(payloads), events)

    def _count_deliveries(self, count: int, events: list[Event]) -> None:
        self.delivery_count = (self.delivery_count + count) & _SERIAL
        self.credit = credit = max(self.credit - count, 0)
        if credit <= self._top_up >> 1:
            if self._top_up:
                self.top_up_to(self._top_up)
            elif self._draining and credit == 0:
                self._draining = False
                events.append(Drained(self))

    # --- sending ------------------------------------------------------------------------------------------------------

    def send_deliveries(
        self, payloads: Sequence[bytes], *, message_format: int = 0, settled: bool = True, remembered: bool = True
    ) -> range:
        """Sender: send messages, as many of the first ones as credit and window allow.

        Returns the delivery ids of those that were sent; send the rest after the next Credit. Unsettled deliveries are
        bounded (MAX_UNSETTLED), and their outcome is reported by Disposition. Deliveries that are not `remembered` are
        neither bounded nor reported, for owners that ignore outcomes.
        """
        remembered = remembered and not settled
        self._expect("sender")
        session = self.session
        first_id = delivery_id = session.next_delivery_id
        count = min(len(payloads), self.sendable, session.unsettled_room if remembered else len(payloads))
        if count <= 0:
            return range(first_id, first_id)
        template = self._template
        if template is None or template.message_format != message_format or template.settled is not settled:
            template = TransferTemplate(session.channel, self.handle, message_format, settled)
            self._template = template
        pack, head, overhead = template.layout.pack, template.head, template.overhead
        tail = template.tail(first_id)
        limit = session.outgoing.max_frame_size - overhead
        append = session.outgoing.frames.append
        opening = window = session.sendable
        for payload in payloads if count == len(payloads) else payloads[:count]:
            if window <= 0:
                break
            if not settled:
                tail = template.tail(delivery_id)
            if len(payload) <= limit:
                append(pack(overhead + len(payload), head, delivery_id, tail) + LAST)
                append(payload)
                window -= 1
            else:
                pieces = [payload[start : start + limit] for start in range(0, len(payload), limit)]
                ends = [MORE] * (len(pieces) - 1) + [LAST]
                frames = [
                    pack(overhead + len(piece), head, delivery_id, tail) + end + piece
                    for piece, end in zip(pieces, ends, strict=True)
                ]
                session.outgoing.frames.extend(frames[:window])
                session.held.extend(frames[window:])
                window -= min(window, len(frames))
            delivery_id = (delivery_id + 1) & _SERIAL
        sent = (delivery_id - first_id) & _SERIAL
        self.credit -= sent
        self.delivery_count = (self.delivery_count + sent) & _SERIAL
        session.on_sent(self, first_id, sent, opening - window, remembered)
        return range(first_id, first_id + sent)

    def drained(self) -> None:
        """Sender: answer a Credit with `drain` by returning the unused credit."""
        self._expect("sender")
        if self.state is _ATTACHED and self._draining:
            self.delivery_count = (self.delivery_count + self.credit) & _SERIAL
            self.credit = 0
            self.send_flow()
            self._draining = False

    def flush_settlements(self) -> None:
        """Write the session's settlements so far, before anything sent later."""
        self.session.flush_settlements()

    # --- flow and the end ---------------------------------------------------------------------------------------------

    def send_flow(self) -> None:
        """Session: send this link's count and credit, and the session's windows."""
        self.session.send_flow(self.handle, self.delivery_count, self.credit, self._draining)

    def on_flow(self, flow: Flow, events: list[Event]) -> None:
        """Session: handle a flow for this link, after the session has updated its windows."""
        if self.state is not _ATTACHED and self.state is not LinkState.ATTACH_RECEIVED:
            return
        if self.role == "sender":
            if flow.link_credit is not None:
                unseen = (self.delivery_count - (flow.delivery_count or 0)) & _SERIAL
                unseen -= 0 if unseen <= _SERIAL >> 1 else _SERIAL + 1
                self.credit = max(0, min(flow.link_credit - unseen, _SERIAL >> 1))
                self._draining = flow.drain
                if self.credit or flow.drain:
                    events.append(Credit(self, self.credit, flow.drain))
        elif flow.delivery_count is not None:
            ahead = (flow.delivery_count - self.delivery_count) & _SERIAL
            if 0 < ahead <= _SERIAL >> 1:
                self.delivery_count = flow.delivery_count
                self.credit = max(0, self.credit - ahead)
            if self._draining and self.credit == 0:
                self._draining = False
                events.append(Drained(self))
        if flow.echo and self.state is _ATTACHED:
            self.send_flow()

    def detach(self, condition: str | None = None, description: str = "") -> None:
        """Detach for good, with an error if a condition is given. No Detached follows, and transfers are ignored."""
        if self._may(LinkStep.WE_DETACH):
            if self.state is LinkState.ATTACH_RECEIVED:
                self._send_null_attach()
            self._send_detach(AmqpError(condition, description) if condition else None)

    def _send_detach(self, error: AmqpError | None) -> None:
        self.session.flush_settlements()
        self.session.send(Detach(self.handle, True, error))
        self._leave(LinkStep.WE_DETACH)

    def on_detach(self, detach: Detach, events: list[Event]) -> None:
        """Session: handle the peer's detach, and answer it unless the link was detached locally."""
        if not self._may(LinkStep.PEER_DETACHES):
            return
        if self.state is LinkState.DETACHING:
            self._move(LinkStep.PEER_DETACHES)
            return
        if self.state is LinkState.ATTACH_RECEIVED:
            self._send_null_attach()
        self.session.flush_settlements()
        self.session.send(Detach(self.handle, detach.closed))
        self._leave(LinkStep.PEER_DETACHES)
        events.append(Detached(self, detach.error, detach.closed))

    def on_session_end(self, error: AmqpError | None, events: list[Event]) -> None:
        """Session: end the link with its session."""
        if not self._may(LinkStep.SESSION_ENDS):
            return
        if self.state is not LinkState.DETACHING:
            events.append(Detached(self, error))
        self._leave(LinkStep.SESSION_ENDS)

    def _may(self, step: LinkStep) -> bool:
        return step in TRANSITIONS[self.state]

    def _move(self, step: LinkStep) -> None:
        self.state = TRANSITIONS[self.state][step]

    def _leave(self, step: LinkStep) -> None:
        self._move(step)
        self.credit = 0
        if self._assembly is not None:
            self._assembly.discard()
            self._assembly = None
        # The peer's properties may be large, and the link is kept until the peer answers.
        self.source = self.target = None
        self.properties = {}
        self.desired_capabilities = self.offered_capabilities = ()
        self.session.on_left(self)

    def _expect(self, role: str) -> None:
        if self.role != role:
            raise UsageError(f"the link is a {self.role}, not a {role}")
