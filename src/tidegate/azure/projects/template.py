"""A job in an Azure Resource Manager template, as the portal exports it and the service's tools build it.

https://learn.microsoft.com/azure/templates/microsoft.streamanalytics/streamingjobs. It describes the same job as the
files of a project, under other names. Inputs, outputs and functions may be inside the job or resources of their own.

Parameters have their values from NAME.parameters.json or their defaults. What has no value before the template is
deployed, such as a secret parameter or the key of another resource, is left out: it is taken from the environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES
from tidegate.azure.projects.files import JobConfig, ProjectFunction
from tidegate.azure.projects.model.endpoint import Endpoint, InputEndpoint
from tidegate.azure.projects.model.project_file import parse_project_file, read_json
from tidegate.azure.templates import Evaluator, Template, TemplateError, TemplateResource, UnknownValueError
from tidegate.connectors.model.errors import ProjectError

JOB = "microsoft.streamanalytics/streamingjobs"
_KINDS = ("inputs", "outputs", "functions")
_PARAMETER = re.compile(r"\bparameters\(\s*'([^']+)'\s*\)", re.IGNORECASE)
_NOBODY = "00000000-0000-0000-0000-000000000000"
_CONSTANTS = {
    "resourcegroup": {"id": f"/subscriptions/{_NOBODY}/resourceGroups/local", "name": "local", "location": "local"},
    "subscription": {"id": f"/subscriptions/{_NOBODY}", "subscriptionId": _NOBODY, "tenantId": _NOBODY},
    "tenant": {"tenantId": _NOBODY},
    "deployment": {"name": "local", "properties": {}},
    "environment": {"name": "local", "suffixes": {"storage": "core.windows.net"}},
}
"""What templates see of the place where they are deployed, which is none here."""
_LANGUAGES = {
    "microsoft.streamanalytics/javascriptudf": "JSFunction",
    "microsoft.streamanalytics/javascriptuda": "JSFunction",
    "microsoft.streamanalytics/clrudf": "CSharpFunction",
}


def is_template(content: Any) -> bool:
    """Return whether the content of a file is a template, rather than a list of a project's files."""
    return isinstance(content, dict) and isinstance(content.get("resources"), list | dict)


class TemplateJob:
    """The job in a template.

    Attributes:
        name, sql, config, inputs, outputs, functions: as in `project.Project`.
        notes: what a person should know about it.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            ProjectError: it cannot be read, does not have exactly one job, or uses something unsupported.
        """
        self._path = path
        self.notes: list[str] = []
        try:
            self._read(read_json(path))
        except TemplateError as error:
            raise ProjectError(f"{path}: {error}") from error

    def _read(self, content: Any) -> None:
        resources, undeclared = self._resources(content)
        own = [one for one in resources if f"{one.kind.lower()}/".startswith(f"{JOB}/")]
        jobs = [one for one in own if one.kind.lower() == JOB]
        if len(jobs) != 1:
            raise ProjectError(f"{self._path}: expected one resource of the type {JOB}, got {len(jobs)}")
        (job,) = jobs
        evaluator = _before_deployment(job)
        properties = _lowered(evaluator.value(job.content.get("properties", {})))
        is_named = evaluator.value(job.content.get("name")) is not None
        self.name = job.resource_id.rpartition("/")[2] if is_named else self._path.stem
        self.config = self._config(properties)
        self.notes += undeclared
        self.sql = self._query(properties, own)
        inputs, outputs, functions = (list(self._parts(kind, properties, own)) for kind in _KINDS)
        self.inputs = {one.name.lower(): one for one in (self._endpoint(part, InputEndpoint) for part in inputs)}
        self.outputs = {one.name.lower(): one for one in (self._endpoint(part, Endpoint) for part in outputs)}
        self.functions = {one.name.lower(): one for one in map(self._function, functions)}

    def _resources(self, content: dict[str, Any]) -> tuple[list[TemplateResource], list[str]]:
        """Return the resources, and a note for each parameter that is used and not declared."""
        declared = content["parameters"] if isinstance(content.get("parameters"), dict) else {}
        referred = dict.fromkeys(_PARAMETER.findall(json.dumps(content)))
        known = {name.lower() for name in declared}
        undeclared = [name for name in referred if name.lower() not in known]
        notes = [f"{self._path}: the parameter '{name}' is not declared: it has no value" for name in undeclared]
        complete = {**content, "parameters": {**declared, **{name: {"type": "string"} for name in undeclared}}}
        template = Template(complete, _parameters(self._path), _CONSTANTS, is_deployed=False)
        return template.resources_as_written(), notes

    def _config(self, properties: Mapping[str, Any]) -> JobConfig:
        names = {field.alias: (field.alias or "").lower() for field in JobConfig.model_fields.values()}
        given = {alias: properties[name] for alias, name in names.items() if properties.get(name) is not None}
        if "CompatibilityLevel" not in given:
            self.notes.append(f"{self._path} has no compatibilityLevel: 1.2 is used")
        return parse_project_file(given, JobConfig, f"{self._path} is not a job")

    def _query(self, properties: Mapping[str, Any], own: Sequence[TemplateResource]) -> str:
        inside = properties.get("transformation")
        found = [*self._children("transformations", own), *([inside] if isinstance(inside, dict) else [])]
        for one in found:
            query = _lowered(one.get("properties", {})).get("query")
            if isinstance(query, list):
                query = "\n".join(map(str, query))
            if isinstance(query, str):
                return query
        raise ProjectError(
            f"{self._path}: the job has no transformation with a query, or its query is a parameter without a value"
        )

    def _parts(
        self, kind: str, properties: Mapping[str, Any], own: Sequence[TemplateResource]
    ) -> Iterator[dict[str, Any]]:
        inside = properties.get(kind)
        found = [one for one in inside if isinstance(one, dict)] if isinstance(inside, list) else []
        for one in [*found, *self._children(kind, own)]:
            if not one.get("name"):
                raise ProjectError(f"{self._path}: one of the {kind} has no name")
            yield one

    @staticmethod
    def _children(kind: str, own: Sequence[TemplateResource]) -> Iterator[dict[str, Any]]:
        """Yield the resources of a kind, under their own names: those of resources begin with the job's."""
        for one in own:
            if one.kind.lower() == f"{JOB}/{kind}":
                properties = _before_deployment(one).value(one.content.get("properties", {}))
                yield {"name": one.resource_id.rpartition("/")[2], "properties": properties}

    def _endpoint(self, part: Mapping[str, Any], shape: type[Endpoint]) -> Endpoint:
        properties = _lowered(part.get("properties", {}))
        source = _lowered(properties.get("datasource") or {})
        of = str(source.get("type", ""))
        kind = DATA_SOURCES.of_template(of)
        serialization = _lowered(properties.get("serialization") or {})
        content = {
            "Name": part["name"],
            "Type": properties.get("type"),
            "DataSourceType": of if kind is None else kind.names[0],
            "Properties" if kind is None else kind.sections[0]: _capitalised(source.get("properties") or {}),
            "Serialization": {"Type": serialization.get("type"), **_capitalised(serialization.get("properties") or {})},
            "CompressionType": _lowered(properties.get("compression") or {}).get("type"),
            "PartitionKey": properties.get("partitionkey"),
            "MinimumRows": properties.get("sizewindow"),
            "MaximumTime": properties.get("timewindow"),
        }
        origin = f"{self._path}, {part['name']}"
        what = "an input" if shape is InputEndpoint else "an output"
        read = parse_project_file(content, shape, f"{origin} is not {what}")
        return read.model_copy(update={"origin": origin})

    def _function(self, part: Mapping[str, Any]) -> ProjectFunction:
        properties = _lowered(part.get("properties", {}))
        inner = _lowered(properties.get("properties") or {})
        binding = _lowered(inner.get("binding") or {})
        content = {
            "Name": part["name"],
            "Type": properties.get("type", "Scalar"),
            "ScriptType": _LANGUAGES.get(str(binding.get("type", "")).lower(), "Function"),
            "Binding": binding or None,
            "Script": _lowered(binding.get("properties") or {}).get("script"),
        }
        if content["ScriptType"] != "Function":  # the types of models are in their binding
            content["FunctionInputs"] = inner.get("inputs")
            content["OutputType"] = _lowered(inner.get("output")).get("datatype")
        return parse_project_file(content, ProjectFunction, f"{self._path}, {part['name']}: it is not a function")


def _before_deployment(resource: TemplateResource) -> Evaluator:
    """Return what evaluates parts of a resource; what depends on other resources is null."""

    def unknown(function: str, _arguments: list[Any]) -> NoReturn:
        raise UnknownValueError(f"the template function '{function}' has no value before the template is deployed")

    return Evaluator(resource.scope.with_runtime(unknown), leaves_out_unknown=True)


def _parameters(path: Path) -> dict[str, Any]:
    """Return the parameters that the file beside a template gives a value."""
    beside = path.with_name(f"{path.stem}.parameters.json")
    given = read_json(beside) if beside.exists() else {}
    values = given.get("parameters") if isinstance(given, dict) else None
    return {
        name: one
        for name, one in (values if isinstance(values, dict) else {}).items()
        if isinstance(one, dict) and one.get("value") is not None
    }


def _lowered(part: Any) -> dict[str, Any]:
    return {str(key).lower(): value for key, value in part.items()} if isinstance(part, dict) else {}


def _capitalised(part: Any) -> Any:
    """Capitalise names as the files of projects do: serviceBusNamespace is ServiceBusNamespace there."""
    if isinstance(part, dict):
        return {key[:1].upper() + key[1:]: _capitalised(value) for key, value in part.items()}
    return [_capitalised(value) for value in part] if isinstance(part, list) else part
