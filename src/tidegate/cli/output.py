"""How resources are printed: a table for people, JSON for programs.

A list whose table would break words in two, as the terminal is too narrow for it, is a block of lines for each resource
instead, like psql's expanded display.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

output_option: Callable[[Any], Any] = click.option(
    "-o",
    "output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or JSON.",
)


def confirm(question: str) -> None:
    """Ask before something is deleted. Raises click.ClickException without consent, and where nobody can be asked."""
    try:
        if not click.confirm(question):
            raise click.ClickException("nothing was deleted")
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("there is no terminal to ask for confirmation: add --yes") from None


def show(answer: Any, output: str) -> None:
    """Print one resource, or a list of them as the API wraps it."""
    resources = answer["value"] if isinstance(answer, dict) and set(answer) == {"value"} else answer
    if output == "json":
        click.echo(json.dumps(resources, indent=2, ensure_ascii=False))
        return
    console = Console()
    # in a pipe nothing is cut off
    console = console if console.is_terminal else Console(width=10_000)
    if isinstance(resources, dict):
        tables = [_lines(resources)]
    elif not resources:
        click.echo("none")
        return
    elif not console.is_terminal or _fits(console, resources):
        tables = [_table(resources, box.SIMPLE_HEAD if console.is_terminal else None)]
    else:
        tables = [_lines(resource) for resource in resources]
    for number, table in enumerate(tables):
        if number:
            console.print()
        console.print(table, soft_wrap=not console.is_terminal)


def _lines(resource: dict[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in resource.items():
        table.add_row(_heading(name), _cell(value))
    return table


def _table(resources: list[dict[str, Any]], lines: box.Box | None) -> Table:
    table = Table(box=lines, pad_edge=False)
    names = dict.fromkeys(name for resource in resources for name in resource)
    rows = [[_cell(resource.get(name)) for name in names] for resource in resources]
    for name, *cells in zip(names, *rows, strict=True):
        words = " ".join([_heading(name), *cells]).split()
        table.add_column(_heading(name), overflow="fold", min_width=max(map(len, words)))
    for row in rows:
        table.add_row(*row)
    return table


def _fits(console: Console, resources: list[dict[str, Any]]) -> bool:
    """Return whether the table breaks lines between words only."""
    # A minimum that does not fit is cut to the console's width.
    return Measurement.get(console, console.options, _table(resources, box.SIMPLE_HEAD)).minimum < console.width


def _heading(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda match: f" {match[1].lower()}", name)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        value = [f"{_heading(name)} {entry}" for name, entry in value.items()]
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text.replace("[", r"\[")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows, the first column aligned left and the others right; all rows have as many cells as the first."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )
