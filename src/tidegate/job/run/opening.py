"""Opening a run: everything that can fail before the first step, so that it fails before Spark starts.

In this order: the lock on the state folder, the journal and whether the job can resume from it, the outputs, whether
another query takes over, the inputs, and whether the log still has what the job needs.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidegate.connectors.model.encoded_rows import Encoder
from tidegate.connectors.model.errors import JobError, UnavailableError
from tidegate.connectors.model.events import InputLog
from tidegate.connectors.model.retry_policy import READING, RetryPolicy
from tidegate.connectors.model.set_aside import write_set_aside
from tidegate.connectors.outputs import Sinks, SinkSettings, shape_of
from tidegate.connectors.outputs.shape import Shape
from tidegate.durable_files import DirectoryLock, DirectoryLocked
from tidegate.job.prepare.loading import Job
from tidegate.job.prepare.opening import Inputs
from tidegate.job.run.deaths import Deaths
from tidegate.job.run.history import check_history, replaced_logs, without_logs
from tidegate.job.run.journal import Commit, Journal
from tidegate.job.run.trial import culprits
from tidegate.job.run.versions import Versions, rows_of
from tidegate.job.side_outputs import EARLY_RESULTS, RunInputs, SideOutputs, side_output_shapes
from tidegate.ordering import END_OF_TIME, NO_TIME, format_duration, format_time
from tidegate.sql.plan import nodes as plan


class AnotherProcess(JobError):
    """Another process runs the job."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A job that can take its first step.

    Attributes:
        commit: the one that the run resumes from.
        retry_policy: how long to wait for what cannot be written.
        reading: how long to wait for inputs that cannot be reached.
        deaths: what earlier processes of the job have died of.
        encoders: how rows may be encoded where they are computed, by output.
    """

    job: Job
    folder: Path
    journal: Journal
    commit: Commit
    sinks: Sinks
    inputs: Inputs
    side_outputs: SideOutputs
    retry_policy: RetryPolicy
    reading: RetryPolicy
    deaths: Deaths
    encoders: Mapping[str, Encoder] = field(default_factory=dict)


@contextlib.contextmanager
def open_run(
    job: Job,
    *,
    start: int | None = None,
    goes_back: bool = False,
    accept_missing: bool = False,
    notice: Callable[[str], None] = lambda text: None,
    sleep: Callable[[float], None] = time.sleep,
    to_begin_anew: str | None = None,
) -> Iterator[OpenRun]:
    """Lock a job and open its journal, outputs and inputs; close them at the end.

    Args:
        start: output start time in ticks; None resumes from the journal, or starts at the log's beginning if there is
            none. Results between the last that has left and a later start are not emitted. A query that has changed
            takes over there from the one before.
        accept_missing: continue although events were removed from the log before the job read them, or the log was
            replaced by another.
        goes_back: a start before the last output emits what came after it once more, as the service does; else it is
            refused, as each row leaves once.
        notice: called with warnings and with what the run waits for.
        sleep: pauses for some seconds while an input or output is unavailable; it may raise to end the run.
        to_begin_anew: what a person does to compute all results again, for messages; None: for a job.

    Raises:
        JobError: another process runs the job, the journal is damaged, or an input or output cannot be opened.
    """
    folder = job.definition.state_dir
    assert folder is not None
    with _locked(folder), contextlib.ExitStack() as opened:
        journal = Journal(folder)
        anew = to_begin_anew or f"move {folder} and the outputs away"
        last = _resumable_commit(journal, job, start, notice, anew, goes_back=goes_back)
        commit = last or Commit(secrets.token_hex(8), job.fingerprint, NO_TIME if start is None else start)
        takes_over = commit.query != job.fingerprint
        retry_policy = RetryPolicy(job.definition.output_retry_s, notice, sleep=sleep)
        sinks = Sinks.open(_sink_settings(job, commit.identity), commit.outputs, retry_policy)
        opened.callback(sinks.close)
        if last is not None and (start is not None or takes_over):
            sinks.continue_after_held_rows()
        if start is not None or takes_over or not commit.outputs:
            commit = _first_commit(job, commit, sinks, notice)
            _write(journal, commit, retry_policy)
        Versions(folder).begin(job, start)
        reading = RetryPolicy(job.definition.input_retry_s, notice, trouble=READING, sleep=sleep)
        deaths = Deaths(folder)
        opened.callback(deaths.close)
        inputs = _open_inputs(job, folder, commit, reading)
        if deaths.suspects:
            with contextlib.closing(inputs):
                _set_aside_culprits(job, inputs, deaths, notice)
            inputs = _open_inputs(job, folder, commit, reading)
        opened.callback(inputs.close)
        may_differ = accept_missing or start is not None
        replaced = replaced_logs(inputs.logs, commit, job.program, job.policy, accept=may_differ)
        if replaced:
            commit = without_logs(commit, replaced)
            _write(journal, commit, retry_policy)
        history = check_history(inputs.logs, commit, job.program, job.policy, accept_missing=accept_missing)
        for warning in (*replaced.values(), *history):
            notice(warning)
        for advice in _waits_of_substreams(job, inputs.logs):
            notice(advice)
        read = RunInputs(job.definition, inputs.program, job.policy, inputs.logs, commit.released)
        side_outputs = SideOutputs(read, commit.side_outputs)
        encoders = _encoders(job, sinks)
        yield OpenRun(
            job, folder, journal, commit, sinks, inputs, side_outputs, retry_policy, reading, deaths, encoders
        )


def _open_inputs(job: Job, folder: Path, commit: Commit, reading: RetryPolicy) -> Inputs:
    return Inputs(job.definition, job.program, job.policy, folder, commit.released, reading)


def _set_aside_culprits(job: Job, inputs: Inputs, deaths: Deaths, notice: Callable[[str], None]) -> None:
    """Find the events that have ended the job's processes, and see to it that no process touches them again."""
    count = sum(one.end - one.start for one in deaths.suspects)
    notice(
        f"the process of '{job.definition.name}' has ended abruptly twice while it evaluated some of the same "
        f"{count:,} events; they are tried in a process of their own"
    )
    found = culprits(inputs.program, job.policy, inputs.logs, deaths.suspects)
    if found:
        assert job.definition.state_dir is not None
        write_set_aside(job.definition.state_dir, found)
        deaths.forget()
    else:
        notice("none of them ends a process by itself; the job continues with all of them, in smaller steps")
        deaths.acquit()
    for one in found:
        notice(
            f"input {one.input}, partition {one.partition}, event {one.sequence_number} is set aside: {one.reason}; "
            "the job continues without it"
        )


def _write(journal: Journal, commit: Commit, retry_policy: RetryPolicy) -> None:
    retry_policy.call("the journal", lambda: journal.write_commit(commit))


def _encoders(job: Job, sinks: Sinks) -> Mapping[str, Encoder]:
    """Return how rows may be encoded where they are computed; early results look at the rows of their outputs."""
    early = job.definition.early_results
    return sinks.encoders.without(set() if early is None else {name.lower() for name in early.outputs})


def _first_commit(job: Job, commit: Commit, sinks: Sinks, notice: Callable[[str], None]) -> Commit:
    """Return the commit that a run begins with, if it does not simply resume; report it if a query takes over.

    Raises:
        JobError: something cannot be written.
    """
    marks = {**commit.outputs, **sinks.commit()}
    if commit.query == job.fingerprint:
        return replace(commit, outputs=marks)
    rows, before = rows_of(marks), rows_of(commit.outputs)
    Versions(job.definition.state_dir or Path()).take_over(job, commit, commit.released, rows)
    notice(_take_over_notice(job.definition.name, commit.released, rows, before))
    return replace(
        commit,
        query=job.fingerprint,
        outputs=marks,
        ahead={name: reached for name, reached in commit.ahead.items() if name in marks},
        left=commit.left if job.program.by_substream else None,
        # Early results of the old query say nothing about the windows of the new one.
        side_outputs={section: state for section, state in commit.side_outputs.items() if section != EARLY_RESULTS},
    )


def _take_over_notice(name: str, released: int, rows: Mapping[str, int], before: Mapping[str, int]) -> str:
    counted = ", ".join(f"{output}: {count:,}" for output, count in rows.items())
    if released == NO_TIME:
        return f"the query, its functions or the event ordering of '{name}' has changed before there were results"
    time = format_time(released)
    notice = (
        f"the query, its functions or the event ordering of '{name}' has changed: results before {time} are the old "
        f"query's ({counted} rows), those from then on are the new query's"
    )
    held = {output: count - before[output] for output, count in rows.items() if count > before.get(output, count)}
    if held:
        kept = ", ".join(f"{output}: {count:,}" for output, count in held.items())
        notice += f"; an interrupted step of the old query had already written later results, which stay ({kept} rows)"
    return notice


def _sink_settings(job: Job, journal: str) -> SinkSettings:
    definition = job.definition
    drop = definition.output_error_policy == "drop"
    return SinkSettings(definition.name, journal, definition.outputs, output_shapes(job), drop, definition.state_dir)


def output_shapes(job: Job) -> dict[str, Shape | None]:
    """Return the columns of every output of a job, those of its query and those beside them."""
    shapes: dict[str, Shape | None] = {output.name: shape_of(output.relation) for output in job.program.query.outputs}
    return {**shapes, **side_output_shapes(job.definition, shapes)}


def _resumable_commit(
    journal: Journal, job: Job, start: int | None, notice: Callable[[str], None], anew: str, *, goes_back: bool
) -> Commit | None:
    """Return where an earlier run stopped, moved to another output start time; None if there was no run.

    Raises:
        JobError: the job cannot resume from there, or not at that time.
    """
    commit, name, folder = journal.read_commit(), job.definition.name, job.definition.state_dir
    if commit is None:
        return None
    ended = commit.released == END_OF_TIME
    if goes_back and start is not None and start < commit.released:
        until = "" if ended else f" before {format_time(commit.released)}"
        notice(
            f"'{name}' has emitted all results{until}; it starts again at {format_time(start)}, so its outputs get "
            "those from then on once more"
        )
        # What early results have said, and how far single outputs were ahead, is said again.
        others = {section: state for section, state in commit.side_outputs.items() if section != EARLY_RESULTS}
        return replace(commit, released=start, left=None, ahead={}, side_outputs=others)
    if ended and commit.query != job.fingerprint:
        raise JobError(
            f"the query, its functions or the event ordering of '{name}' has changed since the job emitted all results "
            f"of a log that has ended; to compute them anew, {anew}"
        )
    if start is not None and start < commit.released:
        before = "" if ended else f" before {format_time(commit.released)}"
        raise JobError(
            f"'{name}' has emitted all results{before} (its journal is in {folder}) and cannot start at "
            f"{format_time(start)} again; omit --start to resume, or {anew}"
        )
    if ended:
        notice(f"an earlier run reached the end of the log and emitted all results; to compute them again, {anew}")
    return commit if start is None else replace(commit, released=start, left=None)


def _waits_of_substreams(job: Job, logs: Mapping[str, InputLog]) -> Iterator[str]:
    """Yield advice where a substream waits for partitions that have no event of it: OVER without PartitionId."""
    program, late = job.program, job.policy.late_ticks
    for name, log in logs.items() if program.by_substream and not job.policy.merged else ():
        source, count = program.source_of(name), len(log.ends())
        over = next((one.over for one in program.query.inputs if one.name == source and one.over), ())
        named = any(isinstance(key, plan.Column) and key.path[-1].lower() == "partitionid" for key in over)
        if over and not named and count > 1:
            wait = (
                "without limit"
                if late is None
                else f"until the arrival clock of every partition has passed them by {format_duration(late)}"
            )
            yield (
                f"input {name} has {count} partitions, and a key of OVER may be on any of them, so its results wait "
                f"{wait}; if each key stays on one partition, name PartitionId in OVER, PARTITION BY and GROUP BY"
            )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the state folder for this process; the system releases the lock however the process ends."""
    try:
        lock = DirectoryLock(folder)
    except DirectoryLocked as error:
        raise AnotherProcess(f"another process is running this job: {error}") from error
    except OSError as error:
        raise UnavailableError(f"cannot use the state folder {folder}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()
