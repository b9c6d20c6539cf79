"""The jobs of a service: create, show, change, start, stop and delete them, and read how they are.

This is the whole of the service's API within a process. The management API, the portal and the command line are thin
layers over it. Every method may be called from any thread and returns soon: a start or stop is under way when it
returns, and `wait` waits for its end.
"""

from __future__ import annotations

import logging
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from tidegate.durable_files import DirectoryLock, DirectoryLocked, make_folders
from tidegate.service.error_groups import ErrorGroup
from tidegate.service.errors import Changed, InvalidJob, JobExists, JobNotFound, ServiceError, WrongState
from tidegate.service.job_files import DATA_ERRORS, LogPage, read_data_errors, read_last_output, read_log, read_status
from tidegate.service.launching import launcher_of_this_machine
from tidegate.service.metric_history import Resolution, Sample, Thinning
from tidegate.service.processes import Launcher, Usage, usage_of
from tidegate.service.record import JobRecord, RecordFile, utc_now
from tidegate.service.resource import JobDocument, JobResource, JobSummary, Scale, StartMode
from tidegate.service.secrets import Sealer
from tidegate.service.shared_spark import SharedSpark
from tidegate.service.states import ACTIVE, JobState, NoTransition
from tidegate.service.supervised_job import ServiceSettings, SupervisedJob, Surroundings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_JOBS = "jobs"
_logger = logging.getLogger(__name__)
_CHECK_WITHIN_S = 60.0
_CLOSE_WITHIN_S = 10.0

MOST_UNITS = 396
"""The most streaming units that a job of Stream Analytics has."""


class Jobs:
    """The jobs of a service. Leaving it as a context manager stops the processes; jobs run again when it is opened."""

    def __init__(
        self,
        folder: Path,
        settings: ServiceSettings | None = None,
        launcher: Callable[[], Launcher] = launcher_of_this_machine,
    ) -> None:
        """Prepare the service; nothing is read or started before `open`.

        Args:
            folder: where the jobs are kept; made if it is missing.
            launcher: returns what starts processes; called when the first is needed.
        """
        self.refresh: Callable[[JobDocument], JobDocument] = lambda document: document
        """Returns a job's document with what may have changed beside it, whenever its process is about to start."""
        self._folder = folder
        self._settings = settings or ServiceSettings()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._make_launcher = launcher
        self._launcher: Launcher | None = None
        self._closing = False
        self._jobs: dict[str, SupervisedJob] = {}
        self._leaving: list[SupervisedJob] = []
        self._owner: DirectoryLock | None = None
        self._sealer: Sealer
        self._spark = SharedSpark(folder, self._settings.spark, self._settings.limits.nice, self._lock)
        self._surroundings = Surroundings(
            self._lock,
            self._the_launcher,
            self._changed.notify_all,
            self._settings,
            self._spark,
            lambda document: self.refresh(document),
        )
        self._ticking = threading.Thread(target=self._tick, name="tidegate-jobs", daemon=True)

    def open(self) -> None:
        """Read the jobs, and start those that ran when the service ended.

        Raises:
            ServiceError: another service uses the folder, or the key cannot be read.
        """
        self._owner = _owned(self._folder)
        try:
            self._sealer = Sealer.of_file(self._settings.key_file or self._folder / "key")
            with self._lock:
                self._read()
        except BaseException:
            self._owner.release()
            raise
        self._ticking.start()

    def note_storage(self, reason: str | None) -> None:
        """Note why the data disk takes no writes, None if it does: jobs that have to write to it are Degraded."""
        with self._lock:
            for job in self._jobs.values():
                job.note_storage(reason)

    def list(self) -> Sequence[JobResource]:
        """Return all jobs, by name."""
        with self._lock:
            return [job.resource() for _, job in sorted(self._jobs.items())]

    def show(self, name: str) -> JobResource:
        """Return a job.

        Raises:
            JobNotFound: there is none of that name.
        """
        with self._lock:
            return self._job(name).resource()

    def document(self, name: str) -> JobDocument:
        """Return what a job's user said about it, with its secrets in clear: for changes, never to be shown.

        Raises:
            JobNotFound: there is none of that name.
        """
        with self._lock:
            return self._job(name).record.document

    def create(self, name: str, document: JobDocument) -> JobResource:
        """Create a job. Its definition may be incomplete; it is checked when the job is started.

        Raises:
            JobExists: there is one of that name.
            InvalidJob: the name or the scale cannot be used.
        """
        with self._lock:
            if name.lower() in self._jobs:
                raise JobExists(name)
            _check(name, document)
            record = JobRecord.new(name, document, utc_now())
            folder = self._folder / _JOBS / f"{name.lower()}-{record.job_id[:8]}"
            file = RecordFile(folder, self._sealer)
            file.write(record)
            job = SupervisedJob(record, folder, file, self._surroundings)
            self._jobs[name.lower()] = job
            self._changed.notify_all()
            return job.resource()

    def edit(self, name: str, change: Callable[[JobDocument], JobDocument], *, etag: str | None = None) -> JobResource:
        """Change a job. A running one whose results would differ continues with the change from its last output time.

        Where nothing differs nothing is written, and the job keeps its ETag.

        Args:
            change: returns the new document for the present one, which has the secrets in clear.
            etag: the change is made only if the job still has this ETag; None: in any case.

        Raises:
            JobNotFound: there is none of that name.
            Changed: another client has changed it.
            InvalidJob: the change is to a running job, and it could not run so.
        """
        with self._lock:
            job = self._job(name)
            before = job.record.document
            _check_etag(job, etag)
        document = change(before)
        if document == before:
            with self._lock:
                self._check_unchanged(job, etag)
                return job.resource()
        _check(name, document)
        runs = document.definition != before.definition or document.scale != before.scale
        if runs and job.state in ACTIVE:
            problems = self.check(name, document.definition)
            if problems:
                raise InvalidJob(name, problems)
        with self._lock:
            self._check_unchanged(job, etag)
            if job.record.document is not before:
                raise Changed(f"job '{name}' was changed at the same time; read it again, then change it")
            if runs:
                job.change(document, "started again with the changed definition")
            else:
                job.remember(document)
            return job.resource()

    def scale(self, name: str, scale: Scale) -> JobResource:
        """Change what a job may use; a running one is started again.

        Raises:
            JobNotFound: there is none of that name.
            InvalidJob: there are no such units.
        """
        return self.edit(name, lambda document: replace(document, scale=scale))

    def start(self, name: str, mode: StartMode | None = None, output_start: datetime | None = None) -> JobResource:
        """Start a job; it is Starting when this returns.

        Args:
            mode: where its output starts; None: LAST if it has run before, otherwise at the beginning of its inputs.
            output_start: for CUSTOM, the output start time, with its time zone.

        Raises:
            JobNotFound: there is none of that name.
            WrongState: it runs already, or has never run and is to resume.
            InvalidJob: the mode and the time contradict each other.
            JobsUnavailable: jobs cannot run here.
        """
        with self._lock:
            job = self._job(name)
            mode = mode or StartMode.LAST
            if (mode is StartMode.CUSTOM) != (output_start is not None):
                raise InvalidJob(name, [f"an output start time is for {StartMode.CUSTOM} only, which needs one"])
            if output_start is not None and output_start.tzinfo is None:
                raise InvalidJob(name, [f"the output start time {output_start.isoformat()} has no time zone"])
            try:
                job.start(mode, utc_now() if mode is StartMode.NOW else output_start)
            except NoTransition as error:
                raise WrongState(f"job '{name}' is {job.state}: stop it before it is started again") from error
            return job.resource()

    def stop(self, name: str) -> JobResource:
        """Stop a job; it is Stopping or Stopped when this returns. One that does not run stays as it is.

        Raises:
            JobNotFound: there is none of that name.
        """
        with self._lock:
            job = self._job(name)
            if job.state in ACTIVE:
                job.stop()
            return job.resource()

    def delete(self, name: str) -> None:
        """Delete a job, with its state; its outputs stay. Its name is free when this returns.

        Raises:
            JobNotFound: there is none of that name.
            ServiceError: the disk refuses; the job remains, and runs on.
        """
        with self._lock:
            job = self._job(name)
            job.forget()
            del self._jobs[name.lower()]
            self._leaving.append(job)

            def forget() -> None:
                shutil.rmtree(job.folder, ignore_errors=True)
                if job in self._leaving:
                    self._leaving.remove(job)

            job.discard(forget)
            self._changed.notify_all()

    def wait(self, name: str, states: Collection[JobState], timeout_s: float, job_id: str | None = None) -> JobResource:
        """Return a job when it is in one of the states, or as it is after the timeout.

        Args:
            job_id: the job's, if one that was created anew is not meant.

        Raises:
            JobNotFound: there is none of that name, or no longer.
        """
        with self._lock:
            deadline = time.monotonic() + timeout_s
            while True:
                job = self._job(name)
                left_s = deadline - time.monotonic()
                if job.state in states or left_s <= 0 or (job_id or job.record.job_id) != job.record.job_id:
                    return job.resource()
                self._changed.wait(left_s)

    def check(self, name: str, definition: Mapping[str, Any]) -> Sequence[str]:
        """Return what is wrong with a definition, a sentence each; this takes up to a few seconds.

        Raises:
            JobsUnavailable: jobs cannot run here.
        """
        found: list[str] = []
        done = threading.Event()

        def report(problems: Sequence[str]) -> None:
            found.extend(problems)
            done.set()

        with self._lock:
            launcher = self._the_launcher()
        launcher.check({**definition, "name": name}, report)
        if not done.wait(_CHECK_WITHIN_S):
            return [f"the definition could not be checked within {_CHECK_WITHIN_S:g} s"]
        return found

    def status(self, name: str) -> Mapping[str, Any] | None:
        """Return what a job last said about its watermarks, in the form of `tidegate job blockers -o json`.

        Raises:
            JobNotFound: there is none of that name.
        """
        with self._lock:
            folder = self._job(name).state_folder
        return read_status(folder)

    def metrics(self, name: str) -> Mapping[str, float | None]:
        """Return a job's metrics under the names of Stream Analytics; those of a stopped job are its last.

        Raises:
            JobNotFound: there is none of that name.
        """
        status = self.status(name)
        return {} if status is None else dict(status.get("metrics", {}))

    def summaries(self) -> Sequence[JobSummary]:
        """Return how all jobs are, without reading a file: cheaper than `list`."""
        with self._lock:
            return [job.summary() for _, job in sorted(self._jobs.items())]

    def samples(self) -> Mapping[str, Mapping[str, Any]]:
        """Return by job what its process last measured, for `JobsCollector`."""
        with self._lock:
            return {job.record.name: job.metrics for job in self._jobs.values() if job.metrics is not None}

    def spark_usage(self) -> Usage | None:
        """Return what the Spark uses that jobs share; None if none of them needs it."""
        with self._lock:
            process = self._spark.process
        return None if process is None else usage_of(process)

    def report(self, name: str) -> Mapping[str, Any]:
        """Return what a job's process last reported; empty if none runs.

        It has `metrics`, the counts of `inputs` and `outputs`, and how long the last step took (`computeSeconds`,
        `commitSeconds`).

        Raises:
            JobNotFound: there is none of that name.
        """
        with self._lock:
            return self._job(name).metrics or {}

    def output_samples(self, name: str) -> Mapping[str, Sequence[str]]:
        """Return the last rows that a job wrote since the service began, as JSON texts by output.

        Raises:
            JobNotFound: there is none of that name.
        """
        with self._lock:
            return dict(self._job(name).output_samples)

    def history(
        self,
        name: str,
        resolution: Resolution,
        after_s: float = 0.0,
        only: Collection[str] | None = None,
        thinning: Thinning | None = None,
    ) -> Sequence[Sample]:
        """Return what a job measured over time, the oldest first.

        Args:
            name: the job's.
            resolution: how far apart the samples are.
            after_s: the time after which they begin, in seconds since 1970.
            only: the metrics that are wanted; None for all.
            thinning: which samples are enough; None for all.

        Raises:
            JobNotFound: there is none of that name.
        """
        with self._lock:
            return self._job(name).history.since(resolution, after_s, only, thinning)

    def partition_history(self, name: str, resolution: Resolution, after_s: float = 0.0) -> Sequence[Sample]:
        """Return what was measured of a job's partitions, after a time in seconds since 1970, the oldest first.

        A metric's name is followed by a space and by INPUT/PARTITION.

        Raises:
            JobNotFound: there is none of that name.
        """
        with self._lock:
            return self._job(name).partitions.since(resolution, after_s)

    def last_output(self, name: str) -> datetime | None:
        """Return up to which time the results of a job have left; None if none have.

        Raises:
            JobNotFound: there is none of that name.
        """
        with self._lock:
            folder = self._job(name).state_folder
        return read_last_output(folder)

    def logs(self, name: str, *, limit: int = 200, after: int | None = None) -> LogPage:
        """Return lines of a job's log.

        Args:
            limit: how many at most.
            after: `LogPage.next` of an earlier call, for the lines since; None: the last lines.

        Raises:
            JobNotFound: there is none of that name.
        """
        with self._lock:
            folder = self._job(name).folder
        return read_log(folder, limit=limit, after=after)

    def data_errors(self, name: str, *, limit: int = 100) -> Sequence[Mapping[str, Any]]:
        """Return the newest samples of events and results that could not be used, each with the event that caused it.

        Raises:
            JobNotFound: there is none of that name.
        """
        with self._lock:
            folder = self._job(name).state_folder
        return read_data_errors(folder, limit)

    def error_groups(self, name: str) -> Sequence[ErrorGroup]:
        """Return the events and results that could not be used by what was wrong with them, the latest kind first.

        Raises:
            JobNotFound: there is none of that name.
            OSError: the file that the job writes cannot be read.
        """
        with self._lock:
            job = self._job(name)
            path, groups = job.state_folder / DATA_ERRORS, job.error_groups
        return groups.of(path)

    def state_folder(self, name: str) -> Path:
        """Return the folder with a job's journal, which `tidegate job run` can share.

        Raises:
            JobNotFound: there is none of that name.
        """
        with self._lock:
            return self._job(name).state_folder

    def close(self) -> None:
        """Stop the processes; the jobs that ran run again when the folder is next opened. Calling it again is fine."""
        with self._lock:
            if self._closing or self._owner is None:
                return
            self._closing = True
            jobs = [*self._jobs.values(), *self._leaving]
            for job in jobs:
                job.suspend()
            deadline = time.monotonic() + _CLOSE_WITHIN_S
            while any(job.has_process for job in jobs) and time.monotonic() < deadline:
                self._changed.wait(0.2)
            self._changed.notify_all()
        self._ticking.join()
        with self._lock:
            for job in self._jobs.values():
                job.flush_history()
        if self._launcher is not None:
            self._launcher.close()
        self._spark.close()
        self._owner.release()

    def __enter__(self) -> Jobs:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _job(self, name: str) -> SupervisedJob:
        job = self._jobs.get(name.lower())
        if job is None:
            raise JobNotFound(name)
        return job

    def _check_unchanged(self, job: SupervisedJob, etag: str | None) -> None:
        """Raise JobNotFound if a job was deleted meanwhile, and Changed if another one has its name or its ETag."""
        if self._job(job.record.name) is not job:
            raise Changed(f"job '{job.record.name}' was deleted and created again at the same time; read it again")
        _check_etag(job, etag)

    def _the_launcher(self) -> Launcher:
        if self._launcher is None:
            self._launcher = self._make_launcher()
        return self._launcher

    def _read(self) -> None:
        """Read the records, remove what is left of deleted jobs, and start those that ran."""
        for folder in sorted((self._folder / _JOBS).iterdir()):
            file = RecordFile(folder, self._sealer)
            try:
                record = file.read()
            except ServiceError as error:
                # One job that is damaged keeps neither the hub nor the other jobs from running.
                _logger.error("the job in %s is left out: %s", folder, error)
                continue
            if record is None:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            self._jobs[record.name.lower()] = SupervisedJob(record, folder, file, self._surroundings)
        for job in self._jobs.values():
            if job.record.wanted:
                job.resume()

    def _tick(self) -> None:
        with self._lock:
            while not self._closing:
                now_s = time.monotonic()
                jobs = [*self._jobs.values(), *self._leaving]
                for job in jobs:
                    job.tick(now_s)
                due = [job.due_at_s for job in jobs if job.due_at_s is not None]
                self._changed.wait(max(0.01, min(due) - now_s) if due else None)


def _owned(folder: Path) -> DirectoryLock:
    try:
        make_folders(folder / _JOBS)
        if stat.S_IMODE(folder.stat().st_mode) != 0o700:  # a read-only disk refuses even a change that changes nothing
            folder.chmod(0o700)
        return DirectoryLock(folder)
    except DirectoryLocked as error:
        raise ServiceError(f"another service runs these jobs: {error}") from error
    except OSError as error:
        raise ServiceError(f"cannot use {folder}: {error.strerror}") from error


def _check(name: str, document: JobDocument) -> None:
    problems = []
    if not _NAME.fullmatch(name):
        problems.append(f"a job's name has letters, digits, '-', '_' and '.', 128 at most; got {name!r}")
    if not 1 <= document.scale.streaming_units <= MOST_UNITS:
        problems.append(f"a job has 1 to {MOST_UNITS} streaming units, got {document.scale.streaming_units}")
    if problems:
        raise InvalidJob(name, problems)


def _check_etag(job: SupervisedJob, etag: str | None) -> None:
    if etag not in (None, "*", job.record.etag):
        raise Changed(f"job '{job.record.name}' was changed by another client; read it again, then change it")
