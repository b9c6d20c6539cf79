"""What belongs to a namespace beside its events, as a cluster will keep it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.log.support import InlineCommitter, SetClock
from tidegate.hub.access_rules import Right
from tidegate.hub.capture.description import CaptureDescription
from tidegate.hub.capture.journal import NAME, CaptureState, PendingFile
from tidegate.hub.config import EventHubConfig
from tidegate.hub.group_offsets import GroupOffset, GroupOffsets, PartitionKey, read_offsets
from tidegate.hub.moving import CaptureBehind, CopiedHub, shared_content
from tidegate.hub.schema_registry import LoggedSchemas, read_entries
from tidegate.hub.snapshot import EventHubState, NamespaceState, RuleState
from tidegate.log import FolderDocument
from tidegate.store.client.cluster import TopicPartition
from tidegate.store.kafka.copy import GroupPosition

RULE = RuleState(name="reads", rights=(Right.LISTEN,), primary_key="1", secondary_key="2")


def hub(*rules: RuleState, capture: CaptureDescription | None = None) -> EventHubState:
    config = EventHubConfig(name="Orders", partition_count=2, capture=capture)
    return EventHubState(config=config, created_at_ms=1, directory="orders-1", rules=rules)


def namespace(*hubs: EventHubState) -> NamespaceState:
    return NamespaceState(name="shop", rules=(), event_hubs=hubs)


def prepare(data: Path) -> None:
    """Positions of two groups, one of a deleted hub, and three entries of the schema registry, in an open directory."""
    offsets = GroupOffsets(data / "groups", SetClock(), InlineCommitter())
    for group, directory, partition, number in (
        ("g", "orders-1", 0, 130),
        ("g", "orders-1", 1, 7),
        ("early", "orders-1", 0, 20),
        ("gone", "other-9", 0, 1),
    ):
        position = GroupOffset(number, -1, f"noted by {group}", 1)
        offsets.commit(group, {PartitionKey(directory, partition): position}, lambda _: None)
    schemas = LoggedSchemas(data / "schemas", SetClock(), InlineCommitter())
    for number in range(3):
        schemas.append(number + 1, {"do": "register", "number": number})


def journal(data: Path, number: int, pending: PendingFile | None = None) -> CaptureState:
    state = CaptureState(archive_id="a", next_sequence_number=number, window_start_ms=60_000, pending=pending)
    FolderDocument(data / "hubs" / "orders-1" / "0" / NAME, "").write(state.model_dump(mode="json"))
    return state


def test_positions_and_schemas_are_read_while_a_hub_has_them_open(tmp_path: Path) -> None:
    prepare(tmp_path)
    copied = CopiedHub(hub(), firsts=[100, 0], ends=[150, 9])
    content = shared_content(tmp_path, namespace(copied.state), [copied])
    topic = "shop.orders-1"
    assert content.groups == {
        "shop///g": {
            TopicPartition(topic, 0): GroupPosition(30, "noted by g"),
            TopicPartition(topic, 1): GroupPosition(7, "noted by g"),
        },
        "shop///early": {TopicPartition(topic, 0): GroupPosition(0, "noted by early")},
    }
    assert content.entries == {"schemas": [{"do": "register", "number": number} for number in range(3)]}
    assert content.definitions["name"] == "shop"
    assert content.documents == {}


def test_a_group_is_found_with_a_key_of_its_hub_too(tmp_path: Path) -> None:
    prepare(tmp_path)
    copied = CopiedHub(hub(RULE), [0, 0], [150, 9])
    found = shared_content(tmp_path, namespace(copied.state), [copied]).groups
    assert sorted(found) == ["shop///early", "shop///g", "shop/orders//early", "shop/orders//g"]
    assert found["shop/orders//g"] == found["shop///g"]


def test_capture_continues_where_it_was(tmp_path: Path) -> None:
    prepare(tmp_path)
    pending = PendingFile(
        name="f",
        name_time_s=1,
        first_sequence_number=110,
        end_sequence_number=120,
        next_window_start_ms=5,
        next_window_has_file=True,
    )
    journal(tmp_path, 110, pending)
    copied = CopiedHub(hub(), [100, 0], [150, 9])
    documents = shared_content(tmp_path, namespace(copied.state), [copied]).documents
    found = CaptureState.model_validate(documents["shop.orders-1/0/capture/journal.json"])
    assert list(documents) == ["shop.orders-1/0/capture/journal.json"]
    assert (found.next_sequence_number, found.archive_id, found.window_start_ms) == (10, "a", 60_000)
    assert found.pending == pending.model_copy(update={"first_sequence_number": 10, "end_sequence_number": 20})


def test_capture_that_is_on_must_have_written_all(tmp_path: Path) -> None:
    prepare(tmp_path)
    journal(tmp_path, 149)
    captured = hub(capture=CaptureDescription(destination=str(tmp_path / "archive")))
    copied = CopiedHub(captured, [100, 0], [150, 9])
    with pytest.raises(CaptureBehind, match=r"capture of Orders/0 has written the events before 149 of 150: turn"):
        shared_content(tmp_path, namespace(captured), [copied])
    journal(tmp_path, 150)
    assert shared_content(tmp_path, namespace(captured), [copied]).documents


def test_positions_are_those_of_a_snapshot_and_of_what_came_since(tmp_path: Path) -> None:
    key = PartitionKey("orders-1", 0)
    with closing(GroupOffsets(tmp_path, SetClock(), InlineCommitter())) as offsets:
        offsets.commit("g", {key: GroupOffset(1, -1, None, 1)}, lambda _: None)
        offsets.commit("dropped", {key: GroupOffset(1, -1, None, 1)}, lambda _: None)
    offsets = GroupOffsets(tmp_path, SetClock(), InlineCommitter())
    offsets.commit("g", {key: GroupOffset(2, -1, None, 1)}, lambda _: None)
    offsets.forget("dropped", None, lambda _: None)
    assert read_offsets(tmp_path) == {"g": {key: GroupOffset(2, -1, None, 1)}}


def test_an_empty_registry_has_no_entries(tmp_path: Path) -> None:
    with closing(LoggedSchemas(tmp_path, SetClock(), InlineCommitter())):
        assert read_entries(tmp_path) == []
