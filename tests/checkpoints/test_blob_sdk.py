"""Checkpoints of Microsoft's own store in Blob storage, translated for a hub whose events were copied elsewhere."""

from __future__ import annotations

import pytest
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

from tests.azurite import azurite, container
from tidegate.checkpoints.blob import BlobCheckpoints

PLACE = {"fully_qualified_namespace": "hub.example.com", "consumer_group": "$default"}


def test_checkpoints_are_translated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with azurite() as account, container(account, "moved"):
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", account)
        store = BlobCheckpointStore.from_connection_string(account, "moved")

        def found() -> dict[tuple[str, str], tuple[int, str]]:
            return {
                (hub, str(one["partition_id"])): (one["sequence_number"], str(one["offset"]))
                for hub in ("cars", "lorries")
                for one in store.list_checkpoints(PLACE["fully_qualified_namespace"], hub, PLACE["consumer_group"])
            }

        for hub, partition, number, offset in (
            ("cars", "0", 107, "4096"),
            ("cars", "1", 3, "77"),
            ("lorries", "0", 5, "9"),
        ):
            store.update_checkpoint(
                {**PLACE, "eventhub_name": hub, "partition_id": partition, "sequence_number": number, "offset": offset}
            )
        checkpoints = BlobCheckpoints("az://moved")
        expected = {("cars", "0"): (7, "7"), ("cars", "1"): (3, "3"), ("lorries", "0"): (5, "9")}
        assert checkpoints.shift({("cars", "0"): 100, ("cars", "1"): 0}) == 2
        assert found() == expected
        assert checkpoints.shift({("cars", "0"): 100, ("cars", "1"): 0}) == 0
        assert found() == expected
        assert [one.sequence_number for one in checkpoints.positions()] == [7, 3, 5]
