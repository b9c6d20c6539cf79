"""Kafka's protocol request by request, as no client would send it too."""

import contextlib
import random
import re
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.log.support import SetClock
from tests.patience import eventually
from tests.profiles import scaled
from tests.server.conftest import KEY, RULE
from tests.server.kafka.client import FETCH_BY_NAME, KafkaClient, batch_of, fetch_fields, produce_fields
from tidegate.hub.access import sign
from tidegate.hub.access_rules import AccessRule, Right
from tidegate.hub.group_offsets import RETENTION_MS, GroupOffsets
from tidegate.kafka.compression import Compression
from tidegate.kafka.errors import ErrorCode
from tidegate.kafka.messages import Api, encode_request, parse_response
from tidegate.kafka.records import Header, decode, parse_batches
from tidegate.log import LogError
from tidegate.server import Server
from tidegate.server.context.metrics import LoggedRefusals
from tidegate.server.kafka import records_api, session
from tidegate.server.kafka.connection import SUPPORTED, Refusals
from tidegate.server.kafka.groups_api import GroupsApi

Connect = Callable[..., KafkaClient]


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    """Connect to the hub, logged in with a connection string unless it is None."""
    opened: list[KafkaClient] = []

    def open_one(connection_string: str | None = "") -> KafkaClient:
        assert server.kafka_port is not None
        client = KafkaClient(server.kafka_port)
        opened.append(client)
        if connection_string is not None:
            found = client.log_in(connection_string or server.connection_string())
            assert found.error_code == ErrorCode.NONE, found.error_message
        return client

    yield open_one
    for client in opened:
        client.close()


def values_of(records: bytes) -> list[bytes | None]:
    found: list[bytes | None] = []
    for batch in parse_batches(records):
        batch.check()
        found += decode(batch).values
    return found


def with_rights(server: Server, hub: str, name: str, *rights: Right, level: str = "") -> str:
    """Return the connection string of a rule with these rights, on a hub or on the namespace."""
    rule = AccessRule.create(name, rights)
    server.namespace.management.set_access_rule(rule, level)
    return server.connection_string(rule)


# -- authentication


def test_every_request_needs_a_key(server: Server, connect: Connect) -> None:
    for api in (Api.METADATA, Api.PRODUCE, Api.FETCH, Api.LIST_GROUPS, Api.CREATE_TOPICS):
        client = connect(None)
        client.send(api)
        assert client.receive_frame() == b""


def test_a_client_is_described_among_those_that_are_connected(server: Server, connect: Connect) -> None:
    client = connect("")
    address = "{}:{}".format(*client.socket.getsockname()[:2])
    (row,) = [one for one in server.client_rows() if one["address"] == address]
    assert (row["product"], row["policies"]) == ("Kafka", ["RootManageSharedAccessKey"])
    assert row["name"]


def test_versions_are_told_to_everyone_and_to_clients_of_the_future(connect: Connect) -> None:
    client = connect(None)
    supported = {one.api_key: (one.min_version, one.max_version) for one in client.ask(Api.API_VERSIONS).api_keys}
    assert supported[Api.PRODUCE] == (0, 12)
    client.socket.sendall(struct.pack(">ihhih", 11, Api.API_VERSIONS, 99, 7, -1) + b"\0")
    correlation_id, response = parse_response(Api.API_VERSIONS, 0, client.receive_frame())
    assert (correlation_id, response.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert len(response.api_keys) == len(supported)


def test_other_mechanisms_are_refused_with_the_one_that_is_known(connect: Connect) -> None:
    found = connect(None).ask(Api.SASL_HANDSHAKE, {"mechanism": "OAUTHBEARER"})
    assert (found.error_code, found.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])


def test_a_client_that_is_refused_for_ever_costs_few_lines_a_minute(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 600.0
    refusals = Refusals(server.context, lambda: now_s)
    with caplog.at_level("WARNING"):
        for number in range(LoggedRefusals.MOST_A_MINUTE + 5):
            refusals.record(f"10.0.0.1:{number}", "a wrong key", "amqp:unauthorized-access")
        refusals.record("10.0.0.2:1", "another host", "amqp:unauthorized-access")
        now_s += 60
        refusals.record("10.0.0.1:1", "a minute later", "amqp:unauthorized-access")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == LoggedRefusals.MOST_A_MINUTE + 2
    assert lines[-3].endswith("; further ones of this minute are not logged")
    assert lines[-2:] == [
        "the Kafka client 10.0.0.2:1 was refused: another host",
        "the Kafka client 10.0.0.1:1 was refused: a minute later",
    ]


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"\0$ConnectionString\0SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=wrong", "not valid"),
        (b"\0$ConnectionString\0Endpoint=sb://localhost", "must be a connection string"),
        (b"\0alice\0secret", r"must be \$ConnectionString"),
        (b"alice", "cannot be read"),
        (b"\0\xff\0x", "cannot be read"),
    ],
)
def test_a_wrong_key_is_refused_with_its_reason(connect: Connect, token: bytes, reason: str) -> None:
    client = connect(None)
    client.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"})
    found = client.ask(Api.SASL_AUTHENTICATE, {"auth_bytes": token})
    assert found.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert re.search(reason, found.error_message)
    assert client.receive_frame() == b""


def test_a_key_comes_after_a_handshake(connect: Connect) -> None:
    found = connect(None).ask(Api.SASL_AUTHENTICATE, {"auth_bytes": b"\0a\0b"})
    assert found.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_old_clients_send_their_key_without_a_request(server: Server, connect: Connect) -> None:
    client = connect(None)
    client.ask(Api.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, version=0)
    token = f"\0$ConnectionString\0{server.connection_string()}".encode()
    client.socket.sendall(struct.pack(">i", len(token)) + token)
    assert client.receive_frame() == b""  # a frame of length 0
    assert client.ask(Api.METADATA, {"topics": []}).cluster_id == server.namespace.name


def test_clients_are_listed_without_their_keys(server: Server, connect: Connect) -> None:
    client = connect()
    client.ask(Api.API_VERSIONS, {"client_software_name": "tester", "client_software_version": "7"})
    (row,) = [row for row in server.client_rows() if row["product"] == "tester 7"]
    assert (row["name"], row["policies"]) == ("a test", ["RootManageSharedAccessKey"])
    assert "SAS_KEY_VALUE" not in str(row)


@pytest.mark.parametrize(
    ("api", "version", "message"),
    [
        (
            Api.FETCH,
            3,
            "a fetch request of version 3 (4 to 17 are supported): use a client that speaks Kafka 1.0 or later, "
            "and set no older version in it (api_version, broker.version.fallback)",
        ),
        (Api.FETCH, 99, "a fetch request of version 99 (4 to 17 are supported)"),
        (99, 0, "a request of kind 99, which is not supported"),
    ],
)
def test_a_request_that_is_not_supported_is_logged_with_what_is(
    connect: Connect, caplog: pytest.LogCaptureFixture, api: int, version: int, message: str
) -> None:
    client = connect()
    with caplog.at_level("WARNING"):
        client.socket.sendall(struct.pack(">ihhih", 10, api, version, 7, -1))
        assert client.receive_frame() == b""
    (line,) = [record.getMessage() for record in caplog.records if "Kafka client" in record.getMessage()]
    assert line.endswith(f" was refused: {message}")


# -- producing


@pytest.mark.parametrize("compression", Compression)
def test_a_batch_is_stored_and_fetched(connect: Connect, hub: str, compression: Compression) -> None:
    client = connect()
    found = client.produce(hub, batch_of(b"one", b"two", compression=compression))
    assert (found.error_code, found.base_offset, found.log_start_offset) == (0, 0, 0)
    found = client.produce(hub, batch_of(b"three"))
    assert found.base_offset == 2
    fetched = client.fetch(hub, 0)
    assert (fetched.error_code, fetched.high_watermark) == (0, 3)
    assert values_of(fetched.records) == [b"one", b"two", b"three"]
    (first, _) = parse_batches(fetched.records)
    assert first.compression is compression
    assert first.has_append_time


def changed(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


BATCH = batch_of(b"payload")


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (changed(BATCH, 16, b"\1"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (changed(BATCH, len(BATCH) - 3, b"X"), ErrorCode.CORRUPT_MESSAGE),
        (BATCH[:-2], ErrorCode.CORRUPT_MESSAGE),
        (BATCH + BATCH, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch_of(bytes(2 << 20)), ErrorCode.MESSAGE_TOO_LARGE),
        (batch_of(bytes(2 << 20), compression=Compression.GZIP), ErrorCode.MESSAGE_TOO_LARGE),
        (batch_of(*[bytes(900_000)] * 50, compression=Compression.ZSTD), ErrorCode.MESSAGE_TOO_LARGE),
        (batch_of(b"x", b"no AMQP", headers=[(), (("amqp", None),)]), ErrorCode.INVALID_RECORD),
        (batch_of(b"hidden", headers=[(("tidegate-marker", None),)]), ErrorCode.INVALID_RECORD),
    ],
    ids=["old-magic", "crc", "cut-off", "two", "none", "large", "large-compressed", "bomb", "message", "marker"],
)
def test_a_batch_that_cannot_be_stored_is_refused_alone(
    connect: Connect, hub: str, records: bytes, error: ErrorCode
) -> None:
    client = connect()
    assert client.produce(hub, records).error_code == error
    assert client.produce(hub, BATCH).error_code == ErrorCode.NONE


@pytest.mark.parametrize("headers", [(("amqp", b""),), (("amqp", None), ("a", None)), (("AMQP", None),)])
def test_other_headers_may_have_any_name(connect: Connect, hub: str, headers: tuple[Header, ...]) -> None:
    assert connect().produce(hub, batch_of(b"x", headers=[headers])).error_code == ErrorCode.NONE


def test_transactions_are_refused_with_the_protocols_error(connect: Connect, hub: str) -> None:
    client = connect()
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (
        client.ask(Api.INIT_PRODUCER_ID, {"transactional_id": "t", "transaction_timeout_ms": 1}).error_code == refused
    )
    assert client.produce(hub, BATCH, transactional_id="t").error_code == refused
    found = client.ask(Api.FIND_COORDINATOR, {"key_type": 1, "coordinator_keys": ["t"]})
    assert found.coordinators[0].error_code == refused


def test_other_acknowledgements_are_refused(connect: Connect, hub: str) -> None:
    assert connect().produce(hub, BATCH, acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_producer_that_wants_no_acknowledgement_gets_none(connect: Connect, hub: str) -> None:
    client = connect()
    client.send(Api.PRODUCE, produce_fields(hub, BATCH, acks=0))
    assert client.ask(Api.METADATA, {"topics": []}).controller_id == 0
    eventually(lambda: client.fetch(hub, 0).high_watermark == 1)


def test_an_idempotent_producer_leaves_no_duplicate_and_no_gap(connect: Connect, hub: str) -> None:
    client = connect()
    new = client.ask(Api.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout_ms": 0})

    def numbered(first: int, *values: bytes, epoch: int = new.producer_epoch) -> bytes:
        return batch_of(*values, producer=(new.producer_id, epoch, first))

    assert client.produce(hub, numbered(0, b"a", b"b")).base_offset == 0
    assert client.produce(hub, numbered(2, b"c")).base_offset == 2
    again = client.produce(hub, numbered(0, b"a", b"b"))
    assert (again.error_code, again.base_offset) == (0, 0)
    assert client.produce(hub, numbered(5, b"f")).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for number in range(3, 9):
        client.produce(hub, numbered(number, b"x"))
    assert client.produce(hub, numbered(0, b"a", b"b")).error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    bumped = client.ask(
        Api.INIT_PRODUCER_ID,
        {"transactional_id": None, "producer_id": new.producer_id, "producer_epoch": new.producer_epoch},
    )
    assert bumped.producer_epoch == new.producer_epoch + 1
    assert client.produce(hub, numbered(0, b"y", epoch=bumped.producer_epoch)).error_code == ErrorCode.NONE
    assert client.produce(hub, numbered(9, b"z")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.fetch(hub, 0).high_watermark == 10


# -- fetching


def test_a_fetch_waits_for_events_while_other_requests_are_answered(connect: Connect, hub: str) -> None:
    reader, writer = connect(), connect()
    asked = reader.send(Api.FETCH, fetch_fields({(hub, 0): 0}, max_wait_ms=20_000), FETCH_BY_NAME)
    writer.produce(hub, BATCH)
    (topic,) = reader.receive(*asked).responses
    assert values_of(topic.partitions[0].records) == [b"payload"]
    assert reader.fetch(hub, 1).records == b""


def test_a_fetch_is_limited_and_gives_one_batch_at_least(connect: Connect, hub: str) -> None:
    client = connect()
    for number in range(4):
        client.produce(hub, batch_of(b"%d" % number * 1000))
    assert values_of(client.fetch(hub, 1, max_bytes=1).records) == [b"1" * 1000]
    assert len(values_of(client.fetch(hub, 0, max_bytes=2300).records)) == 2


def test_an_offset_that_is_not_there_is_out_of_range(connect: Connect, hub: str) -> None:
    client = connect()
    for offset in (1, -1):
        assert client.fetch(hub, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_session_tells_only_what_is_new(connect: Connect, hub: str) -> None:
    client = connect()
    begun = client.ask(Api.FETCH, fetch_fields({(hub, 0): 0, (hub, 1): 0}, session_epoch=0), FETCH_BY_NAME)
    assert len(begun.responses[0].partitions) == 2
    session = {"session_id": begun.session_id}
    quiet = client.ask(Api.FETCH, fetch_fields({}, session_epoch=1, **session), FETCH_BY_NAME)
    assert (quiet.session_id, quiet.responses) == (begun.session_id, [])
    client.produce(hub, BATCH, partition=1)
    news = client.ask(Api.FETCH, fetch_fields({}, session_epoch=2, **session), FETCH_BY_NAME)
    assert [part.partition_index for part in news.responses[0].partitions] == [1]
    forgotten = [{"topic": hub, "partitions": [1]}]
    quiet = client.ask(
        Api.FETCH, fetch_fields({}, session_epoch=3, forgotten_topics_data=forgotten, **session), FETCH_BY_NAME
    )
    assert quiet.responses == []
    wrong = client.ask(Api.FETCH, fetch_fields({}, session_epoch=9, **session), FETCH_BY_NAME)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = client.ask(Api.FETCH, fetch_fields({}, session_epoch=5, session_id=12345), FETCH_BY_NAME)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("begins_by_id", [False, True])
def test_a_session_names_topics_as_it_began(connect: Connect, hub: str, begins_by_id: bool) -> None:
    client = connect()
    topic_id = client.ask(Api.METADATA, {"topics": [{"name": hub}]}).topics[0].topic_id
    asked = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    by_id = fetch_fields({}, topics=[{"topic_id": topic_id, "partitions": asked}])
    kinds = [(fetch_fields({(hub, 0): 0}), FETCH_BY_NAME), (by_id, SUPPORTED[Api.FETCH][1])]
    (first, version), (other, other_version) = reversed(kinds) if begins_by_id else kinds
    begun = client.ask(Api.FETCH, {**first, "session_epoch": 0}, version)
    assert begun.error_code == ErrorCode.NONE
    client.produce(hub, BATCH)
    changed = client.ask(Api.FETCH, {**other, "session_id": begun.session_id, "session_epoch": 1}, other_version)
    assert changed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    anew = client.ask(Api.FETCH, {**other, "session_epoch": 0}, other_version)
    assert values_of(anew.responses[0].partitions[0].records) == [b"payload"]


def test_an_id_names_one_incarnation_of_a_hub(server: Server, connect: Connect, hub: str) -> None:
    client = connect()
    client.produce(hub, BATCH)

    def fetched(topic_id: uuid.UUID) -> Any:
        asked = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
        fields = fetch_fields({}, topics=[{"topic_id": topic_id, "partitions": asked}])
        (topic,) = client.ask(Api.FETCH, fields).responses
        assert topic.topic_id == topic_id
        return topic.partitions[0]

    topic_id = client.ask(Api.METADATA, {"topics": [{"name": hub}]}).topics[0].topic_id
    assert values_of(fetched(topic_id).records) == [b"payload"]
    config = server.namespace.event_hub(hub).config
    server.namespace.management.delete_event_hub(hub)
    server.namespace.management.create_event_hub(config)
    assert fetched(topic_id).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    deleted = client.ask(Api.DELETE_TOPICS, {"topics": [{"name": None, "topic_id": topic_id}]})
    assert deleted.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_hub_that_cannot_be_read_is_logged_by_its_name(
    connect: Connect, hub: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object) -> None:
        raise LogError("the disk fails")

    client = connect()
    client.produce(hub, BATCH)
    monkeypatch.setattr(records_api, "_batches_from", fail)
    topic_id = client.ask(Api.METADATA, {"topics": [{"name": hub}]}).topics[0].topic_id
    asked = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    (topic,) = client.ask(Api.FETCH, fetch_fields({}, topics=[{"topic_id": topic_id, "partitions": asked}])).responses
    assert topic.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert f"{hub}/0 cannot be read: the disk fails" in caplog.messages


# -- rights


def test_a_client_learns_nothing_about_hubs_that_it_has_no_right_to(server: Server, connect: Connect, hub: str) -> None:
    owner = with_rights(server, hub, "of-hub", Right.LISTEN, level=hub)
    client = connect(owner)
    assert [topic.name for topic in client.ask(Api.METADATA, {"topics": None}).topics] == [hub]
    for other in ("wide", "missing"):
        found = client.ask(Api.METADATA, {"topics": [{"name": other}]})
        assert found.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert client.fetch(other, 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert client.produce(other, BATCH).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert client.produce(hub, BATCH).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert client.fetch(hub, 0).error_code == ErrorCode.NONE
    made = client.ask(Api.CREATE_TOPICS, {"topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}]})
    assert made.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_right_ends_with_its_rule(server: Server, connect: Connect, hub: str) -> None:
    client = connect(with_rights(server, hub, "short-lived", Right.SEND, level=hub))
    assert client.produce(hub, BATCH).error_code == ErrorCode.NONE
    server.namespace.management.delete_access_rule("short-lived", hub)
    assert client.produce(hub, BATCH).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.slow
def test_a_member_whose_right_ends_leaves_its_partitions_to_others(server: Server, connect: Connect, hub: str) -> None:
    client = connect(with_rights(server, hub, "short-lived", Right.LISTEN, level=hub))
    group: dict[str, Any] = {"group_id": f"revoked in {hub}"}
    joining = {
        **group,
        "session_timeout_ms": 1_000,
        "rebalance_timeout_ms": 1_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x"}],
    }
    member_id = client.ask(Api.JOIN_GROUP, joining).member_id
    member = {**group, "member_id": member_id}
    generation = client.ask(Api.JOIN_GROUP, {**joining, **member}).generation_id
    plan = {**member, "generation_id": generation, "assignments": [{"member_id": member_id, "assignment": b"all"}]}
    assert client.ask(Api.SYNC_GROUP, plan).assignment == b"all"
    heartbeat = {**member, "generation_id": generation}
    assert client.ask(Api.HEARTBEAT, heartbeat).error_code == ErrorCode.NONE
    server.namespace.management.delete_access_rule("short-lived", hub)
    for api, fields in (
        (Api.SYNC_GROUP, plan),
        (Api.HEARTBEAT, heartbeat),
        (Api.LEAVE_GROUP, {**group, "members": [{"member_id": member_id}]}),
    ):
        assert client.ask(api, fields).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    other = connect()

    def is_gone() -> bool:
        client.ask(Api.HEARTBEAT, heartbeat)
        (described,) = other.ask(Api.DESCRIBE_GROUPS, {"groups": [group["group_id"]]}).groups
        return not described.members

    eventually(is_gone)


@pytest.mark.slow
def test_a_client_whose_token_is_over_is_disconnected_until_it_shows_another(
    server: Server, connect: Connect, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_token(lifetime_s: int) -> str:
        resource = "sb://localhost/"
        token = sign(resource, RULE, KEY, int(now_s[0]) + lifetime_s)
        return f"Endpoint={resource};SharedAccessSignature={token}"

    now_s = [time.time()]
    monkeypatch.setattr(session, "time", SimpleNamespace(time=lambda: now_s[0]))
    idle, renewing, reading = (connect(with_token(100)) for _ in range(3))
    assert idle.produce(hub, BATCH).error_code == ErrorCode.NONE
    fetching = reading.send(Api.FETCH, fetch_fields({(hub, 0): 1}, max_wait_ms=1_000), FETCH_BY_NAME)
    now_s[0] += 99
    assert renewing.log_in(with_token(100)).error_code == ErrorCode.NONE
    now_s[0] += 1
    # a wait that began in time ends as it would have, and not with the loss of a right
    assert reading.receive(*fetching).responses[0].partitions[0].error_code == ErrorCode.NONE
    for late in (idle, reading):
        late.send(Api.PRODUCE, produce_fields(hub, BATCH))
        assert late.receive_frame() == b""
    assert connect(None).log_in(with_token(0)).error_message.startswith("the token has expired")
    assert renewing.produce(hub, BATCH).error_code == ErrorCode.NONE
    assert renewing.fetch(hub, 2).high_watermark == 2


def test_a_group_is_seen_only_from_within_its_scope(server: Server, connect: Connect, hub: str) -> None:
    everywhere, here = connect(), connect(with_rights(server, hub, "reads", Right.LISTEN, level=hub))
    joining = {
        "group_id": f"group of {hub}",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"secret topic"}],
    }
    member_id = everywhere.ask(Api.JOIN_GROUP, joining).member_id
    assert everywhere.ask(Api.JOIN_GROUP, {**joining, "member_id": member_id}).error_code == ErrorCode.NONE
    assert here.ask(Api.JOIN_GROUP, joining).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert here.ask(Api.DESCRIBE_GROUPS, {"groups": [joining["group_id"]]}).groups[0].group_state == "Dead"
    assert joining["group_id"] not in [group.group_id for group in here.ask(Api.LIST_GROUPS).groups]
    assert joining["group_id"] in [group.group_id for group in everywhere.ask(Api.LIST_GROUPS).groups]


# -- what no client sends


@pytest.mark.parametrize("size", [0, -1, 2**31 - 1, 1 << 20])
def test_a_frame_of_an_impossible_length_ends_the_connection(connect: Connect, size: int) -> None:
    client = connect(None)
    client.socket.sendall(struct.pack(">i", size))
    assert client.receive_frame() == b""


def test_garbage_ends_its_connection_and_no_other(connect: Connect, hub: str) -> None:
    good = connect()
    draw = random.Random(7)
    for _ in range(scaled(30)):
        client = connect()
        api = draw.choice(list(Api))
        frame = bytearray(encode_request(api, draw.choice((0, 1, 4)), 1, "x", {})[4:])
        for _ in range(draw.randrange(4)):
            frame[draw.randrange(len(frame))] = draw.randrange(256)
        frame += draw.randbytes(draw.randrange(30))
        with contextlib.suppress(OSError):
            client.socket.sendall(struct.pack(">i", len(frame)) + bytes(frame))
            client.socket.shutdown(socket.SHUT_WR)
            while client.receive_frame():
                pass
        client.close()
    assert good.produce(hub, BATCH).error_code == ErrorCode.NONE


def test_a_position_does_not_expire_at_once_where_the_hubs_clock_is_ahead_of_the_machines(
    server: Server, connect: Connect, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets, clock = server.namespace.group_offsets, SetClock()
    assert isinstance(offsets, GroupOffsets)
    # the machine's clock was ahead once, and the hub's does not go back
    clock.time_ms = time.time_ns() // 1_000_000 + 2 * RETENTION_MS
    monkeypatch.setattr(offsets, "_clock", clock)
    client = connect()

    def commit(number: int, offset: int) -> None:
        part = {"partition_index": number, "committed_offset": offset, "committed_leader_epoch": -1}
        member = {"group_id": hub, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        topic = {"name": hub, "partitions": [{**part, "committed_metadata": None}]}
        answer = client.ask(Api.OFFSET_COMMIT, {**member, "topics": [topic]})
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    commit(0, 3)
    GroupsApi(server.context, offsets).expire_positions()
    commit(1, 4)  # which is stored after what has expired
    assert {key.partition: position.offset for key, position in offsets.of(hub).items()} == {0: 3, 1: 4}


def test_a_client_may_ask_for_nothing_in_particular(connect: Connect, hub: str) -> None:
    """Every request with nothing but defaults is answered."""
    client = connect()
    for api in Api:
        if api not in (
            Api.SASL_HANDSHAKE,
            Api.SASL_AUTHENTICATE,
            Api.INCREMENTAL_ALTER_CONFIGS,
            Api.DESCRIBE_PRODUCERS,
        ):
            fields: dict[str, Any] = {Api.PRODUCE: {"transactional_id": None, "acks": -1}}.get(api, {})
            assert client.ask(api, fields) is not None, api
