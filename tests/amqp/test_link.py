"""Attaching, refusing, credit, deliveries of one and of many frames, and detaching."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.pair import Pair, attach, credit, frames, open_server, raw, sent, transfer
from tidegate.amqp import (
    ACCEPTED,
    BATCH_FORMAT,
    AmqpError,
    AttachReceived,
    Closed,
    Connection,
    ConnectionSettings,
    Credit,
    Described,
    Detached,
    Drained,
    Event,
    Link,
    LinkAttached,
    Symbol,
    Transfer,
    TransferTooLarge,
    UsageError,
)
from tidegate.amqp.framing.performatives import Attach, Detach, DispositionFrame, End, Flow, TransferFrame


def payloads(events: list[Event]) -> list[bytes]:
    return [event.payload for event in events if isinstance(event, Transfer)]


def attached(server: Connection, *, sender: bool = True, granted: int = 0, **accept: Any) -> Link:
    """The server's end of a link whose peer, played by hand, sends (or receives)."""
    events = server.receive_data(attach(0, sender=sender))
    (link,) = [event.link for event in events if isinstance(event, AttachReceived)]
    link.accept(credit=granted, **accept)
    server.data_to_send()
    return link


# --- attaching and refusing -------------------------------------------------------------------------------------------


def test_what_a_receiver_asks_for_arrives() -> None:
    pair = Pair()
    pair.client.open()
    selector = Described(Symbol("apache.org:selector-filter:string"), "amqp.annotation.x-opt-offset > '5'")
    pair.client.begin().attach_receiver(
        "reader",
        "hub/ConsumerGroups/$Default/Partitions/0",
        filter={"apache.org:selector-filter:string": selector},
        properties={"com.microsoft:epoch": 7, "com.microsoft:receiver-name": "r"},
        desired_capabilities=["com.microsoft:enable-receiver-runtime-metric"],
        credit=300,
    )
    _, at_server = pair.exchange()
    attach_received = at_server[-1]
    assert isinstance(attach_received, AttachReceived)
    link = attach_received.link
    assert (link.name, link.role, link.is_attached) == ("reader", "sender", False)
    assert link.source is not None
    assert link.source.address == "hub/ConsumerGroups/$Default/Partitions/0"
    assert link.source.filter == {"apache.org:selector-filter:string": selector}
    assert link.properties == {"com.microsoft:epoch": 7, "com.microsoft:receiver-name": "r"}
    assert link.desired_capabilities == ("com.microsoft:enable-receiver-runtime-metric",)
    link.accept(properties={"com.microsoft:producer-id": 1}, offered_capabilities=["c"])
    at_client, at_server = pair.exchange()
    assert isinstance(at_client[0], LinkAttached)
    assert at_client[0].link.properties == {"com.microsoft:producer-id": 1}
    assert at_client[0].link.offered_capabilities == ("c",)
    assert at_server == [Credit(link, 300)]


def test_an_accepted_publisher_gets_a_size_and_credit() -> None:
    server = open_server()
    (event,) = server.receive_data(attach(4))
    assert isinstance(event, AttachReceived)
    event.link.accept(credit=50, max_message_size=1000)
    answer, flow = [performative for _, performative, _ in frames(server.data_to_send())]
    assert isinstance(answer, Attach)
    assert (answer.role, answer.max_message_size, answer.initial_delivery_count) == (True, 1000, None)
    assert answer.source is not None
    assert answer.target is not None
    assert isinstance(flow, Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (answer.handle, 0, 50)


@pytest.mark.parametrize("sender", [True, False])
def test_a_refusal_is_an_attach_without_a_terminus_then_a_detach_and_no_credit(sender: bool) -> None:
    server = open_server()
    (event,) = server.receive_data(attach(0, sender=sender))
    assert isinstance(event, AttachReceived)
    event.link.refuse("amqp:not-found", "no such hub")
    answer, detach = [performative for _, performative, _ in frames(server.data_to_send())]
    assert isinstance(answer, Attach)
    assert (answer.target if sender else answer.source) is None
    assert detach == Detach(answer.handle, True, AmqpError("amqp:not-found", "no such hub"))
    assert server.receive_data(transfer(0) if sender else credit(10)) == []
    assert server.receive_data(raw(Detach(0, True))) == []
    assert server.data_to_send() == b""


def test_a_refused_client_hears_of_the_detach_alone() -> None:
    pair = Pair()
    pair.client.open()
    asked = pair.client.begin().attach_sender("publisher", "nothing")
    _, at_server = pair.exchange()
    assert isinstance(at_server[-1], AttachReceived)
    at_server[-1].link.refuse("amqp:not-found", "no such hub")
    at_client, at_server = pair.exchange()
    assert at_client == [Detached(asked, AmqpError("amqp:not-found", "no such hub"), True)]
    assert at_server == []
    assert pair.client.sessions[0].links == pair.server.sessions[0].links == []
    pair.linked()


def test_a_handle_of_a_refused_link_can_be_taken_again_without_a_detach() -> None:
    """Python's client never answers the detach of a refusal."""
    server = open_server()
    for name in ("a", "b", "c"):
        (event,) = server.receive_data(attach(0, name=name))
        assert isinstance(event, AttachReceived)
        event.link.refuse("amqp:not-found", "no")
    link = attached(server, granted=1)
    assert payloads(server.receive_data(transfer(0))) == [b"m"]
    assert server.sessions[0].links == [link]


def test_a_handle_in_use_ends_the_session() -> None:
    server = open_server()
    link = attached(server)
    events = server.receive_data(attach(0, name="other"))
    assert isinstance(events[0], Detached)
    assert events[0].link is link
    (end,) = sent(server, End)
    assert end.error.condition == "amqp:session:handle-in-use"


def test_a_transfer_before_the_link_is_accepted_refuses_it() -> None:
    server = open_server()
    event, detached = server.receive_data(attach(0) + transfer(0))
    assert isinstance(event, AttachReceived)
    assert isinstance(detached, Detached)
    event.link.accept()
    assert [type(performative) for _, performative, _ in frames(server.data_to_send())] == [Attach, Detach]


def test_a_link_its_peer_gave_up_before_an_answer_is_detached_once() -> None:
    server = open_server()
    first, second = server.receive_data(attach(0) + raw(Detach(0, True)))
    assert isinstance(first, AttachReceived)
    assert second == Detached(first.link, None, True)
    first.link.accept(credit=10)
    first.link.refuse("amqp:not-found", "no")
    first.link.detach()
    assert [type(performative) for _, performative, _ in frames(server.data_to_send())] == [Attach, Detach]


def test_a_client_may_detach_before_the_answer_and_ask_again() -> None:
    pair = Pair()
    pair.client.open()
    link = pair.client.begin().attach_sender("publisher", "hub")
    link.detach()
    at_client, at_server = pair.exchange()
    assert [type(event).__name__ for event in at_server[-2:]] == ["AttachReceived", "Detached"]
    assert not [event for event in at_client if isinstance(event, Detached | LinkAttached)]
    ours, _ = pair.linked()
    assert ours.is_attached


# --- credit -----------------------------------------------------------------------------------------------------------


def test_granted_credit_is_topped_up_at_half() -> None:
    server = open_server()
    attached(server, granted=10)
    flows: list[Flow] = []
    for number in range(10):
        server.receive_data(transfer(number))
        flows += sent(server, Flow)
    assert [(flow.delivery_count, flow.link_credit) for flow in flows] == [(5, 10), (10, 10)]


def test_credit_by_hand_is_not_topped_up() -> None:
    server = open_server()
    link = attached(server, granted=10)
    link.flow(2)
    server.data_to_send()
    server.receive_data(transfer(0) + transfer(1))
    assert link.credit == 0
    assert sent(server, Flow) == []


def test_deliveries_beyond_the_credit_are_taken() -> None:
    """Python's client sends without it."""
    server = open_server()
    link = attached(server)
    assert payloads(server.receive_data(transfer(0) + transfer(1))) == [b"m", b"m"]
    assert link.credit == 0


def test_no_more_is_sent_than_credit_allows() -> None:
    server = open_server()
    link = attached(server, sender=False)
    assert link.sendable == 0
    assert len(link.send_deliveries([b"x"])) == 0
    assert server.receive_data(credit(3)) == [Credit(link, 3)]
    assert len(link.send_deliveries([b"a", b"b"])) == 2
    assert len(link.send_deliveries([b"c", b"d"])) == 1
    assert len(sent(server, TransferFrame)) == 3
    assert server.receive_data(credit(3, received=3, count=2)) == [Credit(link, 2)]


def test_credit_that_crosses_deliveries_on_the_way_is_counted_once() -> None:
    server = open_server()
    link = attached(server, sender=False)
    server.receive_data(credit(5))
    link.send_deliveries([b"a"] * 4)
    server.receive_data(credit(5, received=2, count=2))
    assert link.credit == 3


def test_credit_may_come_before_the_link_is_accepted() -> None:
    server = open_server()
    events = server.receive_data(attach(0, sender=False) + credit(7))
    assert isinstance(events[0], AttachReceived)
    link = events[0].link
    assert events[1] == Credit(link, 7)
    assert link.sendable == 0
    link.accept()
    assert link.sendable == 7


def test_drain_is_answered_when_the_owner_has_no_more() -> None:
    pair = Pair()
    ours, theirs = pair.linked("receiver", credit=10)
    ours.flow(10, drain=True)
    _, at_server = pair.exchange()
    assert at_server == [Credit(theirs, 10, True)]
    theirs.send_deliveries([b"last"])
    theirs.drained()
    at_client, _ = pair.exchange()
    assert payloads(at_client) == [b"last"]
    assert at_client[-1] == Drained(ours)
    assert (ours.credit, theirs.credit) == (0, 0)
    assert ours.delivery_count == theirs.delivery_count == 10
    ours.flow(1)
    pair.exchange()
    assert theirs.credit == 1


def test_drain_ends_with_the_last_credit_too() -> None:
    pair = Pair()
    ours, theirs = pair.linked("receiver", credit=10)
    ours.flow(1, drain=True)
    pair.exchange()
    theirs.send_deliveries([b"last"])
    at_client, _ = pair.exchange()
    assert at_client[-1] == Drained(ours)


def test_a_flow_that_asks_for_an_echo_gets_one() -> None:
    server = open_server()
    link = attached(server, granted=5)
    server.receive_data(raw(Flow(0, 9, 0, 9, 0, 0, 0, echo=True)))
    (flow,) = sent(server, Flow)
    assert (flow.handle, flow.link_credit, flow.echo) == (link.handle, 5, False)


# --- deliveries -------------------------------------------------------------------------------------------------------


def test_a_delivery_brings_its_format_and_whether_it_is_settled() -> None:
    pair = Pair()
    ours, theirs = pair.linked()
    ours.send_deliveries([b"a"], message_format=BATCH_FORMAT, settled=False)
    ours.send_deliveries([b"b", b""])
    _, (first, second, third) = pair.exchange()
    assert first == Transfer(theirs, 0, BATCH_FORMAT, False, b"a")
    assert second == Transfer(theirs, 1, 0, True, b"b")
    assert third == Transfer(theirs, 2, 0, True, b"")


def test_unsettled_deliveries_have_tags_of_their_own_and_settled_ones_the_same() -> None:
    server = open_server()
    link = attached(server, sender=False)
    server.receive_data(credit(10))
    link.send_deliveries([b"a"] * 3, settled=False)
    link.send_deliveries([b"a"] * 3, settled=True)
    tags = [frame.delivery_tag for frame in sent(server, TransferFrame)]
    assert len(set(tags[:3])) == 3
    assert len(set(tags[3:])) == 1


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=5), st.integers(512, 3000))
def test_deliveries_of_any_size_come_whole_through_frames_of_any_size(sizes: list[int], frame_size: int) -> None:
    pair = Pair(
        Connection("client", "c", ConnectionSettings(max_frame_size=frame_size)),
        Connection("server", "s", ConnectionSettings(max_frame_size=frame_size)),
    )
    messages = [bytes([index]) * size for index, size in enumerate(sizes)]
    ours, theirs = pair.linked("receiver")
    theirs.send_deliveries(messages)
    data = pair.server.data_to_send()
    assert all(len(payload) <= frame_size for _, _, payload in frames(data))
    assert payloads(pair.client.receive_data(data)) == messages
    publisher, _ = pair.linked("sender")
    publisher.send_deliveries(messages)
    _, at_server = pair.exchange()
    assert payloads(at_server) == messages
    assert ours.credit == 100 - len(messages)


@pytest.mark.parametrize("asked", [0, 1, 2])
@pytest.mark.parametrize("said", [None, 1])
def test_a_sender_says_whether_it_waits_for_outcomes_whatever_was_asked(asked: int, said: int | None) -> None:
    server = open_server()
    events = server.receive_data(attach(0, sender=False, snd_settle_mode=asked))
    (link,) = [event.link for event in events if isinstance(event, AttachReceived)]
    link.accept(snd_settle_mode=said)
    (answer,) = sent(server, Attach)
    assert answer.snd_settle_mode == link.snd_settle_mode == (asked if said is None else said)


def test_deliveries_of_different_links_may_be_interleaved() -> None:
    server = open_server()
    server.receive_data(attach(0, name="a") + attach(1, name="b"))
    for link in server.sessions[0].links:
        link.accept(credit=10)
    events = server.receive_data(
        transfer(0, b"a1", 0, more=True)
        + transfer(1, b"b1", 1, more=True)
        + transfer(None, b"a2", 0, more=True)
        + transfer(1, b"b2", 1)
        + transfer(0, b"a3", 0, settled=True)
    )
    assert [(event.payload, event.settled) for event in events if isinstance(event, Transfer)] == [
        (b"b1b2", False),
        (b"a1a2a3", True),
    ]


def test_an_aborted_delivery_leaves_nothing() -> None:
    server = open_server()
    link = attached(server, granted=10)
    events = server.receive_data(
        transfer(0, b"lost", more=True) + transfer(0, b"", aborted=True) + transfer(1, b"kept")
    )
    assert payloads(events) == [b"kept"]
    assert link.delivery_count == 2


@pytest.mark.parametrize("pieces", [[b"x" * 11], [b"x" * 6, b"x" * 5], [b"x" * 11, b"y" * 50, b""]])
def test_a_delivery_above_the_links_size_is_reported_without_its_bytes(pieces: list[bytes]) -> None:
    server = open_server()
    link = attached(server, granted=10, max_message_size=10)
    data = b"".join(transfer(0, piece, more=index < len(pieces) - 1) for index, piece in enumerate(pieces))
    assert server.receive_data(data) == [TransferTooLarge(link, 0, False)]
    assert payloads(server.receive_data(transfer(1, b"x" * 10))) == [b"x" * 10]


def test_deliveries_that_never_end_are_limited_over_all_links() -> None:
    server = open_server(max_partial_bytes=100_000)
    attached(server, granted=10, max_message_size=0)
    for _ in range(2):
        assert server.receive_data(transfer(0, bytes(50_000), more=True)) == []
    events = server.receive_data(transfer(0, bytes(50_000), more=True))
    closed = events[-1]
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == "amqp:resource-limit-exceeded"


def test_pieces_of_a_delivery_are_let_go_with_their_link() -> None:
    server = open_server(max_partial_bytes=100_000)
    for _ in range(5):
        attached(server, granted=10, max_message_size=0)
        assert server.receive_data(transfer(0, bytes(60_000), more=True)) == []
        server.receive_data(raw(Detach(0, True)))
    assert not server.closed


@pytest.mark.parametrize(
    "data",
    [transfer(None), transfer(0, more=True) + transfer(1)],
    ids=["a delivery without an id", "a delivery inside another"],
)
def test_deliveries_out_of_order_end_the_connection(data: bytes) -> None:
    server = open_server()
    attached(server, granted=10)
    assert isinstance(server.receive_data(data)[-1], Closed)


def test_a_receiver_that_sends_ends_the_connection() -> None:
    server = open_server()
    attached(server, sender=False)
    assert isinstance(server.receive_data(transfer(0))[-1], Closed)


# --- detaching --------------------------------------------------------------------------------------------------------


def test_a_detach_is_answered_and_told_once() -> None:
    pair = Pair()
    ours, theirs = pair.linked()
    theirs.detach("amqp:link:stolen", "a higher epoch")
    at_client, at_server = pair.exchange()
    assert at_client == [Detached(ours, AmqpError("amqp:link:stolen", "a higher epoch"), True)]
    assert at_server == []
    assert pair.client.sessions[0].links == pair.server.sessions[0].links == []


def test_transfers_on_a_handle_we_detached_are_ignored() -> None:
    server = open_server()
    link = attached(server, granted=10)
    link.detach("amqp:link:detach-forced", "bye")
    assert server.receive_data(transfer(0) + transfer(1, more=True) + transfer(1)) == []
    assert server.receive_data(raw(Detach(0, True)) + transfer(2)) == []
    assert not server.closed
    assert not sent(server, End)


def test_dispositions_leave_before_the_detach() -> None:
    server = open_server()
    link = attached(server, granted=10)
    server.receive_data(transfer(0))
    link.settle(0, 0, ACCEPTED)
    link.detach()
    assert [type(performative) for _, performative, _ in frames(server.data_to_send())] == [DispositionFrame, Detach]


def test_calls_on_a_link_that_is_gone_do_nothing() -> None:
    pair = Pair()
    ours, theirs = pair.linked()
    ours.detach()
    pair.exchange()
    assert len(ours.send_deliveries([b"x"])) == 0
    assert ours.sendable == 0
    ours.drained()
    ours.detach()
    theirs.settle(0, 0, ACCEPTED)
    theirs.flow(10)
    theirs.detach("amqp:internal-error")
    assert pair.client.data_to_send() == pair.server.data_to_send() == b""


def test_calls_for_the_other_role_are_mistakes() -> None:
    ours, theirs = Pair().linked()
    with pytest.raises(UsageError):
        ours.flow(1)
    with pytest.raises(UsageError):
        ours.settle(0, 0, ACCEPTED)
    with pytest.raises(UsageError):
        theirs.send_deliveries([b"x"])
    with pytest.raises(UsageError):
        theirs.drained()
