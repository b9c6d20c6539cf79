"""What the store's process and a worker say to each other over Unix sockets that only they hold.

There are two sockets for each worker. On the *stream*, frames go both ways and nobody waits: publications one way, and
what became of them, growth and changes of the namespace the other. On the *line*, a worker asks and waits for the
answer, which is for what happens once for each link or request.

A frame is its length (of what follows, 4 bytes), its kind (1 byte) and its content, all little-endian.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from itertools import accumulate, islice
from struct import Struct
from typing import Any, NamedTuple

from tidegate.hub import errors
from tidegate.hub.errors import HubError
from tidegate.hub.producers import Numbers
from tidegate.log import Appended, JoinedEvents

_HEAD = Struct("<IB")
_APPEND = Struct("<QII")  # request, partition, count of events
_NUMBERS = Struct("<qiii")
_RESULT = Struct("<QqIqqq")
_LENGTH = Struct("<I")
_PLACE = Struct("<QI")
MAX_FRAME_BYTES = 1 << 30
_SEND_BUFFER_BYTES = 1 << 20
_MAX_BUFFERS = 64
_CLOSE_S = 5.0


class FrameKind(IntEnum):
    """What a frame holds; from the worker below 32, from the store above."""

    APPEND = 1
    APPEND_NUMBERED = 2
    APPEND_BATCH = 3
    STATISTICS = 4
    CLIENTS = 5
    READY = 6
    FAILED = 7
    VACATE = 8
    NOTE_JOB = 9
    WATCH = 10
    ADOPTED = 11
    SHARED = 12
    SETTINGS = 32
    STATE = 33
    FACTS = 34
    RESULTS = 35
    REFUSED = 36
    STOLEN = 37
    ASK_CLIENTS = 38
    STOP = 39


_NUMBERED = int(FrameKind.APPEND_NUMBERED)


class StoreAppend(NamedTuple):
    """An append on its way to the store."""

    request: int
    partition: int
    numbers: Numbers | None
    events: JoinedEvents


def frame(kind: FrameKind, content: bytes = b"") -> bytes:
    """Return a frame."""
    return _HEAD.pack(len(content) + 1, kind) + content


def json_frame(kind: FrameKind, value: Any) -> bytes:
    """Return a frame whose content is JSON."""
    return frame(kind, json.dumps(value).encode("utf-8"))


def publication_frame(
    request: int, partition: int, numbers: Numbers | None, events: Sequence[bytes | memoryview]
) -> bytes:
    """Return the frame of a publication."""
    ends = array("I", accumulate(map(len, events)))
    numbered = b"" if numbers is None else _NUMBERS.pack(*_in_order(numbers))
    length = 1 + len(numbered) + _APPEND.size + 4 * len(ends) + ends[-1]
    if sys.byteorder == "big":
        ends.byteswap()
    kind = FrameKind.APPEND if numbers is None else FrameKind.APPEND_NUMBERED
    head = _HEAD.pack(length, kind) + numbered + _APPEND.pack(request, partition, len(events))
    return b"".join((head, ends.tobytes(), *events))


def _in_order(numbers: Numbers) -> tuple[int, int, int, int]:
    return numbers.producer_id, numbers.epoch, numbers.first, numbers.last


def parse_publication(kind: int, content: memoryview) -> StoreAppend:
    """Return the publication of a frame."""
    at = 0
    numbers = None
    if kind == _NUMBERED:
        numbers = Numbers(*_NUMBERS.unpack_from(content))
        at = _NUMBERS.size
    request, partition, count = _APPEND.unpack_from(content, at)
    at += _APPEND.size
    base = at + 4 * count
    events = JoinedEvents(content[at:base], (content[base:],), len(content) - base)
    return StoreAppend(request, partition, numbers, events)


def batch_frame(request: int, partition: int, data: bytes) -> bytes:
    """Return the frame of a record batch."""
    return frame(FrameKind.APPEND_BATCH, _APPEND.pack(request, partition, 0) + data)


def parse_batch_frame(content: memoryview) -> tuple[int, int, memoryview]:
    """Return request, partition and bytes of a record batch."""
    request, partition, _ = _APPEND.unpack_from(content)
    return request, partition, content[_APPEND.size :]


def shared_frame(at: int, size: int) -> bytes:
    """Return a frame that says where another one lies in shared memory."""
    return frame(FrameKind.SHARED, _PLACE.pack(at, size))


def parse_shared(content: memoryview, memory: memoryview) -> tuple[int, memoryview]:
    """Return kind and content of the frame that lies in shared memory."""
    at, size = _PLACE.unpack(content)
    whole = memory[at : at + size]
    return whole[_LENGTH.size], whole[_HEAD.size :]


def result(request: int, appended: Appended) -> bytes:
    """Return what RESULTS says of one request."""
    return _RESULT.pack(
        request,
        appended.first_sequence_number,
        appended.count,
        appended.first_offset,
        appended.last_offset,
        appended.enqueued_time_ms,
    )


def parse_results(content: memoryview) -> Iterator[tuple[int, Appended]]:
    """Yield the requests of a RESULTS frame and where their events are."""
    for request, first, count, first_offset, last_offset, time_ms in _RESULT.iter_unpack(content):
        yield request, Appended(first, count, first_offset, last_offset, time_ms)


class Splitter:
    """Cuts the bytes of a stream into frames."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Yield kind and content of each frame that is complete with these bytes."""
        view = memoryview(data)
        at, size = self._complete(view), len(view)
        if self._kept:
            if len(self._kept) < _HEAD.size or len(self._kept) < 4 + _LENGTH.unpack_from(self._kept)[0]:
                return
            whole, self._kept = memoryview(bytes(self._kept)), bytearray()
            yield whole[4], whole[_HEAD.size :]
        while size - at >= _HEAD.size:
            length, kind = _HEAD.unpack_from(view, at)
            end = at + 4 + length
            if end > size:
                break
            yield kind, view[at + _HEAD.size : end]
            at = end
        self._kept += view[at:]

    def _complete(self, view: memoryview) -> int:
        """Add to the frame that is not complete what belongs to it, and return where the next begins."""
        kept, at = self._kept, 0
        if not kept:
            return 0
        for size in (_HEAD.size, None):
            wanted = 4 + _LENGTH.unpack_from(kept)[0] if size is None else size
            taken = view[at : at + max(0, wanted - len(kept))]
            kept += taken
            at += len(taken)
            if len(kept) < wanted:
                break
        return at


class Sender:
    """Sends frames on a stream in an event loop, without copying what the socket does not take at once.

    An asyncio transport keeps that in one array, from whose front it deletes what is sent, which costs a worker a third
    of its time. The socket is duplicated, so that a transport can read from the same stream.
    """

    def __init__(self, stream: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._socket = stream.dup()
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._loop = loop
        self._unsent: deque[memoryview] = deque()

    def send(self, data: Iterable[bytes]) -> None:
        """Send some frames, at once or as soon as the other end has read enough."""
        is_waiting = bool(self._unsent)
        self._unsent.extend(memoryview(one) for one in data if one)
        if not is_waiting and not self._write():
            self._loop.add_writer(self._socket, self._go_on)

    def _go_on(self) -> None:
        if self._write():
            self._loop.remove_writer(self._socket)

    def _write(self) -> bool:
        """Send what the socket takes, and return whether that is all."""
        unsent = self._unsent
        while unsent:
            try:
                sent = self._socket.sendmsg(list(islice(unsent, _MAX_BUFFERS)))
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:  # the other end is gone, which the transport that reads reports
                unsent.clear()
                break
            while sent:
                first = unsent.popleft()
                if len(first) > sent:
                    unsent.appendleft(first[sent:])
                    break
                sent -= len(first)
        return True

    def close(self) -> None:
        """Send what is left, waiting for the other end for a moment, and close the socket."""
        self._loop.remove_writer(self._socket)
        self._socket.settimeout(_CLOSE_S)
        with suppress(OSError):
            for data in self._unsent:
                self._socket.sendall(data)
        self._unsent.clear()
        self._socket.close()


# -- the line


def send(line: socket.socket, value: Any) -> None:
    """Send a question or an answer. Raises OSError."""
    data = json.dumps(value).encode("utf-8")
    line.sendall(_LENGTH.pack(len(data)) + data)


def receive(line: socket.socket) -> Any:
    """Return the next question or answer. Raises EOFError when the other end is closed, OSError."""
    (length,) = _LENGTH.unpack(_exactly(line, _LENGTH.size))
    return json.loads(_exactly(line, length))


def _exactly(line: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        data = line.recv(size - len(found))
        if not data:
            raise EOFError("the other process has closed its end")
        found += data
    return bytes(found)


# -- errors


def error_values(error: Exception) -> list[str]:
    """Return an error in the form in which it travels."""
    return [type(error).__name__, error.description if isinstance(error, HubError) else str(error)]


def hub_error(values: Sequence[str]) -> HubError | None:
    """Return the error that `error_values` was given, None if it was not the hub's."""
    found = getattr(errors, values[0], None)
    if isinstance(found, type) and issubclass(found, HubError):
        return found(values[1])
    return None
