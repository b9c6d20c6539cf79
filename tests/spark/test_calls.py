"""Calls in a thread of their own: results, errors, and calls that nobody waits for any more."""

from __future__ import annotations

import fcntl
import resource
import select
import socket
import threading

import pytest
from py4j import java_gateway

from tests.patience import PATIENCE_S, eventually
from tidegate.connectors.model.errors import UnavailableError
from tidegate.spark.calls import StepThread, accept_calls, readable


class Stopped(BaseException):
    pass


def test_a_call_returns_and_raises_what_its_function_does() -> None:
    thread = StepThread()
    assert thread.call(lambda: threading.current_thread().name) == "tidegate-steps"
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0)


def test_an_abandoned_call_ends_by_itself_and_the_next_one_gets_its_own_result() -> None:
    thread, go_on, ended, raised = StepThread(), threading.Event(), [], []

    def slow() -> str:
        go_on.wait(PATIENCE_S)
        ended.append(True)
        return "of the slow one"

    def caller() -> None:
        try:
            thread.call(slow)
        except Stopped as error:
            raised.append(error)

    waiting = threading.Thread(target=caller)
    waiting.start()
    eventually(lambda: thread._awaited is not None)
    thread.abandon(Stopped())
    waiting.join(PATIENCE_S)
    assert len(raised) == 1
    assert not ended
    go_on.set()
    assert thread.call(lambda: "of the next") == "of the next"
    assert ended


def test_nothing_is_abandoned_before_the_first_call() -> None:
    thread = StepThread()
    thread.abandon(Stopped())
    assert thread.call(lambda: 1) == 1


def test_a_connection_that_pyspark_closes_without_having_opened_it_is_spark_that_has_stopped() -> None:
    def collect() -> None:
        closing = UnboundLocalError("cannot access local variable 'sockfile'")
        closing.__context__ = ConnectionRefusedError(111, "Connection refused")
        raise closing

    with pytest.raises(UnavailableError, match=r"Spark has stopped within a step .*Connection refused"):
        readable(collect)

    def mistaken() -> None:
        raise UnboundLocalError("something else")

    with pytest.raises(UnboundLocalError):
        readable(mistaken)


def test_spark_s_calls_are_accepted_in_a_process_with_many_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_gateway, "select", select)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2_000:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with socket.socket() as low:
        low.bind(("127.0.0.1", 0))
        low.listen()
        with socket.socket(fileno=fcntl.fcntl(low.fileno(), fcntl.F_DUPFD, 1_500)) as server:
            with pytest.raises(ValueError, match="out of range"):
                java_gateway.select.select([server], [], [], 0)
            accept_calls()
            assert java_gateway.select.select([server], [], [], 0) == ([], [], [])
            with socket.create_connection(server.getsockname()):
                assert java_gateway.select.select([server], [], [], PATIENCE_S) == ([server], [], [])
