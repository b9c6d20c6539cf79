"""What a failure of Spark means, from the exceptions that Spark and py4j raise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PythonException

from tidegate.connectors.model.errors import UnavailableError
from tidegate.job import JobError
from tidegate.job.runtime.placement import WorkersLost
from tidegate.spark.failures import failure_of


def throwable(*messages: str) -> object:
    """An exception of Java with its causes, as py4j shows it; the names of its methods are Java's."""
    cause = throwable(*messages[1:]) if len(messages) > 1 else None
    return SimpleNamespace(toString=lambda: messages[0], getCause=lambda: cause, _target_id="o1", _gateway_client=None)


def of_java(*messages: str) -> Py4JJavaError:
    error = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = throwable(*messages)
    return error


STAGE = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most "
AWAIT = "org.apache.spark.SparkException: Exception thrown in awaitResult: "


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (of_java(AWAIT, f"{STAGE}recent failure: Python worker exited unexpectedly (crashed)"), "a Python worker died"),
        # A daemon was killed with its workers, and Spark was about to end one of them, or to use it.
        (of_java(f"{STAGE}recent failure: java.io.IOException: Stream closed"), "a Python worker died"),
        (of_java(AWAIT, "java.io.IOException: Broken pipe"), "a Python worker died"),
        (
            of_java(f"{STAGE}recent failure: ExecutorLostFailure (executor 1 exited) Command exited with code 137"),
            "killed, exit code 137",
        ),
        (of_java(f"{STAGE}ExecutorLostFailure Reason: Remote RPC client disassociated."), "an executor was lost"),
        (of_java(AWAIT, "java.lang.OutOfMemoryError: Java heap space"), "ran out of memory"),
        (PythonException("Traceback\n  File x\nMemoryError: cannot allocate"), "ran out of memory"),
        (
            PythonException("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB"),
            "ran out of memory",
        ),
        (of_java("org.apache.spark.shuffle.FetchFailedException: lost"), "could not be reached"),
        (
            of_java(
                "org.apache.spark.SparkException: Job aborted due to stage failure: A shuffle map stage with "
                "indeterminate output was failed and retried. However, Spark cannot rollback the ResultStage 79"
            ),
            "an executor was lost",
        ),
    ],
)
def test_what_died_can_be_tried_again(error: Exception, said: str) -> None:
    failure = failure_of(error)
    assert isinstance(failure, WorkersLost)
    assert said in str(failure)
    assert "spark.executor.memory" in str(failure)
    assert "\n" not in str(failure)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
        EOFError(),
        Py4JNetworkError("Error while sending or receiving"),
        Py4JError("An error occurred while calling o28.setJobGroup"),
        of_java("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."),
        of_java("org.apache.spark.SparkException: Job 1 cancelled because SparkContext was shut down"),
    ],
)
def test_a_spark_that_has_stopped_is_one_line(error: Exception) -> None:
    failure = failure_of(error)
    assert isinstance(failure, UnavailableError)
    assert "Spark has stopped" in str(failure)
    assert "\n" not in str(failure)


def test_an_answer_of_java_s_is_no_death() -> None:
    failure = failure_of(
        Py4JError("An error occurred while calling o28.getRate. Trace:\npy4j.Py4JException: no such method")
    )
    assert isinstance(failure, JobError)
    assert not isinstance(failure, UnavailableError)


def test_results_that_do_not_fit_the_driver_say_what_to_set() -> None:
    failure = failure_of(of_java(f"{STAGE}Total size of results is bigger than spark.driver.maxResultSize (1024 MiB)"))
    assert isinstance(failure, JobError)
    assert not isinstance(failure, UnavailableError)
    assert "spark.driver.maxResultSize" in str(failure)


def test_the_error_of_a_task_is_its_last_line() -> None:
    text = (
        'An exception was thrown:\nTraceback (most recent call last):\n  File "x.py", line 3\nValueError: no such: key'
    )
    failure = failure_of(PythonException(text))
    assert isinstance(failure, JobError)
    assert str(failure) == "a step failed on Spark: ValueError: no such: key"
