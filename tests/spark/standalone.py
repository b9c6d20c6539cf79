"""A standalone Spark cluster on loopback whose processes tests may kill: a master, and workers that can restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from tests.jars import free_ports
from tests.patience import eventually

_EXECUTOR = "CoarseGrainedExecutorBackend"
_DAEMON = "pyspark.daemon"


class Standalone:
    """A master, and workers of one core each.

    Attributes:
        url: the master's URL.
    """

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        self.url = f"spark://127.0.0.1:{port}"
        self._folder = folder
        self._home = Path(pyspark.__file__).parent
        self._started: list[subprocess.Popen[bytes]] = []
        self._log = folder / "master.log"
        self._port = port

    def start_master(self) -> None:
        """Start the master, and wait until it takes workers."""
        arguments = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(self._port)]
        self._start([*arguments, "--webui-port", "0"], self._log)
        eventually(lambda: "I have been elected leader" in self._log.read_text())

    def _start(self, arguments: list[str], log: Path, host: str = "127.0.0.1") -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "SPARK_HOME": str(self._home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": host,
            "SPARK_NO_DAEMONIZE": "1",
        }
        with log.open("wb") as file:
            process = subprocess.Popen(
                [str(self._home / "bin" / "spark-class"), *arguments],
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def start_worker(self, host: str = "127.0.0.1") -> subprocess.Popen[bytes]:
        """Start a Worker daemon, and wait until the master has it.

        Args:
            host: an address of this machine; to Spark, each is a machine of its own.
        """
        number = len(self._started)
        before = self._log.read_text().count("Registering worker")
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", "1", "--memory", "1g"]
        work = self._folder / f"worker-{number}"
        log = self._folder / f"worker-{number}.log"
        process = self._start([*worker, "--webui-port", "0", "--work-dir", str(work), self.url], log, host)
        eventually(lambda: self._log.read_text().count("Registering worker") > before)
        return process

    @property
    def workers(self) -> list[subprocess.Popen[bytes]]:
        """The Worker daemons that are alive."""
        return [process for process in self._started[1:] if process.poll() is None]

    def executors(self) -> list[int]:
        """Return the processes of executors, whose Worker may be alive or not."""
        return self._running(_EXECUTOR)

    def python_workers(self) -> list[int]:
        """Return the Python processes of executors: the daemon of each, and the workers that it has forked.

        A worker outlives its daemon, and its executor continues to use it, so its parent says nothing.
        """
        return self._running(_DAEMON)

    def _running(self, what: str) -> list[int]:
        sessions = {process.pid for process in self._started[1:]}
        return [pid for pid, (session, command) in _processes() if session in sessions and what in command]

    def stop(self) -> None:
        """End all processes."""
        for process in self._started:
            # The executors of a worker are in its session, and outlive it for a moment.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[Standalone]:
    """Yield a cluster."""
    cluster = Standalone(folder)
    try:
        cluster.start_master()
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.stop()


def _processes() -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield each process of this machine: its number, its session and its command line."""
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            # The name in parentheses may have any characters.
            _, _, fields = (path / "stat").read_text().rpartition(")")
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        _, _, _, session, *_ = fields.split()
        yield int(path.name), (int(session), command)
