"""Several processes accept clients on one port, and clients cannot tell."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.patience import PATIENCE_S, PROMPTLY_S, eventually
from tests.server.conftest import RawClient, Refused
from tests.server.kafka.client import batch_of
from tests.workers.support import MANY, HubOfWorkers
from tidegate.amqp import ACCEPTED, Detached, Disposition, Int, Link, Message, Short, Symbol, encode_message
from tidegate.cli import main
from tidegate.kafka.messages import Api

# A hub starts, in a process of its own or in several.
pytestmark = pytest.mark.slow

GROUP = "eh1/ConsumerGroups/$Default/Partitions"


@pytest.fixture
def clients(hub: HubOfWorkers) -> Iterator[list[RawClient]]:
    made = [hub.client() for _ in range(MANY)]
    yield made
    for client in made:
        client.close()


def last_number(client: RawClient, partition: str) -> int:
    arguments = {"operation": "READ", "type": "com.microsoft:partition", "name": "eh1", "partition": partition}
    return int(client.request("$management", arguments)["body"]["last_enqueued_sequence_number"])


def test_what_one_worker_acknowledged_is_there_for_all(hub: HubOfWorkers, clients: list[RawClient]) -> None:
    assert len(hub.worker_pids) == 2
    latest = [
        client.reader(f"{GROUP}/0", credit=100, selector="amqp.annotation.x-opt-offset > '@latest'")
        for client in clients[:5]
    ]
    first = last_number(clients[0], "0") + 1
    for number, client in enumerate(clients):
        (answer,) = client.publish(client.publisher("eh1/Partitions/0"), b"event %d" % number)
        assert answer.state == ACCEPTED
        assert {last_number(other, "0") for other in clients} == {first + number}
    for client, link in zip(clients, latest, strict=False):
        bodies = [b"".join(message.body) for message in client.receive(link, MANY)]
        assert bodies == [b"event %d" % number for number in range(MANY)]
        link.detach()
    eventually(lambda: hub.metric("tidegate_connections_open") >= MANY)


def test_an_owner_level_counts_in_every_worker(clients: list[RawClient]) -> None:
    epoch = Symbol("com.microsoft:epoch")
    links = []
    for level, client in enumerate(clients):
        links.append(client.reader(f"{GROUP}/1", properties={epoch: level}))
        if level:
            stolen = clients[level - 1].until(
                lambda e, link=links[level - 1]: isinstance(e, Detached) and e.link is link
            )
            assert stolen.error.condition == "amqp:link:stolen"
    with pytest.raises(Refused, match="stolen"):
        clients[0].reader(f"{GROUP}/1", properties={epoch: 0})
    links[-1].detach()


def test_a_group_has_five_readers_over_all_workers(hub: HubOfWorkers, clients: list[RawClient]) -> None:
    for client in clients[:5]:
        client.reader(f"{GROUP}/2")
    for client in clients[5:]:
        with pytest.raises(Refused, match="resource-limit-exceeded"):
            client.reader(f"{GROUP}/2")
    for client in clients:
        client.close()
    another = hub.client()
    eventually(lambda: can_read(hub))
    another.close()


def can_read(hub: HubOfWorkers) -> bool:
    client = hub.client()
    try:
        client.reader(f"{GROUP}/2")
    except Refused:
        return False
    finally:
        client.close()
    return True


def test_a_hub_is_there_and_gone_for_all_workers(hub: HubOfWorkers) -> None:
    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(main, ["hub", "--data", str(hub.data), *arguments, "-o", "json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.output) if result.output.strip() else None

    run("eventhub", "create", "orders", "--partition-count", "1")
    clients = [hub.client("orders") for _ in range(MANY)]
    links = [client.publisher("orders") for client in clients]
    for client, link in zip(clients, links, strict=True):
        (answer,) = client.publish(link, b"x")
        assert answer.state == ACCEPTED
    result = CliRunner().invoke(main, ["hub", "--data", str(hub.data), "eventhub", "delete", "orders", "--yes"])
    assert result.exit_code == 0, result.output
    for client, link in zip(clients, links, strict=True):
        gone = client.until(lambda e, link=link: isinstance(e, Detached) and e.link is link)
        assert gone.error.condition == "amqp:not-found"
        client.close()


def test_an_idempotent_producer_is_known_to_every_worker(clients: list[RawClient]) -> None:
    idempotent = "com.microsoft:idempotent-producer"
    link = clients[0].publisher("eh1/Partitions/3", desired_capabilities=[idempotent])
    given = {str(name): value for name, value in (link.properties or {}).items()}
    producer, last = given["com.microsoft:producer-id"], given["com.microsoft:producer-sequence-number"]
    before = last_number(clients[0], "3")

    def event(number: int) -> bytes:
        annotations = {
            Symbol("com.microsoft:producer-id"): producer,
            Symbol("com.microsoft:producer-epoch"): Short(0),
            Symbol("com.microsoft:producer-sequence-number"): Int(number),
        }
        return encode_message(Message(message_annotations=annotations, body_kind="data", body=[b"%d" % number]))

    def publish(client: RawClient, link: Link, number: int) -> Any:
        link.send_deliveries([event(number)], settled=False)
        return client.until(lambda e: isinstance(e, Disposition) and e.link is link).state

    for client in clients[:6]:  # each sends the first event again, and the next one
        link = client.publisher("eh1/Partitions/3", desired_capabilities=[idempotent])
        assert publish(client, link, last + 1) == ACCEPTED
    assert last_number(clients[0], "3") == before + 1
    gap = publish(clients[7], clients[7].publisher("eh1/Partitions/3", desired_capabilities=[idempotent]), last + 5)
    assert gap.condition == "com.microsoft:out-of-order-sequence"
    for number, client in enumerate(clients[:4], last + 2):
        link = client.publisher("eh1/Partitions/3", desired_capabilities=[idempotent])
        assert publish(client, link, number) == ACCEPTED
    assert last_number(clients[0], "3") == before + 5


def test_throughput_units_and_publications_are_those_of_all_workers(tmp_path: Path) -> None:
    # Workers count for themselves and say so later, so only a hub that nobody else has used counts exactly.
    hub = HubOfWorkers(tmp_path / "data")
    hub.start("--throughput-units", "1")
    clients = [hub.client() for _ in range(4)]
    accepted = refused = 0
    for client in clients:
        link = client.publisher("eh1")
        for answer in client.publish(link, *(b"x" for _ in range(800))):
            count = answer.last - answer.first + 1
            if answer.state == ACCEPTED:
                accepted += count
            else:
                assert answer.state.condition == "com.microsoft:server-busy"
                refused += count
        client.close()
    assert accepted + refused == 3200
    assert refused > 0
    assert accepted >= 1000
    eventually(lambda: hub.metric("tidegate_publications_total") == accepted)
    hub.stop()


def test_health_and_clients_are_those_of_all_workers(hub: HubOfWorkers, clients: list[RawClient]) -> None:
    assert json.loads(hub.get("/health"))["status"] == "healthy"
    assert hub.metric("tidegate_workers") == 2


def test_every_worker_knows_what_groups_of_kafka_s_clients_have_committed(
    hub: HubOfWorkers, clients: list[RawClient]
) -> None:
    kafka = hub.kafka()
    assert kafka.produce("eh1", batch_of(b"a", b"b", b"c"), partition=1).error_code == 0
    committed = {"partition_index": 1, "committed_offset": 1, "committed_leader_epoch": 0, "committed_metadata": None}
    group = {"group_id": "Dashboards", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    kafka.ask(Api.OFFSET_COMMIT, {**group, "topics": [{"name": "eh1", "partitions": [committed]}]})
    kafka.close()
    asked = {"operation": "READ", "type": "com.microsoft:partition", "name": "eh1", "partition": "1"}
    for client in clients:
        body = client.request("$management", {**asked, "tidegate:with-kafka-groups": True})["body"]
        assert ("Dashboards", 1) in [(one["name"], one["position"]) for one in body["tidegate:kafka-groups"]]


def test_workers_log_in_the_format_that_was_asked_for(tmp_path: Path) -> None:
    hub = HubOfWorkers(tmp_path / "data")
    hub.start("--log-format", "json", stderr=subprocess.PIPE)
    client = hub.client()
    with pytest.raises(Refused):
        client.publisher("eh1/Partitions/99")
    client.close()
    hub.stop()
    assert hub.process.stderr is not None
    logged = [json.loads(line) for line in hub.process.stderr]
    assert "tidegate.server.connections.client_connection" in [entry["logger"] for entry in logged]


def test_it_stops_promptly(tmp_path: Path) -> None:
    hub = HubOfWorkers(tmp_path / "data")
    hub.start()
    pids = hub.worker_pids
    clients = [hub.client() for _ in range(4)]
    started = time.monotonic()
    hub.process.send_signal(signal.SIGINT)
    assert hub.process.wait(PATIENCE_S) == 0
    assert time.monotonic() - started < PROMPTLY_S
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    for client in clients:
        client.close()


def test_a_port_that_is_taken_is_named(hub: HubOfWorkers, tmp_path: Path) -> None:
    arguments = ["up", "--data", str(tmp_path), "--amqp-port", str(hub.port), "--http-port", "0", "--workers", "2"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code != 0
    assert f"port {hub.port} cannot be listened on" in str(result.output) + str(result.exception)


def test_a_url_without_a_port_cannot_be_shared(tmp_path: Path) -> None:
    arguments = ["up", "--data", str(tmp_path), "--workers", "2", "--listen", "amqp://127.0.0.1:0"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "name the port" in result.output
