"""Find everything that is wrong with a Stream Analytics project: its files, its query, its test cases."""

from __future__ import annotations

import re
from pathlib import Path

from tidegate.azure.projects.cases import TEST_CONFIG, TEST_FOLDER, ProjectTests
from tidegate.azure.projects.datasources.kinds import DATA_SOURCES, role_of
from tidegate.azure.projects.files import TestConfig
from tidegate.azure.projects.live import SETTINGS, functions_of, settings_of
from tidegate.azure.projects.local import compile_project
from tidegate.azure.projects.model.endpoint import Endpoint
from tidegate.azure.projects.model.project_file import read_project_file
from tidegate.azure.projects.reading import Project, find_description, locate, read_project
from tidegate.connectors.inputs.kinds import reference_names
from tidegate.connectors.model.errors import JobError, JobQueryError
from tidegate.engine import FORMATS
from tidegate.job.config.overrides import Table
from tidegate.job.prepare.check import Finding, Severity, of_diagnostic
from tidegate.job.prepare.functions import JobFunction
from tidegate.sql.lint import lint

_PLACED = re.compile(r"^(?P<file>.+?), line (?P<line>\d+), column (?P<column>\d+): (?P<message>.*)$", re.DOTALL)
_OF_FILE = re.compile(
    r"^(?P<file>\S.*?\.(?:json|asaproj|asaql|toml))(?: is not [^:\n]*)?: ?(?P<message>.*)$", re.DOTALL
)


def check_project(path: Path) -> tuple[Project | None, list[Finding]]:
    """Check a project without running it."""
    try:
        description = find_description(path)
    except JobError as error:
        return None, [Finding(str(path), 1, 1, 1, "error", "project", str(error))]
    try:
        project = read_project(description)
    except JobError as error:
        return None, _of_error(error, description)
    findings = [one for note in project.notes for one in _of_text(note, description, "warning")]
    functions: dict[str, JobFunction] = {}
    try:
        functions = functions_of(project)
    except JobError as error:
        findings += _of_error(error, project.folder / SETTINGS)
    findings += _of_endpoints(project)
    findings += _of_query(project, functions)
    if locate(project.folder, f"{TEST_FOLDER}/{TEST_CONFIG}").exists():
        try:
            tests = ProjectTests(project, functions=functions)
            findings += [one for note in tests.notes for one in _of_text(note, tests.path, "warning")]
        except JobError as error:
            findings += _of_error(error, locate(project.folder, f"{TEST_FOLDER}/{TEST_CONFIG}"))
    return project, sorted(dict.fromkeys(findings), key=lambda one: (one.file, one.line, one.column))


def _of_endpoints(project: Project) -> list[Finding]:
    """Return what is wrong with the settings of inputs and outputs that tidegate.toml does not replace."""
    findings: list[Finding] = []
    try:
        settings = settings_of(project)
    except JobError:  # Reported when its functions are read.
        settings = {}
    parts: tuple[tuple[Table, dict[str, Endpoint]], ...] = (("inputs", project.inputs), ("outputs", project.outputs))
    for table, endpoints in parts:
        replaced = {name.lower() for name in settings.get(table, {})}
        for name, endpoint in endpoints.items():
            if name in replaced:
                continue
            try:
                DATA_SOURCES.of(endpoint, role_of(table, endpoint))
            except JobError as error:
                findings += _of_error(error, project.description)
            if table == "inputs":
                findings += _of_deserializer(endpoint, project)
    return findings


def _of_deserializer(endpoint: Endpoint, project: Project) -> list[Finding]:
    """Return a warning if an input is read by a deserializer in C#: tests run on local data, and the job cannot."""
    serialization = endpoint.serialization
    if serialization is None or endpoint.format_settings().get("format", "json") in FORMATS.names():
        return []
    named = f" {serialization.class_name}" if serialization.class_name else ""
    message = (
        f"the input {endpoint.name} is read by a deserializer{named} of the kind {serialization.type}, which does not "
        "run here: the job cannot start, only tests on local data"
    )
    hint = f'in {SETTINGS}: [inputs.{endpoint.name}] with format = "custom" and deserializer = "FILE.py:FUNCTION"'
    return [Finding(endpoint.origin or str(project.description), 1, 1, 1, "warning", "input", message, hint)]


def _of_query(project: Project, functions: dict[str, JobFunction]) -> list[Finding]:
    try:
        reference = reference_names(settings_of(project).get("inputs"))
        reference += _reference_names(project)
        query = compile_project(project, functions, reference_inputs=reference)
    except JobQueryError as error:
        return [of_diagnostic(found, str(project.query_file)) for found in error.diagnostics]
    except JobError as error:
        return _of_error(error, project.query_file)
    return [of_diagnostic(found, str(project.query_file), severity="warning") for found in lint(query)]


def _reference_names(project: Project) -> list[str]:
    """Return the names that the project, or one of its test cases, declares as reference data."""
    names = [one.definition.alias for one in project.local_inputs.values() if one.definition.is_reference]
    names += [one.name for one in project.inputs.values() if one.is_reference]
    path = locate(project.folder, f"{TEST_FOLDER}/{TEST_CONFIG}")
    if path.exists():
        try:
            config, _ = read_project_file(path, TestConfig, "a list of test cases")
        except JobError:  # Reported when the test cases are read.
            return names
        names += [given.alias for case in config.test_cases for given in case.inputs if given.is_reference]
    return names


def _of_error(error: JobError, file: Path) -> list[Finding]:
    return _of_text(str(error), file, "error")


def _of_text(text: str, file: Path, severity: Severity) -> list[Finding]:
    """Return the findings in a message, one for each line; indented lines belong to the finding above."""
    paragraphs: list[str] = []
    for line in text.splitlines():
        if line.startswith(" ") and paragraphs:
            paragraphs[-1] += "\n" + line
        else:
            paragraphs.append(line)
    findings = []
    for paragraph in paragraphs:
        first, *more = paragraph.split("\n")
        named = _OF_FILE.match(first)
        where, lead = (named["file"], named["message"]) if named else (str(file), first)
        for message in [line.strip() for line in more] or [lead]:
            findings.append(_finding(message if more else paragraph, where, severity))
    return findings


def _finding(text: str, file: str, severity: Severity) -> Finding:
    placed = _PLACED.match(text)
    if placed is None:
        return Finding(file, 1, 1, 1, severity, "project", text)
    return Finding(
        placed["file"], int(placed["line"]), int(placed["column"]), 1, severity, "project", placed["message"]
    )
