"""A job's run: steps until there is a reason to end, each result leaving once whatever is killed when (`durable`)."""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tidegate.engine import Program
from tidegate.job.analysis.replay_source import Subject
from tidegate.job.model.errors import JobError
from tidegate.job.model.events import InputLog
from tidegate.job.model.metrics import WATERMARK_DELAY, DataErrorLog
from tidegate.job.outputs import OutputCounts, RetryPolicy, Sinks, SinkSettings, shape_of
from tidegate.job.outputs.shape import Shape
from tidegate.job.prepare.loading import Job
from tidegate.job.prepare.opening import Inputs
from tidegate.job.run.commit_coordinator import Durable
from tidegate.job.run.history import check_history
from tidegate.job.run.journal import Commit, Journal
from tidegate.job.run.status import StatusFile
from tidegate.job.runtime.step import Emitted, Progress, Runner, Step, Stepper, StepSettings, gauges
from tidegate.job.side_outputs.early_results import EarlyMark, EarlyResults, shapes_of_early_results
from tidegate.job.side_outputs.explanations import SHAPE, Explanations
from tidegate.ordering import END_OF_TIME, NO_TIME, TICKS_PER_SECOND, format_duration, format_time, read_from
from tidegate.saql.plan import nodes as plan

_IDLE_S = 0.05
_LONGEST_WAIT_FOR_THE_WATERMARK_S = 60


Observer = Callable[[Step, Mapping[str, int], Mapping[str, OutputCounts]], None]
"""Is told of each step as it was taken, of the counters after it, and of what each output has counted."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a run tells of a step: the step itself, and where the run stands after it.

    Attributes:
        totals: counters over the life of the job.
    """

    number: int
    step: Step
    totals: dict[str, int]

    def gauges(self) -> dict[str, float | None]:
        """How things stand now, by metric name."""
        return gauges(self.step, _now_ticks())

    @property
    def watermark_delay_s(self) -> float | None:
        """Seconds from the watermark to now; None while there is no watermark."""
        return self.gauges()[WATERMARK_DELAY]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How a run ended. ``watermark``: ticks, NO_TIME if it never had one; ``totals`` and ``gauges``: by metric name."""

    why: Literal["stopped", "caught up", "complete", "until reached"]
    steps: int
    watermark: int
    totals: dict[str, int] = field(default_factory=dict)
    gauges: dict[str, float | None] = field(default_factory=dict)


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
    """Run a job until it is stopped, or as long as it is told to.

    Args:
        runner: runs the tasks of a step.
        start: output start time in ticks; None goes on from the journal, or is the log's beginning where there is none.
            Results between what the journal says has left and a later start are left out.
        until: only results before this time (ticks) leave; the run ends when they all have.
        until_caught_up: end when every event that was there at the beginning has been read and the watermark has
            passed the last one's arrival, or cannot.
        max_events_per_step: how much of a backlog one step takes.
        on_step: told of every step that read an event or let out a row.
        observers: told of every step, with the counters over the life of the job.
        should_stop: asked between steps.
        runner_for: makes a runner for the query with other reference data; None: they stay as the job was loaded with.
        notice: told what the run waits for, and warnings.
        accept_missing: go on though events are gone that were never read.

    Raises:
        JobError: an input or output fails, or the journal belongs to another query.
    """
    folder = job.definition.state_dir
    assert folder is not None
    with _owned(folder):
        journal = Journal(folder)
        commit = _last_commit(journal, job, start, notice)
        identity = secrets.token_hex(8) if commit is None else commit.identity
        retry_policy = RetryPolicy(job.definition.output_retry_s, notice)
        marks = {} if commit is None else commit.outputs
        sinks = Sinks.open(_sink_settings(job, identity), marks, retry_policy)
        if commit is not None and start is not None:
            sinks.continue_after_held_rows()
        inputs: Inputs | None = None
        try:
            if commit is None:
                commit = Commit(identity, job.fingerprint, NO_TIME if start is None else start)
            if start is not None or not commit.outputs:
                commit = replace(commit, outputs=sinks.commit())
                journal.write(commit)
            inputs = Inputs(job.definition, job.program, job.policy, folder, commit.released, runner_for)
            for warning in check_history(inputs.logs, commit, job.program, job.policy, accept_missing=accept_missing):
                notice(warning)
            for advice in _waits_of_substreams(job, inputs.logs):
                notice(advice)
            early = _early_results(job, inputs, commit)
            explanations = _explanations(job, inputs, commit)
            stepper = Stepper(
                inputs.program,
                job.policy,
                inputs.logs if early is None else early.logs,
                inputs.runner(runner),
                _progress(commit),
                StepSettings(max_events_per_step, parallelism=parallelism, counted=commit.positions),
            )
            status = StatusFile(folder, job.program, job.policy)
            durable = Durable(
                journal, commit, sinks, DataErrorLog(folder), status, retry_policy, early, explanations, inputs
            )
            return _Run(job, inputs, stepper, durable, early, explanations, observers).go_on(
                until, until_caught_up, on_step or (lambda report: None), should_stop
            )
        finally:
            sinks.close()
            if inputs is not None:
                inputs.close()


def _sink_settings(job: Job, journal: str) -> SinkSettings:
    definition = job.definition
    drop = definition.output_error_policy == "drop"
    return SinkSettings(definition.name, journal, definition.outputs, _shapes(job), drop)


def _progress(commit: Commit) -> Progress:
    emitted = Emitted() if commit.left is None else Emitted(*commit.left)
    return Progress(commit.released, commit.ahead, emitted)


def _shapes(job: Job) -> dict[str, Shape | None]:
    """What the rows of each output look like: of the query's, and of those beside them."""
    shapes = {output.name: shape_of(output.relation) for output in job.program.query.outputs}
    shapes |= shapes_of_early_results(job.definition.early_results, job.program, shapes)
    if job.definition.explanations is not None:
        shapes[job.definition.explanations.output] = SHAPE
    return shapes


class _Run:
    """The loop over steps."""

    def __init__(
        self,
        job: Job,
        inputs: Inputs,
        stepper: Stepper,
        durable: Durable,
        early: EarlyResults | None,
        explanations: Explanations | None,
        observers: Sequence[Observer],
    ) -> None:
        self._policy = job.policy
        self._inputs = inputs
        self._stepper = stepper
        self._durable = durable
        self._early = early
        self._explanations = explanations
        self._observers = observers
        self._last: Step | None = None

    def go_on(
        self,
        until: int,
        until_caught_up: bool,
        on_step: Callable[[StepReport], None],
        should_stop: Callable[[], bool],
    ) -> RunSummary:
        """Step until there is a reason not to."""
        number = 0
        caught_up_at: float | None = None
        began = _now_ticks()
        while not should_stop():
            step = self._step(until)
            more_to_come = self._early is not None and not self._early.waits
            for observe in self._observers:
                observe(step, self._durable.totals, self._durable.counts())
            if step.events or step.rows:
                number += 1
                on_step(StepReport(number, step, dict(self._durable.totals)))
            if step.complete:
                return self._end("complete", number)
            if self._stepper.released >= until:
                return self._end("until reached", number)
            if step.caught_up and until_caught_up and not more_to_come:
                caught_up_at = caught_up_at or time.monotonic()
                waited_s = time.monotonic() - caught_up_at
                if step.watermark >= began or waited_s > self._patience_s():
                    return self._end("caught up", number)
            self._inputs.look(self._stepper)
            if not step.events and not more_to_come:
                time.sleep(_IDLE_S)
        return self._end("stopped", number)

    def _step(self, until: int) -> Step:
        """Take a step, and make durable what it let out."""
        if self._early is not None:
            self._early.before_step()
        step = self._stepper.step(until)
        rows_beside = [] if self._early is None else self._early.after_step(step, self._stepper, until)
        if self._explanations is not None:
            rows_beside += self._explanations.after_step(step)
        if step.rows or rows_beside:
            self._inputs.before_it_counts()
        self._durable.take(step, rows_beside, self._stepper)
        self._last = step
        return step

    def _end(self, why: Literal["stopped", "caught up", "complete", "until reached"], steps: int) -> RunSummary:
        self._durable.end(self._stepper)
        now = {} if self._last is None else gauges(self._last, _now_ticks())
        watermark = NO_TIME if self._last is None else self._last.watermark
        return RunSummary(why, steps, watermark, dict(self._durable.totals), now)

    def _patience_s(self) -> float:
        """How long the watermark can take to pass the last arrival once nothing more comes: the late tolerance."""
        late = self._policy.late_ticks
        if late is None:
            return 0.0
        return min(late / TICKS_PER_SECOND + 1, _LONGEST_WAIT_FOR_THE_WATERMARK_S)


def _now_ticks() -> int:
    return time.time_ns() // 100


def _last_commit(journal: Journal, job: Job, start: int | None, notice: Callable[[str], None]) -> Commit | None:
    """Where an earlier run got to, moved on to a later output start time; None where there was none.

    Raises:
        JobError: it cannot be carried on, or not from there.
    """
    commit, name, folder = journal.read(), job.definition.name, job.definition.state_dir
    if commit is None:
        return None
    if commit.query != job.fingerprint:
        raise JobError(
            f"the query or the event ordering of '{name}' has changed since {folder} was written, "
            "so its results cannot be carried on; move that folder and the outputs away to start afresh"
        )
    ended = commit.released == END_OF_TIME
    if start is not None and start < commit.released:
        before = "" if ended else f" before {format_time(commit.released)}"
        raise JobError(
            f"'{name}' has let out all results{before} (its journal is in {folder}) and cannot start at "
            f"{format_time(start)} again; leave --start out to go on, or move that folder and the outputs away"
        )
    if ended:
        notice(
            f"an earlier run came to the end of the log and let out everything; move {folder} and the outputs away to "
            "run it again"
        )
    return commit if start is None else replace(commit, released=start, left=None)


def _waits_of_substreams(job: Job, logs: Mapping[str, InputLog]) -> list[str]:
    """Where results of a substream wait for partitions that have nothing of it: OVER without PartitionId."""
    said = []
    program, late = job.program, job.policy.late_ticks
    for name, log in logs.items() if program.by_substream and not job.policy.merged else ():
        source, count = program.source_of(name), len(log.ends())
        over = next((one.over for one in program.query.inputs if one.name == source and one.over), ())
        named = any(isinstance(key, plan.Column) and key.path[-1].lower() == "partitionid" for key in over)
        if over and not named and count > 1:
            clock = "for ever" if late is None else f"for the clock of all, {format_duration(late)} and more"
            said.append(
                f"input {name} has {count} partitions, and a key of OVER may be on any of them, so that its results "
                f"wait {clock}; where a key stays on one partition, name PartitionId in OVER, PARTITION BY and GROUP BY"
            )
    return said


def _early_results(job: Job, inputs: Inputs, commit: Commit) -> EarlyResults | None:
    definition = job.definition.early_results
    if definition is None:
        return None
    from_ticks = commit.released
    since = None if from_ticks == NO_TIME else read_from(from_ticks, job.program.lookback_ticks, job.policy)
    return EarlyResults(definition, job.program, inputs.logs, EarlyMark.from_json(commit.early), since)


def _explanations(job: Job, inputs: Inputs, commit: Commit) -> Explanations | None:
    definition = job.definition.explanations
    if definition is None:
        return None
    told = commit.released if commit.explained is None else commit.explained
    subject = Subject(job.definition.name, inputs.program, job.policy, inputs.logs, job.definition)
    return Explanations(definition, subject, told)


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Hold the state folder for this process; the lock goes with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock: Any = (folder / "lock").open("w")
    except OSError as error:
        raise JobError(f"cannot use the state folder {folder}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JobError(f"another process is running this job: {folder} is locked") from error
        yield
