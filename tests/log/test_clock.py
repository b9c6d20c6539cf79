"""The clock goes forward, and its arrival lower bounds outlive the process."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.log.support import SetClock
from tests.patience import eventually
from tidegate.durable_files import DirectoryLocked, FileDamaged
from tidegate.log import LogClock


def open_clock(path: Any, wall: SetClock, lease_ms: int = 1000) -> LogClock:
    return LogClock(path, wall_ms=wall.now_ms, lease_ms=lease_ms)


def crash(path: Path, elsewhere: Path) -> Path:
    """What a kill would leave of the clock's file."""
    elsewhere.mkdir()
    shutil.copy(path, elsewhere / path.name)
    return elsewhere / path.name


def test_it_follows_the_machine_and_never_goes_back(tmp_path: Path) -> None:
    wall = SetClock(5000)
    clock = open_clock(tmp_path / "clock", wall)
    assert clock.now_ms() == 5000
    wall.time_ms = 4000
    assert clock.now_ms() == 5000
    wall.time_ms = 6000
    assert clock.now_ms() == 6000
    clock.close()


def test_the_arrival_lower_bound_is_now_while_the_lease_lasts_and_its_end_after(tmp_path: Path) -> None:
    wall = SetClock(5000)
    clock = open_clock(tmp_path / "clock", wall)
    wall.time_ms = 5400
    assert clock.arrival_lower_bound_ms() == 5400
    wall.time_ms = 90_000
    assert clock.arrival_lower_bound_ms() == 6000
    eventually(lambda: clock.arrival_lower_bound_ms() == 90_000)  # it is renewed behind the scenes
    clock.close()


@pytest.mark.parametrize("set_back_ms", [0, 400, 10_000_000])
def test_the_arrival_lower_bound_holds_after_a_crash_with_the_clock_set_back(tmp_path: Path, set_back_ms: Any) -> None:
    wall = SetClock(20_000_000)
    clock = open_clock(tmp_path / "clock", wall)
    wall.time_ms += 300
    bound_ms = clock.arrival_lower_bound_ms()
    left = crash(tmp_path / "clock", tmp_path / "after")
    clock.close()
    wall.time_ms -= set_back_ms
    again = open_clock(left, wall)
    assert again.now_ms() >= bound_ms
    assert again.arrival_lower_bound_ms() >= bound_ms
    again.close()


def test_a_machine_set_back_is_told_once_and_again_when_it_happens_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wall = SetClock(10_000_000)
    open_clock(tmp_path / "clock", wall).close()
    wall.time_ms -= 3_600_000
    clock = open_clock(tmp_path / "clock", wall)
    assert "clock is 3600 s behind" in caplog.text
    clock.renew()
    assert len(caplog.records) == 1
    wall.time_ms = 20_000_000
    clock.renew()
    wall.time_ms -= 59_000
    clock.renew()
    assert len(caplog.records) == 1, "a second or two are every machine's"
    wall.time_ms -= 59_000
    clock.renew()
    assert len(caplog.records) == 2
    wall.time_ms = 30_000_000
    clock.now_ms()
    wall.time_ms -= 3_600_000
    assert clock.now_ms() == clock.now_ms() == 30_000_000
    assert len(caplog.records) == 3, "also where events are stamped and nobody asks for lower bounds"
    clock.close()


def test_a_clean_end_gives_back_the_rest_of_the_lease(tmp_path: Path) -> None:
    wall = SetClock(5000)
    clock = open_clock(tmp_path / "clock", wall, lease_ms=60_000)
    clock.arrival_lower_bound_ms()
    clock.close()
    assert clock.arrival_lower_bound_ms() <= 5000, "after closing the bound no longer rises"
    again = open_clock(tmp_path / "clock", wall)
    assert again.now_ms() == 5000
    again.close()


@pytest.mark.parametrize("damage", [b"", b"x", bytes(12), b"longer than it should be"])
def test_a_damaged_lease_is_refused_with_advice(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "clock"
    path.write_bytes(damage)
    for _ in range(2):  # and the directory is free again
        with pytest.raises(FileDamaged, match=r"clock is damaged: .* delete it if the machine's clock is right"):
            open_clock(path, SetClock(5000))
    path.unlink()
    open_clock(path, SetClock(5000)).close()


def test_while_the_lease_cannot_be_renewed_the_bound_stays_and_time_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wall = SetClock(5000)
    directory = tmp_path / "data"
    directory.mkdir()
    clock = open_clock(directory / "clock", wall, lease_ms=40)
    shutil.move(directory, tmp_path / "gone")
    wall.time_ms = 99_000
    assert clock.arrival_lower_bound_ms() == 5040
    eventually(lambda: "cannot be renewed" in caplog.text)
    assert clock.arrival_lower_bound_ms() == 5040
    assert clock.now_ms() == 99_000
    shutil.move(tmp_path / "gone", directory)
    eventually(lambda: clock.arrival_lower_bound_ms() == 99_000)
    clock.close()


def test_two_processes_cannot_have_one_clock(tmp_path: Path) -> None:
    clock = open_clock(tmp_path / "clock", SetClock())
    with pytest.raises(DirectoryLocked):
        open_clock(tmp_path / "clock", SetClock())
    clock.close()
    open_clock(tmp_path / "clock", SetClock()).close()
