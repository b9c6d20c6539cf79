"""A project as a continuous job: its live inputs and outputs, with the settings that depend on where it runs.

A project holds no keys, so the connection string of an input or output comes from an environment variable that is
named after it. tidegate.toml beside the project, a job file without a query, may replace any section of the project:
with another input, an output of a kind that is not supported here, or functions in Python.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.azure.projects.datasources.kinds import (
    DATA_SOURCES,
    NoCounterpartError,
    SectionSettings,
    no_counterpart,
    role_of,
)
from tidegate.azure.projects.datasources.secrets import MissingSecretError, Secrets, variable_of
from tidegate.azure.projects.local import compile_project
from tidegate.azure.projects.machine_learning import is_model, section_of
from tidegate.azure.projects.model.endpoint import Endpoint
from tidegate.azure.projects.reading import Project
from tidegate.connectors.inputs.kinds import reference_names
from tidegate.connectors.model.errors import ProjectError
from tidegate.engine import FORMATS
from tidegate.job.config.definition import JobDefinition, definition_of, function_definitions, read_content
from tidegate.job.config.function_definitions import function_definition
from tidegate.job.config.overrides import Override, Table, check_overrides, with_overrides
from tidegate.job.prepare.functions import JobFunction, registered_functions
from tidegate.job.prepare.loading import Job, prepare_job

SETTINGS = "tidegate.toml"
_FOREIGN_FORMAT = 'a format that is not known here; a deserializer in Python may read it: format = "custom"'
_TABLES = ("inputs", "outputs", "functions")
_THE_PROJECTS = ("query", "query_file", "compatibility_level")


def settings_of(project: Project) -> dict[str, Any]:
    """Return the content of tidegate.toml beside a project; an empty dict if there is none.

    Raises:
        JobError: it cannot be read, or repeats settings of the project.
    """
    path = project.folder / SETTINGS
    if not path.exists():
        return {}
    content = read_content(path)
    wrong = [key for key in _THE_PROJECTS if key in content]
    if wrong:
        raise ProjectError(f"{path}: {', '.join(wrong)}: the project already sets this; remove it")
    return content


def functions_of(project: Project) -> dict[str, JobFunction]:
    """Return the project's scripts and the functions that tidegate.toml registers, by the names a query calls them.

    Raises:
        JobError: one cannot be imported, or the file cannot be read.
    """
    settings_of(project)
    registered = function_definitions(project.folder / SETTINGS)
    own = {name.lower() for name in registered}
    scripts = {
        name: function_definition(section) for name, section in _scripts(project).items() if name.lower() not in own
    }
    return registered_functions({**scripts, **registered})


def _scripts(project: Project) -> dict[str, dict[str, Any]]:
    """Return the project's functions in JavaScript, and its models, as sections of a job file."""
    models = {
        function.name: section_of(function.name, function.binding)
        for function in project.functions.values()
        if function.binding is not None and is_model(function.binding)
    }
    return models | {
        function.name: {"script": function.script, **({"aggregate": "main"} if function.is_aggregate else {})}
        for function in project.functions.values()
        if function.is_javascript and function.script is not None
    }


@dataclass(frozen=True, slots=True)
class LiveProject:
    """A project as a continuous job.

    Attributes:
        notes: what a person should know about it, such as outputs that are files for want of a counterpart.
    """

    definition: JobDefinition
    notes: tuple[str, ...]


def load_project(project: Project, notice: Callable[[str], None], overrides: Sequence[Override] = ()) -> Job:
    """Return the job that a project describes, with its query compiled.

    Args:
        notice: called with each note on it.
        overrides: what takes the place of its inputs and outputs.

    Raises:
        JobError, JobQueryError: see `live_project` and `prepare_job`.
    """
    live = live_project(project, overrides)
    for note in live.notes:
        notice(note)
    return prepare_job(live.definition, str(project.query_file))


def live_project(project: Project, overrides: Sequence[Override] = ()) -> LiveProject:
    """Return the definition of the job that a project describes.

    Args:
        overrides: what takes the place of its inputs and outputs, and of sections in tidegate.toml.

    Raises:
        JobError: a function cannot be imported, an input or output has no connection string, an input is of a kind
            that cannot be read, or tidegate.toml is wrong; the message names every input and output that lacks
            something.
        JobQueryError: the query cannot run.
    """
    settings = settings_of(project)
    query = compile_project(
        project,
        functions_of(project),
        inputs=[*(one.name for one in project.inputs.values()), *settings.get("inputs", {})],
        reference_inputs=_reference_names(project, settings),
    )
    read = dict.fromkeys(mention.name.lower() for mention in query.inputs)
    written = {output.name.lower(): output.name for output in query.outputs}
    check_overrides(overrides, "outputs", written.values())
    sections = _Sections(project, overrides)
    content = _settings_of_the_job(project)
    content["inputs"] = sections.inputs([name for name in read if name in project.inputs], settings)
    content["outputs"] = sections.outputs([name for name in written if name in project.outputs], settings)
    if sections.problems:
        raise ProjectError("\n".join(sections.problems))
    complete = with_overrides(_merged(content, settings), overrides)
    own = project.folder / SETTINGS
    # What is wrong comes from the project's own files where it has no settings beside them.
    place = own if own.exists() else project.description
    return LiveProject(definition_of(complete, place, sections.origins), tuple(sections.notes))


def _settings_of_the_job(project: Project) -> dict[str, Any]:
    """Return a job file without inputs and outputs."""
    return {
        "name": _job_name(project),
        "query": project.sql,
        "compatibility_level": project.config.compatibility_level,
        "event_ordering": {
            "late_arrival_tolerance_s": project.config.late_s,
            "out_of_order_tolerance_s": project.config.out_of_order_s,
            "action": project.config.out_of_order_policy,
        },
        "output_error_policy": project.config.output_error_policy,
        "inputs": {},
        "outputs": {},
        "functions": _scripts(project),
    }


def _job_name(project: Project) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", project.name).lstrip("-_.") or "project"


def _reference_names(project: Project, settings: dict[str, Any]) -> Collection[str]:
    named = [one.name for one in project.inputs.values() if one.is_reference]
    return [*named, *reference_names(settings.get("inputs"))]


def _merged(content: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    merged = {**content, **settings}
    for table in _TABLES:
        own = {name.lower() for name in settings.get(table, {})}
        kept = {name: section for name, section in content.get(table, {}).items() if name.lower() not in own}
        merged[table] = {**kept, **settings.get(table, {})}
    merged["event_ordering"] = {**content["event_ordering"], **settings.get("event_ordering", {})}
    return merged


class _Sections:
    """The sections of a job file that inputs and outputs of a project become."""

    def __init__(self, project: Project, overrides: Sequence[Override]) -> None:
        given = {variable_of(one.name): one.connection_string for one in overrides if one.connection_string is not None}
        self._secrets = Secrets({**os.environ, **given})
        self._project = project
        self._overrides = {(one.table, one.name.lower()): one for one in overrides}
        self._folder = f"{_job_name(project)}.outputs"
        self.notes: list[str] = []
        self.problems: list[str] = []
        self.origins: dict[tuple[str, str], str] = {}

    def inputs(self, names: Iterable[str], settings: dict[str, Any]) -> dict[str, SectionSettings]:
        """Return the sections of inputs that nothing takes the place of. What they lack is added to the problems."""
        found = {}
        for endpoint in self._needed("inputs", names, settings):
            self._origin("inputs", endpoint)
            found[endpoint.name] = self._section(endpoint, self._input)
        return found

    def outputs(self, names: Iterable[str], settings: dict[str, Any]) -> dict[str, SectionSettings]:
        """Return the sections of outputs that nothing takes the place of. What they lack is added to the problems."""
        found = {}
        for endpoint in self._needed("outputs", names, settings):
            self._origin("outputs", endpoint)
            found[endpoint.name] = self._section(endpoint, self._output)
        return found

    def _needed(self, table: Table, names: Iterable[str], settings: dict[str, Any]) -> Iterator[Endpoint]:
        own = {name.lower() for name in settings.get(table, {})}
        every = self._project.inputs if table == "inputs" else self._project.outputs
        yield from (every[name] for name in names if name not in own)

    def _section(self, endpoint: Endpoint, section: Callable[[Endpoint], SectionSettings]) -> SectionSettings:
        try:
            return section(endpoint)
        except ProjectError as error:
            text = str(error)
            # A missing secret is no mistake in the file; other messages say where to look.
            is_placed = isinstance(error, MissingSecretError) or not endpoint.origin or endpoint.origin in text
            self.problems.append(text if is_placed else f"{endpoint.origin}: {text}")
            return {}

    def _origin(self, table: Table, endpoint: Endpoint) -> None:
        if endpoint.origin and (table, endpoint.name.lower()) not in self._overrides:
            self.origins[(table, endpoint.name)] = endpoint.origin

    def _input(self, endpoint: Endpoint) -> SectionSettings:
        override = self._overrides.get(("inputs", endpoint.name.lower()))
        if override is not None and override.is_whole:
            return {"type": "reference" if endpoint.is_reference else "files"}  # replaced by one of the same role
        source = DATA_SOURCES.of(endpoint, role_of("inputs", endpoint))
        try:
            if source is None:
                raise no_counterpart("input", endpoint)
            if endpoint.is_reference:
                return source.reference_section(endpoint, self._secrets)
            section = source.input_section(endpoint, self._secrets)
            if override is None and section.get("format", "json") not in FORMATS.names():
                raise no_counterpart("input", endpoint, _FOREIGN_FORMAT)
            return section
        except NoCounterpartError as error:
            if override is not None and override.connection_string is not None:
                return endpoint.format_settings()
            raise ProjectError(
                f"{error}; read something else in its place: --override inputs.{endpoint.name}=FILE, or a section "
                f"[inputs.{endpoint.name}] in {SETTINGS} beside the project"
            ) from error

    def _output(self, endpoint: Endpoint) -> SectionSettings:
        override = self._overrides.get(("outputs", endpoint.name.lower()))
        if override is not None and override.is_whole:
            return {}
        sink = DATA_SOURCES.of(endpoint, "output")
        try:
            if sink is None:
                raise no_counterpart("output", endpoint)
            return sink.output_section(endpoint, self._secrets)
        except NoCounterpartError as error:
            if override is not None and override.connection_string is not None:
                return {}
            path = f"{self._folder}/{re.sub(r'[^A-Za-z0-9_.-]+', '-', endpoint.name)}.jsonl"
            self.notes.append(f"{error}: its rows are written to {path}, a line of JSON each")
            return {"type": "file", "path": path}
