"""Previews of shards, on one level or several, are what one process would show."""

from __future__ import annotations

import random

import pytest

from tests.job.equality import QUERIES, _log, _policy
from tests.job.logs import TravellingTasks, prepared
from tests.job.random_queries import KEYS
from tests.job.sharded import ShardsHere
from tidegate.connectors.inputs.recorded import RecordedLog
from tidegate.engine import Program, ResultRows
from tidegate.engine.sharding.payloads import Sharding
from tidegate.job.runtime.placement import Placement
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.ordering import Policy

SEVERAL_LEVELS = [sql for sql in dict.fromkeys(QUERIES) if Sharding.of(prepared(sql).sharded(), 1).levels > 1]
CHAIN = """WITH counts AS (SELECT k, COUNT(*) AS n FROM i TIMESTAMP BY t GROUP BY k, TumblingWindow(second, 3))
SELECT System.Timestamp() AS ts, n, COUNT(*) AS keys INTO out FROM counts GROUP BY n, TumblingWindow(second, 6)"""


def shown(rows: list[ResultRows]) -> dict[str, bytes]:
    return {one.output: one.to_json_lines() for one in rows if len(one)}


Example = tuple[dict[str, RecordedLog], Policy]


def example(program: Program, seed: int) -> Example:
    dice = random.Random(seed)
    return {name: _log(dice, KEYS[0]) for name in program.input_names}, _policy(dice)


def previews(program: Program, example: Example, events: int, placement: Placement) -> list[dict[str, bytes]]:
    """What a run shows after each of its steps."""
    logs, policy = example
    stepper = Stepper(program, policy, dict(logs), placement, settings=StepSettings(events))
    found, complete = [], False
    while not complete:
        complete = stepper.step().complete
        found.append(shown(stepper.preview()))
    return found


def check(program: Program, seed: int, shards: int) -> bool:
    """Compare shards with one process, and return whether there was anything to see."""
    of_seed, events = example(program, seed), 3 + seed
    _, policy = of_seed
    here = previews(program, of_seed, events, TravellingTasks(program, policy))
    assert previews(program, of_seed, events, ShardsHere(program, policy, shards, seed)) == here
    return any(here)


@pytest.mark.slow
@pytest.mark.parametrize("sql", [CHAIN, *SEVERAL_LEVELS])
def test_levels_pass_on_what_they_would_emit(sql: str) -> None:
    program = prepared(sql)
    assert Sharding.of(program.sharded(), 1).levels > 1
    shown_at_all = [check(program, seed, 1 + seed) for seed in range(4)]
    assert any(shown_at_all)


@pytest.mark.parametrize("seed", range(12))
def test_one_level_shows_the_same(seed: int) -> None:
    check(prepared(random.Random(seed).choice(QUERIES)), seed, 3)
