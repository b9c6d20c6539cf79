"""All partitions of an input as one timeline, in the order in which their events were enqueued."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from tests.job import logs as any_logs
from tests.job.estimates import with_ticks
from tests.job.logs import EPOCH, Cuts, TravellingTasks, outputs_in_cuts, outputs_of_one_step, prepared
from tests.job.runtime.test_step import QUERIES
from tests.job.test_substreams import QUERIES as BY_SUBSTREAM
from tests.job.test_substreams import some
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.connectors.inputs.ticks import Ticks
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.ordering import TICKS_PER_SECOND, Policy

CHOSEN = {
    **{f"{name}": QUERIES[name] for name in ("projection", "arrival", "tumbling", "session", "steps")},
    **{f"{name} by substream": BY_SUBSTREAM[name] for name in ("projection", "sliding", "partitions", "steps")},
}


@pytest.mark.parametrize("name", CHOSEN)
@some(6)
@given(log=any_logs.logs(), policy=any_logs.policies, cuts=any_logs.cuts)
def test_cuts_restarts_and_tasks_change_nothing(name: str, log: RecordedLog, policy: Policy, cuts: Cuts) -> None:
    program, policy = prepared(CHOSEN[name]), replace(policy, merged=True)
    assert outputs_in_cuts(program, policy, {"i": log}, cuts) == outputs_of_one_step(program, policy, {"i": log})


def test_small_steps_come_past_a_tick_far_beyond_the_arrivals() -> None:
    log = RecordedLog(
        RecordedEvent(partition, EPOCH + second * TICKS_PER_SECOND, b'{"n":%d}' % second)
        for second in range(20)
        for partition in "01"
    )
    ticks = Ticks()
    ticks.tick("i", "0", 7, EPOCH + 100 * TICKS_PER_SECOND)
    program, policy = prepared("SELECT n, System.Timestamp() AS ts INTO out FROM i"), Policy.seconds(merged=True)
    logs = with_ticks({"i": log}, ticks)
    whole = Stepper(program, policy, logs, TravellingTasks(program, policy)).step()
    stepper = Stepper(program, policy, logs, TravellingTasks(program, policy), settings=StepSettings(3))
    steps = [stepper.step() for _ in range(40)]
    assert steps[-1].complete
    assert b"".join(rows.to_json_lines() for step in steps for rows in step.rows) == whole.rows[0].to_json_lines()
