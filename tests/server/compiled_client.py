"""What is asked of Event Hubs clients in compiled languages: one program for each, driven by lines of JSON.

A program starts once for all tests of its module, so a test costs what its operations cost. Both programs
(`java/Driver.java`, `go/main.go`) know the same operations; `Scenarios` are the tests that both pass.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from tests.patience import PATIENCE_S, eventually
from tests.server.conftest import KEY, RULE, RawClient
from tests.server.process import Hub
from tidegate.amqp import (
    Byte,
    Char,
    Float,
    Int,
    Message,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    encode_message,
)
from tidegate.hub.access import sign
from tidegate.server import Server

Answer = dict[str, Any]


class ClientError(Exception):
    """What a client threw; `said` is how its program describes it."""

    def __init__(self, said: Answer) -> None:
        super().__init__(json.dumps(said))
        self.said = said


class CompiledClient:
    """A running program."""

    def __init__(self, command: list[str], log: Path, **environment: Any) -> None:
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, **environment
            )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def __call__(self, operation: str, **arguments: Any) -> Answer:
        """Carry out an operation. Raises ClientError."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": operation, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._answers.get(timeout=2 * PATIENCE_S)
        assert line, f"the program ended: {self._log.read_text()[-2000:]}"
        answer: Answer = json.loads(line)
        if set(answer) == {"error"}:
            raise ClientError(answer["error"])
        return answer

    def refusal(self, operation: str, **arguments: Any) -> Answer:
        """What the client throws at an operation, or reports to a reader."""
        try:
            answer = self(operation, **arguments)
        except ClientError as error:
            return error.said
        assert "error" in answer, answer
        return dict(answer["error"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)


def bodies(answer: Answer) -> list[str]:
    assert "error" not in answer, answer
    return [event["body"] for event in answer["events"]]


def short_lived(connection: str, resource: str, ends_at_s: int) -> str:
    """A connection string that holds a signature in place of a key."""
    token = sign(f"sb://localhost/{resource}", RULE, KEY, ends_at_s)
    return f"{connection.split(';')[0]};SharedAccessSignature={token};UseDevelopmentEmulator=true"


EVERY_TYPE: dict[str, Any] = {
    "null": None,
    "bool": True,
    "ubyte": Ubyte(200),
    "ushort": Ushort(60_000),
    "uint": Uint(4_000_000_000),
    "ulong": Ulong(18_000_000_000_000_000_000),
    "byte": Byte(-7),
    "short": Short(-700),
    "int": Int(-70_000),
    "long": -7_000_000_000,
    "float": Float(1.5),
    "double": -2.25,
    "char": Char("é"),
    "timestamp": Timestamp(1_700_000_000_123),
    "uuid": uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"),
    "binary": b"\x00\xff",
    "string": "é",
    "symbol": Symbol("symbol"),
}


class Scenarios(ABC):
    """A subclass says what its language makes of types and refusals; its module has the fixture `client`."""

    sent: ClassVar[dict[str, Any]]
    """The properties that `publish_types` sends, as AMQP values."""
    received: ClassVar[dict[str, list[str]]]
    """What the language makes of the properties in EVERY_TYPE: class and text. One that it cannot read is missing."""

    @abstractmethod
    def is_refused_key(self, said: Answer) -> bool:
        """Whether the key or token was refused."""

    @abstractmethod
    def is_missing(self, said: Answer) -> bool:
        """Whether it is said that a hub or consumer group does not exist."""

    @abstractmethod
    def is_out_of_range(self, said: Answer) -> bool:
        """Whether it is said that the hub has no such partition."""

    @abstractmethod
    def is_stolen(self, said: Answer) -> bool:
        """Whether a reader with another owner level holds the partition."""

    @abstractmethod
    def is_too_large(self, said: Answer) -> bool:
        """Whether an event was refused for its size."""

    def read(self, client: CompiledClient, count: int, within_s: float = PATIENCE_S, **arguments: Any) -> Answer:
        """Open a reader, read, and close it."""
        name = uuid.uuid4().hex
        try:
            return client("read", name=name, count=count, within_s=within_s, **{"partition": "0", **arguments})
        finally:
            client("stop_reading", name=name)

    def test_properties_of_a_hub_and_its_partitions(self, client: CompiledClient, connection: str, hub: str) -> None:
        where = {"connection": connection, "hub": hub}
        found = client("properties", **where)
        assert (found["name"], found["partitions"]) == (hub, ["0", "1"])
        assert abs(found["created_ms"] / 1000 - time.time()) < 600
        assert client("partition", partition="0", **where)["empty"] is True
        client("publish", partition="0", bodies=["a", "b", "c"], **where)
        full = client("partition", partition="0", **where)
        assert (full["first"], full["last"], full["empty"]) == (0, 2, False)
        assert int(full["offset"]) >= 0
        assert abs(full["last_ms"] / 1000 - time.time()) < 600

    def test_properties_of_every_type_arrive_as_they_were_sent(
        self, client: CompiledClient, server: Server, sign_in: Callable[..., RawClient], connection: str, hub: str
    ) -> None:
        client("publish_types", connection=connection, hub=hub, partition="0")
        raw = sign_in(server, hub)
        (message,) = raw.receive(raw.reader(f"{hub}/ConsumerGroups/$Default/Partitions/0", credit=1), 1)
        seen = dict(message.application_properties or {})
        assert {name: (type(value), value) for name, value in seen.items()} == {
            name: (type(value), value) for name, value in self.sent.items()
        }
        assert message.properties is not None
        assert (message.properties.message_id, message.properties.correlation_id) == ("m-1", "c-1")
        assert b"".join(message.body) == b"\x00\xffx"

    def test_properties_of_every_type_of_amqp_are_read(
        self, client: CompiledClient, server: Server, sign_in: Callable[..., RawClient], connection: str, hub: str
    ) -> None:
        raw = sign_in(server, hub)
        link = raw.publisher(f"{hub}/Partitions/0")
        properties = {name: EVERY_TYPE[name] for name in self.received}
        message = Message(application_properties=properties, body_kind="data", body=[b"x"])
        link.send_deliveries([encode_message(message)], settled=True)
        raw.socket.sendall(raw.amqp.data_to_send())
        (event,) = self.read(client, 1, connection=connection, hub=hub)["events"]
        assert event["properties"] == self.received, event["properties"]

    def test_a_batch_comes_back_in_order_with_its_key(self, client: CompiledClient, connection: str, hub: str) -> None:
        where = {"connection": connection, "hub": hub}
        client("publish", key="device-1", bodies=["a", "b"], **where)
        events = self.read(client, 2, **where)["events"]  # 26788 is even
        assert [(event["body"], event["key"], event["sequence_number"]) for event in events] == [
            ("a", "device-1", 0),
            ("b", "device-1", 1),
        ]
        assert int(events[0]["offset"]) < int(events[1]["offset"])
        assert events[0]["enqueued_ms"] <= events[1]["enqueued_ms"]

    def test_more_events_than_a_client_asks_for_at_first(
        self, client: CompiledClient, connection: str, hub: str
    ) -> None:
        """Go's client never settles an event, so it asked for no more after 300 that were sent unsettled."""
        where = {"connection": connection, "hub": hub}
        sent = [str(number) for number in range(2_000)]
        client("publish", partition="0", bodies=sent, **where)
        assert bodies(self.read(client, len(sent), **where)) == sent

    def test_positions(self, client: CompiledClient, connection: str, hub: str) -> None:
        where = {"connection": connection, "hub": hub}
        client("publish", partition="0", bodies=["0", "1", "2"], **where)
        events = self.read(client, 3, **where)["events"]
        eventually(lambda: time.time() * 1000 > events[-1]["enqueued_ms"] + 1)
        client("publish", partition="0", bodies=["3", "4"], **where)
        latest = {"name": "latest", "partition": "0", "position": "latest", **where}
        client("read", count=1, within_s=0.0, **latest)

        def after(count: int, **position: Any) -> list[str]:
            return bodies(self.read(client, count, **position, **where))

        assert after(5, position="earliest") == ["0", "1", "2", "3", "4"]
        assert after(3, position="sequence", value=1) == ["2", "3", "4"]
        assert after(4, position="sequence", value=1, inclusive=True) == ["1", "2", "3", "4"]
        assert after(3, position="offset", value=events[1]["offset"]) == ["2", "3", "4"]
        assert after(2, position="time", value=events[-1]["enqueued_ms"]) == ["3", "4"]
        # The link at the end opens when it wants to, and reads what came after that.
        seen: list[str] = []
        while not seen:
            client("publish", partition="0", bodies=["later"], **where)
            seen = bodies(client("read", count=1, within_s=0.5, **latest))
        client("stop_reading", name="latest")
        assert seen == ["later"]

    def test_owner_levels(self, client: CompiledClient, connection: str, hub: str) -> None:
        where = {"connection": connection, "hub": hub, "partition": "0", "count": 1, "within_s": PATIENCE_S}
        client("publish", partition="0", bodies=["x"], connection=connection, hub=hub)
        assert bodies(client("read", name="first", level=1, **where)) == ["x"]
        assert self.is_stolen(client.refusal("read", name="lower", level=0, **where))
        assert self.is_stolen(client.refusal("read", name="without", **where))
        assert bodies(client("read", name="higher", level=2, **where)) == ["x"]
        assert self.is_stolen(client.refusal("read", name="first", **where))
        for name in ("first", "lower", "without", "higher"):
            client("stop_reading", name=name)

    def test_large_events_and_full_batches(self, client: CompiledClient, connection: str, hub: str) -> None:
        where = {"connection": connection, "hub": hub}
        full = client("publish_large", partition="0", size=100_000, **where)
        assert full["events"] == 10
        assert 1_000_000 < full["bytes"] <= 1 << 20
        assert self.is_too_large(full["refusal"])
        one = client("publish_large", partition="0", size=1_000_000, **where)
        assert one["events"] == 1
        sizes = [event["size"] for event in self.read(client, 11, **where)["events"]]
        assert sizes == [100_000] * 10 + [1_000_000]

    def test_a_wrong_key_hub_group_and_partition_are_told_apart(
        self, client: CompiledClient, connection: str, hub: str
    ) -> None:
        wrong_key = connection.replace(KEY, "wrong")
        refused = [client.refusal("publish", connection=wrong_key, hub=name, bodies=["x"]) for name in (hub, "nowhere")]
        refused.append(client.refusal("properties", connection=wrong_key, hub=hub))
        assert all(self.is_refused_key(said) for said in refused), refused
        missing = [
            client.refusal("publish", connection=connection, hub="nowhere", bodies=["x"]),
            client.refusal("properties", connection=connection, hub="nowhere"),
        ]
        reading = {"connection": connection, "partition": "0", "count": 1, "within_s": PATIENCE_S}
        missing.append(client.refusal("read", name="no hub", hub="nowhere", **reading))
        missing.append(client.refusal("read", name="no group", hub=hub, group="nobody", **reading))
        assert all(self.is_missing(said) for said in missing), missing
        assert "nobody" in missing[-1]["text"]
        beyond = [
            client.refusal("publish", connection=connection, hub=hub, partition="99", bodies=["x"]),
            client.refusal("read", name="no partition", hub=hub, **{**reading, "partition": "99"}),
        ]
        assert all(self.is_out_of_range(said) for said in beyond), beyond
        for name in ("no hub", "no group", "no partition"):
            client("stop_reading", name=name)

    def test_two_processors_share_and_one_takes_over(self, client: CompiledClient, connection: str, hub: str) -> None:
        where = {"connection": connection, "hub": hub}
        client("process", name="one", store=hub, **where)
        eventually(lambda: client("processed", name="one")["partitions"] == ["0", "1"])
        client("process", name="two", store=hub, **where)
        eventually(lambda: [len(client("processed", name=name)["partitions"]) for name in ("one", "two")] == [1, 1])
        for partition in ("0", "1"):
            client("publish", partition=partition, bodies=[f"shared {partition}"], **where)
        eventually(lambda: all(client("processed", name=name)["bodies"] for name in ("one", "two")))
        client("stop_processing", name="one")
        eventually(lambda: client("processed", name="two")["partitions"] == ["0", "1"])
        for partition in ("0", "1"):
            client("publish", partition=partition, bodies=[f"alone {partition}"], **where)
        eventually(lambda: {"alone 0", "alone 1"} <= set(client("processed", name="two")["bodies"]))
        client("stop_processing", name="two")

    def test_a_hub_that_restarts_while_clients_are_connected(self, client: CompiledClient, tmp_path: Path) -> None:
        hub = Hub(tmp_path / "data")
        hub.start()
        where = {"connection": hub.connection, "hub": "eh1", "retries": 100}
        client("process", name="restarted", store=str(tmp_path), **where)
        publisher = {"producer": str(tmp_path), "partition": "0", **where}
        client("publish", bodies=["before"], **publisher)
        eventually(lambda: client("processed", name="restarted")["bodies"] == ["before"])
        for restart, end in enumerate((hub.kill, hub.stop)):
            end()
            hub.start()
            client("publish", bodies=[f"after {restart}"], **publisher)
            eventually(lambda restart=restart: f"after {restart}" in client("processed", name="restarted")["bodies"])
        client("stop_processing", name="restarted")
        hub.stop()

    def test_a_token_that_expires_while_links_are_open(self, client: CompiledClient, connection: str, hub: str) -> None:
        ends_at_s = int(time.time()) + 4
        where = {"connection": short_lived(connection, hub, ends_at_s), "hub": hub, "partition": "0"}
        reader = {"name": "expiring", "count": 1, "within_s": PATIENCE_S, **where}
        client("publish", producer=f"expiring {hub}", bodies=["in time"], **where)
        assert bodies(client("read", **reader)) == ["in time"]
        client.refusal("read", **reader)  # Java's client ends the stream and says no more
        eventually(lambda: time.time() > ends_at_s)
        assert self.is_refused_key(client.refusal("read", **{**reader, "name": "expired"}))
        assert self.is_refused_key(client.refusal("publish", producer=f"expiring {hub}", bodies=["late"], **where))
        client("stop_reading", name="expiring")
        client("stop_reading", name="expired")
