"""A batch that takes too much memory is taken in parts, which changes nothing but the memory it takes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.job import equality
from tests.job.logs import TravellingTasks, prepared
from tests.job.sharded import ShardsHere
from tests.profiles import scaled
from tidegate.connectors.model.events import Events
from tidegate.connectors.model.metrics import SPLIT_GROUP
from tidegate.engine import BatchTooLarge, DecodedBatch, Partial, Program, Stamped, TaskSide
from tidegate.job.runtime.step import Stepper
from tidegate.job.runtime.task import RangeTask, Task, run_task
from tidegate.ordering import TICKS_PER_SECOND, Action, Policy, format_time

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
    place = TravellingTasks(program, policy) if shards is None else ShardsHere(program, policy, shards, 7)
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


@pytest.mark.slow
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("queries", ["plain and by substream", "random", "failing", "failing by substream"])
def test_the_parts_of_a_batch_give_what_all_of_it_gives(
    queries: str, merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = 0
    logs_of_each = scaled(10)
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


@dataclass(frozen=True)
class _Disordered:
    """A range whose arrivals may go back, as those of a table may, in batches that are cut at given places."""

    arrivals: Sequence[int]
    bodies: Sequence[bytes]
    cuts: Sequence[int]
    partition: str = "0"
    start: int = 0

    @property
    def end(self) -> int:
        return len(self.bodies)

    def read_events(self, batch_events: int) -> Iterator[Events]:
        every = Events(np.arange(self.end), np.array(self.arrivals, dtype=np.int64), self.bodies)
        for first, stop in zip([0, *self.cuts], [*self.cuts, self.end], strict=True):
            yield every.part(first, stop)


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from(["row", "no JSON", "no time"]), st.integers(0, 30)),
        min_size=1,
        max_size=12,
    ),
    st.data(),
    st.sampled_from(Action),
    st.sampled_from(["i TIMESTAMP BY t", "i TIMESTAMP BY t OVER k", "i"]),
)
def test_stamps_do_not_depend_on_where_batches_with_rejected_events_are_cut(
    events: list[tuple[int, str, int]], data: st.DataObject, action: Action, source: str
) -> None:
    program = prepared(f"SELECT k INTO out FROM {source}")
    policy = Policy(None, 3 * TICKS_PER_SECOND, 2 * TICKS_PER_SECOND, action)
    bodies = [
        {
            "row": json.dumps({"k": time % 2, "t": format_time(time * TICKS_PER_SECOND)}),
            "no JSON": "{",
            "no time": '{"k": 1}',
        }[kind].encode()
        for _, kind, time in events
    ]
    arrivals = [arrival * TICKS_PER_SECOND for arrival, _, _ in events]

    def found(cuts: Sequence[int]) -> tuple[Any, ...]:
        log_range: Any = _Disordered(arrivals, bodies, cuts)
        task = Task([RangeTask("i", "0", log_range, program.new_carry("i"), 0)], 100, trace=True)
        (result,) = run_task(task, program, policy)
        traces = [trace.stamps for trace in result.traces]
        stamps = [
            np.concatenate([getattr(one, name) for one in traces]).tolist()
            for name in ("system_timestamp", "fate", "reasons", "watermark")
        ]
        return stamps, result.carry.arrival, getattr(result.carry, "max_time", None)

    cuts = data.draw(st.lists(st.integers(1, max(1, len(events) - 1)), unique=True).map(sorted), label="cuts")
    assert found([cut for cut in cuts if cut < len(events)]) == found(range(1, len(events)))
