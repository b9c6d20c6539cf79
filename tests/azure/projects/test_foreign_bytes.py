"""Files of projects and cases that are not what they should be: a line for people each, and never a traceback."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.job.projects import rides_project
from tidegate.azure.projects.cases import ProjectTests
from tidegate.azure.projects.check import check_project
from tidegate.azure.projects.reading import read_project
from tidegate.job import JobError, read_case
from tidegate.job.analysis.replay_source import is_case
from tidegate.job.config.definition import read_content
from tidegate.job.prepare.check import check_job

FILES = ("asaproj.json", "JobConfig.json", "rides.asaql", "Test/testConfig.json", "Test/Hourly/Rides.json")
JOB = '"type": "Microsoft.StreamAnalytics/streamingjobs"'
DAMAGE = {
    "empty": b"",
    "not text": b"\xff\xfe\x00",
    "nothing but zeros": b"\x00" * 100,
    "deep list": b"[" * 5_000,
    "deep object": b'{"a":' * 5_000,
    "long number": b'{"x": ' + b"9" * 5_000 + b"}",
    "null": b"null",
    "no keys": b"{}",
    "wrong kinds": b'{"TestCases": [null], "startFile": 5, "configurations": {}, "CompatibilityLevel": []}',
    "no file name": b'{"startFile": "a\\u0000b", "TestCases": []}',
    "half a character": b'{"startFile": "\\ud800", "name": "\\ud800", "TestCases": []}',
    "template of nothing": b'{"resources": [1]}',
    "template of numbers": f'{{"resources": [{{{JOB}, "properties": 5, "resources": 7}}]}}'.encode(),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_of_a_project_is_reported(tmp_path: Path, name: str, damage: str) -> None:
    rides_project(tmp_path)
    (tmp_path / name).write_bytes(DAMAGE[damage])
    check_project(tmp_path)
    with contextlib.suppress(JobError):
        tests = ProjectTests(read_project(tmp_path))
        for case in tests.cases:
            tests.run(case)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_case_or_job_file_is_reported(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "case.json"
    path.write_bytes(DAMAGE[damage])
    with pytest.raises(JobError, match=r"case\.json"):
        read_case(path)
    assert not is_case(path)
    text = DAMAGE[damage].decode("latin-1")
    assert check_job(text, path)[1]
    assert check_job(text, path.with_suffix(".toml"))[1] or not text.strip()
    with contextlib.suppress(JobError):
        read_content(path)
