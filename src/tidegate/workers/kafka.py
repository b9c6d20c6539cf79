"""Kafka's clients in a worker: records and metadata here, groups and changes in the owning process.

What concerns all workers is passed on as it came, over a connection of the client's own, on which the owning process
answers as it would answer the client. So there is one coordinator of groups, and members may be with any worker.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from struct import Struct

from tidegate.hub.access import Grant
from tidegate.kafka.messages import Api, Message, RequestHeader
from tidegate.server.context.context import ServerContext
from tidegate.server.kafka.connection import Answer, KafkaRequests
from tidegate.server.kafka.session import Session

_SIZE = Struct(">i")
ANSWERED_HERE = frozenset(
    {
        Api.PRODUCE,
        Api.FETCH,
        Api.LIST_OFFSETS,
        Api.OFFSET_FOR_LEADER_EPOCH,
        Api.METADATA,
        Api.DESCRIBE_CLUSTER,
        Api.DESCRIBE_CONFIGS,
        Api.INIT_PRODUCER_ID,
        Api.FIND_COORDINATOR,
    }
)
"""What changes nothing but partitions, which workers share. All else goes to the owning process."""
HandOver = Callable[[Session], socket.socket]
"""Return a socket on which the owning process answers requests of this client. Raises OSError."""


class WorkerRequests:
    """All requests of authenticated clients, for the connections of one worker."""

    def __init__(self, context: ServerContext, hand_over: HandOver) -> None:
        self._here = KafkaRequests(context)
        self._hand_over = hand_over
        self._owners: dict[Session, _Owner] = {}

    async def begin(self, session: Session, header: RequestHeader, body: Message, frame: bytes) -> Awaitable[Answer]:
        """Begin a request; what is returned waits for its answer."""
        if header.api in ANSWERED_HERE:
            return await self._here.begin(session, header, body, frame)
        return (await self._owner_for(session)).ask(frame)

    async def _owner_for(self, session: Session) -> _Owner:
        """Return the client's connection to the owning process, a new one if the client has shown another key."""
        owner = self._owners.get(session)
        if owner is None or owner.is_lost or owner.grant != session.grant:
            if owner is not None:
                owner.close_when_idle()
            own = self._hand_over(session)
            _, owner = await asyncio.get_running_loop().create_connection(lambda: _Owner(session.grant), sock=own)
            self._owners[session] = owner
            session.on_close = lambda: self._forget(session)
        return owner

    def _forget(self, session: Session) -> None:
        owner = self._owners.pop(session, None)
        if owner is not None:
            owner.close()


class _Owner(asyncio.Protocol):
    """One client's connection to the owning process, which answers requests in their order."""

    def __init__(self, grant: Grant | None) -> None:
        self.grant = grant
        self.is_lost = False
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: deque[asyncio.Future[Answer]] = deque()
        self._closes = False

    def ask(self, frame: bytes) -> asyncio.Future[Answer]:
        """Pass on a request, and return what becomes its answer."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self.is_lost or self._transport is None:
            answer.set_exception(ConnectionError("the owning process has closed the client's connection"))
        else:
            self._waiting.append(answer)
            self._transport.write(_SIZE.pack(len(frame)) + frame)
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(received)[0]
            if len(received) < end:
                break
            answer, found = self._waiting.popleft(), bytes(received[:end])
            del received[:end]
            if not answer.done():
                answer.set_result(found)
        if self._closes and not self._waiting:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        waiting, self._waiting = self._waiting, deque()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(ConnectionError("the owning process has closed the client's connection"))

    def close_when_idle(self) -> None:
        """Close once all requests are answered."""
        self._closes = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.close()
