"""Capture in a thread of its own: destinations are slow, and clients shall not wait for them."""

from __future__ import annotations

import logging
import threading

from tidegate.hub.captures import Captures
from tidegate.log import Clock

_logger = logging.getLogger(__name__)
_PAUSE_S = 1.0
_STOP_WITHIN_S = 0.5


class Capturing:
    """Steps the captures from now on, until `stop`."""

    def __init__(self, captures: Captures, clock: Clock) -> None:
        """Raises what Captures.open raises."""
        captures.open()
        self._captures = captures
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End with the step under way; one that its destination holds up is left, as a crash would leave it."""
        self._stopping.set()
        self._thread.join(_STOP_WITHIN_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                busy = self._captures.step(self._clock.now_ms())
            except Exception:
                # a fault in capture must not end it for good: nothing would tell but the missing files
                _logger.exception("capture failed in a way it should not; it is tried again")
                busy = False
            self._stopping.wait(0 if busy else _PAUSE_S)
        self._captures.close()
