"""Frames as they come, in any pieces, and the quick way through a transfer against the slow one."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from azure.eventhub._pyamqp._encode import encode_frame as encode_by_microsoft
from azure.eventhub._pyamqp.performatives import TransferFrame as MicrosoftTransfer
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amqp.pair import BEGIN, attach, open_server, raw, transfer
from tests.amqp.values import unsigned, values
from tests.profiles import example_count
from tidegate.amqp import ACCEPTED, Described, Symbol, Transfer, Transfers, Ubyte, Uint, Ulong, encode
from tidegate.amqp.encoding.codec import encode_list
from tidegate.amqp.encoding.composites import encode_composite
from tidegate.amqp.encoding.types import PeerError
from tidegate.amqp.framing.frames import (
    FRAME_HEAD,
    FrameBuffer,
    accepted_frame,
    parse_transfer,
    read_performative,
    transfer_fields,
)
from tidegate.amqp.framing.performatives import Begin, DispositionFrame, TransferFrame

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


@given(st.sampled_from([b"", b"p", b"p" * 40]), st.binary(max_size=10))
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


@given(
    transfers=st.lists(
        st.tuples(
            st.sampled_from([1, 1, 1, 1, 0, 255]),
            st.sampled_from([300, 300, 301, 2**32 - 1, 255, 0]),
            st.sampled_from([b"t", b"t", b"u", b"tag"]),
            st.sampled_from([0, 0, 0, 0, 0x80013700]),
            st.sampled_from([False, False, True]),
            st.sampled_from([False, False, False, True]),
            st.sampled_from([b"", b"p", b"p" * 40]),
            st.sampled_from(["quick"] * 12 + ["another session", "symbol tag", "slow", "broken", "broken"]),
            st.integers(1, 4),
            st.sampled_from([1, 1, 1, 0, 2]),
        ),
        min_size=2,
        max_size=5,
    ),
    pieces=st.lists(st.integers(20, 60), min_size=10, max_size=20),
)
@settings(max_examples=example_count(400), deadline=None)
def test_transfers_alike_are_read_as_if_each_came_alone(transfers: list[tuple[Any, ...]], pieces: list[int]) -> None:
    """The short way for a run of them, in any pieces and mixture, reported one by one or joined, against a connection
    that has it taken away."""
    setup = BEGIN + b"".join(attach(handle, name=f"link {handle}") for handle in (0, 1, 255))
    frames = []
    for handle, first_id, tag, message_format, settled, more, payload, how, times, step in transfers:
        for delivery_id in [(first_id + step * index) & 0xFFFFFFFF for index in range(times)]:
            if how == "slow":
                performative = TransferFrame(handle, delivery_id, tag, message_format, settled, more)
                frames.append(raw(performative, payload))
                continue
            fields = [Uint(handle), Uint(delivery_id), tag, Uint(message_format), settled, more]
            items = [encode(field) for field in fields]
            if how == "symbol tag":
                items[2] = b"\xa3" + items[2][1:]
            body = b"\x00\x53\x14" + encode_list(items) + payload
            frames.append(FRAME_HEAD.pack(8 + len(body), 2, 0, how == "another session") + body)
        if how == "broken":
            frames.append(FRAME_HEAD.pack(8 + len(body) - 5, 2, 0, 0) + body)
    stream = b"".join(frames)
    seen = []
    for usual, joined in ((True, False), (True, True), (False, False)):
        server = open_server(setup + raw(Begin(None, 0, 2048, 2048), channel=1), joined_transfers=joined)
        for session in server.sessions:
            for link in session.links:
                link.accept(credit=100)
        events: list[Any] = []
        if usual:
            position = 0
            for piece in [*pieces, len(stream)]:
                events += server.receive_data(stream[position : position + piece])
                position += piece
        else:
            for at in range(len(stream)):
                server._shape = None
                events += server.receive_data(stream[at : at + 1])
        assert not any(isinstance(event, Transfer if joined else Transfers) for event in events)
        events = [single for event in events for single in singles(event)]
        seen.append(
            [(type(event), *(getattr(event, name, None) for name in FIELDS), event_link(event)) for event in events]
        )
    assert seen[0] == seen[1] == seen[2]


def singles(event: Any) -> list[Any]:
    if not isinstance(event, Transfers):
        return [event]
    return [
        Transfer(event.link, delivery_id, event.message_format, event.settled, payload)
        for delivery_id, payload in enumerate(event.payloads, event.first_id)
    ]


def test_deliveries_that_come_one_after_the_other_are_joined_where_that_is_asked_for() -> None:
    server = open_server(attach_two(), joined_transfers=True)
    for link in server.sessions[0].links:
        link.accept(credit=1000)
    run = [transfer(number, b"%d" % number) for number in range(600)]
    other = transfer(600, b"x", handle=1) + transfer(601, b"y", handle=1, settled=True)
    events = server.receive_data(b"".join(run) + other + transfer(602, b"z"))
    assert [(e.link.name, e.first_id, e.settled, len(e.payloads)) for e in events if isinstance(e, Transfers)] == [
        ("a", 0, False, 600),
        ("b", 600, False, 1),
        ("b", 601, True, 1),
        ("a", 602, False, 1),
    ]
    assert events[0].payloads == [b"%d" % number for number in range(600)]
    first, second = server.sessions[0].links
    assert (first.delivery_count, second.delivery_count) == (601, 2)
    assert (first.credit, second.credit) == (999, 998)  # the first was topped up when half of it was used


def attach_two() -> bytes:
    return BEGIN + attach(0, name="a") + attach(1, name="b")


FIELDS = ("delivery_id", "message_format", "settled", "payload")


def event_link(event: Any) -> str | None:
    return event.link.name if hasattr(event, "link") else None


@given(channel=unsigned(16), first=uints, last=uints)
def test_the_frame_of_an_accepted_disposition(channel: int, first: int, last: int) -> None:
    frame = accepted_frame(channel, first, last)
    size, words, kind, of_channel = FRAME_HEAD.unpack_from(frame)
    assert (size, words, kind, of_channel) == (len(frame), 2, 0, channel)
    performative, end = read_performative(frame[8:], DispositionFrame)
    assert performative == DispositionFrame(True, first, last, True, ACCEPTED)
    assert end == len(frame) - 8
