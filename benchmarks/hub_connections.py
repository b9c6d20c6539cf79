"""Many connections and partitions against one: a thousand publishers on 32 partitions, a thousand readers of them.

    python -m benchmarks.hub_connections [--connections N] [--runs N]

One hub process; the lean client of hub_throughput, one process too, with all its connections in one selector. Each run
publishes, or reads, about the same number of 200-byte events, durable, over one connection or over all of them, in
turn. The one publisher keeps 60 batches (or 500 single events) in flight; of the thousand each sends one batch (or 25
single events) when the former are acknowledged: there is more in flight with them, but it goes to 32 logs, and every
few events are a wake-up, a read, a write and a disposition of their own.
The readers share out 32 partitions and as many consumer groups as five readers a partition and group need; each reads
a part of the log. "keeps" is the median of the ratios of neighbouring runs, and "hub CPU keeps" the same of events per
second of the hub's processor time, which neither the client nor other work on the machine disturbs much.
"""

from __future__ import annotations

import argparse
import resource
import selectors
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.hub_throughput import (
    BATCH_EVENTS,
    BUILD,
    HUB,
    IN_FLIGHT_BATCHES,
    IN_FLIGHT_SINGLES,
    Frames,
    HubProcess,
    LeanClient,
    batch,
    deliver,
    event,
    publish,
    settled_by,
    transfer_template,
)
from tidegate.amqp import BATCH_FORMAT, Link

PARTITIONS = 32
READERS_OF_A_GROUP = 5
EVENTS = 400_000
SINGLES = 150_000
SINGLES_AT_ONCE = 25


class Publisher:
    """One of many connections: sends some publications when those before are acknowledged."""

    def __init__(self, port: int, number: int, payload: bytes, message_format: int, at_once: int) -> None:
        self.client = LeanClient(port)
        link = self.client.publisher(f"{HUB}/Partitions/{number % PARTITIONS}")
        self.frames = Frames(self.client.socket)
        self._head, self._tail = transfer_template(link.session.channel, message_format, payload)
        self._at_once = at_once
        self._sent = self._acknowledged = 0

    def send(self) -> int:
        """How many went out."""
        ids = [number.to_bytes(4, "big") for number in range(self._sent, self._sent + self._at_once)]
        self.client.socket.sendall(self._head + (self._tail + self._head).join(ids) + self._tail)
        self._sent += self._at_once
        return self._at_once

    def receive(self) -> int:
        """How many are acknowledged with it."""
        before = self._acknowledged
        for data, start, end in self.frames.receive():
            if data[start + 10] == 0x15:
                self._acknowledged += settled_by(data[start + 8 : end])
        return self._acknowledged - before

    @property
    def waits(self) -> bool:
        return self._acknowledged < self._sent


class Many:
    """The connections of one load, kept over the runs."""

    def __init__(self, connections: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.connections = connections

    def publishers(self, port: int, payload: bytes, message_format: int, at_once: int) -> list[Publisher]:
        made = [Publisher(port, number, payload, message_format, at_once) for number in range(self.connections)]
        for publisher in made:
            self.selector.register(publisher.client.socket, selectors.EVENT_READ, publisher)
        return made

    def publish(self, publishers: list[Publisher], count: int) -> tuple[int, float]:
        """How many publications it were, at least `count`, and the seconds until all were acknowledged."""
        acknowledged = 0
        started = time.perf_counter()
        sent = sum(publisher.send() for publisher in publishers)
        while acknowledged < sent:
            for key, _ in self.selector.select():
                publisher = key.data
                acknowledged += publisher.receive()
                if sent < count and not publisher.waits:
                    sent += publisher.send()
        return acknowledged, time.perf_counter() - started

    def readers(self, port: int) -> list[tuple[LeanClient, Link, Frames]]:
        made = []
        for number in range(self.connections):
            client = LeanClient(port)
            group = number // (PARTITIONS * READERS_OF_A_GROUP)
            link = client.reader(f"{HUB}/ConsumerGroups/{group}/Partitions/{number % PARTITIONS}")
            made.append((client, link, Frames(client.socket)))
            self.selector.register(client.socket, selectors.EVENT_READ, made[-1])
        return made

    def deliver(self, readers: list[tuple[LeanClient, Link, Frames]], count: int) -> float:
        """Seconds until each reader has got its part of `count` events."""
        each = count // len(readers)
        missing = each * len(readers)
        started = time.perf_counter()
        for client, link, _ in readers:
            link.flow(each)
            client.flush()
        while missing:
            for key, _ in self.selector.select():
                missing -= sum(data[start + 10] == 0x14 for data, start, _ in key.data[2].receive())
        return time.perf_counter() - started

    def close(self) -> None:
        for key in list(self.selector.get_map().values()):
            self.selector.unregister(key.fileobj)
            getattr(key.data, "client", key.data[0] if isinstance(key.data, tuple) else None).socket.close()


@dataclass
class Rates:
    """Events a second, of wall time and of the hub's processor time."""

    wall: float
    processor: float


def timed(hub: HubProcess, work: Callable[[], tuple[int, float]]) -> Rates:
    """Of work that gives the number of events and its seconds."""
    before = hub.cpu_seconds()
    events, seconds = work()
    return Rates(events / seconds, events / max(hub.cpu_seconds() - before, 0.01))


def publishing(hub: HubProcess, connections: int, runs: int, batches: bool) -> list[tuple[Rates, Rates]]:
    """Over one connection and over all, run by run."""
    payload, message_format, events = (batch(), BATCH_FORMAT, BATCH_EVENTS) if batches else (event(), 0, 1)
    count = (EVENTS if batches else SINGLES) // events
    in_flight = IN_FLIGHT_BATCHES if batches else IN_FLIGHT_SINGLES
    many = Many(connections)
    publishers = many.publishers(hub.port, payload, message_format, 1 if batches else SINGLES_AT_ONCE)
    results = []
    for _ in range(runs + 1):
        client = LeanClient(hub.port)
        link = client.publisher(f"{HUB}/Partitions/0")
        alone = timed(
            hub,
            lambda client=client, link=link: (
                count * events,
                publish(client, link, payload, message_format, count, in_flight),
            ),
        )
        client.socket.close()

        def together() -> tuple[int, float]:
            published, seconds = many.publish(publishers, count)
            return published * events, seconds

        results.append((alone, timed(hub, together)))
    many.close()
    return results[1:]


def delivering(hub: HubProcess, connections: int, runs: int) -> list[tuple[Rates, Rates]]:
    """To one reader and to all, run by run."""
    results = []
    for _ in range(runs + 1):
        client = LeanClient(hub.port)
        link = client.reader(f"{HUB}/ConsumerGroups/$Default/Partitions/0")
        alone = timed(hub, lambda client=client, link=link: (EVENTS, deliver(client, link, EVENTS)))
        client.socket.close()
        many = Many(connections)
        readers = many.readers(hub.port)
        whole = EVENTS // connections * connections
        together = timed(hub, lambda many=many, readers=readers, whole=whole: (whole, many.deliver(readers, EVENTS)))
        many.close()
        results.append((alone, together))
    return results[1:]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    connections, runs = arguments.connections, arguments.runs
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    result = Table(title=f"Hub, 200-byte events, durable, {PARTITIONS} partitions; medians of {runs}")
    for column in ("load", "one connection ev/s", f"{connections:,} connections ev/s", "keeps", "hub CPU keeps"):
        result.add_column(column, justify="left" if column == "load" else "right")
    BUILD.mkdir(exist_ok=True)
    groups = -(-connections // (PARTITIONS * READERS_OF_A_GROUP))
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as data:
        hub = HubProcess(data, partitions=PARTITIONS, groups=groups)
        try:
            loads = {
                f"publish, batches of {BATCH_EVENTS}": publishing(hub, connections, runs, batches=True),
                "publish, single": publishing(hub, connections, runs, batches=False),
                "deliver": delivering(hub, connections, runs),
            }
        finally:
            hub.stop()
    for load, rates in loads.items():
        walls = [f"{statistics.median(side.wall for side in sides):,.0f}" for sides in zip(*rates, strict=True)]
        keeps = statistics.median(many.wall / one.wall for one, many in rates)
        processor = statistics.median(many.processor / one.processor for one, many in rates)
        result.add_row(load, *walls, f"{100 * keeps:.0f} %", f"{100 * processor:.0f} %")
    Console().print(result)


if __name__ == "__main__":
    main()
