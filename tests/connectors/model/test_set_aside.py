"""Events that no process touches: what is recorded of them, and what readers of a log get in their place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.job.logs import prepared
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.set_aside import FILE, SetAside, read_set_aside, without, write_set_aside
from tidegate.engine import Problem, TaskSide

LOG = RecordedLog([RecordedEvent("0", place, b"{broken" if place == 4 else b'{"v":%d}' % place) for place in range(8)])


def aside(*numbers: int, input_name: str = "i", log_id: str | None = None) -> list[SetAside]:
    return [SetAside(input_name, "0", number, log_id, "it ends the process (SIGKILL)") for number in numbers]


@pytest.mark.parametrize("batch_events", [1, 3, 100])
def test_an_event_that_was_set_aside_is_rejected_and_the_others_are_decoded(batch_events: int) -> None:
    log = without(aside(0, 2, 5, 6), LOG, "i")
    engine = TaskSide(prepared("SELECT v INTO out FROM i"))
    values, problems = [], []
    for events in log.range("0", 0, 8).read_events(batch_events):
        # What is taken in parts has the same places.
        for part in (events.part(0, 1), events.part(1, len(events.bodies))):
            if len(part.bodies):
                decoded = engine.decode("i", "0", part).decoded
                values += part.sequence_numbers[decoded.events].tolist()
                numbers = part.sequence_numbers[decoded.rejected_events].tolist()
                problems += list(zip(numbers, decoded.rejected_problems.tolist(), strict=True))
    assert values == [1, 3, 7]
    assert problems == [(number, Problem.MALFORMED if number == 4 else Problem.SET_ASIDE) for number in (0, 2, 4, 5, 6)]


def test_another_input_and_another_log_have_other_events() -> None:
    for others in (aside(2, input_name="j"), aside(2, log_id="another")):
        (events,) = without(others, LOG, "i").range("0", 0, 8).read_events(100)
        assert events.set_aside == ()


def test_events_are_added_to_those_recorded(tmp_path: Path) -> None:
    assert read_set_aside(None) == read_set_aside(tmp_path) == []
    write_set_aside(tmp_path, aside(2))
    write_set_aside(tmp_path, aside(1, 2))
    assert read_set_aside(tmp_path) == aside(2, 1)
    assert read_set_aside(tmp_path)[0] == replace(aside(1)[0], sequence_number=2)


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    write_set_aside(tmp_path, aside(2))
    content = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(content.replace("SIGKILL", "SIGSEGV"))
    with pytest.raises(JobError, match="is damaged"):
        read_set_aside(tmp_path)
