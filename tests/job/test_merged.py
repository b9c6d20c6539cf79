"""All partitions of an input as one timeline, in the order in which their events were enqueued."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from tests.job import logs as any_logs
from tests.job.logs import Cuts, outputs_in_cuts, outputs_of_one_step, prepared
from tests.job.test_step import QUERIES
from tests.job.test_substreams import QUERIES as BY_SUBSTREAM
from tests.job.test_substreams import some
from tidegate.job.inputs.recorded import RecordedLog
from tidegate.ordering import Policy

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
