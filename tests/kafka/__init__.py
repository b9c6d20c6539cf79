"""Apache Kafka on this machine: one node on loopback, from the jars of Maven Central."""

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.jars import class_path, free_ports, java, with_classes
from tests.kafka.certificates import write_certificates
from tests.patience import PATIENCE_S, eventually

FOLDER = Path(__file__).parent
ARCHIVE = Path(sys.prefix) / "kafka-classes.jsa"
"""A broker's classes as Java keeps them in memory; `python -m tests.kafka` writes them. With them it starts in half."""

USER, PASSWORD = "$ConnectionString", "Endpoint=sb://x/;SharedAccessKey=p w"


@contextmanager
def kafka() -> Iterator[str]:
    """The address of a broker without topics; topics are made when they are first used."""
    with kafka_broker() as broker:
        yield broker.address


@contextmanager
def kafka_broker() -> Iterator["Broker"]:
    """Such a broker, for tests that kill it."""
    with tempfile.TemporaryDirectory(prefix="tg-kafka-") as name:
        broker = Broker(Path(name))
        broker.start()
        try:
            yield broker
        finally:
            broker.kill()


class Broker:
    """A broker that can be killed and started again over what it has on disk.

    Attributes:
        folder: where its files are, `ca.pem`, `client.key` and `client.pem` among them.
        address: where anyone may connect.
        signed_address: where it asks for a user's name and password.
        sealed_address: where it asks for a client's certificate and a password by SCRAM, over TLS.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port, signed, sealed, controller = free_ports(4)
        self.address, self.signed_address = f"127.0.0.1:{port}", f"127.0.0.1:{signed}"
        self.sealed_address = f"127.0.0.1:{sealed}"
        write_certificates(folder)
        settings = _settings(folder, port, signed, sealed, controller)
        (folder / "server.properties").write_text(settings, encoding="utf-8")
        _format(folder / "log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it, with further options of Java, and wait until it answers."""
        options = options or tuple(with_classes(ARCHIVE))
        command = java(*options, "-cp", broker_path(), "kafka.Kafka", str(self.folder / "server.properties"))
        with (self.folder / "output").open("wb") as output:
            process = self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        eventually(lambda: _answers(process, self.address, self.folder / "output"))

    def stop(self) -> None:
        """Let it end by itself."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Kill it without a chance to put anything in order."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def broker_path() -> str:
    """Return the class path of a broker: Kafka's jars, behind one with a clock that the property `skew` makes wrong.

    All brokers have that clock, because the archive of classes fits one class path.
    """
    clock = FOLDER / "jars" / "clock" / "clock.jar"
    if not clock.exists():
        source = str(FOLDER / "SystemTime.java")
        compiler = java()[0].removesuffix("java") + "javac"
        with tempfile.TemporaryDirectory(prefix="tg-clock-") as name:
            command = [compiler, "-cp", class_path(FOLDER), "-d", name, source]
            subprocess.run(command, check=True, capture_output=True)
            made = shutil.make_archive(f"{name}/clock", "zip", name, "org")
            clock.parent.mkdir(exist_ok=True)
            shutil.copy(made, f"{clock}.{os.getpid()}")
            Path(f"{clock}.{os.getpid()}").replace(clock)
    return f"{clock}:{class_path(FOLDER)}"


def _settings(folder: Path, port: int, signed: int, sealed: int, controller: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": ",".join(
            f"{name}://127.0.0.1:{one}"
            for name, one in (("PLAINTEXT", port), ("SIGNED", signed), ("SEALED", sealed), ("CONTROLLER", controller))
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SIGNED:SASL_PLAINTEXT,SEALED:SASL_SSL"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.signed.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.signed.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required "user_{USER}"="{PASSWORD}";'
        ),
        "listener.name.sealed.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sealed.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "listener.name.sealed.ssl.keystore.type": "PEM",
        "listener.name.sealed.ssl.keystore.location": str(folder / "broker.pem"),
        "listener.name.sealed.ssl.truststore.type": "PEM",
        "listener.name.sealed.ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.sealed.ssl.client.auth": "required",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "log"),
        "num.partitions": "3",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A transaction whose producer has died must not hold back readers for long.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _format(log: Path) -> None:
    """Write what `kafka-storage format` writes, without starting Java for it."""
    log.mkdir()
    cluster, directory = (urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode() for _ in range(2))
    text = f"version=1\ncluster.id={cluster}\nnode.id=1\ndirectory.id={directory}\n"
    (log / "meta.properties").write_text(text, encoding="utf-8")


def _answers(process: "subprocess.Popen[bytes]", address: str, output: Path) -> bool:
    assert process.poll() is None, output.read_text(encoding="utf-8")[-2000:]
    try:
        # Its own log of connections that are refused while the broker starts is of no interest.
        client = AdminClient({"bootstrap.servers": address, "log_level": 0})
        return bool(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return False


def messages_of(address: str, topic: str) -> list[list[Message]]:
    """What a consumer of committed messages finds in each partition of a topic, once no transaction is open.

    A commit has succeeded when the coordinator has noted it. The partitions show its messages only a moment later.
    """
    settings = {"bootstrap.servers": address, "group.id": "tests", "isolation.level": "read_committed"}
    # A broker keeps a fetch at the end of a partition for half a second by default.
    settings |= {"fetch.wait.max.ms": "10"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    admin = AdminClient({"bootstrap.servers": address})
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
        found: list[list[Message]] = []
        for partition in partitions:
            place = TopicPartition(topic, partition, 0)
            eventually(lambda place=place: not _has_open_transaction(admin, place))
            consumer.assign([place])
            found.append(list(_until_the_end(consumer)))
        return found
    finally:
        consumer.close()


def _has_open_transaction(admin: AdminClient, place: TopicPartition) -> bool:
    """Whether a partition has messages behind which readers of committed ones do not get yet."""
    ends = [
        admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)[place].result(PATIENCE_S).offset
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    ]
    return len(set(ends)) > 1


def _until_the_end(consumer: Consumer) -> Iterator[Message]:
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "the broker gave no message and no end"
        error = message.error()
        if error is None:
            yield message
            continue
        assert error.code() == KafkaError._PARTITION_EOF, error
        return
