"""`tidegate job check`: a job file and its query, without running them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from tidegate.cli.job.options import TEXT_OR_JSON
from tidegate.job import JobError, JobQueryError, load_job


@click.command()
@click.argument("path", metavar="JOB", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-o", "output", type=TEXT_OR_JSON, default="text", show_default=True, help="Text for people, or JSON for editors."
)
def check(path: Path, output: str) -> None:
    """Check a job file and its query without running it: every problem, with its line and a caret.

    \b
    Example:
      tidegate job check tolls.toml
    """
    if output == "text":
        loaded = load_job(path)
        click.echo(f"{path}: the job '{loaded.definition.name}' is fine; {loaded.policy.describe()}")
        return
    try:
        load_job(path)
    except JobQueryError as error:
        found = [
            {
                "line": item.line,
                "column": item.column,
                "length": item.length,
                "message": item.message,
                "hint": item.hint,
            }
            for item in error.diagnostics
        ]
        click.echo(json.dumps({"job": str(path), "problems": found}))
        sys.exit(1)
    except JobError as error:
        click.echo(json.dumps({"job": str(path), "problems": [{"message": str(error)}]}))
        sys.exit(1)
    click.echo(json.dumps({"job": str(path), "problems": []}))
