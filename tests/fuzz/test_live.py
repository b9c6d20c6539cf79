"""Attacks on a running hub run, and measure the hub and a bystander."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.live import ATTACKS
from tests.patience import PATIENCE_S
from tests.source import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [kind if kind == "live_heavy" else pytest.param(kind, marks=pytest.mark.soak) for kind in ATTACKS]
)
def test_an_attack_leaves_the_hub_healthy(kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.live", kind, "7", "0.5", str(tmp_path / "tried")],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "under attack p50" in done.stdout
    assert not (tmp_path / "tried").exists()
