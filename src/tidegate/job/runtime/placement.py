"""Where the keyed side of a job runs.

A `Placement` takes the tasks of a step, runs them and the keyed side behind them, and returns what they found. Results
do not depend on it: the state of the keyed side follows from the log, so a run moves to another placement as it
restarts, from its progress.
"""

from __future__ import annotations

import hashlib
import pickle
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tidegate.connectors.model.encoded_rows import EncodedRows
from tidegate.engine import FunctionCalls, KeyedSide, OperatorRows, Program, ResultRows, RuntimeErrors
from tidegate.job.runtime.emission import Completeness, StepOrder, emitted_rows
from tidegate.job.runtime.sealing import SealedState, SealFolder, SealUnusable
from tidegate.job.runtime.state_store import StateStore, StoredState
from tidegate.job.runtime.task import RangeResult, Task, run_task
from tidegate.ordering import Policy

"""Runs tasks anywhere, and returns their results in any order."""


ShardName = tuple[int, int]
"""A shard: its level and its number there."""


class StateLost(Exception):
    """The states of shards are gone, with the executor that held them.

    Attributes:
        shards: those that are gone; empty if it is not known which, or if it is all of them.
    """

    def __init__(self, message: str, shards: Iterable[ShardName] = ()) -> None:
        super().__init__(message)
        self.shards = frozenset(shards)


class WorkersLost(Exception):
    """A step failed because processes died that took part in it; nothing has changed, so it can be taken again."""


@dataclass(frozen=True, slots=True)
class StateLocation:
    """Where the keyed side of a run is.

    Attributes:
        master: the URL of Spark's master; None if it is in this process, or in a child of it.
        shards: how many shards have the state.
        shared: whether other jobs use the same Spark.
        child: whether it is in a child of this process.
    """

    master: str | None = None
    shards: int = 1
    shared: bool = False
    child: bool = False


@dataclass(slots=True)
class Outcome:
    """What the tasks and the keyed side of a step found.

    Attributes:
        results: those of the tasks, without partial results.
        rows, encoded: what is emitted, by output.
        complete: what is complete after the step.
        errors: runtime errors of the keyed side; calls: of registered functions there.
        operator_rows: how many rows its operators took and released.
        state_bytes: how much the keyed side holds, if that is known.
        operator_bytes: how much each operator holds, by number, as it was last measured.
        preview: what `Placement.preview` would return now, if the step was asked for it and it cost little.
    """

    results: list[RangeResult]
    rows: list[ResultRows]
    complete: Completeness
    errors: list[RuntimeErrors] = field(default_factory=list)
    calls: FunctionCalls = field(default_factory=FunctionCalls)
    operator_rows: OperatorRows = field(default_factory=OperatorRows)
    state_bytes: int | None = None
    encoded: list[EncodedRows] = field(default_factory=list)
    operator_bytes: Mapping[int, int] = field(default_factory=dict)
    preview: list[ResultRows] | None = None


MEASURE_EVERY_S = 10.0


def bytes_of(state: object) -> int:
    """Return how many bytes a state holds: those of its buffers, which are not copied, and of the rest."""
    buffers: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(state, protocol=5, buffer_callback=buffers.append)
    return len(rest) + sum(buffer.raw().nbytes for buffer in buffers)


class StateSizes:
    """How much a keyed side and each of its operators hold, measured now and then, since it takes a pickling."""

    def __init__(self) -> None:
        self._measured_at = time.monotonic()
        self.total = 0
        self.operators: dict[int, int] = {}

    def see(self, keyed: KeyedSide) -> None:
        """Measure if it is time."""
        now = time.monotonic()
        if now - self._measured_at <= MEASURE_EVERY_S:
            return
        self._measured_at = now
        self.operators = {number: bytes_of(state) for number, state in enumerate(keyed.state.operators)}
        self.total = sum(self.operators.values()) + bytes_of(replace(keyed.state, operators=[]))


class Placement(Protocol):
    """Runs the tasks and the keyed side of a run's steps.

    What moves shards is for placements on executors; the others inherit that there is nothing to move.
    """

    @property
    def location(self) -> StateLocation:
        """Where that is."""

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        """Take a step.

        Raises:
            InputError: a task could not read its range.
            StateLost: an earlier step's state is gone.
            WorkersLost: a process died that took part in the step.
        """

    def idle_executors(self, sealed: bool) -> int:
        """Return how many executors hold no state, and would if the run started again.

        Args:
            sealed: whether it would continue from a seal, and so with as many shards as it has.
        """
        return 0

    def preview(self, order: StepOrder) -> list[ResultRows]:
        """Return the results that would be emitted next if no further event came, without emitting them.

        Raises:
            StateLost, WorkersLost: as for ``run``.
        """

    def use(self, program: Program) -> None:
        """Continue with another program of the same query, whose reference data differ from a later time on."""

    def seal(self, folder: SealFolder) -> SealedState:
        """Copy the state after the last step to a folder.

        Raises:
            OSError: a disk refuses.
            StateLost, WorkersLost: as for ``run``.
        """

    def restore(self, folder: SealFolder, sealed: SealedState) -> None:
        """Take over a sealed state, before the first step.

        Raises:
            SealUnusable: it does not fit, or is damaged; the placement is as before.
            WorkersLost: as for ``run``.
        """

    def prepare_spread(self) -> bool:
        """Return whether shards can move now; if not, that is prepared beside steps."""
        return True

    def spread(self) -> int | None:
        """Move shards, with their states, to executors that have none.

        Returns:
            How many bytes have moved; None if a run that starts again would be spread better.

        Raises:
            OSError: a disk refuses; the shards are where they were.
            StateLost, WorkersLost: as for ``run``; likewise.
        """
        return None

    def rebuilding(self, lost: Collection[ShardName]) -> Rebuilding | None:
        """Return a placement of lost shards, with empty states; None if everything has to be computed again."""
        return None

    def close(self) -> None:
        """Delete what the keyed side holds."""


class Rebuilding(Placement, Protocol):
    """Lost shards, and the shards that they hear of rows from, beside the shards that still have their states."""

    def adopt(self) -> None:
        """Give the states of the lost shards to the placement that had lost them.

        Raises:
            StateLost, WorkersLost: as for ``run``.
        """


_WHOLE = "whole"
"""The name of the state in this process."""


class DriverPlacement(Placement):
    """Tasks and the keyed side in this process."""

    def __init__(self, program: Program, policy: Policy) -> None:
        """Begin with an empty state."""
        self.program = program
        self.policy = policy
        self._keyed = KeyedSide(program, policy.late_ticks)
        self._sizes = StateSizes()
        self._store: StateStore | None = None
        self._stored: StoredState | None = None
        self._version = 0

    @property
    def location(self) -> StateLocation:
        return StateLocation()

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        self._keyed.know_timelines(order.timelines)
        results = self.results(tasks)
        results.sort(key=lambda result: (result.input, result.partition))
        for result in results:
            self._keyed.absorb(result.partials)
        reached = {(result.input, result.partition): result.settled for result in results}
        complete = order.complete_with(reached, self._keyed.program)
        rows = emitted_rows(self._keyed, order, complete)
        errors, calls, counted = self._keyed.take_errors(), self._keyed.take_calls(), self._keyed.take_rows()
        sizes = self._sizes
        sizes.see(self._keyed)
        return Outcome(
            results, rows, complete, errors, calls, counted, sizes.total, operator_bytes=dict(sizes.operators)
        )

    def results(self, tasks: Sequence[Task]) -> list[RangeResult]:
        """Return the results of tasks, which run one after the other.

        Raises:
            InputError: a range cannot be read.
        """
        return [result for task in tasks for result in run_task(task, self.program, self.policy)]

    def preview(self, order: StepOrder) -> list[ResultRows]:
        return self._keyed.preview(order.released, order.ahead)

    def use(self, program: Program) -> None:
        self._keyed.use(program)
        self.program = program

    def seal(self, folder: SealFolder) -> SealedState:
        """Copy the state to a folder. From then on it is mapped from a local file, as that of a shard."""
        store, self._version = self._local_store(folder), self._version + 1
        self._stored = store.save(_WHOLE, self._version, self._keyed.state, self._stored)
        self._keyed.state = self._stored.value
        return SealedState(None, 0, self._version, {_WHOLE: folder.seal(store, _WHOLE, self._version)})

    def restore(self, folder: SealFolder, sealed: SealedState) -> None:
        if sealed.shards is not None:
            raise SealUnusable(f"it has {sealed.shards} shards, and the job now runs in one process")
        store = self._local_store(folder)
        folder.restore(store, _WHOLE, sealed)
        self._version, self._stored = sealed.version, store.load(_WHOLE, sealed.version)
        self._keyed.state = self._stored.value

    def _local_store(self, folder: SealFolder) -> StateStore:
        """Return where the state is on this machine; what a killed run of the same job has left there is deleted."""
        if self._store is None:
            job = hashlib.sha256(str(folder.path.resolve()).encode()).hexdigest()[:16]
            prefix = f"tidegate-state-{job}-"
            for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
                shutil.rmtree(left, ignore_errors=True)
            self._store = StateStore(Path(tempfile.mkdtemp(prefix=prefix)))
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.delete()
