"""Jobs sign in to a cluster that asks for a password, with TLS or without, with the file that their input names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.certificates import write_certificates
from tests.kafka.cluster import Cluster, cluster
from tests.server.conftest import entity
from tests.spark.publishing import publish
from tidegate.connectors.inputs import hub_topic
from tidegate.connectors.inputs.hub_log import HubLog
from tidegate.connectors.inputs.hub_topic import ClusterAccess
from tidegate.hub.config import NamespaceConfig
from tidegate.server import BackgroundServer
from tidegate.store import read_settings

pytestmark = pytest.mark.sdk
LOGIN = """security.protocol={protocol}
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="jobs" password="{password}";
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def broker(certificates: Path) -> Iterator[Cluster]:
    """A broker that asks for a password at two of its listeners, one of which speaks TLS alone."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required user_jobs='secret';"
    settings = {
        "listener.security.protocol.map": (
            "PLAIN:PLAINTEXT,LOGIN:SASL_PLAINTEXT,SEALED:SASL_SSL,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": login,
        "listener.name.sealed.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sealed.plain.sasl.jaas.config": login,
        "listener.name.sealed.ssl.keystore.type": "PEM",
        "listener.name.sealed.ssl.keystore.location": str(certificates / "broker.pem"),
    }
    with cluster(nodes=1, clients=("plain", "login", "sealed"), settings=settings) as started:
        yield started


@pytest.mark.parametrize("listener", ["login", "sealed"])
def test_tasks_sign_in_or_read_through_a_gateway(
    broker: Cluster,
    certificates: Path,
    listener: str,
    make_config: Callable[..., NamespaceConfig],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_topic, "_failed_at_s", {})
    path = tmp_path / "store.properties"
    login = LOGIN
    if listener == "sealed":
        login += f"ssl.truststore.location={certificates / 'ca.pem'}\n"
    protocol = "SASL_SSL" if listener == "sealed" else "SASL_PLAINTEXT"
    path.write_text(login.format(password="secret", protocol=protocol))
    config = make_config(entity("cars")).model_copy(update={"name": listener})
    store = read_settings(broker.clients[listener], path)
    with BackgroundServer(config, tmp_path / "gateway", store=store) as gateway, caplog.at_level(logging.WARNING):
        publish(gateway.connection_string, "cars", ["a", "b"], partition_id="0")

        def read(access: ClusterAccess | None) -> tuple[list[bytes], bool]:
            """Return the bodies, and whether tasks are to read the topic."""
            log = HubLog.connect(gateway.connection_string, "cars", "$Default", cluster=access)
            try:
                end = log.ends()["0"]
                found = log.range("0", end.begin, end.end)
                return [body for events in found.read_events(10) for body in events.bodies], found.topic is not None
            finally:
                log.close()

        def access(password: str) -> ClusterAccess:
            text = login.format(password=password, protocol=protocol)
            path.write_text(f"bootstrap.servers={broker.clients[listener]}\n{text}")
            return ClusterAccess.read(path)

        assert read(access("secret")) == ([b"a", b"b"], True)
        assert "gateway" not in caplog.text
        assert read(None) == ([b"a", b"b"], False)
        assert "needs TLS or a password: name a file with them in store_config" in caplog.text
        assert read(access("wrong")) == ([b"a", b"b"], True)
        assert "refuses the login" in caplog.text
        assert "events are read through a gateway" in caplog.text
        assert "wrong" not in caplog.text, "no password is logged"
