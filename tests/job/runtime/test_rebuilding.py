"""Shards that were lost are computed again alone, and a run that continues with them gives the same bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.job.equality import QUERIES, _cuts, _log, _policy
from tests.job.logs import RevealedLog, outputs_of_one_step, prepared
from tests.job.random_queries import KEYS, random_query
from tests.job.runtime.test_shards import CHAIN
from tests.job.sharded import ShardsHere
from tests.profiles import scaled
from tidegate.engine import ResultRows
from tidegate.job.runtime.placement import ShardName, StateLost
from tidegate.job.runtime.rebuilding import Follower, can_follow, with_those_below
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.ordering import END_OF_TIME


class Run:
    """A run over a growing log that loses some of its shards now and then."""

    def __init__(self, seed: int, sql: str | None = None) -> None:
        dice = self.dice = random.Random(seed)
        self.sql = sql or (random_query(dice) if dice.random() < 0.5 else dice.choice([*QUERIES, CHAIN]))
        self.program, self.policy, keys = prepared(self.sql), _policy(dice), dice.choice(KEYS)
        while not can_follow(self.program, self.policy):
            self.sql = random_query(dice) if dice.random() < 0.5 else dice.choice(QUERIES)
            self.program, self.policy = prepared(self.sql), _policy(dice)
        self.logs = {name: _log(dice, keys) for name in self.program.input_names}
        self.shards = dice.randint(1, 4)
        self.placement = ShardsHere(self.program, self.policy, self.shards, seed)
        self.found: dict[str, bytes] = {}
        self.rebuilt = 0

    def outputs(self) -> dict[str, bytes]:
        dice, cuts = self.dice, _cuts(self.dice)
        revealed: dict[str, Any] = {name: RevealedLog(log) for name, log in self.logs.items()}
        settings = StepSettings(cuts.max_events_per_step, cuts.batch_events, cuts.parallelism)
        stepper = Stepper(self.program, self.policy, revealed, self.placement, settings=settings)
        for clock in [*sorted(cuts.clocks), None]:
            for log in revealed.values():
                log.clock, log.complete = clock or END_OF_TIME - 1, clock is None
            caught_up = False
            while not caught_up:
                if dice.random() < 0.15:
                    stepper = self.begin_again(stepper, revealed, settings)
                if dice.random() < 0.4:
                    self.lose()
                try:
                    step = stepper.step()
                except StateLost as lost:
                    self.rebuild(stepper, revealed, lost)
                    continue
                caught_up = step.caught_up
                self.add(step.rows)
        return self.found

    def add(self, emitted: list[ResultRows]) -> None:
        for rows in emitted:
            self.found[rows.output] = self.found.get(rows.output, b"") + rows.to_json_lines()

    def begin_again(self, before: Stepper, logs: dict[str, Any], settings: StepSettings) -> Stepper:
        """Begin again from the progress, and lose shards about where the run before was: nothing may have left yet."""
        self.placement = ShardsHere(self.program, self.policy, self.shards, self.dice.getrandbits(32))
        stepper = Stepper(self.program, self.policy, logs, self.placement, before.progress, settings=settings)
        is_back, longest = False, self.dice.randint(1, 9)
        for _ in range(longest):
            if is_back:
                break
            self.add(stepper.step().rows)
            is_back = all(stepper.positions[at] >= position for at, position in before.positions.items())
        self.lose()
        return stepper

    def lose(self) -> None:
        names = [tuple(map(int, name.split("-"))) for name in self.placement._names()]
        for level, shard in self.dice.sample(names, self.dice.randint(1, max(1, len(names) // 2))):
            self.placement.lose(level, shard)

    def rebuild(self, stepper: Stepper, logs: dict[str, Any], lost: StateLost) -> None:
        settings = StepSettings(self.dice.randint(1, 30), self.dice.randint(1, 9), self.dice.randint(1, 3))
        part = self.placement.rebuilding(lost.shards)
        assert part is not None
        follower = Follower(stepper, part, logs, settings)
        while not follower.step().caught_up:
            pass
        part.adopt()
        self.rebuilt += 1
        assert self.placement.lost() == frozenset()


@pytest.mark.slow
@pytest.mark.parametrize("sql", [None, CHAIN], ids=["any query", "two levels"])
def test_a_run_whose_lost_shards_are_computed_again_gives_the_same_bytes(sql: str | None) -> None:
    rebuilt, seeds = 0, scaled(6)
    for seed in range(seeds):
        run = Run(seed, sql)
        whole = outputs_of_one_step(run.program, run.policy, run.logs)
        assert run.outputs() == whole, f"seed {seed}: {run.sql}"
        rebuilt += run.rebuilt
    assert rebuilt > seeds


def test_a_lost_shard_needs_those_of_lower_levels_and_no_other_of_its_own() -> None:
    lost: list[ShardName] = [(0, 2)]
    assert with_those_below(lost, 3) == {(0, 2)}
    assert with_those_below([(1, 1), (0, 1)], 3) == {(0, 0), (0, 1), (0, 2), (1, 1)}
