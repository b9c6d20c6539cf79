"""What differs between operating systems, with the other one simulated: what Windows lacks is taken away."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tidegate.cli import processes

pytestmark = pytest.mark.slow

WITHOUT_POSIX = """
import asyncio, fcntl, os, signal, socket, sys, types


def locking(fd, mode, size):
    fcntl.lockf(fd, mode, size)


sys.modules["msvcrt"] = types.SimpleNamespace(
    locking=locking, LK_NBLCK=fcntl.LOCK_EX | fcntl.LOCK_NB, LK_LOCK=fcntl.LOCK_EX, LK_UNLCK=fcntl.LOCK_UN
)
for name in ("resource", "fcntl", "termios", "pwd", "grp"):
    sys.modules[name] = None  # importing it raises ModuleNotFoundError
for module, names in (
    (os, ("fork", "fdatasync", "pread", "pwrite", "preadv", "pwritev", "posix_fallocate", "sync", "getuid", "fchmod")),
    (signal, ("SIGKILL", "SIGHUP", "SIGUSR1", "pthread_sigmask")),
    (socket, ("SO_REUSEPORT",)),
):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


import asyncio.unix_events

del asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler  # the loops of Windows have none that works
sys.argv[0] = "tidegate"
from tidegate.cli import main

main()
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_hub_runs_and_stops_in_order_without_what_windows_lacks(tmp_path: Path, how: Any) -> None:
    command = [sys.executable, "-c", WITHOUT_POSIX, "up", "--data", str(tmp_path / "data"), "--amqp-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "Successfully Up" in line:
            break
    connection = next((line.split(": ", 1)[1].strip() for line in lines if line.startswith("Connection string")), "")
    assert connection, process.communicate(timeout=PATIENCE_S)[1]
    tidegate = [sys.executable, "-m", "tidegate"]
    subprocess.run([*tidegate, "send", connection, "--hub", "eh1"], input="a\nb\n", text=True, check=True)
    read = [*tidegate, "tail", connection, "--hub", "eh1", "--from-beginning", "--no-wait"]
    printed = subprocess.run(read, capture_output=True, text=True, check=True).stdout
    assert sorted(line.rsplit("  ", 1)[1] for line in printed.splitlines()) == ["a", "b"]
    process.send_signal(how)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, "")


def test_a_signal_wakes_a_loop_that_waits() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    async def interrupt() -> str:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        processes.on_stop_signals(loop, stopped.set)
        loop.call_later(0.05, signal.raise_signal, signal.SIGTERM)
        await asyncio.wait_for(stopped.wait(), PATIENCE_S)
        return "stopped"

    try:
        assert asyncio.run(interrupt()) == "stopped"
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_there_need_be_no_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    processes.allow_open_files(10)


def test_a_child_in_its_own_group_is_asked_to_stop() -> None:
    command = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **processes.own_group())
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    processes.ask_to_stop(child)
    assert child.wait(PATIENCE_S) != 0


def test_a_signal_that_comes_once_the_loop_has_closed_is_no_error() -> None:
    loop = asyncio.new_event_loop()
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        processes.on_stop_signals(loop, lambda: None)
        loop.close()
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
