"""How a worker hands over what only the owning process answers: it opens a connection to it, for one client.

The worker makes a pair of connected sockets and sends one of them through the *door*, with the client's origin. What
then goes through the pair is the client's own protocol, so that nothing is translated.
"""

from __future__ import annotations

import array
import json
import socket
from contextlib import suppress

from tidegate.server.context.origin import Origin

_MOST_BYTES = 64 << 10


def make_door() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a door."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)


def hand_over(door: socket.socket, origin: Origin) -> socket.socket:
    """Return a socket on which the owning process answers as it would answer the client itself. Raises OSError."""
    mine, other = socket.socketpair()
    with other:
        try:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [other.fileno()]))
            door.sendmsg([json.dumps(origin.to_json()).encode("utf-8")], [rights])
        except OSError:
            mine.close()
            raise
    mine.setblocking(False)
    return mine


def take_in(door: socket.socket) -> tuple[Origin, socket.socket] | None:
    """Return a client and its connection, None if nobody is at the door. Raises OSError."""
    with suppress(BlockingIOError):
        data, handles, _, _ = socket.recv_fds(door, _MOST_BYTES, 1)
        if handles:
            taken = socket.socket(fileno=handles[0])
            taken.setblocking(False)
            return Origin.from_json(json.loads(data)), taken
    return None
