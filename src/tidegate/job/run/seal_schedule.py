"""When a run seals its state, and what it says when it continues from a seal or cannot.

A seal saves reading the log as far back as the query looks. It is taken where that is more than ten minutes of log, and
every few minutes, so that a loss costs what was read since. Copying takes time from the steps: no more than a twentieth
of it, so a state that takes long to copy is sealed less often.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.connectors.model.errors import JobError
from tidegate.engine import Program
from tidegate.job.runtime.placement import Placement, StateLost, WorkersLost
from tidegate.job.runtime.sealing import SealSlower, SealUnusable
from tidegate.job.runtime.seals import Seals
from tidegate.job.runtime.step import Progress, Step, Stepper, Timeline
from tidegate.ordering import TICKS_PER_SECOND, Policy, format_time

WORTHWHILE_S = 600
"""A query for which a loss means reading less of the log than this, in seconds, is not sealed."""
_SHARE = 20
_LONGEST_AT_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class SealNote:
    """The last seal: when it was taken (ticks of the clock), its length, and the events that the run had read."""

    at: int
    bytes: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return it as `status.json` has it."""
        return {"at": format_time(self.at), "bytes": self.bytes, "seconds": round(self.seconds, 3)}


def is_worthwhile(program: Program, policy: Policy) -> bool:
    """Return whether a loss means reading more than ten minutes of the log again."""
    if policy.early_ticks is None:
        return True
    return program.lookback_ticks + policy.early_ticks > WORTHWHILE_S * TICKS_PER_SECOND


class SealSchedule:
    """The seals of one run.

    Attributes:
        last: the last one that it took.
    """

    def __init__(
        self,
        seals: Seals | None,
        every_s: float,
        notice: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            seals: None if the run has none.
            every_s: how long after one the next is due.
            notice: called with what people should know.
        """
        self._seals = seals
        self._every_s = every_s
        self._notice = notice
        self._clock = clock
        self._due_at = clock() + every_s
        self._events = 0
        self._seconds_per_event = math.inf
        self.last: SealNote | None = None

    @property
    def is_on(self) -> bool:
        """Whether the run seals its state."""
        return self._seals is not None

    def note_speed(self, events: int, seconds: float) -> None:
        """Note how long a step took, from which a later run finds out whether the log or the seal takes longer."""
        if events:
            self._seconds_per_event = min(self._seconds_per_event, seconds / events)

    def is_due(self, step: Step) -> bool:
        """Return whether to seal the state after a step."""
        self._events += step.events
        return self._seals is not None and not step.complete and self._events > 0 and self._clock() >= self._due_at

    def is_due_at_stop(self, step: Step | None) -> bool:
        """Return whether to seal the state of a run that stops, so that the next one starts sooner."""
        if self._seals is None or step is None or step.complete or not self._events:
            return False
        return self.last is None or self.last.seconds <= _LONGEST_AT_STOP_S

    def seal(self, stepper: Stepper, placement: Placement) -> None:
        """Seal the state; what goes wrong is reported, and costs nothing but the seal."""
        assert self._seals is not None
        began = self._clock()
        try:
            size = self._seals.write(stepper, placement, self._seconds_per_event)
        except (OSError, JobError, StateLost, WorkersLost) as error:
            self._notice(f"the state could not be sealed: {error}; the job continues without it")
        else:
            self.last = SealNote(time.time_ns() // 100, size, self._clock() - began)
            self._events = 0
        ended = self._clock()
        self._due_at = ended + max(self._every_s, _SHARE * (ended - began))

    def resume(
        self, stepper: Stepper, placement: Placement, program: Program, read: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Let a run that has taken no step continue from the seal, or say why it reads the log.

        Args:
            read: by input and partition, the sequence number up to which events have been read before.

        Raises:
            InputError: a log cannot be reached.
            WorkersLost: a process of Spark died.
        """
        seals = self._seals
        # A job that begins has nothing to continue from, and nothing to report.
        if seals is None or not (read or stepper.progress != Progress()):
            return
        first = seals.first_positions(stepper, program)
        without = _events_between(first, read)
        try:
            seals.resume(stepper, placement, program)
        except SealSlower:
            self._notice(f"the state is computed from the log, which is quicker: {without:,} events are read again")
            return
        except SealUnusable as error:
            if without:
                why = f" (its sealed state cannot be used: {error})" if seals.exists else ""
                self._notice(f"the state is computed from the log{why}: {without:,} events are read again")
            return
        again = _events_between(stepper.positions, read)
        self._notice(f"the state is the sealed one: {again:,} events are read again, instead of {without:,}")


def _events_between(positions: Mapping[Timeline, int], read: Mapping[str, Mapping[str, int]]) -> int:
    return sum(max(0, read.get(name, {}).get(partition, 0) - at) for (name, partition), at in positions.items())
