"""`tidegate job run --project` with every kind of input and output, replaced as the documentation says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.azure.projects.datasources.examples import INPUTS, OUTPUTS
from tests.job.projects import lines, write_json, write_project
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

NO_COUNTERPART = ("DataLakeGen1", "AzureDataExplorer", "PowerBI")


def named(kind: str) -> str:
    return re.sub(r"\W+", "", kind).replace("referencedata", "Reference")


def every_kind(folder: Path) -> tuple[list[str], list[str], list[str]]:
    """Write a project that reads every kind of input and writes every kind of output.

    Returns:
        The names of its streams, of its reference data, and of its outputs.
    """
    listed = []
    for part, examples in (("Input", INPUTS), ("Output", OUTPUTS)):
        for kind, content in examples.items():
            path = f"{part}s/{named(kind)}{part}.json"
            write_json(folder / path, {**content, "Name": f"{named(kind)}{part}"})
            listed.append({"filePath": path.replace("/", "\\"), "subType": part})
    streams = [f"{named(kind)}Input" for kind, one in INPUTS.items() if one["Type"] == "Data Stream"]
    tables = [f"{named(kind)}Input" for kind, one in INPUTS.items() if one["Type"] != "Data Stream"]
    outputs = [f"{named(kind)}Output" for kind in OUTPUTS]
    union = "\nUNION ".join(f"SELECT id, zone, '{name}' AS source FROM {name} TIMESTAMP BY at" for name in streams)
    joins = " ".join(f"JOIN {name} ON {name}.zone = e.zone" for name in tables)
    names = ", ".join(f"{name}.name AS {name}" for name in tables)
    query = f"WITH e AS ({union}),\njoined AS (SELECT e.id, e.source, {names} FROM e {joins})\n"
    query += "\n".join(f"SELECT * INTO {name} FROM joined" for name in outputs)
    write_project(folder, query=query, configurations=listed)
    events = [{"id": n, "zone": "ab"[n % 2], "at": f"2026-03-01T10:00:0{n}Z"} for n in range(4)]
    (folder / "events.jsonl").write_text(lines(events))
    (folder / "zones.csv").write_text("zone,name\na,Airport\nb,Bridge\n")
    return streams, tables, outputs


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidegate", "job", "run", "--until-caught-up", "--placement", "process", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


@pytest.mark.parametrize("as_template", [False, True], ids=["project", "template"])
def test_every_kind_of_input_and_output_runs_on_files_and_the_console(tmp_path: Path, *, as_template: bool) -> None:
    streams, tables, outputs = every_kind(tmp_path / "project")
    project = tmp_path / "project"
    if as_template:
        project = tmp_path / "template.json"
        export = [sys.executable, "-m", "tidegate", "job", "export", "--project", "project", "--arm"]
        subprocess.run([*export, "--output", str(project)], cwd=tmp_path, check=True, capture_output=True)
    options = [f"--override=inputs.{name}=project/events.jsonl" for name in streams]
    options += [f"--override=inputs.{name}=project/zones.csv" for name in tables]
    replaced = [name for name in outputs if not name.startswith(NO_COUNTERPART)]
    for number, name in enumerate(replaced):
        value = ("console", f"out/{name}.jsonl", f"out/{name}.csv")[number % 3]
        options.append(f"--override=outputs.{name}={value}")
    ran = run(tmp_path, "--project", str(project), *options)
    assert ran.returncode == 0, ran.stderr
    rows = 4 * len(streams)
    assert len(ran.stdout.splitlines()) == rows * len(replaced[::3])
    for number, name in enumerate(replaced):
        if number % 3:
            written = (tmp_path / "out" / f"{name}.{('', 'jsonl', 'csv')[number % 3]}").read_text().splitlines()
            assert len(written) == rows + (number % 3 == 2)
    sources = {json.loads(line)["source"] for line in ran.stdout.splitlines()}
    assert sources == set(streams)
    for name in (name for name in outputs if name not in replaced):
        note = f"its rows are written to rides.outputs/{name}.jsonl"
        assert f"the output {name} is " in ran.stderr
        assert note in ran.stderr
        (file,) = tmp_path.rglob(f"rides.outputs/{name}.jsonl")
        assert len(file.read_text().splitlines()) == rows


def test_what_the_environment_lacks_is_named_for_every_kind_at_once(tmp_path: Path) -> None:
    streams, tables, outputs = every_kind(tmp_path)
    ran = run(tmp_path, "--project", ".")
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    needless = ("KafkaInput", "KafkaOutput", "AzureFunctionOutput")
    for name in [*streams, *tables, *(name for name in outputs if not name.startswith(NO_COUNTERPART))]:
        assert (f"put {name} is " in ran.stderr) == (name not in needless), name
