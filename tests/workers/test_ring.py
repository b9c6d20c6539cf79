"""Frames in shared memory stay as they are until they are free."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from tidegate.workers.ring import RING_BYTES, Ring, make_memory, map_memory


@given(data=st.data())
def test_a_frame_lies_untouched_until_its_request_is_done(data: st.DataObject) -> None:
    handle = make_memory()
    assert handle is not None
    with map_memory(handle) as written, map_memory(handle) as read:
        os.close(handle)
        written_to = Ring(written)
        placed: dict[int, tuple[int, bytes]] = {}
        sizes = st.integers(1, 40).map(lambda part: part * RING_BYTES // 40)
        for request in range(data.draw(st.integers(1, 40))):
            frame = bytes([request + 1]) * data.draw(sizes)
            at = written_to.put(request, frame)
            if at is not None:
                placed[request] = at, frame
            else:
                assert placed
            for at, kept in placed.values():
                assert read[at] == read[at + len(kept) - 1] == kept[0]
                assert read[at : at + len(kept)] == kept
            for done in data.draw(st.lists(st.sampled_from(sorted(placed)), unique=True)) if placed else ():
                written_to.free(done)
                del placed[done]


def test_a_frame_that_is_too_large_is_not_placed() -> None:
    handle = make_memory()
    assert handle is not None
    with map_memory(handle) as memory:
        os.close(handle)
        assert Ring(memory).put(0, bytes(RING_BYTES + 1)) is None
        assert Ring(memory).put(0, bytes(RING_BYTES)) == 0


def test_a_request_that_has_no_frame_here_may_be_done() -> None:
    handle = make_memory()
    assert handle is not None
    with map_memory(handle) as memory:
        os.close(handle)
        one = Ring(memory)
        one.free(7)
        assert one.put(1, b"x") == 0
        assert one.put(2, b"x") == 1
        one.free(2)
        assert one.put(3, b"x") == 2
        one.free(1)
        one.free(3)
        assert one.put(4, b"x") == 0
