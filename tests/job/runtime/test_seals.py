"""Sealed state: a run that continues from it gives the same bytes, whatever has become of its files."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.job.equality import QUERIES, _cuts, _log, _policy
from tests.job.logs import EPOCH, RevealedLog, TravellingTasks, outputs_of_one_step, prepared
from tests.job.random_queries import KEYS, random_query
from tests.job.sharded import ShardsHere
from tests.profiles import scaled
from tidegate.connectors.inputs.recorded import RecordedEvent, RecordedLog
from tidegate.engine import Program
from tidegate.job.runtime.placement import Placement, StateLocation
from tidegate.job.runtime.sealing import SealSlower, SealUnusable
from tidegate.job.runtime.seals import FOLDER, RecoveryCosts, Seals, fingerprint_of
from tidegate.job.runtime.step import Emitted, Progress, Stepper, StepSettings
from tidegate.ordering import END_OF_TIME, TICKS_PER_SECOND, Policy


@pytest.fixture(autouse=True)
def local_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a run that crashes leaves on the local disk below the test's folder."""
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "disk"))


class Life:
    """A job's runs over a growing log, with a seal now and then, and crashes that lose what was not committed."""

    def __init__(self, folder: Path, dice: random.Random, place: Callable[[Program, Policy], Placement]) -> None:
        self.folder, self.dice, self.place = folder, dice, place
        self.used: list[int] = []
        self.refused: list[str] = []

    def outputs(self, program: Program, policy: Policy, logs: dict[str, RecordedLog]) -> dict[str, bytes]:
        dice, cuts = self.dice, _cuts(self.dice)
        self.logs: dict[str, Any] = {name: RevealedLog(log) for name, log in logs.items()}
        self.program, self.policy = program, policy
        self.settings = StepSettings(cuts.max_events_per_step, cuts.batch_events, cuts.parallelism)
        self.seals = Seals(self.folder, fingerprint_of("q", {}), self.logs, policy)
        outputs: dict[str, bytes] = {}
        commits = [(Progress(), dict(outputs))]
        self._start(Progress())
        for clock in [*sorted(cuts.clocks), None]:
            for log in self.logs.values():
                log.clock, log.complete = clock or END_OF_TIME - 1, clock is None
            caught_up = False
            while not caught_up:
                step = self.stepper.step()
                caught_up = step.caught_up
                for rows in step.rows:
                    outputs[rows.output] = outputs.get(rows.output, b"") + rows.to_json_lines()
                if dice.random() < 0.8:
                    commits.append((self.stepper.progress, dict(outputs)))
                if dice.random() < 0.35:
                    self.seals.write(self.stepper, self.placement)
                if dice.random() < 0.2 and not step.complete:
                    # The last commit, or an older one: the seal may be ahead of it.
                    kept = max(1, len(commits) - dice.choice([0, 0, 0, 1, 3]))
                    progress, before = commits[kept - 1]
                    del commits[kept:]
                    outputs = dict(before)
                    self.damage()
                    self._start(progress)
                    caught_up = False
        return outputs

    def damage(self) -> None:
        """Damage, replace or delete a file of the seal now and then."""
        files = sorted((self.folder / FOLDER).glob("*"))
        if not files or self.dice.random() < 0.6:
            return
        file = self.dice.choice(files)
        content = bytearray(file.read_bytes())
        match self.dice.randrange(4):
            case 0:
                file.unlink()
            case 1:
                file.write_bytes(content[: len(content) // 2])
            case 2 if content:
                content[self.dice.randrange(len(content))] ^= 1 << self.dice.randrange(8)
                file.write_bytes(content)
            case _:
                file.write_bytes(self.dice.choice(files).read_bytes())

    def _start(self, progress: Progress) -> None:
        self.placement = self.place(self.program, self.policy)
        self.stepper = Stepper(self.program, self.policy, self.logs, self.placement, progress, self.settings)
        try:
            self.seals.resume(self.stepper, self.placement, self.program)
        except SealUnusable as reason:
            self.refused.append(str(reason))
        else:
            first = self.seals.first_positions(self.stepper, self.program)
            self.used.append(sum(at - first[timeline] for timeline, at in self.stepper.positions.items()))


def here(program: Program, policy: Policy) -> Placement:
    return TravellingTasks(program, policy)


def lived(seed: int, folder: Path) -> Life:
    dice = random.Random(seed)
    sql = random_query(dice) if dice.random() < 0.5 else dice.choice(QUERIES)
    program, policy, keys = prepared(sql), _policy(dice), dice.choice(KEYS)
    logs = {name: _log(dice, keys) for name in program.input_names}
    shards, hashes = dice.randint(1, 3), dice.getrandbits(64)

    def spread(program: Program, policy: Policy) -> Placement:
        return ShardsHere(program, policy, shards, hashes ^ dice.getrandbits(4))

    life = Life(folder, dice, dice.choice([here, spread]))
    whole = outputs_of_one_step(program, policy, logs)
    assert life.outputs(program, policy, logs) == whole, f"seed {seed}: {sql}"
    return life


SEEDS = scaled(15)


@pytest.mark.slow
def test_a_run_from_a_seal_gives_the_same_bytes_whatever_has_become_of_its_files(tmp_path: Path) -> None:
    lives = [lived(seed, tmp_path / str(seed)) for seed in range(SEEDS)]
    used = [saved for life in lives for saved in life.used]
    # Seals are used, most of them save events, and damaged ones are refused.
    assert len(used) > SEEDS // 4
    assert sum(saved > 0 for saved in used) > len(used) // 2
    assert any("damaged" in reason for life in lives for reason in life.refused)


COUNT = "SELECT System.Timestamp() AS t, COUNT(*) AS n INTO o FROM i TIMESTAMP BY t GROUP BY TumblingWindow(hour, 1)"


class Sealed:
    """A run over some events that was sealed after them."""

    def __init__(self, folder: Path, fingerprint: str = "q", seconds_per_event: float = math.inf) -> None:
        self.program, self.policy = prepared(COUNT), Policy.seconds(early=300, late=5)
        self.folder, self.fingerprint = folder, fingerprint
        self.events = [event(number) for number in range(10)]
        stepper, placement = self.run(self.events, Progress())
        stepper.step()
        self.progress = stepper.progress
        self.seals.write(stepper, placement, seconds_per_event)

    def run(self, events: list[RecordedEvent], progress: Progress) -> tuple[Stepper, Placement]:
        log = RevealedLog(RecordedLog(events))
        log.clock = EPOCH + 3600 * TICKS_PER_SECOND
        logs: dict[str, Any] = {"i": log}
        placement = here(self.program, self.policy)
        self.seals = Seals(self.folder, self.fingerprint, logs, self.policy)
        return Stepper(self.program, self.policy, logs, placement, progress), placement

    def resume(self, events: list[RecordedEvent], progress: Progress) -> None:
        stepper, placement = self.run(events, progress)
        self.seals.resume(stepper, placement, self.program)


def event(number: int, partition: str = "0", later: int = 0) -> RecordedEvent:
    return RecordedEvent(partition, EPOCH + number * TICKS_PER_SECOND + later, b"{}")


def test_a_seal_of_another_log_query_or_later_time_is_refused_with_a_reason(tmp_path: Path) -> None:
    sealed = Sealed(tmp_path)
    sealed.resume([*sealed.events, event(10)], sealed.progress)
    for reason, events, progress in [
        ("has other events", [*sealed.events[:9], event(9, later=1), event(10)], sealed.progress),
        ("ends before it", sealed.events[:9], sealed.progress),
        ("partitions of an input have changed", [*sealed.events, event(10, "1")], sealed.progress),
        ("older than what the job has to read", [event(9 * n) for n in range(99)], Progress(EPOCH + 10**13)),
    ]:
        with pytest.raises(SealUnusable, match=reason):
            sealed.resume(events, progress)
    sealed.fingerprint = "another"
    with pytest.raises(SealUnusable, match="the query, an input or a version has changed"):
        sealed.resume(sealed.events, sealed.progress)


def test_a_seal_is_not_used_where_reading_the_log_is_quicker(tmp_path: Path) -> None:
    """Ten events, and at least 20 ms to begin with a seal."""
    quick, slow = Sealed(tmp_path / "quick", seconds_per_event=1e-6), Sealed(tmp_path / "slow", seconds_per_event=0.1)
    with pytest.raises(SealSlower, match="would save reading 10 events"):
        quick.resume(quick.events, quick.progress)
    slow.resume(slow.events, slow.progress)


@pytest.mark.parametrize(
    ("master", "seal_mb", "events", "microseconds", "is_used"),
    [
        (None, 0.5, 175_802, 1.5, True),
        (None, 7.0, 183_543, 1.3, True),
        (None, 0.0, 180_000, 0.8, True),
        ("local[2]", 0.5, 175_802, 19, False),
        ("local[2]", 15.6, 183_002, 15, False),
        ("local[2]", 0.0, 175_802, 9, False),
        ("local[2]", 500.0, 5_000_000, 9, True),
    ],
)
def test_what_was_measured_is_decided_as_it_was_quicker(
    master: str | None, seal_mb: float, events: int, microseconds: float, is_used: bool
) -> None:
    """Runs of `benchmarks.state_after_loss`; the last one stands for an hour of a busy hub."""
    costs = RecoveryCosts.of(microseconds / 1e6, int(seal_mb * 2**20), events, StateLocation(master))
    assert (costs.seal_s <= costs.log_s) == is_used


def test_a_progress_includes_an_earlier_one_if_all_that_had_been_emitted_has_been() -> None:
    early = Progress(10, {"o": 15}, Emitted(12, 40))
    assert Progress(10, {"o": 15}, Emitted(12, 40)).includes(early)
    assert Progress(40).includes(early)
    assert Progress(20, {}, Emitted(13, 40)).includes(early)
    assert not Progress(9, {"o": 15}, Emitted(12, 40)).includes(early)
    assert not Progress(10, {}, Emitted(12, 40)).includes(early)
    assert not Progress(20, {}, Emitted(11, 40)).includes(early)
    assert not Progress(20).includes(replace(early, emitted=Emitted(12, 40)))
