"""Whole conversations: in any pieces, and with a peer that says anything at all."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.pair import BEGIN, OPEN, SASL_START, Pair, attach, credit, open_server, raw, transfer
from tests.amqp.test_link import payloads
from tests.amqp.test_performatives import composites
from tidegate.amqp import (
    ACCEPTED,
    AttachReceived,
    Closed,
    Connection,
    Credit,
    Detached,
    Disposition,
    Ended,
    Event,
    Link,
    LinkAttached,
    Rejected,
    SaslInit,
    Session,
    SessionBegun,
    Transfer,
    Transfers,
    TransferTooLarge,
)
from tidegate.amqp.framing.performatives import Begin, Detach, DispositionFrame, End, Flow


class Owner:
    """Answers a connection's events as a server would, and checks that they keep to their promises: nothing follows a
    Closed, every session and every link ends once, unless its owner ended it, and nothing is kept after that."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.links: Counter[int] = Counter()
        self.known: list[Link] = []
        self.sessions: list[Session] = []
        self.ended: Counter[int] = Counter()
        self.closed = 0

    def on_events(self, events: list[Event]) -> None:
        for event in events:
            assert not self.closed, "nothing follows a Closed"
            if isinstance(event, SaslInit):
                self.on_events(self.connection.sasl_outcome(True))
            elif isinstance(event, SessionBegun):
                self.sessions.append(event.session)
            elif isinstance(event, AttachReceived):
                self.known.append(event.link)
                if event.link.name.endswith("refused"):
                    self.links[id(event.link)] += event.link in event.link.session.links  # or its end is reported
                    event.link.refuse("amqp:not-found", "no")
                else:
                    event.link.accept(credit=10 if event.link.role == "receiver" else 0, max_message_size=5000)
            elif isinstance(event, Transfer | TransferTooLarge):
                event.link.settle(event.delivery_id, event.delivery_id, ACCEPTED)
            elif isinstance(event, Transfers):
                event.link.settle(event.first_id, event.first_id + len(event.payloads) - 1, ACCEPTED)
            elif isinstance(event, Credit):
                event.link.send_deliveries([b"x" * 700, b""], settled=False)
                if event.drain:
                    event.link.drained()
            elif isinstance(event, Detached):
                self.links[id(event.link)] += 1
            elif isinstance(event, Ended):
                self.ended[id(event.session)] += 1
            elif isinstance(event, Closed):
                self.closed += 1

    def receive(self, data: bytes) -> bytes:
        self.on_events(self.connection.receive_data(data))
        waiting = self.connection._buffer.waiting
        assert waiting <= self.connection.max_frame_size + len(data)
        return self.connection.data_to_send()

    def finish(self) -> None:
        self.on_events(self.connection.receive_eof())
        self.connection.data_to_send()
        assert self.closed == 1
        assert all(self.links[id(link)] == 1 for link in self.known), "each link ends once"
        assert all(self.ended[id(session)] == 1 for session in self.sessions), "each session ends once"
        assert self.connection.limits.partial_bytes == 0
        assert self.connection.limits.links == 0


def pieces(seed: int, data: bytes) -> list[bytes]:
    cuts = random.Random(seed)
    found = []
    while data:
        size = cuts.choice([1, 2, 3, 7, 8, 9, 100, 5000])
        found.append(data[:size])
        data = data[size:]
    return found


@given(st.integers(0, 2**32))
def test_a_conversation_is_the_same_in_any_pieces(seed: int) -> None:
    pair = Pair(cut=lambda data: pieces(seed, data), max_frame_size=2000)
    publisher, hub_receiver = pair.linked("sender", credit=10)
    reader, hub_sender = pair.linked("receiver", credit=10)
    messages = [bytes([index]) * size for index, size in enumerate((0, 1, 254, 255, 256, 1999, 2000, 6000))]
    publisher.send_deliveries(messages, settled=False)
    hub_sender.send_deliveries(messages)
    at_client, at_server = pair.exchange()
    assert payloads(at_client) == payloads(at_server) == messages
    for event in at_server:
        if isinstance(event, Transfer):
            state = ACCEPTED if event.delivery_id % 3 else Rejected("com.microsoft:server-busy", "later")
            hub_receiver.settle(event.delivery_id, event.delivery_id, state)
    at_client, _ = pair.exchange()
    outcomes: dict[int, Any] = {}
    for event in at_client:
        assert isinstance(event, Disposition)
        outcomes |= dict.fromkeys(range(event.first, event.last + 1), event.state)
    assert [outcomes[number] == ACCEPTED for number in range(8)] == [number % 3 != 0 for number in range(8)]
    reader.detach()
    pair.client.sessions[0].end()
    pair.client.close()
    at_client, at_server = pair.exchange()
    assert [type(event) for event in at_server] == [Detached, Detached, Ended, Closed]
    assert [type(event) for event in at_client] == [Closed]


ATTACHING = (
    SASL_START
    + OPEN
    + BEGIN
    + attach(0, name="publisher")
    + attach(1, name="reader", sender=False)
    + attach(2, name="refused")
)
PUBLISHING = (
    credit(5, handle=1)
    + transfer(0, b"a" * 300, more=True)
    + transfer(0, b"b" * 300)
    + transfer(1, b"c", settled=True)
    + transfer(2, b"d" * 5001)
    + raw(DispositionFrame(True, 0, 9, True, ACCEPTED))
    + raw(Flow(2, 100, 3, 100, 1, 0, 9, drain=True, echo=True))
    + raw(Begin(None, 0, 10, 10), channel=1)
    + raw(End(), channel=1)
    + raw(Detach(0, True))
)


def test_the_conversation_that_is_fuzzed_goes_well() -> None:
    owner = Owner(Connection("server", "server"))
    owner.receive(ATTACHING)
    owner.receive(PUBLISHING)
    assert not owner.closed
    assert [owner.links[id(link)] for link in owner.known] == [1, 0, 1]
    owner.finish()


@given(st.binary(max_size=300), st.integers(0, 3))
def test_any_bytes_at_any_stage_are_borne(data: bytes, stage: int) -> None:
    owner = Owner(Connection("server", "server"))
    owner.receive([b"", SASL_START, SASL_START + OPEN, SASL_START + OPEN + BEGIN + attach(0)][stage])
    for piece in pieces(len(data), data):
        owner.receive(piece)
    owner.finish()


@given(st.data())
def test_a_mutated_conversation_is_borne(data: st.DataObject) -> None:
    mutated = bytearray(ATTACHING + PUBLISHING)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(mutated) - 1))
        match data.draw(st.sampled_from(["change", "cut", "repeat"])):
            case "change":
                mutated[position] = data.draw(st.integers(0, 255))
            case "cut":
                del mutated[position : position + data.draw(st.integers(1, 8))]
            case _:
                mutated[position:position] = mutated[position : position + data.draw(st.integers(1, 60))]
        if not mutated:
            return
    owner = Owner(Connection("server", "server"))
    for piece in pieces(data.draw(st.integers(0, 99)), bytes(mutated)):
        owner.receive(piece)
    owner.finish()


@given(st.lists(st.tuples(composites, st.sampled_from([0, 0, 0, 1, 2]), st.binary(max_size=20)), max_size=12))
def test_any_performatives_in_any_order_are_borne(said: list[tuple[object, int, bytes]]) -> None:
    owner = Owner(open_server(BEGIN))
    owner.sessions += owner.connection.sessions
    for performative, channel, payload in said:
        owner.receive(raw(performative, payload, channel=channel))
    owner.finish()


small = st.integers(0, 2)
plausible = st.one_of(
    st.builds(lambda handle, sender, name: attach(handle, sender=sender, name=name), small, st.booleans(),
              st.sampled_from(["a", "b", "refused"])),
    st.builds(lambda handle, closed: raw(Detach(handle, closed)), small, st.booleans()),
    st.builds(lambda number, handle, more, aborted: transfer(number, b"m" * 9, handle, more=more, aborted=aborted),
              st.none() | small, small, st.booleans(), st.booleans()),
    st.builds(lambda amount, handle, drain, echo: credit(amount, handle=handle, drain=drain, echo=echo, window=5),
              small, small, st.booleans(), st.booleans()),
    st.builds(lambda first, last, settled: raw(DispositionFrame(True, first, last, settled, ACCEPTED)),
              small, st.none() | small, st.booleans()),
    st.just(raw(End())),
    st.just(BEGIN),
)  # fmt: skip


@given(st.lists(plausible, max_size=25))
def test_a_peer_that_says_likely_things_in_an_unlikely_order_is_borne(said: list[bytes]) -> None:
    owner = Owner(open_server(BEGIN))
    owner.sessions += owner.connection.sessions
    for data in said:
        owner.receive(data)
    owner.finish()


@given(st.data())
def test_a_client_bears_a_mutated_server_too(data: st.DataObject) -> None:
    client, server = Connection("client", "c"), Connection("server", "s")
    client.open()
    asked = client.begin().attach_receiver("reader", "hub", credit=10)
    reported: list[Event] = []
    for _ in range(6):
        for event in server.receive_data(client.data_to_send()):
            if isinstance(event, SaslInit):
                server.sasl_outcome(True)
            elif isinstance(event, AttachReceived):
                event.link.accept()
            elif isinstance(event, Credit):
                event.link.send_deliveries([b"x" * 100] * 3)
        answer = bytearray(server.data_to_send())
        if answer and data.draw(st.booleans()):
            answer[data.draw(st.integers(0, len(answer) - 1))] = data.draw(st.integers(0, 255))
        reported += client.receive_data(bytes(answer))
    reported += client.receive_eof()
    assert client.closed
    assert len([event for event in reported if isinstance(event, Detached) and event.link is asked]) == 1
    assert len([event for event in reported if isinstance(event, LinkAttached) and event.link is asked]) <= 1


@pytest.mark.parametrize("size", [1, 1000])
def test_a_flood_of_small_frames_leaves_nothing_behind(size: int) -> None:
    owner = Owner(open_server(BEGIN))
    owner.sessions += owner.connection.sessions
    for number in range(300):
        owner.receive(attach(0, name=f"n{number}"))
        owner.receive(transfer(number, b"x" * size, more=True) + raw(Detach(0, True)))
    assert owner.connection.limits.partial_bytes == 0
    assert owner.connection.sessions[0].links == []
    owner.finish()
