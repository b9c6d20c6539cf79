"""Frames survive being cut anywhere, and errors keep their kind."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import PATIENCE_S
from tidegate.hub.errors import LinkStolen, OutOfOrderSequence, ServerBusy
from tidegate.hub.producers import Numbers
from tidegate.log import Appended, JoinedEvents, LogError
from tidegate.workers import frames
from tidegate.workers.frames import FrameKind, Sender, Splitter

NUMBERS = st.none() | st.builds(
    Numbers, st.integers(0, 2**53), st.integers(0, 2**15), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)
)
PUBLICATIONS = st.tuples(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    NUMBERS,
    st.lists(st.binary(max_size=50), min_size=1, max_size=20),
)


@given(sent=st.lists(PUBLICATIONS, max_size=5), data=st.data())
def test_publications_arrive_whole_however_they_are_cut(sent: list[Any], data: st.DataObject) -> None:
    stream = b"".join(frames.publication_frame(*one) for one in sent)
    splitter = Splitter()
    received = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        received += [frames.parse_publication(kind, content) for kind, content in splitter.feed(stream[:size])]
        stream = stream[size:]
    assert [(*one[:3], one.events.ends, one.events.payload, one.events.size) for one in received] == [
        (*one[:3], joined.ends, joined.payload, len(joined.payload))
        for one, joined in ((one, JoinedEvents.of([one[3]])) for one in sent)
    ]


def test_results_are_told_apart() -> None:
    results = [(7, Appended(1, 2, 3, 4, 5)), (2**64 - 1, Appended(-1, 1, -1, -1, 0))]
    assert [*frames.parse_results(b"".join(frames.result(*one) for one in results))] == results


def test_a_record_batch_arrives_as_it_is() -> None:
    ((kind, content),) = Splitter().feed(frames.batch_frame(7, 3, b"batch"))
    assert kind == FrameKind.APPEND_BATCH
    request, partition, data = frames.parse_batch_frame(content)
    assert (request, partition, bytes(data)) == (7, 3, b"batch")


@pytest.mark.parametrize("error", [LinkStolen("a"), ServerBusy("b"), OutOfOrderSequence("c")])
def test_errors_of_the_hub_keep_their_kind(error: LinkStolen) -> None:
    found = frames.hub_error(frames.error_values(error))
    assert type(found) is type(error)
    assert found.description == error.description


@pytest.mark.parametrize("error", [LogError("a"), OSError("b"), ValueError("c")])
def test_other_errors_are_not_the_hub_s(error: Exception) -> None:
    assert frames.hub_error(frames.error_values(error)) is None


def test_a_line_that_is_closed_ends_in_an_error() -> None:
    one, other = socket.socketpair()
    with one, other:
        frames.send(one, {"question": "facts"})
        assert frames.receive(other) == {"question": "facts"}
        one.close()
        with pytest.raises(EOFError):
            frames.receive(other)


def test_what_a_socket_does_not_take_at_once_is_sent_in_order() -> None:
    async def run() -> None:
        near, far = socket.socketpair()
        with near, far:
            sender = Sender(near, asyncio.get_running_loop())
            pieces = [bytes([number % 251]) * size for number, size in enumerate([1, 3 << 20, 0, 5, 2 << 20] * 20)]
            expected = b"".join(pieces)
            for index in range(0, len(pieces), 7):
                sender.send(pieces[index : index + 7])
            reader, writer = await asyncio.open_connection(sock=far)
            assert await reader.readexactly(len(expected)) == expected
            sender.send([b"the last"])
            sender.close()
            near.close()
            assert await reader.read() == b"the last"
            writer.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def test_what_the_other_end_takes_no_more_is_dropped() -> None:
    async def run() -> None:
        near, far = socket.socketpair()
        with near:
            sender = Sender(near, asyncio.get_running_loop())
            far.close()
            sender.send([b"nobody reads this"])
            sender.send([b"nor this"])
            sender.close()

    asyncio.run(run())
