"""`tidegate job schema`: the JSON Schema of the job file, for editors."""

from __future__ import annotations

import json

import click

from tidegate.job.config.schema import job_schema


@click.command()
def schema() -> None:
    """Print the JSON Schema of the job file.

    Editors complete and check a job file with it: name it in a line `#:schema job.schema.json` at the top of the TOML
    file, or as "$schema" in one of JSON.

    \b
    Example:
      tidegate job schema > job.schema.json
    """
    click.echo(json.dumps(job_schema(), indent=2, ensure_ascii=False))
