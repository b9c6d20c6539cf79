"""Gateways on a real cluster: appends, followers, markers, and leaders that are killed, stopped or cut off."""

from __future__ import annotations

import asyncio
import itertools
import resource
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.kafka.cluster import Cluster
from tests.patience import PATIENCE_S, eventually
from tests.store.kafka.simulated import WHERE, SimulatedPartition
from tidegate.kafka.messages import Api, Message
from tidegate.log import Appended, EventBatch, LogError, Numbering
from tidegate.store.client import cluster as store_cluster
from tidegate.store.client.cluster import Fetched, Produced, TopicPartition
from tidegate.store.client.connection import Connection, Unreachable
from tidegate.store.client.settings import read_settings
from tidegate.store.kafka import log as log_module
from tidegate.store.kafka import writer
from tidegate.store.kafka.log import KafkaLog
from tidegate.store.kafka.records import encode_messages
from tidegate.store.kafka.store import KafkaStore

_names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def kafka(skewed_brokers: Cluster) -> Cluster:
    return skewed_brokers


def new_topic(kafka: Cluster, *, leader: int = 0, min_in_sync: int = 2) -> TopicPartition:
    """Create a topic of one partition that begins with a certain leader."""
    name = next(_names)
    replicas = [[leader + 1, *(node + 1 for node in kafka.nodes if node != leader)]]
    settings = {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": str(min_in_sync)}
    client = AdminClient({"bootstrap.servers": kafka.clients["a"], "log_level": 0})
    topic = NewTopic(name, num_partitions=1, replica_assignment=replicas, config=settings)
    client.create_topics([topic])[name].result(PATIENCE_S)
    return TopicPartition(name, 0)


@contextmanager
def gateway(kafka: Cluster, client: str = "a") -> Iterator[KafkaStore]:
    store = KafkaStore(read_settings(kafka.clients[client]))
    try:
        store.open()
        yield store
    finally:
        store.close()


def opened(store: KafkaStore, where: TopicPartition) -> KafkaLog:
    eventually(lambda: store.wait(store.cluster.partitions(where.topic)))
    return store.open_log(where, store.cluster.topic_id(where.topic) or "")


class Outcome:
    """What became of an append."""

    def __init__(self, log: KafkaLog, events: Sequence[bytes], numbering: Numbering | None = None) -> None:
        self._is_done = threading.Event()
        self._result: Appended | LogError | None = None
        log.append(events, self._take, numbering)

    def _take(self, result: Appended | LogError) -> None:
        self._result = result
        self._is_done.set()

    @property
    def is_known(self) -> bool:
        return self._is_done.is_set()

    def result(self) -> Appended | LogError:
        assert self._is_done.wait(PATIENCE_S)
        assert self._result is not None
        return self._result

    def stored(self) -> Appended:
        result = self.result()
        assert isinstance(result, Appended), result
        return result


def everything(log: KafkaLog, first: int = 0) -> list[tuple[int, int, bytes]]:
    """What a log holds, after it has caught up with the other gateways."""
    log._store.wait(log.catch_up_soon())
    found: list[tuple[int, int, bytes]] = []
    while batches := log.read_batches(first):
        found += flat(batches)
        first = found[-1][0] + 1
    return found


def flat(batches: Sequence[EventBatch]) -> list[tuple[int, int, bytes]]:
    return [
        (batch.base_sequence_number + index, batch.enqueued_time_ms, event)
        for batch in batches
        for index, event in enumerate(batch.events)
    ]


class SlowBrokers:
    """Two brokers in place of a cluster, which answer a request when the test has them answer."""

    def __init__(self) -> None:
        self.partition = SimulatedPartition()
        self.leader_now: int | None = 1
        self.requests: list[tuple[int, Mapping[TopicPartition, bytes], asyncio.Future[Any]]] = []

    def leader(self, where: TopicPartition) -> int | None:
        return self.leader_now

    async def refresh(self, topics: Sequence[str] = ()) -> None:
        """Do nothing."""

    async def init_producer_id(self, timeout_s: float) -> tuple[int, int]:
        return 1, 0

    def topic_id(self, topic: str) -> str:
        return "id"

    async def fetch(
        self, node: int, positions: Mapping[TopicPartition, int], *, purpose: str, wait_s: float
    ) -> Mapping[TopicPartition, Fetched]:
        await asyncio.sleep(0.02)
        return {where: await self.partition.fetch_one(where, offset) for where, offset in positions.items()}

    async def produce(self, node: int, batches: Mapping[TopicPartition, bytes], timeout_s: float) -> Any:
        answer = asyncio.get_running_loop().create_future()
        self.requests.append((node, dict(batches), answer))
        return await answer

    async def close(self) -> None:
        """Do nothing."""

    def answer(self, store: KafkaStore, request: int, result: Produced) -> None:
        """Answer a request, and return when the store has taken note of it."""
        _, batches, answer = self.requests[request]

        async def answered() -> None:
            answer.set_result(dict.fromkeys(batches, result))
            await asyncio.sleep(0.01)

        store.wait(answered())


def test_the_answer_of_a_former_leader_acknowledges_no_later_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = SlowBrokers()
    store, where = KafkaStore(read_settings("127.0.0.1:1")), TopicPartition("topic", 0)
    monkeypatch.setattr(store, "cluster", brokers)
    try:
        log = KafkaLog(store, where, "id")
        first = Outcome(log, [b"first"])
        eventually(lambda: len(brokers.requests) == 1)
        brokers.leader_now = 2
        second = Outcome(log, [b"second"])  # has what is on its way sent to the new leader, too
        eventually(lambda: len(brokers.requests) == 2)
        assert [node for node, _, _ in brokers.requests] == [1, 2]
        brokers.answer(store, 1, Produced(0, 5))
        assert first.stored().first_sequence_number == 0
        eventually(lambda: len(brokers.requests) == 3)
        brokers.answer(store, 0, Produced(0, 5))
        assert not second.is_known
        brokers.answer(store, 2, Produced(1, 6))
        assert second.stored().first_sequence_number == 1
        third = Outcome(log, [b"third"])
        eventually(lambda: len(brokers.requests) == 4)
        brokers.answer(store, 3, Produced(2, 7))
        assert third.stored().first_sequence_number == 2
    finally:
        store.close()


@pytest.mark.slow
def test_a_partition_that_was_without_a_leader_is_followed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, store = SlowBrokers(), KafkaStore(read_settings("127.0.0.1:1"))
    monkeypatch.setattr(store, "cluster", brokers)
    try:
        store.open()
        brokers.leader_now = None
        log = store._logs[WHERE] = KafkaLog(store, WHERE, "id")
        grew = threading.Event()
        log.on_grow(grew.set)
        for number in range(2):  # as its reader comes, and while it waits
            brokers.leader_now = 1
            brokers.partition.append(encode_messages([b"%d" % number], 1, (1, 0, number)), 5)
            assert grew.wait(PATIENCE_S)
            assert log.next_sequence_number == number + 1
            grew.clear()
            brokers.leader_now = None  # also when a broker that has just started does not know the topic yet
            eventually(lambda: not store._following[1].is_set())
    finally:
        store.close()


@pytest.mark.slow
def test_publishers_are_told_in_time_however_much_waits_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "DELIVERY_TIMEOUT_S", 1.0)
    brokers = SlowBrokers()
    brokers.leader_now = None
    store = KafkaStore(read_settings("127.0.0.1:1"))
    monkeypatch.setattr(store, "cluster", brokers)
    try:
        log = KafkaLog(store, TopicPartition("topic", 0), "id")
        begun_s = time.monotonic()
        # each has a record batch of its own
        outcomes = [Outcome(log, [b"%d" % number], Numbering(1, 0, number)) for number in range(60)]
        assert all(isinstance(outcome.result(), LogError) for outcome in outcomes)
        assert time.monotonic() - begun_s < 25
    finally:
        store.close()


def test_a_broker_that_did_not_answer_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = store_cluster.Cluster(read_settings("127.0.0.1:1"))
    brokers._brokers = {1: ("hangs", 9092), 2: ("answers", 9092)}
    for node, failure in ((1, Unreachable("hangs did not answer within 10 s")), (2, None)):
        connection = Connection(brokers.settings, *brokers.brokers[node])
        connection.failure = failure
        brokers._connections[node, "control"] = connection
    asked: list[int] = []

    async def ask(node: int, purpose: str, api: Api, values: Mapping[str, object]) -> Message:
        asked.append(node)
        return Message()

    monkeypatch.setattr(brokers, "ask", ask)
    asyncio.run(brokers.ask_any(Api.METADATA, {}))
    assert asked == [2]


def test_a_gateway_does_not_fetch_what_others_append_without_a_reader(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = new_topic(kafka)
    with gateway(kafka, "a") as a, gateway(kafka, "b") as b:
        one, other = opened(a, where), opened(b, where)
        fetched: list[str] = []
        fetch = store_cluster.Cluster.fetch

        async def noted(self: store_cluster.Cluster, *arguments: Any, purpose: str, **options: Any) -> Any:
            fetched.append(purpose)
            return await fetch(self, *arguments, purpose=purpose, **options)

        with monkeypatch.context() as patch:
            patch.setattr(store_cluster.Cluster, "fetch", noted)
            for number in range(10):
                assert Outcome(one, [b"one"]).stored().first_sequence_number == 2 * number
                assert Outcome(other, [b"other"]).stored().first_sequence_number == 2 * number + 1
            assert "follow" not in fetched
        for log in (one, other):
            assert [event for _, _, event in everything(log)] == [b"one", b"other"] * 10
        monkeypatch.setattr(log_module, "_FAR_BEHIND", 1)  # then the end is looked up
        for number in range(5):
            assert Outcome(one, [b"more"]).stored().first_sequence_number == 20 + number
        other.catch_up()
        assert (other.next_sequence_number, other.last_offset) == (25, 24)
        assert len(everything(other)) == 25


def test_two_gateways_append_to_one_partition_and_read_the_same(kafka: Cluster) -> None:
    where = new_topic(kafka)
    with gateway(kafka, "a") as a, gateway(kafka, "b") as b:
        one, other = opened(a, where), opened(b, where)
        grew = threading.Event()
        other.on_grow(grew.set)
        assert Outcome(one, [b"1", b"2"]).stored().first_sequence_number == 0
        assert one.next_sequence_number == 2
        assert grew.wait(PATIENCE_S)
        assert Outcome(other, [b"3"]).stored().first_sequence_number == 2
        found = everything(one)
        assert [event for _, _, event in found] == [b"1", b"2", b"3"]
        assert found == everything(other) == everything(opened(b, where))
        assert one.sequence_at_time(found[2][1], inclusive=True) <= 2
        assert one.sequence_at_time(found[2][1], inclusive=False) == 3
        assert (one.last_offset, one.last_enqueued_time_ms) == (2, found[2][1])


def test_what_waits_is_stored_together_and_every_batch_entire(kafka: Cluster) -> None:
    where = new_topic(kafka)
    with gateway(kafka) as store:
        log = opened(store, where)
        outcomes = [Outcome(log, [b"%d.%d" % (number, index) for index in range(50)]) for number in range(200)]
        for number, outcome in enumerate(outcomes):
            first = outcome.stored().first_sequence_number
            expected = [b"%d.%d" % (number, index) for index in range(50)]
            assert [event for _, _, event in flat(log.read_batches(first, max_events=50))] == expected
        assert log.next_sequence_number == 10_000
        times = {batch.enqueued_time_ms for batch in log.read_batches(0, max_bytes=8 << 20)}
        assert len(times) < 200


def test_a_waiting_job_raises_the_lower_bound_of_an_idle_partition(kafka: Cluster) -> None:
    where = new_topic(kafka)
    with gateway(kafka, "a") as a, gateway(kafka, "b") as b:
        one, other = opened(a, where), opened(b, where)
        first = Outcome(one, [b"1"]).stored().enqueued_time_ms
        eventually(lambda: one.arrival_lower_bound().lower_bound_ms > first)
        bound = one.arrival_lower_bound()
        assert bound.next_sequence_number == one.next_sequence_number == 1
        # the same holds in the log for everybody else
        eventually(lambda: other.arrival_lower_bound().lower_bound_ms >= bound.lower_bound_ms)
        stored = Outcome(other, [b"2"]).stored()
        assert stored.enqueued_time_ms >= bound.lower_bound_ms
        assert [(event, time_ms) for _, time_ms, event in everything(one)] == [
            (b"1", first),
            (b"2", everything(other)[1][1]),
        ]
        assert opened(b, where).next_sequence_number == stored.first_sequence_number + 1


def test_a_numbered_batch_is_stored_once_and_a_gap_is_refused(kafka: Cluster) -> None:
    where = new_topic(kafka)
    with gateway(kafka, "a") as a, gateway(kafka, "b") as b:
        one, other = opened(a, where), opened(b, where)
        producer, epoch = a.producer[0] + 100_000, 0
        numbers = Numbering(producer, epoch, 5)
        first = Outcome(one, [b"5", b"6"], numbers).stored()
        again = Outcome(other, [b"5", b"6"], numbers).stored()
        assert first.first_sequence_number == again.first_sequence_number
        refused = Outcome(one, [b"9"], Numbering(producer, epoch, 9)).result()
        assert isinstance(refused, LogError)
        assert "OUT_OF_ORDER" in str(refused)
        for number in range(7, 15):
            Outcome(one, [b"%d" % number], Numbering(producer, epoch, number)).stored()
        # too old for the broker to remember where it is, but known to be stored
        assert Outcome(other, [b"5", b"6"], numbers).stored().first_sequence_number == -1
        assert [event for _, _, event in everything(one)] == [b"%d" % number for number in range(5, 15)]


def test_a_leader_that_is_killed_costs_no_event_and_no_time_goes_back(kafka: Cluster) -> None:
    where = new_topic(kafka, leader=1)  # its clock is ahead of the next leader's
    with gateway(kafka) as store:
        log = opened(store, where)
        before = Outcome(log, [b"before"]).stored()
        kafka.kill(1)
        try:
            outcomes = [Outcome(log, [b"%d" % number]) for number in range(20)]
            stored = [outcome.stored().first_sequence_number for outcome in outcomes]
        finally:
            kafka.start(1)
        found = everything(opened(store, where))
        assert stored == list(range(before.first_sequence_number + 1, before.first_sequence_number + 21))
        assert [event for _, _, event in found] == [b"before", *(b"%d" % number for number in range(20))]
        times = [time_ms for _, time_ms, _ in found]
        assert times == sorted(times)
        assert times[1] == times[0], "the clock of the new leader was behind"
        # a reader that begins after the leader changed finds the same
        assert everything(opened(store, where), 5) == found[5:]


@pytest.mark.soak
def test_a_leader_that_is_stopped_or_cut_off_delays_appends(kafka: Cluster) -> None:
    where = new_topic(kafka, leader=2)
    with gateway(kafka, "b") as store:
        log = opened(store, where)
        Outcome(log, [b"0"]).stored()
        kafka.pause(2)
        try:
            assert Outcome(log, [b"1"]).stored().first_sequence_number == 1
        finally:
            kafka.resume(2)
        leader = store.cluster.leader(where)
        assert leader is not None
        link = kafka.to_broker["b", leader - 1]
        link.cut(there=False)  # requests arrive, answers do not: appends are repeated and must not be doubled
        outcome = Outcome(log, [b"2"])
        eventually(lambda: log.write_failure is not None)
        link.mend()
        assert outcome.stored().first_sequence_number == 2
        assert [event for _, _, event in everything(log)] == [b"0", b"1", b"2"]


def test_a_broker_whose_disk_takes_no_more_is_like_a_leader_that_dies(kafka: Cluster) -> None:
    where = new_topic(kafka, leader=0)
    with gateway(kafka) as store:
        log = opened(store, where)
        bodies = [b"%d" % number + bytes(20_000) for number in range(20)]
        Outcome(log, bodies[:1]).stored()
        # no file of the broker grows beyond this, which Kafka sees as it sees a full disk: a write fails
        resource.prlimit(kafka.pids[0], resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            for number, body in enumerate(bodies[1:], 1):
                assert Outcome(log, [body]).stored().first_sequence_number == number
            assert store.cluster.leader(where) != 1
            assert [event for _, _, event in everything(log)] == bodies
        finally:
            kafka.kill(0)
            kafka.start(0)
        Outcome(log, [b"after"]).stored()


def test_a_partition_is_known_to_take_events_again_without_a_publisher(kafka: Cluster) -> None:
    where = new_topic(kafka)
    with gateway(kafka) as store:
        log = opened(store, where)
        log.try_again()  # nothing has failed
        Outcome(log, [b"0"]).stored()
        set_cleanup_policy(kafka, where, "compact")  # takes no record without a key
        try:
            eventually(lambda: isinstance(Outcome(log, [b"refused"]).result(), LogError))
            log.try_again()
            assert log.write_failure is not None
        finally:
            set_cleanup_policy(kafka, where, "delete")

        def is_well() -> bool:
            log.try_again()
            return log.write_failure is None

        eventually(is_well)
        number = Outcome(log, [b"1"]).stored().first_sequence_number
        events = everything(log)
        assert (events[0][2], events[-1]) == (b"0", (number, events[-1][1], b"1"))
        assert {event for _, _, event in events[1:-1]} <= {b"refused"}


def set_cleanup_policy(kafka: Cluster, where: TopicPartition, policy: str) -> None:
    client = AdminClient({"bootstrap.servers": kafka.clients["a"], "log_level": 0})
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, where.topic, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


@pytest.mark.soak
def test_without_enough_replicas_publishers_try_again_and_readers_go_on(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "DELIVERY_TIMEOUT_S", 1.0)
    where = new_topic(kafka, leader=0, min_in_sync=3)
    with gateway(kafka) as store:
        log = opened(store, where)
        Outcome(log, [b"0"]).stored()
        kafka.kill(2)
        try:
            eventually(lambda: "NOT_ENOUGH_REPLICAS" in str(Outcome(log, [b"refused"]).result()))
            assert log.write_failure is not None
            assert everything(log)[0][2] == b"0"
        finally:
            kafka.start(2)
        eventually(lambda: isinstance(Outcome(log, [b"1"]).result(), Appended))
        assert log.write_failure is None
        events = [event for _, _, event in everything(log)]
        assert (events[0], events[-1]) == (b"0", b"1")


@pytest.mark.soak
def test_what_waits_behind_a_batch_that_could_not_be_stored_is_stored_when_it_is_acknowledged(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = new_topic(kafka, leader=0, min_in_sync=3)
    with gateway(kafka) as store:
        log = opened(store, where)
        Outcome(log, [b"0"]).stored()
        kafka.kill(2)
        try:
            monkeypatch.setattr(writer, "DELIVERY_TIMEOUT_S", 2.0)
            given_up = Outcome(log, [b"given up"])
            eventually(lambda: log.write_failure is not None)
            monkeypatch.setattr(writer, "DELIVERY_TIMEOUT_S", PATIENCE_S)
            waiting = Outcome(log, [b"waiting"])
            assert isinstance(given_up.result(), LogError)
        finally:
            kafka.start(2)
        number = waiting.stored().first_sequence_number
        assert [event for at, _, event in everything(log) if at == number] == [b"waiting"]


def test_a_topic_that_is_deleted_or_replaced_takes_no_events_until_it_is_opened_again(kafka: Cluster) -> None:
    where = new_topic(kafka)
    client = AdminClient({"bootstrap.servers": kafka.clients["a"], "log_level": 0})
    with gateway(kafka) as store:
        log = opened(store, where)
        Outcome(log, [b"0"]).stored()
        client.delete_topics([where.topic])[where.topic].result(PATIENCE_S)
        eventually(lambda: log.write_failure is not None and "was deleted: restore it" in log.write_failure.reason)
        assert "was deleted" in str(Outcome(log, [b"1"]).result())
        eventually(lambda: where.topic not in client.list_topics(timeout=PATIENCE_S).topics)
        client.create_topics([NewTopic(where.topic, 1)])[where.topic].result(PATIENCE_S)
        eventually(lambda: "another one has its name" in str(Outcome(log, [b"2"]).result()))
        assert Outcome(opened(store, where), [b"3"]).stored().first_sequence_number == 0
