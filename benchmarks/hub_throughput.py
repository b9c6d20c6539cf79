"""How much one hub process takes and gives, measured by a client lean enough not to be what is measured.

    python -m benchmarks.hub_throughput

The client builds its frames by hand from templates and looks at no more of the answers than it has to count.
Microsoft's SDKs send 8 to 9 thousand events a second; with one of them this would measure the SDK. Server and client
share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tidegate.amqp import (
    BATCH_FORMAT,
    Connection,
    ConnectionSettings,
    Detached,
    Event,
    Int,
    Link,
    LinkAttached,
    Message,
    Properties,
    Session,
    Transfer,
    decode,
    encode_message,
    parse_message,
)
from tidegate.amqp.endpoints.link import SEND_SETTLED
from tidegate.hub.access import sign
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import Server, ServerSettings
from tidegate.server.server import tune_gc

EVENT_BYTES = 200
BATCH_EVENTS = 100
IN_FLIGHT_BATCHES = 60
IN_FLIGHT_SINGLES = 500
RUNS = 5
KEY_NAME = "RootManageSharedAccessKey"
KEY = "SAS_KEY_VALUE"
HUB = "bench"
BUILD = Path(__file__).parent.parent / "build"
_U32 = struct.Struct(">I")
_ACCEPTED = struct.Struct(">8sIsI8s")
_ACCEPTED_PARTS = (b"\x00\x53\x15\xc0\x14\x06\x41\x70", b"\x70", b"\x41\x00\x53\x24\xc0\x01\x00\x42")
"""Of a disposition as the hub writes it; others are decoded."""


class HubProcess:
    """A hub in a process of its own: its ports, without and with TLS, and the file of the authority of its certificate.

    The event hub has that many partitions, and consumer groups called 0, 1, … in addition to $Default.
    """

    def __init__(self, data: str, durable: bool = True, partitions: int = 1, groups: int = 0) -> None:
        command = [sys.executable, __file__, "--serve", data, *([] if durable else ["--not-durable"])]
        command += ["--partitions", str(partitions), "--groups", str(groups)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port, self.tls_port = map(int, self._process.stdout.readline().split())
        self.authority_file = Path(data) / "tls" / "ca.pem"

    def cpu_seconds(self) -> float:
        """What the process has used so far, user and system."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


class LeanClient:
    """Signs in with the AMQP core; after that the socket is used bare."""

    def __init__(self, port: int, authority_file: Path | None = None) -> None:
        """With the file of an authority, over TLS."""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if authority_file is not None:
            trust = ssl.create_default_context(cafile=str(authority_file))
            self.socket = trust.wrap_socket(self.socket, server_hostname="localhost")
        self._amqp = Connection(
            "client", "bench", ConnectionSettings(sasl_mechanisms=("ANONYMOUS",), incoming_window=1 << 30)
        )
        self._amqp.open()
        self.session: Session = self._amqp.begin()
        self._put_token(port)

    def publisher(self, address: str) -> Link:
        """A sending link with handle 0 on its session."""
        session = self._amqp.begin()
        link = session.attach_sender("publisher", address)
        self._until(lambda event: isinstance(event, LinkAttached) and event.link is link)
        while not link.credit:
            self._exchange()
        return link

    def reader(self, address: str, settled: bool = False) -> Link:
        """A receiving link with handle 0 on its session; no credit yet. `settled`: ask for settled deliveries."""
        session = self._amqp.begin()
        link = session.attach_receiver("reader", address, snd_settle_mode=SEND_SETTLED if settled else 2)
        self._until(lambda event: isinstance(event, LinkAttached) and event.link is link)
        return link

    def flush(self) -> None:
        self.socket.sendall(self._amqp.data_to_send())

    def _put_token(self, port: int) -> None:
        sender = self.session.attach_sender("cbs-out", "$cbs")
        self.session.attach_receiver("cbs-in", "$cbs", credit=10)
        while not sender.credit:
            self._exchange()
        audience = f"sb://localhost:{port}/{HUB}"
        request = Message(
            properties=Properties(message_id="1"),
            application_properties={
                "operation": "put-token",
                "type": "servicebus.windows.net:sastoken",
                "name": audience,
            },
            body_kind="value",
            body=sign(audience, KEY_NAME, KEY, int(time.time()) + 3600),
        )
        sender.send_deliveries([encode_message(request)], settled=True)
        reply = self._until(lambda event: isinstance(event, Transfer))
        assert isinstance(reply, Transfer)
        properties = parse_message(reply.payload).application_properties or {}
        assert properties["status-code"] == Int(202), properties

    def _until(self, wanted: Callable[[Event], bool]) -> Event:
        while True:
            for event in self._exchange():
                if isinstance(event, Detached):
                    raise SystemExit(f"the hub refused: {event.error}")
                if wanted(event):
                    return event

    def _exchange(self) -> list[Event]:
        self.flush()
        return self._amqp.receive_data(self.socket.recv(1 << 16))


def event(body_bytes: int = EVENT_BYTES) -> bytes:
    """One encoded event with a JSON body of that size."""
    reading = b'{"device": "device-17", "time": "2024-05-01T12:00:00.0000000Z", "speed": 61.25, "note": "'
    body = reading + b"a booth on the northern road, the third lane from the left; " * 4
    return encode_message(Message(body_kind="data", body=[body[: body_bytes - 2] + b'"}']))


def batch() -> bytes:
    """A batch's payload: each event in a data section."""
    return encode_message(Message(body_kind="data", body=[event()] * BATCH_EVENTS))


def transfer_template(channel: int, message_format: int, payload: bytes) -> tuple[bytes, bytes]:
    """A transfer frame cut where its delivery id goes."""
    before = b"\x00\x53\x14\xd0" + struct.pack(">II", 30, 11) + b"\x43\x70"
    after = b"\xa0\x01t\x70" + _U32.pack(message_format) + b"\x42\x42\x40\x40\x42\x42\x42"
    body_bytes = len(before) + 4 + len(after) + len(payload)
    fields = len(before) - 8 + 4 + len(after)
    before = b"\x00\x53\x14\xd0" + struct.pack(">II", fields, 11) + before[12:]
    head = struct.pack(">IBBH", 8 + body_bytes, 2, 0, channel)
    return head + before, after + payload


class Frames:
    """Cuts what arrives into frames, by their sizes alone."""

    def __init__(self, source: socket.socket) -> None:
        self._socket = source
        self._rest = b""

    def receive(self) -> list[tuple[bytes, int, int]]:
        """The frames of one read: the buffer, where each starts and ends."""
        received = self._socket.recv(1 << 20)
        if not received:
            raise ConnectionError("the hub has ended the connection")
        data = self._rest + received
        frames = []
        position, size = 0, len(data)
        unpack = _U32.unpack_from
        while size - position >= 8:
            end = position + unpack(data, position)[0]
            if end > size:
                break
            frames.append((data, position, end))
            position = end
        self._rest = data[position:]
        return frames


def publish(client: LeanClient, link: Link, payload: bytes, message_format: int, count: int, in_flight: int) -> float:
    """Seconds until `count` publications are acknowledged, `in_flight` of them at a time."""
    head, tail = transfer_template(link.session.channel, message_format, payload)
    middle = tail + head
    frames = Frames(client.socket)
    sent = acknowledged = 0
    pack = _U32.pack
    started = time.perf_counter()
    while acknowledged < count:
        room = min(in_flight - (sent - acknowledged), count - sent)
        if room > 0 and (room >= in_flight // 4 or sent == acknowledged):
            client.socket.sendall(head + middle.join([pack(n) for n in range(sent, sent + room)]) + tail)
            sent += room
        for data, start, end in frames.receive():
            if data[start + 10] == 0x15:
                acknowledged += settled_by(data[start + 8 : end])
    return time.perf_counter() - started


def settled_by(disposition: bytes) -> int:
    """How many deliveries it accepts; anything but accepted ends the run."""
    if len(disposition) == _ACCEPTED.size:
        head, first, last_head, last, rest = _ACCEPTED.unpack(disposition)
        if (head, last_head, rest) == _ACCEPTED_PARTS:
            return int(last - first + 1)
    fields = decode(disposition)[0].value
    assert fields[4].descriptor == 0x24, fields
    return int((fields[2] if fields[2] is not None else fields[1]) - fields[1] + 1)


def deliver(client: LeanClient, link: Link, count: int) -> float:
    """Seconds until `count` events of a backlog have come."""
    frames = Frames(client.socket)
    received = 0
    started = time.perf_counter()
    link.flow(count)
    client.flush()
    while received < count:
        received += sum(data[start + 10] == 0x14 for data, start, _ in frames.receive())
    return time.perf_counter() - started


@dataclass
class Figure:
    """One line of the table: events per second of wall time and of the hub's processor time."""

    name: str
    durable: bool
    per_second: float
    per_cpu_second: float


def measure(durable: bool, seconds: float) -> list[Figure]:
    """All figures of one hub, each the median of RUNS."""
    BUILD.mkdir(exist_ok=True)  # in the sources' folder, so on a disk: a temporary directory may be memory
    with tempfile.TemporaryDirectory(prefix="bench-", dir=BUILD) as data:
        hub = HubProcess(data, durable)
        try:
            return list(_measure(hub, durable, seconds))
        finally:
            hub.stop()


def _measure(hub: HubProcess, durable: bool, seconds: float) -> list[Figure]:
    figures = []
    loads: list[tuple[str, bytes, int, int, int]] = [
        (
            f"publish, batches of {BATCH_EVENTS}, {IN_FLIGHT_BATCHES} in flight",
            batch(),
            BATCH_FORMAT,
            BATCH_EVENTS,
            IN_FLIGHT_BATCHES,
        ),
        (f"publish, single, {IN_FLIGHT_SINGLES} in flight", event(), 0, 1, IN_FLIGHT_SINGLES),
        ("publish, single, one in flight", event(), 0, 1, 1),
    ]
    for name, payload, message_format, events, in_flight in loads:

        def run(
            count: int, payload: bytes = payload, message_format: int = message_format, in_flight: int = in_flight
        ) -> float:
            client = LeanClient(hub.port)
            return publish(client, client.publisher(f"{HUB}/Partitions/0"), payload, message_format, count, in_flight)

        figures.append(_median(name, durable, hub, run, events, seconds))

    def receive(count: int) -> float:
        client = LeanClient(hub.port)
        return deliver(client, client.reader(f"{HUB}/ConsumerGroups/$Default/Partitions/0"), count)

    figures.append(_median("deliver to one reader", durable, hub, receive, 1, seconds, start=50_000))
    return figures


def _median(
    name: str,
    durable: bool,
    hub: HubProcess,
    run: Callable[[int], float],
    events: int,
    seconds: float,
    start: int = 200,
) -> Figure:
    """Warms up with few, finds how many fill the time, then takes the median of RUNS."""
    elapsed = run(start)
    count = max(start, int(start / elapsed * seconds / 2))
    elapsed = run(count)
    count = max(start, int(count / elapsed * seconds))
    wall, processor = [], []
    for _ in range(RUNS):
        before = hub.cpu_seconds()
        elapsed = run(count)
        wall.append(count * events / elapsed)
        processor.append(count * events / max(hub.cpu_seconds() - before, 0.01))
    return Figure(name, durable, statistics.median(wall), statistics.median(processor))


def table(figures: list[Figure]) -> Table:
    """The figures for a terminal."""
    result = Table(title=f"Hub, {EVENT_BYTES}-byte events, one connection, one partition; median of {RUNS}")
    for column in ("load", "durable ev/s", "not durable ev/s", "durable ev/s of hub CPU"):
        result.add_column(column, justify="left" if column == "load" else "right")
    for name in dict.fromkeys(figure.name for figure in figures):
        durable, volatile = (
            next((f for f in figures if f.name == name and f.durable == d), None) for d in (True, False)
        )
        result.add_row(
            name,
            f"{durable.per_second:,.0f}" if durable else "",
            f"{volatile.per_second:,.0f}" if volatile else "",
            f"{durable.per_cpu_second:,.0f}" if durable else "",
        )
    return result


def serve(data: str, durable: bool, partitions: int, groups: int) -> None:
    """The hub's process: prints its ports and serves until it is terminated."""

    async def run() -> None:
        names = tuple(map(str, range(groups)))
        hub = EventHubConfig(name=HUB, partition_count=partitions, consumer_groups=names)
        server = Server(
            NamespaceConfig(name="bench", event_hubs=(hub,)),
            Path(data),
            ServerSettings(amqp_port=0, amqps_port=0, durable=durable),
        )
        await server.start()
        tune_gc()
        print(server.amqp_port, server.amqps_port, flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one run")
    parser.add_argument("--serve", metavar="DIRECTORY", help=argparse.SUPPRESS)
    parser.add_argument("--not-durable", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--partitions", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--groups", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, not arguments.not_durable, arguments.partitions, arguments.groups)
        return
    figures = measure(durable=True, seconds=arguments.seconds) + measure(durable=False, seconds=arguments.seconds)
    Console().print(table(figures))


if __name__ == "__main__":
    main()
