"""kill -9 of workers and of the store under load: nothing is lost, stored twice or invented."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient

from tests.patience import PATIENCE_S, eventually
from tests.server.conftest import RawClient
from tests.server.test_crash import RawPublisher, Record, check_publications
from tests.workers.support import HubOfWorkers

pytestmark = [pytest.mark.sdk, pytest.mark.crash]


class Publishing:
    """A publisher that connects again whenever its worker is killed."""

    def __init__(self, hub: HubOfWorkers, name: str, partition: str) -> None:
        self.publisher = RawPublisher(name, partition)
        self._hub = hub
        self._is_over = threading.Event()
        self._client: RawClient | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(OSError):
                self._client = self._hub.client()
                self.publisher.run(self._client, 5)

    def stop(self) -> None:
        self._is_over.set()
        deadline_s = time.monotonic() + PATIENCE_S
        while self.thread.is_alive() and time.monotonic() < deadline_s:
            if self._client is not None:
                with contextlib.suppress(OSError):
                    self._client.socket.shutdown(2)
            self.thread.join(0.05)
        assert not self.thread.is_alive()


class Consuming:
    """Microsoft's client, which reads on through the deaths of workers."""

    def __init__(self, connection: str, partition: str) -> None:
        self.seen: list[tuple[int, str]] = []
        self._client = EventHubConsumerClient.from_connection_string(
            connection, "$Default", eventhub_name="eh1", retry_total=20, retry_backoff_factor=0.05
        )
        options = {"partition_id": partition, "starting_position": "-1"}
        self.thread = threading.Thread(target=self._client.receive, args=(self._on_event,), kwargs=options, daemon=True)
        self.thread.start()

    def _on_event(self, _context: Any, event: EventData | None) -> None:
        if event is not None:
            self.seen.append((event.sequence_number or 0, event.body_as_str()))

    def close(self) -> None:
        self._client.close()
        self.thread.join(PATIENCE_S)


def kill_and_check(data: Path, worker_kills: int, store_kills: int) -> None:
    hub = HubOfWorkers(data)
    hub.start()
    publishing = [Publishing(hub, f"p{number}", str(number % 2)) for number in range(4)]
    consuming = Consuming(hub.connection, "0")
    records = [Record("0"), Record("1")]

    def acknowledged() -> int:
        return sum(len(one.publisher.acknowledged) for one in publishing)

    def go_on() -> None:
        enough = acknowledged() + 50
        eventually(lambda: acknowledged() >= enough)

    for _ in range(worker_kills):
        go_on()
        before = hub.worker_pids
        os.kill(before[0], signal.SIGKILL)
        go_on()
        eventually(lambda before=before: len(hub.worker_pids) == 2 and before[0] not in hub.worker_pids)
        for publisher in publishing:
            assert not publisher.publisher.failures
    if worker_kills:
        assert hub.metric("tidegate_worker_restarts_total") == worker_kills
        eventually(lambda: len(consuming.seen) > 10)
    client = hub.client()
    for record in records:
        record.read_on(client)
    client.close()
    known = records[0].numbers
    total = sum(map(len, known.values()))
    eventually(lambda: len(consuming.seen) >= total)
    consuming.close()
    assert [number for number, _ in consuming.seen] == list(range(len(consuming.seen)))
    for _ in range(store_kills):
        go_on()
        workers = hub.worker_pids
        hub.kill()
        eventually(lambda workers=workers: not any(Path(f"/proc/{pid}").exists() for pid in workers))
        hub.start()
    go_on()
    for publisher in publishing:
        publisher.stop()
    client = hub.client()
    for record in records:
        record.read_on(client)
    client.close()
    hub.stop()
    for one in publishing:
        assert check_publications(one.publisher, records[int(one.publisher.partition)]) > 0


def test_nothing_is_lost_or_invented_when_a_worker_and_the_store_are_killed(tmp_path: Path) -> None:
    kill_and_check(tmp_path / "data", worker_kills=1, store_kills=1)


@pytest.mark.soak
def test_nothing_is_lost_or_invented_however_often_they_are_killed(tmp_path: Path) -> None:
    kill_and_check(tmp_path / "data", worker_kills=20, store_kills=10)
