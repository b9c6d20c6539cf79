"""A running query, with the interface of Spark's ``StreamingQuery``."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tidegate.connectors.model.retry_policy import Waiting
from tidegate.job import JobError, Step
from tidegate.spark.streaming.causes import cause_of
from tidegate.spark.streaming.display import query_html
from tidegate.spark.streaming.progress import ProgressLog

_logger = logging.getLogger("tidegate.spark.stream")
_GRACE_S = 0.7
_MOST_NOTICES = 100
_INTERRUPTED_S = 0.4


class Phase(StrEnum):
    """What a query does at the moment; the text is that of its status."""

    INITIALIZING = "Initializing sources"
    PROCESSING = "Processing new data"
    WAITING = "Waiting for data to arrive"
    STOPPED = "Stopped"
    FAILED = "Terminated with exception"


class QueryStopped(BaseException):
    """Raised within the thread of a query that should stop; not an `Exception`, which a user's function may handle."""


class StreamingQueryFailed(StreamingQueryException):
    """What has ended a query; a `StreamingQueryException` of PySpark, whose message begins with the root cause.

    Attributes:
        code: what has happened, for programs: that of a `JobError`, the error condition of Spark, or `DISK_FULL`,
            `OUT_OF_MEMORY`, `SPARK_FAILED`, or `USER_CODE_FAILED` for an exception in ``foreachBatch``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class QueryControl:
    """What the thread of a query and those of its users share."""

    def __init__(self, interval_s: float = 0.0, on_notice: Callable[[str], None] | None = None) -> None:
        """
        Args:
            interval_s: a step begins at the earliest so long after the one before it.
            on_notice: called with what the run says; if it fails, that is logged.
        """
        self._interval_s = interval_s
        self._on_notice = on_notice
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._opened = threading.Event()
        self._begins_at = 0.0
        self._began_steps = 0
        # The number of the latest step that found everything read.
        self._caught_up_step = 0
        self.phase = Phase.INITIALIZING
        self.notices: deque[str] = deque(maxlen=_MOST_NOTICES)
        self.wait = ""
        self.has_more = False

    @property
    def is_stopping(self) -> bool:
        """Whether the query should stop."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Ask the query to stop."""
        self._stopping.set()

    def should_stop(self) -> bool:
        """Wait for the time of the next step, and return whether there is none; called by the query before each."""
        pause_s = self._begins_at - time.monotonic()
        if pause_s > 0:
            self._stopping.wait(pause_s)
        self._begins_at = time.monotonic() + self._interval_s
        with self._changed:
            self._began_steps += 1
        return self._stopping.is_set()

    def sleep(self, seconds: float) -> None:
        """Pause while an input or output is unavailable.

        Raises:
            QueryStopped: the query should stop, so it does not wait.
        """
        if self._stopping.wait(seconds):
            raise QueryStopped

    def note_opened(self) -> None:
        """Note that everything could be opened."""
        self.phase, self.wait = Phase.WAITING, ""
        self._opened.set()

    def note_step(self, step: Step) -> None:
        """Note a step."""
        with self._changed:
            self.phase = Phase.PROCESSING if step.events or step.result_count else Phase.WAITING
            self.wait, self.has_more = "", not step.caught_up
            if step.caught_up:
                self._caught_up_step = self._began_steps
            self._changed.notify_all()

    def notice(self, text: str) -> None:
        """Note what the run says; while it waits for an input or output, users need not wait for it to open.

        Raises:
            QueryStopped: the query should stop, so it does not wait.
        """
        _logger.warning(text)
        self.notices.append(text)
        if self._on_notice is not None:
            try:
                self._on_notice(text)
            except Exception:
                _logger.exception("on_notice failed; the query continues")
        if isinstance(text, Waiting):
            self.wait = text
            self._opened.set()
        if self.is_stopping:
            raise QueryStopped

    def note_end(self, phase: Phase) -> None:
        """Note the end of the query."""
        with self._changed:
            self.phase = phase
            self._opened.set()
            self._changed.notify_all()

    def await_opening(self) -> None:
        """Wait until everything is open, or waits for something, or has failed."""
        self._opened.wait()

    def await_all_available(self) -> None:
        """Wait until a step that began after this call has found everything read."""
        with self._changed:
            since = self._began_steps
            ended = (Phase.STOPPED, Phase.FAILED)
            self._changed.wait_for(lambda: self._caught_up_step > since or self.phase in ended)


class StreamingQuery:
    """A query that runs; its methods are those of ``pyspark.sql.streaming.StreamingQuery``."""

    def __init__(
        self,
        log: ProgressLog,
        control: QueryControl,
        life: Callable[[QueryControl], None],
        interrupt: Callable[[], None],
        stop_timeout_s: float | None = None,
    ) -> None:
        """
        Args:
            life: runs the query; called in a thread of its own.
            interrupt: cancels what the query runs on Spark.
            stop_timeout_s: how long `stop` waits; None: until the query has ended.
        """
        self._log = log
        self._control = control
        self._life = life
        self._interrupt = interrupt
        self._stop_timeout_s = stop_timeout_s
        self._failure: BaseException | None = None
        self._is_over = False
        name = f"stream execution thread for {log.identity.name or log.identity.id}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def begin(self) -> StreamingQuery:
        """Start the thread, and return once the query is open.

        Raises:
            JobError: it cannot start.
        """
        self._thread.start()
        self._control.await_opening()
        if self._failure is not None and self._control.phase is Phase.FAILED:
            raise self._failure
        return self

    @property
    def id(self) -> str:
        """The query's identity, which belongs to its checkpoint."""
        return self._log.identity.id

    @property
    def runId(self) -> str:
        """The identity of this start of the query."""
        return self._log.identity.run

    @property
    def name(self) -> str | None:
        """The name that ``queryName`` gave it."""
        return self._log.identity.name

    @property
    def isActive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    @property
    def status(self) -> dict[str, Any]:
        """What it does at the moment: ``message``, ``isDataAvailable`` and ``isTriggerActive``, as Spark has them.

        ``notices`` has the latest hundred messages of the run, such as events that it skipped. They are also logged
        as warnings, by the logger ``tidegate.spark.stream``.
        """
        control = self._control
        message = control.wait or str(control.phase)
        if control.phase is Phase.FAILED:
            message = f"{Phase.FAILED}: {cause_of(self._failure).text}" if self._failure else str(Phase.FAILED)
        return {
            "message": message,
            "isDataAvailable": self.isActive and control.has_more,
            "isTriggerActive": self.isActive and control.phase is Phase.PROCESSING,
            "notices": [str(text) for text in list(control.notices)],
        }

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        """The report of the last step that read an event or had a result; None before the first."""
        return self._log.last()

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        """The latest reports, the oldest first; ``spark.sql.streaming.numRecentProgressUpdates`` of them."""
        return self._log.recent()

    def _repr_html_(self) -> str:
        """Return what a notebook shows of it."""
        status = self.status
        return query_html(self.name or self.id, status["message"], self._log.reports(), status["notices"])

    def stop(self) -> None:
        """Stop the query, and return when it has ended.

        A step that does not end within a second is interrupted, on Spark and in Python. It is handed over again by the
        next start. What waits outside of Python, such as for a socket without a timeout, is waited for.

        Raises:
            TimeoutError: it has not ended within ``spark.sql.streaming.stopTimeout``.
        """
        self._control.stop()
        if threading.current_thread() is self._thread:
            return
        began = time.monotonic()
        self._thread.join(_GRACE_S)
        while self._thread.is_alive():
            self._interrupt()
            self._thread.join(_INTERRUPTED_S)
            if not self._is_over:
                _raise_in(self._thread)
            self._thread.join(_GRACE_S)
            if self._stop_timeout_s is not None and time.monotonic() - began > self._stop_timeout_s:
                if self._thread.is_alive():
                    raise TimeoutError(f"query {self.name or self.id} has not stopped within {self._stop_timeout_s} s")
                return

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query has ended.

        Args:
            timeout: for how long, in seconds; None: without limit.

        Returns:
            Whether it has ended, if there is a timeout.

        Raises:
            StreamingQueryFailed: it has ended with an exception.
            ValueError: the timeout is not positive.
        """
        if timeout is not None and timeout <= 0:
            raise ValueError(f"timeout is a positive number of seconds, got {timeout}")
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self._raise_failure()
        return None if timeout is None else not self._thread.is_alive()

    def processAllAvailable(self) -> None:
        """Wait until every event that is there has been read, and every result that is complete has been handed over.

        Raises:
            StreamingQueryFailed: the query has ended with an exception.
        """
        self._control.await_all_available()
        if self._control.phase is Phase.FAILED:
            self._raise_failure()

    def exception(self) -> StreamingQueryFailed | None:
        """Return what has ended the query; None if it runs or was stopped."""
        failure = self._failure
        if failure is None:
            return None
        cause = cause_of(failure)
        query = f"query {self.name}, " if self.name else "query "
        exception = StreamingQueryFailed(cause.code, f"{cause.text} [{query}id = {self.id}, runId = {self.runId}]")
        exception.__cause__ = failure
        return exception

    def _raise_failure(self) -> None:
        exception = self.exception()
        if exception is not None:
            raise exception

    def _run(self) -> None:
        # An interruption may come when the life is over.
        with contextlib.suppress(QueryStopped):
            self._live()
        self._control.note_end(Phase.STOPPED if self._failure is None else Phase.FAILED)

    def _live(self) -> None:
        control = self._control
        try:
            self._life(control)
        except QueryStopped:
            pass
        except BaseException as error:
            # What was interrupted fails in some way or other; the next start takes it up.
            interrupted = control.is_stopping and isinstance(error, JobError | PySparkException | Py4JError)
            if not interrupted:
                self._failure = error
        self._is_over = True


def _raise_in(thread: threading.Thread) -> None:
    """Raise `QueryStopped` in a thread, as soon as it executes Python."""
    if thread.is_alive() and thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(QueryStopped))
