"""A local run of a project: files replace inputs, and there is no event ordering policy.

The service's tools do the same: events are in the order of their times, and none is adjusted or dropped
(https://learn.microsoft.com/azure/stream-analytics/visual-studio-code-local-run-all).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.azure.projects.local_data import LocalLog, arrival_of, read_local
from tidegate.azure.projects.reading import LocalFile, Project
from tidegate.connectors.model.errors import JobError, JobQueryError, ProjectError
from tidegate.connectors.model.events import InputLog
from tidegate.engine import CATALOG, JSON, Problem, Program, Snapshot, UnsupportedQuery, Wanted, decoder_of
from tidegate.job.prepare.functions import check_calls
from tidegate.job.runtime.data_error_tally import DataErrorTally
from tidegate.job.runtime.step import Runner, Stepper, StepSettings
from tidegate.ordering import Policy
from tidegate.sql import QueryError, compile_query
from tidegate.sql.lint import lint
from tidegate.sql.parsing.diagnostics import Diagnostic
from tidegate.sql.plan import nodes as plan
from tidegate.sql.plan.walking import expressions_of, parts_in, relations_of

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
    runner: Callable[[Program, Policy], Runner],
    *,
    max_events_per_step: int = 1_000_000,
) -> LocalRows:
    """Run the query of a project over files, to their end.

    Args:
        functions: registered ones, by the names a query calls them.
        runner: makes a runner for a query and a policy.
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
    stepper = Stepper(program, policy, logs, runner(program, policy), settings=StepSettings(max_events_per_step))
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


def _snapshot(file: LocalFile) -> Snapshot:
    data = read_local(file.definition, file.path)
    decoded = decoder_of(Wanted(record=True), data.format).decode(data.bodies)
    if len(decoded.rejected_events):
        row, problem = int(decoded.rejected_events[0]), Problem(int(decoded.rejected_problems[0]))
        raise ProjectError(f"reference data '{file.definition.alias}': row {row + 1} of {file.path}: {problem.message}")
    if data.format == JSON:
        return Snapshot(tuple(data.bodies))
    return Snapshot((file.path.read_bytes(),), format=data.format)


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
