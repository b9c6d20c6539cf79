"""The sealed state of a run: what it holds, and when a run may continue from it.

A *seal* is a step as it was left: the driver's side (positions, carries, progress) and the state of all shards. A run
that continues from it reads the log from its positions instead of from as far back as the query looks. That gives the
same rows if the seal is of the same query, policy, inputs and software; if it was taken when nothing had been emitted
that the run must still emit; and if the log after its positions is the log that it was taken from. Everything else is
refused with a reason, and the log is used.

The manifest is replaced atomically once all files are there, and only then is deleted what it no longer refers to.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.connectors.model.errors import JobError
from tidegate.connectors.model.events import InputLog, PartitionEnd, last_arrival
from tidegate.connectors.model.state_file import read_state, write_state
from tidegate.engine import Program
from tidegate.job.runtime.placement import Placement, StateLocation
from tidegate.job.runtime.sealing import UNREADABLE, SealedFile, SealedState, SealFolder, SealSlower, SealUnusable
from tidegate.job.runtime.step import SealedStepper, Stepper
from tidegate.job.runtime.timelines import Timeline, first_to_read
from tidegate.ordering import Policy

FOLDER = "sealed"
_MANIFEST = "manifest.json"
_VERSION = 3
COPIED_BYTES_PER_S = 100 * 2**20
"""How fast a sealed state is copied and compared with its digests, at least."""
START_S, START_ON_SPARK_S = 0.02, 5.0
"""How long that takes however little it is; on Spark it anchors the shards and takes a job of its own, which Spark has
to plan for the first time. Measured by `benchmarks.state_after_loss` beside the estimate for the log, rounded up."""
# By name: an import of the whole package would be one of every layer.
_TIDEGATE: str = importlib.import_module("tidegate").__version__


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a seal holds.

    Attributes:
        stepper: the driver's side.
        last_arrivals: by timeline, the arrival of the last event before its position; NO_TIME for none.
        seconds_per_event: how long the run took for an event of the log, at best.
    """

    stepper: SealedStepper
    last_arrivals: dict[Timeline, int]
    seconds_per_event: float = math.inf


@dataclass(frozen=True, slots=True)
class RecoveryCosts:
    """About how many seconds a run takes to be where a seal was taken: from the log, and from the seal."""

    log_s: float
    seal_s: float

    @classmethod
    def of(cls, seconds_per_event: float, bytes: int, events: int, place: StateLocation) -> RecoveryCosts:
        """Estimate the costs.

        Args:
            seconds_per_event: see `Sealed`.
            bytes: how many the seal has.
            events: how many events need not be read with it.
        """
        start_s = START_S if place.master is None else START_ON_SPARK_S
        return cls(events * seconds_per_event, start_s + bytes / COPIED_BYTES_PER_S)


def fingerprint_of(job: str, inputs: Mapping[str, object]) -> str:
    """Return what a seal and the run that uses it must have in common.

    Args:
        job: the fingerprint of the query, its functions and the policy.
        inputs: by name, the settings of each input, which show no secret.
    """
    parts = [_TIDEGATE, platform.python_version(), np.__version__, pa.__version__, job]
    parts += [f"{name} {settings!r}" for name, settings in sorted(inputs.items())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class Seals:
    """The seal of one job, below its state folder; there is at most one."""

    def __init__(self, folder: Path, fingerprint: str, logs: Mapping[str, InputLog], policy: Policy) -> None:
        """
        Args:
            fingerprint: see `fingerprint_of`.
            logs: the inputs, by the name the query uses.
        """
        self._folder = SealFolder(folder / FOLDER)
        self._fingerprint = fingerprint
        self._logs = logs
        self._policy = policy

    @property
    def exists(self) -> bool:
        """Whether there is one, fitting or not."""
        return self._manifest.exists()

    @property
    def _manifest(self) -> Path:
        return self._folder.path / _MANIFEST

    def write(self, stepper: Stepper, placement: Placement, seconds_per_event: float = math.inf) -> int:
        """Replace the seal by one of the present state, and return how many bytes it has.

        Args:
            seconds_per_event: how long the run takes for an event of the log, at best.

        Raises:
            OSError: a disk refuses.
            JobError: the manifest cannot be written, or a log cannot be read.
            StateLost, WorkersLost: see ``Placement.seal``.
        """
        state = placement.seal(self._folder)
        sealed = stepper.seal()
        ends = self._ends()
        arrivals = {
            at: last_arrival(self._logs[at[0]], at[1], ends[at].begin, position)
            for at, position in sealed.timelines.positions.items()
        }
        driver = self._folder.add(Sealed(sealed, arrivals, seconds_per_event))
        content = {"fingerprint": self._fingerprint, "driver": _listed(driver), "state": state.as_json()}
        write_state(self._manifest, {"version": _VERSION, **content})
        self._folder = replace(self._folder, known=state.known)
        self._folder.keep_only([driver, *state.known.values()], [_MANIFEST])
        return state.bytes + driver.bytes

    def resume(self, stepper: Stepper, placement: Placement, program: Program) -> None:
        """Let a run that has taken no step continue from the seal.

        Raises:
            SealUnusable: it cannot; the run is as before.
            SealSlower: reading the log takes less time.
            InputError: a log cannot be reached.
            WorkersLost: see ``Placement.restore``.
        """
        driver, state = self._read()
        sealed = self._folder.value_of(driver)
        if not isinstance(sealed, Sealed):
            raise SealUnusable(f"{driver.copy} is something else")
        if not stepper.progress.includes(sealed.stepper.progress):
            raise SealUnusable("it is of a later time than the last commit")
        if sealed.stepper.emitted_to.exceeds(stepper.may_have_emitted):
            raise SealUnusable("it has emitted more than the other shards have")
        self._check_log(sealed, stepper, program)
        self._check_cost(sealed, state, stepper, placement, program)
        placement.restore(self._folder, state)
        self._folder = replace(self._folder, known=state.known)
        stepper.restore(sealed.stepper)

    def _read(self) -> tuple[SealedFile, SealedState]:
        try:
            content = read_state(self._manifest, _VERSION)
            if content is None:
                raise SealUnusable("there is none")
            if content["fingerprint"] != self._fingerprint:
                raise SealUnusable("the query, an input or a version has changed")
            return SealedFile(*content["driver"]), SealedState.from_json(content["state"])
        except JobError:
            raise SealUnusable(f"{self._manifest} is damaged") from None
        except UNREADABLE as error:
            raise SealUnusable(f"{self._manifest} is something else ({error!r})") from error

    def _check_log(self, sealed: Sealed, stepper: Stepper, program: Program) -> None:
        """Check that the log goes on after the seal's positions, and that it saves something.

        Where the log would be read from a later position, ticks before that one may have been forgotten.
        """
        # Those of the run: one that follows another must not get ahead of it.
        ends, positions = stepper.ends(), sealed.stepper.timelines.positions
        if set(ends) != set(positions):
            raise SealUnusable("the partitions of an input have changed")
        for at, end in ends.items():
            name, partition = at
            first = self._first(at, end, stepper, program)
            if positions[at] < first:
                raise SealUnusable("it is older than what the job has to read again")
            if positions[at] > end.end:
                raise SealUnusable(f"input {name}, partition {partition} ends before it")
            if last_arrival(self._logs[name], partition, end.begin, positions[at]) != sealed.last_arrivals[at]:
                raise SealUnusable(f"input {name}, partition {partition} has other events than it had")

    def _check_cost(
        self, sealed: Sealed, state: SealedState, stepper: Stepper, placement: Placement, program: Program
    ) -> None:
        positions, first = sealed.stepper.timelines.positions, self.first_positions(stepper, program)
        saved = sum(position - first[at] for at, position in positions.items())
        costs = RecoveryCosts.of(sealed.seconds_per_event, state.bytes, saved, placement.location)
        if costs.log_s < costs.seal_s:
            raise SealSlower(f"it would save reading {saved:,} events")

    def first_positions(self, stepper: Stepper, program: Program) -> dict[Timeline, int]:
        """Return by timeline from where the log would be read without a seal.

        Raises:
            InputError: a log cannot be reached.
        """
        return {at: self._first(at, end, stepper, program) for at, end in self._ends().items()}

    def _first(self, at: Timeline, end: PartitionEnd, stepper: Stepper, program: Program) -> int:
        name, partition = at
        return first_to_read(self._logs[name], partition, end, stepper.progress.released, program, self._policy)

    def _ends(self) -> dict[Timeline, PartitionEnd]:
        return {(name, partition): end for name, log in self._logs.items() for partition, end in log.ends().items()}


def _listed(file: SealedFile) -> list[Any]:
    return [file.name, file.copy, file.bytes, file.digest]
