"""No event brings down a job: what asks for more than its size is rejected, in little memory and time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine.decoding.hostile import hostile_bodies, parquet
from tests.source import ROOT
from tidegate.engine import FORMATS, DecodingLimits, Format, Problem, Wanted, decoder_of


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
        (DecodingLimits(depth=3), b'{"a":{"b":[1]}}', True),
        (DecodingLimits(depth=2), b'{"a":{"b":[1]}}', False),
        (DecodingLimits(depth=2), b'{"a":1,"z":{"b":[1]}}', None),
    ],
)
def test_depth_counts_from_the_row(limits: DecodingLimits, body: bytes, fits: bool | None) -> None:
    results: Mapping[bool, Any] = {
        record: decoder_of(Wanted(() if record else (("a",),), record), Format(limits=limits)).decode([body])
        for record in (False, True)
    }
    rejected = {record: decoded.rejected_problems.tolist() for record, decoded in results.items()}
    # A field that the query does not use may be nested more deeply.
    expected = [] if fits else [int(Problem.LIMIT_EXCEEDED)]
    assert rejected == {False: [] if fits is None else expected, True: expected}


@pytest.mark.parametrize("inside", [lambda texts: pa.StructArray.from_arrays([texts], ["t"]), pa.array])
def test_a_text_of_parquet_that_is_not_utf_8_rejects_its_file(inside: Callable[[pa.Array], pa.Array]) -> None:
    invalid = pa.array([b"\xff\xfe"]).view(pa.string())
    body = parquet(pa.table({"a": inside(invalid)}))
    for wanted in (Wanted((("a", "t"),), record=False), Wanted((), record=True)):
        rows = FORMATS.kind("parquet").file_rows(body, Format("parquet"))
        decoded = decoder_of(wanted, Format("parquet")).decode(rows)
        assert (len(decoded), decoded.rejected_problems.tolist()) == (0, [int(Problem.MALFORMED)])


def test_a_row_of_csv_that_is_short_and_not_utf_8_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    decoded = decoder_of(Wanted((("a",),), record=False), Format("csv")).decode([b"a,b\n1,2\n\xff\n", b"a,b\n3,4\n"])
    assert (decoded.events.tolist(), decoded.rejected_problems.tolist()) == ([1], [int(Problem.MALFORMED)])
    assert printed == []
