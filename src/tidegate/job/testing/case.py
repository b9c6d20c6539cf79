"""Case files: a query, a recorded log, and the rows it must give.

``tests/cases/README.md`` describes the format. A case runs through the same steps as any job, but its log is in the
file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from tidegate.connectors.inputs.recorded import (
    Recorded,
    RecordedLine,
    RecordedLog,
    misspelled_key,
    recorded_events,
)
from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.events import InputLog
from tidegate.connectors.model.metrics import (
    COUNTERS,
    EARLY_INPUT_EVENTS,
    INPUT_DESERIALIZATION_ERRORS,
    LATE_INPUT_EVENTS,
    OUT_OF_ORDER_EVENTS,
    OUTPUT_EVENTS,
    RUNTIME_ERROR,
    RUNTIME_ERRORS,
    add,
)
from tidegate.engine import CATALOG, Program, TableVersion, UnsupportedQuery
from tidegate.job.config.definition import function_definitions
from tidegate.job.config.function_definitions import AnyFunction, FunctionDefinition
from tidegate.job.prepare.functions import check_calls, registered_functions
from tidegate.job.runtime.data_error_tally import DataErrorTally, kind_problem, undeclared
from tidegate.job.runtime.placement import DriverPlacement, Placement
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.job.runtime.task import TraceRows
from tidegate.ordering import (
    ADJUSTED,
    DROPPED,
    EARLY,
    INVALID_KEY,
    INVALID_TIMESTAMP,
    LATE,
    NO_TIME,
    OK,
    OUT_OF_ORDER,
    Policy,
    PolicyError,
    format_ticks,
    format_time,
    parse_time,
)
from tidegate.sql import QueryError, compile_query

SETTINGS = "tidegate.toml"
_RELATIVE_TOLERANCE = 1e-9


class CasePolicy(msgspec.Struct, forbid_unknown_fields=True):
    """The event-ordering policy of a case, in seconds; ``early`` null: the rule is off, ``late`` −1 waits for ever."""

    early: float | None = None
    late: float = -1
    ooo: float = 0
    action: str = "adjust"


class CaseInput(RecordedLine):
    """One event of a case's log."""

    input: str = "input"


class CaseFunction(msgspec.Struct, forbid_unknown_fields=True):
    """A function that a case registers, as in a job file; ``module`` is relative to the case."""

    module: str
    function: str | None = None
    aggregate: str | None = None
    vectorized: bool = False

    def definition(self, folder: Path) -> FunctionDefinition:
        """Return the definition that a job file in a folder would contain. Raises pydantic.ValidationError."""
        made = FunctionDefinition.model_validate(msgspec.to_builtins(self))
        return made.model_copy(update={"module": str(folder / self.module)}) if made.is_file else made


class ExpectedRow(msgspec.Struct):
    """An expected row; a null ``timestamp`` is not compared."""

    row: dict[str, Any]
    output: str = "output"
    timestamp: str | None = None


class ExpectedFate(msgspec.Struct):
    """What became of an event, by its number in the file, from 1 on; what is left out is not compared."""

    event: int
    fate: str | msgspec.UnsetType = msgspec.UNSET
    reasons: list[str] | msgspec.UnsetType = msgspec.UNSET
    system_timestamp: str | msgspec.UnsetType | None = msgspec.UNSET
    watermark_event: str | msgspec.UnsetType | None = msgspec.UNSET
    watermark: str | msgspec.UnsetType | None = msgspec.UNSET


class Case(msgspec.Struct):
    """One case file; ``folder`` is the folder it was read from."""

    name: str
    query: str
    inputs: list[CaseInput]
    policy: CasePolicy | None = None
    compatibility_level: str = "1.2"
    reference_data: dict[str, list[dict[str, Any]]] = {}
    functions: dict[str, CaseFunction] = {}
    sources: dict[str, Recorded] = {}
    folder: str = "."
    trace: list[ExpectedFate] | None = None
    expected_metrics: dict[str, int] | None = None
    expected_errors: dict[str, int] = {}
    expected: list[ExpectedRow] = []
    expected_complete: bool = True
    expected_ordered: bool = False

    def __post_init__(self) -> None:
        for name in self.expected_metrics or {}:
            if name not in COUNTERS:
                near = get_close_matches(name, COUNTERS, n=1)
                did_you_mean = f"; did you mean '{near[0]}'?" if near else f"; expected one of {', '.join(COUNTERS)}"
                raise ValueError(f"expected_metrics: there is no metric '{name}'{did_you_mean}")

    def event_ordering(self) -> Policy:
        """Return the policy for the scan; a disabled one if the case has none."""
        if self.policy is None:
            return Policy.none()
        return Policy.seconds(
            early=self.policy.early,
            late=self.policy.late,
            out_of_order=self.policy.ooo,
            action=self.policy.action,
        )

    def logs(self) -> dict[str, RecordedLog]:
        """Return the recorded log of each input, by its name in the case."""
        lines: dict[str, list[tuple[str, CaseInput]]] = {}
        for number, line in enumerate(self.inputs, start=1):
            lines.setdefault(line.input, []).append((f"{self.name}, event {number}", line))
        sources = {name.lower(): source for name, source in self.sources.items()}
        return {
            name: RecordedLog(recorded_events(of_input), sources.get(name.lower())) for name, of_input in lines.items()
        }

    def function_definitions(self) -> dict[str, AnyFunction]:
        """Return the functions that the case registers, and those of tidegate.toml beside it.

        Raises:
            JobError: that file cannot be read, or a key is wrong.
        """
        folder = Path(self.folder)
        beside = function_definitions(folder / SETTINGS)
        try:
            own = {name: function.definition(folder) for name, function in self.functions.items()}
        except ValidationError as error:
            raise JobError(f"the functions of {self.name}: {error.errors()[0]['msg']}") from None
        lowered = {name.lower() for name in own}
        return {**{name: one for name, one in beside.items() if name.lower() not in lowered}, **own}

    def places(self) -> list[tuple[str, str, int]]:
        """Return the input, partition and sequence number of each event, in the order of the file."""
        following: dict[tuple[str, str], int] = {}
        places = []
        for line in self.inputs:
            timeline = (line.input, str(line.partition))
            number = following.get(timeline, line.sequence_number or 0)
            places.append((*timeline, number))
            following[timeline] = number + 1
        return places


def read_case(path: Path) -> Case:
    """Read a case file.

    Raises:
        JobError: it cannot be read or is not a case; the message names the place in it.
    """
    try:
        content = path.read_bytes()
        _check_spelling(msgspec.json.decode(content))
        case = msgspec.json.decode(content, type=Case)
        return msgspec.structs.replace(case, folder=str(path.resolve().parent))
    except OSError as error:
        raise JobError(f"cannot read the case {path}: {error.strerror}") from error
    except RecursionError as error:
        raise JobError(f"{path} is not a case: its JSON is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JobError(f"{path} is not a case: {error}") from error


def _check_spelling(case: Any) -> None:
    """Check that no key of a case is almost like another that has a meaning. Raises msgspec.ValidationError."""
    objects: list[tuple[str, Any, type[msgspec.Struct]]] = [("", case, Case)]
    parts: dict[str, type[msgspec.Struct]] = {"inputs": CaseInput, "expected": ExpectedRow, "trace": ExpectedFate}
    for key, kind in parts.items():
        listed = case.get(key) if isinstance(case, dict) else None
        if isinstance(listed, list):
            objects += [(f" - at `$.{key}[{number}]`", one, kind) for number, one in enumerate(listed)]
    for place, one, kind in objects:
        if isinstance(one, dict) and (wrong := misspelled_key(one, kind, notes=("source",))) is not None:
            raise msgspec.ValidationError(wrong + place)


class CaseError(JobError):
    """A case cannot be run, whatever its query returns."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The outcome of a case.

    Attributes:
        rows: ``{"output", "timestamp", "row"}`` in the order of emission.
        metrics: totals by metric name.
        trace: an entry for each event, in the shape of a case's own trace.
        differences: differences from what was expected, a line each.
        data_errors: what could not be used, and what the policy adjusted or dropped.
    """

    name: str
    rows: list[dict[str, Any]]
    metrics: dict[str, int]
    trace: list[dict[str, Any]]
    differences: list[str]
    data_errors: DataErrorTally = field(default_factory=DataErrorTally)

    @property
    def passed(self) -> bool:
        """Return whether everything is as expected."""
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        """The result as `tidegate job test -o json` prints it."""
        shown = {
            "name": self.name,
            "passed": self.passed,
            "rows": self.rows,
            "metrics": self.metrics,
            "trace": self.trace,
            "dataErrors": [one.as_json() for one in self.data_errors.counts()],
        }
        return shown if self.passed else {**shown, "differences": self.differences}


def prepared_case(case: Case) -> tuple[Program, dict[str, InputLog]]:
    """Return the query of a case, ready to run, and the logs it reads, by the name it uses.

    Raises:
        QueryError, UnsupportedQuery: the query cannot run.
        CaseError: the query reads an input of which the case has no events.
        JobError: a line of the log is not an event, or a function cannot be imported.
    """
    functions = registered_functions(case.function_definitions())
    query = compile_query(
        case.query,
        compatibility_level=case.compatibility_level,
        reference_inputs=case.reference_data,
        functions=functions or None,
        catalog=CATALOG,
    )
    check_calls(query, functions)
    tables = {name: [TableVersion((msgspec.json.encode(rows),))] for name, rows in case.reference_data.items()}
    program = Program.prepare(query, tables, functions)
    given = {name.lower(): log for name, log in case.logs().items()}
    missing = list(
        dict.fromkeys(name for one in program.input_names if (name := program.source_of(one)).lower() not in given)
    )
    if missing:
        has = f"has events of {', '.join(given)}" if given else "has no events at all"
        raise CaseError(
            f"the case '{case.name}' has no events of the input {', '.join(missing)} that its query reads (it {has}); "
            f"""add events with "input": "{missing[0]}" to its "inputs", or correct the name"""
        )
    return program, {name: given[program.source_of(name).lower()] for name in program.input_names}


def case_result(
    case: Case,
    place: Callable[[Program, Policy], Placement] = DriverPlacement,
    *,
    max_events_per_step: int = 1_000_000,
    with_trace: bool = False,
) -> CaseResult:
    """Run a case by the steps of a job, and compare the results.

    Args:
        place: returns where a query runs under a policy; by default, in this process.
        max_events_per_step: the most events that a step reads.
        with_trace: trace each event even if the case expects no trace.

    Raises:
        CaseError: the case cannot be run.
    """
    try:
        program, logs = prepared_case(case)
        policy = case.event_ordering()
        stepper = Stepper(
            program,
            policy,
            logs,
            place(program, policy),
            settings=StepSettings(max_events_per_step, trace=with_trace or case.trace is not None),
        )
        return _run(case, stepper)
    except QueryError as error:
        return CaseResult(case.name, [], {}, [], [f"the query cannot run: {error.render(case.query)}"])
    except UnsupportedQuery as error:
        return CaseResult(case.name, [], {}, [], [f"the query cannot run: {error}"])
    except CaseError:
        raise
    except (JobError, PolicyError) as error:
        return CaseResult(case.name, [], {}, [], [str(error)])


def _run(case: Case, stepper: Stepper) -> CaseResult:
    rows: list[dict[str, Any]] = []
    metrics = dict.fromkeys((EARLY_INPUT_EVENTS, LATE_INPUT_EVENTS, OUT_OF_ORDER_EVENTS), 0)
    fates: dict[tuple[str, str, int], dict[str, Any]] = {}
    errors = DataErrorTally()
    complete = False
    while not complete:
        step = stepper.step()
        errors.take(step)
        complete = step.complete
        for left in step.rows:
            times = format_ticks(left.timestamps)
            for time, row in zip(times, left.to_dicts(), strict=True):
                rows.append({"output": left.output, "timestamp": time, "row": row})
        add(
            metrics,
            {name: count for name, count in step.counters.items() if name in COUNTERS and name != OUTPUT_EVENTS},
        )
        for traced in step.trace:
            fates.update(_fates(traced))
    metrics[OUTPUT_EVENTS] = len(rows)
    trace = [
        {"event": number, **fates.get((name.lower(), partition, sequence), _NOT_READ)}
        for number, (name, partition, sequence) in enumerate(case.places(), start=1)
    ]
    found = [*differences(case, rows, metrics, trace), *_error_differences(case, errors)]
    return CaseResult(case.name, rows, metrics, trace, found, errors)


def _error_differences(case: Case, errors: DataErrorTally) -> list[str]:
    """Return how the data errors differ from those that the case declares, a line each.

    Beside expected_errors, what a case says of its metrics and of the fates of its events declares them.
    """
    counts = errors.counts()
    if problem := kind_problem(case.expected_errors):
        return [f"expected_errors: {problem}"]
    declared = {kind.lower(): count for kind, count in case.expected_errors.items()}
    metrics, traced = case.expected_metrics or {}, case.trace or []
    for one in counts:
        metric = RUNTIME_ERRORS if one.kind == RUNTIME_ERROR else INPUT_DESERIALIZATION_ERRORS
        is_traced = any(_IN_TRACE.get(one.kind, "invalid_body") in (entry.reasons or ()) for entry in traced)
        if one.is_error and (metric in metrics or is_traced):
            # Their differences are found by count, or event by event.
            declared.setdefault(one.kind.lower(), errors.by_kind()[one.kind])
    return undeclared(counts, declared)


_FATES = {OK: "ok", ADJUSTED: "adjusted", DROPPED: "dropped"}
_REASONS = {
    EARLY: "early",
    LATE: "late",
    OUT_OF_ORDER: "out_of_order",
    INVALID_TIMESTAMP: "invalid_timestamp",
    INVALID_KEY: "invalid_key",
}
_IN_TRACE = {
    "InvalidInputTimeStamp": "invalid_timestamp",
    "InvalidInputTimeStampKey": "invalid_key",
    RUNTIME_ERROR: "runtime_error",
}
_NOT_READ: dict[str, Any] = {
    "fate": "dropped",
    "reasons": ["invalid_body"],
    "system_timestamp": None,
    "watermark_event": None,
    "watermark": None,
}


def _fates(traced: TraceRows) -> Iterator[tuple[tuple[str, str, int], dict[str, Any]]]:
    stamps = traced.stamps
    columns = (stamps.fate, stamps.reasons, stamps.system_timestamp, stamps.watermark_event, stamps.watermark)
    for sequence, fate, reasons, *times in zip(
        traced.sequence_numbers.tolist(), *(column.tolist() for column in columns), strict=True
    ):
        shown = [None if ticks == NO_TIME else format_time(ticks) for ticks in times]
        yield (
            (traced.input.lower(), traced.partition, sequence),
            {
                "fate": _FATES[fate],
                "reasons": [name for bit, name in _REASONS.items() if reasons & bit],
                **dict(zip(("system_timestamp", "watermark_event", "watermark"), shown, strict=True)),
            },
        )


def differences(
    case: Case,
    rows: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, int],
    trace: Sequence[Mapping[str, Any]],
) -> list[str]:
    """Return the differences from what the case expects, a line each; an empty list if it passes.

    Args:
        rows: ``{"output", "timestamp", "row"}`` in the order of emission.
        metrics: totals by metric name.
        trace: an entry for each event, as in the case's own trace.
    """
    found = _row_differences(case, rows)
    for name, expected in (case.expected_metrics or {}).items():
        if metrics.get(name, 0) != expected:
            found.append(f"metric {name}: expected {expected}, got {metrics.get(name, 0)}")
    if case.trace is not None:
        found.extend(_trace_differences(case.trace, trace))
    return found


def _row_differences(case: Case, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    without_case = case.compatibility_level == "1.0"
    found = []
    outputs = dict.fromkeys([expected.output for expected in case.expected] + [str(row["output"]) for row in rows])
    for output in outputs:
        expected_rows = [expected for expected in case.expected if expected.output == output]
        actual = [row for row in rows if row["output"] == output]
        if case.expected_ordered and case.expected_complete:
            for index in range(max(len(expected_rows), len(actual))):
                wanted = expected_rows[index] if index < len(expected_rows) else None
                got = actual[index] if index < len(actual) else None
                if wanted is None or got is None or not _same_row(wanted, got, without_case):
                    found.append(f"{output}, row {index + 1}: expected {_shown(wanted)}, got {_shown(got)}")
            continue
        left = list(actual)
        for wanted in expected_rows:
            place = next((i for i, got in enumerate(left) if _same_row(wanted, got, without_case)), None)
            if place is None:
                found.append(f"{output}: expected {_shown(wanted)}, missing")
            else:
                del left[place]
        if case.expected_complete:
            found.extend(f"{output}: unexpected {_shown(got)}" for got in left)
    return found


def _same_row(expected: ExpectedRow, actual: Mapping[str, Any], without_case: bool) -> bool:
    if expected.timestamp is not None and not same_value(expected.timestamp, actual["timestamp"]):
        return False
    return same_value(expected.row, actual["row"], without_case=without_case)


def same_value(expected: Any, actual: Any, *, without_case: bool = False) -> bool:
    """Return whether two JSON values are the same.

    Floats may differ by 1e-9 of their value, an integer equals the same float, and two texts that are times are equal
    if they name the same instant, however many digits of the second they write.
    """
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return expected == actual or math.isclose(expected, actual, rel_tol=_RELATIVE_TOLERANCE)
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if without_case:
            expected = {name.lower(): value for name, value in expected.items()}
            actual = {name.lower(): value for name, value in actual.items()}
        return expected.keys() == actual.keys() and all(
            same_value(value, actual[name], without_case=without_case) for name, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(
            same_value(one, other, without_case=without_case) for one, other in zip(expected, actual, strict=True)
        )
    if isinstance(expected, str) and isinstance(actual, str) and expected != actual:
        instant = instant_of(expected)
        return instant is not None and instant == instant_of(actual)
    return type(expected) is type(actual) and bool(expected == actual)


def instant_of(text: str) -> int | None:
    """Return the ticks of a text that is a date with a time of day, or None if it is another text."""
    if ":" not in text:
        return None
    try:
        return parse_time(text)
    except ValueError:
        return None


def _trace_differences(expected: Sequence[ExpectedFate], actual: Sequence[Mapping[str, Any]]) -> list[str]:
    by_event = {entry["event"]: entry for entry in actual}
    found = []
    for entry in expected:
        got = by_event.get(entry.event, {})
        for key in ("fate", "reasons", "system_timestamp", "watermark_event", "watermark"):
            wanted = getattr(entry, key)
            if wanted is not msgspec.UNSET and not same_value(wanted, got.get(key)):
                found.append(f"event {entry.event}, {key}: expected {wanted}, got {got.get(key)}")
    return found


def _shown(row: ExpectedRow | Mapping[str, Any] | None) -> str:
    if row is None:
        return "no row"
    timestamp, content = (row.timestamp, row.row) if isinstance(row, ExpectedRow) else (row["timestamp"], row["row"])
    return f"{json.dumps(content, ensure_ascii=False)} at {timestamp}"
