"""What runs on executors in a step: tasks and shards, as functions from Arrow to Arrow.

A row is a shard and a pickled `ShardInput` for it. A shard's state is on the local disk of its executor, in the version
that the last step left. If it is not there, the shard says so, and the run resumes from its progress.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import pickle
import platform
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.connectors.model.encoded_rows import Encoder
from tidegate.connectors.model.errors import InputError, JobError
from tidegate.engine import KeyedSide, ResultRows
from tidegate.engine.sharding.payloads import Sharding
from tidegate.job.runtime.carries import run_sent_task
from tidegate.job.runtime.emission import Completeness, StepOrder
from tidegate.job.runtime.placement import ShardName, StateSizes
from tidegate.job.runtime.sealing import SealedFile, SealedState, SealFolder, SealUnusable
from tidegate.job.runtime.shards import ShardInput, ShardReport, deliveries_of_task, new_shard, preview_shard, run_shard
from tidegate.job.runtime.state_store import StateStore, StoredState
from tidegate.job.runtime.task import RangeResult, Task
from tidegate.job.runtime.writers import Stretches, WriterRows, Written, shares, write_shares
from tidegate.ordering import Policy
from tidegate.spark.queries.shared_query import SharedProgram
from tidegate.spark.shared_folder import SharedFolder

# PySpark collects garbage after every task; what is imported here is not garbage and need not be looked at each time.
gc.freeze()

_SIZES: dict[tuple[str, int, int], StateSizes] = {}
"""Of the shards that have run in this process, by run, level and number."""

SCHEMA = "shard int, blob binary"
_BATCH_BYTES = 16 * 2**20
_ARROW = pa.schema([("shard", pa.int32()), ("blob", pa.binary())])


@dataclass(frozen=True, slots=True)
class JobOnShards:
    """What stays the same from step to step.

    Attributes:
        run: a name that no other run has; the states of a run are of no use to another.
        labels: the key under which Spark keeps each shard.
        folder: where executors keep states; None for a folder for temporary files.
        shared: the folder that executors share with the driver; None if they are on its machine.
        only: the shards that take part; None for all.
    """

    run: str
    program: SharedProgram
    policy: Policy
    sharding: Sharding
    labels: tuple[int, ...]
    folder: str | None = None
    shared: SharedFolder | None = None
    only: frozenset[ShardName] | None = None

    @property
    def levels(self) -> int:
        """How many levels take part."""
        return self.sharding.levels if self.only is None else 1 + max(level for level, _ in self.only)

    def has(self, level: int, shard: int) -> bool:
        """Return whether a shard takes part."""
        return self.only is None or (level, shard) in self.only

    def shards_of(self, level: int) -> list[int]:
        """Return the shards of a level that take part; none above the last level."""
        return [shard for shard in range(self.sharding.shards) if self.has(level, shard)]

    def levels_of(self, shard: int) -> list[int]:
        """Return the levels on which a shard takes part."""
        return [level for level in range(self.levels) if self.has(level, shard)]

    def lost(self, shard: int, version: int) -> frozenset[ShardName]:
        """Return the levels on which the state of a shard is not on this executor."""
        store = self.store()
        levels = self.levels_of(shard) if version else []
        return frozenset((level, shard) for level in levels if not store.has(f"{level}-{shard}", version))

    def shard_of(self, key: tuple[Any, ...]) -> int:
        """Return the shard that Spark keeps under a key."""
        return self.labels.index(key[0].as_py() if hasattr(key[0], "as_py") else key[0])

    def store(self) -> StateStore:
        """Return the states of this run on this executor."""
        local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        return StateStore(Path(self.folder or local or tempfile.gettempdir()) / f"tidegate-{self.run}")


@dataclass(frozen=True, slots=True)
class Writing:
    """How executors write the results of a step.

    Attributes:
        encoders: by output; the rows of other outputs go to the driver.
        folder: where they write parts; the driver reads it.
        stretches: how the results are cut.
    """

    encoders: Mapping[str, Encoder]
    folder: Path
    stretches: Stretches


@dataclass(slots=True)
class Answer:
    """What reaches the driver from one place.

    Attributes:
        results: of tasks, without their partial results.
        report: of a shard.
        failure: why a task could not be run; then no shard has done anything.
        lost: shards whose states are gone.
        state_bytes: how much the shard holds.
        home: the executor that holds it, by a name that no other has.
        operator_bytes: how much its operators hold, by number, as it was last measured.
        written: what a writer has encoded.
        preview: what a shard would emit if no further event came.
        sealed: by state, the files of a shard's sealed state.
        problem: why a disk could not be written, or a sealed state not be used.
    """

    results: list[RangeResult] = field(default_factory=list)
    report: ShardReport | None = None
    failure: JobError | None = None
    lost: frozenset[ShardName] = frozenset()
    state_bytes: int = 0
    home: str = ""
    operator_bytes: Mapping[int, int] = field(default_factory=dict)
    written: Written = field(default_factory=dict)
    preview: list[ResultRows] = field(default_factory=list)
    sealed: dict[str, tuple[SealedFile, ...]] = field(default_factory=dict)
    problem: str | None = None


@dataclass(slots=True)
class ShardParcel:
    """A delivery for a shard, and answers on their way to the driver."""

    delivery: ShardInput
    answers: list[Answer] = field(default_factory=list)

    @property
    def is_void(self) -> bool:
        """Whether the step has failed below."""
        return any(one.failure is not None or one.lost for one in self.answers)


@dataclass(frozen=True, slots=True)
class TaskStage:
    """Runs the tasks of a step: ``tasks`` are pickled, by number."""

    job: JobOnShards
    tasks: Sequence[bytes]
    published: Mapping[int, Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._parcels(number)

    def _parcels(self, number: int) -> Iterator[pa.RecordBatch]:
        answer, deliveries = self.run(number)
        yield from _rows(self.job, 0, number, deliveries, [answer])

    def run(self, number: int) -> tuple[Answer, list[ShardInput]]:
        """Run a task; return its answer, and a delivery for each shard."""
        program, sharding = self.job.program.value(), self.job.sharding
        answer = Answer()
        deliveries = [ShardInput(number, {}) for _ in range(sharding.shards)]
        problem = None if self.job.shared is None else self.job.shared.problem_here()
        if problem is not None:
            answer.failure = JobError(problem)
        elif number < len(self.tasks):
            task: Task = pickle.loads(self.tasks[number])
            try:
                results = run_sent_task(task, dict(self.published), program, self.job.policy)
                answer.results, deliveries = deliveries_of_task(number, results, program, sharding)
            except InputError as error:
                # Returned as a value: an exception would be retried, and arrive as pages of two tracebacks.
                answer.failure = error
        return answer, deliveries


@dataclass(frozen=True, slots=True)
class ShardStage:
    """Runs the shards of one level, each from version ``version`` of its state to the next."""

    job: JobOnShards
    order: StepOrder
    level: int
    version: int
    writing: Writing | None = None

    def __call__(self, key: tuple[Any, ...], sent: pa.Table, anchor: pa.Table) -> pa.Table:
        job, level = self.job, self.level
        shard = job.shard_of(key)
        if not job.has(level, shard):
            return _table([])
        parcels: list[ShardParcel] = [pickle.loads(blob.as_buffer()) for blob in sent.column("blob")]
        answers = [answer for parcel in parcels for answer in parcel.answers]
        deliveries: list[ShardInput] = []
        # A void step is void for every shard, but only some of them have been told: see `deliver_void`.
        if any(parcel.is_void or parcel.delivery.void for parcel in parcels):
            deliveries = [ShardInput(shard, {}, void=True) for _ in range(job.sharding.shards)]
        else:
            answer, deliveries = self.run(shard, [parcel.delivery for parcel in parcels])
            answers.append(answer)
        if level + 1 < job.levels or self.writing is not None:
            return pa.Table.from_batches(list(_rows(job, level + 1, shard, deliveries, answers)), _ARROW)
        return _table([(job.labels[shard], pickle.dumps(answers, protocol=5))])

    def run(self, shard: int, deliveries: list[ShardInput]) -> tuple[Answer, list[ShardInput]]:
        """Run a shard; return its answer, and a delivery for each shard of the next level."""
        job, place = self.job, (self.level, shard)
        keyed = new_shard(job.program.value(), job.policy, job.sharding, self.level)
        store, name = job.store(), f"{self.level}-{shard}"
        try:
            before = load_state(store, name, self.version, keyed)
        except FileNotFoundError:
            void = [ShardInput(shard, {}, void=True) for _ in range(job.sharding.shards)]
            return Answer(lost=job.lost(shard, self.version) | {place}), void
        report, following = run_shard(keyed, place, job.sharding, self.order, deliveries)
        stored = store.save(name, self.version + 1, keyed.state, before)
        passed_on = [one.share for one in deliveries if one.share is not None]
        following = self._with_shares(shard, report, following, passed_on)
        sizes = _SIZES.setdefault((job.run, *place), StateSizes())
        sizes.see(keyed)
        answer = Answer(report=report, state_bytes=stored.bytes, home=_home(), operator_bytes=dict(sizes.operators))
        if self.order.preview and job.sharding.levels == 1:
            answer.preview = self._preview(place, stored, report.complete)
        return answer, following

    def _preview(self, place: ShardName, stored: StoredState, complete: Completeness) -> list[ResultRows]:
        """Return what the shard would emit after the step if no further event came; see `PreviewStage`."""
        job = self.job
        keyed = new_shard(job.program.value(), job.policy, job.sharding, self.level)
        keyed.state = stored.value
        rows, _ = preview_shard(keyed, place, job.sharding, self.order.after(complete.slowest, keyed.program), [])
        return rows

    def _with_shares(
        self, shard: int, report: ShardReport, following: list[ShardInput], passed_on: Sequence[WriterRows]
    ) -> list[ShardInput]:
        """Move the rows that writers encode from the report to the deliveries, with those of lower levels."""
        if self.writing is None:
            return following
        mine = [rows for rows in report.rows if rows.output in self.writing.encoders]
        report.rows = [rows for rows in report.rows if rows.output not in self.writing.encoders]
        count = self.job.sharding.shards
        following = following or [ShardInput(shard, {}) for _ in range(count)]
        for delivery, share in zip(following, shares(mine, self.writing.stretches, count), strict=True):
            delivery.share = share
        for share in passed_on:
            following[shard].share = share.with_more(following[shard].share)
        return following


@dataclass(frozen=True, slots=True)
class WholeStepStage:
    """Runs a whole step in one task, where every executor is on one machine.

    Spark takes longer to plan an exchange and to start the tasks of two stages than a small step takes to compute. What
    a shard receives is pickled here as well, so that it gets the same copy of the same values either way.

    Attributes:
        tasks: pickled; published, order, version: as for `TaskStage` and `ShardStage`.
    """

    job: JobOnShards
    tasks: Sequence[bytes]
    published: Mapping[int, Any]
    order: StepOrder
    version: int

    def __call__(self, rows: Iterable[Any]) -> Iterator[bytes]:
        # Spark ends a worker whose input was not read.
        for _ in rows:
            pass
        yield pickle.dumps(self._answers(), protocol=5)

    def _answers(self) -> list[Answer]:
        count, job = self.job.sharding.shards, self.job
        lost = frozenset(one for shard in range(count) for one in job.lost(shard, self.version))
        if lost:
            return [Answer(lost=lost)]
        answers: list[Answer] = []
        inboxes: list[list[ShardInput]] = [[] for _ in range(count)]
        place = TaskStage(self.job, self.tasks, self.published)
        # Without a task, the first number stands for one that has read nothing.
        for number in range(max(1, len(self.tasks))):
            answer, deliveries = place.run(number)
            answers.append(answer)
            if answer.failure is not None:
                return answers
            _deliver(deliveries, inboxes)
        for level in range(job.levels):
            received, inboxes = inboxes, [[] for _ in range(count)]
            shards = ShardStage(job, self.order, level, self.version)
            for shard in job.shards_of(level):
                answer, deliveries = shards.run(shard, received[shard])
                answers.append(answer)
                if answer.lost:
                    return answers
                _deliver(deliveries, inboxes)
        return answers


@dataclass(frozen=True, slots=True)
class RehearsalStage:
    """Takes a whole step for nothing but what a worker learns from it.

    Several do so at the same time, each with states of its own, which it deletes.
    """

    step: WholeStepStage

    def __call__(self, rows: Iterable[Any]) -> Iterator[bytes]:
        job = replace(self.step.job, run=f"{self.step.job.run}_{uuid.uuid4().hex}")
        try:
            yield from replace(self.step, job=job)(rows)
        finally:
            job.store().delete()


@dataclass(frozen=True, slots=True)
class RehearsedShardStage:
    """Takes the step of a shard for nothing but what a worker and its Java learn from it."""

    stage: ShardStage

    def __call__(self, key: tuple[Any, ...], sent: pa.Table, anchor: pa.Table) -> pa.Table:
        job = replace(self.stage.job, run=f"rehearsal_{uuid.uuid4().hex}")
        try:
            return replace(self.stage, job=job)(key, sent, anchor)
        finally:
            job.store().delete()


def _deliver(deliveries: Sequence[ShardInput], inboxes: Sequence[list[ShardInput]]) -> None:
    """Put a copy of each delivery into the inbox of its shard; the last level delivers nothing."""
    for inbox, delivery in zip(inboxes, deliveries, strict=False):
        inbox.append(pickle.loads(pickle.dumps(delivery, protocol=5)))


@dataclass(frozen=True, slots=True)
class WriterStage:
    """Merges, encodes and writes the rows that shards have for it."""

    job: JobOnShards
    writing: Writing

    def __call__(self, key: tuple[Any, ...], sent: pa.Table, anchor: pa.Table) -> pa.Table:
        parcels: list[ShardParcel] = [pickle.loads(blob.as_buffer()) for blob in sent.column("blob")]
        answers = [answer for parcel in parcels for answer in parcel.answers]
        received = sorted((parcel.delivery for parcel in parcels), key=lambda delivery: delivery.sender)
        problem = None if self.job.shared is None else self.job.shared.problem_here()
        if problem is not None:
            answers.append(Answer(failure=JobError(problem)))
        elif not any(delivery.void for delivery in received):
            mine = [delivery.share for delivery in received if delivery.share is not None]
            answers.append(Answer(written=write_shares(mine, self.writing.encoders, self.writing.folder)))
        label = key[0].as_py() if hasattr(key[0], "as_py") else key[0]
        return _table([(label, pickle.dumps(answers, protocol=5))])


@dataclass(frozen=True, slots=True)
class WorkStage:
    """Calls functions that outputs need called, by number: ``works`` are pickled, and so is what they return."""

    works: Sequence[bytes]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                work: Callable[[], Any] = pickle.loads(self.works[number])
                blob = pickle.dumps(work(), protocol=5)
                yield pa.record_batch([pa.array([number], pa.int32()), pa.array([blob], pa.binary())], schema=_ARROW)


@dataclass(frozen=True, slots=True)
class PreviewStage:
    """Finds what the shards of one level would emit if no further event came; their states do not change."""

    job: JobOnShards
    order: StepOrder
    level: int
    version: int

    def __call__(self, key: tuple[Any, ...], *tables: pa.Table) -> pa.Table:
        """Preview a shard; the tables are its anchor and, above the lowest level, before it what the shard is sent."""
        job, level = self.job, self.level
        shard = job.shard_of(key)
        sent = tables[0].column("blob") if level else []
        parcels: list[ShardParcel] = [pickle.loads(blob.as_buffer()) for blob in sent]
        answers = [answer for parcel in parcels for answer in parcel.answers]
        keyed = new_shard(job.program.value(), job.policy, job.sharding, level)
        try:
            load_state(job.store(), f"{level}-{shard}", self.version, keyed)
        except FileNotFoundError:
            answers.append(Answer(lost=job.lost(shard, self.version) | {(level, shard)}))
            following = [ShardInput(shard, {}, void=True) for _ in range(job.sharding.shards)]
        else:
            deliveries = [parcel.delivery for parcel in parcels]
            rows, following = preview_shard(keyed, (level, shard), job.sharding, self.order, deliveries)
            answers.append(Answer(preview=rows))
        if level + 1 < job.sharding.levels:
            return pa.Table.from_batches(list(_rows(job, level + 1, shard, following, answers)), _ARROW)
        return _table([(job.labels[shard], pickle.dumps(answers, protocol=5))])


@dataclass(frozen=True, slots=True)
class SealingStage:
    """Copies the states of a shard, of all levels, to a folder."""

    job: JobOnShards
    folder: SealFolder
    version: int

    def __call__(self, key: tuple[Any, ...], anchor: pa.Table) -> pa.Table:
        store, shard = self.job.store(), self.job.shard_of(key)
        answer = Answer(lost=self.job.lost(shard, self.version), home=_home())
        for level in () if answer.lost else self.job.levels_of(shard):
            name = f"{level}-{shard}"
            try:
                answer.sealed[name] = self.folder.seal(store, name, self.version)
            except OSError as error:
                answer.problem = str(error)
        return _table([(self.job.labels[shard], pickle.dumps([answer], protocol=5))])


@dataclass(frozen=True, slots=True)
class RestoringStage:
    """Copies the sealed states of a shard, of all levels, to where it is."""

    job: JobOnShards
    folder: SealFolder
    sealed: SealedState

    def __call__(self, key: tuple[Any, ...], anchor: pa.Table) -> pa.Table:
        store, answer, shard = self.job.store(), Answer(), self.job.shard_of(key)
        try:
            for level in self.job.levels_of(shard):
                self.folder.restore(store, f"{level}-{shard}", self.sealed)
        except SealUnusable as error:
            answer.problem = str(error)
        return _table([(self.job.labels[shard], pickle.dumps([answer], protocol=5))])


@dataclass(frozen=True, slots=True)
class AdoptingStage:
    """Gives the states of lost shards, which were computed again, to the run that had lost them.

    Attributes:
        job: what has computed them, up to version ``version``.
        run: the run that had lost ``lost``, and has version ``as_version`` of the others.
    """

    job: JobOnShards
    version: int
    run: JobOnShards
    as_version: int
    lost: frozenset[ShardName]

    def __call__(self, key: tuple[Any, ...], anchor: pa.Table) -> pa.Table:
        store, rebuilt, shard = self.run.store(), self.job.store(), self.run.shard_of(key)
        own = [(level, of) for level, of in sorted(self.lost) if of == shard]
        answer = Answer()
        for level, _ in own:
            try:
                store.adopt(rebuilt, f"{level}-{shard}", self.version, self.as_version)
            except FileNotFoundError:
                answer.lost |= {(level, shard)}
        return _table([(self.run.labels[shard], pickle.dumps([answer], protocol=5))])


@dataclass(frozen=True, slots=True)
class ArrivingStage:
    """Copies the states of a shard, of all levels, to where it is now, and says which are not there, as `Answer.lost`.

    Attributes:
        job: the run with all of its shards, of which only those that move are sent the answers of a `SealingStage`.
    """

    job: JobOnShards
    folder: SealFolder
    version: int

    def __call__(self, key: tuple[Any, ...], sent: pa.Table, anchor: pa.Table) -> pa.Table:
        job, sharding, shard = self.job, self.job.sharding, self.job.shard_of(key)
        answers: list[Answer] = [answer for blob in sent.column("blob") for answer in pickle.loads(blob.as_buffer())]
        here = Answer()
        for left in answers:
            if left.home == _home():
                # Executors that share a disk share its states.
                left.sealed = {}
            sealed = SealedState(sharding.shards, sharding.seed, self.version, left.sealed)
            try:
                for name in left.sealed:
                    self.folder.restore(job.store(), name, sealed)
            except SealUnusable as error:
                here.problem = str(error)
        here.lost = job.lost(shard, self.version)
        return _table([(job.labels[shard], pickle.dumps([*answers, here], protocol=5))])


@dataclass(frozen=True, slots=True)
class ForgettingStage:
    """Deletes the states of shards that have moved.

    Attributes:
        left: each with the executor that it has left; Spark may run this elsewhere, even where a shard is now.
    """

    job: JobOnShards
    left: frozenset[tuple[int, str]]

    def __call__(self, key: tuple[Any, ...], anchor: pa.Table) -> pa.Table:
        store, shard = self.job.store(), self.job.shard_of(key)
        for level in self.job.levels_of(shard) if (shard, _home()) in self.left else ():
            store.forget(f"{level}-{shard}")
        return _table([])


@dataclass(frozen=True, slots=True)
class CleaningStage:
    """Deletes the states of a run."""

    job: JobOnShards

    def __call__(self, key: tuple[Any, ...], anchor: pa.Table) -> pa.Table:
        self.job.store().delete()
        return _table([])

    def of_machine(self, rows: Iterable[Any]) -> Iterator[bytes]:
        """Delete them where all executors are on one machine."""
        for _ in rows:
            self.job.store().delete()
        yield from ()


def loaded(rows: Iterable[Any]) -> Iterator[Any]:
    """Pass rows on; a worker that does so has loaded this module, and what it imports."""
    yield from rows


@functools.cache
def _home() -> str:
    """Return a name for this executor; each has a folder of its own."""
    own = f"{platform.node()} {os.environ.get('SPARK_LOCAL_DIRS', '')}"
    return hashlib.sha256(own.encode()).hexdigest()[:12]


def load_state(store: StateStore, name: str, version: int, keyed: KeyedSide) -> StoredState | None:
    """Load a version of a shard's state; version 0 is empty.

    Raises:
        FileNotFoundError: it is not on this executor.
    """
    if not version:
        return None
    stored = store.load(name, version)
    keyed.state = stored.value
    return stored


def _rows(
    job: JobOnShards, level: int, sender: int, deliveries: Sequence[ShardInput], answers: list[Answer]
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each shard of a level.

    One of them carries the answers; if they are failures, all do without results.

    Spark has work with each batch, so they are few and large.
    """
    void = any(one.failure is not None for one in answers)
    # Above the last level there are writers, one for each shard.
    shards = job.shards_of(level) if level < job.levels else list(range(job.sharding.shards))
    answering = shards[sender % len(shards)]
    labels: list[int] = []
    blobs: list[bytes] = []
    size = 0
    for shard in shards:
        delivery = deliveries[shard]
        delivery.void = delivery.void or void
        blobs.append(pickle.dumps(ShardParcel(delivery, answers if shard == answering else []), protocol=5))
        labels.append(job.labels[shard])
        size += len(blobs[-1])
        if size >= _BATCH_BYTES or shard == shards[-1]:
            yield pa.record_batch([pa.array(labels, pa.int32()), pa.array(blobs, pa.binary())], schema=_ARROW)
            labels, blobs, size = [], [], 0


def _table(rows: Sequence[tuple[int, bytes]]) -> pa.Table:
    labels = pa.array([label for label, _ in rows], pa.int32())
    return pa.table([labels, pa.array([blob for _, blob in rows], pa.binary())], schema=_ARROW)
