"""A project as a continuous job: its live inputs and outputs, with the settings that depend on where it runs.

A project holds no keys, so the connection string of an input or output comes from an environment variable that is
named after it. tidegate.toml beside the project, a job file without a query, may replace any section of the project:
with another input, an output of a kind that is not supported here, or functions in Python.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from typing import Any

from tidegate.job.config.definition import JobDefinition, definition_of, function_definitions, read_content
from tidegate.job.inputs.kinds import reference_names
from tidegate.job.model.errors import ProjectError
from tidegate.job.prepare.functions import RegisteredFunction, registered_functions
from tidegate.job.prepare.loading import Job, prepare_job
from tidegate.job.project.files import DataSource, Endpoint, delimiter_of
from tidegate.job.project.local import compile_project
from tidegate.job.project.reading import Project

SETTINGS = "tidegate.toml"
_TABLES = ("inputs", "outputs", "functions")
_STORAGE_VARIABLES = ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
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


def functions_of(project: Project) -> dict[str, RegisteredFunction]:
    """Return the functions that tidegate.toml registers, by the names a query calls them.

    Raises:
        JobError: one cannot be imported, or the file cannot be read.
    """
    settings_of(project)
    return registered_functions(function_definitions(project.folder / SETTINGS))


def load_project(project: Project) -> Job:
    """Return the job that a project describes, with its query compiled.

    Raises:
        JobError, JobQueryError: see `project_definition` and `prepare_job`.
    """
    return prepare_job(project_definition(project), str(project.query_file))


def project_definition(project: Project) -> JobDefinition:
    """Return the definition of the job that a project describes.

    Raises:
        JobError: a function cannot be imported, an input or output has no connection string or is of an unknown kind,
            or tidegate.toml is wrong; the message names every input and output that lacks something.
        JobQueryError: the query cannot run.
    """
    settings = settings_of(project)
    given = {table: {name.lower() for name in settings.get(table, {})} for table in _TABLES}
    query = compile_project(
        project,
        functions_of(project),
        inputs=[*(one.name for one in project.inputs.values()), *settings.get("inputs", {})],
        reference_inputs=_reference_names(project, settings),
    )
    content: dict[str, Any] = {
        "name": re.sub(r"[^A-Za-z0-9_.-]+", "-", project.name).lstrip("-_.") or "project",
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
    }
    problems: list[str] = []
    for name in dict.fromkeys(mention.name.lower() for mention in query.inputs):
        if name not in given["inputs"]:
            _take(project.inputs[name], _input, content["inputs"], problems)
    for name in dict.fromkeys(output.name.lower() for output in query.outputs):
        if name in project.outputs and name not in given["outputs"]:
            _take(project.outputs[name], _output, content["outputs"], problems)
    if problems:
        raise ProjectError("\n".join(problems))
    return definition_of(_merged(content, settings), project.folder / SETTINGS)


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
    match endpoint.kind, endpoint.is_reference:
        case "event hub", False if endpoint.event_hub is not None:
            hub = _hub("input", endpoint, endpoint.event_hub)
            return {"type": "eventhub", **hub, **_format(endpoint), **_group(endpoint.event_hub)}
        case "iot hub", False if endpoint.iot_hub is not None:
            hub = _hub("input", endpoint, endpoint.iot_hub)
            return {"type": "iothub", **hub, **_format(endpoint), **_group(endpoint.iot_hub)}
        case "blob storage", False if endpoint.blob is not None:
            return {"type": "files", **_blobs(endpoint, endpoint.blob), **_format(endpoint)}
        case "blob storage", True if (source := endpoint.reference_blob or endpoint.blob) is not None:
            return {"type": "reference", **_blobs(endpoint, source), **_format(endpoint)}
    raise _unknown("input", endpoint)


def _output(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.kind != "event hub" or endpoint.event_hub is None or _format(endpoint).get("format", "json") != "json":
        raise _unknown("output", endpoint)
    section = {"type": "eventhub", **_hub("output", endpoint, endpoint.event_hub)}
    if endpoint.event_hub.partition_key:
        section["partition_key"] = endpoint.event_hub.partition_key
    if endpoint.event_hub.property_columns:
        section["property_columns"] = list(endpoint.event_hub.property_columns)
    return section


def _hub(what: str, endpoint: Endpoint, source: DataSource) -> dict[str, Any]:
    connection_string = _connection_string(what, endpoint, source)
    section = {"connection_string": connection_string}
    if source.event_hub_name and "entitypath=" not in connection_string.lower():
        section["event_hub"] = source.event_hub_name
    return section


def _group(source: DataSource) -> dict[str, Any]:
    return {"consumer_group": source.consumer_group_name} if source.consumer_group_name else {}


def _format(endpoint: Endpoint) -> dict[str, Any]:
    """Return the format settings of a body or file."""
    written = endpoint.serialization
    section: dict[str, Any] = {}
    if written is not None and written.type:
        section["format"] = written.type.lower()
    if written is not None and written.field_delimiter and section.get("format") == "csv":
        section["delimiter"] = delimiter_of(written.field_delimiter)
    compression = (endpoint.compression or "none").lower()
    return section if compression == "none" else {**section, "compression": compression}


def _blobs(endpoint: Endpoint, source: DataSource) -> dict[str, Any]:
    """Return the settings for files of a container; the account's key is in the environment, as for Azure's tools."""
    account = next((one.account_name for one in source.storage_accounts if one.account_name), "an account")
    if not any(os.environ.get(name) for name in _STORAGE_VARIABLES):
        raise ProjectError(
            f"the input {endpoint.name} is the container {source.container} of {account}, and a project holds no keys: "
            f"export {_STORAGE_VARIABLES[0]}='DefaultEndpointsProtocol=https;AccountName={account};AccountKey=…'"
        )
    section = {"path": f"az://{source.container}/{(source.path_pattern or '').lstrip('/')}"}
    if source.date_format:
        section["date_format"] = source.date_format.upper()
    if source.time_format:
        section["time_format"] = source.time_format
    return section


def _unknown(what: str, endpoint: Endpoint) -> ProjectError:
    written = endpoint.serialization.type if endpoint.serialization and endpoint.serialization.type else ""
    kind = f"{'reference data from ' if endpoint.is_reference else ''}{endpoint.data_source_type or 'of no kind'}"
    return ProjectError(
        f"the {what} {endpoint.name} is {kind}{f' ({written})' if written else ''}, which is not supported here; "
        f"replace it in {SETTINGS} beside the project, by a section [{what}s.{endpoint.name}]"
    )


def variable_of(name: str) -> str:
    """Return the name of the environment variable with the connection string of an input or output."""
    return re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_") + "_CONNECTION_STRING"


def _connection_string(what: str, endpoint: Endpoint, source: DataSource) -> str:
    variable = variable_of(endpoint.name)
    value = os.environ.get(variable)
    if value:
        return value
    hub = source.event_hub_name or source.iot_hub_namespace or "a hub"
    at = f" of {source.service_bus_namespace}" if source.service_bus_namespace else ""
    of = "the Event Hub-compatible endpoint of " if source.iot_hub_namespace else ""
    raise ProjectError(
        f"the {what} {endpoint.name} is {of}{hub}{at}, and a project holds no keys: "
        f"export {variable}='Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…'"
    )
