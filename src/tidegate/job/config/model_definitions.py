"""The sections of a job file that register models as functions: `[functions.NAME]` with a ``type``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from tidegate.connectors.model.section import Public, Secret, SecretUrl, Section

ValueType = Literal["any", "bigint", "float", "nvarchar(max)", "bit", "datetime", "record", "array"]


class AzureMLDefinition(Section):
    """A model behind an endpoint of Azure Machine Learning: a query calls it ``udf.NAME``."""

    type: Literal["azureml"]
    endpoint: SecretUrl = Field(description="the URL that requests are sent to")
    api_key: Secret | None = Field(default=None, repr=False, description="the endpoint's key, sent as a bearer token")
    request: Literal["inputs", "table", "records", "arrays"] = Field(
        default="inputs",
        description="the form of a request: `inputs` of designer and classic services, `table` of older classic ones, "
        "`records` or `arrays` in one member, of scoring scripts",
    )
    input_name: Public | None = Field(
        default=None,
        description="the member of the request with the rows; default: `WebServiceInput0`, of a table `input1`, of "
        "records and arrays `data`; empty: none, the request is the list itself",
    )
    inputs: tuple[Public, ...] = Field(
        default=(), description="the model's columns, in the order of the arguments; none: the argument is the row"
    )
    input_types: tuple[ValueType, ...] = Field(
        default=(), description="their types, which arguments are converted to; none: values are sent as they are"
    )
    output_name: Public | None = Field(
        default=None, description="the member of the answer with the rows; may be omitted if there is only one"
    )
    output: Public | None = Field(
        default=None, description="the column of the answer that is the function's value; default: the whole row"
    )
    output_type: ValueType = Field(default="any", description="the type that the value is converted to")
    batch_size: int = Field(default=1000, ge=1, le=10_000, description="the most rows in a request")
    parallel_requests: int = Field(
        default=1, ge=1, le=64, description="how many requests each task has under way at a time"
    )
    timeout_s: float = Field(default=60, gt=0, le=600, description="the longest wait for an answer")
    attempts: int = Field(
        default=5, ge=1, le=20, description="how often a request is sent that fails for a moment (429, 5xx, no answer)"
    )

    @model_validator(mode="after")
    def _consistent(self) -> AzureMLDefinition:
        if self.input_types and len(self.input_types) != len(self.inputs):
            raise ValueError(
                f"'input_types' has a type for each of 'inputs': expected {len(self.inputs)}, "
                f"got {len(self.input_types)}"
            )
        if self.request == "table" and not self.inputs:
            raise ValueError("request = \"table\" needs 'inputs', the names of the columns")
        if self.input_name == "" and self.request in ("inputs", "table"):
            raise ValueError(f"'input_name' cannot be empty with request = \"{self.request}\"")
        if len(set(self.inputs)) != len(self.inputs):
            raise ValueError("'inputs' names a column twice")
        return self


class OnnxDefinition(Section):
    """A model in an ONNX file, computed where the job's tasks run: a query calls it ``udf.NAME``."""

    type: Literal["onnx"]
    path: Path = Field(description="the model's file, relative to the job file")
    output: Public | None = Field(
        default=None, description="the output that is the function's value; default: the only one, or a record of all"
    )
