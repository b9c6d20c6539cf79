"""From a job file to a job that can run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.connectors.inputs.kinds import StreamInput
from tidegate.connectors.inputs.reference import reference_tables
from tidegate.connectors.model.errors import JobError, JobQueryError
from tidegate.engine import CATALOG, Program, UnsupportedQuery
from tidegate.job.config.definition import EventOrdering, JobDefinition, query_text, read_definition
from tidegate.job.config.overrides import Override, check_overrides
from tidegate.job.prepare.functions import JobFunction, check_calls, fingerprint, registered_functions
from tidegate.job.prepare.opening import reference_definitions
from tidegate.job.prepare.side_output_settings import side_output_problems
from tidegate.ordering import Policy, PolicyError
from tidegate.sql import QueryError, compile_query


@dataclass(frozen=True, slots=True)
class Job:
    """A job that can run: its checked definition and its prepared query."""

    definition: JobDefinition
    sql: str
    program: Program
    policy: Policy
    functions: str = ""
    """The fingerprint of the functions that the job registers."""

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint that ties a journal to a job.

        Another query, policy, level or function gives other results, and other settings of the side outputs give other
        rows there.
        """
        parts = [self.sql, self.definition.compatibility_level, repr(self.policy)]
        beside = [self.definition.early_results, self.definition.explanations]
        parts += [self.functions] if self.functions else []
        parts += ["merged"] if self.policy.merged else []
        text = "\n".join([*parts, *(repr(one) for one in beside if one is not None)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def event_hubs(self) -> dict[str, str]:
        """Return the hubs or topics that the inputs read, by the input's name in lower case."""
        sections = {name.lower(): section for name, section in self.definition.inputs.items()}
        by_input = {name: sections.get(self.program.source_of(name).lower()) for name in self.program.input_names}
        return {
            name.lower(): section.event_hub_name()
            for name, section in by_input.items()
            if isinstance(section, StreamInput)
        }


def load_job(path: Path, overrides: Sequence[Override] = ()) -> Job:
    """Read a job file and compile its query.

    Args:
        overrides: what takes the place of its inputs and outputs.

    Raises:
        JobError: the file is not a job.
        JobQueryError: the query cannot be run; the message shows every problem found.
    """
    definition = read_definition(path, overrides)
    job = prepare_job(definition, str(path))
    check_overrides(overrides, "outputs", _outputs_of(job))
    return job


def _outputs_of(job: Job) -> list[str]:
    """Return the names of the outputs that a job writes."""
    early, explanations = job.definition.early_results, job.definition.explanations
    names = [*job.program.output_names, *(early.outputs.values() if early is not None else ())]
    return [*names, explanations.output] if explanations is not None else names


def prepare_job(definition: JobDefinition, where: str, more_functions: Mapping[str, JobFunction] | None = None) -> Job:
    """Compile the query of a job whose paths are absolute.

    Args:
        where: the file that the definition was read from, for messages.
        more_functions: functions beside those of the definition, by the names the query calls them.

    Raises:
        JobError: a function cannot be imported, reference data are missing or unreadable, or the query cannot use them.
        JobQueryError: the query cannot be run; the message shows every problem found.
    """
    sql = query_text(definition)
    functions = {**registered_functions(definition.functions), **(more_functions or {})}
    try:
        query = compile_query(
            sql,
            compatibility_level=definition.compatibility_level,
            inputs=definition.inputs,
            reference_inputs=reference_definitions(definition),
            functions=functions,
            catalog=CATALOG,
        )
        check_calls(query, functions)
        limits = definition.input_limits.limits
        tables = reference_tables(reference_definitions(definition), definition.state_dir, limits)
        program = Program.prepare(query, tables, functions)
    except QueryError as error:
        raise JobQueryError(where, sql, error) from error
    except UnsupportedQuery as error:
        raise JobError(f"the query of {where} cannot run: {error}") from error
    policy = event_ordering_policy(definition.event_ordering)
    problems = [message for _, message in side_output_problems(definition, program, policy)]
    if problems:
        raise JobError("\n".join([f"{where} cannot run:", *(f"  {problem}" for problem in problems)]))
    return Job(definition, sql, program, policy, fingerprint(functions))


def event_ordering_policy(ordering: EventOrdering) -> Policy:
    """Return the policy that the scan applies."""
    if not ordering.enabled:
        return Policy.none()
    early = ordering.early_arrival_tolerance_s
    try:
        return Policy.seconds(
            early=None if early is False else early,
            late=ordering.late_arrival_tolerance_s,
            out_of_order=ordering.out_of_order_tolerance_s,
            action=ordering.action,
            merged=ordering.timelines == "merged by enqueued time",
        )
    except PolicyError as error:
        raise JobError(f"event_ordering: {error}") from error
