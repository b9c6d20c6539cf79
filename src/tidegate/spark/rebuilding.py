"""Lost shards on executors, on their way to the states that they had (`tidegate.job.runtime.rebuilding`)."""

from __future__ import annotations

import contextlib
import pickle
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate.engine import Program, ResultRows
from tidegate.job.runtime.carries import SentCarries
from tidegate.job.runtime.emission import Completeness, StepOrder
from tidegate.job.runtime.placement import Outcome, Rebuilding, ShardName, StateLocation, StateLost, WorkersLost
from tidegate.job.runtime.rebuilding import to_the_end, with_those_below
from tidegate.job.runtime.sealing import SealedState, SealFolder, SealUnusable
from tidegate.job.runtime.task import Task
from tidegate.spark.failures import FAILURES
from tidegate.spark.queries.shared_query import SharedProgram
from tidegate.spark.stages import AdoptingStage, Answer, JobOnShards, RestoringStage
from tidegate.spark.step import at_shards, clean, step


class RebuildingShards(Rebuilding):
    """Lost shards, where Spark keeps them now, and the shards of lower levels.

    They have a run of their own, so that what the other shards hold stays as it is. Tasks read all events, as the key
    of an event is in it, but send on only those of these shards.
    """

    def __init__(
        self,
        spark: SparkSession,
        anchored: DataFrame,
        job: JobOnShards,
        version: int,
        lost: frozenset[ShardName],
        location: StateLocation,
        call: Callable[[str, Callable[[], Any]], Any],
        carries: SentCarries | None,
    ) -> None:
        """
        Args:
            job: what has lost shards.
            version: that of the states of its other shards.
            call: calls Spark, given what for.
            carries: those of substreams, for this run alone.
        """
        self._spark = spark
        self._anchored = anchored
        self._whole = job
        self._whole_version = version
        self._lost = lost
        self._call = call
        self._carries = carries
        self._job = replace(job, run=f"{job.run}_{uuid.uuid4().hex}", only=with_those_below(lost, location.shards))
        self._version = 0
        self._location = location

    @property
    def location(self) -> StateLocation:
        return self._location

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        """Run a step of the lost shards. What it emits has been emitted before."""
        carries, version = self._carries, self._version
        sent = tasks if carries is None else [carries.sent(task) for task in tasks]
        published = {} if carries is None else dict(carries.published)
        blobs = [pickle.dumps(task, protocol=5) for task in sent]
        what = f"{len(self._lost)} lost shards, step {version + 1}"
        answers = self._call(
            what, lambda: step(self._spark, self._anchored, self._job, blobs, published, to_the_end(order), version)
        )
        check(answers)
        self._version += 1
        results = [result for answer in answers for result in answer.results]
        if carries is not None:
            carries.received(results, tasks)
        complete = Completeness.least(answer.report.complete for answer in answers if answer.report is not None)
        return Outcome(results, [], complete)

    def restore(self, folder: SealFolder, sealed: SealedState) -> None:
        """Continue from a seal. One that divides keys otherwise is of no use beside the other shards."""
        sharding = self._job.sharding
        if (sealed.shards, sealed.seed) != (sharding.shards, sharding.seed):
            raise SealUnusable("the other shards divide keys otherwise")
        if sealed.version:
            stage = RestoringStage(self._job, folder, sealed)
            for answer in self._call("sealed state of lost shards", lambda: at_shards(self._anchored, stage)):
                if answer.problem is not None:
                    raise SealUnusable(answer.problem)
        self._version = sealed.version

    def adopt(self) -> None:
        stage = AdoptingStage(self._job, self._version, self._whole, self._whole_version, self._lost)
        check(self._call(f"{len(self._lost)} lost shards", lambda: at_shards(self._anchored, stage)))

    def close(self) -> None:
        """Delete what has not been adopted."""
        if self._carries is not None:
            self._carries.close()
        with contextlib.suppress(*FAILURES, WorkersLost):
            self._call("lost shards", lambda: clean(self._anchored, None, self._job))

    def use(self, program: Program) -> None:
        self._job = replace(self._job, program=SharedProgram.of(program.sharded(), ""))

    def preview(self, order: StepOrder) -> list[ResultRows]:
        return []

    def seal(self, folder: SealFolder) -> SealedState:
        """Seal nothing: the run that is followed does it."""
        return SealedState(self._job.sharding.shards, self._job.sharding.seed, 0)


def check(answers: Sequence[Answer]) -> None:
    """Check that tasks and shards could do their part of a step.

    Raises:
        JobError: a task could not.
        StateLost: states are gone.
    """
    for answer in answers:
        if answer.failure is not None:
            raise answer.failure
    lost = sorted({one for answer in answers for one in answer.lost})
    if lost:
        level, shard = lost[0]
        more = f" and {len(lost) - 1:,} more" if len(lost) > 1 else ""
        raise StateLost(f"the state of shard {shard} (level {level}){more} is gone", lost)


def check_disks(answers: Sequence[Answer]) -> None:
    """Check that states could be copied.

    Raises:
        OSError: a disk refused one.
    """
    problem = next((answer.problem for answer in answers if answer.problem is not None), None)
    if problem is not None:
        raise OSError(problem)
