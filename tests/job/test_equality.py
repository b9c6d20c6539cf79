"""Equality over many logs: output = f(log, query, policy, start), with everything at once (`tests.job.equality`).

TIDEGATE_EQUALITY_SEED tries one log alone: a failure names its seed. `tests/spark/test_run.py` does the same with the
tasks on executors.
"""

from __future__ import annotations

import os

import pytest

from tests.job.equality import check
from tests.profiles import scaled

LOGS = scaled(10)
ONE_SEED = os.environ.get("TIDEGATE_EQUALITY_SEED")


@pytest.mark.slow
def test_any_cut_restart_start_and_number_of_tasks_gives_the_same() -> None:
    for seed in range(LOGS) if ONE_SEED is None else [int(ONE_SEED)]:
        check(seed)
