"""A job in an Azure Resource Manager template, as the portal exports it and the service's tools build it.

https://learn.microsoft.com/azure/templates/microsoft.streamanalytics/streamingjobs. It describes the same job as the
files of a project, under other names. Inputs, outputs and functions may be inside the job or resources of their own.
Of template expressions only parameters are supported, with values from NAME.parameters.json or their defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidegate.job.model.errors import ProjectError
from tidegate.job.project.datasources.kinds import DATA_SOURCES
from tidegate.job.project.files import JobConfig, ProjectFunction
from tidegate.job.project.model.endpoint import Endpoint, InputEndpoint
from tidegate.job.project.model.project_file import parse_project_file, read_json

JOB = "microsoft.streamanalytics/streamingjobs"
_PARAMETER = re.compile(r"^\[parameters\('([^']+)'\)\]$", re.IGNORECASE)
_LANGUAGES = {
    "microsoft.streamanalytics/javascriptudf": "JSFunction",
    "microsoft.streamanalytics/javascriptuda": "JSFunction",
    "microsoft.streamanalytics/clrudf": "CSharpFunction",
}


def is_template(content: Any) -> bool:
    """Return whether the content of a file is a template, rather than a list of a project's files."""
    return isinstance(content, dict) and isinstance(content.get("resources"), list)


class Template:
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
        content = read_json(path)
        self._parameters = _parameters(path, content)
        resources = [self._known(one) for one in content["resources"] if isinstance(one, dict)]
        jobs = [one for one in resources if str(one.get("type", "")).lower() == JOB]
        if len(jobs) != 1:
            raise ProjectError(f"{path}: expected one resource of the type {JOB}, got {len(jobs)}")
        job = jobs[0]
        properties = _lowered(job.get("properties", {}))
        self.name = str(job.get("name", path.stem)).rpartition("/")[2].strip("[]'\" ") or path.stem
        self.notes: list[str] = []
        self.config = self._config(properties)
        parts = {
            kind: list(self._parts(kind, properties, job, resources)) for kind in ("inputs", "outputs", "functions")
        }
        self.sql = self._query(properties, job, resources)
        self.inputs = {
            one.name.lower(): one for one in (self._endpoint(part, InputEndpoint) for part in parts["inputs"])
        }
        self.outputs = {one.name.lower(): one for one in (self._endpoint(part, Endpoint) for part in parts["outputs"])}
        self.functions = {one.name.lower(): one for one in map(self._function, parts["functions"])}

    def _known(self, part: Any) -> Any:
        """Return a part with parameters replaced by their values; secrets without a value are left out."""
        if isinstance(part, dict):
            return {key: self._known(value) for key, value in part.items()}
        if isinstance(part, list):
            return [self._known(value) for value in part]
        if isinstance(part, str) and (named := _PARAMETER.match(part)) is not None:
            return self._parameters.get(named[1].lower())
        return part

    def _literal(self, part: Any, place: str) -> Any:
        """Return a part without the escapes of texts in brackets.

        Raises:
            ProjectError: it has an expression.
        """
        if isinstance(part, dict):
            return {key: self._literal(value, f"{place}.{key}") for key, value in part.items()}
        if isinstance(part, list):
            return [self._literal(value, f"{place}.{number}") for number, value in enumerate(part)]
        if not isinstance(part, str) or not part.startswith("[") or not part.endswith("]"):
            return part
        if part.startswith("[["):
            return part[1:]
        raise ProjectError(
            f"{self._path}, {place}: {part} is a template expression, and only [parameters('NAME')] is supported here; "
            "write its value"
        )

    def _config(self, properties: Mapping[str, Any]) -> JobConfig:
        names = {field.alias: (field.alias or "").lower() for field in JobConfig.model_fields.values()}
        given = {alias: properties[name] for alias, name in names.items() if properties.get(name) is not None}
        if "CompatibilityLevel" not in given:
            self.notes.append(f"{self._path} has no compatibilityLevel: 1.2 is used")
        return parse_project_file(given, JobConfig, f"{self._path} is not a job")

    def _query(self, properties: Mapping[str, Any], job: Any, resources: list[Any]) -> str:
        inside = properties.get("transformation")
        own = [*self._children("transformations", job, resources), *([inside] if isinstance(inside, dict) else [])]
        for one in own:
            query = _lowered(one.get("properties", {})).get("query")
            if isinstance(query, list):
                query = "\n".join(map(str, query))
            if isinstance(query, str):
                return str(self._literal(query, "query"))
        raise ProjectError(f"{self._path}: the job has no transformation with a query")

    def _parts(self, kind: str, properties: Mapping[str, Any], job: Any, resources: list[Any]) -> Iterator[Any]:
        inside = properties.get(kind)
        found = [one for one in inside if isinstance(one, dict)] if isinstance(inside, list) else []
        for one in [*found, *self._children(kind, job, resources)]:
            if not _own_name(one):
                raise ProjectError(f"{self._path}: one of the {kind} has no name")
            yield one

    @staticmethod
    def _children(kind: str, job: Any, resources: list[Any]) -> Iterator[Any]:
        """Yield the resources of a kind that belong to the job."""
        inside = job.get("resources")
        nested = [one for one in inside if isinstance(one, dict)] if isinstance(inside, list) else []
        for one in [*resources, *nested]:
            if str(one.get("type", "")).lower() in (f"{JOB}/{kind}", kind):
                yield one

    def _endpoint(self, part: Mapping[str, Any], shape: type[Endpoint]) -> Endpoint:
        properties = _lowered(self._literal(part.get("properties", {}), _own_name(part)))
        source = _lowered(properties.get("datasource") or {})
        of = str(source.get("type", ""))
        kind = DATA_SOURCES.of_template(of)
        serialization = _lowered(properties.get("serialization") or {})
        content = {
            "Name": _own_name(part),
            "Type": properties.get("type"),
            "DataSourceType": of if kind is None else kind.names[0],
            "Properties" if kind is None else kind.sections[0]: _capitalised(source.get("properties") or {}),
            "Serialization": {"Type": serialization.get("type"), **_capitalised(serialization.get("properties") or {})},
            "CompressionType": _lowered(properties.get("compression") or {}).get("type"),
            "PartitionKey": properties.get("partitionkey"),
            "MinimumRows": properties.get("sizewindow"),
            "MaximumTime": properties.get("timewindow"),
        }
        origin = f"{self._path}, {_own_name(part)}"
        what = "an input" if shape is InputEndpoint else "an output"
        read = parse_project_file(content, shape, f"{origin} is not {what}")
        return read.model_copy(update={"origin": origin})

    def _function(self, part: Mapping[str, Any]) -> ProjectFunction:
        properties = _lowered(part.get("properties", {}))
        inner = _lowered(self._literal(properties.get("properties") or {}, _own_name(part)))
        binding = _lowered(inner.get("binding") or {})
        content = {
            "Name": _own_name(part),
            "Type": properties.get("type", "Scalar"),
            "ScriptType": _LANGUAGES.get(str(binding.get("type", "")).lower(), "Function"),
            "Binding": binding or None,
            "Script": _lowered(binding.get("properties") or {}).get("script"),
        }
        if content["ScriptType"] != "Function":  # the types of models are in their binding
            content["FunctionInputs"] = inner.get("inputs")
            content["OutputType"] = _lowered(inner.get("output")).get("datatype")
        return parse_project_file(content, ProjectFunction, f"{self._path}, {_own_name(part)}: it is not a function")


def _parameters(path: Path, content: Any) -> dict[str, Any]:
    """Return the values of parameters, by name in lower case."""
    declared = content.get("parameters") if isinstance(content.get("parameters"), dict) else {}
    found = {name.lower(): one.get("defaultValue") for name, one in declared.items() if isinstance(one, dict)}
    beside = path.with_name(f"{path.stem}.parameters.json")
    given = read_json(beside) if beside.exists() else {}
    values = given.get("parameters") if isinstance(given, dict) else None
    for name, one in (values if isinstance(values, dict) else {}).items():
        if isinstance(one, dict) and one.get("value") is not None:
            value = one["value"]
            # A default may be an expression; these values are texts, even in brackets.
            found[name.lower()] = f"[{value}" if str(value).startswith("[") and str(value).endswith("]") else value
    return found


def _lowered(part: Any) -> dict[str, Any]:
    return {str(key).lower(): value for key, value in part.items()} if isinstance(part, dict) else {}


def _capitalised(part: Any) -> Any:
    """Capitalise names as the files of projects do: serviceBusNamespace is ServiceBusNamespace there."""
    if isinstance(part, dict):
        return {key[:1].upper() + key[1:]: _capitalised(value) for key, value in part.items()}
    return [_capitalised(value) for value in part] if isinstance(part, list) else part


def _own_name(part: Mapping[str, Any]) -> str:
    """Return the name of a part without the job's name, which the name of a resource of its own starts with."""
    named = str(part.get("name") or "")
    quoted = re.findall(r"'/?([^'/]+)'", named) if named.startswith("[") else []
    return quoted[-1] if quoted else named.rpartition("/")[2]
