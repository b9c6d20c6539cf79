"""A query ends when it is stopped, when it fails, and at its end; here what it runs is a function of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException

from tests.patience import PATIENCE_S, PROMPTLY_S, eventually
from tidegate.connectors.model.retry_policy import Waiting
from tidegate.job import JobError, Step
from tidegate.spark.streaming.progress import ProgressLog, QueryIdentity
from tidegate.spark.streaming.query import QueryControl, StreamingQuery


def query(life: Callable[[QueryControl], None], **settings: object) -> StreamingQuery:
    log = ProgressLog(QueryIdentity("id", "run", "name"), {}, {}, {})
    interrupt = settings.pop("interrupt", lambda: None)
    control = QueryControl(settings.pop("interval_s", 0.0), settings.pop("on_notice", None))
    return StreamingQuery(log, control, life, interrupt, **settings)


def step(*, caught_up: bool = True, events: int = 0) -> Step:
    return Step([], 0, events, 0, {}, caught_up=caught_up)


def steps_until_stopped(control: QueryControl) -> None:
    control.note_opened()
    while not control.should_stop():
        time.sleep(0.005)
        control.note_step(step())


def test_a_query_runs_until_it_is_stopped() -> None:
    running = query(steps_until_stopped).begin()
    assert (running.id, running.runId, running.name) == ("id", "run", "name")
    assert running.isActive
    assert running.awaitTermination(0.01) is False
    assert running.status["message"] == "Waiting for data to arrive"
    running.stop()
    assert not running.isActive
    assert running.status == {"message": "Stopped", "isDataAvailable": False, "isTriggerActive": False, "notices": []}
    assert "<th>status</th><td>Stopped</td>" in running._repr_html_()
    assert running.awaitTermination() is None
    assert running.awaitTermination(1) is True
    assert running.exception() is None


def test_what_keeps_it_from_opening_is_raised_by_its_start() -> None:
    def fails(control: QueryControl) -> None:
        raise JobError("another process is running this job")

    with pytest.raises(JobError, match="another process"):
        query(fails).begin()


def test_what_ends_it_later_is_raised_to_those_who_wait() -> None:
    go_on = threading.Event()

    def fails(control: QueryControl) -> None:
        control.note_opened()
        go_on.wait(PATIENCE_S)
        raise ZeroDivisionError("in foreachBatch")

    running = query(fails).begin()
    assert running.exception() is None
    go_on.set()
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError: in foreachBatch") as raised:
        running.awaitTermination(PATIENCE_S)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert str(running.exception()) == "ZeroDivisionError: in foreachBatch [query name, id = id, runId = run]"
    assert raised.value.code == "USER_CODE_FAILED"
    assert running.status["message"] == "Terminated with exception: ZeroDivisionError: in foreachBatch"
    with pytest.raises(StreamingQueryException):
        running.processAllAvailable()
    running.stop()


def test_a_start_does_not_wait_for_an_input_that_is_unreachable_and_a_stop_ends_the_wait() -> None:
    def waits(control: QueryControl) -> None:
        while True:
            control.notice(Waiting("input 'i' unreachable since 12:00"))
            time.sleep(0.01)

    running = query(waits).begin()
    assert running.status["message"] == "input 'i' unreachable since 12:00"
    running.stop()
    assert running.exception() is None


def test_what_a_run_says_is_logged_and_in_the_status(caplog: pytest.LogCaptureFixture) -> None:
    def skips(control: QueryControl) -> None:
        control.note_opened()
        control.notice("input 'i', partition 0: 5 events were removed before they were read")

    ended = query(skips).begin()
    ended.awaitTermination()
    said = "input 'i', partition 0: 5 events were removed before they were read"
    assert ended.status["notices"] == [said]
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

    ended = query(says, on_notice=on_notice).begin()
    ended.awaitTermination()
    assert heard == ["5 events were skipped"]
    assert "on_notice failed" in caplog.text


def test_a_stop_ends_a_pause_between_attempts() -> None:
    def waits(control: QueryControl) -> None:
        control.note_opened()
        control.sleep(2 * PATIENCE_S)

    running = query(waits).begin()
    began = time.monotonic()
    running.stop()
    assert time.monotonic() - began < PROMPTLY_S
    assert running.exception() is None


def test_a_step_that_does_not_end_is_interrupted() -> None:
    cancelled = threading.Event()

    def stuck(control: QueryControl) -> None:
        control.note_opened()
        cancelled.wait(PATIENCE_S)
        raise JobError("a step failed on Spark: cancelled")

    running = query(stuck, interrupt=cancelled.set).begin()
    began = time.monotonic()
    running.stop()
    assert time.monotonic() - began < PROMPTLY_S
    assert running.exception() is None


def test_a_function_that_does_not_end_is_interrupted_whatever_it_handles() -> None:
    began = threading.Event()
    handled: list[Exception] = []

    def stuck(control: QueryControl) -> None:
        control.note_opened()
        began.set()
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                time.sleep(0.01)
            except Exception as error:
                handled.append(error)

    running = query(stuck).begin()
    began.wait(PATIENCE_S)
    running.stop()
    assert not running.isActive
    assert (running.exception(), handled) == (None, [])


def test_a_stop_gives_up_after_its_timeout() -> None:
    go_on = threading.Event()

    def stuck(control: QueryControl) -> None:
        control.note_opened()
        go_on.wait(PATIENCE_S)

    running = query(stuck, stop_timeout_s=0.5).begin()
    with pytest.raises(TimeoutError, match=r"has not stopped within 0\.5 s"):
        running.stop()
    go_on.set()
    running.stop()


def test_processing_all_that_is_available_takes_a_step_that_begins_later() -> None:
    begin, seen = threading.Semaphore(0), []

    def life(control: QueryControl) -> None:
        control.note_opened()
        for caught_up in (True, False, True):
            begin.acquire(timeout=PATIENCE_S)
            control.should_stop()
            seen.append(caught_up)
            control.note_step(step(caught_up=caught_up, events=1))
        while not control.is_stopping:
            time.sleep(0.005)

    running = query(life).begin()
    begin.release()
    eventually(lambda: seen == [True])
    waiting = threading.Thread(target=running.processAllAvailable)
    waiting.start()
    begin.release()
    eventually(lambda: seen == [True, False])
    waiting.join(0.05)
    assert waiting.is_alive()
    assert running.status["isDataAvailable"]
    begin.release()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    running.stop()


def test_steps_begin_at_their_interval() -> None:
    control = QueryControl(interval_s=0.05)
    began = time.monotonic()
    for _ in range(4):
        assert not control.should_stop()
    assert time.monotonic() - began >= 0.15


def test_a_timeout_is_positive() -> None:
    running = query(steps_until_stopped).begin()
    with pytest.raises(ValueError, match="positive number of seconds"):
        running.awaitTermination(0)
    running.stop()
