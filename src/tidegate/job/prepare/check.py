"""Find everything wrong with a job, a query or a project, each with its place in a file, for editors and builds.

Nothing is run and nothing is connected to. A query is checked even if the job file is wrong, and the other way round,
so a person sees every problem at once.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from tidegate.connectors.inputs.kinds import reference_names
from tidegate.connectors.inputs.reference import ReferenceInput, References
from tidegate.connectors.model.errors import FunctionError, InputError, JobError
from tidegate.connectors.outputs.kinds import shared_files
from tidegate.engine import CATALOG, Program, UnsupportedQuery
from tidegate.engine.expressions.checks import check as check_plan
from tidegate.job.config.definition import EventOrdering, JobDefinition, problems_of, with_absolute_paths
from tidegate.job.config.environment import kept, not_set, reference_to
from tidegate.job.config.function_definitions import FunctionDefinition, function_definition
from tidegate.job.config.model_definitions import OnnxDefinition
from tidegate.job.config.positions import KeySpan, Positions
from tidegate.job.prepare.functions import JobFunction, check_calls, registered_functions
from tidegate.job.prepare.loading import event_ordering_policy
from tidegate.job.prepare.opening import reference_definitions
from tidegate.job.prepare.side_output_settings import declared_side_outputs, side_output_problems
from tidegate.sql import QueryError, compile_query
from tidegate.sql.lint import lint, unregistered
from tidegate.sql.parsing.diagnostics import Diagnostic
from tidegate.sql.plan import nodes as plan

Severity = Literal["error", "warning"]
Location = tuple[int | str, ...]

_LINE_BREAK = re.compile(r"\r?\n")
_SYNTAX_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        file: the file with the problem, as it was named or found.
        line, column: from 1; length: characters from there, at least 1.
        code: the kind of problem: syntax, setting, environment, function, query, output, input, project or file.
    """

    file: str
    line: int
    column: int
    length: int
    severity: Severity
    code: str
    message: str
    hint: str | None = None

    def render(self, text: str | None) -> str:
        """Render it for a terminal: the place, the message, the line with carets if the text is given, and the hint."""
        shown = f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.message}"
        if text is None:
            return shown if self.hint is None else f"{shown}\n  hint: {self.hint}"
        drawn = Diagnostic(self.line, self.column, self.message, self.length, self.hint).render(text)
        return "\n".join([shown, *drawn.splitlines()[1:]])

    def as_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object for editors."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "length": self.length,
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
        }


def check_query(
    sql: str,
    file: str,
    *,
    compatibility_level: str = "1.2",
    inputs: Collection[str] | None = None,
    reference_inputs: Collection[str] = (),
    functions: Mapping[str, JobFunction] | None = None,
) -> tuple[plan.Query | None, list[Finding]]:
    """Check a query, and return its plan if it has one.

    Args:
        file: the file that holds it, for the findings.
        inputs: the names of the inputs that exist; None: any name will do. The same holds for functions.
    """
    try:
        query = compile_query(
            sql,
            compatibility_level=compatibility_level,
            inputs=inputs,
            reference_inputs=reference_inputs,
            functions=functions,
            catalog=CATALOG,
        )
        if functions is not None:
            check_calls(query, functions)
            by_name = {name.lower(): function for name, function in functions.items()}
            check_plan(query, by_name, {name.lower() for name in reference_inputs})
    except QueryError as error:
        return None, [of_diagnostic(found, file) for found in error.diagnostics]
    except UnsupportedQuery as error:
        return None, [Finding(file, 1, 1, 1, "error", "query", str(error))]
    doubts = [*lint(query), *(unregistered(query) if functions is None and inputs is None else ())]
    return query, [of_diagnostic(found, file, severity="warning") for found in doubts]


def check_job(text: str, path: Path, *, is_json: bool | None = None) -> tuple[JobDefinition | None, list[Finding]]:
    """Check a job file, its query and its functions.

    Args:
        path: its name; paths in it are relative to its folder.
        is_json: whether it is JSON; by default, decided by the name.
    """
    return _JobFile(text, path, path.suffix == ".json" if is_json is None else is_json).checked()


class _JobFile:
    """One job file that is being checked."""

    def __init__(self, text: str, path: Path, is_json: bool) -> None:
        self._text = text
        self._path = path
        self._is_json = is_json
        self._positions = Positions.of(text, is_json=is_json)
        self._findings: list[Finding] = []

    def checked(self) -> tuple[JobDefinition | None, list[Finding]]:
        content = self._parsed()
        if content is None:
            return None, self._findings
        self._check_environment(content)
        content = kept(content)
        definition = self._definition(content)
        functions = self._functions(content)
        query = self._query(content, definition, functions)
        if definition is not None:
            self._check_ordering(definition)
            self._check_reference_data(definition)
            for name, problem in shared_files(definition.outputs).items():
                self._at(("outputs", name, "path"), "output", problem)
            if query is not None:
                self._check_names(definition, query)
                self._check_side_outputs(definition, query, functions or {})
        return definition, sorted(dict.fromkeys(self._findings), key=lambda one: (one.file, one.line, one.column))

    def _parsed(self) -> dict[str, Any] | None:
        try:
            content = json.loads(self._text) if self._is_json else tomllib.loads(self._text)
        except json.JSONDecodeError as error:
            self._add(error.lineno, error.colno, 1, "syntax", f"it is not valid JSON: {error.msg}")
            return None
        except tomllib.TOMLDecodeError as error:
            place = _SYNTAX_PLACE.search(str(error))
            line, column = (int(place[1]), int(place[2])) if place else (len(self._text.splitlines()) or 1, 1)
            message = _SYNTAX_PLACE.sub("", str(error)).removesuffix(" (at end of document)")
            self._add(line, column, 1, "syntax", f"it is not valid TOML: {message[:1].lower()}{message[1:]}")
            return None
        except RecursionError:
            self._add(1, 1, 1, "syntax", "it is nested too deeply")
            return None
        except ValueError as error:
            self._add(1, 1, 1, "syntax", f"it cannot be read: {error}")
            return None
        if not isinstance(content, dict):
            self._add(1, 1, 1, "setting", f"a job file holds an object, got {type(content).__name__}")
            return None
        content.pop("$schema", None)
        return content

    def _check_environment(self, content: dict[str, Any]) -> None:
        for name in not_set(content):
            reference = reference_to(name)
            for found in re.finditer(re.escape(reference), self._text):
                if not self._positions.in_value(found.start()):
                    continue
                line, column = self._positions.line_and_column(found.start())
                message, hint = f"{reference} is not set in the environment", "export it before the job runs"
                self._add(line, column, len(reference), "environment", message, severity="warning", hint=hint)

    def _definition(self, content: dict[str, Any]) -> JobDefinition | None:
        try:
            definition = JobDefinition.model_validate(content)
        except ValidationError as error:
            for place, message in problems_of(error):
                # The values of the environment are not known here.
                if "${" not in message:
                    self._at(place, "setting", _named(place, message))
            return None
        return with_absolute_paths(definition, self._path.resolve().parent)

    def _functions(self, content: dict[str, Any]) -> dict[str, JobFunction] | None:
        """Return the functions that can be imported; None if it is unknown which functions exist."""
        listed = content.get("functions", {})
        if not isinstance(listed, dict):
            return None
        known: dict[str, JobFunction] = {}
        complete = True
        for name, section in listed.items():
            try:
                definition = function_definition(section)
                if isinstance(definition, FunctionDefinition) and definition.is_file and definition.module is not None:
                    module = str(self._path.resolve().parent / definition.module)
                    definition = definition.model_copy(update={"module": module})
                if isinstance(definition, OnnxDefinition):
                    definition = definition.model_copy(update={"path": self._path.resolve().parent / definition.path})
                known |= registered_functions({name: definition})
            except ValidationError:
                complete = False
            except FunctionError as error:
                complete = False
                message = str(error).removeprefix(f"[functions.{name}]: ")
                key = {FunctionDefinition: "module", OnnxDefinition: "path"}.get(type(definition), "endpoint")
                self._at(("functions", name, key), "function", message)
        return known if complete else None

    def _check_reference_data(self, definition: JobDefinition) -> None:
        """Read the tables that are local files; an editor may be unable to reach a store."""
        for name, one in definition.inputs.items():
            if not isinstance(one, ReferenceInput) or "://" in one.path or "${" in one.path:
                continue
            try:
                References({name: one}, None, definition.input_limits.limits).tables()
            except InputError as error:
                message = str(error).removeprefix(f"reference data '{name}': ")
                self._at(("inputs", name, "path"), "reference", message)

    def _query(
        self,
        content: dict[str, Any],
        definition: JobDefinition | None,
        functions: dict[str, JobFunction] | None,
    ) -> plan.Query | None:
        found = self._query_text(content)
        if found is None:
            return None
        sql, file, place = found
        level = content.get("compatibility_level", "1.2")
        inputs = content.get("inputs")
        names = [*inputs] if isinstance(inputs, dict) else None
        query, findings = check_query(
            sql,
            file,
            compatibility_level=level if level in ("1.0", "1.1", "1.2") else "1.2",
            inputs=names,
            reference_inputs=reference_names(inputs),
            functions=functions,
        )
        self._findings += findings if place is None else [self._moved(one, place) for one in findings]
        return query if definition is not None else None

    def _query_text(self, content: dict[str, Any]) -> tuple[str, str, KeySpan | None] | None:
        """Return the query, the file that holds it, and the place of its value in the job file."""
        query, named = content.get("query"), content.get("query_file")
        if isinstance(query, str):
            return query, str(self._path), self._positions.place(("query",))
        if not isinstance(named, str):
            return None
        path = self._path.parent / named
        try:
            return path.read_text(encoding="utf-8-sig"), str(path), None
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            self._at(("query_file",), "file", f"cannot read {path}: {reason}")
            return None

    def _moved(self, finding: Finding, place: KeySpan) -> Finding:
        """Turn a finding in the query into one in the job file that holds it."""
        quoted = self._text[place.value : place.value_end]
        mark = next((mark for mark in ('"""', "'''", '"', "'") if quoted.startswith(mark)), "")
        start = place.value + len(mark)
        # TOML drops a line break right after three quotes.
        first = _LINE_BREAK.match(self._text, start) if len(mark) == 3 else None
        start = start if first is None else first.end()
        line, column = self._positions.line_and_column(start)
        if self._is_json and finding.line > 1:
            # Its line breaks are escaped, so all of it is on one line of the file.
            message = f"line {finding.line}, column {finding.column} of the query: {finding.message}"
            return replace(finding, line=line, column=column, message=message)
        if finding.line == 1:
            return replace(finding, line=line, column=column + finding.column - 1)
        return replace(finding, line=line + finding.line - 1)

    def _check_ordering(self, definition: JobDefinition) -> None:
        try:
            event_ordering_policy(definition.event_ordering)
        except JobError as error:
            message = str(error).removeprefix("event_ordering: ")
            name = next((name for name in EventOrdering.model_fields if name in message), "")
            self._at(("event_ordering", name), "setting", message)

    def _check_names(self, definition: JobDefinition, query: plan.Query) -> None:
        """Report outputs that the query never writes, which keep a job from running, and inputs that it never reads."""
        written = {output.name.lower() for output in query.outputs}
        written |= {declared.output.lower() for declared in declared_side_outputs(definition)}
        read = {mention.name.lower() for mention in query.inputs}
        for name in definition.outputs:
            if name.lower() not in written:
                listed = ", ".join(output.name for output in query.outputs)
                self._at(("outputs", name), "output", f"the query never writes the output {name}; it writes {listed}")
        for name in definition.inputs:
            if name.lower() not in read:
                self._at(("inputs", name), "input", f"the query never reads the input {name}", severity="warning")

    def _check_side_outputs(
        self, definition: JobDefinition, query: plan.Query, functions: Mapping[str, JobFunction]
    ) -> None:
        """Report what keeps the side outputs from being written."""
        if not declared_side_outputs(definition):
            return
        try:
            policy = event_ordering_policy(definition.event_ordering)
            program = Program.prepare(
                query, {name.lower(): () for name in reference_definitions(definition)}, functions
            )
        except (JobError, UnsupportedQuery):
            return  # reported where the policy and the query are checked
        for location, message in side_output_problems(definition, program, policy):
            self._at(location, "output", message)

    def _at(self, location: Location, code: str, message: str, *, severity: Severity = "error") -> None:
        place = self._positions.place(location)
        if place is None:
            self._add(1, 1, 1, code, message, severity=severity)
            return
        line, column = self._positions.line_and_column(place.key)
        self._add(line, column, place.key_end - place.key, code, message, severity=severity)

    def _add(
        self,
        line: int,
        column: int,
        length: int,
        code: str,
        message: str,
        *,
        severity: Severity = "error",
        hint: str | None = None,
    ) -> None:
        self._findings.append(Finding(str(self._path), line, column, max(1, length), severity, code, message, hint))


def of_diagnostic(found: Diagnostic, file: str, severity: Severity = "error") -> Finding:
    """Turn a diagnostic of a query in a file of its own into a finding."""
    return Finding(file, found.line, found.column, max(1, found.length), severity, "query", found.message, found.hint)


def _named(place: Location, message: str) -> str:
    return f"{'.'.join(map(str, place))}: {message}" if place else message
