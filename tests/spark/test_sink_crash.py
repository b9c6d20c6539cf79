"""A stream to a hub whose processes are killed gives each row once.

`make test` kills the Python workers, which ends the query, and starts it again. `make soak` kills workers that Spark
replaces, and the driver with all that it has started, and does so more often.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.patience import PATIENCE_S, eventually
from tests.profiles import scaled
from tests.service.test_shared_spark import below
from tests.source import ROOT
from tests.spark.copy_child import copying
from tests.spark.hub_content import content, count
from tidegate.client import ConnectionString
from tidegate.client.producer import OutgoingEvent, Producer
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer
from tidegate.spark.source import EventHubsDataSource

KILLS = scaled(1)
EVENTS_OF_A_LIFE = 6_000
# How Spark says that a worker is no longer there, or not yet, or that the daemon of the workers is gone.
WORKER_IS_GONE = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "java.io.IOException: Stream closed",
)
ENVIRONMENT = {**os.environ, "PYSPARK_PYTHON": sys.executable}


@pytest.fixture
def own_workers(spark: SparkSession) -> Iterator[str]:
    """What is in the environment of workers of the source and the sink alone: Spark divides workers by it.

    Workers that other tests use must live: Spark lends the dead ones of those that are idle to what comes next.
    """
    environment, mark = spark.sparkContext.environment, f"TIDEGATE_WORKERS_OF_{os.getpid()}"
    of_another_test = spark.sparkContext.parallelize([1], 1).map(abs)
    assert of_another_test.collect() == [1]
    environment[mark] = "here"
    spark.dataSource.register(EventHubsDataSource)
    yield mark
    del environment[mark]
    spark.dataSource.register(EventHubsDataSource)
    assert of_another_test.collect() == [1]


def test_killed_workers_lose_and_repeat_nothing(spark: SparkSession, tmp_path: Path, own_workers: str) -> None:
    hubs = tuple(EventHubConfig(name=name, partition_count=3) for name in ("from", "to"))
    with BackgroundServer(NamespaceConfig(name="kills", event_hubs=hubs), tmp_path / "hub") as hub:
        string = hub.connection_string
        fill(string, EVENTS_OF_A_LIFE)
        java: Any = spark.sparkContext._gateway
        deadline = time.monotonic() + PATIENCE_S
        query: StreamingQuery | None = None
        kills = 0
        while query is None or query.exception() is not None:
            query = copying(spark, string, "from", "to", str(tmp_path / "checkpoint"))
            if kills < KILLS:
                before = count(string, "to")
                eventually(lambda query=query, before=before: not query.isActive or count(string, "to") > before)
                assert kill_workers([process for process, _ in below(java.proc.pid)], own_workers.encode())
                kills += 1
                deadline = time.monotonic() + PATIENCE_S
            with contextlib.suppress(StreamingQueryException):
                query.awaitTermination()
            # Spark may lend later queries what was killed while it was idle, and it gives up on slow new workers.
            if (failure := str(query.exception())) != "None":
                assert any(words in failure for words in WORKER_IS_GONE), failure
                assert time.monotonic() < deadline, failure
        check_copied(string, EVENTS_OF_A_LIFE)


@pytest.mark.soak
def test_killed_drivers_and_workers_lose_and_repeat_nothing(tmp_path: Path) -> None:
    hubs = tuple(EventHubConfig(name=name, partition_count=3) for name in ("from", "to"))
    with BackgroundServer(NamespaceConfig(name="kills", event_hubs=hubs), tmp_path / "hub") as hub:
        string = hub.connection_string
        events = (KILLS + 1) * EVENTS_OF_A_LIFE
        fill(string, events)
        seed = random.randrange(2**32)
        print(f"seed {seed}")
        chance = random.Random(seed)
        command = [sys.executable, "-m", "tests.spark.copy_child", string, "from", "to", str(tmp_path / "checkpoint")]
        for life in range(KILLS + 1):
            with (tmp_path / "log").open("wb") as log:
                process = subprocess.Popen(command, cwd=ROOT, stderr=log, start_new_session=True, env=ENVIRONMENT)
            try:
                if life == KILLS:
                    assert process.wait(3 * PATIENCE_S) == 0, (tmp_path / "log").read_text()
                    break
                before = count(string, "to")
                reaches(process, string, before + 1)
                kill_workers(of_session(process.pid))
                reaches(process, string, before + chance.randrange(1, EVENTS_OF_A_LIFE))
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        check_copied(string, events)


def check_copied(string: str, events: int) -> None:
    """Check that the numbers below `events` have arrived once."""
    counted = Counter(int(event.body) for event in content(string, "to"))
    assert [n for n in range(events) if counted[n] != 1] == []
    assert len(counted) == events


def fill(string: str, events: int) -> None:
    """Publish the numbers below `events`, a third to each partition."""
    producer = Producer(ConnectionString.parse(string, "from"))
    for partition in "012":
        producer.open_partition(partition)
    producer.publish_to_partitions(
        {
            partition: [
                producer.encoded(partition, OutgoingEvent(b"%d" % n), 0) for n in range(int(partition), events, 3)
            ]
            for partition in "012"
        }
    )
    producer.close()


def kill_workers(processes: Iterable[int], mark: bytes = b"") -> int:
    """Kill those of the processes that run tasks in Python and have a mark in their environment. Return how many."""
    killed = 0
    for process in processes:
        with contextlib.suppress(OSError):
            # The daemon is PySpark's, or Tidegate's if a context before in the same Java had that.
            is_worker = b"daemon\0pyspark.worker" in Path(f"/proc/{process}/cmdline").read_bytes()
            if is_worker and mark in Path(f"/proc/{process}/environ").read_bytes():
                os.kill(process, signal.SIGKILL)
                killed += 1
    return killed


def of_session(leader: int) -> Iterator[int]:
    """Yield the processes of a session."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((process / "stat").read_text().rpartition(")")[2].split()[3]) == leader:
                yield int(process.name)


def reaches(process: subprocess.Popen[bytes], string: str, events: int) -> None:
    """Wait until the copy has so many events, or the process has ended."""
    eventually(lambda: process.poll() is not None or count(string, "to") >= events, 3 * PATIENCE_S)
