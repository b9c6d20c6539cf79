"""What the pages say of event hubs: partitions, consumer groups with their readers, and capture."""

from __future__ import annotations

from typing import Any

from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.cluster_groups import ClusterGroups
from tidegate.hub.event_hub import EventHub
from tidegate.hub.group_offsets import GroupOffsets
from tidegate.hub.partition import Partition
from tidegate.portal.pages.throughput import ThroughputCharts
from tidegate.portal.web.rendering import iso_of_ms


def hub_summary(hub: EventHub) -> dict[str, Any]:
    """Return a hub's row in the overview. Reads nothing from the disk."""
    logs = [partition.log for partition in hub.partitions]
    return {
        "name": hub.name,
        "partitions": len(logs),
        "events": sum(log.next_sequence_number - log.begin_sequence_number for log in logs),
        "bytes": sum(log.size_bytes for log in logs),
        "lastEnqueuedTime": iso_of_ms(max(log.last_enqueued_time_ms for log in logs)),
        "damagedEvents": sum(partition.damaged_events for partition in hub.partitions),
        "captureFailures": sum(one.capture.failures for one in hub.partitions if one.capture is not None),
        "readers": sum(
            len(slots) + len(slots.jobs)
            for one in hub.partitions
            for group in hub.consumer_groups
            for slots in [one.reader_slots(group)]
        ),
    }


def partition_rows(hub: EventHub, throughput: ThroughputCharts) -> list[dict[str, Any]]:
    """Return the state of each partition. Raises LogError."""
    rows = []
    for partition in hub.partitions:
        log = partition.log
        rows.append(
            {
                "id": partition.partition_id,
                "firstSequenceNumber": None if log.is_empty else log.begin_sequence_number,
                "lastSequenceNumber": None if log.next_sequence_number == 0 else log.next_sequence_number - 1,
                "events": log.next_sequence_number - log.begin_sequence_number,
                "bytes": log.size_bytes,
                "lastEnqueuedTime": iso_of_ms(log.last_enqueued_time_ms),
                "eventsPerSecond": throughput.rate(partition),
                "damagedEvents": partition.damaged_events,
            }
        )
    return rows


def group_rows(hub: EventHub) -> list[dict[str, Any]]:
    """Return each consumer group with its readers and their lag."""
    return [
        {
            "name": group,
            "userMetadata": hub.config.group_metadata.get(group.lower(), ""),
            "canBeDeleted": group != "$Default",
            "readers": len([row for row in rows if row["isConnected"]]),
            "lag": sum(row["lag"] for row in rows) if rows else None,
            "partitions": rows,
        }
        for group in hub.consumer_groups
        for rows in [[row for partition in hub.partitions for row in _reader_rows(partition, group)]]
    ]


def kafka_group_rows(hub: EventHub, offsets: GroupOffsets | ClusterGroups) -> list[dict[str, Any]]:
    """Return each group of Kafka's clients that has committed offsets in a hub, with its lag."""
    found: list[dict[str, Any]] = []
    for group, positions in offsets.in_hub(hub.definition.directory).items():
        rows: list[dict[str, Any]] = [
            {
                "partition": str(number),
                "nextSequenceNumber": position.offset,
                "committedAt": iso_of_ms(position.committed_at_ms),
                "lag": max(0, log.next_sequence_number - max(position.offset, log.begin_sequence_number)),
            }
            for number, position in sorted(positions.items())
            if number < len(hub.partitions)
            for log in [hub.partitions[number].log]
        ]
        found.append({"name": group, "lag": sum(row["lag"] for row in rows), "partitions": rows})
    return found


def _reader_rows(partition: Partition, group: str) -> list[dict[str, Any]]:
    """Return the group's readers of a partition, or where the last one left."""
    slots = partition.reader_slots(group)
    end = partition.log.next_sequence_number
    begin = partition.log.begin_sequence_number
    rows = [
        {
            "partition": partition.partition_id,
            "isConnected": True,
            "name": slot.name,
            "ownerLevel": slot.epoch,
            "nextSequenceNumber": slot.next_sequence_number,
            "lag": max(0, end - max(slot.next_sequence_number, begin)),
        }
        for slot in slots.readers
        if slot.next_sequence_number is not None
    ]
    rows += [
        {
            "partition": partition.partition_id,
            "isConnected": True,
            "name": f"job {job.name}",
            "ownerLevel": None,
            "nextSequenceNumber": job.next_sequence_number,
            "lag": max(0, end - max(job.next_sequence_number, begin)),
        }
        for job in slots.jobs
    ]
    if not rows and slots.left_at is not None:
        rows = [
            {
                "partition": partition.partition_id,
                "isConnected": False,
                "name": "",
                "ownerLevel": None,
                "nextSequenceNumber": slots.left_at,
                "lag": max(0, end - max(slots.left_at, begin)),
            }
        ]
    return rows


def capture_state(hub: EventHub, default: CaptureDescription | None) -> dict[str, Any] | None:
    """Return how a hub is captured, and how far; None if it is not."""
    description = hub.config.capture or default
    if description is None:
        return None
    writers = [(partition, partition.capture) for partition in hub.partitions if partition.capture is not None]
    return {
        "enabled": description.enabled,
        "destination": without_credentials(description.destination),
        "intervalInSeconds": description.interval_in_seconds,
        "sizeLimitInBytes": description.size_limit_in_bytes,
        "skipEmptyArchives": description.skip_empty_archives,
        "archiveNameFormat": description.archive_name_format,
        "files": sum(writer.files for _, writer in writers),
        "waitingEvents": sum(one.log.next_sequence_number - writer.keep_from for one, writer in writers),
        "failures": sum(writer.failures for _, writer in writers),
        "lostEvents": sum(writer.events_lost for _, writer in writers),
    }


def without_credentials(destination: str) -> str:
    """Return a capture destination without what follows a question mark or precedes an @."""
    scheme, separator, rest = destination.partition("://")
    if not separator:
        return destination
    rest = rest.partition("?")[0]
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
