"""`tidegate job`: run a query over streams, check it, test it on recorded streams, and ask about time.

Each verb is a module that exports the click command of its name.
"""

from __future__ import annotations

import click

from tidegate.cli.job.blockers import blockers
from tidegate.cli.job.check import check
from tidegate.cli.job.explain import explain
from tidegate.cli.job.explain_plan import explain_plan
from tidegate.cli.job.export import export
from tidegate.cli.job.picture import picture
from tidegate.cli.job.run import run
from tidegate.cli.job.schema import schema
from tidegate.cli.job.test import test
from tidegate.cli.job.tune import tune
from tidegate.cli.job.verify import verify_job

_OLD_NAMES = {"holders": "blockers"}


class JobGroup(click.Group):
    """The group, in which a renamed command also answers to its old name."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with a name, old or new; None if there is none."""
        return super().get_command(ctx, _OLD_NAMES.get(cmd_name, cmd_name))


@click.group(cls=JobGroup)
def job() -> None:
    """Run a query over streams, or test it on recorded streams.

    \b
    Example:
      tidegate job run tolls.toml --until-caught-up
    """


for _command in (run, test, check, schema, explain_plan, explain, blockers, export, picture, tune, verify_job):
    job.add_command(_command)
