"""The clocks that stamp arrival.

The watermark of an idle partition rests on the hub's guarantee that no later event has an earlier enqueued time. The
guarantee must hold even if the hub is killed and restarts with the machine's clock set back. So it never exceeds a
ceiling that was made durable first.
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

from tidegate.durable_files import DirectoryLock, FileDamaged, refuses_writes, replace_file

_logger = logging.getLogger(__name__)
_LEASE = Struct("<qI")
_WORTH_A_WARNING_MS = 60_000


class Clock(Protocol):
    """Milliseconds since 1970-01-01T00:00:00Z, never going back. Safe to call from any thread."""

    def now_ms(self) -> int:
        """Return the time to stamp an arriving event with, never below an arrival lower bound returned before."""

    def arrival_lower_bound_ms(self) -> int:
        """Return a time that no later `now_ms` is below, even after a crash or with the machine's clock set back."""


def wall_clock_ms() -> int:
    """Return the time of the machine's clock."""
    return time.time_ns() // 1_000_000


def expiry_time_ms(clock: Clock) -> int:
    """Return the time by which something is old enough to be deleted.

    A clock that never goes back stays ahead when the machine's was ahead for a moment. That must not delete what came
    before, so the machine's time counts where it is behind; what was stamped meanwhile is only kept for longer.
    """
    return min(clock.now_ms(), wall_clock_ms())


class LogClock:
    """The machine's clock made monotonic across restarts by a lease, which is kept in the file `path`.

    The lease names a ceiling that no arrival lower bound exceeds. A start takes the ceiling it finds as its floor, so
    after a crash the clock may run up to `lease_ms` ahead until the machine's clock has caught up. A thread renews the
    lease while lower bounds are requested; neither `now_ms` nor `arrival_lower_bound_ms` waits for the disk.
    """

    def __init__(self, path: Path, *, wall_ms: Callable[[], int] = wall_clock_ms, lease_ms: int = 1000) -> None:
        """Continue the lease in `path`, or begin one.

        Raises:
            DirectoryLocked: Another process uses the lease.
            FileDamaged: The lease cannot be trusted; the message says what to do.
            OSError: The lease cannot be read or written.
        """
        self._directory_lock = DirectoryLock(path.parent, path.name + ".lock")
        try:
            self._path = path
            self._wall_ms = wall_ms
            self._lease_ms = lease_ms
            self._lock = threading.Lock()
            self._last_ms = max(_read_lease(path), wall_ms())
            self._ceiling_ms = 0
            self._is_behind = False
            self._closed = False
            self._failing_since_s: float | None = None
            self._renewal = threading.Event()
            try:
                self.renew()
            except OSError as error:
                if not refuses_writes(error) or not path.exists():
                    raise
                self._ceiling_ms = _read_lease(path)  # what was promised before holds; more is promised with the next
                self._note_failure(error)
        except BaseException:
            self._directory_lock.release()
            raise
        self._thread = threading.Thread(target=self._renew_on_demand, name="log-clock", daemon=True)
        self._thread.start()

    def now_ms(self) -> int:
        with self._lock:
            now = self._wall_ms()
            behind_ms = self._last_ms - now
            if behind_ms < 0:
                self._last_ms, self._is_behind = now, False
            last = self._last_ms
        if behind_ms > _WORTH_A_WARNING_MS and not self._is_behind:
            self._is_behind = True
            _logger.warning(
                "the machine's clock is %d s behind the last enqueued time: until it has caught up, events are stamped "
                "with that time",
                behind_ms // 1000,
            )
        return last

    def arrival_lower_bound_ms(self) -> int:
        with self._lock:
            self._last_ms = max(self._last_ms, self._wall_ms())
            last, ceiling = self._last_ms, self._ceiling_ms
        if last + self._lease_ms // 2 > ceiling:
            self._renewal.set()
        return min(last, ceiling)

    def renew(self) -> None:
        """Make a new ceiling durable. Raises OSError."""
        ceiling = self.now_ms() + self._lease_ms
        _write_lease(self._path, ceiling)
        with self._lock:
            self._ceiling_ms = max(self._ceiling_ms, ceiling)

    def _renew_on_demand(self) -> None:
        while True:
            self._renewal.wait()
            if self._closed:
                return
            self._renewal.clear()
            try:
                self.renew()
            except OSError as error:
                self._note_failure(error)
                time.sleep(self._lease_ms / 4000)
            else:
                self._note_success()

    def _note_failure(self, error: OSError) -> None:
        if self._failing_since_s is None:
            self._failing_since_s = time.monotonic()
            _logger.warning("the clock's lease cannot be renewed, so idle watermarks do not advance: %s", error)

    def _note_success(self) -> None:
        if self._failing_since_s is not None:
            lasted_s = time.monotonic() - self._failing_since_s
            self._failing_since_s = None
            _logger.warning("the clock's lease is renewed again, after %.0f s", lasted_s)

    def close(self) -> None:
        """Return the unused part of the lease, so that the next start need not run ahead."""
        self._closed = True
        self._renewal.set()
        self._thread.join()
        with self._lock:
            last = self._ceiling_ms = min(self._last_ms, self._ceiling_ms)
        try:
            _write_lease(self._path, last)
        except OSError as error:
            _logger.warning("the clock's lease cannot be returned: %s", error)
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
    raise FileDamaged(
        path,
        "its checksum differs from its content",
        "restore it from a backup, or delete it if the machine's clock is right and was not set back since the hub "
        "last ran",
    )


def _write_lease(path: Path, ceiling_ms: int) -> None:
    body = ceiling_ms.to_bytes(8, "little", signed=True)
    replace_file(path, body + crc32c(body).to_bytes(4, "little"), mode=0o640)
