"""What Tidegate adds to a streaming job: its job file, and how it is beyond what Azure's API tells.

A job is described either in Azure's terms or by a job file, whole, as `properties.jobFile`. It may name files and code
of this machine, so writing it takes an owner. Its secrets are write-only: readers see null, and null keeps the secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tidegate.azure.management.access.requests import ArmError, ArmRequest, bad_request
from tidegate.azure.management.manager.resource_groups import time_text
from tidegate.azure.management.stream_analytics.document import parts_of
from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, NoCounterpartError, no_counterpart
from tidegate.azure.projects.datasources.secrets import STORAGE_VARIABLES, Secrets, variable_of
from tidegate.azure.projects.files import JobConfig
from tidegate.azure.projects.model.endpoint import Endpoint
from tidegate.azure.projects.model.project_file import parse_project_file
from tidegate.connectors.model.errors import JobError
from tidegate.service import JobResource, Scale
from tidegate.service.secrets import says_where

LocalConnection = Callable[[Mapping[str, Any]], str | None]
_PROJECTS = re.compile(r", and a project holds no keys.*", re.DOTALL)
_SCALAR_BINDING = "Microsoft.StreamAnalytics/JavascriptUdf"
_AGGREGATE_BINDING = "Microsoft.StreamAnalytics/JavascriptUda"
_WHAT_IS_MISSING = {
    "EventHub": "its key is missing: sharedAccessPolicyName and sharedAccessPolicyKey, which only an event hub of this "
    "server's own namespace does without",
    "BlobStorage": "its key is missing: storageAccounts has no accountKey, and the server's environment no account "
    "(AZURE_STORAGE_CONNECTION_STRING)",
    "TableStorage": "its accountKey is missing, and the server's environment has no account "
    "(AZURE_STORAGE_CONNECTION_STRING)",
    "IotHub": "the keys that the API has for an IoT hub are not those of this endpoint; describe it as a "
    "Microsoft.EventHub/EventHub with the endpoint's namespace, name and key, or give the job a job file "
    "(properties.jobFile) with an input of the type iothub",
    "CosmosDb": "its accountId or accountKey is missing",
    "SqlDatabase": "its server, user or password is missing",
    "Synapse": "its server, user or password is missing",
    "PostgreSql": "its server or password is missing",
    "ServiceBusQueue": "its sharedAccessPolicyName or sharedAccessPolicyKey is missing",
    "ServiceBusTopic": "its sharedAccessPolicyName or sharedAccessPolicyKey is missing",
    "AzureFunction": "its functionAppName or functionName is missing",
    "Kafka": "its password is missing, which the securityType asks for",
}
"""Of a kind of source or sink, by the name of its class: what a caller of the API has to send."""


def definition_of_document(
    document: Mapping[str, Any], local_connection: LocalConnection, output_folder: Path
) -> dict[str, Any]:
    """Return the job file of a job.

    Args:
        document: The job in the API's terms, with its secrets.
        local_connection: Returns the connection string for the settings of an event hub that is served here.
        output_folder: Where rows of outputs go that have no counterpart.

    Raises:
        ArmError: An input or output cannot be used; the message says which, and why.
    """
    properties = document.get("properties", {})
    names = [field.alias or "" for field in JobConfig.model_fields.values()]
    given = {str(key).lower(): value for key, value in properties.items() if value is not None}
    try:
        config = parse_project_file(
            {alias: given[alias.lower()] for alias in names if alias.lower() in given and alias != "Sku"},
            JobConfig,
            "the job",
        )
    except JobError as error:
        raise bad_request(str(error)) from None
    content: dict[str, Any] = {
        "compatibility_level": config.compatibility_level,
        "event_ordering": {
            "late_arrival_tolerance_s": config.late_s,
            "out_of_order_tolerance_s": config.out_of_order_s,
            "action": config.out_of_order_policy,
        },
        "output_error_policy": config.output_error_policy,
        "inputs": {one["name"]: _input(one, local_connection) for one in parts_of(document, "inputs")},
        "outputs": {
            one["name"]: _output(one, local_connection, output_folder) for one in parts_of(document, "outputs")
        },
    }
    functions = {one["name"]: _function(one) for one in parts_of(document, "functions")}
    if functions:
        content["functions"] = functions
    query = document.get("transformation", {}).get("properties", {}).get("query")
    return {**content, "query": query} if query else content


def _input(part: Mapping[str, Any], local_connection: LocalConnection) -> dict[str, Any]:
    try:
        endpoint, secrets = _endpoint(part, local_connection)
        source = DATA_SOURCES.of(endpoint)
        if source is None:
            raise no_counterpart("input", endpoint)
        section = source.reference_section if endpoint.is_reference else source.input_section
        return section(endpoint, secrets)
    except JobError as error:
        raise _refused("inputs", part, error) from None


def _output(part: Mapping[str, Any], local_connection: LocalConnection, output_folder: Path) -> dict[str, Any]:
    try:
        endpoint, secrets = _endpoint(part, local_connection)
        sink = DATA_SOURCES.of(endpoint)
        if sink is None:
            raise no_counterpart("output", endpoint)
        return sink.output_section(endpoint, secrets)
    except NoCounterpartError:
        return {"type": "file", "path": str(output_folder / f"{part['name']}.jsonl")}
    except JobError as error:
        raise _refused("outputs", part, error) from None


def _function(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of a function; scripts in JavaScript run here, functions of other services do not.

    An aggregate is a function of the type Aggregate, whose binding is that of a scalar function.
    """
    properties = _lowered(part["properties"])
    binding = _lowered(_lowered(properties.get("properties")).get("binding"))
    script = _lowered(binding.get("properties")).get("script")
    kind, bound = str(properties.get("type") or "Scalar"), str(binding.get("type") or "")
    is_aggregate = kind.lower() in ("aggregate", "aggregation") or bound.lower() == _AGGREGATE_BINDING.lower()
    if kind.lower() not in ("scalar", "aggregate", "aggregation"):
        problem = f"has the type {kind[:40]!r}; expected Scalar or Aggregate"
    elif bound.lower() not in (_SCALAR_BINDING.lower(), _AGGREGATE_BINDING.lower()):
        named = f"the binding {bound[:80]!r}" if bound else "no binding"
        problem = f"has {named}; functions in JavaScript run here, whose binding is of the type {_SCALAR_BINDING}"
    elif not isinstance(script, str) or not script.strip():
        problem = "has no properties.properties.binding.properties.script"
    else:
        return {"script": script, "aggregate": "main"} if is_aggregate else {"script": script}
    raise bad_request(f"the function {part['name']} {problem}", target=f"functions.{part['name']}")


def _endpoint(part: Mapping[str, Any], local_connection: LocalConnection) -> tuple[Endpoint, Secrets]:
    """Return an input or output as projects describe it, and the secrets that belong to it. Raises JobError."""
    name, properties = part["name"], _lowered(part["properties"])
    datasource = _lowered(properties["datasource"])
    settings = datasource.get("properties") or {}
    kind = DATA_SOURCES.of_template(datasource["type"])
    serialization = _lowered(properties.get("serialization"))
    serialization_settings = serialization.get("properties") or {}
    if not isinstance(serialization_settings, dict):
        raise bad_request(f"properties.serialization.properties of '{name}' is no object", target=name)
    content = {
        "Name": name,
        "Type": "Reference data" if str(properties.get("type", "")).lower() == "reference" else "Data Stream",
        "DataSourceType": datasource["type"] if kind is None else kind.names[0],
        "Properties" if kind is None else kind.sections[0]: _capitalised(settings),
        "Serialization": {"Type": serialization.get("type"), **_capitalised(serialization_settings)},
        "CompressionType": _lowered(properties.get("compression")).get("type"),
        "PartitionKey": properties.get("partitionkey"),
        "MinimumRows": properties.get("sizewindow"),
        "MaximumTime": properties.get("timewindow"),
    }
    endpoint = parse_project_file(content, Endpoint, f"{name}: it is not an input or output")
    variables = {variable: os.environ[variable] for variable in STORAGE_VARIABLES if variable in os.environ}
    connection = local_connection(settings) if kind is not None and "EventHub" in kind.sections[0] else None
    if connection is not None:
        variables[variable_of(name)] = connection
    return endpoint, Secrets(variables)


def _refused(kind: str, part: Mapping[str, Any], error: JobError) -> ArmError:
    """Return the refusal of an input or output; the advice for projects is not for callers of this API."""
    source = DATA_SOURCES.of_template(str(_lowered(_lowered(part["properties"]).get("datasource")).get("type", "")))
    advice = _WHAT_IS_MISSING.get("" if source is None else source.__name__, "its key is missing")
    return bad_request(_PROJECTS.sub(f": {advice}", str(error)), target=f"{kind}.{part['name']}")


def _lowered(part: Any) -> dict[str, Any]:
    return {str(key).lower(): value for key, value in part.items()} if isinstance(part, dict) else {}


def _capitalised(part: Any) -> Any:
    """Return the settings under the names of project files: serviceBusNamespace is ServiceBusNamespace there."""
    if isinstance(part, dict):
        return {str(key)[:1].upper() + str(key)[1:]: _capitalised(value) for key, value in part.items()}
    return [_capitalised(value) for value in part] if isinstance(part, list) else part


_FILE = "jobfile"
_UNITS = "streamingunits"
_CONTRADICTING = ("inputs", "outputs", "functions", "transformation")


def job_file_of(request: ArmRequest, properties: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the job file in the properties that a client sends, None if there is none.

    Raises:
        ArmError: The caller is no owner, the file is no object, or the job is described in Azure's terms as well.
    """
    given = {key.lower(): value for key, value in properties.items() if value is not None}
    if _FILE not in given:
        return None
    if not request.role.may("Microsoft.Authorization/write"):
        raise ArmError(
            403,
            "AuthorizationFailed",
            f"The client '{request.who}' with the role {request.role.value} cannot use a job file: it may name files "
            "and code of this machine, so it needs the role of an owner.",
        )
    file = given[_FILE]
    if not isinstance(file, dict):
        raise bad_request("properties.jobFile: expected an object, the content of a job file", target=_FILE)
    if described := [name for name in _CONTRADICTING if name in given]:
        raise bad_request(f"properties.jobFile and properties.{described[0]} contradict each other", target=_FILE)
    return file


def is_about_units(properties: Mapping[str, Any]) -> bool:
    """Return whether a change of properties is about nothing but the streaming units."""
    return {key.lower() for key, value in properties.items() if value is not None} <= {_UNITS}


def units_of(properties: Mapping[str, Any]) -> Scale | None:
    """Return the streaming units beside a job file, None without any. Raises ArmError."""
    units = next((value for key, value in properties.items() if key.lower() == _UNITS), None)
    if units is not None and (isinstance(units, bool) or not isinstance(units, int)):
        raise bad_request("properties.streamingUnits is a whole number", target="streamingUnits")
    return None if units is None else Scale(streaming_units=units)


def with_kept_secrets(
    new: Mapping[str, Any], old: Mapping[str, Any], place: str = "", moved: str = ""
) -> dict[str, Any]:
    """Return a job file in which null, which readers see in place of secrets, is what it was.

    Args:
        new: The file, or a section of it.
        old: What it was.
        place: Where the section is in the file, for messages.
        moved: The setting that has changed where the section's secrets would be shown; empty for none.

    Raises:
        ArmError: A secret would be shown to another place than it was given for.
    """
    moved = moved or next((f"{place}{name}" for name in sorted({*new, *old}) if _has_moved(name, new, old)), "")
    kept: dict[str, Any] = {}
    for name, value in new.items():
        before = old.get(name)
        if value is None and before is not None and moved:
            raise bad_request(f"enter {place}{name} again: it was given for another place, and {moved} has changed")
        if value is None:
            kept[name] = before
        elif isinstance(value, Mapping) and isinstance(before, Mapping):
            kept[name] = with_kept_secrets(value, before, f"{place}{name}.", moved)
        else:
            kept[name] = value
    return kept


def more_of(job: JobResource) -> dict[str, Any]:
    """Return the properties of a job that Azure's API does not have."""
    properties = {
        "jobStateReason": job.reason,
        "jobStateSince": time_text(job.state_since),
        "changedDate": time_text(job.changed),
        "startedDate": _time(job.started),
        "streamingUnits": job.scale.streaming_units,
        "restarts": job.restarts,
        "process": job.process,
        "placement": None if job.placement is None else dict(job.placement),
    }
    return {name: value for name, value in properties.items() if value is not None}


def query_versions(job: JobResource) -> list[dict[str, Any]]:
    """Return the queries that a job has run, the oldest first, and which results are whose."""
    return [
        {
            "query": version.query,
            "since": version.since,
            "resultsFrom": version.results_from,
            "resultsBefore": version.results_before,
            "firstRows": dict(version.first_rows),
        }
        for version in job.versions
    ]


def _has_moved(name: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    value, before = new.get(name), old.get(name)
    if not (name == "type" or says_where(name)) or isinstance(value, Mapping) or isinstance(before, Mapping):
        return False
    return value != before and not (name in new and value is None)


def _time(time: datetime | None) -> str | None:
    return None if time is None else time_text(time)
