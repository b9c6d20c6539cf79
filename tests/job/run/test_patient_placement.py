"""A step is taken again while an input is unavailable, and nothing else is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.job.run.test_deaths import task
from tidegate.connectors.model.errors import InputError, InputUnavailableError, UnavailableError
from tidegate.connectors.model.retry_policy import RetryPolicy
from tidegate.job.run.deaths import FILE, Deaths
from tidegate.job.run.patient_placement import PatientPlacement
from tidegate.job.runtime.emission import StepOrder
from tidegate.job.runtime.placement import Outcome, Placement
from tidegate.job.runtime.task import Task

ORDER = cast(StepOrder, object())
OUTCOME = cast(Outcome, object())


class Failing:
    """A placement that fails in some ways, one after the other, before it takes the step."""

    def __init__(self, folder: Path, *errors: Exception) -> None:
        self.file = folder / FILE
        self.errors = list(errors)
        self.in_step: list[bytes] = []

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        self.in_step.append(self.file.read_bytes())
        if self.errors:
            raise self.errors.pop(0)
        return OUTCOME


@pytest.fixture
def pauses() -> list[float]:
    return []


def patient(folder: Path, pauses: list[float], failing: Failing) -> PatientPlacement:
    reading = RetryPolicy(60, sleep=pauses.append, monotonic_s=lambda: sum(pauses))
    return PatientPlacement(cast(Placement, failing), reading, Deaths(folder))


def test_a_step_is_taken_again_while_an_input_is_unavailable(tmp_path: Path, pauses: list[float]) -> None:
    failing = Failing(tmp_path, *[InputUnavailableError("the hub does not answer")] * 3)
    assert patient(tmp_path, pauses, failing).run(task(0, 5), ORDER) is OUTCOME
    assert len(pauses) == 3
    # Each attempt was noted for a process that follows, and the file says nothing any more.
    assert all(b'["i","0",0,5]' in one for one in failing.in_step)
    assert not Deaths(tmp_path).suspects


def test_what_fails_other_than_an_input_is_not_waited_for(tmp_path: Path, pauses: list[float]) -> None:
    stopped = UnavailableError("Spark has stopped")
    with pytest.raises(UnavailableError, match="Spark has stopped"):
        patient(tmp_path, pauses, Failing(tmp_path, stopped)).run(task(0, 5), ORDER)
    assert not pauses


def test_an_input_that_stays_away_is_given_up_by_name(tmp_path: Path, pauses: list[float]) -> None:
    failing = Failing(tmp_path, *[InputUnavailableError("the hub does not answer")] * 1000)
    with pytest.raises(InputError, match=r"input 'i' has been unavailable for .*: the hub does not answer"):
        patient(tmp_path, pauses, failing).run(task(0, 5), ORDER)
    assert 30 < sum(pauses) <= 60
