"""A job that reads Kafka, while it and the broker are killed again and again."""

from __future__ import annotations

import json
import logging
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.job.logs import travelling
from tests.kafka import kafka_broker
from tests.patience import PATIENCE_S, eventually
from tests.profiles import scaled
from tidegate.job import load_job, run_job
from tidegate.job.analysis.replay_source import open_replay_source
from tidegate.job.runtime.placement import DriverPlacement
from tidegate.job.runtime.step import Stepper
from tidegate.ordering import format_time

KILLS = scaled(1)
A_BROKER_IN = 4
"""The first kill, and every fourth after it, hits the broker as well, which takes seconds to come back."""
PARTITIONS = 3
_SILENT = logging.getLogger("tests.kafka.publisher")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
JOB = """
name = "kafka"
query = '''
SELECT k, COUNT(*) AS n, SUM(v) AS total, System.Timestamp() AS ts INTO counted FROM i TIMESTAMP BY t
GROUP BY k, TumblingWindow(millisecond, 200)
SELECT v, System.Timestamp() AS ts INTO rows FROM i TIMESTAMP BY t
'''
[event_ordering]
# Restarts read no estimates that are older than this; the look at the whole log in the end reads them all.
early_arrival_tolerance_s = 3600
late_arrival_tolerance_s = 0.1
out_of_order_tolerance_s = 0.05
[inputs.i]
type = "kafka"
bootstrap_servers = "ADDRESS"
topic = "killed"
idle_after_s = 0.02
options = { "reconnect.backoff.max.ms" = 200 }
[outputs.counted]
type = "file"
path = "counted.jsonl"
[outputs.rows]
type = "file"
path = "rows.jsonl"
"""


class _Publisher:
    """Sends events, some of them late, also while the broker is dead: each is in the topic once."""

    def __init__(self, address: str) -> None:
        settings = {"bootstrap.servers": address, "enable.idempotence": True, "reconnect.backoff.max.ms": 200}
        self._producer = Producer({**settings, "log_level": 0}, logger=_SILENT)
        self._dice = random.Random(5)
        self._failed: list[KafkaError] = []
        self._stopped = threading.Event()
        self.events = 0

    def publish(self) -> None:
        """Send a few events, a few times a second."""
        while not self._stopped.wait(self._dice.random() * 0.03):
            for _ in range(self._dice.randrange(1, 6)):
                event_time = time.time_ns() // 100 - self._dice.randrange(0, 3_000_000)
                body = {"t": format_time(event_time), "k": self._dice.choice("ab"), "v": self.events}
                partition = self._dice.randrange(PARTITIONS)
                self._producer.produce("killed", json.dumps(body), partition=partition, on_delivery=self._answered)
                self.events += 1
            self._producer.poll(0)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def stop(self) -> None:
        """Wait until every event is in the topic."""
        self._stopped.set()
        assert self._producer.flush(PATIENCE_S) == 0
        assert not self._failed


@contextmanager
def publishing(address: str) -> Iterator[_Publisher]:
    publisher = _Publisher(address)
    thread = threading.Thread(target=publisher.publish)
    thread.start()
    try:
        yield publisher
    finally:
        publisher.stop()
        thread.join()


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


@pytest.mark.crash
def test_every_record_gives_its_row_once_whoever_is_killed(tmp_path: Path) -> None:
    path, rows = tmp_path / "job.toml", tmp_path / "rows.jsonl"
    dice = random.Random(3)
    with kafka_broker() as broker:
        path.write_text(JOB.replace("ADDRESS", broker.address))
        client = AdminClient({"bootstrap.servers": broker.address})
        client.create_topics([NewTopic("killed", PARTITIONS, 1)])["killed"].result()
        command = [sys.executable, "-m", "tests.job.crash_child", str(path), "7"]
        with (
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nurse,
            publishing(broker.address) as publisher,
        ):
            assert nurse.stdin is not None
            assert nurse.stdout is not None
            for number in range(KILLS):
                print("", file=nurse.stdin, flush=True)
                child = int(nurse.stdout.readline())
                gets_on(rows, nurse.stdout)
                if number % A_BROKER_IN == 0:
                    # The job has to wait for it and to go on, and is killed only then.
                    broker.kill()
                    broker.start()
                    gets_on(rows, nurse.stdout)
                time.sleep(dice.random() * 0.05)
                os.kill(child, signal.SIGKILL)
                assert nurse.stdout.readline() == "killed\n"
        job = load_job(path)
        deadline = time.monotonic() + PATIENCE_S
        run_job(
            job,
            travelling(job),
            should_stop=lambda: len(lines_of(rows)) >= publisher.events or time.monotonic() > deadline,
        )
        with open_replay_source(path) as source:
            placement = DriverPlacement(source.program, source.policy)
            step = Stepper(source.program, source.policy, source.logs, placement).step()
    assert sorted(json.loads(row)["v"] for row in lines_of(rows)) == list(range(publisher.events))
    expected = {one.output: one.to_json_lines().splitlines() for one in step.rows}
    assert lines_of(rows) == expected["rows"]
    counted = lines_of(tmp_path / "counted.jsonl")
    assert counted
    assert counted == expected["counted"][: len(counted)]


def gets_on(rows: Path, nurse: IO[str]) -> None:
    """Wait until a job has left more rows. The nurse says nothing while it lives."""
    enough = len(lines_of(rows)) + 3

    def has_more() -> bool:
        assert not select.select([nurse], [], [], 0)[0], "the job has ended"
        return len(lines_of(rows)) >= enough

    eventually(has_more)
