"""A hub of several processes, for tests."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

from tests.patience import PATIENCE_S
from tests.server.conftest import RawClient
from tests.server.kafka.client import KafkaClient
from tests.server.process import Hub, free_port

MANY = 10
"""So many connections are not all with one of two workers, but once in five hundred runs; no test depends on it."""


class HubOfWorkers(Hub):
    """`tidegate up --workers`, and its processes."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.http_port = free_port()
        self.https_port = free_port()

    def start(self, *options: str, **others: Any) -> None:
        super().start("--workers", "2", "--http-port", str(self.http_port), "--kafka-port", "0", *options, **others)

    @property
    def worker_pids(self) -> list[int]:
        listed = subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return [int(line.split()[0]) for line in listed.stdout.splitlines() if "tidegate.workers.process" in line]

    def client(self, hub: str = "eh1") -> RawClient:
        return RawClient(SimpleNamespace(amqp_port=self.port), hub)

    def kafka(self) -> KafkaClient:
        """Return a client of Kafka that has shown its key."""
        client = KafkaClient(self.kafka_port)
        client.log_in(self.connection)
        return client

    def get(self, path: str) -> str:
        with urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def metric(self, name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", self.get("/metrics"), re.MULTILINE)
        assert found is not None
        return float(found[1])
