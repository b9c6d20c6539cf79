"""Functions of a project that call Azure Machine Learning: a binding as a section of a job file, and the way back.

https://learn.microsoft.com/rest/api/streamanalytics/functions describes both bindings. That of classic services has its
inputs in ``inputs.columnNames``, the other one a list of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tidegate.azure.projects.datasources.secrets import Secrets, given
from tidegate.connectors.model.errors import ProjectError
from tidegate.job.config.model_definitions import AzureMLDefinition

CLASSIC = "Microsoft.MachineLearning/WebService"
SERVICES = "Microsoft.MachineLearningServices"
_BINDINGS = {CLASSIC.lower(), SERVICES.lower()}
_TYPES = {
    **dict.fromkeys(("bigint", "int", "int32", "int64", "integer", "long"), "bigint"),
    **dict.fromkeys(("float", "double", "number", "float64"), "float"),
    **dict.fromkeys(("nvarchar(max)", "string"), "nvarchar(max)"),
    **dict.fromkeys(("bit", "bool", "boolean"), "bit"),
    **dict.fromkeys(("record", "object"), "record"),
    **{"datetime": "datetime", "array": "array"},
}
_NO_NAMES = ("data", "input_data", "instances", "inputs")
"""Names that scoring scripts give to the list of rows, which is then at the top of the request."""


def is_model(binding: Mapping[str, Any] | None) -> bool:
    """Return whether a function's binding calls Azure Machine Learning."""
    return str(_lowered(binding).get("type", "")).lower() in _BINDINGS


def section_of(name: str, binding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of a job file for a function.

    A project holds no keys: the environment variable NAME_PASSWORD has it. NAME_CONNECTION_STRING may have another
    endpoint.

    Raises:
        ProjectError: the binding does not have the published shape.
    """
    try:
        section = _section_of(name, binding)
        AzureMLDefinition.model_validate(section)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ProjectError(f"functions.{name}: {place}: {first['msg']}") from None
    except (AttributeError, TypeError, ValueError):
        raise ProjectError(
            f"functions.{name}: its binding does not have the shape of {CLASSIC} or {SERVICES}; a section "
            f"[functions.{name}] in tidegate.toml beside the project may take its place"
        ) from None
    return section


def _section_of(name: str, binding: Mapping[str, Any]) -> dict[str, Any]:
    secrets = Secrets(os.environ)
    properties = _lowered(_lowered(binding).get("properties"))
    endpoint = secrets.connection_string(name) or str(properties.get("endpoint", ""))
    is_classic = str(_lowered(binding)["type"]).lower() == CLASSIC.lower()
    inputs = properties.get("inputs") or []
    input_name = properties.get("inputrequestname")
    if isinstance(inputs, Mapping):
        input_name = input_name or _lowered(inputs).get("name")
        inputs = _lowered(inputs).get("columnnames") or []
    columns = sorted(map(_lowered, inputs), key=lambda one: int(one.get("mapto") or 0))
    outputs = [_lowered(one) for one in properties.get("outputs") or []]
    types = [_type(one) for one in columns]
    is_row = len(columns) == 1 and types[0] in ("record", "array", "any") and not is_classic
    section: dict[str, Any] = {"type": "azureml", "endpoint": endpoint}
    if is_classic:
        section["request"] = "inputs" if "format=swagger" in endpoint.lower() else "table"
        section["input_name"] = input_name or "input1"
    elif input_name is not None:
        section["request"] = "records" if input_name.lower() in _NO_NAMES else "inputs"
        section["input_name"] = input_name
    if not is_row:
        section |= {"inputs": [str(one.get("name", "")) for one in columns], "input_types": types}
    if properties.get("outputresponsename"):
        section["output_name"] = properties["outputresponsename"]
    if len(outputs) == 1:
        section |= {"output": str(outputs[0].get("name", "")), "output_type": _type(outputs[0])}
    key = secrets.password(name) or given(properties.get("apikey"))
    if key and not key.startswith("[parameters("):
        section["api_key"] = key
    if properties.get("batchsize"):
        section["batch_size"] = int(properties["batchsize"])
    if properties.get("numberofparallelrequests"):
        section["parallel_requests"] = int(properties["numberofparallelrequests"])
    return section


def binding_of(definition: AzureMLDefinition) -> dict[str, Any]:
    """Return the binding of a function of a job file, without its key."""
    types = definition.input_types or ("any",) * len(definition.inputs)
    columns = [
        {"name": name, "dataType": type_, "mapTo": number}
        for number, (name, type_) in enumerate(zip(definition.inputs, types, strict=True))
    ]
    outputs = [{"name": definition.output, "dataType": definition.output_type}] if definition.output else []
    properties: dict[str, Any] = {"endpoint": definition.endpoint, "batchSize": definition.batch_size}
    if definition.request == "table":
        named = {"name": definition.input_name or "input1", "columnNames": columns}
        return {"type": CLASSIC, "properties": {**properties, "inputs": named, "outputs": outputs}}
    properties |= {"inputs": columns or [{"name": "row", "dataType": "record", "mapTo": 0}], "outputs": outputs}
    default = "WebServiceInput0" if definition.request == "inputs" else "data"
    properties["inputRequestName"] = default if definition.input_name is None else definition.input_name
    properties |= {"outputResponseName": definition.output_name} if definition.output_name else {}
    properties["numberOfParallelRequests"] = definition.parallel_requests
    return {"type": SERVICES, "properties": properties}


def _type(column: Mapping[str, Any]) -> str:
    return _TYPES.get(str(column.get("datatype", "any")).lower(), "any")


def _lowered(part: Any) -> dict[str, Any]:
    return {str(key).lower(): value for key, value in part.items()} if isinstance(part, Mapping) else {}
