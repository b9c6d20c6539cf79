"""Case files with functions of their own; what else a case may hold is tried by the corpus (tests/spark)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.job.logs import runner_of
from tidegate.job import case_result, read_case

CASES = Path(__file__).parents[2] / "cases"


def write_case(folder: Path, **more: Any) -> Path:
    """A case whose query calls udf.twice."""
    path = folder / "case.json"
    content = {
        "name": "twice",
        "query": "SELECT udf.Twice(n) AS m INTO output FROM input",
        "inputs": [{"body": {"n": 21}}],
        "expected": [{"row": {"m": 42}}],
        **more,
    }
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "functions.py").write_text("def twice(n):\n    return 2 * n\n\ndef thrice(n):\n    return 3 * n\n")
    return tmp_path


def test_a_case_registers_functions_beside_it(folder: Path) -> None:
    case = read_case(write_case(folder, functions={"twice": {"module": "functions.py"}}))
    assert case_result(case, runner_of).differences == []


def test_functions_of_all_cases_of_a_folder_stand_in_one_file(folder: Path) -> None:
    (folder / "tidegate.toml").write_text('[functions.twice]\nmodule = "functions.py"\n')
    assert case_result(read_case(write_case(folder)), runner_of).differences == []
    own = {"TWICE": {"module": "functions.py", "function": "thrice"}}
    (difference, _) = case_result(read_case(write_case(folder, functions=own)), runner_of).differences
    assert '{"m": 42}' in difference


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        ({}, "udf.twice is not registered"),
        ({"twice": {"module": "none.py"}}, "[functions.twice]: cannot read"),
        ({"twice": {"module": "functions.py", "function": "a", "aggregate": "b"}}, "the functions of twice: "),
    ],
)
def test_what_cannot_be_called_fails_the_case_with_its_reason(
    folder: Path, functions: dict[str, Any], said: str
) -> None:
    (difference,) = case_result(read_case(write_case(folder, functions=functions)), runner_of).differences
    assert said in difference


def test_the_corpus_has_the_functions_that_its_cases_call() -> None:
    assert case_result(read_case(CASES / "qp23-udf-hex.json"), runner_of).differences == []
