"""The data source, `sql` and `stream` where Spark runs: over Connect, by `spark-submit` with a zip, on a cluster.

`make test` reads a log once over Connect, and by `spark-submit` what needs the zip in every process; `make soak` does
everything in each place.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Iterator, Sequence
from importlib.util import cache_from_source
from pathlib import Path

import pyspark
import pytest

from tests.jars import free_ports
from tests.patience import PATIENCE_S
from tests.source import ROOT, SOURCE
from tidegate.hub.config import EventHubConfig, NamespaceConfig
from tidegate.server import BackgroundServer

CHILD = ROOT / "tests" / "spark" / "everywhere_child.py"
HOME = Path(pyspark.__file__).parent
FOUND = {
    "batch": "900 900",
    "sql": "900 10",
    "source": "900 900",
    "live": "900 10",
    "stream": "900 10",
    "frame": "900 10",
}
EVERYTHING = tuple(FOUND)


@pytest.fixture
def string(tmp_path: Path) -> Iterator[str]:
    """The connection string of a hub that a session of its own may fill."""
    config = NamespaceConfig(name="everywhere", event_hubs=(EventHubConfig(name="eh", partition_count=3),))
    with BackgroundServer(config, tmp_path / "hub") as server:
        yield server.connection_string


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    """A Spark Connect server in a process of its own, and its address."""
    (port,) = free_ports(1)
    server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[1]"]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
    }
    for name, value in settings.items():
        server += ["--conf", f"{name}={value}"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    log = tmp_path / "connect.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-submit"), *server, "spark-internal"],
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not answers(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with everything that Tidegate needs, and without Tidegate."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "tidegate" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def zipped(folder: Path) -> Path:
    """Write the zip of docs/how-to/spark.md, which has modules beside what they were compiled to."""
    path = folder / "tidegate.zip"
    with zipfile.ZipFile(path, "w") as file:
        for package in ("tidegate", "pyspark_tidegate"):
            for module in sorted((SOURCE / package).rglob("*.py")):
                name = str(module.relative_to(SOURCE))
                file.write(module, name)
                if (compiled := Path(cache_from_source(str(module)))).exists():
                    file.write(compiled, f"{name}c")
    return path


def check(what: Sequence[str], command: Sequence[str], folder: Path, *arguments: str, **environment: str) -> None:
    """Run the child by a command, and compare what it prints."""
    done = subprocess.run(
        [*command, str(CHILD), ",".join(what), *arguments],
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
        cwd=folder,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [FOUND[word] for word in what]


@pytest.mark.parametrize("what", [("sql", "stream"), pytest.param(EVERYTHING, marks=pytest.mark.soak)])
def test_spark_connect_needs_tidegate_on_its_server(
    string: str, connect_server: str, tmp_path: Path, what: Sequence[str]
) -> None:
    check(what, [sys.executable], tmp_path, string, "eh", connect_server)


@pytest.mark.parametrize("what", [("batch", "source"), pytest.param(EVERYTHING, marks=pytest.mark.soak)])
def test_spark_submit_ships_a_zip(string: str, bare_python: Path, tmp_path: Path, what: Sequence[str]) -> None:
    environment = {"PYSPARK_PYTHON": str(bare_python), "PYSPARK_DRIVER_PYTHON": str(bare_python), "PYTHONPATH": ""}
    missing = subprocess.run(
        [str(bare_python), "-c", "import tidegate"], capture_output=True, check=False, env={**os.environ, **environment}
    )
    assert b"No module named 'tidegate'" in missing.stderr
    path = str(zipped(tmp_path))
    submit = [str(HOME / "bin" / "spark-submit"), "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    submit += ["--py-files", path]
    environment["PYTHONPATH"] = path  # The process that plans a stream is not given the files of --py-files.
    check(what, submit, tmp_path, string, "eh", **environment)


@pytest.mark.soak
def test_a_cluster_reads_and_writes_on_its_workers(string: str, cluster: str, tmp_path: Path) -> None:
    check(EVERYTHING, [sys.executable], tmp_path, string, "eh", cluster, PYSPARK_PYTHON=sys.executable)
