"""Worlds of some seeds, and worlds with a planted mistake, which must be found."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.profiles import scaled
from tests.simulation.world import run_world
from tidegate.durable_files import Files
from tidegate.hub.producers import ProducerTable
from tidegate.job.run.journal import Commit, Journal
from tidegate.log import LogClock
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND

SEEDS = int(os.environ.get("TIDEGATE_SIMULATION_SEEDS", scaled(8)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_fails_nothing_acknowledged_is_lost_and_no_result_changes(seed: int, tmp_path: Path) -> None:
    run_world(seed, tmp_path / "world")


@pytest.mark.slow
def test_a_seed_replays(tmp_path: Path) -> None:
    first = run_world(3, tmp_path / "one").history
    assert first == run_world(3, tmp_path / "other").history


def _is_found(folder: Path, first: int = 0, seeds: int = 40) -> bool:
    for seed in range(first, first + seeds):
        try:
            run_world(seed, folder / "world")
        except AssertionError:
            return True
    return False


def test_a_hub_that_does_not_sync_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "sync", lambda self, fd: None)
    assert _is_found(tmp_path)


@pytest.mark.slow
def test_a_clock_that_gives_bounds_beyond_its_lease_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogClock, "renew", lambda self: setattr(self, "_ceiling_ms", self.now_ms() + 1_000))
    assert _is_found(tmp_path, first=10)  # the next one shows it


@pytest.mark.slow
def test_a_hub_that_forgets_its_producers_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerTable, "_replay", lambda self, *snapshot: None)
    assert _is_found(tmp_path)


@pytest.mark.slow
def test_a_job_that_journals_more_than_it_emitted_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrote = Journal.write_commit

    def write_too_much(self: Journal, commit: Commit) -> None:
        ahead = commit.released if commit.released in (NO_TIME, END_OF_TIME) else commit.released + TICKS_PER_SECOND
        wrote(self, replace(commit, released=ahead))

    monkeypatch.setattr(Journal, "write_commit", write_too_much)
    assert _is_found(tmp_path)
