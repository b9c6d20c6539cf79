"""A query and its evaluation end together: at their end, by a stop, and by a failure of either.

Spark's half is a stand-in here; `tests/spark/test_stream_writer.py` has Spark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.patience import PATIENCE_S, PROMPTLY_S, eventually
from tidegate.connectors.model.retry_policy import WaitingNotice
from tidegate.job import JobError
from tidegate.spark.streaming.query import (
    EvaluatedQuery,
    QueryControl,
    QueryEvaluation,
    QueryStopped,
    UserFunction,
    _raise_in,
    evaluated,
)


def test_a_query_at_rest_takes_a_step_at_once_if_somebody_waits_for_all_that_is_there() -> None:
    control = QueryControl()
    resting = threading.Thread(target=control.rest, args=[10 * PATIENCE_S], daemon=True)
    resting.start()
    waiting = threading.Thread(target=control.await_all_available, daemon=True)
    waiting.start()
    resting.join(PATIENCE_S)
    assert not resting.is_alive()
    assert not control.should_stop()
    control.note_step(caught_up=True)
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()


class QueryOfSpark:
    """Stands for PySpark's query: it ends when it is stopped or fails, and never by itself."""

    def __init__(self, ended: threading.Event | None = None) -> None:
        # It may be copied, as PySpark's is, whose state is an object of Java.
        self.ended = ended or threading.Event()
        self.failures: list[str] = []
        self.id, self.runId, self.name, self.lastProgress = "id", "run", "name", None

    @property
    def isActive(self) -> bool:
        return not self.ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        return {"message": "WaitingNotice for data to arrive", "isDataAvailable": False, "isTriggerActive": False}

    def stop(self) -> None:
        self.ended.set()

    def fail(self, why: str) -> None:
        self.failures.append(why)
        self.ended.set()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        if timeout is not None and timeout <= 0:
            raise ValueError("timeout is positive")
        is_over = self.ended.wait(timeout)
        if self.failures:
            raise StreamingQueryException(self.failures[0])
        return None if timeout is None else is_over

    def processAllAvailable(self) -> None:
        if self.failures:
            raise StreamingQueryException(self.failures[0])

    def exception(self) -> StreamingQueryException | None:
        return StreamingQueryException(self.failures[0]) if self.failures else None


class Both:
    """A query and its evaluation."""

    def __init__(self, life: Callable[[QueryControl], None], **settings: Any) -> None:
        self.spark = QueryOfSpark()
        self.told: list[str] = []
        self.settings = settings
        control = QueryControl(settings.pop("interval_s", 0.0), settings.pop("on_notice", None))
        self.evaluation = QueryEvaluation(control, life, settings.pop("interrupt", lambda: None), self.tell)

    def tell(self, failure: str) -> None:
        self.told.append(failure)
        if failure:
            self.spark.fail(f"the stream fails: {failure}")

    def begin(self) -> EvaluatedQuery:
        self.evaluation.begin()
        functions = self.settings.pop("functions", [])
        return evaluated({"o": self.spark}, self.evaluation, functions, **{"ends": False, **self.settings})


def steps_until_stopped(control: QueryControl) -> None:
    control.note_opened()
    while not control.should_stop():
        time.sleep(0.005)
        control.note_step(caught_up=True)


def test_a_query_runs_until_it_is_stopped_and_is_of_sparks_class() -> None:
    both = Both(steps_until_stopped)
    running = both.begin()
    assert isinstance(running, QueryOfSpark)
    assert (running.id, running.runId, running.name) == ("id", "run", "name")
    assert running.isActive
    assert running.awaitTermination(0.01) is False
    assert running.status["message"] == "WaitingNotice for data to arrive"
    running.stop()
    assert not running.isActive
    assert not both.evaluation.is_alive
    assert running.status == {"message": "Stopped", "isDataAvailable": False, "isTriggerActive": False, "notices": []}
    assert '>status</th><td style="text-align: left">Stopped</td>' in running._repr_html_()
    assert running.awaitTermination() is None
    assert running.awaitTermination(1) is True
    assert running.exception() is None
    assert both.told == [""]


def test_an_evaluation_that_has_ended_ends_the_query() -> None:
    at_end = threading.Event()
    both = Both(lambda control: control.note_opened(), at_end=at_end.set)
    assert both.begin().awaitTermination(PATIENCE_S)
    assert at_end.wait(PATIENCE_S)


def test_a_query_that_spark_has_ended_ends_the_evaluation_and_the_other_outputs() -> None:
    both = Both(steps_until_stopped)
    running = both.begin()
    both.spark.stop()
    both.evaluation.join(PATIENCE_S)
    assert not both.evaluation.is_alive
    running.awaitTermination(PATIENCE_S)
    evaluation = Both(steps_until_stopped).evaluation
    evaluation.begin()
    several = {"a": QueryOfSpark(), "b": QueryOfSpark()}
    first = evaluated(several, evaluation, [], ends=False)
    several["b"].fail("a disk is broken")
    with pytest.raises(StreamingQueryException, match="a disk is broken"):
        first.awaitTermination(PATIENCE_S)
    assert [query.isActive for query in first.outputs.values()] == [False, False]
    assert not evaluation.is_alive


def test_what_keeps_it_from_opening_is_raised_by_its_start() -> None:
    def fails(control: QueryControl) -> None:
        raise JobError("another process is running this job")

    with pytest.raises(JobError, match="another process"):
        Both(fails).begin()


def test_a_failure_of_the_evaluation_is_raised_to_those_who_wait_and_told_to_spark() -> None:
    go_on = threading.Event()

    def fails(control: QueryControl) -> None:
        control.note_opened()
        go_on.wait(PATIENCE_S)
        raise JobError("input 'i' has gone\nand more")

    both = Both(fails)
    running = both.begin()
    assert running.exception() is None
    go_on.set()
    with pytest.raises(StreamingQueryException, match=r"^input 'i' has gone") as raised:
        running.awaitTermination(PATIENCE_S)
    assert isinstance(raised.value.__cause__, JobError)
    assert raised.value.code == JobError.code
    assert str(running.exception()).endswith("[query name, id = id, runId = run]")
    assert both.told == ["input 'i' has gone\nand more"]
    with pytest.raises(StreamingQueryException):
        running.processAllAvailable()
    running.stop()
    assert running.exception() is not None, "it had failed before it was stopped"


def test_a_failure_of_a_function_of_the_user_is_named_as_python_names_it() -> None:
    def fails(rows: object, batch: int) -> None:
        raise ZeroDivisionError("in foreachBatch")

    function = UserFunction(fails)
    both = Both(steps_until_stopped, functions=[function])
    running = both.begin()
    with pytest.raises(ZeroDivisionError):
        function(None, 0)
    both.spark.fail("[FOREACH_BATCH_USER_FUNCTION_ERROR] and a stack")
    with pytest.raises(StreamingQueryException, match=r"^ZeroDivisionError: in foreachBatch") as raised:
        running.awaitTermination(PATIENCE_S)
    assert raised.value.code == "USER_CODE_FAILED"
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_an_end_that_spark_cannot_be_told_ends_its_query() -> None:
    go_on = threading.Event()

    def life(control: QueryControl) -> None:
        control.note_opened()
        go_on.wait(PATIENCE_S)

    def fails(failure: str) -> None:
        raise OSError(28, "No space left on device", "state")

    both = Both(life)
    both.evaluation._end = fails
    running = both.begin()
    go_on.set()
    with pytest.raises(StreamingQueryException, match="the disk is full at state") as raised:
        running.awaitTermination(PATIENCE_S)
    assert raised.value.code == "DISK_FULL"


def test_a_start_does_not_wait_for_an_input_that_is_unreachable_and_a_stop_ends_the_wait() -> None:
    def waits(control: QueryControl) -> None:
        while True:
            control.notice(WaitingNotice("input 'i' unreachable since 12:00"))
            time.sleep(0.01)

    running = Both(waits).begin()
    assert running.status["message"] == "input 'i' unreachable since 12:00"
    running.stop()
    assert running.exception() is None


def test_what_a_run_says_is_logged_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    def skips(control: QueryControl) -> None:
        control.note_opened()
        control.reports.append({"eventTime": {"watermark": "2026-01-31T12:00:00Z"}})
        control.notice("input 'i', partition 0: 5 events were removed before they were read")

    ended = Both(skips).begin()
    ended.awaitTermination()
    said = "input 'i', partition 0: 5 events were removed before they were read"
    assert ended.notices == ended.status["notices"] == [said]
    assert (ended.watermark, len(ended.evaluation)) == ("2026-01-31T12:00:00Z", 1)
    assert [(one.name, one.levelname, one.getMessage()) for one in caplog.records] == [
        ("tidegate.spark.stream", "WARNING", said)
    ]


def test_what_a_run_says_reaches_a_function_whose_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def on_notice(text: str) -> None:
        heard.append(text)
        raise ZeroDivisionError("of the user")

    def says(control: QueryControl) -> None:
        control.note_opened()
        control.notice("5 events were skipped")

    ended = Both(says, on_notice=on_notice).begin()
    ended.awaitTermination()
    assert heard == ["5 events were skipped"]
    assert "on_notice failed" in caplog.text


def test_a_stop_ends_a_pause_between_attempts() -> None:
    def waits(control: QueryControl) -> None:
        control.note_opened()
        control.sleep(2 * PATIENCE_S)

    running = Both(waits).begin()
    began = time.monotonic()
    running.stop()
    assert time.monotonic() - began < PROMPTLY_S
    assert running.exception() is None


@pytest.mark.slow
def test_a_step_that_does_not_end_is_interrupted() -> None:
    cancelled = threading.Event()

    def stuck(control: QueryControl) -> None:
        control.note_opened()
        cancelled.wait(PATIENCE_S)
        raise JobError("a step failed on Spark: cancelled")

    running = Both(stuck, interrupt=cancelled.set).begin()
    began = time.monotonic()
    running.stop()
    assert time.monotonic() - began < PROMPTLY_S
    assert running.exception() is None


@pytest.mark.slow
@pytest.mark.parametrize("in_function", [False, True])
def test_python_that_does_not_end_is_interrupted_whatever_it_handles(in_function: bool) -> None:
    began = threading.Event()
    handled: list[Exception] = []

    def stuck(*arguments: object) -> None:
        began.set()
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                time.sleep(0.01)
            except Exception as error:
                handled.append(error)

    function = UserFunction(stuck)

    def life(control: QueryControl) -> None:
        control.note_opened()
        if in_function:
            steps_until_stopped(control)
        else:
            stuck()

    both = Both(life, functions=[function])
    running = both.begin()
    if in_function:
        calling = threading.Thread(target=call_until_interrupted, args=[function, both.spark])
        # Spark's own stop waits for the function.
        both.spark.__class__ = WaitsForFunction
        calling.start()
    began.wait(PATIENCE_S)
    running.stop()
    assert not both.evaluation.is_alive
    assert (running.exception(), handled) == (None, [])


def test_a_thread_is_not_interrupted_while_it_starts_another() -> None:
    """Python 3.11 would raise the error in the thread that is to start, and a stop would wait for ever."""
    starting, goes_on = threading.Event(), threading.Event()
    found: list[str] = []

    def run() -> None:
        other = threading.Thread(target=int)
        has_started = other._started.wait

        def wait() -> None:
            starting.set()
            goes_on.wait(PATIENCE_S)
            has_started()

        other._started.wait = wait
        try:
            other.start()
            found.append("started")
            while True:
                time.sleep(0.01)
        except QueryStopped:
            found.append("stopped")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert starting.wait(PATIENCE_S)
    _raise_in(thread.ident)
    goes_on.set()
    eventually(lambda: found == ["started"])
    _raise_in(thread.ident)
    thread.join(PATIENCE_S)
    assert found == ["started", "stopped"]


class WaitsForFunction(QueryOfSpark):
    """A query whose stop waits until it has ended."""

    def stop(self) -> None:
        self.ended.wait(PATIENCE_S)


def call_until_interrupted(function: UserFunction, spark: QueryOfSpark) -> None:
    try:
        function(None, 0)
    except RuntimeError as error:
        spark.fail(str(error))


def test_a_function_may_stop_its_query() -> None:
    stopped = threading.Event()

    def stops(rows: object, batch: int) -> None:
        running.stop()
        stopped.set()

    function = UserFunction(stops)
    running = Both(steps_until_stopped, functions=[function]).begin()
    threading.Thread(target=function, args=[None, 0]).start()
    assert stopped.wait(PATIENCE_S)
    assert running.awaitTermination(PATIENCE_S)


def test_processing_all_that_is_available_takes_a_step_that_begins_later() -> None:
    begin, seen = threading.Semaphore(0), []

    def life(control: QueryControl) -> None:
        control.note_opened()
        for caught_up in (True, False, True):
            begin.acquire(timeout=PATIENCE_S)
            control.should_stop()
            seen.append(caught_up)
            control.note_step(caught_up=caught_up)
        while not control.is_stopping:
            time.sleep(0.005)

    running = Both(life).begin()
    begin.release()
    eventually(lambda: seen == [True])
    waiting = threading.Thread(target=running.processAllAvailable)
    waiting.start()
    begin.release()
    eventually(lambda: seen == [True, False])
    waiting.join(0.05)
    assert waiting.is_alive()
    begin.release()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    running.stop()


def test_steps_begin_at_their_interval_and_not_while_spark_has_enough() -> None:
    control = QueryControl(interval_s=0.05)
    began = time.monotonic()
    for _ in range(4):
        assert not control.should_stop()
    assert time.monotonic() - began >= 0.15
    answers = [True, True, False]
    assert not QueryControl(is_full=lambda: answers.pop(0)).should_stop()
    assert answers == []
    full = QueryControl(is_full=lambda: True)
    full.stop()
    assert full.should_stop()
    with pytest.raises(QueryStopped):
        full.sleep(PATIENCE_S)


def test_a_timeout_is_positive() -> None:
    running = Both(steps_until_stopped).begin()
    with pytest.raises(ValueError, match="positive"):
        running.awaitTermination(0)
    running.stop()
