"""What retention took from a resumed job: an error where events were never read, a warning where it may matter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.job.logs import EPOCH, prepared
from tidegate.job.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.job.model.errors import InputError
from tidegate.job.model.events import PartitionEnd
from tidegate.job.run.history import check_history
from tidegate.job.run.journal import Commit
from tidegate.ordering import NO_TIME, TICKS_PER_SECOND, Policy

POLICY = Policy.seconds(early=300, late=5)
PROGRAM = prepared("SELECT COUNT(*) AS n INTO out FROM i TIMESTAMP BY t GROUP BY TumblingWindow(second, 60)")


class ShortenedLog(RecordedLog):
    """An event a minute, of which retention has taken the first."""

    def __init__(self, gone: int) -> None:
        super().__init__([RecordedEvent("0", EPOCH + n * 60 * TICKS_PER_SECOND, b"{}") for n in range(20)])
        self._gone = gone

    def ends(self) -> dict[str, PartitionEnd]:
        return {partition: replace(end, begin=self._gone) for partition, end in super().ends().items()}


def commit_at(minutes: float, read: int) -> Commit:
    return Commit("j", "q", EPOCH + round(minutes * 60 * TICKS_PER_SECOND), positions={"i": {"0": read}})


def warnings(gone: int, commit: Commit, *, accept_missing: bool = False) -> list[str]:
    return check_history({"i": ShortenedLog(gone)}, commit, PROGRAM, POLICY, accept_missing=accept_missing)


def test_a_whole_log_is_no_matter() -> None:
    assert warnings(0, commit_at(10, 12)) == []


def test_what_is_older_than_the_read_back_is_not_missed() -> None:
    # Results from minute 10 on look back one minute and the five of the early rule: to minute 4.
    assert warnings(3, commit_at(10, 12)) == []
    assert warnings(4, commit_at(10, 12)) != []


def test_what_may_be_missed_is_a_warning_with_its_place() -> None:
    (warning,) = warnings(8, commit_at(10, 12))
    assert "input i, partition 0: the log begins with event 8" in warning
    assert "from 2026-01-01T00:04:00" in warning


def test_what_was_never_read_ends_the_job_unless_that_is_accepted() -> None:
    with pytest.raises(InputError, match=r"events 12 to 14 were removed before this job read them.*--accept-missing"):
        warnings(15, commit_at(10, 12))
    (warning,) = warnings(15, commit_at(10, 12), accept_missing=True)
    assert "events 12 to 14 were removed" in warning


def test_a_job_that_begins_takes_the_log_as_it_is() -> None:
    assert warnings(15, Commit("j", "q", NO_TIME)) == []


def test_a_partition_that_is_empty_by_now_is_no_matter() -> None:
    assert warnings(20, commit_at(30, 20)) == []


def test_a_partition_that_the_job_has_never_read_is_said() -> None:
    log = RecordedLog([RecordedEvent(partition, EPOCH, b"{}") for partition in "01"])
    (warning,) = check_history({"i": log}, commit_at(10, 1), PROGRAM, POLICY, accept_missing=False)
    assert warning.startswith("input i, partition 1 did not exist when the job last ran")
    assert "2026-01-01T00:10:00" in warning
    assert check_history({"i": log}, Commit("j", "q", EPOCH), PROGRAM, POLICY, accept_missing=False) == []
