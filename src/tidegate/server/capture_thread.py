"""The capture thread. Destinations are slow, and clients must not wait for them."""

from __future__ import annotations

import logging
import threading

from tidegate.hub.capture_scheduler import CaptureScheduler
from tidegate.log import Clock

_logger = logging.getLogger(__name__)
_PAUSE_S = 1.0
_STOP_WITHIN_S = 0.5


class CaptureThread:
    """Runs a capture scheduler until `stop`."""

    def __init__(self, scheduler: CaptureScheduler, clock: Clock) -> None:
        """Start capturing. Raises what CaptureScheduler.open raises."""
        scheduler.open()
        self._scheduler = scheduler
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current step. A step that its destination delays is abandoned, as in a crash."""
        self._stopping.set()
        self._thread.join(_STOP_WITHIN_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                busy = self._scheduler.step(self._clock.now_ms())
            except Exception:
                # a fault must not end capture for good: only missing files would show it
                _logger.exception("capture failed unexpectedly; retrying")
                busy = False
            self._stopping.wait(0 if busy else _PAUSE_S)
        self._scheduler.close()
