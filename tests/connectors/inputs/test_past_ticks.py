"""Ticks that no restart reads: what a crash may leave of their file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.connectors.inputs.tick_writer import KEPT
from tests.patience import PATIENCE_S
from tests.profiles import scaled
from tidegate.connectors.inputs.ticks import PastTicks

KILLS = scaled(4)


def test_a_half_written_line_of_past_ticks_is_ignored_and_overwritten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    past = PastTicks(tmp_path)
    past.add([("i", "0", 1, 10), ("i", "0", 2, 20)])
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut] + b"\0" * 3)
        kept = PastTicks(tmp_path).read()
        assert kept == [("i", "0", 1, 10)] * (cut >= whole.index(b"\n") + 1)
        PastTicks(tmp_path).add([("i", "1", 3, 30)])
        assert PastTicks(tmp_path).read() == [*kept, ("i", "1", 3, 30)]
    assert "bytes are not whole and are ignored" in caplog.text


@pytest.mark.crash
def test_no_tick_that_was_durable_is_lost_when_its_process_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.connectors.inputs.tick_writer", str(tmp_path), str(KILLS)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    lives = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(lives) == KILLS
    for life in lives:
        # The kill may have come after one more tick became durable, and before that was said.
        assert len(life["all"]) - life["last"] in (1, 2)
        assert life["all"] == [[place, 10 * place] for place in range(len(life["all"]))]
        assert life["present"] <= KEPT + 2
    assert PastTicks(tmp_path).read()
