"""The files of a Stream Analytics project as its tools write them: the settings read from each, under their own names.

They are described at https://learn.microsoft.com/azure/stream-analytics/job-config-json,
.../visual-studio-code-local-run-all and .../cicd-tools, and read unchanged. Settings that do not concern a run
(credential domains, samples, tags) are ignored. A name that is close to a known one is noted, as it may be a typo.
"""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tidegate.job.model.errors import ProjectError

LONGEST_LATE_S = 1_814_399
INDEFINITELY = -1
_TEXT_OR_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[\]}])')


class ProjectFile(BaseModel):
    """A JSON file of a project, or a part of one."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class Configuration(ProjectFile):
    """A line of asaproj.json: a file and what it is."""

    file_path: str = Field(alias="filePath")
    sub_type: str = Field(alias="subType")


class ProjectDescription(ProjectFile):
    """asaproj.json."""

    name: str | None = None
    start_file: str = Field(alias="startFile")
    configurations: tuple[Configuration, ...] = ()


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

    @field_validator("out_of_order_policy", "output_start_mode", mode="before")
    @classmethod
    def _without_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("output_error_policy", mode="before")
    @classmethod
    def _retry_is_stop(cls, value: Any) -> Any:
        # The tools of older projects write Retry where the documentation says Stop.
        return {"retry": "stop"}.get(value.lower(), value.lower()) if isinstance(value, str) else value


class Serialization(ProjectFile):
    """How the events of an input, or the rows of an output, are written."""

    type: str | None = Field(default=None, alias="Type")
    field_delimiter: str | None = Field(default=None, alias="FieldDelimiter")
    encoding: str | None = Field(default=None, alias="Encoding")
    format: str | None = Field(default=None, alias="Format")


def delimiter_of(written: str) -> str:
    """Return the delimiter between the fields of CSV, given as a character or by name."""
    return {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}.get(written.lower(), written)


class LocalInput(ProjectFile):
    """A local input, `Inputs/Local_NAME.json`, or an input of a test case: an alias and the file that replaces it."""

    input_alias: str | None = Field(default=None, alias="InputAlias")
    name: str | None = Field(default=None, alias="Name")
    type: str = Field(default="Data Stream", alias="Type")
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


class StorageAccount(ProjectFile):
    """A storage account; a project never contains its key."""

    account_name: str | None = Field(default=None, alias="AccountName")


class DataSource(ProjectFile):
    """The settings of a source or sink, of all kinds together."""

    service_bus_namespace: str | None = Field(default=None, alias="ServiceBusNamespace")
    event_hub_name: str | None = Field(default=None, alias="EventHubName")
    iot_hub_namespace: str | None = Field(default=None, alias="IotHubNamespace")
    endpoint: str | None = Field(default=None, alias="Endpoint")
    consumer_group_name: str | None = Field(default=None, alias="ConsumerGroupName")
    shared_access_policy_name: str | None = Field(default=None, alias="SharedAccessPolicyName")
    partition_key: str | None = Field(default=None, alias="PartitionKey")
    property_columns: tuple[str, ...] = Field(default=(), alias="PropertyColumns")
    storage_accounts: tuple[StorageAccount, ...] = Field(default=(), alias="StorageAccounts")
    container: str | None = Field(default=None, alias="Container")
    path_pattern: str | None = Field(default=None, alias="PathPattern")
    date_format: str | None = Field(default=None, alias="DateFormat")
    time_format: str | None = Field(default=None, alias="TimeFormat")


class Endpoint(ProjectFile):
    """A live input or an output: `Inputs/NAME.json`, `Outputs/NAME.json`."""

    name: str = Field(alias="Name")
    type: str = Field(default="Data Stream", alias="Type")
    data_source_type: str = Field(default="", alias="DataSourceType")
    event_hub: DataSource | None = Field(default=None, alias="EventHubProperties")
    iot_hub: DataSource | None = Field(default=None, alias="IoTHubProperties")
    blob: DataSource | None = Field(default=None, alias="BlobStorageProperties")
    reference_blob: DataSource | None = Field(default=None, alias="BlobReferenceProperties")
    serialization: Serialization | None = Field(default=None, alias="Serialization")
    compression: str | None = Field(default=None, alias="CompressionType")

    @property
    def is_reference(self) -> bool:
        """Whether it is reference data."""
        return self.type.lower().startswith("reference")

    @property
    def kind(self) -> str:
        """The kind of source or sink, as "event hub", in lower case."""
        return self.data_source_type.lower()


class ProjectFunction(ProjectFile):
    """A function: `Functions/NAME.js.json`, or the description of one in C#."""

    name: str = Field(alias="Name")
    type: str = Field(default="Scalar", alias="Type")
    script_type: str = Field(default="", alias="ScriptType")

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


class TestConfig(ProjectFile):
    """testConfig.json. `Script` is for people only: the project names the query."""

    __test__ = False

    test_cases: tuple[TestCase, ...] = Field(alias="TestCases")


_File = TypeVar("_File", bound=ProjectFile)


def read_project_file(path: Path, kind: type[_File], what: str) -> tuple[_File, list[str]]:
    """Read a file of a project, and return it with notes on possible typos.

    Args:
        what: what the file should be, for messages: "a job configuration".

    Raises:
        ProjectError: it cannot be read, is not JSON, or lacks required settings; the message names every problem.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise ProjectError(f"{path} is not {what}: expected an object, got {_json_type(content)}")
    return parse_project_file(content, kind, f"{path} is not {what}"), _slips(path, content, kind)


def parse_project_file(content: Any, kind: type[_File], refusal: str) -> _File:
    """Parse the content of a file.

    Raises:
        ProjectError: it lacks required settings.
    """
    # The tools write null for settings that are not set.
    try:
        return kind.model_validate(_without_nulls(content))
    except ValidationError as error:
        lines = [f"{refusal}:"]
        for problem in error.errors():
            place = ".".join(map(str, problem["loc"]))
            if problem["type"] == "missing":
                lines.append(f"  {place}: missing")
                continue
            message = problem["msg"][:1].lower() + problem["msg"][1:]
            got = "" if isinstance(problem["input"], dict | list) else f", got {problem['input']!r}"
            lines.append(f"  {place}: {message}{got}")
        raise ProjectError("\n".join(lines)) from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, with or without a byte order mark.

    Raises:
        ProjectError: it cannot be read or is not JSON.
    """
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        try:
            # The service's tools accept a comma after the last element, so projects contain such commas.
            return json.loads(_TEXT_OR_LAST_COMMA.sub(lambda found: found[1] or "", text))
        except (ValueError, RecursionError):
            raise ProjectError(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise ProjectError(f"cannot read {path}: {json_limit(error)}") from error


def json_limit(error: ValueError | RecursionError) -> str:
    """Return in words which limit of the JSON reader a document exceeds."""
    if isinstance(error, RecursionError):
        return "its JSON is nested too deeply"
    return "its JSON has a number with more than 4,300 digits"


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ProjectError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ProjectError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProjectError(f"cannot read {path}: it is not UTF-8 text") from error
    except ValueError as error:
        raise ProjectError(f"cannot read {str(path)!r}: this cannot be the name of a file") from error


def _without_nulls(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nulls(value) for key, value in content.items() if value is not None}
    if isinstance(content, list):
        return [_without_nulls(value) for value in content]
    return content


def _slips(path: Path, content: dict[str, Any], kind: type[ProjectFile]) -> list[str]:
    known = {field.alias or name for name, field in kind.model_fields.items()}
    found = []
    for key in content.keys() - known:
        near = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.85)
        if near and near[0] not in content:
            found.append(f"{path}: there is no setting '{key}'; did you mean '{near[0]}'?")
    return sorted(found)


def _json_type(content: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", type(None): "nothing"}
    return names.get(type(content), "a number")
