"""No event brings down a job: what asks for more than its size is rejected, in little memory and time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engine.decoding.hostile import hostile_bodies
from tests.source import ROOT
from tidegate.engine import Format, Limits, Problem, Wanted, decoder_of


@pytest.mark.slow
def test_hostile_bodies_are_rejected_in_little_memory(tmp_path: Path) -> None:
    cases = []
    for place, (name, format_, body) in enumerate(hostile_bodies()):
        path = tmp_path / str(place)
        path.write_bytes(body)
        cases.append({"name": name, "kind": format_.kind, "compression": format_.compression, "path": str(path)})
    child = subprocess.run(
        [sys.executable, "-m", "tests.engine.decoding.hostile_child"],
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        check=False,
    )
    answers = {name: (rejected, seconds) for name, rejected, seconds in map(json.loads, child.stdout.splitlines())}
    done = len(answers)
    assert done == len(cases), f"{cases[done]['name']} ended the process ({child.returncode}): {child.stderr[-2000:]}"
    wrong = {name: rejected for name, (rejected, _) in answers.items() if rejected != [[0, [0, 1]]] * 2}
    assert wrong == {}


@pytest.mark.parametrize(
    ("limits", "body", "fits"),
    [
        (Limits(depth=3), b'{"a":{"b":[1]}}', True),
        (Limits(depth=2), b'{"a":{"b":[1]}}', False),
        (Limits(depth=2), b'{"a":1,"z":{"b":[1]}}', None),
    ],
)
def test_depth_counts_from_the_row(limits: Limits, body: bytes, fits: bool | None) -> None:
    results: Mapping[bool, Any] = {
        record: decoder_of(Wanted(() if record else (("a",),), record), Format(limits=limits)).decode([body])
        for record in (False, True)
    }
    rejected = {record: decoded.rejected_problems.tolist() for record, decoded in results.items()}
    # A field that the query does not use may be nested more deeply.
    expected = [] if fits else [int(Problem.LIMIT_EXCEEDED)]
    assert rejected == {False: [] if fits is None else expected, True: expected}
