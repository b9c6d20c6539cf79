"""A local run of a project: files replace inputs, and there is no event ordering policy.

The service's tools do the same: events are in the order of their times, and none is adjusted or dropped
(https://learn.microsoft.com/azure/stream-analytics/visual-studio-code-local-run-all).
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.azure.projects.files import LocalInput
from tidegate.azure.projects.model.project_file import json_limit, read_text
from tidegate.azure.projects.reading import LocalFile, Project
from tidegate.connectors.model.errors import JobError, JobQueryError, ProjectError
from tidegate.connectors.model.events import Events, InputLog, PartitionEnd
from tidegate.engine import (
    CATALOG,
    FORMATS,
    JSON,
    Format,
    Problem,
    Program,
    TableVersion,
    UnsupportedQuery,
    Wanted,
    decoder_of,
)
from tidegate.engine.decoding.content import readable_rows_of
from tidegate.engine.decoding.formats import Unreadable
from tidegate.job.prepare.functions import check_calls
from tidegate.job.runtime.data_error_tally import DataErrorTally
from tidegate.job.runtime.placement import DriverPlacement, Placement
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.ordering import END_OF_TIME, Policy, parse_time
from tidegate.sql import QueryError, compile_query
from tidegate.sql.lint import lint
from tidegate.sql.parsing.diagnostics import Diagnostic
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import expressions_of, parts_in, relations_of

# The columns that the service adds to sampled events, by kind of input.
_ARRIVAL_FIELDS = ("eventenqueuedutctime", "bloblastmodifiedutctime")
_BETWEEN = re.compile(r"[\s,]*")
_PARTITION = "0"


@dataclass(frozen=True, slots=True)
class LocalData:
    """The events of a local file: a list of JSON texts, or the rows of a table."""

    bodies: Sequence[bytes]
    format: Format


def read_local(definition: LocalInput, path: Path) -> LocalData:
    """Read the events of a local file.

    Raises:
        ProjectError: it cannot be read, is not of its format, or its format is not supported here.
    """
    name = definition.data_format
    if name not in FORMATS.names():
        raise ProjectError(
            f"the input {definition.alias} is of the format {name}, which cannot be read here; "
            f"give it as one of {', '.join(FORMATS.names())}"
        )
    if name == JSON.kind:
        return LocalData(json_bodies(path), JSON)
    if len(definition.delimiter) != 1:
        raise ProjectError(f"the input {definition.alias}: the delimiter {definition.delimiter!r} is not one character")
    format_ = Format(name, definition.delimiter)
    try:
        return LocalData(readable_rows_of(path.read_bytes(), format_), format_)
    except OSError as error:
        raise ProjectError(f"cannot read {path}: {error.strerror}") from error
    except Unreadable as error:
        raise ProjectError(f"{path} is not {name}: {error}") from error


def json_bodies(path: Path) -> list[bytes]:
    """Return the events of a JSON file, each as its text: an array of them, or one after the other, on lines or not.

    A comma after the last element of an array is accepted, as the service's tools do.

    Raises:
        ProjectError: it cannot be read or is not JSON; the message names the line.
    """
    text = read_text(path)
    return [text[start:end].encode() for start, end in _values(text, path)]


def _values(text: str, path: Path) -> Iterator[tuple[int, int]]:
    decode = json.JSONDecoder().raw_decode
    place = _after(text, 0)
    inside = False
    while place < len(text):
        if inside and text[place] == "]":
            inside = False
            place = _after(text, place + 1)
            continue
        if not inside and text[place] == "[":
            inside = True
            place = _after(text, place + 1)
            continue
        try:
            _, end = decode(text, place)
        except json.JSONDecodeError as error:
            raise ProjectError(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}") from error
        except (ValueError, RecursionError) as error:
            raise ProjectError(f"cannot read {path}: {json_limit(error)}") from error
        yield place, end
        place = _after(text, end)
    if inside:
        raise ProjectError(f"{path}: the array it begins with has no end")


def _after(text: str, place: int) -> int:
    """Return the next position that holds neither white space nor a comma."""
    found = _BETWEEN.match(text, place)
    return place if found is None else found.end()


@dataclass(frozen=True, slots=True)
class LocalRange:
    """A stretch of a local file's events, carried by value."""

    start: int
    end: int
    arrivals: list[int]
    bodies: Sequence[bytes]
    format: Format

    def read_events(self, batch_events: int) -> Iterator[Events]:
        for first in range(0, len(self.bodies), batch_events):
            bodies = self.bodies[first : first + batch_events]
            numbers = np.arange(self.start + first, self.start + first + len(bodies), dtype=np.int64)
            arrivals = np.array(self.arrivals[first : first + len(bodies)], dtype=np.int64)
            yield Events(numbers, arrivals, bodies, format=self.format)


class LocalLog:
    """A local file as a log: one partition, which ends after its last event."""

    def __init__(self, data: LocalData, *, with_arrivals: bool) -> None:
        """``with_arrivals``: arrival times come from the events; JSON events are sorted by them."""
        bodies = data.bodies
        times = [arrival_of(body) if with_arrivals else None for body in bodies]
        latest = 0
        arrivals = [latest := latest if time is None else time for time in times]
        if isinstance(bodies, list):
            order = sorted(range(len(bodies)), key=arrivals.__getitem__)
            bodies = [bodies[place] for place in order]
            arrivals = [arrivals[place] for place in order]
        self._bodies = bodies
        self._arrivals = list(accumulate(arrivals, max))
        self._format = data.format

    def ends(self) -> dict[str, PartitionEnd]:
        return {_PARTITION: PartitionEnd(0, len(self._bodies), END_OF_TIME, complete=True)}

    def first_at(self, partition: str, arrival: int) -> int:
        return bisect.bisect_left(self._arrivals, arrival)

    def range(self, partition: str, start: int, end: int) -> LocalRange:
        return LocalRange(start, end, self._arrivals[start:end], self._bodies[start:end], self._format)

    def close(self) -> None:
        """Do nothing: no resource is open."""


def arrival_of(body: bytes) -> int | None:
    """Return the arrival time that an event states, in ticks; None if it states none."""
    try:
        content: Any = json.loads(body)
    except ValueError:
        return None
    if not isinstance(content, dict):
        return None
    named = {name.lower(): value for name, value in content.items()}
    for name in _ARRIVAL_FIELDS:
        if isinstance(value := named.get(name), str):
            try:
                return parse_time(value)
            except ValueError:
                continue
    return None


_LANGUAGES = {"csharpfunction": "C#", "csfunction": "C#"}

Functions = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class LocalRows:
    """The result of a local run.

    Attributes:
        rows: by the name of each output that the query writes, in the order of emission.
        notes: what a person should know about them.
        data_errors: what could not be used.
        doubts: what the query says and probably does not mean.
    """

    rows: dict[str, list[dict[str, Any]]]
    notes: tuple[str, ...]
    data_errors: DataErrorTally
    doubts: tuple[Diagnostic, ...] = ()


def run_locally(
    project: Project,
    files: Sequence[LocalFile],
    functions: Functions,
    place: Callable[[Program, Policy], Placement] = DriverPlacement,
    *,
    max_events_per_step: int = 1_000_000,
) -> LocalRows:
    """Run the query of a project over files, to their end.

    Args:
        functions: registered ones, by the names a query calls them.
        place: returns where a query runs under a policy; by default, in this process.
        max_events_per_step: the most events that a step reads.

    Raises:
        JobQueryError: the query cannot run.
        JobError: a file cannot be read, or the query reads an input that has none.
    """
    program = _prepared(project, files, functions)
    given = {file.definition.alias.lower(): file for file in files if not file.definition.is_reference}
    missing = [name for name in program.input_names if program.source_of(name).lower() not in given]
    if missing:
        has = ", ".join(file.definition.alias for file in files) or "none"
        raise ProjectError(f"the query reads {', '.join(missing)}, for which there is no file; there are: {has}")
    logs, notes = _logs(program, given)
    policy = Policy.none()
    stepper = Stepper(program, policy, logs, place(program, policy), settings=StepSettings(max_events_per_step))
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in program.output_names}
    errors = DataErrorTally()
    complete = False
    while not complete:
        step = stepper.step()
        errors.take(step)
        complete = step.complete
        for left in step.rows:
            rows[left.output].extend(left.to_dicts())
    return LocalRows(rows, tuple(notes), errors, tuple(lint(program.query)))


def _prepared(project: Project, files: Sequence[LocalFile], functions: Functions) -> Program:
    tables = [file for file in files if file.definition.is_reference]
    query = compile_project(project, functions, reference_inputs=[file.definition.alias for file in tables])
    try:
        return Program.prepare(query, {file.definition.alias: [_snapshot(file)] for file in tables}, functions)
    except UnsupportedQuery as error:
        raise JobError(f"the query of {project.query_file} cannot run: {error}") from error


def _snapshot(file: LocalFile) -> TableVersion:
    data = read_local(file.definition, file.path)
    decoded = decoder_of(Wanted(record=True), data.format).decode(data.bodies)
    if len(decoded.rejected_events):
        row, problem = int(decoded.rejected_events[0]), Problem(int(decoded.rejected_problems[0]))
        raise ProjectError(f"reference data '{file.definition.alias}': row {row + 1} of {file.path}: {problem.message}")
    if data.format == JSON:
        return TableVersion(tuple(data.bodies))
    return TableVersion((file.path.read_bytes(),), format=data.format)


def compile_project(
    project: Project,
    functions: Functions,
    *,
    inputs: Collection[str] | None = None,
    reference_inputs: Collection[str] = (),
) -> plan.Query:
    """Return the plan of a project's query.

    Raises:
        JobQueryError: it cannot run; the message shows every problem found.
    """
    foreign = {
        f"{'uda' if function.is_aggregate else 'udf'}.{function.name}": function
        for function in project.functions.values()
    }
    try:
        query = compile_query(
            project.sql,
            compatibility_level=project.config.compatibility_level,
            inputs=inputs,
            reference_inputs=reference_inputs,
            functions={*functions, *foreign},
            catalog=CATALOG,
        )
        _check_foreign(query, {name.lower() for name in foreign} - {name.lower() for name in functions}, project)
        check_calls(query, functions)
    except QueryError as error:
        raise JobQueryError(str(project.query_file), project.sql, error) from error
    return query


def _check_foreign(query: plan.Query, names: Collection[str], project: Project) -> None:
    """Refuse functions that the project defines in another language, each where it is called."""
    found = []
    for relation in relations_of(query):
        for expr in expressions_of(relation):
            for part in parts_in(expr):
                if isinstance(part, plan.Call) and part.function in names:
                    found.append((part.function, part.position))
        if isinstance(relation, plan.Aggregate | plan.Temporal):
            calls = relation.aggregates if isinstance(relation, plan.Aggregate) else relation.calls
            found += [(call.function, call.position) for call in calls if call.function in names]
    problems = []
    for called, position in found:
        function = project.functions[called.partition(".")[2]]
        language = _LANGUAGES.get(function.script_type.lower(), "another language")
        refusal = f"is in {language}, which is not supported here"
        if function.is_javascript:
            refusal = "is in JavaScript, and its script does not exist"
        key = "aggregate" if function.is_aggregate else "function"
        problems.append(
            Diagnostic(
                position.line,
                position.column,
                f"{called} {refusal}",
                len(called),
                f"write it in JavaScript, as Functions/{function.name}.js of the project, or in Python, registered in "
                f'tidegate.toml beside the project: [functions.{function.name}] module = "functions.py", '
                f'{key} = "{function.name}"',
            )
        )
    if problems:
        raise QueryError(problems)


def _logs(program: Program, given: Mapping[str, LocalFile]) -> tuple[dict[str, InputLog], list[str]]:
    logs: dict[str, InputLog] = {}
    notes = []
    for name in program.input_names:
        file = given[program.source_of(name).lower()]
        data = read_local(file.definition, file.path)
        by_arrival = not program.has_event_time(name)
        if by_arrival and len(data.bodies) and arrival_of(data.bodies[0]) is None:
            notes.append(
                f"{file.definition.alias} is read without TIMESTAMP BY, and its events have no EventEnqueuedUtcTime: "
                "the time of all of them is 1970-01-01"
            )
        logs[name] = LocalLog(data, with_arrivals=by_arrival)
    return logs, notes
