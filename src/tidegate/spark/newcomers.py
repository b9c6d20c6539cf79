"""Executors that join a job: they take part once they are warm, and shards then move to them between two steps.

Theory. Spark gives an executor tasks as soon as it has registered. Its Java has loaded no classes, what it runs is
interpreted, and it has no Python yet, so a step with a task there takes seconds longer than the others. Spark has no
setting for that. But it does let a row prefer an executor (``executor_HOST_ID``), and it offers free cores to the job
that began first.

- A *warm-up* is a step of an empty run, all tasks and shards of which prefer the new executors. It begins before the
  next step of the job does, which does not wait for it: as the warm-up has all cores of the new executors, the step's
  tasks are on the others.
- A *move* begins with another anchor of the shards (`tidegate.spark.step`), which differs from the one before in as few
  shards as the cores of the new executors are worth. It is made while steps go on. Between two of them, the states of
  these shards follow, in one job: where a shard was, its state is copied to the shared folder, and where it is now,
  from there. Each shard then looks for its state. Unless all have found theirs, the anchor before remains in use, so it
  does not matter what has become of an executor in the meantime. What was left behind is deleted while steps go on.

`JavaRDD.zip` is what takes a partition to an executor: a task of zipped partitions prefers the executors of the first.
Jobs that nobody waits for are begun with `JavaRDD.countAsync`. Spark Connect has neither, nor does it say which
executors there are; a local master has one executor.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from tidegate.job.runtime.emission import StepOrder
from tidegate.job.runtime.placement import WorkersLost
from tidegate.job.runtime.sealing import SealFolder
from tidegate.spark.failures import FAILURES
from tidegate.spark.rebuilding import check, check_disks
from tidegate.spark.stages import JobOnShards
from tidegate.spark.step import forgetting, lazy_anchor, move_states, rehearsal, release

_WARM_WITHIN_S = 60.0
"""A warm-up that takes longer is given up, as it keeps the executor from steps."""


@dataclass(frozen=True, slots=True)
class Executor:
    """An executor, with what Spark calls it."""

    name: str
    host: str
    cores: int

    @property
    def preferred(self) -> str:
        """What a row prefers that should be on it."""
        return f"executor_{self.host}_{self.name}"


class Newcomers:
    """Warms executors up that join."""

    def __init__(self, spark: SparkSession) -> None:
        """Take those for warm that there are at the first look: the first steps of a job wait for them anyway."""
        self._spark = spark
        self._context = spark.sparkContext
        self._known: set[str] | None = None
        self._warming: list[tuple[Any, float]] = []

    @property
    def are_warm(self) -> bool:
        """Whether no warm-up is going on, as far as the last look knows."""
        return not self._warming

    def look(self, job: JobOnShards, order: StepOrder) -> None:
        """Begin to warm up the executors that have joined since the last look; those that fail are left to Spark.

        Args:
            job, order: of the next step.
        """
        context = self._context
        with contextlib.suppress(*FAILURES):
            names = _names(context)
            self._known = names if self._known is None else self._known & names
            found = (_executor(context, name) for name in sorted(names - self._known))
            if joined := [one for one in found if one is not None]:
                self._known.update(one.name for one in joined)
                begun = _warm_up(self._spark, joined, job, order)
                self._warming.append((begun, time.monotonic() + _WARM_WITHIN_S))
            self._warming = [one for one in self._warming if not one[0].isDone()]
            for begun, until in self._warming:
                if time.monotonic() > until:
                    begun.cancel(True)

    def end(self) -> None:
        """Give up warm-ups that are going on."""
        for begun, _ in self._warming:
            begun.cancel(True)


def cluster_of(spark: SparkSession) -> SparkContext | None:
    """Return the context of a session whose executors may change and are known."""
    context: SparkContext | None = getattr(spark, "_sc", None)
    return None if context is None or str(context.master).startswith("local") else context


def _names(context: SparkContext) -> set[str]:
    return set(context._jsc.sc().getExecutorIds().mkString(" ").split())


def _executor(context: SparkContext, name: str) -> Executor | None:
    """Return an executor; None if Spark's list does not have it yet."""
    try:
        found = context._jsc.sc().statusStore().executorSummary(name)
    except Py4JJavaError:
        return None
    address = str(found.hostPort())
    return Executor(name, address.rpartition(":")[0] or address, max(1, found.totalCores()))


def _warm_up(spark: SparkSession, executors: Sequence[Executor], job: JobOnShards, order: StepOrder) -> Any:
    """Begin to warm executors up, with a task for each of their cores, and the shards on them in turn."""
    cores = [one.preferred for one in executors for _ in range(one.cores)]
    shards = itertools.islice(itertools.cycle(one.preferred for one in executors), job.sharding.shards)
    answers = rehearsal(_numbers(spark, cores), job, order)
    return _placed(spark.sparkContext, [*shards], answers).countAsync()


def _numbers(spark: SparkSession, preferred: Sequence[str]) -> DataFrame:
    """Return the numbers from 0 on, each in a partition that prefers a place."""
    context = spark.sparkContext
    jvm: Any = context._jvm
    gateway: Any = context._gateway
    rows = []
    for number in range(len(preferred)):
        fields = gateway.new_array(jvm.java.lang.Object, 1)
        fields[0] = number
        rows.append(jvm.org.apache.spark.sql.RowFactory.create(fields))
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL("id int")
    return DataFrame(spark._jsparkSession.createDataFrame(_located(context, rows, preferred), schema), spark)


def _located(context: SparkContext, elements: Sequence[Any], preferred: Sequence[str]) -> Any:
    """Return a `JavaRDD` with an element in each partition, each of which prefers a place."""
    jvm: Any = context._jvm
    lists = {place: _seq(context, [place]) for place in {*preferred}}
    pairs = [jvm.scala.Tuple2(element, lists[place]) for element, place in zip(elements, preferred, strict=True)]
    kind = context._jsc.emptyRDD().classTag()
    return context._jsc.sc().makeRDD(_seq(context, pairs), kind).toJavaRDD()


def _placed(context: SparkContext, preferred: Sequence[str], rows: DataFrame) -> Any:
    """Return a `JavaRDD` of rows, of which each partition has one, with a place that each partition prefers."""
    return _located(context, [""] * len(preferred), preferred).zip(rows._jdf.toJavaRDD())


def _seq(context: SparkContext, elements: Sequence[Any]) -> Any:
    jvm: Any = context._jvm
    return jvm.PythonUtils.toSeq([*elements])


class Move:
    """Shards on their way to executors that have joined.

    Attributes:
        anchored, name: the new anchor.
    """

    def __init__(
        self, spark: SparkSession, before: DataFrame, before_name: str, job: JobOnShards, *, visible: bool = False
    ) -> None:
        """Begin to anchor the shards anew.

        Args:
            before, before_name: the anchor in use.
            job: the run whose shards move.
            visible: see `tidegate.spark.step.anchor`.

        Raises:
            WorkersLost: no executor is left.
        """
        self._context = context = spark.sparkContext
        found = (_executor(context, name) for name in sorted(_names(context)))
        executors = {one.name: one for one in found if one is not None}
        if not executors:
            raise WorkersLost("no executor is left")
        places = _places(context, before, len(job.labels))
        after = balanced(places, {name: one.cores for name, one in executors.items()})
        self._moving = frozenset(
            (level, shard)
            for shard, (here, there) in enumerate(zip(places, after, strict=True))
            for level in range(job.sharding.levels)
            if here != there
        )
        self._executors = {*executors}
        self._visible = visible
        self._before = before, before_name
        self.name = f"{job.run}_{uuid.uuid4().hex}"
        self.anchored = lazy_anchor(spark, job.labels, self.name, visible=visible)
        self._unused = self.anchored, self.name
        self._left: frozenset[tuple[int, str]] = frozenset()
        preferred = [executors[name].preferred for name in after]
        self._pending = _placed(context, preferred, self.anchored).countAsync()

    @property
    def has_shards(self) -> bool:
        """Whether any shard moves."""
        return bool(self._moving)

    @property
    def is_current(self) -> bool:
        """Whether the executors are still those over which the shards are to be spread."""
        return _names(self._context) == self._executors

    @property
    def is_done(self) -> bool:
        """Whether what has begun is done: the anchor, or the deletion of what was left behind."""
        return bool(self._pending.isDone())

    def follow(self, job: JobOnShards, version: int, folder: SealFolder) -> int:
        """Let the states of the shards follow, and return how many bytes that were.

        Raises:
            OSError: a disk refuses.
            StateLost: a shard has not found its state.
        """
        moving = replace(job, only=self._moving)
        before, before_name = self._before
        answers = move_states(before, self.anchored, job, moving, folder, version)
        check(answers)
        check_disks(answers)
        self._unused = before, before_name
        self._left = frozenset((int(name.split("-")[1]), one.home) for one in answers for name in one.sealed)
        return sum({file.name: file.bytes for one in answers for of in one.sealed.values() for file in of}.values())

    def forget(self, job: JobOnShards) -> None:
        """Begin to delete what the shards have left behind."""
        before, _ = self._before
        if self._left:
            with contextlib.suppress(*FAILURES):
                rows = forgetting(before, replace(job, only=self._moving), self._left)
                self._pending = rows._jdf.toJavaRDD().countAsync()

    def end(self) -> None:
        """Give up the anchor that is not in use."""
        self._pending.cancel(True)
        release(*self._unused, visible=self._visible)


def _places(context: SparkContext, anchored: DataFrame, count: int) -> list[str | None]:
    """Return the executor of each shard, None if it has none."""
    spark, rows = context._jsc.sc(), anchored._jdf.toJavaRDD().rdd()
    found = (spark.getPreferredLocs(rows, number).mkString(" ").split() for number in range(count))
    return [places[0].rpartition("_")[2] if places else None for places in found]


def balanced(places: Sequence[str | None], cores: Mapping[str, int]) -> list[str]:
    """Return where shards should be: as few as possible are elsewhere, and each executor has some for its cores.

    Args:
        places: where they are; None or an executor that is gone if they are nowhere.
        cores: of each executor.
    """
    after = [place if place is not None and place in cores else "" for place in places]
    has = Counter(after)

    def emptiest() -> str:
        return min(cores, key=lambda one: (has[one] > 0, (has[one] + 1) / cores[one], one))

    for shard, place in enumerate(after):
        if not place:
            after[shard] = emptiest()
            has[after[shard]] += 1
    while several := [one for one in cores if has[one] > 1]:
        fullest, emptiest_one = max(several, key=lambda one: has[one] / cores[one]), emptiest()
        if has[emptiest_one] and (has[emptiest_one] + 1) * cores[fullest] >= has[fullest] * cores[emptiest_one]:
            break
        last = max(shard for shard, place in enumerate(after) if place == fullest)
        after[last] = emptiest_one
        has.update({fullest: -1, emptiest_one: 1})
    return after
