"""`tidegate up` as a process that tests start, kill and start again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.jars import free_ports
from tests.patience import PATIENCE_S


def free_port() -> int:
    """Return a port that stays free until a hub takes it, also while a killed hub is not yet back."""
    (port,) = free_ports(1)
    return port


class Hub:
    """`tidegate up` in a process of its own, on one data directory and port over all its lives."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        self.connection = ""
        self.kafka_port = 0

    def start(self, *options: str, preexec_fn: Callable[[], None] | None = None, stderr: int | None = None) -> None:
        command = [sys.executable, "-m", "tidegate", "up", "--data", str(self.data), "--amqp-port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=stderr, preexec_fn=preexec_fn, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "Endpoint=" in line:
                self.connection = "Endpoint=" + line.split("Endpoint=")[1].strip()
            if line.startswith("Kafka: "):
                self.kafka_port = int(line.rpartition(":")[2])
            if "Successfully Up" in line:
                return
        pytest.fail("the hub did not come up")

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> float:
        started = time.monotonic()
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0
        return time.monotonic() - started
