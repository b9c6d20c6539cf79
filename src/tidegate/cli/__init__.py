"""The command line: one module a noun, each exporting one click command of its name.

Commands are loaded when they are called, so that `tidegate up` needs no Spark and `tidegate --help` is quick. What a
user can mend is said in one place (`errors`): a line on standard error and an exit code, 1 if it could not be done, 2
if it was asked wrongly.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from typing import Any

import click

from tidegate.cli.errors import run_and_explain

COMMANDS = {
    "up": "Start the hub in the foreground; Ctrl-C or SIGTERM stops it.",
    "hub": "Show and change what a running hub holds.",
    "store": "Examine the cluster of Kafka in which gateways keep a namespace, or move one there.",
    "connection-string": "Print the connection string of a running hub, with a key.",
    "principal": "Service principals: who may use Azure's management API here.",
    "send": "Publish lines, or JSON values, to an event hub.",
    "tail": "Print the events of an event hub as they arrive.",
    "lag": "Show how far the readers of a hub are behind.",
    "job": "Run a query over streams, test it on recorded streams, and manage the jobs of a service.",
    "demo": "See it work: hub, publishers, a job and its proof.",
}
"""Every command with its one line of help; the module and the function in it have its name, with underscores."""

NOT_FOR_OTHERS = 0o027
"""The umask of all commands: files are for their user, and readable by the group."""

NEXT = """\
Tidegate lets a result out when its watermark has passed, and not before.

  tidegate demo                            see it work (`make demo` in a clone)
  tidegate up --data data                  start a hub; it prints a connection string
  tidegate send CONNECTION_STRING < lines  publish to it
  tidegate tail CONNECTION_STRING          see what is there
  tidegate job run JOB.toml                run a query over it

tidegate COMMAND --help has an example of each; the tutorial is docs/tutorial.md."""


class CommandTable(click.Group):
    """A group whose commands are imported when they are first asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order in which a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command called `name`, imported now; None if there is none.

        Raises:
            MissingExtra: the command needs packages that the base install does not have.
        """
        if name not in COMMANDS:
            return None
        module = name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"tidegate.cli.{module}"), module)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table: help must not import Spark."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line and leave with its exit code.

        Raises:
            SystemExit: always; 0 done, 1 could not be done, 2 asked wrongly, 130 interrupted.
        """
        return run_and_explain(
            lambda: super(CommandTable, self).main(*arguments, **options | {"standalone_mode": False})
        )


@click.group(cls=CommandTable, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(importlib.metadata.version("tidegate"), prog_name="tidegate", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Streaming with honest time: an Event Hubs-compatible hub, and Stream Analytics-compatible jobs on Spark.

    \b
    Example:
      tidegate up --data data
    """
    # What commands write holds events, and the processes that they start do as they do.
    os.umask(os.umask(0o077) | NOT_FOR_OTHERS)
    if context.invoked_subcommand is None:
        click.echo(NEXT)
