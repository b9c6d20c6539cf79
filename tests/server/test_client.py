"""What a client's links do, seen by a client that does nothing of itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.conftest import RawClient
from tidegate.amqp import (
    ACCEPTED,
    BATCH_FORMAT,
    RELEASED,
    Accepted,
    Disposition,
    Message,
    Modified,
    Rejected,
    Symbol,
    Transfer,
    encode_message,
)
from tidegate.amqp.endpoints.link import SEND_SETTLED
from tidegate.hub.access import sign
from tidegate.server import Server
from tidegate.server.connections import client_connection, link_handler, publishing

RULE = "RootManageSharedAccessKey"
INDIFFERENT = ("azsdk-python-eventhubs", "eventhub.python", "MSGolangClient", "MSJSClient")


@pytest.fixture
def raw(server: Server, sign_in: Callable[..., RawClient], hub: str) -> Any:
    return sign_in(server, hub, incoming_window=5000)


def source(hub: str, partition: int = 0, group: str = "$Default") -> str:
    return f"{hub}/ConsumerGroups/{group}/Partitions/{partition}"


def bodies(messages: list[Message]) -> list[bytes]:
    return [b"".join(message.body) for message in messages]


# --- publishing


def test_acknowledgements_come_in_runs_after_the_events_are_durable(server: Server, raw: Any, hub: str) -> None:
    link = raw.publisher(f"{hub}/Partitions/0")
    dispositions = raw.publish(link, *(b"%d" % number for number in range(100)))
    assert all(isinstance(d.state, Accepted) and d.settled for d in dispositions)
    assert 1 <= len(dispositions) <= 20
    assert server.namespace.event_hub(hub).partition("0").log.next_sequence_number == 100


def test_a_refused_publication_is_rejected_and_the_link_lives_on(raw: Any, hub: str) -> None:
    link = raw.publisher(f"{hub}/Partitions/0")
    link.send_deliveries([b"no AMQP message"], settled=False)
    refusal = raw.until(lambda event: isinstance(event, Disposition))
    assert isinstance(refusal.state, Rejected)
    assert refusal.state.condition == "amqp:decode-error"
    (accepted,) = raw.publish(link, b"fine")
    assert isinstance(accepted.state, Accepted)


def test_the_log_names_what_was_published_to(raw: Any, hub: str, caplog: pytest.LogCaptureFixture) -> None:
    link = raw.publisher(f"{hub}/Partitions/1")
    link.send_deliveries([b"garbage"], settled=False)
    raw.until(lambda e: isinstance(e, Disposition) and e.link is link)
    (line,) = (record.getMessage() for record in caplog.records if "publication to" in record.getMessage())
    assert f"'{hub}/Partitions/1'" in line


def test_a_publication_over_the_limit_is_rejected(raw: Any, hub: str) -> None:
    link = raw.publisher(hub)
    (refusal,) = raw.publish(link, b"x" * (1 << 20))
    assert refusal.state.condition == "amqp:link:message-size-exceeded"


def test_a_batch_is_all_or_nothing(server: Server, raw: Any, hub: str) -> None:
    link = raw.publisher(f"{hub}/Partitions/0")
    good = encode_message(Message(body_kind="data", body=[b"event"]))
    batch = encode_message(Message(body_kind="data", body=[good, b"no message", good]))
    link.send_deliveries([batch], message_format=BATCH_FORMAT, settled=False)
    refusal = raw.until(lambda event: isinstance(event, Disposition))
    assert isinstance(refusal.state, Rejected)
    assert server.namespace.event_hub(hub).partition("0").log.next_sequence_number == 0


def test_settled_publications_are_stored_without_an_answer(
    server: Server, raw: Any, hub: str, eventually: Callable[[Callable[[], object]], None]
) -> None:
    link = raw.publisher(f"{hub}/Partitions/1")
    link.send_deliveries([encode_message(Message(body_kind="value", body=f"{n}")) for n in range(10)], settled=True)
    raw.socket.sendall(raw.amqp.data_to_send())
    eventually(lambda: server.namespace.event_hub(hub).partition("1").log.next_sequence_number == 10)


def test_the_publisher_of_an_address_is_the_events_key(raw: Any, hub: str) -> None:
    raw.publish(raw.publisher(f"{hub}/Publishers/device-1"), b"x")
    partition = 26788 % 2
    (message,) = raw.receive(raw.reader(source(hub, partition), credit=1), 1)
    assert message.message_annotations["x-opt-partition-key"] == "device-1"


# --- receiving


def test_credit_is_kept_to(raw: Any, hub: str) -> None:
    raw.publish(raw.publisher(f"{hub}/Partitions/0"), *(b"%d" % n for n in range(50)))
    link = raw.reader(source(hub))
    link.flow(20)
    assert bodies(raw.receive(link, 20)) == [b"%d" % n for n in range(20)]
    link.flow(100)
    assert bodies(raw.receive(link, 30)) == [b"%d" % n for n in range(20, 50)]
    assert link.credit == 70


def test_drain_gives_back_the_credit_that_nothing_is_there_for(raw: Any, hub: str) -> None:
    raw.publish(raw.publisher(f"{hub}/Partitions/0"), b"a", b"b")
    link = raw.reader(source(hub))
    link.flow(10, drain=True)
    assert bodies(raw.receive(link, 2)) == [b"a", b"b"]
    while link.credit:
        raw.exchange()
    link.flow(5, drain=True)
    while link.credit:
        raw.exchange()


def test_a_small_session_window_slows_and_loses_nothing(
    server: Server, sign_in: Callable[..., RawClient], hub: str
) -> None:
    raw = sign_in(server, hub, incoming_window=10)
    expected = [b"%d" % n for n in range(500)]
    raw.publish(raw.publisher(f"{hub}/Partitions/0"), *expected)
    assert bodies(raw.receive(raw.reader(source(hub), credit=1000), 500)) == expected


@pytest.mark.parametrize("asked", [0, 1, 2])
@pytest.mark.parametrize("product", [*INDIFFERENT, "proton", ["azsdk"], None])
def test_deliveries_are_settled_as_the_reader_asks_and_for_clients_that_do_not_care(
    server: Server, sign_in: Callable[..., RawClient], hub: str, asked: int, product: list[str] | str | None
) -> None:
    raw = sign_in(server, hub, properties={"product": product})
    raw.publish(raw.publisher(f"{hub}/Partitions/0"), b"a", b"b")
    link = raw.reader(source(hub), credit=100, snd_settle_mode=asked)
    settled = asked == SEND_SETTLED or product in INDIFFERENT
    assert link.snd_settle_mode == (SEND_SETTLED if settled else asked)
    deliveries = [raw.until(lambda e: isinstance(e, Transfer) and e.link is link) for _ in range(2)]
    assert [delivery.settled for delivery in deliveries] == [settled, settled]


@pytest.mark.parametrize("state", [ACCEPTED, RELEASED, Modified(True, True), Rejected("amqp:internal-error", "no")])
def test_whatever_a_reader_says_of_events_only_settles_them(
    server: Server, sign_in: Callable[..., RawClient], hub: str, state: Any
) -> None:
    raw = sign_in(server, hub)
    raw.publish(raw.publisher(f"{hub}/Partitions/0"), *(b"%d" % number for number in range(10)))
    link = raw.reader(source(hub), credit=4)
    deliveries = [raw.until(lambda e: isinstance(e, Transfer) and e.link is link) for _ in range(4)]
    first, last = deliveries[0].delivery_id, deliveries[-1].delivery_id
    link.settle(first, last, state)
    link.flow(4)
    assert bodies(raw.receive(link, 4)) == [b"4", b"5", b"6", b"7"]
    link.flow(4)
    assert bodies(raw.receive(link, 2)) == [b"8", b"9"]


def test_annotations_count_and_point_into_the_log(raw: Any, hub: str) -> None:
    raw.publish(raw.publisher(f"{hub}/Partitions/0"), b"a", b"b", b"c")
    before_ms = time.time() * 1000 - 60_000
    annotations = [m.message_annotations for m in raw.receive(raw.reader(source(hub), credit=10), 3)]
    assert [a["x-opt-sequence-number"] for a in annotations] == [0, 1, 2]
    assert all(a["x-opt-enqueued-time"] > before_ms for a in annotations)
    offset = annotations[1]["x-opt-offset"]
    assert isinstance(offset, str)
    link = raw.reader(source(hub), credit=10, selector=f"amqp.annotation.x-opt-offset >= '{offset}'")
    assert bodies(raw.receive(link, 2)) == [b"b", b"c"]


def test_growth_wakes_every_reader(server: Server, sign_in: Callable[..., RawClient], raw: Any, hub: str) -> None:
    readers = [sign_in(server, hub) for _ in range(5)]
    links = [reader.reader(source(hub), credit=10) for reader in readers]
    publisher = raw.publisher(f"{hub}/Partitions/0")
    for body in (b"1", b"2", b"3"):
        raw.publish(publisher, body)
        for reader, link in zip(readers, links, strict=True):
            assert bodies(reader.receive(link, 1)) == [body]


def test_a_slow_reader_holds_up_nobody(server: Server, sign_in: Callable[..., RawClient], raw: Any, hub: str) -> None:
    slow, fast = sign_in(server, hub), sign_in(server, hub)
    raw.publish(raw.publisher(f"{hub}/Partitions/0"), *(b"x" * 500_000 for _ in range(30)))
    slow.reader(source(hub), credit=1000)
    slow.socket.sendall(slow.amqp.data_to_send())
    link = fast.reader(source(hub), credit=1000)
    assert len(fast.receive(link, 30)) == 30


def test_the_sixth_reader_without_an_owner_level_is_refused(raw: Any, hub: str, refused: type[Exception]) -> None:
    for _ in range(5):
        raw.reader(source(hub))
    with pytest.raises(refused, match="amqp:resource-limit-exceeded"):
        raw.reader(source(hub))


@pytest.mark.parametrize(
    ("address", "selector", "condition"),
    [
        ("HUB/ConsumerGroups/nobody/Partitions/0", None, "amqp:not-found"),
        ("HUB/ConsumerGroups/$Default/Partitions/2", None, "com.microsoft:argument-out-of-range"),
        ("HUB/ConsumerGroups/$Default", None, "amqp:not-found"),
        ("wide/ConsumerGroups/$Default/Partitions/0", None, "amqp:unauthorized-access"),
        ("HUB/ConsumerGroups/$Default/Partitions/0", "nonsense", "com.microsoft:argument-error"),
        (
            "HUB/ConsumerGroups/$Default/Partitions/0",
            "amqp.annotation.x-opt-offset > '999999'",
            "com.microsoft:argument-error",
        ),
    ],
)
def test_a_reader_that_is_refused_is_told_why(
    raw: Any, hub: str, refused: type[Exception], address: str, selector: str | None, condition: str
) -> None:
    with pytest.raises(refused, match=condition):
        raw.reader(address.replace("HUB", hub), selector=selector)


# --- tokens


def test_without_a_token_no_link(
    server: Server, sign_in: Callable[..., RawClient], hub: str, refused: type[Exception]
) -> None:
    raw = sign_in(server, hub, signed_in=False)
    with pytest.raises(refused, match="amqp:unauthorized-access"):
        raw.publisher(hub)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 202),
        ({"name": "sb://localhost/no-such-hub"}, 401),
        ({"type": "jwt"}, 400),
        ({"operation": "delete-token"}, 400),
        ({"name": 7}, 400),
    ],
)
def test_put_token_is_answered_by_its_status(
    server: Server, sign_in: Callable[..., RawClient], hub: str, key: str, change: dict[Any, Any], status: int
) -> None:
    raw = sign_in(server, hub, signed_in=False)
    assert raw.put_token(sign(raw.audience, RULE, key, int(time.time()) + 60), **change) == status


@pytest.mark.parametrize("node", ["$cbs", "$management"])
def test_a_request_is_settled_before_its_reply(
    server: Server, sign_in: Callable[..., RawClient], hub: str, node: str
) -> None:
    raw = sign_in(server, hub)
    receiver = raw.session.attach_receiver("replies", node, credit=10)
    sender = raw.publisher(node)
    sender.send_deliveries([encode_message(Message(body_kind="value", body="what"))], settled=False)
    ours = raw.until(lambda e: isinstance(e, Disposition | Transfer) and e.link in (sender, receiver))
    assert isinstance(ours, Disposition)
    assert ours.state == ACCEPTED
    assert raw.receive(receiver, 1)


def test_put_token_with_a_wrong_or_an_old_signature(
    server: Server, sign_in: Callable[..., RawClient], hub: str, key: str
) -> None:
    raw = sign_in(server, hub, signed_in=False)
    assert raw.put_token(sign(raw.audience, RULE, "wrong", int(time.time()) + 60)) == 401
    assert raw.put_token(sign(raw.audience, RULE, key, int(time.time()) - 60)) == 401
    assert raw.put_token(sign(raw.audience, "Nobody", key, int(time.time()) + 60)) == 401
    assert raw.put_token(sign(raw.audience.replace(hub, "wide"), RULE, key, int(time.time()) + 60)) == 401
    assert raw.put_token("rubbish") == 401


def test_a_renewed_token_keeps_the_link(
    server: Server,
    sign_in: Callable[..., RawClient],
    hub: str,
    key: str,
    refused: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_connection, "CLOCK_LOOK_S", 0.1)
    raw = sign_in(server, hub, signed_in=False)
    now = time.time
    first_end_s = int(now()) + 600
    assert raw.put_token(sign(raw.audience, RULE, key, first_end_s)) == 202
    link = raw.publisher(f"{hub}/Partitions/0")
    assert raw.put_token(sign(raw.audience, RULE, key, first_end_s + 600)) == 202
    clock = SimpleNamespace(time=lambda: now() + 601)
    for module in (client_connection, link_handler, publishing):
        monkeypatch.setattr(module, "time", clock)
    raw.publish(link, b"still here")
    clock.time = lambda: now() + 1201
    with pytest.raises(refused, match="amqp:unauthorized-access"):
        raw.until(lambda event: False)


@pytest.mark.parametrize(("password", "works"), [("SAS_KEY_VALUE", True), ("wrong", False)])
def test_sasl_plain(
    server: Server, sign_in: Callable[..., RawClient], hub: str, refused: type[Exception], password: str, works: bool
) -> None:
    options: dict[str, Any] = {
        "signed_in": False,
        "sasl_mechanisms": ["PLAIN"],
        "sasl_response": f"\0{RULE}\0{password}".encode(),
    }
    raw = sign_in(server, hub, **options)
    if works:
        raw.publish(raw.publisher(hub), b"x")
    else:
        with pytest.raises(refused):
            raw.publisher(hub)


# --- $management


def test_without_sasl_a_token_is_needed_as_by_anybody(
    server: Server, sign_in: Callable[..., RawClient], hub: str, refused: type[Exception]
) -> None:
    raw = sign_in(server, hub, sasl_mechanisms=())
    raw.publish(raw.publisher(f"{hub}/Partitions/0"), b"signed")
    with pytest.raises(refused, match="unauthorized-access"):
        sign_in(server, hub, sasl_mechanisms=(), signed_in=False).publisher(hub)


def test_partition_properties_carry_an_arrival_lower_bound_and_the_way_to_the_log(
    server: Server, raw: Any, hub: str
) -> None:
    raw.publish(raw.publisher(f"{hub}/Partitions/0"), b"x")
    arguments = {"operation": "READ", "type": "com.microsoft:partition", "name": hub, "partition": "0"}
    answer = raw.request("$management", arguments)
    assert answer["status-code"] == answer["statusCode"] == 200
    properties = answer["body"]
    directory = server.namespace.event_hub(hub).partition("0").log.directory
    assert properties["tidegate:log-directory"] == str(directory)
    assert (directory / "log-id").read_text() == properties["tidegate:log-id"]
    assert properties["last_enqueued_sequence_number"] == 0
    lower_bound = properties["tidegate:arrival-lower-bound"]
    raw.publish(raw.publisher(f"{hub}/Partitions/0"), b"later")
    assert server.namespace.event_hub(hub).partition("0").log.last_enqueued_time_ms >= lower_bound


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"name": "no-such-hub"}, 401),
        ({"name": "wide"}, 401),
        ({"partition": "99"}, 400),
        ({"partition": None}, 400),
        ({"operation": "WRITE"}, 400),
        ({"type": "com.microsoft:other"}, 400),
        ({"name": None}, 400),
    ],
)
def test_a_refused_read_says_why(raw: Any, hub: str, change: dict[Any, Any], status: int) -> None:
    arguments = {"operation": "READ", "type": "com.microsoft:partition", "name": hub, "partition": "0"} | change
    answer = raw.request("$management", arguments)
    assert answer["status-code"] == status
    assert answer["statusDescription"] == answer["status-description"] != ""


# --- idempotent producers


def test_an_idempotent_producer_is_numbered_and_its_repetition_stored_once(server: Server, raw: Any, hub: str) -> None:
    link = raw.publisher(f"{hub}/Partitions/0", desired_capabilities=["com.microsoft:idempotent-producer"])
    properties = link.properties
    assert "com.microsoft:idempotent-producer" in link.offered_capabilities
    last = int(properties["com.microsoft:producer-sequence-number"])
    annotations = {
        Symbol("com.microsoft:producer-id"): properties["com.microsoft:producer-id"],
        Symbol("com.microsoft:producer-epoch"): properties["com.microsoft:producer-epoch"],
        Symbol("com.microsoft:producer-sequence-number"): type(properties["com.microsoft:producer-sequence-number"])(
            last + 1
        ),
    }
    event = encode_message(Message(message_annotations=annotations, body_kind="data", body=[b"once"]))
    for _ in range(2):
        link.send_deliveries([event], settled=False)
        answer = raw.until(lambda e: isinstance(e, Disposition))
        assert isinstance(answer.state, Accepted)
    assert server.namespace.event_hub(hub).partition("0").log.next_sequence_number == 1
