"""A batch that takes too much memory is taken in parts, which changes nothing but the memory it takes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.job import equality
from tests.job.logs import prepared, runner_of
from tests.job.sharded import ShardsHere
from tests.profiles import scaled
from tidegate.connectors.model.metrics import SPLIT_GROUP
from tidegate.engine import BatchTooLarge, DecodedBatch, Partial, Program, Stamped, TaskSide
from tidegate.job.runtime.step import Stepper
from tidegate.ordering import Policy

FAILING = "SELECT k, CAST(v AS bigint) AS v, t INTO out FROM i TIMESTAMP BY t"
FAILING_OVER = (
    "SELECT k, SUM(CAST(v AS bigint)) AS s INTO out FROM i TIMESTAMP BY t OVER k GROUP BY k, TumblingWindow(s, 5)"
)


@contextmanager
def _too_large_for_most(monkeypatch: pytest.MonkeyPatch, dice: random.Random) -> Iterator[list[int]]:
    """Refuse most batches of several events, as operations do that reserve memory; count the refusals."""
    refusals = [0]

    def refuse(events: int) -> None:
        if events > 1 and dice.random() < 0.7:
            refusals[0] += 1
            raise BatchTooLarge(dice.choice([None, 1, events - 1]))

    decode, run = TaskSide.decode, TaskSide.run

    def decode_less(self: TaskSide, input_name: str, partition: str, events: Any) -> DecodedBatch:
        refuse(len(events.sequence_numbers))
        return decode(self, input_name, partition, events)

    def run_less(self: TaskSide, batch: DecodedBatch, rows: Stamped) -> Partial:
        refuse(len(set(batch.decoded.events[rows.selected].tolist())))
        return run(self, batch, rows)

    with monkeypatch.context() as patched:
        patched.setattr(TaskSide, "decode", decode_less)
        patched.setattr(TaskSide, "run", run_less)
        yield refusals


def _found(program: Program, policy: Policy, logs: dict[str, Any], shards: int | None) -> Any:
    """Return everything that a run says: rows, data errors, counts. Groups are split only within a part."""
    place = runner_of(program, policy) if shards is None else ShardsHere(program, policy, shards, 7)
    step = Stepper(program, policy, logs, place).step()
    rows = {one.output: one.to_json_lines() for one in step.rows if len(one)}
    errors = sorted((one for one in step.data_errors if one.kind != SPLIT_GROUP), key=repr)
    counts, reasons = (
        {group: count for group, count in each.items() if group[0] != SPLIT_GROUP}
        for each in (step.data_error_counts, step.reasons)
    )
    return rows, errors, counts, reasons, step.counters, step.watermark


def _check(sql: str, policy: Policy, logs: dict[str, Any], dice: random.Random, monkeypatch: pytest.MonkeyPatch) -> int:
    program = prepared(sql)
    shards = dice.choice([None, None, 3])
    whole = _found(program, policy, logs, shards)
    with _too_large_for_most(monkeypatch, dice) as refusals:
        assert _found(program, policy, logs, shards) == whole, sql
    return refusals[0]


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("queries", ["plain and by substream", "random", "failing", "failing by substream"])
def test_the_parts_of_a_batch_give_what_all_of_it_gives(
    queries: str, merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = 0
    logs_of_each = scaled(15)
    for seed in range(logs_of_each):
        dice = random.Random(f"{queries} {merged} {seed}")
        sql = {
            "random": lambda dice=dice: equality.random_query(dice),
            "failing": lambda: FAILING,
            "failing by substream": lambda: FAILING_OVER,
        }.get(queries, lambda dice=dice: dice.choice(equality.QUERIES))()
        policy = equality._policy(dice)
        policy = Policy(policy.early_ticks, policy.late_ticks, policy.out_of_order_ticks, policy.action, merged)
        logs = {name: equality._log(dice, dice.choice(equality.KEYS)) for name in prepared(sql).input_names}
        refusals += _check(sql, policy, logs, dice, monkeypatch)
    assert refusals > logs_of_each
