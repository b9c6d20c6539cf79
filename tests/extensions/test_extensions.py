"""Things of other people's packages: installed for real, as far as Python can tell, and used by a job in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

SOURCE = '''
from typing import Literal

from tidegate.engine.decoding.formats import FORMATS
from tidegate.engine.decoding.json_bodies import JsonFormat
from tidegate.engine.functions.declarations import FunctionGroup
from tidegate.engine.values.vectors import Vector
from tidegate.connectors.inputs.kinds import INPUTS
from tidegate.connectors.inputs.recorded import RecordedInput
from tidegate.connectors.model.section import Public
from tidegate.connectors.outputs.console import ConsoleOutput
from tidegate.connectors.outputs.kinds import OUTPUTS


@INPUTS.register
class Tape(RecordedInput):
    """A recorded log under another name."""

    type: Literal["tape"]
    label: Public = "none"


@OUTPUTS.register
class Screen(ConsoleOutput):
    """The console under another name."""

    type: Literal["screen"]


@FORMATS.register
class Notes(JsonFormat):
    name = "notes"


@FunctionGroup("Acme").by_columns("ACME_TWICE", "number number", example=("ACME_TWICE(2)", "4.0"))
def twice(numbers: Vector) -> Vector:
    """Return the double of a number."""
    return Vector.of([None if one is None else 2.0 * one for one in numbers.to_list()])
'''
CLASSES = """
from dataclasses import dataclass

from tidegate.engine.aggregates.functions.sums import Count
from tidegate.engine.stateful.analytics.earlier_rows import IsFirst
from tidegate.engine.windows.kinds.panes import Tumbling


class Tally(Count):
    spelling = "ACME_TALLY"


class Newest(IsFirst):
    spelling = "ACME_FIRST"


@dataclass(frozen=True, slots=True)
class Rolling(Tumbling):
    names = ("AcmeWindow",)
"""
ENTRY_POINTS = """
[tidegate.inputs]
tape = acme_tidegate
broken = acme_tidegate_broken

[tidegate.outputs]
screen = acme_tidegate

[tidegate.formats]
notes = acme_tidegate

[tidegate.functions]
acme = acme_tidegate

[tidegate.aggregates]
tally = acme_tidegate_classes:Tally

[tidegate.analytics]
newest = acme_tidegate_classes:Newest

[tidegate.windows]
rolling = acme_tidegate_classes:Rolling
"""
QUERY = """
SELECT System.Timestamp() AS ts, ACME_TALLY(*) AS n, SUM(ACME_TWICE(x)) AS s INTO counted
FROM tape TIMESTAMP BY t GROUP BY AcmeWindow(second, 10)
"""


def install(folder: Path) -> dict[str, str]:
    """Return the environment of a Python that has the package."""
    info = folder / "acme_tidegate-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-tidegate\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "acme_tidegate.py").write_text(SOURCE)
    (folder / "acme_tidegate_classes.py").write_text(CLASSES)
    (folder / "acme_tidegate_broken.py").write_text("import a_library_that_is_not_there\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


def tidegate(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidegate", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=environment,
    )


def job_file(folder: Path, kind: str) -> Path:
    lines = [
        {"arrival": f"2026-01-01T00:00:{second:02}Z", "body": {"t": f"2026-01-01T00:00:{second:02}Z", "x": 1}}
        for second in range(1, 26)
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    path = folder / "job.toml"
    path.write_text(
        f'name = "acme"\nquery = """{QUERY}"""\n[inputs.tape]\ntype = "{kind}"\npath = "log.jsonl"\n'
        '[outputs.counted]\ntype = "screen"\n'
    )
    return path


def test_a_job_uses_what_another_package_adds(tmp_path: Path) -> None:
    environment = install(tmp_path / "site")
    job = job_file(tmp_path, "tape")
    done = tidegate(environment, "job", "run", str(job), "--placement", "process", "--until-caught-up")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(row["n"], row["s"]) for row in rows][:2] == [(10, 20.0), (10, 20.0)]
    # what nobody needs is said once and stops nothing
    assert done.stderr.count("acme-tidegate 1.5 cannot be loaded: ModuleNotFoundError: No module named") == 1


def test_what_cannot_be_loaded_says_why_where_it_is_used(tmp_path: Path) -> None:
    done = tidegate(install(tmp_path / "site"), "job", "check", str(job_file(tmp_path, "broken")))
    assert done.returncode == 1
    assert 'type "broken" is not an input type' in done.stderr
    assert "the installed package acme-tidegate 1.5 cannot be loaded" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_package_its_names_are_unknown(tmp_path: Path) -> None:
    done = tidegate(dict(os.environ), "job", "check", str(job_file(tmp_path, "tape")))
    assert done.returncode == 1
    assert 'type "tape" is not an input type' in done.stderr
