"""Writes a job as an Azure Resource Manager template: the way back from `template`.

The resource is described at https://learn.microsoft.com/azure/templates/microsoft.streamanalytics/streamingjobs. No
secret is written: each becomes a parameter of type securestring without a default, so a deployment asks for it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, DataSource, Role
from tidegate.azure.projects.datasources.secrets import STORAGE_VARIABLES, Secrets, password_variable_of, variable_of
from tidegate.azure.projects.files import JobConfig, ProjectFunction
from tidegate.azure.projects.machine_learning import binding_of, is_model
from tidegate.azure.projects.model.endpoint import Endpoint, Serialization, delimiter_of
from tidegate.azure.projects.model.project_file import read_text
from tidegate.azure.projects.reading import Project
from tidegate.connectors.model.errors import ProjectError
from tidegate.connectors.model.kinds import KindSection
from tidegate.job.config.definition import EventOrdering, JobDefinition, query_text
from tidegate.job.config.function_definitions import FunctionDefinition
from tidegate.job.config.model_definitions import AzureMLDefinition, OnnxDefinition

SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
API_VERSION = "2021-10-01-preview"
JOB_TYPE = "Microsoft.StreamAnalytics/streamingjobs"
_SECRETS = {"SharedAccessPolicyKey", "AccountKey", "Password", "ApiKey", "RefreshToken"}
_FORMATS = {
    "json": "Json",
    "csv": "Csv",
    "avro": "Avro",
    "parquet": "Parquet",
    "delta": "Delta",
    "protobuf": "Protobuf",
    "customclr": "CustomClr",
}
_COMPRESSIONS = {"gzip": "GZip", "deflate": "Deflate"}
# The service counts the units of StandardV2 in these steps.
_UNITS = {"1/3": 3, "2/3": 7}
_OWN_PARAMETER = re.compile(r"\[parameters\('\w+'\)\]")
_MAIN = re.compile(r"\bfunction\s+main\s*\(([^)]*)\)")
_FUNCTION = re.compile(r"\bfunction\b[^(]*\(([^)]*)\)")
_ONLY_HERE = {
    "early_arrival_tolerance_s": "the service drops what is more than five minutes early",
    "timelines": "the service has a timeline for each partition",
    "enabled": "the service always has an event ordering policy",
}
_NOT_COMPARED = {"type", "connection_string", "event_hub"}
"""Settings of sections that a template spreads over several of its own."""
_SCRIPTS = {"jsfunction": "Microsoft.StreamAnalytics/JavascriptUdf"}


@dataclass(frozen=True, slots=True)
class ExportedTemplate:
    """A template, and what a person should know about it: whatever could not be expressed, and is left out."""

    content: dict[str, Any]
    notes: tuple[str, ...]


def export_project(project: Project) -> ExportedTemplate:
    """Return the template of a project."""
    export = _Export(project.name, project.sql, project.config)
    export.notes += project.notes
    for endpoint in project.inputs.values():
        export.add("inputs", endpoint)
    for endpoint in project.outputs.values():
        export.add("outputs", endpoint)
    for function in project.functions.values():
        export.add_function(function, _script_of(project, function))
    return export.template()


def export_job(definition: JobDefinition) -> ExportedTemplate:
    """Return the template of a job file whose paths are absolute.

    Raises:
        JobError: the file with its query cannot be read.
    """
    ordering = definition.event_ordering
    config = {
        "EventsLateArrivalMaxDelayInSeconds": math.ceil(ordering.late_arrival_tolerance_s),
        "EventsOutOfOrderMaxDelayInSeconds": math.ceil(ordering.out_of_order_tolerance_s),
        "EventsOutOfOrderPolicy": ordering.action,
        "OutputErrorPolicy": definition.output_error_policy,
        "CompatibilityLevel": definition.compatibility_level,
    }
    export = _Export(definition.name, query_text(definition), JobConfig.model_validate(config))
    export.notes += _ordering_notes(ordering)
    for name, one in definition.inputs.items():
        export.add_section("inputs", name, one)
    for name, other in definition.outputs.items():
        export.add_section("outputs", name, other)
    left_out = []
    for name, function in definition.functions.items():
        if isinstance(function, AzureMLDefinition):
            export.add_model(name, binding_of(function))
        elif isinstance(function, FunctionDefinition) and function.is_script:
            export.add_function(_project_function(name, function), _text_of(function))
        else:
            kind = "a local model" if isinstance(function, OnnxDefinition) else "in Python"
            left_out.append(f"the function {name} is {kind}")
    left_out += ["early_results"] if definition.early_results is not None else []
    left_out += ["explanations"] if definition.explanations is not None else []
    export.notes += [f"{one}: the service has no such thing, it is left out" for one in left_out]
    return export.template()


def _ordering_notes(ordering: EventOrdering) -> list[str]:
    """Return what the service does differently from an event ordering policy."""
    default = EventOrdering()
    notes = [
        f"event_ordering.{setting}: {why}; it is left out"
        for setting, why in _ONLY_HERE.items()
        if getattr(ordering, setting) != getattr(default, setting)
    ]
    for setting in ("late_arrival_tolerance_s", "out_of_order_tolerance_s"):
        seconds = getattr(ordering, setting)
        if seconds != math.ceil(seconds):
            notes.append(
                f"event_ordering.{setting}: the service counts whole seconds: {seconds} is {math.ceil(seconds)}"
            )
    return notes


def _project_function(name: str, function: FunctionDefinition) -> ProjectFunction:
    """Return a function in JavaScript as projects describe it: of any types, with the parameters of its script."""
    if function.aggregate is not None:
        count = 1
    else:
        text = _text_of(function)
        found = _MAIN.search(text) or _FUNCTION.search(text)
        count = len([one for one in found[1].split(",") if one.strip()]) if found else 0
    content = {
        "Name": name,
        "Type": "Scalar" if function.aggregate is None else "Aggregate",
        "ScriptType": "JSFunction",
        "FunctionInputs": [{"DataType": "any"}] * count,
    }
    return ProjectFunction.model_validate(content)


def _text_of(function: FunctionDefinition) -> str:
    """Return the text of a script.

    Raises:
        ProjectError: its file cannot be read.
    """
    return function.script if function.script is not None else read_text(Path(function.module or ""))


def _script_of(project: Project, function: ProjectFunction) -> str | None:
    """Return the text of a function in JavaScript, which is in the file beside its description."""
    if function.script is not None:
        return function.script
    for path in sorted(Path(project.folder).glob(f"**/{function.name}.js")):
        return path.read_text(encoding="utf-8-sig")
    return None


@dataclass(slots=True)
class _Export:
    """A template while it is put together."""

    name: str
    sql: str
    config: JobConfig
    notes: list[str] = field(default_factory=list)
    _parts: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"inputs": [], "outputs": [], "functions": []}
    )
    _parameters: dict[str, dict[str, Any]] = field(default_factory=dict)
    _owners: dict[tuple[str, str], str] = field(default_factory=dict)

    def add_section(self, table: str, name: str, section: KindSection) -> None:
        """Add the input or output that a section of a job file describes."""
        content = section.model_dump(mode="json")
        role: Role = "output" if table == "outputs" else "reference" if section.type == "reference" else "input"
        for kind in DATA_SOURCES.all:
            settings = kind.of_section(role, content)
            if settings is not None:
                settings = {**dict.fromkeys(kind.named_after, name), **settings}
                endpoint = {
                    "Name": name,
                    "Type": "Reference data" if role == "reference" else "Data Stream",
                    "DataSourceType": kind.names[0],
                    kind.sections[0]: settings,
                    "Serialization": _serialization_of(content),
                    "CompressionType": content.get("compression"),
                    **_batches_of(section),
                }
                read = Endpoint.model_validate(endpoint)
                self.add(table, read)
                self.notes += _lost_settings(table, role, read, section)
                if kind.after_deployment:
                    self.notes.append(f"{table}.{name}, after the deployment: {kind.after_deployment}")
                return
        self.notes.append(f"{table}.{name} is of type {section.type}, which the service does not have: it is left out")

    def add(self, table: str, endpoint: Endpoint) -> None:
        """Add an input or output of a project."""
        source = DATA_SOURCES.of(endpoint)
        if source is None:
            kind = endpoint.data_source_type or "no kind"
            self.notes.append(f"{table}.{endpoint.name} is of {kind}, which templates do not have: it is left out")
            return
        properties: dict[str, Any] = {
            "datasource": {"type": source.template_types[0], "properties": self._settings(table, endpoint, source)}
        }
        if endpoint.serialization is not None and endpoint.format is not None:
            properties["serialization"] = _serialization(endpoint.serialization, table)
        if table == "inputs":
            properties["type"] = "Reference" if endpoint.is_reference else "Stream"
            compression = _COMPRESSIONS.get((endpoint.compression or "").lower())
            properties |= {"compression": {"type": compression}} if compression else {}
            properties |= {"partitionKey": endpoint.partition_key} if endpoint.partition_key else {}
        else:
            properties |= {"sizeWindow": endpoint.minimum_rows} if endpoint.minimum_rows is not None else {}
            properties |= {"timeWindow": endpoint.maximum_time} if endpoint.maximum_time is not None else {}
        self._parts[table].append({"name": endpoint.name, "properties": _escaped(properties)})

    def add_function(self, function: ProjectFunction, script: str | None) -> None:
        """Add a function in JavaScript or a model; others have no text to write."""
        if function.binding is not None and is_model(function.binding):
            self.add_model(function.name, function.binding)
            return
        binding = _SCRIPTS.get(function.script_type.lower())
        if binding is None or script is None:
            self.notes.append(
                f"functions.{function.name}: only functions in JavaScript and models are written, it is left out"
            )
            return
        kind = "Aggregate" if function.is_aggregate else "Scalar"
        properties = {
            "type": kind,
            "properties": {
                "inputs": [{"dataType": one.data_type} for one in function.inputs],
                "output": {"dataType": function.output_type},
                "binding": {
                    "type": binding.replace("Udf", "Uda") if function.is_aggregate else binding,
                    "properties": {"script": script},
                },
            },
        }
        self._parts["functions"].append({"name": function.name, "properties": _escaped(properties)})

    def add_model(self, name: str, binding: Mapping[str, Any]) -> None:
        """Add a function that calls Azure Machine Learning."""
        lowered = {key.lower(): value for key, value in binding.items()}
        given = {_camel(key): value for key, value in lowered.get("properties", {}).items() if key.lower() != "apikey"}
        columns = given.get("inputs") or []
        if isinstance(columns, Mapping):
            columns = {key.lower(): value for key, value in columns.items()}.get("columnnames") or []
        outputs = given.get("outputs") or [{}]
        owner = self._owner("functions", name)
        types = [_data_type(one) for one in columns]
        inner = {
            "inputs": [{"dataType": type_} for type_ in types],
            "output": {"dataType": _data_type(outputs[0]) if len(outputs) == 1 else "record"},
            "binding": {
                "type": lowered["type"],
                "properties": {**_escaped(self._renamed(owner, given, False)), "apiKey": self._secret(owner, "ApiKey")},
            },
        }
        self._parts["functions"].append({"name": name, "properties": {"type": "Scalar", "properties": inner}})

    def template(self) -> ExportedTemplate:
        """Return what has been put together."""
        config = self.config
        sku, units = _size(config)
        properties: dict[str, Any] = {
            "sku": {"name": sku},
            "jobType": "Cloud",
            "outputErrorPolicy": config.output_error_policy.capitalize(),
            "eventsOutOfOrderPolicy": config.out_of_order_policy.capitalize(),
            "eventsOutOfOrderMaxDelayInSeconds": config.out_of_order_s,
            "eventsLateArrivalMaxDelayInSeconds": config.late_s,
            "dataLocale": config.data_locale,
            "compatibilityLevel": config.compatibility_level,
            **{kind: parts for kind, parts in self._parts.items() if parts},
            "transformation": {
                "name": "Transformation",
                "properties": {"streamingUnits": units, "query": _escaped(self.sql)},
            },
        }
        storage = config.storage
        if storage is not None and storage.account_name:
            account: dict[str, Any] = {
                "accountName": storage.account_name,
                "authenticationMode": storage.authentication_mode,
            }
            if storage.authentication_mode.lower() == "connectionstring":
                account["accountKey"] = self._secret("job", "AccountKey")
            properties |= {"jobStorageAccount": account, "contentStoragePolicy": "JobStorageAccount"}
        job: dict[str, Any] = {
            "type": JOB_TYPE,
            "apiVersion": API_VERSION,
            "name": "[parameters('jobName')]",
            "location": "[parameters('location')]",
            **({"identity": {"type": "SystemAssigned"}} if config.uses_identity else {}),
            "properties": properties,
        }
        content = {
            "$schema": SCHEMA,
            "contentVersion": "1.0.0.0",
            "parameters": {
                "jobName": {"type": "string", "defaultValue": self.name},
                "location": {"type": "string", "defaultValue": "[resourceGroup().location]"},
                **self._parameters,
            },
            "resources": [job],
        }
        return ExportedTemplate(content, tuple(self.notes))

    def _settings(self, table: str, endpoint: Endpoint, source: DataSource) -> dict[str, Any]:
        """Return the settings of a source or sink under the names of templates, secrets as parameters."""
        given = source.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
        uses_identity = str(given.get("AuthenticationMode", "")).lower() == "msi"
        owner = self._owner(table, endpoint.name)
        settings = self._renamed(owner, {**given, **dict.fromkeys(_SECRETS & _aliases(source))}, uses_identity)
        assert isinstance(settings, dict)
        return settings

    def _renamed(self, owner: str, value: Any, uses_identity: bool) -> Any:
        if isinstance(value, Mapping):
            found: dict[str, Any] = {}
            for key, inner in value.items():
                if key in _SECRETS:
                    found |= {} if uses_identity else {_camel(key): self._secret(owner, key)}
                elif key == "StorageAccounts":
                    found[_camel(key)] = [self._account(owner, one, uses_identity) for one in inner]
                else:
                    found[_camel(key)] = self._renamed(owner, inner, uses_identity)
            return found
        return [self._renamed(owner, one, uses_identity) for one in value] if isinstance(value, list | tuple) else value

    def _account(self, owner: str, account: Mapping[str, Any], uses_identity: bool) -> dict[str, Any]:
        name = account.get("AccountName") or self._parameter(f"{owner}_accountName", "string")
        return {"accountName": name, **({} if uses_identity else {"accountKey": self._secret(owner, "AccountKey")})}

    def _secret(self, owner: str, key: str) -> str:
        return self._parameter(f"{owner}_{_camel(key)}", "securestring")

    def _owner(self, table: str, name: str) -> str:
        """Return what the parameters of an input, output or function begin with; no two share it, in any case."""
        word = re.sub(r"\W+", "_", name)
        taken = {one.lower() for one in self._owners.values()} | {"job"}
        unique = next(one for n in itertools.count(1) if (one := word if n == 1 else f"{word}{n}").lower() not in taken)
        return self._owners.setdefault((table, name), unique)

    def _parameter(self, name: str, kind: str) -> str:
        self._parameters[name] = {"type": kind}
        return f"[parameters('{name}')]"


def _data_type(column: Mapping[str, Any]) -> str:
    return str({key.lower(): value for key, value in column.items()}.get("datatype", "any"))


def _aliases(source: DataSource) -> set[str]:
    return {one.alias for one in type(source).model_fields.values() if one.alias is not None}


def _serialization_of(section: Mapping[str, Any]) -> dict[str, Any] | None:
    if section["type"] == "deltalake":
        path = str(section["path"]).partition("://")[2].partition("/")[2]
        return {"Type": "Delta", "DeltaTablePath": path, "PartitionColumns": list(section["partition_by"])}
    format_ = section.get("format")
    if not isinstance(format_, str) or format_ not in _FORMATS:
        return None
    return {
        "Type": _FORMATS[format_],
        "FieldDelimiter": section.get("delimiter") or section.get("csv_delimiter"),
        "Format": "Array" if section.get("json_format") == "array" else None,
        "Encoding": "UTF8",
    }


def _batches_of(section: KindSection) -> dict[str, Any]:
    """Return how many rows a file has at least, and how long it stays open, if the section says so."""
    found: dict[str, Any] = {}
    if "minimum_rows" in section.model_fields_set:
        found["MinimumRows"] = getattr(section, "minimum_rows", None)
    if "maximum_time_s" in section.model_fields_set:
        seconds = math.ceil(getattr(section, "maximum_time_s", 0))
        found["MaximumTime"] = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return found


def _lost_settings(table: str, role: Role, endpoint: Endpoint, section: KindSection) -> list[str]:
    """Return a note for each setting of a section that the template does not say: found by the way back."""
    content = section.model_dump(mode="json")
    address = content.get("connection_string") or content.get("push_url") or content.get("url")
    secret = content.get("password") or content.get("key")
    variables = {variable_of(endpoint.name): address, password_variable_of(endpoint.name): secret}
    variables[STORAGE_VARIABLES[0]] = "UseDevelopmentStorage=true"
    secrets = Secrets({name: str(value) for name, value in variables.items() if value})
    source = DATA_SOURCES.of(endpoint)
    assert source is not None
    way_back = {"input": source.input_section, "reference": source.reference_section, "output": source.output_section}
    try:
        back = type(section).model_validate(way_back[role](endpoint, secrets)).model_dump(mode="json")
    except (ProjectError, ValidationError) as error:
        first = str(error).partition("\n")[0]
        return [f"{table}.{endpoint.name}: the template does not describe it completely: {first}"]
    lost = [name for name in sorted(section.model_fields_set - _NOT_COMPARED) if content[name] != back[name]]
    return [f"{table}.{endpoint.name}.{name}: templates have no such setting, it is left out" for name in lost]


def _serialization(written: Serialization, table: str) -> dict[str, Any]:
    kind = _FORMATS.get((written.type or "").lower(), written.type)
    properties: dict[str, Any] = {}
    if kind in ("Json", "Csv"):
        properties["encoding"] = "UTF8"
    if kind == "Csv":
        properties["fieldDelimiter"] = delimiter_of(written.field_delimiter or ",")
    if kind == "Json" and table == "outputs":
        properties["format"] = "Array" if (written.format or "").lower() == "array" else "LineSeparated"
    if kind == "Delta":
        properties |= {"deltaTablePath": written.delta_table_path or ""}
        properties |= {"partitionColumns": list(written.partition_columns)} if written.partition_columns else {}
    if kind == "CustomClr":
        properties["serializationClassName"] = written.class_name
    return {"type": kind, "properties": properties}


def _size(config: JobConfig) -> tuple[str, int]:
    """Return the name of the SKU and the number of streaming units as templates count them."""
    if config.sku is None:
        return ("StandardV2", 10) if config.streaming_units is None else ("Standard", config.streaming_units)
    written = str(config.sku.streaming_units or "1")
    if config.sku.name.lower() != "standardv2":
        return config.sku.name, int(written) if written.isdigit() else 1
    if written in _UNITS:
        return config.sku.name, _UNITS[written]
    return config.sku.name, 10 * int(written) if written.isdigit() else 10


def _camel(name: str) -> str:
    return name[:1].lower() + name[1:]


def _escaped(value: Any) -> Any:
    """Escape texts that a template would read as an expression; the parameters written here are expressions."""
    if isinstance(value, str):
        is_read_as_expression = value.startswith("[") and value.endswith("]")
        return f"[{value}" if is_read_as_expression and not _OWN_PARAMETER.fullmatch(value) else value
    if isinstance(value, dict):
        return {key: _escaped(one) for key, one in value.items()}
    return [_escaped(one) for one in value] if isinstance(value, Iterable) else value
