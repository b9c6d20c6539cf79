"""A run that loses its state or its workers computes the same bytes, and does not go on for ever without progress."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from tests.job.run.test_run import FILES, QUERY, run_here, write_job
from tests.job.sharded import RebuildingHere, ShardsHere
from tests.profiles import scaled
from tidegate.connectors.model.errors import UnavailableError
from tidegate.connectors.model.events import PartitionEnd
from tidegate.engine import Program, ResultRows
from tidegate.job import RunSummary, load_job, run_job
from tidegate.job.run import run as run_module
from tidegate.job.run.losses import Losses, RecoveryCost
from tidegate.job.run.opening import open_run
from tidegate.job.run.placement_policy import RunLocation
from tidegate.job.run.run import Placements, RunHooks, RunSettings, in_this_process, run_steps
from tidegate.job.runtime.emission import StepOrder
from tidegate.job.runtime.placement import Outcome, Placement, ShardName, StateLost, WorkersLost
from tidegate.job.runtime.step import TimelineState
from tidegate.job.runtime.task import Task
from tidegate.ordering import NO_TIME, Carry

EARLY = """
[outputs.counted]
type = "file"
path = "counted.jsonl"
[outputs.early]
type = "file"
path = "early.jsonl"
[early_results]
period_s = 7
outputs = { counted = "early" }
"""
COUNTED = QUERY[: QUERY.index("SELECT System.Timestamp() AS ts, k, v")]


class LosingOne(ShardsHere):
    """Three shards on each level, one of which is lost when a function says so; and what was computed again."""

    def __init__(self, program: Program, policy: object, fails: Callable[[], bool]) -> None:
        super().__init__(program, policy, 3, 1)
        self._fails = fails
        self.parts: list[RebuildingHere] = []

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        self._may_lose()
        return super().run(tasks, order)

    def preview(self, order: StepOrder) -> list[ResultRows]:
        self._may_lose()
        if lost := self.lost():
            raise StateLost("states are gone", lost)
        return super().preview(order)

    def _may_lose(self) -> None:
        if self._version and self._fails():
            for level in range(self._sharding.levels):
                self.lose(level, 1)

    def rebuilding(self, lost: Collection[ShardName]) -> RebuildingHere | None:
        part = super().rebuilding(lost)
        assert part is not None
        self.parts.append(part)
        return part


class Losing(ShardsHere):
    """Shards that lose their state, or the processes of a step, when a function says so."""

    def __init__(self, program: Program, policy: object, fails: Callable[[], type[Exception] | None]) -> None:
        super().__init__(program, policy, 2, 1)
        self._fails = fails
        self._is_gone = False

    def _may_fail(self) -> None:
        error = self._fails()
        self._is_gone = self._is_gone or error is StateLost
        if self._is_gone and self._version:
            raise StateLost("the state of shard 0 (level 0) is gone")
        if error is WorkersLost:
            raise WorkersLost("a Python worker died")
        if error is UnavailableError:
            raise UnavailableError("Spark has stopped")

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        self._may_fail()
        return super().run(tasks, order)

    def preview(self, order: StepOrder) -> list[ResultRows]:
        self._may_fail()
        return super().preview(order)


def run_losing(
    path: Path, fails: Callable[[], type[Exception] | None], placed: Callable[[RunLocation], None] = lambda where: None
) -> tuple[RunSummary, list[str]]:
    job = load_job(path)
    notices: list[str] = []

    def placement(program: Program) -> Placement:
        return Losing(program, job.policy, fails)

    with open_run(job) as opened:
        hooks = RunHooks(notice=notices.append, placed=placed)
        summary = run_steps(opened, Placements(placement), RunSettings(max_events_per_step=23), hooks)
    return summary, notices


RUNS = [
    pytest.param(QUERY, FILES, id="plain"),
    pytest.param(COUNTED, EARLY, id="early results", marks=pytest.mark.soak),
]


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "Losses", lambda: Losses(most=1_000, sleep=lambda seconds: None))


def at_random(seed: int) -> Callable[[], type[Exception] | None]:
    dice = random.Random(seed)
    return lambda: dice.choice([*[None] * 6, StateLost, WorkersLost])


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.jsonl") if path.name != "log.jsonl"}


@pytest.mark.slow
@pytest.mark.parametrize(("query", "outputs"), RUNS)
@pytest.mark.usefixtures("no_pauses")
def test_a_lost_state_or_worker_changes_no_byte_and_no_count(tmp_path: Path, query: str, outputs: str) -> None:
    whole = run_here(write_job(tmp_path / "whole", 400, query, outputs=outputs))
    expected = files_of(tmp_path / "whole")
    for seed in range(scaled(1)):
        folder = tmp_path / f"lost-{seed}"
        path = write_job(folder, 400, query, outputs=outputs)
        lost, notices = run_losing(path, at_random(seed))
        assert files_of(folder) == expected
        assert lost.totals == whole.totals
        assert sum("is computed again from the log" in notice for notice in notices) > 3
        assert sum("the step is taken again" in notice for notice in notices) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("query", "outputs"), RUNS)
@pytest.mark.usefixtures("no_pauses")
def test_a_lost_shard_is_computed_again_and_no_other(tmp_path: Path, query: str, outputs: str) -> None:
    whole = run_here(write_job(tmp_path / "whole", 300, query, outputs=outputs))
    path = write_job(tmp_path / "lost", 300, query, outputs=outputs)
    job, dice = load_job(path), random.Random(1)
    placements: list[LosingOne] = []

    def placement(program: Program) -> Placement:
        placements.append(LosingOne(program, job.policy, lambda: dice.random() < 0.2))
        return placements[-1]

    notices: list[str] = []
    with open_run(job) as opened:
        hooks = RunHooks(notice=notices.append)
        lost = run_steps(opened, Placements(placement), RunSettings(max_events_per_step=23), hooks)
    assert files_of(path.parent) == files_of(tmp_path / "whole")
    assert lost.totals == whole.totals
    # The run did not begin again, and of the lowest level only the lost shard did.
    (placed,) = placements
    assert len(placed.parts) > 1
    for part in placed.parts:
        is_one_level = placed._sharding.levels == 1
        assert set(part._only or ()) == ({(0, 1)} if is_one_level else {(0, 0), (0, 1), (0, 2), (1, 1)})
    assert any("were read again" in notice for notice in notices)


def test_a_state_that_is_lost_again_and_again_ends_the_run_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(run_module, "Losses", lambda: Losses(most=5, sleep=pauses.append))
    path = write_job(tmp_path, 500)
    steps = iter(range(1_000_000))
    with pytest.raises(UnavailableError, match=r"is gone; .* happened 5 times and it got no further") as raised:
        run_losing(path, lambda: StateLost if next(steps) > 3 else None)
    assert "\n" not in str(raised.value)
    assert pauses == [0.5, 1.0, 2.0]
    # What has left stays, and a later run resumes.
    run_here(path)
    run_here(write_job(tmp_path / "whole", 500))
    assert files_of(tmp_path) == files_of(tmp_path / "whole")


def test_a_spark_that_has_stopped_ends_the_run_at_once_and_is_no_input_to_wait_for(tmp_path: Path) -> None:
    path = write_job(tmp_path, 500)
    steps = iter(range(1_000_000))
    # A wait for an input lasts ten minutes; the test would be over much later.
    with pytest.raises(UnavailableError, match=r"^Spark has stopped$"):
        run_losing(path, lambda: UnavailableError if next(steps) > 3 else None)
    run_here(path)
    run_here(write_job(tmp_path / "whole", 500))
    assert files_of(tmp_path) == files_of(tmp_path / "whole")


def test_a_run_that_gets_further_between_losses_does_not_end() -> None:
    pauses: list[float] = []
    losses = Losses(most=3, sleep=pauses.append)
    for reached in range(100):
        losses.note(StateLost("gone"), (reached, 0, 7))
    assert losses.total == 100
    assert pauses == []
    losses.note(StateLost("gone"), (99, 0, 7))
    assert pauses == [0.5]
    with pytest.raises(UnavailableError):
        losses.note(StateLost("gone"), (50, 0, 7))


def test_pauses_grow_up_to_a_limit() -> None:
    pauses: list[float] = []
    losses = Losses(most=12, sleep=pauses.append)
    for _ in range(11):
        losses.note(StateLost("gone"), (0,))
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30]


def test_what_a_lost_state_costs_is_said_when_the_run_is_where_it_was(tmp_path: Path) -> None:
    steps = iter(range(1_000_000))
    path = write_job(tmp_path, 200, ordering="late_arrival_tolerance_s = 4\nearly_arrival_tolerance_s = 5")
    _, notices = run_losing(path, lambda: StateLost if next(steps) == 6 else None)
    cost = re.compile(r"the state is complete again: (\d+) events were read again, in [\d.]+ s")
    found = [cost.fullmatch(notice) for notice in notices]
    (again,) = (int(match[1]) for match in found if match is not None)
    # Not the 138 events of six steps of 23, as the first results have left and their events are not needed.
    assert 23 < again < 138
    placement = json.loads((tmp_path / "crash.state" / "status.json").read_text(encoding="utf-8"))["placement"]
    assert placement["losses"] == 1
    assert placement["eventsReadAgain"] == again
    assert placement["recoverySeconds"] > 0


def test_a_loss_within_a_recovery_is_part_of_it() -> None:
    clock = iter([10.0, 14.0])
    recovery = RecoveryCost(monotonic_s=lambda: next(clock))
    reached = {"i": {"0": 100, "1": 50}}
    assert recovery.note(at({"0": (0, 90)}), reached) is None
    assert recovery.events == 0
    recovery.begin()
    assert recovery.note(at({"0": (40, 80), "1": (50, 60)}), reached) is None
    recovery.begin()
    assert recovery.note(at({"0": (40, 90), "1": (20, 50)}), reached) is None
    assert recovery.note(at({"0": (90, 130), "1": (50, 55)}), reached) == (
        "the state is complete again: 130 events were read again, in 4.0 s"
    )
    assert (recovery.events, recovery.seconds) == (130, 4.0)


def at(ranges: dict[str, tuple[int, int]]) -> dict[tuple[str, str], TimelineState]:
    """Timelines after a step that read these events."""
    return {
        ("i", partition): TimelineState(
            Carry(), NO_TIME, PartitionEnd(0, end, None), backlog=0, counters={}, events=end - begin
        )
        for partition, (begin, end) in ranges.items()
    }


def test_where_a_run_is_and_what_it_lost_is_told(tmp_path: Path) -> None:
    places: list[RunLocation] = []
    steps = iter(range(1_000_000))
    path = write_job(tmp_path, 200)
    run_losing(path, lambda: StateLost if next(steps) == 3 else None, places.append)
    assert re.fullmatch(r"the job runs on Spark \(shards here, 2 shards\): its settings say so", str(places[0]))
    status = (tmp_path / "crash.state" / "status.json").read_text(encoding="utf-8")
    assert '"where": "spark"' in status
    assert '"losses": 1' in status


def test_a_run_in_this_process_says_so(tmp_path: Path) -> None:
    places: list[RunLocation] = []
    path = write_job(tmp_path, 20)
    with open_run(load_job(path)) as opened:
        run_steps(opened, in_this_process(opened.job.policy), RunSettings(), RunHooks(placed=places.append))
    assert [str(where) for where in places] == ["the job runs in this process: its settings say so"]
    assert run_job(load_job(path)).steps == 0
