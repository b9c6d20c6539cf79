"""`tidegate job test`: case files, each a query, a recorded log and the rows it must give."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from tidegate.cli.job.options import TEXT_OR_JSON
from tidegate.job import JobError, case_result, read_case
from tidegate.spark import SparkRunner, spark_context


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
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
def test(paths: tuple[Path, ...], master: str, output: str, max_events_per_step: int) -> None:
    """Run case files: a query, a recorded log and the rows it must give.

    A PATH that is a folder stands for the case files in it. Exit code 0: all passed; 1: at least one differs; 2: not
    a case.

    \b
    Example:
      tidegate job test tests/cases/tp01-seed12-early.json
      tidegate job test cases/ -o json
    """
    try:
        cases = [(path, read_case(path)) for path in _case_files(paths)]
    except JobError as error:
        raise click.UsageError(str(error)) from error
    failed = 0
    with spark_context(master, "tidegate job test") as context:
        for path, case in cases:
            result = case_result(
                case,
                lambda program, policy: SparkRunner(context, program, policy),
                max_events_per_step=max_events_per_step,
                with_trace=True,
            )
            failed += not result.passed
            if output == "json":
                click.echo(json.dumps(result.as_json(), ensure_ascii=False))
            elif result.passed:
                click.echo(f"pass  {case.name} ({len(result.rows)} rows)")
            else:
                click.echo(f"FAIL  {case.name} ({path})")
                for line in result.differences:
                    click.echo(f"      {line}")
    if output == "text":
        click.echo(f"{len(cases) - failed} passed, {failed} failed")
    if failed:
        sys.exit(1)


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
