"""Carries that workers keep: whatever they have lost or begun in vain, the results are those of carries sent whole."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from unittest import mock

import numpy as np
import pytest

from tests.job.logs import EPOCH, outputs_of_one_step, prepared
from tests.profiles import scaled
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.job.runtime import carries
from tidegate.job.runtime.batch import RangeResult, Task
from tidegate.job.runtime.carries import Broadcast, CarryChanges, KeptCarries, SentCarries
from tidegate.job.runtime.placement import DriverPlacement
from tidegate.job.runtime.step import Stepper, StepSettings
from tidegate.job.runtime.task import run_task
from tidegate.ordering import TICKS_PER_SECOND, Keys, Policy, SubstreamCarry, format_time, substreams

QUERY = "SELECT System.Timestamp() AS ts, k, v INTO out FROM i TIMESTAMP BY t OVER k, m"


@dataclass
class Fetched:
    """What is published, as a process has it: fetched when it is asked for first, and then the same object."""

    content: bytes

    @cached_property
    def value(self) -> object:
        return pickle.loads(self.content)


class Worker:
    """A process that does tasks."""

    def __init__(self) -> None:
        self.kept = KeptCarries()
        self.fetched: dict[int, Fetched] = {}

    def published(self, published: Mapping[int, Broadcast]) -> dict[int, Broadcast]:
        for number, one in published.items():
            assert isinstance(one, Fetched)
            self.fetched.setdefault(number, Fetched(one.content))
        return {number: self.fetched[number] for number in published}


class Workers(DriverPlacement):
    """Tasks are run by processes that are restarted now and then, and whose work is lost now and then."""

    def __init__(self, policy: Policy, seed: int, count: int) -> None:
        super().__init__(prepared(QUERY), policy)
        self.dice = random.Random(seed)
        self.workers = [Worker() for _ in range(count)]
        self.sent = SentCarries(lambda value: Fetched(pickle.dumps(value)), lambda published: None)

    def results(self, tasks: Sequence[Task]) -> list[RangeResult]:
        """The results, whose changes have become whole carries."""
        travelled = [pickle.loads(pickle.dumps(self.sent.sent(task))) for task in tasks]
        for task in travelled:
            if self.dice.random() < 0.3:
                # An attempt that comes to nothing, cut as another: its keys may have other codes.
                self._do(replace(task, batch_events=self.dice.randint(1, 5)))
        results = [result for task in travelled for result in pickle.loads(pickle.dumps(self._do(task)))]
        self.sent.received(results, tasks)
        assert all(isinstance(result.carry, SubstreamCarry) for result in results)
        return results

    def _do(self, task: Task) -> list[RangeResult]:
        number = self.dice.randrange(len(self.workers))
        if self.dice.random() < 0.1:
            self.workers[number] = Worker()
        worker = self.workers[number]
        whole = worker.kept.task(task, worker.published(self.sent.published))
        return worker.kept.results(run_task(whole, self.program, self.policy), task, whole)


def many_substreams(dice: random.Random) -> RecordedLog:
    """Events of two partitions and many devices, the later the more of them, somewhat out of order."""
    clock, events = EPOCH, []
    for number in range(240):
        clock += dice.choice([0, 1, TICKS_PER_SECOND])
        time = format_time(clock - dice.randint(0, 4) * TICKS_PER_SECOND)
        body = {"t": time, "k": f"device {dice.randrange(5 + number // 8)}", "m": dice.randrange(3), "v": number}
        events.append(RecordedEvent(dice.choice("01"), clock, json.dumps(body).encode()))
    return RecordedLog(events)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(12)))
def test_what_workers_keep_changes_nothing(seed: int) -> None:
    dice = random.Random(seed)
    log, program = many_substreams(dice), prepared(QUERY)
    policy = Policy.seconds(late=dice.choice([2, 10, 1_000]), out_of_order=dice.choice([0, 2]))
    workers = Workers(policy, seed, dice.randint(1, 3))
    small = mock.patch.multiple(carries, WHOLE_BELOW=dice.choice([1, 6]), _MOST_CHANGES=dice.choice([4, 64]))
    with small, mock.patch.object(substreams, "FORGET_FROM", dice.choice([8, 10_000])):
        most, batch = dice.randint(4, 30), dice.randint(2, 9)
        stepper = Stepper(program, policy, {"i": log}, workers, settings=StepSettings(most, batch))
        got = b""
        while not (step := stepper.step()).complete:
            got += b"".join(rows.to_json_lines() for rows in step.rows)
        got += b"".join(rows.to_json_lines() for rows in step.rows)
    assert got == outputs_of_one_step(program, policy, {"i": log})["out"]
    # What nobody refers to any more is withdrawn.
    assert len(workers.sent.published) <= 2 * (2 + 64)


def carry_of(times: dict[str, int], arrival: int = 0) -> SubstreamCarry:
    carry = SubstreamCarry(arrival=arrival)
    carry.keys.codes(Keys.of([key.encode() for key in times]))
    return replace(carry, max_times=np.array(list(times.values()), dtype=np.int64))


def test_changes_are_small_and_lead_to_the_next_version() -> None:
    before = carry_of({f"device-{number}": number for number in range(100_000)})
    after = pickle.loads(pickle.dumps(before)).advance(7)
    after.keys.codes(Keys.of([b"device-100000"]))
    after = replace(after, max_times=np.array([number + (number == 70_000) for number in range(100_001)]))
    changes = CarryChanges.between(before, after)
    assert changes is not None
    assert len(pickle.dumps(changes)) < 2_000
    next_one = pickle.loads(pickle.dumps(changes)).apply(before)
    assert next_one.max_times.tolist() == after.max_times.tolist()
    assert next_one.keys.keys().to_list() == after.keys.keys().to_list()
    assert next_one.arrival == 7
    assert before.max_times.tolist() == list(range(100_000))


def test_forgotten_substreams_are_no_change_of_others() -> None:
    before = carry_of({"a": 1, "b": 200})
    assert CarryChanges.between(before, replace(before, arrival=200).forget(Policy(late_ticks=10))) is None
