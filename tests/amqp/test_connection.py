"""Handshakes, limits, time and the end of a connection."""

from __future__ import annotations

import pytest

from tests.amqp.pair import BEGIN, OPEN, SASL_START, Pair, attach, frames, open_server, raw, sent
from tidegate.amqp import (
    AmqpError,
    AttachReceived,
    Closed,
    Connection,
    ConnectionSettings,
    Detached,
    Ended,
    Event,
    Opened,
    SaslInit,
    SessionBegun,
    UsageError,
)
from tidegate.amqp.framing.frames import AMQP_HEADER, MAX_FRAME_SIZE_BEFORE_OPEN, SASL_HEADER
from tidegate.amqp.framing.performatives import (
    Begin,
    Close,
    Detach,
    End,
    Open,
    SaslInitFrame,
    SaslOutcome,
)

EMPTY = b"\x00\x00\x00\x08\x02\x00\x00\x00"


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def end_of(events: list[Event]) -> Closed:
    """The Closed that must be the last of the events, and the only one."""
    assert kinds(events).count("Closed") == 1
    closed = events[-1]
    assert isinstance(closed, Closed)
    return closed


def condition(events: list[Event]) -> str | None:
    error = end_of(events).error
    return error.condition if error else None


# --- the handshake ----------------------------------------------------------------------------------------------------


def test_client_and_server_find_each_other() -> None:
    pair = Pair()
    pair.client.open()
    session = pair.client.begin()
    session.attach_sender("publisher", "hub")
    at_client, at_server = pair.exchange()
    assert kinds(at_client) == ["Opened", "SessionBegun"]
    assert kinds(at_server) == ["SaslInit", "Opened", "SessionBegun", "AttachReceived"]
    assert pair.server.remote is not None
    assert pair.server.remote.container_id == "client"


def test_all_a_client_may_pipeline_after_sasl_is_taken_in_one_read() -> None:
    server = Connection("server", "server")
    (init,) = server.receive_data(SASL_START)
    assert isinstance(init, SaslInit)
    server.sasl_outcome(True)
    events = server.receive_data(OPEN + BEGIN + attach(0, name="a") + attach(1, name="b", sender=False))
    assert kinds(events) == ["Opened", "SessionBegun", "AttachReceived", "AttachReceived"]


def test_bytes_behind_the_sasl_init_wait_for_the_outcome() -> None:
    server = Connection("server", "server")
    assert kinds(server.receive_data(SASL_START + OPEN)) == ["SaslInit"]
    assert kinds(server.receive_data(BEGIN)) == []
    assert kinds(server.sasl_outcome(True)) == ["Opened", "SessionBegun"]


def test_what_waits_for_the_outcome_is_limited() -> None:
    server = Connection("server", "server")
    server.receive_data(SASL_START)
    events = [event for _ in range(20) for event in server.receive_data(bytes(1024))]
    assert condition(events) == "amqp:connection:framing-error"


@pytest.mark.parametrize("behind", [bytes(1 << 14), AMQP_HEADER + raw(Open("peer")) + EMPTY * (1 << 14)])
def test_however_much_comes_in_one_read_with_the_sasl_init_the_outcome_can_be_given(behind: bytes) -> None:
    server = Connection("server", "server")
    assert kinds(server.receive_data(SASL_START + behind)) == ["SaslInit"]
    events = server.sasl_outcome(True)
    assert kinds(events) == (["Opened"] if behind.startswith(AMQP_HEADER) else ["Closed"])


def test_an_outcome_for_a_peer_that_has_gone_does_nothing() -> None:
    server = Connection("server", "server")
    server.receive_data(SASL_START)
    server.receive_eof()
    assert server.sasl_outcome(True) == []


def test_without_mechanisms_there_is_no_sasl_layer() -> None:
    pair = Pair(
        Connection("client", "c", ConnectionSettings(sasl_mechanisms=())),
        Connection("server", "s", ConnectionSettings(sasl_mechanisms=())),
    )
    pair.client.open()
    at_client, at_server = pair.exchange()
    assert kinds(at_client) == kinds(at_server) == ["Opened"]


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"\x00",
        b"AMQPx",
        b"AMQP\x02\x01\x00\x00",
        b"AMQP\x00\x01\x00\x01",
    ],
)
def test_another_protocol_is_told_ours_and_let_go(garbage: bytes) -> None:
    server = Connection("server", "server")
    assert condition(server.receive_data(garbage)) == "amqp:connection:framing-error"
    assert server.data_to_send() == SASL_HEADER
    assert server.closed
    assert server.receive_data(garbage) == []
    assert server.data_to_send() == b""


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_peer_may_leave_the_sasl_layer_out_where_anybody_is_let_in(cut: int) -> None:
    server = Connection("server", "server")
    assert server.receive_data(AMQP_HEADER[:cut]) == []
    assert kinds(server.receive_data(AMQP_HEADER[cut:] + raw(Open("peer")) + BEGIN)) == ["Opened", "SessionBegun"]
    answer = server.data_to_send()
    assert answer.startswith(AMQP_HEADER)
    assert [type(performative) for _, performative, _ in frames(answer)] == [Open, Begin]


def test_a_peer_must_not_leave_the_sasl_layer_out_where_everybody_has_a_name() -> None:
    server = Connection("server", "server", ConnectionSettings(sasl_mechanisms=["PLAIN"]))
    assert condition(server.receive_data(AMQP_HEADER)) == "amqp:connection:framing-error"
    assert server.data_to_send() == SASL_HEADER


def test_garbage_after_sasl_is_told_the_amqp_header() -> None:
    server = Connection("server", "server")
    server.receive_data(SASL_START)
    server.sasl_outcome(True)
    server.data_to_send()
    assert condition(server.receive_data(SASL_HEADER)) == "amqp:connection:framing-error"
    assert server.data_to_send() == AMQP_HEADER


def test_open_and_begin_are_answered_with_our_limits() -> None:
    server = Connection(
        "server",
        "hub",
        ConnectionSettings(
            max_frame_size=60_000, channel_max=9, handle_max=5, idle_timeout_ms=4000, incoming_window=77
        ),
    )
    server.receive_data(SASL_START)
    server.sasl_outcome(True)
    server.receive_data(OPEN + raw(Begin(None, 5, 1, 1), channel=3))
    answers = [performative for _, performative, _ in frames(server.data_to_send())]
    assert Open("hub", None, 60_000, 9, 4000) in answers
    assert answers[-1] == Begin(3, 0, 77, 65536, 5)


@pytest.mark.parametrize(
    ("theirs", "ours", "offered"),
    [
        (65536, 1 << 20, 65536),  # uamqp: it cannot build a larger frame
        (512, 1 << 20, 65536),
        (100_000, 1 << 20, 100_000),
        (0xFFFFFFFF, 1 << 20, 1 << 20),
        (65536, 4096, 4096),
    ],
)
def test_no_frames_are_offered_larger_than_the_peer_takes_itself(theirs: int, ours: int, offered: int) -> None:
    server = Connection("server", "server", ConnectionSettings(max_frame_size=ours))
    server.receive_data(SASL_START)
    server.sasl_outcome(True)
    server.receive_data(AMQP_HEADER + raw(Open("peer", max_frame_size=theirs)) + BEGIN)
    (answer,) = sent(server, Open)
    assert answer.max_frame_size == server.max_frame_size == offered
    assert condition(server.receive_data((offered + 1).to_bytes(4) + bytes((2, 0, 0, 0)))) is not None


# --- sasl -------------------------------------------------------------------------------------------------------------


def test_plain_brings_a_name_and_a_password() -> None:
    pair = Pair(
        Connection(
            "client", "c", ConnectionSettings(sasl_mechanisms=["PLAIN"], sasl_response=b"\0RootKey\0secr\xc3\xa9t")
        )
    )
    pair.client.open()
    _, at_server = pair.exchange()
    init = at_server[0]
    assert isinstance(init, SaslInit)
    assert (init.mechanism, init.username, init.password) == ("PLAIN", "RootKey", "secrét")


def test_anonymous_may_bring_the_key_name_as_the_javascript_client_does() -> None:
    server = Connection("server", "server")
    (init,) = server.receive_data(SASL_HEADER + raw(SaslInitFrame("ANONYMOUS", b"RootKey", "host"), kind=1))
    assert init == SaslInit("ANONYMOUS", b"RootKey", "host")


@pytest.mark.parametrize(
    "init", [SaslInitFrame("EXTERNAL"), SaslInitFrame("PLAIN", b"no zeros"), SaslInitFrame("PLAIN", b"\0\xff\0x")]
)
def test_a_sasl_init_that_cannot_be_is_refused(init: SaslInitFrame) -> None:
    server = Connection("server", "server")
    assert condition(server.receive_data(SASL_HEADER + raw(init, kind=1))) == "amqp:unauthorized-access"
    assert sent(server, SaslOutcome) == [SaslOutcome(1)]


def test_a_refused_outcome_ends_both_sides() -> None:
    server = Connection("server", "server")
    client = Connection("client", "client")
    client.open()
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    server.receive_data(client.data_to_send())
    assert condition(server.sasl_outcome(False)) == "amqp:unauthorized-access"
    assert condition(client.receive_data(server.data_to_send())) == "amqp:unauthorized-access"


def test_a_client_wants_one_of_its_mechanisms() -> None:
    client = Connection("client", "c", ConnectionSettings(sasl_mechanisms=["EXTERNAL"]))
    server = Connection("server", "s")
    client.open()
    server.receive_data(client.data_to_send())
    assert condition(client.receive_data(server.data_to_send())) == "amqp:unauthorized-access"


# --- rules a peer can break -------------------------------------------------------------------------------------------

BROKEN = {
    "a frame too short for its header": (b"\x00\x00\x00\x07\x02\x00\x00\x00", "amqp:connection:framing-error"),
    "a data offset inside the header": (b"\x00\x00\x00\x08\x01\x00\x00\x00", "amqp:connection:framing-error"),
    "a data offset past the frame": (b"\x00\x00\x00\x08\x03\x00\x00\x00", "amqp:connection:framing-error"),
    "a frame above the limit": (b"\x7f\xff\xff\xff\x02\x00\x00\x00", "amqp:connection:framing-error"),
    "a sasl frame": (raw(SaslInitFrame("PLAIN"), kind=1), "amqp:connection:framing-error"),
    "a body that is no value": (b"\x00\x00\x00\x09\x02\x00\x00\x00\xff", "amqp:decode-error"),
    "a body that is no performative": (b"\x00\x00\x00\x09\x02\x00\x00\x00\x40", "amqp:invalid-field"),
    "a performative without its fields": (
        b"\x00\x00\x00\x0e\x02\x00\x00\x00\x00\x53\x12\xc0\x01\x00",
        "amqp:invalid-field",
    ),
    "a second open": (raw(Open("again")), "amqp:illegal-state"),
    "a begin on a channel in use": (BEGIN, "amqp:not-allowed"),
    "a begin above the channel limit": (raw(Begin(None, 0, 1, 1), channel=2048), "amqp:connection:framing-error"),
    "an answer to a begin never sent": (raw(Begin(9, 0, 1, 1), channel=1), "amqp:not-allowed"),
    "a frame on a channel without a session": (raw(End(), channel=7), "amqp:not-allowed"),
    "a handle above the limit": (attach(256), "amqp:connection:framing-error"),
    "a nest of descriptions": (b"\x00\x00\x10\x00\x02\x00\x00\x00" + bytes(4088), "amqp:decode-error"),
    "a performative larger than any needs to be": (raw(Open("n" * 20_000)), "amqp:decode-error"),
}


@pytest.mark.parametrize(("data", "expected"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_ends_the_connection_with_its_name(data: bytes, expected: str) -> None:
    server = open_server()
    assert condition(server.receive_data(data)) == expected
    (close,) = sent(server, Close)
    assert close.error.condition == expected
    assert server.receive_data(data) == []


def test_an_open_below_the_smallest_frame_size_is_refused_after_ours() -> None:
    server = Connection("server", "server")
    server.receive_data(SASL_START)
    server.sasl_outcome(True)
    server.data_to_send()
    events = server.receive_data(AMQP_HEADER + raw(Open("peer", max_frame_size=511)))
    assert condition(events) == "amqp:invalid-field"
    assert [type(performative) for _, performative, _ in frames(server.data_to_send())] == [Open, Close]


@pytest.mark.parametrize("early", [BEGIN, raw(Open("n" * MAX_FRAME_SIZE_BEFORE_OPEN))])
def test_before_open_little_is_allowed(early: bytes) -> None:
    server = Connection("server", "server")
    server.receive_data(SASL_START)
    server.sasl_outcome(True)
    assert condition(server.receive_data(AMQP_HEADER + early)) in (
        "amqp:illegal-state",
        "amqp:connection:framing-error",
    )


def test_links_are_limited_over_all_sessions() -> None:
    server = open_server(max_links=3)
    server.receive_data(attach(0, name="a") + attach(1, name="b") + attach(2, name="c"))
    assert condition(server.receive_data(attach(3, name="d"))) == "amqp:resource-limit-exceeded"


def test_a_detached_link_no_longer_counts() -> None:
    server = open_server(max_links=1)
    for _ in range(3):
        (event,) = server.receive_data(attach(0))
        assert isinstance(event, AttachReceived)
        event.link.accept()
        assert kinds(server.receive_data(raw(Detach(0, True)))) == ["Detached"]


def test_a_frame_is_kept_back_no_longer_than_the_frame_size_allows() -> None:
    server = open_server(max_frame_size=4096)
    assert server.receive_data(b"\x00\x00\x10\x00\x02\x00\x00\x00" + bytes(3000)) == []
    assert condition(server.receive_data(bytes(2000))) == "amqp:decode-error"


# --- the end ----------------------------------------------------------------------------------------------------------


def opened_pair() -> Pair:
    pair = Pair()
    pair.linked("sender")
    pair.linked("receiver")
    return pair


def test_a_close_is_answered_and_ends_every_link_and_session_once() -> None:
    pair = opened_pair()
    pair.client.close("amqp:internal-error", "why")
    at_client, at_server = pair.exchange()
    assert kinds(at_server) == kinds(at_client) == ["Detached", "Detached", "Ended", "Closed"]
    error = AmqpError("amqp:internal-error", "why")
    assert end_of(at_server) == Closed(error, True)
    assert end_of(at_client) == Closed(None, True)
    assert [event.error for event in at_server if isinstance(event, Detached | Ended)] == [error] * 3
    assert pair.client.closed
    assert pair.server.closed


def test_after_our_close_only_the_peers_is_read() -> None:
    server = open_server()
    server.close()
    assert server.receive_data(attach(0) + raw(Open("again")) + BEGIN) == []
    assert kinds(server.receive_data(raw(Close()))) == ["Ended", "Closed"]
    assert len(sent(server, Close)) == 1


def test_both_may_close_at_once() -> None:
    pair = opened_pair()
    pair.client.close()
    pair.server.close()
    at_client, at_server = pair.exchange()
    assert end_of(at_client).error is end_of(at_server).error is None


def test_a_transport_that_ends_without_a_close_is_told() -> None:
    pair = opened_pair()
    events = pair.server.receive_eof()
    assert kinds(events) == ["Detached", "Detached", "Ended", "Closed"]
    assert condition(events) == "amqp:connection:forced"
    assert pair.server.receive_eof() == []
    assert Connection("server", "s").receive_eof() == [Closed(None, True)]


def test_late_frames_on_a_channel_that_ended_are_ignored() -> None:
    """Python's client detaches its links after it has ended their session."""
    server = open_server()
    server.receive_data(attach(0))
    assert kinds(server.receive_data(raw(End()))) == ["Detached", "Ended"]
    assert server.receive_data(raw(Detach(0, True))) == []
    assert kinds(server.receive_data(BEGIN)) == ["SessionBegun"]


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_peer_with_a_timeout_hears_from_us_every_half_of_it() -> None:
    server = Connection("server", "server")
    server.receive_data(SASL_START)
    server.sasl_outcome(True)
    assert server.next_tick_ms is None
    server.receive_data(AMQP_HEADER + raw(Open("peer", idle_timeout_ms=60_000)))
    server.data_to_send()
    assert server.next_tick_ms == 0
    beats = []
    for now_ms in range(1_000, 200_000, 1_000):
        assert server.tick(now_ms) == []
        if server.data_to_send() == EMPTY:
            beats.append(now_ms)
    assert beats == [1_000, 31_000, 61_000, 91_000, 121_000, 151_000, 181_000]
    assert server.next_tick_ms == 211_000


def test_a_silent_peer_is_closed_after_twice_the_timeout() -> None:
    server = open_server(idle_timeout_ms=1_000)
    assert server.tick(500) == []
    assert server.next_tick_ms == 2_500
    assert server.receive_data(EMPTY) == []
    assert server.tick(2_500) == []
    assert server.tick(4_499) == []
    assert condition(server.tick(4_500)) == "amqp:connection:forced"
    assert sent(server, Close)
    assert server.next_tick_ms is None
    assert server.tick(9_999) == []


def test_a_peer_that_never_starts_is_closed_too() -> None:
    server = Connection("server", "server", ConnectionSettings(idle_timeout_ms=1_000))
    server.tick(0)
    assert condition(server.tick(2_000)) == "amqp:connection:forced"


def test_a_timeout_too_short_to_keep_is_refused() -> None:
    server = Connection("server", "server")
    server.receive_data(SASL_START)
    server.sasl_outcome(True)
    events = server.receive_data(AMQP_HEADER + raw(Open("peer", idle_timeout_ms=50)))
    assert condition(events) == "amqp:invalid-field"


# --- mistakes of the caller -------------------------------------------------------------------------------------------


def test_calls_out_of_turn_are_refused() -> None:
    client, server = Connection("client", "c"), Connection("server", "s")
    with pytest.raises(UsageError):
        server.open()
    with pytest.raises(UsageError):
        client.begin()
    with pytest.raises(UsageError):
        server.sasl_outcome(True)
    client.open()
    with pytest.raises(UsageError):
        client.open()
    client.close()
    with pytest.raises(UsageError):
        client.begin()


def test_channels_run_out() -> None:
    client = Connection("client", "c", ConnectionSettings(channel_max=1))
    client.open()
    assert [client.begin().channel, client.begin().channel] == [0, 1]
    with pytest.raises(UsageError):
        client.begin()


def test_sessions_of_both_sides_live_side_by_side() -> None:
    pair = Pair()
    pair.client.open()
    pair.client.begin()
    pair.exchange()
    theirs = pair.server.begin()
    ours = pair.client.begin()
    at_client, at_server = pair.exchange()
    assert [event.session for event in at_client if isinstance(event, SessionBegun)].count(ours) == 1
    assert [event.session for event in at_server if isinstance(event, SessionBegun)].count(theirs) == 1
    assert len({session.channel for session in pair.server.sessions}) == 3
    assert isinstance(at_client[0], SessionBegun)
    assert not [event for event in at_client if isinstance(event, Opened)]
