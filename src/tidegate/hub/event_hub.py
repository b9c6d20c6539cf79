"""An event hub: its partitions, consumer groups and publishers."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tidegate.hub.config import DEFAULT_CONSUMER_GROUP, EventHubConfig
from tidegate.hub.errors import ArgumentOutOfRange, entity_not_found
from tidegate.hub.partition import Partition
from tidegate.hub.placement import RoundRobin
from tidegate.hub.producers import ProducerTable
from tidegate.hub.snapshot import HubDefinition
from tidegate.hub.throughput import Throughput
from tidegate.log import Clock, Committer, LogError, PartitionLog, prepare_folder
from tidegate.log.retention import segment_bytes_for


@dataclass(frozen=True, slots=True)
class Admission:
    """What the namespace's limits mean for publishers of a hub.

    Attributes:
        max_message_bytes: The largest size of one publication.
        throughput: The throughput units, None if there is no limit.
    """

    max_message_bytes: int
    throughput: Throughput | None


@dataclass(frozen=True, slots=True)
class HubProperties:
    """What $management reports about an event hub."""

    name: str
    created_at_ms: int
    partition_ids: tuple[str, ...]


class EventHub:
    """An event hub that is being served. Partition i has the id str(i).

    The registry replaces `definition` and `admission` whole when they change.
    """

    def __init__(self, definition: HubDefinition, partitions: tuple[Partition, ...], admission: Admission) -> None:
        """Use `Registry`."""
        self.definition = definition
        self.partitions = partitions
        self.admission = admission
        self.turns = RoundRobin(len(partitions))
        self.is_deleted = False

    def set_partitions(self, partitions: tuple[Partition, ...]) -> None:
        """Serve more partitions."""
        self.partitions = partitions
        self.turns = RoundRobin(len(partitions))

    @property
    def name(self) -> str:
        """The name as it was given when the hub was created."""
        return self.definition.config.name

    @property
    def config(self) -> EventHubConfig:
        """The current settings."""
        return self.definition.config

    @property
    def consumer_groups(self) -> tuple[str, ...]:
        """`$Default` and the others."""
        return self.definition.config.consumer_groups

    @property
    def revoked_publishers(self) -> frozenset[str]:
        """The revoked publishers' names in lower case."""
        return self.definition.revoked_publishers

    def partition(self, partition_id: str) -> Partition:
        """Return a partition by its id. Raises ArgumentOutOfRange."""
        for partition in self.partitions:
            if partition.partition_id == partition_id:
                return partition
        raise ArgumentOutOfRange(
            "The specified partition is invalid for an EventHub partition sender or receiver. "
            f"It should be between 0 and {len(self.partitions) - 1}: "
            f"the event hub {self.name} has no partition {partition_id!r}"
        )

    def consumer_group(self, name: str) -> str:
        """Return a consumer group's name as it was given. Raises NotFound."""
        return self.definition.consumer_group(name)

    def check_is_there(self) -> None:
        """Raise NotFound if the hub was deleted. Callers that keep a hub call this before each use."""
        if self.is_deleted:
            raise entity_not_found(self.name, f"the event hub {self.name} was deleted")

    def is_revoked(self, publisher: str) -> bool:
        """Return whether an operator has revoked this publisher."""
        return publisher.lower() in self.definition.revoked_publishers

    def properties(self) -> HubProperties:
        """Return what $management reports."""
        ids = tuple(partition.partition_id for partition in self.partitions)
        return HubProperties(self.name, self.definition.created_at_ms, ids)

    def apply_retention(self, now_ms: int) -> int:
        """Delete what the hub's retention no longer keeps, except events that are yet to be captured.

        Return how many events were deleted. Raises LogError.
        """
        config = self.config
        if config.retention_ms is None and config.retention_bytes is None:
            return 0
        deleted = 0
        failed: LogError | None = None
        for partition in self.partitions:
            capture = partition.capture
            try:
                deleted += partition.log.retain(
                    now_ms=now_ms,
                    retention_ms=config.retention_ms,
                    retention_bytes=config.retention_bytes,
                    keep_from=None if capture is None else capture.keep_from,
                )
            except LogError as error:  # of one partition: the others are due all the same
                failed = error
        if failed is not None:
            raise failed
        return deleted

    def close(self) -> None:
        """Close all partitions."""
        for partition in self.partitions:
            partition.close()


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings of the partitions' logs.

    Attributes:
        clock: The clock that stamps arrival.
        committer: The threads that write.
        durable: False leaves syncing to the operating system, for measurements.
    """

    clock: Clock
    committer: Committer
    durable: bool


def open_partitions(
    config: EventHubConfig, directory: Path, logs: LogSettings, *, is_new: bool, first: int = 0
) -> tuple[Partition, ...]:
    """Open the partitions of a hub in their folders.

    Args:
        config: The hub's settings.
        directory: The hub's folder.
        logs: The settings of the logs.
        is_new: True if the partitions are being created. The folders of those that were served before must exist.
        first: The number of the first partition to open.

    Raises:
        LogError: A folder is missing or belongs to another partition, or a log cannot be read or written.
        FileDamaged: A record of what was acknowledged is damaged.
        OSError: A folder cannot be created or read.
    """
    with ExitStack() as opened:
        partitions = []
        for number in range(first, config.partition_count):
            folder = directory / str(number)
            prepare_folder(folder, str(number), is_new=is_new)
            log = PartitionLog.open(
                folder,
                clock=logs.clock,
                committer=logs.committer,
                segment_bytes=segment_bytes_for(config.retention_bytes),
                durable=logs.durable,
                exclusive=False,
            )
            opened.callback(log.close)
            partitions.append(Partition(config.name, str(number), log, ProducerTable(log)))
        opened.pop_all()
    return tuple(partitions)


def with_group(config: EventHubConfig, name: str, user_metadata: str) -> EventHubConfig:
    """Return the configuration with one more consumer group. Raises pydantic's ValidationError."""
    return with_changes(
        config,
        consumer_groups=(*config.consumer_groups, name),
        group_metadata={**config.group_metadata, name.lower(): user_metadata},
    )


def without_group(config: EventHubConfig, name: str) -> EventHubConfig:
    """Return the configuration without a consumer group; `$Default` stays."""
    kept = tuple(g for g in config.consumer_groups if g.lower() != name.lower() or g == DEFAULT_CONSUMER_GROUP)
    metadata = {group: text for group, text in config.group_metadata.items() if group != name.lower()}
    return with_changes(config, consumer_groups=kept, group_metadata=metadata)


def with_changes(config: EventHubConfig, **changes: object) -> EventHubConfig:
    """Return the configuration with other values of these fields. Raises pydantic's ValidationError."""
    return EventHubConfig(**{**config.model_dump(), **changes})
