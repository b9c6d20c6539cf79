"""The root cause of a failure of Spark or of a user's function, and its code."""

from __future__ import annotations

import errno

import pytest
from pyspark.errors import PythonException, StreamingQueryException

from tests.source import ROOT
from tests.spark.test_failures import STAGE, of_java
from tidegate.connectors.model.errors import UnavailableError
from tidegate.job import JobError
from tidegate.spark import CheckpointMismatch, UnknownFormat
from tidegate.spark.streaming.causes import cause_of

ABORTED = "org.apache.spark.SparkException: Job aborted."
LOST = f"{STAGE}recent failure: Lost task 0.0 in stage 3.0 (TID 3) (localhost executor driver): "
FRAMES = "\n\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n\t... 17 more\nDriver stacktrace:"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            of_java(ABORTED, f"{LOST}java.io.IOException: No space left on device{FRAMES}"),
            "DISK_FULL",
            "the disk is full (No space left on device): No space left on device (IOException)",
        ),
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), "DISK_FULL", "the disk is full at /data/x"),
        (
            PythonException('Traceback (most recent call last):\n  File "a.py"\nMemoryError: Unable to allocate'),
            "OUT_OF_MEMORY",
            "out of memory: Unable to allocate (MemoryError); if it ran out of memory, give executors more",
        ),
        (MemoryError(), "OUT_OF_MEMORY", "out of memory"),
        (
            of_java(f"{ABORTED}\nCaused by: org.postgresql.util.PSQLException: no table{FRAMES}"),
            "SPARK_FAILED",
            "no table (PSQLException)",
        ),
        (
            StreamingQueryException(
                "[CONDITION] Failed when source perform initialOffset: Traceback (most recent call last):\n"
                '  File "a.py", line 1, in offset\n    raise Lost(\nmodule.Lost: the steps: gone\n SQLSTATE: 38000\n'
                "=== Streaming Query ===\nIdentifier: [id = 1]\nLogical Plan:\n~Relation: steps"
            ),
            "SPARK_FAILED",
            "the steps: gone (Lost)",
        ),
        (ValueError("what the user said\nat length"), "USER_CODE_FAILED", "ValueError: what the user said"),
        (JobError("what is wrong"), "JOB_INVALID", "what is wrong"),
        (UnavailableError("the hub is unavailable"), "UNAVAILABLE", "the hub is unavailable"),
    ],
)  # fmt: skip
def test_the_root_cause_comes_first_and_without_a_stack(error: BaseException, code: str, text: str) -> None:
    cause = cause_of(error)
    assert cause.code == code
    assert cause.text.startswith(text)
    assert "\n" not in cause.text
    assert "\tat " not in cause.text


def test_every_code_is_documented() -> None:
    def codes(kind: type[JobError]) -> set[str]:
        return {kind.code}.union(*map(codes, kind.__subclasses__()))

    documented = (ROOT / "docs" / "reference" / "errors.md").read_text()
    assert {CheckpointMismatch.code, UnknownFormat.code} <= codes(JobError)
    assert [code for code in sorted(codes(JobError)) if f"`{code}`" not in documented] == []
