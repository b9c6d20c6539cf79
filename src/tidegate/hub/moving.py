"""What belongs to a namespace beside its events, read from a data directory in the form in which a cluster keeps it.

Numbers of events become those of the cluster, where a partition's first copied event has the number 0. A group of
Kafka's clients gets its positions in the name that it has for clients with a key of the namespace, and also in that for
clients with a key of the event hub, if the hub has such keys: which of them a group uses is known only to its clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.hub.access_rules import Right
from tidegate.hub.backend import GROUPS_FOLDER, HUBS_FOLDER, SCHEMAS_FOLDER
from tidegate.hub.capture.journal import NAME as JOURNAL
from tidegate.hub.capture.journal import CaptureJournal
from tidegate.hub.cluster_groups import cluster_name
from tidegate.hub.errors import HubError
from tidegate.hub.group_offsets import GroupOffset, read_offsets
from tidegate.hub.kafka_backend import SCHEMAS
from tidegate.hub.schema_registry import read_entries
from tidegate.hub.snapshot import EventHubState, NamespaceState
from tidegate.store.client.cluster import TopicPartition
from tidegate.store.kafka.copy import GroupPosition, SharedContent


class CaptureBehind(HubError):
    """Capture has not written all events yet, and two hubs would write them."""


class CopiedHub(NamedTuple):
    """How far an event hub was copied: by partition the number that became 0, and that of the next event."""

    state: EventHubState
    firsts: Sequence[int]
    ends: Sequence[int]


def shared_content(data: Path, state: NamespaceState, hubs: Sequence[CopiedHub]) -> SharedContent:
    """Return what gateways are to share from now on.

    Raises:
        CaptureBehind: Capture is turned on for a hub, and events of it are in no file yet.
        JournalDamaged, FileDamaged, LogError, OSError: Something of it cannot be read.
    """
    return SharedContent(
        definitions=state.model_dump(mode="json"),
        entries={SCHEMAS: read_entries(data / SCHEMAS_FOLDER)},
        documents=dict(_journals(data, state.name, hubs)),
        groups=_positions(data, state, hubs),
    )


def _journals(data: Path, namespace: str, hubs: Sequence[CopiedHub]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield how far capture has come in each partition that was ever captured."""
    for hub in hubs:
        name, capture = hub.state.config.name, hub.state.config.capture
        for partition, (first, end) in enumerate(zip(hub.firsts, hub.ends, strict=True)):
            folder = data / HUBS_FOLDER / hub.state.directory / str(partition)
            captured = CaptureJournal.in_folder(folder).read()
            if captured is None:
                continue
            is_behind = captured.pending is not None or captured.next_sequence_number < end
            if capture is not None and capture.enabled and is_behind:
                raise CaptureBehind(
                    f"capture of {name}/{partition} has written the events before {captured.next_sequence_number} of "
                    f"{end}: turn it off, or wait until its window is over. Gateways continue where it was"
                )
            document = captured.moved(first).model_dump(mode="json")
            yield f"{namespace}.{hub.state.directory}/{partition}/{JOURNAL}", document


def _positions(
    data: Path, state: NamespaceState, hubs: Sequence[CopiedHub]
) -> Mapping[str, Mapping[TopicPartition, GroupPosition]]:
    """Return by group, under the name that it has in the cluster, what it has committed."""
    copied = {hub.state.directory: hub for hub in hubs}
    found: dict[str, dict[TopicPartition, GroupPosition]] = {}
    for group, positions in read_offsets(data / GROUPS_FOLDER).items():
        for key, position in positions.items():
            hub = copied.get(key.directory)
            if hub is None or key.partition >= len(hub.firsts):
                continue  # the hub was deleted
            where = TopicPartition(f"{state.name}.{key.directory}", key.partition)
            moved = _moved(position, hub.firsts[key.partition])
            for scope in _scopes(hub.state):
                found.setdefault(cluster_name(state.name, scope, group), {})[where] = moved
    return found


def _moved(position: GroupOffset, first: int) -> GroupPosition:
    return GroupPosition(max(0, position.offset - first), position.metadata)


def _scopes(hub: EventHubState) -> Iterator[tuple[str, ...]]:
    yield ()
    if any({Right.LISTEN, Right.MANAGE} & set(rule.rights) for rule in hub.rules):
        yield (hub.config.name.lower(),)
