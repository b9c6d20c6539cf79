"""One link of a session, from our end.

Part 2, section 2.6. A link lives through these states; what is not listed cannot come, or is ignored:

| state           | attach by peer           | detach by peer              | we                                  |
|-----------------|--------------------------|-----------------------------|-------------------------------------|
| ATTACH_RECEIVED |                          | attach, detach; DETACHED    | accept: ATTACHED; refuse: DETACHING |
| ATTACH_SENT     | ATTACHED, or it was      | detach; DETACHED            | detach: DETACHING                   |
|                 | refused: stay and wait   |                             |                                     |
| ATTACHED        |                          | detach; DETACHED            | detach: DETACHING                   |
| DETACHING       | note the peer's handle   | DETACHED                    |                                     |
| DETACHED        |                          |                             |                                     |

Flow control, section 2.6.7: the receiver lets the sender send `credit` deliveries beyond the `delivery_count` that both
keep.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tidegate.amqp.errors import NOT_ALLOWED, TRANSFER_LIMIT_EXCEEDED, AmqpError, PeerError, UsageError
from tidegate.amqp.events import Credit, Detached, Drained, Event, Transfer, Transfers, TransferTooLarge
from tidegate.amqp.frames import TRANSFER_DESCRIPTOR
from tidegate.amqp.performatives import Attach, DeliveryState, Detach, Flow, Source, Target

if TYPE_CHECKING:
    from tidegate.amqp.session import Session

ATTACH_RECEIVED = "attach received"
ATTACH_SENT = "attach sent"
ATTACHED = "attached"
DETACHING = "detaching"
DETACHED = "detached"

DEFAULT_MAX_MESSAGE_SIZE = 1 << 20
SEND_SETTLED = 1
"""The snd-settle-mode of a link on which no delivery waits for an outcome (section 2.8.2)."""
_SERIAL = 0xFFFFFFFF
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_MORE = b"\x41\x40\x40\x40\x40\x40"
_LAST = b"\x42\x40\x40\x40\x40\x40"


class Link:
    """A link, from our end. `role` is ours: a "sender" sends to the peer, a "receiver" gets its transfers.

    Attributes: `name`; `role`; `session`; `source` and `target` (None for a null terminus; `source.filter` maps names
    to Described values); the peer's `properties`, `desired_capabilities` and `offered_capabilities` ({} and () if
    none); `max_message_size` in bytes (ours for a receiver, the peer's for a sender; 0 = no limit);
    `snd_settle_mode`, `rcv_settle_mode`; `credit` (deliveries that may come, or go, now); `context` (the owner's).

    Calls on a link that is gone do nothing: its peer may have ended it a moment ago. Calls for the other role raise
    UsageError.
    """

    __slots__ = (
        "_assembly",
        "_assembly_size",
        "_draining",
        "_first_frame",
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

    def __init__(self, session: Session, name: str, role: Literal["sender", "receiver"], handle: int) -> None:
        self.session = session
        self.name = name
        self.role = role
        self.handle = handle
        self.remote_handle: int | None = None
        self.state = ATTACH_SENT
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
        self._assembly: list[bytes] = []
        self._assembly_size = 0
        self._first_frame: tuple[int, int, bool] | None = None
        self._template: tuple[tuple[int, bool], bytes, bytes, struct.Struct] | None = None

    def __repr__(self) -> str:
        return f"<Link {self.name!r} {self.role} {self.state}>"

    @property
    def address(self) -> Any:
        """Of our node that the link leads to: the target of what comes in, the source of what goes out.

        None without a terminus.
        """
        terminus = self.target if self.role == "receiver" else self.source
        return None if terminus is None else terminus.address

    @property
    def is_attached(self) -> bool:
        """True from accept() or LinkAttached until the first detach of either side."""
        return self.state is ATTACHED

    @property
    def sendable(self) -> int:
        """How many deliveries send_deliveries() would take now: credit within the session's window."""
        if self.state is not ATTACHED or self.role != "sender":
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
        """Answer AttachReceived: attach from our end.

        A receiver with `credit` grants that much and keeps it topped up by itself. `max_message_size` is in bytes; a
        JavaScript client takes 0 at its word and makes empty batches. `snd_settle_mode` is what the peer asked for
        unless something else is said.
        """
        if self.state is not ATTACH_RECEIVED:
            return
        if snd_settle_mode is not None:
            self.snd_settle_mode = snd_settle_mode
        if self.role == "receiver":
            self.max_message_size = max_message_size
        self._send_attach(self.source, self.target, max_message_size, properties, offered_capabilities)
        self.state = ATTACHED
        if self.role == "receiver" and credit > 0:
            self.top_up_to(credit)

    def refuse(self, condition: str, description: str) -> None:
        """Answer AttachReceived: attach with a null terminus, then detach closed with this error."""
        if self.state is not ATTACH_RECEIVED:
            return
        self._send_null_attach()
        self._send_detach(AmqpError(condition, description))

    def _send_null_attach(self) -> None:
        """Attach without the terminus that would be ours (section 2.6.3): how a refusal starts."""
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

    def ask(
        self,
        source: Source | None,
        target: Target | None,
        credit: int,
        properties: Mapping[str, Any] | None,
        desired_capabilities: Sequence[str],
    ) -> None:
        """Session: attach first. The credit waits for the peer's attach, which says where its count starts."""
        self.source, self.target = source, target
        self._top_up = credit
        self._send_attach(source, target, self.max_message_size, properties, (), desired_capabilities)

    def on_attach(self, attach: Attach) -> bool:
        """Session: the peer's attach came. True if the link is up with it."""
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
        if self.state is not ATTACH_SENT or (self.target if self.role == "sender" else self.source) is None:
            return False
        self.state = ATTACHED
        if self._top_up > 0:
            self.top_up_to(self._top_up)
        return True

    # --- receiving ----------------------------------------------------------------------------------------------------

    def flow(self, credit: int, *, drain: bool = False) -> None:
        """Receiver: let the peer send `credit` more deliveries from now, in place of what was granted and topped up.

        With `drain`, the peer uses it up at once or gives it back: Drained follows.
        """
        self._expect("receiver")
        if self.state is ATTACHED:
            self._top_up = 0
            self.credit = credit
            self._draining = drain
            self.send_flow()

    def top_up_to(self, credit: int) -> None:
        """Receiver: grant `credit` deliveries now and again whenever half of them are used."""
        self._expect("receiver")
        if self.state is ATTACHED:
            self._top_up = credit
            self.credit = credit
            self._draining = False
            self.send_flow()

    def settle(self, first_id: int, last_id: int, state: DeliveryState) -> None:
        """Receiver: settle deliveries `first_id` to `last_id` (inclusive) with a state.

        May be called in any order; runs of one state become one frame by the time of data_to_send().
        """
        self._expect("receiver")
        if self.state is ATTACHED:
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
        """Session: a transfer frame came. Credit is counted, not enforced: the Python client sends beyond it."""
        if self.role != "receiver":
            raise PeerError(NOT_ALLOWED, "a transfer from the receiver of a link")
        if self.state is not ATTACHED:
            if self.state is ATTACH_RECEIVED:
                error = AmqpError(TRANSFER_LIMIT_EXCEEDED, "a transfer before the link was attached")
                self.refuse(error.condition, error.description or "")
                events.append(Detached(self, error))
            return
        first = self._first_frame
        if first is None:
            if delivery_id is None:
                raise PeerError(NOT_ALLOWED, "a delivery without a delivery id")
            if not more and not aborted and not 0 < self.max_message_size < len(payload):
                self._report(delivery_id, message_format or 0, settled, [payload], events)
                return
            first = (delivery_id, message_format or 0, settled)
        elif delivery_id is not None and delivery_id != first[0]:
            raise PeerError(NOT_ALLOWED, "a delivery begins inside another of its link")
        self._first_frame = (*first[:2], first[2] or settled)
        self._assemble(payload)
        if not more or aborted:
            self._end_assembly(aborted, events)

    def on_transfers(
        self, first_id: int, message_format: int | None, settled: bool, payloads: list[bytes], events: list[Event]
    ) -> None:
        """Session: whole deliveries came, each in one frame, with ids from first_id on."""
        usual = self.role == "receiver" and self.state is ATTACHED and self._first_frame is None
        if usual and not 0 < self.max_message_size < max(map(len, payloads)):
            self._report(first_id, message_format or 0, settled, payloads, events)
            return
        for delivery_id, payload in enumerate(payloads, first_id):
            self.on_transfer(delivery_id, message_format, settled, False, False, payload, events)

    def _assemble(self, payload: bytes) -> None:
        """Keep a piece of a delivery, or, once it is larger than the link allows, only its size."""
        self._assembly_size += len(payload)
        if 0 < self.max_message_size < self._assembly_size:
            self.session.connection.release(sum(map(len, self._assembly)))
            self._assembly.clear()
        else:
            self.session.connection.reserve(len(payload))
            self._assembly.append(payload)

    def _end_assembly(self, aborted: bool, events: list[Event]) -> None:
        if self._first_frame is None:
            return
        delivery_id, message_format, settled = self._first_frame
        payload, size = b"".join(self._assembly), self._assembly_size
        self._forget_assembly()
        if not aborted and len(payload) == size:
            self._report(delivery_id, message_format, settled, [payload], events)
            return
        if not aborted:
            events.append(TransferTooLarge(self, delivery_id, settled))
        self._count_deliveries(1, events)

    def _forget_assembly(self) -> None:
        self.session.connection.release(sum(map(len, self._assembly)))
        self._assembly.clear()
        self._assembly_size = 0
        self._first_frame = None

    def _report(
        self, first_id: int, message_format: int, settled: bool, payloads: list[bytes], events: list[Event]
    ) -> None:
        """Whole deliveries are here."""
        last = events[-1] if events else None
        if not self.session.connection.joined_transfers:
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
        """Sender: send whole messages, as many from the front as credit and window allow.

        Returns their delivery ids: its length says how many of `payloads` were taken; the rest is for after the next
        Credit. Unsettled ones are answered by Disposition, and are bounded (MAX_UNSETTLED). Those that are not
        `remembered` are neither: for an owner to whom every outcome is the same.
        """
        remembered = remembered and not settled
        self._expect("sender")
        session = self.session
        first_id = delivery_id = session.next_delivery_id
        count = min(len(payloads), self.sendable, session.unsettled_room if remembered else len(payloads))
        if count <= 0:
            return range(first_id, first_id)
        head, tail, layout = self._transfer_parts(message_format, settled)
        pack = layout.pack
        overhead = layout.size + len(_LAST)
        limit = session.connection.max_outgoing_frame_size - overhead
        append = session.connection.output.append
        opening = window = session.sendable
        for payload in payloads if count == len(payloads) else payloads[:count]:
            if window <= 0:
                break
            if not settled:
                tail = tail[:2] + _U32.pack(delivery_id) + tail[6:]
            if len(payload) <= limit:
                append(pack(overhead + len(payload), head, delivery_id, tail) + _LAST)
                append(payload)
                window -= 1
            else:
                pieces = [payload[start : start + limit] for start in range(0, len(payload), limit)]
                ends = [_MORE] * (len(pieces) - 1) + [_LAST]
                frames = [
                    pack(overhead + len(piece), head, delivery_id, tail) + end + piece
                    for piece, end in zip(pieces, ends, strict=True)
                ]
                session.connection.output.extend(frames[:window])
                session.held.extend(frames[window:])
                window -= min(window, len(frames))
            delivery_id = (delivery_id + 1) & _SERIAL
        sent = (delivery_id - first_id) & _SERIAL
        self.credit -= sent
        self.delivery_count = (self.delivery_count + sent) & _SERIAL
        session.on_sent(self, first_id, sent, opening - window, remembered)
        return range(first_id, first_id + sent)

    def _transfer_parts(self, message_format: int, settled: bool) -> tuple[bytes, bytes, struct.Struct]:
        """A transfer frame but for what differs between frames: size | head | delivery id | tail | more and nulls.

        A settled delivery needs no tag of its own, and clients that remember tags stay small with a constant one.
        """
        key = (message_format, settled)
        if self._template is None or self._template[0] != key:
            tag = b"\xa0\x01\x00" if settled else b"\xa0\x04\x00\x00\x00\x00"
            tail = tag + b"\x70" + _U32.pack(message_format) + (b"\x41" if settled else b"\x42")
            fields = b"\x70" + _U32.pack(self.handle) + b"\x70"
            size = 1 + len(fields) + 4 + len(tail) + len(_LAST)
            start = b"\x02\x00" + _U16.pack(self.session.channel) + TRANSFER_DESCRIPTOR
            head = start + bytes((0xC0, size, 11)) + fields
            self._template = (key, head, tail, struct.Struct(f">I{len(head)}sI{len(tail)}s"))
        _, head, tail, layout = self._template
        return head, tail, layout

    def drained(self) -> None:
        """Sender: answer a Credit with `drain`: give back the credit there is nothing to send for."""
        self._expect("sender")
        if self.state is ATTACHED and self._draining:
            self.delivery_count = (self.delivery_count + self.credit) & _SERIAL
            self.credit = 0
            self.send_flow()
            self._draining = False

    # --- flow and the end ---------------------------------------------------------------------------------------------

    def send_flow(self) -> None:
        """Session: tell the peer this link's count and credit, and the session's windows."""
        self.session.send_flow(self.handle, self.delivery_count, self.credit, self._draining)

    def on_flow(self, flow: Flow, events: list[Event]) -> None:
        """Session: a flow for this link came; the session's windows are up to date already."""
        if self.state is not ATTACHED and self.state is not ATTACH_RECEIVED:
            return
        if self.role == "sender":
            if flow.link_credit is not None:
                limit = (flow.delivery_count or 0) + flow.link_credit
                ahead = (limit - self.delivery_count) & _SERIAL
                self.credit = ahead if ahead <= _SERIAL >> 1 else 0
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
        if flow.echo and self.state is ATTACHED:
            self.send_flow()

    def detach(self, condition: str | None = None, description: str = "") -> None:
        """Detach for good, with an error where there is a condition; no Detached follows, transfers are ignored."""
        if self.state is DETACHING or self.state is DETACHED:
            return
        if self.state is ATTACH_RECEIVED:
            self._send_null_attach()
        self._send_detach(AmqpError(condition, description) if condition else None)

    def _send_detach(self, error: AmqpError | None) -> None:
        self.session.flush_settlements()
        self.session.send(Detach(self.handle, True, error))
        self._leave(DETACHING)

    def on_detach(self, detach: Detach, events: list[Event]) -> None:
        """Session: the peer detached. Answered at once where it was the first to."""
        if self.state is DETACHING:
            self.state = DETACHED
            return
        if self.state is ATTACH_RECEIVED:
            self._send_null_attach()
        self.session.flush_settlements()
        self.session.send(Detach(self.handle, detach.closed))
        self._leave(DETACHED)
        events.append(Detached(self, detach.error, detach.closed))

    def on_lost(self, error: AmqpError | None, events: list[Event]) -> None:
        """Session: the session is over, and the link with it."""
        if self.state is not DETACHING and self.state is not DETACHED:
            events.append(Detached(self, error))
        self._leave(DETACHED)

    def _leave(self, state: str) -> None:
        self.state = state
        self.credit = 0
        self._forget_assembly()
        self.session.on_left(self)

    def _expect(self, role: str) -> None:
        if self.role != role:
            raise UsageError(f"the link is a {self.role}, not a {role}")
