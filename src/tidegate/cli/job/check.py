"""`tidegate job check`: job files, queries and projects, without running them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from tidegate.cli.job.options import PROJECT, TEXT_OR_JSON, json_line
from tidegate.job.model.errors import JobError
from tidegate.job.prepare.check import Finding, check_job, check_query
from tidegate.job.prepare.loading import event_ordering_policy
from tidegate.job.project.check import check_project
from tidegate.job.project.model.project_file import read_json
from tidegate.job.project.template import is_template

_QUERIES = (".asaql", ".sql", ".txt")
STDIN = "-"


@dataclass(frozen=True, slots=True)
class _Checked:
    """A file that was checked: its findings, and the message if there are none."""

    name: str
    findings: list[Finding]
    fine: str
    text: str | None = None


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@PROJECT
@click.option("--reference", metavar="NAME", multiple=True, help="For a query alone: an input that is reference data.")
@click.option(
    "--stdin-name",
    metavar="NAME",
    default="stdin.toml",
    show_default=True,
    help="The name for standard input: its suffix tells its kind, its folder where other files are.",
)
@click.option(
    "-o",
    "output",
    type=TEXT_OR_JSON,
    default="text",
    show_default=True,
    help="Text for people, or one JSON line a file for editors.",
)
def check(
    paths: tuple[Path, ...], project: Path | None, reference: tuple[str, ...], stdin_name: str, output: str
) -> None:
    """Check job files, queries and projects without running them: every problem, with its place.

    A PATH is a job file (*.toml, *.json), a query (*.asaql, *.sql), the folder of a Stream Analytics project,
    a template of Azure Resource Manager (*.json), or - for standard input. Exit code 0: nothing is wrong, or there
    are warnings only; 1: something is.

    \b
    Example:
      tidegate job check tolls.toml
      tidegate job check - --stdin-name jobs/tolls.toml -o json < buffer
    """
    if not paths and project is None:
        raise click.UsageError("say what to check: a job file, a query, a project, or - for standard input")
    if [str(path) for path in paths].count(STDIN) > 1:
        raise click.UsageError("standard input can be read once")
    failed = False
    for path in [*paths, *([project] if project is not None else [])]:
        checked = _checked(path, stdin_name, reference, is_project=path is project)
        failed |= any(finding.severity == "error" for finding in checked.findings)
        if output == "json":
            problems = [finding.as_json() for finding in checked.findings]
            click.echo(json_line({"job": checked.name, "problems": problems}))
            continue
        for finding in checked.findings:
            click.echo(finding.render(_text_of(finding, checked)), err=True)
        if not any(finding.severity == "error" for finding in checked.findings):
            click.echo(checked.fine)
    if failed:
        sys.exit(1)


def _checked(path: Path, stdin_name: str, reference: tuple[str, ...], *, is_project: bool) -> _Checked:
    if is_project or path.is_dir() or _describes_a_project(path):
        project, findings = check_project(path)
        named = "" if project is None else f"the project '{project.name}' is fine"
        return _Checked(str(path), findings, f"{path}: {named}")
    name = Path(stdin_name) if str(path) == STDIN else path
    try:
        text = _stdin() if str(path) == STDIN else path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return _Checked(str(name), [Finding(str(name), 1, 1, 1, "error", "file", f"cannot read {name}: {reason}")], "")
    if name.suffix.lower() in _QUERIES:
        _, findings = check_query(text, str(name), reference_inputs=reference)
        return _Checked(str(name), findings, f"{name}: the query is fine", text)
    definition, findings = check_job(text, name)
    if definition is None or any(finding.severity == "error" for finding in findings):
        return _Checked(str(name), findings, "", text)
    policy = event_ordering_policy(definition.event_ordering).describe()
    return _Checked(str(name), findings, f"{name}: the job '{definition.name}' is fine; {policy}", text)


def _describes_a_project(path: Path) -> bool:
    """Return whether a file lists those of a project, or is a template with a job."""
    if path.name.lower() == "asaproj.json" or path.suffix.lower() == ".asaproj":
        return True
    if path.suffix.lower() != ".json":
        return False
    try:
        return is_template(read_json(path))
    except JobError:
        return False  # it is checked as a job file, and said to be wrong with its place


def _stdin() -> str:
    return sys.stdin.buffer.read().decode("utf-8-sig")


def _text_of(finding: Finding, checked: _Checked) -> str | None:
    """Return the text of the file that a finding is in."""
    if finding.file == checked.name and checked.text is not None:
        return checked.text
    try:
        return Path(finding.file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
