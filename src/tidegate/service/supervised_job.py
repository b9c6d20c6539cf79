"""One job of the service: its record, its supervision, and the process that it has at the moment."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, assert_never

from tidegate.service.error_groups import ErrorGroups
from tidegate.service.errors import ServiceError
from tidegate.service.job_files import STATE, read_last_output, read_placement, read_versions, rotate
from tidegate.service.metric_history import OF_PARTITIONS, MetricHistory
from tidegate.service.processes import Launcher, LaunchOrder, Process, usage_of
from tidegate.service.record import JobRecord, RecordFile, Start, utc_now
from tidegate.service.resource import JobDocument, JobResource, JobSummary, StartMode
from tidegate.service.secrets import redacted, redacted_properties
from tidegate.service.shared_spark import SharedSpark, SharedSparkSettings, SparkUser
from tidegate.service.states import ACTIVE, JobEvent, JobState, after
from tidegate.service.supervision import Exit, ExitKind, ProcessAction, Supervision


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """What the processes of jobs may use.

    Attributes:
        memory_bytes_per_unit: of memory that is the process's own, for each streaming unit. A process that uses more
            is ended, with that as the reason, and started again.
        nice: how much jobs yield the processor to the hub.
    """

    memory_bytes_per_unit: int = 1 << 30
    nice: int = 10


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How jobs are run.

    Attributes:
        key_file: the key of the secrets at rest; None: `key` in the service's folder.
        limits: what a job may use.
        spark: the Spark that jobs share.
        max_events_per_step: how much of a backlog one step reads; None: what the job file says,
            or what takes about two seconds.
        parallelism: how many tasks a step has at most.
        traces: URL of the OpenTelemetry collector that traces of steps are sent to; None: none are made.
    """

    key_file: Path | None = None
    limits: ResourceLimits = ResourceLimits()
    spark: SharedSparkSettings = field(default_factory=SharedSparkSettings)
    max_events_per_step: int | None = None
    parallelism: int = min(2, os.cpu_count() or 1)
    traces: str | None = None


_logger = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all jobs of a service share.

    Attributes:
        lock: held while a job is read or changed.
        launcher: returns what starts processes.
        changed: called after a job has changed, with the lock held.
        spark: what jobs use that outgrow their process.
        refresh: returns what a job's user said with what may have changed beside it, such as keys of this server.
    """

    lock: threading.RLock
    launcher: Callable[[], Launcher]
    changed: Callable[[], None]
    settings: ServiceSettings
    spark: SharedSpark
    refresh: Callable[[JobDocument], JobDocument]


class SupervisedJob:
    """One job. Its process reports to it (`ProcessEvents`); everything else is called with the lock held."""

    def __init__(self, record: JobRecord, folder: Path, file: RecordFile, surroundings: Surroundings) -> None:
        self.record = record
        self.folder = folder
        self.metrics: Mapping[str, Any] | None = None
        self.output_samples: dict[str, Sequence[str]] = {}
        self.history = MetricHistory(folder)
        self.partitions = MetricHistory(folder, "partitions", OF_PARTITIONS)
        self.error_groups = ErrorGroups()
        self.on_end: Callable[[], None] = lambda: None
        self._file = file
        self._surroundings = surroundings
        self._supervision = _supervision_of(record)
        self._since = record.since or record.created
        self._process: Process | None = None
        self._reports: _Reports | None = None
        self._pid: int | None = None
        self._suspended = False
        self._look_at_s = 0.0
        self._shared_bytes: int | None = None
        self._spark_owner: str | None = None
        self._waits_for_storage = False
        self._is_unwritten = False

    @property
    def state(self) -> JobState:
        """The job's state."""
        return self._supervision.state

    @property
    def state_folder(self) -> Path:
        """Where the job's journal is: the folder its job file names, or one of the service."""
        named = self.record.document.definition.get("state_dir")
        return Path(named) if named else self.folder / STATE

    @property
    def has_process(self) -> bool:
        """Whether a process of the job exists, or is about to."""
        return self._process is not None

    @property
    def due_at_s(self) -> float | None:
        """When `tick` has something to do."""
        due_at_s = self._supervision.due_at_s
        if self._pid is None and not self._is_unwritten:
            return due_at_s
        return self._look_at_s if due_at_s is None else min(due_at_s, self._look_at_s)

    def resource(self) -> JobResource:
        """Return the job as readers see it."""
        record, start = self.record, self.record.start
        return JobResource(
            name=record.name,
            job_id=record.job_id,
            etag=record.etag,
            state=self.state,
            reason=self._supervision.reason,
            definition=redacted(record.document.definition),
            arm=redacted_properties(record.document.arm),
            scale=record.document.scale,
            created=record.created,
            changed=record.changed,
            state_since=self._since,
            started=None if start is None else start.asked,
            start_mode=None if start is None else start.mode,
            output_start=None if start is None else start.time,
            last_output=read_last_output(self.state_folder),
            placement=read_placement(self.state_folder),
            restarts=self._supervision.restarts,
            process=self._pid,
            versions=read_versions(self.state_folder),
        )

    def summary(self) -> JobSummary:
        """Return how the job is, without reading a file."""
        supervision = self._supervision
        metrics = {} if self.metrics is None else self.metrics.get("metrics", {})
        return JobSummary(self.record.name, self.state, supervision.reason, supervision.restarts, self._pid, metrics)

    def start(self, mode: StartMode, time: datetime | None) -> None:
        """Start the job. What is wanted is durable before anything happens.

        Raises:
            NoTransition: it runs already.
            JobsUnavailable: jobs cannot run here.
        """
        after(self.state, JobEvent.START)
        self._surroundings.launcher()
        start = Start(mode, time, utc_now(), pending=time is not None)
        self._write(replace(self.record, wanted=True, start=start))
        self._act(self._supervision.start())

    def resume(self) -> None:
        """Start the job because it ran when the service ended."""
        self._supervision = Supervision(JobState.STOPPED)
        self._act(self._supervision.start())

    def stop(self) -> None:
        """Stop the job."""
        actions = self._supervision.stop(time.monotonic())
        self._write(replace(self.record, wanted=False))
        self._act(actions)

    def suspend(self) -> None:
        """Ask the process to stop because the service ends; what is wanted of the job stays."""
        self._suspended = True
        if self._process is not None:
            self._process.ask_to_stop()

    def forget(self) -> None:
        """Remove the record, so that no service runs the job again.

        Raises:
            ServiceError: the disk refuses, and the job remains.
        """
        self._file.forget()

    def discard(self, done: Callable[[], None]) -> None:
        """End the process of a job that was forgotten, and call `done` when there is none."""
        self.on_end = done
        if self.state in ACTIVE:
            self._act(self._supervision.stop(time.monotonic()))
        if self._process is None:
            done()

    def change(self, document: JobDocument, reason: str) -> None:
        """Change what the job is; a running one is started again where its results ended."""
        self._write(self.record.with_document(document, utc_now()))
        self._act(self._supervision.restart(time.monotonic(), reason))

    def remember(self, document: JobDocument) -> None:
        """Change what only readers need to know."""
        self._write(self.record.with_document(document, utc_now()))

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        actions = self._supervision.tick(now_s)
        if actions:
            self._act(actions)
        if self._is_unwritten and now_s >= self._look_at_s:
            self._write_when_possible(self.record)
        if self._pid is not None and now_s >= self._look_at_s:
            self._look_at_s = now_s + _LOOK_EVERY_S
            self._limit_memory(self._pid)
            self._rotate()

    def _rotate(self) -> None:
        try:
            rotate(self.folder)
        except OSError as error:
            _logger.warning("the log of job %s cannot be rotated: %s", self.record.name, error)

    def _limit_memory(self, pid: int) -> None:
        """End a job whose processes use more memory than they may, before others have to pay for it."""
        usage = usage_of(pid)
        if usage is None:
            return
        if self._shared_bytes is None:
            self._shared_bytes = usage.memory_bytes - usage.java_bytes
        limit = self._surroundings.settings.limits.memory_bytes_per_unit * self.record.document.scale.streaming_units
        own = usage.memory_bytes - usage.java_bytes - self._shared_bytes
        if own > limit:
            self.fail(
                f"it used {own / _MIB:,.0f} MiB of memory, and may use {limit / _MIB:,.0f}: scale the job, or "
                "shorten its windows"
            )

    def fail(self, reason: str) -> None:
        """Kill the process for a reason that its end then has."""
        if self._process is not None and self._reports is not None:
            self._reports.reason = self._reports.reason or reason
            self._process.kill()

    def launched(self, reports: _Reports, pid: int) -> None:
        if reports is self._reports:
            self._pid, self._shared_bytes, self._look_at_s = pid, None, 0.0
            self._surroundings.changed()

    def begun(self) -> None:
        """The start is in the journal, and a restart is not to repeat it."""
        start = self.record.start
        if start is not None and start.pending:
            self._write_when_possible(replace(self.record, start=replace(start, pending=False)))

    def ready(self) -> None:
        self._supervision.ready(time.monotonic())
        self._act(())

    def trouble(self, reason: str) -> None:
        self._supervision.trouble(reason)
        self._act(())

    def note_storage(self, reason: str | None) -> None:
        """Note why the service's disk takes no writes, None if it does; a job without results would not notice."""
        if "state_dir" in self.record.document.definition:
            return
        if reason is not None and self.state is JobState.RUNNING:
            self._waits_for_storage = True
            self.trouble(f"the data disk cannot be written: {reason}")
        elif reason is None and self._waits_for_storage:
            self._waits_for_storage = False
            if self.state is JobState.DEGRADED and self._pid is not None:
                self._supervision.ready(time.monotonic())
                self._act(())

    def measured(self, metrics: Mapping[str, Any]) -> None:
        self.metrics = metrics
        self.output_samples |= metrics.get("samples", {})
        if metrics.get("metrics"):
            self.history.add(time.time(), metrics["metrics"])
        if metrics.get("partitions"):
            self.partitions.add(time.time(), metrics["partitions"])

    def flush_history(self) -> None:
        """Write what the job has measured and its files lack."""
        self.history.flush()
        self.partitions.flush()

    def spark_wanted(self) -> None:
        process = self._process
        if process is not None:
            self._spark_owner = self._surroundings.spark.attach(SparkUser(process.answer_spark, self.fail))

    def spark_released(self) -> None:
        owner, self._spark_owner = self._spark_owner, None
        if owner is not None:
            self._surroundings.spark.release(owner)

    def ended(self, end: Exit) -> None:
        self.spark_released()
        self._process = self._reports = self._pid = None
        self.flush_history()
        self.metrics = None
        if self._suspended:
            self._surroundings.changed()
            return
        if end.kind is ExitKind.FATAL and self._refresh():
            end = replace(end, kind=ExitKind.UNAVAILABLE)  # it ran with what was no longer so
        actions = self._supervision.ended(end, time.monotonic())
        if not self._supervision.wanted and self.record.wanted:
            self._write_when_possible(replace(self.record, wanted=False))
        self._act(actions)
        self.on_end()

    def _act(self, actions: Sequence[ProcessAction]) -> None:
        for action in actions:
            match action:
                case ProcessAction.LAUNCH:
                    self._launch()
                case ProcessAction.ASK_TO_STOP:
                    if self._process is not None:
                        self._process.ask_to_stop()
                case ProcessAction.KILL:
                    self.fail("it did not stop in time and was killed")
                case _:
                    assert_never(action)
        self._remember_state()
        self._surroundings.changed()

    def _launch(self) -> None:
        self._refresh()
        self._reports = reports = _Reports(self, self._surroundings.lock)
        try:
            self._process = self._surroundings.launcher().launch(self._order(), reports)
        except (ServiceError, OSError) as error:
            self.ended(Exit(ExitKind.UNAVAILABLE, f"its process cannot be started: {error}"))

    def _refresh(self) -> bool:
        """Take over what has changed beside the job, and return whether anything has; it is no change of its user's."""
        document = self._surroundings.refresh(self.record.document)
        if document == self.record.document:
            return False
        self._write_when_possible(replace(self.record, document=document))
        return True

    def _order(self) -> LaunchOrder:
        record, settings = self.record, self._surroundings.settings
        document, start, limits = record.document, record.start, settings.limits
        units = document.scale.streaming_units
        content = {**document.definition, "name": record.name, "state_dir": str(self.state_folder)}
        return LaunchOrder(
            name=record.name,
            folder=self.folder,
            content=content,
            start=start.time.isoformat() if start and start.time and start.pending else None,
            start_asked=start.asked.isoformat() if start else None,
            memory_bytes=limits.memory_bytes_per_unit * units,
            nice=limits.nice,
            max_events_per_step=settings.max_events_per_step,
            parallelism=max(settings.parallelism, units),
            traces=settings.traces,
        )

    def _remember_state(self) -> None:
        """Keep how the job is: for jobs that run only in memory, as they are Starting after the service restarted."""
        state, reason = self.state, self._supervision.reason
        if (state, reason) == (self.record.state, self.record.reason):
            return
        if state is not self.record.state:
            self._since = utc_now()
            _logger.log(
                logging.WARNING if state in (JobState.DEGRADED, JobState.FAILED) else logging.INFO,
                "job %s is %s%s",
                self.record.name,
                state,
                f": {reason}" if reason else "",
            )
        record = replace(self.record, state=state, reason=reason, since=self._since)
        if self._supervision.is_active:
            self.record = record
        else:
            self._write_when_possible(record)

    def _write_when_possible(self, record: JobRecord) -> None:
        """Keep what has happened, now or when the disk takes writes again."""
        self.record = record
        try:
            self._file.write(record)
        except ServiceError as error:
            if not self._is_unwritten:
                _logger.error("job %s: %s; trying again", record.name, error)
            self._is_unwritten = True
            self._look_at_s = time.monotonic() + _LOOK_EVERY_S
        else:
            self._is_unwritten = False

    def _write(self, record: JobRecord) -> None:
        self._file.write(record)
        self.record = record


class _Reports:
    """The reports of one process: they take the lock, and those of a process that was replaced are ignored."""

    def __init__(self, job: SupervisedJob, lock: threading.RLock) -> None:
        self._job = job
        self._lock = lock
        self.reason: str | None = None

    def launched(self, pid: int) -> None:
        with self._lock:
            self._job.launched(self, pid)

    def begun(self) -> None:
        with self._lock:
            self._job.begun()

    def ready(self) -> None:
        with self._lock:
            self._job.ready()

    def trouble(self, reason: str) -> None:
        with self._lock:
            self._job.trouble(reason)

    def measured(self, metrics: Mapping[str, Any]) -> None:
        with self._lock:
            self._job.measured(metrics)

    def spark_wanted(self) -> None:
        with self._lock:
            self._job.spark_wanted()

    def spark_released(self) -> None:
        with self._lock:
            self._job.spark_released()

    def ended(self, end: Exit) -> None:
        with self._lock:
            self._job.ended(replace(end, message=self.reason) if self.reason else end)


def _supervision_of(record: JobRecord) -> Supervision:
    settled = record.state in (JobState.CREATED, JobState.STOPPED, JobState.FAILED)
    return Supervision(record.state, record.reason) if settled else Supervision(JobState.STOPPED)
