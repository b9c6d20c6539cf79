"""`tidegate job`: run a query over streams, check it, test it on recorded ones, and ask it about time.

One module a verb; each exports the click command of its name.
"""

from __future__ import annotations

import click

from tidegate.cli.job.check import check
from tidegate.cli.job.explain import explain
from tidegate.cli.job.explain_plan import explain_plan
from tidegate.cli.job.holders import holders
from tidegate.cli.job.picture import picture
from tidegate.cli.job.run import run
from tidegate.cli.job.schema import schema
from tidegate.cli.job.test import test
from tidegate.cli.job.tune import tune
from tidegate.cli.job.verify import verify_job


@click.group()
def job() -> None:
    """Run a query over streams, or test it on recorded ones.

    \b
    Example:
      tidegate job run tolls.toml --until-caught-up
    """


for _command in (run, test, check, schema, explain_plan, explain, holders, picture, tune, verify_job):
    job.add_command(_command)
