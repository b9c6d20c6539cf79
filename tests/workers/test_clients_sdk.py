"""Unmodified clients of every protocol with several workers, one of which is killed meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, TransportType
from confluent_kafka import Consumer, Producer

from tests.patience import PATIENCE_S, eventually
from tests.server.kafka.test_kafka_crash import PARTITIONS, Member, Publisher, everything, seen
from tests.workers.support import HubOfWorkers
from tests.workers.test_http import token

pytestmark = [pytest.mark.sdk, pytest.mark.crash]


def kafka_settings(hub: HubOfWorkers) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{hub.kafka_port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": hub.connection,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }


def web_socket_options(hub: HubOfWorkers) -> dict[str, Any]:
    return {
        "eventhub_name": "eh1",
        "transport_type": TransportType.AmqpOverWebsocket,
        "custom_endpoint_address": f"ws://localhost:{hub.http_port}",
        "retry_total": 20,
        "retry_backoff_factor": 0.05,
    }


def test_web_sockets_with_microsofts_client(hub: HubOfWorkers) -> None:
    options = web_socket_options(hub)
    bodies = [f"socket {number}" for number in range(2)]
    for body in bodies:
        with EventHubProducerClient.from_connection_string(hub.connection, **options) as producer:
            producer.send_batch([EventData(body)], partition_id="1")
    found: list[str] = []
    consumer = EventHubConsumerClient.from_connection_string(hub.connection, "$Default", **options)

    def on_event(_context: Any, event: EventData | None) -> None:
        if event is not None and event.body_as_str().startswith("socket"):
            found.append(event.body_as_str())

    arguments = {"on_event": on_event, "partition_id": "1", "starting_position": "-1"}
    thread = threading.Thread(target=consumer.receive, kwargs=arguments, daemon=True)
    thread.start()
    eventually(lambda: len(found) == len(bodies))
    consumer.close()
    thread.join(PATIENCE_S)
    assert found == bodies


def test_a_group_of_two_kinds_of_clients(hub: HubOfWorkers) -> None:
    """One member with librdkafka and one with aiokafka share the partitions."""
    settings = kafka_settings(hub)
    consumer = Consumer({**settings, "group.id": "mixed", "auto.offset.reset": "latest"})
    consumer.subscribe(["eh1"])

    async def join() -> None:
        member = aiokafka.AIOKafkaConsumer(
            "eh1",
            bootstrap_servers=settings["bootstrap.servers"],
            group_id="mixed",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="$ConnectionString",
            sasl_plain_password=hub.connection,
            partition_assignment_strategy=[RangePartitionAssignor],
            auto_offset_reset="latest",
        )
        await member.start()
        try:
            deadline_s = time.monotonic() + PATIENCE_S
            while True:
                await asyncio.to_thread(consumer.poll, 0.05)
                theirs = {(one.topic, one.partition) for one in consumer.assignment()}
                mine = {(one.topic, one.partition) for one in member.assignment()}
                if len(theirs) == len(mine) == PARTITIONS // 2 and not theirs & mine:
                    break
                assert time.monotonic() < deadline_s
                await asyncio.sleep(0.01)
            for _, number in mine:
                await member.position(TopicPartition("eh1", number))
            producer = Producer(settings)
            for number in range(PARTITIONS):
                producer.produce("eh1", b"for both", partition=number)
            assert producer.flush(PATIENCE_S) == 0
            wanted = {number for _, number in mine}
            while wanted:
                message = await asyncio.wait_for(member.getone(), PATIENCE_S)
                if message.value == b"for both":
                    wanted.discard(message.partition)
        finally:
            await member.stop()

    asyncio.run(join())
    consumer.close()


class RestPublisher:
    """Publishes over HTTP, one event a request, and again whenever its worker was killed."""

    def __init__(self, hub: HubOfWorkers, partition: int) -> None:
        self.acknowledged: list[str] = []
        self._hub = hub
        self._url = f"http://localhost:{hub.http_port}/eh1/partitions/{partition}/messages"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        headers = {"Authorization": token(self._hub), "Content-Type": "text/plain"}
        number = 0
        while not self._is_over.wait(0.002):
            body = f"rest-{number}"
            try:
                request = urllib.request.Request(self._url, body.encode(), headers)
                with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                    assert answer.status == 201
            except urllib.error.HTTPError:
                raise
            except OSError:
                continue
            self.acknowledged.append(body)
            number += 1

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.mark.soak
def test_clients_go_on_when_workers_are_killed(tmp_path: Path) -> None:
    hub = HubOfWorkers(tmp_path / "data")
    hub.start()
    settings = kafka_settings(hub)
    publisher, rest = Publisher(settings), RestPublisher(hub, 0)
    members = [Member(settings), Member(settings)]
    try:
        eventually(lambda: all(member.read for member in members))
        for number in range(20):
            before = len(publisher.acknowledged), len(rest.acknowledged), [len(member.read) for member in members]
            victim = hub.worker_pids[number % 2]
            os.kill(victim, signal.SIGKILL)
            eventually(lambda victim=victim: victim not in hub.worker_pids and len(hub.worker_pids) == 2)
            eventually(lambda before=before: len(publisher.acknowledged) > before[0] + 50)
            eventually(lambda before=before: len(rest.acknowledged) > before[1] + 10)
            eventually(
                lambda before=before: all(len(one.read) > count for one, count in zip(members, before[2], strict=True))
            )
        rest.stop()
        publisher.stop()
        assert publisher.failures == []
        stored = everything(settings)
        values = [value for rows in stored.values() for value in rows if not value.startswith("rest")]
        assert sorted(values, key=int) == [str(number) for number in range(publisher.sent)]
        for value, (partition, offset) in publisher.acknowledged.items():
            assert offset < 0 or stored[partition][offset] == value
        kept = [value for value in stored[0] if value.startswith("rest")]
        assert set(rest.acknowledged) <= set(kept)
        assert list(dict.fromkeys(kept))[: len(rest.acknowledged)] == rest.acknowledged
        everywhere = sum(map(len, stored.values()))
        eventually(lambda: len(seen(members)) == everywhere)
        for partition, offset, value in seen(members):
            assert stored[partition][offset] == value
    finally:
        for member in members:
            member.kill()
        hub.kill()
