"""Frames as they come, in any pieces, and the quick way through a transfer against the slow one."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from azure.eventhub._pyamqp._encode import encode_frame as encode_by_microsoft
from azure.eventhub._pyamqp.performatives import TransferFrame as MicrosoftTransfer
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.values import unsigned, values
from tidegate.amqp import ACCEPTED, Described, Symbol, Ubyte, Uint, Ulong, encode
from tidegate.amqp.codec import encode_list
from tidegate.amqp.composites import encode_composite
from tidegate.amqp.errors import PeerError
from tidegate.amqp.frames import FrameBuffer, parse_transfer, read_performative, transfer_fields
from tidegate.amqp.performatives import TransferFrame

uints = unsigned(32)
flags = st.none() | st.booleans()


@given(
    handle=uints,
    delivery_id=st.none() | uints,
    tag=st.none() | st.binary(max_size=300),
    message_format=st.none() | uints,
    booleans=st.tuples(flags, flags, flags, flags, flags),
    payload=st.binary(max_size=20),
    elided=st.integers(0, 11),
)
def test_the_quick_way_reads_what_the_slow_way_reads(
    handle: int,
    delivery_id: int | None,
    tag: bytes | None,
    message_format: int | None,
    booleans: tuple[bool | None, ...],
    payload: bytes,
    elided: int,
) -> None:
    settled, more, resume, aborted, batchable = booleans
    values = [Uint(handle), delivery_id, tag, message_format, settled, more, None, None, resume, aborted, batchable]
    items = [encode(Uint(item)) if type(item) is int else encode(item) for item in values]
    while elided and len(items) > 1 and items[-1] == b"\x40":
        items.pop()
        elided -= 1
    frame = b"\x00\x53\x14" + encode_list(items) + payload
    slow, end = read_performative(frame, TransferFrame)
    fields = parse_transfer(b"before" + frame + b"after", 6, 6 + len(frame))
    assert fields == transfer_fields(slow, 6 + end)
    assert fields[:4] == (handle, delivery_id, tag, message_format)
    assert fields[4:7] == (bool(settled), bool(more), bool(aborted))
    assert (b"before" + frame)[fields[7] :] == payload


@pytest.mark.parametrize(("settled", "more"), list(itertools.product([True, False, None], [True, False])))
def test_the_python_clients_transfers_take_the_quick_way(settled: bool | None, more: bool) -> None:
    nothing: Any = None
    frame = MicrosoftTransfer(
        3, 70_000, b"tagg", 0x80013700, settled, more, nothing, nothing, nothing, nothing, nothing, b"payload"
    )
    _, body = encode_by_microsoft(frame)
    data = bytes(body or b"")
    fields = parse_transfer(data, 0, len(data))
    assert fields == (3, 70_000, b"tagg", 0x80013700, bool(settled), more, False, len(data) - len(b"payload"))


def test_unusual_transfers_are_read_too() -> None:
    state = encode_composite(TransferFrame(1, 2, b"t", 0, True, False, 1, ACCEPTED, True, True, True))
    assert parse_transfer(state, 0, len(state))[:7] == (1, 2, b"t", 0, True, False, True)
    wide = b"\x00\x53\x14" + encode([Uint(1), Uint(2), b"t" * 300, Uint(0), True])
    assert parse_transfer(wide, 0, len(wide))[2] == b"t" * 300
    handle_only = b"\x00\x53\x14" + encode([Uint(1)])
    assert parse_transfer(handle_only, 0, len(handle_only))[:7] == (1, None, None, None, False, False, False)
    symbolic = encode(Described(Symbol("amqp:transfer:list"), [Uint(1)]))
    assert parse_transfer(symbolic, 0, len(symbolic))[0] == 1


@pytest.mark.parametrize(
    "fields",
    [[], [None], ["handle"], [Uint(1), "id"], [Uint(1), Uint(1), "tag"], [Uint(1), Ulong(2**40)], [True], [-1]],
    ids=repr,
)
def test_transfers_with_the_wrong_fields_are_refused(fields: list[Any]) -> None:
    body = encode(Described(Ulong(0x14), fields))
    with pytest.raises(PeerError):
        parse_transfer(body, 0, len(body))


@given(st.binary(max_size=40), st.binary(max_size=10))
def test_no_transfer_is_read_from_the_bytes_behind_its_frame(body: bytes, behind: bytes) -> None:
    data = b"\x00\x53\x14" + body
    results = []
    for rest in (b"", behind):
        try:
            results.append(parse_transfer(data + rest, 0, len(data)))
        except PeerError as error:
            results.append(error.condition)
    assert results[0] == results[1]


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 60))
def test_a_buffer_gives_back_all_bytes_in_order_whatever_the_pieces(pieces: list[bytes], needed: int) -> None:
    buffer = FrameBuffer()
    taken = b""
    for piece in pieces:
        buffer.feed(piece)
        while len(buffer.data) - buffer.position >= needed:
            taken += buffer.data[buffer.position : buffer.position + needed]
            buffer.position += needed
        buffer.keep(needed)
    whole = b"".join(pieces)
    assert taken == whole[: len(whole) // needed * needed]
    assert buffer.waiting == len(whole) - len(taken)


@given(st.lists(values, max_size=4), st.sampled_from(range(0x10, 0x30)))
def test_any_fields_are_a_performative_or_a_broken_rule(fields: list[Any], code: int) -> None:
    for body in (encode(Described(Ulong(code), fields)), encode(Described(Ubyte(3), fields)), encode(fields)):
        with contextlib.suppress(PeerError):
            read_performative(body, TransferFrame)
