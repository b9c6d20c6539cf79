"""One client's AMQP connection: what it says becomes calls on the hub, what the hub says becomes bytes for it.

Everything here runs on the event loop and nothing waits. What one client may hold is bounded: publications not yet
durable and bytes it does not take each have a limit at which its socket is no longer read (see ServerSettings), links
and sessions are limited by the AMQP core. A client that stalls keeps what it holds and costs nobody else anything; one
that is silent for the idle timeout, or does not open within the open timeout, is closed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.amqp import (
    AttachReceived,
    Closed,
    Connection,
    ConnectionSettings,
    Credit,
    Described,
    Detached,
    Event,
    Link,
    Opened,
    SaslInit,
    Source,
    Transfers,
    TransferTooLarge,
)
from tidegate.amqp.encoding.types import CONNECTION_FORCED, INTERNAL_ERROR, INVALID_FIELD, NOT_IMPLEMENTED
from tidegate.amqp.endpoints.handshake import SERVER_MECHANISMS
from tidegate.hub.access import Grant
from tidegate.hub.errors import HubError, PublisherRevoked, Unauthorized
from tidegate.server.connections.delivery import DeliveryLink
from tidegate.server.connections.link_handler import LinkHandler, follow_token
from tidegate.server.connections.publishing import STOPPING, PublishingLink
from tidegate.server.connections.requests import CBS, MANAGEMENT, ReplyLink, RequestLink
from tidegate.server.context.context import ServerContext
from tidegate.server.context.metrics import hub_in, without_host
from tidegate.server.transports.transport import Transport

_logger = logging.getLogger(__name__)

MAX_LOGGED_REFUSALS = 20
"""Of one connection, so that a client that tries for ever does not fill the log."""
MIN_TIMER_S = 0.05
CLOCK_LOOK_S = 15.0
"""How often a connection with tokens looks at the clock."""
REVOKED_AFTER_S = 2.0
WIND_DOWN_S = 0.05

MAX_TOKENS = 1000


class Tokens:
    """Grants of one connection. A token put again for an audience takes the place of the former."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def put(self, audience: str, grant: Grant) -> None:
        """Keep a verified token's grant; the oldest goes when there are too many."""
        self._grants.pop(audience, None)
        self._grants[audience] = grant
        if len(self._grants) > MAX_TOKENS:
            del self._grants[next(iter(self._grants))]

    @property
    def rule_names(self) -> Sequence[str]:
        """The access rules whose keys signed the tokens, which is all the hub knows about the client."""
        return sorted({grant.rule_name for grant in self._grants.values()})

    @property
    def grants(self) -> Sequence[Grant]:
        """All of them, the newest first."""
        return list(reversed(self._grants.values()))


class ClientConnection:
    """One AMQP connection; a transport's Conversation."""

    def __init__(self, context: ServerContext, transport: Transport, clients: set[Any]) -> None:
        settings = context.settings
        self.context = context
        self._clients = clients
        self.transport = transport
        self.peer = transport.peer
        self.loop = asyncio.get_running_loop()
        self.connection = Connection(
            "server",
            context.namespace.name,
            ConnectionSettings(idle_timeout_ms=settings.idle_timeout_ms // 2, joined_transfers=True),
        )
        self.tokens = Tokens()
        self.writable = True
        self.in_flight_bytes = 0
        self._refusals = 0
        self._stopping = False
        self._reading = True
        self._lost = False
        self._handlers: dict[Link, LinkHandler] = {}
        self._open_deadline: float | None = self.loop.time() + settings.open_timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._on_event: dict[type, Callable[[Any], None]] = {
            Transfers: self._transfers,
            TransferTooLarge: self._transfer_too_large,
            Credit: self._credit,
            SaslInit: self._sasl_init,
            Opened: self._opened,
            AttachReceived: self._attach,
            Detached: self._detached,
            Closed: self._closed,
        }
        self.flush: Callable[[], None] = self._flush
        clients.add(self)
        context.metrics.open_connection()
        self._arm()

    @property
    def peer_properties(self) -> Mapping[str, Any]:
        """Return the properties of the peer's open, empty before it."""
        remote = self.connection.remote
        return (remote.properties if remote else None) or {}

    def describe(self) -> dict[str, Any]:
        """Return who this is and what it uses, for people: no key and no token."""
        remote, properties = self.connection.remote, self.peer_properties
        ends = [
            ("sends to", link.target) if link.role == "receiver" else ("reads", link.source) for link in self._handlers
        ]
        links = [(verb, without_host(end.address or "")) for verb, end in ends if end is not None]
        return {
            "address": str(self.peer),
            "name": "" if remote is None else str(remote.container_id),
            "product": " ".join(str(properties[key]) for key in ("product", "version") if properties.get(key)),
            "policies": list(self.tokens.rule_names),
            "uses": sorted({f"{verb} {address}" for verb, address in links if address and address[0] != "$"}),
        }

    # --- the transport's side ---------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.context.metrics.received_bytes += len(data)
        try:
            self._process(self.connection.receive_data(data))
        except Exception:
            self._fail()

    def eof_received(self) -> None:
        self.guard(lambda: self._process(self.connection.receive_eof()))
        self.transport.close()

    def connection_lost(self) -> None:
        if self._lost:
            return
        self._lost = True
        if not self.connection.closed:
            self.guard(lambda: self._process(self.connection.receive_eof()))
        if self._timer is not None:
            self._timer.cancel()
        for link in list(self._handlers):
            self._drop(link)
        self._clients.discard(self)
        self.context.in_flight.waiting.discard(self)
        self.context.metrics.close_connection()

    def pause_writing(self) -> None:
        self.writable = False
        self.choose_reading()

    def resume_writing(self) -> None:
        self.writable = True
        self.choose_reading()
        self.guard(self._resume_links)

    @property
    def _is_javascript(self) -> bool:
        """Whether it is Microsoft's client for JavaScript, which takes the end of a connection in its own way."""
        return self.peer_properties.get("product") == "MSJSClient"

    # --- the server's side ------------------------------------------------------------------------------------------

    def wind_down(self) -> float:
        """Accept no further publication; what was published before is still acknowledged.

        Most clients send again what has no answer when the connection ends, and Python's takes a refusal for final.
        JavaScript's waits for an answer until its timeout, a minute by default, whatever becomes of the connection. So
        its publications are turned away for a moment, after which most of its publishers wait to try again, and send
        nothing.

        Returns:
            After how many seconds to say goodbye.
        """
        self._stopping = True
        self.choose_reading()
        return WIND_DOWN_S if self._is_javascript else 0

    def say_goodbye(self) -> None:
        """Close; the transport follows with the client's answer.

        JavaScript's client connects anew if it is used before the transport ends, and then takes that end for a failure
        of the new connection, which it does not retry. So it gets the end of the stream with the close, as in AMQP's
        state CLOSE SENT (part 2, 2.4.6). Java's, treated so, reports now and then that it cannot schedule its work.
        """
        self.connection.close(CONNECTION_FORCED, STOPPING)
        self._flush()
        if not self._lost:
            self.transport.resume_reading()
            if self._is_javascript:
                self.transport.end()

    def abort(self) -> None:
        """End it now."""
        self.transport.abort()

    def count_in_flight(self, size: int) -> None:
        """Add bytes that were published and are not yet durable; negative when they are."""
        self.in_flight_bytes += size
        if size > 0:
            waits = self.context.in_flight.add(size, self)
            if waits or self.in_flight_bytes > self.context.settings.in_flight_bytes_per_client:
                self.choose_reading()
            return
        if not self._reading:
            self.choose_reading()
        self.context.in_flight.remove(-size)

    def refused(self, what: str, address: object, error: HubError) -> None:
        """Count and log a refusal: who and what, never a secret."""
        self.context.metrics.refuse(error.condition, hub_in(self.context.namespace, address))
        self._refusals += 1
        if self._refusals <= MAX_LOGGED_REFUSALS:
            more = "; further refusals to it are not logged" if self._refusals == MAX_LOGGED_REFUSALS else ""
            who = f"{self.peer} ({names})" if (names := ", ".join(self.tokens.rule_names)) else self.peer
            _logger.warning(
                "refused %s: %s %r: %s (%s)%s", who, what, address, error.description, error.condition, more
            )

    def guard(self, action: Callable[[], None]) -> None:
        """Close this client's connection after an internal error; other clients are not affected."""
        try:
            action()
        except Exception:
            self._fail()

    def _fail(self) -> None:
        _logger.exception("%s: the connection is closed because of an error in the hub", self.peer)
        self.connection.close(INTERNAL_ERROR, "the hub failed; its log says more")
        self._flush()
        self.transport.close()

    # --- what the peer says -----------------------------------------------------------------------------------------

    def _process(self, events: list[Event]) -> None:
        for event in events:
            handle = self._on_event.get(type(event))
            if handle is not None:
                handle(event)
        self._flush()

    def _resume_links(self) -> None:
        for handler in list(self._handlers.values()):
            handler.on_writable()
        self._flush()

    def _flush(self) -> None:
        data = self.connection.data_to_send()
        if data and not self._lost:
            self.context.metrics.sent_bytes += len(data)
            self.transport.write(data)
        if self.connection.closed and not self._lost:
            self.transport.close()

    def _transfers(self, transfers: Transfers) -> None:
        handler = self._handlers.get(transfers.link)
        if not self._stopping:
            if handler is not None:
                handler.on_transfers(transfers)
        elif self._is_javascript and isinstance(handler, PublishingLink):
            handler.turn_away(transfers)

    def _transfer_too_large(self, event: TransferTooLarge) -> None:
        handler = self._handlers.get(event.link)
        if isinstance(handler, PublishingLink):
            handler.on_transfer_too_large(event)

    def _credit(self, event: Credit) -> None:
        handler = self._handlers.get(event.link)
        if handler is not None:
            handler.on_credit(event)

    def _sasl_init(self, event: SaslInit) -> None:
        accepted = event.mechanism in SERVER_MECHANISMS
        if event.mechanism == "PLAIN":
            try:
                access = self.context.namespace.access
                self.tokens.put("", access.check_key(event.username or "", event.password or ""))
            except Unauthorized as error:
                self.refused("SASL PLAIN as", event.username, error)
                accepted = False
        self._process(self.connection.sasl_outcome(accepted))

    def _opened(self, _event: Opened) -> None:
        self._open_deadline = None
        self._arm()

    def _attach(self, event: AttachReceived) -> None:
        link = event.link
        if isinstance(link.source, Described) or isinstance(link.target, Described):
            link.refuse(NOT_IMPLEMENTED, "a link has a source and a target; there are no transactions")
            return
        terminus = link.target if link.role == "receiver" else link.source
        address = None if terminus is None else terminus.address
        if isinstance(terminus, Source) and terminus.dynamic and address is None:
            self._handlers[link] = ReplyLink.attach_dynamic(self, link, terminus)
            return
        if not isinstance(address, str):
            link.refuse(INVALID_FIELD, "the link names no address")
            return
        try:
            handler = self._handler(link, address)
        except HubError as error:
            self.refused("link to", address, error)
            link.refuse(error.condition, error.description)
            return
        self._handlers[link] = handler
        if handler.expires_at_s is not None:
            self._arm_for(self.loop.time() + self._looks_in_s(handler.expires_at_s, time.time()))

    def _handler(self, link: Link, address: str) -> LinkHandler:
        if address in (CBS, MANAGEMENT):
            if link.role == "receiver":
                return RequestLink.attach(self, link, address)
            return ReplyLink.attach(self, link, address)
        if link.role == "receiver":
            return PublishingLink.attach(self, link, address)
        return DeliveryLink.attach(self, link, address)

    def reply_links(self) -> list[ReplyLink]:
        """The links this peer receives replies of $cbs or $management on."""
        return [h for h in self._handlers.values() if isinstance(h, ReplyLink)]

    def detach(self, link: Link, error: HubError) -> None:
        """End a link from our side."""
        self.refused("link to", link.address, error)
        link.detach(error.condition, error.description)
        self._drop(link)

    def _detached(self, event: Detached) -> None:
        self._drop(event.link)

    def _drop(self, link: Link) -> None:
        handler = self._handlers.pop(link, None)
        if handler is not None:
            handler.close()

    def _closed(self, event: Closed) -> None:
        if event.error is not None:
            _logger.info("%s: connection closed: %s %s", self.peer, event.error.condition, event.error.description)
        for link in list(self._handlers):
            self._drop(link)

    # --- time -------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the timer to the earliest thing that will be due."""
        if self._lost:
            return
        now = self.loop.time()
        due = [] if self._open_deadline is None else [self._open_deadline]
        tick_ms = self.connection.next_tick_ms
        if tick_ms is not None:
            due.append(tick_ms / 1000)
        wall = time.time()
        expiries = [h.expires_at_s for h in self._handlers.values() if h.expires_at_s is not None]
        due += [now + self._looks_in_s(expires_at_s, wall) for expires_at_s in expiries]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due:
            self._arm_for(min(due))

    @staticmethod
    def _looks_in_s(expires_at_s: float, wall: float) -> float:
        """Return when to look whether a token has ended: the loop's clock stands still while the machine sleeps."""
        return min(expires_at_s - wall, CLOCK_LOOK_S)

    def _arm_for(self, due: float) -> None:
        """Set the timer to this time (of the loop) unless it goes off before."""
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(max(due, self.loop.time() + MIN_TIMER_S), self._due)

    def _due(self) -> None:
        self._timer = None
        now = self.loop.time()
        if self._open_deadline is not None and now >= self._open_deadline:
            _logger.info("%s: did not open an AMQP connection in time", self.peer)
            self.transport.abort()
            return
        self.guard(lambda: self._process(self.connection.tick(int(now * 1000))))
        self._expire_links()
        self._arm()

    def _expire_links(self) -> None:
        """End the links whose token has ended and that no later token covers."""
        for link, handler in list(self._handlers.items()):
            try:
                follow_token(handler)
            except Unauthorized as error:
                self.detach(link, error)
        self._flush()

    def check_links(self) -> None:
        """After a change: end the links that lead nowhere, and those whose key, rule or right no longer exists.

        A revoked publisher has a moment to be told so by the answer to what it publishes: clients lose the reason of
        a detach.
        """
        self.guard(self._check_links)

    def _check_links(self) -> None:
        for link, handler in list(self._handlers.items()):
            try:
                handler.check()
            except Unauthorized:
                try:
                    handler.renew()
                except Unauthorized:
                    self.detach(link, Unauthorized("the rule or key that this link rests on was changed or deleted"))
            except PublisherRevoked as error:
                self.loop.call_later(REVOKED_AFTER_S, self._end_revoked, link, error)
            except HubError as error:
                self.detach(link, error)
        self._arm()
        self._flush()

    def _end_revoked(self, link: Link, error: HubError) -> None:
        handler = self._handlers.get(link)
        if handler is None:
            return
        try:
            handler.check()
        except HubError:
            self.guard(lambda: self.detach(link, error))
            self.flush()

    def choose_reading(self) -> None:
        room = self.in_flight_bytes <= self.context.settings.in_flight_bytes_per_client
        reading = self.writable and room and self not in self.context.in_flight.waiting
        reading = reading and (self._is_javascript or not self._stopping)
        if reading != self._reading and not self._lost:
            self._reading = reading
            if reading:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()
