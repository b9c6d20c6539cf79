"""The files of a Stream Analytics project as its tools write them: the settings read from each, under their own names.

They are described at https://learn.microsoft.com/azure/stream-analytics/job-config-json,
.../visual-studio-code-local-run-all and .../cicd-tools, and read unchanged. Settings that do not concern a run
(credential domains, samples, tags) are ignored. A name that is close to a known one is noted, as it may be a typo.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from tidegate.azure.projects.model.endpoint import InputType, Serialization, delimiter_of
from tidegate.azure.projects.model.project_file import ProjectFile

LONGEST_LATE_S = 1_814_399
INDEFINITELY = -1


class Configuration(ProjectFile):
    """A line of asaproj.json: a file and what it is."""

    file_path: str = Field(alias="filePath")
    sub_type: str = Field(alias="subType")


class ProjectDescription(ProjectFile):
    """asaproj.json."""

    name: str | None = None
    start_file: str = Field(alias="startFile")
    configurations: tuple[Configuration, ...] = ()


class JobSku(ProjectFile):
    """How large the job is in the service: "1/3" of a streaming unit and so on."""

    name: str = Field(default="StandardV2", alias="Name")
    streaming_units: str | int | None = Field(default=None, alias="StreamingUnits")


class JobStorage(ProjectFile):
    """The storage account in which the service keeps what a job needs, such as snapshots of SQL reference data."""

    account_name: str | None = Field(default=None, alias="AccountName")
    authentication_mode: str = Field(default="ConnectionString", alias="AuthenticationMode")


class JobConfig(ProjectFile):
    """JobConfig.json. Absent settings have the service's defaults: without a late tolerance, it is unlimited."""

    late_s: int = Field(
        default=INDEFINITELY, alias="EventsLateArrivalMaxDelayInSeconds", ge=INDEFINITELY, le=LONGEST_LATE_S
    )
    out_of_order_s: int = Field(default=0, alias="EventsOutOfOrderMaxDelayInSeconds", ge=0)
    out_of_order_policy: Literal["adjust", "drop"] = Field(default="adjust", alias="EventsOutOfOrderPolicy")
    output_error_policy: Literal["stop", "drop"] = Field(default="stop", alias="OutputErrorPolicy")
    compatibility_level: Literal["1.0", "1.1", "1.2"] = Field(default="1.2", alias="CompatibilityLevel")
    data_locale: str = Field(default="en-US", alias="DataLocale")
    output_start_mode: Literal["jobstarttime", "customtime", "lastoutputeventtime"] | None = Field(
        default=None, alias="OutputStartMode"
    )
    output_start_time: str | None = Field(default=None, alias="OutputStartTime")
    streaming_units: int | None = Field(default=None, alias="StreamingUnits")
    sku: JobSku | None = Field(default=None, alias="Sku")
    uses_identity: bool = Field(default=False, alias="UseSystemAssignedIdentity")
    storage: JobStorage | None = Field(default=None, alias="GlobalStorage")

    @field_validator("out_of_order_policy", "output_start_mode", mode="before")
    @classmethod
    def _without_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("compatibility_level", mode="before")
    @classmethod
    def _level_as_text(cls, value: Any) -> Any:
        # People write 1.2 as a number.
        return str(value) if isinstance(value, float) else value

    @field_validator("output_error_policy", mode="before")
    @classmethod
    def _retry_is_stop(cls, value: Any) -> Any:
        # The tools of older projects write Retry where the documentation says Stop.
        return {"retry": "stop"}.get(value.lower(), value.lower()) if isinstance(value, str) else value


class LocalInput(ProjectFile):
    """A local input, `Inputs/Local_NAME.json`, or an input of a test case: an alias and the file that replaces it."""

    input_alias: str | None = Field(default=None, alias="InputAlias")
    name: str | None = Field(default=None, alias="Name")
    type: InputType = Field(default="Data Stream", alias="Type")
    format: str | None = Field(default=None, alias="Format")
    serialization: Serialization | None = Field(default=None, alias="Serialization")
    file_path: str = Field(alias="FilePath")

    @property
    def alias(self) -> str:
        """The name the query uses; empty if the file gives none."""
        return self.input_alias or self.name or ""

    @property
    def is_reference(self) -> bool:
        """Whether it is reference data."""
        return self.type.lower().startswith("reference")

    @property
    def data_format(self) -> str:
        """The format in lower case: json, csv, avro …"""
        named = self.format or (self.serialization.type if self.serialization else None) or "json"
        return named.lower()

    @property
    def delimiter(self) -> str:
        """The delimiter between the fields of CSV."""
        named = self.serialization.field_delimiter if self.serialization else None
        return delimiter_of(named or ",")


_DATA_TYPES = ("any", "array", "bigint", "bit", "datetime", "float", "nvarchar(max)", "record")
_TEXT = re.compile(r"nvarchar\s*\(\s*(max|\d+)\s*\)", re.IGNORECASE)
_NEAR_TYPES = {
    **dict.fromkeys(("number", "double", "real", "decimal"), "float"),
    **dict.fromkeys(("int", "integer", "long"), "bigint"),
    **dict.fromkeys(("string", "text", "varchar", "nvarchar"), "nvarchar(max)"),
    **dict.fromkeys(("bool", "boolean"), "bit"),
    **dict.fromkeys(("object", "json"), "record"),
    **dict.fromkeys(("date", "datetime2", "timestamp"), "datetime"),
}


def _data_type(written: str) -> str:
    plain = written.strip().lower()
    if plain in _DATA_TYPES or _TEXT.fullmatch(plain):
        return written
    near = f"; did you mean {_NEAR_TYPES[plain]}?" if plain in _NEAR_TYPES else ""
    raise ValueError(f"expected one of {', '.join(_DATA_TYPES)}{near}")


DataType = Annotated[str, AfterValidator(_data_type)]
"""A type of the query language, which a function declares for an argument or its result."""


class FunctionInput(ProjectFile):
    """An argument of a function."""

    data_type: DataType = Field(default="any", alias="DataType")


class ProjectFunction(ProjectFile):
    """A function: `Functions/NAME.js.json` with its script, the description of one in C#, or the binding of a model.

    A file may also have the shape that the service's API gives a function: all but its name is in ``properties``.
    """

    name: str = Field(alias="Name")
    type: str = Field(default="Scalar", alias="Type")
    script_type: str = Field(default="", alias="ScriptType")
    inputs: tuple[FunctionInput, ...] = Field(default=(), alias="FunctionInputs")
    output_type: DataType = Field(default="any", alias="OutputType")
    script: str | None = Field(default=None, alias="Script")
    binding: dict[str, Any] | None = Field(default=None, alias="Binding")

    @model_validator(mode="before")
    @classmethod
    def _of_any_shape(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        shaped: dict[str, Any] = {}
        part: Any = content
        while isinstance(part, dict):
            named = {str(key).lower(): value for key, value in part.items()}
            for key, alias in (("name", "Name"), ("type", "Type"), ("binding", "Binding")):
                value = named.get(key)
                # The API also gives the resource a type: Microsoft.StreamAnalytics/streamingjobs/functions.
                is_resource = key == "type" and "/" in str(value)
                if isinstance(value, dict if key == "binding" else str) and not is_resource:
                    shaped.setdefault(alias, value)
            part = named.get("properties")
        rest = {key: value for key, value in content.items() if str(key).lower() not in ("name", "type", "binding")}
        return {**rest, **shaped}

    @field_validator("type")
    @classmethod
    def _scalar_or_aggregate(cls, value: str) -> str:
        if value.lower() not in ("scalar", "aggregate", "aggregation"):
            raise ValueError("expected 'Scalar' or 'Aggregate'")
        return value

    @property
    def is_javascript(self) -> bool:
        """Whether it is a script."""
        return "js" in self.script_type.lower() or "javascript" in self.script_type.lower()

    @property
    def is_aggregate(self) -> bool:
        """Whether the query calls it with uda."""
        return "aggregat" in self.type.lower()


class ExpectedOutput(ProjectFile):
    """What a test case expects of one output."""

    output_alias: str = Field(alias="OutputAlias")
    file_path: str = Field(default="", alias="FilePath")
    required: bool = Field(default=True, alias="Required")
    ignore_fields: tuple[str, ...] = Field(default=(), alias="IgnoreFields")

    @field_validator("ignore_fields", mode="before")
    @classmethod
    def _none_is_none(cls, value: Any) -> Any:
        return () if value is None else value


class TestCase(ProjectFile):
    """One test case."""

    __test__ = False

    name: str = Field(alias="Name")
    inputs: tuple[LocalInput, ...] = Field(alias="Inputs")
    expected_outputs: tuple[ExpectedOutput, ...] = Field(default=(), alias="ExpectedOutputs")
    expected_errors: dict[str, int] = Field(default={}, alias="ExpectedErrors")


class TestConfig(ProjectFile):
    """testConfig.json. `Script` is for people only: the project names the query."""

    __test__ = False

    test_cases: tuple[TestCase, ...] = Field(alias="TestCases")
