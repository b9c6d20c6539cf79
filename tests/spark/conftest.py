"""A hub and a Spark session for all tests of this folder, and a cluster for those of a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.jars import stop_spark
from tests.spark.standalone import standalone
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundServer]:
    """A hub with some event hubs of three partitions."""
    names = (
        "read",
        "stream",
        "limited",
        "available",
        "remote",
        "job",
        "killed",
        "live",
        "empty",
        "history",
        "filtered",
        "begun",
        "of-spark",
    )
    sinks = ("columns", "names", "spread", "large", "transaction", "order", "uuid", "from", "to", "refused")
    hubs = tuple(EventHubConfig(name=name, partition_count=3) for name in (*names, *(f"sink-{name}" for name in sinks)))
    with BackgroundServer(NamespaceConfig(name="spark", event_hubs=hubs), tmp_path_factory.mktemp("hub")) as server:
        yield server


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the session's tables; with it ends the session."""
    yield tmp_path_factory.mktemp("warehouse")
    stop_spark()


@pytest.fixture(scope="module")
def spark(warehouse: Path) -> SparkSession:
    """A local session with the settings a person would have who only installed the package.

    Modules share it, because a start of Spark and of all its Python workers takes seconds. A process has one Spark at
    a time, so a module whose tests start their own uses `no_spark`.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


@pytest.fixture(scope="module")
def no_spark() -> None:
    """End the session of earlier modules."""
    stop_spark()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark master and two workers on loopback, and the master's URL."""
    with standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.url
