"""A partition of a cluster in memory, with clocks of brokers that are wrong, for tests without Java."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.kafka.records import parse_batch, parse_batches, rebase
from tidegate.store.client.cluster import EARLIEST, LATEST, Fetched, TopicPartition

WHERE = TopicPartition("topic", 0)


@dataclass
class SimulatedPartition:
    """What `Cluster` offers for one partition: it looks positions up, and fetches.

    Attributes:
        batches: The stored record batches.
        lookups: How many positions were looked up.
    """

    batches: list[bytes] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    lookups: int = 0

    def append(self, encoded: bytes, stamp_ms: int) -> int:
        """Append a record batch as a broker does, and return its first offset."""
        first = self.end
        batch = parse_batch(encoded)
        self.batches.append(rebase(batch, first, stamp_ms))
        self.end = first + batch.last_offset_delta + 1
        return first

    async def list_offset(self, where: TopicPartition, timestamp_ms: int, timeout_s: float = 30.0) -> int:
        assert where == WHERE
        self.lookups += 1
        if timestamp_ms == EARLIEST:
            return self.begin
        if timestamp_ms == LATEST:
            return self.end
        for encoded in self.batches:
            batch = parse_batch(encoded)
            if batch.max_timestamp_ms >= timestamp_ms and batch.next_offset > self.begin:
                return max(batch.base_offset, self.begin)
        return -1

    async def fetch_one(
        self, where: TopicPartition, offset: int, *, max_bytes: int = 1 << 20, timeout_s: float = 30.0
    ) -> Fetched:
        assert where == WHERE
        found = b""
        for batch in parse_batches(b"".join(self.batches)):
            if batch.next_offset > offset and (not found or len(found) < max_bytes):
                found += bytes(batch.data)
        return Fetched(found if not found or len(found) < max_bytes else found[: max(max_bytes, 4096)], self.end, 0)
