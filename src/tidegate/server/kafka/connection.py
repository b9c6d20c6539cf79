"""One client of Kafka: its frames, its authentication, and its answers in the order of its requests.

Requests are begun in the order in which they come, and each may be answered later: publications of one client share a
sync, and a fetch that waits does not hold up what comes behind it. Answers leave in order all the same.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from struct import Struct
from typing import Any

from tidegate.hub.cluster_groups import ClusterGroups
from tidegate.hub.errors import Unauthorized
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import (
    Api,
    MalformedMessage,
    Message,
    RequestHeader,
    encode_response,
    parse_header,
    parse_request,
)
from tidegate.server.context.context import ServerContext
from tidegate.server.context.metrics import LoggedRefusals
from tidegate.server.context.origin import Origin
from tidegate.server.kafka.forwarded_groups import ForwardedGroups
from tidegate.server.kafka.groups_api import GroupsApi, refuse_consumer_protocol
from tidegate.server.kafka.records_api import Fields, Later, RecordsApi
from tidegate.server.kafka.session import MECHANISM, Session
from tidegate.server.kafka.topics_api import TopicsApi
from tidegate.server.transports.strangers import ENOUGH_BYTES, AttentiveTls, Strangers

_logger = logging.getLogger(__name__)
_SIZE = Struct(">i")
MAX_STRANGER_BYTES = 64 << 10
"""The largest request of a client that has not shown a key."""
MAX_REQUEST_BYTES = 16 << 20
MAX_WAITING = 64
"""Requests under way on one connection; above it, the socket is not read."""
REFUSAL_DELAY_S = 0.1
"""How long a client with a wrong key waits for its answer, so that guessing is slow, and trying again costs little."""

SUPPORTED: Mapping[int, tuple[int, int]] = {
    # Clients take the lack of old versions of Produce for the lack of compression.
    Api.PRODUCE: (0, 12),
    Api.FETCH: (4, 17),
    Api.LIST_OFFSETS: (1, 10),
    Api.METADATA: (0, 13),
    Api.OFFSET_COMMIT: (2, 9),
    Api.OFFSET_FETCH: (1, 9),
    Api.FIND_COORDINATOR: (0, 6),
    Api.JOIN_GROUP: (0, 9),
    Api.HEARTBEAT: (0, 4),
    Api.LEAVE_GROUP: (0, 5),
    Api.SYNC_GROUP: (0, 5),
    Api.DESCRIBE_GROUPS: (0, 6),
    Api.LIST_GROUPS: (0, 5),
    Api.SASL_HANDSHAKE: (0, 1),
    Api.API_VERSIONS: (0, 4),
    Api.CREATE_TOPICS: (2, 7),
    Api.DELETE_TOPICS: (1, 6),
    Api.DELETE_RECORDS: (0, 2),
    Api.INIT_PRODUCER_ID: (0, 5),
    Api.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    Api.DESCRIBE_CONFIGS: (1, 4),
    Api.ALTER_CONFIGS: (0, 2),
    Api.SASL_AUTHENTICATE: (0, 2),
    Api.CREATE_PARTITIONS: (0, 3),
    Api.DELETE_GROUPS: (0, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    Api.OFFSET_DELETE: (0, 0),
    Api.DESCRIBE_CLUSTER: (0, 2),
    # answered with an error that clients take for final, which some do not without an answer
    Api.CONSUMER_GROUP_HEARTBEAT: (0, 1),
}
_FIRST_PRODUCE = 3
_BEFORE_AUTHENTICATION = (Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)

Answer = Fields | bytes | None
"""The fields of an answer, or an answer as another process has encoded it; None for a request without one."""
Handle = Callable[[Session, RequestHeader, Message, bytes], Awaitable[Awaitable[Answer]]]
"""Begins a request, given its frame as well; what it returns is awaited for the answer."""


class KafkaRequests:
    """All requests of authenticated clients, for the connections of one server."""

    def __init__(self, context: ServerContext) -> None:
        records, topics = RecordsApi(context), TopicsApi(context)
        offsets = context.namespace.group_offsets
        groups: GroupsApi | ForwardedGroups
        if isinstance(offsets, ClusterGroups):
            groups = ForwardedGroups(context, offsets)
        else:
            groups = GroupsApi(context, offsets)
        self.groups = groups
        self._begin: Mapping[int, Callable[[Session, RequestHeader, Message], Awaitable[Later]]] = {
            Api.PRODUCE: records.produce,
            Api.FETCH: records.fetch,
            Api.LIST_OFFSETS: records.list_offsets,
            Api.OFFSET_FOR_LEADER_EPOCH: records.end_of_epoch,
            Api.METADATA: topics.metadata,
            Api.DESCRIBE_CLUSTER: topics.describe_cluster,
            Api.DESCRIBE_CONFIGS: topics.describe_configs,
            Api.ALTER_CONFIGS: topics.alter_configs,
            Api.INCREMENTAL_ALTER_CONFIGS: topics.alter_some_configs,
            Api.CREATE_TOPICS: topics.create_topics,
            Api.DELETE_TOPICS: topics.delete_topics,
            Api.CREATE_PARTITIONS: topics.create_partitions,
            Api.DELETE_RECORDS: topics.delete_records,
            Api.INIT_PRODUCER_ID: topics.init_producer_id,
            Api.FIND_COORDINATOR: groups.find_coordinator,
            Api.JOIN_GROUP: groups.join,
            Api.SYNC_GROUP: groups.sync,
            Api.HEARTBEAT: groups.heartbeat,
            Api.LEAVE_GROUP: groups.leave,
            Api.OFFSET_COMMIT: groups.commit,
            Api.OFFSET_FETCH: groups.fetch_offsets,
            Api.OFFSET_DELETE: groups.delete_offsets,
            Api.LIST_GROUPS: groups.list_groups,
            Api.DESCRIBE_GROUPS: groups.describe_groups,
            Api.DELETE_GROUPS: groups.delete_groups,
            Api.CONSUMER_GROUP_HEARTBEAT: refuse_consumer_protocol,
        }

    async def begin(self, session: Session, header: RequestHeader, body: Message, frame: bytes) -> Awaitable[Answer]:
        """Begin a request; what is returned waits for its answer."""
        return await self._begin[header.api](session, header, body)


class Refusals:
    """What the clients of a port were refused for."""

    def __init__(self, context: ServerContext, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._logged = LoggedRefusals(monotonic_s)

    def record(self, peer: str, what: str, condition: str) -> None:
        """Count a refusal, and log it unless its host has had enough lines in this minute."""
        self._context.metrics.refuse(condition)
        ending = self._logged.ending(peer.rpartition(":")[0])
        if ending is not None:
            _logger.warning("the Kafka client %s was refused: %s%s", peer, what, ending)


class KafkaConnection(asyncio.Protocol):
    """One accepted socket, TLS or not."""

    def __init__(
        self,
        context: ServerContext,
        handle: Handle,
        advertise: Callable[[asyncio.Transport], tuple[str, int]],
        clients: set[Any],
        origin: Origin | None = None,
        refusals: Refusals | None = None,
        recognise: Callable[[bytes, str], bytes | None] = lambda data, peer: None,
    ) -> None:
        """Serve a client; one with an `origin` has shown its key to the process that accepted it."""
        self._context = context
        self._refusals = refusals or Refusals(context)
        self._recognise = recognise
        self._handle = handle
        self._advertise = advertise
        self._origin = origin
        self._clients = clients
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._frames: deque[bytes] = deque()
        self._answers: deque[tuple[RequestHeader, asyncio.Future[Answer]]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._raw_sasl = self._is_stopping = self._is_lost = self._is_full = False
        self._in_flight = 0
        self._client_id = self._software = ""

    # -- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to listen to a client."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        settings = self._context.settings
        transport.set_write_buffer_limits(high=max(settings.unsent_bytes_per_client, 1))
        raw = transport.get_extra_info("socket")
        if raw is not None and self._origin is None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer = self._origin.client if self._origin else transport.get_extra_info("peername") or ("?", 0)
        advertised = self._origin.server if self._origin else self._advertise(transport)
        self.session = Session(self._context.namespace, f"{peer[0]}:{peer[1]}", *advertised)
        self._clients.add(self)
        self._context.metrics.open_connection()
        self._open_timer = self._loop.call_later(settings.open_timeout_s, self._close_unknown)
        if self._origin is not None:
            self.session.grant = self._origin.grant
            self._open_timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Take the frames that are complete, and have them worked on."""
        self._context.metrics.received_bytes += len(data)
        received = self._received
        received += data
        at = 0
        while len(received) - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(received, at)
            limit = MAX_STRANGER_BYTES if self.session.grant is None else MAX_REQUEST_BYTES
            if not 0 < size <= limit:
                if self.session.grant is None and self._is_stranger(bytes(received[at : at + ENOUGH_BYTES])):
                    return
                self._refuse(f"a request of {size} bytes (at most {limit} are accepted)")
                return
            if len(received) - at < _SIZE.size + size:
                break
            self._frames.append(bytes(received[at + _SIZE.size : at + _SIZE.size + size]))
            at += _SIZE.size + size
        del received[:at]
        if self._frames and self._worker is None and not self._is_stopping:
            self._worker = self._loop.create_task(self._work())
        self.choose_reading()

    def eof_received(self) -> bool:
        """Let the transport close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up what is under way for the client, except what is being stored."""
        self._is_lost = True
        self._open_timer.cancel()
        self._clients.discard(self)
        self._context.metrics.close_connection()
        self._context.in_flight.waiting.discard(self)
        self.session.on_close()
        if self._worker is not None:
            self._worker.cancel()
        for _, answer in self._answers:
            answer.cancel()

    def pause_writing(self) -> None:
        """Read nothing more while the client does not take what it asked for."""
        self._is_full = True
        self.choose_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_full = False
        self.choose_reading()
        self._flush()

    # -- what the server calls

    def wind_down(self) -> float:
        """Begin no further requests. Return after how many seconds to say goodbye."""
        self._is_stopping = True
        self.choose_reading()
        return 0

    def say_goodbye(self) -> None:
        """Send what is answered, and close."""
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def check_links(self) -> None:
        """Rights are checked with each request."""

    def describe(self) -> dict[str, Any]:
        """Return who this is and what it uses, for people: no key and no token."""
        grant = self.session.grant
        return {
            "address": self.session.peer,
            "name": self._client_id,
            "product": self._software or "Kafka",
            "policies": [] if grant is None else [grant.rule_name],
            "uses": ["Kafka's protocol"],
        }

    def choose_reading(self) -> None:
        """Read the socket, or stop reading it, as the limits now ask."""
        if self._is_lost or self._transport.is_closing():
            return
        waits = (
            self._is_stopping
            or self._is_full
            or len(self._frames) + len(self._answers) > MAX_WAITING
            or self._in_flight > self._context.settings.in_flight_bytes_per_client
            or self in self._context.in_flight.waiting
        )
        if waits:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # -- requests

    async def _work(self) -> None:
        try:
            while self._frames and not self._is_stopping:
                await self._begin(self._frames.popleft())
        except MalformedMessage as error:
            self._refuse(str(error))
        except Exception as error:
            self._fail(error)
        finally:
            self._worker = None

    async def _begin(self, frame: bytes) -> None:
        if self._raw_sasl:
            await self._authenticate_raw(frame)
            return
        header = parse_header(frame)
        self._client_id = header.client_id or self._client_id
        first, last = SUPPORTED.get(header.api, (1, 0))
        if header.api == Api.API_VERSIONS and header.version > last:
            fields = {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": _api_keys()}
            self._answer(header._replace(version=0), _done(self._loop, fields))
            return
        if header.api == Api.PRODUCE:
            first = _FIRST_PRODUCE
        if not first <= header.version <= last:
            self._refuse(_unsupported(header, first, last))
            return
        if self.session.grant is None and header.api not in _BEFORE_AUTHENTICATION:
            name = Api(header.api).name.lower()
            self._refuse(f"a {name} request without authentication (set SASL_PLAINTEXT or SASL_SSL, and PLAIN)")
            return
        if header.api not in _BEFORE_AUTHENTICATION and self.session.has_expired():
            await self._close_expired()
            return
        self._context.metrics.request()
        body = parse_request(header, frame)
        if header.api == Api.API_VERSIONS:
            self._software = f"{body.client_software_name} {body.client_software_version}".strip()
            self._answer(header, _done(self._loop, {"error_code": ErrorCode.NONE, "api_keys": _api_keys()}))
        elif header.api == Api.SASL_HANDSHAKE:
            self._answer(header, _done(self._loop, await self._handshake(header, body.mechanism)))
        elif header.api == Api.SASL_AUTHENTICATE:
            self._answer(header, _done(self._loop, await self._authenticate(body.auth_bytes)))
        else:
            size = len(frame) if header.api == Api.PRODUCE else 0
            begun = asyncio.ensure_future(await self._handle(self.session, header, body, frame))
            if size:
                self._count_in_flight(size)
                begun.add_done_callback(lambda _: self._count_done(size))
            self._answer(header, begun)

    async def _close_expired(self) -> None:
        """Disconnect a client whose token is over, as Kafka does (KIP-368), so that it connects with the next one.

        It would take an answer for the loss of a right, for good. What it asked for in time is answered first: of a
        publication it would not know otherwise whether to send it again.
        """
        if self._answers:
            await asyncio.wait([answer for _, answer in self._answers])
        self._note_refusal(
            "its token has expired, and it has shown no other on this connection", Unauthorized.condition
        )
        self._end()

    def _count_in_flight(self, size: int) -> None:
        self._in_flight += size
        self._context.in_flight.add(size, self)
        self.choose_reading()

    def _count_done(self, size: int) -> None:
        self._in_flight -= size
        self._context.in_flight.remove(size)
        self.choose_reading()

    def _answer(self, header: RequestHeader, answer: asyncio.Future[Answer]) -> None:
        self._answers.append((header, answer))
        answer.add_done_callback(lambda _: self._flush())

    def _flush(self) -> None:
        """Send the answers that are there, up to the first that is not."""
        while self._answers and self._answers[0][1].done() and not self._is_lost:
            header, answer = self._answers.popleft()
            if answer.cancelled():
                continue
            error = answer.exception()
            if error is not None:
                self._fail(error)
                return
            fields = answer.result()
            if fields is not None:
                if isinstance(fields, bytes):
                    data = fields
                else:
                    data = encode_response(header.api, header.version, header.correlation_id, fields)
                self._context.metrics.sent_bytes += len(data)
                self._transport.write(data)
        self.choose_reading()

    def _fail(self, error: BaseException) -> None:
        """Close after a request that has no answer, so that the client sends it again."""
        if isinstance(error, ConnectionError):  # the process that would have answered is stopping, or was killed
            _logger.info("the Kafka client %s is disconnected: %s", self.session.peer, error)
        else:
            _logger.error("a request of the Kafka client %s failed", self.session.peer, exc_info=error)
        self._transport.close()

    # -- authentication

    async def _handshake(self, header: RequestHeader, mechanism: str) -> Fields:
        if mechanism != MECHANISM:
            advice = f"SASL {mechanism}; the hub knows {MECHANISM} with a connection string, and no tokens of Entra ID"
            self._note_refusal(advice, "unsupported-mechanism")
            await asyncio.sleep(REFUSAL_DELAY_S)
            return {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": [MECHANISM]}
        self.session.mechanism = mechanism
        self._raw_sasl = header.version == 0
        return {"error_code": ErrorCode.NONE, "mechanisms": [MECHANISM]}

    async def _authenticate(self, token: bytes) -> Fields:
        if self.session.mechanism is None:
            return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": "a handshake must come first"}
        try:
            self.session.authenticate(token)
        except Unauthorized as error:
            self._note_refusal(error.description, error.condition)
            await asyncio.sleep(REFUSAL_DELAY_S)
            self._loop.call_later(REFUSAL_DELAY_S, self._transport.close)
            return {"error_code": ErrorCode.SASL_AUTHENTICATION_FAILED, "error_message": error.description}
        self._open_timer.cancel()
        grant = self.session.grant
        expires_at_s = None if grant is None else grant.expires_at_s
        lifetime_ms = 0 if expires_at_s is None else max(1, round((expires_at_s - time.time()) * 1000))
        return {"error_code": ErrorCode.NONE, "session_lifetime_ms": lifetime_ms}

    async def _authenticate_raw(self, token: bytes) -> None:
        """Take a token without a request around it, as clients send it after a handshake of version 0."""
        self._raw_sasl = False
        fields = await self._authenticate(token)
        if fields["error_code"] is ErrorCode.NONE:
            self._transport.write(bytes(_SIZE.size))
        else:
            self._transport.close()

    def _close_unknown(self) -> None:
        self._refuse("no key within the time that an open may take")

    def _refuse(self, what: str) -> None:
        self._note_refusal(what, "kafka-protocol")
        self._end()

    def _end(self) -> None:
        self._frames.clear()
        self._is_stopping = True
        self._transport.close()

    def _note_refusal(self, what: str, condition: str) -> None:
        self._refusals.record(self.session.peer, what, condition)

    def _is_stranger(self, data: bytes) -> bool:
        """Answer and close a client of another protocol, and return whether it is one."""
        answer = self._recognise(data, self.session.peer)
        if answer is None:
            return False
        self._context.metrics.refuse("kafka-protocol")
        self._is_stopping = True
        self._transport.write(answer)
        self._transport.close()
        return True


def _done(loop: asyncio.AbstractEventLoop, fields: Fields) -> asyncio.Future[Answer]:
    future: asyncio.Future[Answer] = loop.create_future()
    future.set_result(fields)
    return future


def _unsupported(header: RequestHeader, first: int, last: int) -> str:
    if header.api not in SUPPORTED:
        return f"a request of kind {header.api}, which is not supported"
    found = f"a {Api(header.api).name.lower()} request of version {header.version} ({first} to {last} are supported)"
    if header.version > last:
        return found
    # Such a client has not asked for versions. It sees only a lost connection, and tries for ever.
    advice = "use a client that speaks Kafka 1.0 or later, and set no older version in it"
    return f"{found}: {advice} (api_version, broker.version.fallback)"


def _api_keys() -> list[Fields]:
    return [{"api_key": api, "min_version": first, "max_version": last} for api, (first, last) in SUPPORTED.items()]


class KafkaListener:
    """A port on which clients of Kafka are accepted."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port = int(server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """The address that clients use."""
        return f"kafka://{self._server.sockets[0].getsockname()[0]}:{self.port}"

    def close(self) -> None:
        """Accept no more clients."""
        self._server.close()


async def listen_kafka(
    context: ServerContext,
    handle: Handle,
    clients: set[Any],
    port: int,
    tls: ssl.SSLContext | None,
    strangers: Strangers,
) -> KafkaListener:
    """Listen for clients of Kafka; port 0 lets the system choose. Raises OSError."""
    advertised = context.settings.kafka_advertised
    refusals = Refusals(context)

    def recognise(data: bytes, peer: str) -> bytes | None:
        """Return the answer to a client of another protocol, None if it may be one of Kafka's."""
        stranger = None if tls is not None else strangers.on_kafka(data)
        if stranger is None:
            return None
        strangers.note(stranger, f"the kafka port {listener.port}", peer)
        return stranger.answer

    def advertise(transport: asyncio.Transport) -> tuple[str, int]:
        name, _, given_port = advertised.rpartition(":") if advertised else ("", "", "")
        host, local_port = (transport.get_extra_info("sockname") or ("127.0.0.1", port))[:2]
        asked_for = getattr(transport.get_extra_info("ssl_object"), "asked_for", None)
        return (name or asked_for or host, int(given_port or local_port))

    if tls is not None:
        tls.sni_callback = _remember_name
    server = await asyncio.get_running_loop().create_server(
        lambda: KafkaConnection(context, handle, advertise, clients, None, refusals, recognise),
        context.settings.host,
        port,
        ssl=tls,
        backlog=1024,
        reuse_port=context.settings.reuse_port or None,
    )
    listener = KafkaListener(server)
    return listener


def _remember_name(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
    """Keep the name by which a client knows this machine, to which it is sent again."""
    if isinstance(connection, AttentiveTls):
        connection.asked_for = name
