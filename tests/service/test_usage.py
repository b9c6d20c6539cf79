"""What a process uses, with all that it has started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import eventually
from tidegate.service import processes
from tidegate.service.processes import Usage, usage_of

HELD = 64 << 20
GRANDPARENT = f"""
import subprocess, sys, threading
started = []
def start():
    started.append(subprocess.Popen([{{0!r}}, "-c", "held = b'x' * {HELD}; input()"], stdin=sys.stdin))
thread = threading.Thread(target=start)
thread.start()
thread.join()
started[0].wait()
"""


def usage_when(pid: int, is_reached: Callable[[Usage], bool]) -> Usage:
    """What a process uses as soon as a condition holds."""
    found: list[Usage] = []

    def look() -> bool:
        usage = usage_of(pid)
        found[:] = [] if usage is None else [usage]
        return bool(found) and is_reached(found[0])

    eventually(look)
    return found[0]


def test_what_a_child_of_any_thread_uses_counts() -> None:
    own = usage_of(os.getpid())
    assert own is not None
    script = GRANDPARENT.format(sys.executable)
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
        usage = usage_when(process.pid, lambda usage: usage.memory_bytes > HELD)
        assert usage.java_bytes == 0
        process.communicate(b"\n")
    assert usage_of(process.pid) is None


def test_a_process_that_ends_while_it_is_looked_at_has_no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    last = Usage(1, 0, 2.0)
    monkeypatch.setattr(processes, "_usage_of_one", lambda pid: last)
    assert usage_of(process.pid) == last


@pytest.mark.slow
def test_the_time_of_a_child_that_has_ended_is_not_lost() -> None:
    before = usage_of(os.getpid())
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    after = usage_of(os.getpid())
    assert before is not None
    assert after is not None
    assert after.cpu_s - before.cpu_s >= 0.4


def test_memory_of_java_is_told_apart(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.symlink_to(Path(sys.executable).resolve())
    with subprocess.Popen([java, "-S", "-c", f"held = b'x' * {HELD}; input()"], stdin=subprocess.PIPE) as process:
        usage = usage_when(process.pid, lambda usage: usage.memory_bytes > HELD)
        assert usage.java_bytes == usage.memory_bytes
        process.communicate(b"\n")
