"""The log and the hub do without what only POSIX has, as on Windows."""

import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S
from tests.source import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "files",
    [
        ("tests/log/test_missing.py", "tests/log/test_segment_reader.py"),
        ("tests/hub/test_damage.py",),
    ],
    ids=["log", "hub"],
)
def test_without_posix(files: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "tests.without_posix", "-p", "no:cacheprovider", *files]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=5 * PATIENCE_S)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
