"""The threads that write and sync.

A log with appends to store submits itself once. Appends that arrive during a sync are stored together by the next one,
so groups grow with the disk's latency, and a lone append never waits for others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

_logger = logging.getLogger(__name__)


class Committer:
    """A small thread pool that runs submitted work in order. One committer serves all logs of a process."""

    def __init__(self, threads: int = 4) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"log-committer-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` soon in one of the threads."""
        self._queue.put(work)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception:
                # a fault in one log must not stop the others
                _logger.exception("a commit failed unexpectedly")

    def close(self) -> None:
        """Finish the submitted work and stop the threads. Close the logs first."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
