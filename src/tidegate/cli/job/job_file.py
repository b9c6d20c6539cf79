"""Check a job file or project without running it, show its plan or schema, and export it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from tidegate.azure.projects.cases import ProjectCaseResult, Status, TestOutput
from tidegate.azure.projects.check import check_project
from tidegate.azure.projects.live import functions_of
from tidegate.azure.projects.local import compile_project
from tidegate.azure.projects.model.project_file import read_json
from tidegate.azure.projects.reading import Project, read_project
from tidegate.azure.projects.template import is_template
from tidegate.azure.projects.template_export import ExportedTemplate, export_job, export_project
from tidegate.cli.job.options import PROJECT, TEXT_OR_JSON, json_line
from tidegate.engine import CATALOG
from tidegate.job import JobError, JobQueryError, load_job, read_definition
from tidegate.job.analysis.query_plan import QueryPlan, plan_of
from tidegate.job.config.schema import job_schema
from tidegate.job.prepare.check import Finding, check_job, check_query
from tidegate.job.prepare.functions import registered_functions
from tidegate.job.prepare.loading import event_ordering_policy
from tidegate.sql import QueryError, compile_query

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


SUMMARY = "testResultSummary.json"
_HEADINGS: dict[Status, str] = {
    "matched": "OutputMatched",
    "not equal": "OutputNotEqual",
    "missing": "OutputMissing",
    "unexpected": "OutputUnexpected",
    "unrequired": "OutputUnrequired",
}


def described(result: ProjectCaseResult) -> list[str]:
    """Return the report of a case for people: a line if it passed, otherwise every difference."""
    counted = ", ".join(f"{output.alias} {len(output.rows)}" for output in result.outputs) or "no output"
    lines = [f"pass  {result.name} ({counted})" if result.passed else f"FAIL  {result.name}"]
    if not result.passed:
        lines += [f"      {line}" for line in differences(result)]
    elif summary := result.data_errors.summary():
        lines[0] += f"; {summary}"
    return lines + [f"      note: {note}" for note in result.notes]


def differences(result: ProjectCaseResult) -> list[str]:
    """Return what is not as the case expects, a line each; an empty list if it passed."""
    lines = [] if result.problem is None else result.problem.splitlines()
    for output in result.outputs:
        if not output.passed:
            lines += _of_output(output)
    return [*lines, *result.undeclared]


def _of_output(output: TestOutput) -> list[str]:
    if output.status == "unexpected":
        rows = f"{len(output.rows)} row{'' if len(output.rows) == 1 else 's'}"
        return [
            f"{output.alias}: {rows} came, and the case does not mention this output; "
            f'if it does not matter, add it with "Required": false',
            *(f"+ {json.dumps(row, ensure_ascii=False)}" for row in output.rows[:5]),
        ]
    if output.difference is None:
        return [f"{output.alias}: the query writes no such output"]
    named = "" if output.expected_file is None else f" ({output.expected_file})"
    return [f"{output.alias}: {output.difference.summary()}{named}", *output.difference.lines()]


def as_json(result: ProjectCaseResult) -> dict[str, Any]:
    """Return the result of a case as a JSON object."""
    shown: dict[str, Any] = {
        "name": result.name,
        "passed": result.passed,
        "seconds": round(result.seconds, 3),
        "outputs": [
            {
                "output": output.alias,
                "status": output.status,
                "expectedFile": None if output.expected_file is None else str(output.expected_file),
                "rows": output.rows,
                "difference": None if output.difference is None else output.difference.as_json(),
            }
            for output in result.outputs
        ],
        "notes": list(result.notes),
        "dataErrors": [one.as_json() for one in result.data_errors.counts()],
    }
    if result.undeclared:
        shown["undeclaredErrors"] = list(result.undeclared)
    return shown if result.problem is None else {**shown, "problem": result.problem}


def write_results(folder: Path, project: Project, results: Sequence[ProjectCaseResult]) -> Path:
    """Write the rows of every output, and the summary that the service's tools write, below a folder.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for number, result in enumerate(results, start=1):
        own = folder / f"{number:03}-{_file_name(result.name)}"
        own.mkdir(exist_ok=True)
        entry: dict[str, Any] = {
            "Name": result.name,
            "Status": 0 if result.passed else 1,
            "Time": _span(result.seconds),
            **{heading: [] for heading in _HEADINGS.values()},
        }
        for output in result.outputs:
            path = own / f"{_file_name(output.alias)}.json"
            path.write_text(
                "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in output.rows), encoding="utf-8"
            )
            entry[_HEADINGS[output.status]].append(
                {
                    "OutputAlias": output.alias,
                    "ExpectedOutput": "" if output.expected_file is None else str(output.expected_file),
                    "Output": "" if output.status == "missing" else str(path.resolve()),
                }
            )
        result.data_errors.write(own)
        listed.append(entry)
    failed = sum(not result.passed for result in results)
    summary = {
        "Total": len(results),
        "Passed": len(results) - failed,
        "Failed": failed,
        "Script": str(project.query_file.resolve()),
        "Results": listed,
        "Time": _span(sum(result.seconds for result in results)),
    }
    path = folder / SUMMARY
    path.write_text(json.dumps(summary, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return path


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:100] or "case"


def _span(seconds: float) -> str:
    """Return a time span as .NET writes it: 00:00:01.2345670."""
    return str(timedelta(seconds=int(seconds))).rjust(8, "0") + f".{int(seconds % 1 * 10_000_000):07}"


@click.command("explain-plan")
@click.argument("path", metavar="[JOB]", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--query",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="A query alone, in place of a job; - reads it from standard input.",
)
@click.option("--reference", metavar="NAME", multiple=True, help="With --query: an input that is reference data.")
@PROJECT
@click.option(
    "-o", "output", type=TEXT_OR_JSON, default="text", show_default=True, help="Text for people, or one JSON object."
)
def explain_plan(
    path: Path | None, query: Path | None, reference: tuple[str, ...], project: Path | None, output: str
) -> None:
    """Show the plan of a query: its steps, what each reads, and what is kept between steps.

    State kept for keys does not grow with the number of events; state kept as rows grows with the events of the
    period shown. "Looks back" is how far back a result may depend on events.

    \b
    Example:
      tidegate job explain-plan tolls.toml
      tidegate job explain-plan --query query.asaql -o json
    """
    if sum(one is not None for one in (path, query, project)) != 1:
        raise click.UsageError("give one of JOB, --query and --project")
    if reference and query is None:
        raise click.UsageError("--reference is for --query; a job or a project declares its own")
    if path is not None:
        job = load_job(path)
        shown = plan_of(job.program.query, registered_functions(job.definition.functions))
        if output == "text":
            click.echo(f"{job.definition.name}: {job.policy.describe()}")
    elif project is not None:
        shown = _of_project(project)
    else:
        assert query is not None
        shown = _of_query(query, reference)
    click.echo(json_line(shown.as_json()) if output == "json" else shown.text())


def _of_query(path: Path, reference: tuple[str, ...]) -> QueryPlan:
    try:
        with click.open_file(str(path), encoding="utf-8-sig") as file:
            sql = file.read()
    except UnicodeDecodeError as error:
        raise JobError(f"cannot read {path}: it is not UTF-8 text") from error
    try:
        return plan_of(compile_query(sql, reference_inputs=reference, catalog=CATALOG))
    except QueryError as error:
        raise JobQueryError(str(path), sql, error) from error


def _of_project(path: Path) -> QueryPlan:
    project = read_project(path)
    functions = functions_of(project)
    local = [one.definition.alias for one in project.local_inputs.values() if one.definition.is_reference]
    live = [one.name for one in project.inputs.values() if one.is_reference]
    return plan_of(compile_project(project, functions, reference_inputs=[*local, *live]), functions)


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


@click.command()
@click.argument("path", metavar="[JOB]", required=False, type=click.Path(path_type=Path, dir_okay=False))
@PROJECT
@click.option("--arm", is_flag=True, help="Write an Azure Resource Manager template. There is no other form yet.")
@click.option(
    "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="The file; default: print it."
)
def export(path: Path | None, project: Path | None, arm: bool, output: Path | None) -> None:
    """Write the job in the file JOB, or a Stream Analytics project, for Azure.

    The template has the query, inputs, outputs, functions in JavaScript and the event ordering policy. It holds no
    secret: each is a parameter that a deployment asks for. What the service does not have is left out, with a note on
    standard error.

    \b
    Example:
      tidegate job export tolls.toml --arm --output tolls.json
      tidegate job export --project asset-maintenance --arm
    """
    if (path is None) == (project is None):
        raise click.UsageError("give either JOB (a job file) or --project")
    if not arm:
        raise click.UsageError("give --arm, the form to write")
    exported = _exported(path, project)
    for note in exported.notes:
        click.echo(f"note: {note}", err=True)
    text = json.dumps(exported.content, indent=2, ensure_ascii=False) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


def _exported(path: Path | None, project: Path | None) -> ExportedTemplate:
    if path is not None:
        return export_job(read_definition(path))
    assert project is not None
    return export_project(read_project(project))
