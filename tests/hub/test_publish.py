"""What a publication becomes, and which are refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hub.support import (
    NOW_S,
    annotations,
    batch,
    events,
    grant,
    message,
    open_namespace,
    publish,
)
from tests.log.support import FaultyFiles, HeldCommitter, use_files
from tests.profiles import example_count
from tidegate.amqp.messages import BATCH_FORMAT, Message, annotate, encode_message, parse_message
from tidegate.hub import EventHubConfig, HubError, NamespaceConfig
from tidegate.hub.config import Tier
from tidegate.hub.errors import (
    ArgumentError,
    MessageMalformed,
    MessageTooLarge,
    NotAllowed,
    PublisherRevoked,
    ServerBusy,
)
from tidegate.hub.placement import partition_for_key


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Any]:
    opened = open_namespace(tmp_path)
    yield opened
    opened.close()


def publisher(namespace: Any, target: Any = "tolls", **options: Any) -> Any:
    return namespace.open_publisher(target, [grant(namespace)], NOW_S, **options)


def test_what_was_sent_is_stored_byte_for_byte(namespace: Any) -> None:
    sent = [
        message(b"data"),
        encode_message(Message(body_kind="value", body={"a": [1, 2.5, None]})),
        encode_message(Message(body_kind="sequence", body=[[1, "two"]])),
        encode_message(
            Message(body_kind="data", body=[b"one", b"two"], delivery_annotations={"d": 1}, footer={"f": 2})
        ),
        message(b"x", x_mine="kept"),
    ]
    link = publisher(namespace, "tolls/Partitions/2")
    for one in sent:
        publish(link, one)
    publish(link, batch(sent), BATCH_FORMAT)
    assert events(namespace) == {"2": sent + sent}


def test_events_without_a_key_go_round_the_partitions(namespace: Any) -> None:
    link = publisher(namespace)
    for number in range(8):
        publish(link, message(b"%d" % number))
    assert {partition: len(found) for partition, found in events(namespace).items()} == {str(n): 2 for n in range(4)}


@pytest.mark.parametrize("key", ["device-1", "device-17", "é", "k"])
def test_a_key_chooses_the_partition_wherever_it_stands(namespace: Any, key: str) -> None:
    link = publisher(namespace)
    publish(link, message(b"single", key))
    publish(link, batch([message(b"outer"), message(b"both", key)], key), BATCH_FORMAT)
    publish(link, batch([message(b"inner", key)]), BATCH_FORMAT)
    assert list(events(namespace)) == [str(partition_for_key(key, 4))]
    (found,) = events(namespace).values()
    assert len(found) == 4
    assert all(annotations(event)["x-opt-partition-key"] == key for event in found)


def test_a_batchs_key_is_put_beside_what_an_event_has(namespace: Any) -> None:
    publish(publisher(namespace), batch([message(b"x", x_mine=7)], "k"), BATCH_FORMAT)
    (found,) = events(namespace).values()
    assert annotations(found[0]) == {"x-mine": 7, "x-opt-partition-key": "k"}
    assert parse_message(found[0]).body == [b"x"]


@pytest.mark.parametrize(
    ("payload", "message_format", "error"),
    [
        (batch([message(b"a", "one"), message(b"b", "two")]), BATCH_FORMAT, NotAllowed),
        (batch([message(b"a", "one")], "two"), BATCH_FORMAT, NotAllowed),
        (batch([message(b"a", "k" * 129)]), BATCH_FORMAT, ArgumentError),
        (batch([message(b"a")], "k" * 129), BATCH_FORMAT, ArgumentError),
        (b"", BATCH_FORMAT, ArgumentError),
        (batch([]), BATCH_FORMAT, ArgumentError),
        (b"", 0, MessageMalformed),
        (b"garbage", 0, MessageMalformed),
        (message(b"cut" * 100)[:-1], 0, MessageMalformed),
        (message(b"more") + b"\x00", 0, MessageMalformed),
        (batch([message(b"good"), b"bad"]), BATCH_FORMAT, MessageMalformed),
        (batch([message(b"good"), b""]), BATCH_FORMAT, MessageMalformed),
        (batch([message(b"good")])[:-1], BATCH_FORMAT, MessageMalformed),
        (b"\x00\x53\x72\xc1\x05\x02\xa3\x01", 0, MessageMalformed),
        (message(b"x"), 1, ArgumentError),
        (message(b"x"), 0x80013701, ArgumentError),
    ],
)
def test_what_is_refused_leaves_nothing(namespace: Any, payload: Any, message_format: Any, error: Any) -> None:
    with pytest.raises(error) as refusal:
        publish(publisher(namespace), payload, message_format)
    assert refusal.value.condition
    assert events(namespace) == {}


def test_a_publication_may_have_what_its_tier_allows(tmp_path: Path) -> None:
    for tier, limit in ((Tier.BASIC, 256 * 1024), (Tier.STANDARD, 1024 * 1024)):
        config = NamespaceConfig(name="n", event_hubs=(EventHubConfig(name="tolls"),), tier=tier)
        namespace = open_namespace(tmp_path / tier.value, config)
        link = publisher(namespace)
        assert link.max_message_bytes == limit
        overhead = len(message(bytes(limit))) - limit
        publish(link, message(bytes(limit - overhead)))
        with pytest.raises(MessageTooLarge, match=str(limit)):
            publish(link, message(bytes(limit - overhead + 1)))
        answers: list[HubError | None] = []
        with pytest.raises(MessageTooLarge):
            link.publish_events([message(bytes(limit // 2))] * 3, None, answers.append)
        assert answers == []
        namespace.close()


def test_a_key_has_no_say_on_a_partitions_link(namespace: Any) -> None:
    link = publisher(namespace, "tolls/Partitions/1")
    publish(link, message(b"x", "key"))
    publish(link, message(b"x"))
    assert list(events(namespace)) == ["1"]


def test_events_of_many_keys_may_go_to_a_partition_together_as_buffered_producers_send_them(namespace: Any) -> None:
    keyed = [message(b"a", "one"), message(b"b", "two"), message(b"c"), message(b"d", "one")]
    link = publisher(namespace, "tolls/Partitions/1")
    publish(link, batch(keyed), BATCH_FORMAT)
    publish(link, batch(keyed, "outer"), BATCH_FORMAT)
    found = [annotations(event).get("x-opt-partition-key") for event in events(namespace)["1"]]
    assert found == ["one", "two", None, "one", "one", "two", "outer", "one"]
    with pytest.raises(ArgumentError):
        publish(link, batch([message(b"a", "one"), message(b"b", "k" * 129)]), BATCH_FORMAT)


def test_a_key_that_is_not_a_string_counts_as_none(namespace: Any) -> None:
    sent = encode_message(Message(body_kind="data", body=[b""], message_annotations={"x-opt-partition-key": 7}))
    link = publisher(namespace)
    for _ in range(4):
        publish(link, sent)
    assert events(namespace) == {str(partition): [sent] for partition in range(4)}


def test_a_publishers_events_carry_its_name(namespace: Any) -> None:
    link = publisher(namespace, "tolls/Publishers/gate-1")
    publish(link, message(b"a"))
    publish(link, batch([message(b"b"), message(b"c", "gate-1")], "gate-1"), BATCH_FORMAT)
    (found,) = events(namespace).values()
    assert [annotations(event) for event in found] == [
        {"x-opt-partition-key": "gate-1", "x-opt-publisher": "gate-1"}
    ] * 3
    assert list(events(namespace)) == [str(partition_for_key("gate-1", 4))]
    for wrong in (message(b"x", "gate-2"), message(b"x", "GATE-1")):
        with pytest.raises(NotAllowed):
            publish(link, wrong)
    with pytest.raises(NotAllowed):
        publish(link, batch([message(b"x")], "gate-2"), BATCH_FORMAT)


def test_nobody_else_can_write_a_publishers_name(namespace: Any) -> None:
    publish(publisher(namespace), message(b"x", x_opt_publisher="gate-1", x_mine=1))
    publish(publisher(namespace, "tolls/Publishers/gate-2"), message(b"x", x_opt_publisher="gate-1"))
    names = {annotations(event).get("x-opt-publisher") for found in events(namespace).values() for event in found}
    assert names == {None, "gate-2"}


def test_a_publisher_is_revoked_on_the_spot_and_restored(namespace: Any) -> None:
    link = publisher(namespace, "tolls/Publishers/gate-1")
    publish(link, message(b"a"))
    namespace.management.revoke_publisher("tolls", "Gate-1")
    with pytest.raises(PublisherRevoked):
        publish(link, message(b"b"))
    with pytest.raises(PublisherRevoked):
        publisher(namespace, "tolls/Publishers/gate-1")
    publish(publisher(namespace, "tolls/Publishers/gate-2"), message(b"c"))
    namespace.management.restore_publisher("tolls", "gate-1")
    publish(link, message(b"d"))


def test_https_events(namespace: Any) -> None:
    answers: list[HubError | None] = []
    publisher(namespace).publish_events([message(b"a"), message(b"b")], "key", answers.append)
    assert answers == [None]
    (found,) = events(namespace).values()
    assert [annotations(event)["x-opt-partition-key"] for event in found] == ["key", "key"]
    with pytest.raises(MessageMalformed):
        publisher(namespace).publish_events([b"\x00"], None, answers.append)
    with pytest.raises(ArgumentError):
        publisher(namespace).publish_events([], None, answers.append)


def test_the_answer_comes_when_the_events_are_durable(tmp_path: Path) -> None:
    committer = HeldCommitter()
    namespace = open_namespace(tmp_path, committer=committer)
    answers: list[HubError | None] = []
    publisher(namespace).publish(0, message(b"x"), answers.append)
    assert answers == []
    committer.run()
    assert answers == [None]
    namespace.close()
    with pytest.raises(ServerBusy):
        publish(publisher(namespace), message(b"x"))


def test_a_full_disk_is_server_busy_for_the_publisher(namespace: Any) -> None:
    files = FaultyFiles()
    files.fail("write", 28)
    for partition in namespace.event_hub("tolls").partitions:
        use_files(partition.log, files)
    link = publisher(namespace)
    with pytest.raises(ServerBusy, match="could not be stored"):
        publish(link, message(b"x"))
    files.heal()
    publish(link, message(b"x"))


@settings(max_examples=example_count(300))
@given(
    payload=st.binary(max_size=80),
    prefix=st.sampled_from([b"", b"\x00\x53\x75", b"\x00\x53\x72\xc1", b"\x00\x53\x75\xa0\x05\x00\x53"]),
    message_format=st.sampled_from([0, BATCH_FORMAT]),
)
def test_any_bytes_are_stored_deliverable_or_refused(
    payload: bytes, prefix: Any, message_format: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    namespace = shared_namespace(tmp_path_factory)
    before = sum(map(len, events(namespace).values()))
    try:
        publish(publisher(namespace), prefix + payload, message_format)
    except HubError:
        assert sum(map(len, events(namespace).values())) == before
        return
    for found in events(namespace).values():
        annotate(found[-1], 1, 2, 3)


_shared: list[Any] = []


def shared_namespace(factory: Any) -> Any:
    if not _shared:
        _shared.append(open_namespace(factory.mktemp("fuzz")))
    return _shared[0]


SINGLES = st.sampled_from(
    [
        message(b"plain"),
        message(b"keyed", "device-1"),
        message(b"keyed", "device-2"),
        message(b"somebody else wrote it", x_opt_publisher="p"),
        b"not AMQP",
        message(b"x" * 300_000),
    ]
)


@pytest.mark.parametrize("target", ["tolls", "tolls/Partitions/1", "tolls/Publishers/device-1"])
@given(payloads=st.lists(SINGLES, max_size=12))
@settings(max_examples=example_count(30), deadline=None)
def test_singles_that_come_together_fare_as_if_they_came_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, target: str, payloads: Any
) -> None:
    answers: list[list[type | None]] = []
    found = []
    for together in (True, False):
        namespace = open_namespace(
            tmp_path_factory.mktemp("ns"),
            NamespaceConfig(name="n", tier=Tier.BASIC, event_hubs=(EventHubConfig(name="tolls", partition_count=4),)),
        )
        link = publisher(namespace, target)
        answer: list[list[type | None]] = [[] for _ in payloads]
        if together:
            link.publish_singles(
                payloads,
                lambda indexes, error, answer=answer: [
                    answer[index].append(None if error is None else type(error)) for index in indexes
                ],
            )
        else:
            for payload, kinds in zip(payloads, answer, strict=True):
                try:
                    publish(link, payload)
                    kinds.append(None)
                except HubError as error:
                    kinds.append(type(error))
        assert all(len(kinds) == 1 for kinds in answer)
        answers.append([kind for kinds in answer for kind in kinds])
        found.append(events(namespace))
        namespace.close()
    assert answers[0] == answers[1]
    assert found[0] == found[1]


def test_singles_that_could_not_be_stored_are_refused_each(namespace: Any) -> None:
    files = FaultyFiles()
    use_files(namespace.event_hub("tolls").partition("0").log, files)
    files.fail("write", 28)
    answers = []
    link = publisher(namespace, "tolls/Partitions/0")
    link.publish_singles([message(b"a"), b"broken", message(b"b")], lambda *answer: answers.append(answer))
    assert [(list(indexes), type(error)) for indexes, error in answers] == [
        ([1], MessageMalformed),
        ([0, 2], ServerBusy),
    ]
