"""Connections that are handed over arrive with who their clients are."""

from __future__ import annotations

import socket

import pytest

from tidegate.hub.access import Grant
from tidegate.server.context.origin import Origin
from tidegate.workers.door import hand_over, make_door, take_in

GRANT = Grant("listen", "eh1", ("eh1",), 1_900_000_000, b"\x00\xff" * 16)


@pytest.mark.parametrize(
    "origin",
    [
        Origin("https", ("::1", 50_000), ("::1", 443)),
        Origin("kafka", ("10.0.0.1", 1), ("hub.example", 9093), GRANT),
        Origin("kafka", ("10.0.0.1", 1), ("hub.example", 9093), Grant("root", "", (), None, b"k")),
    ],
)
def test_a_client_arrives_as_it_is(origin: Origin) -> None:
    worker, owner = make_door()
    owner.setblocking(False)
    with worker, owner:
        assert take_in(owner) is None
        with hand_over(worker, origin) as near:
            found = take_in(owner)
            assert found is not None
            described, far = found
            assert described == origin
            with far:
                near.sendall(b"question")
                assert far.recv(100) == b"question"
                far.sendall(b"answer")
                assert near.recv(100) == b"answer"
        assert take_in(owner) is None


def test_a_closed_door_is_an_error_and_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, owner = make_door()
    owner.close()
    pair = socket.socketpair()
    monkeypatch.setattr(socket, "socketpair", lambda: pair)
    with worker, pytest.raises((ConnectionRefusedError, ConnectionResetError, BrokenPipeError)):
        hand_over(worker, Origin("http", ("?", 0), ("?", 0)))
    assert [end.fileno() for end in pair] == [-1, -1]


def test_ends_that_are_not_taken_are_closed_with_the_door() -> None:
    worker, owner = make_door()
    near = hand_over(worker, Origin("http", ("?", 0), ("?", 0)))
    worker.close()
    owner.close()
    near.setblocking(True)
    with near:
        assert near.recv(1) == b""


def test_the_door_is_no_stream() -> None:
    worker, owner = make_door()
    with worker, owner:
        assert worker.type == socket.SOCK_DGRAM
