"""The test cases of a project: testConfig.json, run as the service's tools run it.

A case replaces inputs by files, and says which rows each output must have
(https://learn.microsoft.com/azure/stream-analytics/cicd-tools). Rows are compared as a bag, because the service
promises no order among rows of the same time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tidegate.azure.projects.files import ExpectedOutput, TestCase, TestConfig
from tidegate.azure.projects.local import Functions, json_bodies, run_locally
from tidegate.azure.projects.model.project_file import read_project_file
from tidegate.azure.projects.reading import LocalFile, Project, locate
from tidegate.connectors.model.errors import JobError, JobQueryError, ProjectError
from tidegate.engine import FORMATS, Program
from tidegate.job.runtime.data_error_tally import DataErrorTally, kind_problem, undeclared
from tidegate.job.runtime.placement import DriverPlacement, Placement
from tidegate.job.testing.row_difference import RowDifference, compare_rows
from tidegate.ordering import Policy

TEST_CONFIG = "testConfig.json"
TEST_FOLDER = "test"
Status = Literal["matched", "not equal", "missing", "unexpected", "unrequired"]


@dataclass(frozen=True, slots=True)
class TestOutput:
    """The outcome for one output of a case.

    Attributes:
        expected_file: the file with the expected rows; None if the case does not mention the output.
        rows: the actual rows, in the order of emission.
        difference: how they differ from the expected rows; None if nothing is compared.
    """

    __test__ = False

    alias: str
    status: Status
    expected_file: Path | None
    rows: list[dict[str, Any]]
    difference: RowDifference | None = None

    @property
    def passed(self) -> bool:
        """Return whether the output is as the case expects."""
        return self.status in ("matched", "unrequired")


@dataclass(frozen=True, slots=True)
class ProjectCaseResult:
    """The outcome of a case.

    Attributes:
        problem: what kept it from running; None: it ran.
        data_errors: what could not be used.
        undeclared: how that differs from the ExpectedErrors of the case, a line each.
    """

    __test__ = False

    name: str
    seconds: float
    outputs: list[TestOutput] = field(default_factory=list)
    problem: str | None = None
    notes: tuple[str, ...] = ()
    data_errors: DataErrorTally = field(default_factory=DataErrorTally)
    undeclared: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Return whether every output is as the case expects, and every data error is declared."""
        return self.problem is None and not self.undeclared and all(output.passed for output in self.outputs)


class ProjectTests:
    """The test cases of a project, read and ready to run."""

    def __init__(self, project: Project, config: Path | None = None, functions: Functions | None = None) -> None:
        """
        Args:
            config: the file with the test cases; by default testConfig.json in the project's folder `test`.
            functions: registered ones, by the names a query calls them.

        Raises:
            ProjectError: it cannot be read, or a file that it names does not exist.
        """
        self.project = project
        self.path = config or locate(project.folder, f"{TEST_FOLDER}/{TEST_CONFIG}")
        if config is None and not self.path.exists():
            raise ProjectError(
                f"{project.description} has no test cases: there is no {TEST_FOLDER}/{TEST_CONFIG} beside it; "
                "name the file with --test-config"
            )
        self._config, slips = read_project_file(self.path, TestConfig, "a list of test cases")
        self._functions = functions or {}
        self.notes = (*project.notes, *slips)
        problems = [problem for case in self.cases for problem in self._problems_of(case)]
        if problems:
            raise ProjectError("\n".join([f"{self.path} cannot be run:", *(f"  {problem}" for problem in problems)]))

    @property
    def cases(self) -> tuple[TestCase, ...]:
        """Return the cases, in the order of the file."""
        return self._config.test_cases

    def _problems_of(self, case: TestCase) -> list[str]:
        wrong = kind_problem(case.expected_errors)
        problems = [f"{case.name}, ExpectedErrors: {wrong}"] if wrong else []
        for given in case.inputs:
            if not given.alias:
                problems.append(f"{case.name}: an input has no InputAlias")
            elif given.data_format not in FORMATS.names():
                problems.append(f"{case.name}, input {given.alias}: the format {given.data_format} cannot be read here")
            elif not self._file(given.file_path).is_file():
                problems.append(f"{case.name}, input {given.alias}: there is no file {given.file_path}")
        for expected in case.expected_outputs:
            # The path of an output that is not required must be given, but need not exist.
            if expected.required and not self._file(expected.file_path).is_file():
                problems.append(f"{case.name}, output {expected.output_alias}: there is no file {expected.file_path}")
        return problems

    def _file(self, written: str) -> Path:
        return locate(self.path.parent, written, beyond=self.project.folder)

    def _files(self, case: TestCase) -> list[LocalFile]:
        return [LocalFile(given, self._file(given.file_path)) for given in case.inputs]

    def run(
        self,
        case: TestCase,
        place: Callable[[Program, Policy], Placement] = DriverPlacement,
        *,
        max_events_per_step: int = 1_000_000,
    ) -> ProjectCaseResult:
        """Run a case by the steps of a job, and compare the results.

        Args:
            place: returns where a query runs under a policy; by default, in this process.
            max_events_per_step: the most events that a step reads.

        Raises:
            JobQueryError: the query cannot run, in this case as in any other.
        """
        began = time.monotonic()
        try:
            run = run_locally(
                self.project, self._files(case), self._functions, place, max_events_per_step=max_events_per_step
            )
            outputs = self._compared(case, run.rows)
        except JobQueryError:
            raise
        except JobError as error:
            return ProjectCaseResult(case.name, time.monotonic() - began, problem=str(error))
        return ProjectCaseResult(
            case.name,
            time.monotonic() - began,
            outputs,
            notes=run.notes,
            data_errors=run.data_errors,
            undeclared=tuple(undeclared(run.data_errors.counts(), case.expected_errors)),
        )

    def _compared(self, case: TestCase, rows: Mapping[str, list[dict[str, Any]]]) -> list[TestOutput]:
        unnamed = {name.lower(): name for name in rows}
        outputs = []
        for expected in case.expected_outputs:
            name = unnamed.pop(expected.output_alias.lower(), expected.output_alias)
            outputs.append(self._output(expected, name, rows.get(name)))
        # An output that the case does not mention must be empty.
        outputs += [TestOutput(name, "unexpected", None, rows[name]) for name in unnamed.values() if rows[name]]
        return outputs

    def _output(self, expected: ExpectedOutput, name: str, rows: list[dict[str, Any]] | None) -> TestOutput:
        path = self._file(expected.file_path)
        if not expected.required:
            return TestOutput(name, "unrequired", path, rows or [])
        if rows is None:
            return TestOutput(name, "missing", path, [])
        wanted = [json.loads(body) for body in json_bodies(path)]
        difference = compare_rows(
            wanted,
            rows,
            without_case=self.project.config.compatibility_level == "1.0",
            ignored=expected.ignore_fields,
        )
        if wanted and not rows:
            return TestOutput(name, "missing", path, rows, difference)
        return TestOutput(name, "matched" if difference.is_empty else "not equal", path, rows, difference)
