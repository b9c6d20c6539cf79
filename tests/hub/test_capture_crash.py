"""kill -9 while events are captured: each of them is in exactly one file afterwards."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hub.archives import files, records

pytestmark = pytest.mark.crash

KILLS = 25


def child(folder: Path, what: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.hub.capture_child", str(folder), what]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_no_event_is_lost_or_repeated(tmp_path: Path) -> None:
    moments = random.Random(7)
    for _ in range(KILLS):
        process = child(tmp_path, "publish")
        time.sleep(moments.uniform(0.02, 0.4))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    last = child(tmp_path, "drain")
    output, _ = last.communicate(timeout=60)
    assert last.returncode == 0
    published = int(output)

    archive = tmp_path / "archive"
    found = [record for name in files(archive) for record in records(archive / name)]
    assert [record["SequenceNumber"] for record in found] == list(range(published))
    assert [int(record["Body"].split(b" ")[0]) for record in found] == list(range(published))
    assert published > 1_000
    assert len(files(archive)) > KILLS
