"""Calls of Spark: in a thread of their own, and with errors that people can read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException


class StepThread:
    """Makes calls in a thread of its own.

    A signal then interrupts the wait for a call, not the call: an interrupted py4j prints pages of errors.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        threading.Thread(target=self._work, name="tidegate-steps", daemon=True).start()

    def call(self, function: Callable[[], Any]) -> Any:
        """Return or raise what the function returns or raises."""
        self._calls.put(function)
        result, error = self._results.get()
        if error is not None:
            raise error
        return result

    def _work(self) -> None:
        while True:
            function = self._calls.get()
            try:
                self._results.put((function(), None))
            except BaseException as error:
                self._results.put((None, error))


def last_line(error: Py4JJavaError | PySparkException) -> str:
    """Extract the task's Python error from Spark's report, which has it between two tracebacks."""
    message = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
    lines = [line.strip() for line in str(message).splitlines()]
    named = [
        line
        for line in lines
        if ": " in line and not line.startswith(("File ", "at ", "Driver stacktrace", "SQLSTATE"))
    ]
    return named[-1] if named else (lines[0] if lines else "no reason given")
