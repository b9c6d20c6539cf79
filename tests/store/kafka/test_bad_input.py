"""What a gateway says of a cluster that it cannot use, and of what others have done to its topics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from tests.jars import free_ports
from tests.kafka.cluster import Cluster
from tests.patience import PATIENCE_S, eventually
from tests.server.conftest import entity, receive_events
from tidegate.hub.config import NamespaceConfig
from tidegate.log import LogError
from tidegate.server import BackgroundServer
from tidegate.store import read_settings

pytestmark = pytest.mark.sdk
Make = Callable[..., NamespaceConfig]


def gateway(brokers: Cluster, config: NamespaceConfig, folder: Path) -> BackgroundServer:
    return BackgroundServer(config, folder, store=read_settings(brokers.clients["a"]))


def topic_of(server: BackgroundServer, hub: str) -> str:
    address = server.server.namespace.event_hub(hub).partition("0").log.topic
    assert address is not None
    return address.topic


def admin(brokers: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": brokers.clients["a"], "log_level": 0})


def test_no_broker_can_be_reached(make_config: Make, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    server = BackgroundServer(make_config(entity("e")), tmp_path, store=read_settings(f"127.0.0.1:{port}"))
    with pytest.raises(LogError) as raised:
        server.start()
    assert str(raised.value).startswith("the cluster of Kafka cannot be used: no broker can be reached: ")
    assert f"127.0.0.1:{port}" in str(raised.value)
    assert str(raised.value).endswith("; see --store")
    assert len(str(raised.value).splitlines()) == 1


def test_brokers_without_a_login_say_so(three_brokers: Cluster, make_config: Make, tmp_path: Path) -> None:
    properties = tmp_path / "store.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=x.PlainLoginModule required username="u" password="secret";\n'
    )
    settings = read_settings(three_brokers.clients["a"], properties)
    with pytest.raises(LogError) as raised:
        BackgroundServer(make_config(entity("e")), tmp_path / "data", store=settings).start()
    assert "see sasl.* and ssl.* in --store-config" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_topic_with_a_setting_that_breaks_a_promise(
    three_brokers: Cluster, make_config: Make, tmp_path: Path
) -> None:
    config = make_config(entity("changed")).model_copy(update={"name": "settings"})
    with gateway(three_brokers, config, tmp_path / "a") as server:
        topic = topic_of(server, "changed")
    entry = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client = admin(three_brokers)
    client.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    with pytest.raises(LogError, match=f"--alter --topic {topic} --add-config message.timestamp.type=LogAppendTime"):
        gateway(three_brokers, config, tmp_path / "b").start()


def test_a_deleted_topic(three_brokers: Cluster, make_config: Make, tmp_path: Path) -> None:
    config = make_config(entity("gone")).model_copy(update={"name": "deleted"})
    with gateway(three_brokers, config, tmp_path / "a") as server:
        topic = topic_of(server, "gone")
    client = admin(three_brokers)
    client.delete_topics([topic])[topic].result(PATIENCE_S)
    eventually(lambda: topic not in client.list_topics(timeout=PATIENCE_S).topics)
    expected = f"the topic {topic} of the event hub gone is missing: restore it, or delete the event hub"
    with pytest.raises(LogError, match=expected):
        gateway(three_brokers, config, tmp_path / "b").start()


def test_a_topic_with_more_partitions_than_its_hub(
    three_brokers: Cluster, make_config: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(entity("wide", partitions=1)).model_copy(update={"name": "wide"})
    with gateway(three_brokers, config, tmp_path / "a") as server:
        topic = topic_of(server, "wide")
    client = admin(three_brokers)
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE_S)
    eventually(lambda: len(client.list_topics(timeout=PATIENCE_S).topics[topic].partitions) == 3)
    with gateway(three_brokers, config, tmp_path / "b") as server:
        assert f"the topic {topic} has 3 partitions, and its event hub has 1" in caplog.text
        namespace = server.server.namespace
        for count in (2, 4):  # fewer than there are, and more
            namespace.management.add_partitions("wide", count)
            producer = EventHubProducerClient.from_connection_string(server.connection_string, eventhub_name="wide")
            with producer:
                producer.send_event(EventData("x"), partition_id=str(count - 1))
            assert len(receive_events(server.connection_string, "wide", 1, partition=str(count - 1))) == 1
        assert len(namespace.event_hub("wide").partitions) == 4


def test_namespaces_on_one_cluster_do_not_meet(three_brokers: Cluster, make_config: Make, tmp_path: Path) -> None:
    first, second = (make_config(entity("same")).model_copy(update={"name": name}) for name in ("one", "two"))
    with gateway(three_brokers, first, tmp_path / "a") as a, gateway(three_brokers, second, tmp_path / "b") as b:
        assert topic_of(a, "same").startswith("one.same-")
        assert topic_of(b, "same").startswith("two.same-")


def test_records_that_others_wrote_are_events(three_brokers: Cluster, make_config: Make, tmp_path: Path) -> None:
    config = make_config(entity("foreign", partitions=1)).model_copy(update={"name": "foreign"})
    with gateway(three_brokers, config, tmp_path) as server:
        producer = Producer({"bootstrap.servers": three_brokers.clients["a"], "log_level": 0})
        producer.produce(topic_of(server, "foreign"), b"body", b"key", headers={"colour": b"red"})
        producer.flush(PATIENCE_S)
        event: EventData
        (event,) = receive_events(server.connection_string, "foreign", 1, partition="0")
        assert event.body_as_str() == "body"
        assert event.partition_key == b"key"
        assert event.properties == {b"colour": b"red"}
