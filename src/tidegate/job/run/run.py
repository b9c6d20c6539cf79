"""A job's run: steps until there is a reason to stop, each result emitted once wherever it is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.engine import Program
from tidegate.job.model.metrics import WATERMARK_DELAY, DataErrorLog
from tidegate.job.model.retry_policy import RetryPolicy
from tidegate.job.outputs import OutputCounts
from tidegate.job.prepare.loading import Job
from tidegate.job.run.commit_coordinator import CommitCoordinator
from tidegate.job.run.opening import OpenRun, open_run
from tidegate.job.run.status import StatusFile
from tidegate.job.runtime.step import Emitted, Progress, Runner, Step, Stepper, StepSettings, gauges
from tidegate.job.runtime.task import RangeResult, Task
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND

# A job that has been idle for ten seconds looks four times a second, so that many idle jobs cost little.
_IDLE_S, _IDLE_GROWTH, _LONGEST_IDLE_S = 0.05, 1.02, 0.25
_LONGEST_WAIT_FOR_THE_WATERMARK_S = 60


Observer = Callable[[Step, Mapping[str, int], Mapping[str, OutputCounts]], None]
"""Called after each step with the step, the counters after it, and what each output has counted."""


class Ending(StrEnum):
    """Why a run ended."""

    STOPPED = "stopped"
    CAUGHT_UP = "caught up"
    COMPLETE = "complete"
    UNTIL_REACHED = "until reached"


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step, and the state of the run after it.

    Attributes:
        totals: counters over the life of the job.
    """

    number: int
    step: Step
    totals: dict[str, int]

    def gauges(self) -> dict[str, float | None]:
        """Return the metrics that describe the present state, by name."""
        return gauges(self.step, _now_ticks())

    @property
    def watermark_delay_s(self) -> float | None:
        """Seconds from the watermark to now; None while there is no watermark."""
        return self.gauges()[WATERMARK_DELAY]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How a run ended. ``watermark``: ticks, NO_TIME if it never had one; ``totals`` and ``gauges``: by metric name."""

    why: Ending
    steps: int
    watermark: int
    totals: dict[str, int] = field(default_factory=dict)
    gauges: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How long a run lasts, and how it cuts the log into steps.

    Attributes:
        until: ticks; only results before this time leave, and the run ends when they all have.
        until_caught_up: end when every event that was there at the beginning has been read, and the watermark has
            passed the last one's arrival or cannot.
        max_events_per_step: how much of a backlog one step reads.
        parallelism: how many tasks a step has at most.
    """

    until: int = END_OF_TIME
    until_caught_up: bool = False
    max_events_per_step: int = 1_000_000
    parallelism: int = 2


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When a step began, had its rows, and had made them durable; nanoseconds of Unix time."""

    began_ns: int
    computed_ns: int
    committed_ns: int


@dataclass(frozen=True, slots=True)
class RunHooks:
    """What a run calls.

    Attributes:
        on_step: called after each step that read an event or emitted a row.
        observers: called after every step.
        should_stop: asked between steps.
        timed: called after every step with its times.
    """

    on_step: Callable[[StepReport], None] = lambda report: None
    observers: Sequence[Observer] = ()
    should_stop: Callable[[], bool] = lambda: False
    timed: Callable[[Step, StepTimes], None] | None = None


def run_job(
    job: Job,
    runner: Runner,
    *,
    start: int | None = None,
    until: int = END_OF_TIME,
    until_caught_up: bool = False,
    max_events_per_step: int = 1_000_000,
    parallelism: int = 2,
    on_step: Callable[[StepReport], None] | None = None,
    observers: Sequence[Observer] = (),
    should_stop: Callable[[], bool] = lambda: False,
    runner_for: Callable[[Program], Runner] | None = None,
    notice: Callable[[str], None] = lambda text: None,
    accept_missing: bool = False,
) -> RunSummary:
    """Run a job until it is stopped or reaches an end that was set; `open_run` and `run_steps` in one call.

    Args:
        runner: runs the tasks of a step.
        start, accept_missing, notice: see `open_run`.
        until, until_caught_up, max_events_per_step, parallelism: see `RunSettings`.
        on_step, observers, should_stop: see `RunHooks`.
        runner_for: see `run_steps`.

    Raises:
        JobError: an input or output fails, or the job cannot resume from its journal.
    """
    settings = RunSettings(until, until_caught_up, max_events_per_step, parallelism)
    hooks = RunHooks(on_step or (lambda report: None), observers, should_stop)
    with open_run(job, start=start, accept_missing=accept_missing, notice=notice) as opened:
        return run_steps(opened, runner, settings, hooks, runner_for)


def run_steps(
    opened: OpenRun,
    runner: Runner,
    settings: RunSettings,
    hooks: RunHooks,
    runner_for: Callable[[Program], Runner] | None = None,
) -> RunSummary:
    """Take the steps of a run that was opened.

    Args:
        runner: runs the tasks of a step.
        runner_for: returns a runner for the query with other reference data; None: the reference data stay as they
            were when the job was loaded.

    Raises:
        JobError: an input or output fails.
    """
    return _Run(opened, runner, settings, hooks, runner_for).run()


class _Run:
    """The loop over steps."""

    def __init__(
        self,
        opened: OpenRun,
        runner: Runner,
        settings: RunSettings,
        hooks: RunHooks,
        runner_for: Callable[[Program], Runner] | None,
    ) -> None:
        job, commit = opened.job, opened.commit
        self._policy = job.policy
        self._settings = settings
        self._hooks = hooks
        self._inputs = opened.inputs
        self._side_outputs = opened.side_outputs
        patient_runner_for = None
        if runner_for is not None:
            make_runner = runner_for

            def patient_runner_for(program: Program) -> Runner:
                return _PatientRunner(make_runner(program), opened.reading)

        self._runner_for: Callable[[Program], Runner] | None = patient_runner_for
        self._stepper = Stepper(
            self._inputs.program,
            job.policy,
            self._side_outputs.logs,
            self._inputs.runner(_PatientRunner(runner, opened.reading), patient_runner_for),
            Progress(commit.released, commit.ahead, Emitted() if commit.left is None else Emitted(*commit.left)),
            StepSettings(settings.max_events_per_step, parallelism=settings.parallelism, counted=commit.positions),
        )
        self._coordinator = CommitCoordinator(
            opened.journal,
            commit,
            opened.sinks,
            DataErrorLog(opened.folder),
            StatusFile(opened.folder, job.program, job.policy),
            opened.retry_policy,
            self._side_outputs,
            self._inputs,
        )
        self._last: Step | None = None

    def run(self) -> RunSummary:
        """Step until there is a reason to stop."""
        number = 0
        caught_up_at: float | None = None
        idle_s = _IDLE_S
        began = _now_ticks()
        while not self._hooks.should_stop():
            step = self._step()
            has_more = self._side_outputs.has_more
            for observe in self._hooks.observers:
                observe(step, self._coordinator.totals, self._coordinator.output_counts())
            if step.events or step.rows:
                number += 1
                self._hooks.on_step(StepReport(number, step, dict(self._coordinator.totals)))
            if step.complete:
                return self._finish(Ending.COMPLETE, number)
            if self._stepper.released >= self._settings.until:
                return self._finish(Ending.UNTIL_REACHED, number)
            if step.caught_up and self._settings.until_caught_up and not has_more:
                caught_up_at = caught_up_at or time.monotonic()
                waited_s = time.monotonic() - caught_up_at
                if step.watermark >= began or waited_s > self._longest_wait_s():
                    return self._finish(Ending.CAUGHT_UP, number)
            self._inputs.refresh_reference_data(self._stepper, self._runner_for)
            idle_s = self._pause(idle_s) if not step.events and not has_more else _IDLE_S
        return self._finish(Ending.STOPPED, number)

    def _pause(self, idle_s: float) -> float:
        """Pause before the next step of an idle job, and return how long to pause after that one."""
        time.sleep(idle_s)
        return min(_IDLE_GROWTH * idle_s, _LONGEST_IDLE_S)

    def _step(self) -> Step:
        """Take a step, and make what it emitted durable."""
        began_ns = time.time_ns()
        self._side_outputs.before_step()
        step = self._stepper.step(self._settings.until)
        side_rows = self._side_outputs.rows_after_step(step, self._stepper, self._settings.until)
        computed_ns = time.time_ns()
        if step.rows or side_rows:
            self._inputs.make_durable()
        self._coordinator.accept_step(step, side_rows, self._stepper)
        if self._hooks.timed is not None:
            self._hooks.timed(step, StepTimes(began_ns, computed_ns, time.time_ns()))
        self._last = step
        return step

    def _finish(self, why: Ending, steps: int) -> RunSummary:
        self._coordinator.finish(self._stepper)
        now = {} if self._last is None else gauges(self._last, _now_ticks())
        watermark = NO_TIME if self._last is None else self._last.watermark
        return RunSummary(why, steps, watermark, dict(self._coordinator.totals), now)

    def _longest_wait_s(self) -> float:
        """Return how long the watermark may take to pass the last arrival when nothing else arrives."""
        late = self._policy.late_ticks
        if late is None:
            return 0.0
        return min(late / TICKS_PER_SECOND + 1, _LONGEST_WAIT_FOR_THE_WATERMARK_S)


class _PatientRunner:
    """A runner that runs the tasks of a step again while an input cannot be reached; tasks are pure functions."""

    def __init__(self, runner: Runner, reading: RetryPolicy) -> None:
        self._runner = runner
        self._reading = reading

    def __call__(self, tasks: Sequence[Task]) -> Sequence[Sequence[RangeResult]]:
        names = dict.fromkeys(one.input for task in tasks for one in task.ranges)
        what = ", ".join(f"input '{name}'" for name in names)
        return self._reading.call(what, lambda: self._runner(tasks))


def _now_ticks() -> int:
    return time.time_ns() // 100
