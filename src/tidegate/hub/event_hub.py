"""An event hub: its partitions, consumer groups and publishers."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tidegate.hub.config import DEFAULT_CONSUMER_GROUP, EventHubConfig
from tidegate.hub.errors import NotFound
from tidegate.hub.partition import Partition
from tidegate.hub.placement import RoundRobin
from tidegate.hub.throughput import Throughput
from tidegate.log import Clock, Committer, PartitionLog

SEGMENTS = 8
"""What retention keeps is in so many segments or more. They go as a whole: an event may outlive its time by one part in
so many, and of a size at least three quarters are kept, however much came since retention was last applied.
"""
SEGMENT_BYTES = 32 << 20
MIN_SEGMENT_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class HubProperties:
    """What $management tells of an event hub."""

    name: str
    created_at_ms: int
    partition_ids: tuple[str, ...]


class EventHub:
    """An event hub that is being served. Partition i has the id str(i)."""

    def __init__(
        self,
        config: EventHubConfig,
        created_at_ms: int,
        partitions: tuple[Partition, ...],
        max_message_bytes: int,
        revoked_publishers: Iterable[str] = (),
    ) -> None:
        """Use `open_event_hub`."""
        self.config = config
        self.created_at_ms = created_at_ms
        self.partitions = partitions
        self.max_message_bytes = max_message_bytes
        self.turns = RoundRobin(len(partitions))
        self.revoked_publishers = frozenset(name.lower() for name in revoked_publishers)
        self.is_deleted = False
        # what the configuration said last
        self.configured: EventHubConfig | None = None
        # of the namespace; None: no limit
        self.throughput: Throughput | None = None

    @property
    def name(self) -> str:
        """As it was given when the hub was created."""
        return self.config.name

    @property
    def consumer_groups(self) -> tuple[str, ...]:
        """`$Default` and the others."""
        return self.config.consumer_groups

    def partition(self, partition_id: str) -> Partition:
        """One partition by its id. Raises NotFound."""
        for partition in self.partitions:
            if partition.partition_id == partition_id:
                return partition
        raise NotFound(
            f"the event hub {self.name} has no partition {partition_id!r}, only 0 to {len(self.partitions) - 1}"
        )

    def consumer_group(self, name: str) -> str:
        """A consumer group's name as it was given. Raises NotFound."""
        for group in self.config.consumer_groups:
            if group.lower() == name.lower():
                return group
        raise NotFound(f"the event hub {self.name} has no consumer group {name!r}")

    def check_is_there(self) -> None:
        """Who holds on to a hub asks before using it. Raises NotFound."""
        if self.is_deleted:
            raise NotFound(f"the event hub {self.name} was deleted")

    def is_revoked(self, publisher: str) -> bool:
        """An operator has shut this publisher out."""
        return publisher.lower() in self.revoked_publishers

    def properties(self) -> HubProperties:
        """As $management tells them."""
        ids = tuple(partition.partition_id for partition in self.partitions)
        return HubProperties(self.name, self.created_at_ms, ids)

    def apply_retention(self, now_ms: int) -> int:
        """Delete what the hub's retention no longer keeps, but for events that are still to be captured.

        Returns how many events. Raises LogError.
        """
        config = self.config
        if config.retention_ms is None and config.retention_bytes is None:
            return 0
        before_ms = None if config.retention_ms is None else now_ms - config.retention_ms
        at_least_bytes = 0 if config.retention_bytes is None else config.retention_bytes * 3 // 4
        deleted = 0
        for partition in self.partitions:
            partition.log.segment_bytes = segment_bytes(config)
            capture = partition.capture
            keep_from = None if capture is None else capture.keep_from
            partition.log.roll(
                before_ms=None if config.retention_ms is None else now_ms - config.retention_ms // SEGMENTS,
                max_bytes=None if config.retention_bytes is None else config.retention_bytes // SEGMENTS,
            )
            deleted += partition.log.apply_retention(
                before_ms=before_ms,
                max_bytes=config.retention_bytes,
                at_least_bytes=at_least_bytes,
                keep_from=keep_from,
            )
        return deleted

    def close(self) -> None:
        """Close all partitions."""
        for partition in self.partitions:
            partition.close()


def segment_bytes(config: EventHubConfig) -> int:
    """When a new segment is begun in the partitions of a hub, so that what comes at once is in several, too."""
    if config.retention_bytes is None:
        return SEGMENT_BYTES
    return max(MIN_SEGMENT_BYTES, min(SEGMENT_BYTES, config.retention_bytes // SEGMENTS))


def open_partitions(
    config: EventHubConfig, directory: Path, clock: Clock, committer: Committer, durable: bool
) -> tuple[Partition, ...]:
    """The partitions of a hub from their directories, which are created if missing. Raises LogError, OSError."""
    with ExitStack() as opened:
        partitions = []
        for number in range(config.partition_count):
            log = PartitionLog.open(
                directory / str(number),
                clock=clock,
                committer=committer,
                segment_bytes=segment_bytes(config),
                durable=durable,
                exclusive=False,
            )
            opened.callback(log.close)
            partitions.append(Partition(config.name, str(number), log))
        opened.pop_all()
    return tuple(partitions)


def with_group(config: EventHubConfig, name: str, user_metadata: str) -> EventHubConfig:
    """The configuration with one more consumer group. Raises pydantic's ValidationError."""
    return with_changes(
        config,
        consumer_groups=(*config.consumer_groups, name),
        group_metadata={**config.group_metadata, name.lower(): user_metadata},
    )


def without_group(config: EventHubConfig, name: str) -> EventHubConfig:
    """The configuration without a consumer group; `$Default` stays."""
    kept = tuple(g for g in config.consumer_groups if g.lower() != name.lower() or g == DEFAULT_CONSUMER_GROUP)
    metadata = {group: text for group, text in config.group_metadata.items() if group != name.lower()}
    return with_changes(config, consumer_groups=kept, group_metadata=metadata)


def with_changes(config: EventHubConfig, **changes: object) -> EventHubConfig:
    """The configuration with other values of these fields. Raises pydantic's ValidationError."""
    return EventHubConfig(**{**config.model_dump(), **changes})
