"""From publishing to the acknowledgement, at a steady rate: median, p99 and the worst, durable and not.

    python -m benchmarks.hub_latency [--rate EVENTS_PER_SECOND] [--seconds N] [--runs N]

Ten connections send single events of 200 bytes in turn to a hub of four partitions, each event at its own time,
regardless of those before it (an open loop: a stall counts for every event that was due in it). An event's
delay is from the time it was *due* to the arrival of its disposition, so it includes the client's own lateness. The
runs with and without syncing alternate, and between them the machine itself is measured: how late a process is that
sleeps until the same times and does nothing, and how long fdatasync takes for a small append. Where these are large
the machine is busy with other things, and so are the hub's figures. Each figure is the median over the runs.
"""

from __future__ import annotations

import argparse
import os
import selectors
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.hub_throughput import BUILD, HUB, Frames, HubProcess, LeanClient, event, transfer_template
from tidegate.amqp import decode

CONNECTIONS = 10
PARTITIONS = 4
WARM_UP_S = 1.0
SYNCS = 200


class Publisher:
    """A connection, and when each of its events was due; their delivery ids count from 0."""

    def __init__(self, port: int, number: int) -> None:
        self.client = LeanClient(port)
        link = self.client.publisher(f"{HUB}/Partitions/{number % PARTITIONS}")
        self._head, self._tail = transfer_template(link.session.channel, 0, event())
        self._frames = Frames(self.client.socket)
        self._due: list[float] = []

    def send(self, due: Sequence[float]) -> None:
        first = len(self._due)
        ids = [number.to_bytes(4, "big") for number in range(first, first + len(due))]
        self._due += due
        self.client.socket.sendall(self._head + (self._tail + self._head).join(ids) + self._tail)

    def receive(self, delays: list[tuple[float, float]]) -> None:
        """Add when each acknowledged event was due, and its delay."""
        now = time.perf_counter()
        for data, start, end in self._frames.receive():
            if data[start + 10] == 0x15:
                fields = decode(data[start + 8 : end])[0].value
                assert fields[4].descriptor == 0x24, fields
                last = fields[1] if fields[2] is None else fields[2]
                delays += [(due, now - due) for due in self._due[fields[1] : last + 1]]


def delays_of(port: int, rate: int, seconds: float) -> list[float]:
    """The delay of every event that was due after the warm-up."""
    publishers = [Publisher(port, number) for number in range(CONNECTIONS)]
    selector = selectors.DefaultSelector()
    for publisher in publishers:
        selector.register(publisher.client.socket, selectors.EVENT_READ, publisher)
    delays: list[tuple[float, float]] = []
    total, sent, turn = int(rate * (seconds + WARM_UP_S)), 0, 0
    began = time.perf_counter()
    while len(delays) < total:
        ready = min(total, int((time.perf_counter() - began) * rate))
        if ready > sent:
            publishers[turn].send([began + number / rate for number in range(sent, ready)])
            sent, turn = ready, (turn + 1) % CONNECTIONS
        # a millisecond is what a client that gathers events would wait, too
        for key, _ in selector.select(0.001 if sent < total else 1):
            key.data.receive(delays)
    for publisher in publishers:
        publisher.client.socket.close()
    return [delay for due, delay in delays if due >= began + WARM_UP_S]


def lateness(seconds: float) -> list[float]:
    """How late a process is that sleeps for a millisecond at a time."""
    late = []
    began = due = time.perf_counter()
    while due < began + seconds:
        due += 0.001
        time.sleep(max(0.0, due - time.perf_counter()))
        late.append(time.perf_counter() - due)
    return late


def syncs(folder: str) -> list[float]:
    """How long fdatasync takes after an append of what a group commit has at this rate."""
    took = []
    fd = os.open(Path(folder) / "sync", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(SYNCS):
        os.write(fd, bytes(4096))
        began = time.perf_counter()
        os.fdatasync(fd)
        took.append(time.perf_counter() - began)
        time.sleep(0.002)
    os.close(fd)
    return took


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000, help="events a second")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    durable, volatile = "hub, durable", "hub, not durable"
    sleeping, syncing = "machine: sleep until due", "machine: fdatasync of 4 KB"
    runs: dict[str, list[list[float]]] = {durable: [], volatile: [], sleeping: [], syncing: []}
    BUILD.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as data,
        tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as other,
    ):
        hubs = {durable: HubProcess(data, True, PARTITIONS), volatile: HubProcess(other, False, PARTITIONS)}
        try:
            for _ in range(arguments.runs):
                for name, hub in hubs.items():
                    runs[name].append(delays_of(hub.port, arguments.rate, arguments.seconds))
                runs[sleeping].append(lateness(arguments.seconds / 2))
                runs[syncing].append(syncs(data))
        finally:
            for hub in hubs.values():
                hub.stop()
    title = f"{arguments.rate:,} events/s of 200 bytes, publish to acknowledge; medians of {arguments.runs} runs"
    result = Table(title=title)
    for column in ("ms", "median", "p95", "p99", "worst"):
        result.add_column(column, justify="left" if column == "ms" else "right")
    for name, all_delays in runs.items():
        cells = []
        for share in (0.5, 0.95, 0.99, 1.0):
            ranked = [sorted(delays)[min(len(delays) - 1, int(share * len(delays)))] for delays in all_delays]
            cells.append(f"{1000 * statistics.median(ranked):.1f}")
        result.add_row(name, *cells)
    Console().print(result)


if __name__ == "__main__":
    main()
