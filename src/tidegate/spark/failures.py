"""What the failure of a call of Spark means: that it can be taken again, that Spark is gone, or that it cannot work.

Spark wraps the reason in exceptions of its own, in Java and in Python, with pages of traceback. A user gets one line.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from tidegate.connectors.model.errors import UnavailableError
from tidegate.job import JobError
from tidegate.job.runtime.placement import WorkersLost
from tidegate.spark.streaming.causes import MORE_MEMORY, OUT_OF_MEMORY, first_line, messages_of

FAILURES = (Py4JError, PySparkException, ConnectionError, EOFError)
"""What a call of Spark raises."""

_GONE = re.compile(
    r"stopped SparkContext|SparkContext was shut ?down|SparkContext has been shutdown|Answer from Java side is empty"
    r"|Application has been killed|All masters are unresponsive"
    # With no trace of Java there was no answer at all: Java died while it was asked.
    r"|\AAn error occurred while calling \S+\Z"
)
_DIED = {
    re.compile(
        r"Python worker exited unexpectedly|Python worker failed to connect back"
        # Spark's daemon of Python workers died, and Spark tells it to end a worker, or writes to a worker that it had.
        r"|java\.io\.IOException: (Stream closed|Broken pipe)"
    ): "a Python worker died",
    # Spark does not repeat a part of a job whose tasks might answer otherwise this time. A whole step can be.
    re.compile(
        r"ExecutorLostFailure|Remote RPC client disassociated|Worker lost|ExecutorDeadException"
        r"|stage with indeterminate output was failed"
    ): "an executor was lost",
    OUT_OF_MEMORY: "an executor ran out of memory",
    re.compile(r"FetchFailed|MetadataFetchFailed|Failed to connect to|Could not find block|Connection reset"): (
        "an executor could not be reached"
    ),
}
_EXIT_CODE = re.compile(r"exited with code (\d+)|exit code (\d+)|exitCode (\d+)")
_KILLED = 137
_TOO_LARGE = "spark.driver.maxResultSize"


def failure_of(error: BaseException) -> Exception:
    """Return what to raise in place of an error of a call of Spark.

    Returns:
        `WorkersLost` if the call can be made again, `UnavailableError` if Spark has stopped, otherwise a `JobError`.
    """
    text = "\n".join(messages_of(error))
    if isinstance(error, ConnectionError | EOFError | Py4JNetworkError) or _GONE.search(text) or not text:
        return UnavailableError(
            f"Spark has stopped within a step ({first_line(text) or type(error).__name__}); its output is in "
            "spark.log in the state folder, and the next run resumes after the last committed result"
        )
    if _TOO_LARGE in text:
        return JobError(
            f"the results of a step are larger than {_TOO_LARGE} allows; set it to more, or read less at a time "
            "(--max-events-per-step)"
        )
    for pattern, what in _DIED.items():
        if pattern.search(text):
            code = next((int(number) for found in _EXIT_CODE.finditer(text) for number in found.groups() if number), 0)
            how = " (killed, exit code 137)" if code == _KILLED else f" (exit code {code})" if code else ""
            return WorkersLost(f"{what} within a step on Spark{how}; {MORE_MEMORY}")
    return JobError(f"a step failed on Spark: {last_line(error)}")


def last_line(error: BaseException) -> str:
    """Extract the task's Python error from Spark's report, which has it between two tracebacks."""
    lines = [line.strip() for message in messages_of(error) for line in message.splitlines()]
    named = [
        line
        for line in lines
        if ": " in line and not line.startswith(("File ", "at ", "Driver stacktrace", "SQLSTATE"))
    ]
    return named[-1] if named else (lines[0] if lines else "no reason given")
