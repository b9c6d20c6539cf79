"""The shape of a step on Spark: one DataFrame job.

    anchor: (shard), partitioned and cached ─────┐
                                                 ├─cogroup──applyInArrow──▶ answers, or (shard, blob) of the next level
    range(tasks) ──mapInArrow──▶ (shard, blob) ──┘

- *Tasks* read ranges of the log, decode, stamp, evaluate what follows from one event, and pre-aggregate
  (`stages.TaskStage`). Each sends one blob to every shard.
- *Shards* hold the state of windows, joins and functions of earlier rows for their share of the keys
  (`stages.ShardStage`). They find out by themselves how far the watermark has come, as it travels in the blobs.
- The *anchor* is a row for each shard, in a cached DataFrame that is partitioned by shard. Because it is cogrouped with
  blobs, Spark schedules a shard where its row is cached, which is where its state is. The anchor comes first: Spark
  looks for a stage in the order of the sides, and prefers for blobs any host that has some of them. For the same reason
  the anchor's own rows come from a task on every core: those of one task would all be cached on the host of that task.
- Operators with other keys than those below them make another level: another cogroup in the same job.
- A *small* step on a master of this machine is one task, which runs the tasks and then the shards
  (`stages.WholeStepStage`): the states are files that every worker of this machine finds. Either shape leaves the same
  states, so each step takes the shape of its size.

Spark places, shuffles, retries and scales. It sees only blobs, so a plan is made in milliseconds, and it is the same
over Spark Connect.
"""

from __future__ import annotations

import pickle
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, SparkSession, functions

from tidegate.engine import Program
from tidegate.engine.sharding.payloads import Sharding
from tidegate.job.runtime.emission import StepOrder
from tidegate.job.runtime.sealing import SealFolder
from tidegate.job.runtime.task import Task
from tidegate.ordering import Policy
from tidegate.spark.executors import ReachesExecutors
from tidegate.spark.queries.shared_query import SharedProgram
from tidegate.spark.stages import (
    SCHEMA,
    AdoptingStage,
    Answer,
    ArrivingStage,
    CleaningStage,
    ForgettingStage,
    JobOnShards,
    PreviewStage,
    RehearsalStage,
    RehearsedShardStage,
    RestoringStage,
    SealingStage,
    ShardStage,
    TaskStage,
    WholeStepStage,
    WorkStage,
    WriterStage,
    Writing,
    loaded,
)

_WARM_ROUNDS = 3


def configure(spark: SparkSession, shards: int) -> None:
    """Set what steps need: Spark must not merge or split the partitions of shards.

    Queries of these sizes are planned faster, too, without adaptive execution.
    """
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", str(shards))


def anchor(spark: SparkSession, labels: Sequence[int], run: str, *, visible: bool = False) -> DataFrame:
    """Return a row for each shard, partitioned by shard and cached on the executors that get the shards."""
    cached = lazy_anchor(spark, labels, run, visible=visible)
    cached.count()
    return cached


def lazy_anchor(spark: SparkSession, labels: Sequence[int], run: str, *, visible: bool = False) -> DataFrame:
    """Return the anchor whose rows Spark caches when it first needs them.

    Spark caches a row on the host whose task made it. Tasks go to free cores in turn, so with as many tasks as cores
    every core gets its share. Of more tasks than cores, the last would run wherever one ends first.

    Args:
        run: a name that no other run has. Spark has one copy of cached data for equal plans of all sessions, and the
            first run to release it would take it from the others.
        visible: whether a view that all sessions have gets that name, so that another process finds the data.
    """
    context = getattr(spark, "_sc", None)  # Spark Connect has none, and does not say how many cores there are
    tasks = len(labels) if context is None else min(len(labels), max(1, context.defaultParallelism))
    each = functions.array(*[functions.lit(label) for label in labels])
    rows = spark.range(0, len(labels), 1, tasks).select(functions.get(each, functions.col("id")).alias("shard"))
    own = rows.where(functions.lit(run) != functions.lit(""))
    divided = own.select(functions.col("shard").cast("int")).repartition(len(labels), "shard")
    if visible:
        divided.createGlobalTempView(run)
        divided = spark.table(f"global_temp.{run}")
    return divided.persist()


def release(anchored: DataFrame, run: str, *, visible: bool = False) -> None:
    """Give up what `anchor` made with the same arguments."""
    anchored.unpersist()
    if visible:
        anchored.sparkSession.catalog.dropGlobalTempView(run)


def step(
    spark: SparkSession,
    anchored: DataFrame,
    job: JobOnShards,
    tasks: Sequence[bytes],
    published: Mapping[int, Any],
    order: StepOrder,
    version: int,
    writing: Writing | None = None,
) -> list[Answer]:
    """Take a step, and return what tasks and shards answer.

    Args:
        anchored: the shards, as `anchor` returns them.
        tasks: pickled.
        published: carries that tasks may need, by number.
        version: the version of the shards' state before the step.
        writing: how executors write the results; None if the driver gets the rows.
    """
    count = max(1, len(tasks))
    rows = spark.range(0, count, 1, count).mapInArrow(_of_tasks(TaskStage(job, tasks, published)), SCHEMA)
    for level in range(job.levels):
        stage = ShardStage(job, order, level, version, writing)
        rows = _at_anchor(anchored, rows, stage)
    if writing is not None:
        writer = WriterStage(job, writing)
        rows = _at_anchor(anchored, rows, writer)
    return [answer for blob in _blobs(rows) for answer in pickle.loads(blob)]


def runs_here(spark: SparkSession) -> bool:
    """Return whether all executors are in one process of this machine; Spark Connect does not say."""
    context = getattr(spark, "_sc", None)
    return context is not None and re.fullmatch(r"local(\[.*\])?", str(context.master)) is not None


def single_partition(spark: SparkSession) -> RDD[Any]:
    """Return a row in one partition, for `whole_step`."""
    return spark.sparkContext.parallelize([0], 1)


def warm_up(context: SparkContext) -> None:
    """Start a Python worker on each core and let it load what tasks need, before the first step waits for that."""
    cores = max(1, context.defaultParallelism)
    for _ in range(_WARM_ROUNDS):
        context.parallelize(range(cores), cores).mapPartitions(loaded).collect()


def rehearse(
    spark: SparkSession, program: Program, policy: Policy, shards: int, tasks: Sequence[Task], order: StepOrder
) -> list[Answer]:
    """Take a small step on each core and forget it, so that workers and Java have done all that a first step does.

    Returns what the last of its tasks and shards answer.

    Args:
        tasks, order: a step that was taken elsewhere, from its beginning. Its events are read again.
    """
    context = spark.sparkContext
    cores = max(1, context.defaultParallelism)
    own = program.sharded()
    blobs = [pickle.dumps(task, protocol=5) for task in tasks]
    job = JobOnShards("rehearsal", SharedProgram.of(own), policy, Sharding.of(own, shards, secrets.randbits(64)), ())
    stage = RehearsalStage(WholeStepStage(job, blobs, {}, order, 0))
    answers: list[Answer] = []
    for _ in range(_WARM_ROUNDS):
        found = context.parallelize(range(cores), cores).mapPartitions(stage).collect()
        answers = [answer for blob in found for answer in pickle.loads(blob)]
    return answers


def rehearsal(tasks: DataFrame, job: JobOnShards, order: StepOrder) -> DataFrame:
    """Return what shards answer to a step without events of an empty run, a row for each.

    Args:
        tasks: a row for each task, with its number.
        job, order: of a step that has been taken, or will be.
    """
    lowest = replace(job, only=frozenset((0, shard) for shard in range(job.sharding.shards)))
    rows = tasks.mapInArrow(_of_tasks(TaskStage(lowest, [], {})), SCHEMA)
    each = functions.explode(functions.array(*[functions.lit(label) for label in job.labels]))
    shards = tasks.where("id = 0").select(each.alias("shard"))
    return _at_anchor(shards, rows, RehearsedShardStage(ShardStage(lowest, order.without_events(), 0, 0)))


def whole_step(single: RDD[Any], stage: WholeStepStage) -> list[Answer]:
    """Take a small step in one task, and return what tasks and shards answer.

    Args:
        single: has one partition. Without a DataFrame, nothing has to be planned.
    """
    return [answer for blob in single.mapPartitions(stage).collect() for answer in pickle.loads(blob)]


def work(spark: SparkSession, works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Call functions on executors, each in a task of its own, and return what they return in their order."""
    stage = WorkStage([pickle.dumps(one, protocol=5) for one in works])
    rows = spark.range(0, len(works), 1, len(works)).mapInArrow(_of_tasks(stage), SCHEMA).toArrow()
    found = zip(rows.column("shard").to_pylist(), rows.column("blob"), strict=True)
    return [pickle.loads(blob.as_buffer()) for _, blob in sorted(found, key=lambda one: one[0])]


def preview(anchored: DataFrame, job: JobOnShards, order: StepOrder, version: int) -> list[Answer]:
    """Return what shards would emit if no further event came, as `Answer.preview`, or that a state is lost."""
    shards = anchored.groupBy("shard")
    rows = shards.applyInArrow(_alone(PreviewStage(job, order, 0, version)), SCHEMA)
    for level in range(1, job.sharding.levels):
        stage = PreviewStage(job, order, level, version)
        rows = _at_anchor(anchored, rows, stage)
    return [answer for blob in _blobs(rows) for answer in pickle.loads(blob)]


AtShard = SealingStage | RestoringStage | AdoptingStage


def at_shards(anchored: DataFrame, stage: AtShard) -> list[Answer]:
    """Do something with the states of shards where they are, and return what the shards answer."""
    rows = anchored.groupBy("shard").applyInArrow(_alone(stage), SCHEMA)
    return [answer for blob in _blobs(rows) for answer in pickle.loads(blob)]


def move_states(
    before: DataFrame, after: DataFrame, job: JobOnShards, moving: JobOnShards, folder: SealFolder, version: int
) -> list[Answer]:
    """Copy the states of the shards of ``moving`` from where they were to where they are, by way of a folder.

    Returns what shards answer in both places; those of ``job`` whose states are not where the shards are now are lost.
    """
    left = before.groupBy("shard").applyInArrow(_alone(SealingStage(moving, folder, version)), SCHEMA)
    rows = _at_anchor(after, left, ArrivingStage(job, folder, version))
    return [answer for blob in _blobs(rows) for answer in pickle.loads(blob)]


def forgetting(anchored: DataFrame, job: JobOnShards, left: frozenset[tuple[int, str]]) -> DataFrame:
    """Return a DataFrame without rows; computing it deletes the states of shards that have moved."""
    return anchored.groupBy("shard").applyInArrow(_alone(ForgettingStage(job, left)), SCHEMA)


def clean(anchored: DataFrame | None, single: RDD[Any] | None, job: JobOnShards) -> None:
    """Delete the states of a run on all executors, of which there is one if they were never anchored."""
    if anchored is None:
        if single is not None:
            single.mapPartitions(CleaningStage(job).of_machine).collect()
        return
    anchored.groupBy("shard").applyInArrow(_alone(CleaningStage(job)), SCHEMA).count()


class _Sent(ReachesExecutors):
    """A stage on its way to an executor, which may have joined since the versions were compared."""

    def __init__(self, stage: Callable[..., Any]) -> None:
        self.stage = stage


def _of_tasks(stage: TaskStage | WorkStage) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    sent = _Sent(stage)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from sent.stage(batches)

    return run


AtAnchor = ShardStage | WriterStage | PreviewStage | RehearsedShardStage | ArrivingStage


def _at_anchor(anchored: DataFrame, rows: DataFrame, stage: AtAnchor) -> DataFrame:
    """Return what a stage makes of the blobs for each shard, where the shard is anchored."""
    carried = _Sent(stage)

    # PySpark counts the parameters of a function, and takes those of a method for one more.
    def run(key: Any, anchored: pa.Table, sent: pa.Table) -> pa.Table:
        return carried.stage(key, sent, anchored)

    return anchored.groupBy("shard").cogroup(rows.groupBy("shard")).applyInArrow(run, SCHEMA)


def _alone(stage: PreviewStage | AtShard | ForgettingStage | CleaningStage) -> Callable[[Any, pa.Table], pa.Table]:
    carried = _Sent(stage)

    def run(key: Any, anchored: pa.Table) -> pa.Table:
        return carried.stage(key, anchored)

    return run


def _blobs(rows: DataFrame) -> list[pa.Buffer]:
    return [blob.as_buffer() for blob in rows.toArrow().column("blob")]
