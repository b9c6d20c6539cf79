"""Logs that nobody speaks for: their clock goes on by estimate, which may overshoot, while the job is killed and begun
again. What left must be what one look gives at the log and at the ticks that were written down."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.job.logs import EPOCH, Cuts, RevealedLog, TravellingTasks
from tidegate.connectors.inputs.kinds import ArrivalEstimate
from tidegate.connectors.inputs.recorded import RecordedLog
from tidegate.connectors.inputs.ticks import TickedLog, Ticks
from tidegate.connectors.model.events import InputLog, PartitionEnd
from tidegate.engine import Program
from tidegate.job.runtime.step import Progress, Step, Stepper, StepSettings
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND, Policy, read_from

_HALF = TICKS_PER_SECOND // 2


class SilentLog(RevealedLog):
    """A log that shows what has arrived and promises nothing."""

    def ends(self) -> dict[str, PartitionEnd]:
        """Return the state of each partition at the current clock; its end, once it is complete."""
        if self.complete:
            return super().ends()
        return {
            partition: replace(end, arrival_lower_bound=None, complete=False)
            for partition, end in super().ends().items()
        }


class SteppingClock:
    """Seconds that never go back, and the calendar."""

    def __init__(self) -> None:
        self.now = EPOCH

    def __call__(self) -> tuple[float, int]:
        """As `time.monotonic` and `time.time_ns` tell it."""
        return self.now / TICKS_PER_SECOND, self.now


def remember(every: Ticks, name: str, log: RecordedLog, ticks: Ticks) -> None:
    """Take note of ticks that have been written down: of those at one place the last one counts."""
    for partition in log.ends():
        for place, arrival in ticks.of(name, partition):
            before = every.at(name, partition, place)
            if before < arrival:
                every.forget(name, partition, lambda tick, place=place: tick[0] == place)
                every.tick(name, partition, place, arrival)


def with_ticks(logs: dict[str, RecordedLog], every: Ticks) -> dict[str, InputLog]:
    """Whole logs with all ticks there ever were, and no new ones."""
    return {name: TickedLog(log, name, every) for name, log in logs.items()}


def outputs_by_estimate(
    program: Program,
    policy: Policy,
    logs: dict[str, RecordedLog],
    cuts: Cuts,
    dice: random.Random,
) -> tuple[dict[str, bytes], Ticks]:
    """The logs as they grow, in small steps, by runs that are killed at ``cuts.restart_after``: what left, by output,
    and every tick that was written down."""
    with tempfile.TemporaryDirectory() as folder:
        return _Runs(program, policy, logs, cuts, dice, Path(folder)).go_on()


class _Runs:
    """One run after another over the same logs."""

    def __init__(
        self,
        program: Program,
        policy: Policy,
        logs: dict[str, RecordedLog],
        cuts: Cuts,
        dice: random.Random,
        folder: Path,
    ) -> None:
        self._program, self._policy, self._logs, self._cuts = program, policy, logs, cuts
        self._dice, self._folder = dice, folder
        # Somebody may speak for one of several inputs.
        self._shown = {
            name: SilentLog(log) if number == 0 or dice.random() < 0.7 else RevealedLog(log)
            for number, (name, log) in enumerate(logs.items())
        }
        self._clock = SteppingClock()
        self._prunes = dice.random() < 0.5
        self._progress = Progress()
        self._every = Ticks()
        self._outputs: dict[str, bytes] = {}
        self._begin()

    def go_on(self) -> tuple[dict[str, bytes], Ticks]:
        """To the end of the logs."""
        number = 0
        for clock in [*sorted(self._cuts.clocks), None]:
            for log in self._shown.values():
                log.clock, log.complete = clock or END_OF_TIME - 1, clock is None
            self._clock.now = max(self._clock.now, clock or 0) + self._dice.randint(0, 12) * _HALF
            idle = 0 if clock is None else self._dice.randint(0, 3)
            at_rest = False
            while not at_rest or idle > 0:
                step = self._stepper.step()
                # Of partitions that are one timeline what waits for another's clock is still to be read.
                at_rest = step.complete if clock is None else step.caught_up or not step.events
                dies = number in self._cuts.restart_after
                self._take(step, commits=not dies and (bool(step.rows) or self._dice.random() < 0.3))
                if dies:
                    if self._dice.random() < 0.5:
                        self._write_ticks()  # written down, but nothing has left by them
                    self._begin()
                    at_rest = False
                elif at_rest:
                    # Nothing arrives, and this machine's clock advances, faster or slower than the broker's.
                    self._clock.now += self._dice.randint(0, 8) * _HALF
                    idle -= 1
                number += 1
        self._write_ticks()
        return self._outputs, self._every

    def _begin(self) -> None:
        self._ticks = Ticks(self._folder)
        logs: dict[str, InputLog] = {
            name: TickedLog(log, name, self._ticks, ArrivalEstimate(0.25), clock=self._clock)
            for name, log in self._shown.items()
        }
        self._stepper = Stepper(
            self._program,
            self._policy,
            logs,
            TravellingTasks(self._program, self._policy),
            self._progress,
            StepSettings(self._cuts.max_events_per_step, self._cuts.batch_events, self._cuts.parallelism),
        )

    def _take(self, step: Step, commits: bool) -> None:
        """What a run does with a step: ticks, then rows, then how far they went; without a commit, nothing."""
        if not commits:
            return
        self._write_ticks()
        for rows in step.rows:
            self._outputs[rows.output] = self._outputs.get(rows.output, b"") + rows.to_json_lines()
        self._progress = self._stepper.progress

    def _write_ticks(self) -> None:
        if self._prunes and self._progress.released != NO_TIME:
            self._ticks.forget_before(read_from(self._progress.released, self._program.lookback_ticks, self._policy))
        self._ticks.write()
        for name, log in self._logs.items():
            remember(self._every, name, log, self._ticks)
