"""kill -9 under load: what was acknowledged is there, in order, unchanged."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient

pytestmark = [pytest.mark.sdk, pytest.mark.crash]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Hub:
    """`tidegate up` in a process of its own, on one data directory and port over all its lives."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        self.connection = ""

    def start(self) -> None:
        command = [sys.executable, "-m", "tidegate", "up", "--data", str(self.data), "--amqp-port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "Endpoint=" in line:
                self.connection = "Endpoint=" + line.split("Endpoint=")[1].strip()
            if "Successfully Up" in line:
                return
        pytest.fail("the hub did not come up")

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> float:
        started = time.monotonic()
        self.process.terminate()
        assert self.process.wait(5) == 0
        return time.monotonic() - started


@pytest.fixture
def up(data):
    hub = Hub(data)
    hub.start()
    yield hub
    if hub.process.poll() is None:
        hub.kill()


class Publisher:
    """Publishes batches one after the other and remembers which were acknowledged."""

    def __init__(self, connection: str, partition: str) -> None:
        self.acknowledged: list[str] = []
        self.attempted = 0
        self._connection = connection
        self._partition = partition
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        producer = EventHubProducerClient.from_connection_string(self._connection, eventhub_name="eh1", retry_total=0)
        try:
            with producer:
                while True:
                    bodies = [f"{self._partition}:{n}" for n in range(self.attempted, self.attempted + 10)]
                    self.attempted += 10
                    producer.send_batch([EventData(b) for b in bodies], partition_id=self._partition)
                    self.acknowledged += bodies
        except Exception:  # the hub was killed: whatever the client makes of that, this batch has no answer
            return


Stored = tuple[str, int, str, Any]


def read_all(connection: str, partition: str) -> list[Stored]:
    seen: list[Stored] = []
    client = EventHubConsumerClient.from_connection_string(connection, "$Default", eventhub_name="eh1")
    last = client.get_partition_properties(partition)["last_enqueued_sequence_number"]
    done = threading.Event()

    def on_event_batch(_context: Any, events: list[EventData]) -> None:
        seen.extend((e.body_as_str(), e.sequence_number, e.offset, e.enqueued_time) for e in events)
        if seen and seen[-1][1] >= last:
            done.set()

    options = {"partition_id": partition, "starting_position": "-1", "max_wait_time": 0.1}
    thread = threading.Thread(target=client.receive_batch, args=(on_event_batch,), kwargs=options, daemon=True)
    thread.start()
    assert done.wait(20)
    client.close()
    thread.join(5)
    return seen


def read_both(connection: str) -> list[list[Stored]]:
    with ThreadPoolExecutor() as threads:
        return list(threads.map(read_all, [connection] * 2, ["0", "1"]))


def test_every_acknowledged_event_survives_kill_9(up, eventually):
    publishers = [Publisher(up.connection, partition) for partition in ("0", "1")]
    eventually(lambda: all(len(p.acknowledged) > 200 for p in publishers), 15.0)
    before = dict(zip(("0", "1"), read_both(up.connection), strict=True))
    up.kill()
    for publisher in publishers:
        publisher.thread.join(20)
    up.start()
    for partition, publisher, after in zip(("0", "1"), publishers, read_both(up.connection), strict=True):
        bodies = [event[0] for event in after]
        assert bodies[: len(publisher.acknowledged)] == publisher.acknowledged
        assert len(bodies) <= publisher.attempted
        assert after[: len(before[partition])] == before[partition]
        assert [event[1] for event in after] == list(range(len(after)))
        assert all(a[3] <= b[3] and int(a[2]) < int(b[2]) for a, b in itertools.pairwise(after))
    assert up.stop() < 2.0
