"""`tidegate job test`: queries on recorded logs, of case files or of the test cases of a Stream Analytics project."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from tidegate.cli.job.junit import JunitCase, write_junit
from tidegate.cli.job.options import PROJECT, TEXT_OR_JSON, json_line
from tidegate.cli.job.project_report import as_json, differences, told, write_results
from tidegate.job import JobError, case_result, read_case
from tidegate.job.project.cases import ProjectTests
from tidegate.job.project.live import functions_of
from tidegate.job.project.reading import read_project
from tidegate.spark import SparkRunner, spark_context


class CannotTest(click.ClickException):
    """What keeps tests from being run at all."""

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
@click.option("--master", default="local[2]", show_default=True, help="Spark master URL the tests run on.")
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
    master: str,
    output: str,
    max_events_per_step: int,
) -> None:
    """Run tests: recorded logs, and the rows that a query must give for them.

    A PATH is a case file, or a folder of them. With --project, the test cases of a Stream Analytics project are run,
    unchanged, as the service's own tools run them. Exit code 0: all passed; 1: at least one differs; 2: they cannot
    be run.

    \b
    Example:
      tidegate job test tests/cases/tp01-seed12-early.json
      tidegate job test cases/ -o json
      tidegate job test --project asset-maintenance --junit results.xml
    """
    if project is None and not paths:
        raise click.UsageError("say what to test: case files, or --project with the folder of a project")
    if project is not None and paths:
        raise click.UsageError("give either case files or --project, one of the two")
    if project is None and (test_config or output_path):
        raise click.UsageError("--test-config and --output-path are for --project")
    try:
        if project is None:
            tested = _test_cases(paths, master, output, max_events_per_step)
        else:
            tested = _test_project(project, test_config, output_path, master, output, max_events_per_step)
    except JobError as error:
        raise CannotTest(str(error)) from error
    if junit is not None:
        write_junit(junit, "tidegate job test" if project is None else project.resolve().name, tested)
    failed = sum(bool(one.differences) for one in tested)
    if output == "text":
        click.echo(f"{len(tested) - failed} passed, {failed} failed")
    if failed:
        sys.exit(1)


def _test_cases(paths: tuple[Path, ...], master: str, output: str, max_events_per_step: int) -> list[JunitCase]:
    cases = [(path, read_case(path)) for path in _case_files(paths)]
    tested = []
    with spark_context(master, "tidegate job test") as context:
        for path, case in cases:
            began = time.monotonic()
            result = case_result(
                case,
                lambda program, policy: SparkRunner(context, program, policy),
                max_events_per_step=max_events_per_step,
                with_trace=True,
            )
            tested.append(JunitCase(case.name, path.parent.name, time.monotonic() - began, result.differences))
            if output == "json":
                click.echo(json_line(result.as_json()))
            elif result.passed:
                click.echo(f"pass  {case.name} ({len(result.rows)} rows)")
            else:
                click.echo(f"FAIL  {case.name} ({path})")
                for line in result.differences:
                    click.echo(f"      {line}")
    return tested


def _test_project(
    path: Path,
    test_config: Path | None,
    output_path: Path | None,
    master: str,
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
    with spark_context(master, "tidegate job test") as context:
        for case in tests.cases:
            result = tests.run(
                case,
                lambda program, policy: SparkRunner(context, program, policy),
                max_events_per_step=max_events_per_step,
            )
            results.append(result)
            if output == "json":
                click.echo(json_line(as_json(result)))
            else:
                click.echo("\n".join(told(result)))
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
