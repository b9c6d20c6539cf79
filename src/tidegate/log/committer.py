"""The threads that write and sync.

A log that has something to store hands itself over once; while a sync is under way more appends gather behind it and go
together with the next. So a group is as large as the disk is slow, and a lone append never waits for company.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

_logger = logging.getLogger(__name__)


class Committer:
    """A few threads that run what they are handed, in turn. One committer serves all logs of a process."""

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
        """Finish what was submitted and end the threads. Close the logs first."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
