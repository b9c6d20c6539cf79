"""The Spark that the jobs of a service share: one Java process instead of one for each job.

It is a process of its own (`tidegate.spark.shared.host`) that starts when a job first needs Spark, and ends when none
has used it for some minutes. A job's process gets its port and secret through its channel and attaches to it. When a
job's process ends, in whatever way, the host deletes what it has left there. When the host ends, the jobs that use it
are ended with that as the reason; they start again, and the first of them starts another host.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MODULE = "tidegate.spark.shared.host"
_FOLDER, _LOG = "spark", "spark.log"
_END_WITHIN_S = 10.0
# As for processes of jobs: a worker of Spark has one thread for its task.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SharedSparkSettings:
    """How large the Spark is that jobs share.

    Attributes:
        memory_bytes: of its Java process's heap (`spark.driver.memory`).
        worker_memory_bytes: how much memory of its own each of its Python workers may have.
        cores: how many tasks it runs at a time, those of all jobs together.
        idle_s: how long it stays when no job uses it.
    """

    memory_bytes: int = 1 << 30
    worker_memory_bytes: int = 2 << 30
    cores: int = max(2, min(4, os.cpu_count() or 1))
    idle_s: float = 300.0


@dataclass(frozen=True, slots=True)
class SparkUser:
    """A process that uses the shared Spark.

    Attributes:
        tell: gives it the answer to its request: `port`, `secret`, `owner` and `folder`, or why Spark did not start: a
            `problem`, or `unavailable` if another start may succeed.
        lost: called with the reason when the shared Spark ends.
    """

    tell: Callable[[Mapping[str, Any]], None]
    lost: Callable[[str], None]


class SharedSpark:
    """The process and its users. Methods are called with the service's lock held; so are the functions of users."""

    def __init__(self, folder: Path, settings: SharedSparkSettings, nice: int, lock: threading.RLock) -> None:
        """Prepare; nothing is started before a job needs it.

        Args:
            folder: the service's.
            nice: how much Spark yields the processor.
            lock: the service's.
        """
        self._folder = folder
        self._settings = settings
        self._nice = nice
        self._lock = lock
        self._host: _Host | None = None
        self._users: dict[str, SparkUser] = {}
        self._stopping: threading.Timer | None = None

    def attach(self, user: SparkUser) -> str:
        """Give a process the address of Spark, now or when it has started; return the owner of what it will leave."""
        if self._stopping is not None:
            self._stopping.cancel()
            self._stopping = None
        owner = f"tidegate_{secrets.token_hex(8)}"
        self._users[owner] = user
        try:
            host = self._host or self._start()
        except OSError as error:
            del self._users[owner]
            user.tell({"unavailable": f"the process for Spark cannot be started: {error}"})
            return owner
        if host.address is not None:
            self._tell(owner, user, host)
        return owner

    def release(self, owner: str) -> None:
        """Delete what a process has left there, which uses it no longer; a second call does nothing."""
        if self._users.pop(owner, None) is None or self._host is None:
            return
        self._host.write({"forget": owner})
        if not self._users:
            self._stopping = threading.Timer(self._settings.idle_s, self._stop_if_idle)
            self._stopping.daemon = True
            self._stopping.start()

    @property
    def process(self) -> int | None:
        """The number of the host's process, below which Java and the workers are; None if there is none."""
        return None if self._host is None else self._host.process.pid

    def close(self) -> None:
        """End the host, and wait for its end. Called without the lock, when no job runs."""
        with self._lock:
            host = self._forget_host()
        if host is not None:
            host.end()

    def _start(self) -> _Host:
        shutil.rmtree(self._folder / _FOLDER, ignore_errors=True)
        folder = self._folder / _FOLDER / secrets.token_hex(4)
        folder.mkdir(parents=True)
        spark = self._settings
        order = {
            "folder": str(folder),
            "log_file": str(self._folder / _LOG),
            "cores": spark.cores,
            "memory_bytes": spark.memory_bytes,
            "worker_memory_bytes": spark.worker_memory_bytes,
            "nice": self._nice,
        }
        self._host = host = _Host(folder, self._heard, self._ended)
        host.write({"start": order})
        _logger.info("Spark starts, for the jobs that share it; its output is in %s", self._folder / _LOG)
        return host

    def _stop_if_idle(self) -> None:
        with self._lock:
            host = None if self._users else self._forget_host()
        if host is not None:
            host.end()
            _logger.info("Spark has ended, because no job has used it for %g s", self._settings.idle_s)

    def _forget_host(self) -> _Host | None:
        host, self._host = self._host, None
        if self._stopping is not None:
            self._stopping.cancel()
            self._stopping = None
        return host

    def _tell(self, owner: str, user: SparkUser, host: _Host) -> None:
        assert host.address is not None
        user.tell({**host.address, "owner": owner, "folder": str(host.folder / owner)})

    def _heard(self, host: _Host, message: Mapping[str, Any]) -> None:
        """Take what a host says; called in its thread."""
        ((kind, content),) = message.items()
        with self._lock:
            if host is not self._host:
                return
            if kind == "up":
                host.address = content
                for owner, user in self._users.items():
                    self._tell(owner, user, host)
            elif kind in ("problem", "unavailable"):
                self._forget_host()
                users, self._users = self._users, {}
                for user in users.values():
                    user.tell({kind: content})
            elif kind == "ended":
                host.why = content
            else:
                raise ValueError(f"the process of the shared Spark said {kind!r}, which nothing here understands")

    def _ended(self, host: _Host, status: int) -> None:
        """Note the end of a host; called in its thread."""
        shutil.rmtree(host.folder, ignore_errors=True)
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
        with self._lock:
            if host is not self._host:
                return
            self._forget_host()
            users, self._users = self._users, {}
            reason = f"the Spark that the jobs of this service share has ended ({host.why or how})"
            _logger.warning("%s", reason)
            for user in users.values():
                user.lost(reason)


class _Host:
    """The process, and the thread that reads what it says.

    Attributes:
        address: the port and the secret, once it is up.
        why: what it said about its end.
    """

    def __init__(
        self,
        folder: Path,
        heard: Callable[[_Host, Mapping[str, Any]], None],
        ended: Callable[[_Host, int], None],
    ) -> None:
        self.folder = folder
        self.address: Mapping[str, Any] | None = None
        self.why: str | None = None
        self._heard = heard
        self._ended = ended
        self.process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ENVIRONMENT},
            # A terminal's Ctrl-C is for the service, which ends this process in its turn.
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._listen, name="tidegate-shared-spark", daemon=True)
        self._thread.start()

    def write(self, message: Mapping[str, Any]) -> None:
        """Send it a message; one to a process that has ended is lost, as its end is noticed anyway."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except (OSError, ValueError):
            _logger.debug("the process of the shared Spark is gone", exc_info=True)

    def end(self) -> None:
        """End it, and wait for its end."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except OSError:
            _logger.debug("the process of the shared Spark is gone", exc_info=True)
        try:
            self.process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._thread.join(_END_WITHIN_S)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                self._heard(self, json.loads(line))
        self._ended(self, self.process.wait())
