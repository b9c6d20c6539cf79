"""A hub for all tests of this folder, and a Spark session and a cluster for those of a module."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.patience import PATIENCE_S
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundServer]:
    """A hub with some event hubs of three partitions."""
    names = ("read", "stream", "limited", "available", "remote", "job", "killed", "live", "empty")
    sinks = ("columns", "names", "spread", "large", "transaction", "order", "uuid", "from", "to", "refused")
    hubs = tuple(EventHubConfig(name=name, partition_count=3) for name in (*names, *(f"sink-{name}" for name in sinks)))
    with BackgroundServer(NamespaceConfig(name="spark", event_hubs=hubs), tmp_path_factory.mktemp("hub")) as server:
        yield server


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with the settings a person would have who only installed the package.

    It ends with its module: a process has one Spark at a time, and other tests start their own in this one.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark master and two workers on loopback, and the master's URL."""
    tmp_path = tmp_path_factory.mktemp("cluster")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
    }
    url = f"spark://127.0.0.1:{port}"
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
    processes = []
    for number, arguments in enumerate([master, worker, worker]):
        more = [] if number == 0 else ["--webui-port", "0", "--work-dir", str(tmp_path / f"worker-{number}"), url]
        log = (tmp_path / f"spark-{number}.log").open("w")
        processes.append(
            subprocess.Popen(
                [str(home / "bin" / "spark-class"), *arguments, *more],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )
        time.sleep(3 if number == 0 else 0)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while (tmp_path / "spark-0.log").read_text().count("Registering worker") < 2:
            assert time.monotonic() < deadline, (tmp_path / "spark-0.log").read_text()
            time.sleep(0.2)
        yield url
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
