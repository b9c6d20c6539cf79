"""`tidegate job`: run a query over streams, check it, test it on recorded streams, ask about time, and manage jobs.

Each verb is a module that exports the click command of its name; those on the jobs of a service are in `managed`. A
command is loaded when it is called, so that managing jobs needs neither the engine nor Spark.
"""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "run": ("run", "run", "Run a job until it is stopped."),
    "test": ("test", "test", "Run test cases: recorded streams and the rows expected of them."),
    "check": ("job_file", "check", "Read a job file and its query without running it."),
    "schema": ("job_file", "schema", "Print the JSON Schema of job files, for editors."),
    "explain-plan": ("job_file", "explain_plan", "Show how a query is computed, and what it keeps."),
    "explain": ("questions", "explain", "Say what became of an event, and why."),
    "blockers": ("questions", "blockers", "Say what holds up the results of a running job."),
    "export": ("job_file", "export", "Write a job as a template for Azure Resource Manager."),
    "picture": ("questions", "picture", "Draw event time against arrival, and the watermarks."),
    "tune": ("tune", "tune", "Find the tolerances that suit a log."),
    "verify": ("verify", "verify_job", "Compute the same results again, in other steps and from other starts."),
    "create": ("managed", "create", "Create a job of the service from a job file."),
    "update": ("managed", "update", "Give a job of the service a changed job file."),
    "start": ("managed", "start", "Start a job of the service."),
    "stop": ("managed", "stop", "Stop a job of the service."),
    "scale": ("managed", "scale", "Set how many streaming units a job of the service has."),
    "delete": ("managed", "delete", "Delete a job of the service."),
    "list": ("managed", "list_", "All jobs of the service."),
    "show": ("managed", "show", "One job of the service: how it is and why."),
    "logs": ("managed", "logs", "The log of a job of the service."),
}
"""By command: the module below this package, the name there, and one line of help."""


class JobGroup(click.Group):
    """The group, whose commands are imported when they are first asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with a name; None if there is none.

        Raises:
            ModuleNotFoundError: the command needs packages that the base install does not have.
        """
        found = COMMANDS.get(cmd_name)
        if found is None:
            return None
        module, name, _ = found
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table: help must not import the engine."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, _, help_text) in COMMANDS.items()])


@click.group(cls=JobGroup)
def job() -> None:
    """Run a query over streams, test it on recorded streams, and manage the jobs of a service.

    \b
    Example:
      tidegate job run tolls.toml --until-caught-up
      tidegate job create tolls.toml --start
    """
