"""`python -m tidegate.spark.shared.host`: the process with the Spark that the jobs of a service share.

Its channel is its standard input and output, a JSON object a line. The first line to it is `{"start": {...}}`, see
`HostOrder`, and is answered by `{"up": {"port": …, "secret": …}}` or by `{"problem": "there is no Java: …"}`,
which is `unavailable` instead of `problem` if another start may succeed.
`{"forget": OWNER}` ends and deletes whatever an owner has left (see `attachment`). It says `{"ended": "…"}` if Java
ends. It ends with its input, so that neither it nor Java outlives the service.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tidegate.connectors.model.errors import JobError, UnavailableError
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.spark import daemon
from tidegate.spark.failures import FAILURES
from tidegate.spark.session import spark_context
from tidegate.spark.shared.attachment import OWNER

_FIRST_TO_KILL = "800"
_MIB = 1 << 20
_CANCELLED_WITHIN_S = 20.0
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class HostOrder:
    """What a host is to be.

    Attributes:
        folder: for Spark's temporary files, and the states of shards; deleted at the end.
        log_file: for Java's output.
        cores: how many tasks run at a time, each in a Python worker.
        memory_bytes: of Java's heap.
        worker_memory_bytes: how much memory of its own a Python worker may have; mapped states are not counted.
        nice: how much it yields the processor to others.
    """

    folder: str
    log_file: str
    cores: int
    memory_bytes: int
    worker_memory_bytes: int
    nice: int

    def settings(self) -> SparkSettings:
        """Return Spark's settings: loopback only, and all files in one folder."""
        conf = {
            "spark.app.name": "tidegate",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": f"{self.memory_bytes // _MIB}m",
            "spark.python.daemon.module": "tidegate.spark.daemon",
            "spark.executor.cores": str(self.cores),
            "spark.local.dir": self.folder,
            # In the order in which steps began: among fair pools that have no task, Spark takes the first by name,
            # so that on busy cores the last would never have a turn.
            "spark.scheduler.mode": "FIFO",
        }
        return SparkSettings(master=f"local[{self.cores}]", conf=conf)


class Host:
    """What a running host does."""

    def __init__(self, context: SparkContext, folder: Path) -> None:
        self._context = context
        self._folder = folder
        self._session = SparkSession(context)

    def forget(self, owner: str) -> None:
        """End the jobs of an owner, and delete its cached data and its states."""
        spark: Any = self._context._jsc
        spark.sc().cancelJobGroupAndFutureJobs(owner)
        tracker = self._context.statusTracker()
        gives_up_at = time.monotonic() + _CANCELLED_WITHIN_S
        while set(tracker.getJobIdsForGroup(owner)) & set(tracker.getActiveJobsIds()):
            if time.monotonic() > gives_up_at:
                break
            time.sleep(_LOOK_EVERY_S)
        for table in self._session.catalog.listTables("global_temp"):
            if table.name.startswith(owner):
                self._session.table(f"global_temp.{table.name}").unpersist(True)
                self._session.catalog.dropGlobalTempView(table.name)
        _end_workers(owner)
        for path in (*self._folder.rglob(f"tidegate-{owner}*"), self._folder / owner):
            shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    """Serve the service until it is gone."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lock = threading.Lock()

    def send(message: dict[str, Any]) -> None:
        with lock, contextlib.suppress(BrokenPipeError):
            channel.write(json.dumps(message) + "\n")

    lines = iter(sys.stdin.readline, "")
    order = HostOrder(**json.loads(next(lines))["start"])
    _yield_to_others(order.nice)
    os.environ[daemon.BYTES] = str(order.worker_memory_bytes)
    for name in ("SPARK_LOCAL_DIRS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        os.environ.pop(name, None)
    # A service that ends while Spark starts must not leave it behind, so something has to listen from now on.
    messages = _Messages(lines, Path(order.folder))
    try:
        with spark_context(order.settings(), "tidegate", log_file=Path(order.log_file)) as context:
            gateway: Any = SparkContext._gateway
            messages.java = gateway.proc
            host = Host(context, Path(order.folder))
            threading.Thread(target=_watch, args=(gateway.proc, send, messages), daemon=True).start()
            parameters = gateway.gateway_parameters
            send({"up": {"port": parameters.port, "secret": parameters.auth_token}})
            messages.serve(host)
    except JobError as error:
        send({"unavailable" if isinstance(error, UnavailableError) else "problem": str(error)})


class _Messages:
    """What the service says, read in a thread of its own; its end is that of this process."""

    def __init__(self, lines: Iterable[str], folder: Path) -> None:
        self.java: subprocess.Popen[bytes] | None = None
        self.ending = False
        self._folder = folder
        self._owners: list[str] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._read, args=(lines,), name="tidegate-orders", daemon=True).start()

    def serve(self, host: Host) -> None:
        """Carry out what the service asks for."""
        while True:
            with self._changed:
                while not self._owners:
                    self._changed.wait()
                owner = self._owners.pop(0)
            self._forget(host, owner)

    def _forget(self, host: Host, owner: str) -> None:
        try:
            host.forget(owner)
        except (ConnectionError, EOFError, Py4JNetworkError):
            # Java has ended, and everything went with it; the thread that watches it says so.
            return
        except FAILURES as error:
            # Java that was killed while it was asked ends in any of these.
            if not self.ending:
                print(f"what {owner} has left cannot be deleted: {error}", file=sys.stderr)

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            with self._changed:
                self._owners.append(json.loads(line)["forget"])
                self._changed.notify_all()
        self.ending = True
        # What is there is of no use without the service, so Java need not end in good order.
        java = self.java
        if java is not None:
            java.kill()
            java.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        os._exit(0)


def _end_workers(owner: str) -> None:
    """End the Python workers that an owner has for itself. Where Linux does not list them, they end with Spark."""
    mark = f"{OWNER}={owner}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)


def _watch(java: subprocess.Popen[bytes], send: Any, messages: _Messages) -> None:
    status = java.wait()
    if messages.ending:
        return
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
    send({"ended": f"its Java process has ended: {how}"})
    os._exit(1)


def _yield_to_others(nice: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.nice(nice)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_KILL)


if __name__ == "__main__":
    main()
