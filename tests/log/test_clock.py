"""The clock goes forward, and its promises outlive the process."""

import shutil

import pytest

from tests.log.support import SetClock
from tests.patience import eventually
from tidegate.durable_files import DirectoryLocked
from tidegate.log import LogClock


def open_clock(path, wall: SetClock, lease_ms: int = 1000) -> LogClock:
    return LogClock(path, wall_ms=wall.now_ms, lease_ms=lease_ms)


def crash(path, elsewhere):
    """What a kill would leave of the clock's file."""
    elsewhere.mkdir()
    shutil.copy(path, elsewhere / path.name)
    return elsewhere / path.name


def test_it_follows_the_machine_and_never_goes_back(tmp_path):
    wall = SetClock(5000)
    clock = open_clock(tmp_path / "clock", wall)
    assert clock.now_ms() == 5000
    wall.time_ms = 4000
    assert clock.now_ms() == 5000
    wall.time_ms = 6000
    assert clock.now_ms() == 6000
    clock.close()


def test_a_promise_is_now_while_the_lease_lasts_and_its_end_after(tmp_path):
    wall = SetClock(5000)
    clock = open_clock(tmp_path / "clock", wall)
    wall.time_ms = 5400
    assert clock.promise() == 5400
    wall.time_ms = 90_000
    assert clock.promise() == 6000
    eventually(lambda: clock.promise() == 90_000)  # it is renewed behind the scenes
    clock.close()


@pytest.mark.parametrize("set_back_ms", [0, 400, 10_000_000])
def test_a_promise_holds_after_a_crash_with_the_clock_set_back(tmp_path, set_back_ms):
    wall = SetClock(20_000_000)
    clock = open_clock(tmp_path / "clock", wall)
    wall.time_ms += 300
    promised = clock.promise()
    left = crash(tmp_path / "clock", tmp_path / "after")
    clock.close()
    wall.time_ms -= set_back_ms
    again = open_clock(left, wall)
    assert again.now_ms() >= promised
    assert again.promise() >= promised
    again.close()


def test_a_machine_set_back_is_told_once_and_again_when_it_happens_again(tmp_path, caplog):
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
    clock.close()


def test_a_clean_end_gives_back_the_rest_of_the_lease(tmp_path):
    wall = SetClock(5000)
    clock = open_clock(tmp_path / "clock", wall, lease_ms=60_000)
    clock.promise()
    clock.close()
    assert clock.promise() <= 5000, "after the end nothing more is promised"
    again = open_clock(tmp_path / "clock", wall)
    assert again.now_ms() == 5000
    again.close()


@pytest.mark.parametrize("damage", [b"", b"x", bytes(12), b"longer than it should be"])
def test_a_damaged_file_is_reported_and_the_machine_believed(tmp_path, caplog, damage):
    path = tmp_path / "clock"
    path.write_bytes(damage)
    clock = open_clock(path, SetClock(5000))
    assert clock.now_ms() == 5000
    assert "is damaged" in caplog.text
    clock.close()


def test_while_the_lease_cannot_be_renewed_promises_stand_still_and_time_does_not(tmp_path, caplog):
    wall = SetClock(5000)
    directory = tmp_path / "data"
    directory.mkdir()
    clock = open_clock(directory / "clock", wall, lease_ms=40)
    shutil.move(directory, tmp_path / "gone")
    wall.time_ms = 99_000
    assert clock.promise() == 5040
    eventually(lambda: "cannot be renewed" in caplog.text)
    assert clock.promise() == 5040
    assert clock.now_ms() == 99_000
    shutil.move(tmp_path / "gone", directory)
    eventually(lambda: clock.promise() == 99_000)
    clock.close()


def test_two_processes_cannot_have_one_clock(tmp_path):
    clock = open_clock(tmp_path / "clock", SetClock())
    with pytest.raises(DirectoryLocked):
        open_clock(tmp_path / "clock", SetClock())
    clock.close()
    open_clock(tmp_path / "clock", SetClock()).close()
