"""How much a task fetches of a topic."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from typing import Any, cast

from tests.store.kafka.simulated import WHERE, SimulatedPartition
from tidegate.store import read_settings
from tidegate.store.client.cluster import Fetched, TopicPartition
from tidegate.store.kafka.reader import FETCH_BYTES, TopicReader
from tidegate.store.kafka.records import encode_messages


class CountedPartition(SimulatedPartition):
    """One that notes how much is asked for."""

    asked: list[int]

    async def fetch_one(
        self, where: TopicPartition, offset: int, *, max_bytes: int = 1 << 20, timeout_s: float = 30.0
    ) -> Fetched:
        if max_bytes > 1:  # else a running maximum is looked up
            self.asked.append(max_bytes)
        # a broker sends one batch at least
        return await super().fetch_one(where, offset, max_bytes=max(max_bytes, 60_000), timeout_s=timeout_s)

    async def close(self) -> None:
        """There is no connection."""


def test_a_range_is_not_fetched_with_much_of_what_follows() -> None:
    partition = CountedPartition()
    partition.asked = []
    for _ in range(200):
        partition.append(encode_messages([b"x" * 1000] * 50, 5, (1, 0, 0)), 5)
    with closing(TopicReader(read_settings("127.0.0.1:1"))) as reader:
        reader._cluster = cast(Any, partition)
        reader._known_topics.add((WHERE.topic, "id"))

        def read(start: int, end: int) -> int:
            found = [batch for batches in reader.read(WHERE, "id", start, end) for batch in batches]
            assert found[0].base_sequence_number == start
            assert all(
                one.base_sequence_number + len(one.events) == two.base_sequence_number for one, two in pairwise(found)
            )
            return sum(len(batch.events) for batch in found)

        assert read(0, 5000) == 5000
        assert partition.asked[0] == FETCH_BYTES
        partition.asked.clear()
        assert read(5000, 5100) == 100
        assert read(5100, 6000) == 900
        assert read(6020, 6021) == 1
        assert len(partition.asked) == 3
        assert [size // 50_000 for size in partition.asked] == [4, 20, 2]
