"""`tidegate job test`: test queries on recorded logs, from case files or a Stream Analytics project's test cases."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import click

from tidegate.azure.projects.cases import ProjectTests
from tidegate.azure.projects.live import functions_of
from tidegate.azure.projects.reading import read_project
from tidegate.cli.job.job_file import as_json, described, differences, write_results
from tidegate.cli.job.options import PROJECT, SPARK_CONF, SPARK_UI, TEXT_OR_JSON, json_line, placements, spark_settings
from tidegate.engine import UnsupportedQuery
from tidegate.job import Case, JobError, case_result, read_case
from tidegate.job.config.spark_settings import SparkSettings
from tidegate.job.testing.case import CaseError, prepared_case
from tidegate.sql import QueryError

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class JunitCase:
    """One test: its name, its class, its duration, and what is wrong (a line each; none: it passed)."""

    name: str
    group: str
    seconds: float
    differences: Sequence[str] = ()


def write_junit(path: Path, suite: str, tests: Sequence[JunitCase]) -> None:
    """Write the results.

    Raises:
        OSError: the file cannot be written.
    """
    failed = str(sum(bool(test.differences) for test in tests))
    counts = {"tests": str(len(tests)), "failures": failed, "errors": "0", "skipped": "0"}
    seconds = f"{sum(test.seconds for test in tests):.3f}"
    root = ElementTree.Element("testsuites", {**counts, "time": seconds})
    parent = ElementTree.SubElement(root, "testsuite", {"name": suite, **counts, "time": seconds})
    for test in tests:
        attributes = {"name": test.name, "classname": test.group, "time": f"{test.seconds:.3f}"}
        node = ElementTree.SubElement(parent, "testcase", {key: _clean(value) for key, value in attributes.items()})
        if test.differences:
            failure = ElementTree.SubElement(node, "failure", {"message": _clean(test.differences[0])})
            failure.text = _clean("\n".join(test.differences))
    ElementTree.indent(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _clean(text: str) -> str:
    """Replace the characters that XML cannot contain."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


class CannotTest(click.ClickException):
    """Tests cannot be run at all."""

    exit_code = 2


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@PROJECT
@click.option(
    "--test-config",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The test cases of the project; default: test/testConfig.json in it.",
)
@click.option(
    "--output-path",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the rows of every output of the project, and testResultSummary.json, below this folder.",
)
@click.option(
    "--junit",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write JUnit XML for a build server.",
)
@click.option("--master", metavar="URL", help="Spark master URL to run the tests on; default: in this process.")
@SPARK_CONF
@SPARK_UI
@click.option(
    "-o",
    "output",
    type=TEXT_OR_JSON,
    default="text",
    show_default=True,
    help="Text for people, or one JSON line a case.",
)
@click.option(
    "--max-events-per-step",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(1),
    help="Cut the log into smaller steps; no row may differ.",
)
def test(
    paths: tuple[Path, ...],
    project: Path | None,
    test_config: Path | None,
    output_path: Path | None,
    junit: Path | None,
    master: str | None,
    spark_conf: dict[str, str],
    spark_ui: bool,
    output: str,
    max_events_per_step: int,
) -> None:
    """Run tests: recorded logs, and the rows that a query must return for them.

    A PATH is a case file or a folder of case files. With --project, the test cases of a Stream Analytics project run
    unchanged, as the service's own tools run them. Tests run in this process and need no Java; with --master they run
    on Spark, with the same results. Exit code 0: all passed; 1: at least one differs; 2: they cannot be run.

    \b
    Example:
      tidegate job test tests/cases/tp01-seed12-early.json
      tidegate job test cases/ -o json
      tidegate job test --project asset-maintenance --junit results.xml
    """
    if project is None and not paths:
        raise click.UsageError("say what to test: case files, or --project with the folder of a project")
    if project is not None and paths:
        raise click.UsageError("give either case files or --project")
    if project is None and (test_config or output_path):
        raise click.UsageError("--test-config and --output-path are for --project")
    spark = spark_settings(master, spark_ui, spark_conf)
    try:
        if project is None:
            tested = _test_cases(paths, spark, output, max_events_per_step)
        else:
            tested = _test_project(project, test_config, output_path, spark, output, max_events_per_step)
    except JobError as error:
        raise CannotTest(str(error)) from error
    if junit is not None:
        write_junit(junit, "tidegate job test" if project is None else project.resolve().name, tested)
    failed = sum(bool(one.differences) for one in tested)
    if output == "text":
        click.echo(f"{len(tested) - failed} passed, {failed} failed")
    if failed:
        sys.exit(1)


def _test_cases(
    paths: tuple[Path, ...], spark: SparkSettings, output: str, max_events_per_step: int
) -> list[JunitCase]:
    cases = [(path, read_case(path)) for path in _case_files(paths)]
    tested = []
    _check_inputs(cases)
    with placements(spark, "tidegate job test") as place:
        for path, case in cases:
            began = time.monotonic()
            result = case_result(
                case,
                place,
                max_events_per_step=max_events_per_step,
                with_trace=True,
            )
            tested.append(JunitCase(case.name, path.parent.name, time.monotonic() - began, result.differences))
            if output == "json":
                click.echo(json_line(result.as_json()))
            elif result.passed:
                summary = result.data_errors.summary()
                rows = f"{len(result.rows):,} row{'' if len(result.rows) == 1 else 's'}"
                click.echo(f"pass  {case.name} ({rows}){f'; {summary}' if summary else ''}")
            else:
                click.echo(f"FAIL  {case.name} ({path})")
                for line in result.differences:
                    click.echo(f"      {line}")
    return tested


def _check_inputs(cases: list[tuple[Path, Case]]) -> None:
    """Find cases that lack an input of their query before any case runs; a wrong query fails only its own case.

    Raises:
        JobError: there are such cases; the message names all of them.
    """
    problems = []
    for path, case in cases:
        try:
            prepared_case(case)
        except CaseError as error:
            problems.append(f"{path}: {error}")
        except (QueryError, UnsupportedQuery, JobError):
            continue
    if problems:
        raise JobError("\n".join(problems))


def _test_project(
    path: Path,
    test_config: Path | None,
    output_path: Path | None,
    spark: SparkSettings,
    output: str,
    max_events_per_step: int,
) -> list[JunitCase]:
    project = read_project(path)
    tests = ProjectTests(project, test_config, functions_of(project))
    if output == "text":
        level = project.config.compatibility_level
        click.echo(f"{project.name}: compatibility level {level}; a local run, without an event ordering policy")
    for note in tests.notes:
        click.echo(f"note: {note}", err=True)
    results = []
    with placements(spark, "tidegate job test") as place:
        for case in tests.cases:
            result = tests.run(
                case,
                place,
                max_events_per_step=max_events_per_step,
            )
            results.append(result)
            if output == "json":
                click.echo(json_line(as_json(result)))
            else:
                click.echo("\n".join(described(result)))
    if output_path is not None:
        summary = write_results(output_path, project, results)
        click.echo(f"summary: {summary}", err=True)
    return [JunitCase(result.name, project.name, result.seconds, differences(result)) for result in results]


def _case_files(paths: tuple[Path, ...]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(path.glob("*.json"))
            if not found:
                raise click.UsageError(f"{path} holds no case files (*.json)")
            files.extend(found)
        else:
            files.append(path)
    return files
