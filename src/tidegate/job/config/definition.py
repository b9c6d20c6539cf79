"""A job's definition: one file that holds or names the query, the inputs, the outputs and the event ordering.

The file is TOML, or JSON of the same shape. Every key is declared here with its type, unit and default; an unknown
key is an error with a suggestion, never ignored. Values of the form ``${NAME}`` are taken from the environment, so
that a job file can be committed without the secrets of its connection strings.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from tidegate.connectors.inputs.kinds import INPUTS, InputLimits, InputSection
from tidegate.connectors.inputs.protobuf import SUFFIXES
from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.section import Public, Section, TextPattern
from tidegate.connectors.outputs.kinds import OUTPUTS, OutputSection
from tidegate.job.config.environment import filled, reference_to
from tidegate.job.config.function_definitions import FUNCTION_SECTIONS, AnyFunction, FunctionDefinition
from tidegate.job.config.model_definitions import OnnxDefinition
from tidegate.job.config.overrides import Override, with_overrides
from tidegate.job.config.spark_settings import SparkSettings

AnySection = TypeVar("AnySection", bound=Section)
_POLICIES = {"drop": "drop", "stop": "stop", "retry": "stop"}


def _policy_by_its_names(value: Any) -> Any:
    """Return an error policy under its name here: the service's documentation and tools call stop Retry and Stop."""
    found = _POLICIES.get(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"expected 'Drop', 'Stop' or 'Retry' (as 'Stop'), got {value!r}")
    return found


OutputErrorPolicy = Annotated[
    Literal["drop", "stop"],
    BeforeValidator(
        _policy_by_its_names, json_schema_input_type=Literal["drop", "stop", "retry", "Drop", "Stop", "Retry"]
    ),
]


class EventOrdering(Section):
    """The event-ordering policy, in seconds as Stream Analytics counts it.

    Ranges and defaults: the portal's, see ``docs/reference/job-file.md``.
    """

    late_arrival_tolerance_s: float = Field(
        default=5, description="how late an event may arrive; -1 waits indefinitely", ge=-1, le=1_814_399
    )
    out_of_order_tolerance_s: float = Field(
        default=0, description="how far an event may lag behind the latest one", ge=0
    )
    action: Literal["adjust", "drop"] = Field(
        default="adjust", description="what happens to late and out-of-order events"
    )
    early_arrival_tolerance_s: float | Literal[False] = Field(
        default=300, description="how far an event may be ahead of its arrival; false switches the rule off"
    )
    timelines: Literal["by partition", "merged by enqueued time"] = Field(
        default="by partition",
        description="what has a watermark: each partition of an input, or (the rule of 2017) all of them as one, in "
        "the order in which their events were enqueued",
    )
    enabled: bool = Field(
        default=True, description="false: no policy at all; the input is read to its end and sorted by event time"
    )

    @field_validator("early_arrival_tolerance_s", mode="before")
    @classmethod
    def _nought_is_a_number(cls, value: Any) -> Any:
        """Return an early tolerance of 0, which equals False, as a number, so that it does not switch the rule off."""
        return 0.0 if value == 0 and value is not False else value

    @model_validator(mode="after")
    def _late_is_a_tolerance_or_minus_one(self) -> EventOrdering:
        if -1 < self.late_arrival_tolerance_s < 0:
            raise ValueError("late_arrival_tolerance_s is 0 or more, or -1 to wait indefinitely")
        if self.early_arrival_tolerance_s is not False and self.early_arrival_tolerance_s < 0:
            raise ValueError("early_arrival_tolerance_s is 0 or more, or false to switch the rule off")
        return self


class EarlyResultsDefinition(Section):
    """The contents of open windows before they are complete; each row also has `revision` and `final`."""

    period_s: float = Field(
        gt=0, description="a revision is written whenever the arrival of the inputs passes a multiple of this"
    )
    outputs: dict[Public, Public] = Field(
        min_length=1, description="by output of the query, the output that its early results and final rows go to"
    )


class ExplanationsDefinition(Section):
    """What became of each event and why, as reported by `tidegate job explain`, as an output of the job."""

    output: Public = Field(description="the output the records go to; not one of the query's")
    events: Literal["touched", "all"] = Field(
        default="touched", description="touched: those that a rule of time touched, or that were lost"
    )
    share: float = Field(default=1, gt=0, le=1, description="how much of them, chosen by partition and sequence number")


_NAME = TextPattern(
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$",
    "1 to 128 letters, digits, '-', '_' and '.', of which the first is a letter or a digit",
)


class JobDefinition(Section):
    """One job."""

    name: Annotated[Public, _NAME] = Field(description="letters, digits, '-', '_' and '.'")
    query: Public | None = Field(default=None, description="the query's text")
    query_file: Path | None = Field(default=None, description="a file with the query; relative to the job file")
    compatibility_level: Literal["1.0", "1.1", "1.2"] = Field(default="1.2", description="of the query language")
    state_dir: Path | None = Field(
        default=None,
        description="where the journal and the data-error log are kept; default: NAME.state beside the job file",
    )
    event_ordering: EventOrdering = Field(default_factory=EventOrdering, description="the event-ordering policy")
    inputs: dict[Public, Annotated[InputSection, INPUTS]] = Field(
        min_length=1, description="by the name the query uses"
    )
    outputs: dict[Public, Annotated[OutputSection, OUTPUTS]] = Field(
        default_factory=dict, description="by the name the query uses; an output not named here goes to the console"
    )
    input_limits: InputLimits = Field(default_factory=InputLimits, description="how large one event or file may be")
    early_results: EarlyResultsDefinition | None = Field(
        default=None, description="early results of open windows, before they are complete"
    )
    explanations: ExplanationsDefinition | None = Field(
        default=None, description="what became of each event and why, as an output"
    )
    output_error_policy: OutputErrorPolicy = Field(
        default="stop",
        description="what happens to a result that an output rejects: it is dropped, or ends the job; the service's "
        "names work too: `Drop`, `Stop`, and `Retry` for `stop`",
    )
    data_error_warning_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="warn when more than this share of the events of an input was adjusted or rejected in a run, for "
        "each kind of data error once; 1: never",
    )
    seal_every_s: float = Field(
        default=300,
        ge=0,
        description="how often the job copies its state to the state folder, so that a restart or a lost executor need "
        "not read the log as far back as the query looks; only if that is more than ten minutes; 0: never",
    )
    output_retry_s: float = Field(
        default=600, ge=0, description="how long the job waits for an unavailable output before it ends"
    )
    input_retry_s: float = Field(
        default=600,
        ge=0,
        description="how long the job waits for an input that cannot be reached, at its start or later",
    )
    functions: dict[Public, AnyFunction] = Field(
        default_factory=dict,
        description="functions in Python or JavaScript, and models, by the name the query calls after `udf.` or `uda.`",
    )
    spark: SparkSettings = Field(
        default_factory=SparkSettings, description="where the job runs on Spark, and Spark's own settings"
    )

    @model_validator(mode="after")
    def _one_query(self) -> JobDefinition:
        if (self.query is None) == (self.query_file is None):
            raise ValueError("give either 'query' (the text) or 'query_file' (a path), one of the two")
        return self


def read_definition(path: Path, overrides: Sequence[Override] = ()) -> JobDefinition:
    """Read and check a job file; paths in it become absolute.

    Raises:
        JobError: the file cannot be read, is not TOML or JSON, or a key is wrong; every wrong key is named at once.
    """
    return definition_of(read_content(path, overrides), path)


def read_content(path: Path, overrides: Sequence[Override] = ()) -> dict[str, Any]:
    """Return the content of a job file, unchecked, with values from the environment filled in.

    Args:
        overrides: what takes the place of its inputs and outputs; variables in replaced sections need no value.

    Raises:
        JobError: the file cannot be read, is not TOML or JSON, or names a variable that is not set.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise JobError(f"cannot read the job file {path}: {reason}") from error
    try:
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except RecursionError as error:
        raise JobError(f"{path} is nested too deeply") from error
    except ValueError as error:
        raise JobError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from error
    if not isinstance(content, dict):
        raise JobError(f"{path}: a job file holds an object, got {type(content).__name__}")
    content.pop("$schema", None)  # for editors: see schema.py
    if isinstance(content.get("resources"), list | dict):
        raise JobError(
            f"{path} is a template of Azure Resource Manager, and no job file: pass it as a project, --project {path}"
        )

    def missing(name: str) -> str:
        raise JobError(f"{path}: {reference_to(name)} is not set in the environment; export it or write the value")

    complete: dict[str, Any] = filled(with_overrides(content, overrides), missing)
    return complete


def definition_of(
    content: dict[str, Any], path: Path, origins: Mapping[tuple[str, str], str] | None = None
) -> JobDefinition:
    """Return the job that a file defines; paths in it become absolute.

    Args:
        origins: files that inputs and outputs come from, by ("inputs" or "outputs", name), if not from this one.

    Raises:
        JobError: a key is wrong; every wrong key is named at once.
    """
    try:
        definition = JobDefinition.model_validate(content)
    except ValidationError as error:
        raise JobError(_explain(error, path, origins or {})) from None
    return with_absolute_paths(definition, path.resolve().parent)


def definition_of_arguments(content: dict[str, Any], caller: str) -> JobDefinition:
    """Return the job that the arguments of a Python function define; paths in it are as they were given.

    Args:
        caller: the function, for messages.

    Raises:
        JobError: an argument is wrong; every wrong one is named, in one line.
    """
    try:
        return JobDefinition.model_validate(content)
    except ValidationError as error:
        found = [f"{'.'.join(map(str, place))}: {message}" for place, message in problems_of(error)]
        raise JobError(f"{caller}: {'; '.join(found)}") from None


def complete_content(path: Path) -> dict[str, Any]:
    """Return the content of a job file that depends on nothing around it: values from the environment and the text of
    the query are filled in, and paths are absolute.

    Raises:
        JobError: the file cannot be read, or a key is wrong.
    """
    content = read_content(path)
    definition = definition_of(content, path)
    folder = path.resolve().parent
    complete = {**content, "query": query_text(definition), "state_dir": str(definition.state_dir)}
    complete.pop("query_file", None)
    for kind in ("inputs", "outputs"):
        for name, section in content.get(kind, {}).items():
            place = section.get("path")
            if place is not None and "://" not in place:
                complete[kind] = {**complete[kind], name: {**complete[kind][name], "path": str(folder / place)}}
    complete["functions"] = {
        name: {**section, **_place_of(definition.functions[name])}
        for name, section in content.get("functions", {}).items()
    }
    return complete


def _place_of(function: AnyFunction) -> dict[str, str | None]:
    """Return where a function is, if that is a path."""
    if isinstance(function, OnnxDefinition):
        return {"path": str(function.path)}
    return {"module": function.module} if isinstance(function, FunctionDefinition) else {}


def function_definitions(path: Path) -> dict[str, AnyFunction]:
    """Return the functions that a file with some sections of a job registers; none if there is no such file.

    Raises:
        JobError: it cannot be read, or a key of its functions is wrong.
    """
    if not path.exists():
        return {}
    functions = read_content(path).get("functions", {})
    rest = {"name": "functions", "query": "", "inputs": {"none": {"type": "recorded", "path": "none"}}}
    return definition_of({**rest, "functions": functions}, path).functions


def query_text(definition: JobDefinition) -> str:
    """Return the query's text, from the job file or the file it names.

    Raises:
        JobError: the query file cannot be read.
    """
    if definition.query is not None:
        return definition.query
    assert definition.query_file is not None
    try:
        return definition.query_file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise JobError(f"cannot read query_file {definition.query_file}: {reason}") from error


_SQLITE = "sqlite:///"
"""What a connection string begins with that names a file."""


def with_absolute_paths(definition: JobDefinition, folder: Path) -> JobDefinition:
    """Return the same job with its paths, which are relative to the job file's folder, made absolute."""

    def under(section: AnySection) -> AnySection:
        path, deserializer = getattr(section, "path", None), getattr(section, "deserializer", None)
        changed: dict[str, Any] = {}
        if path is not None and "://" not in str(path):
            changed["path"] = type(path)(folder / path)
        database = getattr(section, "connection_string", None)
        if isinstance(database, str) and database.startswith(_SQLITE):
            changed["connection_string"] = f"{_SQLITE}{folder / database.removeprefix(_SQLITE)}"
        store_config = getattr(section, "store_config", None)
        if store_config is not None:
            changed["store_config"] = folder / store_config
        if isinstance(deserializer, str) and deserializer.rpartition(":")[0].endswith((".py", *SUFFIXES)):
            changed["deserializer"] = str(folder / deserializer)
        return section.model_copy(update=changed)

    def beside(section: AnyFunction) -> AnyFunction:
        if not isinstance(section, FunctionDefinition):
            return under(section)
        if section.module is None or not section.is_file:
            return section
        return section.model_copy(update={"module": str(folder / section.module)})

    return definition.model_copy(
        update={
            "query_file": None if definition.query_file is None else folder / definition.query_file,
            "state_dir": folder / (definition.state_dir or f"{definition.name}.state"),
            "inputs": {name: under(section) for name, section in definition.inputs.items()},
            "outputs": {name: under(section) for name, section in definition.outputs.items()},
            "functions": {name: beside(section) for name, section in definition.functions.items()},
        }
    )


def _explain(error: ValidationError, path: Path, origins: Mapping[tuple[str, str], str]) -> str:
    lines = [f"{path} is not a job:"]
    for place, message in problems_of(error):
        named = ".".join(map(str, place))
        origin = origins.get((str(place[0]), str(place[1]))) if len(place) > 1 else None
        where = f" (from {origin})" if origin else ""
        lines.append(f"  {named}: {message}{where}" if named else f"  {message}")
    return "\n".join(lines)


def problems_of(error: ValidationError) -> list[tuple[tuple[int | str, ...], str]]:
    """Return what is wrong with a job file: the location of each wrong key, and a message."""
    found = []
    for problem in error.errors():
        place = _place(problem["loc"])
        if problem["type"] == "extra_forbidden":
            message = f"no such setting{_did_you_mean(problem['loc'])}"
        elif problem["type"] == "missing":
            message = "missing"
        else:
            message = problem["msg"].removeprefix("Value error, ")
            message = message[:1].lower() + message[1:]
            # A connection string is a secret: do not show it.
            secret = isinstance(problem["input"], dict) or any(
                word in str(part) for part in place for word in ("connection", "api_key")
            )
            message += "" if secret else f", got {problem['input']!r}"
        found.append((place, message))
    return found


def _place(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the location in the file, without the kind's tag that pydantic adds to an input's or output's name."""
    if location[:1] in (("inputs",), ("outputs",), ("functions",)) and len(location) > 2:
        return (*location[:2], *location[3:])
    return location


def _did_you_mean(location: tuple[int | str, ...]) -> str:
    """Return which setting of that section was probably meant, or which there are."""
    key = str(location[-1])
    sections: list[type[Section]] = [JobDefinition, EventOrdering, InputLimits, SparkSettings]
    sections += [*INPUTS.by_name.values(), *OUTPUTS.by_name.values(), *FUNCTION_SECTIONS.values()]
    if any(key in section.model_fields for section in sections):
        return " here; a section of another kind has it"
    own = _section_at(location[:-1])
    names = sorted({name for section in (sections if own is None else [own]) for name in section.model_fields})
    near = difflib.get_close_matches(key, names, n=1) or [name for name in names if name.startswith(f"{key}_")]
    if near:
        return f"; did you mean '{near[0]}'?"
    return "" if own is None else f"; there are {', '.join(names)}"


def _section_at(location: tuple[int | str, ...]) -> type[Section] | None:
    """Return the kind of section at a place of a job file; None: it is not known."""
    kinds: dict[str, Mapping[str, type[Section]]] = {
        "inputs": INPUTS.by_name,
        "outputs": OUTPUTS.by_name,
        "functions": FUNCTION_SECTIONS,
    }
    match location:
        case ():
            return JobDefinition
        case (str(group), _, str(kind)) if group in kinds:
            return kinds[group].get(kind)
        case (str(name),) if name in JobDefinition.model_fields:
            annotation = JobDefinition.model_fields[name].annotation
            for one in (annotation, *get_args(annotation)):
                if isinstance(one, type) and issubclass(one, Section):
                    return one
    return None
