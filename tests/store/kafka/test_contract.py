"""The partitions of a gateway do what every store does: the tests of `tests/log/contract.py`, on a real cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.kafka.cluster import Cluster
from tests.log.contract import OpenedStore, StoreContract, StoreMachine, append, everything
from tests.patience import PATIENCE_S, eventually
from tests.profiles import example_count
from tidegate.log import PartitionStore
from tidegate.store import KafkaLog, read_settings
from tidegate.store.client.cluster import TopicPartition
from tidegate.store.kafka.shared_topic import SharedTopic
from tidegate.store.kafka.store import KafkaStore
from tidegate.store.kafka.topics import find_topic

_names = (f"contract-{number}" for number in itertools.count())


class OnKafka:
    """A gateway of a namespace of its own, with one partition."""

    log: PartitionStore

    def __init__(self, brokers: Cluster) -> None:
        self._bootstrap = brokers.clients["a"]
        self._name = next(_names)
        topic = NewTopic(self._name, 1, config={"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2"})
        client = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        client.create_topics([topic])[self._name].result(PATIENCE_S)
        self.log = self._open()

    def _open(self) -> KafkaLog:
        self._store = store = KafkaStore(read_settings(self._bootstrap))
        store.open()
        self._shared = SharedTopic(store, self._name)
        store.wait(self._shared.open())
        eventually(lambda: store.wait(store.cluster.partitions(self._name)))
        facts = store.wait(find_topic(store.cluster, self._name))
        assert facts is not None
        return store.open_log(TopicPartition(self._name, 0), facts.topic_id)

    def reopen(self) -> None:
        self.close()
        self.log = self._open()

    def close(self) -> None:
        self.log.close()
        self._store.wait(self._shared.close())
        self._store.close()


class TestOnKafka(StoreContract):
    @pytest.fixture
    def store(self, three_brokers: Cluster) -> Iterator[OpenedStore]:
        store = OnKafka(three_brokers)
        yield store
        store.close()

    def test_what_is_due_is_deleted_and_the_numbering_continues(self, store: OpenedStore) -> None:
        """Brokers delete by themselves, in whole segments, so that is asked of them in place of the gateway."""
        append(store.log, [b"a", b"b"])
        last = store.log.last_offset, store.log.next_sequence_number
        assert store.log.retain(now_ms=1 << 60, retention_ms=1, retention_bytes=None) == 0
        store.log.delete_before(store.log.next_sequence_number)
        for _ in range(2):
            assert store.log.is_empty
            assert everything(store.log) == []
            assert (store.log.last_offset, store.log.next_sequence_number) == last
            store.reopen()
        (stored,) = append(store.log, [b"c"])
        assert stored.first_sequence_number >= last[1]
        assert [row.event for row in everything(store.log)] == [b"c"]


def test_a_log_is_a_list_that_only_grows(three_brokers: Cluster) -> None:
    class Machine(StoreMachine):
        @staticmethod
        def new_store() -> OpenedStore:
            return OnKafka(three_brokers)

    few = settings(max_examples=example_count(4), stateful_step_count=12, deadline=None)
    run_state_machine_as_test(Machine, settings=few)
