"""A gateway on a cluster in place of the hub that the tests of the server share, and a cluster with a wrong clock.

They end with the last test of this folder: three idle brokers take a tenth of a processor from the tests that follow.
One process runs all files of this folder (tests/conftest.py), so each cluster starts once.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.kafka.cluster import Cluster, cluster
from tests.server.conftest import (
    entity,
    eventually,
    hub,
    hub_numbers,
    key,
    make_config,
    producer,
    receive,
    receive_from,
    refused,
    sign_in,
)
from tidegate.hub.config import NamespaceConfig
from tidegate.server import BackgroundServer, Server
from tidegate.store import read_settings

__all__ = [
    "eventually",
    "hub",
    "hub_numbers",
    "key",
    "make_config",
    "producer",
    "receive",
    "receive_from",
    "refused",
    "sign_in",
]


@pytest.fixture(scope="package")
def three_brokers() -> Iterator[Cluster]:
    with cluster(clients=("a", "b")) as started:
        yield started


@pytest.fixture(scope="package")
def skewed_brokers() -> Iterator[Cluster]:
    """Three brokers; the clock of the second is 30 seconds ahead."""
    with cluster(clients=("a", "b"), skew_ms={1: 30_000}) as started:
        yield started


@pytest.fixture(scope="package")
def one_broker() -> Iterator[Cluster]:
    """One broker, for tests that need no fellows of it."""
    with cluster(nodes=1, clients=("a", "b")) as started:
        yield started


@pytest.fixture(scope="package")
def server(
    three_brokers: Cluster,
    make_config: Callable[..., NamespaceConfig],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    config = make_config(entity("wide", partitions=8))
    settings = read_settings(three_brokers.clients["a"])
    ports = {"http_port": 0, "https_port": 0, "amqps_port": 0, "kafka_port": 0, "kafka_tls_port": 0}
    with BackgroundServer(config, tmp_path_factory.mktemp("data"), store=settings, **ports) as running:
        yield running.server


@pytest.fixture(scope="package")
def connection(server: Server) -> str:
    return server.connection_string()
