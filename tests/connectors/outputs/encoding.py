"""Runs of jobs whose results are encoded by two writers, as executors do it, in this process."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.job.sharded import ShardsHere
from tidegate.connectors.model.encoded_rows import Elsewhere
from tidegate.engine import Program, ResultRows, Vector
from tidegate.job import load_job
from tidegate.job.run.journal import Commit, Journal
from tidegate.job.run.opening import OpenRun, open_run
from tidegate.job.run.run import Placements, RunHooks, RunSettings, run_steps
from tidegate.job.runtime.emission import StepOrder
from tidegate.job.runtime.placement import Outcome
from tidegate.job.runtime.task import Task
from tidegate.job.runtime.writers import Stretches, in_order, shares, write_shares


class Encoding(ShardsHere):
    """Shards whose results are written by two writers, as executors do it."""

    def __init__(self, program: Program, opened_run: OpenRun, seed: int) -> None:
        super().__init__(program, opened_run.job.policy, 2, seed)
        self._opened = opened_run
        self._reached = 0

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        outcome = super().run(tasks, order)
        encoders = dict(self._opened.encoders)
        mine = [in_merge_order(rows) for rows in outcome.rows if rows.output in encoders]
        before, self._reached = self._reached, outcome.complete.slowest
        sent = shares(mine, Stretches.between(before, self._reached), 2)
        folder = self._opened.folder / "encoded"
        written = [write_shares(pickle.loads(pickle.dumps([share])), encoders, folder) for share in sent]
        elsewhere = Elsewhere(2, lambda works: [pickle.loads(pickle.dumps(work))() for work in works])
        outcome.encoded = [replace(rows, elsewhere=elsewhere) for rows in in_order(written, self._program.output_names)]
        outcome.rows = [rows for rows in outcome.rows if rows.output not in encoders]
        return outcome


def in_merge_order(rows: ResultRows) -> ResultRows:
    """Rows with the keys that shards have, which merging has dropped."""
    return replace(rows, merge_keys=(Vector.bigints(rows.timestamps), Vector.bigints(np.arange(len(rows)))))


def run_on_executors(path: Path, seed: int, events: int) -> None:
    with open_run(load_job(path)) as opened_run:
        places = Placements(lambda program: Encoding(program, opened_run, seed))
        run_steps(opened_run, places, RunSettings(max_events_per_step=events), RunHooks())


def run_with_deaths(path: Path, monkeypatch: pytest.MonkeyPatch, seed: str, deaths: int = 5) -> None:
    """Run a job in lives that end after the outputs have committed and before the journal knows."""
    dice = random.Random(seed)
    write_commit = Journal.write_commit
    lives = 0

    def die_sometimes(journal: Journal, commit: Commit) -> None:
        if lives < deaths and dice.random() < 0.4:
            raise KeyboardInterrupt
        write_commit(journal, commit)

    monkeypatch.setattr(Journal, "write_commit", die_sometimes)
    ended = False
    while not ended:
        try:
            run_on_executors(path, lives, dice.choice([20, 30, 50]))
            ended = True
        except KeyboardInterrupt:
            lives += 1
    assert lives == deaths
