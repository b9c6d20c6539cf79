"""Gateways that restart one by one, behind a balancer, while clients in other languages publish and read.

What the test of `test_gateway_crash` asks of the clients in Python holds for those of Microsoft in JavaScript, Java and
Go, and for kafkajs. Their processors report each link that ends, and clients must be able to retry every such error.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import jars, programs
from tests.patience import PATIENCE_S, eventually
from tests.server.compiled_client import Answer, ClientError, CompiledClient
from tests.server.kafka.client import KafkaClient
from tests.store.kafka.test_gateway_crash import Gateway, Gateways, gateways
from tidegate.kafka.messages import Api

pytestmark = [pytest.mark.soak, pytest.mark.sdk]
SOURCES = Path(__file__).parents[2] / "server"


def java(folder: Path) -> list[str]:
    class_path = jars.class_path(SOURCES / "java")
    subprocess.run(["javac", "-cp", class_path, "-d", str(folder), str(SOURCES / "java" / "Driver.java")], check=True)
    return jars.java("-cp", f"{class_path}:{folder}", "Driver")


def go(folder: Path) -> list[str]:
    assert shutil.which("go"), "Go is needed for this test: `scripts/need go` installs it"
    subprocess.run(["go", "build", "-o", str(folder / "driver"), "."], cwd=SOURCES / "go", check=True)
    return [str(folder / "driver")]


def javascript(folder: Path) -> list[str]:
    return [programs.node(SOURCES / "js", "@azure/event-hubs"), str(SOURCES / "js" / "driver.js")]


class Worker(threading.Thread):
    """Publishes numbered events to a hub of its own with a program, one after the other, while it processes the hub."""

    def __init__(self, name: str, command: list[str], log: Path, where: dict[str, Any], publish: str, process: str):
        super().__init__(name=name, daemon=True)
        self._client = CompiledClient(command, log)
        self._where = {"hub": name, "retries": 3, **where}
        self._publish = publish
        self._client(process, name=name, store=name, within_s=5, **self._where)
        self.is_over = threading.Event()
        self.acknowledged: list[str] = []
        self.failures: list[Answer] = []

    def run(self) -> None:
        number = 0
        while not self.is_over.is_set():
            body = f"{self.name}/{number}"
            number += 1
            try:
                self._client(self._publish, producer="one", partition="0", bodies=[body], **self._where)
            except ClientError as error:
                self.failures.append(error.said)
                continue
            self.acknowledged.append(body)

    def wait_until_read(self) -> Answer:
        """Return what was read, once the thread has ended and all is there, or it took too long."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            state = self._client("processed", name=self.name)
            if set(self.acknowledged) <= set(state["bodies"]) or time.monotonic() > deadline_s:
                return state
            time.sleep(0.2)

    def close(self) -> None:
        self._client.close()


def topics_of(gateway: Gateway) -> set[str]:
    """Return the topics that one gateway knows."""
    client = KafkaClient(gateway.kafka_near)
    try:
        client.log_in(gateway.connection)
        return {topic.name for topic in client.ask(Api.METADATA, {"topics": None}).topics}
    finally:
        client.close()


COMMANDS: dict[str, Callable[[Path], list[str]]] = {"java": java, "go": go, "javascript": javascript}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Gateways, list[Worker]]]:
    with gateways(tmp_path) as running:
        admin = AdminClient(running.kafka_settings)
        hubs = [NewTopic(name, 2, 1) for name in (*COMMANDS, "kafkajs")]
        for made in admin.create_topics(hubs).values():
            made.result(PATIENCE_S)
        for gateway in running.all:
            eventually(lambda gateway=gateway: {hub.topic for hub in hubs} <= topics_of(gateway))
        workers = []
        try:
            for name, command in COMMANDS.items():
                folder = tmp_path / f"client {name}"
                folder.mkdir()
                where = {"connection": running.connection}
                program = command(folder)
                workers.append(Worker(name, program, folder / "log", where, "publish", "process"))
            servers = str(running.kafka_settings["bootstrap.servers"])
            where = {"connection": running.connection, "servers": servers}
            workers.append(Worker("kafkajs", program, folder / "log of kafkajs", where, "produce", "consume"))
            yield running, workers
        finally:
            for worker in workers:
                worker.is_over.set()
                worker.join(PATIENCE_S)
                worker.close()


def is_passing(said: Answer) -> bool:
    """Whether a client says of an error that trying again is right.

    JavaScript's has no mark for a connection that ended as it was used again. It tries again. Java's processor may tell
    of a task for the reader of a link that has ended, and reads on
    (https://github.com/Azure/azure-sdk-for-java/issues/44473).
    """
    goes_on = said.get("text") == "Failed to connect" or said.get("kind") == "RejectedExecutionException"
    return bool(said.get("transient") or said.get("code") == "connlost" or said.get("restarts") or goes_on)


def test_a_rolling_restart_shows_clients_nothing_but_a_reconnect(started: tuple[Gateways, list[Worker]]) -> None:
    running, workers = started
    for worker in workers:
        worker.start()
    eventually(lambda: all(worker.acknowledged for worker in workers))
    for gateway in running.all:
        counts = [len(worker.acknowledged) for worker in workers]
        gateway.stop()
        gateway.begin()
        eventually(running.all_ready)
        eventually(
            lambda counts=counts: all(len(one.acknowledged) > count for one, count in zip(workers, counts, strict=True))
        )
    for worker in workers:
        worker.is_over.set()
    for worker in workers:
        worker.join(PATIENCE_S)
        assert not worker.is_alive()
    assert {worker.name: worker.failures for worker in workers} == {worker.name: [] for worker in workers}
    for worker in workers:
        state = worker.wait_until_read()
        missing = [body for body in worker.acknowledged if body not in set(state["bodies"])]
        assert missing == [], (worker.name, state["errors"], state.get("partitions"))
        assert [error for error in state["errors"] if not is_passing(error)] == [], worker.name
        print(f"{worker.name}: {len(worker.acknowledged)} published, {len(state['errors'])} errors told; ", end="")
