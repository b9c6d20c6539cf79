"""Runs a job on Spark. Everything that can fail without Spark is opened before Spark starts."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate.connectors.model.errors import InputError
from tidegate.connectors.model.retry_policy import WaitingNotice
from tidegate.engine import Program
from tidegate.job import Job, JobError, RunSummary, StepReport
from tidegate.job.config.function_definitions import FunctionDefinition
from tidegate.job.config.spark_settings import DEFAULT_MASTER, SparkSettings, WhereRun
from tidegate.job.run.isolated_placement import IsolatedPlacement
from tidegate.job.run.opening import OpenRun, open_run
from tidegate.job.run.patient_placement import ForwardingPlacement
from tidegate.job.run.placement_policy import BeginHere, PlacementPolicy, RunLocation
from tidegate.job.run.progress_report import StepTimes
from tidegate.job.run.run import Observer, Placements, RunHooks, RunSettings, in_this_process, run_steps
from tidegate.job.run.seal_schedule import is_worthwhile
from tidegate.job.run.status import note_waiting
from tidegate.job.runtime.emission import StepOrder
from tidegate.job.runtime.placement import Outcome, Placement, StateLost, WorkersLost
from tidegate.job.runtime.step import Step
from tidegate.job.runtime.task import Task
from tidegate.ordering import END_OF_TIME, Policy
from tidegate.spark.calls import StepThread, readable
from tidegate.spark.executors import ExecutorWatch, executors_for_shards, shards_for
from tidegate.spark.failures import failure_of
from tidegate.spark.placement import FIRST_EVENTS, SMALL_EVENTS, PlacementSettings, SparkPlacement
from tidegate.spark.session import spark_context
from tidegate.spark.shared_folder import SharedFolder, check_shared
from tidegate.spark.step import rehearse, warm_up


def run_job_on_spark(
    job: Job,
    *,
    spark: SparkSettings | None = None,
    master: str | None = None,
    start: int | None = None,
    until: int = END_OF_TIME,
    until_caught_up: bool = False,
    max_events_per_step: int | None = None,
    on_step: Callable[[StepReport], None] | None = None,
    observers: Sequence[Observer] = (),
    should_stop: Callable[[], bool] = lambda: False,
    notice: Callable[[str], None] = lambda text: None,
    accept_missing: bool = False,
    on_spark_ui: Callable[[str], None] = lambda address: None,
    on_place: Callable[[RunLocation], None] = lambda where: None,
    on_progress: Callable[[Mapping[str, Any]], None] | None = None,
    timed: Callable[[Step, StepTimes], None] | None = None,
) -> RunSummary:
    """Run a job with its tasks on a Spark master; see `tidegate.job.run_job` for the other arguments.

    Args:
        spark: the settings for Spark; None: those of the job file.
        master: Spark master URL; None: that of the settings.
        on_spark_ui: called with the address of Spark's web UI, if the settings ask for it.
        on_place: called as the run begins, and whenever it moves to Spark or back.
        on_progress: called after each step that read an event or emitted a row, with a report like Spark's
            ``StreamingQueryProgress``.
        timed: called after every step with its times.

    Raises:
        JobError: Spark does not start, or the job cannot start or continue.
    """
    wanted = (spark or job.definition.spark).overridden(master=master, ui=False, conf={})
    with (
        open_run(job, start=start, accept_missing=accept_missing, notice=notice) as opened,
        contextlib.ExitStack() as started,
    ):
        is_open_ended = until == END_OF_TIME and not until_caught_up
        hooks = RunHooks(
            on_step or (lambda report: None),
            observers,
            should_stop,
            timed,
            notice=notice,
            placed=on_place,
            progress=on_progress,
        )
        try:
            placements = SparkPlacements(job, opened, wanted, started, on_spark_ui, notice, is_open_ended=is_open_ended)
            settings = RunSettings(until, until_caught_up, max_events_per_step, placements.parallelism)
            return run_steps(opened, placements.of_run(), settings, hooks)
        except (Py4JError, PySparkException) as error:
            # Java may die while it is asked for no more than the number of its cores.
            raise failure_of(error) from error


@contextlib.contextmanager
def placements_on_spark(
    spark: SparkSettings, name: str, on_spark_ui: Callable[[str], None] = lambda address: None
) -> Iterator[Callable[[Program, Policy], Placement]]:
    """Yield what returns where a query runs under a policy: on a Spark that ends with the context.

    Each query takes the place of the one before, and its results wait for nothing.

    Args:
        name: the name of the application on Spark.
        on_spark_ui: called with the address of Spark's web UI, if the settings ask for it.

    Raises:
        JobError: Spark does not start, or executors do not share the current folder with this process.
    """
    with spark_context(spark, name) as context, contextlib.ExitStack() as used:
        if context.uiWebUrl:
            on_spark_ui(context.uiWebUrl)
        session, thread = SparkSession(context), StepThread()
        is_local = str(context.master).startswith("local")
        beside = None if is_local else Path.cwd()
        folder = Path(used.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-", dir=beside)))
        if not is_local:
            shared = SharedFolder.of(folder, "run the command in a folder on a file system that all machines share")
            check_shared(session, shared, lambda call: readable(lambda: thread.call(call)))
        placed = used.enter_context(contextlib.ExitStack())

        def place(program: Program, policy: Policy) -> Placement:
            placed.close()
            shards = spark.shards or shards_for(context.defaultParallelism)
            settings = PlacementSettings(shards, folder, name=name, master=str(context.master), rest_s=0)
            placement = SparkPlacement(session, program, policy, settings, thread)
            placed.callback(placement.close)
            return _OncePlacement(placement)

        yield place


class _OncePlacement(ForwardingPlacement):
    """A placement of a query that is not taken up again where Spark has lost a part of it."""

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        try:
            return super().run(tasks, order)
        except (StateLost, WorkersLost) as lost:
            raise JobError(f"Spark has lost what it computed, {lost}; run the command again") from lost


class SparkPlacements:
    """Where a job runs; Spark is started when it is first needed, and stopped with the run."""

    def __init__(
        self,
        job: Job,
        opened: OpenRun,
        wanted: SparkSettings,
        started: contextlib.ExitStack,
        on_spark_ui: Callable[[str], None],
        notice: Callable[[str], None] = lambda text: None,
        *,
        is_open_ended: bool = False,
    ) -> None:
        """
        Args:
            started: stops Spark when it is closed.
            is_open_ended: whether the run lasts until it is stopped, unless its inputs end.
        """
        self._job = job
        self._opened = opened
        self._wanted = wanted
        self._started = started
        self._on_spark_ui = on_spark_ui
        self._notice = notice
        self._master = wanted.master or DEFAULT_MASTER
        self._session: SparkSession | None = None
        self._shared: SharedFolder | None = None
        self._thread = StepThread()
        self._starting: _StartingSpark | None = None
        if wanted.where is WhereRun.SPARK:
            if is_open_ended and self._may_begin_here():
                self._starting = _StartingSpark(self._manager(), started, self._rehearse)
            else:
                self._context()
        self.parallelism = self._cores()

    def of_run(self) -> Placements:
        """Return the placements between which the settings allow the run to move."""
        here = in_this_process(self._job.policy)
        match self._wanted.where:
            case WhereRun.PROCESS:
                return replace(here, why=self._wanted.why)
            case WhereRun.SPARK if self._starting is not None:
                starting = self._starting
                first = self._isolated if self._has_code() else here.here
                begin = BeginHere(starting.is_up)
                return Placements(
                    lambda program: starting.watched(first(program), program), self._on_spark, begin, self._cores
                )
            case WhereRun.SPARK:
                return Placements(here.here, self._on_spark, parallelism=self._cores, why=self._wanted.why)
            case WhereRun.AUTO:
                return Placements(here.here, self._on_spark, PlacementPolicy(), self._cores)

    def _on_spark(self, program: Program) -> Placement:
        session = self._context()
        shards = self._wanted.shards or shards_for(session.sparkContext.defaultParallelism)
        settings = PlacementSettings(
            shards,
            self._opened.folder,
            self._opened.encoders,
            name=self._job.definition.name,
            master=self._master,
            shared=self._shared,
            may_differ=self._wanted.shards is None,
            executors=functools.partial(executors_for_shards, session.sparkContext, self._wanted.shards),
            first_events=SMALL_EVENTS if self._starting is None else FIRST_EVENTS,
        )
        return SparkPlacement(session, program, self._job.policy, settings, self._thread)

    def _rehearse(self, session: SparkSession, program: Program, tasks: Sequence[Task], order: StepOrder) -> None:
        """Take a step of the job on each core of Spark, for nothing but what workers learn from it."""
        shards = self._wanted.shards or shards_for(session.sparkContext.defaultParallelism)
        rehearse(session, program, self._job.policy, shards, tasks, order)

    def _may_begin_here(self) -> bool:
        """Return whether the first steps may be taken in this process, while Spark starts.

        Not where a query looks back so far that reading again costs more than waiting; nor over recorded logs, for
        which nobody waits.
        """
        job = self._job
        if not self._master.startswith("local") or is_worthwhile(job.program, job.policy):
            return False
        try:
            ends = [end for log in self._opened.inputs.logs.values() for end in log.ends().values()]
        except InputError:
            return True
        return any(not end.complete for end in ends)

    def _has_code(self) -> bool:
        """Return whether the job has code of the user's that may end the process that runs it; scripts cannot."""
        definition = self._job.definition
        functions = definition.functions.values()
        return any(not isinstance(one, FunctionDefinition) or not one.is_script for one in functions) or any(
            getattr(section, "deserializer", None) for section in definition.inputs.values()
        )

    def _isolated(self, program: Program) -> Placement:
        """Return a placement in a process of its own, which ends with the run."""
        placement = IsolatedPlacement(program, self._job.policy)
        self._started.callback(placement.close)
        return placement

    def _manager(self) -> AbstractContextManager[SparkContext]:
        name = f"tidegate {self._job.definition.name}"
        return spark_context(self._wanted, name, log_file=self._opened.folder / "spark.log", notice=self._waits)

    def _context(self) -> SparkSession:
        if self._session is None:
            if self._starting is not None:
                session = self._starting.session()
            else:
                session = SparkSession(self._started.enter_context(self._manager()))
            context = session.sparkContext
            if context.uiWebUrl:
                self._on_spark_ui(context.uiWebUrl)
            self._session = session
            if not self._master.startswith("local"):
                self._thread.watch = ExecutorWatch(context, self._waits)
                self._shared = SharedFolder.of(self._opened.folder)
                self._started.callback(self._shared.remove)
                check_shared(self._session, self._shared, lambda call: readable(lambda: self._thread.call(call)))
        return self._session

    def _waits(self, text: str) -> None:
        """Say that the run waits for executors, or that the wait is over, here and in its status."""
        note_waiting(self._opened.folder, text if isinstance(text, WaitingNotice) else None)
        self._notice(text)

    def _cores(self) -> int:
        """Return how many tasks a step should have: the cores of a local master, or of a cluster that has started."""
        if self._session is not None:
            return max(1, self._session.sparkContext.defaultParallelism)
        found = re.fullmatch(r"local\[(\d+)\]", self._master)
        return int(found[1]) if found else max(2, os.cpu_count() or 1)


class _StartingSpark:
    """A session that starts in a thread of its own, with workers that have taken a step of the job."""

    def __init__(
        self,
        manager: AbstractContextManager[SparkContext],
        started: contextlib.ExitStack,
        rehearsal: Callable[[SparkSession, Program, Sequence[Task], StepOrder], Any],
    ) -> None:
        """Start nothing yet: the first question does.

        Args:
            rehearsal: takes a step on a session, given the program of the run, and a step that was taken here.
        """
        self._manager = manager
        self._rehearsal = rehearsal
        self._watched: _WatchedPlacement | None = None
        self._future: Future[SparkSession] = Future()
        self._thread: threading.Thread | None = None
        started.push(self._end)

    def is_up(self) -> bool:
        """Return whether it is up.

        Raises:
            JobError: it cannot start.
        """
        self._begin()
        return self._future.done() and self._future.result() is not None

    def watched(self, placement: Placement, program: Program) -> Placement:
        """Return a placement whose latest step is rehearsed on Spark before that counts as up."""
        self._watched = _WatchedPlacement(placement, program)
        return self._watched

    def session(self) -> SparkSession:
        """Wait until it is up.

        Raises:
            JobError: it cannot start.
        """
        self._begin()
        return self._future.result()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._start, name="tidegate-starting", daemon=True)
            self._thread.start()

    def _start(self) -> None:
        try:
            context = self._manager.__enter__()
        except BaseException as error:
            self._future.set_exception(error)
            return
        try:
            warm_up(context)
            # The first one takes Java seconds, in which the run continues.
            session = SparkSession(context)
            self._rehearse(session)
        except BaseException as error:
            self._manager.__exit__(None, None, None)
            self._future.set_exception(error)
        else:
            self._future.set_result(session)

    def _rehearse(self, session: SparkSession) -> None:
        """Let workers take the latest step that the run has taken here, so that the first one there is no slower."""
        watched = self._watched
        if watched is None or watched.latest is None:
            return
        # What was read may have been deleted since; and a job that cannot run on Spark says so once it does.
        with contextlib.suppress(Exception):
            self._rehearsal(session, watched.program, *watched.latest)

    def _end(self, *raised: Any) -> None:
        if self._thread is None:
            return
        if not self._future.done():
            # The process may outlive this run; Spark must not.
            self._future.add_done_callback(
                lambda future: future.exception() or self._manager.__exit__(None, None, None)
            )
        elif self._future.exception() is None:
            self._manager.__exit__(*raised)


class _WatchedPlacement(ForwardingPlacement):
    """A placement that knows its program, and its latest step which read something."""

    def __init__(self, placement: Placement, program: Program) -> None:
        super().__init__(placement)
        self.program = program
        self.latest: tuple[Sequence[Task], StepOrder] | None = None

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        if tasks:
            self.latest = tasks, order
        return super().run(tasks, order)

    def use(self, program: Program) -> None:
        self.program = program
        super().use(program)
