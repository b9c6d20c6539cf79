"""The hub compared with RabbitMQ and its AMQP 1.0 plugin: the same client, the same messages, both durable.

    apt-get install rabbitmq-server    # once
    python -m benchmarks.hub_vs_rabbitmq [--seconds N] [--runs N]

Both speak AMQP 1.0 to the lean client of hub_throughput, on this machine, with the same encoded messages of 200 bytes
(with the durable header, so that RabbitMQ writes them to disk), unsettled, at most 500 not yet accepted. RabbitMQ has
a durable classic queue and a quorum queue of one member, the two kinds that survive a kill; both take accepted
dispositions to mean stored. The deliveries are of what was just published, sent settled and with all the credit at
once: the fastest way to read from either (RabbitMQ then deletes without waiting for an acknowledgement, the
hub keeps the events). The runs of the three alternate and figures are medians; "times" is the median of the ratios of
neighbouring runs. "client CPU" is the share of one core that the client itself took while the hub was measured: near
100 % it is the client that limits the hub, and the ratio is a lower bound.

RabbitMQ runs with its own defaults, from a directory of its own, and is stopped at the end; a broker of the machine is
not touched.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.hub_throughput import (
    BUILD,
    HUB,
    IN_FLIGHT_SINGLES,
    HubProcess,
    LeanClient,
    deliver,
    event,
    publish,
)
from tidegate.amqp import Header, Message, encode_message, parse_message

HUB_NAME, CLASSIC, QUORUM = "hub", "RabbitMQ, classic queue", "RabbitMQ, quorum queue"
QUEUES = {CLASSIC: "classic", QUORUM: "quorum"}
START_TIMEOUT_S = 90


class RabbitClient(LeanClient):
    """The lean client without Event Hubs' tokens."""

    def _put_token(self, port: int) -> None:
        """RabbitMQ lets anonymous in as its default user."""


def rabbitmq_server() -> Path | None:
    """The start script of the newest RabbitMQ that is installed; the wrapper in the path insists on being a user."""
    return max(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"), default=None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def rabbitmq(script: Path, folder: Path) -> Iterator[int]:
    """A broker with its AMQP 1.0 plugin and the queues; the port."""
    port, name_port, cluster_port = free_port(), free_port(), free_port()
    queues = [
        {"name": kind, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {"x-queue-type": kind}}
        for kind in QUEUES.values()
    ]
    access = {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    definitions = {
        "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
        "vhosts": [{"name": "/"}],
        "permissions": [access],
        "queues": queues,
    }
    (folder / "definitions.json").write_text(json.dumps(definitions))
    (folder / "enabled_plugins").write_text("[rabbitmq_amqp1_0].")
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\nload_definitions = {folder / 'definitions.json'}\n"
        "amqp1_0.default_user = guest\nlog.console = false\n"
    )
    environment = {
        **os.environ,
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(name_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_DIST_PORT": str(cluster_port),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    # Erlang's name server would stay behind; started here, in the foreground, it can be stopped
    names = subprocess.Popen(["epmd"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = (folder / "output").open("w")
    broker = subprocess.Popen([str(script)], env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(broker, port, folder)
        yield port
    finally:
        os.killpg(broker.pid, signal.SIGTERM)
        try:
            broker.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(broker.pid, signal.SIGKILL)
            broker.wait()
        names.terminate()
        names.wait()
        log.close()


def wait_for(broker: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and broker.poll() is None:
        try:
            client = RabbitClient(port)
            client.publisher(f"/amq/queue/{QUEUES[QUORUM]}")
        except (OSError, SystemExit):
            time.sleep(0.5)
        else:
            client.socket.close()
            return
    raise SystemExit("RabbitMQ did not start: " + (folder / "output").read_text()[-2000:])


def durable_event() -> bytes:
    """The event of hub_throughput with the durable header."""
    plain = parse_message(event())
    return encode_message(Message(header=Header(durable=True), body_kind=plain.body_kind, body=plain.body))


class Side:
    """One of those compared: where it is published to and read from, and what was measured."""

    def __init__(self, name: str, hub: HubProcess, rabbitmq_port: int) -> None:
        self.name = name
        self.published: list[float] = []
        self.delivered: list[float] = []
        self.client_shares: dict[str, list[float]] = {"publish": [], "deliver": []}
        self._port = hub.port if name == HUB_NAME else rabbitmq_port

    def _client(self) -> LeanClient:
        return LeanClient(self._port) if self.name == HUB_NAME else RabbitClient(self._port)

    def publish(self, payload: bytes, count: int) -> float:
        """Events a second until all are accepted."""
        client = self._client()
        address = f"{HUB}/Partitions/0" if self.name == HUB_NAME else f"/amq/queue/{QUEUES[self.name]}"
        link, used = client.publisher(address), time.process_time()
        took = publish(client, link, payload, 0, count, IN_FLIGHT_SINGLES)
        self.client_shares["publish"].append((time.process_time() - used) / took)
        client.socket.close()
        self.published.append(count / took)
        return count / took

    def deliver(self, count: int) -> float:
        """Events a second until all are here."""
        client = self._client()
        address = f"{HUB}/ConsumerGroups/$Default/Partitions/0"
        if self.name != HUB_NAME:
            address = f"/amq/queue/{QUEUES[self.name]}"
        link, used = client.reader(address, settled=True), time.process_time()
        took = deliver(client, link, count)
        self.client_shares["deliver"].append((time.process_time() - used) / took)
        client.socket.close()
        self.delivered.append(count / took)
        return count / took


def measure(sides: list[Side], seconds: float, runs: int) -> None:
    """A run of each in turn; the first of each finds how many messages fill the time, and is not counted."""
    payload = durable_event()
    counts = {}
    for side in sides:
        side.publish(payload, 2_000)
        count = int(side.publish(payload, 10_000) * seconds)
        side.deliver(12_000)
        counts[side.name] = max(count, 10_000)
    for side in sides:
        side.published.clear()
        side.delivered.clear()
        side.client_shares["publish"].clear()
        side.client_shares["deliver"].clear()
    for _ in range(runs):
        for side in sides:
            side.publish(payload, counts[side.name])
            side.deliver(counts[side.name])


def table(sides: list[Side], runs: int) -> Table:
    """The figures for a terminal."""
    hub = sides[0]
    result = Table(title=f"{len(durable_event())}-byte messages, durable, one connection; medians of {runs}")
    for column in ("", "publish ev/s", "hub is … times", "deliver ev/s", "hub is … times"):
        result.add_column(column, justify="right" if column else "left")
    for side in sides:
        times = [
            "" if side is hub else f"{statistics.median(a / b for a, b in zip(ours, theirs, strict=True)):.1f}"
            for ours, theirs in ((hub.published, side.published), (hub.delivered, side.delivered))
        ]
        medians = [f"{statistics.median(figures):,.0f}" for figures in (side.published, side.delivered)]
        result.add_row(side.name, medians[0], times[0], medians[1], times[1])
    shares = [f"{100 * statistics.median(values):.0f} %" for values in hub.client_shares.values()]
    result.caption = f"client CPU while the hub is measured: publish {shares[0]}, deliver {shares[1]} of one core"
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one run of publishing")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    script = rabbitmq_server()
    if script is None or shutil.which("epmd") is None:
        print("RabbitMQ is not installed: apt-get install rabbitmq-server; left out", file=sys.stderr)
        return
    BUILD.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="rabbitmq-", dir=BUILD) as folder,
        rabbitmq(script, Path(folder)) as port,
        tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as data,
    ):
        hub = HubProcess(data, durable=True)
        try:
            sides = [Side(name, hub, port) for name in (HUB_NAME, CLASSIC, QUORUM)]
            measure(sides, arguments.seconds, arguments.runs)
        finally:
            hub.stop()
    Console().print(table(sides, arguments.runs))


if __name__ == "__main__":
    main()
