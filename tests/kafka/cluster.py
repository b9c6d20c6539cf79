"""A cluster of Apache Kafka on loopback: three nodes, and a link that can be cut in front of each listener."""

from __future__ import annotations

import io
import os
import signal
import socket
import struct
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kio.schema.describe_quorum.v0 import request, response
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import DecodeError
from kio.static.primitive import i32

from tests.jars import free_ports, java, with_classes
from tests.kafka import ARCHIVE, broker_path
from tests.kafka.links import Link, Links
from tests.patience import eventually


class Cluster:
    """Nodes that are brokers and controllers at once.

    Attributes:
        clients: The addresses at which each named client reaches the brokers, over links of its own.
        to_broker: By client and node, the link between them. The client "brokers" is the other brokers.
        to_controller: By node, the link over which the others reach its controller.
    """

    def __init__(
        self,
        folder: Path,
        links: Links,
        *,
        nodes: int = 3,
        clients: Sequence[str] = ("a",),
        settings: Mapping[str, str] | None = None,
        skew_ms: Mapping[int, int] | None = None,
    ) -> None:
        """Prepare the folders of the nodes. `skew_ms` says by how much the clocks of some nodes are wrong."""
        self.nodes = range(nodes)
        self._folder = folder
        self._skew_ms = skew_ms or {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._stopped: set[int] = set()
        listeners = [*clients, "brokers"]
        ports = {name: free_ports(nodes) for name in (*listeners, "controller")}
        near = {name: free_ports(nodes) for name in (*listeners, "controller")}
        self.to_broker: dict[tuple[str, int], Link] = {}
        self.to_controller: dict[int, Link] = {}
        for node in self.nodes:
            for name in listeners:
                self.to_broker[name, node] = links.link(near[name][node], ports[name][node])
            self.to_controller[node] = links.link(near["controller"][node], ports["controller"][node])
        self.clients = {name: ",".join(f"127.0.0.1:{port}" for port in near[name]) for name in clients}
        voters = ",".join(f"{node + 1}@127.0.0.1:{near['controller'][node]}" for node in self.nodes)
        identity = _random_id()
        for node in self.nodes:
            place = folder / str(node)
            (place / "log").mkdir(parents=True)
            meta = f"version=1\ncluster.id={identity}\nnode.id={node + 1}\ndirectory.id={_random_id()}\n"
            (place / "log" / "meta.properties").write_text(meta, encoding="utf-8")
            mine = {name: ports[name][node] for name in ports}
            advertised = {name: near[name][node] for name in listeners}
            text = {**_settings(place, node, voters, mine, advertised, min(3, nodes)), **(settings or {})}
            (place / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in text.items()), encoding="utf-8")

    def start(self, *nodes: int) -> None:
        """Start some nodes, all by default, and wait until they serve."""
        for node in nodes or self.nodes:
            self.launch(node)
        for node in nodes or self.nodes:
            self.wait(node)

    def launch(self, node: int) -> None:
        """Start a node without waiting for it."""
        place = self._folder / str(node)
        options = ["-Xmx256m", f"-Dskew={self._skew_ms.get(node, 0)}", *with_classes(ARCHIVE)]
        command = java(*options, "-cp", broker_path(), "kafka.Kafka", str(place / "server.properties"))
        with (place / "output").open("wb") as output:
            self._processes[node] = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def wait(self, node: int) -> None:
        """Wait until a node that was launched serves."""
        output = self._folder / str(node) / "output"
        address = next(iter(self.clients.values())).split(",")[node]

        def serves() -> bool:
            text = output.read_text(encoding="utf-8", errors="replace")
            assert self._processes[node].poll() is None, text[-2000:]
            try:
                client = AdminClient({"bootstrap.servers": address, "log_level": 0})
                return node + 1 in client.list_topics(timeout=1).brokers
            except KafkaException:
                return False

        eventually(serves)

    def kill(self, node: int) -> None:
        """Kill a node without a chance to put anything in order."""
        process = self._processes.pop(node, None)
        if process is not None:
            process.kill()
            process.wait()

    def pause(self, node: int) -> None:
        """Stop the process of a node as it is."""
        os.kill(self._processes[node].pid, signal.SIGSTOP)
        self._stopped.add(node)

    def resume(self, node: int) -> None:
        """Let it go on."""
        os.kill(self._processes[node].pid, signal.SIGCONT)
        self._stopped.discard(node)

    def leader(self, topic: str, partition: int) -> int:
        """Return the node that leads a partition, or led it last as far as the brokers know."""
        found: list[int] = []

        def is_known() -> bool:
            for addresses in self.clients.values():
                admin = AdminClient({"bootstrap.servers": addresses, "log_level": 0, "socket.timeout.ms": 1000})
                with suppress(KafkaException):
                    leader = admin.list_topics(topic, timeout=1).topics[topic].partitions[partition].leader
                    if leader > 0:
                        found.append(leader - 1)
                        return True
            return False

        eventually(is_known)
        return found[-1]

    def active_controller(self) -> int:
        """Return the node whose controller is the active one: the leader of the metadata's log."""
        found: list[int] = []

        def is_known() -> bool:
            for addresses in self.clients.values():
                for address in addresses.split(","):
                    with suppress(OSError, DecodeError):
                        leader = _metadata_leader(int(address.rpartition(":")[2]))
                        if leader > 0:
                            found.append(leader - 1)
                            return True
            return False

        eventually(is_known)
        return found[-1]

    @property
    def pids(self) -> dict[int, int]:
        """The processes of the nodes that run."""
        return {node: process.pid for node, process in self._processes.items()}

    def is_running(self, node: int) -> bool:
        """Return whether a node runs and is not paused."""
        return node in self._processes and node not in self._stopped

    def stop(self) -> None:
        """Kill all nodes."""
        for node in self.nodes:
            self.kill(node)


@contextmanager
def cluster(
    *,
    nodes: int = 3,
    clients: Sequence[str] = ("a",),
    settings: Mapping[str, str] | None = None,
    skew_ms: Mapping[int, int] | None = None,
) -> Iterator[Cluster]:
    """A cluster that has started."""
    with tempfile.TemporaryDirectory(prefix="tg-cluster-") as name:
        links = Links()
        started = Cluster(Path(name), links, nodes=nodes, clients=clients, settings=settings, skew_ms=skew_ms)
        try:
            started.start()
            yield started
        finally:
            started.stop()
            links.close()


def _metadata_leader(port: int) -> int:
    """Ask the broker at a port which node leads the log of the cluster's metadata; 0 if it does not know."""
    partition = request.PartitionData(partition_index=i32(0))
    topic = request.TopicData(topic_name=TopicName("__cluster_metadata"), partitions=(partition,))
    frame = io.BytesIO()
    frame.write(struct.pack(">hhihb", 55, 0, 1, -1, 0))  # DescribeQuorum 0, the first request, of a client without name
    entity_writer(request.DescribeQuorumRequest)(frame, request.DescribeQuorumRequest(topics=(topic,)))
    with socket.create_connection(("127.0.0.1", port), 1) as connection:
        connection.settimeout(1)
        connection.sendall(struct.pack(">i", frame.tell()) + frame.getvalue())
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            answer += data
    read = entity_reader(response.DescribeQuorumResponse)
    found, _ = read(answer, 9)
    return next((part.leader_id for one in found.topics for part in one.partitions if not part.error_code), 0)


def _random_id() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def _settings(
    place: Path, node: int, voters: str, ports: Mapping[str, int], advertised: Mapping[str, int], replication: int
) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(node + 1),
        "controller.quorum.voters": voters,
        "listeners": ",".join(f"{name.upper()}://127.0.0.1:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name.upper()}://127.0.0.1:{port}" for name, port in advertised.items()),
        "listener.security.protocol.map": ",".join(f"{name.upper()}:PLAINTEXT" for name in ports),
        "inter.broker.listener.name": "BROKERS",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(place / "log"),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": str(replication),
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "1",
        "num.io.threads": "2",
        "log.cleaner.threads": "1",
        "num.replica.fetchers": "1",
        "background.threads": "2",
        "remote.log.manager.thread.pool.size": "1",
        # A dead node must be noticed soon.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        "controller.quorum.election.timeout.ms": "500",
        "controller.quorum.fetch.timeout.ms": "1500",
        "controller.quorum.election.backoff.max.ms": "500",
        "replica.lag.time.max.ms": "3000",
    }
