"""Whatever a search has found stays fixed, and a saved example that no longer fits its test is reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import regressions
from tests.fuzz.seeded import CHECKS
from tests.fuzz.targets import TARGETS, run
from tests.patience import PATIENCE_S
from tests.source import ROOT

PROBE = """
from hypothesis import given, strategies as st

@given({strategies})
def test_probe(number, text):
    assert number < {limit}
"""


def run_pytest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        timeout=3 * PATIENCE_S,
        capture_output=True,
        text=True,
        check=False,
    )


def replay(name: str, test: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_pytest(test, TIDEGATE_HYPOTHESIS="replay", TIDEGATE_REPLAY=name, **environment)


def test_saved_examples_pass() -> None:
    for name, example in regressions.examples().items():
        done = replay(name, example.test)
        assert done.returncode == 0, (
            f"{done.stdout}\n{name} fails again, or no longer fits its test: if the test draws differently now, write "
            f"the example into the test with @example and delete tests/regressions/examples/{name}.json"
        )


@pytest.mark.parametrize("target", TARGETS)
def test_saved_inputs_pass(target: str) -> None:
    for data in regressions.inputs(target):
        run(TARGETS[target], data)


@pytest.mark.parametrize("check", CHECKS)
def test_saved_seeds_pass(check: str) -> None:
    for seed in regressions.seeds().get(check, ()):
        CHECKS[check](seed)


def test_everything_saved_has_its_check() -> None:
    assert set(regressions.seeds()) <= set(CHECKS)
    assert {path.name for path in (regressions.FOLDER / "inputs").glob("*")} <= set(TARGETS)


class Probe:
    """A Hypothesis test of its own, and a folder for what is found with it."""

    def __init__(self, folder: Path) -> None:
        (folder / "conftest.py").write_text("from tests.conftest import *\n", encoding="utf-8")
        self.path = folder / "test_probe.py"
        self.found = folder / "found"
        self.write("st.integers(), st.text()", 1000)

    def write(self, strategies: str, limit: int) -> None:
        self.path.write_text(PROBE.format(strategies=strategies, limit=limit), encoding="utf-8")

    def search(self) -> str:
        return run_pytest(str(self.path), TIDEGATE_HYPOTHESIS="search", TIDEGATE_REGRESSIONS=str(self.found)).stdout

    def replay(self) -> subprocess.CompletedProcess[str]:
        (example,) = (self.found / "examples").glob("*.json")
        return replay(example.stem, str(self.path), TIDEGATE_REGRESSIONS=str(self.found))


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    return Probe(tmp_path)


@pytest.mark.slow
def test_a_search_saves_what_it_finds_and_the_suite_replays_it(probe: Probe) -> None:
    assert "1 failed" in probe.search()
    (path,) = (probe.found / "examples").glob("*.json")
    saved = json.loads(path.read_text(encoding="utf-8"))
    assert saved["test"].endswith("::test_probe")
    assert "number=1000" in saved["looks_like"]
    assert probe.replay().returncode == 1
    probe.write("st.integers(), st.text()", 10**30)
    assert probe.replay().returncode == 0


@pytest.mark.slow
def test_an_example_that_no_longer_fits_its_test_is_reported(probe: Probe) -> None:
    probe.search()
    probe.write("st.text().map(len), st.integers()", 10**30)
    done = probe.replay()
    assert done.returncode == 1
    assert "no longer fits its test" in done.stdout
