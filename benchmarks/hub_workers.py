"""What four workers cost: processor time of all processes for each event, beside one process in the same run.

    python -m benchmarks.hub_workers

Two hubs run, `tidegate up` and `tidegate up --workers 4`; four lean clients of hub_throughput, each with a partition of
its own, publish to and read from one and the other in turn.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.hub_throughput import (
    BATCH_EVENTS,
    BATCH_FORMAT,
    BUILD,
    HUB,
    IN_FLIGHT_BATCHES,
    IN_FLIGHT_SINGLES,
    LeanClient,
    batch,
    deliver,
    event,
    publish,
)

WORKERS = 4
CLIENTS = 4
RUNS = 5


class UpProcess:
    """`tidegate up` with that many workers, and the processor time of all its processes."""

    def __init__(self, folder: Path, workers: int, *options: str) -> None:
        folder.mkdir()
        entity = {"Name": HUB, "PartitionCount": CLIENTS, "ConsumerGroups": []}
        namespace = {"Type": "EventHub", "Name": "bench", "Entities": [entity]}
        config = folder / "Config.json"
        config.write_text(json.dumps({"UserConfig": {"NamespaceConfig": [namespace]}}), encoding="utf-8")
        command = [sys.executable, "-m", "tidegate", "up", "--config", str(config), "--data", str(folder / "data")]
        command += ["--amqp-port", "0", "--http-port", "0", "--kafka-port", "0", "--workers", str(workers), *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = 0
        self.connection_string = ""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = re.match(r"AMQP: .*:(\d+)$", line)
            if found:
                self.port = int(found[1])
            if "Endpoint=" in line and not self.connection_string:
                self.connection_string = "Endpoint=" + line.split("Endpoint=")[1].strip()
            if "Successfully Up" in line:
                break

    def cpu_seconds(self) -> float:
        """What its processes have used so far, user and system."""
        own = self._process.pid
        children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        total = 0
        for pid in (str(own), *children):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / 100

    def stop(self) -> None:
        """Stop it in order."""
        self._process.terminate()
        self._process.wait()


def together(run: Callable[[int], None]) -> None:
    """Run something for each client at the same time."""
    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def publishing(hub: UpProcess, payload: bytes, message_format: int, count: int, in_flight: int) -> None:
    """Publish `count` transfers to each partition."""

    def run(number: int) -> None:
        client = LeanClient(hub.port)
        publish(client, client.publisher(f"{HUB}/Partitions/{number}"), payload, message_format, count, in_flight)

    together(run)


def delivering(hub: UpProcess, count: int) -> None:
    """Read `count` events of each partition."""

    def run(number: int) -> None:
        client = LeanClient(hub.port)
        deliver(client, client.reader(f"{HUB}/ConsumerGroups/$Default/Partitions/{number}"), count)

    together(run)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="for each client and run")
    events = parser.parse_args().events
    loads: dict[str, Callable[[UpProcess], None]] = {
        f"publish, batches of {BATCH_EVENTS}": lambda hub: publishing(
            hub, batch(), BATCH_FORMAT, events // BATCH_EVENTS, IN_FLIGHT_BATCHES
        ),
        "publish, single": lambda hub: publishing(hub, event(), 0, events // 2, IN_FLIGHT_SINGLES),
        "deliver": lambda hub: delivering(hub, events),
    }
    BUILD.mkdir(exist_ok=True)
    result = Table(title=f"{CLIENTS} clients: processor time for an event; median of {RUNS}, in turn")
    for column in ("load", "one process, µs", f"{WORKERS} workers, µs", "ratio"):
        result.add_column(column, justify="left" if column == "load" else "right")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as folder:
        hubs = [UpProcess(Path(folder) / str(workers), workers) for workers in (1, WORKERS)]
        try:
            for name, load in loads.items():
                count = CLIENTS * (events // 2 if "single" in name else events)
                costs: list[list[float]] = [[], []]
                for _ in range(RUNS):
                    for hub, cost in zip(hubs, costs, strict=True):
                        before = hub.cpu_seconds()
                        load(hub)
                        cost.append((hub.cpu_seconds() - before) / count * 1e6)
                one, many = map(statistics.median, costs)
                result.add_row(name, f"{one:.2f}", f"{many:.2f}", f"{many / one:.2f}")
        finally:
            for hub in hubs:
                hub.stop()
    Console().print(result)


if __name__ == "__main__":
    main()
