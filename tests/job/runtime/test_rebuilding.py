"""Shards that were lost are computed again alone, and a run that continues with them gives the same bytes."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.job.equality import QUERIES, _cuts, _log, _policy
from tests.job.logs import EPOCH, RevealedLog, outputs_of_one_step, prepared
from tests.job.random_queries import KEYS, random_query
from tests.job.runtime.test_shards import CHAIN
from tests.job.sharded import ShardsHere
from tests.profiles import scaled
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.connectors.model.events import PartitionEnd
from tidegate.engine import ResultRows
from tidegate.job.runtime.placement import ShardName, StateLost
from tidegate.job.runtime.rebuilding import Follower, with_those_below
from tidegate.job.runtime.sealing import SealUnusable
from tidegate.job.runtime.seals import Seals, fingerprint_of
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.ordering import END_OF_TIME, TICKS_PER_SECOND, Policy, format_time


class Run:
    """A run over a growing log that seals its state now and then, and loses some of its shards."""

    def __init__(self, seed: int, folder: Path, sql: str | None = None) -> None:
        dice = self.dice = random.Random(seed)
        self.sql = sql or (random_query(dice) if dice.random() < 0.5 else dice.choice([*QUERIES, CHAIN]))
        self.program, self.policy, keys = prepared(self.sql), _policy(dice), dice.choice(KEYS)
        self.logs = {name: _log(dice, keys) for name in self.program.input_names}
        self.shards = dice.randint(1, 4)
        self.placement = ShardsHere(self.program, self.policy, self.shards, seed)
        self.found: dict[str, bytes] = {}
        self.folder = folder
        self.rebuilt = self.from_seal = 0

    def outputs(self) -> dict[str, bytes]:
        dice, cuts = self.dice, _cuts(self.dice)
        revealed: dict[str, Any] = {name: RevealedLog(log) for name, log in self.logs.items()}
        settings = StepSettings(cuts.max_events_per_step, cuts.batch_events, cuts.parallelism)
        self.seals = Seals(self.folder, fingerprint_of("q", {}), revealed, self.policy)
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
                if dice.random() < 0.2:
                    self.seals.write(stepper, self.placement)
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
        with suppress(SealUnusable):
            self.seals.resume(follower.stepper, part, self.program)
            self.from_seal += 1
        while not follower.step().caught_up:
            pass
        part.adopt()
        self.rebuilt += 1
        assert self.placement.lost() == frozenset()


@pytest.mark.slow
@pytest.mark.parametrize("sql", [None, CHAIN], ids=["any query", "two levels"])
def test_a_run_whose_lost_shards_are_computed_again_gives_the_same_bytes(tmp_path: Path, sql: str | None) -> None:
    # The third is the first that reads two levels from a seal.
    rebuilt, from_seal, seeds = 0, 0, max(3, scaled(3))
    for seed in range(seeds):
        run = Run(seed, tmp_path / str(seed), sql)
        whole = outputs_of_one_step(run.program, run.policy, run.logs)
        assert run.outputs() == whole, f"seed {seed}: {run.sql}"
        rebuilt, from_seal = rebuilt + run.rebuilt, from_seal + run.from_seal
    assert rebuilt > seeds
    assert 0 < from_seal < rebuilt


def test_a_lost_shard_needs_those_of_lower_levels_and_no_other_of_its_own() -> None:
    lost: list[ShardName] = [(0, 2)]
    assert with_those_below(lost, 3) == {(0, 2)}
    assert with_those_below([(1, 1), (0, 1)], 3) == {(0, 0), (0, 1), (0, 2), (1, 1)}


class GrowingLog(RevealedLog):
    """A log whose second partition appears later."""

    is_grown = False

    def ends(self) -> dict[str, PartitionEnd]:
        ends = super().ends()
        return ends if self.is_grown else {"0": ends["0"]}


def rebuild(stepper: Stepper, placement: ShardsHere, logs: dict[str, Any]) -> None:
    """Take a step that finds shards lost, and compute these again."""
    with pytest.raises(StateLost) as lost:
        stepper.step()
    part = placement.rebuilding(lost.value.shards)
    assert part is not None
    assert Follower(stepper, part, logs, StepSettings()).step().caught_up
    part.adopt()


def outputs_of_growing_log(*, loses: bool) -> dict[str, bytes]:
    """Run in three steps; the partition appears with the second, which finds the lower shards gone."""
    program, policy = prepared(CHAIN), Policy.seconds(late=5, out_of_order=0)
    log = GrowingLog(RecordedLog([event(number, str(int(number >= 50))) for number in range(80)]))
    logs: dict[str, Any] = {"i": log}
    placement = ShardsHere(program, policy, 2, 7)
    stepper = Stepper(program, policy, logs, placement)
    found: dict[str, bytes] = {}
    for seconds in (47, 60, 90):
        log.clock, log.is_grown = EPOCH + seconds * TICKS_PER_SECOND, seconds > 47
        if loses and seconds == 60:
            placement.lose(0, 0)
            placement.lose(0, 1)
            rebuild(stepper, placement, logs)
        for rows in stepper.step().rows:
            found[rows.output] = found.get(rows.output, b"") + rows.to_json_lines()
    return found


def event(number: int, partition: str) -> RecordedEvent:
    arrival = EPOCH + number * TICKS_PER_SECOND
    body = {"t": format_time(arrival), "k": f"k{number % 7}", "v": number % 5}
    return RecordedEvent(partition, arrival, json.dumps(body).encode())


def test_a_partition_that_appears_does_not_hold_back_what_was_emitted_before() -> None:
    expected = outputs_of_growing_log(loses=False)
    assert outputs_of_growing_log(loses=True) == expected
    assert all(expected.values())


def test_a_shard_by_substream_emits_no_further_than_the_others_though_the_clock_has_gone_on() -> None:
    """The step that finds the shard gone has learnt from the clock that more is complete."""
    sql = "SELECT System.Timestamp() AS ts, k, v INTO out FROM i TIMESTAMP BY t OVER k"
    program, policy = prepared(sql), Policy.seconds(late=5, out_of_order=0)
    events = [event(number, "0") for number in range(20)]
    log = RevealedLog(RecordedLog(events))
    logs: dict[str, Any] = {"i": log}
    placement = ShardsHere(program, policy, 1, 7)
    stepper = Stepper(program, policy, logs, placement)
    log.clock = EPOCH + 20 * TICKS_PER_SECOND
    first = stepper.step()
    placement.lose(0, 0)
    log.clock = EPOCH + 23 * TICKS_PER_SECOND
    rebuild(stepper, placement, logs)
    second = stepper.step()
    log.complete = True
    assert [step.result_count for step in (first, second, stepper.step())] == [15, 3, 2]
