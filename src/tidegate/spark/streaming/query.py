"""A query of Spark whose rows an evaluation beside it computes, and the evaluation.

The query is PySpark's own `StreamingQuery`: it has Spark's triggers, progress, listeners and checkpoint. The evaluation
runs in a thread of this process. Each ends the other: the stream fails with the evaluation (`step_source`), and a query
that has ended, for whatever reason, stops the evaluation.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from tidegate.connectors.model.retry_policy import WaitingNotice
from tidegate.job import JobError
from tidegate.spark.streaming.causes import cause_of
from tidegate.spark.streaming.display import query_html

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery as _StreamingQuery
else:
    # The class depends on the session: Spark Connect has another.
    _StreamingQuery = object

_logger = logging.getLogger("tidegate.spark.stream")
_GRACE_S = 0.7
_MOST_NOTICES = 100
_MOST_REPORTS = 100
_INTERRUPTED_S = 0.4
_FULL_S = 0.01


class QueryStopped(BaseException):
    """Raised within a thread of a query that should stop; not an `Exception`, which a user's function may handle."""


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
    """What the thread of an evaluation and those of its users share."""

    def __init__(
        self,
        interval_s: float = 0.0,
        on_notice: Callable[[str], None] | None = None,
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            interval_s: a step begins at the earliest so long after the one before it.
            on_notice: called with what the run says; if it fails, that is logged.
            is_full: returns whether so many steps wait for Spark that there should be no more for now.
        """
        self._interval_s = interval_s
        self._on_notice = on_notice
        self._is_full = is_full
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._hurry = threading.Event()
        self._opened = threading.Event()
        self._begins_at = 0.0
        self._began_steps = 0
        # The number of the latest step that found everything read.
        self._caught_up_step = 0
        self._is_over = False
        self.notices: deque[str] = deque(maxlen=_MOST_NOTICES)
        self.reports: deque[Mapping[str, Any]] = deque(maxlen=_MOST_REPORTS)
        self.wait = ""

    @property
    def is_stopping(self) -> bool:
        """Whether the evaluation should stop."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Ask the evaluation to stop."""
        self._stopping.set()
        self._hurry.set()

    def should_stop(self) -> bool:
        """Wait for the time of the next step, and return whether there is none; called before each."""
        pause_s = self._begins_at - time.monotonic()
        if pause_s > 0:
            self._stopping.wait(pause_s)
        while self._is_full() and not self._stopping.wait(_FULL_S):
            pass
        self._begins_at = time.monotonic() + self._interval_s
        with self._changed:
            self._began_steps += 1
        return self._stopping.is_set()

    def rest(self, seconds: float) -> None:
        """Pause after a step that found nothing to read, unless somebody waits for the next step."""
        self._hurry.wait(seconds)
        self._hurry.clear()

    def sleep(self, seconds: float) -> None:
        """Pause while an input or output is unavailable.

        Raises:
            QueryStopped: the evaluation should stop, so it does not wait.
        """
        if self._stopping.wait(seconds):
            raise QueryStopped

    def note_opened(self) -> None:
        """Note that everything could be opened."""
        self.wait = ""
        self._opened.set()

    def note_step(self, *, caught_up: bool) -> None:
        """Note a step, and whether it has found everything read."""
        with self._changed:
            self.wait = ""
            if caught_up:
                self._caught_up_step = self._began_steps
            self._changed.notify_all()

    def notice(self, text: str) -> None:
        """Note what the run says; while it waits for an input or output, users need not wait for it to open.

        Raises:
            QueryStopped: the evaluation should stop, so it does not wait.
        """
        _logger.warning(text)
        self.notices.append(text)
        if self._on_notice is not None:
            try:
                self._on_notice(text)
            except Exception:
                _logger.exception("on_notice failed; the query continues")
        if isinstance(text, WaitingNotice):
            self.wait = text
            self._opened.set()
        if self.is_stopping:
            raise QueryStopped

    def note_end(self) -> None:
        """Note the end of the evaluation."""
        with self._changed:
            self._is_over = True
            self._opened.set()
            self._changed.notify_all()

    def await_opening(self) -> None:
        """Wait until everything is open, or waits for something, or has failed."""
        self._opened.wait()

    def await_all_available(self) -> None:
        """Wait until a step that began after this call has found everything read."""
        with self._changed:
            since = self._began_steps
            self._hurry.set()
            self._changed.wait_for(lambda: self._caught_up_step > since or self._is_over)


class QueryEvaluation:
    """The evaluation of a query, in a thread of its own."""

    def __init__(
        self,
        control: QueryControl,
        life: Callable[[QueryControl], None],
        interrupt: Callable[[], None],
        end: Callable[[str], None],
        awaited: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        """
        Args:
            life: runs the query.
            interrupt: cancels what the query runs on Spark.
            end: called once it has ended, with the reason if it has failed, and an empty text otherwise.
            awaited: returns a context in which somebody waits until Spark has written all results.
        """
        self.awaited = awaited
        self.control = control
        self.failure: BaseException | None = None
        self._life = life
        self._interrupt = interrupt
        self._end = end
        self._is_over = False
        # Whether the stream knows how it has ended.
        self.has_reported_end = False
        self._thread = threading.Thread(target=self._run, name="tidegate-evaluation", daemon=True)

    def begin(self) -> None:
        """Start the thread, and return once the query is open.

        Raises:
            JobError: it cannot start.
        """
        self._thread.start()
        self.control.await_opening()
        if self.failure is not None:
            self._thread.join()
            raise self.failure

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    @property
    def is_over(self) -> bool:
        """Whether it has ended by itself."""
        return not self._thread.is_alive() and not self.control.is_stopping

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until it has ended, if it is not this thread."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def stop(self) -> None:
        """Stop it, and return when it has ended.

        A step that does not end within a second is interrupted, on Spark and in Python. The next start takes it again.
        """
        self.control.stop()
        if threading.current_thread() is self._thread:
            return
        self._thread.join(_GRACE_S)
        while self._thread.is_alive():
            self._interrupt()
            self._thread.join(_INTERRUPTED_S)
            if not self._is_over:
                _raise_in(self._thread.ident)
            self._thread.join(_GRACE_S)

    def _run(self) -> None:
        # An interruption may come when the life is over.
        with contextlib.suppress(QueryStopped):
            self._live()
        reason = "" if self.failure is None else cause_of(self.failure).text
        try:
            self._end(reason)
            self.has_reported_end = True
        except OSError as error:
            self.failure = self.failure or error
            _logger.warning("cannot tell Spark that the evaluation has ended: %s", error)
        self.control.note_end()

    def _live(self) -> None:
        control = self.control
        try:
            self._life(control)
        except QueryStopped:
            pass
        except BaseException as error:
            # What was interrupted fails in some way or other; the next start takes it up.
            interrupted = control.is_stopping and isinstance(error, JobError | PySparkException | Py4JError)
            if not interrupted:
                self.failure = error
        self._is_over = True


class UserFunction:
    """A function that Spark calls with each batch, in a thread of this process."""

    def __init__(self, function: Callable[[Any, int], Any], interrupt: Callable[[], None] = lambda: None) -> None:
        """
        Args:
            interrupt: cancels what it waits for in another thread, if that is not a job of Spark.
        """
        self._function = function
        self._cancel = interrupt
        self._thread: int | None = None
        self.failure: Exception | None = None

    def __call__(self, rows: Any, batch: int) -> None:
        """Call the function. Raises what it raises."""
        self._thread = threading.get_ident()
        try:
            self._function(rows, batch)
        except QueryStopped:
            # py4j passes on nothing but an `Exception`.
            raise RuntimeError("interrupted, as the query was stopped") from None
        except Exception as error:
            self.failure = error
            raise
        finally:
            self._thread = None

    @property
    def is_caller(self) -> bool:
        """Whether this thread is the one in which it runs."""
        return self._thread == threading.get_ident()

    def interrupt(self) -> None:
        """Interrupt the call that lasts, if there is one."""
        self._cancel()
        _raise_in(self._thread)


class EvaluatedQuery(_StreamingQuery):
    """What the queries that `stream` starts have beyond PySpark's `StreamingQuery`, which is their other base.

    Attributes:
        outputs: by name, the query of each output. If there are several, this one is that of the output selected last,
            and `stop`, `awaitTermination`, `processAllAvailable` and `exception` are about them all.
    """

    outputs: Mapping[str, EvaluatedQuery]
    _evaluation: QueryEvaluation
    _functions: Sequence[UserFunction]
    _watches: Sequence[threading.Thread]
    _was_stopped = False

    @property
    def notices(self) -> list[str]:
        """The latest hundred messages of the evaluation, such as events that it skipped.

        They are also logged as warnings, by the logger ``tidegate.spark.stream``.
        """
        return [str(text) for text in list(self._evaluation.control.notices)]

    @property
    def evaluation(self) -> list[Mapping[str, Any]]:
        """The latest hundred steps of the evaluation that read an event or had a result, the oldest first.

        They have the form of Spark's progress, with the events read from each input in place of the rows that Spark
        has read, and the watermark in ``eventTime``.
        """
        return list(self._evaluation.control.reports)

    @property
    def watermark(self) -> str | None:
        """The watermark after the latest of these steps; None while there is none."""
        reports = self.evaluation
        return reports[-1]["eventTime"].get("watermark") if reports else None

    @property
    def status(self) -> dict[str, Any]:
        """What it does at the moment, as Spark has it, with the ``notices``.

        While the evaluation waits for an input, the message names it.
        """
        status: dict[str, Any] = super().status
        if self._evaluation.control.wait and self._evaluation.is_alive:
            status["message"] = str(self._evaluation.control.wait)
        if self._was_stopped and not self._runs():
            status["message"] = "Stopped"
        return {**status, "notices": self.notices}

    def stop(self) -> None:
        """Stop the query, and return when it has ended.

        A step or a function that does not end within a second is interrupted, on Spark and in Python. The next start
        takes it again. What waits outside of Python, such as for a socket without a timeout, is waited for.
        """
        self._was_stopped = self._was_stopped or (self._runs() and self._evaluation.failure is None)
        self._evaluation.control.stop()
        errors: list[BaseException] = []

        def stop_all() -> None:
            for query in self.outputs.values():
                try:
                    # PySpark's own method.
                    super(EvaluatedQuery, query).stop()
                except BaseException as error:
                    errors.append(error)

        stopping = threading.Thread(target=stop_all, name="tidegate-stop", daemon=True)
        stopping.start()
        if any(function.is_caller for function in self._functions):
            return
        self._evaluation.stop()
        stopping.join(_GRACE_S)
        while stopping.is_alive():
            for function in self._functions:
                function.interrupt()
            stopping.join(_INTERRUPTED_S)
        if errors:
            raise errors[0]
        for watch in self._watches:
            watch.join()

    def awaitTermination(self, timeout: Any = None) -> bool | None:
        """Wait until the query has ended.

        Args:
            timeout: for how long, in seconds; None: without limit.

        Returns:
            Whether it has ended, if there is a timeout.

        Raises:
            StreamingQueryFailed: it has ended with an exception.
        """
        began = time.monotonic()

        def left() -> Any:
            # PySpark has its opinion on a timeout that is not positive.
            if timeout is None or timeout <= 0:
                return timeout
            return max(0.001, timeout - (time.monotonic() - began))

        for query in self.outputs.values():
            with contextlib.suppress(StreamingQueryException):
                if super(EvaluatedQuery, query).awaitTermination(left()) is False:
                    return False
        for watch in self._watches:
            watch.join(left())
            if watch.is_alive():
                return False
        self._raise_failure()
        return None if timeout is None else True

    def processAllAvailable(self) -> None:
        """Wait until every event that is there has been read, and every result that is complete has been written.

        Raises:
            StreamingQueryFailed: the query has ended with an exception.
        """
        self._evaluation.control.await_all_available()
        with self._evaluation.awaited():
            for query in self.outputs.values():
                try:
                    super(EvaluatedQuery, query).processAllAvailable()
                except (PySparkException, Py4JError):
                    if query.isActive:
                        raise
        self._raise_failure()

    def exception(self) -> StreamingQueryFailed | None:
        """Return what has ended the query; None if it runs or was stopped."""
        if self._was_stopped:
            return None
        failure: BaseException | None = self._evaluation.failure
        for function in self._functions:
            failure = failure or function.failure
        for query in self.outputs.values():
            failure = failure or super(EvaluatedQuery, query).exception()
        if failure is None or self._runs():
            return None
        cause = cause_of(failure)
        which = f"query {self.name}, " if self.name else "query "
        of = f"{which}id = {self.id}, runId = {self.runId}"
        exception = StreamingQueryFailed(cause.code, f"{cause.text} [{of}]")
        exception.__cause__ = failure
        return exception

    def _repr_html_(self) -> str:
        """Return what a notebook shows of it."""
        status = self.status
        return query_html(
            self.name or self.id, status["message"], self.lastProgress, self.evaluation, status["notices"]
        )

    def _runs(self) -> bool:
        return any(query.isActive for query in self.outputs.values())

    def _raise_failure(self) -> None:
        exception = self.exception()
        if exception is not None:
            raise exception


def evaluated(
    queries: Mapping[str, Any],
    evaluation: QueryEvaluation,
    functions: Sequence[UserFunction],
    *,
    ends: bool,
    at_end: Callable[[], None] = lambda: None,
) -> EvaluatedQuery:
    """Return queries of Spark, by output, as one that knows its evaluation; they end together from now on.

    Args:
        ends: whether Spark ends them itself once the evaluation has ended.
        at_end: called once all have ended.
    """
    own: dict[str, EvaluatedQuery] = {}
    watches: list[threading.Thread] = []
    for output, query in queries.items():
        kind = type(query)
        made: Any = object.__new__(type(kind.__name__, (EvaluatedQuery, kind), {}))
        made.__dict__.update(
            query.__dict__, outputs=own, _evaluation=evaluation, _functions=functions, _watches=watches
        )
        own[output] = made
    first = next(iter(own.values()))

    left = [*queries.values()]

    def watch(query: Any) -> None:
        failed = True
        # Spark's server may be gone.
        with contextlib.suppress(Exception):
            query.awaitTermination()
            failed = query.exception() is not None
        # At an end that Spark and the evaluation have reached together, the others are about to reach it, too.
        if failed or not ends or not evaluation.is_over:
            evaluation.stop()
            for other in queries.values():
                with contextlib.suppress(Exception):
                    other.stop()
        left.remove(query)
        if not left:
            evaluation.join()
            at_end()

    def end_with_evaluation() -> None:
        evaluation.join()
        if evaluation.control.is_stopping or (evaluation.has_reported_end and (ends or evaluation.failure is not None)):
            return
        for query in queries.values():
            with contextlib.suppress(Exception):
                if evaluation.failure is None:
                    query.processAllAvailable()
                query.stop()

    watches += [
        threading.Thread(target=watch, args=[query], name="tidegate-watch", daemon=True) for query in queries.values()
    ]
    for thread in watches:
        thread.start()
    threading.Thread(target=end_with_evaluation, name="tidegate-end", daemon=True).start()
    return first


def new_run() -> str:
    """Return a name for a run that no other has."""
    return str(uuid.uuid4())


def _raise_in(thread: int | None) -> None:
    """Raise `QueryStopped` in a thread, as soon as it executes Python; not while it starts another thread.

    Until that one runs, Python 3.11 has it under the identity of the thread that starts it, and would raise the error
    there. The starting thread would then wait for ever. Callers try again while the thread lasts.
    """
    if thread is not None and not _starts_a_thread(thread):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(QueryStopped))


def _starts_a_thread(thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not threading.Thread.start.__code__:
        frame = frame.f_back
    return frame is not None
