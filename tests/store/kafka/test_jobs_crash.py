"""Jobs over a hub that gateways serve: the same bytes as over the embedded log, however often something is killed."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.cluster import Cluster
from tests.log.support import InlineCommitter, SetClock, append
from tests.patience import PATIENCE_S, eventually
from tests.profiles import scaled
from tests.server.conftest import entity
from tests.spark.publishing import publish
from tests.store.kafka.test_store import everything
from tidegate.amqp import parse_message
from tidegate.client.event import body_of
from tidegate.connectors.inputs.hub_log import HubLog, HubRange
from tidegate.connectors.inputs.hub_topic import ClusterAccess
from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.messages import bodies
from tidegate.hub.config import NamespaceConfig
from tidegate.log import PartitionLog
from tidegate.server import BackgroundServer
from tidegate.store import KafkaLog, read_settings

TIDEGATE = (sys.executable, "-m", "tidegate")
HUB = "cars"
PARTITIONS = ("0", "1", "2")
QUERY = """
SELECT System.Timestamp() AS ts, k, COUNT(*) AS n, AVG(v) AS mean INTO out FROM i TIMESTAMP BY t
GROUP BY k, TumblingWindow(second, 1)
SELECT k, v, System.Timestamp() AS ts, LAG(v) OVER (PARTITION BY k LIMIT DURATION(second, 9)) AS before INTO rows
FROM i TIMESTAMP BY t WHERE v > 40
"""


def write_job(folder: Path, connection_string: str, settings: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.toml"
    path.write_text(
        f'name = "cars"\nquery = """{QUERY}"""\n[event_ordering]\nlate_arrival_tolerance_s = 2\n'
        f'out_of_order_tolerance_s = 1\n[inputs.i]\ntype = "eventhub"\n'
        f'connection_string = "{connection_string};EntityPath={HUB}"\n{settings}\n'
        '[outputs.out]\ntype = "file"\npath = "out.jsonl"\n[outputs.rows]\ntype = "file"\npath = "rows.jsonl"\n'
    )
    return path


def outputs_of(job: Path) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() if path.exists() else b"" for path in sorted(job.parent.glob("*.jsonl")))


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_for_more(process: subprocess.Popen[bytes], out: Path, before: int) -> None:
    eventually(lambda: process.poll() is not None or size_of(out) > before)


def run(job: Path, until: datetime, *options: str) -> tuple[bytes, ...]:
    """Run a job to a time that every partition passes by its gateway's word alone, and return what it has written."""
    command = [*TIDEGATE, "job", "run", str(job), "--until", until.isoformat(), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    # It may have waited for the gateway, which says where partitions end.
    assert not re.search("through (a|its) gateway", done.stderr), "tasks read the topic themselves"
    return outputs_of(job)


class Cars:
    """Publishes events, some late and out of order, to two of the three partitions."""

    def __init__(self, connection_string: str) -> None:
        self._connection_string = connection_string
        self._dice = random.Random(4)
        self.published = 0

    def publish(self, count: int) -> None:
        now = datetime.now(UTC)
        for partition in PARTITIONS[:2]:
            events: list[dict[str, Any]] = []
            for _ in range(count):
                moment = now - timedelta(seconds=3 * self._dice.random())
                events.append({"t": moment.isoformat(), "k": self._dice.choice("abcd"), "v": self._dice.random() * 100})
            publish(self._connection_string, HUB, events, partition_id=partition)
            self.published += count


@pytest.fixture(scope="module")
def config(make_config: Callable[..., NamespaceConfig]) -> NamespaceConfig:
    return make_config(entity(HUB, partitions=len(PARTITIONS))).model_copy(update={"name": "jobs"})


@pytest.fixture(scope="module")
def gateway(
    one_broker: Cluster, config: NamespaceConfig, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BackgroundServer]:
    store = read_settings(one_broker.clients["a"])
    with BackgroundServer(config, tmp_path_factory.mktemp("gateway"), store=store) as running:
        yield running


def log_at(gateway: BackgroundServer, partition: str) -> KafkaLog:
    log = gateway.server.namespace.event_hub(HUB).partition(partition).log
    assert isinstance(log, KafkaLog)
    return log


def embedded(stack: ExitStack, gateway: BackgroundServer, config: NamespaceConfig, folder: Path) -> str:
    """Serve a data directory with the same events and times; return its connection string."""
    with BackgroundServer(config, folder) as server:
        hub = server.server.namespace.event_hub(HUB)
        folders = {partition: hub.partition(partition).log.directory for partition in PARTITIONS}
    for partition, place in folders.items():
        assert place is not None
        clock = SetClock(0)
        log = PartitionLog.open(place, clock=clock, committer=InlineCommitter())
        for _, time_ms, event in everything(log_at(gateway, partition)):
            clock.time_ms = time_ms
            append(log, [event])
        log.close()
    return stack.enter_context(BackgroundServer(config, folder)).connection_string


@pytest.mark.crash
def test_a_job_that_is_killed_with_its_broker_gives_the_bytes_of_the_embedded_log(
    one_broker: Cluster, gateway: BackgroundServer, config: NamespaceConfig, tmp_path: Path
) -> None:
    cars = Cars(gateway.connection_string)
    cars.publish(300)
    killed = write_job(tmp_path / "killed", gateway.connection_string)
    out = killed.parent / "rows.jsonl"
    for _ in range(scaled(1)):
        before = size_of(out)
        command = [*TIDEGATE, "job", "run", str(killed), "--placement", "process"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            try:
                # The last results leave in silence: the lower bounds of partitions without events close the windows.
                wait_for_more(process, out, before)
                cars.publish(100)
                one_broker.kill(0)
                one_broker.start(0)
                cars.publish(50)
            finally:
                process.kill()
    until = datetime.now(UTC)
    found = run(killed, until, "--placement", "process")
    numbers = [number for partition in PARTITIONS for number, _, _ in everything(log_at(gateway, partition))]
    assert len(numbers) == cars.published
    assert max(numbers) >= cars.published // 2, "markers have taken numbers"
    assert all(found)
    elsewhere = write_job(tmp_path / "amqp", gateway.connection_string, 'segments = "never"')
    assert run(elsewhere, until, "--placement", "process") == found
    with ExitStack() as stack:
        other = embedded(stack, gateway, config, tmp_path / "data")
        assert run(write_job(tmp_path / "embedded", other), until, "--placement", "process") == found


@pytest.mark.spark
def test_tasks_on_spark_read_the_topic(gateway: BackgroundServer, tmp_path: Path) -> None:
    cars = Cars(gateway.connection_string)
    cars.publish(200)
    until = datetime.now(UTC)
    here = run(write_job(tmp_path / "here", gateway.connection_string), until, "--placement", "process")
    there = write_job(tmp_path / "there", gateway.connection_string)
    assert run(there, until, "--placement", "spark", "--master", "local[2]") == here
    assert all(here)


def flat(hub_range: HubRange) -> list[tuple[int, int, str, bytes]]:
    """The number, enqueued time, offset and body of each event."""
    rows: list[tuple[int, int, str, bytes]] = []
    for messages in hub_range.read_messages(7):
        numbers, times = messages.sequence_numbers.tolist(), messages.enqueued_times_ms.tolist()
        rows += zip(numbers, times, messages.offsets, bodies(messages.buffer, messages.ends), strict=True)
    return rows


def test_a_range_is_the_same_from_the_topic_and_through_a_gateway(gateway: BackgroundServer) -> None:
    cars = Cars(gateway.connection_string)
    logs = [
        HubLog.connect(gateway.connection_string, HUB, "$Default", use_segments=use_segments)
        for use_segments in (True, False)
    ]
    try:
        cars.publish(20)
        before = log_at(gateway, "0").position
        eventually(lambda: logs[0].ends() and log_at(gateway, "0").position > before + 1)  # markers
        cars.publish(20)
        ends = [log.ends()["0"] for log in logs]
        assert ends[0].end == ends[1].end
        expected = [
            (number, time_ms, str(number), body_of(parse_message(event)))
            for number, time_ms, event in everything(log_at(gateway, "0"))
        ]
        begin, end = ends[0].begin, ends[0].end
        gap = next(a[0] + 1 for a, b in pairwise(expected) if b[0] > a[0] + 1)
        for start, stop in ((begin, end), (begin + 3, end - 2), (gap - 2, gap), (gap - 2, gap + 1), (gap, gap + 2)):
            rows = [row for row in expected if start <= row[0] < stop]
            for log in logs:
                assert flat(log.range("0", start, stop)) == rows
        assert logs[0].range("0", begin, end).topic is not None
        assert logs[1].range("0", begin, end).topic is None
    finally:
        for log in logs:
            log.close()


def test_a_task_that_cannot_reach_the_cluster_reads_through_a_gateway(gateway: BackgroundServer) -> None:
    Cars(gateway.connection_string).publish(5)
    log = HubLog.connect(gateway.connection_string, HUB, "$Default")
    try:
        end = log.ends()["1"]
        there = log.range("1", end.begin, end.end)
        assert there.topic is not None
        elsewhere = replace(there, topic=replace(there.topic, access=ClusterAccess("127.0.0.1:1")))
        another = replace(there, topic=replace(there.topic, topic_id="another"))
        assert flat(elsewhere) == flat(another) == flat(there)
        assert len(flat(there)) >= 5
    finally:
        log.close()


@pytest.mark.parametrize("segments", ["topic", "network"])
def test_events_that_retention_has_removed_are_missed(gateway: BackgroundServer, segments: str) -> None:
    cars = Cars(gateway.connection_string)
    cars.publish(20)
    log = HubLog.connect(gateway.connection_string, HUB, "$Default", use_segments=segments == "topic")
    try:
        end = log.ends()["1"]
        whole = log.range("1", end.begin, end.end)
        log_at(gateway, "1").delete_before(end.end - 10)
        with pytest.raises(InputError, match=rf"event {end.begin} no longer exists \(next is {end.end - 10}\)"):
            flat(whole)
        assert len(flat(log.range("1", end.end - 10, end.end))) == 10
    finally:
        log.close()
