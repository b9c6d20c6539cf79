"""Calls of Spark in a thread of their own, named after the job and its step, and calls that Spark makes here."""

from __future__ import annotations

import selectors
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeAlias

from py4j import java_gateway
from pyspark.sql import SparkSession

from tidegate.spark.failures import FAILURES, failure_of

_Answer: TypeAlias = SimpleQueue[tuple[Any, BaseException | None]]
_LOOK_EVERY_S = 1.0


class Watch(Protocol):
    """Looks at what a call may be waiting for."""

    def look(self) -> None:
        """Look; called about once a second while a call lasts, and after one that has lasted so long."""


class StepThread:
    """Makes calls in a thread of its own.

    A signal then interrupts the wait for a call, not the call: an interrupted py4j prints pages of errors.
    """

    def __init__(self, watch: Watch | None = None) -> None:
        self.watch = watch
        self._calls: SimpleQueue[tuple[Callable[[], Any], _Answer]] = SimpleQueue()
        self._awaited: _Answer | None = None
        threading.Thread(target=self._work, name="tidegate-steps", daemon=True).start()

    def call(self, function: Callable[[], Any]) -> Any:
        """Return or raise what the function returns or raises."""
        answer: _Answer = SimpleQueue()
        self._awaited = answer
        self._calls.put((function, answer))
        result, error = self._answered(answer)
        if error is not None:
            raise error
        return result

    def _answered(self, answer: _Answer) -> tuple[Any, BaseException | None]:
        watch, looked = self.watch, False
        while True:
            try:
                found = answer.get(timeout=None if watch is None else _LOOK_EVERY_S)
                break
            except Empty:
                if watch is not None:
                    watch.look()
                    looked = True
        if watch is not None and looked:
            watch.look()
        return found

    def abandon(self, error: BaseException) -> None:
        """Raise an error where the latest call is waited for; the call itself ends when it does."""
        if self._awaited is not None:
            self._awaited.put((None, error))

    def _work(self) -> None:
        while True:
            function, answer = self._calls.get()
            try:
                answer.put((function(), None))
            except BaseException as error:
                answer.put((None, error))


def named(spark: SparkSession, job: str, what: str, group: str = "") -> None:
    """Give a name to the jobs and stages of the calls that follow in this thread, as Spark's UI shows them.

    A session of Spark Connect is another class, and has no names of this kind.

    Args:
        group: the job group; empty: one of the job's name.
    """
    if isinstance(spark, SparkSession):
        spark.sparkContext.setJobGroup(group or f"tidegate {job}", f"{job}: {what}")


def readable(function: Callable[[], Any]) -> Any:
    """Call Spark, and raise errors that people can read.

    Raises:
        WorkersLost, UnavailableError, JobError: see `failure_of`.
    """
    try:
        return function()
    except FAILURES as error:
        raise failure_of(error) from error
    except UnboundLocalError as error:
        # PySpark closes a connection to Java that it could not open (`_load_from_socket`).
        if isinstance(error.__context__, FAILURES):
            raise failure_of(error.__context__) from error
        raise


class _AnySocket:
    """What py4j uses of the module `select`, for sockets with any number."""

    @staticmethod
    def select(
        reading: Sequence[Any], writing: Sequence[Any], failing: Sequence[Any], timeout_s: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait for sockets that can be read; py4j asks for no others."""
        with selectors.DefaultSelector() as selector:
            for one in reading:
                selector.register(one, selectors.EVENT_READ)
            return [key.fileobj for key, _ in selector.select(timeout_s)], [], []


def accept_calls() -> None:
    """Let Spark call functions of this process, however many files it has open.

    py4j waits for connections with `select`, which fails for descriptors of 1,024 and above. The thread that accepts
    them then ends, and Spark waits for its first call for ever.
    """
    java_gateway.select = _AnySocket
