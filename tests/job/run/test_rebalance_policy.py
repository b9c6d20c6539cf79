"""When the shards of a run spread to executors that have none."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.job.run.test_losses import COUNTED, EARLY
from tests.job.run.test_run import FILES, QUERY, run_here, write_job
from tests.job.sharded import ShardsHere
from tidegate.engine import Program
from tidegate.job import load_job
from tidegate.job.run import run as run_module
from tidegate.job.run.opening import open_run
from tidegate.job.run.placement_policy import RebalancePolicy, RunLocation
from tidegate.job.run.run import Placements, RunHooks, RunSettings, in_this_process, run_steps
from tidegate.job.runtime.placement import Placement


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_shards_spread_once_executors_have_been_idle_for_a_while() -> None:
    clock = Clock()
    policy = RebalancePolicy(steady_s=10, clock=clock)
    found = []
    for now_s, idle in ((0, 0), (4, 1), (8, 0), (12, 1), (20, 2), (21.9, 2), (22, 3)):
        clock.now_s = now_s
        found.append(policy.is_due(lambda idle=idle: idle))
    assert found == [0, 0, 0, 0, 0, 0, 3]


def test_executors_are_counted_now_and_then() -> None:
    clock = Clock()
    counted: list[float] = []
    policy = RebalancePolicy(clock=clock)

    def idle() -> int:
        counted.append(clock.now_s)
        return 0

    for _ in range(50):
        policy.is_due(idle)
        clock.now_s += 0.1
    assert len(counted) == 3


def test_what_does_not_help_is_done_less_and_less_often() -> None:
    clock = Clock()
    policy = RebalancePolicy(steady_s=10, pause_s=60, longest_pause_s=200, clock=clock)
    rebalanced_at = []
    while clock.now_s < 1_000:
        if policy.is_due(lambda: 1):
            rebalanced_at.append(clock.now_s)
            policy.note(1)
        clock.now_s += 2
    assert rebalanced_at == [10, 70, 190, 390, 590, 790, 990]
    clock.now_s += 2
    assert not policy.is_due(lambda: 0)
    clock.now_s += 300
    assert not policy.is_due(lambda: 1)
    clock.now_s += 10
    assert policy.is_due(lambda: 1)


def test_spreading_takes_little_of_the_time() -> None:
    clock = Clock()
    policy = RebalancePolicy(steady_s=0, pause_s=60, clock=clock)
    assert policy.is_due(lambda: 1)
    policy.note(30)
    clock.now_s = 599
    assert not policy.is_due(lambda: 1)
    clock.now_s = 601
    assert policy.is_due(lambda: 1)


class Joined(ShardsHere):
    """Shards of a cluster that some executors have joined."""

    def __init__(self, program: Program, policy: object, number: int, idle: Callable[[], int]) -> None:
        super().__init__(program, policy, number, number)
        self._idle = idle

    def idle_executors(self, sealed: bool) -> int:
        return self._idle()


@pytest.mark.slow
@pytest.mark.parametrize(("query", "outputs"), [(QUERY, FILES), (COUNTED, EARLY)], ids=["plain", "early results"])
def test_a_run_that_spreads_computes_the_same_bytes_with_more_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, outputs: str
) -> None:
    ticking = itertools.count(0, 1_000_000)
    monkeypatch.setattr(run_module, "RebalancePolicy", lambda: RebalancePolicy(clock=lambda: next(ticking)))
    expected = write_job(tmp_path / "here", 600, query, outputs=outputs)
    summary = run_here(expected, 90)
    path = write_job(tmp_path / "there", 600, query, outputs=outputs)
    job = load_job(path)
    executors = 1
    placed: list[RunLocation] = []

    def joined(program: Program) -> Placement:
        nonlocal executors
        with_shards, executors = executors, executors + 1
        return Joined(program, job.policy, with_shards, lambda: min(executors, 4) - with_shards)

    places = Placements(in_this_process(job.policy).here, joined, parallelism=lambda: executors)
    with open_run(job) as opened:
        hooks = RunHooks(placed=placed.append)
        found = run_steps(opened, places, RunSettings(max_events_per_step=90), hooks)
    assert [where.location.shards for where in placed] == [1, 2, 3, 4]
    assert {where.why for where in placed[1:]} == {"an executor has joined"}
    assert found.totals == summary.totals
    for file in expected.parent.glob("*.jsonl"):
        if file.name != "log.jsonl":
            assert (path.parent / file.name).read_bytes() == file.read_bytes() != b""


class Moving(ShardsHere):
    """Shards that move to executors that have joined, or cannot."""

    def __init__(self, program: Program, policy: object, spread: Callable[[], int]) -> None:
        super().__init__(program, policy, 2, 2)
        self._spread = spread
        self.has_moved = False
        self.asked = 0

    def idle_executors(self, sealed: bool) -> int:
        return 0 if self.has_moved else 1

    def prepare_spread(self) -> bool:
        self.asked += 1
        return self.asked > 1

    def spread(self) -> int:
        assert self.asked == 2
        self.has_moved = True
        return self._spread()


def full_disk() -> int:
    raise OSError("no space left on device")


@pytest.mark.parametrize(
    ("spread", "said"),
    [
        (lambda: 1_234, "shards with 1,234 bytes of state have moved to executors that have joined"),
        (full_disk, "no shard could move to the executors that have joined: no space left on device"),
    ],
    ids=["moved", "full disk"],
)
def test_shards_that_move_with_their_states_cost_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: Callable[[], int], said: str
) -> None:
    ticking = itertools.count(0, 1_000_000)
    monkeypatch.setattr(run_module, "RebalancePolicy", lambda: RebalancePolicy(clock=lambda: next(ticking)))
    expected = write_job(tmp_path / "here", 300, QUERY, outputs=FILES)
    run_here(expected, 90)
    path = write_job(tmp_path / "there", 300, QUERY, outputs=FILES)
    job = load_job(path)
    placements: list[Moving] = []
    notices: list[str] = []
    events: list[int] = []

    def placement(program: Program) -> Placement:
        placements.append(Moving(program, job.policy, spread))
        return placements[-1]

    with open_run(job) as opened:
        hooks = RunHooks(notice=notices.append, observers=[lambda step, *others: events.append(step.events)])
        run_steps(opened, Placements(placement), RunSettings(max_events_per_step=90), hooks)
    assert sum(events) == 300
    assert [placed.has_moved for placed in placements] == [True]
    assert sum(notice.startswith(said) for notice in notices) == 1
    for file in expected.parent.glob("*.jsonl"):
        if file.name != "log.jsonl":
            assert (path.parent / file.name).read_bytes() == file.read_bytes()
