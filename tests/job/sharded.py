"""The shards of a job in this process: what an executor is sent and keeps travels as it does in Spark."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegate.engine import FunctionCalls, KeyedSide, OperatorRows, Program, ResultRows
from tidegate.engine.sharding.payloads import Sharding, merged_results
from tidegate.job.runtime.emission import Completeness, StepOrder
from tidegate.job.runtime.placement import Outcome, ShardName, StateLocation, StateLost
from tidegate.job.runtime.rebuilding import to_the_end, with_those_below
from tidegate.job.runtime.sealing import SealedState, SealFolder, SealUnusable
from tidegate.job.runtime.shards import ShardInput, deliveries_of_task, new_shard, preview_shard, run_shard
from tidegate.job.runtime.state_store import StateStore, StoredState
from tidegate.job.runtime.task import RangeResult, Task, run_task
from tidegate.ordering import Policy


def travelled(value: Any) -> Any:
    """Send a value."""
    return pickle.loads(pickle.dumps(value, protocol=5))


class ShardsHere:
    """A placement of a number of shards, one after the other, the last first."""

    def __init__(self, program: Program, policy: Policy, shards: int, seed: int) -> None:
        self._program = program.sharded()
        self._policy = policy
        self._sharding = Sharding.of(self._program, shards, seed)
        self._folder = tempfile.TemporaryDirectory()
        self._store = StateStore(Path(self._folder.name))
        self._version = 0
        self._only: frozenset[ShardName] | None = None
        self.shard_steps = 0

    @property
    def location(self) -> StateLocation:
        return StateLocation("shards here", self._sharding.shards)

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        results: list[RangeResult] = []
        inboxes: list[list[ShardInput]] = [[] for _ in range(self._sharding.shards)]
        empty = not tasks
        if lost := self.lost():
            raise StateLost("states are gone", lost)
        for number, task in enumerate(travelled([*reversed(tasks)]) or [None]):
            of_task = [] if task is None else run_task(task, self._program, self._policy)
            stripped, deliveries = deliveries_of_task(number, of_task, self._program, self._sharding)
            results += stripped
            for inbox, delivery in zip(inboxes, deliveries, strict=True):
                inbox.append(delivery)
        assert not (empty and results)
        reports = []
        for level in range(self._sharding.levels):
            following: list[list[ShardInput]] = [[] for _ in range(self._sharding.shards)]
            for shard in reversed(range(self._sharding.shards)):
                if self._only is not None and (level, shard) not in self._only:
                    continue
                self.shard_steps += 1
                keyed, stored = self._keyed(level, shard)
                report, deliveries = run_shard(keyed, (level, shard), self._sharding, order, travelled(inboxes[shard]))
                self._store.save(f"{level}-{shard}", self._version + 1, keyed.state, stored)
                reports.append(travelled(report))
                for inbox, delivery in zip(following, deliveries, strict=False):
                    inbox.append(delivery)
            inboxes = following
        self._version += 1
        rows = merged_results((rows for report in reports for rows in report.rows), self._program.output_names)
        calls = FunctionCalls()
        return Outcome(
            results,
            rows,
            Completeness.least(report.complete for report in reports),
            [error for report in reports for error in report.errors],
            calls,
            OperatorRows.sum(report.operator_rows for report in reports),
        )

    def _keyed(self, level: int, shard: int) -> tuple[KeyedSide, StoredState | None]:
        keyed = new_shard(self._program, self._policy, self._sharding, level)
        if not self._version:
            return keyed, None
        stored = self._store.load(f"{level}-{shard}", self._version)
        keyed.state = stored.value
        return keyed, stored

    def preview(self, order: StepOrder) -> list[ResultRows]:
        found: list[ResultRows] = []
        inboxes: list[list[ShardInput]] = [[] for _ in range(self._sharding.shards)]
        for level in range(self._sharding.levels):
            following: list[list[ShardInput]] = [[] for _ in range(self._sharding.shards)]
            for shard in reversed(range(self._sharding.shards)):
                keyed, _ = self._keyed(level, shard)
                sent = travelled(inboxes[shard])
                rows, deliveries = preview_shard(keyed, (level, shard), self._sharding, order, sent)
                found += travelled(rows)
                for inbox, delivery in zip(following, deliveries, strict=False):
                    inbox.append(delivery)
            inboxes = following
        merged = merged_results(found, self._program.output_names)
        return [rows.by_time() for rows in merged] if self._program.by_substream else merged

    def idle_executors(self, sealed: bool) -> int:
        return 0

    def prepare_spread(self) -> bool:
        return True

    def spread(self) -> int | None:
        return None

    def use(self, program: Program) -> None:
        self._program = program.sharded()

    def seal(self, folder: SealFolder) -> SealedState:
        files = {name: folder.seal(self._store, name, self._version) for name in self._names() if self._version}
        return SealedState(self._sharding.shards, self._sharding.seed, self._version, files)

    def restore(self, folder: SealFolder, sealed: SealedState) -> None:
        if sealed.shards != self._sharding.shards:
            raise SealUnusable(f"it has {sealed.shards} shards")
        for name in self._names() if sealed.version else ():
            folder.restore(self._store, name, sealed)
        self._sharding = Sharding.of(self._program, self._sharding.shards, sealed.seed)
        self._version = sealed.version

    def _names(self) -> list[str]:
        return [f"{level}-{shard}" for level in range(self._sharding.levels) for shard in range(self._sharding.shards)]

    def lost(self) -> frozenset[ShardName]:
        """The shards whose state is not there."""
        names = [name for name in self._names() if self._version and not self._store.has(name, self._version)]
        return frozenset((int(level), int(shard)) for level, shard in (name.split("-") for name in names))

    def lose(self, level: int, shard: int) -> None:
        """Delete the state of a shard."""
        for path in Path(self._folder.name).glob(f"{level}-{shard}.*"):
            path.unlink()

    def rebuilding(self, lost: Collection[ShardName]) -> RebuildingHere | None:
        if not lost:
            return None
        return RebuildingHere(self, self._program, self._policy, self._sharding, lost)

    def close(self) -> None:
        self._folder.cleanup()


class RebuildingHere(ShardsHere):
    """Lost shards that are computed again."""

    def __init__(
        self, whole: ShardsHere, program: Program, policy: Policy, sharding: Sharding, lost: Collection[ShardName]
    ) -> None:
        super().__init__(program, policy, sharding.shards, 0)
        self._whole, self._sharding, self._lost = whole, sharding, lost
        self._only = with_those_below(lost, sharding.shards)

    def _names(self) -> list[str]:
        assert self._only is not None
        return [f"{level}-{shard}" for level, shard in self._only]

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        return replace(super().run(tasks, to_the_end(order)), rows=[])

    def restore(self, folder: SealFolder, sealed: SealedState) -> None:
        if sealed.seed != self._sharding.seed:
            raise SealUnusable("it divides keys otherwise")
        super().restore(folder, sealed)

    def adopt(self) -> None:
        for level, shard in self._lost:
            self._whole._store.adopt(self._store, f"{level}-{shard}", self._version, self._whole._version)
