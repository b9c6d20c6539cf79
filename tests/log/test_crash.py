"""kill -9 while appending: what was acknowledged is there, in order, with its numbers, offset, time and content.

`make soak` does it more often.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

from tests.log.support import open_log, stored
from tests.patience import PATIENCE_S
from tests.profiles import scaled

ROUNDS = scaled(10)
CHILD = Path(__file__).with_name("crash_child.py")


def run_and_kill(directory: Path, generation: int, delay_s: float) -> list[str]:
    """The lines a child wrote until it was killed; the last may be cut."""
    output = directory / f"acknowledged-{generation}"
    with output.open("wb") as file:
        child = subprocess.Popen([sys.executable, str(CHILD), str(directory), str(generation)], stdout=file)
        deadline = time.monotonic() + PATIENCE_S
        while not output.stat().st_size and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(delay_s)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    text = output.read_text()
    return text[: text.rfind("\n") + 1].splitlines()


def check(directory: Path, known: dict[int, tuple[int, int, str, int]], start: int) -> tuple[int, int]:
    """Open a partition and compare all from `start` on; the next sequence number, and how many bytes were cut."""
    started = time.thread_time()
    log = open_log(directory, segment_bytes=200_000)
    assert time.thread_time() - started < 10
    assert log.recovery.damages == ()
    rows = {row[0]: row for row in stored(log, start)}
    assert list(rows) == list(range(start, log.next_sequence_number))
    times = [row[2] for row in rows.values()]
    assert times == sorted(times)
    assert all(a < b for a, b in pairwise(row[1] for row in rows.values()))
    for sequence, (offset, time_ms, name, count) in known.items():
        if sequence >= start:
            for i in range(count):
                row = rows[sequence + i]
                assert row[1:3] == (offset + 4 * i, time_ms)
                assert row[3].rstrip(b".") == f"{name}/{i}".encode()
    log.close()
    return log.next_sequence_number, log.recovery.truncated_bytes


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(20)
    acknowledged: dict[int, dict[int, tuple[int, int, str, int]]] = {0: {}, 1: {}}
    bound_ms, torn, starts = 0, 0, [0, 0]
    for generation in range(ROUNDS):
        for line in run_and_kill(tmp_path, generation, chance.random() * 0.15):
            kind, *rest = line.split()
            if kind in ("ready", "bound"):
                assert int(rest[0]) >= bound_ms, "the arrival lower bound holds over the crash"
                bound_ms = int(rest[0])
                continue
            sequence, offset, time_ms, name, count = rest
            acknowledged[int(kind)][int(sequence)] = (int(offset), int(time_ms), name, int(count))
        for partition, known in acknowledged.items():
            starts[partition], cut = check(tmp_path / str(partition), known, starts[partition])
            torn += cut > 0
    for partition, known in acknowledged.items():  # and at the end once more everything
        check(tmp_path / str(partition), known, 0)
        assert len(known) > ROUNDS
    print(f"{ROUNDS} kills, {sum(map(len, acknowledged.values()))} appends acknowledged, {torn} torn tails cut")
