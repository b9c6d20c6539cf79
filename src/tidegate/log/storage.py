"""Whether the data directory can be written: what health, metrics, the portal and jobs say about its disk.

A disk may be full, over a quota, failing or mounted read-only. Events that were acknowledged can be read all the
same. Publishers get a retryable error, and everything that has to be written is tried again until it succeeds, so
nobody has to do anything once there is space. What fails is found by the writes themselves, and by a small file that
`Storage.check` writes now and then, so that a disk that nobody writes to is known to be full, too.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tidegate.durable_files import replace_file
from tidegate.log.errors import LogError
from tidegate.log.protocol import PartitionStore

FILE_NAME = "storage-check"
_CHECK_BYTES = 4096
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StorageStatus:
    """The state of the data directory's disk.

    Attributes:
        reason: Why something cannot be written; None if everything can.
        since_s: Since when, Unix time; None if everything can be written.
        free_bytes: What is free on the disk; None if the system does not say.
        size_bytes: The size of the disk.
        last_write_s: When something was last made durable, Unix time.
        refused_appends: How many publications could not be stored since the start.
        is_of_cluster: Whether it is a cluster of Kafka that takes no events, and not the disk.
    """

    reason: str | None
    since_s: float | None
    free_bytes: int | None
    size_bytes: int | None
    last_write_s: float
    refused_appends: int
    is_of_cluster: bool = False

    @property
    def is_writable(self) -> bool:
        """Whether everything can be written."""
        return self.reason is None

    def as_json(self) -> dict[str, str | int | bool | None]:
        """Return it for programs."""
        return {
            "writable": self.is_writable,
            "reason": self.reason,
            "since": _iso(self.since_s),
            "freeBytes": self.free_bytes,
            "sizeBytes": self.size_bytes,
            "lastDurableWrite": _iso(self.last_write_s),
            "refusedPublications": self.refused_appends,
        }


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


class Storage:
    """The disk of one data directory. Safe to call from any thread."""

    def __init__(self, data_dir: Path, logs: Callable[[], Iterable[PartitionStore]]) -> None:
        """`logs` returns the logs that are open."""
        self._data_dir = data_dir
        self._logs = logs
        self._lock = threading.Lock()
        self._failure: tuple[str, float] | None = None
        self._last_write_s = time.time()
        self._postponed: list[Callable[[], None]] = []
        self._listeners: list[Callable[[str | None], None]] = []

    def on_check(self, listener: Callable[[str | None], None]) -> None:
        """Have `check` call `listener` with the reason why something cannot be written, None if everything can."""
        self._listeners.append(listener)

    def postpone(self, work: Callable[[], None]) -> None:
        """Have `check` call `work` until it raises neither OSError nor LogError."""
        with self._lock:
            self._postponed.append(work)

    def status(self) -> StorageStatus:
        """Return the present state, without writing."""
        logs = list(self._logs())
        failures = [
            (found.reason, found.since_s, log.topic is not None)
            for log in logs
            if (found := log.write_failure) is not None
        ]
        with self._lock:
            if self._failure is not None:
                failures.append((*self._failure, False))
            last_write_s = self._last_write_s
        reason, since_s, is_of_cluster = min(failures, key=lambda failure: failure[1], default=(None, None, False))
        free: int | None
        size: int | None
        try:
            disk = shutil.disk_usage(self._data_dir)
            free, size = disk.free, disk.total
        except OSError:
            free, size = None, None
        return StorageStatus(
            reason=reason,
            since_s=since_s,
            free_bytes=free,
            size_bytes=size,
            last_write_s=max([last_write_s, *(log.last_write_s for log in logs)]),
            refused_appends=sum(log.refused_appends for log in logs),
            is_of_cluster=is_of_cluster,
        )

    def check(self) -> None:
        """Write a small file, and try again what has failed before. Waits for the disk."""
        self._try_to_write()
        reason = self.status().reason
        for listener in self._listeners:
            listener(reason)

    def _try_to_write(self) -> None:
        try:
            replace_file(self._data_dir / FILE_NAME, bytes(_CHECK_BYTES), mode=0o640)
            self._do_postponed()
        except (OSError, LogError) as error:
            self._note_failure(str(error))
            return
        for log in self._logs():
            log.try_again()
        with self._lock:
            failure, self._failure = self._failure, None
            self._last_write_s = time.time()
        if failure is not None:
            _logger.warning("%s can be written again after %.0f s", self._data_dir, time.time() - failure[1])

    def _do_postponed(self) -> None:
        while self._postponed:
            self._postponed[0]()
            with self._lock:
                del self._postponed[0]

    def _note_failure(self, reason: str) -> None:
        with self._lock:
            former = self._failure
            self._failure = (reason, time.time() if former is None else former[1])
        if former is None or former[0] != reason:
            _logger.error(
                "%s cannot be written: %s. Events can be read; until it is writable, publishers get a retryable error",
                self._data_dir,
                reason,
            )
