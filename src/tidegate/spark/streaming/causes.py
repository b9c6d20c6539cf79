"""Why Spark or a user's function failed: the root cause in one line, and a code for programs.

Spark wraps the reason in exceptions of its own, in Java and in Python, with pages of traceback.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from tidegate.job import JobError

MORE_MEMORY = (
    "if it ran out of memory, give executors more (spark.executor.memory, spark.executor.memoryOverhead), use more "
    "shards, or read less at a time (--max-events-per-step)"
)
OUT_OF_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError|MemoryError\b")
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_MOST_CAUSES = 10
_FRAME = re.compile(r"at \S|\.\.\. \d+ more|File \"|Driver stacktrace|Traceback \(|JVM stacktrace|[~^]+$")
_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<last>\S.*)")
_OF_PYTHON = re.compile(r"(?P<kind>[A-Za-z_][\w.]*): (?P<message>\S.*)")
_RAISED = re.compile(r"(?:.*: )?(?P<kind>(?:[\w$]+\.)*[\w$]*(?:Error|Exception)): (?P<message>\S.*)")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something failed: a code for programs, and a line for people, the root cause first."""

    code: str
    text: str


def cause_of(error: BaseException) -> Cause:
    """Return the root cause of a failure, without tracebacks of Java or Python."""
    if isinstance(error, JobError):
        return Cause(error.code, str(error))
    text = "\n".join(messages_of(error))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" at {error.filename}" if error.filename else ""
        return Cause("DISK_FULL", f"the disk is full{where} ({error.strerror})")
    if (found := _DISK_FULL.search(text)) is not None:
        return Cause("DISK_FULL", f"the disk is full ({found[0]}): {_root_line(text)}")
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(text):
        return Cause("OUT_OF_MEMORY", f"out of memory: {_root_line(text) or 'no more could be had'}; {MORE_MEMORY}")
    if isinstance(error, PySparkException | Py4JError):
        code = error.getCondition() if isinstance(error, PySparkException) else None
        return Cause(code or "SPARK_FAILED", _root_line(text) or type(error).__name__)
    line = first_line(str(error))
    return Cause("USER_CODE_FAILED", f"{type(error).__name__}: {line}" if line else type(error).__name__)


def _root_line(text: str) -> str:
    """Return the line of a report that names the root cause: the innermost one, without the class of Java."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not _FRAME.match(line)]
    inner = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # Classes of Python may have any name, but a traceback ends with one.
    ends = {found["last"].strip() for found in _PYTHON.finditer(text)}
    raised = [
        found
        for line in inner or lines
        if (found := _RAISED.match(line) or (_OF_PYTHON.match(line) if line in ends else None)) is not None
    ]
    if raised:
        return f"{raised[-1]['message']} ({raised[-1]['kind'].rpartition('.')[2]})"
    return (inner or lines or [""])[-1 if inner else 0]


def messages_of(error: BaseException) -> Iterator[str]:
    """Yield the messages of an error and of its causes in Java."""
    if not isinstance(error, Py4JJavaError):
        if str(error):
            yield str(error)
        return
    cause = error.java_exception
    for _ in range(_MOST_CAUSES):
        if cause is None:
            return
        yield str(cause.toString())
        cause = cause.getCause()


def first_line(text: str) -> str:
    """Return the first line of a text that has anything in it; empty if none has."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
