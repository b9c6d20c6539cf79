"""Apache ActiveMQ Artemis on this machine, an AMQP 1.0 broker: one node on loopback, from the jars of Maven Central."""

import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.jars import class_path, free_ports, java
from tests.patience import eventually
from tidegate.amqp import ACCEPTED, Message, Transfer, parse_message
from tidegate.client import ConnectionString, HubClient

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

    def take_all(self, queue: str) -> Sequence[Message]:
        """Return the messages of a queue, which then has none."""
        link = self._session.attach_receiver(f"tests-{next(self._numbers)}", queue)
        self._inbox[link] = []
        self._attach(link)
        found: list[Transfer] = []
        while True:
            link.flow(1_000, drain=True)
            self._wait(lambda: link.credit == 0, "the end of the queue")
            some, self._inbox[link] = self._inbox[link], []
            for transfer in some:
                link.settle(transfer.delivery_id, transfer.delivery_id, ACCEPTED)
            self._flush()
            found += some
            if not some:
                break
        link.detach()
        self._flush()
        return [parse_message(transfer.payload) for transfer in found]


def messages_of(url: str, queue: str) -> Sequence[Message]:
    """Take the messages off a queue."""
    receiver = Receiver(ConnectionString.of_url(url, queue))
    try:
        return receiver.take_all(queue)
    finally:
        receiver.close()
