"""The clocks that stamp arrival.

A watermark of an idle partition rests on the hub's word that no later event will carry an earlier enqueued time. The
word must hold when the hub is killed and comes up again with the machine's clock set back, so it is given only up to a
ceiling that was made durable before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Protocol

from google_crc32c import value as crc32c

from tidegate.durable_files import DirectoryLock, replace_file

_logger = logging.getLogger(__name__)
_LEASE = Struct("<qI")
_WORTH_TELLING_MS = 60_000


class Clock(Protocol):
    """Milliseconds since 1970-01-01T00:00:00Z, never going back. Safe to call from any thread."""

    def now_ms(self) -> int:
        """The time to stamp an event with that arrives now; not below any promise."""

    def promise(self) -> int:
        """A time that no later `now_ms` will be below, not even after a crash or with the machine's clock set back."""


def wall_clock_ms() -> int:
    """The machine's clock."""
    return time.time_ns() // 1_000_000


class LogClock:
    """The machine's clock made monotonic over restarts, by a lease kept in the file `path`.

    The lease names a ceiling: no promise goes above it. A start takes the ceiling it finds as its floor, so after a
    crash the clock may run up to `lease_ms` ahead until the machine's clock has caught up. A thread renews the lease
    while promises are asked for; neither `now_ms` nor `promise` ever waits for the disk.
    """

    def __init__(self, path: Path, *, wall_ms: Callable[[], int] = wall_clock_ms, lease_ms: int = 1000) -> None:
        self._directory_lock = DirectoryLock(path.parent, path.name + ".lock")
        self._path = path
        self._wall_ms = wall_ms
        self._lease_ms = lease_ms
        self._lock = threading.Lock()
        self._last_ms = max(_read_lease(path), wall_ms())
        self._ceiling_ms = 0
        self._is_behind = False
        self._closed = False
        self._renewal = threading.Event()
        self.renew()
        self._thread = threading.Thread(target=self._renew_on_demand, name="log-clock", daemon=True)
        self._thread.start()

    def now_ms(self) -> int:
        """See Clock."""
        with self._lock:
            now = self._wall_ms()
            if now > self._last_ms:
                self._last_ms = now
            return self._last_ms

    def promise(self) -> int:
        """See Clock. Stays behind, and is right all the same, while the lease cannot be renewed."""
        with self._lock:
            self._last_ms = max(self._last_ms, self._wall_ms())
            last, ceiling = self._last_ms, self._ceiling_ms
        if last + self._lease_ms // 2 > ceiling:
            self._renewal.set()
        return min(last, ceiling)

    def renew(self) -> None:
        """Make a new ceiling durable. Raises OSError."""
        now = self.now_ms()
        self._tell_of_a_machine_behind(now - self._wall_ms())
        ceiling = now + self._lease_ms
        _write_lease(self._path, ceiling)
        with self._lock:
            self._ceiling_ms = max(self._ceiling_ms, ceiling)

    def _tell_of_a_machine_behind(self, behind_ms: int) -> None:
        if behind_ms > _WORTH_TELLING_MS and not self._is_behind:
            _logger.warning(
                "the machine's clock is %d s behind the last enqueued time: until it has caught up, events are stamped "
                "with that time",
                behind_ms // 1000,
            )
        self._is_behind = behind_ms > _WORTH_TELLING_MS

    def _renew_on_demand(self) -> None:
        while True:
            self._renewal.wait()
            if self._closed:
                return
            self._renewal.clear()
            try:
                self.renew()
            except OSError as error:
                _logger.warning("the clock's lease cannot be renewed, idle watermarks stand still: %s", error)
                time.sleep(self._lease_ms / 4000)

    def close(self) -> None:
        """Give back what is left of the lease, so that the next start need not run ahead."""
        self._closed = True
        self._renewal.set()
        self._thread.join()
        with self._lock:
            last = self._ceiling_ms = min(self._last_ms, self._ceiling_ms)
        try:
            _write_lease(self._path, last)
        except OSError as error:
            _logger.warning("the clock's lease stays as it is: %s", error)
        self._directory_lock.release()


def _read_lease(path: Path) -> int:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    if len(data) == _LEASE.size:
        ceiling, crc = _LEASE.unpack(data)
        if crc32c(data[:8]) == crc:
            return int(ceiling)
    _logger.warning(
        "%s is damaged: enqueued times continue from the machine's clock and the partitions' last events", path
    )
    return 0


def _write_lease(path: Path, ceiling_ms: int) -> None:
    body = ceiling_ms.to_bytes(8, "little", signed=True)
    replace_file(path, body + crc32c(body).to_bytes(4, "little"), mode=0o640)
