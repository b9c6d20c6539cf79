"""Equality: whatever a job gives, a query over history gives, however it is cut into parcels, turns and shards.

`make soak` tries more random logs; a failure names its seed.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from tests.job.equality import EPOCH
from tests.job.logs import prepared
from tests.profiles import scaled
from tests.spark.queries.history_here import check_a_random_history, rows_of_history, rows_of_job
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.connectors.model.events import InputLog
from tidegate.job.testing.case import prepared_case, read_case
from tidegate.ordering import TICKS_PER_SECOND, Policy
from tidegate.spark.queries.shard_side import ShardRun

LOGS = scaled(30)
ONE_SEED = os.environ.get("TIDEGATE_EQUALITY_SEED")
CASES = sorted((Path(__file__).parents[2] / "cases").glob("*.json"))
SEEDS = range(LOGS) if ONE_SEED is None else [int(ONE_SEED)]


@pytest.mark.slow
def test_history_gives_what_a_job_gives() -> None:
    for seed in SEEDS:
        check_a_random_history(seed)


def backlog(count: int, partitions: int = 3) -> RecordedLog:
    return RecordedLog(
        RecordedEvent(str(number % partitions), EPOCH + number * TICKS_PER_SECOND, b'{"k": "a", "v": %d}' % number)
        for number in range(count)
    )


WINDOWS = "SELECT k, COUNT(*) AS n INTO result FROM input GROUP BY k, TumblingWindow(second, 10)"


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
def test_a_shard_holds_what_the_watermark_has_not_passed_and_not_the_history(shards: int) -> None:
    program, policy = prepared(WINDOWS), Policy()

    def largest_state(count: int) -> int:
        sizes: list[int] = []

        def watch(run: ShardRun) -> None:
            sizes.append(len(pickle.dumps(run.state)))

        logs: dict[str, InputLog] = {"input": backlog(count)}
        found = rows_of_history(program, policy, logs, shards=shards, parcel_events=10, batch_events=10, watch=watch)
        assert found == rows_of_job(program, policy, logs)
        return max(sizes)

    assert largest_state(1500) <= largest_state(300) * 1.1


@pytest.mark.slow
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_history_gives_what_a_job_gives_for_every_case(path: Path) -> None:
    case = read_case(path)
    program, logs = prepared_case(case)
    policy = case.event_ordering()
    assert rows_of_history(program, policy, logs) == rows_of_job(program, policy, logs)


def test_a_partition_without_events_that_matter_holds_nothing_back() -> None:
    program, policy = prepared(WINDOWS), Policy()
    logs: dict[str, InputLog] = {"input": backlog(30)}
    late = EPOCH + 10_000 * TICKS_PER_SECOND
    assert rows_of_history(program, policy, logs, start=late) == {}
    assert rows_of_history(program, policy, {"input": RecordedLog([])}) == {}
