"""A job's run: steps until there is a reason to stop, each result emitted once wherever it is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar

from tidegate.connectors.model.metrics import WATERMARK_DELAY, DataErrorLog
from tidegate.connectors.outputs import OutputCounts
from tidegate.engine import Program
from tidegate.engine.sharding.keys import unspread
from tidegate.job.prepare.loading import Job
from tidegate.job.run.commit_coordinator import CommitCoordinator
from tidegate.job.run.event_quality import EventQuality
from tidegate.job.run.losses import Losses, RecoveryCost
from tidegate.job.run.opening import OpenRun, open_run
from tidegate.job.run.patient_placement import PatientPlacement
from tidegate.job.run.placement_policy import CONFIGURED, MovePolicy, RebalancePolicy, RunLocation
from tidegate.job.run.progress_report import ProgressReport, StepTimes
from tidegate.job.run.seal_schedule import SealSchedule, is_worthwhile
from tidegate.job.run.status import StatusFile
from tidegate.job.runtime.placement import (
    DriverPlacement,
    Placement,
    StateLost,
    WorkersLost,
)
from tidegate.job.runtime.rebuilding import Follower
from tidegate.job.runtime.seals import Seals, fingerprint_of
from tidegate.job.runtime.step import Emitted, Progress, Step, Stepper, StepSettings, Timeline, gauges
from tidegate.job.runtime.timelines import StepPace
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND, Policy, format_time

# A job that has been idle for ten seconds looks four times a second, so that many idle jobs cost little.
_IDLE_S, _IDLE_GROWTH, _LONGEST_IDLE_S = 0.02, 1.03, 0.25
_LONGEST_WAIT_FOR_THE_WATERMARK_S = 60
_SAY_AFTER_S = 1.0


Done = TypeVar("Done")

PlacementFor = Callable[[Program], Placement]
"""Returns where a program runs, with an empty state."""


@dataclass(frozen=True, slots=True)
class Placements:
    """Where a run may be placed.

    Attributes:
        here: in this process.
        on_spark: on Spark, and the first time Spark is started; None if the run stays here.
        placement_policy: decides between the two; None: the run is on Spark from its beginning to its end.
        parallelism: how many tasks a step has at most, if that may change; None: what the settings of the run say.
        why: why the run is there, if it does not move.
    """

    here: PlacementFor
    on_spark: PlacementFor | None = None
    placement_policy: MovePolicy | None = None
    parallelism: Callable[[], int] | None = None
    why: str = CONFIGURED


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
        until_caught_up: end when every event that was there at the beginning has been read, and every result that
            they take part in has been emitted; those of events so recent that late ones may still change them are
            waited for as long as the late tolerance, at most a minute, after saying so.
        max_events_per_step: how much of a backlog one step reads; None: what the job file says,
            or what takes about two seconds.
        parallelism: how many tasks a step has at most.
    """

    until: int = END_OF_TIME
    until_caught_up: bool = False
    max_events_per_step: int | None = None
    parallelism: int = 2


@dataclass(frozen=True, slots=True)
class RunHooks:
    """What a run calls.

    Attributes:
        on_step: called after each step that read an event or emitted a row.
        observers: called after every step.
        should_stop: asked between steps.
        timed: called after every step with its times.
        notice: called with what people should know.
        placed: called as the run begins, and whenever it moves.
        progress: called after each step that read an event or emitted a row, with its report (`ProgressReport`).
        rest: pauses for so many seconds, or less, after a step that found nothing to read.
    """

    on_step: Callable[[StepReport], None] = lambda report: None
    observers: Sequence[Observer] = ()
    should_stop: Callable[[], bool] = lambda: False
    timed: Callable[[Step, StepTimes], None] | None = None
    notice: Callable[[str], None] = lambda text: None
    placed: Callable[[RunLocation], None] = lambda where: None
    progress: Callable[[Mapping[str, Any]], None] | None = None
    rest: Callable[[float], None] = lambda seconds: time.sleep(seconds)


def run_job(
    job: Job,
    placements: Placements | None = None,
    *,
    start: int | None = None,
    until: int = END_OF_TIME,
    until_caught_up: bool = False,
    max_events_per_step: int | None = None,
    parallelism: int = 2,
    on_step: Callable[[StepReport], None] | None = None,
    observers: Sequence[Observer] = (),
    should_stop: Callable[[], bool] = lambda: False,
    notice: Callable[[str], None] = lambda text: None,
    accept_missing: bool = False,
) -> RunSummary:
    """Run a job until it is stopped or reaches an end that was set; `open_run` and `run_steps` in one call.

    Args:
        placements: where it runs; None: in this process.
        start, accept_missing, notice: see `open_run`.
        until, until_caught_up, max_events_per_step, parallelism: see `RunSettings`.
        on_step, observers, should_stop: see `RunHooks`.

    Raises:
        JobError: an input or output fails, or the job cannot resume from its journal.
    """
    settings = RunSettings(until, until_caught_up, max_events_per_step, parallelism)
    hooks = RunHooks(on_step or (lambda report: None), observers, should_stop, notice=notice)
    with open_run(job, start=start, accept_missing=accept_missing, notice=notice) as opened:
        return run_steps(opened, placements or in_this_process(job.policy), settings, hooks)


def in_this_process(policy: Policy) -> Placements:
    """Return what places the tasks and the keyed side of a run in this process."""
    return Placements(lambda program: DriverPlacement(program, policy))


def run_steps(
    opened: OpenRun,
    placements: Placements,
    settings: RunSettings,
    hooks: RunHooks,
) -> RunSummary:
    """Take the steps of a run that was opened.

    Raises:
        JobError: an input or output fails.
    """
    return _Run(opened, placements, settings, hooks).run()


class _Run:
    """The loop over steps."""

    def __init__(
        self,
        opened: OpenRun,
        placements: Placements,
        settings: RunSettings,
        hooks: RunHooks,
    ) -> None:
        job, commit = opened.job, opened.commit
        self._policy = job.policy
        self._settings = settings
        said = settings.max_events_per_step or job.definition.spark.max_events_per_step
        self._pace = StepPace(said, calls_functions=bool(job.program.functions))
        self._hooks = hooks
        self._inputs = opened.inputs
        self._side_outputs = opened.side_outputs
        self._reading = opened.reading
        self._deaths = opened.deaths
        self._placements = placements
        self._placement: Placement | None = None
        self._losses = Losses()
        self._recovery = RecoveryCost()
        self._moves = 0
        self._rebalance = RebalancePolicy()
        self._status = StatusFile(opened.folder, job.program, job.policy)
        progress = Progress(commit.released, commit.ahead, Emitted() if commit.left is None else Emitted(*commit.left))
        self._counted = {name: dict(partitions) for name, partitions in commit.positions.items()}
        self._seals = _seals(opened, hooks)
        # Without a seal, a query that looks back far would read too much of the log again.
        self._may_rebalance = self._seals.is_on or not is_worthwhile(job.program, job.policy)
        self._say_what_one_shard_computes(job)
        self._stepper = self._new_stepper(progress)
        why = placements.why
        if placements.placement_policy is not None:
            why = placements.placement_policy.begin(self._stepper.backlog())
            if placements.placement_policy.on_spark:
                self._stepper = self._new_stepper(progress)
        self._where = self._note_place(why)
        kinds = {name: section.type for name, section in job.definition.outputs.items()}
        self._report = ProgressReport(job.definition.name, commit.identity, kinds)
        self._coordinator = CommitCoordinator(
            opened.journal,
            commit,
            opened.sinks,
            DataErrorLog(opened.folder),
            self._status,
            opened.retry_policy,
            self._side_outputs,
            self._inputs,
        )
        self._last: Step | None = None
        self._number = 0
        self._said_that_it_waits = False
        self._quality = EventQuality(job.definition.data_error_warning_share)

    def run(self) -> RunSummary:
        """Step until there is a reason to stop."""
        caught_up_at: float | None = None
        idle_s = _IDLE_S
        began = _now_ticks()
        while not self._hooks.should_stop():
            step = self._step()
            has_more = self._side_outputs.has_more
            for observe in self._hooks.observers:
                observe(step, self._coordinator.totals, self._coordinator.output_counts())
            if step.events or step.result_count:
                self._number += 1
                self._hooks.on_step(StepReport(self._number, step, dict(self._coordinator.totals)))
            if step.complete:
                return self._finish(Ending.COMPLETE)
            if self._stepper.released >= self._settings.until:
                return self._finish(Ending.UNTIL_REACHED)
            if step.caught_up and self._settings.until_caught_up and not has_more:
                caught_up_at = caught_up_at or time.monotonic()
                if self._backlog_is_out(step, began, time.monotonic() - caught_up_at):
                    return self._finish(Ending.CAUGHT_UP)
            self._coordinator.refresh_reference_data(self._stepper)
            idle_s = self._pause(idle_s) if not step.events and not has_more else _IDLE_S
        return self._finish(Ending.STOPPED)

    def _backlog_is_out(self, step: Step, began: int, waited_s: float) -> bool:
        """Return whether a run that has read everything can end, as it has emitted what it waits for or need not wait.

        Args:
            began: ticks; results up to there are wanted.
        """
        awaited = min(began, self._stepper.settled_at)
        if step.watermark >= awaited:
            return True
        longest_s = self._longest_wait_s()
        reached = "there is none yet" if step.watermark == NO_TIME else f"it is at {format_time(step.watermark)}"
        if waited_s > longest_s:
            self._hooks.notice(
                f"the run ends before all results of the events that it has read are final: the watermark would have "
                f"to reach {format_time(awaited)}, and {reached}; a later run emits them"
            )
            return True
        if waited_s > _SAY_AFTER_S and not self._said_that_it_waits:
            self._said_that_it_waits = True
            self._hooks.notice(
                "everything that was there has been read; the last results wait until no late event can change them: "
                f"the watermark has to reach {format_time(awaited)}, and {reached}; the run ends after "
                f"{longest_s:.0f} s at the latest"
            )
        return False

    def _pause(self, idle_s: float) -> float:
        """Pause before the next step of an idle job, and return how long to pause after that one."""
        self._hooks.rest(idle_s)
        return min(_IDLE_GROWTH * idle_s, _LONGEST_IDLE_S)

    def _step(self) -> Step:
        """Take a step, and make what it emitted durable."""
        began_ns = time.time_ns()
        self._side_outputs.before_step()
        step = self._despite_losses(self._read_on)
        self._note_recovery(step)
        side_rows = self._despite_losses(
            lambda: self._side_outputs.rows_after_step(step, self._stepper, self._settings.until), self._read_again
        )
        computed_ns = time.time_ns()
        self._seals.note_speed(step.events, (computed_ns - began_ns) / 1e9)
        self._coordinator.accept_step(step, side_rows, self._stepper)
        self._warn(self._quality.note(step))
        times = StepTimes(began_ns, computed_ns, time.time_ns())
        if self._hooks.timed is not None:
            self._hooks.timed(step, times)
        if self._hooks.progress is not None and (step.events or step.result_count):
            self._hooks.progress(self._report.of(self._number, step, times, self._where))
        self._last = step
        if self._seals.is_due(step):
            self._seal()
        if not self._move_if_it_pays(step) and not step.complete:
            self._rebalance_if_it_pays()
        return step

    def _read_on(self) -> Step:
        """Take a step over no more events than what earlier processes have died of allows."""
        began = time.monotonic()
        step = self._stepper.step(self._settings.until, self._most_events(), self._side_outputs.wants_preview)
        self._pace.note(step.events, time.monotonic() - began, self._parallelism)
        return step

    def _most_events(self) -> int:
        return self._deaths.most_events(self._pace.most_events)

    def _parallelism(self) -> int:
        return self._placements.parallelism() if self._placements.parallelism else self._settings.parallelism

    def _seal(self) -> None:
        """Seal the state, which must not be ahead of the journal."""
        assert self._placement is not None
        self._coordinator.commit(self._stepper)
        self._seals.seal(self._stepper, self._placement)
        self._where = replace(self._where, sealed=self._seals.last)
        self._status.place(self._where)

    def _move_if_it_pays(self, step: Step) -> bool:
        policy = self._placements.placement_policy
        why = None if policy is None or step.complete else policy.should_move(step)
        if policy is None or why is None:
            return False
        policy.move()
        self._moves += 1
        self._start_again()
        self._where = self._note_place(why)
        return True

    def _rebalance_if_it_pays(self) -> None:
        assert self._placement is not None
        placement = self._placement
        idle = self._rebalance.is_due(lambda: placement.idle_executors(self._seals.is_on))
        if not idle or not placement.prepare_spread():
            return
        began = time.monotonic()
        moved = self._spread()
        if moved is None and self._may_rebalance:
            if self._seals.is_on:
                self._seal()
            self._compute_state_again(lambda: None)
        self._rebalance.note(time.monotonic() - began)
        if moved is not None or self._may_rebalance:
            joined = "an executor has" if idle == 1 else f"{idle:,} executors have"
            self._where = self._note_place(f"{joined} joined")

    def _spread(self) -> int | None:
        """Move shards to idle executors; if that fails, they stay where they are."""
        assert self._placement is not None
        try:
            moved = self._placement.spread()
        except (OSError, StateLost, WorkersLost) as error:
            self._hooks.notice(f"no shard could move to the executors that have joined: {error}; the job continues")
            return 0
        if moved is not None:
            self._stepper.spread(self._parallelism())
            self._hooks.notice(f"shards with {moved:,} bytes of state have moved to executors that have joined")
        return moved

    def _note_place(self, why: str) -> RunLocation:
        """Tell everybody where the run is from now on."""
        assert self._placement is not None
        cost, sealed = self._recovery, self._seals.last
        location, losses = self._placement.location, self._losses.total
        where = RunLocation(location, _now_ticks(), why, self._moves, losses, cost.events, cost.seconds, sealed)
        self._status.place(where)
        self._hooks.placed(where)
        return where

    def _despite_losses(self, work: Callable[[], Done], prepare: Callable[[], None] = lambda: None) -> Done:
        """Do work again after the state was lost, or a process that took part.

        Args:
            prepare: called with the empty state that the run continues with.

        Raises:
            UnavailableError: that happens again and again.
        """
        while True:
            try:
                return work()
            except WorkersLost as lost:
                self._note_loss(lost)
            except StateLost as lost:
                self._recovery.begin()
                self._note_loss(lost)
                if not self._compute_lost_again(lost):
                    self._compute_state_again(prepare)

    def _compute_lost_again(self, lost: StateLost) -> bool:
        """Compute the states of lost shards again, and leave the others alone.

        Returns:
            Whether that has been done or, as there was another loss meanwhile, been tried; the step finds out. If not,
            everything has to be computed again.
        """
        assert self._placement is not None
        part = self._placement.rebuilding(lost.shards)
        if part is None:
            return False
        logs, read = self._side_outputs.logs, _by_input(self._stepper.positions)
        try:
            follower = Follower(self._stepper, part, logs, self._step_settings())
            self._seals.resume(follower.stepper, part, self._inputs.program, read)
            self._follow(follower)
            part.adopt()
        except (StateLost, WorkersLost) as again:
            self._note_loss(again)
        finally:
            part.close()
        self._recovery.add(follower.events)
        return True

    def _follow(self, follower: Follower) -> None:
        """Take the steps of a follower; one that a worker does not survive is taken again."""
        is_behind = True
        while is_behind:
            try:
                is_behind = not follower.step(self._most_events()).caught_up
            except WorkersLost as lost:
                self._note_loss(lost)

    def _compute_state_again(self, prepare: Callable[[], None]) -> None:
        while True:
            try:
                self._start_again()
                prepare()
                return
            except (StateLost, WorkersLost) as again:
                self._note_loss(again)

    def _note_loss(self, lost: Exception) -> None:
        what = "it is computed again from the log" if isinstance(lost, StateLost) else "the step is taken again"
        self._hooks.notice(f"{lost}; {what}")
        at = self._stepper
        self._losses.note(lost, (at.released, at.emitted.before, sum(at.positions.values())))
        self._where = replace(self._where, losses=self._losses.total)
        self._status.place(self._where)

    def _note_recovery(self, step: Step) -> None:
        cost = self._recovery.note(step.timelines, self._counted)
        if cost is not None:
            self._hooks.notice(cost)
            self._where = replace(self._where, read_again=self._recovery.events, recovery_s=self._recovery.seconds)
            self._status.place(self._where)

    def _read_again(self) -> None:
        """Read up to where the last step was, which emits nothing: all of it has been emitted."""
        caught_up = False
        while not caught_up:
            step = self._read_on()
            assert not step.result_count
            self._note_recovery(step)
            caught_up = step.caught_up

    def _start_again(self) -> None:
        """Go on from the run's progress with an empty state, which is computed again from the log."""
        for (name, partition), position in self._stepper.positions.items():
            counted = self._counted.setdefault(name, {})
            counted[partition] = max(position, counted.get(partition, 0))
        self._stepper = self._new_stepper(self._stepper.progress)

    def _new_stepper(self, progress: Progress) -> Stepper:
        """Return a stepper with an empty state that continues from a progress."""
        if self._placement is not None:
            self._placement.close()
            self._placement = None
        self._placement = self._new_placement((progress.released, progress.emitted.before, 0))
        program, logs = self._inputs.program, self._side_outputs.logs
        stepper = Stepper(program, self._policy, logs, self._placement, progress, self._step_settings())
        self._seals.resume(stepper, self._placement, program, self._counted)
        return stepper

    def _step_settings(self) -> StepSettings:
        return StepSettings(parallelism=self._parallelism(), counted=self._counted)

    def _new_placement(self, reached: tuple[int, ...]) -> PatientPlacement:
        while True:
            try:
                return PatientPlacement(self._placement_for()(self._inputs.program), self._reading, self._deaths)
            except WorkersLost as lost:
                self._hooks.notice(str(lost))
                self._losses.note(lost, reached)

    def _placement_for(self) -> PlacementFor:
        here, on_spark, policy = self._placements.here, self._placements.on_spark, self._placements.placement_policy
        return here if on_spark is None or (policy is not None and not policy.on_spark) else on_spark

    def _say_what_one_shard_computes(self, job: Job) -> None:
        """Say before the job starts which operators more cores of Spark would not make faster."""
        placements = self._placements
        cores = placements.parallelism() if placements.parallelism else self._settings.parallelism
        if placements.on_spark is not None and (job.definition.spark.shards or cores) > 1:
            self._warn(unspread(job.program.query))

    def _warn(self, warnings: Sequence[str]) -> None:
        for warning in warnings:
            self._hooks.notice(warning)

    def _finish(self, why: Ending) -> RunSummary:
        self._coordinator.finish(self._stepper)
        self._warn(self._quality.at_end())
        if self._placement is not None and self._seals.is_due_at_stop(self._last):
            self._seals.seal(self._stepper, self._placement)
        if self._placement is not None:
            self._placement.close()
        now = {} if self._last is None else gauges(self._last, _now_ticks())
        watermark = NO_TIME if self._last is None else self._last.watermark
        return RunSummary(why, self._number, watermark, dict(self._coordinator.totals), now)

    def _longest_wait_s(self) -> float:
        """Return how long the watermark may take to pass the last arrival when nothing else arrives."""
        late = self._policy.late_ticks
        if late is None:
            return 0.0
        return min(late / TICKS_PER_SECOND + 1, _LONGEST_WAIT_FOR_THE_WATERMARK_S)


def _by_input(positions: Mapping[Timeline, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (name, partition), position in positions.items():
        found.setdefault(name, {})[partition] = position
    return found


def _seals(opened: OpenRun, hooks: RunHooks) -> SealSchedule:
    """Return the seals of a run; none if the job wants none, or would gain little by them."""
    job = opened.job
    every_s = job.definition.seal_every_s
    if not every_s or not is_worthwhile(job.program, job.policy):
        return SealSchedule(None, 0.0, hooks.notice)
    fingerprint = fingerprint_of(job.fingerprint, job.definition.inputs)
    seals = Seals(opened.folder, fingerprint, opened.inputs.logs, job.policy)
    return SealSchedule(seals, every_s, hooks.notice)


def _now_ticks() -> int:
    return time.time_ns() // 100
