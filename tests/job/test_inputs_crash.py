"""A job over a folder that nobody speaks for, killed again and again while files appear."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.job.logs import travelling
from tests.patience import PATIENCE_S
from tests.profiles import scaled
from tidegate.connectors.inputs.ticks import PastTicks
from tidegate.job import load_job, run_job
from tidegate.job.analysis.replay_source import open_replay_source
from tidegate.job.runtime.placement import DriverPlacement
from tidegate.job.runtime.step import Stepper
from tidegate.ordering import format_time

KILLS = scaled(2)
JOB = """
name = "folder"
query = '''
SELECT k, COUNT(*) AS n, SUM(v) AS total, System.Timestamp() AS ts INTO counted FROM i TIMESTAMP BY t
GROUP BY k, TumblingWindow(millisecond, 200)
SELECT v, System.Timestamp() AS ts INTO rows FROM i TIMESTAMP BY t
'''
[event_ordering]
# Restarts read no estimates that are older than this; the look at the whole log in the end reads them all.
early_arrival_tolerance_s = 0.5
late_arrival_tolerance_s = 0.1
out_of_order_tolerance_s = 0.05
[inputs.i]
type = "files"
path = "in/*.json"
settle_s = 0
idle_after_s = 0.02
[outputs.counted]
type = "file"
path = "counted.jsonl"
[outputs.rows]
type = "file"
path = "rows.jsonl"
"""


class _Publisher:
    """Puts files in their place, of events some of which are late."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._dice = random.Random(5)
        self.events = 0

    def publish(self) -> None:
        lines = []
        for _ in range(self._dice.randrange(1, 6)):
            time_ticks = time.time_ns() // 100 - self._dice.randrange(0, 3_000_000)
            lines.append(json.dumps({"t": format_time(time_ticks), "k": self._dice.choice("ab"), "v": self.events}))
            self.events += 1
        beside = self._folder / ".next"
        beside.write_text("\n".join(lines))
        if self._dice.random() < 0.6:
            # A copy that takes a while: the clock has been estimated past the time of this file when it appears.
            time.sleep(0.15)
        beside.rename(self._folder / f"{self.events:06d}.json")


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def test_what_left_is_what_one_look_at_the_log_and_its_ticks_gives(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    publisher = _Publisher(tmp_path / "in")
    dice = random.Random(3)
    command = [sys.executable, "-m", "tests.job.crash_child", str(path), "7"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nurse:
        assert nurse.stdin is not None
        assert nurse.stdout is not None
        past = PastTicks(tmp_path / "folder.state")
        for life in range(8 * KILLS):
            # Whether a tick is set aside depends on what the kills hit. Without one this shows less.
            if life >= KILLS and past.read():
                break
            print("", file=nurse.stdin, flush=True)
            child = int(nurse.stdout.readline())
            publisher.publish()
            begun, enough = time.monotonic(), len(lines_of(tmp_path / "rows.jsonl")) + 3
            while len(lines_of(tmp_path / "rows.jsonl")) < enough and time.monotonic() - begun < PATIENCE_S:
                publisher.publish()
                time.sleep(dice.random() * 0.15)
            time.sleep(dice.random() * 0.05)
            os.kill(child, signal.SIGKILL)
            assert nurse.stdout.readline() == "killed\n"
    job = load_job(path)
    deadline = time.monotonic() + PATIENCE_S
    run_job(
        job,
        travelling(job),
        should_stop=lambda: len(lines_of(tmp_path / "rows.jsonl")) >= publisher.events or time.monotonic() > deadline,
    )
    assert (tmp_path / "folder.state" / "ticks.json").exists()
    rows = lines_of(tmp_path / "rows.jsonl")
    assert sorted(json.loads(row)["v"] for row in rows) == list(range(publisher.events))
    with open_replay_source(path) as source:
        step = Stepper(
            source.program, source.policy, source.logs, DriverPlacement(source.program, source.policy)
        ).step()
    expected = {one.output: one.to_json_lines().splitlines() for one in step.rows}
    assert rows == expected["rows"]
    counted = lines_of(tmp_path / "counted.jsonl")
    assert counted == expected["counted"][: len(counted)]
