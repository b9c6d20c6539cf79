"""What a process leaves behind that dies within a step, and what the next one makes of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.job.run.deaths import FILE, Deaths, EventRange
from tidegate.job.runtime.placement import WorkersLost
from tidegate.job.runtime.task import RangeTask, Task
from tidegate.ordering import Carry

LOG = RecordedLog([RecordedEvent("0", place, b"{}") for place in range(100)])


class _Killed(Exception):
    """Takes the place of a signal that nothing survives."""


def task(start: int, end: int) -> list[Task]:
    return [Task([RangeTask("i", "0", LOG.range("0", start, end), Carry(), 0)], 10)]


def die(folder: Path, start: int, end: int) -> None:
    """Leave what a killed process leaves."""
    with suppress(_Killed), Deaths(folder).step(task(start, end)):
        left = (folder / FILE).read_bytes()
        raise _Killed
    (folder / FILE).write_bytes(left)


def test_two_deaths_over_the_same_events_make_suspects(tmp_path: Path) -> None:
    assert not Deaths(tmp_path).suspects
    die(tmp_path, 0, 10)
    assert not Deaths(tmp_path).suspects
    # The next process reads more of the log at once.
    die(tmp_path, 5, 50)
    assert Deaths(tmp_path).suspects == [EventRange("i", "0", 5, 50)]
    # A process that dies before its first step has learnt nothing new.
    again = Deaths(tmp_path)
    assert again.suspects
    again.forget()
    again.close()
    assert not Deaths(tmp_path).suspects
    assert not (tmp_path / FILE).exists()


def test_deaths_over_different_events_make_none(tmp_path: Path) -> None:
    die(tmp_path, 0, 10)
    die(tmp_path, 10, 20)
    assert not Deaths(tmp_path).suspects


def test_events_that_a_step_has_passed_are_above_suspicion(tmp_path: Path) -> None:
    die(tmp_path, 0, 10)
    deaths = Deaths(tmp_path)
    with deaths.step(task(0, 5)):
        pass
    with deaths.step(task(5, 12)):
        pass
    die(tmp_path, 0, 12)
    assert not Deaths(tmp_path).suspects


def acquit(folder: Path) -> None:
    deaths = Deaths(folder)
    assert deaths.suspects
    deaths.acquit()
    deaths.close()


def test_events_without_a_culprit_are_taken_in_ever_smaller_steps_until_they_have_passed(tmp_path: Path) -> None:
    die(tmp_path, 0, 640)
    die(tmp_path, 0, 640)
    assert Deaths(tmp_path).most_events(1_000) == 1_000
    acquit(tmp_path)
    deaths = Deaths(tmp_path)
    assert (deaths.suspects, deaths.most_events(1_000), deaths.most_events(7)) == ([], 20, 7)
    with deaths.step(task(0, 20)):
        pass
    assert deaths.most_events(1_000) == 20
    deaths.close()
    die(tmp_path, 20, 40)
    assert (Deaths(tmp_path).suspects, Deaths(tmp_path).most_events(1_000)) == ([], 1)
    die(tmp_path, 20, 40)
    acquit(tmp_path)
    deaths = Deaths(tmp_path)
    with deaths.step(task(20, 640)):
        pass
    assert deaths.most_events(1_000) == 1_000
    deaths.close()
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("error", [MemoryError, WorkersLost])
def test_a_lack_of_memory_and_a_lost_process_of_spark_count_as_deaths(tmp_path: Path, error: type[Exception]) -> None:
    deaths = Deaths(tmp_path)
    for _ in range(2):
        with pytest.raises(error), deaths.step(task(0, 10)):
            raise error
    assert Deaths(tmp_path).suspects == [EventRange("i", "0", 0, 10)]


def test_an_error_with_a_reason_is_no_death(tmp_path: Path) -> None:
    deaths = Deaths(tmp_path)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), deaths.step(task(0, 10)):
            raise KeyboardInterrupt
    deaths.close()
    assert not (tmp_path / FILE).exists()


def test_what_cannot_be_read_is_taken_for_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'{"deaths": 2, "of"')
    assert not Deaths(tmp_path).suspects
