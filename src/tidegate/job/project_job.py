"""A project as a job that goes on: its live inputs and outputs, with what only the place where it runs can know.

A project holds no keys. So the connection string of an input or output comes from the environment, from a variable
that is named after it; and tidegate.toml beside the project, a job file without a query, may put any section of its
own in the place of the project's: another input, an output of a kind that is not written here, functions in Python.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from typing import Any

from tidegate.job.definition import JobDefinition, definition_of, read_content
from tidegate.job.errors import ProjectError
from tidegate.job.functions import RegisteredFunction, registered_functions
from tidegate.job.project import Project
from tidegate.job.project_files import DataSource, Endpoint
from tidegate.job.project_local import compile_project

SETTINGS = "tidegate.toml"
_TABLES = ("inputs", "outputs", "functions")
_THE_PROJECTS = ("query", "query_file", "compatibility_level")


def settings_of(project: Project) -> dict[str, Any]:
    """What tidegate.toml beside a project holds; nothing where there is none.

    Raises:
        JobError: it cannot be read, or has what the project says itself.
    """
    path = project.folder / SETTINGS
    if not path.exists():
        return {}
    content = read_content(path)
    wrong = [key for key in _THE_PROJECTS if key in content]
    if wrong:
        raise ProjectError(f"{path}: {', '.join(wrong)}: the project says this; leave it out")
    return content


def functions_of(project: Project) -> dict[str, RegisteredFunction]:
    """The functions that tidegate.toml registers, by the names a query calls them.

    Raises:
        JobError: one cannot be had, or the file cannot be read.
    """
    functions = settings_of(project).get("functions", {})
    if not functions:
        return {}
    stand_in = {"name": "project", "query": "", "inputs": {"input": {"type": "recorded", "path": "none"}}}
    path = project.folder / SETTINGS
    return registered_functions(definition_of({**stand_in, "functions": functions}, path).functions)


def project_definition(project: Project) -> JobDefinition:
    """The job that a project is.

    Raises:
        JobError: a function cannot be had, an input or output has no connection string or is of a kind that is not
            known here, or tidegate.toml is wrong; every input and output that lacks something is named at once.
        JobQueryError: the query cannot run.
    """
    settings = settings_of(project)
    inputs = {name: project.inputs[name] for name in project.inputs}
    given = {name.lower() for name in settings.get("inputs", {})}
    query = compile_project(
        project,
        functions_of(project),
        inputs=[*(one.name for one in inputs.values()), *settings.get("inputs", {})],
        reference_inputs=_reference_names(project, settings),
    )
    problems: list[str] = []
    content: dict[str, Any] = {
        "name": re.sub(r"[^A-Za-z0-9_.-]+", "-", project.name).lstrip("-_.") or "project",
        "query_file": str(project.query_file),
        "compatibility_level": project.config.compatibility_level,
        "event_ordering": {
            "late_arrival_tolerance_s": project.config.late_s,
            "out_of_order_tolerance_s": project.config.out_of_order_s,
            "action": project.config.out_of_order_policy,
        },
        "inputs": {},
        "outputs": {},
    }
    for name in {mention.name.lower(): mention.name for mention in query.inputs}.values():
        if name.lower() not in given:
            _take(project.inputs[name.lower()], _input, content["inputs"], problems)
    outside = {name.lower() for name in settings.get("outputs", {})}
    for output in query.outputs:
        endpoint = project.outputs.get(output.name.lower())
        if endpoint is not None and output.name.lower() not in outside:
            _take(endpoint, _output, content["outputs"], problems)
    if problems:
        raise ProjectError("\n".join(problems))
    return definition_of(_merged(content, settings), project.folder / SETTINGS)


def _reference_names(project: Project, settings: dict[str, Any]) -> Collection[str]:
    named = [one.name for one in project.inputs.values() if one.is_reference]
    return [*named, *(name for name, section in settings.get("inputs", {}).items() if _is_reference(section))]


def _is_reference(section: Any) -> bool:
    return isinstance(section, dict) and section.get("type") == "reference"


def _merged(content: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    merged = {**content, **settings}
    for table in _TABLES:
        own = {name.lower() for name in settings.get(table, {})}
        kept = {name: section for name, section in content.get(table, {}).items() if name.lower() not in own}
        merged[table] = {**kept, **settings.get(table, {})}
    merged["event_ordering"] = {**content["event_ordering"], **settings.get("event_ordering", {})}
    return merged


def _take(
    endpoint: Endpoint,
    section: Callable[[Endpoint], dict[str, Any]],
    taken: dict[str, Any],
    problems: list[str],
) -> None:
    try:
        taken[endpoint.name] = section(endpoint)
    except ProjectError as error:
        problems.append(str(error))


def _input(endpoint: Endpoint) -> dict[str, Any]:
    source = endpoint.event_hub or endpoint.iot_hub
    if endpoint.is_reference or source is None or endpoint.kind not in ("event hub", "iot hub"):
        raise _unknown("input", endpoint)
    section = {
        "type": "eventhub",
        "connection_string": _connection_string("input", endpoint, source),
        "consumer_group": source.consumer_group_name or "$Default",
    }
    if endpoint.event_hub is not None and source.event_hub_name and "EntityPath=" not in section["connection_string"]:
        section["event_hub"] = source.event_hub_name
    return section


def _output(endpoint: Endpoint) -> dict[str, Any]:
    raise _unknown("output", endpoint)


def _unknown(what: str, endpoint: Endpoint) -> ProjectError:
    kind = f"{'reference data from ' if endpoint.is_reference else ''}{endpoint.data_source_type or 'of no kind'}"
    return ProjectError(
        f"the {what} {endpoint.name} is {kind}, which is not known here; say what takes its place in {SETTINGS} "
        f"beside the project: [{what}s.{endpoint.name}]"
    )


def variable_of(name: str) -> str:
    """The environment variable that has the connection string of an input or output."""
    return re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_") + "_CONNECTION_STRING"


def _connection_string(what: str, endpoint: Endpoint, source: DataSource) -> str:
    variable = variable_of(endpoint.name)
    value = os.environ.get(variable)
    if value:
        return value
    hub = source.event_hub_name or source.iot_hub_namespace or "a hub"
    at = f" of {source.service_bus_namespace}" if source.service_bus_namespace else ""
    raise ProjectError(
        f"the {what} {endpoint.name} is {hub}{at}, and a project holds no keys: "
        f"export {variable}='Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…'"
    )
