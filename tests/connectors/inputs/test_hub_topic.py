"""How a job gets at the topic of a hub that gateways serve; reading it is tested in `tests/store/kafka`."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.jars import free_ports
from tidegate.client import HubTopicAddress
from tidegate.connectors.inputs import hub_topic
from tidegate.connectors.inputs.hub_topic import ClusterAccess, HubTopic, TopicUnreachable
from tidegate.connectors.model.errors import InputError
from tidegate.outbound import AddressPolicy

OPEN = HubTopicAddress("kafka-1:9092,kafka-2:9092", "ns.cars-1", "id", is_open=True)
CLOSED = HubTopicAddress("kafka-1:9093", "ns.cars-1", "id", is_open=False)
LOGIN = (
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="pw";\n'
)


def read(folder: Path, text: str) -> ClusterAccess:
    path = folder / "store.properties"
    path.write_text(text)
    return ClusterAccess.read(path)


def test_brokers_without_a_password_are_those_that_the_gateway_names() -> None:
    assert ClusterAccess().of(OPEN) == ClusterAccess("kafka-1:9092,kafka-2:9092")


def test_a_cluster_with_a_password_is_read_through_gateways_until_the_job_has_it(tmp_path: Path) -> None:
    assert ClusterAccess().of(CLOSED) is None
    access = read(tmp_path, f"bootstrap.servers=kafka-1:9093\n{LOGIN}")
    assert access.of(CLOSED) is access
    assert access.bootstrap == "kafka-1:9093"
    assert "pw" not in repr(HubTopic("t", "id", 0, access))
    assert pickle.loads(pickle.dumps(access)) == access


def test_a_password_goes_to_no_address_that_only_a_hub_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"store\.properties: the property bootstrap\.servers is missing"):
        read(tmp_path, LOGIN)


def test_certificates_travel_as_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"store_config .*cannot be read: .*missing\.pem"):
        read(tmp_path, "bootstrap.servers=k:1\nsecurity.protocol=SSL\nssl.truststore.location=missing.pem\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("security.protocl=SSL", "did you mean security.protocol"),
        ("bootstrap.servers=k", "'k' is no address of a broker"),
        ("security.protocol=TLS", "expected one of PLAINTEXT"),
    ],
)
def test_a_wrong_property_is_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        read(tmp_path, text)


def test_a_cluster_that_cannot_be_reached_is_not_tried_by_every_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_topic, "_failed_at_s", {})
    (port,) = free_ports(1)
    topic = HubTopic("t", "id", 0, ClusterAccess(f"127.0.0.1:{port}"))
    with pytest.raises(TopicUnreachable, match="no broker can be reached"):
        list(topic.messages(0, 1, 10))
    with pytest.raises(TopicUnreachable, match="a moment ago"):
        list(topic.messages(0, 1, 10))


def test_a_guarded_process_connects_to_no_loopback_address_that_a_hub_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_topic, "_failed_at_s", {})
    topic = HubTopic("t", "id", 0, ClusterAccess("localhost:9092"))
    with AddressPolicy.guarded().in_force(), pytest.raises(TopicUnreachable, match="a loopback address"):
        list(topic.messages(0, 1, 10))
