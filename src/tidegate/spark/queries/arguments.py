"""The arguments of a query in a Spark program, as the job that they describe.

They have the words of the job file: an input is a section ``[inputs.NAME]``, the event ordering is
``[event_ordering]``, and so on. In addition an input may be the path of a recorded log, or the options of the
`eventhubs` source; and a function may be a Python function.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from tidegate.connectors.inputs.kinds import InputLimits, InputSection
from tidegate.connectors.model.errors import JobError
from tidegate.job.config.definition import EventOrdering, JobDefinition, definition_of_arguments, with_absolute_paths
from tidegate.job.config.environment import filled, reference_to
from tidegate.job.prepare.functions import PickledFunction
from tidegate.job.prepare.loading import Job, prepare_job
from tidegate.ordering import TICKS_PER_SECOND, parse_time
from tidegate.spark.queries.frame_events import EventsOfFrame, type_in
from tidegate.spark.queries.reference_frames import ReferenceOfFrame
from tidegate.sql.plan.nodes import Column, Input, Type
from tidegate.sql.plan.signatures import ArgumentKind
from tidegate.sql.plan.types import refusal
from tidegate.sql.plan.walking import relations_of

_PLACEHOLDER = {"type": "recorded", "path": "."}
_HUB_OPTIONS = {
    "connectionstring": "connection_string",
    "eventhub": "event_hub",
    "consumergroup": "consumer_group",
    "segments": "segments",
}
_HUB_OPTION_NAMES = "connectionString, eventHub, consumerGroup, segments"


@dataclass(frozen=True, slots=True)
class QueryArguments:
    """A query in a Spark program, with everything that its results depend on.

    Attributes:
        query: its text, or a `Path` of a file that holds it.
        inputs: by the name the query uses: a section of the job file, the path of a recorded log, the options of the
            `eventhubs` source, or a DataFrame as reference data.
        other_inputs: the names of inputs that the caller reads by itself, such as DataFrames.
        event_ordering: the section of the job file.
        compatibility_level: of the query language.
        functions: by name, a section of the job file, a Python function (``udf.NAME``) or a class (``uda.NAME``).
        input_limits: the section of the job file.
        name: the job's name.
        state_dir: where a run keeps what it needs to resume; None for a query that is evaluated once.
        more: other keys of the job file.
    """

    query: str | Path
    inputs: Mapping[str, Any]
    other_inputs: Sequence[str] = ()
    event_ordering: Mapping[str, Any] | EventOrdering | None = None
    compatibility_level: str = "1.2"
    functions: Mapping[str, Any] | None = None
    input_limits: Mapping[str, Any] | InputLimits | None = None
    name: str = "query"
    state_dir: Path | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


def check_arguments(spark: Any, query: Any, inputs: Any, shards: Any, caller: str) -> None:
    """Refuse what is of a wrong type or does not exist, before it fails elsewhere with a message that says less.

    Raises:
        JobError: an argument is wrong.
    """
    # A session of Spark Connect is of another class.
    if not hasattr(spark, "createDataFrame"):
        raise JobError(
            f"{caller}: the first argument is a session, as SparkSession.builder.getOrCreate() returns it, got "
            f"{_described(spark)}"
        )
    if _is_stopped(spark):
        raise JobError(
            f"{caller}: the Spark session was stopped; get another with SparkSession.builder.getOrCreate(), and read "
            "the DataFrames with it"
        )
    if not isinstance(query, str | Path):
        raise JobError(f"{caller}: query is a text, or a Path of a file that holds it; got {_described(query)}")
    if not isinstance(inputs, Mapping):
        raise JobError(
            f"{caller}: inputs is a dict of inputs by the name the query reads FROM, such as {{'input': df}}; got "
            f"{_described(inputs)}"
        )
    if shards is not None and (not isinstance(shards, int) or shards < 1):
        raise JobError(f"{caller}: shards is a number, 1 or more, got {shards!r}")
    for name, given in inputs.items():
        if isinstance(given, str | Path) and not Path(given).exists():
            raise JobError(
                f"{caller}: inputs['{name}']: there is no file {Path.cwd() / given}; a text is the path of a recorded "
                f"log. Of a table or of other files pass a DataFrame, such as spark.table('{given}') or "
                f"spark.read.parquet('{given}')"
            )


def _is_stopped(spark: Any) -> bool:
    """Return whether a session was stopped: PySpark itself then fails an assertion, without a word."""
    context = getattr(spark, "_sc", None)
    return bool(getattr(spark, "is_stopped", False)) if context is None else context._jsc is None


def check_times(job: Job, frames: Mapping[str, EventsOfFrame], caller: str) -> None:
    """Refuse TIMESTAMP BY a column of a DataFrame whose type is no time, by which every event would be rejected.

    Args:
        frames: by the name of the input in the job, in lower case.

    Raises:
        JobError: there is such a column.
    """
    for relation in relations_of(job.program.query):
        if not isinstance(relation, Input) or not isinstance(relation.timestamp_by, Column):
            continue
        source, (name, *fields) = job.program.source_of(relation.name), relation.timestamp_by.path
        events = frames.get(source.lower())
        type_ = Type.ANY if events is None or fields else type_in(events, name)
        if refusal(ArgumentKind.DATETIME, type_, None):
            raise JobError(
                f"{caller}: TIMESTAMP BY {name}: the column of inputs['{source}'] is of type {type_.value}, expected "
                f"datetime; in the query DATEADD(second, {name}, '1970-01-01') is a time of seconds since 1970, in "
                f"Spark functions.timestamp_seconds('{name}')"
            )


def job_of(arguments: QueryArguments, caller: str) -> Job:
    """Return the job that arguments describe, its query compiled; relative paths are of the working directory.

    The section of an input in ``other_inputs`` is a placeholder that must not be opened.

    Args:
        caller: the function that was called, for messages.

    Raises:
        JobError: an argument is wrong; every wrong one is named at once.
        JobQueryError: the query cannot be run; the message shows every problem found.
    """
    definition = _definition(arguments, caller)
    return prepare_job(definition, caller, _python_functions(arguments.functions or {}, caller))


def output_of(job: Job, output: str | None, caller: str) -> str:
    """Return the name of the output whose results are wanted, as the query spells it.

    Raises:
        JobError: the query has several outputs and none was named, or it has none of that name.
    """
    names = job.program.output_names
    if output is None:
        if len(names) == 1:
            return names[0]
        raise JobError(f"{caller}: the query has the outputs {', '.join(names)}; say which one: output='{names[0]}'")
    found = next((name for name in names if name.lower() == output.lower()), None)
    if found is None:
        raise JobError(f"{caller}: the query has no output '{output}'{_near(output, names)}")
    return found


def time_of(what: str, given: str | datetime | None, caller: str) -> int | None:
    """Return a time in ticks; a datetime without an offset is UTC, as a text without one is.

    Raises:
        JobError: it is not a time.
    """
    match given:
        case None:
            return None
        case datetime():
            since = (given if given.tzinfo else given.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
            return (since.days * 86_400 + since.seconds) * TICKS_PER_SECOND + since.microseconds * 10
        case str():
            try:
                return parse_time(given)
            except ValueError:
                pass
    raise JobError(f"{caller}: {what} is a time such as '2026-01-31T12:00:00Z' or a datetime, got {given!r}")


# sections
# ------------------------------------------------------------------------------------------------------


def _definition(arguments: QueryArguments, caller: str) -> JobDefinition:
    given = arguments.inputs
    if not given and not arguments.other_inputs:
        raise JobError(f"{caller}: inputs is empty; expected an input for each name that the query reads FROM")
    sections = {name: _section(name, one, caller) for name, one in given.items()}
    content: dict[str, Any] = {
        "name": arguments.name,
        "query_file" if isinstance(arguments.query, Path) else "query": arguments.query,
        "compatibility_level": arguments.compatibility_level,
        "inputs": {name: one for name, one in sections.items() if isinstance(one, dict)},
        "functions": {
            name: one
            for name, one in (arguments.functions or {}).items()
            if isinstance(one, Mapping) or not callable(one)
        },
        **arguments.more,
    }
    content["inputs"] |= dict.fromkeys(arguments.other_inputs, _PLACEHOLDER)
    ready = {name: one for name, one in sections.items() if not isinstance(one, dict)}
    content["inputs"] |= dict.fromkeys(ready, _PLACEHOLDER)
    for key, section in (("event_ordering", arguments.event_ordering), ("input_limits", arguments.input_limits)):
        if section is not None:
            content[key] = section
    definition = definition_of_arguments(content, caller)
    definition = definition.model_copy(update={"inputs": {**definition.inputs, **ready}})
    absolute = with_absolute_paths(definition, Path.cwd())
    return absolute.model_copy(update={"state_dir": arguments.state_dir})


def _section(name: str, given: Any, caller: str) -> dict[str, Any] | InputSection:
    match given:
        case InputSection():
            return given
        case ReferenceOfFrame():
            return given.section()
        case str() | Path():
            return {"type": "recorded", "path": given}
        case Mapping() if "type" in given:
            return _with_environment(name, given, caller)
        case Mapping():
            return _of_options(name, given, caller)
    raise JobError(
        f"{caller}: inputs['{name}'] is no input, such as the options of an event hub, a section of the job file "
        f"({{'type': 'eventhub', 'connection_string': …}}), or the path of a recorded log; got {_described(given)}"
    )


def _of_options(name: str, given: Mapping[str, Any], caller: str) -> dict[str, Any]:
    """Return the section for the options of the `eventhubs` source, whose names ignore case."""
    section: dict[str, Any] = {"type": "eventhub"}
    for option, value in given.items():
        plain = str(option).lower().removeprefix("eventhubs.")
        if plain not in _HUB_OPTIONS:
            near = "" if "connectionstring" in {str(one).lower() for one in given} else "; a section has a 'type'"
            raise JobError(
                f"{caller}: inputs['{name}'] has no option '{option}'; expected {_HUB_OPTION_NAMES}{near}. "
                "For other settings write a section of the job file, {'type': 'eventhub', …}"
            )
        section[_HUB_OPTIONS[plain]] = value
    return _with_environment(name, section, caller)


def _with_environment(name: str, section: Mapping[str, Any], caller: str) -> dict[str, Any]:
    def missing(variable: str) -> str:
        raise JobError(f"{caller}: inputs['{name}']: {reference_to(variable)} is not set in the environment")

    complete: dict[str, Any] = filled(section, missing)
    return complete


def _python_functions(given: Mapping[str, Any], caller: str) -> dict[str, PickledFunction]:
    """Return the functions that were given as such, by the names a query calls them."""
    found = {}
    for name, function in given.items():
        if not _is_python(function):
            continue
        group = "uda" if isinstance(function, type) else "udf"
        try:
            content = _pickled(function)
        except Exception as error:
            raise JobError(f"{caller}: functions['{name}'] cannot be sent to executors: {error}") from error
        vectorized = bool(getattr(function, "vectorized", False))
        found[f"{group}.{name}"] = PickledFunction(content, vectorized)
    return found


def _is_python(function: Any) -> bool:
    return callable(function) and not isinstance(function, Mapping)


_pickled: Callable[[Any], bytes] = cloudpickle.dumps


def _near(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; it has {', '.join(names)}"


def _described(value: Callable[..., Any] | Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
