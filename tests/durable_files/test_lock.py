"""One owner a directory, also among processes, and none after a crash."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.log.support import open_log
from tidegate.durable_files import DirectoryLock, DirectoryLocked, Files

HOLD = (
    "import sys, pathlib, time; from tidegate.durable_files import DirectoryLock; "
    "lock = DirectoryLock(pathlib.Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
)


def test_a_full_disk_does_not_prevent_the_lock_or_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Files, "write_at", fail)
    lock = DirectoryLock(tmp_path)
    with pytest.raises(DirectoryLocked, match="in use by process unknown"):
        DirectoryLock(tmp_path)
    lock.release()
    DirectoryLock(tmp_path).release()


def test_another_process_is_named_and_its_death_frees_the_directory(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(DirectoryLocked, match=f"in use by process {child.pid}"):
            DirectoryLock(tmp_path)
        child.kill()
    DirectoryLock(tmp_path).release()


def test_a_log_is_opened_once(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(DirectoryLocked, match=f"in use by process {os.getpid()}"):
        open_log(tmp_path)
    log.close()
    open_log(tmp_path).close()


def test_a_log_whose_directory_could_not_be_read_frees_it(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    (segment,) = tmp_path.glob("*.log")
    segment.unlink()
    segment.mkdir()
    with pytest.raises(Exception, match="cannot open the log"):
        open_log(tmp_path)
    segment.rmdir()
    open_log(tmp_path).close()
