"""A placement that takes a step again while an input cannot be reached; a step that fails changes nothing.

It also notes what a step is about while it is taken, for the process that follows if this one dies of it (`deaths`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidegate.connectors.model.errors import InputUnavailableError, UnavailableError
from tidegate.connectors.model.retry_policy import RetryPolicy
from tidegate.engine import Program, ResultRows
from tidegate.job.run.deaths import Deaths
from tidegate.job.runtime.emission import StepOrder
from tidegate.job.runtime.placement import Outcome, Placement, Rebuilding, ShardName, StateLocation
from tidegate.job.runtime.sealing import SealedState, SealFolder
from tidegate.job.runtime.task import Task


class ForwardingPlacement:
    """A placement that lets another one do everything; what it does differently, a class that inherits from it says."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    @property
    def location(self) -> StateLocation:
        return self._placement.location

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        return self._placement.run(tasks, order)

    def idle_executors(self, sealed: bool) -> int:
        return self._placement.idle_executors(sealed)

    def preview(self, order: StepOrder) -> list[ResultRows]:
        return self._placement.preview(order)

    def use(self, program: Program) -> None:
        self._placement.use(program)

    def seal(self, folder: SealFolder) -> SealedState:
        return self._placement.seal(folder)

    def restore(self, folder: SealFolder, sealed: SealedState) -> None:
        self._placement.restore(folder, sealed)

    def prepare_spread(self) -> bool:
        return self._placement.prepare_spread()

    def spread(self) -> int | None:
        return self._placement.spread()

    def rebuilding(self, lost: Collection[ShardName]) -> Rebuilding | None:
        return self._placement.rebuilding(lost)

    def close(self) -> None:
        self._placement.close()


class PatientPlacement(ForwardingPlacement):
    """Runs the steps of another placement, with patience."""

    def __init__(self, placement: Placement, reading: RetryPolicy, deaths: Deaths) -> None:
        super().__init__(placement)
        self._reading = reading
        self._deaths = deaths

    def run(self, tasks: Sequence[Task], order: StepOrder) -> Outcome:
        names = dict.fromkeys(one.input for task in tasks for one in task.ranges)
        what = ", ".join(f"input '{name}'" for name in names)
        outcome = self._reading.call(what, lambda: self._attempt(tasks, order))
        if isinstance(outcome, UnavailableError):
            raise outcome
        return outcome

    def _attempt(self, tasks: Sequence[Task], order: StepOrder) -> Outcome | UnavailableError:
        """Take the step; what fails other than an input, such as a Spark that has stopped, is not waited for."""
        try:
            with self._deaths.step(tasks):
                return self._placement.run(tasks, order)
        except InputUnavailableError:
            raise
        except UnavailableError as error:
            return error

    def rebuilding(self, lost: Collection[ShardName]) -> Rebuilding | None:
        part = self._placement.rebuilding(lost)
        return None if part is None else PatientRebuilding(part, self._reading, self._deaths)


class PatientRebuilding(PatientPlacement):
    """The same for shards that are computed again."""

    def __init__(self, part: Rebuilding, reading: RetryPolicy, deaths: Deaths) -> None:
        super().__init__(part, reading, deaths)
        self._part = part

    def adopt(self) -> None:
        self._part.adopt()
