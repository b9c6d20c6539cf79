"""Reports of a project's test cases: for people, for programs, and in the format of the service's tools."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from tidegate.job.project.cases import ProjectCaseResult, Status, TestOutput
from tidegate.job.project.reading import Project

SUMMARY = "testResultSummary.json"
_HEADINGS: dict[Status, str] = {
    "matched": "OutputMatched",
    "not equal": "OutputNotEqual",
    "missing": "OutputMissing",
    "unexpected": "OutputUnexpected",
    "unrequired": "OutputUnrequired",
}


def told(result: ProjectCaseResult) -> list[str]:
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
