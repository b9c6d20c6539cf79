"""The keyed side of a job on Spark: a placement whose shards run on executors."""

from __future__ import annotations

import contextlib
import pickle
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from tidegate.connectors.model.encoded_rows import Elsewhere, Encoder
from tidegate.connectors.model.errors import JobError, UnavailableError
from tidegate.engine import FunctionCalls, OperatorRows, Program, ResultRows
from tidegate.engine.sharding.payloads import Sharding, merged_results
from tidegate.job.runtime.carries import SentCarries
from tidegate.job.runtime.emission import Completeness, StepOrder
from tidegate.job.runtime.placement import Outcome, ShardName, StateLocation, WorkersLost
from tidegate.job.runtime.sealing import SealedFile, SealedState, SealFolder, SealUnusable
from tidegate.job.runtime.task import Task
from tidegate.job.runtime.writers import Stretches, in_order
from tidegate.ordering import END_OF_TIME, NO_TIME, Policy
from tidegate.spark.calls import StepThread, named, readable
from tidegate.spark.executors import shards_for
from tidegate.spark.failures import FAILURES
from tidegate.spark.newcomers import Move, Newcomers, cluster_of
from tidegate.spark.queries.hash_partitions import labels
from tidegate.spark.queries.shared_query import SharedProgram
from tidegate.spark.rebuilding import RebuildingShards, check, check_disks
from tidegate.spark.shared_folder import SharedFolder
from tidegate.spark.stages import (
    Answer,
    JobOnShards,
    RestoringStage,
    SealingStage,
    WholeStepStage,
    Writing,
)
from tidegate.spark.step import (
    anchor,
    at_shards,
    clean,
    configure,
    preview,
    release,
    runs_here,
    single_partition,
    step,
    whole_step,
    work,
)


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A pickled value in a folder that all executors can read."""

    path: Path

    @classmethod
    def of(cls, folder: Path, value: object) -> PublishedFile:
        """Write a value."""
        folder.mkdir(0o750, parents=True, exist_ok=True)
        path = folder / f"{uuid.uuid4().hex}.carry"
        path.write_bytes(pickle.dumps(value, protocol=5))
        return cls(path)

    @property
    def value(self) -> Any:
        """Read the value."""
        return pickle.loads(self.path.read_bytes())

    def delete(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


SMALL_EVENTS = 20_000
SMALL_STATE_BYTES = 64 * 2**20
"""A step of no more events over no more state is taken in one task where all executors are on one machine: an exchange
costs as much of the processor as computing from a hundred thousand events."""

FIRST_EVENTS = 250_000
"""`PlacementSettings.first_events` of a job that has run elsewhere: its results must not wait for Spark to plan for the
first time, which takes seconds."""

WRITE_FROM_ROWS = 20_000
"""Executors encode the results of a step after one with so many, or of the first if it reads so many events."""


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """How a keyed side is placed on Spark.

    Attributes:
        shards: how many shards each level has.
        may_differ: whether another number, that of a sealed state, will do as well, as the user has not set this one.
        folder: for what tasks read besides the log, and for parts of results; all executors and the driver share it.
        encoders: how executors encode rows, by output; the driver gets the rows of other outputs.
        name: the job's name, for Spark's UI; empty if the caller names the calls of its thread.
        master: the URL of Spark's master.
        shared: the folder that executors share with the driver; None if they are on its machine.
        executors: counts those that may have shards; 0 if their number does not change, or is not known.
        owner: the name of what the job leaves on a Spark that it shares with others; empty if it has its own.
        small_events: a step of no more events is taken in one task, where all executors are on one machine.
        first_events: the same for the first step, which computes the state.
        rest_s: how long results that wait for nothing but time may wait, so that an idle job does not bother Spark.
    """

    shards: int
    folder: Path
    encoders: Mapping[str, Encoder] = field(default_factory=dict)
    name: str = ""
    master: str = "spark"
    shared: SharedFolder | None = None
    may_differ: bool = False
    executors: Callable[[], int] = lambda: 0
    owner: str = ""
    small_events: int = SMALL_EVENTS
    first_events: int = SMALL_EVENTS
    rest_s: float = 1.0


class SparkPlacement:
    """Shards on the executors of one session."""

    def __init__(
        self,
        spark: SparkSession,
        program: Program,
        policy: Policy,
        settings: PlacementSettings,
        thread: StepThread,
    ) -> None:
        """Begin with empty states.

        Args:
            thread: makes the calls, so that a signal does not interrupt one.

        Raises:
            WorkersLost, UnavailableError, JobError: Spark failed.
        """
        self._settings = settings
        self._policy = policy
        self._spark = spark
        self._thread = thread
        # All executors of a local master are in one process, and their workers see each other's files.
        self._single: RDD[Any] | None = None
        if runs_here(spark):
            self._single = readable(lambda: thread.call(lambda: single_partition(spark)))
        self._anchored: DataFrame | None = None
        self._anchor_name = ""
        self._folder = settings.folder / f"step-{uuid.uuid4().hex}"
        self._encoders = settings.encoders
        own = program.sharded()
        self._program = own
        self._name = settings.name
        self._owner = settings.owner
        self._place_shards(settings.shards)
        self._outputs = own.output_names
        self._by_substream = own.by_substream
        self._carries = self._new_carries()
        self._version = 0
        self._parts: set[Path] = set()
        self._complete: Completeness | None = None
        self._ran_at = 0.0
        self._state_bytes = 0
        self._rows: int | None = None
        self._homes: set[str] = set()
        self._reached = [NO_TIME, NO_TIME]
        self._newcomers = None if cluster_of(spark) is None else Newcomers(spark)
        # One that is prepared, and one whose shards have moved.
        self._move: Move | None = None
        self._moved: Move | None = None

    def _place_shards(self, shards: int) -> None:
        """Give each of so many shards an executor, with an empty state."""
        own, settings = self._program, self._settings
        sharding = Sharding.of(own, shards, secrets.randbits(64))
        self._location = StateLocation(settings.master, shards, shared=bool(self._owner))
        self._run = f"{self._owner or 'run'}_{uuid.uuid4().hex}"
        shared_program = SharedProgram.of(own, self._owner)
        self._job = JobOnShards(self._run, shared_program, self._policy, sharding, (), shared=settings.shared)
        if self._single is None:
            self._anchor()

    def _anchor(self) -> DataFrame:
        """Return the anchor of the shards, made when it is first needed: small steps on this machine do without."""
        if self._anchored is None:
            spark, shards = self._spark, self._location.shards
            of_shards = labels(shards)

            def anchored() -> DataFrame:
                configure(spark, shards)
                return anchor(spark, of_shards, self._run, visible=bool(self._owner))

            self._anchored = self._call("anchor of shards", anchored)
            self._anchor_name = self._run
            self._job = replace(self._job, labels=of_shards)
        return self._anchored

    def _new_carries(self) -> SentCarries | None:
        """Return how the carries of substreams travel; the one carry of merged partitions is sent whole."""
        return None if self._policy.merged else SentCarries(self._publish, PublishedFile.delete)

    def _publish(self, value: object) -> PublishedFile:
        return PublishedFile.of(self._folder, value)

    @property
    def location(self) -> StateLocation:
        return self._location

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        """Run the tasks of a step, and the shards after them.

        Raises:
            JobError: Spark failed; the message has the task's own reason.
        """
        if not tasks and (resting := self._resting(order)) is not None:
            return resting
        self._delete_parts()
        carries = self._carries
        sent = list(tasks) if carries is None else [carries.sent(task) for task in tasks]
        published = {} if carries is None else dict(carries.published)
        blobs = [pickle.dumps(task, protocol=5) for task in sent]
        answers = self._answers(blobs, published, order, _events(tasks))
        check(answers)
        results = [result for answer in answers for result in answer.results]
        if carries is not None:
            carries.received(results, tasks)
        reports = [answer.report for answer in answers if answer.report is not None]
        self._version += 1
        complete = Completeness.least(report.complete for report in reports)
        whole = merged_results((rows for report in reports for rows in report.rows), self._outputs)
        written = in_order((answer.written for answer in answers), self._outputs)
        encoded = [replace(rows, elsewhere=Elsewhere(self._location.shards, self._work)) for rows in written]
        self._parts = {piece.path for rows in encoded for piece in rows.pieces if piece.path is not None}
        self._rows = sum(map(len, encoded)) + sum(len(rows) for rows in whole if rows.output in self._encoders)
        self._complete, self._ran_at = complete, time.monotonic()
        self._state_bytes = sum(answer.state_bytes for answer in answers)
        self._homes = {answer.home for answer in answers if answer.home}
        self._reached = [self._reached[1], complete.arrival if self._by_substream else complete.slowest]
        return Outcome(
            results,
            whole,
            complete,
            [error for report in reports for error in report.errors],
            FunctionCalls.sum(report.calls for report in reports),
            OperatorRows.sum(report.operator_rows for report in reports),
            self._state_bytes,
            encoded,
            _operator_bytes(answers),
            self._preview_of(answers) if order.preview and self._job.sharding.levels == 1 else None,
        )

    def _answers(
        self,
        tasks: Sequence[bytes],
        published: Mapping[int, Any],
        order: StepOrder,
        events: int,
    ) -> list[Answer]:
        """Take a step in the shape of its size."""
        spark, single, version = self._spark, self._single, self._version
        what = f"step {version + 1}, {events:,} events in {len(tasks)} tasks, {self._location.shards} shards"
        found: list[Answer]
        settings = self._settings
        is_first = not version and self._anchored is None
        is_small = events <= (settings.first_events if is_first else settings.small_events)
        is_small = single is not None and is_small and self._state_bytes <= SMALL_STATE_BYTES
        writing = None if is_small and is_first else self._writing(events)
        if single is not None and is_small and writing is None:
            whole = WholeStepStage(self._job, tasks, published, order, version)
            found = self._call(what, lambda: whole_step(single, whole))
        else:
            anchored = self._anchor()
            self._attend(order)
            found = self._call(
                what, lambda: step(spark, anchored, self._job, tasks, published, order, version, writing)
            )
        return found

    def _attend(self, order: StepOrder) -> None:
        """Look after what goes on beside steps, on a cluster."""
        newcomers, moved = self._newcomers, self._moved
        if newcomers is not None:
            self._call("warm-up of executors", lambda: newcomers.look(self._job, order))
        if moved is not None and self._call("shards that have moved", lambda: moved.is_done):
            self._give_up(moved)
            self._moved = None

    def _give_up(self, move: Move | None) -> None:
        """Give up the anchor of a move that is not in use."""
        if move is not None:
            with contextlib.suppress(*FAILURES):
                self._thread.call(move.end)

    def _resting(self, order: StepOrder) -> Outcome | None:
        """Return what a step without events comes to if it is too early to bother Spark; None if it is time.

        The arrival lower bound of an idle log rises all the time. Results that wait for it may wait a little longer.
        """
        complete = order.complete_with({}, self._program)
        if self._complete is not None and self._complete.slowest >= order.settled_at and not self._by_substream:
            # The shards hold nothing that time alone would release, and learn the time with the next events.
            return Outcome([], [], complete, state_bytes=self._state_bytes)
        rested = time.monotonic() - self._ran_at > self._settings.rest_s
        if complete != self._complete and (complete.slowest == END_OF_TIME or rested):
            return None
        return Outcome([], [], self._complete or Completeness(order.released, NO_TIME), state_bytes=self._state_bytes)

    def _writing(self, events: int) -> Writing | None:
        """Decide whether executors encode the results of a step: for few rows, another stage is not worth it."""
        expected = events if self._rows is None else self._rows
        encoders = dict(self._encoders)
        if not encoders or expected < WRITE_FROM_ROWS:
            return None
        before, last = self._reached
        stretches = Stretches.between(last, 2 * last - before if before != NO_TIME else NO_TIME)
        return Writing(encoders, self._folder, stretches)

    def _work(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        """Call functions of outputs on executors; see `Elsewhere`."""
        try:
            found: list[Any] = self._call(
                f"commit of step {self._version}, {len(works)} writers", lambda: work(self._spark, works)
            )
        except WorkersLost as lost:
            raise UnavailableError(str(lost)) from lost
        return found

    def _delete_parts(self) -> None:
        """Delete the results of the step before, which every output has committed; outputs share the files."""
        for path in self._parts:
            path.unlink(missing_ok=True)
        self._parts = set()

    def idle_executors(self, sealed: bool) -> int:
        executors = self._settings.executors() if self._homes else 0
        if executors and sealed:
            shards, wanted = self._location.shards, shards_for(self._spark.sparkContext.defaultParallelism)
            executors = min(executors, shards) if _are_enough(shards, wanted) else 0
        return max(0, executors - len(self._homes))

    def preview(self, order: StepOrder) -> list[ResultRows]:
        if not self._version:
            return []
        what = f"early results after step {self._version}"
        anchored = self._anchor()
        found = self._call(what, lambda: preview(anchored, self._job, order, self._version))
        check(found)
        return self._preview_of(found)

    def _preview_of(self, answers: Sequence[Answer]) -> list[ResultRows]:
        merged = merged_results((rows for answer in answers for rows in answer.preview), self._outputs)
        return [rows.by_time() for rows in merged] if self._by_substream else merged

    def use(self, program: Program) -> None:
        self._program = program.sharded()
        self._job = replace(self._job, program=SharedProgram.of(self._program, self._owner))

    def seal(self, folder: SealFolder) -> SealedState:
        """Have every executor copy the states of its shards to a folder."""
        sharding, version = self._job.sharding, self._version
        if not version:
            return SealedState(sharding.shards, sharding.seed, version)
        anchored = self._anchor()
        stage = SealingStage(self._job, folder, version)
        found = self._call(f"seal of step {version}", lambda: at_shards(anchored, stage))
        check(found)
        return SealedState(sharding.shards, sharding.seed, version, _sealed_files(found))

    def restore(self, folder: SealFolder, sealed: SealedState) -> None:
        """Have every executor copy the states of its shards from a folder. Raises SealUnusable."""
        now = self._location.shards
        if sealed.shards is None or (
            sealed.shards != now and not (self._settings.may_differ and _are_enough(sealed.shards, now))
        ):
            before = "one process" if sealed.shards is None else f"{sealed.shards} shards"
            raise SealUnusable(f"it is of {before}, and the job now has {now} shards")
        if sealed.shards != now:
            self._call("anchor of shards", self._release)
            self._place_shards(sealed.shards)
        anchored = self._anchor()
        job = replace(self._job, sharding=Sharding.of(self._program, self._location.shards, sealed.seed))
        if sealed.version:
            stage = RestoringStage(job, folder, sealed)
            found = self._call("sealed state", lambda: at_shards(anchored, stage))
            for answer in found:
                if answer.problem is not None:
                    raise SealUnusable(answer.problem)
        self._job, self._version = job, sealed.version

    def close(self) -> None:
        """Delete the states, as far as executors can still be reached; those that are gone took theirs with them."""
        with contextlib.suppress(*FAILURES):
            if self._owner:
                # A step that was interrupted still runs, and others wait for its cores.
                self._spark.sparkContext.cancelJobGroup(self._owner)
            if self._newcomers is not None:
                self._thread.call(self._newcomers.end)
            self._thread.call(lambda: clean(self._anchored, self._single, self._job))
            self._thread.call(self._release)
        for path in self._folder.glob("*"):
            path.unlink(missing_ok=True)

    def _release(self) -> None:
        for move in (self._move, self._moved):
            if move is not None:
                move.end()
        self._move = self._moved = None
        if self._anchored is not None:
            release(self._anchored, self._anchor_name, visible=bool(self._owner))
            self._anchored = None

    def prepare_spread(self) -> bool:
        """Anchor the shards anew while steps go on, which still use the anchor before."""
        before, move, newcomers = self._anchored, self._move, self._newcomers
        if before is None or newcomers is None or not self._may_move():
            return True
        if not newcomers.are_warm:
            return False
        if move is None:
            # Shards may as well stay where they are.
            with contextlib.suppress(JobError, WorkersLost):
                self._move = self._call("anchor of shards", lambda: self._begun_move(before))
        elif not self._call("shards that move", lambda: move.is_current):
            self._give_up(move)
            self._move = None
        else:
            return bool(self._call("shards that move", lambda: move.is_done))
        return False

    def _begun_move(self, before: DataFrame) -> Move:
        return Move(self._spark, before, self._anchor_name, self._job, visible=bool(self._owner))

    def _may_move(self) -> bool:
        """Return whether moving some shards is as good as a run that starts again, perhaps with more shards."""
        shards = self._location.shards
        wanted = shards_for(self._spark.sparkContext.defaultParallelism) if self._settings.may_differ else shards
        return len(self._homes) < shards and _are_enough(shards, wanted)

    def spread(self) -> int | None:
        """Use the anchor that has been prepared, once the states of the shards that it puts elsewhere have followed."""
        move = self._move
        if move is None:
            return None
        if not move.has_shards:
            self._give_up(move)
            self._move = None
            return 0
        folder = SealFolder(self._folder.with_name(f"move-{uuid.uuid4().hex}"))
        try:
            moved: int = self._call("shards that move", lambda: move.follow(self._job, self._version, folder))
        except BaseException:
            self._give_up(move)
            self._move = None
            raise
        finally:
            folder.delete()
        self._anchored, self._anchor_name = move.anchored, move.name
        self._give_up(self._moved)
        self._move, self._moved = None, move
        self._call("shards that have moved", lambda: move.forget(self._job))
        return moved

    def rebuilding(self, lost: Collection[ShardName]) -> RebuildingShards | None:
        """Return how lost shards are computed again; None if no shard is left, as all may as well be placed anew."""
        if not lost or {shard for _, shard in lost} == set(range(self._location.shards)):
            return None
        # Spark may put the lost shards anywhere.
        self._give_up(self._move)
        self._move = None
        anchored = self._anchor()
        return RebuildingShards(
            self._spark,
            anchored,
            self._job,
            self._version,
            frozenset(lost),
            self._location,
            self._call,
            self._new_carries(),
        )

    def _call(self, what: str, function: Callable[[], Any]) -> Any:
        """Call Spark, in whose UI the call's jobs have the name of what it does."""

        def call() -> Any:
            if self._name:
                named(self._spark, self._name, what, self._owner)
            return function()

        return readable(lambda: self._thread.call(call))


def _are_enough(shards: int, wanted: int) -> bool:
    """Return whether a state of so many shards is worth keeping where as many are wanted."""
    return 2 * shards >= wanted


def _sealed_files(answers: Sequence[Answer]) -> dict[str, tuple[SealedFile, ...]]:
    """Return the files of sealed states.

    Raises:
        OSError: a disk refused one.
    """
    check_disks(answers)
    return {name: listed for answer in answers for name, listed in answer.sealed.items()}


def _operator_bytes(answers: Sequence[Answer]) -> dict[int, int]:
    total: Counter[int] = Counter()
    for answer in answers:
        total.update(answer.operator_bytes)
    return dict(total)


def _events(tasks: Sequence[Task]) -> int:
    return sum(one.log_range.end - one.log_range.start for task in tasks for one in task.ranges)
