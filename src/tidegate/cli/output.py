"""How resources are printed: a table for people, JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

output_option: Callable[[Any], Any] = click.option(
    "-o",
    "output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or JSON.",
)


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
        table = Table(box=None, show_header=False, pad_edge=False)
        for name, value in resources.items():
            table.add_row(_heading(name), _cell(value))
    elif resources:
        table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
        for name in resources[0]:
            table.add_column(_heading(name), overflow="fold")
        for resource in resources:
            table.add_row(*map(_cell, resource.values()))
    else:
        click.echo("none")
        return
    console.print(table, soft_wrap=not console.is_terminal)


def _heading(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda match: f" {match[1].lower()}", name)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        value = [f"{_heading(name)} {entry}" for name, entry in value.items()]
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text.replace("[", r"\[")
