"""Whether a hub that works for long keeps its memory and descriptors.

    python -m benchmarks.hub_soak --minutes 20 --idle 10000

Publishers and readers that come and go, readers that stay, capture, retention, and many connections that only stand
there. It ends with 1 if the memory or the descriptors of the last third of the time are above those of the middle one
by more than a twentieth, or if those who stay have not read all but the last second's worth of what was published.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.hub_throughput import BUILD, HUB, Frames, LeanClient, batch, deliver, publish
from tidegate.amqp import BATCH_FORMAT, Connection, ConnectionSettings, Opened

PARTITIONS = 2
RETENTION_BYTES = 64 << 20
SAMPLE_S = 2.0
HEARTBEAT_S = 60
HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"


class Hub:
    """`tidegate up` with capture and a small retention."""

    def __init__(self, folder: Path) -> None:
        entity = {"Name": HUB, "PartitionCount": PARTITIONS, "RetentionSizeInBytes": RETENTION_BYTES}
        namespace = {"Name": "soak", "Entities": [entity]}
        config = folder / "Config.json"
        config.write_text(json.dumps({"UserConfig": {"NamespaceConfig": [namespace]}}), encoding="utf-8")
        command = [sys.executable, "-m", "tidegate", "up", "--config", str(config), "--data", str(folder / "data")]
        command += ["--amqp-port", "0", "--capture", str(folder / "capture"), "--capture-size", "10485760"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("AMQP: "):
                self.port = int(line.rpartition(":")[2])
            if "Successfully Up" in line:
                return
        raise SystemExit("the hub did not come up")

    def resident_bytes(self) -> int:
        """Of the hub's process."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) << 10

    def descriptors(self) -> int:
        """Of the hub's process."""
        return sum(1 for _ in Path(f"/proc/{self._process.pid}/fd").iterdir())

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


@dataclass(frozen=True)
class Sample:
    """The hub at one moment."""

    seconds: float
    resident_bytes: int
    descriptors: int
    published: int
    read: int


class Load:
    """What the clients do, each in a thread of its own, until `stopping` is set."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.stopping = threading.Event()
        self.published = [0] * PARTITIONS
        self.read = [0] * PARTITIONS
        self._payload = batch()
        self._threads = [threading.Thread(target=self._often, args=(self._publish, p)) for p in range(PARTITIONS)]
        self._threads += [threading.Thread(target=self._often, args=(self._read_again, p)) for p in range(PARTITIONS)]
        self._staying = [LeanClient(port) for _ in range(PARTITIONS)]
        self._threads += [threading.Thread(target=self._follow, args=(n,)) for n in range(PARTITIONS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all of it."""
        self.stopping.set()
        for client in self._staying:
            client.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _often(self, action: Callable[[int], None], partition: int) -> None:
        while not self.stopping.wait(0.25):
            action(partition)

    def _publish(self, partition: int) -> None:
        client = LeanClient(self.port)
        publish(client, client.publisher(f"{HUB}/Partitions/{partition}"), self._payload, BATCH_FORMAT, 20, 10)
        client.socket.close()
        self.published[partition] += 2000

    def _read_again(self, partition: int) -> None:
        client = LeanClient(self.port)
        deliver(client, client.reader(f"{HUB}/ConsumerGroups/$Default/Partitions/{partition}"), 1000)
        client.socket.close()

    def _follow(self, partition: int) -> None:
        client = self._staying[partition]
        client.reader(f"{HUB}/ConsumerGroups/$Default/Partitions/{partition}").flow(1 << 30)
        client.flush()
        frames = Frames(client.socket)
        spoke = time.monotonic()
        while not self.stopping.is_set():
            try:
                arrived = frames.receive()
            except ConnectionError as error:
                if not self.stopping.is_set():
                    print(f"a reader that stayed was cut: {error}")
                return
            self.read[partition] += sum(data[start + 10] == 0x14 for data, start, _ in arrived)
            if time.monotonic() - spoke > HEARTBEAT_S:
                client.socket.sendall(HEARTBEAT)
                spoke = time.monotonic()


def idle_connections(port: int, count: int) -> list[socket.socket]:
    """Connections that were opened and then say nothing."""
    found = []
    for _ in range(count):
        peer = socket.create_connection(("127.0.0.1", port))
        amqp = Connection("client", "idle", ConnectionSettings(sasl_mechanisms=("ANONYMOUS",)))
        amqp.open()
        opened = False
        while not opened:
            peer.sendall(amqp.data_to_send())
            opened = any(isinstance(event, Opened) for event in amqp.receive_data(peer.recv(1 << 16)))
        found.append(peer)
    return found


def keep_alive(idle: list[socket.socket], stopping: threading.Event) -> None:
    """An empty frame a minute on each, as a client that is there sends."""
    while not stopping.wait(HEARTBEAT_S):
        for peer in idle:
            peer.sendall(HEARTBEAT)


def soak(minutes: float, idle_count: int) -> list[Sample]:
    """Run it; a sample every SAMPLE_S."""
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-", dir=BUILD) as folder:
        hub = Hub(Path(folder))
        try:
            before = hub.resident_bytes()
            started = time.monotonic()
            idle = idle_connections(hub.port, idle_count)
            time.sleep(1)
            each = (hub.resident_bytes() - before) / max(1, idle_count)
            print(f"{idle_count} idle connections in {time.monotonic() - started:.1f} s, {each / 1024:.1f} KiB each")
            load = Load(hub.port)
            threading.Thread(target=keep_alive, args=(idle, load.stopping), daemon=True).start()
            samples = []
            started = time.monotonic()
            while (seconds := time.monotonic() - started) < minutes * 60:
                samples.append(
                    Sample(seconds, hub.resident_bytes(), hub.descriptors(), sum(load.published), sum(load.read))
                )
                time.sleep(SAMPLE_S)
            load.stop()
            captured = sum(1 for _ in (Path(folder) / "capture").rglob("*.avro"))
            kept = sum(file.stat().st_size for file in (Path(folder) / "data").rglob("*.log"))
            print(f"{captured} captured files; {kept >> 20} MiB of events kept")
            return samples
        finally:
            hub.stop()


def verdict(samples: list[Sample]) -> int:
    """Print the thirds; 1 if the last is above the middle one."""
    third = len(samples) // 3
    parts = [samples[:third], samples[third : 2 * third], samples[2 * third :]]
    print(f"{'':8} {'MiB':>8} {'descriptors':>12} {'published':>12} {'read':>12}")
    figures = []
    for name, part in zip(("first", "middle", "last"), parts, strict=True):
        resident = statistics.median(sample.resident_bytes for sample in part)
        descriptors = statistics.median(sample.descriptors for sample in part)
        figures.append((resident, descriptors))
        last = part[-1]
        print(f"{name:8} {resident / (1 << 20):8.1f} {descriptors:12.0f} {last.published:12,} {last.read:12,}")
    flat = all(after <= before * 1.05 + 8 for before, after in zip(figures[1], figures[2], strict=True))
    print("flat" if flat else "it grows")
    last, before = samples[-1], samples[-2]
    behind = before.published - last.read
    print("readers kept up" if behind <= 0 else f"readers are {behind:,} events behind")
    return 0 if flat and behind <= 0 else 1


def main() -> int:
    """Soak and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--idle", type=int, default=1000, help="connections that say nothing")
    arguments = parser.parse_args()
    return verdict(soak(arguments.minutes, arguments.idle))


if __name__ == "__main__":
    sys.exit(main())
