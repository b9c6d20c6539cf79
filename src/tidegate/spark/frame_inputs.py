"""DataFrames as inputs of a query that runs: their rows become logs in its checkpoint (`streaming.frame_log`).

The rows of a DataFrame are written when the query starts, once. A streaming DataFrame has a query of Spark of its own,
which adds a batch after the other for as long as the query runs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from tidegate.connectors.inputs.kinds import LogOpening, StreamInput
from tidegate.connectors.model.errors import InputError, JobError
from tidegate.connectors.model.events import InputLog
from tidegate.connectors.model.section import Public, Secrecy
from tidegate.engine import Program
from tidegate.job import Job
from tidegate.job.run.journal import Journal
from tidegate.ordering import NO_TIME, read_from
from tidegate.spark.queries.frame_events import EventsOfFrame, RowLayout, columns_for, described, for_runs
from tidegate.spark.queries.frame_runs import ORDER as ORDER_OF_RUNS
from tidegate.spark.queries.frame_runs import RUNS, RunsStage
from tidegate.spark.queries.hash_partitions import labels
from tidegate.spark.streaming.causes import cause_of
from tidegate.spark.streaming.frame_log import SEGMENTS, FrameLog, Segment, SegmentsStage
from tidegate.spark.streaming.parts import parallelism

_FOLDER = "frames"


class FrameInput(StreamInput):
    """The section of an input whose events are the rows of a DataFrame; no job file has it.

    The arrival clock of an idle stream is not estimated: only Spark knows whether a stream is idle or has a backlog,
    and the rows of a backlog arrived long ago. As in Spark, the watermark waits for the next row.
    """

    type: Literal["dataframe"] = "dataframe"
    columns: Public
    # Not to be shown: it says nothing about what is read.
    rows: Annotated[Any, Secrecy.SECRET]

    def open_log(self, opening: LogOpening) -> InputLog:
        rows: FrameRows = self.rows
        if rows.log is None:
            raise InputError(f"input '{opening.name}' is a DataFrame, which only a query of a Spark program can read")
        return rows.log


def with_frames(job: Job, frames: Mapping[str, EventsOfFrame], caller: str) -> Job:
    """Return a job that reads DataFrames.

    Args:
        frames: by the name of the input, in lower case.

    Raises:
        JobError: the query uses a column that a DataFrame does not have, or a stream comes over Spark Connect.
    """
    sections = {}
    for name in job.definition.inputs:
        events = frames.get(name.lower())
        if events is not None:
            sections[name] = FrameInput(columns=described(events), rows=_rows(job.program, name, events, caller))
    definition = job.definition.model_copy(update={"inputs": {**job.definition.inputs, **sections}})
    return replace(job, definition=definition)


def frame_rows_of(job: Job) -> list[FrameRows]:
    """Return the DataFrames that a job reads."""
    read = {job.program.source_of(name).lower() for name in job.program.input_names}
    inputs = job.definition.inputs
    return [one.rows for name, one in inputs.items() if isinstance(one, FrameInput) and name.lower() in read]


def _rows(program: Program, name: str, events: EventsOfFrame, caller: str) -> FrameRows:
    read = next((one for one in program.input_names if program.source_of(one).lower() == name.lower()), None)
    rows = FrameRows(program, name, read, events)
    if rows.is_streaming and getattr(events.frame.sparkSession, "_sc", None) is None:
        raise JobError(
            f"{caller}: inputs['{name}'] is a streaming DataFrame, and over Spark Connect its batches cannot reach "
            "this process; pass what it reads, such as the options of the hub, or run the program without Connect"
        )
    return rows


@dataclass(slots=True)
class FrameRows:
    """The rows of one DataFrame.

    Attributes:
        name: the input's. read_as: its name in the program; None if the query does not read it.
        log: where they are, while the query runs.
    """

    program: Program
    name: str
    read_as: str | None
    events: EventsOfFrame
    log: FrameLog | None = None
    _plan: _Plan | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.read_as is not None:
            self._plan = _Plan.of(self.program, self.read_as, self.events)

    @property
    def is_streaming(self) -> bool:
        """Whether more rows come while the query runs."""
        return bool(self.events.frame.isStreaming)

    @contextlib.contextmanager
    def written(self, job: Job, query_name: str | None, trigger: Mapping[str, Any]) -> Iterator[None]:
        """Write the rows to a log in the job's state folder; those of a stream for as long as the block lasts.

        Args:
            query_name: of the query of Spark that a stream gets; None: it has none.
            trigger: as for Spark's ``trigger``. With ``availableNow`` a stream is written before the block begins.

        Raises:
            JobError: the rows cannot be read or written, or the log in the folder is of another DataFrame.
        """
        plan, state = self._plan, job.definition.state_dir
        assert plan is not None
        assert state is not None
        folder = state / _FOLDER / self.name.lower()
        log = FrameLog(folder, self.name, described(self.events), plan.kept, streaming=self.is_streaming)
        try:
            if not self.is_streaming:
                if not log.is_complete:
                    self._called(lambda: plan.write(plan.selected(), log, 0, complete=True))
                self.log = log
                yield
                return
            log.check_spark()
            with self._following(job, plan, log, query_name, trigger):
                self.log = log
                yield
        finally:
            self.log = None

    @contextlib.contextmanager
    def _following(
        self, job: Job, plan: _Plan, log: FrameLog, query_name: str | None, trigger: Mapping[str, Any]
    ) -> Iterator[None]:
        """Add the batches of a stream for as long as the block lasts."""

        def add(rows: DataFrame, batch: int) -> None:
            # Spark repeats a batch if it was killed before it noted the end.
            if log.newest is None or batch > log.newest:
                plan.write(rows, log, batch, complete=False)
                _forget_needless(job, log)

        writer = plan.selected().writeStream.foreachBatch(add).option("checkpointLocation", f"file://{log.of_spark}")
        if query_name is not None:
            writer = writer.queryName(f"{query_name}_{self.name}")
        if trigger:
            writer = writer.trigger(**trigger)
        is_over = threading.Event()
        query = self._called(writer.start)
        if trigger.get("availableNow"):
            try:
                self._called(query.awaitTermination)
            finally:
                _stop(query)
            yield
            return

        def watch() -> None:
            failure: JobError
            try:
                self._called(query.awaitTermination)
                failure = InputError(f"input '{self.name}': the query of Spark that reads the DataFrame was stopped")
            except JobError as error:
                failure = error
            if not is_over.is_set():
                log.failure = failure

        threading.Thread(target=watch, name="tidegate-frame", daemon=True).start()
        try:
            yield
        finally:
            is_over.set()
            _stop(query)

    def _called(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except (Py4JError, PySparkException) as error:
            cause = cause_of(error)
            text = cause.text.removesuffix(f" ({InputError.__name__})")
            where = f"input '{self.name}'"
            raise InputError(text if where in text else f"{where}: the DataFrame cannot be read: {text}") from error


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the rows of a DataFrame become events of a log.

    Attributes:
        columns: what is read of the DataFrame.
        order: the columns by which Spark sorts the rows of a partition; None if tasks do.
        layout: by which rows are sorted. kept: the one by which the log is read.
    """

    frame: DataFrame
    columns: tuple[Column, ...]
    order: tuple[Column, ...] | None
    layout: RowLayout
    kept: RowLayout

    @classmethod
    def of(cls, program: Program, read_as: str, events: EventsOfFrame) -> _Plan:
        """Return the plan; the order is that of the query over history.

        Raises:
            JobError: the query uses a column that the DataFrame does not have.
        """
        source = program.source_of(read_as)
        selected, order, layout = columns_for(events, source, program.need(read_as), whole=True)
        in_runs = layout.order is not None
        columns = for_runs(events, selected, layout) if in_runs else selected
        # The positions of a stream's batches need not follow each other.
        kept = replace(layout, numbered=False) if events.frame.isStreaming else layout
        return cls(events.frame, tuple(columns), None if in_runs else tuple(order), layout, kept)

    def selected(self) -> DataFrame:
        """Return the rows with the columns of the log."""
        return self.frame.select(*self.columns)

    def write(self, rows: DataFrame, log: FrameLog, batch: int, *, complete: bool) -> None:
        """Write the rows of a batch, and make them part of a log.

        Raises:
            Py4JError, PySparkException: Spark fails.
            OSError: the folder cannot be written.
        """
        count = parallelism(rows.sparkSession)
        if self.order is None:
            rows = rows.mapInArrow(RunsStage(self.layout, labels(count)), RUNS)
            rows = rows.repartition(count, "label").sortWithinPartitions(*ORDER_OF_RUNS)
        else:
            rows = rows.repartition("partition").sortWithinPartitions("partition", *self.order)
        place = SegmentsStage(self.layout, self.kept, str(log.folder), batch, self.order is None)
        log.add(batch, [Segment(*row) for row in rows.mapInArrow(place, SEGMENTS).collect()], complete=complete)


def _forget_needless(job: Job, log: FrameLog) -> None:
    """Delete what no restart of a job reads any more."""
    assert job.definition.state_dir is not None
    # It takes no part in results, and is tried again after the next batch.
    with contextlib.suppress(JobError, OSError):
        commit = Journal(job.definition.state_dir).read_commit()
        if commit is None or commit.released == NO_TIME:
            return
        arrival = read_from(commit.released, job.program.lookback_ticks, job.policy)
        if arrival is not None:
            log.forget_before(arrival)


def _stop(query: Any) -> None:
    # Spark may be gone.
    with contextlib.suppress(Py4JError, PySparkException):
        query.stop()
