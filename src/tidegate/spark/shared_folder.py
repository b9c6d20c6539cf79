"""Checks that executors share the job's state folder with the driver.

Tasks read what the driver publishes there, and the driver reads the results that executors write there. Where each
machine has a folder of its own at that path, the first of these reads would fail much later and say little.
"""

from __future__ import annotations

import contextlib
import platform
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate.job import JobError
from tidegate.spark.streaming.parts import parallelism

NEXT_STEP_OF_JOB = (
    "all machines need the same folder there: set state_dir to a folder on a file system that they share, or run the "
    "job with --placement process"
)
_SEEN: set[Path] = set()


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A folder in which the driver has left a file as a proof."""

    path: Path
    proof: str
    next_step: str

    @classmethod
    def of(cls, path: Path, next_step: str = NEXT_STEP_OF_JOB) -> SharedFolder:
        """Leave a proof; ``next_step`` is what a person can do if executors do not find it."""
        name = f"shared-{uuid.uuid4().hex}"
        path.mkdir(0o750, parents=True, exist_ok=True)
        (path / name).write_text(name, encoding="utf-8")
        return cls(path, name, next_step)

    def problem_here(self) -> str | None:
        """Return what is wrong with the folder on this machine; None if it is the driver's."""
        file = self.path / self.proof
        if file in _SEEN:
            return None
        try:
            is_same = file.read_text(encoding="utf-8") == self.proof
            answer = self.path / f"{self.proof}-{uuid.uuid4().hex}"
            answer.write_text(self.proof, encoding="utf-8")
            answer.unlink()
        except OSError as error:
            return f"{self._on_machine()}: {error.strerror or type(error).__name__}; {self.next_step}"
        if not is_same:
            return f"{self._on_machine()}; {self.next_step}"
        _SEEN.add(file)
        return None

    def _on_machine(self) -> str:
        return (
            f"the folder {self.path} is not shared: an executor on {platform.node()} does not find there what "
            "the driver has written"
        )

    def remove(self) -> None:
        """Remove the proof."""
        for path in self.path.glob(f"{self.proof}*"):
            with contextlib.suppress(OSError):
                path.unlink()


def check_shared(spark: SparkSession, folder: SharedFolder, call: Callable[[Callable[[], pa.Table]], pa.Table]) -> None:
    """Check that executors read what the driver writes in a folder, and the other way round.

    Args:
        call: makes a call of Spark.

    Raises:
        JobError: they do not; the message says where, and what to do.
    """

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch([pa.array([folder.problem_here()] * len(batch), pa.string())], ["problem"])

    tasks = max(2, parallelism(spark))
    found = call(lambda: spark.range(0, tasks, 1, tasks).mapInArrow(look, "problem string").toArrow())
    problems = [problem for problem in found.column("problem").to_pylist() if problem is not None]
    if problems:
        raise JobError(problems[0])
