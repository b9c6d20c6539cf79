"""`tidegate.spark.sql`: a Stream Analytics query over history, as a DataFrame."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession, types

from tidegate.connectors.inputs.kinds import InputLimits
from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.events import InputLog
from tidegate.engine import ResultRows
from tidegate.job.config.definition import EventOrdering
from tidegate.job.prepare.loading import Job
from tidegate.ordering import format_time
from tidegate.spark.queries.arguments import QueryArguments, check_arguments, check_times, job_of, output_of, time_of
from tidegate.spark.queries.data_error_shares import DataErrorShares
from tidegate.spark.queries.frame_events import EventsOfFrame, frames_of, type_in, type_of_column
from tidegate.spark.queries.history import (
    Bounds,
    open_logs_of,
    query_on_shards,
    rejected_events,
    results,
    sharding_of,
    timelines_of,
)
from tidegate.spark.queries.reference_frames import ReferenceOfFrame
from tidegate.spark.queries.result_schema import ResultSchema, declared_schema, derived_schema, needs_samples
from tidegate.spark.queries.sampling import SampledLog, sample_results, sampled_frame
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.nodes import Type

_CALLER = "tidegate.spark.sql"
_DESCRIPTION = "spark.job.description"


def sql(
    spark: SparkSession,
    query: str | Path,
    *,
    inputs: Mapping[str, Any],
    event_ordering: Mapping[str, Any] | EventOrdering | None = None,
    output: str | None = None,
    start: str | datetime | None = None,
    until: str | datetime | None = None,
    schema: str | types.StructType | None = None,
    output_error_policy: Literal["stop", "drop"] = "stop",
    compatibility_level: str = "1.2",
    functions: Mapping[str, Any] | None = None,
    input_limits: Mapping[str, Any] | InputLimits | None = None,
    shards: int | None = None,
    data_error_warning_share: float = 0.1,
    data_error_stop_share: float = 1,
) -> DataFrame:
    """Evaluate a Stream Analytics query over history: the rows that a live job produced from the same events.

    The DataFrame is lazy and distributed. Its rows have no order; select System.Timestamp() and sort by it.

    Args:
        spark: any session; its configuration stays as it is.
        query: its text, or a `Path` of a file that holds it.
        inputs: by the name the query uses: a DataFrame, as `events` describes it or with the columns of the
            `eventhubs` source; a DataFrame as reference data, as `reference` describes it; a section
            ``[inputs.NAME]`` of the job file as a dict, reference data included; the options of the `eventhubs`
            source; or the path of a recorded log.
        event_ordering: the section of the job file, such as ``{"late_arrival_tolerance_s": 60}``.
        output: the INTO whose rows are wanted; needed if there are several.
        start: the output start time; only events are read that its results may depend on.
        until: only results before this time.
        schema: the columns, such as ``"window_end timestamp, cars bigint"``. Without it they follow from the query,
            and where the query leaves a type open, from the results of a few events.
        output_error_policy: with ``schema``, what happens to a row with a value that does not fit: it ends the
            query, or is dropped.
        compatibility_level: of the query language.
        functions: by the name after ``udf.`` or ``uda.``: a Python function, a class, or a section of the job file.
        input_limits: the section of the job file.
        shards: how many parts the state is divided into; by default, as many as Spark can work on at once.
        data_error_warning_share: the tasks log a warning, on the standard error of their executors, if more than this
            share of the events that one reads of a partition was adjusted or rejected, for each kind of data error;
            1: never. `rejected` returns such events.
        data_error_stop_share: the same, but the query ends with an error.

    Raises:
        JobError: an argument is wrong, or does not fit the query.
        JobQueryError: the query cannot be run; the message shows every problem found.
    """
    check_arguments(spark, query, inputs, shards, _CALLER)
    frames = _frames(inputs, _CALLER)
    arguments = QueryArguments(
        query, inputs, [], event_ordering, compatibility_level, functions, input_limits, name="sql"
    )
    job = _job(arguments, frames, _CALLER)
    wanted = output_of(job, output, _CALLER)
    for name, share in (("warning", data_error_warning_share), ("stop", data_error_stop_share)):
        if not 0 <= share <= 1:
            raise JobError(f"{_CALLER}: data_error_{name}_share is between 0 and 1, got {share!r}")
    bounds = _bounds(job, start, until, _CALLER)
    logs = open_logs_of(job, frames)
    try:
        struct, columns = _schema(
            spark, job, wanted, schema, output_error_policy, {**_references(inputs), **frames}, logs
        )
        timelines = timelines_of(logs, bounds, job.policy)
    finally:
        _close(logs)
    shares = DataErrorShares(data_error_warning_share, data_error_stop_share)
    on_shards = query_on_shards(job, sharding_of(spark, job.program.sharded(), shards), bounds, shares)
    return results(spark, on_shards, frames, timelines, bounds, struct, columns)


def rejected(
    spark: SparkSession,
    query: str | Path,
    *,
    inputs: Mapping[str, Any],
    event_ordering: Mapping[str, Any] | EventOrdering | None = None,
    start: str | datetime | None = None,
    until: str | datetime | None = None,
    compatibility_level: str = "1.2",
    functions: Mapping[str, Any] | None = None,
    input_limits: Mapping[str, Any] | InputLimits | None = None,
) -> DataFrame:
    """Return the events that a query over history cannot use, with the reason: those whose rows `sql` leaves out.

    The DataFrame is lazy and distributed. Its columns are ``input``, ``partition``, ``sequenceNumber`` and
    ``enqueuedTime``, the place of the event; ``reason``, the name of the data error in the service's log;
    ``message``; and ``body``, as it was. An event of several rows is there for each that cannot be used. Late and
    out-of-order events are among them if the policy drops them; one that is adjusted is used.

    Args:
        spark, query, inputs, event_ordering: as for `sql`.
        start, until: as for `sql`; the events are those that it reads.
        compatibility_level, functions, input_limits: as for `sql`.

    Raises:
        JobError: an argument is wrong, or does not fit the query.
        JobQueryError: the query cannot be run; the message shows every problem found.
    """
    caller = "tidegate.spark.rejected"
    check_arguments(spark, query, inputs, None, caller)
    frames = _frames(inputs, caller)
    arguments = QueryArguments(
        query, inputs, [], event_ordering, compatibility_level, functions, input_limits, name="rejected"
    )
    job = _job(arguments, frames, caller)
    bounds = _bounds(job, start, until, caller)
    logs = open_logs_of(job, frames)
    try:
        timelines = timelines_of(logs, bounds, job.policy)
    finally:
        _close(logs)
    on_shards = query_on_shards(job, sharding_of(spark, job.program.sharded(), 1), bounds)
    return rejected_events(spark, on_shards, frames, timelines, bounds)


def _job(arguments: QueryArguments, frames: Mapping[str, EventsOfFrame], caller: str) -> Job:
    inputs = arguments.inputs
    given = {name: one for name, one in inputs.items() if name.lower() not in frames}
    others = [name for name in inputs if name.lower() in frames]
    job = job_of(replace(arguments, inputs=given, other_inputs=others), caller)
    check_times(job, frames, caller)
    return job


def _bounds(job: Job, start: str | datetime | None, until: str | datetime | None, caller: str) -> Bounds:
    first, end = time_of("start", start, caller), time_of("until", until, caller)
    if first is not None and end is not None and end <= first:
        raise JobError(
            f"{caller}: until is {format_time(end)}, and start is {format_time(first)}: there is no time between; "
            "results are from start on and before until"
        )
    return Bounds.of(job.program, job.policy, first, end)


def _close(logs: Mapping[str, InputLog]) -> None:
    # Inputs may share a log.
    for log in {id(log): log for log in logs.values()}.values():
        log.close()


def _frames(inputs: Mapping[str, Any], caller: str) -> dict[str, EventsOfFrame]:
    """Return the inputs that are DataFrames, by name in lower case."""
    for name, given in inputs.items():
        frame = given.frame if isinstance(given, EventsOfFrame) else given
        if isinstance(frame, DataFrame) and frame.isStreaming:
            raise JobError(
                f"{caller}: inputs['{name}']: the DataFrame is a stream, and history has an end; pass what the stream "
                "reads: a table as spark.read returns it, or the options of the hub. tidegate.spark.stream takes it"
            )
    return frames_of(inputs, caller)


def _references(inputs: Mapping[str, Any]) -> dict[str, ReferenceOfFrame]:
    """Return the inputs that are DataFrames as reference data, by name in lower case."""
    return {name.lower(): given for name, given in inputs.items() if isinstance(given, ReferenceOfFrame)}


@contextlib.contextmanager
def _described(spark: SparkSession, description: str) -> Iterator[None]:
    """Describe the jobs of a block in Spark's UI; Spark Connect has no descriptions."""
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, description)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


def _schema(
    spark: SparkSession,
    job: Job,
    output: str,
    given: str | types.StructType | None,
    misfits: Literal["stop", "drop"],
    frames: Mapping[str, EventsOfFrame | ReferenceOfFrame],
    logs: Mapping[str, InputLog],
) -> tuple[types.StructType, ResultSchema]:
    relation = next(one.relation for one in job.program.query.outputs if one.name == output)
    if given is not None:
        return declared_schema(spark, given, relation, output, _CALLER, misfits)
    if misfits == "drop":
        raise JobError(f"{_CALLER}: output_error_policy='drop' needs schema=, which says what does not fit")

    def known(mention: plan.Input, name: str) -> Type:
        for column in mention.declared or ():
            if column.name.lower() == name.lower():
                return column.type
        frame, level = frames.get(mention.name.lower()), job.definition.compatibility_level
        match frame:
            case None:
                type_ = Type.ANY
            case ReferenceOfFrame():
                type_ = type_of_column(frame.frame, name)
            case EventsOfFrame():
                type_ = type_in(frame, name)
        # Below level 1.2 a truth value is a bigint.
        return Type.BIGINT if type_ is Type.BIT and level != "1.2" else type_

    samples: list[ResultRows] = []
    if needs_samples(relation, known):
        program = job.program
        sampled: dict[str, InputLog] = {name: SampledLog(log) for name, log in logs.items()}
        for name in program.input_names:
            source = program.source_of(name).lower()
            if isinstance(frame := frames.get(source), EventsOfFrame):
                with _described(spark, f"{_CALLER}: first events of {name}, for the types of {output}"):
                    sampled[name] = sampled_frame(frame, program, name)
        samples = sample_results(program, job.policy, sampled)
    return derived_schema(job.program, output, samples, _CALLER, known)
