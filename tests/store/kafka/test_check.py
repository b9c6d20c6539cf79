"""What `tidegate store check` finds in a cluster."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.jars import free_ports
from tests.kafka.cluster import Cluster
from tests.patience import PATIENCE_S, eventually
from tests.server.conftest import entity
from tidegate.cli import main
from tidegate.hub.config import NamespaceConfig
from tidegate.server import BackgroundServer
from tidegate.store import CheckReport, check_store, read_settings


@pytest.fixture(scope="module")
def skewed(skewed_brokers: Cluster) -> Cluster:
    return skewed_brokers


@pytest.fixture(scope="module")
def topic(
    skewed: Cluster, make_config: Callable[..., NamespaceConfig], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The topic of a hub whose gateway is gone."""
    config = make_config(entity("cars")).model_copy(update={"name": "checked"})
    settings = read_settings(skewed.clients["a"])
    with BackgroundServer(config, tmp_path_factory.mktemp("gateway"), store=settings) as gateway:
        address = gateway.server.namespace.event_hub("cars").partition("0").log.topic
        assert address is not None
        return address.topic


def set_entry(brokers: Cluster, topic: str, name: str, value: str) -> None:
    client = AdminClient({"bootstrap.servers": brokers.clients["a"], "log_level": 0})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def checked(brokers: Cluster, namespace: str | None = None, *, probe_clocks: bool = False) -> CheckReport:
    return asyncio.run(check_store(read_settings(brokers.clients["a"]), namespace, probe_clocks=probe_clocks))


def test_brokers_clocks_and_topics_are_shown(skewed: Cluster, topic: str) -> None:
    report = checked(skewed, probe_clocks=True)
    ahead = {one.broker: one.clock_ms for one in report.brokers}
    assert ahead[1] is not None
    assert ahead[2] is not None
    assert 29_000 < ahead[2] - ahead[1] < 31_000
    assert {one.kafka for one in report.brokers} == {"4.1"}
    assert {one.topic: (one.event_hub, one.partitions, one.replication) for one in report.topics} == {
        "_tidegate.checked": (None, 1, 3),
        topic: ("cars", 2, 3),
    }
    assert report.gateways == {"checked": 0}
    (warning,) = report.findings
    assert warning.severity == "warning"
    assert re.search(r"the clock of broker 2 is (29\.\d|30\.\d) s ahead of that of broker [13]", warning.what)
    client = AdminClient({"bootstrap.servers": skewed.clients["a"], "log_level": 0})
    eventually(lambda: not [one for one in client.list_topics(timeout=PATIENCE_S).topics if "probe" in one])


def test_a_setting_that_breaks_a_promise_is_an_error_and_names_the_command(skewed: Cluster, topic: str) -> None:
    set_entry(skewed, topic, "cleanup.policy", "compact")
    try:
        result = CliRunner().invoke(
            main, ["store", "check", "--store", f"kafka://{skewed.clients['a']}", "--no-clocks", "-o", "json"]
        )
        assert result.exit_code == 1, result.output
        found = json.loads(result.stdout)
        assert found["sound"] is False
        (error,) = (one["what"] for one in found["findings"] if one["severity"] == "error")
        assert f"--alter --topic {topic} --add-config cleanup.policy=delete" in error
    finally:
        set_entry(skewed, topic, "cleanup.policy", "delete")


def test_missing_and_foreign_topics_are_named(skewed: Cluster, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": skewed.clients["a"], "log_level": 0})
    client.create_topics([NewTopic("checked.other", 1)])["checked.other"].result(PATIENCE_S)
    eventually(lambda: "checked.other" in client.list_topics(timeout=PATIENCE_S).topics)
    try:
        whats = [one.what for one in checked(skewed, "checked").findings]
        assert "the topic checked.other belongs to no event hub of the namespace checked" in whats
        (only,) = [one.what for one in checked(skewed, "elsewhere").findings if one.severity == "error"]
        assert only == "the cluster has no namespace elsewhere: no topic _tidegate.elsewhere"
    finally:
        client.delete_topics(["checked.other"])["checked.other"].result(PATIENCE_S)


@pytest.mark.soak
def test_replicas_that_are_missing_are_named(skewed: Cluster, topic: str) -> None:
    def whats(severity: str) -> list[str]:
        return [one.what for one in checked(skewed).findings if one.severity == severity]

    set_entry(skewed, topic, "min.insync.replicas", "3")
    skewed.kill(1)
    try:
        eventually(lambda: any(f"partitions 0, 1 of {topic} have fewer replicas" in what for what in whats("warning")))
        assert f"{topic}/0 takes no events: 2 of its 3 replicas are in sync, and min.insync.replicas is 3" in whats(
            "error"
        )
        assert any("the cluster has 2 of the 3 brokers" in what for what in whats("warning"))
    finally:
        skewed.start(1)
        set_entry(skewed, topic, "min.insync.replicas", "2")
    eventually(lambda: not checked(skewed).findings)


def test_people_get_tables_and_a_line_if_no_broker_answers(skewed: Cluster, topic: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["store", "check", "--store", f"kafka://{skewed.clients['a']}"])
    assert result.exit_code == 0, result.output
    assert topic in result.stdout
    assert "4.1 or newer" in result.stdout
    assert "warning: " in result.stdout
    (port,) = free_ports(1)
    result = CliRunner().invoke(main, ["store", "check", "--store", f"kafka://127.0.0.1:{port}"])
    assert result.exit_code == 1
    assert result.stderr.startswith("tidegate: no broker can be reached")
    assert len(result.stderr.splitlines()) == 1
