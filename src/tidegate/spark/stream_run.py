"""Evaluates a query of `tidegate.spark.stream` on the user's session."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidegate.connectors.model.encoded_rows import Encoder
from tidegate.engine import Program
from tidegate.job import Job
from tidegate.job.config.spark_settings import WhereRun
from tidegate.job.run.opening import OpenRun, open_run
from tidegate.job.run.placement_policy import PlacementPolicy
from tidegate.job.run.run import Placements, RunHooks, RunSettings, StepReport, in_this_process, run_steps
from tidegate.spark.calls import StepThread, readable
from tidegate.spark.executors import check_executors, executors_for_shards, shards_for
from tidegate.spark.frame_inputs import frame_rows_of
from tidegate.spark.placement import PlacementSettings, SparkPlacement
from tidegate.spark.shared_folder import SharedFolder, check_shared
from tidegate.spark.streaming.parts import ArrowEncoder, parallelism
from tidegate.spark.streaming.query import QueryControl, QueryStopped
from tidegate.spark.streaming.result_tables import AsTable, OutputTable
from tidegate.spark.streaming.step_session import end_session, session_for_steps

_LONGEST_END_S = 0.3


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How a query runs.

    Attributes:
        start: output start time in ticks; None resumes, or starts at the log's beginning.
        accept_missing: continue although events were removed from the log before they were read.
        accept_changes: continue from the checkpoint of another query; else it is refused.
        on_notice: called with what the query has to say.
        until_caught_up: end once everything that was there at the beginning has been processed.
        max_events_per_step: how much of a backlog one step reads.
        where: where the keyed side runs.
        shards: how many shards it has on Spark; None: as many as tasks run at once.
        query_name: the name of the query, if it was given one.
        trigger: the arguments of Spark's ``trigger``, for streaming DataFrames that are inputs.
    """

    start: int | None = None
    accept_missing: bool = False
    accept_changes: bool = False
    on_notice: Callable[[str], None] | None = None
    until_caught_up: bool = False
    max_events_per_step: int = 1_000_000
    where: WhereRun = WhereRun.SPARK
    shards: int | None = None
    query_name: str | None = None
    trigger: Mapping[str, Any] = field(default_factory=dict)


class StreamRun:
    """The life of the evaluation of one query."""

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        settings: StreamSettings,
        run: str,
        name: str,
        tables: Mapping[str, OutputTable],
        claim: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            run: a name that no other run has.
            name: the query's, for people.
            tables: by output, what its rows become.
            claim: notes whose the checkpoint is; called once the query has it for itself, and with each output whose
                columns become known.
        """
        self._spark = spark
        # The steps have settings of their own, which must not change those of the user's session.
        self._session = session_for_steps(spark)
        self._job = job
        self._settings = settings
        self._run = run
        self._name = name
        self._tables = tables
        self._claim = claim
        self._thread = StepThread()
        self._placements: list[_StreamPlacement] = []
        self._is_stopping: Callable[[], bool] = lambda: False
        self._steps = 0
        self._described = -1
        self._shared: SharedFolder | None = None

    def live(self, control: QueryControl) -> None:
        """Run the query until it is stopped or has reached its end.

        Raises:
            JobError: it cannot start or continue.
        """
        job, settings = self._job, self._settings
        self._is_stopping = lambda: control.is_stopping
        is_local = self._context is not None and str(self._context.master).startswith("local")
        if self._context is not None and not is_local:
            check_executors(self._context)
        with (
            contextlib.closing(self),
            self._frames_written(is_local=is_local),
            open_run(
                job,
                start=settings.start,
                accept_missing=settings.accept_missing,
                notice=control.notice,
                sleep=control.sleep,
                to_begin_anew="choose another checkpointLocation",
            ) as opened,
        ):
            # Spark's tasks read the rows of the steps there, wherever the query runs.
            if not is_local and self._shared is None:
                self._check_shared(opened.folder)
            self._claim()
            control.note_opened()

            def should_stop() -> bool:
                stops = control.should_stop()
                self._describe()
                return stops

            hooks = RunHooks(
                on_step=self._count,
                observers=[lambda step, totals, counts: control.note_step(caught_up=step.caught_up)],
                should_stop=should_stop,
                notice=control.notice,
                progress=control.reports.append,
                rest=control.rest,
            )
            limits = RunSettings(
                until_caught_up=settings.until_caught_up,
                max_events_per_step=settings.max_events_per_step,
                parallelism=parallelism(self._spark),
            )
            run_steps(opened, self._places(opened), limits, hooks)

    @contextlib.contextmanager
    def _frames_written(self, *, is_local: bool) -> Iterator[None]:
        """Write inputs that are DataFrames to the checkpoint; those that are streams for as long as the block lasts."""
        with contextlib.ExitStack() as written:
            for rows in frame_rows_of(self._job):
                if not is_local and self._shared is None:
                    assert self._job.definition.state_dir is not None
                    self._check_shared(self._job.definition.state_dir)
                self._in_group(f"{self._name}: the DataFrame {rows.name}")
                written.enter_context(rows.written(self._job, self._settings.query_name, self._settings.trigger))
            yield

    def interrupt(self) -> None:
        """Cancel what the query runs on Spark, and do not wait for it."""
        self._cancel()
        self._thread.abandon(QueryStopped())

    def _cancel(self) -> None:
        if self._context is None:
            self._session.interruptTag(self._run)
        else:
            self._context.cancelJobGroup(self._run)

    def close(self) -> None:
        """Delete the state that executors hold; a stop does not wait for tasks that must end first."""
        ending = threading.Thread(target=self._end, name="tidegate-end", daemon=True)
        ending.start()
        ending.join(_LONGEST_END_S if self._is_stopping() else None)

    def _end(self) -> None:
        for placement in self._placements:
            # The executors may be gone, or the session's context was stopped.
            with contextlib.suppress(Exception, QueryStopped):
                placement.end()
        if self._shared is not None:
            self._shared.remove()
        end_session(self._session)

    @property
    def _context(self) -> Any:
        """The session's context; None over Spark Connect."""
        return getattr(self._spark, "_sc", None)

    def _check_shared(self, folder: Path) -> None:
        self._shared = SharedFolder.of(folder)
        check_shared(self._session, self._shared, lambda call: readable(lambda: self._thread.call(call)))

    def _places(self, opened: OpenRun) -> Placements:
        encoders = dict(opened.encoders)
        for name, table in self._tables.items():
            table.on_known = functools.partial(self._note_columns, encoders, name)
        here = in_this_process(self._job.policy)
        if self._settings.where is WhereRun.PROCESS:
            return here
        policy = PlacementPolicy() if self._settings.where is WhereRun.AUTO else None
        cores = functools.partial(parallelism, self._spark)
        return Placements(here.here, lambda program: self._placement(program, opened, encoders), policy, cores)

    def _note_columns(self, encoders: dict[str, Encoder], output: str, as_table: AsTable) -> None:
        """Let executors encode the rows of an output from the next step on, now that its columns are known."""
        encoders[output] = ArrowEncoder(as_table)
        self._claim()

    def _placement(self, program: Program, opened: OpenRun, encoders: Mapping[str, Encoder]) -> SparkPlacement:
        shards = self._settings.shards or shards_for(parallelism(self._spark))
        master = "Spark Connect" if self._context is None else str(self._context.master)
        placed = PlacementSettings(
            shards,
            opened.folder,
            encoders,
            master=master,
            shared=self._shared,
            may_differ=self._settings.shards is None,
            executors=functools.partial(executors_for_shards, self._context, self._settings.shards),
        )
        placement = _StreamPlacement(self._session, program, self._job.policy, placed, self._thread)
        placement.is_left = self._is_stopping
        self._placements = [placement]
        return placement

    def _count(self, report: StepReport) -> None:
        self._steps = report.number

    def _describe(self) -> None:
        """Name the jobs of the next step in Spark's UI, and give them the group by which they are cancelled."""
        if self._steps == self._described:
            return
        self._described = self._steps
        description = f"{self._name}: step {self._steps}"
        self._in_group(description)
        self._thread.call(lambda: self._in_group(description))

    def _in_group(self, description: str) -> None:
        if self._context is None:
            self._session.addTag(self._run)
        else:
            self._context.setJobGroup(self._run, description)


class _StreamPlacement(SparkPlacement):
    """A placement whose state is left to the end of the run once the query should stop.

    Attributes:
        is_left: returns whether that is so.
    """

    is_left: Callable[[], bool]
    _ended = False

    def close(self) -> None:
        if not self.is_left():
            self.end()

    def end(self) -> None:
        """Delete the states, unless that was done."""
        if not self._ended:
            self._ended = True
            super().close()
