"""The engine against the oracle on a hundred random jobs; `python -m tests.oracle` runs as many as one likes."""

from __future__ import annotations

import dataclasses

import pytest

from tests.job.logs import TravellingTasks
from tests.oracle.differential import case_of, compared, difference
from tests.oracle.generation import job_of
from tests.oracle.semantics import Rows, evaluate
from tests.profiles import scaled
from tidegate.job.testing.case import CaseResult, case_result
from tidegate.ordering import Policy

JOBS = 240
_GROUPS = 12


@pytest.mark.parametrize("group", range(_GROUPS))
def test_the_engine_gives_what_the_rules_give(group: int) -> None:
    found = [difference(seed) for seed in range(group, scaled(JOBS // 4), _GROUPS)]
    assert not any(found), "\n\n".join(one for one in found if one)


def _both(seed: int) -> tuple[dict[str, Rows], CaseResult]:
    job = job_of(seed)
    early, late, out_of_order, action = job.policy
    policy = Policy.seconds(early=early, late=late, out_of_order=out_of_order, action=action)
    outputs, _ = evaluate(job.query, job.events, job.names, policy)
    return outputs, case_result(case_of(job), TravellingTasks)


def _seed_with_rows() -> int:
    return next(seed for seed in range(100) if len(_both(seed)[1].rows) > 3)


def test_a_row_that_is_missing_added_or_late_is_found() -> None:
    outputs, result = _both(_seed_with_rows())
    assert not compared(outputs, result)
    first, *rest = result.rows
    for rows in (rest, [first, *result.rows], [{**first, "timestamp": "2026-01-01T00:00:00.0000001Z"}, *rest]):
        assert compared(outputs, dataclasses.replace(result, rows=rows))


def test_the_jobs_combine_what_the_language_has() -> None:
    features = {feature for seed in range(JOBS) for feature in job_of(seed).features}
    wanted = {
        "tumbling",
        "hopping",
        "sliding",
        "session",
        "snapshot",
        "Windows()",
        "join",
        "left join",
        "union",
        "chain",
    }
    wanted |= {"MATCH_RECOGNIZE", "LAG OVER", "reference join", "over k", "over k, PartitionId", "policy: drop"}
    assert wanted <= features
