"""Capture by gateways: one of them captures a partition, and each event is in one file whichever that is."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.hub.archives import description, files, records
from tests.kafka.cluster import Cluster
from tests.patience import eventually
from tests.server.conftest import entity
from tests.spark.publishing import publish
from tidegate.hub import capture_scheduler
from tidegate.hub.config import NamespaceConfig
from tidegate.server import BackgroundServer
from tidegate.store import read_settings

pytestmark = pytest.mark.sdk
PARTITIONS = 8


def captured_by(gateway: BackgroundServer) -> set[str]:
    hub = gateway.server.namespace.event_hub("kept")
    return {partition.partition_id for partition in hub.partitions if partition.capture is not None}


class Archive:
    """What the files hold."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def events(self) -> list[tuple[str, int, str]]:
        """The partition, number and body of each event, in the order of the files of each partition."""
        return [
            (name.split("/")[2], record["SequenceNumber"], record["Body"].decode())
            for name in files(self._folder)
            for record in records(self._folder / name)
        ]


def test_each_event_is_in_one_file_while_gateways_come_and_go(
    one_broker: Cluster, make_config: Callable[..., NamespaceConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A gateway without its cluster cannot begin to capture, and by default tries again after a minute.
    monkeypatch.setattr(capture_scheduler, "_TRY_AGAIN_MS", 500)
    monkeypatch.setattr(capture_scheduler, "_PAUSE_S", 0.2)
    config = make_config(entity("kept", partitions=PARTITIONS)).model_copy(update={"name": "captured"})
    archive = Archive(tmp_path / "archive")
    kept = description(interval_in_seconds=1, skip_empty_archives=True).model_copy(
        update={"destination": str(tmp_path / "archive")}
    )
    names = (f"gateway-{number}" for number in itertools.count())
    sent = 0

    def start(stack: ExitStack, client: str) -> BackgroundServer:
        store = read_settings(one_broker.clients[client])
        return stack.enter_context(BackgroundServer(config, tmp_path / next(names), store=store, capture=kept))

    def send(gateway: BackgroundServer) -> None:
        nonlocal sent
        for partition in range(PARTITIONS):
            bodies = [f"event {number}" for number in range(sent, sent + 10)]
            publish(gateway.connection_string, "kept", bodies, partition_id=str(partition))
            sent += 10

    def all_is_captured() -> bool:
        return len(archive.events()) >= sent

    every = {str(partition) for partition in range(PARTITIONS)}
    with ExitStack() as stack:
        a, leaving = start(stack, "a"), ExitStack()
        eventually(lambda: captured_by(a) == every)
        send(a)
        b = start(leaving, "b")
        eventually(lambda: captured_by(a) | captured_by(b) == every and not captured_by(a) & captured_by(b))
        eventually(lambda: captured_by(b))
        send(b)
        eventually(all_is_captured)
        # one is cut off: the other declares it dead and goes on where it was
        links = [one_broker.to_broker["b", node] for node in one_broker.nodes]
        for link in links:
            link.cut()
        eventually(lambda: captured_by(a) == every)
        send(a)
        eventually(all_is_captured)
        for link in links:
            link.mend()
        eventually(lambda: captured_by(b) and captured_by(a) | captured_by(b) == every)
        send(a)
        eventually(all_is_captured)
        leaving.close()
        eventually(lambda: captured_by(a) == every)
        send(a)
        eventually(all_is_captured)
    found = archive.events()
    assert set(Counter(body for _, _, body in found).values()) == {1}
    assert len(found) == sent
    for partition in every:
        numbers = [number for where, number, _ in found if where == partition]
        assert numbers == sorted(numbers)
