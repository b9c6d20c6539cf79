"""Questions about time whose tasks run on Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

ILLUSTRATION = Path(__file__).parents[1] / "cases" / "tp03-seed12-substreams.json"


def test_verifying_on_spark_comes_to_the_same() -> None:
    command = [sys.executable, "-m", "tidegate", "job", "verify", str(ILLUSTRATION), "--master", "local[2]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("identical: 11 results")
