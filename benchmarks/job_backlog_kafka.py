"""A job's backlog over a cluster of Kafka, beside the same backlog in a data directory.

    python -m benchmarks.job_backlog_kafka [--events N] [--runs N]

A hub with a data directory and a gateway over three brokers have the same events of about 150 bytes in 4 partitions, in
batches of 1,000. The job of job_backlog (count and average by device in a tumbling window of 10 s) reads all of them,
on Spark with two cores, from one and from the other in turn. Tasks read the hub's segments and the cluster's topic
themselves. "job µs" is the processor time of the job for an event: this process, the JVM and the Python workers,
without hubs and brokers. "reading µs" is that of reading the events as columns alone, as a task does, in one process.

Kafka's jars come from Maven Central, as for the tests (`mvn`, Java 17).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks._backlog import PARTITIONS, ProcessorTime, descendants, job_session, ours
from benchmarks.hub_throughput import HUB
from benchmarks.hub_workers import UpProcess
from benchmarks.job_backlog import TUMBLING
from tests.kafka.cluster import cluster
from tidegate.client import ConnectionString, Publisher
from tidegate.connectors.inputs.hub_log import HubLog
from tidegate.ordering import format_time

BATCH = 1000
READ_EVENTS = 50_000
SIDES = ("data directory", "Kafka")


def bodies(events: int) -> Iterator[list[bytes]]:
    """Yield an hour of a hundred devices, about in order of time, in batches."""
    dice = random.Random(1)
    start = time.time_ns() // 100 - 36_000_000_000
    apart = 36_000_000_000 // events
    for first in range(0, events, BATCH):
        yield [
            json.dumps(
                {
                    "device": f"device-{dice.randrange(100):03d}",
                    "entry_time": format_time(start + number * apart - dice.randrange(20_000_000)),
                    "speed": round(dice.random() * 120, 2),
                    "booth": dice.randrange(12),
                    "plate": f"ABC-{number:07d}",
                    "state": "WA",
                }
            ).encode()
            for number in range(first, first + BATCH)
        ]


def fill(connections: list[str], events: int) -> None:
    """Publish the same events to all hubs."""
    publishers = [
        [Publisher(ConnectionString.parse(connection, HUB)) for _ in range(PARTITIONS)] for connection in connections
    ]
    for number, batch in enumerate(bodies(events)):
        partition = number % PARTITIONS
        for each in publishers:
            each[partition].publish(batch, partition=str(partition))
    for each in publishers:
        for publisher in each:
            publisher.close()


def reading_s(connection: str) -> tuple[int, float]:
    """How many events there are, and the processor time of reading them as columns in this process."""
    log = HubLog.connect(connection, HUB, "$Default")
    ends = log.ends()
    count, before = 0, time.process_time()
    for partition, end in ends.items():
        for events in log.range(partition, 0, end.end).read_events(READ_EVENTS):
            count += len(events.sequence_numbers)
    return count, time.process_time() - before


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    job_us: dict[str, list[float]] = {side: [] for side in SIDES}
    read_us: dict[str, list[float]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as temporary, cluster() as brokers:
        folder = Path(temporary)
        store = ("--store", f"kafka://{brokers.clients['a']}")
        hubs = [UpProcess(folder / "hub", 1), UpProcess(folder / "gateway", 1, *store)]
        connections = [hub.connection_string for hub in hubs]
        fill(connections, given.events)
        others = frozenset(descendants()[1:])
        with job_session() as spark:
            used = ProcessorTime(without=others)
            for run in range(given.runs + 1):  # the first run of each warms up the JVM and is not counted
                for side, connection in zip(SIDES, connections, strict=True):
                    before_s = used.seconds()
                    _, rows, _ = ours(folder / "job", connection, spark, TUMBLING, HUB)
                    job_s = used.seconds() - before_s
                    count, read_s = reading_s(connection)
                    assert count == given.events, count
                    print(f"  run {run}, {side}: {job_s:.2f} s, reading {read_s:.2f} s ({rows:,} rows)", flush=True)
                    if run:
                        job_us[side].append(job_s / given.events * 1e6)
                        read_us[side].append(read_s / given.events * 1e6)
        for hub in hubs:
            hub.stop()
    table = Table(title=f"{given.events:,} events in {PARTITIONS} partitions, medians of {given.runs} runs")
    for column in ("", *SIDES, "rate over Kafka, of that over the data directory"):
        table.add_column(column, justify="right")
    for name, measured in (("job µs", job_us), ("reading µs", read_us)):
        medians = [statistics.median(measured[side]) for side in SIDES]
        table.add_row(name, *(f"{median:.2f}" for median in medians), f"{medians[0] / medians[1]:.2f}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
