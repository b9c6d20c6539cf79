"""A file has its old content or the new, whole, whatever happens at whichever operation."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durable_files.simulated_disk import PowerLost, SimulatedDisk
from tidegate.durable_files import Files, make_folders, replace_file

PATH = Path("folder/state")
OPERATIONS = ("create", "write", "sync", "close", "replace", "sync_directory")


class FailsAt:
    """Raises at one operation."""

    def __init__(self, operation: str, error: BaseException) -> None:
        self._operation = operation
        self._error = error
        self.seen: list[str] = []

    def __call__(self, operation: str) -> None:
        self.seen.append(operation)
        if operation == self._operation:
            raise self._error


def test_the_operations_in_their_order() -> None:
    seen: list[str] = []
    disk = SimulatedDisk(seen.append)
    disk.put(PATH, b"old")
    replace_file(PATH, b"newer", files=disk)
    assert seen == list(OPERATIONS)
    assert set(disk.after_power_loss(PATH)) == {b"newer"}
    assert not disk.exists(PATH.with_name(".state.new"))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("old", [b"old", None])
def test_power_lost_at_any_operation(operation: str, old: bytes | None) -> None:
    disk = SimulatedDisk(FailsAt(operation, PowerLost()))
    if old is not None:
        disk.put(PATH, old)
    with pytest.raises(PowerLost):
        replace_file(PATH, b"newer", files=disk)
    assert set(disk.after_power_loss(PATH)) <= {old, b"newer"}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_that_fails_is_reported_and_the_old_content_stays(operation: str) -> None:
    disk = SimulatedDisk(FailsAt(operation, OSError(errno.EIO, "broken")))
    disk.put(PATH, b"old")
    with pytest.raises(OSError, match="broken"):
        replace_file(PATH, b"newer", files=disk)
    if operation == "sync_directory":  # it happened, and may not be durable: the caller knows neither
        assert set(disk.after_power_loss(PATH)) == {b"old", b"newer"}
        return
    assert set(disk.after_power_loss(PATH)) == {b"old"}
    assert not disk.exists(PATH.with_name(".state.new"))


def test_content_in_pieces_and_what_a_crash_left_behind(tmp_path: Path) -> None:
    (tmp_path / ".state.new").write_bytes(b"longer than what is written now")
    replace_file(tmp_path / "state", iter([b"one ", b"", b"two"]))
    assert (tmp_path / "state").read_bytes() == b"one two"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_pieces_that_break_off_leave_the_old_content(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"one"
        raise KeyboardInterrupt

    (tmp_path / "state").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        replace_file(tmp_path / "state", pieces())
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_the_mode_is_that_of_the_new_file(tmp_path: Path) -> None:
    replace_file(tmp_path / "secret", b"key", mode=0o600)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_new_folders_are_durable(tmp_path: Path) -> None:
    synced: list[Path] = []

    class Noting(Files):
        def sync_directory(self, directory: Path) -> None:
            synced.append(directory)

    make_folders(tmp_path / "a" / "b", files=Noting())
    assert synced == [tmp_path, tmp_path / "a"]
    make_folders(tmp_path / "a" / "b", files=Noting())
    assert len(synced) == 2


def test_windows_retries_while_a_reader_has_the_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, refusals = os.replace, iter([True, True, False])

    def busy(source: Path, target: Path) -> None:
        if next(refusals):
            raise PermissionError(errno.EACCES, "in use")
        real(source, target)

    path = tmp_path / "state"
    monkeypatch.setattr(os, "replace", busy)
    with pytest.raises(PermissionError):
        replace_file(path, b"on POSIX it is no such thing")
    monkeypatch.setattr("tidegate.durable_files._IS_WINDOWS", True)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
