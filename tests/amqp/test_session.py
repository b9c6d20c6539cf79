"""Windows, delivery ids, dispositions, and the end of a session."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.pair import BEGIN, Pair, attach, credit, frames, open_server, raw, sent, transfer
from tests.amqp.test_link import attached, payloads
from tidegate.amqp import (
    ACCEPTED,
    RELEASED,
    AmqpError,
    AttachReceived,
    Connection,
    ConnectionSettings,
    Credit,
    Detached,
    Disposition,
    Ended,
    Link,
    Rejected,
    SessionBegun,
    UsageError,
)
from tidegate.amqp.endpoints.session import MAX_UNSETTLED
from tidegate.amqp.framing.performatives import Begin, Detach, DispositionFrame, End, Flow, Received, TransferFrame

LAST_ID = 0xFFFFFFFF

# --- the peer's window ------------------------------------------------------------------------------------------------


def sending(window: int, *, granted: int = 100_000, frame_size: int = 65536) -> tuple[Connection, Link]:
    """A server with a link to a peer, played by hand, that has this window."""
    server = open_server(raw(Begin(None, 0, window, 2048)))
    server.outgoing.max_frame_size = frame_size
    link = attached(server, sender=False)
    server.receive_data(credit(granted, window=window))
    return server, link


def test_no_more_frames_are_sent_than_the_window_takes() -> None:
    """The JavaScript client's window is 2,048."""
    server, link = sending(2048)
    assert link.sendable == 2048
    assert len(link.send_deliveries([b"x"] * 5000)) == 2048
    assert len(sent(server, TransferFrame)) == 2048
    assert link.sendable == 0
    assert server.receive_data(raw(Flow(2048, 2048, 0, 2048))) == [Credit(link, 100_000 - 2048)]
    assert len(link.send_deliveries([b"x"] * 5000)) == 2048


@pytest.mark.parametrize("window", [2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1])
def test_the_largest_windows_and_credits_are_no_smaller_than_others(window: int) -> None:
    """The client for Rust gives a window of 2^32 - 1."""
    server, link = sending(window, granted=window)
    assert len(link.send_deliveries([b"x"] * 5000)) == 5000
    server.receive_data(credit(window, window=window, received=4000, count=4000))
    assert link.sendable >= 2**31 - 1001
    assert len(link.send_deliveries([b"x"] * 5000)) == 5000


def test_frames_the_peer_has_not_seen_count_against_its_window() -> None:
    server, link = sending(10)
    link.send_deliveries([b"x"] * 10)
    server.receive_data(raw(Flow(4, 10, 0, 2048)))
    assert link.sendable == 4


def test_a_delivery_cut_off_by_the_window_goes_on_when_it_opens_and_nothing_comes_between() -> None:
    server, link = sending(3, frame_size=512)
    assert len(link.send_deliveries([b"x" * 2000, b"next"])) == 1
    assert [frame.more for frame in sent(server, TransferFrame)] == [True, True, True]
    assert link.sendable == 0
    assert len(link.send_deliveries([b"next"])) == 0
    assert server.receive_data(raw(Flow(3, 1, 0, 2048))) == []
    assert [frame.more for frame in sent(server, TransferFrame)] == [True]
    assert server.receive_data(raw(Flow(4, 3, 0, 2048))) == [Credit(link, 99_999)]
    assert [frame.more for frame in sent(server, TransferFrame)] == [False]


@st.composite
def grants(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Steps of a peer: how much of the window it opens, how much credit it gives, how many deliveries we try."""
    step = st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, 5))
    return draw(st.lists(step, min_size=1, max_size=12))


@given(grants(), st.lists(st.integers(0, 1500), min_size=60, max_size=60))
def test_a_model_peer_never_gets_more_than_it_granted_and_at_last_gets_all(
    steps: list[tuple[int, int, int]], sizes: list[int]
) -> None:
    server, link = sending(0, granted=0, frame_size=512)
    waiting = [bytes([index]) * size for index, size in enumerate(sizes)]
    expected: list[bytes] = []
    received: list[bytes] = []
    partial: list[bytes] = []
    seen = deliveries = 0
    for window, more_credit, attempt in [*steps, *[(1000, 1000, 5)] * 60]:
        server.receive_data(raw(Flow(seen, window, 0, 2048, 0, deliveries, more_credit)))
        arrived = frames(server.data_to_send())
        taken = len(link.send_deliveries(waiting[:attempt]))
        expected += waiting[:taken]
        del waiting[:taken]
        arrived += frames(server.data_to_send())
        assert len(arrived) <= window
        started = deliveries
        for _, performative, payload in arrived:
            assert isinstance(performative, TransferFrame)
            partial.append(payload)
            seen += 1
            if not performative.more:
                received.append(b"".join(partial))
                partial.clear()
                deliveries += 1
        assert deliveries - started <= more_credit + 1  # one may have been under way before
    assert received == expected
    assert len(received) == len(sizes)


# --- our window -------------------------------------------------------------------------------------------------------


def test_our_window_is_opened_again_at_half() -> None:
    server = open_server(incoming_window=10)
    attached(server, granted=1000)
    flows: list[Flow] = []
    for number in range(20):
        server.receive_data(transfer(number))
        flows += sent(server, Flow)
    assert [(flow.next_incoming_id, flow.incoming_window) for flow in flows] == [(5, 10), (10, 10), (15, 10), (20, 10)]


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 2000)), max_size=10), st.integers(1, 30))
def test_two_of_us_never_stall_however_small_window_and_credit_are(runs: list[tuple[int, int]], window: int) -> None:
    pair = Pair(
        Connection("client", "c"),
        Connection("server", "s", ConnectionSettings(max_frame_size=512, incoming_window=window)),
    )
    ours, _ = pair.linked(credit=7)
    waiting = [bytes([count % 256]) * size for count, size in runs for _ in range(count % 20)]
    expected, received = list(waiting), []
    for _ in range(2000):
        if not waiting:
            break
        del waiting[: len(ours.send_deliveries(waiting))]
        received += payloads(pair.exchange()[1])
    assert received + payloads(pair.exchange()[1]) == expected


# --- dispositions -----------------------------------------------------------------------------------------------------


def dispositions(server: Connection) -> list[tuple[int, int | None, Any]]:
    found = sent(server, DispositionFrame)
    assert all(frame.role and frame.settled for frame in found)
    return [(frame.first, frame.last, frame.state) for frame in found]


def test_what_is_settled_before_a_send_is_one_frame_in_whatever_order() -> None:
    server = open_server()
    link = attached(server)
    for number in (5, 3, 4, 0, 1, 2, 9, 8, 7, 6):
        link.settle(number, number, ACCEPTED)
    assert dispositions(server) == [(0, 9, ACCEPTED)]
    assert server.data_to_send() == b""


def test_gaps_and_states_are_kept_apart() -> None:
    server = open_server()
    link = attached(server)
    refused = Rejected("amqp:link:message-size-exceeded", "too large")
    link.settle(0, 3, ACCEPTED)
    link.settle(4, 4, refused)
    link.settle(5, 5, Rejected("amqp:link:message-size-exceeded", "too large"))
    link.settle(6, 6, RELEASED)
    link.settle(7, 8, ACCEPTED)
    link.settle(10, 10, ACCEPTED)
    assert sorted(dispositions(server), key=lambda found: found[0]) == [
        (0, 3, ACCEPTED),
        (4, 5, refused),
        (6, 6, RELEASED),
        (7, 8, ACCEPTED),
        (10, 10, ACCEPTED),
    ]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), max_size=20))
def test_every_settled_delivery_is_in_exactly_one_range(settled: list[tuple[int, int]]) -> None:
    server = open_server()
    link = attached(server)
    for first, length in settled:
        link.settle(first, first + length, ACCEPTED)
    covered = [number for first, last, _ in dispositions(server) for number in range(first, (last or 0) + 1)]
    assert covered == sorted({number for first, length in settled for number in range(first, first + length + 1)})


def unsettled(pair: Pair, count: int = 10) -> tuple[Link, Link]:
    ours, theirs = pair.linked()
    ours.send_deliveries([b"x"] * count, settled=False)
    pair.exchange()
    return ours, theirs


def test_a_sender_hears_what_became_of_its_deliveries() -> None:
    pair = Pair()
    ours, theirs = unsettled(pair)
    refused = Rejected("com.microsoft:server-busy", "later")
    theirs.settle(0, 4, ACCEPTED)
    theirs.settle(5, 5, refused)
    theirs.settle(8, 9, ACCEPTED)
    at_client, _ = pair.exchange()
    assert at_client == [
        Disposition(ours, 0, 4, True, ACCEPTED),
        Disposition(ours, 8, 9, True, ACCEPTED),
        Disposition(ours, 5, 5, True, refused),
    ]
    theirs.settle(0, 9, ACCEPTED)
    at_client, _ = pair.exchange()
    assert at_client == [Disposition(ours, 6, 7, True, ACCEPTED)]


def test_one_disposition_may_be_for_several_links() -> None:
    pair = Pair()
    first, _ = pair.linked()
    second, theirs = pair.linked()
    for link in (first, second, first):
        link.send_deliveries([b"x"] * 2, settled=False)
    pair.exchange()
    theirs.settle(0, 5, ACCEPTED)
    at_client, _ = pair.exchange()
    assert at_client == [
        Disposition(first, 0, 1, True, ACCEPTED),
        Disposition(second, 2, 3, True, ACCEPTED),
        Disposition(first, 4, 5, True, ACCEPTED),
    ]


def test_a_state_not_settled_is_settled_by_us() -> None:
    server = open_server()
    link = attached(server, sender=False)
    server.receive_data(credit(10))
    link.send_deliveries([b"x"], settled=False)
    server.data_to_send()
    events = server.receive_data(raw(DispositionFrame(True, 0, None, False, ACCEPTED)))
    assert events == [Disposition(link, 0, 0, False, ACCEPTED)]
    assert sent(server, DispositionFrame) == [DispositionFrame(False, 0, 0, True, ACCEPTED)]
    assert server.receive_data(raw(DispositionFrame(True, 0, 0, True, ACCEPTED))) == []


@pytest.mark.parametrize(("first", "last"), [(0, LAST_ID), (0, 2**31), (100, 200), (5, 4), (LAST_ID, 3)])
def test_a_range_of_ids_costs_no_more_than_what_is_unsettled(first: int, last: int) -> None:
    server = open_server()
    link = attached(server, sender=False)
    server.receive_data(credit(10))
    link.send_deliveries([b"x"] * 3, settled=False)
    server.receive_data(raw(DispositionFrame(True, first, last, True, ACCEPTED)))
    assert not server.closed


def test_what_a_sender_says_of_its_own_deliveries_needs_no_answer() -> None:
    server = open_server()
    attached(server, granted=10)
    server.receive_data(transfer(0))
    assert server.receive_data(raw(DispositionFrame(False, 0, 0, True))) == []
    assert server.data_to_send() == b""


def test_unsettled_deliveries_are_limited_and_their_settling_makes_room() -> None:
    server, link = sending(1 << 20, granted=1 << 20)
    assert len(link.send_deliveries([b""] * (MAX_UNSETTLED + 5), settled=False)) == MAX_UNSETTLED
    assert len(link.send_deliveries([b""], settled=False)) == 0
    assert len(link.send_deliveries([b""], settled=True)) == 1
    events = server.receive_data(raw(DispositionFrame(True, 0, 9, True, ACCEPTED)))
    assert events[1:] == [Credit(link, link.credit)]
    assert len(link.send_deliveries([b""] * 11, settled=False)) == 10


def test_deliveries_that_are_not_remembered_are_unlimited_and_settled_all_the_same() -> None:
    server, link = sending(1 << 20, granted=1 << 20)
    assert len(link.send_deliveries([b""] * (MAX_UNSETTLED + 5), settled=False, remembered=False)) == MAX_UNSETTLED + 5
    server.data_to_send()
    assert server.receive_data(raw(DispositionFrame(True, 0, MAX_UNSETTLED, True, ACCEPTED))) == []
    assert server.receive_data(raw(DispositionFrame(True, 3, 9, False, Received(0, 0)))) == []
    assert server.data_to_send() == b""
    assert server.receive_data(raw(DispositionFrame(True, 3, 9, False, RELEASED))) == []
    assert sent(server, DispositionFrame) == [DispositionFrame(False, 3, 9, True, RELEASED)]


def test_the_tags_of_unsettled_deliveries_differ() -> None:
    server, link = sending(1000)
    link.send_deliveries([b"x"] * 300, settled=False, remembered=False)
    assert len({frame.delivery_tag for frame in sent(server, TransferFrame)}) == 300


def test_ids_wrap() -> None:
    pair = Pair()
    ours, theirs = pair.linked()
    for session in (ours.session, theirs.session):
        session.next_delivery_id = session.next_outgoing_id = session.next_incoming_id = LAST_ID - 1
    ours.delivery_count = theirs.delivery_count = LAST_ID - 1
    pair.server.sessions[0].send_flow()
    pair.exchange()
    for _ in range(2):
        ours.send_deliveries([b"x"] * 2, settled=False)
        pair.exchange()
    for number in (LAST_ID - 1, LAST_ID, 0, 1):
        theirs.settle(number, number, ACCEPTED)
    at_client, _ = pair.exchange()
    told = [(event.first, event.last) for event in at_client if isinstance(event, Disposition)]
    assert sorted(told) == [(0, 1), (LAST_ID - 1, LAST_ID)]
    assert ours.delivery_count == theirs.delivery_count == 2
    assert ours.session.next_outgoing_id == 2


# --- handles and the end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [transfer(0), credit(1), raw(Detach(0, True))], ids=["transfer", "flow", "detach"])
def test_a_handle_that_never_was_ends_the_session(data: bytes) -> None:
    server = open_server()
    (ended,) = server.receive_data(data)
    assert isinstance(ended, Ended)
    (end,) = sent(server, End)
    assert end.error.condition == "amqp:session:unattached-handle"
    assert server.receive_data(data + attach(0)) == []
    assert server.receive_data(raw(End())) == []
    assert isinstance(server.receive_data(BEGIN)[0], SessionBegun)


def test_an_end_takes_the_links_along_once() -> None:
    pair = Pair()
    pair.linked("sender")
    pair.linked("receiver")
    pair.client.sessions[0].end("amqp:internal-error", "why")
    at_client, at_server = pair.exchange()
    error = AmqpError("amqp:internal-error", "why")
    assert [type(event) for event in at_server] == [Detached, Detached, Ended]
    assert [event.error for event in at_server if isinstance(event, Detached | Ended)] == [error] * 3
    assert at_client == []
    assert pair.client.sessions == pair.server.sessions == []


def test_a_session_that_was_ended_takes_no_more_links() -> None:
    pair = Pair()
    pair.client.open()
    session = pair.client.begin()
    session.end()
    with pytest.raises(UsageError):
        session.attach_sender("a", "hub")
    pair.exchange()
    assert pair.client.sessions == []


def test_names_and_handles_asked_for_are_limited() -> None:
    client = Connection("client", "c", ConnectionSettings(handle_max=1))
    client.open()
    session = client.begin()
    session.attach_sender("a", "hub")
    with pytest.raises(UsageError):
        session.attach_sender("a", "hub")
    session.attach_receiver("a", "hub")
    with pytest.raises(UsageError):
        session.attach_sender("b", "hub")


def test_link_names_repeat_over_sessions_and_roles() -> None:
    server = open_server(BEGIN + raw(Begin(None, 0, 9, 9), channel=1))
    events = server.receive_data(attach(0, name="n") + attach(1, name="n", sender=False) + attach(2, name="n"))
    assert len([event for event in events if isinstance(event, AttachReceived)]) == 3
