"""`tidegate.spark.stream`: a Stream Analytics query whose results go wherever Spark writes.

The names are those of ``pyspark.sql.streaming.DataStreamWriter``, so that a Spark user finds what they expect.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.job import Job, JobError
from tidegate.job.config.definition import EventOrdering
from tidegate.job.config.spark_settings import WhereRun
from tidegate.spark.calls import accept_calls
from tidegate.spark.frame_inputs import with_frames
from tidegate.spark.queries.arguments import QueryArguments, check_arguments, check_times, job_of, time_of
from tidegate.spark.queries.frame_events import frames_of
from tidegate.spark.stream_run import StreamRun, StreamSettings
from tidegate.spark.streaming.checkpoint import Checkpoint, CheckpointOwner
from tidegate.spark.streaming.parts import parallelism
from tidegate.spark.streaming.query import (
    EvaluatedQuery,
    QueryControl,
    QueryEvaluation,
    UserFunction,
    evaluated,
    new_run,
)
from tidegate.spark.streaming.read_limits import BATCHES_CAN_BE_LIMITED
from tidegate.spark.streaming.result_tables import OutputTable
from tidegate.spark.streaming.sinks import SinkChoice
from tidegate.spark.streaming.step_source import FORMAT, StepFolder, StepSource
from tidegate.spark.streaming.steps import StepDelivery, StepSection, folder_of

_CALLER = "tidegate.spark.stream"
_STEPS_PER_INTERVAL = 4
_LOOK_EVERY_S = 0.05
_SAY_AFTER_S = 1.0
_UNITS_S = {"millisecond": 0.001, "ms": 0.001, "second": 1, "s": 1, "minute": 60, "m": 60, "hour": 3600, "h": 3600}


@dataclass(frozen=True, slots=True)
class Trigger:
    """When batches are taken.

    Attributes:
        interval_s: at the earliest so long after each other.
        available_now: until what is there has been read.
        arguments: of Spark's ``trigger``; none for its default.
    """

    interval_s: float = 0.0
    available_now: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)


def stream(
    spark: SparkSession,
    query: str | Path,
    *,
    inputs: Mapping[str, Any],
    event_ordering: Mapping[str, Any] | EventOrdering | None = None,
    output: str | None = None,
    schema: Any = None,
    start: str | datetime | None = None,
    compatibility_level: str = "1.2",
    functions: Mapping[str, Any] | None = None,
    placement: str = "spark",
    shards: int | None = None,
    max_events_per_step: int = 1_000_000,
    accept_missing: bool = False,
    accept_changes: bool = False,
    on_notice: Callable[[str], None] | None = None,
) -> ResultStreamWriter:
    """Prepare a query over live inputs, whose results are written like a streaming DataFrame's.

    Args:
        spark: the session whose executors run the query, and that writes the results.
        query: its text, or a ``Path`` of a file that has it.
        inputs: by the name the query uses: a section of the job file, the path of a recorded log, the options of the
            ``eventhubs`` source, a DataFrame of events, streaming or not, as `events` describes it, or a DataFrame as
            reference data, as `reference` describes it.
        event_ordering: the section of the job file, such as ``{"late_arrival_tolerance_s": 20}``.
        output: the output whose results are wanted, if the query has several; the others are computed and dropped. To
            write several, see ``ResultStreamWriter.output``.
        schema: the columns of the results, as Spark writes them (``"device string, n long"``) or as a ``StructType``;
            needed where the query does not determine them. By output, if several are written.
        start: output start time; the default resumes from the checkpoint, or starts at the beginning of the inputs.
        compatibility_level: of the query language.
        functions: by name, a Python function (``udf.NAME``), a class (``uda.NAME``), or a section of the job file.
        placement: ``"spark"``, ``"process"`` (the driver's), or ``"auto"``: on executors while the query is too large
            for the driver.
        shards: how many parts the state has on executors; the default is the number of cores, and less on more than 64.
        max_events_per_step: how much of a backlog one step reads.
        accept_missing: continue although events were removed from an input before they were read.
        accept_changes: continue from a checkpoint of another query, other inputs or other columns, where its results
            end. Else such a checkpoint is refused.
        on_notice: called with what the query has to say, such as events that it skipped, in the thread that evaluates
            it. It is also logged as warnings of the logger ``tidegate.spark.stream``, and kept in ``query.notices``.

    Returns:
        A writer, like ``DataFrame.writeStream``.

    Raises:
        JobError: an argument is wrong, or the query cannot be run; the message shows every problem found.
    """
    try:
        where = WhereRun(placement)
    except ValueError:
        raise JobError(f"{_CALLER}: placement is 'spark', 'auto' or 'process', got {placement!r}") from None
    check_arguments(spark, query, inputs, shards, _CALLER)
    arguments = QueryArguments(
        query,
        inputs,
        event_ordering=event_ordering,
        compatibility_level=compatibility_level,
        functions=functions,
        name="stream",
    )
    settings = StreamSettings(
        start=time_of("start", start, _CALLER),
        accept_missing=accept_missing,
        accept_changes=accept_changes,
        on_notice=on_notice,
        max_events_per_step=max_events_per_step,
        where=where,
        shards=shards,
    )
    return ResultStreamWriter(spark, arguments, settings, schema, output)


class ResultStreamWriter:
    """Says where the results of a query go, and starts it; like ``pyspark.sql.streaming.DataStreamWriter``."""

    def __init__(
        self, spark: SparkSession, arguments: QueryArguments, settings: StreamSettings, schema: Any, output: str | None
    ) -> None:
        """
        Args:
            schema: see `stream`.
            output: the only output whose results are wanted; None: all.
        """
        self._frames = frames_of(arguments.inputs, _CALLER)
        self._arguments = arguments
        job = self._job()
        self._spark = spark
        self._settings = settings
        self._schema = schema
        self._names = list(job.program.output_names)
        self._choices: dict[str, SinkChoice] = {}
        self._only: str | None = None
        self._only = None if output is None else self._name_of(output)
        self._selected = self._only or (self._names[0] if len(self._names) == 1 else None)
        self._query_name: str | None = None
        self._checkpoint: str | None = None
        self._trigger = Trigger()

    def output(self, name: str) -> ResultStreamWriter:
        """Select the output of the query that the following calls are about, up to the next `output`.

        Raises:
            JobError: the query has no output of that name.
        """
        self._selected = self._name_of(name)
        return self

    def outputMode(self, outputMode: str) -> ResultStreamWriter:
        """Accept the only mode that there is: ``append``, as a result is final when it is emitted.

        Raises:
            JobError: another mode.
        """
        if outputMode.lower() != "append":
            raise JobError(
                f"outputMode('{outputMode}'): only 'append' is possible, because a result is emitted once, when it is "
                "final; for interim results use early_results in a job file"
            )
        return self

    def format(self, source: str) -> ResultStreamWriter:
        """Name the format to write: parquet, json, csv, orc, avro, text, delta, iceberg, jdbc, kafka, eventhubs, …"""
        return self._choose(format=source)

    def option(self, key: str, value: bool | float | str | None) -> ResultStreamWriter:
        """Set an option of the format, or ``checkpointLocation``: the folder where the query keeps its state."""
        if key.lower() == "checkpointlocation":
            self._checkpoint = None if value is None else str(value)
            return self
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return self._choose(options={**self._choice().options, key: text})

    def options(self, **options: bool | float | str | None) -> ResultStreamWriter:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def partitionBy(self, *cols: str | list[str]) -> ResultStreamWriter:
        """Partition the output by columns."""
        return self._choose(partition_by=_flat(cols))

    def clusterBy(self, *cols: str | list[str]) -> ResultStreamWriter:
        """Cluster the output by columns."""
        return self._choose(cluster_by=_flat(cols))

    def queryName(self, queryName: str) -> ResultStreamWriter:
        """Name the query, in Spark's UI and for ``format("memory")``; of several outputs, each adds its own name.

        Raises:
            JobError: the name is empty.
        """
        if not queryName.strip():
            raise JobError("queryName: expected a name, got an empty text")
        self._query_name = queryName
        return self

    def trigger(
        self,
        *,
        processingTime: str | None = None,
        once: bool | None = None,
        continuous: str | None = None,
        availableNow: bool | None = None,
    ) -> ResultStreamWriter:
        """Say when batches are taken: every ``processingTime``, or until all that is available now has been processed.

        Raises:
            JobError: not exactly one trigger was given, or it is ``continuous``.
        """
        if continuous is not None:
            raise JobError("trigger(continuous=…) is not supported; the default takes batches as fast as it can")
        if sum(one not in (None, False) for one in (processingTime, once, availableNow)) != 1:
            raise JobError("trigger: give one of processingTime='10 seconds', availableNow=True and once=True")
        if processingTime is None:
            # Spark's own ``once`` is deprecated, and is the same but for the size of its batches.
            self._trigger = Trigger(available_now=True, arguments={"availableNow": True})
        else:
            self._trigger = Trigger(_seconds(processingTime), arguments={"processingTime": processingTime})
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], Any]) -> ResultStreamWriter:
        """Call a function with each batch's rows and its number, which count from 0.

        After a crash it is called again with the same rows and the same number. Over Spark Connect, it runs on the
        server.
        """
        if not callable(func):
            raise JobError(f"foreachBatch: expected a function of a DataFrame and a number, got {type(func).__name__}")
        return self._choose(function=func)

    def foreach(self, f: Any) -> ResultStreamWriter:
        """Call a function with each row, or the methods of an object, on the executors; see PySpark's ``foreach``."""
        return self._choose(row_function=f)

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> EvaluatedQuery:
        """Start the query.

        Args:
            path: where the selected output goes, if its format needs a path.
            format, outputMode, partitionBy, queryName, options: as the methods of these names.

        Raises:
            JobError: something is missing or wrong, the checkpoint is in use, or an input or output cannot be opened.
        """
        self._apply(format, outputMode, partitionBy, queryName, options)
        if path is not None:
            self._choose(path=path)
        return self._start()

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | list[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> EvaluatedQuery:
        """Start the query with a table of the session's catalog for the selected output; see `start`."""
        self._apply(format, outputMode, partitionBy, queryName, options)
        return self._choose(table=tableName)._start()

    def _apply(
        self,
        format: str | None,
        outputMode: str | None,
        partitionBy: str | list[str] | None,
        queryName: str | None,
        options: Mapping[str, Any],
    ) -> None:
        if format is not None:
            self.format(format)
        if outputMode is not None:
            self.outputMode(outputMode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        if queryName is not None:
            self.queryName(queryName)
        self.options(**options)

    def _choice(self) -> SinkChoice:
        if self._selected is None:
            raise JobError(
                f"the query has the outputs {', '.join(self._names)}: select one with .output('{self._names[0]}') "
                "before its format, options and path"
            )
        return self._choices.get(self._selected, SinkChoice())

    def _choose(self, **changes: Any) -> ResultStreamWriter:
        choice = replace(self._choice(), **changes)
        assert self._selected is not None
        self._choices[self._selected] = choice
        return self

    def _name_of(self, output: str) -> str:
        found = next((name for name in self._names if name.lower() == output.lower()), None)
        if found is None:
            raise JobError(f"the query has no output '{output}'; it has {', '.join(self._names)}")
        if self._only is not None and found != self._only:
            raise JobError(f"only the results of '{self._only}' are wanted; leave out output= to write several")
        return found

    def _job(self, state_dir: Path | None = None) -> Job:
        """Return the job that the query is.

        Raises:
            JobError, JobQueryError: see `stream`.
        """
        inputs = self._arguments.inputs
        given = {name: one for name, one in inputs.items() if name.lower() not in self._frames}
        others = [name for name in inputs if name.lower() in self._frames]
        arguments = replace(self._arguments, inputs=given, other_inputs=others, state_dir=state_dir)
        job = job_of(arguments, _CALLER)
        check_times(job, self._frames, _CALLER)
        return with_frames(job, self._frames, _CALLER)

    def _start(self) -> EvaluatedQuery:
        wanted = [self._only] if self._only is not None else self._names
        choices = {name: self._choices.get(name, SinkChoice()) for name in wanted}
        missing = [name for name in wanted if len(wanted) > 1 and name not in self._choices]
        if missing:
            raise JobError(
                f"output '{missing[0]}' has no format: choose one with .output('{missing[0]}').format(…), or name the "
                "only output that you want: stream(…, output=NAME)"
            )
        with contextlib.ExitStack() as opened:
            checkpoint = self._checkpoint_for(choices, opened)
            identity = checkpoint.identity()
            opened.enter_context(checkpoint.locked())
            job = self._job(checkpoint.state)
            tables = {name: self._table(job, name) for name in wanted}

            def owner() -> CheckpointOwner:
                return CheckpointOwner.of(job, {name: table.columns for name, table in tables.items()})

            if not self._settings.accept_changes:
                checkpoint.check(owner())
            calls = {name: self._call(choice, _owner(identity, name)) for name, choice in choices.items()}
            run = new_run()
            deliveries = {name: StepDelivery(table, run) for name, table in tables.items()}
            sections = {name: StepSection(delivery=deliveries.get(name, StepDelivery(run=run))) for name in self._names}
            definition = job.definition.model_copy(
                update={"outputs": sections, "name": self._query_name or job.definition.name}
            )
            life = StreamRun(
                self._spark,
                replace(job, definition=definition),
                self._settings_of_run(),
                run,
                self._query_name or identity,
                tables,
                lambda: checkpoint.claim(owner()),
            )
            held = opened.pop_all()
        # Spark takes what is there every interval, so steps should not begin just after it has looked.
        interval_s = self._trigger.interval_s / _STEPS_PER_INTERVAL

        def is_full() -> bool:
            return self._may_wait and any(delivery.is_full() for delivery in deliveries.values())

        def end(failure: str) -> None:
            for name, delivery in deliveries.items():
                delivery.end(StepFolder(folder_of(checkpoint.state, name)), failure)

        @contextlib.contextmanager
        def awaited() -> Iterator[None]:
            with contextlib.ExitStack() as waiting:
                for delivery in deliveries.values():
                    waiting.enter_context(delivery.awaited())
                yield

        control = QueryControl(interval_s, self._settings.on_notice, is_full)
        evaluation = QueryEvaluation(control, life.live, life.interrupt, end, awaited)
        try:
            evaluation.begin()
            queries = self._queries(choices, calls, tables, checkpoint, run, evaluation)
        except BaseException:
            evaluation.stop()
            held.close()
            raise
        functions = [call for call in calls.values() if isinstance(call, UserFunction)]
        return evaluated(queries, evaluation, functions, ends=self._trigger.available_now, at_end=held.close)

    def _settings_of_run(self) -> StreamSettings:
        """Return the settings with what was chosen since."""
        trigger = self._trigger
        return replace(
            self._settings,
            until_caught_up=trigger.available_now,
            query_name=self._query_name,
            trigger=trigger.arguments,
        )

    def _queries(
        self,
        choices: Mapping[str, SinkChoice],
        calls: Mapping[str, Any],
        tables: Mapping[str, OutputTable],
        checkpoint: Checkpoint,
        run: str,
        evaluation: QueryEvaluation,
    ) -> dict[str, Any]:
        """Start Spark's queries, and return them by output; that of the output selected last is the first.

        Raises:
            JobError: Spark refuses one of them, or there is none to start.
        """
        accept_calls()
        queries: dict[str, Any] = {}
        single = len(choices) == 1
        try:
            # Those whose columns are known need not wait for the first rows of the others.
            for name in sorted(choices, key=lambda name: tables[name].as_table is None):
                if not _await_columns(name, tables[name], evaluation, queries):
                    continue
                query_name = self._query_name if single or self._query_name is None else f"{self._query_name}_{name}"
                rows = self._rows(tables[name], folder_of(checkpoint.state, name), run)
                place = checkpoint.of_spark(None if single else name)
                queries[name] = choices[name].start(rows, query_name, place, self._trigger.arguments, calls[name])
        except BaseException:
            for query in queries.values():
                query.stop()
            raise
        if not queries:
            raise JobError(
                "the query has no results yet, and does not determine the types of its columns: declare them, "
                "schema='a bigint, b string'"
            )
        return {name: queries[name] for name in sorted(queries, key=lambda name: name != self._selected)}

    @property
    def _may_wait(self) -> bool:
        """Whether the evaluation may wait for Spark; older versions ask once for all that is available now."""
        return BATCHES_CAN_BE_LIMITED or not self._trigger.available_now

    def _call(self, choice: SinkChoice, owner: str) -> Any:
        """Return what takes the batches of an output; None if Spark writes them."""
        if getattr(self._spark, "_sc", None) is None and choice.function is not None:
            return choice.function
        return choice.user_function(self._spark, owner)

    def _rows(self, table: OutputTable, folder: Path, run: str) -> DataFrame:
        """Return the steps of an output as a streaming DataFrame."""
        assert table.as_table is not None
        self._spark.dataSource.register(StepSource)
        return (
            self._spark.readStream.format(FORMAT)
            .schema(from_arrow_schema(table.as_table.schema.arrow))
            .options(
                path=str(folder),
                run=run,
                untilEnd=self._trigger.available_now,
                waits=not self._trigger.arguments,
                tasks=parallelism(self._spark),
            )
            .load()
        )

    def _checkpoint_for(self, choices: Mapping[str, SinkChoice], opened: contextlib.ExitStack) -> Checkpoint:
        """Return the query's checkpoint; one that nobody named is deleted with ``opened``.

        Raises:
            JobError: a checkpoint location is needed, or is no folder that can be used.
        """
        location = self._checkpoint
        if location is None:
            root = self._spark.conf.get("spark.sql.streaming.checkpointLocation", None)
            location = None if root is None else f"{root.rstrip('/')}/{self._query_name or uuid.uuid4()}"
        if location is not None:
            return Checkpoint.at(location)
        if all(choice.keeps_nothing for choice in choices.values()):
            return Checkpoint(Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-stream-"))))
        raise JobError(
            "checkpointLocation is missing: set option('checkpointLocation', FOLDER), a folder that the driver and all "
            "executors share"
        )

    def _table(self, job: Job, output: str) -> OutputTable:
        schema = self._schema
        if isinstance(schema, Mapping):
            schema = next((one for name, one in schema.items() if name.lower() == output.lower()), None)
        return OutputTable(self._spark, job, output, schema, _CALLER)


def _await_columns(output: str, table: OutputTable, evaluation: QueryEvaluation, queries: Mapping[str, Any]) -> bool:
    """Wait for the first rows of an output, if they have to show which columns there are.

    Args:
        queries: those that run already.

    Returns:
        Whether the columns are known; not if the evaluation has ended without a row, or one of the queries has ended.

    Raises:
        JobError: the evaluation has failed.
    """
    began, is_said = time.monotonic(), False
    while table.as_table is None:
        is_over = not evaluation.is_alive or not all(query.isActive for query in queries.values())
        evaluation.join(_LOOK_EVERY_S)
        if evaluation.failure is not None:
            raise evaluation.failure
        if is_over:
            break
        if not is_said and time.monotonic() - began > _SAY_AFTER_S:
            is_said = True
            evaluation.control.notice(
                f"the first results of '{output}' are waited for, as the query does not determine the types of their "
                "columns; with schema='a bigint, b string' it starts at once"
            )
    return table.as_table is not None


def _flat(columns: Sequence[str | list[str]]) -> tuple[str, ...]:
    return tuple(name for one in columns for name in ([one] if isinstance(one, str) else one))


def _owner(identity: str, output: str) -> str:
    """Return a name for an output of a query that no other has, and that is the same after a restart."""
    return str(uuid.uuid5(uuid.UUID(identity), output.lower()))


def _seconds(text: str) -> float:
    found = re.fullmatch(r"\s*(?:interval\s+)?(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", text.lower())
    unit = None if found is None else _UNITS_S.get(found[2]) or _UNITS_S.get(f"{found[2]}s")
    if found is None or unit is None:
        raise JobError(f"trigger(processingTime='{text}'): expected a time such as '10 seconds' or '500 milliseconds'")
    return float(found[1]) * unit
