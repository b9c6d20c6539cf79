"""Apache ActiveMQ Artemis on this machine, an AMQP 1.0 broker: one node on loopback, from the jars of Maven Central."""

import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.jars import class_path, free_ports, java
from tests.patience import eventually
from tidegate.amqp import ACCEPTED, Message, encode_message, parse_message
from tidegate.client import ConnectionString, HubClient
from tidegate.client.message_sender import MessageSender

FOLDER = Path(__file__).parent
TOPIC = "news"
SUBSCRIPTIONS = ("one", "two")


@contextmanager
def artemis() -> Iterator[str]:
    """The URL of a broker that creates queues when they are used, and has a topic with two subscriptions."""
    with tempfile.TemporaryDirectory(prefix="tg-artemis-") as name:
        folder = Path(name)
        (port,) = free_ports(1)
        (folder / "etc").mkdir()
        (folder / "etc" / "broker.xml").write_text(_configuration(folder, port), encoding="utf-8")
        main = "org.apache.activemq.artemis.core.server.embedded.Main"
        with (folder / "output").open("wb") as output:
            command = java("-cp", class_path(FOLDER), main, str(folder))
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
        try:
            eventually(lambda: _listens(process, port, folder / "output"))
            # A password with a character that a URL has to escape.
            yield f"amqp://user:pass%2Fword@127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _configuration(folder: Path, port: int) -> str:
    queues = "".join(f'<queue name="{TOPIC}-{one}"><durable>true</durable></queue>' for one in SUBSCRIPTIONS)
    return f"""<?xml version="1.0"?>
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <persistence-enabled>false</persistence-enabled>
  <security-enabled>false</security-enabled>
  <paging-directory>{folder}/paging</paging-directory>
  <id-cache-size>200000</id-cache-size>
  <acceptors><acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP</acceptor></acceptors>
  <address-settings><address-setting match="#">
    <default-address-routing-type>ANYCAST</default-address-routing-type>
    <default-queue-routing-type>ANYCAST</default-queue-routing-type>
  </address-setting></address-settings>
  <addresses><address name="{TOPIC}"><multicast>{queues}</multicast></address></addresses>
</core></configuration>
"""


def _listens(process: "subprocess.Popen[bytes]", port: int, output: Path) -> bool:
    assert process.poll() is None, output.read_text(encoding="utf-8")[-2000:]
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


class Receiver(HubClient):
    """Takes messages off a queue."""

    def take_until(self, queue: str, last: bytes) -> list[Message]:
        """Return the messages before the one with the body `last`, and take that one off too."""
        link = self._session.attach_receiver(f"tests-{next(self._numbers)}", queue)
        self._inbox[link] = []
        self._attach(link)
        found: list[Message] = []
        while not found or found[-1].body != [last]:
            link.flow(1_000)
            self._wait(lambda: len(self._inbox[link]) > 0, "a message")
            some, self._inbox[link] = self._inbox[link], []
            for transfer in some:
                link.settle(transfer.delivery_id, transfer.delivery_id, ACCEPTED)
                found.append(parse_message(transfer.payload))
            self._flush()
        link.detach()
        self._flush()
        return found[:-1]


def messages_of(url: str, queue: str) -> Sequence[Message]:
    """Take the messages off a queue.

    A message of our own marks the end. Artemis may answer a drain with nothing while messages still wait.
    """
    connection = ConnectionString.of_url(url, queue)
    last = uuid.uuid4().bytes
    sender = MessageSender(connection)
    try:
        assert not sender.send([encode_message(Message(body_kind="data", body=[last]))], set())
    finally:
        sender.close()
    receiver = Receiver(connection)
    try:
        return receiver.take_until(queue, last)
    finally:
        receiver.close()
